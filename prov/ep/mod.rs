//! `fid_ep`: reliable datagram endpoints (`fi_endpoint(3)`).
//!
//! - [`open`] and `calls`: the object; `fid`: C's object of an endpoint; `bind`: its bindings; `attr`: its attributes;
//! - `msg`, `tagged`, `rma`, `atomic`: the calls that transfer data;
//! - `trigger`, `deferred`: operations that wait for counters.

mod atomic;
mod attr;
mod bind;
mod calls;
mod deferred;
mod fid;
mod msg;
mod rma;
mod tagged;
#[cfg(test)]
mod tests;
mod trigger;

pub(crate) use atomic::query_atomic;
pub(crate) use attr::{config_of, key_of};
pub use calls::open;
pub(crate) use deferred::deferred_post;
pub use fid::EpFid;
pub(crate) use fid::context_object;
