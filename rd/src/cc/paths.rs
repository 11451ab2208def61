//! Choosing paths (entropies), shared by the controllers.

use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::vec;
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
    pub fn set(&mut self, path: u16, on: bool) {
        let (word, bit) = (usize::from(path >> 6) & 3, 1 << (path & 63));
        if on {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
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
    pub fn next(&mut self, paths: u16) -> u16 {
        let first = self.next % paths;
        let mut path = first;
        // When all are marked, a whole round ends at the first, which is clear by then.
        for _ in 0..paths {
            if !self.skip.get(path) {
                break;
            }
            if path == first {
                self.skip.set(path, false);
            }
            path = (path + 1) % paths;
        }
        self.next = (path + 1) % paths;
        path
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
#[derive(Clone, Debug)]
pub struct Reps {
    cached: Box<[u8; REPS_SLOTS]>,
    head: u8,
    fresh: u8,
    /// How many slots hold a path that came back once.
    filled: u8,
    frozen_until: Nanos,
}

impl Default for Reps {
    fn default() -> Self {
        let cached: Box<[u8]> = vec![0; REPS_SLOTS].into_boxed_slice();
        let cached = cached.try_into().unwrap_or_else(|_| Box::new([0; REPS_SLOTS]));
        Reps { cached, head: 0, fresh: 0, filled: 0, frozen_until: 0 }
    }
}

impl Reps {
    /// An acknowledgement told of a path.
    pub fn on_ack(&mut self, path: u16, marked: bool) {
        if marked {
            return;
        }
        self.cached[usize::from(self.head) % REPS_SLOTS] = path as u8;
        self.head = (self.head + 1) % REPS_SLOTS as u8;
        self.fresh = (self.fresh + 1).min(REPS_SLOTS as u8);
        self.filled = (self.filled + 1).min(REPS_SLOTS as u8);
    }

    /// A timeout or a loss says that some path may be dead.
    pub fn freeze(&mut self, until: Nanos) {
        self.frozen_until = until;
    }

    /// The path that came back unmarked the longest ago and was not used since.
    pub fn recycle(&mut self, paths: u16) -> Option<u16> {
        self.fresh = self.fresh.checked_sub(1)?;
        let at = usize::from(self.head) + REPS_SLOTS - usize::from(self.fresh) - 1;
        Some(u16::from(self.cached[at % REPS_SLOTS]) % paths)
    }

    /// The next path below `paths`.
    pub fn next(&mut self, now: Nanos, rng: &mut Pcg32, paths: u16) -> u16 {
        if let Some(path) = self.recycle(paths) {
            return path;
        }
        if now < self.frozen_until && self.filled > 0 {
            let back = usize::from(uniform(rng, u16::from(self.filled))) + 1;
            let at = (usize::from(self.head) + REPS_SLOTS - back) % REPS_SLOTS;
            return u16::from(self.cached[at]) % paths;
        }
        uniform(rng, paths)
    }
}
