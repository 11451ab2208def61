//! libfabric's numbers for core's errors.

use erd_core::cause::Cause;
use erd_core::error::Error;
use erd_ffi::fi::{
    FI_EACCES, FI_EADDRNOTAVAIL, FI_EAGAIN, FI_EBADFLAGS, FI_EBUSY, FI_ECANCELED, FI_ECONNRESET,
    FI_EFAULT, FI_EHOSTUNREACH, FI_EINVAL, FI_EKEYREJECTED, FI_EMSGSIZE, FI_ENOAV, FI_ENOCQ,
    FI_ENODATA, FI_ENOENT, FI_ENOKEY, FI_ENOMEM, FI_ENOMSG, FI_ENOSYS, FI_EOPBADSTATE,
    FI_EOPNOTSUPP, FI_EOTHER, FI_EOVERRUN, FI_EPROTO, FI_ESHUTDOWN, FI_ETIMEDOUT, FI_ETRUNC,
};
use std::ffi::c_int;

/// Positive fabric error number of a refused call.
#[must_use]
pub const fn of(error: Error) -> c_int {
    match error {
        Error::Invalid => FI_EINVAL,
        Error::Flags => FI_EBADFLAGS,
        Error::Again => FI_EAGAIN,
        Error::State => FI_EOPBADSTATE,
        Error::Failed => FI_EOTHER,
        Error::NoData => FI_ENODATA,
        Error::NotFound => FI_ENOENT,
        Error::Unimplemented => FI_ENOSYS,
        Error::Unsupported => FI_EOPNOTSUPP,
        Error::Access => FI_EACCES,
        Error::NoMemory => FI_ENOMEM,
        Error::Address => FI_EADDRNOTAVAIL,
        Error::TooLong => FI_EMSGSIZE,
        Error::Busy => FI_EBUSY,
        Error::NoKey => FI_ENOKEY,
        Error::NoQueue => FI_ENOCQ,
        Error::NoAddresses => FI_ENOAV,
        Error::System(errno) => errno,
    }
}

/// Result of a call.
#[must_use]
pub fn answer(result: Result<(), Error>) -> isize {
    status(result) as isize
}

/// The same for calls that return an `int`.
#[must_use]
pub fn status(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => -of(error),
    }
}

/// Positive fabric error number of a failed operation.
#[must_use]
pub const fn of_cause(cause: Cause) -> c_int {
    match cause {
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
        Cause::PeerVersion(_) => FI_EPROTO,
        Cause::PeerHasNoKey | Cause::KeysDiffer => FI_EKEYREJECTED,
        Cause::PathBlocked => FI_EMSGSIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_core::cause::{ALL, text};
    use std::collections::BTreeSet;

    #[test]
    fn every_cause_has_its_own_error_and_text() {
        let distinct: BTreeSet<_> =
            ALL.iter().map(|cause| (of_cause(*cause), text(cause.number()))).collect();
        assert_eq!(distinct.len(), ALL.len());
        assert!(!distinct.iter().any(|(_, words)| *words == text(0)));
    }
}
