//! The random numbers of a pattern.

use super::error::PatternError;
use crate::fabric::blueprint::mixed;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Random numbers from a seed.
pub(super) struct Random(Pcg64);

impl Random {
    /// Each part of a run has a stream of its own, so that one part does not change when another one does.
    pub(super) fn new(seed: u64, part: u64) -> Random {
        Random(Pcg64::seed_from_u64(mixed(seed ^ mixed(part))))
    }

    /// A number below `end`, which is at least 1.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        // The high bits of a product: the bias is below 2^-32 for every `end` that numbers hosts or messages.
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// At least 0, below 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// An exponential time of mean 1.
    pub(super) fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.unit())
    }

    /// Any of `0..=end`.
    pub(super) fn up_to(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.below(end.saturating_add(1)) }
    }

    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
    }

    /// Whom each host sends to: a permutation in which nobody stays within its group of `group_hosts`, the groups being
    /// neighbours. Each group must be at most half of all hosts.
    pub(super) fn scattered(
        &mut self,
        hosts: u32,
        group_hosts: u32,
    ) -> Result<Vec<u32>, PatternError> {
        let group = |host: u32| host / group_hosts;
        let mut to: Vec<u32> = (0..hosts).collect();
        self.shuffle(&mut to);
        for host in 0..hosts {
            if group(to[host as usize]) != group(host) {
                continue;
            }
            // Exchanging with some host helps both, since groups are at most half: look from a random place on.
            let start = self.below(hosts.into()) as u32;
            let other = (0..hosts).map(|step| (start + step) % hosts).find(|other| {
                group(to[*other as usize]) != group(host) && group(*other) != group(host)
            });
            let Some(other) = other else {
                return Err(PatternError::new("reach", "leaves nobody to send to"));
            };
            to.swap(host as usize, other as usize);
        }
        Ok(to)
    }
}
