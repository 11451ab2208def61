//! How soon the helper thread steps in after a call, under automatic progress.
//!
//! A program that waits with its eyes on its own memory makes no call until something has come. It pays the thread's patience
//! at each turn. A program that polls makes calls all the time, and the thread is to stay away. So the patience becomes short
//! once the thread has found arrivals in several waits of the program. It doubles with each look that finds new calls, and a
//! row of those ends it.

/// The short patience. A timer and a look take about a third of it.
const SHORT_NS: u64 = 30_000;
/// Waits of use that make the patience short.
const USEFUL_ENOUGH: u32 = 4;
/// Looks in a row that find new calls, after which the waits before count no more. A program that completes a write and
/// then waits makes for two such looks.
const VAIN_MAX: u32 = 8;

/// See the module's text. Pure: the settings' patience is an argument.
#[derive(Debug, Default)]
pub struct Patience {
    /// Waits in which the thread found arrivals; [`USEFUL_ENOUGH`] at most.
    useful: u32,
    /// Looks that found new calls since the thread found arrivals; [`VAIN_MAX`] at most.
    vain: u32,
}

impl Patience {
    /// A look has found new calls. Returns the time (ns) without another one until the thread steps in, `full_ns` at most.
    pub fn called(&mut self, full_ns: u64) -> u64 {
        let is_short = self.useful == USEFUL_ENOUGH;
        let patience_ns = if is_short { full_ns.min(SHORT_NS << self.vain) } else { full_ns };
        self.vain = (self.vain + 1).min(VAIN_MAX);
        if self.vain == VAIN_MAX {
            self.useful = 0;
        }
        patience_ns
    }

    /// The thread has found arrivals, and no new calls.
    pub fn found(&mut self) {
        // Those of one wait count once.
        let is_first = self.vain > 0;
        self.useful = (self.useful + u32::from(is_first)).min(USEFUL_ENOUGH);
        self.vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL_NS: u64 = 1_000_000;

    /// The patience after so many waits, each between two calls, in which something came.
    fn waits(patience: &mut Patience, count: u32) -> u64 {
        let mut last_ns = patience.called(FULL_NS);
        for _ in 0..count {
            patience.found();
            patience.found();
            last_ns = patience.called(FULL_NS);
        }
        last_ns
    }

    #[test]
    fn a_program_that_polls_is_left_alone() {
        let mut patience = Patience::default();
        assert!((0..1000).all(|_| patience.called(FULL_NS) == FULL_NS));
        assert_eq!(waits(&mut patience, 1), FULL_NS);
        assert!((0..1000).all(|_| patience.called(FULL_NS) == FULL_NS));
    }

    #[test]
    fn it_is_short_once_several_waits_were_of_use() {
        let mut patience = Patience::default();
        assert_eq!(waits(&mut patience, USEFUL_ENOUGH - 1), FULL_NS);
        assert_eq!(waits(&mut patience, 1), SHORT_NS);
        assert_eq!(waits(&mut patience, 1), SHORT_NS);
        patience.found();
        assert_eq!(patience.called(10_000), 10_000, "the settings' is shorter");
    }

    #[test]
    fn calls_without_a_wait_make_it_long_again() {
        let mut patience = Patience::default();
        assert_eq!(waits(&mut patience, USEFUL_ENOUGH), SHORT_NS);
        let all: Vec<u64> = (0..VAIN_MAX).map(|_| patience.called(FULL_NS)).collect();
        assert!(all.is_sorted() && all[0] == 2 * SHORT_NS, "{all:?}");
        assert_eq!(all.last(), Some(&FULL_NS));
        assert_eq!(waits(&mut patience, 1), FULL_NS, "one wait of use is not enough now");
    }
}
