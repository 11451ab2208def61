//! The transmit flow: what waits, what is in flight, and how packets are built
//! (protocol.md §4, §5).

use super::bundle::{bundled, msg_header, wire_record};
use super::flow::Flow;
use super::hosts::Hosts;
use super::paths::Advice;
use super::payload::Payload;
use super::remote::ReadPart;
use super::{Core, Peer, Role};
use crate::bitmap::BITS_MAX;
use crate::cc::Sent as SentFeedback;
use crate::host::Host;
use crate::mutants::{Mutant, mutant};
use crate::transmit::TxBurst;
use crate::units::{Nanos, Psn};
use crate::wire::ack::{ACK_BYTES, AckState};
use crate::wire::header::{
    FLAG_ACK, FLAG_ACK_REQUEST, FLAG_AWAITED, FLAG_EAGER, FLAG_PAYLOAD_CRC, FLAG_SEAL, FLAG_VOID,
    HEADER_BYTES, Header, Kind, SEAL_BYTES,
};
use crate::wire::record::{
    ACK_RECORD_BYTES, Cts, EAGER_HEADER_BYTES, RECORD_MAX_BYTES, Record, emit_eager_header,
};
use crate::wire::remote::Answer;
use crate::wire::setup::Greeting;
use alloc::collections::VecDeque;

/// Most datagrams in one burst (the smallest segmentation limit of a kernel that has it).
const BURST_DATAGRAMS: u32 = 64;
/// Packets in flight while a flow learns.
const LEARNING_PACKETS: u64 = 4;
/// How often a controller is asked for the path of one burst.
const PATH_CHOICES: u32 = 3;
/// A window takes at least so many bursts.
const BURSTS_PER_WINDOW: u64 = 4;
/// Bundles in flight beyond which further small messages wait for an acknowledgement or for a
/// full datagram (protocol.md §5.2).
const BUNDLES_IN_FLIGHT: u32 = 2;
/// Operations under way, the new one included, up to which a small message goes at once: who has no more
/// waits for an answer, and for an acknowledgement that comes with it.
const OPERATIONS_AT_ONCE: u32 = 2;
/// Length of a link of a chain (protocol.md §5.4).
pub(super) const LINK_BYTES: u64 = 1 << 30;
/// What the kernel's bookkeeping of a small datagram costs of a receive buffer, in bytes.
const DATAGRAM_COST_BYTES: u64 = 1024;

/// What a packet carried, so that it can be built again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Bundle { first: u64, count: u16 },
    Segment { op: u32, msg_id: u16, s_offset: u32, offset_bytes: u64, len: u16, eager: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    InFlight,
    /// In the retry queue.
    Lost,
    Acked,
}

/// The send cache's entry for one PSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub sent_at: Nanos,
    pub bytes: u32,
    pub path: u16,
    pub attempt: u8,
    pub fate: Fate,
    pub content: Content,
}

/// A record as the send cache keeps it.
#[derive(Clone, Copy, Debug)]
pub(super) enum TxRecord {
    Eager(u32),
    Rts(u32),
    Cts(Cts),
    Matched {
        op: u32,
        order: u32,
    },
    /// A write or an atomic.
    Request(u32),
    Read(ReadPart),
    /// An answer with its bytes.
    Answer(u32),
    Refused {
        answer: Answer,
        is_first: bool,
    },
    Done {
        first: u32,
        last: u32,
    },
}

impl TxRecord {
    /// It is the first word about a message of the peer's, whose order credit it gives back.
    pub(super) fn answers_message(&self) -> bool {
        match self {
            TxRecord::Cts(cts) => cts.base_bytes == 0,
            TxRecord::Matched { .. } => true,
            TxRecord::Refused { is_first, .. } => *is_first,
            TxRecord::Eager(_)
            | TxRecord::Rts(_)
            | TxRecord::Request(_)
            | TxRecord::Read(_)
            | TxRecord::Answer(_)
            | TxRecord::Done { .. } => false,
        }
    }

    /// It ends something of the peer's.
    fn ends(&self) -> bool {
        matches!(self, TxRecord::Matched { .. } | TxRecord::Refused { .. } | TxRecord::Done { .. })
    }

    /// The operation of ours that it is a part of, if it is.
    pub(super) fn operation(&self) -> Option<u32> {
        match *self {
            TxRecord::Eager(op)
            | TxRecord::Rts(op)
            | TxRecord::Request(op)
            | TxRecord::Answer(op)
            | TxRecord::Read(ReadPart { op, .. }) => Some(op),
            TxRecord::Cts(_)
            | TxRecord::Matched { .. }
            | TxRecord::Refused { .. }
            | TxRecord::Done { .. } => None,
        }
    }
}

/// Payload that may flow now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub op: u32,
    pub msg_id: u16,
    pub base_bytes: u64,
    pub len_bytes: u64,
    pub done_bytes: u64,
    pub eager: bool,
}

/// Transmit state. Empty but for numbers while nothing is outstanding.
#[derive(Default)]
pub(crate) struct Tx {
    pub first_psn: Psn,
    pub first_order: u32,
    pub next_psn: Psn,
    pub una: Psn,
    next_order: u32,
    /// The send cache: entry `i` is PSN `una + i`. At most `psn_window` entries.
    pub(super) sent: VecDeque<Sent>,
    /// Records of the bundles in the send cache; `records_base` numbers the first.
    pub(super) records: VecDeque<TxRecord>,
    pub(super) records_base: u64,
    /// PSNs to repeat, before anything new. May hold entries acknowledged meanwhile.
    pub(super) retry: VecDeque<Psn>,
    /// CTS and match notices to send; bounded by the receive side's links and order window.
    pub(super) control: VecDeque<TxRecord>,
    /// Posted messages not on the wire; bounded by `sends_max`.
    pub queue: VecDeque<u32>,
    /// Operations that have not ended, but for answers.
    pub(super) ops: u32,
    /// Answers to the peer that have not ended; at most `rx::requests::ANSWERS_MAX`.
    pub(super) answers: u32,
    /// Requests that wait for bytes in answer, at most `remote::REQUESTS_MAX`.
    pub(super) requests: u32,
    /// Writes and updates that wait for word that they were done, by send order.
    pub(super) awaiting: VecDeque<(u32, u32)>,
    pub(super) queued_bytes: u64,
    /// An eager one is the first, and there is one at most.
    pub(super) transfers: VecDeque<Transfer>,
    pub in_flight_bytes: u64,
    pub in_flight_packets: u32,
    pub(super) bundles_in_flight: u32,
    unrequested_bytes: u64,
    pub(super) next_msg_id: u16,
    pub(super) eager_sent_bytes: u32,
    pub(super) eager_limit_bytes: u32,
    pub(super) order_limit: u32,
    pub(super) window_bytes: u32,
    psn_window: u32,
    pub(super) pace_at: Nanos,
    pub(super) hosts: Hosts,
    pub(super) echo_last: u32,
    pub(super) ce_seen_bytes: u32,
    pub(super) spurious_seen: u16,
    /// Newly acknowledged packets of which the controller has not been told.
    pub(super) acked_packets: u32,
    /// One past the foremost packet that was acknowledged.
    pub(super) acked_end: Psn,
    /// Packets below it were judged by the order of acknowledgements.
    pub(super) judged: Psn,
    /// Round trips still to be sampled before the controller has its way.
    pub(super) learning: u8,
    /// What is known of paths, and counted for who watches the flow.
    pub(crate) flow: Flow,
}

impl Tx {
    /// Prepares a session: the queue stays, the numbers are new.
    pub(super) fn start(&mut self, first_psn: Psn, first_order: u32) {
        let queue = core::mem::take(&mut self.queue);
        let (queued_bytes, ops) = (self.queued_bytes, self.ops);
        *self = Tx {
            first_psn,
            first_order,
            next_psn: first_psn,
            una: first_psn,
            flow: Flow::new(first_psn),
            acked_end: first_psn,
            judged: first_psn,
            next_order: first_order,
            next_msg_id: first_psn.0 as u16,
            queue,
            queued_bytes,
            ops,
            ..Tx::default()
        };
    }

    /// Takes the peer's limits.
    pub(super) fn open(&mut self, g: &Greeting) {
        self.eager_limit_bytes = g.eager_credit_bytes.min(i32::MAX as u32);
        self.order_limit = self.first_order.wrapping_add(g.order_window.min(i32::MAX as u32));
        self.window_bytes = g.window_bytes;
        self.psn_window = g.psn_window.clamp(1, BITS_MAX);
    }

    /// Queues a posted message.
    pub(crate) fn push(&mut self, op: u32, len_bytes: u64, eager_bytes: u32) {
        self.queue.push_back(op);
        self.ops += 1;
        self.queued_bytes += queued_cost(len_bytes, eager_bytes);
    }

    /// Something waits that could be sent once the window allows.
    pub(super) fn wants(&self) -> bool {
        !(self.queue.is_empty()
            && self.control.is_empty()
            && self.transfers.is_empty()
            && self.retry.is_empty())
    }

    /// An eager message that is sent in segments is under way: how much of it is sent.
    pub(super) fn eager_done_bytes(&self) -> Option<u64> {
        self.transfers.front().filter(|t| t.eager).map(|t| t.done_bytes)
    }

    /// Operations wait for something that the peer's application decides.
    pub(super) fn awaits_match(&self) -> bool {
        self.ops > 0
    }

    /// Messages wait for the peer's credit while nothing is in flight that could bring it.
    pub(super) fn starved(&self) -> bool {
        self.in_flight_packets == 0 && self.order_credit() <= 0 && !self.queue.is_empty()
    }

    pub(super) fn order_credit(&self) -> i32 {
        self.order_limit.wrapping_sub(self.next_order) as i32
    }

    pub(super) fn eager_fits(&self, len_bytes: u64) -> bool {
        let room = self.eager_limit_bytes.wrapping_sub(self.eager_sent_bytes) as i32;
        room > 0 && len_bytes <= room as u64
    }

    /// The next send order.
    pub(super) fn next_order(&self) -> u32 {
        self.next_order
    }

    pub(super) fn take_order(&mut self) -> u32 {
        let order = self.next_order;
        self.next_order = order.wrapping_add(1);
        order
    }

    /// Something is unacknowledged or waits to be sent.
    pub(super) fn outstanding(&self) -> bool {
        !self.sent.is_empty() || self.wants()
    }

    /// Answers or notices wait to be sent, or to be acknowledged.
    pub(super) fn owes_answers(&self) -> bool {
        self.answers > 0 || self.control.iter().chain(&self.records).any(TxRecord::ends)
    }

    /// Gives heap memory back when nothing is outstanding.
    pub(super) fn reclaim(&mut self) {
        if !self.outstanding() {
            self.sent = VecDeque::new();
            self.records_base += self.records.len() as u64;
            self.records = VecDeque::new();
            self.retry = VecDeque::new();
            self.control = VecDeque::new();
            self.queue = VecDeque::new();
            self.transfers = VecDeque::new();
            self.awaiting.shrink_to_fit();
        }
    }
}

pub(super) fn queued_cost(len_bytes: u64, eager_bytes: u32) -> u64 {
    let payload = if len_bytes <= u64::from(eager_bytes) { len_bytes } else { 0 };
    payload + RECORD_MAX_BYTES as u64
}

impl Peer {
    /// Whether a new packet of `bytes` may go now.
    fn may_send(&self, now: Nanos, bytes: u64) -> bool {
        (self.tx.next_psn.since(self.tx.una) as u32) < self.tx.psn_window
            && self.windows_take(now, bytes)
    }

    /// Whether pace, controller and receiver take `bytes` more, new or repeated. One packet is
    /// always allowed.
    fn windows_take(&self, now: Nanos, bytes: u64) -> bool {
        let tx = &self.tx;
        if self.cc.is_none() || tx.pace_at > now {
            return false;
        }
        let buffered = tx.in_flight_bytes + u64::from(tx.in_flight_packets) * DATAGRAM_COST_BYTES;
        tx.in_flight_packets == 0
            || (tx.in_flight_bytes + bytes <= self.limit_bytes(now)
                && buffered + bytes + DATAGRAM_COST_BYTES <= u64::from(tx.window_bytes))
    }

    /// What the controller allows in flight; little while the flow learns.
    pub(super) fn cc_window_bytes(&self) -> u64 {
        let window = self.cc.as_ref().map_or(0, |cc| cc.window_bytes());
        if self.tx.learning == 0 {
            return window;
        }
        window.min(LEARNING_PACKETS * u64::from(self.datagram_bytes))
    }

    /// What may be in flight now, with what waits at hosts.
    fn limit_bytes(&self, now: Nanos) -> u64 {
        let (tx, window) = (&self.tx, self.cc_window_bytes());
        tx.hosts.limit_bytes(now, tx.in_flight_bytes, window, self.rtt.smoothed_ns)
    }

    /// Payload bytes that fit into a bundle with records of `n` header bytes so far.
    pub(super) fn bundle_room(&self, used: usize) -> usize {
        let fixed = HEADER_BYTES + 2 + ACK_RECORD_BYTES + 4;
        usize::from(self.datagram_bytes).saturating_sub(fixed + used)
    }

    /// Repeats a lost packet, if one waits and the window allows.
    pub(super) fn transmit_retry<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
    ) -> bool {
        while let Some(&psn) = self.tx.retry.front() {
            let at = psn.since(self.tx.una);
            let entry = usize::try_from(at).ok().and_then(|i| self.tx.sent.get(i)).copied();
            let Some(entry) = entry.filter(|e| e.fate == Fate::Lost) else {
                self.tx.retry.pop_front();
                continue;
            };
            // All others wait for the lowest one. What is known of those in flight may end before
            // them, so that nothing else would ever make room.
            let is_lowest = at == 0 && self.tx.pace_at <= now;
            if !is_lowest && !self.windows_take(now, u64::from(entry.bytes)) {
                if mutant(Mutant::DropsRetransmissionsAtAClosedWindow) {
                    self.tx.retry.pop_front();
                }
                return false;
            }
            self.tx.retry.pop_front();
            // A packet that is late already tries no bad path.
            let (path, _) = self.next_path(core, now, false);
            let attempt = entry.attempt.saturating_add(1);
            let h = self.data_header(now, psn, path, attempt, FLAG_ACK_REQUEST);
            let bytes = match entry.content {
                Content::Bundle { first, count } => {
                    self.emit_bundle(core, host, now, burst, h, first, count)
                }
                Content::Segment { .. } => {
                    self.emit_segment(core, host, burst, h, entry.content, None)
                }
            };
            let slot = &mut self.tx.sent[at as usize];
            (slot.sent_at, slot.path, slot.attempt) = (now, path, attempt);
            (slot.bytes, slot.fate) = (bytes, Fate::InFlight);
            if matches!(entry.content, Content::Bundle { .. }) {
                self.tx.bundles_in_flight += 1;
            }
            burst.path = path;
            self.note_burst(core, now, burst, true);
            return true;
        }
        false
    }

    /// Path of the next burst, and whether it is a bad one that may have one packet (protocol.md
    /// §4.5). Only `fresh` packets try one.
    fn next_path(&mut self, core: &Core, now: Nanos, fresh: bool) -> (u16, bool) {
        let timeout_ns = self.rtt.probe_timeout_ns(&core.cfg, 0);
        let Some(cc) = &mut self.cc else { return (0, false) };
        let paths = &mut self.tx.flow.paths;
        for _ in 0..PATH_CHOICES {
            let path = cc.next_path(now);
            match paths.judge(now, path, timeout_ns) {
                Advice::Use => return (path, false),
                _ if !cc.may_move() => return (path, false),
                Advice::Try if fresh => return (path, true),
                Advice::Try | Advice::Avoid => {}
            }
        }
        (paths.next_sound(), false)
    }

    fn data_header(&self, now: Nanos, psn: Psn, path: u16, attempt: u8, flags: u8) -> Header {
        Header {
            flags,
            path: path as u8,
            attempt,
            psn: psn.0,
            sent_at_ns: now as u32,
            ..Header::new(Kind::Data, self.remote.session)
        }
    }

    /// Counts a finished burst and arms the timers that guard it.
    fn note_burst(&mut self, core: &Core, now: Nanos, burst: &mut TxBurst, repeated: bool) {
        let path = burst.path;
        burst.to = self.name;
        let bytes = burst.total_bytes;
        self.tx.in_flight_bytes += u64::from(bytes);
        self.tx.in_flight_packets += burst.datagrams;
        self.touch(now);
        self.live.owed_since.get_or_insert(now);
        self.tx.flow.sent_bytes += u64::from(bytes);
        burst.may_fragment = self.size.may_fragment(burst.segment_bytes);
        self.size.sending(now);
        let window = self.cc_window_bytes();
        self.tx.hosts.sent(now, bytes.into(), window, self.rtt.smoothed_ns);
        let timeout_ns = self.rtt.probe_timeout_ns(&core.cfg, 0);
        self.tx.flow.paths.sent(now, self.paths, path, bytes, timeout_ns);
        if let Some(cc) = &mut self.cc {
            burst.ecn = match &core.near {
                Some(near) if self.near => near.ecn,
                _ => cc.ecn(),
            };
            cc.on_sent(&SentFeedback {
                now,
                bytes,
                packets: burst.datagrams,
                path,
                in_flight_bytes: self.tx.in_flight_bytes,
                retransmission: repeated,
            });
            if let Some(rate) = cc.pace_bytes_per_s() {
                let gap = u64::from(bytes) * crate::units::SECOND / rate.max(1);
                self.tx.pace_at = self.tx.pace_at.max(now) + gap;
            }
        }
        self.arm_probe(core, now);
    }

    /// Whether small messages should go now (protocol.md §5.2).
    pub(crate) fn bundle_due(&self, core: &Core, flush: bool) -> bool {
        let tx = &self.tx;
        if !tx.control.is_empty() || self.rx.has_done() {
            return true;
        }
        if tx.queue.is_empty() || tx.order_credit() <= 0 {
            return false;
        }
        let looked_since = tx.sent.back().is_none_or(|last| core.looked_at > last.sent_at);
        let alone = tx.ops <= OPERATIONS_AT_ONCE && looked_since;
        tx.in_flight_packets == 0
            || ((flush || alone) && tx.bundles_in_flight < BUNDLES_IN_FLIGHT)
            || tx.queued_bytes >= self.bundle_room(0) as u64
    }

    /// Sends one datagram of records, if the window allows.
    pub(super) fn transmit_bundle<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
    ) -> bool {
        let likely = self.tx.queued_bytes.min(u64::from(self.datagram_bytes));
        if !self.may_send(now, likely) {
            return false;
        }
        let first = self.tx.records_base + self.tx.records.len() as u64;
        let count = self.fill_bundle(core, host);
        if count == 0 {
            return false;
        }
        let psn = self.tx.next_psn;
        self.tx.next_psn = psn.plus(1);
        let (path, _) = self.next_path(core, now, true);
        let awaited = if self.awaits_only(core, count) { FLAG_AWAITED } else { 0 };
        let h = self.data_header(now, psn, path, 0, FLAG_ACK_REQUEST | awaited);
        let bytes = self.emit_bundle(core, host, now, burst, h, first, count);
        let content = Content::Bundle { first, count };
        let fate = Fate::InFlight;
        self.tx.sent.push_back(Sent { sent_at: now, bytes, path, attempt: 0, fate, content });
        self.tx.bundles_in_flight += 1;
        self.tx.unrequested_bytes = 0;
        core.stats.tx_data += 1;
        burst.path = path;
        self.note_burst(core, now, burst, false);
        true
    }

    /// The application waits for the only message of a bundle of `count` records, and nothing else is under way
    /// to the peer: no later acknowledgement comes anyway.
    fn awaits_only(&self, core: &Core, count: u16) -> bool {
        let awaited = |record: &TxRecord| match *record {
            TxRecord::Eager(index) => core.ops[index as usize].awaited,
            _ => false,
        };
        count == 1
            && self.tx.in_flight_packets == 0
            && self.tx.queue.is_empty()
            && self.tx.records.back().is_some_and(awaited)
    }

    /// Writes a bundle from the record cache; returns its bytes.
    #[allow(clippy::too_many_arguments, reason = "one call site each for first and repeat")]
    fn emit_bundle<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
        mut h: Header,
        first: u64,
        count: u16,
    ) -> u32 {
        let ack = self.riding_ack(core, now);
        let from = (first - self.tx.records_base) as usize;
        let records = self.tx.records.range(from..from + usize::from(count));
        let start = burst.bytes.len();
        if self.payload_checksum {
            h.flags |= FLAG_PAYLOAD_CRC;
        }
        h.emit(&mut burst.bytes);
        let total = count + u16::from(ack.is_some());
        burst.bytes.extend_from_slice(&total.to_be_bytes());
        if let Some(ack) = ack {
            Record::Ack(ack).emit(&mut burst.bytes);
        }
        for record in records.clone() {
            wire_record(record, core, h.attempt).emit(&mut burst.bytes);
        }
        let region = burst.bytes.len() - start;
        let mut payload = Payload::new(start, region, self.payload_checksum);
        for record in records {
            if let Some((op, len_bytes)) = bundled(core, record) {
                payload.add(host, burst, &op, 0, len_bytes);
            }
        }
        let s_len = (region - HEADER_BYTES + payload.bytes as usize) as u16;
        burst.bytes[start + 4..start + 6].copy_from_slice(&s_len.to_be_bytes());
        core.stats.tx_payload_bytes += u64::from(payload.bytes) * u64::from(h.attempt == 0);
        payload.finish(core, burst)
    }

    /// Sends segments of the transfer at the front, up to a burst, if the window allows.
    pub(super) fn transmit_segments<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
    ) -> bool {
        let Some(mut t) = self.tx.transfers.front().copied() else { return false };
        if !self.may_send(now, u64::from(self.datagram_bytes)) {
            return false;
        }
        if !t.eager {
            self.settle_doubt(host);
        }
        let room = self.segment_room(t.eager);
        let (path, is_try) = self.next_path(core, now, true);
        let most = if is_try { 0 } else { self.burst_bytes().min(core.cfg.burst_bytes.into()) };
        let limit = self.limit_bytes(now);
        while t.done_bytes < t.len_bytes && burst.datagrams < BURST_DATAGRAMS && !burst.sealed {
            let len = (t.len_bytes - t.done_bytes).min(u64::from(room)) as u16;
            let bytes = u64::from(burst.total_bytes) + u64::from(self.datagram_bytes);
            let packets_ahead = u64::from(burst.datagrams) * DATAGRAM_COST_BYTES;
            let over = burst.datagrams > 0
                && (self.is_sealed_when(len, t.eager)
                    || bytes > most
                    || !self.may_send_more(limit, bytes, packets_ahead));
            if over {
                break;
            }
            self.transmit_segment(core, host, now, burst, &mut t, len, path);
        }
        match t.done_bytes == t.len_bytes {
            true => drop(self.tx.transfers.pop_front()),
            false => self.tx.transfers[0] = t,
        }
        burst.path = path;
        self.note_burst(core, now, burst, false);
        true
    }

    /// Most bytes of a burst. One of the whole window would leave nothing to pace or to steer,
    /// unless the hosts hold several windows.
    fn burst_bytes(&self) -> u64 {
        let window = self.cc_window_bytes();
        let most = self.tx.hosts.stretched_bytes(window, self.rtt.smoothed_ns);
        (most / BURSTS_PER_WINDOW).min(window)
    }

    /// Whether a burst may grow to `bytes` while `limit_bytes` may be in flight. `packets_ahead` is
    /// what its datagrams so far cost the receiver beyond their bytes.
    fn may_send_more(&self, limit_bytes: u64, bytes: u64, packets_ahead: u64) -> bool {
        let tx = &self.tx;
        let buffered = tx.in_flight_bytes + u64::from(tx.in_flight_packets) * DATAGRAM_COST_BYTES;
        tx.in_flight_bytes + bytes <= limit_bytes
            && buffered + bytes + packets_ahead + DATAGRAM_COST_BYTES <= u64::from(tx.window_bytes)
            && (tx.next_psn.since(tx.una) as u32) < tx.psn_window
    }

    /// Payload bytes of one segment.
    fn segment_room(&self, eager: bool) -> u16 {
        let header = HEADER_BYTES + if eager { EAGER_HEADER_BYTES } else { 0 };
        let room = self.datagram_bytes - header as u16 - 4;
        match self.seals {
            Some(seals) if !eager => seals.most_bytes.min(room - SEAL_BYTES as u16),
            _ => room,
        }
    }

    /// Asks who is at the peer's address, once it answers.
    fn settle_doubt<H: Host>(&mut self, host: &mut H) {
        if self.doubted && self.live.probes == 0 && self.seals.is_some() {
            self.seals = self.seals.filter(|_| host.shares_memory(self.name));
            self.doubted = false;
        }
    }

    /// Whether a segment is sealed the first time that it is sent. Once it may be lost, a copy of it is
    /// better than waiting for what may be read still.
    fn is_sealed_when(&self, len_bytes: u16, eager: bool) -> bool {
        !eager && !self.doubted && self.seals.is_some_and(|seals| len_bytes >= seals.least_bytes)
    }

    #[allow(clippy::too_many_arguments, reason = "the loop body of transmit_segments")]
    fn transmit_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        burst: &mut TxBurst,
        t: &mut Transfer,
        len: u16,
        path: u16,
    ) {
        let psn = self.tx.next_psn;
        self.tx.next_psn = psn.plus(1);
        let offset_bytes = t.base_bytes + t.done_bytes;
        t.done_bytes += u64::from(len);
        self.tx.unrequested_bytes += u64::from(len);
        let window = self.cc_window_bytes();
        let packets = u64::from(self.tx.psn_window) * u64::from(self.datagram_bytes);
        let quarter = window.min(u64::from(self.tx.window_bytes)).min(packets) / 4;
        let last = t.done_bytes == t.len_bytes;
        let request = last || self.tx.unrequested_bytes >= quarter;
        if request {
            self.tx.unrequested_bytes = 0;
        }
        let awaited =
            last && t.eager && core.ops[t.op as usize].awaited && self.tx.queue.is_empty();
        let flags = if request { FLAG_ACK_REQUEST } else { 0 };
        let flags = if awaited { flags | FLAG_AWAITED } else { flags };
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
        // The end of a message most often leaves room for what its beginning was waiting with.
        let fits = usize::from(self.segment_room(t.eager)) >= usize::from(len) + ACK_BYTES;
        let ack = match t.eager && last && fits {
            true => self.riding_ack(core, now),
            false => None,
        };
        let bytes = self.emit_segment(core, host, burst, h, content, ack);
        let fate = Fate::InFlight;
        self.tx.sent.push_back(Sent { sent_at: now, bytes, path, attempt: 0, fate, content });
        core.stats.tx_data += 1;
        core.stats.tx_payload_bytes += u64::from(len);
    }

    /// Writes one segment, with what rides on it; returns its bytes.
    fn emit_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        burst: &mut TxBurst,
        mut h: Header,
        content: Content,
        ack: Option<AckState>,
    ) -> u32 {
        let Content::Segment { op: index, msg_id, s_offset, offset_bytes, len, eager } = content
        else {
            unreachable!("bundles have their own writer");
        };
        let op = core.ops[index as usize];
        h.long = true;
        (h.msg_id, h.s_len, h.s_offset) = (msg_id, len, s_offset);
        if eager {
            h.flags |= FLAG_EAGER;
        }
        if self.payload_checksum {
            h.flags |= FLAG_PAYLOAD_CRC;
        }
        let void = matches!(op.role, Role::Answer { withdrawn: true, .. });
        if void {
            h.flags |= FLAG_VOID;
        }
        if ack.is_some() {
            h.flags |= FLAG_ACK;
        }
        let sealed = h.attempt == 0 && !void && self.is_sealed_when(len, eager);
        if sealed {
            h.flags |= FLAG_SEAL;
        }
        let start = burst.bytes.len();
        h.emit(&mut burst.bytes);
        if eager {
            emit_eager_header(&mut burst.bytes, &msg_header(index, &op));
        }
        if let Some(ack) = ack {
            ack.emit(&mut burst.bytes);
        }
        let region = burst.bytes.len() - start;
        let mut payload = Payload::new(start, region, self.payload_checksum).sealed(sealed);
        match void {
            true => payload.add_zeros(core, burst, len),
            false => payload.add(host, burst, &op, offset_bytes, u32::from(len)),
        }
        payload.finish(core, burst)
    }
}
