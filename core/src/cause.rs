//! Causes of failed operations: numbers for programs, texts for people.

use erd_rd::wire::header::{KEYED_VERSION, VERSION_MAX};
use erd_rd::{OpError, Refusal};
use std::ffi::{CStr, c_int};

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// [`OpError::PeerTimeout`].
    PeerTimeout,
    /// [`OpError::PeerUnreachable`].
    PeerUnreachable,
    /// [`OpError::PeerRestarted`].
    PeerRestarted,
    /// [`OpError::PeerClosed`].
    PeerClosed,
    /// [`OpError::Canceled`], or `fi_cancel`.
    Canceled,
    /// The message was longer than its buffer.
    Truncated,
    /// A peek found nothing.
    NoMessage,
    /// [`OpError::BadBuffer`].
    BadBuffer,
    /// [`Refusal::Key`].
    RefusedKey,
    /// [`Refusal::Bounds`].
    RefusedBounds,
    /// [`Refusal::Rights`].
    RefusedRights,
    /// [`Refusal::Operation`].
    RefusedOperation,
    /// [`Refusal::Unsupported`].
    RefusedUnsupported,
    /// [`Refusal::Room`].
    RefusedRoom,
    /// An operation that waited for a counter could not be posted when its time came.
    NotPosted,
    /// A message came from an address that is not in the AV, and the application asked for such errors.
    SourceUnknown,
    /// [`OpError::PathBlocked`].
    PathBlocked,
    /// [`OpError::PeerHasNoKey`].
    PeerHasNoKey,
    /// [`OpError::KeysDiffer`].
    KeysDiffer,
    /// [`OpError::PeerVersion`], at most [`VERSION_MAX`].
    PeerVersion(u8),
}

/// [`Cause::PeerVersion`] of version 0; the others follow.
const FIRST_VERSION: c_int = 32;

/// All but [`Cause::PeerVersion`].
pub const ALL: [Cause; 19] = [
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
    Cause::PathBlocked,
    Cause::PeerHasNoKey,
    Cause::KeysDiffer,
];

/// Texts for peers that speak each version.
macro_rules! version_texts {
    ($own:literal, $($theirs:literal)*) => {
        [$(match CStr::from_bytes_with_nul(
            concat!(
                "the peer speaks version ", $theirs, " of erd's protocol, this process version ", $own,
                ": both need the same release of erd\0"
            )
            .as_bytes(),
        ) {
            Ok(text) => text,
            Err(_) => c"",
        }),*]
    };
}

const VERSION_TEXTS: [&CStr; VERSION_MAX as usize + 1] = version_texts!(2, 0 1 2 3 4 5 6 7);

impl Cause {
    /// Its number, which completions carry. No other cause ever gets it.
    #[must_use]
    pub const fn number(self) -> c_int {
        match self {
            Cause::PeerTimeout => 1,
            Cause::PeerUnreachable => 2,
            Cause::PeerRestarted => 3,
            Cause::PeerClosed => 4,
            Cause::Canceled => 5,
            Cause::Truncated => 6,
            Cause::NoMessage => 7,
            Cause::BadBuffer => 8,
            Cause::RefusedKey => 9,
            Cause::RefusedBounds => 10,
            Cause::RefusedRights => 11,
            Cause::RefusedOperation => 12,
            Cause::RefusedUnsupported => 13,
            Cause::RefusedRoom => 14,
            Cause::NotPosted => 15,
            Cause::SourceUnknown => 16,
            Cause::PathBlocked => 17,
            Cause::PeerHasNoKey => 18,
            Cause::KeysDiffer => 19,
            Cause::PeerVersion(version) => FIRST_VERSION + version as c_int,
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
            Cause::PathBlocked => {
                c"the peer answers, but datagrams of more than 512 bytes do not get there, not even in fragments"
            }
            Cause::RefusedRoom => c"the peer's completion queue holds too many unread entries",
            Cause::PeerHasNoKey => {
                c"the peer has no key: FI_ERD_KEY_FILE is set in this process, and must be in all of the job"
            }
            Cause::KeysDiffer => {
                c"the keys differ: the peer's FI_ERD_KEY_FILE names another key than this process's"
            }
            Cause::PeerVersion(KEYED_VERSION) => {
                c"the peer has a key, and this process none: FI_ERD_KEY_FILE must be set in all of the job"
            }
            Cause::PeerVersion(version) => VERSION_TEXTS[(version & VERSION_MAX) as usize],
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
            OpError::PeerVersion(version) => Cause::PeerVersion(version),
            OpError::PathBlocked => Cause::PathBlocked,
            OpError::PeerHasNoKey => Cause::PeerHasNoKey,
            OpError::KeysDiffer => Cause::KeysDiffer,
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

/// The text for [`Cause::number`].
#[must_use]
pub fn text(prov_errno: c_int) -> &'static CStr {
    let versions = (0..=VERSION_MAX).map(Cause::PeerVersion);
    let cause = ALL.into_iter().chain(versions).find(|cause| cause.number() == prov_errno);
    cause.map_or(c"not an error number of erd", |cause| cause.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_rd::wire::header::VERSION;
    use std::collections::BTreeSet;

    #[test]
    fn every_cause_has_its_own_number_and_text() {
        let distinct: BTreeSet<_> = ALL.iter().map(|c| text(c.number())).collect();
        assert_eq!(distinct.len(), ALL.len());
        assert!(!distinct.iter().any(|words| *words == text(0)));
    }

    #[test]
    fn the_error_of_another_version_names_both() {
        for theirs in (0..=VERSION_MAX).filter(|theirs| *theirs != KEYED_VERSION) {
            let words = text(Cause::PeerVersion(theirs).number()).to_str().unwrap();
            assert!(words.contains(&format!("version {theirs} of")), "{words}");
            assert!(words.contains(&format!("this process version {VERSION}:")), "{words}");
        }
        let words = text(Cause::PeerVersion(KEYED_VERSION).number()).to_str().unwrap();
        assert!(words.contains("the peer has a key, and this process none"), "{words}");
    }
}
