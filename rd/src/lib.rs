//! The erd protocol engine.
//!
//! Reliable datagrams over unreliable ones, over many paths. The engine is sans-IO: it has no
//! clock, no sockets, no threads and no randomness of its own. Time (monotonic nanoseconds) and
//! a seed are arguments, payload bytes stay with the [`Host`], and one seed replays any run.
//!
//! Read in this order: [`endpoint::Endpoint`] (the boundary), [`host::Host`] (what the driver
//! provides), [`wire`] (formats), [`peer`] (one session: transmit, receive, recovery, set-up),
//! [`cc`] (congestion control), [`matching`] and [`match_order`] (tag matching, and the
//! order of completions, both owned by the driver).
//!
//! `docs/protocol.md` is normative; sections are cited as `protocol.md §n`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod arrival;
pub mod bitmap;
#[cfg(test)]
mod bounded;
pub mod cc;
pub mod config;
pub mod endpoint;
pub mod host;
pub mod keys;
pub mod match_order;
pub mod matching;
pub mod peer;
pub mod stats;
pub mod transmit;
pub mod units;
pub mod wire;

pub use arrival::RxMeta;
pub use config::{Config, ConfigError, Near};
pub use endpoint::{Endpoint, EntryFate, Expected, PostError, Rma, RmaRequest, WorkRequest};
pub use erd_types::mutants;
pub use host::{
    Arrived, AtOnce, EndReason, Host, KeyMismatch, Lane, MsgRef, OpError, Operand, Payload, Pull,
    Put, Reach, RecvToken, Remote, SOURCES_MAX, SendToken, Sources, Verdict,
};
pub use peer::{FlowView, MESSAGE_COST_BYTES, ORDERS_LEAST, Repeated};
pub use stats::{DropReason, Stats};
pub use transmit::{Part, TxBurst};
pub use units::{Ecn, KeyIndex, Nanos, Order, PeerAddress, PeerId, Psn};
pub use wire::remote::{Atomic, Form, Refusal, Target, Targets};
