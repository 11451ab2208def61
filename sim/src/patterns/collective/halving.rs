//! Recursive halving, then recursive doubling.

use super::program::{Emit, Grid, Transfer};
use std::ops::Range;

/// The ranks of a group. The largest power of two of them exchange halves. For each further one there is a pair of ranks, at
/// the beginning, of which the second one acts for both.
struct Ranks {
    /// Those that exchange.
    active: u32,
    /// Pairs.
    pairs: u32,
}

impl Ranks {
    /// The rank of the `active`th of those that exchange.
    fn rank(&self, active: u32) -> u32 {
        if active < self.pairs { 2 * active + 1 } else { active + self.pairs }
    }
}

pub(super) fn program(
    ranks: u32,
    grid: &Grid,
    (reduces, gathers): (bool, bool),
    emit: &mut impl Emit,
) {
    let active = 1 << ranks.ilog2();
    let ranks = Ranks { active, pairs: ranks - active };
    let steps = active.ilog2();
    let all = grid.pieces(0..active);
    let pair = |pair: u32, back: bool| {
        let (first, second) = (2 * pair, 2 * pair + 1);
        let (from, to) = if back { (second, first) } else { (first, second) };
        Transfer { from, to, units: all.clone(), reduces: !back, lane: u32::from(back) }
    };
    if reduces {
        (0..ranks.pairs).for_each(|at| emit(pair(at, false)));
        for step in 0..steps {
            exchange(&ranks, grid, step, true, emit);
        }
    }
    if gathers {
        for step in (0..steps).rev() {
            exchange(&ranks, grid, step, false, emit);
        }
        (0..ranks.pairs).for_each(|at| emit(pair(at, true)));
    }
}

/// In step s everyone exchanges with the rank that differs in bit s. To reduce, each sends the half that the other keeps of
/// what both have; to gather, what it has of that.
fn exchange(ranks: &Ranks, grid: &Grid, step: u32, reduces: bool, emit: &mut impl Emit) {
    for active in 0..ranks.active {
        let other = active ^ 1 << step;
        let kept_by = if reduces { other } else { active };
        let units = grid.pieces(kept(ranks.active, kept_by, step + 1));
        let (from, to) = (ranks.rank(active), ranks.rank(other));
        let lane = 2 + 2 * step + u32::from(reduces);
        emit(Transfer { from, to, units, reduces, lane });
    }
}

/// The pieces that are a rank's after so many steps of halving: its lowest bits decide, the first one between the halves.
fn kept(active: u32, rank: u32, steps: u32) -> Range<u32> {
    let length = active >> steps;
    let start = (0..steps).map(|step| (rank >> step & 1) * (active >> (step + 1))).sum();
    start..start + length
}
