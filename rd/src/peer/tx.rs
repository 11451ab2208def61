//! The choice of the next data packet: repetitions, bundles, segments (protocol.md §4, §5).

use super::acks::LONE_SEGMENTS_MAX;
use super::bundle::{bundled, wire_record};
use super::flight::Content;
use super::record::TxRecord;
use super::transfers::Transfer;
use super::writing::{Form, emit_bundle, emit_segment};
use super::{Core, Peer};
use crate::cc::AckPolicy;
use crate::host::Host;
use crate::keys::TRAILER_BYTES;
use crate::mutants::{Mutant, mutant};
use crate::transmit::TxBurst;
use crate::units::{Nanos, Psn};
use crate::wire::ack::{ACK_BYTES, AckState};
use crate::wire::header::{
    FLAG_ACK_REQUEST, FLAG_AWAITED, FLAG_HELD, FLAG_LAST, HEADER_BYTES, Header, PacketKind,
};
use crate::wire::record::{ACK_RECORD_BYTES, EAGER_HEADER_BYTES};

/// Most datagrams in one burst (the smallest segmentation limit of a kernel that has it).
const BURST_DATAGRAMS: u32 = 64;
/// Bundles in flight beyond which further small messages wait for an acknowledgement or for a
/// full datagram (protocol.md §5.2).
const BUNDLES_IN_FLIGHT: u32 = 2;
/// Operations under way, including the new one, up to which a small message goes at once: an application with no more
/// waits for an answer, which carries the acknowledgement.
const OPERATIONS_AT_ONCE: u32 = 2;

impl Peer {
    /// Whether a new packet of `bytes` may go now.
    fn may_send(&self, now: Nanos, bytes: u64) -> bool {
        self.tx.flight.has_room() && self.windows_take(now, bytes)
    }

    /// Whether pace, controller and receiver take `bytes` more, new or repeated.
    fn windows_take(&self, now: Nanos, bytes: u64) -> bool {
        self.tx.steering.takes(now, &self.tx.flight, bytes, self.datagram_bytes)
    }

    /// Bytes of a datagram without the trailer of a key.
    pub(super) fn room_bytes(&self) -> u16 {
        self.datagram_bytes - if self.proofs.is_some() { TRAILER_BYTES as u16 } else { 0 }
    }

    /// Payload bytes that fit into a bundle with records of `n` header bytes so far.
    pub(super) fn bundle_room(&self, used: usize) -> usize {
        let fixed = HEADER_BYTES + 2 + ACK_RECORD_BYTES + 4;
        usize::from(self.room_bytes()).saturating_sub(fixed + used)
    }

    /// Repeats a lost packet, if one waits and the window allows.
    pub(super) fn transmit_retry<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
    ) -> bool {
        let Some((place, entry)) = self.tx.flight.next_retry() else { return false };
        // All others wait for the lowest one. The SACK bitmap may end before those in flight, so nothing else would
        // ever make room.
        let may_exceed = !self.tx.steering.is_strict() && !self.tx.steering.is_paced(now);
        let is_lowest = place == 0 && may_exceed;
        if !is_lowest && !self.windows_take(now, u64::from(entry.bytes)) {
            if mutant(Mutant::DropsRetransmissionsAtAClosedWindow) {
                self.tx.flight.take_retry();
            }
            return false;
        }
        self.tx.flight.take_retry();
        // A late packet tries no bad path.
        let (path, _) = self.tx.steering.next_path(&core.cfg, now, false);
        let psn = self.tx.flight.una().plus(place as u32);
        let attempt = entry.attempt.saturating_add(1);
        let h = self.data_header(now, psn, path, attempt, FLAG_ACK_REQUEST);
        let bytes = match entry.content {
            Content::Bundle { first, count } => {
                let ack = self.riding_ack_beside(core, now, first, count);
                let records = self.tx.flight.records(first, count);
                let proofs = self.proofs.as_deref_mut();
                let form = Form { checksum: self.payload_checksum, proofs };
                emit_bundle(core, host, burst, h, records, ack, form)
            }
            Content::Segment { .. } => {
                let proofs = self.proofs.as_deref_mut();
                let form = Form { checksum: self.payload_checksum, proofs };
                emit_segment(core, host, burst, h, entry.content, None, form)
            }
        };
        self.tx.flight.repeated(place, now, bytes, path);
        burst.path = path;
        self.note_burst(core, now, burst, true);
        true
    }

    fn data_header(&self, now: Nanos, psn: Psn, path: u16, attempt: u8, flags: u8) -> Header {
        let has_more = flags & FLAG_LAST == 0 && self.tx.wants();
        let is_held =
            has_more && self.tx.steering.is_held(&self.tx.flight, self.datagram_bytes.into());
        Header {
            flags: if is_held { flags | FLAG_HELD } else { flags },
            path: path as u8,
            attempt,
            psn: psn.0,
            sent_at_ns: now as u32,
            ..Header::new(PacketKind::Data, self.session.their_id())
        }
    }

    /// Notes a sent burst in all parts, and arms the timers that guard it.
    fn note_burst(&mut self, core: &mut Core, now: Nanos, burst: &mut TxBurst, repeated: bool) {
        burst.to = self.name;
        self.touch(now);
        burst.may_fragment = self.size.may_fragment(burst.segment_bytes);
        self.size.sending(now);
        let ecn = core.near.as_ref().filter(|_| self.near).map(|near| near.ecn);
        let of_link = (self.paths, self.datagram_bytes);
        let feedback = (self.tx.flight.bytes(), repeated);
        self.tx.steering.space(now, burst.total_bytes, self.datagram_bytes, &mut core.rng);
        burst.ecn = self.tx.steering.sent(&core.cfg, now, burst, of_link, ecn, feedback);
        self.live.sent(now, self.probe_timeout_ns(core));
        self.tail.sent(now, self.tx.steering.tail_timeout_ns(&core.cfg));
    }

    /// Whether small messages should go now (protocol.md §5.2).
    pub(crate) fn bundle_due(&self, core: &Core, flush: bool) -> bool {
        let (out, flight) = (&self.tx.out, &self.tx.flight);
        if out.has_records() || self.responder.has_done() {
            return true;
        }
        if out.queued() == 0 || !out.has_order_credit() {
            return false;
        }
        let looked_since = flight.newest_sent_at().is_none_or(|at| core.looked_at > at);
        let alone = out.ops() <= OPERATIONS_AT_ONCE && looked_since;
        flight.packets() == 0
            || ((flush || alone) && flight.bundles() < BUNDLES_IN_FLIGHT)
            || out.queued_bytes() >= self.bundle_room(0) as u64
    }

    /// Sends one datagram of records, if the window allows.
    pub(super) fn transmit_bundle<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
    ) -> bool {
        let likely = self.tx.out.queued_bytes().min(u64::from(self.datagram_bytes));
        if !self.may_send(now, likely) {
            return false;
        }
        let first = self.tx.flight.next_record();
        let count = self.fill_bundle(core, host);
        if count == 0 {
            return false;
        }
        let psn = self.tx.flight.next_psn();
        let (path, _) = self.tx.steering.next_path(&core.cfg, now, true);
        let awaited = if self.awaits_only(core, first, count) { FLAG_AWAITED } else { 0 };
        let h = self.data_header(now, psn, path, 0, FLAG_ACK_REQUEST | awaited);
        let ack = self.riding_ack_beside(core, now, first, count);
        let records = self.tx.flight.records(first, count);
        let proofs = self.proofs.as_deref_mut();
        let form = Form { checksum: self.payload_checksum, proofs };
        let bytes = emit_bundle(core, host, burst, h, records, ack, form);
        self.tx.flight.push(now, bytes, path, Content::Bundle { first, count });
        self.tx.out.requests_ack(0, 0, true);
        core.stats.tx_data += 1;
        burst.path = path;
        self.note_burst(core, now, burst, false);
        true
    }

    /// State to piggyback on a bundle, where it has room: with a key, the longest atomic leaves none.
    fn riding_ack_beside(
        &mut self,
        core: &mut Core,
        now: Nanos,
        first: u64,
        count: u16,
    ) -> Option<AckState> {
        if self.proofs.is_some() {
            let bytes = |record: &TxRecord| {
                let payload_bytes = bundled(core, record).map_or(0, |(_, bytes)| bytes as usize);
                wire_record(record, core, 0).header_bytes() + payload_bytes
            };
            let used: usize = self.tx.flight.records(first, count).map(bytes).sum();
            if used > self.bundle_room(0) {
                return None;
            }
        }
        self.riding_ack(core, now)
    }

    /// True if the application waits for the only message of a bundle of `count` records, and nothing else is under way
    /// to the peer: no later acknowledgement comes anyway.
    fn awaits_only(&self, core: &Core, first: u64, count: u16) -> bool {
        let awaited = |record: &TxRecord| match *record {
            TxRecord::Eager(index) => core.ops[index as usize].awaited,
            _ => false,
        };
        count == 1
            && self.tx.flight.packets() == 0
            && self.tx.out.queued() == 0
            && self.tx.flight.records(first, count).all(awaited)
    }

    /// Sends segments of the payload that is next, up to a burst, if the window allows.
    pub(super) fn transmit_segments<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
    ) -> bool {
        let Some(mut t) = self.tx.out.next_transfer() else { return false };
        let datagram_bytes = u64::from(self.datagram_bytes);
        if !self.may_send(now, datagram_bytes) {
            return false;
        }
        let room = self.segment_room(t.eager);
        let steering = &mut self.tx.steering;
        let (path, is_try) = steering.next_path(&core.cfg, now, true);
        let burst_bytes = steering.burst_bytes(self.datagram_bytes);
        let alone = is_try || steering.told().space_ns() > 0;
        let most = if alone { 0 } else { burst_bytes.min(core.cfg.burst_bytes.into()) };
        let limit = steering.limit_bytes(now, &self.tx.flight, self.datagram_bytes);
        let on_request =
            t.eager || core.terms(self.near).scheme.ack_policy() == AckPolicy::NackOnly;
        while t.done_bytes < t.len_bytes && burst.datagrams < BURST_DATAGRAMS {
            let len = (t.len_bytes - t.done_bytes).min(u64::from(room)) as u16;
            let (steering, flight) = (&self.tx.steering, &self.tx.flight);
            let over = burst.datagrams > 0
                && (u64::from(burst.total_bytes) + datagram_bytes > most
                    || !flight.has_room()
                    || !steering.takes_more(limit, flight, datagram_bytes, self.datagram_bytes));
            if over {
                break;
            }
            let fills = on_request
                && (!steering.takes_more(limit, flight, 2 * datagram_bytes, self.datagram_bytes)
                    || flight.is_filled_by_next());
            self.transmit_segment(core, host, now, burst, &mut t, (len, path, fills));
        }
        self.tx.out.advance(t);
        burst.path = path;
        self.note_burst(core, now, burst, false);
        true
    }

    /// True if an eager message of this length gets one acknowledgement (protocol.md §6.1).
    pub(super) fn is_acked_whole(&self, len_bytes: u64) -> bool {
        len_bytes <= u64::from(LONE_SEGMENTS_MAX) * u64::from(self.segment_room(true))
    }

    /// Payload bytes of one segment: what headers and a payload checksum leave.
    fn segment_room(&self, eager: bool) -> u16 {
        let header = HEADER_BYTES + if eager { EAGER_HEADER_BYTES } else { 0 };
        self.room_bytes() - header as u16 - 4
    }

    /// Sends the next segment of a transfer.
    fn transmit_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
        t: &mut Transfer,
        (len, path, fills): (u16, u16, bool),
    ) {
        let psn = self.tx.flight.next_psn();
        let offset_bytes = t.base_bytes + t.done_bytes;
        t.done_bytes += u64::from(len);
        let last = t.done_bytes == t.len_bytes;
        let psn_window = self.tx.flight.psn_window();
        let most_bytes = match t.eager && self.is_acked_whole(t.len_bytes) {
            true => u64::MAX,
            false => self.tx.steering.request_bytes(psn_window, self.datagram_bytes),
        };
        let request = self.tx.out.requests_ack(len.into(), most_bytes, last || fills);
        let request = match self.tx.steering.is_strict() {
            true => {
                last || self.tx.steering.is_filled_by_next(&self.tx.flight, self.datagram_bytes)
            }
            false => request,
        };
        let awaited =
            last && t.eager && core.ops[t.op as usize].awaited && self.tx.out.queued() == 0;
        let flags = if request { FLAG_ACK_REQUEST } else { 0 };
        let flags = if awaited { flags | FLAG_AWAITED } else { flags };
        let ends = last && self.tx.out.is_last() && !self.tx.flight.has_retries();
        let flags = if ends { flags | FLAG_LAST } else { flags };
        let content = Content::Segment {
            op: t.op,
            msg_id: t.msg_id,
            s_offset: (offset_bytes - t.base_bytes) as u32,
            offset_bytes,
            len,
            eager: t.eager,
        };
        let op = &mut core.ops[t.op as usize];
        op.unacked += 1;
        op.sent_bytes += u64::from(len);
        let h = self.data_header(now, psn, path, 0, flags);
        // The last segment most often has room for an acknowledgement that waits.
        let fits = usize::from(self.segment_room(t.eager)) >= usize::from(len) + ACK_BYTES;
        let ack = match t.eager && last && fits {
            true => self.riding_ack(core, now),
            false => None,
        };
        let proofs = self.proofs.as_deref_mut();
        let form = Form { checksum: self.payload_checksum, proofs };
        let bytes = emit_segment(core, host, burst, h, content, ack, form);
        self.tx.flight.push(now, bytes, path, content);
        core.stats.tx_data += 1;
        core.stats.tx_payload_bytes += u64::from(len);
    }
}
