//! How two endpoints find each other's queue pairs (`docs/protocol.md`, section 10), without I/O.
//!
//! [`address`] is what they tell each other over UDP; [`peers`] what is known of each, and what to
//! tell it next.
#![forbid(unsafe_code)]

pub mod address;
pub mod peers;
