//! erd: reliable datagrams over unreliable ones, as a libfabric provider and as a library.
//!
//! Programs use [`verbs`]. Everything else is for those who want to understand or change the provider: this crate has
//! the three faces of `erd_core`, which has the endpoints, queues and regions.
//!
//! - libfabric's: [`entry`] (the entry point), [`info`] (`fi_getinfo`), [`object`] (the common part of all objects),
//!   then one module for each class: [`fabric`], [`domain`], [`av`], [`eq`], [`mr`], [`ep`], [`cq`], [`cntr`]; [`sep`]
//!   and [`shared`] are scalable endpoints and shared contexts, [`poll`] poll and wait sets, `peer` other providers'
//!   queues;
//! - [`verbs`]: for Rust; [`verbs_c`]: for C;
//! - [`parameters`]: the settings of all of them.
//!
//! The protocol itself is the crate `erd_rd`; sockets and queue pairs are in `erd_port`, libfabric's ABI
//! in `erd_ffi`, the operating system in `erd_sys`.

mod addr_format;
mod auth_key;
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
pub mod manners;
pub mod mr;
pub mod object;
pub mod parameters;
mod peer;
pub mod poll;
pub mod sep;
pub mod shared;
mod traffic_class;
pub mod verbs;
pub mod verbs_c;
mod wait_obj;

#[cfg(test)]
mod control_tests;
