//! The least time of a lone packet between two hosts, whichever way it takes. In a tree all ways between two hosts are
//! alike. In other networks ways of as many links may differ in rates and delays.

use super::blueprint::{Blueprint, NodeId, Routes};
use crate::ids::HostId;
use crate::link::LinkConfig;
use crate::time::Picos;
use crate::topology::SEGMENT_WIRE_BYTES;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Least times from a switch to each node: of a packet without bytes, and of a full one.
type FromSwitch = [Vec<Picos>; 2];

/// See the module.
pub struct LeastTimes<'a> {
    plan: &'a Blueprint,
    /// It is a tree.
    alike: bool,
    /// At most one entry for each switch with hosts.
    known: RefCell<BTreeMap<NodeId, FromSwitch>>,
}

impl LeastTimes<'_> {
    /// Those of a network.
    #[must_use]
    pub fn new(plan: &Blueprint) -> LeastTimes<'_> {
        let mut switches = plan.switches().iter();
        let alike = switches.all(|switch| matches!(switch.routes, Routes::Tree { .. }));
        LeastTimes { plan, alike, known: RefCell::default() }
    }

    /// The least time of a packet of so many bytes on the wire.
    #[must_use]
    pub fn ps(&self, from: HostId, to: HostId, wire_bytes: u32) -> Picos {
        if self.alike {
            return self.plan.lone_ps(from, to, wire_bytes);
        }
        let uplink = &self.plan.links()[self.plan.links_of(NodeId(from.0)).start as usize];
        let mut known = self.known.borrow_mut();
        let [empty, full] = known.entry(uplink.to).or_insert_with(|| self.from(uplink.to));
        let [empty, full] = [empty, full].map(|times| times[to.0 as usize]);
        // The time of a way grows evenly with the bytes. The least of several such times lies above the straight line from
        // one end to the other.
        let share = |ps: Picos| {
            let part = u128::from(ps) * u128::from(wire_bytes.min(SEGMENT_WIRE_BYTES));
            (part / u128::from(SEGMENT_WIRE_BYTES)) as Picos
        };
        // Each link rounds its time down by less than a picosecond.
        let links = self.plan.switches().len() as Picos + 1;
        let rest = (empty + share(full - empty)).saturating_sub(links);
        uplink.config.sending_ps(wire_bytes) + uplink.config.propagation_ps + rest
    }

    fn from(&self, switch: NodeId) -> FromSwitch {
        let empty = self.shortest(switch, |link| link.propagation_ps);
        let full =
            self.shortest(switch, |link| link.propagation_ps + link.sending_ps(SEGMENT_WIRE_BYTES));
        [empty, full]
    }

    /// The least sum of what links cost from a switch to each node (Dijkstra). Hosts pass nothing on.
    fn shortest(&self, switch: NodeId, cost_ps: impl Fn(&LinkConfig) -> Picos) -> Vec<Picos> {
        let mut least = vec![Picos::MAX; self.plan.nodes() as usize];
        let mut open = BTreeSet::from([(0, switch)]);
        while let Some((sum, node)) = open.pop_first() {
            if least[node.0 as usize] <= sum {
                continue;
            }
            least[node.0 as usize] = sum;
            if node.0 < self.plan.hosts() {
                continue;
            }
            for link in self.plan.links_of(node) {
                let link = &self.plan.links()[link as usize];
                open.insert((sum + cost_ps(&link.config), link.to));
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::scenario::ScenarioFile;
    use crate::time::from_ns;

    /// Two switches with two links, one slow and near, one fast and far.
    const TWO_WAYS: &str = r#"
        links = { rate_gbps = 100, delay_ns = 1000 }
        work = []
        [topology.graph]
        hosts = ["a", "b"]
        switches = ["s", "t"]
        links = [
          { between = ["a", "s"] },
          { between = ["b", "t"] },
          { between = ["s", "t"], link = { rate_gbps = 1, delay_ns = 1000 } },
          { between = ["s", "t"], link = { rate_gbps = 100, delay_ns = 9000 } },
        ]
        [engines]
        scheme = "spray"
    "#;

    /// A short packet is faster over the near link, a long one over the fast one; the bound lies below both.
    #[test]
    fn the_least_time_is_that_of_the_best_way() {
        let file = ScenarioFile::read("two.toml", TWO_WAYS).expect("a scenario");
        let plan = file.prepare(std::path::Path::new("")).expect("a network").plan;
        let times = LeastTimes::new(&plan);
        let (a, b) = (HostId(0), HostId(1));
        // A byte takes 0.08 ns at 100 Gb/s, 8 ns at 1 Gb/s.
        let near = |bytes: u32| from_ns(3_000) + u64::from(bytes) * (80 + 8_000 + 80);
        let far = |bytes: u32| from_ns(11_000) + u64::from(bytes) * (80 + 80 + 80);
        for bytes in [0, 100, 1_000, 2_000, SEGMENT_WIRE_BYTES] {
            let least = near(bytes).min(far(bytes));
            assert!(times.ps(a, b, bytes) <= least, "{bytes} bytes");
        }
        assert_eq!(times.ps(a, b, 0), near(0) - 3);
        assert_eq!(times.ps(a, b, SEGMENT_WIRE_BYTES), far(SEGMENT_WIRE_BYTES) - 3);
    }
}
