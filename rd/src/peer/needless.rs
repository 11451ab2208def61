//! Repetitions that were not needed (protocol.md §4.2): their original came, too.
//!
//! Whichever of both comes second is a duplicate. A repetition shows by its number that it is one. An original shows nothing,
//! so this remembers of which packets a repetition came first.

use crate::units::Psn;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Packets remembered: the latest ones.
const REPEATED_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Needless {
    /// Most peers need none.
    #[expect(clippy::box_collection, reason = "then it takes no more than a pointer")]
    repeated: Option<Box<VecDeque<Psn>>>,
}

impl Needless {
    /// Notes a packet that came for the first time, as its `attempt`th repetition.
    pub fn came(&mut self, psn: Psn, attempt: u8) {
        if attempt == 0 {
            return;
        }
        let repeated = self.repeated.get_or_insert_default();
        if repeated.len() == REPEATED_MAX {
            repeated.pop_front();
        }
        repeated.push_back(psn);
    }

    /// Notes a packet that had come before. True if it shows a needless repetition. An original does so once: a network may
    /// double it.
    pub fn came_again(&mut self, psn: Psn, attempt: u8) -> bool {
        attempt > 0 || self.is_late_original(psn)
    }

    /// Whether a repetition of this packet came first. It is forgotten with that.
    fn is_late_original(&mut self, psn: Psn) -> bool {
        let Some(repeated) = &mut self.repeated else { return false };
        let place = repeated.iter().position(|repeated| *repeated == psn);
        place.and_then(|place| repeated.remove(place)).is_some()
    }

    /// Frees memory. An original that is still under way then counts no more.
    pub fn reclaim(&mut self) {
        self.repeated = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_counts_whichever_comes_first() {
        let mut needless = Needless::default();
        needless.came(Psn(1), 0);
        assert!(needless.came_again(Psn(1), 1), "the original came first");
        needless.came(Psn(2), 1);
        assert!(needless.came_again(Psn(2), 0), "the repetition did");
        assert!(!needless.came_again(Psn(2), 0), "the network doubled the original");
        needless.came(Psn(3), 0);
        assert!(!needless.came_again(Psn(3), 0), "it was never repeated");
        needless.came(Psn(4), 1);
        needless.came(Psn(5), 2);
        assert!(needless.came_again(Psn(4), 0) && needless.came_again(Psn(5), 0));
    }

    #[test]
    fn the_latest_are_remembered_and_no_more() {
        let mut needless = Needless::default();
        (0..=REPEATED_MAX as u32).for_each(|psn| needless.came(Psn(psn), 1));
        assert_eq!(needless.repeated.as_ref().map(|repeated| repeated.len()), Some(REPEATED_MAX));
        assert!(!needless.came_again(Psn(0), 0) && needless.came_again(Psn(1), 0));
        needless.reclaim();
        assert!(!needless.came_again(Psn(2), 0));
    }
}
