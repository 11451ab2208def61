//! Asking for a peer's memory, and what comes back: writes, reads, atomics (protocol.md §9).
//! How requests are met is in `rx/requests.rs`.

use super::bundle::{read_request, request};
use super::record::{ReadPart, TxRecord};
use super::{Core, Peer, Role, Task};
use crate::host::{Host, OpError, RecvToken};
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::remote::{Answer, READ_MAX_BYTES, Refusal};

/// What became of the request at the front of the queue.
pub(super) enum Filled {
    /// It takes so many bytes of the bundle; with `whole` it leaves the queue.
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
        if !self.takes_requests {
            core.asked[at as usize].outcome = Some(Err(Refusal::Unsupported));
            self.end_request(core, host, index, at);
            return Filled::Ended;
        }
        let asked = &core.asked[at as usize];
        if asked.task.has_result() && self.tx.out.is_full_of_requests() {
            return Filled::Full;
        }
        if let Task::Read(to) = asked.task {
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
        if bytes > self.bundle_room(used) {
            return Filled::Full;
        }
        let (task, operand_bytes) = (asked.task, asked.operand_bytes);
        let op = &mut core.ops[index as usize];
        op.order = self.tx.out.take_order();
        (op.announced, op.unacked) = (true, op.unacked + 1);
        if !matches!(task, Task::Write { later: true }) {
            (op.wanted_bytes, op.granted_bytes) = (Some(operand_bytes), op.len_bytes);
            op.sent_bytes = operand_bytes;
        }
        match task {
            Task::Write { later: true } => {}
            _ if task.has_result() => self.tx.out.asked(),
            _ => self.tx.out.await_done(op.order, index),
        }
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
        asked.asked_bytes += len_bytes;
        op.order = self.tx.out.take_order();
        (op.announced, op.unacked) = (true, op.unacked + 1);
        (op.wanted_bytes, op.granted_bytes) = (Some(0), 0);
        self.tx.out.asked();
        self.tx.flight.push_record(TxRecord::Read(part));
        Filled::Took { bytes, whole: asked.asked_bytes == op.len_bytes }
    }

    /// The answer to one of our requests.
    pub(super) fn on_answer<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        answer: &Answer,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let mine = self.id.index;
        // An operation that is gone was answered before: this is a repetition.
        let Some(op) = core.ops.get_mut(answer.op as usize).filter(|op| op.peer == mine) else {
            return Ok(());
        };
        let Role::Request(at) = op.role else { return Ok(()) };
        let asked = &mut core.asked[at as usize];
        if let Task::Read(_) = asked.task {
            return self.on_read_answer(core, host, now, answer, payload);
        }
        if !op.announced || op.order != answer.order || asked.outcome.is_some() {
            return Ok(());
        }
        match (answer.refusal, asked.task) {
            (Some(refusal), _) => {
                asked.outcome = Some(Err(refusal));
                if let Task::Write { later: true } = asked.task {
                    // What is granted goes out still, so that its links end; no more will be.
                    op.wanted_bytes = Some(op.granted_bytes);
                }
            }
            (None, Task::Write { later: true }) if op.wanted_bytes != Some(op.len_bytes) => {
                return Err(DropReason::Message);
            }
            (None, Task::Atomic(_, to)) if asked.task.has_result() => {
                if payload.len() as u64 != op.len_bytes {
                    return Err(DropReason::Message);
                }
                asked.outcome = Some(Ok(()));
                host.place(to, 0, payload);
            }
            (None, _) => asked.outcome = Some(Ok(())),
        }
        if asked.task.has_result() {
            self.tx.out.asked_ended();
        }
        self.tx.out.forget_awaited(answer.order);
        self.finish(core, host, answer.op);
        Ok(())
    }

    /// Writes and updates in a range of send orders were done.
    pub(super) fn on_done<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        first: u32,
        last: u32,
    ) {
        while let Some(op) = self.tx.out.take_awaited(first, last) {
            if let Role::Request(at) = core.ops[op as usize].role {
                core.asked[at as usize].outcome.get_or_insert(Ok(()));
            }
            self.finish(core, host, op);
        }
    }

    /// A part of a read is there, or will not come; with `last` no other is under way. True if
    /// that was all.
    pub(super) fn read_part_ended<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        op: u32,
        last: bool,
    ) -> bool {
        self.tx.out.asked_ended();
        let Role::Request(at) = core.ops[op as usize].role else { return false };
        let asked = &mut core.asked[at as usize];
        if !last || asked.asked_bytes < core.ops[op as usize].len_bytes {
            return false;
        }
        asked.incoming = None;
        let outcome = *asked.outcome.get_or_insert(Ok(()));
        if core.ops[op as usize].is_done() {
            self.finish(core, host, op);
            return true;
        }
        // All that is missing is word that the request arrived, which the bytes have brought.
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
                self.tx.out.answered();
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

    /// The memory behind an answer is gone: what was not sent of it will not be.
    pub(crate) fn withdraw<H: Host>(&mut self, core: &mut Core, host: &mut H, index: u32) {
        let op = &mut core.ops[index as usize];
        let Role::Answer { bundled, withdrawn, .. } = &mut op.role else { return };
        if core::mem::replace(withdrawn, true) {
            return;
        }
        core.stats.refuse(Refusal::Key);
        // What is in a bundle, and not acknowledged, becomes a refusal when it is repeated.
        if !*bundled {
            self.tx.out.withdraw(index, op);
            self.finish(core, host, index);
        }
    }
}
