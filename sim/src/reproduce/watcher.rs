//! Counts the packets of some pairs of hosts in a run: how far they come out of order, and which ways they take where senders
//! choose.

use crate::experiment::Observer;
use crate::fabric::Fabric;
use crate::hop::Hop;
use crate::ids::HostId;
use crate::series::{DISTANCES, PAIRS_MAX, spread};
use crate::time::Picos;
use crate::work::Flow;
use serde::{Deserialize, Serialize};

/// The class of distances that begins at 8 packets.
const FAR: usize = 4;

/// What was counted.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchedPairs {
    /// Packets that later ones overtook, in percent.
    pub late_percent: f64,
    /// Packets that 8 or more later ones overtook, in percent.
    pub far_late_percent: f64,
    /// By how many later ones 99 % were overtaken at most: one less than a power of two.
    pub late_p99_packets: f64,
    /// Packets on the shortest ways, over those that random choices would have put there; 0 where all ways are equal.
    pub shortest_share: f64,
}

/// Watches at most [`PAIRS_MAX`] pairs, evenly spread over the messages.
#[derive(Default)]
pub struct Watcher {
    pairs: Vec<(HostId, HostId)>,
    begin: Picos,
}

impl Observer for Watcher {
    fn begin(&mut self, fabric: &mut Fabric, flows: &[Flow], begin: Picos) {
        let watched = spread(flows.len(), PAIRS_MAX).map(|at| (flows[at].from, flows[at].to));
        self.pairs = watched.collect();
        self.pairs.sort_unstable();
        self.pairs.dedup();
        self.begin = begin;
        fabric.watch(&self.pairs);
    }

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        // What leaves before the work begins does not count.
        if fabric.now() < self.begin && end >= self.begin {
            fabric.run_until(self.begin - 1);
            fabric.watch(&self.pairs);
        }
        fabric.run_until(end);
    }
}

impl Watcher {
    /// What was counted until the end of the run.
    pub fn finish(self, fabric: &Fabric) -> WatchedPairs {
        let mut behind = [0_u64; DISTANCES];
        let (mut shortest, mut random) = (0.0, 0.0);
        for (from, to) in self.pairs {
            let (counts, _) = fabric.order(from, to);
            behind.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            let ways = lengths(fabric, from, to);
            let least = ways.iter().copied().min().unwrap_or(0);
            let short = ways.iter().filter(|length| **length == least).count();
            if short == ways.len() {
                continue;
            }
            for (path, packets) in fabric.paths(from, to).iter().enumerate() {
                random += *packets as f64 * short as f64 / ways.len() as f64;
                if ways[path % ways.len()] == least {
                    shortest += *packets as f64;
                }
            }
        }
        let all = behind.iter().sum::<u64>().max(1) as f64;
        let percent = |from: usize| behind[from..].iter().sum::<u64>() as f64 / all * 100.0;
        let p99 = (0..DISTANCES).find(|class| percent(class + 1) <= 1.0).unwrap_or(DISTANCES);
        WatchedPairs {
            late_percent: percent(1),
            far_late_percent: percent(FAR),
            late_p99_packets: ((1_u64 << p99) - 1) as f64,
            shortest_share: if random > 0.0 { shortest / random } else { 0.0 },
        }
    }
}

/// Links of each way that a sender can choose, by path number.
fn lengths(fabric: &Fabric, from: HostId, to: HostId) -> Vec<usize> {
    let plan = fabric.plan();
    let length = |path| plan.way(&Hop { path, ..Hop::probe(from, to, 0) }).len();
    (0..plan.choices(from, to) as u16).map(length).collect()
}
