//! Asking for a peer's memory, and what comes back: writes, reads, atomics (protocol.md §9).
//! How requests are met is in `rx/requests.rs`.

use super::tx::TxRecord;
use super::{Core, Op, Peer};
use crate::host::{Host, OpError, RecvToken};
use crate::stats::DropReason;
use crate::units::{Nanos, Order};
use crate::wire::remote::{
    Action, Answer, Atomic, Form, READ_MAX_BYTES, Refusal, Request, Targets,
};

/// Requests of one endpoint to a peer that may wait for bytes in answer; the others follow.
const REQUESTS_MAX: u32 = 256;
/// Its bytes come as one link.
const _: () = assert!(READ_MAX_BYTES == super::tx::LINK_BYTES);

/// What an operation is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// A message to the peer.
    Message,
    /// A request to its memory; entry of [`Core::asked`].
    Request(u32),
    /// The answer to a request of the peer, whose number for it is `op`. It goes into a bundle or
    /// under the Msg_ID. Its memory is gone if it is withdrawn.
    Answer { op: u32, msg_id: u16, bundled: bool, withdrawn: bool },
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// With `later`, the bytes wait for permission.
    Write { later: bool },
    /// Into this buffer.
    Read(RecvToken),
    /// Its result, if any, goes into this buffer.
    Atomic(Atomic, RecvToken),
}

impl Task {
    /// The peer sends bytes for it.
    fn has_result(&self) -> bool {
        match self {
            Task::Write { .. } => false,
            Task::Read(_) => true,
            Task::Atomic(atomic, _) => atomic.form != Form::Update,
        }
    }
}

/// The part of a request's state that messages do not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub task: Task,
    pub targets: Targets,
    /// Payload that goes to the peer.
    pub operand_bytes: u64,
    /// Of a read: how much was asked for so far, a link at a time.
    pub asked_bytes: u64,
    /// Of a read: its entry in the receive flow, while that stands.
    pub incoming: Option<u32>,
    pub outcome: Option<Result<(), Refusal>>,
    /// The driver knows it already; only its packet waits to be acknowledged.
    pub reported: bool,
}

impl Core {
    /// An operation was taken out of the table: so is what its role needs. False if the driver
    /// knows of its end.
    pub(crate) fn forget_role(&mut self, op: &Op) -> bool {
        match op.role {
            Role::Message => true,
            Role::Answer { .. } => {
                self.silent -= 1;
                true
            }
            Role::Request(at) => {
                let asked = self.asked.remove(at as usize);
                self.silent -= usize::from(asked.reported);
                !asked.reported
            }
        }
    }
}

impl Core {
    /// A part of a read of ours will not come.
    pub(super) fn refuse_read(&mut self, op: u32, refusal: Refusal) {
        if let Role::Request(at) = self.ops[op as usize].role {
            self.asked[at as usize].outcome.get_or_insert(Err(refusal));
        }
    }
}

/// What became of the request at the front of the queue.
pub(super) enum Filled {
    /// It takes so many bytes of the bundle; with `whole` it leaves the queue.
    Took { bytes: usize, whole: bool },
    /// It must wait.
    Full,
    /// It ended without being sent.
    Ended,
}

/// A write or an atomic as it is told to the peer.
pub(super) fn request(core: &Core, index: u32) -> Request {
    let op = &core.ops[index as usize];
    let Role::Request(at) = op.role else {
        unreachable!("a record names its own kind of operation")
    };
    let asked = &core.asked[at as usize];
    let (action, operand_bytes) = match asked.task {
        Task::Write { later: false } => (Action::Write, asked.operand_bytes as u16),
        Task::Write { later: true } => (Action::WriteLater, 0),
        Task::Atomic(atomic, _) => (Action::Atomic(atomic), asked.operand_bytes as u16),
        Task::Read(_) => unreachable!("reads have records of their own"),
    };
    let targets = asked.targets;
    Request { order: op.order, op: index, action, operand_bytes, data: op.data, targets }
}

/// One link of a read as it is told to the peer.
pub(super) fn read_request(core: &Core, read: &ReadPart) -> Request {
    let op = &core.ops[read.op as usize];
    let Role::Request(at) = op.role else {
        unreachable!("a record names its own kind of operation")
    };
    Request {
        order: read.order,
        op: read.op,
        action: Action::Read(read.msg_id),
        operand_bytes: 0,
        data: op.data,
        targets: core.asked[at as usize].targets.part(read.base_bytes, read.len_bytes),
    }
}

/// One link of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPart {
    pub op: u32,
    pub order: u32,
    pub base_bytes: u64,
    pub len_bytes: u64,
    pub msg_id: u16,
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
        if asked.task.has_result() && self.tx.requests >= REQUESTS_MAX {
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
        op.order = self.tx.take_order();
        (op.announced, op.unacked) = (true, op.unacked + 1);
        if !matches!(task, Task::Write { later: true }) {
            (op.wanted_bytes, op.granted_bytes) = (Some(operand_bytes), op.len_bytes);
            op.sent_bytes = operand_bytes;
        }
        match task {
            Task::Write { later: true } => {}
            _ if task.has_result() => self.tx.requests += 1,
            _ => self.tx.awaiting.push_back((op.order, index)),
        }
        self.tx.records.push_back(TxRecord::Request(index));
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
        let order = self.tx.next_order();
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
        op.order = self.tx.take_order();
        (op.announced, op.unacked) = (true, op.unacked + 1);
        (op.wanted_bytes, op.granted_bytes) = (Some(0), 0);
        self.tx.requests += 1;
        self.tx.records.push_back(TxRecord::Read(part));
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
            self.tx.requests -= 1;
        }
        let order = answer.order;
        if let Ok(place) =
            self.tx.awaiting.binary_search_by_key(&0, |w| Order(w.0).since(Order(order)))
        {
            self.tx.awaiting.remove(place);
        }
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
        let before = |waiting: &(u32, u32)| Order(waiting.0).since(Order(first)) < 0;
        let from = self.tx.awaiting.partition_point(before);
        while let Some(&(order, op)) = self.tx.awaiting.get(from) {
            if Order(order).since(Order(last)) > 0 {
                return;
            }
            self.tx.awaiting.remove(from);
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
        self.tx.requests -= 1;
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
                self.tx.answers -= 1;
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
        self.tx.ops -= 1;
        if core.forget_role(&op) {
            core.stats.messages_sent += 1;
            host.sent(op.token, outcome.map_err(OpError::Refused));
        }
    }

    /// The memory behind an answer is gone: what was not sent of it will not be.
    pub(crate) fn withdraw<H: Host>(&mut self, core: &mut Core, host: &mut H, index: u32) {
        let op = &mut core.ops[index as usize];
        let Role::Answer { op: theirs, msg_id, bundled, withdrawn } = &mut op.role else { return };
        if core::mem::replace(withdrawn, true) {
            return;
        }
        core.stats.refuse(Refusal::Key);
        // What is in a bundle, and not acknowledged, becomes a refusal when it is repeated.
        if *bundled {
            return;
        }
        let (theirs, msg_id) = (*theirs, *msg_id);
        self.tx.transfers.retain(|transfer| transfer.op != index);
        op.wanted_bytes = Some(op.sent_bytes);
        let (order, sent_bytes) = (op.order, op.sent_bytes as u32);
        self.tx.control.push_back(TxRecord::Refused {
            answer: Answer {
                order,
                op: theirs,
                msg_id,
                refusal: Some(Refusal::Key),
                len_bytes: 0,
                sent_bytes,
            },
            is_first: false,
        });
        self.finish(core, host, index);
    }
}
