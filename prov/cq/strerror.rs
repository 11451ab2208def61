//! Error numbers of completions, and what they mean in words (`fi_cq_strerror`).

use erd_ffi::fi::{
    FI_EACCES, FI_EADDRNOTAVAIL, FI_ECANCELED, FI_ECONNRESET, FI_EFAULT, FI_EHOSTUNREACH,
    FI_EINVAL, FI_EKEYREJECTED, FI_ENOMSG, FI_ENOSYS, FI_EOPNOTSUPP, FI_EOVERRUN, FI_ESHUTDOWN,
    FI_ETIMEDOUT, FI_ETRUNC,
};
use erd_rd::{OpError, Refusal};
use std::ffi::{CStr, c_int};

/// Why an operation failed; the number is the completion's `prov_errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Cause {
    /// [`OpError::PeerTimeout`].
    PeerTimeout = 1,
    /// [`OpError::PeerUnreachable`].
    PeerUnreachable = 2,
    /// [`OpError::PeerRestarted`].
    PeerRestarted = 3,
    /// [`OpError::PeerClosed`].
    PeerClosed = 4,
    /// [`OpError::Canceled`], or `fi_cancel`.
    Canceled = 5,
    /// The message was longer than its buffer.
    Truncated = 6,
    /// A peek found nothing.
    NoMessage = 7,
    /// [`OpError::BadBuffer`].
    BadBuffer = 8,
    /// [`Refusal::Key`].
    RefusedKey = 9,
    /// [`Refusal::Bounds`].
    RefusedBounds = 10,
    /// [`Refusal::Rights`].
    RefusedRights = 11,
    /// [`Refusal::Operation`].
    RefusedOperation = 12,
    /// [`Refusal::Unsupported`].
    RefusedUnsupported = 13,
    /// [`Refusal::Room`].
    RefusedRoom = 14,
    /// An operation that waited for a counter could not be posted when its time came.
    NotPosted = 15,
    /// A message came from an address that is not in the AV, and that was asked for.
    SourceUnknown = 16,
}

const ALL: [Cause; 16] = [
    Cause::PeerTimeout,
    Cause::PeerUnreachable,
    Cause::PeerRestarted,
    Cause::PeerClosed,
    Cause::Canceled,
    Cause::Truncated,
    Cause::NoMessage,
    Cause::BadBuffer,
    Cause::RefusedKey,
    Cause::RefusedBounds,
    Cause::RefusedRights,
    Cause::RefusedOperation,
    Cause::RefusedUnsupported,
    Cause::RefusedRoom,
    Cause::NotPosted,
    Cause::SourceUnknown,
];

impl Cause {
    /// Positive fabric error number for it.
    #[must_use]
    pub const fn fi_errno(self) -> c_int {
        match self {
            Cause::PeerTimeout => FI_ETIMEDOUT,
            Cause::PeerUnreachable => FI_EHOSTUNREACH,
            Cause::PeerRestarted => FI_ECONNRESET,
            // The peer shut down in good order, so not ECONNABORTED.
            Cause::PeerClosed => FI_ESHUTDOWN,
            Cause::Canceled => FI_ECANCELED,
            Cause::Truncated => FI_ETRUNC,
            Cause::NoMessage => FI_ENOMSG,
            Cause::BadBuffer => FI_EFAULT,
            Cause::RefusedKey => FI_EKEYREJECTED,
            Cause::RefusedBounds | Cause::NotPosted => FI_EINVAL,
            Cause::RefusedRights => FI_EACCES,
            Cause::SourceUnknown => FI_EADDRNOTAVAIL,
            Cause::RefusedOperation => FI_EOPNOTSUPP,
            Cause::RefusedUnsupported => FI_ENOSYS,
            Cause::RefusedRoom => FI_EOVERRUN,
        }
    }

    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static CStr {
        match self {
            Cause::PeerTimeout => c"the peer did not answer within FI_ERD_PEER_TIMEOUT_MS",
            Cause::PeerUnreachable => c"nothing listens at the peer's address",
            Cause::PeerRestarted => c"the peer's process was replaced by another at its address",
            Cause::PeerClosed => c"the peer closed its endpoint before the operation was done",
            Cause::Canceled => c"canceled, or the endpoint or the peer's address was removed",
            Cause::Truncated => c"the message was longer than the receive buffer",
            Cause::NoMessage => c"no message matches the peek",
            Cause::BadBuffer => {
                c"the buffer of this send, or of another to the same peer, cannot be read"
            }
            Cause::RefusedKey => c"the peer has no memory registered under this key",
            Cause::RefusedBounds => {
                c"the access reaches past the memory registered at the peer, or where none is mapped"
            }
            Cause::RefusedRights => c"the peer registered the memory without this kind of access",
            Cause::RefusedOperation => {
                c"the peer knows no such atomic operation on this datatype, or not on this length"
            }
            Cause::RefusedUnsupported => c"the peer lets nobody access its memory",
            Cause::SourceUnknown => {
                c"the message is there; its sender, whose address is the error data, is not in the AV"
            }
            Cause::NotPosted => {
                c"the operation could not be posted when its counter reached the threshold"
            }
            Cause::RefusedRoom => c"the peer's completion queue holds too many unread entries",
        }
    }
}

impl From<OpError> for Cause {
    fn from(error: OpError) -> Cause {
        match error {
            OpError::PeerTimeout => Cause::PeerTimeout,
            OpError::PeerUnreachable => Cause::PeerUnreachable,
            OpError::PeerRestarted => Cause::PeerRestarted,
            OpError::PeerClosed => Cause::PeerClosed,
            OpError::Canceled => Cause::Canceled,
            OpError::BadBuffer => Cause::BadBuffer,
            OpError::Refused(refusal) => match refusal {
                Refusal::Key => Cause::RefusedKey,
                Refusal::Bounds => Cause::RefusedBounds,
                Refusal::Rights => Cause::RefusedRights,
                Refusal::Operation => Cause::RefusedOperation,
                Refusal::Unsupported => Cause::RefusedUnsupported,
                Refusal::Room => Cause::RefusedRoom,
            },
        }
    }
}

/// The text for a `prov_errno`.
#[must_use]
pub fn text(prov_errno: c_int) -> &'static CStr {
    let cause = ALL.iter().find(|cause| **cause as c_int == prov_errno);
    cause.map_or(c"not an error number of erd", |cause| cause.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_cause_has_its_own_number_error_and_text() {
        let distinct: BTreeSet<_> = ALL.iter().map(|c| (c.fi_errno(), text(*c as c_int))).collect();
        assert_eq!(distinct.len(), ALL.len());
        assert!(!distinct.iter().any(|(_, words)| *words == text(0)));
    }
}
