//! Counts the packets of some pairs of hosts in a run: how far they come out of order, and which ways they take where senders
//! choose.

use crate::experiment::Observer;
use crate::fabric::Fabric;
use crate::fabric::blueprint::Blueprint;
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
}

impl Observer for Watcher {
    fn begin(&mut self, fabric: &mut Fabric, flows: &[Flow], _: Picos) {
        let watched = spread(flows.len(), PAIRS_MAX).map(|at| (flows[at].from, flows[at].to));
        self.pairs = watched.collect();
        self.pairs.sort_unstable();
        self.pairs.dedup();
        fabric.watch(&self.pairs);
    }

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
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
            let packets = on_shortest(fabric.plan(), (from, to), fabric.paths(from, to));
            (shortest, random) = (shortest + packets.0, random + packets.1);
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

/// Of a pair's packets by path number, those on its shortest ways, and those that random choices would have put there. Both
/// are 0 where all ways have the same length.
fn on_shortest(plan: &Blueprint, (from, to): (HostId, HostId), path_packets: &[u64]) -> (f64, f64) {
    let choices = plan.choices(from, to);
    let length = |choice| plan.chosen_way(from, to, choice).len();
    let least = (0..choices).map(length).min().unwrap_or(0);
    let short = (0..choices).filter(|choice| length(*choice) == least).count();
    if short == choices as usize {
        return (0.0, 0.0);
    }
    let (mut shortest, mut random) = (0.0, 0.0);
    for (path, packets) in (0..).zip(path_packets).filter(|(_, packets)| **packets > 0) {
        random += *packets as f64 * short as f64 / f64::from(choices);
        // Switches may hash the path number: the network says by which way it leads.
        if plan.way(&Hop { path, ..Hop::probe(from, to, 0) }).len() == least {
            shortest += *packets as f64;
        }
    }
    (shortest, random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::blueprint::Spread;
    use crate::fabric::dragonfly::Dragonfly;
    use crate::link::LinkConfig;

    /// The path number alone chooses the way, or its hash does.
    #[test]
    fn packets_count_by_the_way_that_they_take() {
        for spread in [Spread::Modulo, Spread::Hashed { salt: 7 }] {
            let link = LinkConfig::delay(1_000);
            let (host, local, global) = (link, link, link);
            let plan = Dragonfly {
                groups: 5,
                switches: 2,
                hosts: 2,
                global_links: 2,
                spread,
                host,
                local,
                global,
            };
            let plan = plan.build().expect("it fits");
            let (from, to) = (HostId(0), HostId(7));
            let length = |path| plan.way(&Hop { path, ..Hop::probe(from, to, 0) }).len();
            let least = (0..64).map(length).min().expect("there are ways");
            let on_least: Vec<u64> = (0..64).map(|path| u64::from(length(path) == least)).collect();
            let others: Vec<u64> = on_least.iter().map(|packets| 1 - packets).collect();
            let [on_least_count, others_count] =
                [&on_least, &others].map(|packets| packets.iter().sum::<u64>() as f64);
            let choices = f64::from(plan.choices(from, to));
            let ways = (0..plan.choices(from, to)).map(|choice| plan.chosen_way(from, to, choice));
            let share = ways.filter(|way| way.len() == least).count() as f64 / choices;
            assert!(0.0 < share && share < 1.0);
            let expected = (on_least_count, on_least_count * share);
            assert_eq!(on_shortest(&plan, (from, to), &on_least), expected, "{spread:?}");
            let expected = (0.0, others_count * share);
            let found = on_shortest(&plan, (from, to), &others);
            assert!(found.0 == 0.0 && (found.1 - expected.1).abs() < 1e-9, "{spread:?}: {found:?}");
        }
    }
}
