//! The choices of a seed.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// See the module.
pub struct Dice(Pcg64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(Pcg64::seed_from_u64(seed))
    }

    /// A number of `least..=most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = u128::from(most - least) + 1;
        least + ((u128::from(self.0.next_u64()) * span) >> 64) as u64
    }

    pub fn index(&mut self, count: usize) -> usize {
        self.between(0, count as u64 - 1) as usize
    }

    /// At least 0, below 1.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// A number of `least..=most` of any order of magnitude: as often between 10 and 100 as between 100 and 1000.
    pub fn spread(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.unit())
    }

    pub fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())].clone()
    }
}
