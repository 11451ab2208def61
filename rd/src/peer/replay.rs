//! The window against replays: which packet counters of a direction were taken (protocol.md §11.4).
//!
//! Packets overtake each other on different paths, so counters come in any order. The window is exact for the last
//! `span` of them. Older counters count as taken.

use alloc::boxed::Box;
use alloc::vec;

/// See the module. Without memory it takes nothing old: [`ReplayWindow::close`].
#[derive(Debug, Default)]
pub(super) struct ReplayWindow {
    /// One above the greatest counter taken; 0 if there was none.
    end: u64,
    /// Counters below it count as taken.
    floor: u64,
    /// Bit `counter % span` of the `span` counters below `end`. A power of two of words, or none.
    taken: Box<[u64]>,
}

impl ReplayWindow {
    /// Gives the window memory for `span` counters, rounded up to a power of two of at least 64.
    pub(super) fn open(&mut self, span: u64) {
        let words = span.next_power_of_two().max(64) / 64;
        if self.taken.len() as u64 != words {
            self.taken = vec![0; words as usize].into_boxed_slice();
            // What was taken before is not known any more.
            self.floor = self.end;
        }
    }

    /// Gives the memory back. All counters up to the greatest count as taken from now on.
    pub(super) fn close(&mut self) {
        (self.taken, self.floor) = (Box::default(), self.end);
    }

    fn span(&self) -> u64 {
        64 * self.taken.len() as u64
    }

    fn bit(&self, counter: u64) -> (usize, u64) {
        ((counter / 64) as usize & (self.taken.len() - 1), 1 << (counter % 64))
    }

    /// One above the greatest counter taken; 0 if there was none.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// True if a packet with this counter may be taken once it has proven genuine. It may be less than `ahead` beyond
    /// all that were taken: its sender cannot have sent more since, so a greater one is not worth the cipher's time.
    pub(super) fn admits(&self, counter: u64, ahead: u64) -> bool {
        if counter >= self.end {
            return counter - self.end < ahead && counter < u64::MAX;
        }
        if counter < self.floor || self.end - counter > self.span() {
            return false;
        }
        let (word, bit) = self.bit(counter);
        self.taken[word] & bit == 0
    }

    /// Notes that the packet with this counter was genuine. Only after [`ReplayWindow::admits`].
    pub(super) fn take(&mut self, counter: u64) {
        debug_assert!(self.admits(counter, u64::MAX), "it was asked");
        if self.taken.is_empty() {
            (self.end, self.floor) = (counter + 1, counter + 1);
            return;
        }
        if counter >= self.end {
            self.forget_before(counter);
            self.end = counter + 1;
        }
        let (word, bit) = self.bit(counter);
        self.taken[word] |= bit;
    }

    /// Clears the bits of the counters from `end` to `counter`, which are those of counters that fall out.
    fn forget_before(&mut self, counter: u64) {
        let fresh = counter + 1 - self.end;
        if fresh >= self.span() {
            self.taken.fill(0);
            return;
        }
        // At most `span`, a whole word at a time where all of it is fresh.
        let mut at = self.end;
        while at <= counter {
            let (word, bit) = self.bit(at);
            if at.is_multiple_of(64) && counter - at >= 63 {
                self.taken[word] = 0;
                at += 64;
            } else {
                self.taken[word] &= !bit;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    const AHEAD: u64 = 1 << 22;

    /// The same by definition.
    #[derive(Default)]
    struct Model {
        taken: BTreeSet<u64>,
        floor: u64,
    }

    impl Model {
        fn end(&self) -> u64 {
            self.taken.last().map_or(0, |last| last + 1)
        }

        fn admits(&self, counter: u64, span: u64) -> bool {
            let end = self.end();
            let old = counter < self.floor || counter + span < end;
            !old && counter < end + AHEAD && !self.taken.contains(&counter)
        }
    }

    #[test]
    fn it_takes_what_the_definition_takes() {
        for seed in 0..200 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let span = 64 << (seed % 4);
            let (mut window, mut model) = (ReplayWindow::default(), Model::default());
            window.open(span);
            for _ in 0..2000 {
                let end = model.end();
                let near = end.saturating_sub(2 * span) + rng.next_u64() % (4 * span);
                let counter = match rng.next_u32() % 16 {
                    0 => rng.next_u64() >> (rng.next_u32() % 64),
                    1 => end + AHEAD - 1 + u64::from(rng.next_u32() % 2),
                    2..6 => end,
                    _ => near,
                };
                let admits = window.admits(counter, AHEAD);
                assert_eq!(admits, model.admits(counter, span), "seed {seed}: {counter} of {end}");
                if admits && counter < u64::MAX / 2 {
                    window.take(counter);
                    model.taken.insert(counter);
                    assert!(!window.admits(counter, AHEAD), "seed {seed}: {counter} twice");
                }
                if rng.next_u32() % 500 == 0 {
                    window.close();
                    window.open(span);
                    model.floor = model.end();
                }
            }
        }
    }

    #[test]
    fn without_memory_only_what_is_newer_is_taken() {
        let mut window = ReplayWindow::default();
        window.take(5);
        let admits = |window: &ReplayWindow, counter| window.admits(counter, AHEAD);
        assert!(!admits(&window, 5) && !admits(&window, 4) && admits(&window, 6));
        window.take(9);
        assert!(!admits(&window, 7), "what was overtaken while nothing was kept is sent again");
        window.open(64);
        assert!(!admits(&window, 9) && admits(&window, 10));
        window.take(12);
        assert!(admits(&window, 11) && !admits(&window, 9));
    }
}
