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
/// Samples that tell whether the network is quiet. On average they are longer than the shortest of them by one part in as many at
/// most.
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
pub(super) enum Restraint {
    /// The controller alone decides.
    #[default]
    Free,
    /// The flow learns noise.
    Learns(Learning),
    /// It has learnt, and drains now and then.
    Drains(Draining),
}

/// Of a flow that learns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learning {
    /// Round trips still to sample until the noise is known.
    left: u8,
    /// Of them, without noise or a queue, until it takes more packets.
    until_quiet: u8,
    drains_later: bool,
    /// Packets in flight.
    packets: u16,
    /// When the latest sample was read (ns, wrapping).
    read_ns: u16,
    /// Of those that `until_quiet` counts: the sum, and the shortest (ns).
    sum_ns: u32,
    shortest_ns: u32,
}

/// Of a flow that drains now and then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    phase: Phase,
    /// Round trips between the last drain and the next one.
    spacing_rtts: u16,
    /// The shortest round trip since the start of the latest drain (ns).
    least_ns: u32,
    /// Start of the present drain, or of the next one (us, wrapping).
    at_us: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The time of the first drain is not set.
    Unset,
    /// The next one has a time.
    Waits,
    /// One goes on.
    Drains,
}

impl Restraint {
    /// That of a flow which begins. Flows that compare no round trips keep to their controller's window.
    pub fn new(compares: bool, base_known: bool) -> Restraint {
        let learning = Learning {
            left: LEARNING_SAMPLES,
            until_quiet: QUIET_SAMPLES,
            drains_later: !base_known,
            packets: FEW_PACKETS,
            read_ns: 0,
            sum_ns: 0,
            shortest_ns: u32::MAX,
        };
        if compares { Restraint::Learns(learning) } else { Restraint::Free }
    }

    /// Most packets in flight; `None` if the controller alone decides.
    pub fn packets(&self) -> Option<u64> {
        match self {
            Restraint::Learns(learning) => Some(learning.packets.into()),
            _ if self.is_draining() => Some(FEW_PACKETS.into()),
            _ => None,
        }
    }

    /// True while the flow lets its packets leave the network.
    pub fn is_draining(&self) -> bool {
        matches!(self, Restraint::Drains(Draining { phase: Phase::Drains, .. }))
    }

    /// Takes an acknowledgement, with the smoothed round trip and the shortest one.
    #[inline]
    pub fn acked(&mut self, ack: &AckSample, (smoothed_ns, least_ns): (Nanos, Nanos)) {
        match self {
            Restraint::Free => {}
            Restraint::Learns(learning) => {
                learning.take(ack, least_ns);
                if learning.left == 0 {
                    *self = match learning.drains_later {
                        true => Restraint::Drains(Draining::NONE),
                        false => Restraint::Free,
                    };
                }
            }
            Restraint::Drains(draining) => draining.take(ack, smoothed_ns),
        }
    }
}

impl Learning {
    fn take(&mut self, ack: &AckSample, least_ns: Nanos) {
        let Some(rtt_ns) = ack.rtt_ns else { return };
        self.left -= 1;
        let is_new = self.read_ns != ack.now as u16;
        self.read_ns = ack.now as u16;
        let is_late = ack.ce_bytes > 0 || 4 * rtt_ns > QUEUED_QUARTERS * least_ns;
        if self.until_quiet > 0 {
            self.look(is_late, is_new, rtt_ns.min(u32::MAX.into()) as u32);
        } else if is_late {
            self.packets = FEW_PACKETS.max(self.packets / 2);
        } else {
            let acked = ack.acked_packets.min(u16::MAX.into()) as u16;
            self.packets = self.packets.saturating_add(acked.saturating_mul(GROWTH));
        }
    }

    /// Judges whether the network is quiet. Samples of one poll have the same noise, and count as one.
    fn look(&mut self, is_late: bool, is_new: bool, rtt_ns: u32) {
        if is_new {
            self.until_quiet -= 1;
            self.sum_ns = self.sum_ns.saturating_add(rtt_ns);
            self.shortest_ns = self.shortest_ns.min(rtt_ns);
        }
        let quiet_ns = self.shortest_ns.saturating_mul(u32::from(QUIET_SAMPLES) + 1);
        if is_late || (self.until_quiet == 0 && self.sum_ns > quiet_ns) {
            (self.until_quiet, self.sum_ns, self.shortest_ns) = (QUIET_SAMPLES, 0, u32::MAX);
        }
    }
}

impl Draining {
    const NONE: Draining = Draining {
        phase: Phase::Unset,
        spacing_rtts: DRAIN_FIRST_RTTS,
        least_ns: u32::MAX,
        at_us: 0,
    };

    fn take(&mut self, ack: &AckSample, smoothed_ns: Nanos) {
        let (now_us, sent_us) = (to_us(ack.now), to_us(ack.sent_at));
        let rtt_ns = ack.rtt_ns.map_or(u32::MAX, |rtt_ns| rtt_ns as u32);
        // Flows that drain together see more of what they make together.
        let others_drain = rtt_ns < self.least_ns - self.least_ns / DRAIN_SHOWN;
        self.least_ns = self.least_ns.min(rtt_ns);
        match self.phase {
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

    /// Takes samples, each read alone.
    fn after(restraint: &mut Restraint, rtts_ns: &[Nanos]) -> Option<u64> {
        after_polls(restraint, rtts_ns, 1)
    }

    /// Takes samples, so many of which each poll reads.
    fn after_polls(restraint: &mut Restraint, rtts_ns: &[Nanos], each: usize) -> Option<u64> {
        for (nth, rtt_ns) in rtts_ns.iter().enumerate() {
            let now = 1 + (nth / each) as Nanos * 300;
            restraint.acked(&ack(now, *rtt_ns), (RTT_NS, RTT_NS));
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
    fn a_late_sample_of_the_first_keeps_it_small_until_others_show_that_the_network_is_quiet() {
        let late = AckSample { rtt_ns: Some(2 * RTT_NS), ..ack(7, 2 * RTT_NS) };
        let marked = AckSample { ce_bytes: 1, ..ack(7, RTT_NS) };
        for sample in [late, marked] {
            let mut flow = Restraint::new(true, true);
            assert_eq!(after(&mut flow, &[RTT_NS; 7]), Some(4));
            flow.acked(&sample, (RTT_NS, RTT_NS));
            assert_eq!(after(&mut flow, &[RTT_NS; 8]), Some(4));
            assert_eq!(after(&mut flow, &[RTT_NS; 2]), Some(8));
        }
    }

    #[test]
    fn noise_keeps_it_small_until_it_has_learnt() {
        let quarters = [4, 6, 5, 6, 4, 5, 6, 4, 6, 5].map(|quarters| quarters * RTT_NS / 4);
        let mut flow = Restraint::new(true, true);
        for _ in 0..12 {
            assert_eq!(after(&mut flow, &quarters), Some(4), "none is late, and they vary");
        }
        assert_eq!(after(&mut flow, &quarters[..6]), None);
    }

    #[test]
    fn samples_that_one_poll_reads_count_as_one() {
        let mut flow = Restraint::new(true, true);
        assert_eq!(after_polls(&mut flow, &[RTT_NS; 29], 4), Some(4));
        assert_eq!(after_polls(&mut flow, &[RTT_NS; 2], 4), Some(8));
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
            let Restraint::Drains(Draining { at_us, .. }) = flow else { panic!("{flow:?}") };
            let at = Nanos::from(at_us) * 1_000;
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
