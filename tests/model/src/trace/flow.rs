//! Data, acknowledgements and operations between a process and one peer.

use super::wire::{
    self, Access, Ack, Body, Carried, Data, Header, Message, PacketRead, Proof, RecordRead, State,
};
use super::{Judged, Node, Validator};
use crate::flow::AckState;
use crate::packet::Id;
use crate::peer::{Peer, Phase};
use crate::rules::Rule;
use erd_rd::{Nanos, OpError, SendToken, Verdict};
use erd_world::record::{self, Arrival, Kind, Posted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A PSN or order that is further ahead than this belongs to another session.
const AHEAD_MAX: u32 = 1 << 24;
/// The widest PSN window (§4.1).
const PSN_WINDOW_MAX: u32 = 16_384;

/// The status of an answer: met, or no region has the key (§9.6).
const STATUS_MET: u8 = 0;
const STATUS_KEY: u8 = 1;

/// An operation.
#[derive(Clone, Debug)]
struct Op {
    token: SendToken,
    kind: Kind,
    len: u64,
    data: Option<u64>,
    /// Its packets, and the stretch of bytes that each carried: start and length.
    packets: BTreeMap<u32, (u64, u64)>,
    /// Bytes that the peer wants of it, if it has said so.
    wanted: Option<u64>,
    /// It goes on links, so its own packet has no bytes.
    announced: bool,
}

/// What one process says to one peer in a session, and hears of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// Our first PSN and send order, as our greeting tells them.
    first: Option<(u32, u32)>,
    /// The peer's.
    their_first: Option<(u32, u32)>,
    /// Our session id when the peer's greeting was taken.
    met_as: Id,
    /// Hellos and probes since the peer was heard last, and when that was, or when the session began.
    pub(super) asks: u32,
    pub(super) heard_at: Nanos,
    /// Probes since the peer answered last, and when that was, or when the session began.
    pub(super) unanswered: u32,
    pub(super) answered_at: Nanos,
    /// PSNs that only a packet which had come before acknowledged.
    unsure: BTreeSet<u32>,
    /// One beyond the greatest counter of the peer's that was taken in this session. A session that is quiet gives its
    /// window back: then it drops what lies below (§11.4), and hears nothing with it.
    counters_end: u64,
    /// The PSN window that the peer told.
    psn_window: u32,
    /// The greatest end of sent packets that the peer's probes named.
    probed_end: u32,
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
    /// Links that the peer permits, by Msg_ID: the order, and where the link begins.
    links: BTreeMap<u16, (u32, u64)>,
    /// Links of the peer's reads, which we answer.
    asked: BTreeSet<u16>,
    /// Links that were permitted, by order and base.
    permitted: BTreeSet<(u32, u64)>,
    /// Our messages that the peer has matched, our requests that it has answered, with the status.
    matched: BTreeSet<u32>,
    answered: BTreeSet<(u32, u8)>,
    /// Stretches heard of each link of ours: start and length.
    read: BTreeMap<u16, BTreeSet<(u32, u16)>>,
    /// The link of a read.
    read_links: BTreeMap<u32, u16>,
    /// Orders of the peer that have come, with the message if it is one.
    came: BTreeMap<u32, Option<Message>>,
    /// The order whose turn is next, counted from the first.
    turn: u32,
    /// Messages of the peer that the application has taken or thrown away, and requests that were met, by order.
    consumed: BTreeSet<u32>,
    met: BTreeSet<u32>,
    /// The greatest limits told.
    limits: Option<(u32, u32)>,
}

/// A part of what a packet carries, as far as its repetition must be the same.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Eager(u32, u64, Option<u64>, Option<u64>),
    Announced(u32, u64, Option<u64>, Option<u64>),
    Segment(u32, u64, Option<u64>, Option<u64>, u32, u16),
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
        RecordRead::Eager(m) => Some(Piece::Eager(m.order, m.len, m.tag, m.data)),
        RecordRead::Announcement(m) => Some(Piece::Announced(m.order, m.len, m.tag, m.data)),
        // What it answers from may be gone by now (§9.6).
        RecordRead::Answer(a) => Some(Piece::Answer(a.order, a.msg_id)),
        other => Some(Piece::Other(format!("{other:?}"))),
    };
    match &data.carries {
        Carried::Bundle(records) => records.iter().filter_map(piece).collect(),
        Carried::EagerSegment { message, offset, len, .. } => {
            let m = message;
            vec![Piece::Segment(m.order, m.len, m.tag, m.data, *offset, *len)]
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

/// An acknowledgement says that something came since the one before, or answers a probe. Others are sent for holes that stay
/// (§7.2). One that makes up for a lost one may acknowledge something new without that: it only puts the end off.
fn is_answer(state: &State) -> bool {
    state.echo_valid || state.answers_probe
}

/// The number of a PSN or order, counted from `first`. `None` if it lies before, or far ahead.
fn count(value: u32, first: u32) -> Option<u32> {
    Some(value.wrapping_sub(first)).filter(|count| *count < AHEAD_MAX)
}

/// What an acknowledgement says of packets whose first PSN this is; `None` if that cannot be.
fn said(state: &State, ack: Option<&Ack>, first: u32) -> Option<AckState> {
    let mut set = AckState::default();
    set.add_below(count(state.missing, first)?);
    let words = ack.map(|ack| (ack.base, &ack.words[..])).unwrap_or_default();
    for (index, word) in words.1.iter().enumerate() {
        for bit in (0..64).filter(|bit| word >> bit & 1 != 0) {
            set.add(count(words.0.wrapping_add(64 * index as u32 + bit), first)?);
        }
    }
    for run in ack.map(|ack| &ack.records[..]).unwrap_or_default() {
        for psn in 0..u32::from(run.packets) {
            set.add(count(run.first.wrapping_add(psn), first)?);
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
            data: posted.data,
            packets: BTreeMap::new(),
            wanted: None,
            announced: false,
        });
    }

    /// Something was posted that no packet has carried.
    pub(super) fn wants_session(&self) -> bool {
        !self.waiting.is_empty()
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
    pub(super) fn greet(&mut self, g: &wire::Greeting) -> Judged {
        let first = (g.first_psn, g.first_order);
        match self.first.replace(first).is_none_or(|before| before == first) {
            true => Ok(()),
            false => Err("a greeting changes the first PSN or order".into()),
        }
    }

    /// The session is open with the peer's greeting.
    pub(super) fn meet(&mut self, ours: Id, g: &wire::Greeting) {
        if self.met_as != ours {
            (self.met_as, self.their_first) = (ours, Some((g.first_psn, g.first_order)));
            self.counters_end = 0;
            self.psn_window = g.psn_window.clamp(1, PSN_WINDOW_MAX);
        }
    }

    /// The process hears a packet of the peer's session.
    pub(super) fn hear(&mut self, at: Nanos, read: &PacketRead, rule: Rule) {
        use Rule::{AckTaken, DataTaken, ProbeAnswered, WelcomeTaken};
        let is_surely_taken = self.is_surely_taken(read, rule);
        if is_surely_taken && matches!(rule, AckTaken | DataTaken | ProbeAnswered | WelcomeTaken) {
            (self.asks, self.heard_at) = (0, at);
            let answers = match &read.body {
                Body::Ack(ack) => rule == AckTaken && is_answer(&ack.state),
                Body::Data(data) => riding(data).iter().any(is_answer),
                // A session that the peer began.
                _ => self.answered_at == 0,
            };
            if answers {
                (self.unanswered, self.answered_at) = (0, at);
            }
        }
        if let (ProbeAnswered, Some((first, _))) = (rule, self.their_first) {
            self.probed_end = self.probed_end.max(count(read.header.psn, first).unwrap_or(0));
        }
        let Body::Data(data) = &read.body else { return };
        if !matches!(rule, Rule::DataTaken | Rule::DataDuplicate) {
            return;
        }
        self.came.extend(messages(data).into_iter().map(|message| (message.order, Some(*message))));
        match &data.carries {
            Carried::Bundle(records) => {
                records.iter().for_each(|record| self.hear_record(record));
            }
            Carried::Segment { msg_id, len, void, offset } => {
                self.read.entry(*msg_id).or_default().insert((*offset, *len));
                if *void {
                    // The first one refuses the read (§9.6).
                    let reads = self.read_links.iter().filter(|(_, link)| *link == msg_id);
                    self.answered.extend(reads.map(|(order, _)| (*order, STATUS_KEY)));
                }
            }
            _ => {}
        }
    }

    /// Whether the process takes a packet whatever it has done with its window of counters.
    fn is_surely_taken(&mut self, read: &PacketRead, rule: Rule) -> bool {
        use Rule::{AckImpossible, AckTaken, DataDuplicate, DataOutside, DataTaken, ProbeAnswered};
        let is_proven = matches!(
            rule,
            AckTaken | AckImpossible | DataTaken | DataDuplicate | DataOutside | ProbeAnswered
        );
        let Proof::Counter(counter) = read.proof else { return true };
        let is_latest = counter >= self.counters_end;
        if is_proven && is_latest {
            self.counters_end = counter + 1;
        }
        is_latest
    }

    fn hear_record(&mut self, record: &RecordRead) {
        let Some((_, first)) = self.first else { return };
        let order = |order: u32| count(order, first);
        match record {
            RecordRead::Permission { msg_id, order: o, wanted, link_base, .. } => {
                let Some(order) = order(*o) else { return };
                // A repetition may come after the Msg_ID has become another link's.
                if self.permitted.insert((order, *link_base)) {
                    self.links.insert(*msg_id, (order, *link_base));
                    self.asked.remove(msg_id);
                }
                if let Some(op) = self.ops.get_mut(&order) {
                    op.wanted = Some(*wanted);
                }
            }
            RecordRead::Matched { order: o, .. } => self.matched.extend(order(*o)),
            RecordRead::Answer(answer) => {
                self.answered.extend(order(answer.order).map(|order| (order, answer.status)));
            }
            RecordRead::Done { first: from, last } => {
                if let (Some(from), Some(last)) = (order(*from), order(*last)) {
                    let done = from..=last.min(self.orders);
                    self.answered.extend(done.map(|order| (order, STATUS_MET)));
                }
            }
            RecordRead::Request(request) => {
                let is_new = self.came.insert(request.order, None).is_none();
                if let (Access::Read { msg_id }, true) = (request.access, is_new) {
                    // What goes under this Msg_ID answers the read.
                    self.links.remove(&msg_id);
                    self.asked.insert(msg_id);
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
        if psn >= peer.sender.acked.lowest_missing + self.psn_window {
            return Err(format!("PSN {psn} is beyond the receiver's window"));
        }
        if psn < peer.sender.sent {
            let before = &self.carried[&psn];
            if *before != pieces {
                return Err(format!("PSN {psn} carried {before:?}, and now {pieces:?}"));
            }
            return match peer.sender.repeat(psn) || self.unsure.remove(&psn) {
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
                            self.carry_message(psn, m, (0, m.len), false)?;
                        }
                        RecordRead::Announcement(m) => self.carry_message(psn, m, (0, 0), true)?,
                        RecordRead::Request(request) => self.carry_request(psn, request)?,
                        other => self.judge_answer(other)?,
                    }
                }
                Ok(())
            }
            Carried::EagerSegment { message, offset, len, .. } => {
                let stretch = (u64::from(*offset), u64::from(*len));
                self.carry_message(psn, message, stretch, false)
            }
            Carried::Segment { msg_id, offset, len, .. } => {
                let Some((order, base)) = self.links.get(msg_id) else {
                    return match self.asked.contains(msg_id) {
                        true => Ok(()),
                        false => Err(format!("nobody permitted the link {msg_id}")),
                    };
                };
                if let Some(op) = self.ops.get_mut(order) {
                    op.packets.insert(psn, (base + u64::from(*offset), u64::from(*len)));
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

    fn carry_message(
        &mut self,
        psn: u32,
        m: &Message,
        stretch: (u64, u64),
        announced: bool,
    ) -> Judged {
        let op = self.op_of(m.order)?;
        let same = match op.kind {
            Kind::Message { tag, .. } => (tag, op.len, op.data) == (m.tag, m.len, m.data),
            Kind::Request(_) => false,
        };
        if !same {
            return Err(format!("{m:?} says something else than {op:?}"));
        }
        op.packets.insert(psn, stretch);
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
        let says = match request.access {
            Access::Write | Access::WriteAnnounced => 0,
            Access::Read { .. } => 1,
            Access::Atomic { .. } => 2,
        };
        let posted = match op.kind {
            Kind::Request(record::Access::Write) => Some(0),
            Kind::Request(record::Access::Read) => Some(1),
            Kind::Request(record::Access::Atomic(_)) => Some(2),
            Kind::Message { .. } => None,
        };
        if posted != Some(says) || (op.len, op.data) != (request.len(), request.data) {
            return Err(format!("{request:?} asks for something else than {op:?}"));
        }
        let bytes = if request.access == Access::WriteAnnounced { 0 } else { op.len };
        op.packets.insert(psn, (0, bytes));
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
        let told: BTreeSet<(u64, u64)> = op.packets.values().copied().collect();
        let told: u64 = told.iter().map(|(_, len)| len).sum();
        let wanted = match op.announced {
            true => op.wanted.map_or(0, |wanted| wanted.min(op.len)),
            false => op.len,
        };
        if told < wanted {
            return Err(format!("{op:?} completed, and only {told} of {wanted} bytes were told"));
        }
        let answered = self.answered.contains(&(order, STATUS_MET));
        match op.kind {
            Kind::Message { match_notice: true, .. } if !self.is_matched(order, op) => {
                Err(format!("{op:?} completed before its match notice"))
            }
            _ if op.announced && op.wanted.is_none() => {
                Err(format!("{op:?} completed before a permission"))
            }
            Kind::Request(_) if is_read && !answered => {
                let link = self.read_links[&order];
                let came = self.read.get(&link).into_iter().flatten();
                match came.map(|(_, len)| u64::from(*len)).sum::<u64>() >= op.len {
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

    /// The peer has refused a request of ours.
    fn is_refused(&self, order: u32) -> bool {
        self.answered.range((order, STATUS_MET + 1)..=(order, u8::MAX)).next().is_some()
    }

    /// A permission says as much as a notice.
    fn is_matched(&self, order: u32, op: &Op) -> bool {
        self.matched.contains(&order) || op.wanted.is_some()
    }

    /// A message has its turn (§5.1).
    pub(super) fn judge_arrival(&mut self, arrival: &Arrival) -> Judged {
        let order = arrival.msg.order.0;
        let Some(Some(came)) = self.came.get(&order) else {
            return Err(format!("{arrival:?} was reported before it came"));
        };
        let says = (arrival.len_bytes, arrival.tag, arrival.data);
        if (came.len, came.tag, came.data) != says {
            return Err(format!("{arrival:?} was reported, and {came:?} came"));
        }
        let (_, first) = self.their_first.ok_or("a message before a greeting")?;
        let number = count(order, first).ok_or("an order before the first one")?;
        if number != self.turn {
            return Err(format!("{arrival:?} was reported in the turn of {}", self.turn));
        }
        self.turn += u32::from(arrival.verdict != Verdict::NoBuffer);
        if matches!(arrival.verdict, Verdict::Matched(..) | Verdict::Discard) {
            self.consumed.insert(order);
        }
        Ok(())
    }

    /// The application takes a message that waited, or throws it away.
    pub(super) fn consume(&mut self, order: u32) {
        self.consumed.insert(order);
    }

    /// A request has its turn (§9.2).
    pub(super) fn judge_met(&mut self) -> Judged {
        let (_, first) = self.their_first.ok_or("a request before a greeting")?;
        let order = first.wrapping_add(self.turn);
        if self.came.get(&order) != Some(&None) {
            return Err(format!("a request was met in the turn of {}", self.turn));
        }
        self.met.insert(order);
        self.turn += 1;
        Ok(())
    }

    /// What a target and a receiver answer must have happened (§5.5, §9.3).
    fn judge_answer(&self, record: &RecordRead) -> Judged {
        let (_, first) = self.their_first.ok_or("an answer before a greeting")?;
        let has_turned = |order: u32| count(order, first).is_some_and(|n| n < self.turn);
        let is_true = match record {
            RecordRead::Matched { order, .. } => self.consumed.contains(order),
            RecordRead::Permission { order, .. } => {
                self.consumed.contains(order) || self.met.contains(order)
            }
            RecordRead::Answer(answer) => self.met.contains(&answer.order),
            RecordRead::Done { first, last } => has_turned(*first) && has_turned(*last),
            _ => true,
        };
        match is_true {
            true => Ok(()),
            false => Err(format!("{record:?} tells what has not happened")),
        }
    }

    /// An acknowledgement says only what came, and limits never shrink (§5.3).
    pub(super) fn judge_state(&mut self, peer: &Peer, state: &State, ack: Option<&Ack>) -> Judged {
        let (first, _) = self.their_first.ok_or("an acknowledgement before a greeting")?;
        let says = said(state, ack, first).ok_or("an acknowledgement of another session")?;
        if !peer.receiver.may_say(&says) {
            return Err(format!("{says:?} is acknowledged, and {:?} came", peer.receiver.got));
        }
        let end = count(state.end, first).ok_or("an end before the first PSN")?;
        if end < says.lowest_missing || end > peer.receiver.got.end().max(self.probed_end) {
            return Err(format!("{state:?} ends beyond what came: {:?}", peer.receiver.got));
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
    fn take_state(&mut self, peer: &mut Peer, state: &State, ack: Option<&Ack>, is_sure: bool) {
        let Some((first, _)) = self.first else { return };
        let Some(end) = count(state.end, first).filter(|end| *end <= peer.sender.sent) else {
            return;
        };
        if let Some(says) = said(state, ack, first) {
            match is_sure {
                true => self.unsure.retain(|psn| !says.has(*psn)),
                false => self
                    .unsure
                    .extend((0..end).filter(|psn| says.has(*psn) && !peer.sender.acked.has(*psn))),
            }
            peer.sender.acknowledge(&says);
        }
        // Where the sender detects by order, whatever lies before something that came; else what the receiver misses (§7).
        let by_order = peer.sender.acked.end().min(end);
        let probed = if state.answers_probe { 0..end } else { 0..0 };
        let ranges = ack.map(|ack| &ack.ranges[..]).unwrap_or_default();
        let missed = ranges.iter().flat_map(|range| {
            (0..u32::from(range.count)).filter_map(|n| count(range.first.wrapping_add(n), first))
        });
        let lost: Vec<u32> = missed.chain(probed).collect();
        lost.into_iter().chain(0..by_order).for_each(|psn| peer.sender.lose(psn));
    }

    /// All acknowledgements in a packet that was taken. Those in a packet that came before may count or not, because a process need
    /// not read it again.
    pub(super) fn take_acks(&mut self, peer: &mut Peer, body: &Body, rule: Rule) {
        let is_sure = rule != Rule::DataDuplicate;
        match body {
            Body::Data(data) => {
                for state in riding(data) {
                    self.take_state(peer, &state, None, is_sure);
                }
            }
            Body::Ack(ack) => self.take_state(peer, &ack.state, Some(ack), is_sure),
            Body::Goodbye { ack, .. } => self.take_state(peer, ack, None, is_sure),
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
            Phase::Open => {
                let end = peer.receiver.got.lowest_missing + PSN_WINDOW_MAX;
                count(psn, flow.their_first?.0).filter(|psn| *psn < end)
            }
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
            let Some(peer) = self.process.peers.get(name) else {
                return Err(format!("{op:?} ends, and its peer is not known"));
            };
            return match (outcome, order) {
                (Ok(()), Some(order)) => flow.judge_success(peer, order, &op),
                (Ok(()), None) => Err(format!("{op:?} completed before it was told")),
                (Err(OpError::Refused(_)), Some(order)) if flow.is_refused(order) => Ok(()),
                (Err(OpError::Refused(_)), _) => Err(format!("nobody refused {op:?}")),
                (Err(OpError::Canceled), _) if self.process.closed => Ok(()),
                (Err(_), _) => {
                    self.failed.push(*name);
                    Ok(())
                }
            };
        }
        // The ends of answers have tokens that nobody posted.
        match self.posted.contains(&token) {
            true => Err(format!("{token:?} ends twice")),
            false => Ok(()),
        }
    }
}
