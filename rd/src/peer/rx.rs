//! The receive flow: what arrived, what is missing, what waits for its turn or its match
//! (protocol.md §4, §5).

use super::tx::{LINK_BYTES, TxRecord};
use super::{Core, Peer};
use crate::bitmap::{BITS_MAX, Bitmap};
use crate::cc::AckPolicy;
use crate::config::Config;
use crate::endpoint::RxMeta;
use crate::host::{Arrived, Host, MsgRef, OpError, RecvToken, Verdict};
use crate::stats::DropReason;
use crate::units::{Ecn, Nanos, Order, Psn};
use crate::wire::ack::{ECHOES_MAX, Echo};
use crate::wire::header::{
    FLAG_ACK_REQUEST, FLAG_EAGER, FLAG_PAYLOAD_CRC, HEADER_BYTES, Header, checksum_ok,
};
use crate::wire::record::{Cts, MsgHeader, Record, parse_eager_header};
use crate::wire::setup::Greeting;
use crate::wire::{Malformed, Reader};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hashbrown::HashMap;
use slab::Slab;

/// Most links (Msg_IDs) live at a time (protocol.md §5.4).
const LINKS_MAX: usize = 1 << 15;
/// Links of one message live at a time.
const LINKS_PER_MESSAGE: u32 = 2;

/// A message that came before its turn.
#[derive(Clone, Copy, Debug)]
struct Early {
    msg: MsgHeader,
    rendezvous: bool,
    held: Option<RecvToken>,
    complete: bool,
}

/// An eager message of several packets, not yet whole.
#[derive(Clone, Copy, Debug)]
struct Partial {
    /// `None`: its bytes are dropped.
    to: Option<RecvToken>,
    got_bytes: u32,
    /// It was reported, so its completion may be.
    arrived: bool,
}

/// An announced message that waits for its match.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    op: u32,
    len_bytes: u64,
}

/// A rendezvous message under way.
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
}

/// One Msg_ID in use.
#[derive(Clone, Copy, Debug)]
struct Link {
    incoming: u32,
    base_bytes: u64,
    len_bytes: u32,
    got_bytes: u32,
}

/// The packet whose round trip the next acknowledgement measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastPacket {
    pub sent_at_ns: u32,
    pub path: u8,
    /// When the port received it, on our clock.
    pub received_at: Nanos,
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
    /// Bounded by the eager credit.
    partial: HashMap<u32, Partial>,
    /// Bounded by the order window.
    waiting: HashMap<u32, Waiting>,
    /// Eager messages whose sender wants to know the match: order to operation.
    notices: HashMap<u32, u32>,
    incoming: Slab<Incoming>,
    links: Slab<Link>,
    /// Messages that wait for a free link.
    grants: VecDeque<u32>,
    eager_in_bytes: u32,
    eager_used_bytes: u32,
    messages_used: u32,
    first_order: u32,
    pub(super) eager_told_bytes: u32,
    pub(super) order_told: u32,
    policy: Option<AckPolicy>,
    active: bool,
    pub(super) ack_at: Option<Nanos>,
    pub(super) probe_answer: bool,
    unacked_packets: u32,
    /// Messages in the packet being taken: a lone one may soon be answered by another.
    messages_in_packet: u32,
    pub(super) echoes: Vec<Echo>,
    pub(super) last: Option<LastPacket>,
    pub(super) latest_sent_at_ns: u32,
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
}

impl Rx {
    pub(super) fn start(&mut self, cfg: &Config, g: &Greeting) {
        *self = Rx {
            cum: Psn(g.first_psn),
            high: Psn(g.first_psn),
            next_order: g.first_order,
            first_order: g.first_order,
            eager_told_bytes: cfg.eager_credit_bytes,
            order_told: g.first_order.wrapping_add(cfg.unexpected_messages),
            policy: Some(g.ack_policy),
            ..Rx::default()
        };
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn set_inactive(&mut self) -> bool {
        core::mem::take(&mut self.active)
    }

    /// An acknowledgement could ride on the next bundle.
    pub(super) fn ack_pending(&self) -> bool {
        self.ack_at.is_some() && self.nack_below.is_none() && !self.probe_answer
    }

    /// The peer owes us data: something is half received.
    pub(super) fn expects_data(&self) -> bool {
        self.has_holes()
            || !self.incoming.is_empty()
            || !self.partial.is_empty()
            || !self.early.is_empty()
    }

    /// Packets are known to be missing.
    pub(super) fn has_holes(&self) -> bool {
        self.high.since(self.cum) > 0
    }

    pub(super) fn eager_limit(&self, cfg: &Config) -> u32 {
        self.eager_used_bytes.wrapping_add(cfg.eager_credit_bytes)
    }

    pub(super) fn order_limit(&self, cfg: &Config) -> u32 {
        self.first_order.wrapping_add(self.messages_used).wrapping_add(cfg.unexpected_messages)
    }

    /// Counts a message as consumed, which gives its credit back.
    fn consume(&mut self, credit_bytes: u32) {
        self.messages_used = self.messages_used.wrapping_add(1);
        self.eager_used_bytes = self.eager_used_bytes.wrapping_add(credit_bytes);
    }

    /// Whether the sender should be told of credit that came back.
    fn credit_worth_telling(&self, cfg: &Config) -> bool {
        self.eager_limit(cfg).wrapping_sub(self.eager_told_bytes) >= cfg.eager_credit_bytes / 2
            || self.order_limit(cfg).wrapping_sub(self.order_told) >= cfg.unexpected_messages / 2
    }

    /// Fails everything that is under way.
    pub(super) fn end<H: Host>(&mut self, host: &mut H, error: OpError) {
        let mut tokens: Vec<RecvToken> = self.incoming.iter().map(|(_, i)| i.to).collect();
        tokens.extend(self.partial.values().filter_map(|p| p.to));
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
        }
        if self.echoes.is_empty() {
            self.echoes = Vec::new();
        }
        self.grants.shrink_to_fit();
    }
}

/// A data packet, parsed and checked, before any of it takes effect.
enum Body<'a> {
    Bundle(&'a [u8]),
    Segment(Option<MsgHeader>, &'a [u8]),
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
        Some(parse_eager_header(&mut r).map_err(malformed)?)
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
    if !r.rest().is_empty() {
        return Err(DropReason::Malformed);
    }
    match trailer {
        Some(sum) if sum != (core.cfg.crc32c)(0, payload) => Err(DropReason::PayloadChecksum),
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
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let body = parse_body(core, self.payload_checksum, h, bytes)?;
        let offset = Psn(h.psn).since(self.rx.cum);
        if offset >= BITS_MAX as i32 {
            return Err(DropReason::Window);
        }
        self.heard(core, now);
        if offset < 0 || self.rx.received.get(offset as u32) {
            if h.attempt > 0 {
                self.rx.spurious = self.rx.spurious.wrapping_add(1);
            }
            self.rx.ack_at = Some(now);
            return Err(DropReason::Duplicate);
        }
        match body {
            Body::Bundle(payload) => self.on_bundle(core, host, now, payload)?,
            Body::Segment(Some(msg), payload) => {
                self.on_eager_segment(core, host, now, h, msg, payload)?;
            }
            Body::Segment(None, payload) => self.on_segment(core, host, now, h, payload)?,
        }
        self.note_received(core, now, meta, h, bytes.len() as u32);
        Ok(())
    }

    fn on_bundle<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        mut payload: &[u8],
    ) -> Result<(), DropReason> {
        let records = core::mem::take(&mut core.scratch);
        let mut outcome = Ok(());
        self.rx.messages_in_packet = 0;
        for record in &records {
            let result = match *record {
                Record::Eager(msg) => {
                    let (mine, rest) = payload.split_at(msg.len_bytes as usize);
                    payload = rest;
                    self.rx.messages_in_packet += 1;
                    self.on_eager(core, host, msg, mine)
                }
                Record::Rts(msg) => self.on_rts(core, host, msg),
                Record::Cts(cts) => self.on_cts(core, host, cts),
                Record::Matched { op, order } => {
                    self.on_matched(core, host, op, order);
                    Ok(())
                }
                Record::Ack(state) => self.on_ack(core, host, now, &state, None),
            };
            outcome = outcome.and(result);
        }
        core.scratch = records;
        self.deliver_early(core, host);
        outcome
    }

    /// Whether a message of this order is new: `Ok(true)` in turn, `Ok(false)` early.
    /// `Err(None)` when it was seen before.
    fn turn(&self, core: &Core, order: u32) -> Result<bool, Option<DropReason>> {
        let ahead = Order(order).since(Order(self.rx.next_order));
        if ahead < 0 || self.rx.early.contains_key(&order) {
            return Err(None);
        }
        if (self.rx.order_limit(&core.cfg).wrapping_sub(order) as i32) <= 0 {
            return Err(Some(DropReason::Credit));
        }
        Ok(ahead == 0)
    }

    /// Charges an eager message to the credit given.
    fn charge(&mut self, core: &Core, len_bytes: u64) -> Result<(), DropReason> {
        let total = self.rx.eager_in_bytes.wrapping_add(len_bytes as u32);
        let room = self.rx.eager_limit(&core.cfg).wrapping_sub(total) as i32;
        if room < 0 || len_bytes > u64::from(core.cfg.eager_credit_bytes) {
            return Err(DropReason::Credit);
        }
        self.rx.eager_in_bytes = total;
        Ok(())
    }

    fn arrived(&self, msg: &MsgHeader, rendezvous: bool, held: Option<RecvToken>) -> Arrived {
        Arrived {
            msg: MsgRef {
                peer: self.id,
                session: self.session,
                order: Order(msg.order),
                credit_bytes: if rendezvous { 0 } else { msg.len_bytes as u32 },
            },
            tag: msg.tag,
            data: msg.data,
            len_bytes: msg.len_bytes,
            rendezvous,
            held,
        }
    }

    fn on_eager<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: MsgHeader,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let in_turn = match self.turn(core, msg.order) {
            Ok(in_turn) => in_turn,
            Err(None) => return Ok(()),
            Err(Some(reason)) => return Err(reason),
        };
        if !in_turn {
            let held = match payload.is_empty() {
                true => None,
                false => Some(host.hold(self.id, msg.len_bytes).ok_or(DropReason::NoBuffer)?),
            };
            if let Err(reason) = self.charge(core, msg.len_bytes) {
                if let Some(to) = held {
                    host.received(to, Err(OpError::Canceled));
                }
                return Err(reason);
            }
            if let Some(to) = held {
                host.place(to, 0, payload);
            }
            let early = Early { msg, rendezvous: false, held, complete: true };
            self.rx.early.insert(msg.order, early);
            core.stats.rx_payload_bytes += msg.len_bytes;
            return Ok(());
        }
        self.charge(core, msg.len_bytes)?;
        self.rx.next_order = msg.order.wrapping_add(1);
        if let Some(to) = self.report(core, host, &msg, None) {
            if !payload.is_empty() {
                host.place(to, 0, payload);
            }
            host.received(to, Ok(msg.len_bytes));
        }
        core.stats.rx_payload_bytes += msg.len_bytes;
        core.stats.messages_received += 1;
        // Later messages may wait for this one; most often none does.
        if !self.rx.early.is_empty() {
            self.deliver_early(core, host);
        }
        Ok(())
    }

    /// Reports an eager message in its turn. Returns where its bytes go, `None` for nowhere
    /// (or, with `held`, for where they already are).
    fn report<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: &MsgHeader,
        held: Option<RecvToken>,
    ) -> Option<RecvToken> {
        let arrived = self.arrived(msg, false, held);
        let verdict = host.arrived(&arrived);
        let (to, consumed) = match verdict {
            Verdict::Discard => (None, true),
            Verdict::Matched(to, _) => (Some(to), held.is_none()),
            Verdict::Held(to) => (Some(to), false),
            Verdict::Wait => {
                debug_assert!(held.is_some() || msg.len_bytes == 0, "eager bytes need a place");
                (None, false)
            }
        };
        if consumed {
            self.consume(core, msg.len_bytes as u32);
        }
        if msg.match_notice {
            if consumed {
                let notice = TxRecord::Matched { op: msg.op, order: msg.order };
                self.tx.control.push_back(notice);
            } else {
                self.rx.notices.insert(msg.order, msg.op);
            }
        }
        to
    }

    fn consume(&mut self, core: &Core, credit_bytes: u32) {
        self.rx.consume(credit_bytes);
        if self.rx.credit_worth_telling(&core.cfg) {
            self.rx.ack_at = Some(0);
        }
    }

    /// Reports messages whose turn has come.
    fn deliver_early<H: Host>(&mut self, core: &mut Core, host: &mut H) {
        while let Some(early) = self.rx.early.remove(&self.rx.next_order) {
            self.rx.next_order = self.rx.next_order.wrapping_add(1);
            if early.rendezvous {
                self.report_rts(core, host, &early.msg);
                continue;
            }
            let to = self.report(core, host, &early.msg, early.held);
            if early.complete {
                core.stats.messages_received += 1;
                if let Some(to) = early.held.or(to) {
                    host.received(to, Ok(early.msg.len_bytes));
                }
            } else if let Some(partial) = self.rx.partial.get_mut(&early.msg.order) {
                partial.arrived = true;
            }
        }
    }

    fn on_eager_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        h: &Header,
        msg: MsgHeader,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let end = u64::from(h.s_offset) + payload.len() as u64;
        if payload.is_empty() || end > msg.len_bytes {
            return Err(DropReason::Message);
        }
        if !self.rx.partial.contains_key(&msg.order) {
            match self.turn(core, msg.order) {
                Ok(in_turn) => self.open_partial(core, host, msg, in_turn)?,
                Err(None) => return Ok(()),
                Err(Some(reason)) => return Err(reason),
            }
        }
        let Some(partial) = self.rx.partial.get_mut(&msg.order) else {
            return Err(DropReason::Message);
        };
        partial.got_bytes += payload.len() as u32;
        let whole = u64::from(partial.got_bytes) >= msg.len_bytes;
        let partial = *partial;
        if let Some(to) = partial.to {
            host.place(to, u64::from(h.s_offset), payload);
        }
        core.stats.rx_payload_bytes += payload.len() as u64;
        if whole {
            self.rx.partial.remove(&msg.order);
            self.rx.ack_at = Some(now);
            if partial.arrived {
                core.stats.messages_received += 1;
                if let Some(to) = partial.to {
                    host.received(to, Ok(msg.len_bytes));
                }
            } else if let Some(early) = self.rx.early.get_mut(&msg.order) {
                early.complete = true;
            }
        }
        self.deliver_early(core, host);
        Ok(())
    }

    /// First segment of an eager message of several packets.
    fn open_partial<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: MsgHeader,
        in_turn: bool,
    ) -> Result<(), DropReason> {
        if in_turn {
            self.charge(core, msg.len_bytes)?;
            self.rx.next_order = msg.order.wrapping_add(1);
            let to = self.report(core, host, &msg, None);
            self.rx.partial.insert(msg.order, Partial { to, got_bytes: 0, arrived: true });
            return Ok(());
        }
        let to = host.hold(self.id, msg.len_bytes).ok_or(DropReason::NoBuffer)?;
        if let Err(reason) = self.charge(core, msg.len_bytes) {
            host.received(to, Err(OpError::Canceled));
            return Err(reason);
        }
        let held = Some(to);
        let early = Early { msg, rendezvous: false, held, complete: false };
        self.rx.early.insert(msg.order, early);
        self.rx.partial.insert(msg.order, Partial { to: held, got_bytes: 0, arrived: false });
        Ok(())
    }

    fn on_rts<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: MsgHeader,
    ) -> Result<(), DropReason> {
        match self.turn(core, msg.order) {
            Ok(true) => {
                self.rx.next_order = msg.order.wrapping_add(1);
                self.report_rts(core, host, &msg);
            }
            Ok(false) => {
                let early = Early { msg, rendezvous: true, held: None, complete: false };
                self.rx.early.insert(msg.order, early);
            }
            Err(None) => {}
            Err(Some(reason)) => return Err(reason),
        }
        Ok(())
    }

    fn report_rts<H: Host>(&mut self, core: &mut Core, host: &mut H, msg: &MsgHeader) {
        let verdict = host.arrived(&self.arrived(msg, true, None));
        self.rx.waiting.insert(msg.order, Waiting { op: msg.op, len_bytes: msg.len_bytes });
        match verdict {
            Verdict::Matched(to, capacity) => {
                self.accept(core, host, msg.order, to, capacity);
            }
            Verdict::Discard => self.release(core, Order(msg.order), 0),
            Verdict::Held(_) | Verdict::Wait => {}
        }
    }

    /// A waiting rendezvous met its receive. False when there is none.
    pub(crate) fn accept<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        order: u32,
        to: RecvToken,
        capacity_bytes: u64,
    ) -> bool {
        let Some(waiting) = self.rx.waiting.remove(&order) else { return false };
        self.consume(core, 0);
        let wanted_bytes = waiting.len_bytes.min(capacity_bytes);
        if wanted_bytes == 0 {
            self.push_empty_cts(order, waiting.op);
            core.stats.messages_received += 1;
            host.received(to, Ok(waiting.len_bytes));
            return true;
        }
        let index = self.rx.incoming.insert(Incoming {
            to,
            order,
            op: waiting.op,
            len_bytes: waiting.len_bytes,
            wanted_bytes,
            granted_bytes: 0,
            got_bytes: 0,
            links: 0,
        });
        self.rx.grants.push_back(index as u32);
        self.grant();
        true
    }

    fn push_empty_cts(&mut self, order: u32, op: u32) {
        let cts = Cts { order, op, msg_id: 0, base_bytes: 0, len_bytes: 0, total_bytes: 0 };
        self.tx.control.push_back(TxRecord::Cts(cts));
    }

    /// An unexpected message left the driver's queue, or is not wanted.
    pub(crate) fn release(&mut self, core: &mut Core, order: Order, credit_bytes: u32) {
        if let Some(waiting) = self.rx.waiting.remove(&order.0) {
            self.push_empty_cts(order.0, waiting.op);
        }
        if let Some(op) = self.rx.notices.remove(&order.0) {
            self.tx.control.push_back(TxRecord::Matched { op, order: order.0 });
        }
        self.consume(core, credit_bytes);
    }

    /// Gives links to messages that wait for one.
    fn grant(&mut self) {
        while let Some(&index) = self.rx.grants.front() {
            let m = &mut self.rx.incoming[index as usize];
            while m.granted_bytes < m.wanted_bytes && m.links < LINKS_PER_MESSAGE {
                if self.rx.links.len() >= LINKS_MAX {
                    return;
                }
                let len_bytes = (m.wanted_bytes - m.granted_bytes).min(LINK_BYTES) as u32;
                let base_bytes = m.granted_bytes;
                let link = Link { incoming: index, base_bytes, len_bytes, got_bytes: 0 };
                let slot = self.rx.links.insert(link);
                m.granted_bytes += u64::from(len_bytes);
                m.links += 1;
                self.tx.control.push_back(TxRecord::Cts(Cts {
                    order: m.order,
                    op: m.op,
                    msg_id: 0x8000 | slot as u16,
                    base_bytes,
                    len_bytes,
                    total_bytes: m.wanted_bytes,
                }));
            }
            self.rx.grants.pop_front();
        }
    }

    fn on_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        h: &Header,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let slot = usize::from(h.msg_id & 0x7fff);
        let known = h.msg_id & 0x8000 != 0;
        let link = self.rx.links.get_mut(slot).filter(|_| known).ok_or(DropReason::Message)?;
        let room = link.len_bytes - link.got_bytes;
        let end = u64::from(h.s_offset) + payload.len() as u64;
        if payload.is_empty()
            || end > u64::from(link.len_bytes)
            || payload.len() as u64 > u64::from(room)
        {
            return Err(DropReason::Message);
        }
        link.got_bytes += payload.len() as u32;
        let link = *link;
        let message = &mut self.rx.incoming[link.incoming as usize];
        host.place(message.to, link.base_bytes + u64::from(h.s_offset), payload);
        core.stats.rx_payload_bytes += payload.len() as u64;
        if link.got_bytes < link.len_bytes {
            return Ok(());
        }
        self.rx.links.remove(slot);
        message.links -= 1;
        message.got_bytes += u64::from(link.len_bytes);
        if message.got_bytes == message.wanted_bytes {
            let whole = self.rx.incoming.remove(link.incoming as usize);
            self.rx.ack_at = Some(now);
            core.stats.messages_received += 1;
            host.received(whole.to, Ok(whole.len_bytes));
        } else if message.granted_bytes < message.wanted_bytes {
            self.rx.grants.push_back(link.incoming);
        }
        self.grant();
        Ok(())
    }

    /// Enters an accepted packet into the bitmap and decides on its acknowledgement.
    fn note_received(
        &mut self,
        core: &mut Core,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        wire_bytes: u32,
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
        self.note_sent_at(h.sent_at_ns);
        let received_at = now.saturating_sub(meta.hold_ns);
        let (sent_at_ns, path) = (h.sent_at_ns, h.path);
        self.rx.last = Some(LastPacket { sent_at_ns, path, received_at });
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
        self.choose_ack(core, now, h, received_at, ce);
    }

    /// The latest send time seen, wrapping.
    pub(super) fn note_sent_at(&mut self, sent_at_ns: u32) {
        if self.rx.last.is_none() || (sent_at_ns.wrapping_sub(self.rx.latest_sent_at_ns) as i32) > 0
        {
            self.rx.latest_sent_at_ns = sent_at_ns;
        }
    }

    /// When to acknowledge, by the policy of the sender's controller (protocol.md §6.1).
    fn choose_ack(&mut self, core: &Core, now: Nanos, h: &Header, received_at: Nanos, ce: bool) {
        self.rx.unacked_packets += 1;
        let requested = h.flags & FLAG_ACK_REQUEST != 0;
        let soon = now + core.cfg.ack_delay_ns;
        let due = match self.rx.policy {
            Some(AckPolicy::PerPacket) => {
                let (psn, sent_at_ns, path) = (h.psn, h.sent_at_ns, h.path);
                let hold_ns = now.saturating_sub(received_at) as u32;
                if self.rx.echoes.len() < ECHOES_MAX {
                    self.rx.echoes.push(Echo { psn, sent_at_ns, hold_ns, path, ce });
                }
                Some(now)
            }
            Some(AckPolicy::Coalesced { packets }) => {
                let full = self.rx.unacked_packets >= u32::from(packets);
                Some(if full || (requested && h.long) { now } else { soon })
            }
            Some(AckPolicy::NackOnly) | None if !requested => None,
            Some(AckPolicy::NackOnly) | None => {
                let stream = h.long || self.rx.messages_in_packet > 1;
                Some(if stream { now } else { soon })
            }
        };
        if let Some(due) = due {
            self.rx.ack_at = Some(self.rx.ack_at.map_or(due, |at| at.min(due)));
        }
    }

    pub(super) fn acknowledged(&mut self) {
        self.rx.ack_at = None;
        self.rx.unacked_packets = 0;
    }
}
