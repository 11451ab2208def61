//! A ring bitmap over a window of sequence numbers.

use crate::mutants::{Mutant, mutant};
use alloc::vec::Vec;

/// Most bits: the widest receive window, in packets. 2 KiB of memory.
pub const BITS_MAX: u32 = 1 << 14;
/// Least bits of a bitmap in use.
const BITS_MIN: u32 = 256;

/// Bits for the sequence numbers from a moving base on. The first bit beyond the base allocates memory. It grows up to
/// [`BITS_MAX`] bits, and [`Bitmap::shrink`] frees it.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    words: Vec<u64>,
    /// Position of the base in the ring, in bits.
    start: u32,
    /// Bits set.
    ones: u32,
}

impl Bitmap {
    fn capacity(&self) -> u32 {
        self.words.len() as u32 * 64
    }

    fn slot(&self, offset: u32) -> (usize, u64) {
        let bit = (self.start + offset) & (self.capacity() - 1);
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// Whether the bit `offset` places after the base is set.
    #[must_use]
    pub fn get(&self, offset: u32) -> bool {
        if offset >= self.capacity() {
            return false;
        }
        let (word, mask) = self.slot(offset);
        self.words[word] & mask != 0
    }

    /// Sets the bit `offset` places after the base; `offset` is below [`BITS_MAX`].
    ///
    /// # Panics
    /// If it is not.
    pub fn set(&mut self, offset: u32) {
        assert!(offset < BITS_MAX, "bitmap offset out of its window");
        if offset >= self.capacity() {
            self.grow(offset);
        }
        let (word, mask) = self.slot(offset);
        if self.words[word] & mask == 0 {
            self.ones += 1;
        }
        self.words[word] |= mask;
    }

    fn grow(&mut self, offset: u32) {
        let bits = (offset + 1).next_power_of_two().clamp(BITS_MIN, BITS_MAX);
        let mut words = alloc::vec![0u64; (bits / 64) as usize];
        for i in 0..self.capacity() {
            if self.get(i) && !mutant(Mutant::ClearsTheBitmapOnGrowth) {
                words[(i / 64) as usize] |= 1 << (i % 64);
            }
        }
        self.words = words;
        self.start = 0;
    }

    /// Moves the base past the run of set bits that starts `skip` places after it, clearing the bits it passes. It
    /// passes `skip` bits whether set or not. Returns how far the base moved.
    pub fn advance(&mut self, skip: u32) -> u32 {
        let mut moved = 0;
        while moved < skip || (self.ones > 0 && self.get(0)) {
            if self.capacity() > 0 {
                let (word, mask) = self.slot(0);
                if self.words[word] & mask != 0 {
                    self.words[word] &= !mask;
                    self.ones -= 1;
                }
                self.start = (self.start + 1) & (self.capacity() - 1);
            }
            moved += 1;
        }
        moved
    }

    /// Number of bits set.
    #[must_use]
    pub fn ones(&self) -> u32 {
        self.ones
    }

    /// The 64 bits from `offset` on.
    #[must_use]
    pub fn word(&self, offset: u32) -> u64 {
        let Some(left) = self.capacity().checked_sub(offset).filter(|left| *left > 0) else {
            return 0;
        };
        let bit = (self.start + offset) & (self.capacity() - 1);
        let (at, shift) = ((bit / 64) as usize, bit % 64);
        let next = self.words[(at + 1) % self.words.len()];
        let word = (self.words[at] >> shift) | next.checked_shl(64 - shift).unwrap_or(0);
        // After the last bit of the ring comes its first.
        if left < 64 { word & ((1 << left) - 1) } else { word }
    }

    /// Gives memory back when no bit is set.
    pub fn shrink(&mut self) {
        if self.ones == 0 {
            self.words = Vec::new();
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advances_past_runs_and_keeps_holes() {
        let mut b = Bitmap::default();
        assert_eq!(b.advance(1), 1);
        b.set(1);
        b.set(2);
        assert!(!b.get(0));
        assert_eq!(b.advance(1), 3);
        assert_eq!(b.ones(), 0);
        b.set(300);
        assert!(b.get(300) && !b.get(299) && !b.get(301));
        assert_eq!(b.word(256), 1 << 44);
    }

    #[test]
    fn words_agree_with_bits_around_the_ring() {
        let mut b = Bitmap::default();
        b.set(255);
        b.advance(200);
        for i in [0, 1, 63, 64, 100, 190, 254, 255] {
            b.set(i);
        }
        for offset in 0..300 {
            let bits = (0..64).fold(0, |w, i| w | (u64::from(b.get(offset + i)) << i));
            assert_eq!(b.word(offset), bits, "offset {offset}");
        }
    }

    #[test]
    fn growing_keeps_bits_in_place_after_wrap() {
        let mut b = Bitmap::default();
        b.set(255);
        b.advance(200);
        assert!(b.get(55));
        b.set(400);
        assert!(b.get(55) && b.get(400));
        assert_eq!(b.ones(), 2);
        b.advance(55);
        assert!(b.get(344));
        b.advance(345);
        assert_eq!(b.ones(), 0);
        b.shrink();
        assert!(!b.get(0));
    }
}
