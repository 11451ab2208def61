//! The set of bytes of a message or link that have arrived: exact, however its segments overlap.
//!
//! An honest sender puts each byte under one PSN. A dishonest one must not complete a message by sending the same bytes
//! twice.

use crate::bitmap::BITS_MAX;
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use alloc::vec::Vec;

/// Most gaps in the messages and links of one peer. With an honest sender, each gap misses a packet, and between two
/// gaps one has arrived, all within the receive bitmap.
const GAPS_MAX: u32 = BITS_MAX / 2;

/// Bytes that have not arrived, before some that have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gap {
    from_bytes: u32,
    end_bytes: u32,
}

/// Bytes that have arrived of one message or link. In order, it needs no heap memory.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Number of bytes that have arrived.
    pub got_bytes: u32,
    /// No byte from here on has arrived.
    pub fresh_bytes: u32,
    /// The missing bytes before that: disjoint, in order, with bytes between.
    gaps: Vec<Gap>,
}

/// Memory of a whole coverage, for the endpoint's next one that needs some.
#[derive(Debug, Default)]
pub(crate) struct SpareGaps(Vec<Gap>);

/// The gaps of all messages and links of a peer, by number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gaps {
    count: u32,
}

impl Coverage {
    /// Adds `from_bytes..end_bytes`. Refuses, without a change, if that would make more gaps than allowed or than
    /// memory permits.
    pub fn add(
        &mut self,
        all: &mut Gaps,
        spare: &mut SpareGaps,
        from_bytes: u32,
        end_bytes: u32,
    ) -> Result<(), DropReason> {
        debug_assert!(from_bytes < end_bytes, "a segment has bytes");
        let ahead = from_bytes > self.fresh_bytes;
        // The first gap that ends behind the start: the segment may lie in it, or reach into it.
        let first = self.gaps.partition_point(|gap| gap.end_bytes <= from_bytes);
        let splits = self
            .gaps
            .get(first)
            .is_some_and(|gap| gap.from_bytes < from_bytes && end_bytes < gap.end_bytes);
        if ahead || splits {
            self.make_room(*all, spare)?;
        }
        if mutant(Mutant::CountsDuplicateBytes) {
            self.got_bytes = self.got_bytes.saturating_add(end_bytes - from_bytes);
        }
        let before = self.gaps.len();
        if ahead {
            self.gaps.push(Gap { from_bytes: self.fresh_bytes, end_bytes: from_bytes });
        }
        let mut new_bytes = end_bytes.saturating_sub(self.fresh_bytes.max(from_bytes));
        self.fresh_bytes = self.fresh_bytes.max(end_bytes);
        if splits {
            let behind = Gap { from_bytes: end_bytes, end_bytes: self.gaps[first].end_bytes };
            self.gaps[first].end_bytes = from_bytes;
            self.gaps.insert(first + 1, behind);
            new_bytes = end_bytes - from_bytes;
        } else if !ahead {
            new_bytes += self.fill(first, from_bytes, end_bytes);
        }
        all.count = all.count + self.gaps.len() as u32 - before as u32;
        if !mutant(Mutant::CountsDuplicateBytes) {
            self.got_bytes += new_bytes;
        }
        Ok(())
    }

    /// Room for one more gap.
    fn make_room(&mut self, all: Gaps, spare: &mut SpareGaps) -> Result<(), DropReason> {
        if all.count >= GAPS_MAX {
            return Err(DropReason::Message);
        }
        if self.gaps.capacity() == 0 {
            self.gaps = core::mem::take(&mut spare.0);
        }
        self.gaps.try_reserve(1).map_err(|_| DropReason::NoBuffer)
    }

    /// Fills the gaps from number `first` on with the segment's bytes; returns how many bytes were new.
    fn fill(&mut self, first: usize, from_bytes: u32, end_bytes: u32) -> u32 {
        let mut filled_bytes = 0;
        let (mut whole_from, mut whole_to) = (first, first);
        for (i, gap) in self.gaps.iter_mut().enumerate().skip(first) {
            if gap.from_bytes >= end_bytes {
                break;
            }
            let from = gap.from_bytes.max(from_bytes);
            let end = gap.end_bytes.min(end_bytes);
            filled_bytes += end - from;
            if from > gap.from_bytes {
                gap.end_bytes = from;
                whole_from = i + 1;
                whole_to = i + 1;
            } else if end < gap.end_bytes {
                gap.from_bytes = end;
            } else {
                whole_to = i + 1;
            }
        }
        self.gaps.drain(whole_from..whole_to);
        filled_bytes
    }

    /// Ends the message or link.
    pub fn end(mut self, all: &mut Gaps, spare: &mut SpareGaps) {
        all.count -= self.gaps.len() as u32;
        self.gaps.clear();
        if spare.0.capacity() == 0 {
            spare.0 = self.gaps;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    #[test]
    fn in_order_nothing_is_allocated() {
        let (mut all, mut coverage) = (Gaps::default(), Coverage::default());
        for at in (0..16_000).step_by(1000) {
            coverage.add(&mut all, &mut SpareGaps::default(), at, at + 1000).unwrap();
        }
        assert_eq!((coverage.got_bytes, coverage.gaps.capacity()), (16_000, 0));
    }

    #[test]
    fn the_same_bytes_count_once() {
        let (mut all, mut coverage) = (Gaps::default(), Coverage::default());
        for _ in 0..16 {
            coverage.add(&mut all, &mut SpareGaps::default(), 3_000, 4_000).unwrap();
        }
        assert_eq!((coverage.got_bytes, all.count), (1_000, 1));
    }

    /// Agrees with a map of bytes over many random segments, of which most overlap.
    #[test]
    fn agrees_with_a_map_of_bytes() {
        const LEN_BYTES: u32 = 300;
        let mut random = Pcg32::new(3, 7);
        let mut all = Gaps::default();
        for _ in 0..300 {
            let mut coverage = Coverage::default();
            let mut map = [false; LEN_BYTES as usize];
            while coverage.got_bytes < LEN_BYTES {
                let from = random.next_u32() % LEN_BYTES;
                let longest = 1 << (random.next_u32() % 7);
                let end = (from + 1 + random.next_u32() % longest).min(LEN_BYTES);
                coverage.add(&mut all, &mut SpareGaps::default(), from, end).unwrap();
                map[from as usize..end as usize].fill(true);
                let got = map.iter().filter(|there| **there).count();
                assert_eq!(coverage.got_bytes as usize, got);
                let fresh = map.iter().rposition(|there| *there).map_or(0, |at| at + 1);
                assert_eq!(coverage.fresh_bytes as usize, fresh);
                let starts = (1..fresh).filter(|at| !map[*at] && map[*at - 1]).count();
                assert_eq!(coverage.gaps.len(), starts + usize::from(!map[0]));
                assert_eq!(all.count as usize, coverage.gaps.len());
            }
            coverage.end(&mut all, &mut SpareGaps::default());
            assert_eq!(all.count, 0);
        }
    }

    #[test]
    fn gaps_are_bounded_over_all_messages() {
        let (mut all, mut first, mut second) =
            (Gaps::default(), Coverage::default(), Coverage::default());
        for n in 0..GAPS_MAX {
            first.add(&mut all, &mut SpareGaps::default(), 2 * n + 1, 2 * n + 2).unwrap();
        }
        let before = (first.got_bytes, first.fresh_bytes);
        assert_eq!(
            first.add(&mut all, &mut SpareGaps::default(), 1 << 20, 1 << 21),
            Err(DropReason::Message)
        );
        assert_eq!(second.add(&mut all, &mut SpareGaps::default(), 1, 2), Err(DropReason::Message));
        assert_eq!((first.got_bytes, first.fresh_bytes), before, "a refusal changes nothing");
        first.add(&mut all, &mut SpareGaps::default(), 0, 1).unwrap();
        second.add(&mut all, &mut SpareGaps::default(), 1, 2).unwrap();
        first.end(&mut all, &mut SpareGaps::default());
        assert_eq!(all.count, 1);
    }
}
