//! The send queues of a peer: posted operations, control records and payload that may flow, with the limits that the
//! peer grants (protocol.md §5).
//!
//! `Peer` asks for the next item and writes it. Once sent, it belongs to [`super::flight::Flight`].

use super::op::{Op, Role};
use super::rare::Queue;
use super::record::{LINK_BYTES, TxRecord};
use super::transfers::{Transfer, Transfers};
use crate::stats::DropReason;
use crate::wire::record::{Cts, RECORD_MAX_BYTES};
use crate::wire::remote::{Answer, Refusal};
use crate::wire::setup::Greeting;
use alloc::boxed::Box;
use slab::Slab;

/// See the module. Holds only numbers while nothing is outstanding.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    first_order: u32,
    next_order: u32,
    next_msg_id: u16,
    /// CTS and match notices to send; bounded by the receive side's links and order window.
    control: Queue<TxRecord>,
    /// Posted messages not on the wire; bounded by `sends_max`.
    queue: Queue<u32>,
    queued_bytes: u64,
    /// Live operations, excluding answers.
    ops: u32,
    /// Nothing until payload flows that is in no bundle.
    transfers: Option<Box<Transfers>>,
    /// Payload bytes since the last request for an acknowledgement.
    unrequested_bytes: u64,
    eager_sent_bytes: u32,
    eager_limit_bytes: u32,
    order_limit: u32,
}

/// Bytes that a message of this length counts in the queue, where eager ones have at most `eager_bytes`.
pub(super) fn queued_cost(len_bytes: u64, eager_bytes: u32) -> u64 {
    let payload = if len_bytes <= u64::from(eager_bytes) { len_bytes } else { 0 };
    payload + RECORD_MAX_BYTES as u64
}

impl Outbox {
    /// Prepares a session: keeps the queue, and starts new numbers.
    pub fn start(&mut self, first_order: u32) {
        let queue = core::mem::take(&mut self.queue);
        *self = Outbox {
            first_order,
            next_order: first_order,
            next_msg_id: first_order as u16,
            queue,
            queued_bytes: self.queued_bytes,
            ops: self.ops,
            ..Outbox::default()
        };
    }

    /// Takes the peer's limits.
    pub fn open(&mut self, g: &Greeting) {
        self.eager_limit_bytes = g.eager_credit_bytes.min(i32::MAX as u32);
        self.order_limit = self.first_order.wrapping_add(g.order_window.min(i32::MAX as u32));
    }

    /// Absolute limits only ever grow. One that is half of all numbers beyond what was sent would look like one behind
    /// it, so it does not count.
    pub fn raise_limits(&mut self, eager_limit_bytes: u32, order_limit: u32) {
        let is_ahead = |limit: u32, of: u32| (limit.wrapping_sub(of) as i32) >= 0;
        let raised = |limit: u32, before: u32, used: u32| {
            if is_ahead(limit, before) && is_ahead(limit, used) { limit } else { before }
        };
        self.eager_limit_bytes =
            raised(eager_limit_bytes, self.eager_limit_bytes, self.eager_sent_bytes);
        self.order_limit = raised(order_limit, self.order_limit, self.next_order);
    }

    /// The first send order of the session.
    pub fn first_order(&self) -> u32 {
        self.first_order
    }

    /// Queues a posted message.
    pub fn post(&mut self, op: u32, len_bytes: u64, eager_bytes: u32) {
        self.queue.push_back(op);
        self.ops += 1;
        self.queued_bytes += queued_cost(len_bytes, eager_bytes);
    }

    /// The posted message that comes next.
    pub fn next_posted(&self) -> Option<u32> {
        self.queue.front().copied()
    }

    /// Notes that the next posted message left the queue, in which it counted `cost_bytes`.
    pub fn unqueue(&mut self, cost_bytes: u64) {
        self.queue.pop_front();
        self.queued_bytes -= cost_bytes;
    }

    /// Number of posted messages that are not on the wire.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Bytes that the queued messages count.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Number of live operations.
    pub fn ops(&self) -> u32 {
        self.ops
    }

    /// Notes an eager message of this length that went without being queued.
    pub fn wrote(&mut self, len_bytes: u32) {
        self.take_order();
        self.eager_sent_bytes = self.eager_sent_bytes.wrapping_add(len_bytes);
    }

    /// Notes an operation that was not queued.
    pub fn began(&mut self) {
        self.ops += 1;
    }

    /// Notes the end of an operation.
    pub fn ended(&mut self) {
        self.ops -= 1;
    }

    /// Notes the end of all operations. True if there were any.
    pub fn end_all(&mut self) -> bool {
        core::mem::take(&mut self.ops) > 0
    }

    /// True if something before the next posted message has not ended.
    pub fn has_older(&self) -> bool {
        self.ops as usize > self.queue.len()
    }

    /// Queues a record.
    pub fn push(&mut self, record: TxRecord) {
        self.control.push_back(record);
    }

    /// The next record.
    pub fn next_record(&self) -> Option<&TxRecord> {
        self.control.front()
    }

    /// Takes the next record.
    pub fn take_record(&mut self) -> Option<TxRecord> {
        self.control.pop_front()
    }

    /// True if records wait.
    pub fn has_records(&self) -> bool {
        !self.control.is_empty()
    }

    /// Begins an answer, as a transfer unless a record has its bytes.
    pub fn answer(&mut self, op: u32, transfer: Option<Transfer>) {
        match transfer {
            Some(transfer) => self.transfers_mut().push(transfer, transfer.len_bytes),
            None => self.push(TxRecord::Answer(op)),
        }
    }

    fn transfers_mut(&mut self) -> &mut Transfers {
        self.transfers.get_or_insert_default()
    }

    /// True if notices wait to be sent.
    pub fn has_endings(&self) -> bool {
        self.control.iter().any(TxRecord::ends)
    }

    /// True if something could be sent once the window allows.
    pub fn wants(&self) -> bool {
        self.wants_records() || self.transfers.as_ref().is_some_and(|t| !t.is_empty())
    }

    /// True if nothing follows the payload that goes next.
    pub fn is_last(&self) -> bool {
        !self.wants_records() && self.transfers.as_ref().is_some_and(|t| t.is_last())
    }

    /// True if a bundle might have a record.
    pub fn wants_records(&self) -> bool {
        !(self.queue.is_empty() && self.control.is_empty())
    }

    /// True if messages wait for the peer's credit.
    pub fn is_short_of_credit(&self) -> bool {
        !self.has_order_credit() && !self.queue.is_empty()
    }

    /// True if the peer takes one more message.
    pub fn has_order_credit(&self) -> bool {
        (self.order_limit.wrapping_sub(self.next_order) as i32) > 0
    }

    /// True if the peer takes `len_bytes` more eager bytes.
    pub fn eager_fits(&self, len_bytes: u64) -> bool {
        let room = self.eager_limit_bytes.wrapping_sub(self.eager_sent_bytes) as i32;
        room > 0 && len_bytes <= room as u64
    }

    /// The next send order.
    pub fn next_order(&self) -> u32 {
        self.next_order
    }

    /// Takes the next send order.
    pub fn take_order(&mut self) -> u32 {
        let order = self.next_order;
        self.next_order = order.wrapping_add(1);
        order
    }

    /// Announces a message, whose payload goes with the record if it is eager.
    pub fn announce(&mut self, index: u32, op: &mut Op, eager: bool) -> TxRecord {
        op.order = self.take_order();
        op.announced = true;
        op.unacked += 1;
        if !eager {
            // A rendezvous waits for its match anyway.
            op.match_notice = false;
            return TxRecord::Rts(index);
        }
        self.charge(op);
        op.sent_bytes = op.len_bytes;
        TxRecord::Eager(index)
    }

    fn charge(&mut self, op: &mut Op) {
        (op.wanted_bytes, op.granted_bytes) = (Some(op.len_bytes), op.len_bytes);
        self.eager_sent_bytes = self.eager_sent_bytes.wrapping_add(op.len_bytes as u32);
    }

    /// Begins an eager message of several packets, while no other one is under way.
    pub fn begin_eager(&mut self, index: u32, op: &mut Op) {
        op.order = self.take_order();
        op.announced = true;
        self.charge(op);
        let msg_id = self.next_msg_id & 0x7fff;
        self.next_msg_id = self.next_msg_id.wrapping_add(1);
        self.transfers_mut().begin_eager(Transfer {
            op: index,
            msg_id,
            base_bytes: 0,
            len_bytes: op.len_bytes,
            done_bytes: 0,
            eager: true,
        });
    }

    /// Bytes sent of the eager message that goes in segments, if one is under way.
    pub fn eager_done_bytes(&self) -> Option<u64> {
        self.transfers.as_ref()?.eager_done_bytes()
    }

    /// The next payload to send.
    pub fn next_transfer(&self) -> Option<Transfer> {
        self.transfers.as_ref()?.next()
    }

    /// Updates the progress of the next payload.
    pub fn advance(&mut self, transfer: Transfer) {
        self.transfers_mut().advance(transfer);
    }

    /// Counts sent payload. True if its packet must request an acknowledgement: after `most_bytes`, or with the `last`.
    pub fn requests_ack(&mut self, bytes: u64, most_bytes: u64, last: bool) -> bool {
        self.unrequested_bytes += bytes;
        let requests = last || self.unrequested_bytes >= most_bytes;
        if requests {
            self.unrequested_bytes = 0;
        }
        requests
    }

    /// Takes permission to send a link of a rendezvous message or of a write (protocol.md §5). Returns its operation,
    /// or `None` for a repetition.
    pub fn grant(
        &mut self,
        ops: &mut Slab<Op>,
        peer: u32,
        cts: &Cts,
    ) -> Result<Option<u32>, DropReason> {
        let op = ops
            .get_mut(cts.op as usize)
            .filter(|op| op.peer == peer && op.announced && op.order == cts.order)
            .filter(|op| !matches!(op.role, Role::Answer { .. }));
        // An operation that has ended had its grant before: this is a repetition.
        let Some(op) = op else { return Ok(None) };
        let end = cts.base_bytes.checked_add(u64::from(cts.len_bytes));
        let fits = end.is_some_and(|end| end <= cts.total_bytes) && cts.total_bytes <= op.len_bytes;
        // Other lengths would let the peer choose the number of links.
        let is_link = |left: u64| u64::from(cts.len_bytes) == left.min(LINK_BYTES);
        if !fits
            || !is_link(cts.total_bytes - cts.base_bytes)
            || op.wanted_bytes.is_some_and(|wanted| wanted != cts.total_bytes)
        {
            return Err(DropReason::Message);
        }
        if op.wanted_bytes.is_some() && cts.base_bytes < op.granted_bytes {
            return Ok(None);
        }
        if cts.base_bytes != op.granted_bytes {
            // The peer grants links in order; an earlier grant is still on its way.
            return Err(DropReason::WrongState);
        }
        op.wanted_bytes = Some(cts.total_bytes);
        op.granted_bytes += u64::from(cts.len_bytes);
        if cts.len_bytes > 0 {
            let link = Transfer {
                op: cts.op,
                msg_id: cts.msg_id,
                base_bytes: cts.base_bytes,
                len_bytes: u64::from(cts.len_bytes),
                done_bytes: 0,
                eager: false,
            };
            self.transfers_mut().push(link, cts.total_bytes);
        }
        Ok(Some(cts.op))
    }

    /// Withdraws an answer of several packets, whose memory is gone: the unsent rest stays unsent.
    pub fn withdraw(&mut self, index: u32, op: &mut Op) {
        let Role::Answer { op: theirs, msg_id, .. } = op.role else { return };
        self.transfers_mut().withdraw(index);
        op.wanted_bytes = Some(op.sent_bytes);
        let (order, sent_bytes) = (op.order, op.sent_bytes as u32);
        let refusal = Some(Refusal::Key);
        let answer = Answer { order, op: theirs, msg_id, refusal, len_bytes: 0, sent_bytes };
        self.push(TxRecord::Refused { answer, is_first: false });
    }

    /// Frees heap memory. Call it only while nothing is outstanding.
    pub fn reclaim(&mut self) {
        debug_assert!(!self.wants(), "what waits is to be sent");
        self.control.forget();
        self.queue.forget();
        self.transfers = None;
    }

    /// Checks the invariants between two calls of the endpoint, whose operations are `ops`.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, ops: &Slab<Op>, eager_bytes: u32) {
        let cost = |index: &u32| queued_cost(ops[*index as usize].len_bytes, eager_bytes);
        let queued_bytes: u64 = self.queue.iter().map(cost).sum();
        assert_eq!(self.queued_bytes, queued_bytes, "bytes queued are those of what is queued");
        assert!(self.ops as usize >= self.queue.len(), "what is queued has not ended");
        if let Some(transfers) = &self.transfers {
            transfers.check(|op| ops.contains(op as usize));
        }
        let spent = self.eager_limit_bytes.wrapping_sub(self.eager_sent_bytes) as i32;
        assert!(spent >= 0, "no eager bytes go without credit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SendToken;

    const EAGER: u32 = 1000;

    fn op(len_bytes: u64) -> Op {
        Op::new(SendToken(7), 3, len_bytes, Role::Message)
    }

    /// An outbox with these messages posted, whose peer takes 4 messages and 1000 eager bytes.
    fn posted(lens: &[u64]) -> (Outbox, Slab<Op>) {
        let (mut outbox, mut ops) = (Outbox::default(), Slab::new());
        outbox.start(u32::MAX);
        outbox.raise_limits(1000, u32::MAX.wrapping_add(4));
        for len in lens {
            let index = ops.insert(op(*len));
            outbox.post(index as u32, *len, EAGER);
        }
        outbox.check(&ops, EAGER);
        (outbox, ops)
    }

    #[test]
    fn a_message_takes_its_order_and_its_credit_when_it_is_announced() {
        let (mut outbox, mut ops) = posted(&[600, 600]);
        assert!(outbox.eager_fits(600) && outbox.has_order_credit());
        let record = outbox.announce(0, &mut ops[0], true);
        outbox.unqueue(queued_cost(600, EAGER));
        outbox.check(&ops, EAGER);
        assert!(matches!(record, TxRecord::Eager(0)));
        assert_eq!((ops[0].order, outbox.next_order(), outbox.queued()), (u32::MAX, 0, 1));
        assert!(!outbox.eager_fits(600) && outbox.eager_fits(400));
        outbox.raise_limits(900, 0);
        assert!(outbox.eager_fits(400), "limits only grow");
        for _ in 0..3 {
            outbox.take_order();
        }
        assert!(outbox.is_short_of_credit());
    }

    #[test]
    fn links_are_granted_once_and_in_order() {
        let len_bytes = LINK_BYTES + 5;
        let (mut outbox, mut ops) = posted(&[len_bytes]);
        outbox.announce(0, &mut ops[0], false);
        let link = |base_bytes: u64, len: u64| Cts {
            order: u32::MAX,
            op: 0,
            msg_id: 9,
            base_bytes,
            len_bytes: len as u32,
            total_bytes: len_bytes,
        };
        let mut grant = |cts: &Cts| outbox.grant(&mut ops, 3, cts);
        assert_eq!(grant(&link(LINK_BYTES, 5)), Err(DropReason::WrongState), "out of order");
        assert_eq!(grant(&link(0, 5)), Err(DropReason::Message), "too short for a link");
        assert_eq!(grant(&link(0, LINK_BYTES)), Ok(Some(0)));
        assert_eq!(grant(&link(0, LINK_BYTES)), Ok(None), "a repetition");
        assert_eq!(grant(&link(LINK_BYTES, 5)), Ok(Some(0)));
        assert_eq!(grant(&link(LINK_BYTES, 6)), Err(DropReason::Message), "beyond the message");
        assert_eq!(ops[0].granted_bytes, len_bytes);
        outbox.check(&ops, EAGER);
    }
}
