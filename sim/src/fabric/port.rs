//! Where a link begins: its transmitter and, apart from it, its queue. Most packets find no queue, and then a hop touches
//! one cache line.

use super::blueprint::{LinkPlan, NodeId};
use crate::hop::Hop;
use crate::link::{Health, LinkCounters, WireEnd};
use crate::mutants::{Mutant, mutant};
use crate::queue::{Offer, Queue};
use crate::time::{PS_PER_S, Picos};

/// Bits after the point in a port's time for a byte.
const POINT: u32 = 24;
/// Bits of a link's number in a key.
const LINK_BITS: u32 = 24;
/// Bits of the number of a packet among those of one link that arrive at one instant.
const SEQUENCE_BITS: u32 = 14;

/// An event will come when the transmitter is free.
const AWAITED: u8 = 1;
/// Something waits.
const QUEUED: u8 = 2;
/// The link is not well, or its far end is noisy.
const ODD: u8 = 4;
/// Packets only pass, without a time to send them.
const ONLY_DELAYS: u8 = 8;
/// The far end wants no data now.
const PAUSED: u8 = 16;

/// See the module.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Port {
    /// When the transmitter is free.
    free_at: Picos,
    /// Time for a byte, in 2^-24 ps; 0 sends at once.
    per_byte: u64,
    propagation_ps: Picos,
    /// When the latest packet arrives, and how many before it arrive then.
    latest_at: Picos,
    latest_count: u32,
    to: NodeId,
    /// Packets that found no queue, and their bytes.
    passed: u64,
    passed_bytes: u64,
    /// Number of the link in the whole network.
    link: u32,
    /// Number of the link among those that lead to its end.
    ingress: u16,
    flags: u8,
}

/// What of a link is rarely touched while nothing waits.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) queue: Queue,
    end: WireEnd,
    bytes_per_s: Option<u64>,
    /// When the far end made it pause.
    paused_at: Picos,
}

/// A packet on the wire: where and when it arrives, and what orders it among all that arrive then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub(super) hop: Hop,
    pub(super) to: NodeId,
    pub(super) at: Picos,
    pub(super) tie: u64,
    /// The far end drops it.
    pub(super) lost: bool,
}

/// What becomes of a packet that is offered to a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Sent(Launch),
    Waits,
    Lost,
}

impl Port {
    pub(super) fn new(plan: &LinkPlan, link: u32, ingress: u16, seed: u64) -> (Port, Waiting) {
        let config = &plan.config;
        let mut waiting = Waiting {
            queue: Queue::new(config, seed),
            end: WireEnd::new(config),
            bytes_per_s: config.bytes_per_s,
            paused_at: 0,
        };
        let mut port = Port {
            free_at: 0,
            per_byte: 0,
            propagation_ps: config.propagation_ps,
            latest_at: 0,
            latest_count: 0,
            to: plan.to,
            link,
            ingress,
            passed: 0,
            passed_bytes: 0,
            flags: if config.bytes_per_s.is_none() { ONLY_DELAYS } else { 0 },
        };
        port.set_health(&mut waiting, 0, Health::Up, |_| ());
        (port, waiting)
    }

    pub(super) fn set_health(
        &mut self,
        waiting: &mut Waiting,
        now: Picos,
        health: Health,
        lost: impl FnMut(Hop),
    ) {
        let slower = if let Health::Slowed { times } = health { times.max(1) } else { 1 };
        let scaled = (u128::from(PS_PER_S) * u128::from(slower)) << POINT;
        // Rounded up: no packet takes less than [`LinkConfig::sending_ps`](crate::link::LinkConfig::sending_ps).
        let per_byte = |rate: u64| scaled.div_ceil(rate.into()) as u64;
        self.per_byte = waiting.bytes_per_s.map_or(0, per_byte);
        waiting.queue.set_health(now, health, lost);
        self.set(ODD, health != Health::Up || !waiting.end.is_plain());
        self.set(QUEUED, !waiting.queue.is_empty());
    }

    fn set(&mut self, flag: u8, on: bool) {
        self.flags = self.flags & !flag | if on { flag } else { 0 };
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Number of the link in the whole network.
    pub(super) fn link(&self) -> u32 {
        self.link
    }

    /// It takes any number of packets at once.
    pub(super) fn only_delays(&self) -> bool {
        self.has(ONLY_DELAYS)
    }

    /// A packet could be sent now.
    pub(super) fn is_idle(&self, now: Picos) -> bool {
        self.free_at <= now && !self.has(QUEUED | PAUSED)
    }

    /// Something waits.
    pub(super) fn has_queue(&self) -> bool {
        self.has(QUEUED)
    }

    /// Nothing may be sent, whatever waits.
    pub(super) fn is_blocked(&self, waiting: &Waiting) -> bool {
        self.has(PAUSED) && !waiting.queue.has_first()
    }

    /// The far end wants no data, or wants it again. A packet that is being sent goes on.
    pub(super) fn set_paused(&mut self, waiting: &mut Waiting, now: Picos, paused: bool) {
        debug_assert_ne!(self.has(PAUSED), paused, "a pause begins and ends once");
        self.set(PAUSED, paused);
        let lasted_ps = if paused { 0 } else { now - waiting.paused_at };
        waiting.queue.count_pause(paused, lasted_ps);
        waiting.paused_at = now;
    }

    /// When a frame of so many bytes has come to the link's end that goes before all that waits, but after a time.
    pub(super) fn frame_at(&self, now: Picos, after: &mut Picos, bytes: u32) -> Picos {
        *after = now.max(self.free_at).max(*after) + self.sending_ps(bytes);
        *after + self.propagation_ps
    }

    fn sending_ps(&self, bytes: u32) -> Picos {
        ((u128::from(bytes) * u128::from(self.per_byte)) >> POINT) as Picos
    }

    /// The time at which an event has to tell that the transmitter is free; `None` if that is under way.
    pub(super) fn await_free(&mut self, now: Picos) -> Option<Picos> {
        let at = (!self.has(AWAITED)).then_some(self.free_at.max(now));
        self.set(AWAITED, true);
        at
    }

    /// Takes a packet: sends it, keeps it, or loses it.
    pub(super) fn offer(&mut self, waiting: &mut Waiting, now: Picos, hop: Hop) -> Fate {
        if self.has(ODD) {
            let queue = &mut waiting.queue;
            if queue.loses() {
                if !mutant(Mutant::LeavesLossesUncounted) {
                    queue.count(&hop);
                }
                return Fate::Lost;
            }
        }
        if self.is_idle(now) || self.only_delays() {
            self.passed += 1;
            self.passed_bytes += u64::from(hop.wire_bytes);
            return Fate::Sent(self.launch(waiting, now, hop));
        }
        let queue = &mut waiting.queue;
        queue.count(&hop);
        match queue.push(now, hop) {
            Offer::Lost => Fate::Lost,
            Offer::Queued => {
                self.flags |= QUEUED;
                Fate::Waits
            }
        }
    }

    /// The transmitter is free: what waits next is to be sent.
    pub(super) fn free(&mut self, waiting: &mut Waiting, now: Picos) -> Option<Hop> {
        self.set(AWAITED, false);
        if !self.has(QUEUED) {
            return None;
        }
        let queue = &mut waiting.queue;
        let hop = if self.has(PAUSED) { queue.pop_first() } else { queue.pop(now) };
        let is_empty = queue.is_empty();
        self.set(QUEUED, !is_empty);
        hop
    }

    /// Sends a packet, which begins now.
    pub(super) fn launch(&mut self, waiting: &mut Waiting, now: Picos, mut hop: Hop) -> Launch {
        hop.ingress = self.ingress;
        let sending_ps = self.sending_ps(hop.wire_bytes);
        self.free_at = now + sending_ps;
        let mut at = self.free_at + self.propagation_ps;
        let mut lost = false;
        if self.has(ODD) {
            let Waiting { end, queue, .. } = waiting;
            at = end.seen_at(at, sending_ps, || queue.random());
            lost = queue.corrupts(hop.wire_bytes);
        }
        // Packets of one link stay in order, even those that one look finds, except where some overtake others.
        self.latest_count = if at == self.latest_at { self.latest_count + 1 } else { 0 };
        self.latest_at = at;
        debug_assert!(self.latest_count < 1 << SEQUENCE_BITS, "few packets come at one instant");
        let tie = self.rank(at) << SEQUENCE_BITS | u64::from(self.latest_count);
        Launch { hop, to: self.to, at, tie, lost }
    }

    /// The link's place among all that deliver a packet at one instant. It changes with time, so that no link is always
    /// the first.
    fn rank(&self, at: Picos) -> u64 {
        const MASK: u64 = (1 << LINK_BITS) - 1;
        let turn = (at ^ at >> 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // Each step can be undone, so no two links have the same rank.
        let mixed = (u64::from(self.link) ^ turn).wrapping_mul(0x5bd1_e995) & MASK;
        mixed ^ mixed >> 12
    }

    /// Counters since the start.
    pub(super) fn counters(&self, waiting: &Waiting, now: Picos) -> LinkCounters {
        let mut counters = waiting.queue.counters();
        if self.has(PAUSED) {
            counters.paused_ps += now - waiting.paused_at;
        }
        counters.offered += self.passed;
        counters.offered_bytes += self.passed_bytes;
        counters.sent_bytes += self.passed_bytes;
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HostId;
    use crate::link::LinkConfig;

    /// Rates that picoseconds do not divide: no packet is faster than the link, and none a picosecond slower.
    #[test]
    fn a_link_keeps_to_its_rate() {
        for rate in [3_000_000_000, 7_000_000_000, 11_250_000_000, 12_500_000_000, 99_999_999_999] {
            let config = LinkConfig { bytes_per_s: Some(rate), ..LinkConfig::delay(500) };
            let plan = LinkPlan { from: NodeId(0), to: NodeId(1), config };
            for wire_bytes in 64..10_000 {
                let (mut port, mut waiting) = Port::new(&plan, 0, 0, 1);
                let hop = Hop::probe(HostId(0), HostId(1), wire_bytes);
                let at = port.launch(&mut waiting, 0, hop).at;
                let least = config.sending_ps(wire_bytes) + 500;
                assert!((least..=least + 1).contains(&at), "{wire_bytes} at {rate} B/s: {at}");
            }
        }
    }
}
