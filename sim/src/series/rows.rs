//! Which links share a row of a series: all links of a network, from the hosts' upwards and down again.

use super::RowSeries;
use crate::fabric::blueprint::{Blueprint, NodeId};
use crate::ids::LinkId;
use std::collections::{BTreeMap, VecDeque};

/// Rows of a series, about: when there are more links, neighbours of one tier share a row.
pub const ROWS_MAX: usize = 128;

/// A row that has no samples yet, and its links.
pub(super) type Row = (RowSeries, Vec<LinkId>);

/// The distance of each node from the nearest host.
fn tiers(plan: &Blueprint) -> Vec<u32> {
    let mut tiers = vec![u32::MAX; plan.nodes() as usize];
    let mut next: VecDeque<u32> = (0..plan.hosts()).collect();
    tiers[..plan.hosts() as usize].fill(0);
    while let Some(node) = next.pop_front() {
        for link in plan.links_of(NodeId(node)) {
            let to = plan.links()[link as usize].to.0;
            if tiers[to as usize] == u32::MAX {
                tiers[to as usize] = tiers[node as usize] + 1;
                next.push_back(to);
            }
        }
    }
    tiers
}

/// A node's name: hosts are `h0`, `h1`..., switches `s0`, `s1`...
fn name(plan: &Blueprint, node: NodeId) -> String {
    match node.0.checked_sub(plan.hosts()) {
        None => format!("h{}", node.0),
        Some(switch) => format!("s{switch}"),
    }
}

/// The rows of a network. Links without a rate have no queue and no row.
pub(super) fn rows(plan: &Blueprint) -> Vec<Row> {
    let tiers = tiers(plan);
    let mut classes: BTreeMap<(bool, u32, u32), Vec<u32>> = BTreeMap::new();
    for (at, link) in plan.links().iter().enumerate() {
        let [from, to] = [link.from, link.to].map(|node| tiers[node.0 as usize]);
        if link.config.bytes_per_s.is_some() {
            // Upwards from the lowest tier, then downwards from the highest.
            let order = if from > to { u32::MAX - from } else { from };
            classes.entry((from > to, order, to)).or_default().push(at as u32);
        }
    }
    let links: usize = classes.values().map(Vec::len).sum();
    let each = links.div_ceil(ROWS_MAX).max(1);
    let chunks = classes.values().flat_map(|links| links.chunks(each));
    chunks.map(|links| row(plan, &tiers, links)).collect()
}

fn row(plan: &Blueprint, tiers: &[u32], links: &[u32]) -> Row {
    let plans = || links.iter().map(|link| &plan.links()[*link as usize]);
    let named = |at: u32| {
        let link = &plan.links()[at as usize];
        format!("{} to {}", name(plan, link.from), name(plan, link.to))
    };
    let name = match links {
        [first, .., last] => format!("{}, ... {}", named(*first), named(*last)),
        _ => named(links[0]),
    };
    let ends = &plan.links()[links[0] as usize];
    let series = RowSeries {
        tiers: [ends.from, ends.to].map(|node| tiers[node.0 as usize]),
        name,
        bytes_per_s: plans().filter_map(|link| link.config.bytes_per_s).sum(),
        links: links.len() as u32,
        queue_mean_bytes: Vec::new(),
        queue_max_bytes: Vec::new(),
        sent_bytes: Vec::new(),
    };
    (series, links.iter().copied().map(LinkId).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::clos::Clos;
    use crate::link::LinkConfig;

    fn plan(children: u32) -> Blueprint {
        let link = LinkConfig { bytes_per_s: Some(1_000_000), ..LinkConfig::delay(1) };
        Clos::of(link, &[(children, 2), (4, 0)], 1).build().expect("a tree")
    }

    #[test]
    fn rows_go_up_and_down_again_and_have_every_link_once() {
        for children in [4, 100] {
            let plan = plan(children);
            let rows = rows(&plan);
            let tiers: Vec<[u32; 2]> = rows.iter().map(|row| row.0.tiers).collect();
            let mut without_repeats = tiers.clone();
            without_repeats.dedup();
            assert_eq!(without_repeats, [[0, 1], [1, 2], [2, 1], [1, 0]]);
            let mut links: Vec<LinkId> = rows.iter().flat_map(|row| row.1.clone()).collect();
            links.sort_unstable();
            assert!(links.iter().enumerate().all(|(at, link)| link.0 as usize == at));
            assert_eq!(links.len(), plan.links().len());
            assert!(rows.len() <= ROWS_MAX + 4, "{}", rows.len());
        }
        assert_eq!(rows(&plan(4))[0].0.name, "h0 to s0");
    }
}
