//! Two binary trees over all ranks, each for one half of the data. In both, ranks are in order: who has children in the one
//! has an even number there, and an odd one in the other, where it is a leaf.

use super::program::{Emit, Grid, Transfer};

/// Which ranks have which numbers in a tree.
#[derive(Clone, Copy)]
enum Numbering {
    Straight,
    /// From the last rank on: even numbers become odd ones if there is an even number of ranks.
    Mirrored,
    /// One further.
    Shifted,
}

impl Numbering {
    /// Those of the two trees.
    fn both(ranks: u32) -> [Numbering; 2] {
        let second = if ranks.is_multiple_of(2) { Numbering::Mirrored } else { Numbering::Shifted };
        [Numbering::Straight, second]
    }

    fn rank(self, number: u32, ranks: u32) -> u32 {
        match self {
            Numbering::Straight => number,
            Numbering::Mirrored => ranks - 1 - number,
            Numbering::Shifted => (number + 1) % ranks,
        }
    }
}

/// The number above: a multiple of twice the power of two that the number is an odd multiple of. 0 is the root.
fn parent(number: u32, ranks: u32) -> Option<u32> {
    if number == 0 {
        return None;
    }
    let height = number.trailing_zeros();
    let below = number & !(1 << height);
    let above = below | 2 << height;
    Some(if above < ranks { above } else { below })
}

/// Ranks in the order in which a tree reduces: children before their parents.
fn upwards(ranks: u32) -> Vec<u32> {
    let depth = |mut number: u32| {
        let mut depth = 0;
        while let Some(above) = parent(number, ranks) {
            (number, depth) = (above, depth + 1);
        }
        depth
    };
    let mut order: Vec<u32> = (1..ranks).collect();
    order.sort_by_cached_key(|number| std::cmp::Reverse(depth(*number)));
    order
}

/// Each unit goes up its tree and down again.
pub(super) fn all_reduce(ranks: u32, grid: &Grid, emit: &mut impl Emit) {
    let order = upwards(ranks);
    let half = grid.units / 2;
    for unit in 0..half {
        for (tree, numbering) in (0..).zip(Numbering::both(ranks)) {
            let mut hop = |child: u32, up: bool| {
                let above = parent(child, ranks).unwrap_or(0);
                let [child, above] = [child, above].map(|number| numbering.rank(number, ranks));
                let (from, to) = if up { (child, above) } else { (above, child) };
                let unit = tree * half + unit;
                let lane = 2 * tree + u32::from(up);
                emit(Transfer { from, to, units: unit..unit + 1, reduces: up, lane });
            };
            order.iter().for_each(|child| hop(*child, true));
            order.iter().rev().for_each(|child| hop(*child, false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trees are as deep as a logarithm, have at most two children a node, and nobody has children in both, except one
    /// rank where the number is odd or small.
    #[test]
    fn who_works_in_one_tree_is_a_leaf_of_the_other() {
        for ranks in 2..200 {
            let mut inner = vec![0; ranks as usize];
            for numbering in Numbering::both(ranks) {
                let mut children = vec![0; ranks as usize];
                for number in 1..ranks {
                    let above = parent(number, ranks).expect("not the root");
                    children[numbering.rank(above, ranks) as usize] += 1;
                    let mut steps = 0;
                    let mut at = number;
                    while let Some(above) = parent(at, ranks) {
                        (at, steps) = (above, steps + 1);
                    }
                    assert!(steps <= ranks.ilog2() + 1, "{number} of {ranks} is {steps} deep");
                }
                assert!(children.iter().all(|count| *count <= 2));
                for (rank, children) in children.iter().enumerate() {
                    inner[rank] += u32::from(*children > 0);
                }
            }
            let both = inner.iter().filter(|trees| **trees == 2).count();
            assert!(both <= usize::from(ranks % 2 == 1), "{both} of {ranks} are inner in both");
        }
    }
}
