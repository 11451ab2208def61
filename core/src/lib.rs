//! What an endpoint is, without any face: the objects that libfabric's provider, the Rust interface
//! and the C interface all show, each in its own words.
//!
//! This crate joins the protocol engine (`erd_rd`) with what carries its datagrams (`erd_port`). It
//! knows no foreign ABI: its flags and errors are types of its own.

pub mod atomics;
pub mod av;
pub mod cause;
pub mod error;
pub mod look;
pub mod plan;
pub mod random;
pub mod rdma;
pub mod resolve;
pub mod scheme;
pub mod settings;
pub mod sockaddr;
pub mod spin;
