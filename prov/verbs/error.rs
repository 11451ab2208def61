//! Errors of the verbs calls.

use erd_core::error::Error as CoreError;
use erd_core::settings::BadSetting;
use std::fmt::Display;
use std::io;
use thiserror::Error;

/// Reason for refusing a call. The call changed nothing, and all objects stay usable, unless a variant states
/// otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No device fits.
    #[error("no device is called {name}; there are: {there}")]
    NoDevice {
        /// The requested name.
        name: String,
        /// Names and addresses of the devices.
        there: String,
    },
    /// A setting, of the program or of the environment, has a value that is not valid.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// An argument is not valid.
    #[error("{parameter} is {value}; valid: {valid}")]
    Argument {
        /// Name of the argument, or of its field.
        parameter: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        valid: String,
    },
    /// The queue is full of requests that are outstanding or have unread completions.
    #[error("the {queue} queue is full: poll for completions and post again")]
    Full {
        /// "send" or "receive".
        queue: &'static str,
    },
    /// Something still needs the object.
    #[error("the {object} is in use by {users} other objects, which must be destroyed first")]
    Busy {
        /// The object in use.
        object: &'static str,
        /// Number of its users.
        users: usize,
    },
    /// The queue pair or completion queue was closed by another thread.
    #[error("the object was closed by another thread")]
    Closed,
    /// The object belongs to the process that forked this one.
    #[error("the object belongs to the process that forked this one")]
    Forked,
    /// A bug of the library made the object unusable; the log says more.
    #[error("an internal error has made the object unusable; the log says more")]
    Failed,
    /// The operating system refused.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn argument(
        parameter: &'static str,
        value: impl Display,
        valid: impl Display,
    ) -> Error {
        Error::Argument { parameter, value: value.to_string(), valid: valid.to_string() }
    }

    /// The error for one of core's.
    pub(super) fn system(action: &'static str, error: CoreError) -> Error {
        let errno = match error {
            CoreError::Failed => return Error::Failed,
            CoreError::State => return Error::Closed,
            CoreError::System(errno) => errno,
            CoreError::NoData => libc::ENODATA,
            CoreError::NotFound => libc::ENOENT,
            CoreError::NoMemory => libc::ENOMEM,
            CoreError::Address => libc::EADDRNOTAVAIL,
            CoreError::Again => libc::EAGAIN,
            CoreError::Access => libc::EACCES,
            CoreError::TooLong => libc::EMSGSIZE,
            CoreError::NoKey | CoreError::Busy => libc::EBUSY,
            CoreError::Unimplemented | CoreError::Unsupported => libc::EOPNOTSUPP,
            CoreError::Invalid | CoreError::Flags | CoreError::NoQueue | CoreError::NoAddresses => {
                libc::EINVAL
            }
        };
        Error::System { action, source: io::Error::from_raw_os_error(errno) }
    }

    /// The error for a refused post.
    pub(super) fn of_post(queue: &'static str, error: CoreError) -> Error {
        match error {
            CoreError::Again => Error::Full { queue },
            CoreError::Invalid => {
                Error::argument("addr in sg_list", "NULL", "the address of memory")
            }
            CoreError::TooLong => Error::argument(
                "length",
                "too long",
                format_args!("2^63 bytes at most, and {} inline", erd_core::settings::INJECT_BYTES),
            ),
            error => Error::system("post a request", error),
        }
    }

    /// The error number of the C interface.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Error::NoDevice { .. } => libc::ENODEV,
            Error::Setting(_) | Error::Argument { .. } => libc::EINVAL,
            Error::Full { .. } => libc::ENOMEM,
            Error::Busy { .. } => libc::EBUSY,
            Error::Closed => libc::ESHUTDOWN,
            Error::Forked => libc::EPERM,
            Error::Failed => libc::EIO,
            Error::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}
