//! Data, acknowledgements and operations between a process and one peer.

use super::wire::{
    self, Access, Ack, Body, Carried, Data, Header, Message, PacketRead, RecordRead, State,
};
use super::{Judged, Node, Validator};
use crate::flow::AckState;
use crate::packet::Id;
use crate::peer::{Peer, Phase};
use crate::rules::Rule;
use erd_rd::{OpError, SendToken};
use erd_world::record::{Arrival, Kind, Posted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A PSN that is further ahead than this belongs to another session.
const PSNS_AHEAD_MAX: u32 = 1 << 24;

/// An operation.
#[derive(Clone, Debug)]
struct Op {
    token: SendToken,
    kind: Kind,
    len: u64,
    /// Its packets, and the bytes that each carried.
    packets: BTreeMap<u32, u64>,
    /// Bytes that the peer wants of it, if it has said so.
    wanted: Option<u64>,
    /// It goes on links, so its own packet has no bytes.
    announced: bool,
}

/// What one process says to one peer in a session, and hears of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Our session id; 0 before it is told.
    ours: Id,
    /// Our first PSN and send order, as our greeting tells them.
    first: Option<(u32, u32)>,
    /// The peer's.
    their_first: Option<(u32, u32)>,
    /// The peer's session id.
    theirs: Id,
    /// Hellos and probes since the peer was heard last.
    pub(super) asks: u32,
    /// Operations without an order.
    waiting: VecDeque<Op>,
    /// Operations by order, counted from the first.
    ops: BTreeMap<u32, Op>,
    /// Orders given.
    orders: u32,
    /// Operations of a session that ends.
    ending: Vec<SendToken>,
    /// What each PSN carried.
    carried: BTreeMap<u32, Vec<Piece>>,
    /// Links that the peer permits, by Msg_ID: the order.
    links: BTreeMap<u16, u32>,
    /// Links that were permitted, by order and base.
    permitted: BTreeSet<(u32, u64)>,
    /// Our messages that the peer has matched, our requests that it has answered.
    matched: BTreeSet<u32>,
    answered: BTreeSet<u32>,
    /// Bytes heard of each link of ours.
    read: BTreeMap<u16, u64>,
    /// The link of a read.
    read_links: BTreeMap<u32, u16>,
    /// Orders of the peer that have come.
    came: BTreeSet<u32>,
    /// The last one that was reported.
    reported: Option<u32>,
    /// The greatest limits told.
    limits: Option<(u32, u32)>,
}

/// A part of what a packet carries, as far as its repetition must be the same.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Message(u32, u64, Option<u64>, Option<u64>),
    Segment(u32, u32, u16),
    OfLink(u16, u32, u16),
    Answer(u32, u16),
    Other(String),
}

fn messages(data: &Data) -> Vec<&Message> {
    match &data.carries {
        Carried::Bundle(records) => records
            .iter()
            .filter_map(|record| match record {
                RecordRead::Eager(message) | RecordRead::Announcement(message) => Some(message),
                _ => None,
            })
            .collect(),
        Carried::EagerSegment { message, .. } => vec![message],
        _ => Vec::new(),
    }
}

fn pieces(data: &Data) -> Vec<Piece> {
    let piece = |record: &RecordRead| match record {
        RecordRead::Ack(_) => None,
        RecordRead::Eager(m) | RecordRead::Announcement(m) => {
            Some(Piece::Message(m.order, m.len, m.tag, m.data))
        }
        // What it answers from may be gone by now (§9.6).
        RecordRead::Answer(a) => Some(Piece::Answer(a.order, a.msg_id)),
        other => Some(Piece::Other(format!("{other:?}"))),
    };
    match &data.carries {
        Carried::Bundle(records) => records.iter().filter_map(piece).collect(),
        Carried::EagerSegment { message, offset, len, .. } => {
            vec![Piece::Segment(message.order, *offset, *len)]
        }
        // Its bytes may be void by now (§9.6).
        Carried::Segment { msg_id, offset, len, .. } => vec![Piece::OfLink(*msg_id, *offset, *len)],
        Carried::Trimmed => Vec::new(),
    }
}

/// Acknowledgements that ride on a data packet.
fn riding(data: &Data) -> Vec<State> {
    match &data.carries {
        Carried::Bundle(records) => records
            .iter()
            .filter_map(|record| match record {
                RecordRead::Ack(state) => Some(*state),
                _ => None,
            })
            .collect(),
        Carried::EagerSegment { ack, .. } => ack.iter().copied().collect(),
        _ => Vec::new(),
    }
}

/// The number of a PSN or order, counted from `first`. `None` if it lies before, or far ahead.
fn count(value: u32, first: u32) -> Option<u32> {
    Some(value.wrapping_sub(first)).filter(|count| *count < PSNS_AHEAD_MAX)
}

/// What an acknowledgement says of packets whose first PSN this is; `None` if that cannot be.
fn said(state: &State, ack: Option<&Ack>, first: u32) -> Option<AckState> {
    // A stale one may lie before the first.
    let mut set = AckState::default();
    set.add_below(count(state.missing, first)?);
    let words = ack.map(|ack| (ack.base, &ack.words[..])).unwrap_or_default();
    for (index, word) in words.1.iter().enumerate() {
        for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
            set.add(count(words.0.wrapping_add(64 * index as u32 + bit), first)?);
        }
    }
    Some(set)
}

impl Flow {
    pub(super) fn post(&mut self, posted: &Posted) {
        self.waiting.push_back(Op {
            token: posted.token,
            kind: posted.kind,
            len: posted.len_bytes,
            packets: BTreeMap::new(),
            wanted: None,
            announced: false,
        });
    }

    /// The session of before has ended: its operations must fail.
    pub(super) fn end(&mut self) {
        let tokens = self.waiting.iter().chain(self.ops.values()).map(|op| op.token);
        let ending = std::mem::take(&mut self.ending).into_iter().chain(tokens).collect();
        *self = Flow { ending, ..Flow::default() };
    }

    /// Operations of an ended session that have no outcome.
    pub(super) fn left_over(&self) -> usize {
        self.ending.len()
    }

    /// Our greeting goes out.
    pub(super) fn greet(&mut self, ours: Id, g: &wire::Greeting) -> Judged {
        self.ours = ours;
        let first = (g.first_psn, g.first_order);
        match self.first.replace(first).is_none_or(|before| before == first) {
            true => Ok(()),
            false => Err("a greeting changes the first PSN or order".into()),
        }
    }

    /// The session is open with the peer's greeting.
    pub(super) fn meet(&mut self, theirs: Id, g: &wire::Greeting) {
        if self.theirs != theirs {
            (self.theirs, self.their_first) = (theirs, Some((g.first_psn, g.first_order)));
        }
    }

    /// The process hears a packet of the peer's session.
    pub(super) fn hear(&mut self, read: &PacketRead, rule: Rule) {
        if matches!(rule, Rule::AckTaken | Rule::WelcomeTaken | Rule::ProbeAnswered) {
            self.asks = 0;
        }
        let Body::Data(data) = &read.body else { return };
        if !matches!(rule, Rule::DataTaken | Rule::DataDuplicate) {
            return;
        }
        self.came.extend(messages(data).iter().map(|message| message.order));
        match &data.carries {
            Carried::Bundle(records) => {
                records.iter().for_each(|record| self.hear_record(record));
            }
            Carried::Segment { msg_id, len, void, .. } => {
                *self.read.entry(*msg_id).or_default() += u64::from(*len);
                if *void {
                    // The first one refuses the read (§9.6).
                    let reads = self.read_links.iter().filter(|(_, link)| *link == msg_id);
                    self.answered.extend(reads.map(|(order, _)| *order));
                }
            }
            _ => {}
        }
    }

    fn hear_record(&mut self, record: &RecordRead) {
        let Some((_, first)) = self.first else { return };
        let order = |order: u32| count(order, first);
        match record {
            RecordRead::Permission { msg_id, order: o, wanted, link_base, .. } => {
                let Some(order) = order(*o) else { return };
                // A repetition may come after the Msg_ID has become another link's.
                if self.permitted.insert((order, *link_base)) {
                    self.links.insert(*msg_id, order);
                }
                if let Some(op) = self.ops.get_mut(&order) {
                    op.wanted = Some(*wanted);
                }
            }
            RecordRead::Matched { order: o, .. } => self.matched.extend(order(*o)),
            RecordRead::Answer(answer) => self.answered.extend(order(answer.order)),
            RecordRead::Done { first: from, last } => {
                if let (Some(from), Some(last)) = (order(*from), order(*last)) {
                    self.answered.extend(from..=last.min(self.orders));
                }
            }
            RecordRead::Request(request) => {
                let is_new = self.came.insert(request.order);
                if let (Access::Read { msg_id }, true) = (request.access, is_new) {
                    // What goes under this Msg_ID answers the read.
                    self.links.remove(&msg_id);
                }
            }
            _ => {}
        }
    }

    /// The process tells a packet with this PSN for the first time or again. True for the first time.
    pub(super) fn tell(
        &mut self,
        peer: &mut Peer,
        h: &Header,
        data: &Data,
    ) -> Result<bool, String> {
        let (first_psn, _) = self.first.ok_or("data before a greeting")?;
        let psn = count(h.psn, first_psn).ok_or("a PSN before the first one")?;
        let pieces = pieces(data);
        if psn < peer.sender.sent {
            let before = self.carried.get(&psn).ok_or("a repetition of what was acknowledged")?;
            if *before != pieces {
                return Err(format!("PSN {psn} carried {before:?}, and now {pieces:?}"));
            }
            return match peer.sender.repeat(psn) {
                true => Ok(false),
                false => {
                    Err(format!("PSN {psn} is repeated though nothing shows that it was lost"))
                }
            };
        }
        if !peer.sender.send(psn) {
            return Err(format!("PSN {psn} leaves {} out", peer.sender.sent));
        }
        self.carried.insert(psn, pieces);
        self.carry(psn, data)?;
        Ok(true)
    }

    /// Gives orders to operations, and packets to orders.
    fn carry(&mut self, psn: u32, data: &Data) -> Judged {
        match &data.carries {
            Carried::Bundle(records) => {
                for record in records {
                    match record {
                        RecordRead::Eager(m) => {
                            self.carry_message(psn, m, m.len, false)?;
                        }
                        RecordRead::Announcement(m) => self.carry_message(psn, m, 0, true)?,
                        RecordRead::Request(request) => self.carry_request(psn, request)?,
                        _ => {}
                    }
                }
                Ok(())
            }
            Carried::EagerSegment { message, len, .. } => {
                self.carry_message(psn, message, u64::from(*len), false)
            }
            Carried::Segment { msg_id, len, .. } => {
                let op = self.links.get(msg_id).and_then(|order| self.ops.get_mut(order));
                // What answers a read goes under the reader's links, which are not ours.
                if let Some(op) = op {
                    op.packets.insert(psn, u64::from(*len));
                }
                Ok(())
            }
            Carried::Trimmed => Err("a process tells a trimmed packet".into()),
        }
    }

    /// The operation of an order; the next waiting one gets the next order.
    fn op_of(&mut self, order: u32) -> Result<&mut Op, String> {
        let (_, first) = self.first.ok_or("an order before a greeting")?;
        let order = count(order, first).ok_or("an order before the first one")?;
        if order == self.orders {
            let op = self.waiting.pop_front().ok_or("a message that nobody posted")?;
            self.ops.insert(order, op);
            self.orders += 1;
        }
        self.ops.get_mut(&order).ok_or(format!("order {order} is not under way"))
    }

    fn carry_message(&mut self, psn: u32, m: &Message, bytes: u64, announced: bool) -> Judged {
        let op = self.op_of(m.order)?;
        let same = match op.kind {
            Kind::Message { tag, .. } => (tag, op.len) == (m.tag, m.len),
            Kind::Request(_) => false,
        };
        if !same {
            return Err(format!("{m:?} says something else than {op:?}"));
        }
        op.packets.insert(psn, bytes);
        op.announced |= announced;
        Ok(())
    }

    fn carry_request(&mut self, psn: u32, request: &wire::Request) -> Judged {
        let (_, first) = self.first.ok_or("a request before a greeting")?;
        if let (Access::Read { msg_id }, Some(order)) =
            (request.access, count(request.order, first))
        {
            self.read_links.insert(order, msg_id);
            self.read.remove(&msg_id);
        }
        let op = self.op_of(request.order)?;
        if !matches!(op.kind, Kind::Request(_)) || op.len != request.len() {
            return Err(format!("{request:?} asks for something else than {op:?}"));
        }
        let bytes = if request.access == Access::WriteAnnounced { 0 } else { op.len };
        op.packets.insert(psn, bytes);
        op.announced |= request.access == Access::WriteAnnounced;
        Ok(())
    }

    /// An operation ended well: was it done? (§5.5, §9.3)
    fn judge_success(&self, peer: &Peer, order: u32, op: &Op) -> Judged {
        let is_read = self.read_links.contains_key(&order);
        let unacked = op.packets.keys().find(|psn| !peer.sender.acked.has(**psn));
        if let Some(psn) = unacked.filter(|_| !is_read) {
            return Err(format!("{op:?} completed, and PSN {psn} is not acknowledged"));
        }
        let told: u64 = op.packets.values().sum();
        let wanted = match op.announced {
            true => op.wanted.map_or(0, |wanted| wanted.min(op.len)),
            false => op.len,
        };
        if told < wanted {
            return Err(format!("{op:?} completed, and only {told} of {wanted} bytes were told"));
        }
        let answered = self.answered.contains(&order);
        match op.kind {
            Kind::Message { match_notice: true, .. } if !self.is_matched(order, op) => {
                Err(format!("{op:?} completed before its match notice"))
            }
            Kind::Message { .. } if op.announced && op.wanted.is_none() => {
                Err(format!("{op:?} completed before a permission"))
            }
            Kind::Request(_) if is_read && !answered => {
                let link = self.read_links[&order];
                match self.read.get(&link).copied().unwrap_or(0) >= op.len {
                    true => Ok(()),
                    false => Err(format!("{op:?} completed before its bytes came")),
                }
            }
            Kind::Request(_) if !is_read && !answered => {
                Err(format!("{op:?} completed before its answer"))
            }
            _ => Ok(()),
        }
    }

    /// A permission says as much as a notice.
    fn is_matched(&self, order: u32, op: &Op) -> bool {
        self.matched.contains(&order) || op.wanted.is_some()
    }

    /// A message has its turn (§5.1).
    pub(super) fn judge_arrival(&mut self, arrival: &Arrival) -> Judged {
        let order = arrival.msg.order.0;
        if !self.came.contains(&order) {
            return Err(format!("{arrival:?} was reported before it came"));
        }
        let (_, first) = self.their_first.ok_or("a message before a greeting")?;
        let number = count(order, first).ok_or("an order before the first one")?;
        if self.reported.is_some_and(|last| last >= number) {
            return Err(format!("{arrival:?} was reported after a later one, or twice"));
        }
        if arrival.verdict != erd_rd::Verdict::NoBuffer {
            self.reported = Some(number);
        }
        Ok(())
    }

    /// An acknowledgement says only what came, and limits never shrink (§5.3).
    pub(super) fn judge_state(&mut self, peer: &Peer, state: &State, ack: Option<&Ack>) -> Judged {
        let (first, _) = self.their_first.ok_or("an acknowledgement before a greeting")?;
        let says = said(state, ack, first).ok_or("an acknowledgement of another session")?;
        if !peer.receiver.may_say(&says) {
            return Err(format!("{says:?} is acknowledged, and {:?} came", peer.receiver.got));
        }
        let limits = (state.eager_limit, state.order_limit);
        if let Some((eager, order)) = self.limits.replace(limits) {
            let shrinks = |before: u32, now: u32| (now.wrapping_sub(before) as i32) < 0;
            if shrinks(eager, limits.0) || shrinks(order, limits.1) {
                return Err(format!("limits shrink from {:?} to {limits:?}", (eager, order)));
            }
        }
        Ok(())
    }

    /// Takes what an acknowledgement shows.
    fn take_state(&mut self, peer: &mut Peer, state: &State, ack: Option<&Ack>) {
        let Some((first, _)) = self.first else { return };
        let Some(end) = count(state.end, first).filter(|end| *end <= peer.sender.sent) else {
            return;
        };
        if let Some(says) = said(state, ack, first) {
            peer.sender.acknowledge(&says);
        }
        (peer.sender.acked.lowest_missing..end).for_each(|psn| peer.sender.lose(psn));
        for range in ack.map(|ack| &ack.ranges[..]).unwrap_or_default() {
            for psn in 0..u32::from(range.count) {
                if let Some(psn) = count(range.first.wrapping_add(psn), first) {
                    peer.sender.lose(psn);
                }
            }
        }
    }

    /// All acknowledgements in a packet that was taken.
    pub(super) fn take_acks(&mut self, peer: &mut Peer, body: &Body) {
        match body {
            Body::Data(data) => {
                riding(data).iter().for_each(|state| self.take_state(peer, state, None));
            }
            Body::Ack(ack) => self.take_state(peer, &ack.state, Some(ack)),
            Body::Goodbye { ack, .. } => self.take_state(peer, ack, None),
            _ => {}
        }
    }

    /// All acknowledgements in a packet that is told.
    pub(super) fn judge_acks(&mut self, peer: &Peer, data: &Data) -> Judged {
        riding(data).iter().try_for_each(|state| self.judge_state(peer, state, None))
    }
}

impl Validator {
    /// The peer of the session with this id, and our first PSN there.
    fn flow_of<'a>(&mut self, node: &'a Node, session: u64) -> Option<(&'a Peer, &'a Flow)> {
        let name = node.process.by_session(self.names.id(session))?;
        Some((&node.process.peers[&name], node.flows.get(&name)?))
    }

    /// The number of a PSN of the peer's.
    pub(super) fn psn_heard(&mut self, node: &Node, session: u64, psn: u32) -> Option<u32> {
        let (peer, flow) = self.flow_of(node, session)?;
        match peer.phase {
            Phase::Open => count(psn, flow.their_first?.0),
            _ => Some(0),
        }
    }

    /// What a heard acknowledgement says.
    pub(super) fn ack_heard(&mut self, node: &Node, session: u64, ack: &Ack) -> Option<AckState> {
        let (peer, flow) = self.flow_of(node, session)?;
        let Some((first, _)) = flow.first else { return Some(AckState::default()) };
        count(ack.state.end, first).filter(|end| *end <= peer.sender.sent)?;
        said(&ack.state, Some(ack), first)
    }

    /// What a heard goodbye says.
    pub(super) fn state_heard(
        &mut self,
        node: &Node,
        session: u64,
        state: &State,
    ) -> Option<AckState> {
        let Some((peer, flow)) = self.flow_of(node, session) else {
            return Some(AckState::default());
        };
        let Some((first, _)) = flow.first else { return Some(AckState::default()) };
        match peer.phase {
            Phase::Open => {
                count(state.end, first).filter(|end| *end <= peer.sender.sent)?;
                said(state, None, first)
            }
            _ => Some(AckState::default()),
        }
    }
}

impl Node {
    /// An operation has its outcome.
    pub(super) fn judge_end_of(
        &mut self,
        token: SendToken,
        outcome: Result<(), OpError>,
    ) -> Judged {
        for (name, flow) in &mut self.flows {
            let before = flow.ending.len();
            flow.ending.retain(|ending| *ending != token);
            if flow.ending.len() < before {
                return match outcome {
                    Err(_) => Ok(()),
                    Ok(()) => Err(format!("{token:?} ends well after its session ended")),
                };
            }
            let order = flow.ops.iter().find(|(_, op)| op.token == token).map(|(order, _)| *order);
            let op = match order {
                Some(order) => flow.ops.remove(&order),
                None => {
                    let place = flow.waiting.iter().position(|op| op.token == token);
                    place.and_then(|place| flow.waiting.remove(place))
                }
            };
            let Some(op) = op else { continue };
            let Some(peer) = self.process.peers.get(name) else { continue };
            return match (outcome, order) {
                (Ok(()), Some(order)) => flow.judge_success(peer, order, &op),
                (Ok(()), None) => Err(format!("{op:?} completed before it was told")),
                (Err(OpError::Refused(_)), Some(order)) if flow.answered.contains(&order) => Ok(()),
                (Err(OpError::Refused(_)), _) => Err(format!("nobody refused {op:?}")),
                (Err(OpError::Canceled), _) if self.process.closed => Ok(()),
                (Err(_), _) => {
                    self.failed.push(*name);
                    Ok(())
                }
            };
        }
        Ok(())
    }
}
