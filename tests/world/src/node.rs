//! A node: one engine, the library's loop that runs it, and an application.

use super::app::{App, Class, Deferred, HostLimits, Posted, View};
use super::lanes::{Hall, LaneHabits};
use super::ledger::{Forward, Ledger, Life, Outgoing, RecvState};
use super::memory::{ASK, Plan};
use super::net::Datagram;
use super::port::{self, SimClock, Simulated, Wire};
use super::record::{self, Access, Born, Kind, Peer, Pen, Record, What};
use super::rng::Rng;
use super::scheme::TestScheme;
use erd_core::run::{Carriers, Driven, Parts};
use erd_port::local::Lanes;
use erd_port::udp::NetError;
use erd_rd::keys::{KEYS_MAX, KeySet, Keys};
use erd_rd::units::{Ecn, MICROSECOND};
use erd_rd::{
    AtOnce, Config, Endpoint, KeyIndex, MsgRef, Nanos, Near, OpError, PeerAddress, PeerId,
    PostError, RecvToken, Rma, RmaRequest, SendToken, WorkRequest,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Set-up of a node; the same for all its processes except the epoch.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The engine's settings.
    pub config: Config,
    /// Congestion control.
    pub scheme: TestScheme,
    /// The limits and failures of the host.
    pub limits: HostLimits,
    /// Behaviour of its driver.
    pub habits: Habits,
    /// The settings towards nodes of the same host ([`HostLimits::near`]), if they differ.
    pub near: Option<NearSetup>,
    /// The key that takes the place of another, when its time comes.
    pub next_key: Option<NextKey>,
    /// Nodes of the same host share memory.
    pub lanes: Option<LaneHabits>,
}

/// See [`Setup::next_key`].
#[derive(Clone, Debug)]
pub struct NextKey {
    /// The place.
    pub at: KeyIndex,
    /// The key.
    pub key: Arc<dyn Keys>,
    /// Time in which both are valid.
    pub overlap_ns: Nanos,
    /// The keys of processes that start afterwards.
    pub keys: KeySet,
}

impl NextKey {
    /// The key takes its place: in `engine`, if the process lives, and in the set-up of those to come.
    pub fn renew(self, now: Nanos, setup: &mut Setup, engine: Option<&mut Endpoint>) {
        if let Some(engine) = engine {
            assert!(engine.renew_key(now, self.at, self.key, self.overlap_ns), "it is new");
        }
        setup.config.keys = self.keys;
    }
}

/// See [`erd_rd::Near`].
#[derive(Clone, Debug)]
pub struct NearSetup {
    /// The largest datagram.
    pub datagram_bytes: u16,
    /// Paths.
    pub paths: u16,
    /// Congestion control.
    pub scheme: TestScheme,
}

impl Setup {
    /// The node `to` as an engine's peer: with several keys, the one in its place.
    pub fn address_of(&self, to: usize, name: SocketAddr) -> PeerAddress {
        let has = |place: &usize| self.config.keys.get(KeyIndex(*place as u8)).is_some();
        let count = (0..KEYS_MAX).rfind(has).map_or(1, |last| last + 1);
        PeerAddress { name, key: KeyIndex((to % count) as u8) }
    }

    fn near_to(&self, name: SocketAddr) -> Option<&NearSetup> {
        self.near.as_ref().filter(|_| self.limits.is_near(name))
    }

    /// The largest datagram that it takes from `name`.
    pub fn datagram_bytes(&self, name: SocketAddr) -> u16 {
        self.near_to(name).map_or(self.config.datagram_bytes, |near| near.datagram_bytes)
    }

    /// Paths to `name`.
    pub fn paths(&self, name: SocketAddr) -> u16 {
        self.near_to(name).map_or(self.config.paths, |near| near.paths)
    }
}

/// Behaviour of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Arrivals that the port hands out at once.
    pub batch: u64,
    /// Chance that datagrams which follow each other arrive as one.
    pub gro: f64,
    /// Bursts that the port takes per round.
    pub bursts: u64,
    /// Time of one round.
    pub round_ns: Nanos,
    /// Chance that a post is followed by transmission at once, without `flush`.
    pub eager_post: f64,
    /// Chance that the port takes no more.
    pub port_full: f64,
    /// The port takes one burst at a time, so that everything leaves in the order in which the engine makes it.
    pub singly: bool,
    /// Chance that a control burst finds an information path open.
    pub info_path: f64,
    /// The application waits for the ends of its sends.
    pub awaits: bool,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            batch: 32,
            gro: 0.5,
            bursts: 16,
            round_ns: MICROSECOND,
            eager_post: 1.0,
            port_full: 0.0,
            singly: false,
            info_path: 0.0,
            awaits: false,
        }
    }
}

/// See the module.
pub struct Node {
    /// Its address.
    pub name: SocketAddr,
    /// See [`Setup`].
    pub setup: Setup,
    /// The engine; `None` while the process is dead.
    pub endpoint: Option<Endpoint>,
    /// Its ports.
    carriers: Carriers<Simulated>,
    /// Receives and messages.
    pub app: App,
    /// The datagrams and errors between its ports and the network.
    pub wire: Rc<RefCell<Wire>>,
    clock: SimClock,
    /// The driver does not run until then.
    pub stalled_until: Nanos,
    /// Time of the driver's next run.
    pub wake_at: Nanos,
    /// Nodes by the engine's number for them.
    pub peers: BTreeMap<usize, PeerId>,
    /// Posts that the engine had no room for, in order.
    waiting_posts: VecDeque<Post>,
    storm: u32,
    /// The memory of its host.
    hall: Option<Hall>,
    /// Times that the engine was settled.
    calls: u32,
    /// Writes what the application and the world do.
    pen: Pen,
    rng: Rng,
}

/// An operation to be posted.
#[derive(Clone, Copy, Debug)]
pub enum Post {
    /// A message.
    Send(Outgoing),
    /// A request to memory.
    Rma(Plan),
}

impl Post {
    fn to(&self) -> usize {
        match self {
            Post::Send(out) => out.to,
            Post::Rma(plan) => plan.to,
        }
    }
}

/// Calls between two checks of the engine's parts: a check at each call would make long runs twice as long.
const CALLS_PER_CHECK: u32 = 4;

/// Rounds in a row after which a timer may still be due before it counts as a livelock.
const STORM_ROUNDS: u32 = 100;

/// A living node while the loop runs it.
struct Running<'a> {
    name: SocketAddr,
    endpoint: &'a mut Endpoint,
    carriers: &'a mut Carriers<Simulated>,
    view: View<'a>,
    calls: &'a mut u32,
}

impl<'a> Driven for Running<'a> {
    type Outside = Simulated;
    type Memory = View<'a>;

    fn parts(&mut self) -> Parts<'_, Simulated, View<'a>> {
        let Running { endpoint, view, carriers, .. } = self;
        Parts { engine: endpoint, host: view, carriers }
    }

    /// Does the deferred calls, and judges the engine's own counts.
    fn settle(&mut self) {
        let (endpoint, view) = (&mut *self.endpoint, &mut self.view);
        while let Some(deferred) = view.app.deferred.pop_front() {
            match deferred {
                Deferred::Release(msg) => release(endpoint, view, msg),
                Deferred::Unwatch(peer) => endpoint.watch(peer, -1),
                Deferred::SessionEnded(peer, session) => {
                    view.ledger.judge_session_end(view.app.life, peer, session);
                }
                Deferred::Withdraw(token) => {
                    if view.ledger.memory.withdraw(token.0) {
                        endpoint.withdraw(token, view);
                    }
                }
            }
        }
        view.app.next_call();
        view.app.pen.name(|peer| endpoint.peer_address(peer));
        let outstanding = view.ledger.outstanding_of(view.app.life);
        assert_eq!(endpoint.outstanding_sends(), outstanding, "sends outstanding at {}", self.name);
        assert!(outstanding > 0 || !endpoint.has_unsent(), "{} holds back what ended", self.name);
        *self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS_PER_CHECK) {
            endpoint.check();
        }
    }

    /// Only posts wait for room here, and they follow the step.
    fn feed(&mut self) {}

    /// The host has told the ledger already. The port keeps no pointer after the step.
    fn publish(&mut self) {
        self.view.app.forget_lent();
    }
}

impl Node {
    /// A node whose first process runs. `names` has the names of all nodes.
    pub fn new(setup: Setup, index: usize, seed: u64, names: &[SocketAddr]) -> Node {
        let life = Life { node: index, incarnation: 0 };
        let app = App::new(life, setup.limits, Rng::new(seed, 100 + index as u64));
        let rng = Rng::new(seed, 400 + index as u64);
        let wire = Wire::new(index, names.to_vec(), setup.habits, rng);
        let (wire, clock) = (Rc::new(RefCell::new(wire)), SimClock::default());
        let mut node = Node {
            name: setup.config.name,
            carriers: port::carriers(setup.config.name, setup.config.info_path, &wire, &clock),
            setup,
            endpoint: None,
            app,
            wire,
            clock,
            stalled_until: 0,
            wake_at: Nanos::MAX,
            peers: BTreeMap::new(),
            waiting_posts: VecDeque::new(),
            storm: 0,
            hall: None,
            calls: 0,
            pen: Pen::default(),
            rng: Rng::new(seed, 200 + index as u64),
        };
        node.boot(0, life);
        node
    }

    /// Its processes share memory with others from now on.
    pub fn share(&mut self, hall: &Hall) {
        self.hall = Some(hall.clone());
        self.enter();
    }

    fn enter(&mut self) {
        let hall = self.hall.as_ref().filter(|_| self.setup.lanes.is_some());
        let (me, near) = (self.app.life.node, self.setup.limits.near);
        self.app.lanes = hall.map(|hall| Box::new(hall.enter(me, near)) as Box<dyn Lanes>);
    }

    /// Writes to a record from now on. The process that runs now counts as new.
    pub fn record(&mut self, now: Nanos, record: &Record) {
        self.write_with(Pen::new(record, self.app.life));
        let config = self.config_of(self.app.life);
        self.pen.note(now, || What::Born(Box::new(Born::of(&config))));
    }

    fn write_with(&mut self, pen: Pen) {
        (self.app.pen, self.wire.borrow_mut().pen) = (pen.clone(), pen.clone());
        self.pen = pen;
    }

    /// The settings of one of its processes.
    fn config_of(&self, life: Life) -> Config {
        let mut config = self.setup.config.clone();
        config.epoch += u64::from(life.incarnation);
        config
    }

    fn boot(&mut self, now: Nanos, life: Life) {
        let config = self.config_of(life);
        let born = Box::new(Born::of(&config));
        let seed = self.rng.bits();
        let scheme = Box::new(self.setup.scheme);
        let mut endpoint = Endpoint::new(config, scheme, seed).expect("the settings are valid");
        if let Some(NearSetup { datagram_bytes, paths, scheme }) = self.setup.near {
            let scheme = Box::new(scheme);
            let (link_bytes_per_s, ecn) = (0, Ecn::Ect0);
            let near = Near { datagram_bytes, paths, link_bytes_per_s, ecn, scheme };
            endpoint.set_near(near).expect("the settings are valid");
        }
        self.endpoint = Some(endpoint);
        let config = &self.setup.config;
        self.carriers = port::carriers(config.name, config.info_path, &self.wire, &self.clock);
        let drain = self.app.drain;
        // The process before is gone before this one comes.
        self.app.lanes = None;
        self.app = App::new(life, self.setup.limits, Rng::new(seed, 300));
        self.enter();
        self.app.drain = drain;
        self.write_with(self.pen.of(life));
        self.pen.note(now, || What::Born(born));
        self.peers.clear();
        self.waiting_posts.clear();
        self.wire.borrow_mut().clear();
        (self.stalled_until, self.storm) = (0, 0);
    }

    /// The process dies without a goodbye; its socket's contents are gone.
    pub fn kill(&mut self, now: Nanos, ledger: &mut Ledger) {
        self.pen.note(now, || What::Died);
        self.endpoint = None;
        self.app.lanes = None;
        self.wire.borrow_mut().clear();
        self.wake_at = Nanos::MAX;
        ledger.killed(self.app.life);
    }

    /// Another process takes the name.
    pub fn restart(&mut self, now: Nanos) {
        assert!(self.endpoint.is_none(), "only a dead node restarts");
        let life = self.app.life;
        self.boot(now, Life { incarnation: life.incarnation + 1, ..life });
    }

    /// The kernel takes a datagram; false when the socket's buffer is full.
    pub fn enqueue(&mut self, datagram: Datagram) -> bool {
        let room = u64::from(self.setup.config.recv_buffer_bytes);
        self.wire.borrow_mut().enqueue(datagram, room)
    }

    /// Datagrams between ports that it dropped: the engine never sees those.
    pub fn port_drops(&self) -> u64 {
        self.carriers.link.carried.port_drops
    }

    /// The network reports an error of a datagram to `name`.
    pub fn hear(&mut self, name: SocketAddr, error: NetError) {
        self.wire.borrow_mut().errors.push((name, error));
        // In a real domain another endpoint may read the shared sockets first; this does the same.
        let Carriers { net_errors, port, .. } = &mut self.carriers;
        net_errors.drain(port);
    }

    /// The living process with its host, for one step or call.
    fn running<'a>(&'a mut self, now: Nanos, ledger: &'a mut Ledger) -> Running<'a> {
        self.clock.0.set(now);
        let endpoint = self.endpoint.as_mut().expect("the process lives");
        let (wire, setup) = (&self.wire, &self.setup);
        let view = View { app: &mut self.app, ledger, setup, wire, now };
        let (carriers, calls) = (&mut self.carriers, &mut self.calls);
        Running { name: self.name, endpoint, carriers, view, calls }
    }

    /// Calls the engine with its host, then does the deferred calls.
    pub fn call<R>(
        &mut self,
        now: Nanos,
        ledger: &mut Ledger,
        f: impl FnOnce(&mut Endpoint, &mut View<'_>) -> R,
    ) -> R {
        let mut running = self.running(now, ledger);
        let result = f(running.endpoint, &mut running.view);
        running.settle();
        result
    }

    /// The engine's number for the node at `name`.
    pub fn peer(&mut self, now: Nanos, ledger: &mut Ledger, to: usize, name: SocketAddr) -> PeerId {
        let address = self.setup.address_of(to, name);
        let peer = self.call(now, ledger, |e, host| e.peer(now, address, host)).expect("peers fit");
        let known = *self.peers.entry(to).or_insert(peer);
        assert_eq!(known, peer, "{name} has two numbers");
        assert_eq!(self.endpoint.as_ref().unwrap().peer_address(peer), Some(address));
        let seen = *self.app.seen.entry(peer).or_insert(to);
        assert_eq!(seen, to, "{peer:?} names two peers");
        peer
    }

    /// The key of the set-up takes the place of another.
    pub fn renew_key(&mut self, now: Nanos) {
        if let Some(next) = self.setup.next_key.take() {
            self.pen.note(now, || What::Renewed { at: next.at, key: next.key.id() });
            next.renew(now, &mut self.setup, self.endpoint.as_mut());
        }
    }

    /// The engine forgets a peer.
    pub fn forget(&mut self, now: Nanos, ledger: &mut Ledger, peer: usize) {
        let Some(id) = self.peers.remove(&peer) else {
            return;
        };
        let address = self.endpoint.as_ref().and_then(|endpoint| endpoint.peer_address(id));
        self.pen.note(now, || What::Forgot(Peer { id, address }));
        self.call(now, ledger, |endpoint, host| {
            endpoint.forget(id, host);
            host.fail_directed(id, OpError::Canceled);
        });
        self.app.seen.remove(&id);
        assert_eq!(self.endpoint.as_ref().unwrap().peer_name(id), None, "{id:?} is not forgotten");
    }

    /// The engine says goodbye to everyone.
    pub fn close(&mut self, now: Nanos, ledger: &mut Ledger) {
        self.pen.note(now, || What::Closed);
        self.call(now, ledger, |endpoint, host| endpoint.close(now, host));
    }

    /// Posts a send, or keeps it until there is room.
    pub fn post(&mut self, now: Nanos, ledger: &mut Ledger, post: &Post, name: SocketAddr) {
        if !self.waiting_posts.is_empty() || !self.try_post(now, ledger, post, name) {
            self.waiting_posts.push_back(*post);
        }
    }

    fn try_post(&mut self, now: Nanos, ledger: &mut Ledger, post: &Post, name: SocketAddr) -> bool {
        match post {
            Post::Send(out) => self.try_send(now, ledger, out, name),
            Post::Rma(plan) => self.try_rma(now, ledger, plan, name),
        }
    }

    fn try_rma(&mut self, now: Nanos, ledger: &mut Ledger, plan: &Plan, name: SocketAddr) -> bool {
        let peer = self.peer(now, ledger, plan.to, name);
        let id = ledger.memory.post(now, self.app.life, *plan);
        let asked = &ledger.memory.asked[id];
        let (token, to) = (SendToken(ASK | id as u64), RecvToken(ASK | id as u64));
        let rma = match asked.atomic() {
            Some(atomic) => Rma::Atomic { atomic, operand_bytes: asked.operand_bytes() as u16, to },
            None if asked.operand_bytes() > 0 || asked.writes() => Rma::Write,
            None => Rma::Read(to),
        };
        let targets = asked.targets(id);
        let data = plan.data.then_some(id as u64);
        let request = RmaRequest { peer, token, rma, targets, data, fence: plan.fence };
        let of = Peer { id: peer, address: Some(self.setup.address_of(plan.to, name)) };
        self.pen.note(now, || What::Posted(posted_request(&request, of)));
        match self.endpoint.as_mut().expect("the process lives").rma(now, &request) {
            Ok(()) => true,
            Err(PostError::Full) => {
                ledger.memory.unpost(id);
                self.pen.note(now, || What::Unposted(token));
                false
            }
            Err(error) => panic!("request to {name} failed: {error:?}"),
        }
    }

    fn try_send(
        &mut self,
        now: Nanos,
        ledger: &mut Ledger,
        out: &Outgoing,
        name: SocketAddr,
    ) -> bool {
        let peer = self.peer(now, ledger, out.to, name);
        let id = ledger.post(now, self.app.life, out);
        let send = &ledger.sends[id];
        let request = WorkRequest {
            peer,
            token: SendToken(id as u64),
            len_bytes: send.len_bytes,
            tag: send.tag,
            data: send.data,
            match_complete: send.match_complete,
            awaited: self.setup.habits.awaits,
            delivery: true,
            fence: false,
        };
        let of = Peer { id: peer, address: Some(self.setup.address_of(out.to, name)) };
        self.pen.note(now, || What::Posted(posted_message(&request, of)));
        // Some are queued that might go at once.
        if self.setup.lanes.is_some() && self.rng.chance(0.7) {
            let mut running = self.running(now, ledger);
            if let Some(written) = running.endpoint.write_now(now, &request, &mut running.view) {
                assert_eq!(written, AtOnce::Unread, "it ends when the peer has it");
                running.settle();
                return true;
            }
        }
        let endpoint = self.endpoint.as_mut().expect("the process lives");
        match endpoint.send(now, request) {
            Ok(()) => true,
            Err(PostError::Full) => {
                ledger.unpost(id);
                self.pen.note(now, || What::Unposted(request.token));
                let room = self.setup.config.sends_max as usize;
                assert_eq!(endpoint.outstanding_sends(), room, "refused with room left");
                false
            }
            Err(error) => panic!("post to {name} failed: {error:?}"),
        }
    }

    /// Whether sends wait for room in the engine.
    pub fn has_waiting_posts(&self) -> bool {
        self.endpoint.is_some() && !self.waiting_posts.is_empty()
    }

    /// Posts a receive.
    pub fn post_recv(
        &mut self,
        now: Nanos,
        ledger: &mut Ledger,
        source: Option<PeerId>,
        class: Class,
        capacity_bytes: u64,
    ) -> usize {
        let recv = ledger.add_recv(self.app.life, capacity_bytes, false);
        while let Some(found) = self.app.take_unexpected(source, class) {
            let msg = found.msg;
            let taken = self.call(now, ledger, |endpoint, host| match found.held {
                Some(held) => {
                    host.mark_matched(found.send);
                    host.consume_held(msg, held, Forward::To(recv));
                    true
                }
                None => accept(endpoint, host, msg, recv, found.send),
            });
            if taken {
                return recv;
            }
        }
        if let Some(peer) = source {
            self.call(now, ledger, |endpoint, _| endpoint.watch(peer, 1));
        }
        self.app.posted.push_back(Posted { recv, source, class });
        recv
    }

    /// Throws the oldest waiting message away.
    pub fn discard(&mut self, now: Nanos, ledger: &mut Ledger) {
        let Some(found) = self.app.unexpected.pop_front() else {
            return;
        };
        self.call(now, ledger, |endpoint, host| {
            host.mark_matched(found.send);
            match found.held {
                Some(held) => host.consume_held(found.msg, held, Forward::Drop),
                None => {
                    host.app.discharge(&found.msg, 0);
                    if let Some(send) = found.send {
                        host.ledger.sends[send].whole = true;
                    }
                    release(endpoint, host, found.msg);
                }
            }
        });
    }

    /// Takes every waiting message, and every one from now on.
    pub fn start_draining(&mut self, now: Nanos, ledger: &mut Ledger) {
        self.app.drain = true;
        while self.endpoint.is_some() && !self.app.unexpected.is_empty() {
            let class = Class::of(self.app.unexpected[0].tag);
            self.post_recv(now, ledger, None, class, 1 << 20);
        }
    }

    /// Prepares the port for a step.
    fn begin(&mut self) {
        let mut wire = self.wire.borrow_mut();
        let Setup { habits, limits, .. } = &self.setup;
        (wire.habits, wire.bursts_left) = (*habits, habits.bursts);
        wire.limit_bytes =
            wire.names.iter().map(|name| (*name, limits.limit_bytes(*name))).collect();
        self.app.keeps = habits.port_full > 0.0 || !self.carriers.sender.is_empty();
    }

    /// Runs one step of the loop, which puts the datagrams to send into [`Wire::out`].
    pub fn drive(&mut self, now: Nanos, ledger: &mut Ledger, names: &[SocketAddr]) {
        self.begin();
        let arrived = self.running(now, ledger).progress();
        let mut posted = false;
        while let Some(post) = self.waiting_posts.front().copied() {
            if !self.try_post(now, ledger, &post, names[post.to()]) {
                break;
            }
            posted = true;
            self.waiting_posts.pop_front();
        }
        if posted {
            self.running(now, ledger).parts().transmit(now, true);
        }
        let idle = !arrived && self.wire.borrow().out.is_empty() && self.carriers.sender.is_empty();
        let due = self.endpoint.as_ref().and_then(Endpoint::poll_timeout);
        let again = idle && due.is_some_and(|at| at <= now);
        self.storm = if again { self.storm + 1 } else { 0 };
        assert!(self.storm < STORM_ROUNDS, "timers of {} never rest", self.name);
    }

    /// Sends the bursts that may leave right after a post.
    pub fn transmit(&mut self, now: Nanos, ledger: &mut Ledger) {
        self.begin();
        self.running(now, ledger).parts().transmit(now, false);
    }

    /// The time of the next step.
    pub fn next_run(&mut self, now: Nanos, ledger: &mut Ledger) -> Nanos {
        if self.endpoint.is_none() {
            return Nanos::MAX;
        }
        let soon = now + self.setup.habits.round_ns.max(1);
        let wire = Rc::clone(&self.wire);
        let at = port::next_step(&mut self.running(now, ledger), &wire.borrow(), soon);
        at.max(self.stalled_until)
    }

    /// Receives that the engine still fills.
    pub fn open_recvs(&self, ledger: &Ledger) -> usize {
        ledger.open.iter().filter(|r| ledger.recvs[**r].owner == self.app.life).count()
    }
}

fn accept(
    endpoint: &mut Endpoint,
    host: &mut View<'_>,
    msg: MsgRef,
    recv: usize,
    send: Option<usize>,
) -> bool {
    host.app.discharge(&msg, 0);
    host.mark_matched(send);
    let capacity_bytes = host.ledger.recvs[recv].capacity_bytes;
    host.ledger.open_recv(recv, msg.peer, Some(msg), send);
    host.app.pen.note(host.now, || What::Accepted { msg: (&msg).into(), capacity_bytes });
    let taken = endpoint.accept(msg, RecvToken(recv as u64), capacity_bytes, host);
    if !taken {
        let state = &mut host.ledger.recvs[recv].state;
        assert_eq!(*state, RecvState::Open, "a void message completed");
        *state = RecvState::Posted;
        host.ledger.open.remove(&recv);
    }
    taken
}

fn release(endpoint: &mut Endpoint, host: &View<'_>, msg: MsgRef) {
    host.app.pen.note(host.now, || What::Released((&msg).into()));
    endpoint.release(msg);
}

fn posted_message(request: &WorkRequest, peer: Peer) -> record::Posted {
    let &WorkRequest { token, len_bytes, tag, data, fence, .. } = request;
    let kind = Kind::Message { tag, match_notice: request.match_complete };
    record::Posted { token, peer, kind, len_bytes, data, fence }
}

fn posted_request(request: &RmaRequest, peer: Peer) -> record::Posted {
    let &RmaRequest { token, rma, targets, data, fence, .. } = request;
    let access = match rma {
        Rma::Write => Access::Write,
        Rma::Read(_) => Access::Read,
        Rma::Atomic { atomic, .. } => Access::Atomic(atomic),
    };
    let (kind, len_bytes) = (Kind::Request(access), targets.len_bytes());
    record::Posted { token, peer, kind, len_bytes, data, fence }
}
