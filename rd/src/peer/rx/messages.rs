//! Received messages: their turn, match and bytes; and the bytes of writes and reads (protocol.md §5, §9).

use super::coverage::Coverage;
use super::links::{Closed, Incoming, Links, Purpose};
use super::{Early, Partial, Waiting};
use crate::host::{Arrived, Host, MsgRef, RecvToken, Sources, Verdict};
use crate::mutants::{Mutant, mutant};
use crate::peer::lane_side::Pulling;
use crate::peer::record::TxRecord;
use crate::peer::{Core, Peer};
use crate::stats::DropReason;
use crate::units::{Nanos, Order};
use crate::wire::header::{FLAG_VOID, Header};
use crate::wire::record::{Cts, MsgHeader, Record};
use crate::wire::remote::{Answer, Refusal};

impl Peer {
    pub(super) fn on_bundle<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        arrived: Nanos,
        mut payload: &[u8],
    ) -> Result<(), DropReason> {
        let records = core::mem::take(&mut core.scratch);
        let mut outcome = Ok(());
        self.acks.begin_packet();
        for record in &records {
            let result = self.on_record(core, host, (now, arrived), record, &mut payload);
            outcome = outcome.and(result);
        }
        core.scratch = records;
        self.deliver_early(core, host);
        self.widen_credit(core, false);
        outcome
    }

    /// Takes a record, and its bytes from the front of `payload`.
    pub(in crate::peer) fn on_record<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        (now, arrived): (Nanos, Nanos),
        record: &Record,
        payload: &mut &[u8],
    ) -> Result<(), DropReason> {
        match *record {
            Record::Eager(msg) => {
                let (mine, rest) = payload.split_at(msg.len_bytes as usize);
                *payload = rest;
                self.acks.has_message();
                self.on_eager(core, host, msg, mine)
            }
            Record::Rts(msg) => self.on_rts(core, host, msg),
            Record::Cts(ref cts) => self.on_cts(core, host, cts),
            Record::Matched { op, order } => {
                self.on_matched(core, host, op, order);
                Ok(())
            }
            Record::Ack(state) => self.on_ack(core, host, now, arrived, &state, None),
            Record::Request(ref request) => {
                let (mine, rest) = payload.split_at(request.operand_bytes.into());
                *payload = rest;
                self.acks.has_message();
                self.on_request(core, host, request, mine)
            }
            Record::Answer(ref answer) => {
                let (mine, rest) = payload.split_at(answer.len_bytes.into());
                *payload = rest;
                self.on_answer(core, host, now, answer, mine)
            }
            Record::Done { first, last } => {
                self.on_done(core, host, first, last);
                Ok(())
            }
        }
    }

    /// Whether the turn of a message of this order has come; `None` when it was seen before.
    pub(super) fn turn(&self, order: u32) -> Result<Option<bool>, DropReason> {
        let mut ahead = Order(order).since(Order(self.rx.next_order));
        if mutant(Mutant::IgnoresTheOrderWrap) && order < self.rx.next_order {
            ahead = -1;
        }
        if ahead < 0 || self.rx.early.contains_key(order) || self.responder.is_early(order) {
            return Ok(None);
        }
        if (self.rx.order_limit().wrapping_sub(order) as i32) <= 0 {
            return Err(DropReason::Credit);
        }
        Ok(Some(ahead == 0 || mutant(Mutant::DeliversOutOfOrder)))
    }

    /// Charges an eager message to the credit given. An empty one costs only its send order: later messages, which used
    /// up the bytes, may have overtaken it.
    fn charge(&mut self, len_bytes: u64) -> Result<(), DropReason> {
        let room = self.rx.credit.bytes.limit.wrapping_sub(self.rx.eager_in_bytes);
        if len_bytes > u64::from(room) {
            return Err(DropReason::Credit);
        }
        self.rx.eager_in_bytes = self.rx.eager_in_bytes.wrapping_add(len_bytes as u32);
        Ok(())
    }

    /// Charges an early eager message to the credit given, and gets a buffer for it.
    fn hold<H: Host>(&mut self, host: &mut H, len_bytes: u64) -> Result<RecvToken, DropReason> {
        let before = self.rx.eager_in_bytes;
        self.charge(len_bytes)?;
        host.hold(self.id, len_bytes).ok_or_else(|| {
            self.rx.eager_in_bytes = before;
            DropReason::NoBuffer
        })
    }

    fn arrived(&self, msg: &MsgHeader, rendezvous: bool) -> Arrived {
        Arrived {
            msg: MsgRef {
                peer: self.id,
                session: self.session.number(),
                order: Order(msg.order),
                credit_bytes: if rendezvous { 0 } else { msg.len_bytes as u32 },
            },
            tag: msg.tag,
            data: msg.data,
            len_bytes: msg.len_bytes,
            rendezvous,
            whole: false,
            held: None,
        }
    }

    fn on_eager<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: MsgHeader,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let Some(in_turn) = self.turn(msg.order)? else { return Ok(()) };
        if !in_turn {
            self.rx.early.reserve(host)?;
            let held = match payload.is_empty() {
                true => None,
                false => Some(self.hold(host, msg.len_bytes)?),
            };
            if let Some(to) = held {
                host.place(to, 0, payload);
            }
            let early = Early { msg, rendezvous: false, held, complete: true };
            self.rx.early.insert(msg.order, early);
            core.stats.rx_payload_bytes += msg.len_bytes;
            return Ok(());
        }
        if let Some(to) = self.report_in_turn(core, host, &msg, true)? {
            if !payload.is_empty() {
                host.place(to, 0, payload);
            }
            host.received(to, Ok(msg.len_bytes));
        }
        core.stats.rx_payload_bytes += msg.len_bytes;
        core.stats.messages_received += 1;
        // Later messages may wait for this one; most often none does.
        if self.has_early() {
            self.deliver_early(core, host);
        }
        Ok(())
    }

    /// Reports an eager message that comes in its turn, and charges it. Returns the place of its bytes.
    fn report_in_turn<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: &MsgHeader,
        whole: bool,
    ) -> Result<Option<RecvToken>, DropReason> {
        let before = self.rx.eager_in_bytes;
        self.charge(msg.len_bytes)?;
        let arrived = Arrived { whole, ..self.arrived(msg, false) };
        let to = self.report(core, host, msg, &arrived).inspect_err(|_| {
            self.rx.eager_in_bytes = before;
        })?;
        self.rx.next_order = msg.order.wrapping_add(1);
        Ok(to)
    }

    /// Reports an eager message in its turn. Returns the place of its bytes, or `None` if they go nowhere or came
    /// early. Fails without a change.
    fn report<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: &MsgHeader,
        arrived: &Arrived,
    ) -> Result<Option<RecvToken>, DropReason> {
        if msg.match_notice {
            self.rx.notices.reserve(host)?;
        }
        let held = arrived.held;
        let verdict = host.arrived(arrived);
        let (to, consumed) = match verdict {
            Verdict::NoBuffer => return Err(DropReason::NoBuffer),
            Verdict::Discard => (None, true),
            Verdict::Matched(to, _) => (Some(to), held.is_none()),
            Verdict::Held(to) => (Some(to), false),
            Verdict::Wait => {
                debug_assert!(held.is_some() || msg.len_bytes == 0, "eager bytes need a place");
                (None, false)
            }
        };
        match consumed {
            true => self.consume(core, u32::from(!msg.match_notice), msg.len_bytes as u32),
            false => self.rx.kept_messages.add(msg.len_bytes as u32),
        }
        if msg.match_notice {
            if consumed || mutant(Mutant::NotifiesTheMatchOnArrival) {
                let notice = TxRecord::Matched { op: msg.op, order: msg.order };
                self.tx.out.push(notice);
            } else {
                self.rx.notices.insert(msg.order, msg.op);
            }
        }
        Ok(to)
    }

    /// Gives credit back. A message with a match notice or a permission counts when that goes out, so a peer that takes
    /// none cannot make them pile up.
    pub(in crate::peer) fn consume(&mut self, core: &mut Core, messages: u32, credit_bytes: u32) {
        if self.rx.consume(&core.cfg, &mut core.budget, messages, credit_bytes) {
            self.owe_word();
        }
    }

    /// The peer is to hear of its credit.
    fn owe_word(&mut self) {
        match self.has_lane() {
            true => self.owe_limits(),
            false => self.acks.due(0),
        }
    }

    /// Gives a peer that uses its credit more of it. With `short` it lacked the credit for an eager message.
    pub(in crate::peer) fn widen_credit(&mut self, core: &mut Core, short: bool) {
        let orders = self.rx.next_order.wrapping_sub(self.rx.first_order);
        let sent = (self.rx.eager_in_bytes, orders);
        if self.rx.credit.widen(&core.cfg, &mut core.budget, sent, short) {
            self.owe_word();
        }
    }

    /// True if something came before its turn.
    pub(in crate::peer) fn has_early(&self) -> bool {
        !self.rx.early.is_empty() || self.responder.has_early()
    }

    /// Reports messages and meets requests whose turn has come.
    pub(in crate::peer) fn deliver_early<H: Host>(&mut self, core: &mut Core, host: &mut H) {
        while self.has_early() {
            let order = self.rx.next_order;
            let Some(early) = self.rx.early.get(order).copied() else {
                if self.meet_early(core, host) {
                    continue;
                }
                return;
            };
            let before = self.rx.kept_messages.messages;
            let reported = match early.rendezvous {
                true => self.report_rts(core, host, &early.msg, Sources::default()).map(|()| None),
                false => {
                    let arrived = self.arrived(&early.msg, false);
                    let arrived = Arrived { held: early.held, ..arrived };
                    self.report(core, host, &early.msg, &arrived)
                }
            };
            // Without memory for it, it waits for the next packet.
            let Ok(to) = reported else { return };
            self.rx.early.remove(order);
            self.rx.next_order = order.wrapping_add(1);
            if early.rendezvous {
                continue;
            }
            if early.complete {
                core.stats.messages_received += 1;
                if let Some(to) = early.held.or(to) {
                    host.received(to, Ok(early.msg.len_bytes));
                }
            } else if let Some(partial) = self.rx.partial.get_mut(order) {
                partial.arrived = true;
                partial.kept = self.rx.kept_messages.messages > before;
            }
        }
    }

    pub(super) fn on_eager_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        h: &Header,
        msg: MsgHeader,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let end = u64::from(h.s_offset) + payload.len() as u64;
        if payload.is_empty() || end > msg.len_bytes {
            return Err(DropReason::Message);
        }
        match self.rx.partial.get(msg.order) {
            Some(partial) if partial.len_bytes != msg.len_bytes => return Err(DropReason::Message),
            Some(_) => {}
            None => match self.turn(msg.order)? {
                Some(in_turn) => self.open_partial(core, host, msg, in_turn)?,
                None => return Ok(()),
            },
        }
        let outcome = self.fill_partial(core, host, h, msg.order, payload);
        self.deliver_early(core, host);
        outcome
    }

    /// Places a segment of an eager message of several packets.
    fn fill_partial<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        h: &Header,
        order: u32,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        // Of an unwanted message, nothing is kept.
        let Some(partial) = self.rx.partial.get_mut(order) else { return Ok(()) };
        let end = h.s_offset + payload.len() as u32;
        partial.coverage.add(&mut self.rx.gaps, &mut core.spare_gaps, h.s_offset, end)?;
        host.place(partial.to, u64::from(h.s_offset), payload);
        core.stats.rx_payload_bytes += payload.len() as u64;
        if u64::from(partial.coverage.got_bytes) >= partial.len_bytes
            && let Some(whole) = self.rx.partial.remove(order)
        {
            self.acks.has_end();
            self.end_partial(core, host, order, whole);
        }
        Ok(())
    }

    /// Ends an eager message of several packets, whose bytes are all there.
    fn end_partial<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        order: u32,
        partial: Partial,
    ) {
        partial.coverage.end(&mut self.rx.gaps, &mut core.spare_gaps);
        if partial.arrived {
            core.stats.messages_received += 1;
            host.received(partial.to, Ok(partial.len_bytes));
        } else if let Some(early) = self.rx.early.get_mut(order) {
            early.complete = true;
        }
    }

    /// Takes the first segment of an eager message of several packets. It keeps nothing of an unwanted message, whose
    /// segments count as seen.
    fn open_partial<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: MsgHeader,
        in_turn: bool,
    ) -> Result<(), DropReason> {
        let len_bytes = msg.len_bytes;
        self.rx.partial.reserve(host)?;
        if in_turn {
            let before = self.rx.kept_messages.messages;
            if let Some(to) = self.report_in_turn(core, host, &msg, false)? {
                let coverage = Coverage::default();
                let kept = self.rx.kept_messages.messages > before;
                let partial = Partial { to, len_bytes, coverage, arrived: true, kept };
                self.rx.partial.insert(msg.order, partial);
            }
            self.widen_credit(core, false);
            return Ok(());
        }
        self.rx.early.reserve(host)?;
        let to = self.hold(host, msg.len_bytes)?;
        let early = Early { msg, rendezvous: false, held: Some(to), complete: false };
        self.rx.early.insert(msg.order, early);
        let coverage = Coverage::default();
        self.rx
            .partial
            .insert(msg.order, Partial { to, len_bytes, coverage, arrived: false, kept: false });
        Ok(())
    }

    fn on_rts<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: MsgHeader,
    ) -> Result<(), DropReason> {
        match self.turn(msg.order)? {
            Some(true) => {
                let sources = self.lane.take_sources();
                self.report_rts(core, host, &msg, sources)?;
                self.rx.next_order = msg.order.wrapping_add(1);
                let unspent = self.rx.credit.bytes.limit.wrapping_sub(self.rx.eager_in_bytes);
                let is_short = msg.len_bytes <= u64::from(core.cfg.eager_bytes);
                self.widen_credit(core, is_short && msg.len_bytes > u64::from(unspent));
            }
            Some(false) => {
                self.rx.early.reserve(host)?;
                let early = Early { msg, rendezvous: true, held: None, complete: false };
                self.rx.early.insert(msg.order, early);
            }
            None => {}
        }
        Ok(())
    }

    /// Reports an announced message in its turn. Fails without a change.
    fn report_rts<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        msg: &MsgHeader,
        sources: Sources,
    ) -> Result<(), DropReason> {
        self.rx.waiting.reserve(host)?;
        self.rx.links.has_room(host)?;
        let verdict = host.arrived(&self.arrived(msg, true));
        if verdict == Verdict::NoBuffer {
            return Err(DropReason::NoBuffer);
        }
        let waiting = Waiting { op: msg.op, len_bytes: msg.len_bytes, sources };
        self.rx.waiting.insert(msg.order, waiting);
        match verdict {
            Verdict::Matched(to, capacity) => {
                self.accept(core, host, msg.order, to, capacity);
            }
            Verdict::Discard => self.release(core, Order(msg.order), 0),
            Verdict::Held(_) | Verdict::Wait | Verdict::NoBuffer => {}
        }
        Ok(())
    }

    /// Accepts a waiting rendezvous, which met its receive. False when there is none.
    pub(crate) fn accept<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        order: u32,
        to: RecvToken,
        capacity_bytes: u64,
    ) -> bool {
        let Some(waiting) = self.rx.waiting.remove(order) else { return false };
        let wanted_bytes = waiting.len_bytes.min(capacity_bytes);
        if wanted_bytes == 0 {
            self.push_empty_cts(order, waiting.op);
            core.stats.messages_received += 1;
            host.received(to, Ok(waiting.len_bytes));
            return true;
        }
        let (name, len_bytes) = ((order, waiting.op), waiting.len_bytes);
        let incoming = Incoming::new(Purpose::Message, to, name, len_bytes, wanted_bytes);
        self.bring(core, host, incoming, waiting.sources);
        true
    }

    /// Has the bytes of a message or a write come: reads them where they are, or asks the peer to send them.
    pub(super) fn bring<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        incoming: Incoming,
        sources: Sources,
    ) {
        if self.lane.way.is_some() && sources.len_bytes() >= incoming.wanted_bytes() {
            self.pull(core, host, Pulling::new(incoming, sources));
        } else {
            self.rx.links.begin(incoming);
            self.grant();
        }
    }

    /// Ends a message or a write whose bytes were read where they are. The peer hears that it has ended.
    pub(in crate::peer) fn pulled<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        whole: &Incoming,
    ) {
        if whole.purpose == Purpose::Write {
            self.end_write(core, host, whole, true);
            return;
        }
        self.push_empty_cts(whole.order, whole.op);
        core.stats.messages_received += 1;
        core.stats.rx_payload_bytes += whole.wanted_bytes();
        host.received(whole.to, Ok(whole.len_bytes));
    }

    /// Asks the peer to send what could not be read where it is.
    pub(in crate::peer) fn pull_failed(&mut self, incoming: Incoming) {
        self.rx.links.begin(incoming);
        self.grant();
    }

    fn push_empty_cts(&mut self, order: u32, op: u32) {
        let cts = Cts { order, op, msg_id: 0, base_bytes: 0, len_bytes: 0, total_bytes: 0 };
        self.tx.out.push(TxRecord::Cts(cts));
    }

    /// Releases an unexpected message that left the driver's queue, or is not wanted.
    pub(crate) fn release(&mut self, core: &mut Core, order: Order, credit_bytes: u32) {
        let waiting = self.rx.waiting.remove(order.0);
        let notice = self.rx.notices.remove(order.0);
        let answered = waiting.is_some() || notice.is_some();
        match waiting {
            Some(waiting) => self.push_empty_cts(order.0, waiting.op),
            None => self.rx.kept_messages.remove(credit_bytes),
        }
        if let Some(op) = notice {
            self.tx.out.push(TxRecord::Matched { op, order: order.0 });
        }
        self.consume(core, u32::from(!answered), credit_bytes);
    }

    /// Gives links to messages that wait for one.
    pub(super) fn grant(&mut self) {
        while let Some(cts) = self.rx.links.grant() {
            self.tx.out.push(TxRecord::Cts(cts));
        }
    }

    pub(in crate::peer) fn on_segment<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        h: &Header,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let by_lane = self.has_lane();
        let slot = Links::slot(h.msg_id).ok_or(DropReason::Message)?;
        let (link, message) = self.rx.links.get(slot).ok_or(DropReason::Message)?;
        let end = u64::from(h.s_offset) + payload.len() as u64;
        if payload.is_empty() || end > u64::from(link.len_bytes) {
            return Err(DropReason::Message);
        }
        let void = h.flags & FLAG_VOID != 0;
        if void && message.purpose != Purpose::Read {
            return Err(DropReason::Message);
        }
        let before_bytes = link.coverage.got_bytes;
        link.coverage.add(&mut self.rx.gaps, &mut core.spare_gaps, h.s_offset, end as u32)?;
        if mutant(Mutant::LowersTheHighWaterMark) {
            link.coverage.fresh_bytes = end as u32;
        }
        let ends = end == u64::from(link.len_bytes);
        if !by_lane {
            core.filling = Some(self.id.index);
        }
        if mutant(Mutant::CompletesOnTheLastSegment) && ends {
            link.coverage.got_bytes = link.len_bytes;
        }
        let whole = link.coverage.got_bytes >= link.len_bytes;
        let at = match mutant(Mutant::PlacesInOrderOfArrival) {
            true => u64::from(before_bytes),
            false => u64::from(h.s_offset),
        };
        if void {
            core.refuse_read(message.op, Refusal::Key);
        } else {
            host.place(message.to, link.base_bytes + at, payload);
            core.stats.rx_payload_bytes += payload.len() as u64;
        }
        if !ends {
            self.rx.links.learn(slot, payload.len() as u16);
        }
        if whole {
            self.close_link(core, host, now, slot);
        }
        Ok(())
    }

    /// Takes the answer to a read: its bytes, or the refusal.
    pub(in crate::peer) fn on_read_answer<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        answer: &Answer,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let slot = Links::slot_of_read(answer.msg_id);
        let Some((link, incoming)) = self.rx.links.get(slot) else { return Ok(()) };
        let of_it = incoming.op == answer.op
            && link.order == answer.order
            && incoming.purpose == Purpose::Read;
        if !of_it {
            return Ok(());
        }
        if let Some(refusal) = answer.refusal {
            core.refuse_read(answer.op, refusal);
            link.len_bytes = link.len_bytes.min(answer.sent_bytes).max(link.coverage.got_bytes);
        } else {
            let started = link.coverage.got_bytes > 0;
            let is_whole = link.pulled || payload.len() as u64 == u64::from(link.len_bytes);
            if started || !is_whole || (link.pulled && !payload.is_empty()) {
                return Err(DropReason::Message);
            }
            link.coverage.got_bytes = link.len_bytes;
            if !payload.is_empty() {
                host.place(incoming.to, link.base_bytes, payload);
            }
            core.stats.rx_payload_bytes += payload.len() as u64;
        }
        if link.coverage.got_bytes == link.len_bytes {
            self.close_link(core, host, now, slot);
        }
        Ok(())
    }

    /// The bytes of a link are all there: its sender may wait for that.
    fn link_closed(&mut self, now: Nanos) {
        if !self.has_lane() {
            self.acks.due(now);
        }
    }

    /// Closes a link whose bytes are all there, or will not come.
    pub(super) fn close_link<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        slot: usize,
    ) {
        if let Some((link, _)) = self.rx.links.get(slot)
            && link.lent
        {
            self.lane.drop_pull(slot, link.order);
        }
        match self.rx.links.close(slot, &mut self.rx.gaps, &mut core.spare_gaps) {
            Closed::Read { entry, op, last } => {
                self.link_closed(now);
                if self.read_part_ended(core, host, op, last) {
                    self.rx.links.forget_read(entry);
                }
            }
            Closed::Whole(whole) => {
                self.link_closed(now);
                if whole.purpose == Purpose::Write {
                    self.end_write(core, host, &whole, false);
                } else {
                    core.stats.messages_received += 1;
                    host.received(whole.to, Ok(whole.len_bytes));
                }
            }
            Closed::Part => {}
        }
        self.grant();
    }
}
