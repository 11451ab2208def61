//! The path numbers of one message: each in turn, in an order that changes with each round. A path that a mark or a trimmed
//! packet was told of is left out once.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// See the module.
#[derive(Debug)]
pub(super) struct Paths {
    count: u16,
    /// A power of two, at least the count.
    span: u16,
    next: u16,
    /// What the place in the round is combined with.
    order: u16,
    /// Paths to leave out, a bit each.
    skip: Vec<u64>,
}

impl Paths {
    pub(super) fn new(count: u16, rng: &mut Pcg32) -> Paths {
        let span = count.next_power_of_two();
        let skip = vec![0; usize::from(span).div_ceil(64)];
        Paths { count, span, next: 0, order: rng.next_u32() as u16 & (span - 1), skip }
    }

    /// The path of the next packet. At most two rounds find one, since what is left out is left out once.
    pub(super) fn next(&mut self, rng: &mut Pcg32) -> u16 {
        loop {
            let path = self.next ^ self.order;
            self.next += 1;
            if self.next == self.span {
                (self.next, self.order) = (0, rng.next_u32() as u16 & (self.span - 1));
            }
            let (word, bit) = (usize::from(path / 64), 1 << (path % 64));
            let skips = self.skip[word] & bit != 0;
            self.skip[word] &= !bit;
            if path < self.count && !skips {
                return path;
            }
        }
    }

    /// Leaves a path out the next time.
    pub(super) fn avoid(&mut self, path: u16) {
        if path < self.count {
            self.skip[usize::from(path / 64)] |= 1 << (path % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::rand_core::SeedableRng;

    #[test]
    fn a_round_takes_each_path_once_but_those_to_avoid() {
        let mut rng = Pcg32::seed_from_u64(1);
        let mut paths = Paths::new(8, &mut rng);
        let mut round = |paths: &mut Paths, count: usize| {
            let mut taken: Vec<u16> = (0..count).map(|_| paths.next(&mut rng)).collect();
            taken.sort_unstable();
            taken
        };
        assert_eq!(round(&mut paths, 8), (0..8).collect::<Vec<u16>>());
        paths.avoid(3);
        assert_eq!(round(&mut paths, 7), [0, 1, 2, 4, 5, 6, 7]);
        assert_eq!(round(&mut paths, 8), (0..8).collect::<Vec<u16>>());
    }

    #[test]
    fn any_number_of_paths_will_do() {
        let mut rng = Pcg32::seed_from_u64(1);
        let mut paths = Paths::new(5, &mut rng);
        (0..5).for_each(|path| paths.avoid(path));
        for _ in 0..100 {
            assert!(paths.next(&mut rng) < 5);
        }
    }
}
