//! The driver's side of an endpoint: receives, matching, held messages. Deliberately simple and apart from the
//! library's own matching, so that the two can be compared.

use super::ledger::{Forward, Ledger, Life, RecvState};
use super::memory::{ASK, KIND, SERVED};
use super::node::Setup;
use super::pattern;
use super::port::Wire;
use super::record::{Access, Arrival, Met, Pen, What};
use super::rng::Rng;
use erd_port::local::{self, Lanes, LinkId};
use erd_rd::match_order::{MatchOrder, Place};
use erd_rd::{
    Arrived, Atomic, EndReason, Host, KeyMismatch, Lane, MESSAGE_COST_BYTES, MsgRef, Nanos,
    ORDERS_LEAST, OpError, Operand, Payload, PeerId, Put, RecvToken, Refusal, Remote, SendToken,
    Verdict,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Messages that a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Untagged ones.
    Untagged,
    /// Tagged ones with this low byte.
    Tag(u8),
    /// Any tagged one.
    AnyTag,
}

impl Class {
    /// The class of a message with this tag.
    pub fn of(tag: Option<u64>) -> Class {
        tag.map_or(Class::Untagged, |t| Class::Tag(t as u8))
    }

    fn takes(self, tag: Option<u64>) -> bool {
        match self {
            Class::Untagged => tag.is_none(),
            Class::Tag(class) => tag.is_some_and(|t| t as u8 == class),
            Class::AnyTag => tag.is_some(),
        }
    }
}

/// Messages with this tag class are discarded on arrival.
pub const DISCARDED_CLASS: u8 = 0xff;

/// A receive that waits for its message.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    /// Its buffer in the ledger.
    pub recv: usize,
    /// Only from this peer.
    pub source: Option<PeerId>,
    /// Only these messages.
    pub class: Class,
}

/// A message that waits for its receive.
#[derive(Clone, Copy, Debug)]
pub struct Unexpected {
    /// The engine's name for it.
    pub msg: MsgRef,
    /// Its send in the ledger.
    pub send: Option<usize>,
    /// The buffer that holds it, unless it waits at its sender.
    pub held: Option<usize>,
    /// Its tag.
    pub tag: Option<u64>,
}

/// News for the engine, after the call in which it came up.
#[derive(Clone, Copy, Debug)]
pub enum Deferred {
    /// An eager message was consumed.
    Release(MsgRef),
    /// A directed receive ended.
    Unwatch(PeerId),
    /// Judge that nothing of this session is left.
    SessionEnded(PeerId, u32),
    /// The memory behind an answer goes.
    Withdraw(SendToken),
}

/// Unexpected bytes and messages of one peer's session.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    bytes: u64,
    messages: u64,
}

/// Limits that the host checks the engine against, and its own random failures.
#[derive(Clone, Copy, Debug)]
pub struct HostLimits {
    /// [`erd_rd::Config::eager_credit_bytes`].
    pub eager_credit_bytes: u64,
    /// [`erd_rd::Config::unexpected_messages`].
    pub unexpected_messages: u64,
    /// [`erd_rd::Config::unexpected_bytes`].
    pub unexpected_bytes: u64,
    /// Chance that the host has no buffer, or no memory for a message.
    pub hold_refusal: f64,
    /// Chance that the memory behind an answer goes soon.
    pub withdrawal: f64,
    /// Answer to [`Host::datagram_limit_bytes`].
    pub datagram_limit_bytes: u16,
    /// Nodes on the same host, a bit for each.
    pub near: u64,
    /// Answer to [`Host::datagram_limit_bytes`] for these.
    pub near_limit_bytes: u16,
}

impl HostLimits {
    /// Answer to [`Host::is_near`].
    pub fn is_near(&self, name: SocketAddr) -> bool {
        let last = match name.ip() {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(ip) => ip.octets()[15],
        };
        // Nodes count from 1 there. Others than these are strangers.
        self.near.checked_shr(u32::from(last).wrapping_sub(1)).is_some_and(|bits| bits & 1 != 0)
    }

    /// The largest datagram that leaves for `name`.
    pub fn limit_bytes(&self, name: SocketAddr) -> u16 {
        if self.is_near(name) { self.near_limit_bytes } else { self.datagram_limit_bytes }
    }

    fn judge(&self, bytes: u64, messages: u64) {
        assert!(bytes <= self.eager_credit_bytes, "{bytes} eager bytes wait: {self:?}");
        assert!(messages <= self.unexpected_messages, "{messages} messages wait: {self:?}");
    }
}

/// One process's receives and messages.
pub struct App {
    /// Shared memory with nodes of the same host.
    pub lanes: Option<Box<dyn Lanes>>,
    /// Which process.
    pub life: Life,
    /// Receives that wait, in post order.
    pub posted: VecDeque<Posted>,
    /// Messages that wait, in order of arrival.
    pub unexpected: VecDeque<Unexpected>,
    /// True to take every message that finds no receive.
    pub drain: bool,
    /// See [`Deferred`].
    pub deferred: VecDeque<Deferred>,
    /// Answers whose memory goes, each after so many more calls.
    pub leaving: Vec<(u64, SendToken)>,
    /// Order of reports of eager messages: the library's own.
    order: MatchOrder<usize>,
    /// The places of these receives in it.
    places: BTreeMap<usize, (PeerId, Place)>,
    /// Peers seen in arrivals and the node each must be.
    pub seen: BTreeMap<PeerId, usize>,
    /// See [`HostLimits`].
    pub limits: HostLimits,
    accounts: BTreeMap<(PeerId, u32), Account>,
    early: BTreeMap<PeerId, Account>,
    rng: Rng,
    /// Bursts may wait at the port while their operations end.
    pub keeps: bool,
    /// Writes what the engine tells.
    pub pen: Pen,
    /// Memory that the port writes expected payload to. It is not the receive's own memory: the bytes of that count
    /// only after the engine has placed them.
    landings: Vec<Vec<u8>>,
    /// Payloads that the port reads in this step.
    lent: RefCell<Vec<Vec<u8>>>,
    /// When there is no memory; apart, so that the rest of a seed is the same with and without it.
    shortage: Rng,
}

impl App {
    /// A process with nothing posted.
    pub fn new(life: Life, limits: HostLimits, rng: Rng) -> App {
        App {
            lanes: None,
            life,
            posted: VecDeque::new(),
            unexpected: VecDeque::new(),
            drain: false,
            deferred: VecDeque::new(),
            leaving: Vec::new(),
            order: MatchOrder::default(),
            places: BTreeMap::new(),
            seen: BTreeMap::new(),
            limits,
            accounts: BTreeMap::new(),
            early: BTreeMap::new(),
            keeps: false,
            pen: Pen::default(),
            landings: Vec::new(),
            lent: RefCell::default(),
            shortage: Rng::new(rng.clone().bits(), 12),
            rng,
        }
    }

    /// [`Host::hold`] always has a buffer from now on.
    pub fn stop_refusing(&mut self) {
        self.limits.hold_refusal = 0.0;
        self.limits.withdrawal = 0.0;
    }

    fn take_posted(&mut self, peer: PeerId, tag: Option<u64>) -> Option<Posted> {
        let fits = |p: &Posted| p.source.is_none_or(|s| s == peer) && p.class.takes(tag);
        let at = self.posted.iter().position(fits)?;
        let posted = self.posted.remove(at)?;
        if posted.source.is_some() {
            self.deferred.push_back(Deferred::Unwatch(peer));
        }
        Some(posted)
    }

    /// The first waiting message that a receive takes.
    pub fn take_unexpected(&mut self, source: Option<PeerId>, class: Class) -> Option<Unexpected> {
        let fits = |u: &Unexpected| source.is_none_or(|s| s == u.msg.peer) && class.takes(u.tag);
        let at = self.unexpected.iter().position(fits)?;
        self.unexpected.remove(at)
    }

    fn wait(&mut self, arrived: &Arrived, send: Option<usize>, held: Option<usize>) {
        self.unexpected.push_back(Unexpected { msg: arrived.msg, tag: arrived.tag, send, held });
    }

    /// Counts a waiting message of `msg`'s session and judges that the engine keeps the limits.
    fn charge(&mut self, msg: &MsgRef, bytes: u64) {
        let early = self.early.get(&msg.peer).copied().unwrap_or_default();
        let account = self.accounts.entry((msg.peer, msg.session)).or_default();
        account.bytes += bytes;
        account.messages += 1;
        self.limits.judge(account.bytes + early.bytes, account.messages + early.messages);
        self.judge_budget();
    }

    fn charge_early(&mut self, peer: PeerId, bytes: u64) {
        let account = self.early.entry(peer).or_default();
        account.bytes += bytes;
        account.messages += 1;
        self.limits.judge(account.bytes, account.messages);
        self.judge_budget();
    }

    /// Judges that the waiting messages of all sessions together, including ended ones, keep within the budget.
    fn judge_budget(&self) {
        let cost = |account: &Account| {
            let charged = account.messages.saturating_sub(ORDERS_LEAST.into());
            account.bytes + charged * u64::from(MESSAGE_COST_BYTES)
        };
        let waiting = self.accounts.values().map(cost).sum::<u64>();
        let early = self.early.values().map(|account| account.bytes).sum::<u64>();
        let (sum, most) = (waiting + early, self.limits.unexpected_bytes);
        assert!(sum <= most, "{sum} bytes wait in a budget of {most}: {:?}", self.accounts);
    }

    fn uncharge_early(&mut self, peer: PeerId, bytes: u64) {
        let account = self.early.get_mut(&peer).expect("a held buffer was charged");
        account.bytes -= bytes;
        account.messages -= 1;
    }

    /// Drops the waiting rendezvous messages of an ended session.
    fn forget_rendezvous(&mut self, peer: PeerId, session: u32) {
        let of_it = |u: &Unexpected| u.msg.peer == peer && u.msg.session == session;
        let before = self.unexpected.len();
        self.unexpected.retain(|u| u.held.is_some() || !of_it(u));
        if let Some(account) = self.accounts.get_mut(&(peer, session)) {
            account.messages -= (before - self.unexpected.len()) as u64;
        }
    }

    /// Takes back the receives that only `peer` could have filled.
    fn take_directed(&mut self, peer: PeerId) -> Vec<usize> {
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.posted.drain(..).partition(|p| p.source == Some(peer));
        self.posted = kept.into();
        self.deferred.extend(gone.iter().map(|_| Deferred::Unwatch(peer)));
        gone.iter().map(|p| p.recv).collect()
    }

    /// One call to the engine is over.
    pub fn next_call(&mut self) {
        for (calls, _) in &mut self.leaving {
            *calls -= 1;
        }
        let gone = self.leaving.extract_if(.., |(calls, _)| *calls == 0);
        self.deferred.extend(gone.map(|(_, token)| Deferred::Withdraw(token)));
    }

    /// Memory for the port to write to until the step ends.
    pub fn place(&mut self, len_bytes: usize) -> *mut u8 {
        let mut place = Vec::with_capacity(len_bytes);
        let at = place.as_mut_ptr();
        self.landings.push(place);
        at
    }

    /// The port reads these bytes in this step.
    pub fn lend(&self, payload: Vec<u8>) {
        self.lent.borrow_mut().push(payload);
    }

    /// Frees the memory that the port used in a step.
    pub fn forget_lent(&mut self) {
        self.landings.clear();
        self.lent.get_mut().clear();
    }

    /// The message no longer waits.
    pub fn discharge(&mut self, msg: &MsgRef, held_bytes: u64) {
        if let Some(account) = self.accounts.get_mut(&(msg.peer, msg.session)) {
            account.bytes -= held_bytes;
            account.messages -= 1;
        }
    }
}

/// The host as the engine sees it during one call.
pub struct View<'a> {
    /// The process.
    pub app: &'a mut App,
    /// The ledger of facts.
    pub ledger: &'a mut Ledger,
    /// The node's set-up.
    pub setup: &'a Setup,
    /// The datagrams and errors between its ports and the network.
    pub wire: &'a RefCell<Wire>,
    /// Time of the call.
    pub now: Nanos,
}

impl View<'_> {
    /// The user's receive `user` (or nobody) gets the message of the held buffer, now or when it
    /// is complete.
    pub fn consume_held(&mut self, msg: MsgRef, held: usize, to: Forward) {
        if let Forward::To(user) = to {
            self.take_place(user, msg.peer);
            let send = self.ledger.recvs[held].send;
            self.ledger.recvs[user].send = send;
            self.ledger.recvs[user].state = RecvState::Open;
        }
        self.ledger.recvs[held].forward = Some(to);
        if matches!(self.ledger.recvs[held].state, RecvState::Done(Ok(_))) {
            self.held_complete(msg, held);
        }
    }

    /// The user's receive has met an eager message.
    fn take_place(&mut self, user: usize, peer: PeerId) {
        let place = self.app.order.matched(peer.index, user);
        self.app.places.insert(user, (peer, place));
        self.ledger.met_eager(self.app.life, peer, user);
    }

    /// A receive of the user has all its bytes, or will not: it is reported in its turn, as a
    /// driver does.
    fn user_ended(&mut self, user: usize) {
        let whole = matches!(self.ledger.recvs[user].state, RecvState::Done(Ok(_)));
        let peer = self.ledger.recvs[user].msg.map(|msg| msg.peer);
        match self.app.places.get(&user).copied() {
            Some((peer, place)) if whole => {
                self.app.order.ended(place);
                while let Some(next) = self.app.order.next(peer.index) {
                    self.report(next);
                }
            }
            _ if whole => self.report(user),
            met => {
                if let Some(peer) = met.map(|(peer, _)| peer).or(peer) {
                    while let Some(whole) = self.app.order.whole(peer.index) {
                        self.report(whole);
                    }
                }
                if let Some((_, place)) = met {
                    self.app.order.failed(place);
                }
                self.report(user);
            }
        }
    }

    fn report(&mut self, user: usize) {
        let peer = self.app.places.remove(&user).map(|(peer, _)| peer);
        self.ledger.reported(self.app.life, peer, user);
    }

    /// Notes that a message met its receive, or that nobody wants it.
    pub fn mark_matched(&mut self, send: Option<usize>) {
        if let Some(send) = send {
            self.ledger.sends[send].matched = true;
        }
    }

    /// Fails the receives that only `peer` could have filled.
    pub fn fail_directed(&mut self, peer: PeerId, error: OpError) {
        for recv in self.app.take_directed(peer) {
            self.ledger.recvs[recv].state = RecvState::Done(Err(error));
        }
    }

    fn mark_unwanted(&mut self, send: Option<usize>) {
        self.mark_matched(send);
        if let Some(send) = send {
            self.ledger.sends[send].whole = true;
        }
    }

    fn match_posted(&mut self, arrived: &Arrived) -> Option<usize> {
        let found = self.app.take_posted(arrived.msg.peer, arrived.tag);
        if found.is_some() || !self.app.drain {
            return found.map(|p| p.recv);
        }
        let missing =
            self.app.rng.below(2) * self.app.rng.below(arrived.len_bytes.saturating_add(1));
        Some(self.ledger.add_recv(self.app.life, arrived.len_bytes - missing, false))
    }

    fn held_complete(&mut self, msg: MsgRef, held: usize) {
        match self.ledger.recvs[held].forward {
            Some(Forward::To(user)) => {
                self.ledger.deliver(held, user);
                self.user_ended(user);
            }
            Some(Forward::Drop) => self.ledger.drop_bytes(held),
            None => return,
        }
        self.app.discharge(&msg, self.ledger.recvs[held].capacity_bytes);
        self.app.deferred.push_back(Deferred::Release(msg));
    }

    fn held_failed(&mut self, held: usize) {
        let recv = &self.ledger.recvs[held];
        let (state, capacity_bytes, msg) = (recv.state, recv.capacity_bytes, recv.msg);
        if let Some(Forward::To(user)) = recv.forward {
            self.ledger.recvs[user].state = state;
            self.user_ended(user);
        }
        if let Some(msg) = msg {
            self.app.discharge(&msg, capacity_bytes);
        }
        self.app.unexpected.retain(|u| u.held != Some(held));
    }

    /// The answer to a message whose turn has come.
    fn judge(&mut self, arrived: &Arrived) -> Verdict {
        self.ledger.touches += 1;
        let (life, msg) = (self.app.life, arrived.msg);
        if self.app.shortage.chance(self.app.limits.hold_refusal) {
            return Verdict::NoBuffer;
        }
        let send = self.ledger.arrived(life, arrived);
        if let Some(send) = send {
            let node = self.ledger.sends[send].from.node;
            let known = *self.app.seen.entry(msg.peer).or_insert(node);
            assert_eq!(known, node, "{:?} names two peers", msg.peer);
        }
        if let Some(held) = arrived.held {
            return self.arrived_held(arrived, held.0 as usize, send);
        }
        if discarded(arrived.tag) {
            self.mark_unwanted(send);
            return Verdict::Discard;
        }
        if let Some(user) = self.match_posted(arrived) {
            self.mark_matched(send);
            self.ledger.open_recv(user, msg.peer, Some(msg), send);
            if !arrived.rendezvous {
                self.take_place(user, msg.peer);
            }
            return Verdict::Matched(
                RecvToken(user as u64),
                self.ledger.recvs[user].capacity_bytes,
            );
        }
        if arrived.rendezvous {
            self.app.charge(&msg, 0);
            self.app.wait(arrived, send, None);
            return Verdict::Wait;
        }
        let held = self.ledger.add_recv(life, arrived.len_bytes, true);
        self.ledger.open_recv(held, msg.peer, Some(msg), send);
        self.app.charge(&msg, arrived.len_bytes);
        self.app.wait(arrived, send, Some(held));
        Verdict::Held(RecvToken(held as u64))
    }

    /// An eager message whose payload came before its turn.
    fn arrived_held(&mut self, arrived: &Arrived, held: usize, send: Option<usize>) -> Verdict {
        let msg = arrived.msg;
        self.ledger.claim(held, send, msg);
        self.app.uncharge_early(msg.peer, self.ledger.recvs[held].capacity_bytes);
        self.app.charge(&msg, self.ledger.recvs[held].capacity_bytes);
        if discarded(arrived.tag) {
            self.mark_unwanted(send);
            self.consume_held(msg, held, Forward::Drop);
        } else if let Some(user) = self.match_posted(arrived) {
            self.mark_matched(send);
            self.consume_held(msg, held, Forward::To(user));
            return Verdict::Matched(
                RecvToken(user as u64),
                self.ledger.recvs[user].capacity_bytes,
            );
        } else {
            self.app.wait(arrived, send, Some(held));
        }
        Verdict::Wait
    }
}

impl View<'_> {
    fn meet(
        &mut self,
        remote: &Remote,
        access: Access,
        operand: Operand<'_>,
    ) -> Result<usize, Refusal> {
        self.ledger.touches += 1;
        let atomic = match access {
            Access::Atomic(atomic) => Some(atomic),
            Access::Write | Access::Read => None,
        };
        let rules = self.ledger.rules;
        let met = self.ledger.memory.meet(self.app.life, remote, atomic, rules);
        if met.is_err() {
            self.ledger.memory.take(operand);
        }
        self.app.pen.note(self.now, || {
            What::Met(Met {
                peer: remote.peer.into(),
                access,
                len_bytes: remote.targets.len_bytes(),
                data: remote.data,
                refusal: met.err(),
            })
        });
        met
    }
}

fn discarded(tag: Option<u64>) -> bool {
    tag.is_some_and(|t| t as u8 == DISCARDED_CLASS)
}

impl Host for View<'_> {
    fn read(&mut self, op: SendToken, offset_bytes: u64, out: &mut [u8]) {
        if op.0 & KIND != 0 {
            self.ledger.memory.payload(op.0, offset_bytes, out);
            return;
        }
        self.ledger.judge_reading(self.app.life, op.0, offset_bytes, out.len() as u64);
        pattern::fill(op.0, offset_bytes, out);
    }

    fn checksum(&mut self, op: SendToken, offset_bytes: u64, len_bytes: u32, seed: u32) -> u32 {
        if op.0 & KIND != 0 {
            let mut bytes = vec![0; len_bytes as usize];
            self.ledger.memory.payload(op.0, offset_bytes, &mut bytes);
            return crc32c::crc32c_append(seed, &bytes);
        }
        self.ledger.judge_reading(self.app.life, op.0, offset_bytes, u64::from(len_bytes));
        pattern::checksum(op.0, offset_bytes, len_bytes, seed)
    }

    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>) {
        self.ledger.touches += 1;
        self.app.pen.note(self.now, || What::Sent { token: op, outcome });
        let rules = self.ledger.rules;
        match op.0 & KIND {
            0 => {}
            ASK => {
                let (id, life) = ((op.0 & !KIND) as usize, self.app.life);
                let allowed = |error| rules.allow(error);
                self.ledger.memory.ended(life, id, outcome, allowed, rules);
                if outcome.is_err_and(|error| !matches!(error, OpError::Refused(_))) {
                    let node = self.ledger.memory.asked[id].plan.to;
                    self.ledger.name_next(life, node);
                }
                return;
            }
            _ => return self.ledger.memory.void(op.0),
        }
        self.ledger.sent(self.now, self.app.life, op.0 as usize, outcome);
    }

    fn arrived(&mut self, arrived: &Arrived) -> Verdict {
        let verdict = self.judge(arrived);
        let &Arrived { msg, tag, data, len_bytes, rendezvous, .. } = arrived;
        self.app.pen.note(self.now, || {
            let msg = (&msg).into();
            What::Arrived(Box::new(Arrival { msg, tag, data, len_bytes, rendezvous, verdict }))
        });
        verdict
    }

    fn hold(&mut self, peer: PeerId, len_bytes: u64) -> Option<RecvToken> {
        self.ledger.touches += 1;
        if self.app.rng.chance(self.app.limits.hold_refusal) {
            return None;
        }
        self.app.charge_early(peer, len_bytes);
        let held = self.ledger.add_recv(self.app.life, len_bytes, true);
        self.ledger.open_recv(held, peer, None, None);
        Some(RecvToken(held as u64))
    }

    fn place(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]) {
        self.ledger.touches += 1;
        if to.0 & KIND != 0 {
            let rules = self.ledger.rules;
            self.ledger.memory.place(self.app.life, to.0, offset_bytes, bytes, rules);
            return;
        }
        self.ledger.place(self.app.life, to.0 as usize, offset_bytes, bytes);
    }

    fn received(&mut self, to: RecvToken, outcome: Result<u64, OpError>) {
        self.ledger.touches += 1;
        self.app.pen.note(self.now, || What::Received { token: to, outcome });
        if to.0 & KIND != 0 {
            let error = outcome.expect_err("requests end otherwise");
            assert!(self.ledger.rules.allow(error), "a write under way failed with {error:?}");
            return self.ledger.memory.void(to.0);
        }
        let id = to.0 as usize;
        self.ledger.received(self.app.life, id, outcome);
        let recv = &self.ledger.recvs[id];
        if !recv.held {
            return self.user_ended(id);
        }
        match (outcome, recv.msg) {
            (Ok(_), Some(msg)) => self.held_complete(msg, id),
            (Ok(_), None) => {}
            (Err(_), _) => self.held_failed(id),
        }
    }

    fn session_ended(&mut self, peer: PeerId, session: u32, reason: EndReason) {
        self.ledger.touches += 1;
        self.app.pen.note(self.now, || What::Ended { peer: peer.into(), session, reason });
        let life = self.app.life;
        let fresh = self.ledger.ended_sessions.insert((life, peer, session));
        assert!(fresh, "session {session} of {peer:?} ended twice");
        self.ledger.drop_unclaimed(life, peer);
        if let Some(node) = self.app.seen.get(&peer) {
            self.ledger.name_next(life, *node);
        }
        self.app.early.remove(&peer);
        self.app.forget_rendezvous(peer, session);
        self.app.deferred.push_back(Deferred::SessionEnded(peer, session));
        if let EndReason::Failed(error) = reason {
            self.fail_directed(peer, error);
        }
    }

    fn datagram_limit_bytes(&mut self, name: SocketAddr) -> u16 {
        self.app.limits.limit_bytes(name)
    }

    fn refused(&mut self, _: Nanos, name: SocketAddr, _: SocketAddr, why: KeyMismatch) {
        self.ledger.refused.entry(self.app.life).or_default().push((name, why));
    }

    fn is_near(&mut self, name: SocketAddr) -> bool {
        self.app.limits.is_near(name)
    }

    fn has_room(&mut self, _: usize) -> bool {
        let has_room = !self.app.shortage.chance(self.app.limits.hold_refusal);
        if !has_room {
            self.app.pen.note(self.now, || What::NoRoom);
        }
        has_room
    }

    fn keep(&mut self, _: PeerId, len_bytes: u64) -> Option<RecvToken> {
        self.ledger.touches += 1;
        if self.app.rng.chance(self.app.limits.hold_refusal) {
            return None;
        }
        Some(RecvToken(self.ledger.memory.keep(len_bytes)))
    }

    fn reach(&mut self, now: Nanos, name: SocketAddr) -> erd_rd::Reach {
        match self.app.lanes.as_mut().map(|lanes| lanes.reach(name, now)) {
            None | Some(local::Reach::None) => erd_rd::Reach::Datagrams,
            Some(local::Reach::Asked) => erd_rd::Reach::Asked,
            Some(local::Reach::Link(link)) => erd_rd::Reach::Lane(Lane(link.number())),
        }
    }

    fn put(&mut self, lane: Lane, kind: u8, head: &[u8], payload: Option<Payload>) -> Put {
        let mut entry = head.to_vec();
        if let Some(Payload::Bytes { op, offset_bytes, len_bytes }) = payload {
            self.append(op, offset_bytes, len_bytes, &mut entry);
        }
        let Some(lanes) = &mut self.app.lanes else { return Put::Gone };
        let link = LinkId::numbered(lane.0);
        match lanes.put(link, kind, entry.len(), &mut |write| write(&entry)) {
            Some(Ok(written)) => Put::Taken(written),
            Some(Err(_)) => {
                lanes.starve(link);
                Put::Full
            }
            None => Put::Gone,
        }
    }

    fn read_by_peer(&mut self, lane: Lane) -> Option<u64> {
        self.app.lanes.as_mut()?.read_by_peer(LinkId::numbered(lane.0))
    }

    fn has_entries(&mut self, lane: Lane) -> bool {
        let lanes = self.app.lanes.as_mut();
        lanes.is_some_and(|lanes| lanes.has_entries(LinkId::numbered(lane.0)))
    }

    fn starve(&mut self, lane: Lane) {
        self.app.lanes.iter_mut().for_each(|lanes| lanes.starve(LinkId::numbered(lane.0)));
    }

    fn break_off(&mut self, lane: Lane) {
        self.app.lanes.iter_mut().for_each(|lanes| lanes.close(LinkId::numbered(lane.0)));
    }

    fn remote_write(&mut self, to: &Remote, bytes: Operand<'_>) -> Result<(), Refusal> {
        let id = self.meet(to, Access::Write, bytes)?;
        self.ledger.memory.write(self.app.life, id, bytes);
        Ok(())
    }

    fn remote_write_later(&mut self, to: &Remote) -> Result<RecvToken, Refusal> {
        let id = self.meet(to, Access::Write, Operand::Here(&[]))?;
        Ok(RecvToken(self.ledger.memory.serve(self.app.life, id, to)))
    }

    fn remote_written(&mut self, to: RecvToken) -> Result<(), Refusal> {
        self.ledger.touches += 1;
        let rules = self.ledger.rules;
        self.ledger.memory.written(to.0, rules);
        Ok(())
    }

    fn remote_read(&mut self, from: &Remote) -> Result<SendToken, Refusal> {
        let id = self.meet(from, Access::Read, Operand::Here(&[]))?;
        let token = SendToken(self.ledger.memory.serve(self.app.life, id, from));
        if self.app.rng.chance(self.app.limits.withdrawal) {
            let calls = self.app.rng.log_range(1, 100);
            self.app.leaving.push((calls, token));
        }
        Ok(token)
    }

    fn remote_update(
        &mut self,
        at: &Remote,
        atomic: Atomic,
        operand: Operand<'_>,
    ) -> Result<(), Refusal> {
        let id = self.meet(at, Access::Atomic(atomic), operand)?;
        self.ledger.memory.change(self.app.life, id, atomic, operand);
        Ok(())
    }

    fn remote_fetch(
        &mut self,
        at: &Remote,
        atomic: Atomic,
        operand: Operand<'_>,
    ) -> Result<SendToken, Refusal> {
        let id = self.meet(at, Access::Atomic(atomic), operand)?;
        self.ledger.memory.change(self.app.life, id, atomic, operand);
        let token = self.ledger.memory.serve(self.app.life, id, at);
        debug_assert_eq!(token & KIND, SERVED);
        Ok(SendToken(token))
    }
}
