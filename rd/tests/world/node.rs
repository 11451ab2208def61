//! A node: one engine and the loop that drives it, as a real driver's would.

use super::app::{App, Class, Deferred, HostLimits, Posted, View};
use super::ledger::{Forward, Ledger, Life, Outgoing, RecvState};
use super::memory::{ASK, KIND, Plan};
use super::net::{Datagram, Shared};
use super::rng::Rng;
use super::scheme::TestScheme;
use erd_rd::units::{Ecn, MICROSECOND, MILLISECOND};
use erd_rd::wire::header::{Header, Kind, SEAL_BYTES};
use erd_rd::{
    Ask, AskRequest, Config, Endpoint, Expected, MsgRef, Nanos, Near, OpError, Part, PeerId,
    PostError, RecvToken, RxMeta, Seals, SendToken, TxBurst, WorkRequest,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// How a node is set up; the same for all its processes but for the epoch.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The engine's settings.
    pub config: Config,
    /// Congestion control.
    pub scheme: TestScheme,
    /// What the host checks and refuses.
    pub limits: HostLimits,
    /// How its driver behaves.
    pub habits: Habits,
    /// What holds towards nodes of the same host ([`HostLimits::near`]), if that is something else.
    pub near: Option<NearSetup>,
}

/// See [`erd_rd::Near`].
#[derive(Clone, Debug)]
pub struct NearSetup {
    pub datagram_bytes: u16,
    pub paths: u16,
    pub seals: Option<Seals>,
    pub scheme: TestScheme,
}

impl Setup {
    fn near_to(&self, name: SocketAddr) -> Option<&NearSetup> {
        self.near.as_ref().filter(|_| self.limits.is_near(name))
    }

    /// The largest datagram that it takes from `name`.
    pub fn datagram_bytes(&self, name: SocketAddr) -> u16 {
        self.near_to(name).map_or(self.config.datagram_bytes, |near| near.datagram_bytes)
    }

    /// Paths to `name`.
    fn paths(&self, name: SocketAddr) -> u16 {
        self.near_to(name).map_or(self.config.paths, |near| near.paths)
    }
}

/// How a driver behaves.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Packets taken per round.
    pub batch: u64,
    /// Bursts sent per round.
    pub bursts: u64,
    /// Time of one round.
    pub round_ns: Nanos,
    /// Chance that a post is followed by transmission at once, without `flush`.
    pub eager_post: f64,
    /// Chance that the port takes no more.
    pub port_full: f64,
    /// Chance that a control burst finds an information path open.
    pub info_path: f64,
    /// The application waits for the ends of its sends.
    pub awaits: bool,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            batch: 32,
            bursts: 16,
            round_ns: MICROSECOND,
            eager_post: 1.0,
            port_full: 0.0,
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
    /// Receives and messages.
    pub app: App,
    /// The socket's buffer.
    pub inbox: VecDeque<Datagram>,
    inbox_bytes: u64,
    /// The driver does not run until then.
    pub stalled_until: Nanos,
    /// When the driver runs next.
    pub wake_at: Nanos,
    /// Nodes by the engine's number for them.
    pub peers: BTreeMap<usize, PeerId>,
    /// What the engine had no room for, in order.
    waiting_posts: VecDeque<Post>,
    kept: VecDeque<TxBurst>,
    port_blocked_until: Nanos,
    storm: u32,
    /// Datagrams taken.
    guesses: u32,
    /// Calls of the engine.
    calls: u32,
    rng: Rng,
}

/// An operation to be posted.
#[derive(Clone, Copy, Debug)]
pub enum Post {
    /// A message.
    Send(Outgoing),
    /// A request to memory.
    Ask(Plan),
}

impl Post {
    fn to(&self) -> usize {
        match self {
            Post::Send(out) => out.to,
            Post::Ask(plan) => plan.to,
        }
    }
}

/// What a round hands to the port.
pub struct Sending {
    /// Datagrams, burst by burst.
    pub bursts: Vec<Vec<Datagram>>,
    /// The engine may have more.
    pub more: bool,
}

/// The engine's parts are checked after so many calls: each time would make long runs twice as long.
const CALLS_PER_CHECK: u32 = 4;
/// Guesses are made this far ahead, in turn, as a port does that takes several datagrams at once.
const GUESSES_AHEAD: u32 = 4;

/// Rounds in a row after which a timer may still be due before it counts as a livelock.
const STORM_ROUNDS: u32 = 100;

impl Node {
    /// A node whose first process runs.
    pub fn new(setup: Setup, index: usize, seed: u64) -> Node {
        let life = Life { node: index, incarnation: 0 };
        let app = App::new(life, setup.limits, Rng::new(seed, 100 + index as u64));
        let mut node = Node {
            name: setup.config.name,
            setup,
            endpoint: None,
            app,
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            stalled_until: 0,
            wake_at: Nanos::MAX,
            peers: BTreeMap::new(),
            waiting_posts: VecDeque::new(),
            kept: VecDeque::new(),
            port_blocked_until: 0,
            storm: 0,
            guesses: 0,
            calls: 0,
            rng: Rng::new(seed, 200 + index as u64),
        };
        node.boot(life);
        node
    }

    fn boot(&mut self, life: Life) {
        let mut config = self.setup.config.clone();
        config.epoch += u64::from(life.incarnation);
        let seed = self.rng.bits();
        let scheme = Box::new(self.setup.scheme);
        let mut endpoint = Endpoint::new(config, scheme, seed).expect("the settings are valid");
        if let Some(NearSetup { datagram_bytes, paths, seals, scheme }) = self.setup.near {
            let scheme = Box::new(scheme);
            let (link_bytes_per_s, ecn) = (0, Ecn::Ect0);
            let near = Near { datagram_bytes, paths, link_bytes_per_s, seals, ecn, scheme };
            endpoint.set_near(near).expect("the settings are valid");
        }
        self.endpoint = Some(endpoint);
        let drain = self.app.drain;
        self.app = App::new(life, self.setup.limits, Rng::new(seed, 300));
        self.app.drain = drain;
        self.peers.clear();
        self.waiting_posts.clear();
        self.kept.clear();
        (self.port_blocked_until, self.stalled_until, self.storm) = (0, 0, 0);
    }

    /// The process dies without a word; what its socket held is gone.
    pub fn kill(&mut self, ledger: &mut Ledger) {
        self.endpoint = None;
        self.inbox.clear();
        self.inbox_bytes = 0;
        self.wake_at = Nanos::MAX;
        ledger.killed(self.app.life);
    }

    /// Another process takes the name.
    pub fn restart(&mut self) {
        assert!(self.endpoint.is_none(), "only a dead node restarts");
        let life = self.app.life;
        self.boot(Life { incarnation: life.incarnation + 1, ..life });
    }

    /// The kernel takes a datagram; false when the socket's buffer is full.
    pub fn enqueue(&mut self, datagram: Datagram) -> bool {
        let room = u64::from(self.setup.config.recv_buffer_bytes);
        let bytes = datagram.bytes.len() as u64;
        if self.inbox_bytes + bytes > room && !datagram.info_path {
            return false;
        }
        self.inbox_bytes += bytes;
        self.inbox.push_back(datagram);
        true
    }

    /// Calls the engine with its host, then does what came up meanwhile.
    pub fn call<R>(
        &mut self,
        now: Nanos,
        ledger: &mut Ledger,
        f: impl FnOnce(&mut Endpoint, &mut View<'_>) -> R,
    ) -> R {
        let endpoint = self.endpoint.as_mut().expect("the process lives");
        let result = f(endpoint, &mut View { app: &mut self.app, ledger: &mut *ledger, now });
        while let Some(deferred) = self.app.deferred.pop_front() {
            match deferred {
                Deferred::Release(msg) => endpoint.release(msg),
                Deferred::Unwatch(peer) => endpoint.watch(peer, -1),
                Deferred::SessionEnded(peer, session) => {
                    ledger.judge_session_end(self.app.life, peer, session);
                }
                Deferred::Withdraw(token) => {
                    if ledger.memory.withdraw(token.0) {
                        ledger.recall(self.app.life);
                        endpoint.withdraw(token, &mut View { app: &mut self.app, ledger, now });
                    }
                }
            }
        }
        self.app.next_call();
        let outstanding = ledger.outstanding_of(self.app.life);
        assert_eq!(endpoint.outstanding_sends(), outstanding, "sends outstanding at {}", self.name);
        assert!(outstanding > 0 || !endpoint.has_unsent(), "{} holds back what ended", self.name);
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(CALLS_PER_CHECK) {
            endpoint.check();
        }
        result
    }

    /// The engine's number for the node at `name`.
    pub fn peer(&mut self, now: Nanos, ledger: &mut Ledger, to: usize, name: SocketAddr) -> PeerId {
        let peer = self.call(now, ledger, |e, host| e.peer(now, name, host)).expect("peers fit");
        let known = *self.peers.entry(to).or_insert(peer);
        assert_eq!(known, peer, "{name} has two numbers");
        assert_eq!(self.endpoint.as_ref().unwrap().peer_name(peer), Some(name));
        let seen = *self.app.seen.entry(peer).or_insert(to);
        assert_eq!(seen, to, "{peer:?} names two peers");
        peer
    }

    /// The engine forgets a peer.
    pub fn forget(&mut self, now: Nanos, ledger: &mut Ledger, peer: usize) {
        let Some(id) = self.peers.remove(&peer) else {
            return;
        };
        self.call(now, ledger, |endpoint, host| {
            endpoint.forget(id, host);
            host.fail_directed(id, OpError::Canceled);
        });
        self.app.seen.remove(&id);
        assert_eq!(self.endpoint.as_ref().unwrap().peer_name(id), None, "{id:?} is not forgotten");
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
            Post::Ask(plan) => self.try_ask(now, ledger, plan, name),
        }
    }

    fn try_ask(&mut self, now: Nanos, ledger: &mut Ledger, plan: &Plan, name: SocketAddr) -> bool {
        let peer = self.peer(now, ledger, plan.to, name);
        let id = ledger.memory.post(now, self.app.life, *plan);
        let asked = &ledger.memory.asked[id];
        let (token, to) = (SendToken(ASK | id as u64), RecvToken(ASK | id as u64));
        let ask = match asked.atomic() {
            Some(atomic) => Ask::Atomic { atomic, operand_bytes: asked.operand_bytes() as u16, to },
            None if asked.operand_bytes() > 0 || asked.writes() => Ask::Write,
            None => Ask::Read(to),
        };
        let targets = asked.targets(id);
        let data = plan.data.then_some(id as u64);
        let request = AskRequest { peer, token, ask, targets, data, fence: plan.fence };
        match self.endpoint.as_mut().expect("the process lives").ask(now, &request) {
            Ok(()) => true,
            Err(PostError::Full) => {
                ledger.memory.unpost(id);
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
            fence: false,
        };
        let endpoint = self.endpoint.as_mut().expect("the process lives");
        match endpoint.send(now, request) {
            Ok(()) => true,
            Err(PostError::Full) => {
                ledger.unpost(id);
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
                    endpoint.release(found.msg);
                }
            }
        });
    }

    /// Takes every waiting message, and from now on every one that comes.
    pub fn start_draining(&mut self, now: Nanos, ledger: &mut Ledger) {
        self.app.drain = true;
        while self.endpoint.is_some() && !self.app.unexpected.is_empty() {
            let class = Class::of(self.app.unexpected[0].tag);
            self.post_recv(now, ledger, None, class, 1 << 20);
        }
    }

    /// Hands a datagram to the engine as a port does that guesses what comes: the guess's place is
    /// written to whether or not it was right.
    fn take(&mut self, now: Nanos, ledger: &mut Ledger, meta: &RxMeta, bytes: &[u8]) {
        self.guesses += 1;
        let mut ahead = self.guesses % GUESSES_AHEAD;
        let mut guess = None;
        self.endpoint.as_ref().expect("the process lives").each_expected(|expected| {
            guess = Some(*expected);
            ahead = ahead.saturating_sub(1);
            ahead > 0
        });
        if let Some(guess) = guess {
            let (to, len_bytes) = (guess.to.0 as usize, usize::from(guess.len_bytes));
            match guess.to.0 & KIND {
                0 => ledger.scribble(self.app.life, to, guess.offset_bytes, len_bytes),
                _ => {
                    let (token, at) = (guess.to.0, guess.offset_bytes);
                    ledger.memory.scribble(self.app.life, token, at, len_bytes);
                }
            }
            let (head, rest) = bytes.split_at_checked(Expected::HEAD_BYTES).unwrap_or_default();
            if let Some((payload, tail)) = rest.split_at_checked(len_bytes)
                && guess.is(head, tail)
            {
                return self.call(now, ledger, |endpoint, host| {
                    endpoint.handle_expected(now, meta, head, payload, host);
                });
            }
        }
        self.call(now, ledger, |e, host| e.handle_packet(now, meta, bytes, host));
    }

    /// One round of the driver. Returns what goes out.
    pub fn drive(&mut self, now: Nanos, ledger: &mut Ledger, names: &[SocketAddr]) -> Sending {
        let mut idle = true;
        for _ in 0..self.setup.habits.batch {
            let Some(mut datagram) = self.inbox.pop_front() else {
                break;
            };
            idle = false;
            self.inbox_bytes -= datagram.bytes.len() as u64;
            if let Some(shared) = &datagram.shared {
                ledger.read_shared(shared, &mut datagram.bytes);
            }
            let meta = RxMeta {
                ecn: datagram.ecn,
                trimmed: datagram.trimmed,
                hold_ns: now - datagram.stamped_at,
                from: names[datagram.from],
            };
            self.take(now, ledger, &meta, &datagram.bytes);
        }
        let due = |node: &Node| node.endpoint.as_ref().unwrap().poll_timeout();
        if self.inbox.is_empty() && due(self).is_some_and(|at| at <= now) {
            self.call(now, ledger, |e, host| e.handle_timeout(now, host));
        }
        while let Some(post) = self.waiting_posts.front().copied() {
            if !self.try_post(now, ledger, &post, names[post.to()]) {
                break;
            }
            self.waiting_posts.pop_front();
        }
        let sending = self.transmit(now, ledger, true, names);
        let idle = idle && sending.bursts.is_empty() && self.kept.is_empty();
        let again = idle && due(self).is_some_and(|at| at <= now);
        self.storm = if again { self.storm + 1 } else { 0 };
        assert!(self.storm < STORM_ROUNDS, "timers of {} never rest", self.name);
        sending
    }

    /// Asks the engine for bursts and gathers them.
    pub fn transmit(
        &mut self,
        now: Nanos,
        ledger: &mut Ledger,
        flush: bool,
        names: &[SocketAddr],
    ) -> Sending {
        let mut out = Sending { bursts: Vec::new(), more: false };
        if now < self.port_blocked_until {
            return out;
        }
        while let Some(burst) = self.kept.pop_front() {
            out.bursts.extend(self.gather(ledger, &burst, names, true));
        }
        for _ in 0..self.setup.habits.bursts {
            let mut burst = TxBurst::new();
            if !self.call(now, ledger, |e, h| e.poll_transmit(now, flush, h, &mut burst)) {
                return out;
            }
            self.judge_burst(&burst);
            if self.refuses(&burst) {
                let bytes = self.setup.limits.limit_bytes(burst.to);
                self.call(now, ledger, |e, _| e.handle_too_big(now, burst.to, bytes));
                continue;
            }
            if self.rng.chance(self.setup.habits.port_full) {
                self.kept.push_back(burst);
                self.port_blocked_until = now + self.rng.range(1, MILLISECOND);
                return out;
            }
            out.bursts.extend(self.gather(ledger, &burst, names, false));
        }
        out.more = true;
        out
    }

    fn judge_burst(&self, burst: &TxBurst) {
        let config = &self.setup.config;
        assert!(burst.datagrams > 0 && burst.total_bytes > 0, "an empty burst: {burst:?}");
        let fits = burst.total_bytes <= config.burst_bytes.max(burst.segment_bytes);
        assert!(fits, "a burst of {} bytes", burst.total_bytes);
        let paths = self.setup.paths(burst.to);
        assert!(burst.path < paths, "path {} of {paths}", burst.path);
        let probes = Header::parse(&burst.bytes).is_ok_and(|h| h.kind == Kind::SizeProbe);
        assert!(probes || !self.refuses(burst), "a datagram of {} bytes", burst.segment_bytes);
    }

    /// The node's own link does not carry it.
    fn refuses(&self, burst: &TxBurst) -> bool {
        let limit = u32::from(self.setup.limits.limit_bytes(burst.to));
        burst.segment_bytes > limit && !burst.may_fragment
    }

    /// The datagrams of a burst; nothing when an operation in it has ended while it was kept.
    fn gather(
        &mut self,
        ledger: &Ledger,
        burst: &TxBurst,
        names: &[SocketAddr],
        kept: bool,
    ) -> Option<Vec<Datagram>> {
        let mut bytes = Vec::with_capacity(burst.total_bytes as usize);
        for part in &burst.parts {
            match *part {
                Part::Inline { start, len_bytes } => {
                    bytes.extend_from_slice(&burst.bytes[start as usize..][..len_bytes as usize]);
                }
                Part::Payload { op, offset_bytes, len_bytes } if op.0 & KIND != 0 => {
                    if kept && !ledger.memory.lives(op.0) {
                        return None;
                    }
                    let at = bytes.len();
                    bytes.resize(at + len_bytes as usize, 0);
                    let there = ledger.memory.payload(op.0, offset_bytes, &mut bytes[at..]);
                    if !there {
                        return None;
                    }
                }
                Part::Payload { op, offset_bytes, len_bytes } => {
                    if kept && ledger.sends[op.0 as usize].ended.is_some() {
                        return None;
                    }
                    ledger.judge_reading(self.app.life, op.0, offset_bytes, u64::from(len_bytes));
                    let at = bytes.len();
                    bytes.resize(at + len_bytes as usize, 0);
                    super::pattern::fill(op.0, offset_bytes, &mut bytes[at..]);
                }
            }
        }
        assert_eq!(bytes.len(), burst.total_bytes as usize, "the parts of {burst:?}");
        let Some(to) = names.iter().position(|n| *n == burst.to) else {
            // Only a forged greeting can have named a stranger.
            assert!(ledger.rules.forged, "{burst:?} goes to nobody");
            return None;
        };
        let info_path = burst.info_path && self.rng.chance(self.setup.habits.info_path);
        let datagrams = bytes.chunks(burst.segment_bytes as usize).map(|chunk| Datagram {
            from: self.app.life.node,
            to,
            path: burst.path,
            ecn: burst.ecn,
            stamped_at: 0,
            trimmed: false,
            info_path,
            may_fragment: burst.may_fragment,
            bytes: chunk.to_vec(),
            shared: self.share(ledger, burst),
        });
        let datagrams: Vec<_> = datagrams.collect();
        assert_eq!(datagrams.len(), burst.datagrams as usize, "datagrams of {burst:?}");
        Some(datagrams)
    }

    /// How a sealed datagram's payload is shared, if it is.
    fn share(&self, ledger: &Ledger, burst: &TxBurst) -> Option<Shared> {
        // Few bytes are copied beside the head, and their seal holds as it is.
        let [head, Part::Payload { op, len_bytes, .. }, seal] = burst.parts[..] else {
            return None;
        };
        if !burst.sealed {
            return None;
        }
        let life = self.app.life;
        let recalls = ledger.recalls.get(&life).copied().unwrap_or(0);
        let bytes = |part: Part| match part {
            Part::Inline { len_bytes, .. } | Part::Payload { len_bytes, .. } => len_bytes as usize,
        };
        assert_eq!((burst.datagrams, bytes(seal)), (1, SEAL_BYTES), "{burst:?}");
        let (start, len_bytes) = (bytes(head), len_bytes as usize);
        Some(Shared { life, token: op.0, recalls, start, len_bytes })
    }

    /// When the driver must run again.
    pub fn next_run(&self, now: Nanos, more_to_send: bool) -> Nanos {
        let Some(endpoint) = &self.endpoint else {
            return Nanos::MAX;
        };
        let soon = now + self.setup.habits.round_ns.max(1);
        let mut at = endpoint.poll_timeout().unwrap_or(Nanos::MAX).max(soon);
        if more_to_send {
            at = soon;
        }
        if !self.kept.is_empty() {
            at = self.port_blocked_until.max(soon);
        }
        if !self.inbox.is_empty() {
            at = soon;
        }
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
    let taken = endpoint.accept(msg, RecvToken(recv as u64), capacity_bytes, host);
    if !taken {
        let state = &mut host.ledger.recvs[recv].state;
        assert_eq!(*state, RecvState::Open, "a void message completed");
        *state = RecvState::Posted;
        host.ledger.open.remove(&recv);
    }
    taken
}
