//! A run of shipped endpoints from its first event to its last.

use super::accesses::{Memory, What, Wrong};
use super::book::Book;
use super::plan::{self, Action};
use super::process::{Node, Process};
use super::receives::Form;
use crate::app::Class;
use crate::events::{Event, Events};
use crate::lanes::{Hall, LaneHabits};
use crate::ledger::{Life, Rules};
use crate::net::{Datagram, Faults, Net};
use crate::one_host::{NEAR_SEEDS, share};
use crate::rng::Rng;
use crate::swarm::{Options, Weather, add_stats};
use erd_core::flags::Flags;
use erd_port::udp::{NetError, Unreachable};
use erd_rd::units::{MICROSECOND, MILLISECOND, SECOND};
use erd_rd::{Nanos, Stats};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Account of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Sums over all engines.
    pub stats: Stats,
    /// Messages posted.
    pub messages: u64,
    /// Receives posted.
    pub receives: u64,
    /// Accesses posted.
    pub accesses: u64,
    /// Messages and accesses that ended in error.
    pub failed: u64,
    /// Events handled.
    pub events: u64,
    /// Virtual time.
    pub span_ns: Nanos,
    /// See [`crate::net::NetCounts::digest`].
    pub digest: u32,
}

struct Run {
    now: Nanos,
    nodes: Vec<Node>,
    names: Vec<SocketAddr>,
    net: Net,
    book: Book,
    events: Events<Action>,
    icmp: f64,
    /// Each node keeps receives for any message posted.
    drains: bool,
    /// The memory that nodes of one host share.
    hall: Option<Hall>,
    buried: Stats,
    rng: Rng,
}

/// The options that `seed` stands for here: nodes are on the loopback, whose paths every kernel knows.
#[must_use]
pub fn options(seed: u64) -> Options {
    let mut options = Options::new(seed);
    options.operations = options.operations * 2 / 3;
    if options.faults.blind {
        // What guesses the engine drops, whatever the library does.
        options.faults.hostile = 0.0;
    }
    for (node, setup) in options.setups.iter_mut().enumerate() {
        let port = setup.config.name.port();
        let ip = match setup.config.name.is_ipv6() {
            true => IpAddr::V6(Ipv6Addr::LOCALHOST),
            false => IpAddr::V4(Ipv4Addr::new(127, 0, 0, node as u8 + 1)),
        };
        setup.config.name = SocketAddr::new(ip, port);
    }
    if seed.is_multiple_of(NEAR_SEEDS) {
        return options.near();
    }
    let rng = &mut Rng::new(seed, 27);
    let host = rng.below(1 << options.setups.len());
    for (node, setup) in options.setups.iter_mut().enumerate() {
        setup.limits.near = if host >> node & 1 != 0 { host } else { 0 };
    }
    share(rng, &mut options.setups, options.weather);
    options
}

/// Runs one seed to its end; panics when anything is wrong.
pub fn run(o: &Options) -> Report {
    let mut run = Run::new(o);
    let start = run.now;
    run.run_for(2 * o.spread_ns + 2 * o.span_ns);
    if o.weather != Weather::Still {
        // Late disasters and restarts.
        run.run_for(5 * o.timeout_ns);
    }
    run.calm();
    run.settle(patience_ns(o));
    run.end(o);
    let failed = run.book.messages.iter().filter(|message| matches!(message.ended, Some(Err(_))));
    let refused =
        run.book.accesses.all.iter().filter(|access| matches!(access.ended, Some(Err(_))));
    Report {
        stats: run.all_stats(),
        messages: run.book.messages.len() as u64,
        receives: run.book.receives.all.len() as u64,
        accesses: run.book.accesses.all.len() as u64,
        failed: (failed.count() + refused.count()) as u64,
        events: run.events.handled,
        span_ns: run.now - start,
        digest: run.net.counts.digest,
    }
}

/// A process closes memory that a peer on its host has read, before it hears that the peer has.
///
/// # Panics
/// If the read succeeds.
pub fn closes_what_it_lent() {
    let mut run = Run::of_two(Weather::Still);
    let (what, len_bytes, flags) = (What::Read(0), 1 << 16, Flags::empty());
    let (from, to, wrong, data) = (0, 1, Wrong::No, false);
    run.act(Action::Access { from, to, what, len_bytes, wrong, flags, data });
    while run.all_stats().lane_pulled_bytes == 0 {
        assert!(run.step(2 * SECOND), "the peer reads where the bytes are");
    }
    run.nodes[to].process.iter().for_each(|process| process.memory.close());
    // So the book expects that it is refused.
    run.book.accesses.all[0].wrong = Wrong::Key;
    run.run_for(SECOND);
    assert!(run.book.accesses.all[0].ended.is_some(), "the read ends");
}

/// A process leaves while a peer on its host reads a long message of it, and uses its buffers again. The goodbye comes
/// late.
///
/// # Panics
/// If the peer takes other bytes than those of the message.
pub fn leaves_while_it_is_read() {
    // More than is read in one step, by far.
    const LONG_BYTES: u64 = 40 << 20;
    // Where all may end, as sessions do when a process leaves.
    let mut run = Run::of_two(Weather::Deadly);
    let (from, to) = (0, 1);
    let (class, form) = (Class::Untagged, Form::One);
    run.act(Action::Recv { node: to, source: None, class, room_bytes: LONG_BYTES, form });
    let (class, data, flags, silent) = (None, false, Flags::empty(), false);
    run.act(Action::Send { from, to, len_bytes: LONG_BYTES, class, data, flags, silent });
    // By then the process has read what the peer wrote: an entry of an ended session gives up the lane, too.
    while run.all_stats().lane_pulled_bytes < LONG_BYTES / 2 {
        assert!(run.step(20 * SECOND), "the peer reads where the bytes are");
    }
    assert!(run.all_stats().lane_pulled_bytes < LONG_BYTES, "it is at it");
    run.net.links.delay_ns = SECOND;
    run.act(Action::Leave(from));
    run.run_for(100 * MILLISECOND);
}

/// Virtual time in which everything must end once the faults are over.
fn patience_ns(o: &Options) -> Nanos {
    let trip_ns = 2 * (o.links.delay_ns + 256 * o.links.path_step_ns + o.links.jitter_ns);
    let trip_ns = trip_ns + 100 * MICROSECOND + 10 * MILLISECOND;
    3 * o.timeout_ns + o.budget_bytes / 500 * trip_ns + 10 * SECOND
}

impl Run {
    /// Two nodes of one host, without plans.
    fn of_two(weather: Weather) -> Run {
        let mut o = Options { weather, key: None, ..options(1) };
        o.faults = Faults::default();
        o.setups.truncate(2);
        o.setups.iter_mut().for_each(|setup| setup.habits.round_ns = MICROSECOND);
        let mut run = Run::new(&o.on_one_host(LaneHabits::default()));
        run.events = Events::default();
        run
    }

    fn new(o: &Options) -> Run {
        let names: Vec<SocketAddr> = o.setups.iter().map(|setup| setup.config.name).collect();
        let mut net = Net::new(names.len(), o.links, Rng::new(o.seed, 1));
        net.faults = o.faults;
        let lanes = o.setups.iter().find_map(|setup| setup.lanes);
        let hall = lanes.map(|habits| Hall::new(&names, habits, Rng::new(o.seed, 26)));
        let rng = &mut Rng::new(o.seed, 20);
        let nodes = o.keyed_setups(1, None).into_iter().enumerate().map(|(index, setup)| {
            let at = (&names[..], hall.as_ref());
            Node::new(setup, plan::manners(rng), index, o.seed, at)
        });
        let mut run = Run {
            now: SECOND,
            nodes: nodes.collect(),
            net,
            book: Book::new(o.rules(), names.len()),
            names,
            events: Events::default(),
            icmp: rng.pick(&[0.0, 0.3, 1.0]),
            drains: false,
            hall: hall.clone(),
            buried: Stats::default(),
            rng: Rng::new(o.seed, 22),
        };
        let messages = plan::messages(o, &mut Rng::new(o.seed, 23));
        let accesses = plan::accesses(o, &mut Rng::new(o.seed, 24));
        let disasters = plan::disasters(o, &mut Rng::new(o.seed, 25));
        let renewals = o.renewals().into_iter().map(|(at, node)| (at, Action::Renew(node)));
        let disasters = disasters.into_iter().chain(renewals);
        for (at, action) in messages.into_iter().chain(accesses).chain(disasters) {
            run.events.push(run.now + at, Event::Do(action.after(run.now)));
        }
        run
    }

    fn lives(&self, life: Life) -> bool {
        let node = &self.nodes[life.node];
        node.process.as_ref().is_some_and(|process| !process.leaves) && node.life == life
    }

    fn wake(&mut self, node: usize, at: Nanos) {
        let at = at.max(self.nodes[node].stalled_until);
        if at < self.nodes[node].wake_at {
            self.nodes[node].wake_at = at;
            self.events.push(at, Event::Wake(node));
        }
    }

    fn wake_soon(&mut self, node: usize) {
        self.wake(node, self.now + self.nodes[node].setup.habits.round_ns);
    }

    fn step(&mut self, until: Nanos) -> bool {
        let Some((at, event)) = self.events.next(until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = at;
        self.handle(event);
        let wakes = self.hall.as_ref().map(Hall::take_wakes).unwrap_or_default();
        for (node, at) in wakes {
            if self.nodes[node].process.is_some() {
                self.wake(node, at.max(self.now));
            }
        }
        true
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

    fn tell(&mut self, at: usize, name: SocketAddr, error: NetError) {
        self.nodes[at].hear(name, error);
        self.wake_soon(at);
    }

    fn arrive(&mut self, mut datagram: Datagram) {
        let to = datagram.to;
        if self.nodes[to].process.is_none() {
            if self.rng.chance(self.icmp) {
                let at = self.now + self.net.links.delay_ns;
                self.events.push(at, Event::Unreachable { at: datagram.from, dead: to });
            }
            return;
        }
        datagram.stamped_at = self.now;
        self.nodes[to].enqueue(datagram);
        self.wake_soon(to);
    }

    fn run_node(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.wake_at != self.now {
            return;
        }
        node.wake_at = Nanos::MAX;
        if node.process.is_none() {
            return;
        }
        if self.now < node.stalled_until {
            let until = node.stalled_until;
            return self.wake(index, until);
        }
        node.drive(self.now, &mut self.book);
        if let Some(Process { driver, leaves: true, .. }) = &node.process {
            if driver.engine.is_closed() {
                self.act(Action::Kill(index));
                return self.act(Action::Restart(index));
            }
            return self.dispatch(index);
        }
        self.look(index);
        self.dispatch(index);
    }

    /// Does an application's work after it has read completions.
    fn look(&mut self, index: usize) {
        let memory = |node: usize| self.nodes[node].process.as_ref().map(|process| &process.memory);
        match self.book.rules.restarts {
            true => self.book.accesses.delivered.clear(),
            false => self.book.accesses.judge_delivered(memory),
        }
        for claim in std::mem::take(&mut self.book.receives.claims) {
            let receive = &self.book.receives.all[claim];
            let (class, source) = (receive.class, receive.source);
            let found = receive.found.map_or(0, |id| self.book.messages[id].len_bytes);
            let wanted = self.rng.chance(0.7);
            let (room_bytes, form) = match wanted {
                true => (found + self.rng.below(32), Form::Claimed(claim)),
                false => (0, Form::Dropped(claim)),
            };
            self.act(Action::Recv { node: index, source, class, room_bytes, form });
        }
        if self.drains {
            self.refill(index);
        }
    }

    /// Hands a node's datagrams to the network.
    fn dispatch(&mut self, from: usize) {
        let now = self.now;
        let bursts = std::mem::take(&mut self.nodes[from].wire.borrow_mut().out);
        for burst in bursts {
            self.events.send(now, &mut self.net, burst);
        }
        let at = self.nodes[from].next_run(now);
        if at < Nanos::MAX {
            self.wake(from, at);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Cancel(node) => self.cancel_one(node),
            Action::Stall(node, until) => {
                let node = &mut self.nodes[node];
                node.stalled_until = node.stalled_until.max(until);
            }
            Action::Cut(sides, until) => self.net.cut = Some((sides, until)),
            Action::Renew(node) => {
                self.nodes[node].renew_key(self.now);
                self.wake_soon(node);
            }
            Action::Leave(node) => {
                if self.acts(node) {
                    self.nodes[node].leave(self.now, &mut self.book);
                    self.dispatch(node);
                    self.wake_soon(node);
                }
            }
            Action::Kill(node) => {
                if let Some(process) = &self.nodes[node].process {
                    add_stats(&mut self.buried, process.driver.engine.stats());
                    self.nodes[node].kill();
                }
            }
            Action::Restart(node) => {
                if self.nodes[node].process.is_none() {
                    self.nodes[node].restart(&self.names);
                    self.wake_soon(node);
                }
            }
            post => self.post(post),
        }
    }

    /// Whether a node's application makes calls.
    fn acts(&self, node: usize) -> bool {
        self.lives(self.nodes[node].life) && self.now >= self.nodes[node].stalled_until
    }

    /// An application posts. One that is dead or stalled does not.
    fn post(&mut self, action: Action) {
        let (nodes, now) = (&self.nodes, self.now);
        let node = action.node();
        if !self.acts(node) {
            return;
        }
        let least_bytes = nodes[node].manners.least_bytes;
        let entered = action.enter(&mut self.book, |node| nodes[node].life, least_bytes);
        if let Some((node, post)) = entered {
            self.nodes[node].post(now, &mut self.book, post);
            self.dispatch(node);
            self.wake_soon(node);
        }
    }

    /// Cancels one of the receives that wait.
    fn cancel_one(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let waits = |id: &usize| {
            let receive = &self.book.receives.all[*id];
            receive.owner == life && !receive.over && !receive.canceled
        };
        let all: Vec<usize> = (0..self.book.receives.all.len()).filter(waits).collect();
        if !all.is_empty() {
            let id = self.rng.pick(&all);
            self.cancel(node, id);
        }
    }

    fn cancel(&mut self, node: usize, id: usize) {
        let acts = self.acts(node);
        if let (Some(process), true) = (&mut self.nodes[node].process, acts) {
            process.cancel(&mut self.book, id);
            self.wake_soon(node);
        }
    }

    /// All faults stop, the dead are replaced, receives that wait are canceled, and every node takes every message.
    /// (A short queue of messages to the dead would take a deadline for each.)
    fn calm(&mut self) {
        self.hall.iter().for_each(Hall::calm);
        (0..self.nodes.len()).for_each(|node| self.act(Action::Restart(node)));
        self.net.faults = Faults::default();
        self.net.cut = None;
        for node in &mut self.nodes {
            node.stalled_until = 0;
            node.setup.habits.port_full = 0.0;
        }
        for node in 0..self.nodes.len() {
            self.cancel_all(node);
        }
        self.drains = true;
        (0..self.nodes.len()).for_each(|node| self.refill(node));
    }

    fn cancel_all(&mut self, node: usize) {
        let life = self.nodes[node].life;
        for id in 0..self.book.receives.all.len() {
            let receive = &self.book.receives.all[id];
            if receive.owner == life && !receive.over {
                self.cancel(node, id);
            }
        }
    }

    /// Keeps a receive for tagged messages and one for the others posted.
    fn refill(&mut self, node: usize) {
        let life = self.nodes[node].life;
        if !self.lives(life) {
            return;
        }
        for class in [Class::AnyTag, Class::Untagged] {
            let open = self.book.receives.all.iter().rev().take(64).any(|receive| {
                let one = receive.form == Form::One && receive.source.is_none();
                one && receive.owner == life && receive.class == class && !receive.over
            });
            if !open {
                let (source, room_bytes, form) = (None, 64 << 10, Form::One);
                self.post(Action::Recv { node, source, class, room_bytes, form });
            }
        }
    }

    fn run_for(&mut self, span_ns: Nanos) {
        let until = self.now + span_ns;
        while self.step(until) {}
    }

    /// Runs until everything has ended; panics when that takes more than `span_ns`.
    fn settle(&mut self, span_ns: Nanos) {
        let until = self.now + span_ns;
        while self.is_open() {
            let next = (self.now + 20 * MILLISECOND).min(until);
            while self.step(next) {}
            assert!(self.now < until, "not everything ends: {}", self.what_is_open());
        }
    }

    fn is_open(&self) -> bool {
        let open = |node: &Node| node.process.as_ref().is_some_and(|process| process.is_open());
        self.book.is_open(|life| self.lives(life)) || self.nodes.iter().any(open)
    }

    fn what_is_open(&self) -> String {
        let lives = |life| self.lives(life);
        let strict = self.book.rules == Rules::default();
        let messages = self.book.messages.iter().enumerate().filter(|(_, message)| {
            let ended = message.silent || message.ended.is_some() || !lives(message.from);
            !ended || (strict && message.taken_by.is_none())
        });
        let messages: Vec<_> = messages.take(3).collect();
        let accesses = self.book.accesses.all.iter().enumerate();
        let accesses = accesses.filter(|(_, access)| access.ended.is_none() && lives(access.from));
        let accesses: Vec<_> = accesses.take(3).collect();
        let open = |node: &Node| node.process.as_ref().map(|process| process.is_open());
        let open: Vec<_> = self.nodes.iter().map(open).collect();
        format!("{messages:#?} {accesses:#?} nodes that are open: {open:?}")
    }

    /// Cancels what waits, closes all endpoints, and judges the whole run.
    fn end(&mut self, o: &Options) {
        self.drains = false;
        (0..self.nodes.len()).for_each(|node| self.cancel_all(node));
        self.run_for(o.timeout_ns);
        for node in 0..self.nodes.len() {
            let life = self.nodes[node].life;
            let left = |receive: &&super::receives::Receive| receive.owner == life && !receive.over;
            let mut left = self.book.receives.all.iter().filter(left);
            let lives = self.lives(life);
            assert!(!lives || left.next().is_none(), "a receive never ends at node {node}");
        }
        let living = self.nodes.iter().filter_map(|node| node.process.as_ref());
        let memory: Vec<&Memory> = living.map(|process| &process.memory).collect();
        self.book.judge_end();
        if self.book.rules == Rules::default() {
            self.book.accesses.judge_end(&memory);
        }
        for node in 0..self.nodes.len() {
            if let Some(process) = &mut self.nodes[node].process {
                process.driver.close();
                self.dispatch(node);
            }
        }
        let until = self.now + 3 * o.timeout_ns + 10 * SECOND;
        let open = |node: &Node| {
            node.process.as_ref().is_some_and(|process| !process.driver.engine.is_closed())
        };
        while self.nodes.iter().any(open) {
            assert!(self.step(until), "endpoints do not close");
        }
        for process in self.nodes.iter().filter_map(|node| node.process.as_ref()) {
            assert_eq!(process.driver.host.live_sends(), 0, "operations are left");
            process.memory.close();
        }
    }

    fn all_stats(&self) -> Stats {
        let mut sum = self.buried;
        for process in self.nodes.iter().filter_map(|node| node.process.as_ref()) {
            add_stats(&mut sum, process.driver.engine.stats());
        }
        sum
    }
}

impl Action {
    /// The node that acts.
    fn node(&self) -> usize {
        match *self {
            Action::Send { from, .. } | Action::Access { from, .. } => from,
            Action::Recv { node, .. }
            | Action::Cancel(node)
            | Action::Stall(node, _)
            | Action::Renew(node)
            | Action::Leave(node)
            | Action::Kill(node)
            | Action::Restart(node) => node,
            Action::Cut(..) => 0,
        }
    }

    /// The same with times that count from `start`.
    fn after(self, start: Nanos) -> Action {
        match self {
            Action::Stall(node, until) => Action::Stall(node, start + until),
            Action::Cut(sides, until) => Action::Cut(sides, start + until),
            action => action,
        }
    }
}
