//! The data of a session with a peer on this host: entries of shared memory, which neither loses nor reorders them
//! (protocol.md §12). They need no PSN, checksum, acknowledgement, timer or controller. Set-up, probes and goodbyes are
//! packets as ever.

use super::bundle::{bundled, wire_record};
use super::lane_side::{Pulling, Stand, Taken};

use super::op::Role;
use super::op::{Op, Task};
use super::record::TxRecord;
use super::{Core, Peer, Phase};
use crate::host::{AtOnce, Host, Lane, Payload, Pull, Put, SendToken, Sources, WorkRequest};
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::entry::{
    Entry, Ids, LIMITS, RECORD, SEGMENT, SEGMENT_MAX_BYTES, SegmentHead, emit_limits,
};
use crate::wire::header::{Header, PacketKind};
use crate::wire::record::{MsgHeader, RECORD_MAX_BYTES, Record};

/// Segments that one step writes to a peer. Others have their turn between two steps.
const SEGMENTS_PER_STEP: u32 = 64;
/// Longest time that a goodbye waits for a peer that does not read.
const LINGER_NS: Nanos = 2_000_000_000;
/// Time until a full lane is tried again, if nothing is heard of it before.
const RETRY_NS: Nanos = 50_000;

/// Bytes that are read out of a peer's memory in one step, at most.
const PULL_BYTES: u64 = 4 << 20;

/// Whether an entry was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Yes,
    /// There is no room.
    No,
    /// The memory of the answer has gone.
    Lost,
    /// There was nothing to write.
    Nothing,
}

impl Peer {
    /// True if the session's data goes through shared memory.
    pub(crate) fn has_lane(&self) -> bool {
        self.lane.way.is_some()
    }

    /// True if a message of this length goes with its record.
    pub(crate) fn goes_with_record(&self, len_bytes: u64) -> bool {
        len_bytes + RECORD_MAX_BYTES as u64 <= self.bundle_room(0) as u64
    }

    /// True if the session uses this lane, or is set up to.
    pub(crate) fn is_of_lane(&self, lane: Lane) -> bool {
        let mine = match self.session.phase() {
            Phase::Open | Phase::Leaving => self.lane.way,
            Phase::Opening | Phase::Idle => self.lane.offer,
        };
        mine == Some(lane)
    }

    /// What an entry of this lane, by a writer whose id is `writer`, is to the session now.
    pub(crate) fn stand_of(&mut self, lane: Lane, writer: u64) -> Stand {
        let is_theirs =
            self.session.their_id() == writer || mutant(Mutant::TakesEntriesOfAnyWriter);
        match self.session.phase() {
            Phase::Open if self.lane.way == Some(lane) && is_theirs => Stand::Data,
            Phase::Opening if self.lane.offer == Some(lane) => {
                Stand::Greeting { fresh: !core::mem::replace(&mut self.lane.missed, true) }
            }
            Phase::Open | Phase::Opening | Phase::Idle | Phase::Leaving => Stand::Nothing,
        }
    }

    /// True if the peer has written what has not been read.
    pub(crate) fn has_entries<H: Host>(&self, host: &mut H) -> bool {
        self.lane.way.is_some_and(|lane| host.has_entries(lane))
    }

    /// The application gets buffers back that the peer may read.
    pub(crate) fn break_lane<H: Host>(&self, host: &mut H) {
        let reads = self.tx.out.ops() > 0 && !mutant(Mutant::LeavesBuffersReadable);
        if let Some(lane) = self.lane.way.filter(|_| reads) {
            host.break_off(lane);
        }
    }

    /// True if the peer has not read everything.
    pub(crate) fn has_unread<H: Host>(&self, host: &mut H) -> bool {
        self.lane
            .way
            .and_then(|lane| host.read_by_peer(lane))
            .is_some_and(|read| read < self.lane.written)
    }

    /// Puts a goodbye off while the peer has yet to read what was written, for a time.
    pub(super) fn lingers<H: Host>(&mut self, core: &Core, host: &mut H, now: Nanos) -> bool {
        let lingers =
            self.has_unread(host) && now < self.active_at + core.cfg.peer_timeout_ns.min(LINGER_NS);
        if lingers {
            self.session.put_off(now + RETRY_NS);
        }
        lingers
    }

    /// True if the session is open and has a lane, and no datagram is due.
    pub(crate) fn writes_only(&self) -> bool {
        let owes = self.session.owes_welcome() || self.live.asks() || self.acks.is_urgent();
        self.session.is_open() && self.has_lane() && !owes
    }

    /// Writes what is due, as long as there is room.
    pub(crate) fn transmit_lane<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        let Some(lane) = self.lane.way else { return };
        self.lane.retry_at = None;
        self.settle_read(core, host, lane);
        self.run_pulls(core, host, lane);
        let has_room = self.put_limits(core, host, lane) && self.put_lent(core, host, lane);
        let mut written = match has_room {
            true => Written::Yes,
            false => Written::No,
        };
        // Records go first: a long transfer holds up none of them.
        let mut segments = 0;
        while matches!(written, Written::Yes | Written::Lost) && segments < SEGMENTS_PER_STEP {
            written = match self.put_records(core, host, now, lane) {
                true => self.put_segment(core, host, now, lane),
                false => Written::No,
            };
            segments += 1;
        }
        self.settle_read(core, host, lane);
        self.lane.retry_at = match written {
            Written::Nothing if self.lane.is_done() => None,
            Written::No => Some(now + RETRY_NS),
            Written::Yes | Written::Lost | Written::Nothing => Some(now),
        };
    }

    /// Ends the operations that end when the peer has read them. Has the peer ring for those that stay.
    fn settle_read<H: Host>(&mut self, core: &mut Core, host: &mut H, lane: Lane) {
        for rings in [true, false] {
            if self.lane.unread.is_empty() {
                return;
            }
            let Some(read) = host.read_by_peer(lane) else { return };
            self.settle_up_to(core, host, read);
            if rings && !self.lane.unread.is_empty() {
                host.starve(lane);
            }
        }
    }

    /// Ends the operations that end when the peer has `read` so far.
    pub(crate) fn settle_up_to<H: Host>(&mut self, core: &mut Core, host: &mut H, read: u64) {
        while let Some((_, op)) = self.lane.unread.pop_front_if(|(at, _)| *at <= read) {
            self.settle(core, host, op);
        }
    }

    /// Before the session ends: what the peer has read by now did not fail. Word of the end overtakes the count.
    pub(super) fn settle_at_end<H: Host>(&mut self, core: &mut Core, host: &mut H) {
        let looks = !self.lane.unread.is_empty() && !mutant(Mutant::ForgetsWhatWasReadAtTheEnd);
        let lane = self.lane.way.filter(|_| looks);
        if let Some(read) = lane.and_then(|lane| host.read_by_peer(lane)) {
            self.settle_up_to(core, host, read);
        }
    }

    fn put_limits<H: Host>(&mut self, core: &mut Core, host: &mut H, lane: Lane) -> bool {
        if !core::mem::take(&mut self.lane.owes_limits) {
            return true;
        }
        let (eager_bytes, order) = self.rx.tell_limits(&core.cfg, &mut core.budget);
        self.begin_entry();
        emit_limits(&mut self.lane.head, eager_bytes, order);
        let taken = self.put(host, lane, LIMITS, None);
        self.lane.owes_limits = !taken;
        taken
    }

    /// Notes that the peer should hear of new limits.
    pub(super) fn owe_limits(&mut self) {
        self.lane.owes_limits = !mutant(Mutant::WithholdsLimitsOfALane);
    }

    /// Begins the head of an entry.
    pub(super) fn begin_entry(&mut self) {
        self.lane.head.clear();
        let (reader, writer) = (self.session.their_id(), self.session.our_id());
        Ids { reader, writer }.emit(&mut self.lane.head);
    }

    /// Writes the entry whose head is ready. False if there is no room.
    pub(super) fn put<H: Host>(
        &mut self,
        host: &mut H,
        lane: Lane,
        kind: u8,
        payload: Option<Payload>,
    ) -> bool {
        self.try_put(host, lane, kind, payload) == Written::Yes
    }

    /// Writes the entry whose head is ready.
    fn try_put<H: Host>(
        &mut self,
        host: &mut H,
        lane: Lane,
        kind: u8,
        payload: Option<Payload>,
    ) -> Written {
        match host.put(lane, kind, &self.lane.head, payload) {
            Put::Taken(written) => {
                self.lane.written = written;
                self.lane.sent_bytes += self.lane.head.len() as u64;
                if let Some(Payload::Bytes { len_bytes, .. }) = payload {
                    self.lane.sent_bytes += u64::from(len_bytes);
                }
                Written::Yes
            }
            Put::Lost => Written::Lost,
            Put::Full if mutant(Mutant::CountsEntriesWithoutRoom) => Written::Yes,
            // Of a lane that is no more the host says so in due course. Until then nothing can be written.
            Put::Full | Put::Gone => Written::No,
        }
    }

    fn put_records<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        lane: Lane,
    ) -> bool {
        loop {
            while let Some(record) = self.tx.flight.first_record() {
                match self.put_record(core, host, now, lane, &record) {
                    Written::Yes | Written::Nothing => {}
                    Written::No => return false,
                    Written::Lost => {
                        record.operation().into_iter().for_each(|op| self.withdraw(core, host, op));
                        continue;
                    }
                }
                self.tx.flight.drop_first_record();
                if let Some(op) = record.operation() {
                    self.record_put(core, host, op);
                }
            }
            let wants = self.tx.out.wants_records() || self.responder.has_done();
            if !wants || self.fill_bundle(core, host) == 0 {
                return true;
            }
        }
    }

    /// An operation's record is written. It may have ended with that, or ends when the peer has read it.
    fn record_put<H: Host>(&mut self, core: &mut Core, host: &mut H, op: u32) {
        if core.ops[op as usize].delivery && !mutant(Mutant::DeliversWhenWritten) {
            let written = self.lane.written;
            self.lane.unread.push_back((written, op));
        } else {
            self.settle(core, host, op);
        }
    }

    fn put_record<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        lane: Lane,
        record: &TxRecord,
    ) -> Written {
        self.begin_entry();
        wire_record(record, core, 0).emit(&mut self.lane.head);
        let payload = match sources_of(core, record) {
            Some(op) => Some(Payload::Sources(op)),
            None => bundled(core, record).map(|(op, len_bytes)| Payload::Bytes {
                op: op.token,
                offset_bytes: 0,
                len_bytes,
            }),
        };
        let written = self.try_put(host, lane, RECORD, payload);
        if written == Written::Yes {
            core.stats.lane_tx_entries += 1;
            if let Some(Payload::Bytes { len_bytes, .. }) = payload {
                core.stats.tx_payload_bytes += u64::from(len_bytes);
            }
            self.written_at(core, now);
        }
        written
    }

    /// Writes a message that nothing is before, and that has room. `None` if it has to be queued.
    pub(crate) fn write_now<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        wr: &WorkRequest,
    ) -> Option<AtOnce> {
        let lane = self.lane.way.filter(|_| self.is_clear(core, wr))?;
        let order = self.tx.out.next_order();
        self.begin_entry();
        // Nobody names its operation: it asks for no notice.
        let (op, match_notice) = (u32::MAX, false);
        let (tag, data, len_bytes) = (wr.tag, wr.data, wr.len_bytes);
        let header = MsgHeader { order, op, tag, data, match_notice, len_bytes };
        Record::Eager(header).emit(&mut self.lane.head);
        let (op, len_bytes) = (wr.token, len_bytes as u32);
        let payload = Payload::Bytes { op, offset_bytes: 0, len_bytes };
        if self.try_put(host, lane, RECORD, Some(payload)) != Written::Yes {
            return None;
        }
        self.tx.out.wrote(len_bytes);
        core.stats.tx_payload_bytes += u64::from(len_bytes);
        core.stats.lane_tx_entries += 1;
        self.written_at(core, now);
        if !wr.delivery {
            core.stats.messages_sent += 1;
            return Some(AtOnce::Over);
        }
        let index = core.ops.insert(Op::written(wr, order)) as u32;
        self.tx.out.began();
        let written = self.lane.written;
        self.lane.unread.push_back((written, index));
        Some(AtOnce::Unread)
    }

    /// True if this message can be written at once: it is short, and what was posted before it is written.
    fn is_clear(&self, core: &Core, wr: &WorkRequest) -> bool {
        let waits = wr.match_complete || wr.fence || self.session.owes_welcome();
        let is_first = !self.tx.out.wants_records() && self.tx.flight.first_record().is_none();
        let is_short =
            wr.len_bytes <= u64::from(core.cfg.eager_bytes) && self.goes_with_record(wr.len_bytes);
        let has_credit = self.tx.out.has_order_credit() && self.tx.out.eager_fits(wr.len_bytes);
        self.session.is_open() && !waits && is_first && is_short && has_credit
    }

    /// The peer is asked after, if it does not read.
    fn written_at(&mut self, core: &Core, now: Nanos) {
        self.live.sent(now, self.probe_timeout_ns(core));
        self.touch(now);
    }

    /// Writes the next bytes that may flow. True if it is worth another look at what is due.
    fn put_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        lane: Lane,
    ) -> Written {
        let Some(mut t) = self.tx.out.next_transfer() else { return Written::Nothing };
        let len_bytes = (t.len_bytes - t.done_bytes).min(SEGMENT_MAX_BYTES as u64) as u32;
        let op = core.ops[t.op as usize].token;
        self.begin_entry();
        SegmentHead { msg_id: t.msg_id, offset_bytes: t.done_bytes as u32 }
            .emit(&mut self.lane.head);
        let offset_bytes = t.base_bytes + t.done_bytes;
        let payload = Payload::Bytes { op, offset_bytes, len_bytes };
        let written = self.try_put(host, lane, SEGMENT, Some(payload));
        match written {
            Written::Yes => {
                t.done_bytes += u64::from(len_bytes);
                core.ops[t.op as usize].sent_bytes += u64::from(len_bytes);
                core.stats.lane_tx_entries += 1;
                core.stats.tx_payload_bytes += u64::from(len_bytes);
                self.tx.out.advance(t);
                self.written_at(core, now);
                self.segment_put(core, host, t.op);
            }
            Written::Lost => self.withdraw(core, host, t.op),
            Written::No | Written::Nothing => {}
        }
        written
    }

    /// A segment of an operation is written, perhaps its last.
    fn segment_put<H: Host>(&mut self, core: &mut Core, host: &mut H, op: u32) {
        let state = &mut core.ops[op as usize];
        if state.delivery && state.wanted_bytes == Some(state.sent_bytes) {
            state.unacked += 1;
            self.record_put(core, host, op);
        } else {
            self.finish(core, host, op);
        }
    }

    /// Reads a message or a write where its bytes are.
    pub(super) fn pull<H: Host>(&mut self, core: &mut Core, host: &mut H, pulling: Pulling) {
        let Some(lane) = self.lane.way else { return };
        self.lane.pulls.push_back(pulling);
        if self.lane.pulls.len() == 1 {
            self.run_pulls(core, host, lane);
        }
    }

    fn run_pulls<H: Host>(&mut self, core: &mut Core, host: &mut H, lane: Lane) {
        let mut left = PULL_BYTES;
        while left > 0
            && let Some(Pulling { incoming, place, sources, done_bytes }) =
                self.lane.pulls.front().copied()
        {
            let len = (incoming.wanted_bytes() - done_bytes).min(left);
            self.touch(core.now);
            let from_bytes = if mutant(Mutant::ReadsFromTheStart) { 0 } else { done_bytes };
            let pulled = match host.pull(lane, &sources, from_bytes, incoming.to, len) {
                Pull::Gone if mutant(Mutant::TakesBytesOfAClosedLane) => Pull::Done,
                pulled => pulled,
            };
            match pulled {
                Pull::Done if done_bytes + len == incoming.wanted_bytes() => {
                    core.stats.lane_pulled_bytes += len;
                    self.lane.pulls.pop_front();
                    match place {
                        Some(place) => self.place_read(place, true),
                        None => self.pulled(core, host, &incoming),
                    }
                }
                Pull::Done => {
                    core.stats.lane_pulled_bytes += len;
                    self.lane.pulls[0].done_bytes += len;
                }
                Pull::Never => {
                    self.lane.pulls.pop_front();
                    match place {
                        Some(place) => self.place_read(place, false),
                        None => self.pull_failed(incoming),
                    }
                }
                Pull::Gone => return,
            }
            left -= len;
        }
    }

    /// True if bytes are to be read where they are.
    pub(super) fn has_pulls(&self) -> bool {
        !self.lane.pulls.is_empty()
    }

    /// True if a look at the lane may do something.
    pub(super) fn has_lane_work(&self) -> bool {
        !self.lane.is_done() || !self.lane.unread.is_empty()
    }

    /// Takes an entry of this session.
    ///
    /// # Errors
    /// [`DropReason::NoBuffer`] if there is no memory for it now. Anything else is a mistake of the peer's.
    pub(crate) fn on_entry<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        entry: &Entry<'_>,
    ) -> Result<(), DropReason> {
        self.heard(core, now);
        self.touch(now);
        match *entry {
            Entry::Record(ref record, mut payload) => {
                if record.has_sources() {
                    self.lane.sources = Sources::read(payload).unwrap_or_default();
                    payload = &[];
                }
                let taken = self.on_record(core, host, (now, now), record, &mut payload);
                self.lane.sources = Sources::default();
                taken?;
                self.widen_credit(core, false);
            }
            Entry::Segment(head, payload) => {
                let h = Header {
                    msg_id: head.msg_id,
                    s_offset: head.offset_bytes,
                    ..Header::new(PacketKind::Data, self.session.our_id())
                };
                self.on_segment(core, host, now, &h, payload)?;
            }
            Entry::Lent { msg_id, answer, sources } => {
                self.on_lent(core, host, (msg_id, answer), sources)?;
            }
            Entry::Taken { answer, order, sends } => {
                self.on_taken(core, host, Taken { answer, order, sends })?;
            }
            Entry::Limits { eager_bytes, order } => self.tx.out.raise_limits(eager_bytes, order),
        }
        core.stats.lane_rx_entries += 1;
        Ok(())
    }
}

/// The operation whose buffer the peer may read, if this record announces one.
fn sources_of(core: &Core, record: &TxRecord) -> Option<SendToken> {
    let op = match *record {
        TxRecord::Rts(index) => &core.ops[index as usize],
        TxRecord::Request(index) => {
            let op = &core.ops[index as usize];
            let Role::Request(at) = op.role else { return None };
            let is_later = matches!(core.asked[at as usize].task, Task::Write { later: true });
            is_later.then_some(op)?
        }
        _ => return None,
    };
    Some(op.token)
}
