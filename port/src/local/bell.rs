//! The bell of an endpoint: a page that all its local peers write to, so that one look finds who has news
//! (`docs/protocol.md` §12.4).
//!
//! Bits are hints. A peer that sets those of others, or clears its own, makes the owner look in vain, or later: the
//! owner looks at every ring now and then.

use super::segment::{PAGE_BYTES, Segment};
use std::sync::atomic::{Ordering, fence};

/// Bytes of a bell.
pub const BELL_BYTES: usize = PAGE_BYTES;
/// Most peers of a bell.
pub const PLACES: usize = 64 * 64;

/// Not 0 while the owner sleeps: who has news for it then wakes it. Its word.
const ASLEEP: usize = 0;
/// A bit for each word below that may have one. Its word.
const SUMMARY: usize = 64;
/// A bit for each peer. The first word.
const RUNG: usize = 128;

/// The bell, at either side.
#[derive(Debug)]
pub struct Bell {
    page: Segment,
    /// The word at which the owner goes on.
    next: u32,
}

impl Bell {
    /// A bell in this memory of [`BELL_BYTES`].
    #[must_use]
    pub fn new(page: Segment) -> Bell {
        Bell { page, next: 0 }
    }

    /// Tells the owner that the peer at `place` has news. True if the caller must wake it.
    pub fn ring(&self, place: usize) -> bool {
        let page = self.page.part(0, BELL_BYTES);
        let (word, bit) = (place % PLACES / 64, 1 << (place % 64));
        // Before the bit of the word, so that who finds that finds this.
        page.word(RUNG + 8 * word).fetch_or(bit, Ordering::Release);
        page.word(SUMMARY).fetch_or(1 << word, Ordering::Release);
        self.must_wake()
    }

    /// True if the owner sleeps, and nobody else wakes it. The caller has published its news before.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let asleep = self.page.part(0, BELL_BYTES).word(ASLEEP);
        asleep.load(Ordering::Relaxed) != 0 && asleep.swap(0, Ordering::Relaxed) != 0
    }

    /// The owner is about to sleep, or does not any more. If it is, it looks for news once more after this call.
    pub fn sleep(&self, sleeps: bool) {
        self.page.part(0, BELL_BYTES).word(ASLEEP).store(sleeps.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// True if somebody has rung.
    #[must_use]
    pub fn has_rung(&self) -> bool {
        self.page.part(0, BELL_BYTES).word(SUMMARY).load(Ordering::Relaxed) != 0
    }

    /// Hands the places of up to 64 peers that have rung to `f`, and takes back what it hands out. Those of other words
    /// have their turn before the same word has another.
    pub fn answer(&mut self, mut f: impl FnMut(usize)) {
        let page = self.page.part(0, BELL_BYTES);
        let words = page.word(SUMMARY).load(Ordering::Relaxed);
        if words == 0 {
            return;
        }
        let turn = words.rotate_right(self.next).trailing_zeros();
        let word = ((self.next + turn) % 64) as usize;
        self.next = word as u32 + 1;
        page.word(SUMMARY).fetch_and(!(1 << word), Ordering::Acquire);
        let mut bits = page.word(RUNG + 8 * word).swap(0, Ordering::Acquire);
        while bits != 0 {
            f(64 * word + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Bell, Bell) {
        let (page, file) = Segment::create(BELL_BYTES).expect("a memfd");
        let other = Segment::open(&file, BELL_BYTES).expect("a mapping");
        (Bell::new(page), Bell::new(other))
    }

    fn answers(bell: &mut Bell) -> Vec<usize> {
        let mut places = Vec::new();
        bell.answer(|place| places.push(place));
        places
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn who_has_rung_is_found_once() {
        let (mut owner, peer) = both();
        assert!(!owner.has_rung() && answers(&mut owner).is_empty());
        for place in [3, 63, 64, PLACES - 1, 3] {
            assert!(!peer.ring(place), "nobody sleeps");
        }
        assert!(owner.has_rung());
        assert_eq!(answers(&mut owner), [3, 63]);
        assert_eq!(answers(&mut owner), [64]);
        assert_eq!(answers(&mut owner), [PLACES - 1]);
        assert!(!owner.has_rung() && answers(&mut owner).is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn who_rings_all_the_time_keeps_nobody_from_being_found() {
        let (mut owner, peer) = both();
        peer.ring(64 * 7 + 5);
        peer.ring(PLACES - 1);
        let mut found = Vec::new();
        for _ in 0..4 {
            peer.ring(3);
            found.extend(answers(&mut owner));
        }
        assert_eq!(found, [3, 64 * 7 + 5, PLACES - 1, 3]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_sleeper_is_woken_once() {
        let (owner, peer) = both();
        owner.sleep(true);
        assert!(peer.ring(0) && !peer.ring(1) && !peer.must_wake());
        owner.sleep(true);
        owner.sleep(false);
        assert!(!peer.must_wake());
    }
}
