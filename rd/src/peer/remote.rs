//! Accesses to a peer's memory, and their answers: writes, reads, atomics (protocol.md §9). The target's side is in
//! `rx/requests.rs`.

use super::bundle::{read_request, request};
use super::record::{ReadPart, TxRecord};
use super::requester::Word;
use super::{Core, Peer, Role, Task};
use crate::host::{Host, OpError, RecvToken};
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::record::ACK_RECORD_BYTES;
use crate::wire::remote::{Answer, READ_MAX_BYTES, Refusal};

/// Result for the request at the front of the queue.
pub(super) enum Filled {
    /// It takes `bytes` of the bundle; with `whole` it leaves the queue.
    Took { bytes: usize, whole: bool },
    /// It must wait.
    Full,
    /// It ended without being sent.
    Ended,
}

impl Peer {
    /// Puts the request at the front of the queue into a bundle that has `used` bytes.
    pub(super) fn fill_request<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        index: u32,
        at: u32,
        used: usize,
    ) -> Filled {
        if !self.requester.is_served() {
            core.asked[at as usize].outcome = Some(Err(Refusal::Unsupported));
            self.end_request(core, host, index, at);
            return Filled::Ended;
        }
        let task = core.asked[at as usize].task;
        if !self.requester.has_room(task) {
            return Filled::Full;
        }
        if let Task::Read(to) = task {
            return self.fill_read(core, index, at, to, used);
        }
        let room = self.bundle_room(0).min(usize::from(u16::MAX));
        let head = request(core, index).header_bytes();
        let asked = &mut core.asked[at as usize];
        let mut bytes = head.saturating_add(asked.operand_bytes as usize);
        if let Task::Write { later } = &mut asked.task {
            *later = asked.operand_bytes > room as u64 || bytes > room;
            bytes = if *later { head } else { bytes };
        }
        // By itself, the longest atomic may take the place of an acknowledgement.
        let spare = if used == 0 { ACK_RECORD_BYTES } else { 0 };
        if bytes > self.bundle_room(used) + spare {
            return Filled::Full;
        }
        let order = self.tx.out.take_order();
        self.requester.sent(index, &mut core.ops[index as usize], order, asked);
        self.tx.flight.push_record(TxRecord::Request(index));
        Filled::Took { bytes, whole: true }
    }

    fn fill_read(
        &mut self,
        core: &mut Core,
        index: u32,
        at: u32,
        to: RecvToken,
        used: usize,
    ) -> Filled {
        let op = &mut core.ops[index as usize];
        let asked = &mut core.asked[at as usize];
        let base_bytes = asked.asked_bytes;
        let len_bytes = (op.len_bytes - base_bytes).min(READ_MAX_BYTES);
        let order = self.tx.out.next_order();
        let mut part = ReadPart { op: index, order, base_bytes, len_bytes, msg_id: 0 };
        let bytes = read_request(core, &part).header_bytes();
        if bytes > self.bundle_room(used) {
            return Filled::Full;
        }
        let asked = &mut core.asked[at as usize];
        let op = &mut core.ops[index as usize];
        let link = self.rx.open_read(asked.incoming, to, &part, op.len_bytes);
        let Some((incoming, msg_id)) = link else { return Filled::Full };
        part.msg_id = msg_id;
        asked.incoming = Some(incoming);
        let whole = self.requester.sent_part(op, self.tx.out.take_order(), asked, len_bytes);
        self.tx.flight.push_record(TxRecord::Read(part));
        Filled::Took { bytes, whole }
    }

    /// Takes the answer to one of our requests.
    pub(super) fn on_answer<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        answer: &Answer,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let mine = self.id.index;
        // An operation that has ended was answered before: this is a repetition.
        let Some(op) = core.ops.get_mut(answer.op as usize).filter(|op| op.peer == mine) else {
            return Ok(());
        };
        let Role::Request(at) = op.role else { return Ok(()) };
        let asked = &mut core.asked[at as usize];
        if let Task::Read(_) = asked.task {
            return self.on_read_answer(core, host, now, answer, payload);
        }
        let came = (payload.len(), self.lane.way.is_some());
        match self.requester.answered(op, asked, answer, came)? {
            Word::Repeated => return Ok(()),
            Word::Ended => {}
            Word::Result(to) => host.place(to, 0, payload),
        }
        self.finish(core, host, answer.op);
        Ok(())
    }

    /// Notes that writes and updates in a range of send orders were done.
    pub(super) fn on_done<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        first: u32,
        last: u32,
    ) {
        while let Some(op) = self.requester.take_done(first, last) {
            if let Role::Request(at) = core.ops[op as usize].role {
                core.asked[at as usize].outcome.get_or_insert(Ok(()));
            }
            self.finish(core, host, op);
        }
    }

    /// Ends a part of a read: it is there, or will not come; with `last` no other is under way. True if the read has
    /// ended.
    pub(super) fn read_part_ended<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        op: u32,
        last: bool,
    ) -> bool {
        let Role::Request(at) = core.ops[op as usize].role else { return false };
        let asked = &mut core.asked[at as usize];
        let ended = self.requester.part_ended(&core.ops[op as usize], asked, last);
        let Some(outcome) = ended else { return false };
        if core.ops[op as usize].is_done() {
            self.finish(core, host, op);
            return true;
        }
        // Only the acknowledgement of the request is missing, and the bytes prove that it arrived.
        asked.reported = true;
        core.silent += 1;
        core.stats.messages_sent += 1;
        host.sent(core.ops[op as usize].token, outcome.map_err(OpError::Refused));
        true
    }

    /// Ends a request or an answer that has nothing left to do.
    pub(super) fn finish_role<H: Host>(&mut self, core: &mut Core, host: &mut H, index: u32) {
        match core.ops[index as usize].role {
            Role::Message => {}
            Role::Answer { .. } => {
                let op = core.ops.remove(index as usize);
                core.forget_role(&op);
                self.responder.answered();
                host.sent(op.token, Ok(()));
            }
            Role::Request(at) => {
                let asked = &core.asked[at as usize];
                if asked.outcome.is_some() && asked.incoming.is_none() {
                    self.end_request(core, host, index, at);
                }
            }
        }
    }

    fn end_request<H: Host>(&mut self, core: &mut Core, host: &mut H, index: u32, at: u32) {
        let outcome = core.asked[at as usize].outcome.unwrap_or(Ok(()));
        let op = core.ops.remove(index as usize);
        self.tx.out.ended();
        if core.forget_role(&op) {
            core.stats.messages_sent += 1;
            host.sent(op.token, outcome.map_err(OpError::Refused));
        }
    }
}
