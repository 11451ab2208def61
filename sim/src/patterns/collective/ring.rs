//! Pieces of the data go round a ring: everyone sends to the next rank only.

use super::program::{Emit, Grid, Transfer};

/// Each rank adds its data to a piece and passes it on. In the end rank r has the sum of piece r + 1.
pub(super) fn reduce_scatter(ranks: u32, grid: &Grid, emit: &mut impl Emit) {
    round(ranks, grid, 0, true, emit);
}

/// Each rank passes on what it got, from piece r + 1 of rank r on.
pub(super) fn all_gather(ranks: u32, grid: &Grid, emit: &mut impl Emit) {
    round(ranks, grid, 1, false, emit);
}

/// In step s rank r sends piece r + first - s.
fn round(ranks: u32, grid: &Grid, first: u32, reduces: bool, emit: &mut impl Emit) {
    for step in 0..ranks - 1 {
        for from in 0..ranks {
            let piece = (from + first + ranks - step) % ranks;
            let units = grid.pieces(piece..piece + 1);
            emit(Transfer { from, to: (from + 1) % ranks, units, reduces, lane: first });
        }
    }
}
