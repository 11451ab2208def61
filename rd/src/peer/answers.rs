//! The paths of answers: acknowledgements, and answers to probes (protocol.md §4.5).
//!
//! An answer takes the path of its question. The answerer leaves the paths on which its answers are lost: a later round of
//! probes tells that none of the answers to an earlier one arrived. This part knows no packets; `Peer` reports probes, and
//! asks for paths.

use crate::config::PATHS_MAX;
use crate::mutants::{Mutant, mutant};
use crate::units::Nanos;
use alloc::boxed::Box;

/// Most answers to one probe, each on another path.
const COPIES_MAX: u8 = 8;

/// A set of paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct PathSet([u64; PATHS_MAX as usize / 64]);

impl PathSet {
    fn has(&self, path: u16) -> bool {
        self.0[usize::from(path / 64)] >> (path % 64) & 1 == 1
    }

    fn insert(&mut self, path: u16) {
        self.0[usize::from(path / 64)] |= 1 << (path % 64);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn with(&self, other: &PathSet) -> PathSet {
        PathSet(core::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The first path of so many that it does not have, in turn from this one on.
    fn gap(&self, from: u16, paths: u16) -> Option<u16> {
        (from..paths).chain(0..from).find(|path| !self.has(*path))
    }
}

/// What a probe says of its round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Its number.
    pub number: u16,
    /// So many rounds before it brought their writer no answer.
    pub unanswered: u8,
}

/// Where answers went.
#[derive(Debug, Default)]
struct Ways {
    /// Paths on which answers were lost lately; never all.
    lost: PathSet,
    /// Paths of the answers to the latest round of probes.
    tried: PathSet,
}

/// See the module. Paths are numbers below that of the session's paths.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// None as long as the peer has not probed: most idle peers never do.
    ways: Option<Box<Ways>>,
    /// Time from which all paths count as sound again; 0 if no answer was lost.
    forget_at: Nanos,
    /// Time of the first answer to the latest round of probes.
    answered_at: Nanos,
    /// The latest round of probes.
    round: u16,
    /// Answers that the last probe still needs, each on another path.
    copies: u8,
    /// The same for the next probe, as long as answers are lost.
    copies_next: u8,
}

impl Answers {
    /// Notes a probe, which is to be answered. A round trip takes `rtt_ns`, 0 if that is unknown. What the probe tells of
    /// lost answers counts for `forget_ns`.
    pub fn probed(
        &mut self,
        now: Nanos,
        round: Round,
        paths: u16,
        (rtt_ns, forget_ns): (Nanos, Nanos),
    ) {
        self.are_lost(now);
        self.copies = self.copies.max(1);
        let later = round.number.wrapping_sub(self.round);
        if later == 0 || later > u16::MAX / 2 {
            // More of the same round, or the network has held it up.
            return;
        }
        self.round = round.number;
        let ways = self.ways.get_or_insert_default();
        let tried = core::mem::take(&mut ways.tried);
        if later > round.unanswered.into() {
            // The writer has heard something since then.
            self.copies_next = 1;
        } else if !tried.is_empty() && now >= self.answered_at + rtt_ns {
            // A probe that was on its way, or in this side's socket, at the time of the answer tells nothing of it.
            self.copies_next = (2 * self.copies_next.max(1)).min(COPIES_MAX);
            self.forget_at = now + forget_ns;
            ways.lost = ways.lost.with(&tried);
            if ways.lost.gap(0, paths).is_none() {
                ways.lost = PathSet::default();
            }
        }
        self.copies = self.copies_next.max(1);
    }

    /// Path of an answer to the last probe, which came on this one. True if the probe needs one more.
    pub fn answer(&mut self, now: Nanos, asked: u16, paths: u16) -> (u16, bool) {
        let usual = self.path(now, asked, paths);
        let ways = self.ways.get_or_insert_default();
        if ways.tried.is_empty() {
            self.answered_at = now;
        }
        let used = ways.lost.with(&ways.tried);
        let path = match used.gap(asked, paths) {
            Some(path) if !mutant(Mutant::AnswersOnADeadPath) => path,
            _ => usual,
        };
        ways.tried.insert(path);
        let is_left = ways.lost.with(&ways.tried).gap(0, paths).is_some();
        self.copies = self.copies.saturating_sub(1);
        (path, self.copies > 0 && is_left)
    }

    /// Path of an acknowledgement of what came on this one.
    pub fn path(&mut self, now: Nanos, path: u16, paths: u16) -> u16 {
        if !self.are_lost(now) || mutant(Mutant::AnswersOnADeadPath) {
            return path;
        }
        self.ways.as_ref().and_then(|ways| ways.lost.gap(path, paths)).unwrap_or(path)
    }

    /// True if answers were lost lately.
    pub fn are_lost(&mut self, now: Nanos) -> bool {
        if self.forget_at != 0 && now >= self.forget_at {
            self.forget_at = 0;
            if let Some(ways) = &mut self.ways {
                ways.lost = PathSet::default();
            }
        }
        self.forget_at != 0
    }

    /// Checks the invariants between two calls of the endpoint, in a session with so many paths.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, paths: u16) {
        if let Some(ways) = &self.ways {
            assert!(ways.lost.gap(0, paths).is_some(), "a path is left");
            assert!(ways.lost.is_empty() || self.forget_at != 0, "what was lost is forgotten");
        }
        assert!(self.copies.max(self.copies_next) <= COPIES_MAX, "a probe has no more answers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const FORGET_NS: Nanos = 1000;

    fn probed(a: &mut Answers, now: Nanos, (number, unanswered): (u16, u8)) {
        a.probed(now, Round { number, unanswered }, 8, (5, FORGET_NS));
    }

    /// The paths of the answers to a probe of this round, which comes on this path a round trip after the last answer.
    fn answers(a: &mut Answers, (number, unanswered): (u16, u8), asked: u16) -> Vec<u16> {
        a.answered_at = 0;
        probed(a, 7, (number, unanswered));
        let mut taken = Vec::new();
        loop {
            let (path, again) = a.answer(7, asked, 8);
            taken.push(path);
            a.check(8);
            if !again {
                return taken;
            }
        }
    }

    #[test]
    fn each_round_of_probes_is_answered_on_other_paths_until_an_answer_arrives() {
        let mut a = Answers { round: u16::MAX - 1, ..Answers::default() };
        assert_eq!(answers(&mut a, (u16::MAX, 0), 6), [6]);
        assert_eq!(answers(&mut a, (0, 1), 6), [7, 0]);
        assert_eq!(answers(&mut a, (1, 2), 6), [1, 2, 3, 4]);
        assert_eq!(answers(&mut a, (3, 4), 6), [5], "the last one that is left");
        assert_eq!(answers(&mut a, (4, 0), 6), [5], "an answer has arrived");
        assert_eq!([4, 5, 6].map(|path| a.path(8, path, 8)), [5; 3]);
        assert_eq!(answers(&mut a, (5, 1), 2).len(), 2, "none works, so all may");
    }

    #[test]
    fn answers_that_came_in_time_are_not_lost() {
        let mut a = Answers::default();
        assert_eq!(answers(&mut a, (1, 0), 3), [3]);
        // The acknowledgement of round 1 arrived, the probes of rounds 2 and 3 did not.
        assert_eq!(answers(&mut a, (4, 2), 3), [3]);
        assert_eq!(answers(&mut a, (4, 2), 5), [5], "another probe of the round");
        assert_eq!(answers(&mut a, (3, 1), 6), [6], "the network has held it up");
        assert!(!a.are_lost(8));
        assert_eq!(answers(&mut a, (5, 3), 3), [4, 7], "all of round 4 were lost");
    }

    #[test]
    fn a_probe_alone_says_nothing_of_answers() {
        let mut a = Answers::default();
        for number in 1..5 {
            probed(&mut a, 7, (number, number as u8));
        }
        assert!(!a.are_lost(7) && a.path(7, 3, 8) == 3, "none was answered");
    }

    #[test]
    fn probes_that_are_read_together_are_answered_like_the_first_of_them() {
        let mut a = Answers::default();
        answers(&mut a, (1, 0), 0);
        for _ in 0..8 {
            probed(&mut a, 12, (2, 1));
        }
        assert!(a.answer(12, 3, 8).1, "it needs two answers");
    }

    #[test]
    fn probes_from_before_an_answer_tell_nothing_of_it() {
        let mut a = Answers::default();
        answers(&mut a, (1, 0), 0);
        probed(&mut a, 11, (2, 1));
        assert!(!a.are_lost(11), "a round trip takes 5");
        assert_eq!(a.answer(11, 0, 8), (0, false));
        probed(&mut a, 16, (3, 2));
        assert!(a.are_lost(16));
    }

    #[test]
    fn what_was_lost_long_ago_does_not_count_with_what_is_lost_now() {
        let mut a = Answers::default();
        answers(&mut a, (1, 0), 0);
        answers(&mut a, (2, 1), 0);
        let later = 7 + FORGET_NS;
        probed(&mut a, later, (3, 2));
        assert_eq!([0, 1, 2].map(|path| a.path(later, path, 8)), [0, 3, 3]);
    }

    #[test]
    fn lost_answers_are_forgotten_after_a_while() {
        let mut a = Answers::default();
        answers(&mut a, (1, 0), 0);
        answers(&mut a, (2, 1), 0);
        assert!(a.are_lost(7 + FORGET_NS - 1) && a.path(7 + FORGET_NS - 1, 0, 8) == 1);
        assert!(!a.are_lost(7 + FORGET_NS) && a.path(7 + FORGET_NS, 0, 8) == 0);
    }

    #[test]
    fn a_single_path_is_used_though_answers_are_lost() {
        let mut a = Answers::default();
        for number in 1..4 {
            a.probed(7, Round { number, unanswered: number as u8 }, 1, (0, FORGET_NS));
            assert_eq!(a.answer(7, 0, 1), (0, false));
            a.check(1);
        }
        assert!(a.are_lost(8), "another way than the network's paths is worth a try");
    }
}
