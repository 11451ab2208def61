//! Operations: posts, and answers to the peer, until they end.

use crate::host::{RecvToken, SendToken, WorkRequest};
use crate::mutants::{Mutant, mutant};
use crate::wire::remote::{Atomic, Form, Refusal, Targets};

/// A send operation, from post to completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub token: SendToken,
    /// Index of the peer.
    pub peer: u32,
    pub len_bytes: u64,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub match_notice: bool,
    /// True if the application waits for its end.
    pub awaited: bool,
    /// True if it ends when the peer has it, not when it can no longer be lost.
    pub delivery: bool,
    /// Send order; set when the message first goes on the wire.
    pub order: u32,
    /// Packets that carry part of it and are not acknowledged.
    pub unacked: u32,
    /// Payload bytes put on the wire.
    pub sent_bytes: u64,
    /// Payload bytes to send in all: known at once for eager messages, from the CTS otherwise.
    pub wanted_bytes: Option<u64>,
    /// Links granted so far, in bytes; a CTS for less is a repetition.
    pub granted_bytes: u64,
    /// True once its announcement (record or first segment) is on the wire.
    pub announced: bool,
    /// The engine sends it only when all before it to the same peer have ended.
    pub fence: bool,
    pub role: Role,
}

impl Op {
    /// A new one, not on the wire.
    pub(crate) fn new(token: SendToken, peer: u32, len_bytes: u64, role: Role) -> Op {
        Op {
            token,
            peer,
            len_bytes,
            tag: None,
            data: None,
            match_notice: false,
            awaited: false,
            delivery: false,
            order: 0,
            unacked: 0,
            sent_bytes: 0,
            wanted_bytes: None,
            granted_bytes: 0,
            announced: false,
            fence: false,
            role,
        }
    }

    /// A message of this send order that the peer has yet to read.
    pub(super) fn written(wr: &WorkRequest, order: u32) -> Op {
        Op {
            tag: wr.tag,
            data: wr.data,
            awaited: wr.awaited,
            delivery: wr.delivery,
            order,
            unacked: 1,
            sent_bytes: wr.len_bytes,
            wanted_bytes: Some(wr.len_bytes),
            granted_bytes: wr.len_bytes,
            announced: true,
            ..Op::new(wr.token, wr.peer.index, wr.len_bytes, Role::Message)
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.announced
            && (self.unacked == 0 || mutant(Mutant::CompletesBeforeTheAck))
            && !self.match_notice
            && self.wanted_bytes == Some(self.sent_bytes)
    }
}

/// Role of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// A message to the peer.
    Message,
    /// A request to its memory; entry of `Core::asked`.
    Request(u32),
    /// The answer to a request of the peer, whose number for it is `op`. It goes into a bundle or under the Msg_ID. If
    /// withdrawn, its memory is gone. If lent, the peer is to say whether it reads the bytes where they are.
    Answer { op: u32, msg_id: u16, bundled: bool, withdrawn: bool, lent: bool },
}

/// Task of a request.
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
    /// True if the peer sends bytes for it.
    pub(super) fn has_result(&self) -> bool {
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
    /// For a read: bytes requested so far, a link at a time.
    pub asked_bytes: u64,
    /// For a read: its entry in the receive flow, while that exists.
    pub incoming: Option<u32>,
    pub outcome: Option<Result<(), Refusal>>,
    /// Reported to the driver; only its packet waits for an acknowledgement.
    pub reported: bool,
}

impl Asked {
    /// A new one, not on the wire.
    pub(crate) fn new(task: Task, targets: Targets, operand_bytes: u64) -> Asked {
        Asked {
            task,
            targets,
            operand_bytes,
            asked_bytes: 0,
            incoming: None,
            outcome: None,
            reported: false,
        }
    }
}
