//! Errors of refused calls. Each face gives these errors the numbers of its own interface.

use std::io;
use thiserror::Error;

/// Reason why a call did nothing. The log names the argument, and what would be valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Error {
    /// An argument is not valid.
    #[error("an argument is not valid")]
    Invalid,
    /// Flags that the call does not have.
    #[error("flags that the call does not have")]
    Flags,
    /// There is no room now. The call can be repeated after progress.
    #[error("there is no room now; try again")]
    Again,
    /// The object is not in a state for the call.
    #[error("the object is not in a state for this")]
    State,
    /// A bug has failed the object.
    #[error("a bug has failed the object")]
    Failed,
    /// Nothing fits what was asked for.
    #[error("nothing fits what was asked for")]
    NoData,
    /// There is nothing of this name.
    #[error("there is nothing of this name")]
    NotFound,
    /// There is no such call here.
    #[error("there is no such call here")]
    Unimplemented,
    /// The object was not opened for this.
    #[error("the object was not opened for this")]
    Unsupported,
    /// The rights do not suffice.
    #[error("the rights do not suffice")]
    Access,
    /// A table is full.
    #[error("a table is full")]
    NoMemory,
    /// The address cannot be a peer's, or is not this host's.
    #[error("the address cannot be used")]
    Address,
    /// The message is longer than the endpoint takes.
    #[error("the message is too long")]
    TooLong,
    /// Something needs the object.
    #[error("something needs it")]
    Busy,
    /// Another has the key.
    #[error("another has the key")]
    NoKey,
    /// No completion queue is bound.
    #[error("no completion queue is bound")]
    NoQueue,
    /// No address vector is bound.
    #[error("no address vector is bound")]
    NoAddresses,
    /// The operating system's error number.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    System(i32),
}

impl Error {
    /// The error of a system call; `otherwise` where the system gave no number.
    #[must_use]
    pub(crate) fn of_system(error: &io::Error, otherwise: Error) -> Error {
        error.raw_os_error().map_or(otherwise, Error::System)
    }
}
