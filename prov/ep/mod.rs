//! `fid_ep`: reliable datagram endpoints (`fi_endpoint(3)`).
//!
//! - [`open`] and `calls`: the object; `fid`: what C holds of an endpoint; `bind`: what it is bound to;
//!   `attr`: what it is asked for;
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
pub(crate) use attr::config_of;
pub use calls::open;
pub(crate) use deferred::deferred_post;
pub use fid::EpFid;
pub(crate) use fid::context_object;
