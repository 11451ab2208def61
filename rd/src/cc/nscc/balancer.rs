//! Choosing paths as uet-htsim does, for [`super::printed`].

use crate::cc::options::Choice;
use crate::cc::paths::{self, PATHS_MAX, Reps};
use crate::cc::profiles::{HTSIM_PENALTY_MARK, HTSIM_PENALTY_MOST, HTSIM_PENALTY_NACK};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Most paths that wait to be used again; the oldest goes. Each stands for an acknowledged packet that no new one has
/// followed, so there are at most as many as were ever in flight together.
const RECYCLED_MAX: usize = 8_192;

/// What came of a packet on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// It arrived unmarked.
    Clear,
    /// It arrived with a mark.
    Marked,
    /// A switch cut its payload off.
    Trimmed,
}

/// One variant for each value of `paths_by`; oblivious is `Turns` without penalties.
#[derive(Clone, Debug)]
pub(super) enum Balancer {
    Reps(Reps, Pcg32),
    Turns(Turns),
    /// Paths that came back clear, the oldest first; without one, the next in turn.
    Mixed(Turns, VecDeque<u8>),
}

impl Balancer {
    /// The way that a value of `paths_by` names, over `paths` paths.
    pub(super) fn new(paths_by: Choice, seed: u64, paths: u16) -> Balancer {
        match paths_by.number() {
            0 => Balancer::Reps(Reps::default(), paths::rng(seed)),
            1 => Balancer::Turns(Turns::new(seed, paths, false)),
            2 => Balancer::Turns(Turns::new(seed, paths, true)),
            _ => Balancer::Mixed(Turns::new(seed, paths, true), VecDeque::new()),
        }
    }

    pub(super) fn told(&mut self, path: u16, news: News) {
        match self {
            Balancer::Reps(reps, _) if news != News::Trimmed => {
                reps.on_ack(path, news == News::Marked);
            }
            Balancer::Reps(..) => {}
            Balancer::Turns(turns) => turns.told(path, news),
            Balancer::Mixed(turns, recycled) => {
                turns.told(path, news);
                if news == News::Clear {
                    if recycled.len() == RECYCLED_MAX {
                        recycled.pop_front();
                    }
                    recycled.push_back(path as u8);
                }
            }
        }
    }

    /// The next packet's path, at most `last_path`.
    pub(super) fn next(&mut self, last_path: u8) -> u16 {
        match self {
            Balancer::Reps(reps, rng) => reps
                .recycle(last_path)
                .unwrap_or_else(|| paths::uniform(rng, u16::from(last_path) + 1)),
            Balancer::Turns(turns) => turns.next(),
            Balancer::Mixed(turns, recycled) => {
                recycled.pop_front().map_or_else(|| turns.next(), |path| path.min(last_path).into())
            }
        }
    }
}

/// All paths in turn, each round in an order of its own: the number of the turn with some of its bits flipped. A path
/// with a penalty is skipped, and the first one that a packet skips loses one point of it.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    penalties: Box<[u8]>,
    rng: Pcg32,
    turn: u16,
    flipped: u16,
    /// Marks and trims give a path points.
    penalizes: bool,
}

impl Turns {
    fn new(seed: u64, paths: u16, penalizes: bool) -> Turns {
        let penalties = vec![0; usize::from(paths.clamp(1, PATHS_MAX))].into();
        let mut turns = Turns { penalties, rng: paths::rng(seed), turn: 0, flipped: 0, penalizes };
        turns.flip();
        turns
    }

    /// The numbers of a round: a power of two, so that flipping bits only changes their order.
    fn round(&self) -> u16 {
        self.penalties.len().next_power_of_two() as u16
    }

    fn flip(&mut self) {
        self.flipped = self.rng.next_u32() as u16 & (self.round() - 1);
    }

    fn told(&mut self, path: u16, news: News) {
        let points = match news {
            News::Marked if self.penalizes => HTSIM_PENALTY_MARK,
            News::Trimmed if self.penalizes => HTSIM_PENALTY_NACK,
            _ => 0,
        };
        if let Some(penalty) = self.penalties.get_mut(usize::from(path)) {
            *penalty = (*penalty + points).min(HTSIM_PENALTY_MOST);
        }
    }

    fn advance(&mut self) {
        self.turn += 1;
        if self.turn == self.round() {
            self.turn = 0;
            self.flip();
        }
    }

    /// The path of this turn. Numbers beyond the last path have none.
    fn present(&mut self) -> usize {
        loop {
            let path = usize::from(self.turn ^ self.flipped);
            if path < self.penalties.len() {
                return path;
            }
            self.advance();
        }
    }

    fn next(&mut self) -> u16 {
        let (mut skipped, paths) = (0, self.penalties.len());
        loop {
            let path = self.present();
            self.advance();
            let penalty = &mut self.penalties[path];
            if *penalty == 0 || skipped == paths {
                return path as u16;
            }
            if skipped == 0 {
                *penalty -= 1;
            }
            skipped += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn round(balancer: &mut Balancer, paths: usize) -> Vec<u16> {
        let mut round: Vec<u16> = (0..paths).map(|_| balancer.next(paths as u8 - 1)).collect();
        round.sort_unstable();
        round
    }

    #[test]
    fn turns_use_every_path_once_a_round_whatever_their_number() {
        for paths in [1, 5, 8] {
            let mut turns = Balancer::new(Choice(1.0), 7, paths);
            turns.told(0, News::Trimmed);
            for _ in 0..4 {
                assert_eq!(round(&mut turns, paths.into()), (0..paths).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_mark_skips_a_path_once_and_a_trim_four_times() {
        let mut turns = Balancer::new(Choice(2.0), 7, 8);
        turns.told(3, News::Marked);
        turns.told(5, News::Trimmed);
        let mut used = [0; 8];
        // 3 is skipped in one round and 5 in four, so 8 paths are used in 5 rounds but 5 turns.
        for _ in 0..35 {
            used[usize::from(turns.next(7))] += 1;
        }
        assert_eq!(used, [5, 5, 5, 4, 5, 1, 5, 5]);
    }

    #[test]
    fn with_all_paths_marked_a_round_ends() {
        let mut turns = Balancer::new(Choice(2.0), 7, 4);
        for _ in 0..20 {
            (0..4).for_each(|path| turns.told(path, News::Trimmed));
        }
        let Balancer::Turns(state) = &turns else { panic!("{turns:?}") };
        assert_eq!(*state.penalties, [15; 4]);
        assert!(turns.next(3) < 4);
    }

    #[test]
    fn mixed_uses_clear_paths_again_in_order_before_any_in_turn() {
        let mut mixed = Balancer::new(Choice(3.0), 7, 8);
        for (path, news) in
            [(6, News::Clear), (2, News::Marked), (6, News::Clear), (1, News::Clear)]
        {
            mixed.told(path, news);
        }
        assert_eq!([mixed.next(7), mixed.next(7), mixed.next(7)], [6, 6, 1]);
        assert_eq!(round(&mut mixed, 7), [0, 1, 3, 4, 5, 6, 7]);
    }
}
