//! Which part of a network each node belongs to, when threads share it.

use super::blueprint::{Blueprint, LinkPlan, NodeId};
use crate::ids::LinkId;
use crate::time::Picos;

/// Most parts.
const SHARDS_MAX: usize = 64;

/// Where a node is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Its first link, counted from the first one of its part.
    first_port: u32,
    /// A host's place among those of its part.
    host: u32,
    shard: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Layout {
    places: Vec<Place>,
    shards: Vec<Vec<NodeId>>,
    lookahead_ps: Picos,
}

impl Layout {
    /// Parts for so many threads. Hosts that follow each other share one, and so do switches with the hosts below them.
    pub(super) fn new(plan: &Blueprint, threads: usize) -> Layout {
        let count = threads.clamp(1, SHARDS_MAX).min(plan.hosts().max(1) as usize);
        let layout = Layout::of(plan, count);
        // What takes no time cannot go from one thread to another.
        if layout.lookahead_ps == 0 { Layout::of(plan, 1) } else { layout }
    }

    fn of(plan: &Blueprint, count: usize) -> Layout {
        let of_host = |host: u32| (u64::from(host) * count as u64 / u64::from(plan.hosts())) as u32;
        let of_switch = |at: usize| {
            let near = plan.switches()[at].routes.near_host(plan.hosts());
            near.map_or((at % count) as u32, of_host)
        };
        let mut places = vec![Place::default(); plan.nodes() as usize];
        let mut shards = vec![Vec::new(); count];
        let mut ports = vec![0; count];
        for (at, place) in places.iter_mut().enumerate() {
            let host = at as u32;
            let switch = at.checked_sub(plan.hosts() as usize);
            place.shard = switch.map_or_else(|| of_host(host), of_switch);
            let shard = place.shard as usize;
            let links = plan.links_of(NodeId(host));
            (place.first_port, place.host) = (ports[shard], shards[shard].len() as u32);
            ports[shard] += links.len() as u32;
            shards[shard].push(NodeId(host));
        }
        let crosses = |link: &&LinkPlan| {
            places[link.from.0 as usize].shard != places[link.to.0 as usize].shard
        };
        let lookahead_ps = plan.links().iter().filter(crosses).map(LinkPlan::least_ps).min();
        Layout { lookahead_ps: lookahead_ps.unwrap_or(Picos::MAX), places, shards }
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The nodes of a part, hosts first.
    pub(super) fn nodes_of(&self, shard: usize) -> &[NodeId] {
        &self.shards[shard]
    }

    /// Least time from one part to another.
    pub(super) fn lookahead_ps(&self) -> Picos {
        self.lookahead_ps
    }

    pub(super) fn shard(&self, node: NodeId) -> usize {
        self.places[node.0 as usize].shard as usize
    }

    /// A host's place in its part.
    pub(super) fn host(&self, node: NodeId) -> usize {
        self.places[node.0 as usize].host as usize
    }

    /// The place of a node's link in its part, counted from the node's first one.
    pub(super) fn port(&self, node: NodeId, link: u32) -> usize {
        (self.places[node.0 as usize].first_port + link) as usize
    }

    /// The part of a link, and its place there.
    pub(super) fn place_of(&self, plan: &Blueprint, link: LinkId) -> (usize, usize) {
        let from = plan.links()[link.0 as usize].from;
        (self.shard(from), self.port(from, link.0 - plan.links_of(from).start))
    }
}
