//! The records of a sent bundle, as the send cache keeps them: operations by name, without their bytes.

use crate::wire::record::Cts;
use crate::wire::remote::{Answer, READ_MAX_BYTES};

/// Length of a link of a chain (protocol.md §5.4).
pub(super) const LINK_BYTES: u64 = 1 << 30;
/// The bytes of a read's part come as one link.
const _: () = assert!(READ_MAX_BYTES == LINK_BYTES);

/// One link of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPart {
    pub op: u32,
    pub order: u32,
    pub base_bytes: u64,
    pub len_bytes: u64,
    pub msg_id: u16,
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
    /// True if it is the first answer to a message of the peer, whose order credit it returns.
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

    /// True if it ends an operation of the peer.
    pub(super) fn ends(&self) -> bool {
        match self {
            TxRecord::Matched { .. } | TxRecord::Refused { .. } | TxRecord::Done { .. } => true,
            // The message is there, or nobody wants it.
            TxRecord::Cts(cts) => cts.total_bytes == 0,
            _ => false,
        }
    }

    /// Our operation that it belongs to, if any.
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
