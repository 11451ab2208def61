//! Hosts, links and switches joined, and what runs them.
//!
//! A packet costs one event a hop: its arrival. A transmitter that something waits for costs another. Several threads may
//! share a network: each runs its part for as long as nothing can come from another one, and then they exchange packets.
//! The order of events depends on what happens alone, so the results are the same on any number of threads.
//!
//! Within a thread the nodes take such turns too (`calendar.rs`). So a node may act on another one by a packet alone,
//! or by something else that takes at least [`Blueprint::apart_ps`]. Triggers act at once: they forbid both.

mod arrival_order;
pub mod blueprint;
pub mod clos;
pub mod dragonfly;
mod dragonfly_switch;
pub mod flowlet;
mod layout;
pub mod least;
mod meeting;
pub mod memory;
mod pause;
pub mod pfc;
mod port;
pub mod rail;
mod rail_switch;
pub mod receiver;
mod reroute;
pub mod shape;
mod shard;

use crate::host::SimHost;
use crate::ids::{HostId, LinkId};
use crate::link::{Health, LinkCounters, NodeCounters};
use crate::queue::Queue;
use crate::series::watch::{DISTANCES, Watch};
use crate::time::Picos;
use crate::work::Trigger;
use blueprint::{Blueprint, NodeId};
use layout::Layout;
use meeting::Meeting;
use memory::SharedMemory;
use reroute::Routing;
use shard::{Shard, Transit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module.
pub struct Fabric {
    plan: Arc<Blueprint>,
    layout: Arc<Layout>,
    now: Picos,
    shards: Vec<Shard>,
    routing: Option<Routing>,
}

/// Packets on their way from each part to each other one.
type Mail = Vec<Vec<Mutex<Vec<Transit>>>>;

impl Fabric {
    /// A network at rest, run by so many threads at most. `host` makes each host.
    #[must_use]
    pub fn new(
        plan: Arc<Blueprint>,
        threads: usize,
        seed: u64,
        mut host: impl FnMut(HostId) -> SimHost,
    ) -> Fabric {
        let layout = Arc::new(Layout::new(&plan, threads));
        let shards = (0..layout.shards())
            .map(|number| Shard::new(&plan, &layout, number, seed, &mut host))
            .collect();
        let routing = Routing::new(&plan);
        Fabric { plan, layout, now: 0, shards, routing }
    }

    /// Gives it the triggers of its hosts' tasks. They act at once, so one thread has to run it.
    ///
    /// # Panics
    /// Several threads would run it, and there are triggers.
    pub fn set_triggers(&mut self, triggers: Vec<Trigger>) {
        match &mut self.shards[..] {
            [only] => only.set_triggers(triggers),
            _ => assert!(triggers.is_empty(), "triggers need a network of one thread"),
        }
    }

    /// What it looks like.
    #[must_use]
    pub fn plan(&self) -> &Blueprint {
        &self.plan
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// When the next event happens, or switches learn of a link.
    #[must_use]
    pub fn next_at(&self) -> Option<Picos> {
        let learns_at = self.routing.as_ref().and_then(Routing::next_at);
        self.shards.iter().filter_map(Shard::next_at).chain(learns_at).min()
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.shards.iter().map(Shard::events).sum()
    }

    /// Packets under way.
    #[must_use]
    pub fn packets_under_way(&self) -> usize {
        self.shards.iter().map(Shard::packets).sum()
    }

    /// Memory of switches that pause which packets take, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.shards.iter().flat_map(|shard| &shard.memories).map(SharedMemory::taken_bytes).sum()
    }

    /// The queue of a link.
    #[must_use]
    pub fn queue(&self, link: LinkId) -> &Queue {
        let (shard, port) = self.layout.place_of(&self.plan, link);
        self.shards[shard].queue(port)
    }

    /// The queue of a link, to be measured.
    pub fn queue_mut(&mut self, link: LinkId) -> &mut Queue {
        let (shard, port) = self.layout.place_of(&self.plan, link);
        self.shards[shard].queue_mut(port)
    }

    /// Counters of a link.
    #[must_use]
    pub fn counters(&self, link: LinkId) -> LinkCounters {
        let (shard, port) = self.layout.place_of(&self.plan, link);
        self.shards[shard].counters(port)
    }

    /// Counters of all switches and hosts together.
    #[must_use]
    pub fn node_counters(&self) -> NodeCounters {
        let mut sum = NodeCounters::default();
        for NodeCounters { no_route, ring_drops } in self.shards.iter().map(Shard::node_counters) {
            sum.no_route += no_route;
            sum.ring_drops += ring_drops;
        }
        sum
    }

    /// A host.
    #[must_use]
    pub fn host(&self, id: HostId) -> &SimHost {
        let node = NodeId(id.0);
        self.shards[self.layout.shard(node)].host(node)
    }

    /// All hosts, in the order of their numbers.
    pub fn hosts(&self) -> impl Iterator<Item = &SimHost> {
        self.shards.iter().flat_map(Shard::hosts)
    }

    /// Counts the data packets of these pairs of hosts from now on, and no longer those of others.
    pub fn watch(&mut self, pairs: &[(HostId, HostId)]) {
        let last = |&(from, to): &(HostId, HostId)| {
            let shard = &self.shards[self.layout.shard(NodeId(from.0))];
            ((from, to), shard.departures.last(from, to))
        };
        let pairs: Vec<_> = pairs.iter().map(last).collect();
        for shard in &mut self.shards {
            shard.watch = Some(Box::new(Watch::new(&pairs)));
        }
    }

    /// Data packets of a watched pair by path number.
    #[must_use]
    pub fn paths(&self, from: HostId, to: HostId) -> &[u64] {
        self.watch_of(from).map_or(&[], |watch| watch.paths(from, to))
    }

    /// How far the data packets of a watched pair came out of order, by class, and at most.
    #[must_use]
    pub fn order(&self, from: HostId, to: HostId) -> ([u64; DISTANCES], u32) {
        self.watch_of(to).map_or(([0; DISTANCES], 0), |watch| watch.order(from, to))
    }

    fn watch_of(&self, host: HostId) -> Option<&Watch> {
        self.shards[self.layout.shard(NodeId(host.0))].watch.as_deref()
    }

    /// The work begins: congestion control forgets the greetings.
    pub fn begin(&mut self) {
        let now = self.now;
        self.shards.iter_mut().flat_map(Shard::hosts_mut).for_each(|host| host.begin(now));
    }

    /// Breaks or heals a link.
    pub fn set_health(&mut self, link: LinkId, health: Health) {
        let (shard, port) = self.layout.place_of(&self.plan, link);
        let node = self.plan.links()[link.0 as usize].from;
        self.shards[shard].set_health(node, port, health);
        // Pause frames for other parts: those run on from here.
        for (to, mut letters) in self.shards[shard].take_outbox().into_iter().enumerate() {
            self.shards[to].take(&mut letters);
        }
        if let Some(routing) = &mut self.routing {
            routing.note(self.now, link, health == Health::Dead);
        }
    }

    /// Runs everything that happens up to `end`, which is the time afterwards.
    pub fn run_until(&mut self, end: Picos) {
        while let Some(at) =
            self.routing.as_ref().and_then(Routing::next_at).filter(|at| *at <= end)
        {
            self.run_span(at);
            let Some(routing) = &mut self.routing else { break };
            let detours = routing.learn(&self.plan, at);
            self.shards.iter_mut().for_each(|shard| shard.detours.clone_from(&detours));
        }
        self.run_span(end);
    }

    /// The same while no switch learns anything.
    fn run_span(&mut self, end: Picos) {
        match &mut self.shards[..] {
            [only] => only.run_until(end),
            _ => self.run_shards(end),
        }
        self.now = end;
    }

    fn run_shards(&mut self, end: Picos) {
        let count = self.shards.len();
        let lookahead_ps = self.layout.lookahead_ps();
        let mail: Mail =
            (0..count).map(|_| (0..count).map(|_| Mutex::default()).collect()).collect();
        let (meeting, next) = (Meeting::new(count), [const { AtomicU64::new(u64::MAX) }; 2]);
        std::thread::scope(|scope| {
            for (number, shard) in self.shards.iter_mut().enumerate() {
                let (meeting, next, mail) = (&meeting, &next, &mail);
                scope.spawn(move || {
                    let (mut turn, mut guest) = (0, meeting.guest());
                    loop {
                        // A lower bound would give turns without events while the network is quiet.
                        next[turn].fetch_min(shard.next_at().unwrap_or(u64::MAX), Ordering::SeqCst);
                        guest.wait();
                        let first = next[turn].load(Ordering::SeqCst);
                        if first > end {
                            break;
                        }
                        // Nothing that another part does in a turn arrives here before it is over. Turns are as long as the
                        // calendar's days, so that none is cut.
                        let last = first - first % lookahead_ps + (lookahead_ps - 1);
                        shard.run_until(last.min(end));
                        post(shard, &mail[number]);
                        // All have read it: the next turn but one uses it again.
                        next[1 - turn].store(u64::MAX, Ordering::SeqCst);
                        guest.wait();
                        for from in mail {
                            let mut letters =
                                from[number].lock().unwrap_or_else(PoisonError::into_inner);
                            shard.take(&mut letters);
                        }
                        turn = 1 - turn;
                    }
                    shard.run_until(end);
                });
            }
        });
    }
}

/// Puts a part's packets where the other parts find them.
fn post(shard: &mut Shard, to: &[Mutex<Vec<Transit>>]) {
    for (out, to) in shard.outbox.iter_mut().zip(to) {
        if !out.is_empty() {
            to.lock().unwrap_or_else(PoisonError::into_inner).append(out);
        }
    }
}
