//! Choosing paths (entropies), shared by the controllers.

use crate::units::Nanos;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A uniform path below `paths`.
#[must_use]
pub fn uniform(rng: &mut Pcg32, paths: u16) -> u16 {
    ((u64::from(rng.next_u32()) * u64::from(paths)) >> 32) as u16
}

/// A generator from a flow's seed.
#[must_use]
pub fn rng(seed: u64) -> Pcg32 {
    Pcg32::seed_from_u64(seed)
}

/// One bit a path, at most 256 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathBits([u64; 4]);

impl PathBits {
    /// Whether a path's bit is set.
    #[must_use]
    pub fn get(&self, path: u16) -> bool {
        self.0[usize::from(path >> 6) & 3] >> (path & 63) & 1 == 1
    }

    /// Sets a path's bit.
    #[inline]
    pub fn set(&mut self, path: u16, on: bool) {
        let word = &mut self.0[usize::from(path >> 6) & 3];
        *word = *word & !(1 << (path & 63)) | u64::from(on) << (path & 63);
    }

    /// The first path from `from` on, below `paths`, whose bit is not set. Looks at four words at
    /// most, and mostly at one.
    #[must_use]
    pub fn first_clear(&self, from: u16, paths: u16) -> Option<u16> {
        let mut mask = u64::MAX << (from & 63);
        for (at, word) in self.0.iter().enumerate().skip(usize::from(from >> 6)) {
            let clear = !word & mask;
            if clear != 0 {
                let path = (at as u16) << 6 | clear.trailing_zeros() as u16;
                return (path < paths).then_some(path);
            }
            mask = u64::MAX;
        }
        None
    }

    /// Number of bits set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Round robin over the paths that were not marked (STrack, algorithm 3; the same as the Ultra
/// Ethernet simulator's bitmap): a mark lets the path be skipped once.
#[derive(Clone, Copy, Debug, Default)]
pub struct EcnBitmap {
    skip: PathBits,
    next: u16,
}

impl EcnBitmap {
    /// An acknowledgement told of a path.
    pub fn on_ack(&mut self, path: u16, marked: bool) {
        self.skip.set(path, marked);
    }

    /// The next path below `paths`, which is at least 1. One packet clears one bit only, that of
    /// the first path that it skips.
    #[inline]
    pub fn next(&mut self, paths: u16) -> u16 {
        let first = if self.next < paths { self.next } else { self.next % paths };
        let path = if self.skip.get(first) { self.skip(first, paths) } else { first };
        self.next = path + 1;
        path
    }

    /// The next path behind a marked one. When all are marked, a whole round ends at the first,
    /// which is clear by then.
    fn skip(&mut self, first: u16, paths: u16) -> u16 {
        self.skip.set(first, false);
        let behind = self.skip.first_clear(first + 1, paths);
        behind.or_else(|| self.skip.first_clear(0, paths)).unwrap_or(first)
    }

    /// The round goes on behind `path`, which was chosen otherwise.
    pub fn resume_after(&mut self, path: u16) {
        self.next = path.wrapping_add(1);
    }
}

/// Entropies that came back unmarked (REPS: recycled entropy packet spraying).
const REPS_SLOTS: usize = 8;

/// REPS: entropies whose packets came back unmarked are used again, the oldest first; without one,
/// a random path is explored. While a loss is fresh, what is cached is used again and again instead
/// (freezing), so that a dead path is not explored.
#[derive(Clone, Debug, Default)]
pub struct Reps {
    /// A ring.
    cached: [u8; REPS_SLOTS],
    /// How many came back and how many were used again or overwritten, wrapping. The second may lag
    /// behind until the next use.
    came: u32,
    used: u32,
    frozen_until: Nanos,
}

impl Reps {
    /// An acknowledgement told of a path.
    #[inline]
    pub fn on_ack(&mut self, path: u16, marked: bool) {
        if marked {
            return;
        }
        self.cached[self.came as usize % REPS_SLOTS] = path as u8;
        self.came = self.came.wrapping_add(1);
    }

    /// A timeout or a loss says that some path may be dead.
    pub fn freeze(&mut self, until: Nanos) {
        self.frozen_until = until;
    }

    /// The path that came back unmarked the longest ago and was not used since, at most `last_path`.
    #[inline]
    pub fn recycle(&mut self, last_path: u8) -> Option<u16> {
        let mut oldest = self.used;
        let fresh = self.came.wrapping_sub(oldest);
        if fresh == 0 {
            return None;
        }
        if fresh > REPS_SLOTS as u32 {
            oldest = self.came.wrapping_sub(REPS_SLOTS as u32);
        }
        self.used = oldest.wrapping_add(1);
        Some(self.cached(oldest, last_path))
    }

    fn cached(&self, at: u32, last_path: u8) -> u16 {
        let path = self.cached[at as usize % REPS_SLOTS];
        u16::from(if path <= last_path { path } else { last_path })
    }

    /// The next path up to `last_path` where none is to recycle.
    #[must_use]
    pub fn explore(&self, now: Nanos, rng: &mut Pcg32, last_path: u8) -> u16 {
        // Slots that hold a path: all but at the beginning, and by chance after 2^32 paths.
        let filled = self.came.min(REPS_SLOTS as u32);
        if now < self.frozen_until && filled > 0 {
            let back = u32::from(uniform(rng, filled as u16)) + 1;
            return self.cached(self.came.wrapping_sub(back), last_path);
        }
        uniform(rng, u16::from(last_path) + 1)
    }
}

/// No path has this number.
const NO_PATH: u16 = u16::MAX;
/// How long a lossy path is shunned, in us.
const SHUN_US: u32 = 1_000;
/// How long after that its loss is remembered, in us.
const MEMORY_US: u32 = 10_000;

/// The path to shun because it alone loses packets: that of the latest loss, unless the one before was
/// on another path. So a lossy path is left at its first loss, and where all lose alike none is.
#[derive(Clone, Copy, Debug)]
pub struct Lossy {
    /// Path of the latest loss; none at first.
    path: u16,
    /// Until when it is shunned, or since when not. It wraps after 71 minutes, when the path may be
    /// shunned once more.
    until_us: u32,
}

impl Default for Lossy {
    fn default() -> Self {
        Lossy { path: NO_PATH, until_us: 0 }
    }
}

impl Lossy {
    /// Something sent on a path vanished.
    pub fn on_loss(&mut self, now: Nanos, path: u16) {
        let (is_same, is_shunned) = (self.is_suspect(path), self.is_shunned(now));
        if is_same && is_shunned {
            // It was sent before.
            return;
        }
        let is_recent = is_shunned || us(now).wrapping_sub(self.until_us) <= MEMORY_US;
        let is_alone = is_same || self.path == NO_PATH || !is_recent;
        self.path = path;
        self.until_us = us(now).wrapping_add(if is_alone { SHUN_US } else { 0 });
    }

    /// Whether a path is the one that lost something last. No other one is
    /// [shunned](Lossy::is_shunned).
    #[must_use]
    #[inline(always)]
    pub fn is_suspect(&self, path: u16) -> bool {
        self.path == path
    }

    /// Whether that path is to be shunned now.
    #[must_use]
    pub fn is_shunned(&self, now: Nanos) -> bool {
        (1..=SHUN_US).contains(&self.until_us.wrapping_sub(us(now)))
    }
}

fn us(at: Nanos) -> u32 {
    (at / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MILLISECOND;

    fn is_shunned(lossy: &Lossy, now: Nanos, path: u16) -> bool {
        lossy.is_suspect(path) && lossy.is_shunned(now)
    }

    #[test]
    fn the_only_path_that_loses_is_shunned_for_a_while() {
        let mut lossy = Lossy::default();
        assert!(!is_shunned(&lossy, 0, 0));
        lossy.on_loss(MILLISECOND, 3);
        assert!(is_shunned(&lossy, MILLISECOND, 3));
        assert!(!is_shunned(&lossy, MILLISECOND, 2));
        // What was lost before does not prolong it.
        lossy.on_loss(3 * MILLISECOND / 2, 3);
        assert!(!is_shunned(&lossy, 2 * MILLISECOND, 3));
        lossy.on_loss(3 * MILLISECOND, 3);
        assert!(is_shunned(&lossy, 3 * MILLISECOND, 3));
    }

    #[test]
    fn where_all_paths_lose_none_is_shunned() {
        let mut lossy = Lossy::default();
        lossy.on_loss(0, 0);
        for n in 1..100 {
            let now = Nanos::from(n) * MILLISECOND / 10;
            lossy.on_loss(now, n % 4);
            assert!((0..4).all(|path| !is_shunned(&lossy, now, path)), "{n}");
        }
        // Long after, it may be one path alone.
        let later = 30 * MILLISECOND;
        lossy.on_loss(later, 1);
        assert!(is_shunned(&lossy, later, 1));
    }
}
