//! Discovery of a peer's queue pairs (`docs/protocol.md`, section 10), without I/O.
//!
//! [`address`]: the datagrams; [`peers`]: the state of each peer, and what to send it next.
#![forbid(unsafe_code)]

pub mod address;
#[cfg(test)]
mod bounds;
pub mod peers;
