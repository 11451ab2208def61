//! When a flow keeps less in flight than its controller allows (docs/cc/shared.md, "How a flow begins" and "Drains").
//!
//! **Learning.** A flow's own queue is no noise, and many packets that one poll brings meet the same noise. So a flow learns noise
//! with few packets in flight. Where its first samples show neither noise nor a queue, it soon takes as many as its controller allows.
//!
//! **Drains.** A flow that begins while a queue stands takes that queue for a part of the base round trip, aims at a longer one, and so
//! drives out those that made it. Then nearly all of the queue is its own. So where nobody told the base round trip, the flow lets its
//! packets leave the network now and then, and what it sends after them measures the round trip without them.

use crate::cc::{AckSample, LEARNING_SAMPLES};
use crate::units::{Nanos, SECOND};

/// Packets in flight when learning begins, after samples that met a queue, and in a drain.
const FEW_PACKETS: u16 = 4;
/// Samples that tell whether the network is quiet.
const QUIET_SAMPLES: u8 = 8;
/// A sample of more quarters of the shortest round trip met noise or a queue.
const QUEUED_QUARTERS: Nanos = 7;
/// Packets that an acknowledged one adds while a flow learns in a quiet network.
const GROWTH: u16 = 2;
/// Round trips before the first drain, and most between two; each time is twice the one before.
const DRAIN_FIRST_RTTS: u16 = 16;
const DRAIN_LAST_RTTS: u16 = 256;
/// Round trips from the start of a drain until a packet is sent that ends it.
const DRAIN_RTTS: Nanos = 2;
/// Longest time between two drains: [`DRAIN_LAST_RTTS`] of the longest round trips on earth. Times are rounded up to a power of two,
/// in us: flows whose round trips differ a little then drain at the same times.
const DRAIN_SPACING_MAX_NS: Nanos = 64 * SECOND;
/// Furthest that the next drain lies ahead: [`DRAIN_SPACING_MAX_NS`], rounded up.
const AHEAD_MOST_US: u32 = 1 << 26;
/// A round trip shorter by one part in so many than all since the last drain shows that others drain.
const DRAIN_SHOWN: u32 = 16;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restraint {
    /// Round trips still to sample until the noise is known.
    learning: u8,
    /// One of the first samples met a queue or noise.
    is_rough: bool,
    phase: Phase,
    /// Packets in flight while it learns.
    packets: u16,
    /// Round trips between the last drain and the next one.
    spacing_rtts: u16,
    /// The shortest round trip since the start of the latest drain (ns).
    least_ns: u32,
    /// Start of the present drain, or of the next one (us, wrapping).
    at_us: u32,
}

/// Of drains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    /// There are none.
    #[default]
    Never,
    /// The time of the first one is not set.
    Unset,
    /// The next one has a time.
    Waits,
    /// One goes on.
    Drains,
}

impl Restraint {
    /// That of a flow which begins. Flows that compare no round trips keep to their controller's window.
    pub fn new(compares: bool, base_known: bool) -> Restraint {
        Restraint {
            learning: if compares { LEARNING_SAMPLES } else { 0 },
            is_rough: false,
            phase: if compares && !base_known { Phase::Unset } else { Phase::Never },
            packets: FEW_PACKETS,
            spacing_rtts: DRAIN_FIRST_RTTS,
            least_ns: u32::MAX,
            at_us: 0,
        }
    }

    /// Most packets in flight; `None` if the controller alone decides.
    pub fn packets(&self) -> Option<u64> {
        match self {
            Restraint { phase: Phase::Drains, .. } => Some(FEW_PACKETS.into()),
            Restraint { learning: 0, .. } => None,
            _ => Some(self.packets.into()),
        }
    }

    /// True while the flow lets its packets leave the network.
    pub fn is_draining(&self) -> bool {
        self.phase == Phase::Drains
    }

    /// Takes an acknowledgement, with the smoothed round trip and the shortest one.
    #[inline]
    pub fn acked(&mut self, ack: &AckSample, (smoothed_ns, least_ns): (Nanos, Nanos)) {
        if self.learning > 0 {
            self.learn(ack, least_ns);
        } else if self.phase != Phase::Never {
            self.step(ack, smoothed_ns);
        }
    }

    fn learn(&mut self, ack: &AckSample, least_ns: Nanos) {
        let Some(rtt_ns) = ack.rtt_ns else { return };
        self.learning -= 1;
        let is_late = ack.ce_bytes > 0 || 4 * rtt_ns > QUEUED_QUARTERS * least_ns;
        if self.learning >= LEARNING_SAMPLES - QUIET_SAMPLES {
            self.is_rough |= is_late;
        } else if is_late {
            self.packets = FEW_PACKETS.max(self.packets / 2);
        } else if !self.is_rough {
            let acked = ack.acked_packets.min(u16::MAX.into()) as u16;
            self.packets = self.packets.saturating_add(acked.saturating_mul(GROWTH));
        }
    }

    fn step(&mut self, ack: &AckSample, smoothed_ns: Nanos) {
        let (now_us, sent_us) = (to_us(ack.now), to_us(ack.sent_at));
        let rtt_ns = ack.rtt_ns.map_or(u32::MAX, |rtt_ns| rtt_ns as u32);
        // Flows that drain together see more of what they make together.
        let others_drain = rtt_ns < self.least_ns - self.least_ns / DRAIN_SHOWN;
        self.least_ns = self.least_ns.min(rtt_ns);
        match self.phase {
            Phase::Never => {}
            Phase::Unset => self.wait(now_us, smoothed_ns),
            Phase::Waits if others_drain || is_past(self.at_us, now_us, AHEAD_MOST_US) => {
                (self.phase, self.at_us, self.least_ns) = (Phase::Drains, now_us, u32::MAX);
            }
            Phase::Waits => {}
            Phase::Drains => {
                let Some(rtt_ns) = ack.rtt_ns else { return };
                let lasts_us = to_us(DRAIN_RTTS * smoothed_ns);
                let ends_us = self.at_us.wrapping_add(lasts_us);
                // A packet that left before the drain began did so at most its round trip before.
                let ahead_most_us = lasts_us.saturating_add(to_us(rtt_ns)).saturating_add(1);
                if is_past(ends_us, sent_us, ahead_most_us) {
                    self.spacing_rtts = (2 * self.spacing_rtts).min(DRAIN_LAST_RTTS);
                    self.wait(now_us, smoothed_ns);
                }
            }
        }
    }

    fn wait(&mut self, now_us: u32, smoothed_ns: Nanos) {
        let wait_ns = (smoothed_ns * Nanos::from(self.spacing_rtts)).min(DRAIN_SPACING_MAX_NS);
        self.at_us = now_us.wrapping_add(to_us(wait_ns).next_power_of_two());
        self.phase = Phase::Waits;
    }
}

/// In us, wrapping.
fn to_us(time_ns: Nanos) -> u32 {
    (time_ns / 1_000) as u32
}

/// Whether a time is over that was at most so far ahead; both wrap. A flow may be silent for hours.
fn is_past(at_us: u32, now_us: u32, ahead_most_us: u32) -> bool {
    !(1..=ahead_most_us).contains(&at_us.wrapping_sub(now_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RTT_NS: Nanos = 10_000;

    fn ack(now: Nanos, rtt_ns: Nanos) -> AckSample {
        AckSample {
            now,
            sent_at: now.saturating_sub(rtt_ns),
            acked_bytes: 4_096,
            acked_packets: 1,
            rtt_ns: Some(rtt_ns),
            path: 0,
            ce_bytes: 0,
            lag_packets: 0,
            in_flight_bytes: 4_096,
            app_limited: false,
        }
    }

    fn after(restraint: &mut Restraint, rtts_ns: &[Nanos]) -> Option<u64> {
        for rtt_ns in rtts_ns {
            restraint.acked(&ack(0, *rtt_ns), (RTT_NS, RTT_NS));
        }
        restraint.packets()
    }

    #[test]
    fn a_flow_in_a_quiet_network_soon_has_more_in_flight() {
        let mut flow = Restraint::new(true, true);
        assert_eq!(after(&mut flow, &[RTT_NS; 8]), Some(4));
        assert_eq!(after(&mut flow, &[RTT_NS; 10]), Some(24));
        assert_eq!(after(&mut flow, &[2 * RTT_NS]), Some(12), "a queue halves it");
        assert_eq!(after(&mut flow, &[2 * RTT_NS; 3]), Some(4));
        assert_eq!(after(&mut flow, &[RTT_NS; 104]), None, "126 samples in all");
    }

    #[test]
    fn one_late_sample_of_the_first_keeps_it_small_until_it_has_learnt() {
        let mut flow = Restraint::new(true, true);
        after(&mut flow, &[RTT_NS; 7]);
        after(&mut flow, &[2 * RTT_NS]);
        assert_eq!(after(&mut flow, &[RTT_NS; 117]), Some(4));
        assert_eq!(after(&mut flow, &[RTT_NS]), None);
        let marked = AckSample { ce_bytes: 1, ..ack(0, RTT_NS) };
        let mut flow = Restraint::new(true, true);
        flow.acked(&marked, (RTT_NS, RTT_NS));
        assert_eq!(after(&mut flow, &[RTT_NS; 100]), Some(4));
    }

    #[test]
    fn a_flow_that_compares_no_round_trips_is_free() {
        let mut flow = Restraint::new(false, false);
        assert_eq!(after(&mut flow, &[RTT_NS; 1_000]), None);
    }

    /// Times (in round trips) at which a flow drains that has learnt, of 600 round trips with four samples each.
    fn drains(flow: &mut Restraint, rtt_ns: impl Fn(Nanos) -> Nanos) -> Vec<Nanos> {
        drains_at(flow, RTT_NS, rtt_ns)
    }

    /// The same with another smoothed round trip.
    fn drains_at(
        flow: &mut Restraint,
        smoothed_ns: Nanos,
        rtt_ns: impl Fn(Nanos) -> Nanos,
    ) -> Vec<Nanos> {
        after(flow, &[RTT_NS; LEARNING_SAMPLES as usize]);
        let quarters = (0..2_400).filter(|quarter| {
            let now = quarter * smoothed_ns / 4;
            flow.acked(&ack(now, rtt_ns(now)), (smoothed_ns, smoothed_ns));
            flow.is_draining()
        });
        quarters.map(|quarter| quarter / 4).collect()
    }

    #[test]
    fn flows_between_continents_drain_no_more_often() {
        for rtt_ns in [SECOND / 25, SECOND / 4] {
            let flow = &mut Restraint::new(true, false);
            let mut times = drains_at(flow, rtt_ns, |_| rtt_ns);
            times.dedup();
            assert!((12..=20).contains(&times.len()), "{rtt_ns} ns: {times:?}");
        }
    }

    #[test]
    fn drains_come_again_and_each_time_later() {
        let mut flow = Restraint::new(true, false);
        let mut times = drains(&mut flow, |_| RTT_NS);
        times.dedup();
        // 160 us are rounded up to 256, and so on.
        let expected = [25..29, 80..83, 185..189, 393..397].into_iter().flatten();
        assert_eq!(times, expected.collect::<Vec<_>>(), "three round trips each time");
        assert!(
            drains(&mut Restraint::new(true, true), |_| RTT_NS).is_empty(),
            "the base is known"
        );
    }

    #[test]
    fn a_drain_ends_with_the_first_answer_after_a_long_silence() {
        for silence_ns in [SECOND, 3_000 * SECOND, 4_000 * SECOND, 5_000 * SECOND] {
            let mut flow = Restraint::new(true, false);
            drains(&mut flow, |_| RTT_NS);
            let at = Nanos::from(flow.at_us) * 1_000;
            flow.acked(&ack(at, RTT_NS), (RTT_NS, RTT_NS));
            assert!(flow.is_draining());
            flow.acked(&ack(at + silence_ns, RTT_NS), (RTT_NS, RTT_NS));
            assert!(!flow.is_draining(), "{silence_ns} ns");
        }
    }

    #[test]
    fn a_flow_that_sees_others_drain_drains_too() {
        let mut flow = Restraint::new(true, false);
        let others = 300 * RTT_NS..303 * RTT_NS;
        let rtt_ns = |now: Nanos| if others.contains(&now) { RTT_NS * 9 / 10 } else { RTT_NS };
        let times = drains(&mut flow, rtt_ns);
        assert!(times.contains(&301), "{times:?}");
    }
}
