//! The ledger of a run: its facts, and the judgement of every report that an engine makes.
//!
//! One ledger serves all endpoints, so it compares a report of one side with the facts of the other. A wrong report
//! panics: the caller prints the seed.

use super::memory::Memory;
use super::pattern;
use erd_rd::{Arrived, KeyMismatch, MsgRef, Nanos, OpError, PeerId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// One process: the node and the number of its restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Life {
    /// Index of the node.
    pub node: usize,
    /// 0 for its first process.
    pub incarnation: u32,
}

/// Parameters of a send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// Receiving node.
    pub to: usize,
    /// Payload length.
    pub len_bytes: u64,
    /// Low byte of the tag; the rest of the tag names the send.
    pub tag_class: Option<u8>,
    /// Carries completion data that names the send.
    pub data: bool,
    /// Ends only after the match.
    pub match_complete: bool,
}

/// A posted send and its outcome.
#[derive(Clone, Debug)]
pub struct Send {
    /// The sender.
    pub from: Life,
    /// Receiving node.
    pub to: usize,
    /// Its place among the sends of `from` to `to`.
    pub nth: usize,
    /// Payload length.
    pub len_bytes: u64,
    /// Tag on the wire.
    pub tag: Option<u64>,
    /// Completion data on the wire.
    pub data: Option<u64>,
    /// Ends only after the match.
    pub match_complete: bool,
    /// When it was posted.
    pub posted_at: Nanos,
    /// Time and outcome of its end.
    pub ended: Option<(Nanos, Result<(), OpError>)>,
    /// Process that has seen it arrive.
    pub arrived_at: Option<Life>,
    /// The receiver has all bytes, or does not want them.
    pub whole: bool,
    /// The receiver has matched or discarded it.
    pub matched: bool,
    /// Its process was killed before it ended.
    pub orphan: bool,
}

/// State of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvState {
    /// Waits for a message; the engine does not know it.
    Posted,
    /// The engine may place bytes.
    Open,
    /// Over.
    Done(Result<u64, OpError>),
}

/// A receive buffer, of the user or held for an unexpected message.
#[derive(Clone, Debug)]
pub struct Recv {
    /// Its process.
    pub owner: Life,
    /// Bytes that fit.
    pub capacity_bytes: u64,
    /// Contents; empty when `covered` is kept instead.
    bytes: Vec<u8>,
    /// For buffers too large to keep: the ranges placed so far, start to end.
    covered: Option<BTreeMap<u64, u64>>,
    /// The send that fills it, once known.
    pub send: Option<usize>,
    /// Peer that fills it.
    pub peer: Option<PeerId>,
    /// The engine's name of the message that fills it, once known.
    pub msg: Option<MsgRef>,
    /// See [`RecvState`].
    pub state: RecvState,
    /// Belongs to the driver, for a message that came unexpected or early.
    pub held: bool,
    /// Use of a held buffer when it is complete.
    pub forward: Option<Forward>,
}

/// See [`Recv::forward`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// This receive of the user gets it.
    To(usize),
    /// Nobody wants it.
    Drop,
}

/// The kinds of failure that a run may report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// Silence beyond the deadline is possible.
    pub timeouts: bool,
    /// Processes are killed.
    pub restarts: bool,
    /// Peers are closed or forgotten with operations outstanding.
    pub closes: bool,
    /// A path passes nothing large, not even in fragments.
    pub blocked: bool,
    /// Somebody without the job's key tells why a peer does not answer.
    pub lies: bool,
    /// Packets may be forged with valid checksums: only the callback contract is judged.
    pub forged: bool,
}

impl Rules {
    /// Whether an operation may fail like that. Refusals have rules of their own.
    pub fn allow(self, error: OpError) -> bool {
        self.forged
            || match error {
                OpError::PeerTimeout => self.timeouts || self.restarts,
                OpError::PeerUnreachable => self.restarts,
                OpError::PeerRestarted => self.restarts || self.timeouts,
                OpError::PeerClosed => self.closes || self.timeouts || self.restarts,
                OpError::Canceled => self.closes,
                OpError::PathBlocked => self.blocked,
                // The peer is silent beyond the deadline: the error has the reason that somebody told.
                OpError::PeerVersion(_) | OpError::PeerHasNoKey | OpError::KeysDiffer => {
                    self.lies && (self.timeouts || self.restarts)
                }
                OpError::BadBuffer | OpError::Refused(_) => false,
            }
    }
}

/// Messages of one session as its receiver saw them.
#[derive(Clone, Copy, Debug)]
struct Stream {
    from: Life,
    last_nth: usize,
}

/// The truth of one run.
#[derive(Debug, Default)]
pub struct Ledger {
    /// All sends; a [`erd_rd::SendToken`] is an index here.
    pub sends: Vec<Send>,
    /// All receive buffers; a [`erd_rd::RecvToken`] is an index here.
    pub recvs: Vec<Recv>,
    /// Requests to memory.
    pub memory: Memory,
    /// See [`Rules`].
    pub rules: Rules,
    /// Times that a port or an engine touched memory of an application, or told it of a packet's contents.
    pub touches: u64,
    /// Nodes whose process is dead, with the time of death.
    pub dead_since: BTreeMap<usize, Nanos>,
    /// Times in which a node's driver did not run: node, from, until.
    pub stalls: Vec<(usize, Nanos, Nanos)>,
    /// Within this time, sends to the dead end. 0 when nothing is known about it.
    pub deadline_ns: Nanos,
    /// Sends not ended, by process.
    pub outstanding: BTreeMap<Life, BTreeSet<usize>>,
    /// Sends in post order, by sender and receiving node.
    order: BTreeMap<(Life, usize), Vec<usize>>,
    streams: BTreeMap<(Life, PeerId, u32), Stream>,
    /// Next acceptable position, by sender and receiving node.
    next_nth: BTreeMap<(Life, usize), usize>,
    /// Sessions that were reported ended.
    pub ended_sessions: BTreeSet<(Life, PeerId, u32)>,
    /// Sends of a peer whose next one must name itself.
    named_next: BTreeSet<(Life, usize)>,
    /// Hellos that a process heard were refused for their key: the names in them, and why.
    pub refused: BTreeMap<Life, Vec<(SocketAddr, KeyMismatch)>>,
    /// Receives that the engine may place into.
    pub open: BTreeSet<usize>,
    /// Receives that met eager messages and were not reported to their user, in the order in which
    /// they met them.
    met: BTreeMap<(Life, PeerId), Vec<usize>>,
    /// Those of them that a later one overtook, since its peer's messages failed.
    overtaken: BTreeSet<usize>,
    /// Held buffers, complete, whose message's turn has not come.
    pub unclaimed: BTreeSet<usize>,
    /// Held buffers whose session or process ended before their message's turn; a sender may
    /// hear of them yet.
    gone: Vec<usize>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(rules: Rules) -> Ledger {
        Ledger { rules, ..Ledger::default() }
    }

    /// Notes a post. The first send of a process to a node, and the first after a failure,
    /// carries its name, so that a receiver's first message of a session is never anonymous.
    pub fn post(&mut self, now: Nanos, from: Life, out: &Outgoing) -> usize {
        let id = self.sends.len();
        let list = self.order.entry((from, out.to)).or_default();
        let must_name = list.is_empty() || self.named_next.remove(&(from, out.to));
        list.push(id);
        let nth = list.len() - 1;
        let tag = out.tag_class.map(|class| (id as u64) << 8 | u64::from(class));
        let data = (out.data || (must_name && tag.is_none())).then_some(!(id as u64));
        self.sends.push(Send {
            from,
            to: out.to,
            nth,
            len_bytes: out.len_bytes,
            tag,
            data,
            match_complete: out.match_complete,
            posted_at: now,
            ended: None,
            arrived_at: None,
            whole: false,
            matched: false,
            orphan: false,
        });
        self.outstanding.entry(from).or_default().insert(id);
        id
    }

    /// The next send of `life` to `node` begins a session.
    pub fn name_next(&mut self, life: Life, node: usize) {
        self.named_next.insert((life, node));
    }

    /// Takes back the newest post, which the engine refused.
    pub fn unpost(&mut self, id: usize) {
        assert_eq!(id + 1, self.sends.len());
        let send = self.sends.pop().unwrap();
        self.order.get_mut(&(send.from, send.to)).unwrap().pop();
        self.outstanding.get_mut(&send.from).unwrap().remove(&id);
        self.named_next.insert((send.from, send.to));
    }

    /// A new receive buffer.
    pub fn add_recv(&mut self, owner: Life, capacity_bytes: u64, held: bool) -> usize {
        self.recvs.push(Recv {
            owner,
            capacity_bytes,
            bytes: Vec::new(),
            covered: (capacity_bytes > 64 << 20).then(BTreeMap::new),
            send: None,
            peer: None,
            msg: None,
            state: RecvState::Posted,
            held,
            forward: None,
        });
        self.recvs.len() - 1
    }

    /// Hands a buffer to the engine.
    pub fn open_recv(&mut self, id: usize, peer: PeerId, msg: Option<MsgRef>, send: Option<usize>) {
        let recv = &mut self.recvs[id];
        assert_eq!(recv.state, RecvState::Posted, "receive {id} was handed out twice");
        recv.state = RecvState::Open;
        recv.peer = Some(peer);
        recv.msg = msg;
        recv.send = send;
        if recv.covered.is_none() {
            recv.bytes = vec![0; recv.capacity_bytes as usize];
        }
        self.open.insert(id);
    }

    /// Finds the send of an arrival. Judges that the messages of a sender arrive once and in order, all except those
    /// reported as failed.
    pub fn arrived(&mut self, life: Life, msg: &Arrived) -> Option<usize> {
        let key = (life, msg.msg.peer, msg.msg.session);
        assert!(
            !self.ended_sessions.contains(&key),
            "a message arrived in an ended session: {msg:?}"
        );
        if self.rules.forged {
            return None;
        }
        let named = msg.data.map(|d| !d).or(msg.tag.map(|t| t >> 8));
        let stream = self.streams.get(&key).copied();
        let id = match (stream, named) {
            (Some(s), _) => {
                let next = self.order[&(s.from, life.node)].get(s.last_nth + 1);
                *next.unwrap_or_else(|| panic!("a message nobody sent: {msg:?}"))
            }
            (None, Some(id)) => usize::try_from(id).unwrap(),
            (None, None) => panic!("a session starts in its middle: {msg:?}"),
        };
        let send = self.sends.get(id).unwrap_or_else(|| panic!("a message nobody sent: {msg:?}"));
        let same = (send.to, send.len_bytes, send.tag, send.data)
            == (life.node, msg.len_bytes, msg.tag, msg.data);
        assert!(same, "arrival {msg:?} is not send {id}, {send:?}");
        assert_eq!(send.arrived_at, None, "send {id} arrived twice: {msg:?}");
        let next = self.next_nth.entry((send.from, life.node)).or_default();
        assert!(*next <= send.nth, "send {id} arrived after a later one");
        for earlier in &self.order[&(send.from, life.node)][*next..send.nth] {
            let skipped = &self.sends[*earlier];
            let failed = skipped.orphan || matches!(skipped.ended, Some((_, Err(_))));
            let lost = self.rules != Rules::default() && skipped.ended.is_some();
            assert!(failed || lost, "send {earlier} was passed over by {id}: {skipped:?}");
        }
        *next = send.nth + 1;
        self.streams.insert(key, Stream { from: send.from, last_nth: send.nth });
        self.sends[id].arrived_at = Some(life);
        Some(id)
    }

    /// Judges the end of a send.
    pub fn sent(&mut self, now: Nanos, life: Life, id: usize, outcome: Result<(), OpError>) {
        let send = self.sends.get(id).unwrap_or_else(|| panic!("end of unknown send {id}"));
        assert_eq!(send.from, life, "send {id} ended at another's endpoint");
        assert_eq!(send.ended, None, "send {id} ended twice, now {outcome:?}");
        match outcome {
            Ok(()) => self.judge_success(id),
            Err(error) => {
                self.judge_failure(id, error);
                self.judge_deadline(now, id);
            }
        }
        let send = &mut self.sends[id];
        send.ended = Some((now, outcome));
        if outcome.is_err() {
            self.named_next.insert((life, send.to));
        }
        self.outstanding.get_mut(&life).unwrap().remove(&id);
    }

    fn judge_success(&self, id: usize) {
        if self.rules.forged {
            return;
        }
        let send = &self.sends[id];
        let held_early =
            send.arrived_at.is_none() && self.early_buffers().any(|r| self.holds(*r, send.to, id));
        let there = send.whole || held_early || (send.len_bytes == 0 && send.arrived_at.is_none());
        assert!(there, "send {id} reported done, but its bytes are not there: {send:?}");
        assert!(send.matched || !send.match_complete, "send {id} reported matched: {send:?}");
    }

    fn early_buffers(&self) -> impl Iterator<Item = &usize> {
        self.open.iter().chain(&self.unclaimed).chain(&self.gone)
    }

    fn holds(&self, recv: usize, node: usize, send: usize) -> bool {
        let (r, s) = (&self.recvs[recv], &self.sends[send]);
        r.held
            && r.msg.is_none()
            && r.owner.node == node
            && r.capacity_bytes == s.len_bytes
            && pattern::equal(send as u64, 0, &r.bytes)
    }

    fn judge_failure(&self, id: usize, error: OpError) {
        let allowed = self.rules.allow(error);
        assert!(allowed, "send {id} failed with {error:?}: {:?}", self.sends[id]);
    }

    /// A send to a dead peer ends by the deadline, unless its own driver did not run.
    fn judge_deadline(&self, now: Nanos, id: usize) {
        let send = &self.sends[id];
        let Some(died_at) = self.dead_since.get(&send.to) else {
            return;
        };
        let owed_since = send.posted_at.max(*died_at);
        let mut stalls = self.stalls.iter();
        let slept = stalls.any(|s| s.0 == send.from.node && s.1 < now && s.2 > owed_since);
        let in_time = self.deadline_ns == 0 || now - owed_since <= self.deadline_ns;
        assert!(slept || in_time, "send {id} ended {} ns after the peer's death", now - owed_since);
    }

    /// Judges and stores placed bytes.
    pub fn place(&mut self, life: Life, id: usize, offset_bytes: u64, bytes: &[u8]) {
        let recv = self.recvs.get_mut(id).unwrap_or_else(|| panic!("placed into unknown {id}"));
        assert_eq!(recv.owner, life, "receive {id} is another's");
        assert_eq!(recv.state, RecvState::Open, "bytes for receive {id} out of its time");
        if let Some(send) = recv.send.filter(|_| !self.rules.forged) {
            assert!(
                pattern::equal(send as u64, offset_bytes, bytes),
                "wrong bytes at {offset_bytes}+{} of send {send} into receive {id}",
                bytes.len()
            );
        }
        let end = recv.capacity_bytes.min(offset_bytes.saturating_add(bytes.len() as u64));
        if offset_bytes >= end {
            return;
        }
        if let Some(covered) = &mut recv.covered {
            cover(covered, offset_bytes, end);
        } else {
            let n = (end - offset_bytes) as usize;
            recv.bytes[offset_bytes as usize..][..n].copy_from_slice(&bytes[..n]);
        }
    }

    /// A port wrote wrong bytes into a place where it expected others: no harm, if none had been received there.
    pub fn scribble(&mut self, life: Life, id: usize, offset_bytes: u64, len_bytes: usize) {
        let recv = self.recvs.get_mut(id).unwrap_or_else(|| panic!("bytes expected for {id}"));
        assert_eq!(recv.owner, life, "receive {id} is another's");
        assert_eq!(recv.state, RecvState::Open, "bytes expected for receive {id} out of its time");
        let end = offset_bytes + len_bytes as u64;
        assert!(end <= recv.capacity_bytes, "bytes expected past the end of receive {id}");
        if let Some(covered) = &recv.covered {
            let free = is_free(covered, offset_bytes, end);
            assert!(free, "bytes expected at {offset_bytes} of receive {id}");
        } else {
            recv.bytes[offset_bytes as usize..end as usize].fill(0xa5);
        }
    }

    /// Judges the engine's end of a receive buffer; contents are judged when the send is known.
    pub fn received(&mut self, life: Life, id: usize, outcome: Result<u64, OpError>) {
        let recv = self.recvs.get_mut(id).unwrap_or_else(|| panic!("end of unknown receive {id}"));
        assert_eq!(recv.owner, life, "receive {id} is another's");
        assert_eq!(recv.state, RecvState::Open, "receive {id} ended out of its time: {outcome:?}");
        recv.state = RecvState::Done(outcome);
        self.open.remove(&id);
        match (outcome, recv.send) {
            (Ok(_), Some(_)) => {
                self.judge_contents(id);
                if !self.recvs[id].held {
                    self.recvs[id].bytes = Vec::new();
                }
            }
            (Ok(_), None) => {
                self.unclaimed.insert(id);
            }
            (Err(_), _) => {
                let may = self.rules != Rules::default();
                assert!(may, "receive {id} failed: {outcome:?}");
                self.give_up(id);
            }
        }
    }

    /// A receive met an eager message.
    pub fn met_eager(&mut self, life: Life, peer: PeerId, id: usize) {
        self.met.entry((life, peer)).or_default().push(id);
    }

    /// Judges that a user is told of receives of eager messages in the order in which these were
    /// matched, and before a failure of what the same peer sent. `peer` is the one of a receive that
    /// met an eager message.
    pub fn reported(&mut self, life: Life, peer: Option<PeerId>, id: usize) {
        let RecvState::Done(outcome) = self.recvs[id].state else {
            panic!("receive {id} was reported before its end");
        };
        let sender = peer.or(self.recvs[id].msg.map(|msg| msg.peer));
        let Some(list) = sender.and_then(|peer| self.met.get_mut(&(life, peer))) else { return };
        let at = list.iter().position(|other| *other == id);
        assert_eq!(at.is_some(), peer.is_some(), "receive {id} met no eager message, or was told");
        if let Some(at) = at {
            list.remove(at);
            if outcome.is_ok() {
                assert!(!self.overtaken.contains(&id), "receive {id} was overtaken by later ones");
                self.overtaken.extend(&list[..at]);
                let allowed = self.rules != Rules::default();
                assert!(at == 0 || allowed, "receive {id} was reported before {:?}", &list[..at]);
            }
        }
        if outcome.is_err() {
            let whole = |id: &&usize| matches!(self.recvs[**id].state, RecvState::Done(Ok(_)));
            let waits = list.iter().find(whole);
            assert_eq!(waits, None, "receive {id} failed before what is there was reported");
        }
    }

    /// The message of an early held buffer had its turn.
    pub fn claim(&mut self, id: usize, send: Option<usize>, msg: MsgRef) {
        let recv = &mut self.recvs[id];
        assert_eq!(recv.msg, None, "held buffer {id} named for two messages");
        assert_eq!(recv.peer, Some(msg.peer), "held buffer {id} is another peer's");
        recv.send = send;
        recv.msg = Some(msg);
        if self.unclaimed.remove(&id) && send.is_some() {
            self.judge_contents(id);
        }
    }

    fn judge_contents(&mut self, id: usize) {
        let recv = &self.recvs[id];
        let (Some(send_id), RecvState::Done(Ok(len_bytes))) = (recv.send, recv.state) else {
            return;
        };
        let send = &mut self.sends[send_id];
        if self.rules.forged {
            return;
        }
        assert_eq!(len_bytes, send.len_bytes, "receive {id} of send {send_id}: wrong length");
        let n = len_bytes.min(recv.capacity_bytes);
        let right = match &recv.covered {
            Some(covered) => n == 0 || covered.get(&0) == Some(&n),
            None => pattern::equal(send_id as u64, 0, &recv.bytes[..n as usize]),
        };
        assert!(right, "receive {id} completed without all bytes of send {send_id}");
        send.whole = true;
    }

    /// Copies a complete held buffer into the user's receive, as a driver does.
    pub fn deliver(&mut self, held: usize, user: usize) {
        let RecvState::Done(outcome) = self.recvs[held].state else {
            panic!("held buffer {held} is not complete");
        };
        let bytes = std::mem::take(&mut self.recvs[held].bytes);
        let to = &mut self.recvs[user];
        let n = bytes.len().min(to.capacity_bytes as usize);
        to.bytes = bytes[..n].to_vec();
        to.state = RecvState::Done(outcome);
        self.judge_contents(user);
        self.recvs[user].bytes = Vec::new();
    }

    /// Frees the contents of a buffer.
    pub fn drop_bytes(&mut self, id: usize) {
        self.recvs[id].bytes = Vec::new();
    }

    /// A process was killed: its operations are void.
    pub fn killed(&mut self, life: Life) {
        self.memory.killed(life);
        self.met.retain(|(owner, _), _| *owner != life);
        for id in self.outstanding.remove(&life).unwrap_or_default() {
            self.sends[id].orphan = true;
        }
        let dead = |recvs: &Vec<Recv>, id: &usize| recvs[*id].owner == life;
        for id in self.open.iter().filter(|id| dead(&self.recvs, id)).copied().collect::<Vec<_>>() {
            self.recvs[id].state = RecvState::Done(Err(OpError::Canceled));
            self.give_up(id);
            self.open.remove(&id);
        }
        let (dead, alive): (BTreeSet<_>, _) =
            self.unclaimed.iter().partition(|id| self.recvs[**id].owner == life);
        self.unclaimed = alive;
        self.gone.extend(dead);
    }

    /// The buffer's contents reach no user.
    fn give_up(&mut self, id: usize) {
        let recv = &mut self.recvs[id];
        if recv.held && recv.msg.is_none() {
            self.gone.push(id);
        } else {
            recv.bytes = Vec::new();
        }
    }

    /// Judges a session's end after the engine call that reported it: everything that the
    /// session was filling has ended.
    pub fn judge_session_end(&self, life: Life, peer: PeerId, session: u32) {
        for id in &self.open {
            let recv = &self.recvs[*id];
            let named = recv.msg.is_some_and(|m| m.peer == peer && m.session == session);
            let of_it = recv.owner == life && named;
            assert!(!of_it, "receive {id} is still open after its session ended: {recv:?}");
        }
        let of_it = |id: &&usize| self.recvs[**id].msg.is_some_and(|msg| msg.session == session);
        let untold = self.met.get(&(life, peer)).into_iter().flatten().find(of_it);
        assert_eq!(untold, None, "a receive was not reported by the end of its session");
    }

    /// Early held buffers of `peer` are void: their session ended before their turn.
    pub fn drop_unclaimed(&mut self, life: Life, peer: PeerId) {
        let (recvs, gone) = (&self.recvs, &mut self.gone);
        self.unclaimed.retain(|id| {
            let void = recvs[*id].owner == life && recvs[*id].peer == Some(peer);
            gone.extend(void.then_some(*id));
            !void
        });
    }

    /// Judges that the engine reads the payload of a live send of `life`, inside its bounds.
    pub fn judge_reading(&self, life: Life, id: u64, offset_bytes: u64, len_bytes: u64) {
        let send = self.sends.get(id as usize).unwrap_or_else(|| panic!("read of unknown {id}"));
        assert_eq!(send.from, life, "send {id} is another's");
        assert_eq!(send.ended, None, "send {id} was read after its end");
        let end = offset_bytes.checked_add(len_bytes);
        assert!(end.is_some_and(|e| e <= send.len_bytes), "send {id} was read past its end");
    }

    /// Operations of a process that have not ended.
    pub fn outstanding_of(&self, life: Life) -> usize {
        self.outstanding.get(&life).map_or(0, BTreeSet::len)
            + self.memory.outstanding.get(&life).map_or(0, BTreeSet::len)
    }

    /// Sends that ended in error.
    pub fn failures(&self) -> u64 {
        self.sends.iter().filter(|s| matches!(s.ended, Some((_, Err(_))))).count() as u64
    }

    /// Judges the books when everything has ended: without failures allowed, every send has
    /// reached its receiver, and no buffer is left open.
    pub fn judge_end(&self) {
        self.memory.judge_end(self.rules);
        if self.rules != Rules::default() {
            return;
        }
        for (id, send) in self.sends.iter().enumerate() {
            assert!(send.whole && send.matched, "send {id} never reached its receiver: {send:?}");
        }
        assert!(self.open.is_empty() && self.unclaimed.is_empty(), "buffers are left open");
        assert!(self.met.values().all(Vec::is_empty), "receives were not reported: {:?}", self.met);
    }

    /// Sends of living processes that have not ended.
    pub fn unfinished(&self) -> Vec<usize> {
        self.outstanding.values().flatten().copied().collect()
    }
}

/// None of these bytes came.
pub fn is_free(covered: &BTreeMap<u64, u64>, start: u64, end: u64) -> bool {
    covered.range(..end).next_back().is_none_or(|(_, to)| *to <= start)
}

/// Adds the range `start..end` to disjoint, merged ranges.
pub fn cover(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let (mut start, mut end) = (start, end);
    while let Some((s, e)) = ranges.range(..=end).next_back().map(|(s, e)| (*s, *e)) {
        if e < start {
            break;
        }
        ranges.remove(&s);
        (start, end) = (start.min(s), end.max(e));
    }
    ranges.insert(start, end);
}
