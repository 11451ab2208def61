//! A ring bitmap over a window of sequence numbers.

use crate::mutants::{Mutant, mutant};
use alloc::vec::Vec;
use core::mem::take;

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

/// See [`Bitmap::words`]. It never ends; beyond the bitmap all bits are zero.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    words: &'a [u64],
    /// The word of the ring that the next bits begin in, and how many of its bits come before them.
    at: usize,
    shift: u32,
    /// Bits left in the bitmap.
    left: u32,
}

impl Words<'_> {
    /// The next 64 bits.
    #[inline]
    pub fn next_word(&mut self) -> u64 {
        let next = (self.at + 1) & self.words.len().wrapping_sub(1);
        let (Some(low), Some(high)) = (self.words.get(self.at), self.words.get(next)) else {
            return 0;
        };
        let word = joined(*low, *high, self.shift);
        self.at = next;
        match self.left.checked_sub(64) {
            Some(left) => {
                self.left = left;
                word
            }
            // After the last bit of the ring comes its first.
            None => word & ((1 << take(&mut self.left)) - 1),
        }
    }
}

/// The 64 bits that begin behind the first `shift` bits of `low`, below 64.
#[inline]
fn joined(low: u64, high: u64, shift: u32) -> u64 {
    ((u128::from(high) << 64 | u128::from(low)) >> (shift % 64)) as u64
}

impl Bitmap {
    fn capacity(&self) -> u32 {
        self.words.len() as u32 * 64
    }

    fn slot(&self, offset: u32) -> (usize, u64) {
        let (at, bit) = self.ring(offset);
        (at, 1 << bit)
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
        if offset >= self.capacity() {
            self.grow(offset);
        }
        let (word, mask) = self.slot(offset);
        if self.words[word] & mask == 0 {
            self.ones += 1;
        }
        self.words[word] |= mask;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, offset: u32) {
        assert!(offset < BITS_MAX, "bitmap offset out of its window");
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
        while self.ones > 0 {
            let (at, shift) = ((self.start / 64) as usize, self.start % 64);
            let (rest, room) = (self.words[at] >> shift, 64 - shift);
            let forced = skip.saturating_sub(moved).min(room);
            // Beyond the room are zeros.
            let run = rest.checked_shr(forced).unwrap_or(0).trailing_ones();
            let step = forced + run;
            if step == 0 {
                break;
            }
            let passed = rest & (u64::MAX >> (64 - step));
            self.words[at] ^= passed << shift;
            self.ones -= passed.count_ones();
            self.start = (self.start + step) & (self.capacity() - 1);
            moved += step;
        }
        let rest = skip.saturating_sub(moved);
        self.start = self.start.wrapping_add(rest) & self.capacity().saturating_sub(1);
        moved + rest
    }

    /// Number of bits set.
    #[must_use]
    pub fn ones(&self) -> u32 {
        self.ones
    }

    /// The 64 bits from `offset` on.
    #[must_use]
    pub fn word(&self, offset: u32) -> u64 {
        self.words(offset).next_word()
    }

    /// The bits from `offset` on, in words.
    #[must_use]
    #[inline]
    pub fn words(&self, offset: u32) -> Words<'_> {
        let (at, shift) = self.ring(offset);
        Words { words: &self.words, at, shift, left: self.capacity().saturating_sub(offset) }
    }

    /// Compares with words of another bitmap, which begins `offset` places after this one's base. Enters those with bits that
    /// are not set here, and these bits, into `found`, as many as it holds. Returns how many these are.
    // Alone, its loop needs no memory for its variables.
    #[inline(never)]
    pub fn unset<T>(
        &self,
        offset: u32,
        others: &[T],
        read: impl Fn(&T) -> u64,
        found: &mut [(usize, u64)],
    ) -> usize {
        let (at, shift) = self.ring(offset);
        let mut low = self.words.get(at).copied().unwrap_or(0);
        let (behind, ahead) = self.words.split_at((at + 1).min(self.words.len()));
        // Whole words before the end of the ring.
        let whole = (self.capacity().saturating_sub(offset) / 64) as usize;
        let cut = whole.min(ahead.len());
        let mut found = found.iter_mut();
        let most = found.len();
        let mut nth = 0;
        for part in [&ahead[..cut], &behind[..whole - cut]] {
            for (high, other) in part.iter().zip(&others[nth..]) {
                let unset = read(other) & !joined(low, *high, shift);
                if unset != 0 {
                    let Some(to) = found.next() else { return most };
                    *to = (nth, unset);
                }
                (low, nth) = (*high, nth + 1);
            }
        }
        let mut words = self.words(offset.saturating_add(64 * nth as u32));
        while let Some(other) = others.get(nth) {
            let unset = read(other) & !words.next_word();
            if unset != 0 {
                let Some(to) = found.next() else { return most };
                *to = (nth, unset);
            }
            nth += 1;
        }
        most - found.len()
    }

    /// The word of the ring with the bit `offset` places after the base, and its place there.
    #[inline]
    fn ring(&self, offset: u32) -> (usize, u32) {
        let bit = self.start.wrapping_add(offset) & self.capacity().wrapping_sub(1);
        ((bit / 64) as usize, bit % 64)
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
