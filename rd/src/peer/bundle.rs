//! The wire form of a bundle's records (protocol.md §5.2, §9).

use super::op::{Op, Role, Task};
use super::record::{ReadPart, TxRecord};
use super::shared::Core;
use crate::mutants::{Mutant, mutant};
use crate::wire::record::{MsgHeader, Record};
use crate::wire::remote::{Action, Answer, Refusal, RemoteRequest};

pub(super) fn msg_header(index: u32, op: &Op) -> MsgHeader {
    MsgHeader {
        order: op.order,
        op: index,
        tag: op.tag,
        data: op.data,
        match_notice: op.match_notice,
        len_bytes: op.len_bytes,
    }
}

/// The operation whose payload goes with a record, and the payload's bytes.
pub(super) fn bundled(core: &Core, record: &TxRecord) -> Option<(Op, u32)> {
    let op = |index: u32| core.ops[index as usize];
    match *record {
        TxRecord::Eager(index) => Some((op(index), op(index).len_bytes as u32)),
        TxRecord::Request(index) => Some((op(index), request(core, index).operand_bytes.into())),
        TxRecord::Answer(index) => match op(index).role {
            Role::Answer { withdrawn: false, .. } => Some((op(index), op(index).len_bytes as u32)),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn wire_record(record: &TxRecord, core: &Core, attempt: u8) -> Record {
    match *record {
        TxRecord::Cts(_) if mutant(Mutant::OmitsTheCtsFromRetransmissions) && attempt > 0 => {
            Record::Matched { op: u32::MAX, order: 0 }
        }
        TxRecord::Eager(index) => Record::Eager(msg_header(index, &core.ops[index as usize])),
        TxRecord::Rts(index) => Record::Rts(msg_header(index, &core.ops[index as usize])),
        TxRecord::Cts(cts) => Record::Cts(cts),
        TxRecord::Matched { op, order } => Record::Matched { op, order },
        TxRecord::Request(index) => Record::Request(request(core, index)),
        TxRecord::Read(part) => Record::Request(read_request(core, &part)),
        TxRecord::Answer(index) => Record::Answer(answer(&core.ops[index as usize])),
        TxRecord::Refused { answer, .. } => Record::Answer(answer),
        TxRecord::Done { first, last } => Record::Done { first, last },
    }
}

fn answer(op: &Op) -> Answer {
    let Role::Answer { op: theirs, msg_id, withdrawn, .. } = op.role else {
        unreachable!("a record names its own kind of operation")
    };
    Answer {
        order: op.order,
        op: theirs,
        msg_id,
        refusal: withdrawn.then_some(Refusal::Key),
        len_bytes: if withdrawn { 0 } else { op.len_bytes as u16 },
        sent_bytes: 0,
    }
}

/// The wire form of a write or an atomic.
pub(super) fn request(core: &Core, index: u32) -> RemoteRequest {
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
    RemoteRequest { order: op.order, op: index, action, operand_bytes, data: op.data, targets }
}

/// The wire form of one link of a read.
pub(super) fn read_request(core: &Core, read: &ReadPart) -> RemoteRequest {
    let op = &core.ops[read.op as usize];
    let Role::Request(at) = op.role else {
        unreachable!("a record names its own kind of operation")
    };
    RemoteRequest {
        order: read.order,
        op: read.op,
        action: Action::Read(read.msg_id),
        operand_bytes: 0,
        data: op.data,
        targets: core.asked[at as usize].targets.part(read.base_bytes, read.len_bytes),
    }
}
