//! The sending side of a session: the queues, the packets in flight, and congestion control.

use super::flight::Flight;
use super::outbox::Outbox;
use super::shared::Core;
use super::steering::Steering;
use crate::units::{Nanos, Psn};
use crate::wire::ack::{Echo, Sections};
use alloc::vec::Vec;

/// See the module. Holds only numbers while nothing is outstanding.
#[derive(Default)]
pub(super) struct Sending {
    pub out: Outbox,
    pub flight: Flight,
    pub steering: Steering,
}

impl Sending {
    /// Prepares a session: keeps the posts, and starts new numbers.
    pub fn start(&mut self, first_psn: Psn, first_order: u32) {
        self.out.start(first_order);
        self.flight = Flight::new(first_psn);
        self.steering.start(first_psn);
    }

    /// True if something could be sent once the window allows.
    pub fn wants(&self) -> bool {
        self.out.wants() || self.flight.has_retries()
    }

    /// True if something is unacknowledged or waits to be sent.
    pub fn outstanding(&self) -> bool {
        !self.flight.is_empty() || self.flight.first_record().is_some() || self.wants()
    }

    /// True if messages wait for the peer's credit while nothing is in flight that could bring it.
    pub fn starved(&self) -> bool {
        self.flight.packets() == 0 && self.out.is_short_of_credit()
    }

    /// True if notices wait to be sent or acknowledged.
    pub fn has_endings(&self) -> bool {
        self.out.has_endings() || self.flight.has_endings()
    }

    /// False if [`Sending::overtaken`] would find none. Most acknowledgements need no more than this.
    ///
    /// A packet is lost once two are known to have come: one that was sent later on its path, and one with a higher number.
    /// The first becomes known by a record of the path, so this looks at the oldest packet of each path that has a record.
    /// Packets for which the second is missing are [`Flight::suspects`] from then on.
    pub fn may_find_overtaken(&mut self, now: Nanos, sections: Option<&Sections<'_>>) -> bool {
        let is_late = |echo: Echo| self.late_on(now, echo.path).next().is_some();
        let is_any_late = || sections.is_some_and(|sections| sections.echoes().any(is_late));
        if self.flight.acked_places() > 0 {
            return !self.flight.suspects().is_empty() || is_any_late();
        }
        if is_any_late() {
            self.flight.suspect(self.flight.len());
        }
        false
    }

    /// The places of the packets in flight that others overtook on their path, from the lowest on, as far as an
    /// acknowledgement with these records has made it known. It takes memory for twice the packets in flight at most.
    ///
    /// Late packets with higher numbers than all that came are collected again with each record of their path, until one
    /// with a still higher number comes: the cost is then linear in the packets in flight.
    #[cold]
    pub fn overtaken(&mut self, now: Nanos, sections: Option<&Sections<'_>>) -> Vec<usize> {
        let end = self.flight.acked_places();
        let mut found: Vec<usize> = self.flight.suspects().collect();
        for (nth, echo) in sections.into_iter().flat_map(Sections::echoes).enumerate() {
            let mut before = sections.into_iter().flat_map(Sections::echoes).take(nth);
            if before.all(|before| before.path != echo.path) {
                found.extend(self.late_on(now, echo.path));
            }
        }
        found.retain(|place| self.is_overtaken(*place));
        found.sort_unstable();
        found.dedup();
        let known = found.partition_point(|place| *place < end);
        if let Some(last) = found.drain(known..).next_back() {
            self.flight.suspect(last + 1);
        }
        found
    }

    fn is_overtaken(&self, place: usize) -> bool {
        let sent = self.flight.get(place).filter(|sent| sent.is_in_flight());
        sent.is_some_and(|sent| self.steering.was_overtaken(sent))
    }

    /// The places of the packets in flight on this path that were sent before the newest that came, by more than the path's
    /// tolerance.
    fn late_on(&self, now: Nanos, path: u8) -> impl Iterator<Item = usize> {
        let before = self.steering.overtaken_before(now, path.into());
        let first = self.flight.first_on(path.into());
        core::iter::successors(first, |place| self.flight.next_on_path(*place))
            .take_while(move |place| self.flight.get(*place).is_some_and(|s| s.sent_at < before))
    }

    /// Frees heap memory when nothing is outstanding.
    pub fn reclaim(&mut self) {
        if !self.outstanding() {
            self.out.reclaim();
            self.flight.reclaim();
        }
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, core: &Core) {
        self.flight.check();
        let mut judged = 0..self.flight.unjudged_place();
        let is_seen = !self.flight.keeps_order() || !judged.any(|place| self.is_overtaken(place));
        assert!(is_seen, "what was overtaken is lost");
        self.out.check(&core.ops, core.cfg.eager_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::peer::flight::Content;
    use crate::transmit::TxBurst;
    use crate::wire::Reader;
    use crate::wire::ack::emit_sections;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    const PATHS: u16 = 3;
    const CONTENT: Content = Content::Bundle { first: 0, count: 0 };

    struct Run {
        tx: Sending,
        cfg: Config,
        now: Nanos,
        rng: Pcg64Mcg,
    }

    impl Run {
        fn new(seed: u64) -> Run {
            let cfg = Config::new("10.0.0.1:1".parse().expect("an address"), 1, |_, _| 0);
            let mut tx = Sending::default();
            tx.start(Psn(u32::MAX - 20), 0);
            tx.flight.open(64);
            tx.flight.keep_order();
            // No tolerance exceeds a round trip, and packets are a few ns apart.
            tx.steering.sample(seed % 8);
            Run { tx, cfg, now: 1 << 40, rng: Pcg64Mcg::seed_from_u64(seed) }
        }

        fn below(&mut self, end: usize) -> usize {
            (self.rng.next_u64() % end.max(1) as u64) as usize
        }

        /// Sends a lost packet again, or else a new one.
        fn send(&mut self) {
            let (now, path) = (self.now, self.below(PATHS.into()) as u16);
            match self.tx.flight.next_retry() {
                Some((place, _)) => {
                    self.tx.flight.take_retry();
                    self.tx.flight.repeated(place, now, 100, path);
                }
                None if self.tx.flight.has_room() => self.tx.flight.push(now, 100, path, CONTENT),
                None => return,
            }
            let burst = TxBurst { path, total_bytes: 100, ..TxBurst::new() };
            self.tx.steering.sent(&self.cfg, now, &burst, (PATHS, 100), None, (100, false));
        }

        /// Takes records of some packets, and finds what the search through all packets finds.
        fn acknowledge(&mut self) -> usize {
            let mut echoes = Vec::new();
            for _ in 0..=self.below(3) {
                let place = self.below(self.tx.flight.len());
                let Some(sent) = self.tx.flight.get(place).copied() else { continue };
                let psn = self.tx.flight.una().plus(place as u32).0;
                let (sent_at_ns, path) = (sent.sent_at as u32, sent.path as u8);
                let echo = Echo { psn, sent_at_ns, hold_ns: 0, path, count: 1, ce: 0 };
                let late_ns = self.tx.steering.note_acked(self.now, &echo);
                let is_new = self.tx.flight.acked(place).is_some();
                // Some packets are late, and from then on their path has a tolerance.
                if late_ns > 0 && is_new {
                    self.tx.steering.note_late(&echo, late_ns);
                }
                echoes.push(echo);
            }
            let mut bytes = Vec::new();
            emit_sections(&mut bytes, 0, [], &[], &echoes);
            let sections = Sections::parse(&mut Reader::new(&bytes)).expect("sections");
            // Some acknowledgements come with a message and have no records.
            let sections = Some(&sections).filter(|_| !echoes.is_empty());
            self.tx.flight.pop_acked();
            let end = self.tx.flight.acked_places();
            let expected: Vec<_> = (0..end).filter(|place| self.tx.is_overtaken(*place)).collect();
            let mut found = Vec::new();
            if self.tx.may_find_overtaken(self.now, sections) {
                found = self.tx.overtaken(self.now, sections);
            }
            assert_eq!(found, expected);
            for place in &found {
                assert!(self.tx.flight.lost(*place, self.now).is_some());
            }
            self.tx.flight.judged(end);
            found.len()
        }

        fn step(&mut self) -> usize {
            // Some pauses are longer than the times of 32 bits can tell, or nearly so.
            self.now += match self.below(200) {
                0 => 1 << 31,
                1 => (1 << 31) + 100,
                3 => (1 << 31) - 3,
                4 => (1 << 31) - (1 << 28) - 1,
                2 => 1 << 32,
                more => more as Nanos % 3,
            };
            match self.below(8) {
                0..5 => self.send(),
                5 => {
                    let place = self.below(self.tx.flight.len());
                    self.tx.flight.lost(place, self.now);
                }
                _ => return self.acknowledge(),
            }
            0
        }
    }

    #[test]
    fn each_acknowledgement_finds_the_overtaken_packets_that_a_search_through_all_finds() {
        let mut found = 0;
        for seed in 0..2000 {
            let mut run = Run::new(seed);
            found += (0..200).map(|_| run.step()).sum::<usize>();
            run.tx.flight.check();
        }
        assert!(found > 10_000, "{found} were overtaken");
    }
}
