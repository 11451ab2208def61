//! Counts the data packets of a few pairs of hosts: which paths they take, and how far they come out of order. Every
//! transport is counted alike: packets have numbers in the order in which they leave, repeats included, and the receiver looks
//! how many later ones were faster. A part of a network has a watch of its own for the hosts that it runs.

use crate::ids::HostId;
use erd_rd::config::PATHS_MAX;
use serde::Serialize;
use std::collections::HashMap;

/// Classes of distances: 0, 1, 2 to 3, 4 to 7 and so on; the last has everything from 1024 on.
pub const DISTANCES: usize = 12;

/// The packets of a pair of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PairCounts {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Data packets sent, by path number; as many as the highest number used, at most [`PATHS_MAX`].
    pub path_packets: Vec<u64>,
    /// Data packets that arrived after so many later ones, by [`DISTANCES`].
    pub behind: [u64; DISTANCES],
    /// Farthest that one came behind.
    pub behind_max: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pairs: HashMap<(HostId, HostId), Pair>,
}

#[derive(Debug, Default)]
struct Pair {
    /// Number of the last packet that left before anybody watched.
    before: u32,
    /// Highest number that has arrived.
    highest: u32,
    counts: PairCounts,
}

impl Watch {
    /// Watches pairs, each with the number of the last packet that has left.
    pub(crate) fn new(pairs: &[((HostId, HostId), u32)]) -> Watch {
        let pair = |before: u32| Pair { before, highest: before, ..Pair::default() };
        Watch { pairs: pairs.iter().map(|(hosts, before)| (*hosts, pair(*before))).collect() }
    }

    /// A data packet leaves. Returns whether its receiver needs a number of it.
    pub(crate) fn leaves(&mut self, from: HostId, to: HostId, path: u16) -> bool {
        let Some(pair) = self.pairs.get_mut(&(from, to)) else { return false };
        let path = usize::from(path.min(PATHS_MAX - 1));
        let paths = &mut pair.counts.path_packets;
        if paths.len() <= path {
            paths.resize(path + 1, 0);
        }
        paths[path] += 1;
        true
    }

    /// A data packet of this number arrives.
    pub(crate) fn arrives(&mut self, from: HostId, to: HostId, number: u32) {
        let Some(pair) = self.pairs.get_mut(&(from, to)).filter(|pair| number > pair.before) else {
            return;
        };
        let behind = pair.highest.saturating_sub(number);
        pair.highest = pair.highest.max(number);
        let class = (u32::BITS - behind.leading_zeros()) as usize;
        pair.counts.behind[class.min(DISTANCES - 1)] += 1;
        pair.counts.behind_max = pair.counts.behind_max.max(behind);
    }

    /// What was counted of a pair at its sender.
    pub(crate) fn paths(&self, from: HostId, to: HostId) -> &[u64] {
        self.pairs.get(&(from, to)).map_or(&[], |pair| &pair.counts.path_packets)
    }

    /// What was counted of a pair at its receiver.
    pub(crate) fn order(&self, from: HostId, to: HostId) -> ([u64; DISTANCES], u32) {
        let pair = self.pairs.get(&(from, to));
        pair.map_or(([0; DISTANCES], 0), |pair| (pair.counts.behind, pair.counts.behind_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_as_far_behind_as_the_last_of_those_that_overtook_it() {
        let (a, b) = (HostId(1), HostId(2));
        let mut watch = Watch::new(&[((a, b), 0)]);
        assert!((0..6).all(|path| watch.leaves(a, b, path % 2)));
        assert_eq!((watch.leaves(b, a, 0), watch.paths(a, b)), (false, &[3, 3][..]));
        for number in [1, 6, 2, 5, 3, 4, 0] {
            watch.arrives(a, b, number);
        }
        let (behind, most) = watch.order(a, b);
        assert_eq!((&behind[..4], most), (&[2, 1, 2, 1][..], 4));
    }

    #[test]
    fn packets_that_left_before_do_not_count() {
        let (a, b) = (HostId(1), HostId(2));
        let mut watch = Watch::new(&[((a, b), 5)]);
        [5, 7, 3, 6].iter().for_each(|number| watch.arrives(a, b, *number));
        let (behind, most) = watch.order(a, b);
        assert_eq!((&behind[..3], most), (&[1, 1, 0][..], 1));
    }
}
