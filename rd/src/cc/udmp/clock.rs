//! Bytes that acknowledgements have clocked onto their paths, oldest first.

use alloc::boxed::Box;
use alloc::vec;

/// Entries of the ring for each path, 4 bytes each.
const PER_PATH: usize = 4;
/// Bits of an entry that hold its bytes; the path is above them.
const BYTES_BITS: u32 = 24;
/// Most bytes of an entry.
const BYTES_MAX: u32 = (1 << BYTES_BITS) - 1;

/// A ring of paths with the bytes that each may send.
#[derive(Clone, Debug)]
pub(super) struct ByteClock {
    ring: Box<[u32]>,
    head: u16,
    len: u16,
    total_bytes: u32,
}

impl ByteClock {
    /// A clock for so many paths, at most 256.
    pub(super) fn new(paths: u16) -> ByteClock {
        let ring = vec![0; usize::from(paths.max(1)) * PER_PATH].into_boxed_slice();
        ByteClock { ring, head: 0, len: 0, total_bytes: 0 }
    }

    pub(super) fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// Index of an entry, counted from the oldest one, below the ring's length.
    fn slot(&self, nth: u16) -> usize {
        let at = usize::from(self.head) + usize::from(nth);
        if at < self.ring.len() { at } else { at - self.ring.len() }
    }

    /// The oldest path, and its bytes.
    pub(super) fn first(&self) -> Option<(u16, u32)> {
        let entry = self.ring[self.slot(0)];
        (self.len > 0).then_some(((entry >> BYTES_BITS) as u16, entry & BYTES_MAX))
    }

    /// Adds bytes that one path may send, at most `row_bytes` in a row; returns the bytes added.
    pub(super) fn push(&mut self, path: u16, bytes: u32, row_bytes: u32) -> u32 {
        let own = u32::from(path) << BYTES_BITS;
        let row_bytes = row_bytes.min(BYTES_MAX);
        if self.len > 0 {
            let last = self.slot(self.len - 1);
            let before = self.ring[last] & BYTES_MAX;
            if self.ring[last] & !BYTES_MAX == own {
                let added = bytes.min(row_bytes.saturating_sub(before));
                self.ring[last] += added;
                self.total_bytes += added;
                return added;
            }
        }
        if usize::from(self.len) == self.ring.len() {
            return 0;
        }
        let added = bytes.min(row_bytes);
        let next = self.slot(self.len);
        self.ring[next] = own | added;
        self.len += u16::from(added > 0);
        self.total_bytes += added;
        added
    }

    /// Takes the bytes of a burst, the oldest first; returns those that nothing here covered.
    pub(super) fn take(&mut self, bytes: u32) -> u32 {
        let mut rest = bytes;
        while let Some((_, held)) = self.first() {
            let taken = held.min(rest);
            rest -= taken;
            self.total_bytes -= taken;
            if taken < held {
                let first = self.slot(0);
                self.ring[first] -= taken;
                break;
            }
            self.head = self.slot(1) as u16;
            self.len -= 1;
            if rest == 0 {
                break;
            }
        }
        rest
    }

    /// Forgets the paths; returns the bytes that they had.
    pub(super) fn clear(&mut self) -> u32 {
        self.len = 0;
        core::mem::take(&mut self.total_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_bytes_add_up() {
        let mut clock = ByteClock::new(4);
        assert_eq!(clock.first(), None);
        assert_eq!((clock.push(2, 100, 200), clock.push(2, 50, 200)), (100, 50));
        assert_eq!((clock.push(2, 70, 200), clock.push(0, 300, 200)), (50, 200), "a row's end");
        assert_eq!((clock.first(), clock.total_bytes()), (Some((2, 200)), 400));
        assert_eq!(clock.take(100), 0);
        assert_eq!(clock.first(), Some((2, 100)));
        assert_eq!(clock.take(110), 0, "a burst may use two paths' bytes");
        assert_eq!(clock.first(), Some((0, 190)));
        assert_eq!(clock.take(200), 10);
        assert_eq!((clock.first(), clock.total_bytes()), (None, 0));
        clock.push(3, 7, 200);
        assert_eq!((clock.clear(), clock.first(), clock.total_bytes()), (7, None, 0));
    }

    #[test]
    fn a_full_ring_takes_no_further_path() {
        let mut clock = ByteClock::new(2);
        for n in 0..8 {
            assert_eq!(clock.push(n % 2, 10, 20), 10);
        }
        assert_eq!(clock.push(0, 10, 20), 0, "the ring is full");
        assert_eq!(clock.push(1, 20, 20), 10, "but its last entry can grow");
        assert_eq!(clock.total_bytes(), 90);
    }

    #[test]
    fn numbers_wrap_and_large_bytes_are_bounded() {
        let mut clock = ByteClock::new(256);
        assert_eq!(clock.push(255, u32::MAX, u32::MAX), BYTES_MAX);
        assert_eq!(clock.first(), Some((255, BYTES_MAX)));
        assert_eq!(clock.take(BYTES_MAX), 0);
        for n in 0..200_000 {
            clock.push(n as u16 % 256, 1, 8);
            assert_eq!(clock.first(), Some((n as u16 % 256, 1)));
            clock.take(1);
        }
        assert_eq!(clock.total_bytes(), 0);
    }
}
