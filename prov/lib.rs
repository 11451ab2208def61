//! erd: reliable datagrams over unreliable ones, as a libfabric provider and as a library.
//!
//! Programs use [`verbs`]. Everything else is the provider's own, for who wants to understand or
//! change it: this crate has the three faces of `erd_core`, which is what endpoints, queues and regions are.
//!
//! - libfabric's: [`entry`] (what libfabric loads), [`info`] (`fi_getinfo`), [`object`] (what all objects
//!   have in common), then one module for each class: [`fabric`], [`domain`], [`av`], [`eq`], [`mr`],
//!   [`ep`], [`cq`], [`cntr`]; [`sep`] and [`shared`] are scalable endpoints and shared contexts,
//!   [`poll`] poll and wait sets, `peer` other providers' queues;
//! - [`verbs`]: for Rust; [`verbs_c`]: for C;
//! - [`parameters`]: where all of them read their settings.
//!
//! The protocol itself is the crate `erd_rd`; sockets and queue pairs are in `erd_port`, libfabric's ABI
//! in `erd_ffi`, the operating system in `erd_sys`.

mod addr_format;
pub mod av;
pub mod cntr;
pub mod cq;
mod deferred;
pub mod domain;
pub mod entry;
pub mod ep;
pub mod eq;
pub mod errno;
mod extension;
pub mod fabric;
mod flags;
pub mod info;
pub mod mr;
pub mod object;
pub mod parameters;
mod peer;
pub mod poll;
pub mod sep;
pub mod shared;
pub mod verbs;
pub mod verbs_c;
mod wait_obj;

#[cfg(test)]
mod control_tests;
