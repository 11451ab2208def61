//! Randomness of a run: everything comes from one seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng};

/// A generator with the draws that the world needs.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64Mcg);

impl Rng {
    /// An independent generator for one `purpose` of a run.
    pub fn new(seed: u64, purpose: u64) -> Rng {
        Rng(Pcg64Mcg::seed_from_u64(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(purpose.rotate_left(40)),
        ))
    }

    /// Another generator, of which these draws tell nothing. It takes nothing from them either.
    pub fn apart(&self) -> Rng {
        let mut other = self.clone();
        Rng::new(other.bits(), 1)
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Between `low` and `high`, every order of magnitude as likely as the next.
    pub fn log_range(&mut self, low: u64, high: u64) -> u64 {
        let (low_bits, high_bits) = (low.max(1).ilog2(), high.max(1).ilog2());
        let bits = self.range(u64::from(low_bits), u64::from(high_bits));
        (1u64 << bits).saturating_add(self.below(1 << bits)).clamp(low, high)
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && ((self.bits() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
