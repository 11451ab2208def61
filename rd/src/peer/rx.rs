//! The peer's messages that wait for their turn, their match or their bytes (protocol.md §5). `rx/messages.rs` and
//! `rx/requests.rs` take the packets' contents; `responder.rs` has the waiting requests.

#[cfg(test)]
mod bounds;
mod coverage;
mod credit;
mod lent;
pub(super) mod links;
mod messages;
pub(super) mod requests;
pub(crate) mod tables;

use super::acks::Taken;
use super::inbound::Arrival;
use super::rare::{Rare, Table};
use super::record::ReadPart;
use super::{Core, Peer};
use crate::arrival::{Datagram, RxMeta};
use crate::config::Config;
use crate::host::{Host, OpError, RecvToken, Sources};
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::{Ecn, Nanos, Psn};
use crate::wire::ack::{ACK_BYTES, AckState};
use crate::wire::header::{
    FLAG_ACK, FLAG_EAGER, FLAG_HELD, FLAG_LAST, FLAG_PAYLOAD_CRC, HEADER_BYTES, Header, checksum_ok,
};
use crate::wire::record::{EAGER_HEADER_BYTES, MsgHeader, Record, parse_eager_header};
use crate::wire::setup::Greeting;
use crate::wire::{Malformed, Reader};
use alloc::vec::Vec;
pub(crate) use coverage::SpareGaps;
use coverage::{Coverage, Gaps};
pub(crate) use credit::Budget;
use credit::{Credit, Kept};
pub use credit::{MESSAGE_COST_BYTES, ORDERS_LEAST};
use links::{Links, NextSegment};

/// A message that came before its turn.
#[derive(Clone, Copy, Debug)]
struct Early {
    msg: MsgHeader,
    rendezvous: bool,
    held: Option<RecvToken>,
    complete: bool,
}

/// An eager message of several packets, not yet whole.
#[derive(Debug)]
struct Partial {
    to: RecvToken,
    len_bytes: u64,
    coverage: Coverage,
    /// It was reported, so its completion may be, too.
    arrived: bool,
    /// It is among [`Rx::kept_messages`].
    kept: bool,
}

/// An announced message that waits for its match.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    op: u32,
    len_bytes: u64,
    /// Where its bytes are, if a peer on this host has told.
    sources: Sources,
}

/// Receive state. Holds only numbers while nothing is outstanding.
#[derive(Default)]
pub(crate) struct Rx {
    next_order: u32,
    /// Bounded by the order window.
    early: Table<Early>,
    /// Bounded by the eager credit.
    partial: Table<Partial>,
    /// Bounded by the order window.
    waiting: Table<Waiting>,
    /// Eager messages whose sender wants a match notice: order to operation.
    notices: Table<u32>,
    /// The gaps within `partial` and `links`.
    gaps: Gaps,
    links: Rare<Links>,
    eager_in_bytes: u32,
    first_order: u32,
    /// Lent from the first greeting on.
    credit: Credit,
    /// Eager messages reported and not consumed: their number and total length.
    kept_messages: Kept,
}

impl Rx {
    pub(super) fn start(&mut self, g: &Greeting) {
        *self = Rx {
            next_order: g.first_order,
            first_order: g.first_order,
            credit: self.credit,
            ..Rx::default()
        };
    }

    /// True if something is half received.
    pub(super) fn is_amid(&self) -> bool {
        !self.links.is_empty() || !self.partial.is_empty() || !self.early.is_empty()
    }

    /// True if messages wait here for the application.
    pub(super) fn awaits_application(&self) -> bool {
        !self.waiting.is_empty() || !self.notices.is_empty()
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

    /// The limits for eager bytes and send orders. They count as sent from now on.
    pub(super) fn tell_limits(&mut self, cfg: &Config, budget: &mut Budget) -> (u32, u32) {
        let (bytes, orders) = self.credit.tell(cfg, budget);
        (bytes, self.first_order.wrapping_add(orders))
    }

    /// Counts messages as consumed, which gives their credit back. True if that is worth a message to the peer.
    fn consume(&mut self, cfg: &Config, budget: &mut Budget, messages: u32, bytes: u32) -> bool {
        let messages = if mutant(Mutant::WithholdsOrderCredit) { 0 } else { messages };
        self.credit.consume(cfg, budget, messages, bytes)
    }

    /// Returns an ended session's loans and memory to the budget. Returns what stays with the driver: whole messages,
    /// which the application may still receive.
    pub(super) fn close_credit(&mut self, cfg: &Config, budget: &mut Budget) -> Kept {
        self.credit.close(cfg, budget);
        for partial in self.partial.values().filter(|partial| partial.kept) {
            self.kept_messages.remove(partial.len_bytes as u32);
        }
        core::mem::take(&mut self.kept_messages)
    }

    /// Fails everything under way, and the `kept` buffers of requests.
    pub(super) fn end<H: Host>(
        &mut self,
        host: &mut H,
        error: OpError,
        kept: impl Iterator<Item = RecvToken>,
    ) {
        if mutant(Mutant::LeavesReceivesPending) {
            return;
        }
        let mut tokens: Vec<RecvToken> = self.links.buffers().collect();
        tokens.extend(kept);
        tokens.extend(self.partial.values().map(|p| p.to));
        let whole = self.early.values().filter(|e| e.complete);
        tokens.extend(whole.filter_map(|e| e.held));
        tokens.sort_unstable();
        for to in tokens {
            host.received(to, Err(error));
        }
    }

    /// Frees heap memory when nothing is outstanding.
    pub(super) fn reclaim(&mut self) {
        self.early.reclaim();
        self.partial.reclaim();
        self.waiting.reclaim();
        self.notices.reclaim();
        if self.links.is_empty() {
            self.links.forget();
        }
    }
}

impl Rx {
    /// Hands the next expected segments to `f`, in order, until it returns false.
    pub(crate) fn each_next_segment(&self, f: impl FnMut(NextSegment) -> bool) {
        self.links.each_next_segment(f);
    }

    /// Opens a link for a part of a read, and with the first one its entry. `None` if all links
    /// are in use.
    pub(super) fn open_read(
        &mut self,
        entry: Option<u32>,
        to: RecvToken,
        part: &ReadPart,
        len_bytes: u64,
    ) -> Option<(u32, u16)> {
        self.links.open_read(entry, to, part, len_bytes)
    }

    /// Number of parts of our reads under way.
    pub(super) fn reads(&self) -> usize {
        self.links.reads()
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self) {
        self.links.check();
        let whole = self.early.values().filter(|early| early.complete && !early.rendezvous);
        let early = self.early.len() - whole.count();
        let partial = self.partial.values().filter(|partial| !partial.arrived).count();
        assert!(partial <= early, "what is half received and was not reported came early");
        let spent = self.credit.bytes.limit.wrapping_sub(self.eager_in_bytes) as i32;
        assert!(spent >= 0, "no eager bytes are taken without credit");
    }
}

/// A data packet, parsed and checked, before any of it takes effect.
enum Body<'a> {
    Bundle(&'a [u8]),
    /// A segment, with the message header and acknowledgement of an eager one.
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
    if !checksum_ok(head, core.checksum()) {
        return Err(DropReason::HeaderChecksum);
    }
    if protected {
        return Err(DropReason::PayloadChecksum);
    }
    Ok(Body::Segment(None, payload))
}

/// Parses the part after the common header; leaves a bundle's records in `core.scratch`.
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
    if !checksum_ok(&bytes[..region], core.checksum()) {
        return Err(DropReason::HeaderChecksum);
    }
    let payload = r.take(expected).map_err(malformed)?;
    let trailer =
        if h.flags & FLAG_PAYLOAD_CRC != 0 { Some(r.u32().map_err(malformed)?) } else { None };
    if !r.rest().is_empty() {
        return Err(DropReason::Malformed);
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
    /// Takes a data packet of this session.
    pub(crate) fn on_data<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        datagram: Datagram<'_>,
    ) -> Result<(), DropReason> {
        if self.has_lane() {
            return Err(DropReason::WrongState);
        }
        let body = match datagram {
            Datagram::Whole(bytes) => parse_body(core, self.payload_checksum, h, bytes)?,
            Datagram::Apart(head, payload) => {
                apart_body(core, self.payload_checksum, h, head, payload)?
            }
        };
        let seen = self.acks.received().has(Psn(h.psn))?;
        self.heard(core, now);
        let arrived = now.saturating_sub(meta.hold_ns);
        let wire_bytes = datagram.len_bytes() + core.trailer_bytes() as u32;
        let whole_rtt_ns = self.tx.steering.whole_rtt_ns();
        // Above 0 if the peer is not known to have sent this one or a later one, and below 0 if it has sent a later one.
        let newer = Psn(h.psn).plus(1).since(self.acks.received().high());
        let (held, late) = (h.flags & FLAG_HELD != 0, newer <= 0);
        let packet = Arrival { now, arrived, bytes: wire_bytes, held, late, whole_rtt_ns };
        match self.near {
            true => core.inbound.heard_near(&packet, &mut self.heard_in),
            false => core.inbound.heard(&packet, &mut self.heard_in, &core.link()),
        }
        if seen {
            self.acks.repeated(now, h);
            return Err(DropReason::Duplicate);
        }
        let part_of = match body {
            Body::Segment(Some((msg, _)), _) if self.is_acked_whole(msg.len_bytes) => {
                Some(msg.order)
            }
            _ => None,
        };
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
        if h.flags & FLAG_LAST != 0 && newer >= 0 {
            core.inbound.done(&mut self.heard_in);
        }
        let ce = meta.ecn == Ecn::Ce;
        let taken = Taken { received_at: arrived, ce, wire_bytes, part_of };
        self.acks.taken(now, h, &taken, self.pace(core));
        core.stats.rx_data += 1;
        core.stats.rx_ce += u64::from(ce);
        self.touch(now);
        Ok(())
    }

    /// Takes a packet of this session without its payload, and asks for it again at once.
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
        if !checksum_ok(head, core.checksum()) {
            return Err(DropReason::HeaderChecksum);
        }
        self.acks.trimmed(now, h)?;
        self.heard(core, now);
        Err(DropReason::Trimmed)
    }
}
