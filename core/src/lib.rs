//! The objects of erd (domains, endpoints, queues, counters), without any face: libfabric's provider, the Rust
//! interface and the C interface show them, each in its own terms.
//!
//! This crate joins the protocol engine (`erd_rd`) with the ports that carry its datagrams (`erd_port`). It knows no
//! foreign ABI: its flags and errors are types of its own.

pub mod admission;
pub mod atomics;
pub mod av;
pub mod cause;
pub mod completion;
pub mod counter;
pub mod domain;
pub mod endpoint;
pub mod error;
pub mod fabric_names;
pub mod flags;
pub mod foreign;
pub mod held;
pub mod key_file;
pub mod keys;
pub mod look;
pub mod mistakes;
pub mod monitor;
pub mod patience;
pub mod pause;
pub mod peer_index;
pub mod place;
pub mod plan;
pub mod polled;
pub mod progress;
pub mod random;
pub mod rdma;
pub mod region;
pub mod registration;
pub mod resolve;
pub mod run;
#[cfg(test)]
mod samples;
pub mod scheme;
pub mod settings;
pub mod shared_receive;
pub mod sockaddr;
pub mod spin;
pub mod trigger;
pub mod uses;
pub mod wait_group;
pub mod watch;
