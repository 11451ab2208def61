//! A part of a network: some hosts and switches with the links that begin there, and the loop that runs them.

use super::arrival_order::Departures;
use super::blueprint::{Blueprint, LinkPlan, NodeId, mixed};
use super::flowlet::Flowlets;
use super::layout::Layout;
use super::memory::{SharedMemory, Wiring, memories};
use super::port::{Fate, Launch, Port, Waiting};
use super::receiver::{Arriving, Receiver};
use super::reroute::Detours;
use crate::calendar::Calendar;
use crate::days::{Entry, NODE_SHIFT};
use crate::hop::Hop;
use crate::host::SimHost;
use crate::ids::HostId;
use crate::link::{Health, LinkCounters, NodeCounters};
use crate::mutants::{Mutant, mutant};
use crate::packet::{Packet, PacketPool};
use crate::queue::Queue;
use crate::series::watch::Watch;
use crate::time::{PS_PER_NS, Picos};
use crate::wire::Wire;
use crate::work::Trigger;
use std::sync::Arc;

/// Packets that a host hands over at once to a link that takes any number.
const ROOM_MAX: usize = 64;
/// Packets that a host takes before it may answer, as a driver's receive batch.
const ARRIVALS_PER_STEP: u32 = 32;
/// Packets of a host's turn that are fetched together.
const FETCHED_MAX: usize = 32;
/// Bits of the kind of an event.
const KIND_BITS: u32 = 2;
/// Bits of what orders the events of one kind at one node.
const TIE_BITS: u32 = NODE_SHIFT - KIND_BITS;

/// What makes the random numbers of hosts' rings differ from all others of a seed.
const RECEIVERS: u64 = 0x5269_6e67_0000_0000;

/// Something that happens at a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The transmitter of this link is free.
    Free(u32),
    /// A packet arrives.
    Arrival(Hop),
    /// A host has something to do: a timer is due, or work starts.
    Wake,
    /// A pause frame arrives at the sender of this link of the node.
    Pause { link: u32, begins: bool },
    /// A host's engine sees a packet that waited in its ring.
    Seen(Hop),
}

impl What {
    /// What orders it among all that happens at one instant: the node, the kind, and a number.
    pub(super) fn key(&self, node: NodeId, tie: u64) -> u64 {
        let kind = match self {
            What::Free(_) => 0,
            What::Arrival(_) => 1,
            What::Wake => 2,
            // A wake-up has the tie 0, and packets count from 1.
            What::Seen(_) => 2,
            What::Pause { .. } => 3,
        };
        (u64::from(node.0) << KIND_BITS | kind) << TIE_BITS | tie
    }
}

/// The node where something happens.
fn node_of(key: u64) -> NodeId {
    NodeId((key >> NODE_SHIFT) as u32)
}

/// A packet or a pause frame on its way to another part.
#[derive(Debug)]
pub(super) struct Transit {
    pub(super) at: Picos,
    pub(super) key: u64,
    pub(super) what: What,
    /// What arrives; nothing with a pause frame.
    pub(super) packet: Packet,
}

/// See the module.
pub(super) struct Shard {
    pub(super) plan: Arc<Blueprint>,
    pub(super) layout: Arc<Layout>,
    /// Which part it is.
    pub(super) number: usize,
    /// Virtual time, and where it is. Another node may be ahead, by less than it takes to act on this one.
    pub(super) now: Picos,
    at: NodeId,
    pub(super) calendar: Calendar<What>,
    pub(super) ports: Vec<Port>,
    /// For each port its queue.
    pub(super) waiting: Vec<Waiting>,
    pub(super) hosts: Vec<SimHost>,
    /// Memories of switches that pause.
    pub(super) memories: Vec<SharedMemory>,
    pub(super) pool: PacketPool,
    /// What switches remember of flowlets, if they balance by them.
    flowlets: Option<Box<Flowlets>>,
    /// The groups of switches that differ from the network's own, as far as switches know of dead links.
    pub(super) detours: Option<Arc<Detours>>,
    /// Packets that found no link to their receiver.
    no_route: u64,
    /// For each host its ring, if hosts have rings.
    receivers: Vec<Receiver>,
    /// Packets that leave the host at hand.
    leaving: Vec<Hop>,
    /// Something has happened to the host at hand.
    pending: bool,
    /// Packets that it has got without acting.
    batch: u32,
    /// Triggers, and how often each was activated.
    triggers: Vec<(Trigger, u32)>,
    /// Numbers of data packets, where anybody looks at their order.
    pub(super) departures: Departures,
    /// Counts packets of some pairs of hosts, if anybody asks.
    pub(super) watch: Option<Box<Watch>>,
    /// Packets for each other part.
    pub(super) outbox: Vec<Vec<Transit>>,
}

impl Shard {
    pub(super) fn new(
        plan: &Arc<Blueprint>,
        layout: &Arc<Layout>,
        number: usize,
        seed: u64,
        host: &mut impl FnMut(HostId) -> SimHost,
    ) -> Shard {
        let nodes = layout.nodes_of(number);
        let links = nodes.iter().flat_map(|node| plan.links_of(*node));
        // A network that pauses was checked when it was told to.
        let wiring = plan.pfc().and_then(|_| Wiring::of(plan).ok());
        let make = |id: u32| -> (Port, Waiting) {
            let link: &LinkPlan = &plan.links()[id as usize];
            let ingress = wiring.as_ref().map_or(0, |wiring| wiring.ingress(id));
            Port::new(link, id, ingress, mixed(seed ^ u64::from(id)))
        };
        let (ports, waiting) = links.map(make).unzip();
        let hosts = nodes.iter().filter(|node| node.0 < plan.hosts());
        let switches = nodes.iter().copied().filter(|node| node.0 >= plan.hosts());
        let memories = wiring.zip(plan.pfc()).map(|(wiring, pfc)| {
            memories(plan, &wiring, pfc, switches)
                .expect("it was checked when it was told to pause")
        });
        let mut shard = Shard {
            number,
            now: 0,
            at: NodeId(0),
            calendar: Calendar::new(plan.nodes(), plan.apart_ps()),
            ports,
            waiting,
            hosts: hosts.map(|node| host(HostId(node.0))).collect(),
            memories: memories.unwrap_or_default(),
            pool: PacketPool::default(),
            flowlets: plan.flowlet_gap_ps().map(|gap_ps| Box::new(Flowlets::new(gap_ps, seed))),
            detours: None,
            no_route: 0,
            receivers: Vec::new(),
            leaving: Vec::new(),
            pending: false,
            batch: 0,
            triggers: Vec::new(),
            departures: Departures::default(),
            watch: None,
            outbox: (0..layout.shards()).map(|_| Vec::new()).collect(),
            plan: Arc::clone(plan),
            layout: Arc::clone(layout),
        };
        for node in nodes.iter().filter(|node| node.0 < plan.hosts()) {
            if plan.receivers().is_some() {
                let seed = mixed(seed ^ RECEIVERS ^ u64::from(node.0));
                shard.receivers.push(Receiver::new(seed));
            }
            if let Some(begin) = shard.host(*node).next_wake() {
                shard.wake(*node, begin);
            }
        }
        shard
    }

    pub(super) fn set_triggers(&mut self, triggers: Vec<Trigger>) {
        if !triggers.is_empty() {
            // They start tasks of other hosts.
            self.calendar.act_at_once();
        }
        self.triggers = triggers.into_iter().map(|trigger| (trigger, 0)).collect();
    }

    /// Starts what the triggers start that a host's tasks have activated, at this moment.
    fn fire(&mut self, at: usize) {
        while let Some(fired) = self.hosts[at].next_fired() {
            let (trigger, activations) = &mut self.triggers[fired.0 as usize];
            *activations += 1;
            let started = trigger.started_by(*activations).to_vec();
            for (host, task) in started {
                let node = NodeId(host.0);
                self.hosts[self.layout.host(node)].release(self.now, task);
                self.wake(node, self.now);
            }
        }
    }

    /// Wakes a host at a time.
    fn wake(&mut self, node: NodeId, at: Picos) {
        let host = &mut self.hosts[self.layout.host(node)];
        if at < host.wake_at {
            host.wake_at = at;
            self.enter(at, node, 0, What::Wake);
        }
    }

    fn enter(&mut self, at: Picos, node: NodeId, tie: u64, what: What) {
        self.calendar.push(at, what.key(node, tie), what);
    }

    /// Events so far.
    pub(super) fn events(&self) -> u64 {
        self.calendar.taken()
    }

    /// When the next event happens.
    pub(super) fn next_at(&self) -> Option<Picos> {
        self.calendar.next_at()
    }

    /// Packets under way.
    pub(super) fn packets(&self) -> usize {
        self.pool.in_use()
    }

    pub(super) fn hosts(&self) -> &[SimHost] {
        &self.hosts
    }

    pub(super) fn hosts_mut(&mut self) -> &mut [SimHost] {
        &mut self.hosts
    }

    pub(super) fn host(&self, node: NodeId) -> &SimHost {
        &self.hosts[self.layout.host(node)]
    }

    pub(super) fn queue(&self, port: usize) -> &Queue {
        &self.waiting[port].queue
    }

    pub(super) fn queue_mut(&mut self, port: usize) -> &mut Queue {
        &mut self.waiting[port].queue
    }

    pub(super) fn node_counters(&self) -> NodeCounters {
        let ring_drops = self.receivers.iter().map(|receiver| receiver.drops).sum();
        NodeCounters { no_route: self.no_route, ring_drops }
    }

    pub(super) fn counters(&self, port: usize) -> LinkCounters {
        self.ports[port].counters(&self.waiting[port], self.now)
    }

    pub(super) fn set_health(&mut self, node: NodeId, port: usize, health: Health) {
        let mut lost = Vec::new();
        let Shard { ports, waiting, now, .. } = self;
        ports[port].set_health(&mut waiting[port], *now, health, |hop| lost.push(hop));
        for hop in lost {
            if !mutant(Mutant::LeaksPacketsOfTheDead) {
                self.pool.give_back(hop.packet);
            }
            if !self.memories.is_empty() && !mutant(Mutant::KeepsMemoryOfTheDead) {
                self.release(node, port, &hop);
            }
        }
    }

    /// Takes out what goes to other parts.
    pub(super) fn take_outbox(&mut self) -> Vec<Vec<Transit>> {
        self.outbox.iter_mut().map(std::mem::take).collect()
    }

    /// Takes packets from another part.
    pub(super) fn take(&mut self, transits: &mut Vec<Transit>) {
        for Transit { at, key, mut what, packet } in transits.drain(..) {
            if let What::Arrival(hop) = &mut what {
                hop.packet = self.pool.put(packet);
            }
            self.calendar.push(at, key, what);
        }
    }

    /// Runs everything that happens up to `end`, which is the time afterwards.
    pub(super) fn run_until(&mut self, end: Picos) {
        while let Some(entry) = self.calendar.pop_until(end) {
            let (node, what) = (node_of(entry.key), entry.event);
            debug_assert!(entry.at >= self.now || node != self.at, "time goes forward at a node");
            if node != self.at && node.0 < self.plan.hosts() {
                self.fetch(node, &entry);
            }
            (self.now, self.at) = (entry.at, node);
            match what {
                What::Arrival(hop) if node.0 >= self.plan.hosts() => self.forward(node, hop),
                What::Arrival(hop) if self.receivers.is_empty() => self.receive(node, &hop),
                What::Arrival(hop) => self.queue_up(node, hop),
                What::Seen(hop) => {
                    self.receivers[self.layout.host(node)].seen(hop.wire_bytes);
                    self.receive(node, &hop);
                }
                What::Free(port) => self.free(node, port as usize),
                What::Wake => self.host_wake(node),
                What::Pause { link, begins } => self.pause(node, link, begins),
            }
            // A host takes what comes at one moment before it acts, as a driver takes a batch.
            let goes_on = |next: &Entry<What>| next.at == entry.at && node_of(next.key) == node;
            let is_full = self.batch == ARRIVALS_PER_STEP;
            if self.pending && (is_full || !self.calendar.today().is_some_and(goes_on)) {
                (self.pending, self.batch) = (false, 0);
                self.run_host(node);
            }
        }
        self.now = end;
    }

    /// A packet joins those that wait for a host's engine.
    #[inline(never)]
    fn queue_up(&mut self, node: NodeId, hop: Hop) {
        let Some(all) = self.plan.receivers() else { return };
        let receiver = &mut self.receivers[self.layout.host(node)];
        let has_number = all.reorder_ps > 0 && hop.payload_bytes > 0;
        let number = if has_number { self.pool.get(hop.packet).number } else { 0 };
        let packet = Arriving { from: hop.from, number, wire_bytes: hop.wire_bytes };
        match receiver.arrive(&all, self.now, packet) {
            None => self.pool.give_back(hop.packet),
            Some(at) => {
                let number = receiver.taken & ((1 << TIE_BITS) - 1);
                self.enter(at, node, number, What::Seen(hop));
            }
        }
    }

    /// Reads something of each packet that a host gets in its turn. The processor fetches them side by side, and the host
    /// finds them in the cache.
    fn fetch(&self, node: NodeId, first: &Entry<What>) {
        let turn = self.calendar.rest_of_today();
        let turn = turn.take_while(|entry| node_of(entry.key) == node).take(FETCHED_MAX);
        let read = |sum: usize, entry: &Entry<What>| match entry.event {
            What::Arrival(hop) => sum ^ usize::from(self.pool.get(hop.packet).first_byte()),
            _ => sum,
        };
        std::hint::black_box(std::iter::once(first).chain(turn).fold(0, read));
    }

    fn receive(&mut self, node: NodeId, hop: &Hop) {
        let packet = self.pool.get_mut(hop.packet);
        hop.tell(packet);
        if let Some(watch) = self.watch.as_mut().filter(|_| packet.payload_bytes > 0) {
            watch.arrives(packet.from, packet.to, packet.number);
        }
        self.hosts[self.layout.host(node)].receive(self.now, packet);
        self.pool.give_back(hop.packet);
        self.pending = true;
        self.batch += 1;
    }

    fn forward(&mut self, node: NodeId, mut hop: Hop) {
        let number = node.0 - self.plan.hosts();
        let switch = &self.plan.switches()[number as usize];
        let detour = self.detours.as_ref().and_then(|detours| detours.group(number, hop.to));
        let links = detour.map_or(u32::MAX, |group| group.len() as u32);
        if links == 0 {
            self.no_route += 1;
            if !mutant(Mutant::LeaksRoutelessPackets) {
                self.pool.give_back(hop.packet);
            }
            return;
        }
        let link = match (&mut self.flowlets, detour) {
            (None, None) => switch.route(&hop),
            (Some(flowlets), None) => flowlets.route((number, switch), self.now, &mut hop),
            (None, Some(group)) => group[switch.spread.pick(links, &hop) as usize],
            (Some(flowlets), Some(group)) => {
                group[flowlets.pick(number, self.now, &hop, links) as usize]
            }
        };
        let port = self.layout.port(node, link);
        if self.memories.is_empty() {
            self.offer(node, port, hop);
        } else {
            self.offer_pausing(node, port, hop);
        }
    }

    /// A packet is at the beginning of a link; false if it is lost there.
    pub(super) fn offer(&mut self, node: NodeId, port: usize, hop: Hop) -> bool {
        match self.ports[port].offer(&mut self.waiting[port], self.now, hop) {
            Fate::Sent(launch) => self.launch(&launch),
            Fate::Waits => self.await_free(node, port),
            Fate::Lost => {
                self.pool.give_back(hop.packet);
                return false;
            }
        }
        true
    }

    /// A packet is on the wire.
    fn launch(&mut self, launch: &Launch) {
        let Launch { hop, to, at, tie, lost } = *launch;
        if lost && !mutant(Mutant::DeliversWrongBits) {
            return self.pool.give_back(hop.packet);
        }
        debug_assert!(
            at >= self.now.saturating_add(self.calendar.apart_ps()),
            "nothing arrives in the same turn"
        );
        let shard = self.layout.shard(to);
        if shard == self.number {
            return self.enter(at, to, tie, What::Arrival(hop));
        }
        let at = at + Picos::from(mutant(Mutant::MailsLate));
        let what = What::Arrival(hop);
        let packet = self.pool.take_out(hop.packet);
        self.outbox[shard].push(Transit { at, key: what.key(to, tie), what, packet });
    }

    /// A transmitter is free: it sends what waits next. A host that had more to send is asked for it.
    fn free(&mut self, node: NodeId, port: usize) {
        if let Some(hop) = self.ports[port].free(&mut self.waiting[port], self.now) {
            if !self.memories.is_empty() {
                self.release(node, port, &hop);
            }
            let launch = self.ports[port].launch(&mut self.waiting[port], self.now, hop);
            self.launch(&launch);
        }
        if node.0 < self.plan.hosts() && self.host(node).has_more() {
            self.pending = true;
        } else if self.ports[port].has_queue() {
            self.await_free(node, port);
        }
    }

    /// Enters the event that a transmitter is free, if it may send then.
    pub(super) fn await_free(&mut self, node: NodeId, port: usize) {
        if self.ports[port].is_blocked(&self.waiting[port]) {
            return;
        }
        let link = self.ports[port].link();
        if let Some(at) = self.ports[port].await_free(self.now) {
            self.enter(at, node, link.into(), What::Free(port as u32));
        }
    }

    fn host_wake(&mut self, node: NodeId) {
        let host = &mut self.hosts[self.layout.host(node)];
        // An event that an earlier wake-up has overtaken is stale.
        if host.wake_at == self.now {
            host.wake_at = Picos::MAX;
            self.pending = true;
        }
    }

    /// Packets that a host may hand over now: what its link sends, and one that waits, so that the link is never idle
    /// for want of the host. uet-htsim's hosts write a packet when it is sent.
    fn room(&self, uplink: usize) -> usize {
        let port = &self.ports[uplink];
        match () {
            () if port.only_delays() => ROOM_MAX,
            () if port.has_queue() => 0,
            () => {
                usize::from(self.plan.wire() == Wire::Ethernet)
                    + usize::from(port.is_idle(self.now))
            }
        }
    }

    /// Lets a host do what is due: timers, and sending while its link is idle.
    fn run_host(&mut self, node: NodeId) {
        let (uplink, at) = (self.layout.port(node, 0), self.layout.host(node));
        loop {
            let room = self.room(uplink);
            let Shard { plan, pool, leaving, hosts, watch, departures, .. } = self;
            let orders = plan.receivers().is_some_and(|all| all.reorder_ps > 0);
            let host = &mut hosts[at];
            host.step(self.now, room);
            for packet in host.leaving() {
                packet.from = HostId(node.0);
                let taken = pool.take(packet.from, packet.to);
                leaving.push(Hop::of(taken, packet, plan.wire()));
                let kept = pool.get_mut(taken);
                kept.exchange(packet);
                if kept.payload_bytes > 0 {
                    let (from, to) = (kept.from, kept.to);
                    let counts =
                        watch.as_mut().is_some_and(|watch| watch.leaves(from, to, kept.path));
                    if counts || orders {
                        kept.number = departures.number(from, to);
                    }
                }
            }
            self.fire(at);
            let left = self.leaving.len();
            for at in 0..left {
                self.offer(node, uplink, self.leaving[at]);
            }
            self.leaving.clear();
            // Most often it has handed over all that it had, and one more step would find nothing.
            let is_done = left < room && self.hosts[at].rests(self.now);
            if left == 0 || is_done || self.room(uplink) == 0 {
                break;
            }
        }
        if self.hosts[at].has_more() && !self.ports[uplink].is_idle(self.now) {
            self.await_free(node, uplink);
        }
        if let Some(at) = self.hosts[at].next_wake() {
            // What is due but could not go waits for the link, which wakes the host.
            self.wake(node, at.max(self.now + PS_PER_NS));
        }
    }
}
