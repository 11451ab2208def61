//! The queue of a link: it marks, trims and drops.

use crate::hop::Hop;
use crate::link::{Health, LinkConfig, LinkCounters};
use crate::meter::DepthMeter;
use crate::mutants::{Mutant, mutant};
use crate::time::Picos;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;

/// Trimmed headers that may wait at a link; more are dropped.
const HEADERS_MAX: usize = 4096;
/// Longest packet that a full queue which trims takes for a header, in bytes on the link.
const SHORT_BYTES: u32 = 256 + crate::packet::FRAME_BYTES;

/// What became of a packet that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// It waits.
    Queued,
    /// It is lost.
    Lost,
}

/// See the module.
#[derive(Debug)]
pub struct Queue {
    buffer_bytes: u64,
    red: Option<crate::link::Red>,
    trimming: bool,
    trims_last: bool,
    control_first: bool,
    health: Health,
    /// Bounded by `buffer_bytes`.
    waiting: VecDeque<Hop>,
    waiting_bytes: u64,
    /// What overtakes: trimmed headers, control packets where they go first, and short packets that found a full queue of
    /// a link that trims; at most [`HEADERS_MAX`].
    first: VecDeque<Hop>,
    rng: Pcg32,
    counters: LinkCounters,
    depth: Option<Box<DepthMeter>>,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(config: &LinkConfig, seed: u64) -> Queue {
        Queue {
            buffer_bytes: config.buffer_bytes,
            red: config.red,
            trimming: config.trimming,
            trims_last: config.trims_last,
            control_first: config.control_first,
            health: Health::Up,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            first: VecDeque::new(),
            rng: Pcg32::seed_from_u64(seed),
            counters: LinkCounters::default(),
            depth: config.depth_unit_bytes.map(|unit| Box::new(DepthMeter::new(unit))),
        }
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.first.is_empty()
    }

    /// Counters since the start.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Its depth over time, if it is measured.
    #[must_use]
    pub fn depth(&self) -> Option<&DepthMeter> {
        self.depth.as_deref()
    }

    /// Measures the depth of each interval, unless it is measured anyway.
    pub fn watch_depth(&mut self) {
        self.depth.get_or_insert_with(|| Box::new(DepthMeter::of_intervals()));
    }

    /// Mean and greatest depth since the last call, in bytes; 0 if nobody measures.
    pub fn take_depth(&mut self, now: Picos) -> (f64, u64) {
        self.depth.as_mut().map_or((0.0, 0), |depth| depth.take_interval(now))
    }

    /// Measures the depth from now on.
    pub fn reset_depth(&mut self, now: Picos) {
        if let Some(depth) = &mut self.depth {
            depth.reset(now);
        }
    }

    /// Brings the meter up to now.
    pub fn settle_depth(&mut self, now: Picos) {
        if let Some(depth) = &mut self.depth {
            depth.set(now, self.waiting_bytes);
        }
    }

    /// Its link's health.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Changes how the link does, from the next packet on. One that dies loses what waits: each goes to `lost`.
    pub fn set_health(&mut self, now: Picos, health: Health, mut lost: impl FnMut(Hop)) {
        self.health = health;
        if health == Health::Dead {
            for hop in self.waiting.drain(..).chain(self.first.drain(..)) {
                self.counters.lost += 1;
                lost(hop);
            }
            self.waiting_bytes = 0;
            self.settle_depth(now);
        }
    }

    /// Whether the link's health costs a packet.
    pub fn loses(&mut self) -> bool {
        let loses = match self.health {
            Health::Up | Health::Slowed { .. } | Health::Corrupt { .. } => false,
            Health::Lossy { share } => f64::from(self.rng.next_u32()) < share * 4_294_967_296.0,
            Health::Dead => !mutant(Mutant::CarriesOverDeadLinks),
        };
        self.counters.lost += u64::from(loses);
        loses
    }

    /// Whether the link changes a bit of a packet of so many bytes.
    pub fn corrupts(&mut self, wire_bytes: u32) -> bool {
        let Health::Corrupt { bits } = self.health else { return false };
        // 1 - (1 - bits)^n, without losing small ones.
        let share = -libm::expm1(f64::from(wire_bytes) * 8.0 * libm::log1p(-bits));
        let draw = u64::from(self.rng.next_u32()) << 32 | u64::from(self.rng.next_u32());
        let corrupts = (draw as f64) < share * 18_446_744_073_709_551_616.0;
        self.counters.corrupted += u64::from(corrupts);
        corrupts
    }

    /// Counts a packet that was lost on the way out.
    pub fn count_lost(&mut self) {
        self.counters.lost += 1;
    }

    /// A random number, as the link's own noise needs it.
    pub fn random(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// Counts a packet that was offered.
    pub fn count(&mut self, hop: &Hop) {
        self.counters.offered += 1;
        self.counters.offered_bytes += u64::from(hop.wire_bytes);
    }

    /// Counts a packet for which there was no place.
    pub fn count_dropped(&mut self) {
        self.counters.drops += 1;
    }

    /// Counts a pause that is over, or begins.
    pub fn count_pause(&mut self, begins: bool, lasted_ps: Picos) {
        self.counters.pauses += u64::from(begins);
        self.counters.paused_ps += lasted_ps;
    }

    /// It overtakes what waits, whether or not there is room.
    #[must_use]
    pub fn overtakes(&self, hop: &Hop) -> bool {
        self.control_first && hop.payload_bytes == 0
    }

    /// Something waits that overtakes the rest.
    #[must_use]
    pub fn has_first(&self) -> bool {
        !self.first.is_empty()
    }

    /// Takes the next packet out of those that overtake.
    pub fn pop_first(&mut self) -> Option<Hop> {
        let hop = self.first.pop_front()?;
        if self.first.is_empty() {
            self.first.clear();
        }
        self.counters.sent_bytes += u64::from(hop.wire_bytes);
        Some(hop)
    }

    /// Takes a packet in, trims or drops it.
    pub fn push(&mut self, now: Picos, mut hop: Hop) -> Offer {
        let full = self.waiting_bytes + u64::from(hop.wire_bytes) > self.buffer_bytes;
        let control = self.overtakes(&hop);
        if full && self.trimming && hop.payload_bytes > 0 {
            if self.trims_last {
                self.change_places(&mut hop);
            }
            hop.trim();
            self.counters.trims += 1;
            if mutant(Mutant::LosesWhatItTrims) {
                return Offer::Queued;
            }
        }
        let overtakes = hop.trimmed || control || (full && self.trimming);
        if overtakes && hop.wire_bytes <= SHORT_BYTES && self.first.len() < HEADERS_MAX {
            self.first.push_back(hop);
        } else if full {
            self.counters.drops += 1;
            return Offer::Lost;
        } else {
            self.waiting_bytes += u64::from(hop.wire_bytes);
            self.waiting.push_back(hop);
            self.settle_depth(now);
        }
        Offer::Queued
    }

    /// By chance a packet takes the place of the last one, unless the queue would become longer.
    fn change_places(&mut self, hop: &mut Hop) {
        let last = self.waiting.back_mut().filter(|last| last.wire_bytes >= hop.wire_bytes);
        if let Some(last) = last
            && self.rng.next_u32() & 1 == 1
        {
            self.waiting_bytes -= u64::from(last.wire_bytes - hop.wire_bytes);
            std::mem::swap(last, hop);
        }
    }

    /// Takes the next packet out, and marks it by what waits behind it.
    pub fn pop(&mut self, now: Picos) -> Option<Hop> {
        if let Some(hop) = self.pop_first() {
            return Some(hop);
        }
        let mut hop = self.waiting.pop_front()?;
        if self.waiting.is_empty() {
            // The queue starts again at the front of its memory, which is in the cache.
            self.waiting.clear();
        }
        self.counters.sent_bytes += u64::from(hop.wire_bytes);
        self.waiting_bytes -= u64::from(hop.wire_bytes);
        self.settle_depth(now);
        if hop.can_be_marked() && self.marks() {
            hop.ecn = erd_rd::Ecn::Ce;
            self.counters.marks += 1;
        }
        Some(hop)
    }

    fn marks(&mut self) -> bool {
        let Some(red) = self.red else { return false };
        if self.waiting_bytes <= red.min_bytes {
            return false;
        }
        let span = red.max_bytes.saturating_sub(red.min_bytes).max(1);
        let above = self.waiting_bytes - red.min_bytes;
        let random = u128::from(self.rng.next_u32());
        let share = (u128::from(above) << 32) * u128::from(red.most_ppm);
        above >= span || random * u128::from(span) * 1_000_000 < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HostId;
    use crate::link::Red;
    use erd_rd::Ecn;

    const DATA_BYTES: u32 = 4200;

    fn data(path: u16) -> Hop {
        let hop = Hop::probe(HostId(0), HostId(1), DATA_BYTES);
        Hop { path, payload_bytes: 4096, ecn: Ecn::Ect0, ..hop }
    }

    fn control(path: u16) -> Hop {
        Hop { path, ..Hop::probe(HostId(0), HostId(1), 100) }
    }

    /// A queue for ten packets of data.
    fn queue(change: impl FnOnce(&mut LinkConfig)) -> Queue {
        let mut config =
            LinkConfig { buffer_bytes: u64::from(DATA_BYTES) * 10, ..LinkConfig::delay(0) };
        change(&mut config);
        Queue::new(&config, 1)
    }

    fn drain(queue: &mut Queue) -> Vec<Hop> {
        std::iter::from_fn(|| queue.pop(0)).collect()
    }

    #[test]
    fn a_full_queue_drops_what_comes_last() {
        let mut queue = queue(|_| ());
        let offers: Vec<Offer> = (0..12).map(|path| queue.push(0, data(path))).collect();
        assert_eq!(offers.iter().filter(|offer| **offer == Offer::Lost).count(), 2);
        let left: Vec<u16> = drain(&mut queue).iter().map(|hop| hop.path).collect();
        assert_eq!((left, queue.counters().drops), ((0..10).collect(), 2));
        assert_eq!((queue.is_empty(), queue.waiting_bytes), (true, 0));
    }

    #[test]
    fn a_full_queue_that_trims_cuts_payload_off_and_lets_the_rest_overtake() {
        let mut queue = queue(|config| config.trimming = true);
        for path in 0..12 {
            assert_eq!(queue.push(0, data(path)), Offer::Queued);
        }
        let left = drain(&mut queue);
        let trimmed: Vec<(u16, u32)> =
            left[..2].iter().map(|hop| (hop.path, hop.wire_bytes)).collect();
        assert_eq!(trimmed, [(10, DATA_BYTES - 4096), (11, DATA_BYTES - 4096)]);
        assert!(
            left[..2].iter().all(|hop| hop.trimmed) && left[2..].iter().all(|hop| !hop.trimmed)
        );
        assert_eq!((queue.counters().trims, queue.counters().drops), (2, 0));
    }

    /// Each packet that comes to a full queue of ten is trimmed or takes the last place.
    #[test]
    fn a_queue_that_trims_by_chance_trims_the_last_packet_or_the_new_one() {
        let mut queue = queue(|config| (config.trimming, config.trims_last) = (true, true));
        (0..100).for_each(|path| assert_eq!(queue.push(0, data(path)), Offer::Queued));
        assert_eq!(queue.waiting_bytes, queue.buffer_bytes);
        let left = drain(&mut queue);
        let (trimmed, whole) = left.split_at(90);
        assert!(trimmed.iter().all(|hop| hop.trimmed) && whole.iter().all(|hop| !hop.trimmed));
        let whole: Vec<u16> = whole.iter().map(|hop| hop.path).collect();
        assert_eq!(whole[..9], [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        let held = trimmed.iter().zip(10..).filter(|(hop, new)| hop.path != *new).count();
        assert!((25..65).contains(&held), "{held} of 90 had held the last place");
        assert_eq!((queue.counters().trims, queue.waiting_bytes), (90, 0));
    }

    /// A queue keeps within its bound when a longer packet comes.
    #[test]
    fn a_short_last_packet_keeps_its_place() {
        let mut queue = queue(|config| (config.trimming, config.trims_last) = (true, true));
        (0..9).for_each(|path| assert_eq!(queue.push(0, data(path)), Offer::Queued));
        queue.push(0, Hop { wire_bytes: DATA_BYTES - 1, payload_bytes: 4095, ..data(9) });
        (10..50).for_each(|path| assert_eq!(queue.push(0, data(path)), Offer::Queued));
        assert_eq!(queue.waiting_bytes, queue.buffer_bytes - 1);
        assert_eq!(drain(&mut queue).last().map(|hop| hop.path), Some(9));
    }

    #[test]
    fn control_goes_first_where_it_is_told_to() {
        for (first, order) in [(true, [7, 0, 1]), (false, [0, 1, 7])] {
            let mut queue = queue(|config| config.control_first = first);
            for hop in [data(0), data(1), control(7)] {
                queue.push(0, hop);
            }
            let left: Vec<u16> = drain(&mut queue).iter().map(|hop| hop.path).collect();
            assert_eq!(left, order);
        }
    }

    #[test]
    fn marks_follow_from_what_waits_behind() {
        let (low, high) = (u64::from(DATA_BYTES) * 2, u64::from(DATA_BYTES) * 4);
        let mut queue = queue(|config| config.red = Some(Red::linear(low, high)));
        for path in 0..10 {
            queue.push(
                0,
                if path == 1 { Hop { ecn: Ecn::NotEct, ..data(path) } } else { data(path) },
            );
        }
        let left = drain(&mut queue);
        let marked = |hop: &Hop| hop.ecn == Ecn::Ce;
        // Behind the first six are four packets and more; behind the last three two and fewer.
        assert!(marked(&left[0]) && !marked(&left[1]) && left[2..6].iter().all(marked));
        assert!(!left[7..].iter().any(marked));
    }

    #[test]
    fn a_link_that_dies_loses_what_waits() {
        let mut queue = queue(|_| ());
        queue.push(0, data(1));
        let mut lost = Vec::new();
        queue.set_health(0, Health::Dead, |hop| lost.push(hop.path));
        assert_eq!((lost, queue.loses(), queue.counters().lost), (vec![1], true, 2));
        queue.set_health(0, Health::Up, |_| unreachable!("nothing waits"));
        assert!(!queue.loses());
    }
}
