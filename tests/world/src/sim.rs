//! The world: nodes, network and clock, one event after the other.

use super::app::Class;
use super::events::{Event, Events};
use super::lanes::{Hall, Written};
use super::ledger::{Ledger, Outgoing, Rules};
use super::memory::Plan;
use super::net::{Datagram, Links, Net};
use super::node::{Node, Post, Setup};
use super::record::Record;
use super::rng::Rng;
use erd_port::udp::{NetError, Unreachable};
use erd_rd::units::{MILLISECOND, SECOND};
use erd_rd::{Nanos, PeerId, Stats};
use std::net::SocketAddr;

/// An action of an application or of the world.
#[derive(Clone, Debug)]
pub enum Action {
    /// Node `from` posts a send.
    Send {
        /// Sending node.
        from: usize,
        /// The send.
        out: Outgoing,
    },
    /// Node `from` asks for memory.
    Rma {
        /// The initiator.
        from: usize,
        /// The request.
        plan: Plan,
    },
    /// A node posts a receive.
    Recv {
        /// Receiving node.
        node: usize,
        /// Only from this node.
        source: Option<usize>,
        /// Messages that it takes.
        class: Class,
        /// Bytes that fit.
        capacity_bytes: u64,
    },
    /// A node discards its oldest waiting message.
    Discard(usize),
    /// A node's driver does not run until the time.
    Stall(usize, Nanos),
    /// Nodes are cut from each other until the time; bit `n` is the side of node `n`.
    Cut(u64, Nanos),
    /// A node gets its next key ([`crate::node::Setup::next_key`]).
    Renew(usize),
    /// A process dies.
    Kill(usize),
    /// A dead process is replaced.
    Restart(usize),
    /// The first node forgets the second.
    Forget(usize, usize),
}

/// See the module.
pub struct World {
    /// Virtual time.
    pub now: Nanos,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The network.
    pub net: Net,
    /// The ledger of facts.
    pub ledger: Ledger,
    /// Chance that a datagram to a dead process is answered by ICMP.
    pub icmp: f64,
    /// Datagrams that a full socket dropped.
    pub socket_drops: u64,
    /// Statistics of processes that died.
    pub buried: Vec<Stats>,
    /// Print every datagram; set by `FAULTS_TRACE=1`.
    trace: bool,
    /// The memory that nodes of one host share.
    hall: Option<Hall>,
    names: Vec<SocketAddr>,
    /// The events to come.
    pub events: Events<Action>,
    rng: Rng,
}

impl World {
    /// A world of these nodes, at time 1 s, without faults.
    pub fn new(seed: u64, setups: Vec<Setup>, links: Links, rules: Rules) -> World {
        let names: Vec<SocketAddr> = setups.iter().map(|s| s.config.name).collect();
        let net = Net::new(setups.len(), links, Rng::new(seed, 1));
        let lanes = setups.iter().find_map(|setup| setup.lanes);
        let hall = lanes.map(|habits| Hall::new(&names, habits, Rng::new(seed, 13)));
        let nodes = setups.into_iter().enumerate();
        let mut world = World {
            now: SECOND,
            nodes: nodes.map(|(i, setup)| Node::new(setup, i, seed, &names)).collect(),
            net,
            ledger: Ledger::new(rules),
            icmp: 0.0,
            socket_drops: 0,
            buried: Vec::new(),
            trace: std::env::var_os("FAULTS_TRACE").is_some(),
            hall,
            names,
            events: Events::default(),
            rng: Rng::new(seed, 2),
        };
        if let Some(hall) = &world.hall {
            world.nodes.iter_mut().for_each(|node| node.share(hall));
        }
        world
    }

    /// All nodes write to a record from now on.
    pub fn record(&mut self, record: &Record) {
        self.nodes.iter_mut().for_each(|node| node.record(self.now, record));
    }

    /// Does something at a later time.
    pub fn at(&mut self, at: Nanos, action: Action) {
        self.events.push(at, Event::Do(action));
    }

    /// A datagram from nowhere reaches its node now.
    pub fn inject(&mut self, datagram: Datagram) {
        self.arrive(datagram);
    }

    /// Whether the node's process lives.
    pub fn lives(&self, node: usize) -> bool {
        self.nodes[node].endpoint.is_some()
    }

    /// The engine's number for node `to` at node `at`.
    pub fn peer(&mut self, at: usize, to: usize) -> PeerId {
        self.nodes[at].peer(self.now, &mut self.ledger, to, self.names[to])
    }

    /// Does something now.
    pub fn act(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Send { from, out } => self.send(from, &out),
            Action::Rma { from, plan } => self.rma(from, &plan),
            Action::Recv { node, source, class, capacity_bytes } => {
                self.recv(node, source, class, capacity_bytes);
            }
            Action::Discard(node) if self.lives(node) => {
                self.nodes[node].discard(now, &mut self.ledger);
                self.wake_soon(node);
            }
            Action::Stall(node, until) => {
                self.nodes[node].stalled_until = until;
                self.ledger.stalls.push((node, now, until));
                self.wake(node, until);
            }
            Action::Cut(sides, until) => self.net.cut = Some((sides, until)),
            Action::Renew(node) => {
                self.nodes[node].renew_key(now);
                if self.lives(node) {
                    self.wake_soon(node);
                }
            }
            Action::Kill(node) if self.lives(node) => {
                self.buried.push(*self.nodes[node].endpoint.as_ref().unwrap().stats());
                self.nodes[node].kill(now, &mut self.ledger);
                self.ledger.dead_since.insert(node, now);
            }
            Action::Restart(node) if !self.lives(node) => {
                self.nodes[node].restart(now);
                self.ledger.dead_since.remove(&node);
            }
            Action::Forget(node, peer) if self.lives(node) => {
                self.nodes[node].forget(now, &mut self.ledger, peer);
                self.wake_soon(node);
            }
            Action::Discard(_) | Action::Kill(_) | Action::Restart(_) | Action::Forget(..) => {}
        }
    }

    /// Posts a send at a living node.
    pub fn send(&mut self, from: usize, out: &Outgoing) {
        self.post_to(from, out.to, &Post::Send(*out));
    }

    /// Posts a request to memory at a living node.
    pub fn rma(&mut self, from: usize, plan: &Plan) {
        self.post_to(from, plan.to, &Post::Rma(*plan));
    }

    /// Posts something at a living node.
    pub fn post_to(&mut self, from: usize, to: usize, post: &Post) {
        if !self.lives(from) {
            return;
        }
        let (now, name) = (self.now, self.names[to]);
        self.nodes[from].post(now, &mut self.ledger, post, name);
        let habits = self.nodes[from].setup.habits;
        if now >= self.nodes[from].stalled_until && self.rng.chance(habits.eager_post) {
            self.nodes[from].transmit(now, &mut self.ledger);
            self.dispatch(from);
        }
        self.wake_soon(from);
    }

    /// Posts a receive at a living node; returns its number in the ledger.
    pub fn recv(
        &mut self,
        node: usize,
        source: Option<usize>,
        class: Class,
        capacity_bytes: u64,
    ) -> Option<usize> {
        if !self.lives(node) {
            return None;
        }
        let source = source.map(|s| self.peer(node, s));
        let (now, ledger) = (self.now, &mut self.ledger);
        let recv = self.nodes[node].post_recv(now, ledger, source, class, capacity_bytes);
        self.wake_soon(node);
        Some(recv)
    }

    /// The entries that nodes have written lately, the newest first.
    ///
    /// # Panics
    /// If the nodes share no memory.
    #[must_use]
    pub fn written_lately(&self) -> Vec<Written> {
        self.hall.as_ref().expect("shared memory").written_lately()
    }

    /// An attacker writes an entry as one node, for another to read.
    pub fn forge_entry(&mut self, entry: Written) {
        if let Some(hall) = &self.hall {
            hall.forge(entry);
        }
        self.wake_readers();
    }

    /// Entries of lanes that were garbage.
    #[must_use]
    pub fn spoiled(&self) -> u64 {
        self.hall.as_ref().map_or(0, Hall::spoiled)
    }

    /// All faults stop, and every node takes every message.
    pub fn calm(&mut self) {
        self.net.faults = super::net::Faults::default();
        self.net.cut = None;
        self.net.filter = None;
        self.hall.iter().for_each(Hall::calm);
        for node in 0..self.nodes.len() {
            let limits = &mut self.nodes[node];
            limits.stalled_until = 0;
            limits.setup.habits.port_full = 0.0;
            limits.app.stop_refusing();
            self.drain(node);
        }
    }

    /// The node takes every message, waiting or to come.
    pub fn drain(&mut self, node: usize) {
        self.nodes[node].start_draining(self.now, &mut self.ledger);
        self.wake_soon(node);
    }

    /// The node says goodbye to everyone.
    pub fn close(&mut self, node: usize) {
        if self.lives(node) {
            let now = self.now;
            self.nodes[node].close(now, &mut self.ledger);
            self.wake_soon(node);
        }
    }

    fn wake_soon(&mut self, node: usize) {
        let at = self.now + self.nodes[node].setup.habits.round_ns;
        self.wake(node, at.max(self.nodes[node].stalled_until));
    }

    fn wake(&mut self, node: usize, at: Nanos) {
        if at < self.nodes[node].wake_at {
            self.nodes[node].wake_at = at;
            self.events.push(at, Event::Wake(node));
        }
    }

    /// Hands a node's datagrams to the network.
    fn dispatch(&mut self, from: usize) {
        let now = self.now;
        let bursts = std::mem::take(&mut self.nodes[from].wire.borrow_mut().out);
        for burst in bursts {
            if self.trace {
                burst.iter().for_each(|d| eprintln!("{now:>12} out {}", d.summary()));
            }
            for datagram in &burst {
                let limit = self.nodes[datagram.to].setup.datagram_bytes(self.nodes[from].name);
                assert!(datagram.bytes.len() <= usize::from(limit), "too large for its receiver");
            }
            self.events.send(now, &mut self.net, burst);
        }
        let at = self.nodes[from].next_run(now, &mut self.ledger);
        if at < Nanos::MAX {
            self.wake(from, at);
        }
    }

    fn run_node(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.wake_at != self.now {
            return;
        }
        node.wake_at = Nanos::MAX;
        if node.endpoint.is_none() {
            return;
        }
        if self.now < node.stalled_until {
            let until = node.stalled_until;
            self.wake(index, until);
            return;
        }
        node.drive(self.now, &mut self.ledger, &self.names);
        self.dispatch(index);
    }

    fn arrive(&mut self, mut datagram: Datagram) {
        let to = datagram.to;
        if !self.lives(to) {
            if self.rng.chance(self.icmp) {
                let at = self.now + self.net.links.delay_ns;
                self.events.push(at, Event::Unreachable { at: datagram.from, dead: to });
            }
            return;
        }
        if self.trace {
            eprintln!("{:>12} in  {}", self.now, datagram.summary());
        }
        datagram.stamped_at = self.now;
        if !self.nodes[to].enqueue(datagram) {
            self.socket_drops += 1;
        }
        self.wake_soon(to);
    }

    /// The network reports an error of a node's datagram to `name`.
    fn tell(&mut self, at: usize, name: SocketAddr, error: NetError) {
        if self.lives(at) {
            self.nodes[at].hear(name, error);
            self.wake_soon(at);
        }
    }

    /// Handles the next event, if it comes before `until`; false when there is none.
    pub fn step(&mut self, until: Nanos) -> bool {
        let Some((at, event)) = self.events.next(until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = at;
        self.handle(event);
        self.wake_readers();
        true
    }

    /// Wakes the nodes whose lanes have something for them.
    fn wake_readers(&mut self) {
        let wakes = self.hall.as_ref().map(Hall::take_wakes).unwrap_or_default();
        for (node, at) in wakes {
            if self.lives(node) {
                let at = at.max(self.now).max(self.nodes[node].stalled_until);
                self.wake(node, at);
            }
        }
    }

    fn handle(&mut self, event: Event<Action>) {
        match event {
            Event::Arrive(datagram) => self.arrive(datagram),
            Event::Wake(node) => self.run_node(node),
            Event::Do(action) => self.act(action),
            Event::TooBig { at, to } => {
                let name = self.names[to];
                self.tell(at, name, self.net.too_big_error(name));
            }
            Event::Unreachable { at, dead } => {
                self.tell(at, self.names[dead], NetError::Unreachable(Unreachable::Port));
            }
        }
    }

    /// Runs for a span of virtual time.
    pub fn run_for(&mut self, span_ns: Nanos) {
        let until = self.now + span_ns;
        while self.step(until) {}
    }

    /// Runs until `done`, or for at most `span_ns`; returns whether it is done.
    pub fn run_until(&mut self, span_ns: Nanos, mut done: impl FnMut(&World) -> bool) -> bool {
        let until = self.now + span_ns;
        while !done(self) {
            if !self.step(until) {
                return done(self);
            }
        }
        true
    }

    /// Runs until every send of every living process has ended; panics when one takes more than
    /// `span_ns` from now or from its post.
    pub fn settle(&mut self, span_ns: Nanos) {
        let start = self.now;
        while !self.run_until(100 * MILLISECOND, World::is_settled) {
            let sends = &self.ledger.sends;
            let age = |id: &usize| self.now - sends[*id].posted_at.max(start);
            let late: Vec<usize> =
                self.ledger.unfinished().into_iter().filter(|id| age(id) > span_ns).collect();
            let some: Vec<_> = late.iter().take(5).map(|id| (id, &sends[*id])).collect();
            let ms = span_ns / MILLISECOND;
            assert!(some.is_empty(), "{} sends take over {ms} ms: {some:#?}", late.len());
            let asked = &self.ledger.memory.asked;
            let requests = self.ledger.memory.outstanding.values().flatten();
            let age = |id: &usize| self.now - asked[*id].posted_at.max(start);
            let late: Vec<_> = requests.filter(|id| age(id) > span_ns).take(5).collect();
            let some: Vec<_> = late.iter().map(|id| (id, &asked[**id])).collect();
            assert!(some.is_empty(), "requests take over {ms} ms: {some:#?}");
        }
    }

    fn is_settled(&self) -> bool {
        self.ledger.outstanding.values().all(|s| s.is_empty())
            && self.ledger.memory.unfinished() == 0
            && self.nodes.iter().all(|n| !n.has_waiting_posts())
    }

    /// Statistics of an engine.
    pub fn stats(&self, node: usize) -> &Stats {
        self.nodes[node].endpoint.as_ref().expect("the process lives").stats()
    }

    /// Statistics of all processes that ever ran.
    pub fn all_stats(&self) -> Vec<Stats> {
        let living = self.nodes.iter().filter_map(|n| n.endpoint.as_ref());
        living.map(|e| *e.stats()).chain(self.buried.iter().copied()).collect()
    }
}
