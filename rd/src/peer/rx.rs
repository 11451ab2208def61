//! The receive flow: what arrived, what is missing, what waits for its turn or its match
//! (protocol.md §4). What the packets carry is in `rx/messages.rs` and `rx/requests.rs`.

mod coverage;
mod credit;
mod messages;
pub(super) mod requests;
pub(crate) mod tables;

use super::path_size::SizeQuestion;
use super::wrong_keys::Keys;
use super::{Core, Peer};
use crate::bitmap::{BITS_MAX, Bitmap};
use crate::cc::AckPolicy;
use crate::config::Config;
use crate::endpoint::{Datagram, RxMeta};
use crate::host::{Host, OpError, RecvToken};
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::{Ecn, MILLISECOND, Nanos, Psn, SECOND};
use crate::wire::ack::{ACK_BYTES, AckState, ECHOES_MAX, Echo, NACK_RANGES_MAX, NackRange};
use crate::wire::header::{
    FLAG_ACK, FLAG_ACK_REQUEST, FLAG_AWAITED, FLAG_EAGER, FLAG_PAYLOAD_CRC, FLAG_SEAL,
    HEADER_BYTES, Header, SEAL_BYTES, checksum_ok, seal_holds,
};
use crate::wire::record::{EAGER_HEADER_BYTES, MsgHeader, Record, parse_eager_header};
use crate::wire::remote::Request;
use crate::wire::setup::Greeting;
use crate::wire::{Malformed, Reader};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub(crate) use coverage::SpareGaps;
use coverage::{Coverage, Gaps};
pub(crate) use credit::Budget;
use credit::Credit;
pub use credit::{MESSAGE_COST_BYTES, ORDERS_LEAST};
use hashbrown::HashMap;
use slab::Slab;

/// Bit of a Msg_ID that names a link (protocol.md §5.4).
const LINK_ID: u16 = 0x8000;
/// Most links (Msg_IDs) live at a time (protocol.md §5.4).
const LINKS_MAX: usize = 1 << 15;
/// Most segments of a message that is acknowledged as a whole.
const LONE_SEGMENTS_MAX: u32 = 4;
/// Longest wait for the rest of such a message.
const LONE_WAIT_MAX_NS: Nanos = MILLISECOND;
/// Acknowledgement packets without a message of this side in between, after which none is expected.
const ACKS_ALONE_MAX: u32 = 4;
/// Links looked at for what comes next: those before it may be waiting for repetitions.
const LINKS_AHEAD: usize = 64;

/// A message that came before its turn.
#[derive(Clone, Copy, Debug)]
struct Early {
    msg: MsgHeader,
    rendezvous: bool,
    held: Option<RecvToken>,
    complete: bool,
}

/// A request that came before its turn, or before there was room for its answer.
#[derive(Clone, Copy, Debug)]
struct EarlyRequest {
    request: Request,
    /// Where what came with it is.
    kept: Option<RecvToken>,
}

/// An eager message of several packets, not yet whole.
#[derive(Debug)]
struct Partial {
    to: RecvToken,
    len_bytes: u64,
    coverage: Coverage,
    /// It was reported, so its completion may be.
    arrived: bool,
    /// It is among [`Rx::kept_messages`].
    kept: bool,
}

/// Eager messages that the driver keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    messages: u32,
    bytes: u32,
}

impl Kept {
    fn add(&mut self, bytes: u32) {
        self.messages += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: u32) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn cost_bytes(self) -> u64 {
        u64::from(self.bytes) + u64::from(self.messages) * u64::from(MESSAGE_COST_BYTES)
    }
}

/// An announced message that waits for its match.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    op: u32,
    len_bytes: u64,
}

/// What bytes under a Msg_ID are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Message,
    /// The peer writes to memory of ours.
    Write,
    /// We read memory of the peer's.
    Read,
}

/// A rendezvous message under way, or another large transfer.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    to: RecvToken,
    order: u32,
    op: u32,
    len_bytes: u64,
    wanted_bytes: u64,
    granted_bytes: u64,
    got_bytes: u64,
    links: u32,
    purpose: Purpose,
}

/// One Msg_ID in use.
#[derive(Debug)]
struct Link {
    incoming: u32,
    base_bytes: u64,
    len_bytes: u32,
    coverage: Coverage,
    /// Send order of the message, or of the request for this part of a read.
    order: u32,
}

/// The packet whose round trip the next acknowledgement measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastPacket {
    pub sent_at_ns: u32,
    pub path: u8,
    /// When the port received it, on our clock.
    pub received_at: Nanos,
    /// An acknowledgement has told of it. A later one, which repeats what was lost, would count the time since as
    /// time that it waited here.
    pub told: bool,
}

/// Receive state. Empty but for numbers while nothing is outstanding.
#[derive(Default)]
pub(crate) struct Rx {
    pub(super) cum: Psn,
    pub(super) high: Psn,
    pub(super) received: Bitmap,
    next_order: u32,
    /// Bounded by the order window.
    early: HashMap<u32, Early>,
    /// Bounded by the order window, their operands by the eager credit.
    early_requests: HashMap<u32, EarlyRequest>,
    kept_bytes: u64,
    /// What keys the peer has used, from its first request on.
    pub(super) keys: Option<Box<Keys>>,
    /// First and last order of writes and updates that were done and not told.
    done: Option<(u32, u32)>,
    /// Bounded by the eager credit.
    partial: HashMap<u32, Partial>,
    /// Bounded by the order window.
    waiting: HashMap<u32, Waiting>,
    /// Eager messages whose sender wants to know the match: order to operation.
    notices: HashMap<u32, u32>,
    incoming: Slab<Incoming>,
    links: Slab<Link>,
    /// What is missing in the middle of `partial` and `links`.
    gaps: Gaps,
    /// The links in the order in which they were granted: that in which they are filled.
    link_order: VecDeque<u16>,
    /// Payload of the latest segment that did not end its link.
    segment_bytes: u16,
    /// Messages that wait for a free link.
    grants: VecDeque<u32>,
    eager_in_bytes: u32,
    first_order: u32,
    /// Lent from the first greeting on.
    credit: Credit,
    /// Eager messages that were reported and not consumed, and their length in all.
    kept_messages: Kept,
    policy: Option<AckPolicy>,
    active: bool,
    pub(super) ack_at: Option<Nanos>,
    /// When the last acknowledgement went out.
    acked_at: Nanos,
    /// Acknowledgement packets since a message of this side last left that one could have ridden on.
    pub(super) acks_alone: u32,
    /// The path of a probe that is to be answered.
    pub(super) probe_answer: Option<u8>,
    /// A size probe to be answered.
    pub(super) size_question: Option<SizeQuestion>,
    unacked_packets: u32,
    /// Messages in the packet being taken: a lone one may soon be answered by another.
    messages_in_packet: u32,
    /// The packet being taken ended an eager message of several.
    ended_message: bool,
    /// The eager message that all unacknowledged packets are part of, by its send order if it comes in
    /// segments, and when it is to be acknowledged.
    pub(super) lone: Option<(Option<u32>, Nanos)>,
    /// Records for the next acknowledgement, at most [`ECHOES_MAX`]. Until it is written, their
    /// hold times are the times of arrival.
    pub(super) echoes: Vec<Echo>,
    pub(super) last: Option<LastPacket>,
    pub(super) latest_sent_at_ns: u32,
    /// When the latest send time was noted.
    latest_noted_at: Option<Nanos>,
    pub(super) recv_bytes: u32,
    pub(super) ce_bytes: u32,
    pub(super) spurious: u16,
    pub(super) scan_at: Option<Nanos>,
    /// Scans since data last came.
    pub(super) idle_scans: u32,
    /// Holes below this PSN were seen by an earlier scan.
    pub(super) scan_mark: Option<Psn>,
    /// Holes below this PSN are to be reported.
    pub(super) nack_below: Option<Psn>,
    /// Packets whose payload was cut off, for the next acknowledgement; at most
    /// [`NACK_RANGES_MAX`].
    pub(super) trims: Vec<NackRange>,
}

impl Rx {
    pub(super) fn start(&mut self, g: &Greeting) {
        *self = Rx {
            cum: Psn(g.first_psn),
            high: Psn(g.first_psn),
            next_order: g.first_order,
            first_order: g.first_order,
            credit: self.credit,
            policy: Some(g.ack_policy),
            ..Rx::default()
        };
    }

    /// Something came before its turn.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty() || !self.early_requests.is_empty()
    }

    /// What has this order came before its turn.
    fn is_early(&self, order: u32) -> bool {
        self.early.contains_key(&order) || self.early_requests.contains_key(&order)
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn set_inactive(&mut self) -> bool {
        core::mem::take(&mut self.active)
    }

    /// An acknowledgement could ride on a data packet: the state alone says everything.
    pub(super) fn ack_may_ride(&self) -> bool {
        self.ack_at.is_some()
            && self.nack_below.is_none()
            && self.probe_answer.is_none()
            && self.received.ones() == 0
            && (self.echoes.is_empty() || self.has_lone_echo())
            && self.trims.is_empty()
    }

    /// The only record is that of the last packet, or of the few of a burst that ended with it: their
    /// round trip the state tells as well.
    fn has_lone_echo(&self) -> bool {
        match self.echoes[..] {
            [echo] => {
                self.unacked_packets == echo.count.into()
                    && self.unacked_packets <= LONE_SEGMENTS_MAX
            }
            _ => false,
        }
    }

    /// An acknowledgement rode on a data packet: what the records would have said is said.
    pub(super) fn ack_rode(&mut self) {
        self.echoes.clear();
    }

    /// The peer owes us data: something is half received.
    pub(super) fn expects_data(&self) -> bool {
        self.has_holes()
            || !self.incoming.is_empty()
            || !self.partial.is_empty()
            || !self.early.is_empty()
            || !self.early_requests.is_empty()
    }

    /// Messages wait here for what the application does.
    pub(super) fn awaits_application(&self) -> bool {
        !self.waiting.is_empty() || !self.notices.is_empty()
    }

    /// Packets are known to be missing.
    pub(super) fn has_holes(&self) -> bool {
        self.high.since(self.cum) > 0
    }

    /// Lends the first grants of a session.
    pub(super) fn open_credit(&mut self, cfg: &Config, budget: &mut Budget) {
        self.credit = Credit::open(cfg, budget);
    }

    /// Eager bytes and send orders granted since the session began.
    pub(super) fn granted(&self) -> (u32, u32) {
        (self.credit.bytes.limit, self.credit.orders.limit)
    }

    fn order_limit(&self) -> u32 {
        self.first_order.wrapping_add(self.credit.orders.limit)
    }

    /// The limits for eager bytes and send orders. They count as told from now on.
    pub(super) fn tell_limits(&mut self, cfg: &Config, budget: &mut Budget) -> (u32, u32) {
        let (bytes, orders) = self.credit.tell(cfg, budget);
        (bytes, self.first_order.wrapping_add(orders))
    }

    /// Counts messages as consumed, which gives their credit back. True if that is worth telling.
    fn consume(&mut self, cfg: &Config, budget: &mut Budget, messages: u32, bytes: u32) -> bool {
        let messages = if mutant(Mutant::WithholdsOrderCredit) { 0 } else { messages };
        self.credit.consume(cfg, budget, messages, bytes)
    }

    /// Gives what a session that has ended was lent, and what it took, back to the budget. Returns what stays
    /// with the driver: whole messages, which the application may still receive.
    pub(super) fn close_credit(&mut self, cfg: &Config, budget: &mut Budget) -> Kept {
        self.credit.close(cfg, budget);
        budget.give_back(core::mem::take(&mut self.kept_bytes));
        for partial in self.partial.values().filter(|partial| partial.kept) {
            self.kept_messages.remove(partial.len_bytes as u32);
        }
        core::mem::take(&mut self.kept_messages)
    }

    /// Fails everything that is under way.
    pub(super) fn end<H: Host>(&mut self, host: &mut H, error: OpError) {
        if mutant(Mutant::LeavesReceivesPending) {
            return;
        }
        // The end of a read is told as that of an operation.
        let incoming = self.incoming.iter().filter(|(_, i)| i.purpose != Purpose::Read);
        let mut tokens: Vec<RecvToken> = incoming.map(|(_, i)| i.to).collect();
        tokens.extend(self.early_requests.values().filter_map(|e| e.kept));
        tokens.extend(self.partial.values().map(|p| p.to));
        let whole = self.early.values().filter(|e| e.complete);
        tokens.extend(whole.filter_map(|e| e.held));
        tokens.sort_unstable();
        for to in tokens {
            host.received(to, Err(error));
        }
    }

    /// Gives heap memory back when nothing is outstanding.
    pub(super) fn reclaim(&mut self) {
        self.received.shrink();
        if self.early.is_empty() {
            self.early = HashMap::new();
        }
        if self.early_requests.is_empty() {
            self.early_requests = HashMap::new();
        }
        if self.partial.is_empty() {
            self.partial = HashMap::new();
        }
        if self.waiting.is_empty() {
            self.waiting = HashMap::new();
        }
        if self.notices.is_empty() {
            self.notices = HashMap::new();
        }
        if self.incoming.is_empty() {
            self.incoming = Slab::new();
        }
        if self.links.is_empty() {
            self.links = Slab::new();
            self.link_order = VecDeque::new();
        }
        if self.echoes.is_empty() {
            self.echoes = Vec::new();
        }
        self.grants.shrink_to_fit();
    }
}

/// A segment that comes next if nothing is lost or overtaken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextSegment {
    pub to: RecvToken,
    pub msg_id: u16,
    pub s_offset: u32,
    pub len_bytes: u16,
    /// Its place in the message.
    pub offset_bytes: u64,
}

impl Rx {
    /// Hands the segments that come next to `f`, in order, until it returns false.
    pub(crate) fn each_next_segment(&self, mut f: impl FnMut(NextSegment) -> bool) {
        for &slot in self.link_order.iter().take(LINKS_AHEAD) {
            let Some(link) = self.links.get(usize::from(slot)) else { return };
            let Some(message) = self.incoming.get(link.incoming as usize) else { return };
            let mut s_offset = link.coverage.fresh_bytes;
            while s_offset < link.len_bytes {
                let left = link.len_bytes - s_offset;
                let len_bytes = left.min(self.segment_bytes.into());
                let next = NextSegment {
                    to: message.to,
                    msg_id: LINK_ID | slot,
                    s_offset,
                    len_bytes: len_bytes as u16,
                    offset_bytes: link.base_bytes + u64::from(s_offset),
                };
                if len_bytes == 0 || !f(next) {
                    return;
                }
                s_offset += len_bytes;
            }
        }
    }
}

/// A data packet, parsed and checked, before any of it takes effect.
enum Body<'a> {
    Bundle(&'a [u8]),
    /// The message header and the acknowledgement of an eager one.
    Segment(Option<(MsgHeader, Option<AckState>)>, &'a [u8]),
}

/// Checks a segment whose payload lies apart from its header.
fn apart_body<'a>(
    core: &Core,
    protected: bool,
    h: &Header,
    head: &[u8],
    payload: &'a [u8],
) -> Result<Body<'a>, DropReason> {
    let plain = h.long && h.flags & (FLAG_EAGER | FLAG_PAYLOAD_CRC) == 0;
    if !plain || head.len() != HEADER_BYTES || usize::from(h.s_len) != payload.len() {
        return Err(DropReason::Malformed);
    }
    if !checksum_ok(head, core.cfg.crc32c) {
        return Err(DropReason::HeaderChecksum);
    }
    if protected {
        return Err(DropReason::PayloadChecksum);
    }
    Ok(Body::Segment(None, payload))
}

/// Parses what follows the common header; leaves a bundle's records in `core.scratch`.
fn parse_body<'a>(
    core: &mut Core,
    protected: bool,
    h: &Header,
    bytes: &'a [u8],
) -> Result<Body<'a>, DropReason> {
    let malformed = |_: Malformed| DropReason::Malformed;
    let mut r = Reader::new(&bytes[HEADER_BYTES..]);
    let eager = if h.long && h.flags & FLAG_EAGER != 0 {
        let msg = parse_eager_header(&mut r).map_err(malformed)?;
        let ack = match h.flags & FLAG_ACK {
            0 => None,
            _ => Some(AckState::parse(&mut r).map_err(malformed)?),
        };
        Some((msg, ack))
    } else {
        None
    };
    let mut expected = usize::from(h.s_len);
    if !h.long {
        let before = r.rest().len();
        core.scratch.clear();
        let count = r.u16().map_err(malformed)?;
        for _ in 0..count {
            core.scratch.push(Record::parse(&mut r).map_err(malformed)?);
        }
        expected = expected.checked_sub(before - r.rest().len()).ok_or(DropReason::Malformed)?;
        let payload: usize = core.scratch.iter().map(Record::payload_bytes).sum();
        if payload != expected {
            return Err(DropReason::Malformed);
        }
    }
    let region = bytes.len() - r.rest().len();
    if !checksum_ok(&bytes[..region], core.cfg.crc32c) {
        return Err(DropReason::HeaderChecksum);
    }
    let payload = r.take(expected).map_err(malformed)?;
    let trailer =
        if h.flags & FLAG_PAYLOAD_CRC != 0 { Some(r.u32().map_err(malformed)?) } else { None };
    let seal = if h.flags & FLAG_SEAL != 0 { r.take(SEAL_BYTES).map_err(malformed)? } else { &[] };
    if !r.rest().is_empty() {
        return Err(DropReason::Malformed);
    }
    if h.flags & FLAG_SEAL != 0 && !seal_holds(seal) {
        return Err(DropReason::Recalled);
    }
    match trailer {
        Some(sum)
            if sum != (core.cfg.crc32c)(0, payload) && !mutant(Mutant::SkipsThePayloadChecksum) =>
        {
            Err(DropReason::PayloadChecksum)
        }
        None if protected => Err(DropReason::PayloadChecksum),
        _ if h.long => Ok(Body::Segment(eager, payload)),
        _ => Ok(Body::Bundle(payload)),
    }
}

impl Peer {
    /// A data packet of this session.
    pub(crate) fn on_data<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        datagram: Datagram<'_>,
    ) -> Result<(), DropReason> {
        let body = match datagram {
            Datagram::Whole(bytes) => parse_body(core, self.payload_checksum, h, bytes)?,
            Datagram::Apart(head, payload) => {
                apart_body(core, self.payload_checksum, h, head, payload)?
            }
        };
        let offset = Psn(h.psn).since(self.rx.cum);
        if offset >= BITS_MAX as i32 {
            return Err(DropReason::Window);
        }
        self.heard(core, now);
        let seen = offset < 0 || self.rx.received.get(offset as u32);
        if seen && !(mutant(Mutant::AcceptsDuplicates) && offset >= 0) {
            if h.attempt > 0 {
                self.rx.spurious = self.rx.spurious.wrapping_add(1);
            }
            self.rx.ack_at = Some(now);
            return Err(DropReason::Duplicate);
        }
        let part_of = match body {
            Body::Segment(Some((msg, _)), _) => Some(msg.order),
            _ => None,
        };
        let arrived = now.saturating_sub(meta.hold_ns);
        match body {
            Body::Bundle(payload) => self.on_bundle(core, host, now, arrived, payload)?,
            Body::Segment(Some((msg, ack)), payload) => {
                if let Some(state) = ack {
                    self.on_ack(core, host, now, arrived, &state, None)?;
                }
                self.on_eager_segment(core, host, h, msg, payload)?;
            }
            Body::Segment(None, payload) => self.on_segment(core, host, now, h, payload)?,
        }
        self.note_received(core, now, meta, h, datagram.len_bytes(), part_of);
        Ok(())
    }

    /// A packet of this session without its payload: it is asked for again at once.
    pub(crate) fn on_trimmed(
        &mut self,
        core: &Core,
        now: Nanos,
        h: &Header,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let region = match (h.flags & FLAG_EAGER, h.flags & FLAG_ACK) {
            (0, _) => HEADER_BYTES,
            (_, 0) => HEADER_BYTES + EAGER_HEADER_BYTES,
            _ => HEADER_BYTES + EAGER_HEADER_BYTES + ACK_BYTES,
        };
        let head = bytes.get(..region).filter(|_| h.long).ok_or(DropReason::Malformed)?;
        if !checksum_ok(head, core.cfg.crc32c) {
            return Err(DropReason::HeaderChecksum);
        }
        let offset = Psn(h.psn).since(self.rx.cum);
        if offset < 0 || offset >= BITS_MAX as i32 || self.rx.received.get(offset as u32) {
            return Err(DropReason::Duplicate);
        }
        self.heard(core, now);
        if self.rx.trims.len() < NACK_RANGES_MAX {
            let trimmed = Some(h.attempt);
            self.rx.trims.push(NackRange { first_psn: h.psn, count: 1, trimmed });
        }
        self.rx.ack_at = Some(now);
        Err(DropReason::Trimmed)
    }

    /// Enters an accepted packet into the bitmap and decides on its acknowledgement. `part_of` is the
    /// send order of the eager message that it is a segment of.
    #[allow(clippy::too_many_arguments, reason = "one call site, and what a packet is made of")]
    fn note_received(
        &mut self,
        core: &mut Core,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        wire_bytes: u32,
        part_of: Option<u32>,
    ) {
        let offset = Psn(h.psn).since(self.rx.cum) as u32;
        if offset == 0 && self.rx.received.ones() == 0 {
            self.rx.cum = self.rx.cum.plus(1);
        } else {
            self.rx.received.set(offset);
            let moved = self.rx.received.advance(0);
            self.rx.cum = self.rx.cum.plus(moved);
        }
        let after = Psn(h.psn).plus(1);
        if after.since(self.rx.high) > 0 {
            self.rx.high = after;
        }
        self.note_sent_at(now, h.sent_at_ns);
        let received_at = now.saturating_sub(meta.hold_ns);
        let (sent_at_ns, path) = (h.sent_at_ns, h.path);
        self.rx.last = Some(LastPacket { sent_at_ns, path, received_at, told: false });
        self.rx.recv_bytes = self.rx.recv_bytes.wrapping_add(wire_bytes);
        let ce = meta.ecn == Ecn::Ce;
        if ce {
            self.rx.ce_bytes = self.rx.ce_bytes.wrapping_add(wire_bytes);
            core.stats.rx_ce += 1;
        }
        core.stats.rx_data += 1;
        self.touch(now);
        if !core::mem::replace(&mut self.rx.active, true) {
            core.active_senders += 1;
        }
        let paused = self.rx.scan_at.is_none() || self.rx.idle_scans > 0;
        self.rx.idle_scans = 0;
        if self.rx.has_holes() && paused {
            let soon = now + self.scan_spacing_ns(core);
            self.rx.scan_at = Some(self.rx.scan_at.map_or(soon, |at| at.min(soon)));
        }
        self.choose_ack(core, now, h, (received_at, ce), wire_bytes, part_of);
    }

    /// The latest send time seen. Send times wrap, so after a quiet second any one is later.
    pub(super) fn note_sent_at(&mut self, now: Nanos, sent_at_ns: u32) {
        let ahead = sent_at_ns.wrapping_sub(self.rx.latest_sent_at_ns) as i32;
        if ahead > 0 || self.rx.latest_noted_at.is_none_or(|at| at + SECOND <= now) {
            self.rx.latest_sent_at_ns = sent_at_ns;
            self.rx.latest_noted_at = Some(now);
        }
    }

    /// When to acknowledge, by the policy of the sender's controller (protocol.md §6.1).
    fn choose_ack(
        &mut self,
        core: &Core,
        now: Nanos,
        h: &Header,
        (received_at, ce): (Nanos, bool),
        wire_bytes: u32,
        part_of: Option<u32>,
    ) {
        self.rx.unacked_packets += 1;
        let ended = core::mem::take(&mut self.rx.ended_message);
        let requested = h.flags & FLAG_ACK_REQUEST != 0 || ended;
        let soon = now + core.cfg.ack_delay_ns;
        let awaited = h.flags & FLAG_AWAITED != 0;
        let whole = ended || (awaited && !h.long && self.rx.messages_in_packet == 1);
        let due = match (whole, requested) {
            // The step after this one: the application hears of the message before it.
            (true, _) if awaited => Some(now + 1),
            (true, _) => Some(soon),
            (false, false) if part_of.is_some() => Some(now + self.rest_ns(core)),
            _ => None,
        };
        let lone = due.filter(|_| self.is_lone(part_of)).map(|due| (part_of, due));
        let stream = h.long || (self.rx.messages_in_packet > 1 && !self.answers_to(wire_bytes));
        let due = match self.rx.policy {
            Some(AckPolicy::PerPacket) => {
                self.note_echo(h, received_at, ce);
                match stream || self.rx.unacked_packets > 1 {
                    true if requested => Some(now),
                    true => Some(self.spaced(core, now)),
                    false => Some(soon),
                }
            }
            Some(AckPolicy::Coalesced { packets }) => {
                let full = self.rx.unacked_packets >= u32::from(packets);
                Some(if full || (requested && h.long) { now } else { soon })
            }
            Some(AckPolicy::NackOnly) | None if !requested => None,
            Some(AckPolicy::NackOnly) | None => Some(if stream { now } else { soon }),
        };
        let before = core::mem::replace(&mut self.rx.lone, lone);
        if let Some(mut due) = due {
            if let Some((_, at)) = lone {
                due = at;
                // What was due for the message's earlier segments is due with this one.
                if self.rx.ack_at == before.map(|(_, at)| at) {
                    self.rx.ack_at = None;
                }
            }
            self.rx.ack_at = Some(self.rx.ack_at.map_or(due, |at| at.min(due)));
        }
    }

    /// When the records of a stream go out that nobody asked for: at once, unless writing them costs
    /// this host too much time, and then before the sender's window or the room for records ends.
    fn spaced(&self, core: &Core, now: Nanos) -> Nanos {
        if self.rx.echoes.len() >= ECHOES_MAX / 2 {
            return now;
        }
        let spacing_ns = core.ack_spacing_ns.min(self.rtt.smoothed_ns / 4);
        now.max(self.rx.acked_at + spacing_ns)
    }

    /// This side is likely to answer a bundle of this size soon: it lately sent a message, and the bundle
    /// is so small that its sender had no more to say.
    fn answers_to(&self, wire_bytes: u32) -> bool {
        self.rx.acks_alone < ACKS_ALONE_MAX && wire_bytes <= u32::from(self.datagram_bytes) / 2
    }

    /// All unacknowledged packets are of one short message, or this one is the only one.
    fn is_lone(&self, part_of: Option<u32>) -> bool {
        let rx = &self.rx;
        let same = part_of.is_some() && rx.lone.is_some_and(|(first, _)| first == part_of);
        let alone = match rx.unacked_packets {
            1 => true,
            more => more <= LONE_SEGMENTS_MAX && same,
        };
        alone && !rx.has_holes()
    }

    /// How long the acknowledgement of a message's segments waits for the rest of it.
    fn rest_ns(&self, core: &Core) -> Nanos {
        (self.rtt.smoothed_ns / 2).min(LONE_WAIT_MAX_NS).max(core.cfg.ack_delay_ns)
    }

    /// Adds a packet to the records for the next acknowledgement.
    fn note_echo(&mut self, h: &Header, received_at: Nanos, ce: bool) {
        let ce = u8::from(ce);
        if let Some(last) = self.rx.echoes.last_mut()
            && (last.sent_at_ns, last.path) == (h.sent_at_ns, h.path)
            && Psn(last.psn).plus(last.count.into()) == Psn(h.psn)
            && last.count < u8::MAX
        {
            last.count += 1;
            last.ce += ce;
            return;
        }
        if self.rx.echoes.len() < ECHOES_MAX {
            let (psn, sent_at_ns, path) = (h.psn, h.sent_at_ns, h.path);
            let hold_ns = received_at as u32;
            self.rx.echoes.push(Echo { psn, sent_at_ns, hold_ns, path, count: 1, ce });
        }
    }

    pub(super) fn acknowledged(&mut self, now: Nanos) {
        self.rx.ack_at = None;
        self.rx.acked_at = now;
        self.rx.lone = None;
        self.rx.unacked_packets = 0;
    }
}
