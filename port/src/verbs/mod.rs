//! The verbs port: unreliable datagrams over UD queue pairs of an RDMA device, where there is one.
//!
//! It works beside the UDP port and carries the same datagrams. A domain opens one [`VerbsPort`], whose queue pairs
//! serve all its endpoints and all their peers: one to receive, and one for each path to send. Start there.
//!
//! - `objects`: libibverbs' objects; `device`, [`gid`]: devices, ports and addresses;
//! - `port`, `send`, `receive`: the queue pairs; `handles`, `maker`: the address handles of peers; `pins`: memory to send from without a copy;
//! - [`negotiation`]: the exchange over UDP by which peers find each other here.

mod chain;
mod device;
#[cfg(test)]
mod device_tests;
mod gather;
pub mod gid;
mod handles;
#[cfg(test)]
mod handles_tests;
mod maker;
pub mod negotiation;
mod objects;
mod pins;
mod port;
mod receive;
mod send;

use erd_ffi::ibv::LibraryError;
use std::io;
use std::sync::Arc;

pub use device::{Port, ifindex, ports, shares_card};
pub use pins::{PINS_MAX, Pin};
pub use port::{Options, SETTLE_NS, Service, VerbsPort};
pub use receive::{Member, Source};
pub use send::{SendStop, Sent};

/// Most queue pairs of a port: one to receive and the others to send.
pub const QPS_MAX: usize = 8;

/// An error of the verbs port.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// This machine, or container, has no RDMA devices.
    #[error("there is no /dev/infiniband: no RDMA devices, or the container was not given them")]
    NoDevices,
    /// libibverbs is not installed, or too old.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// No device of this name.
    #[error("there is no RDMA device {name}")]
    NoDevice {
        /// The name asked for.
        name: String,
    },
    /// The port is in no such partition.
    #[error("{port} has no P_Key {pkey:#06x}; it has {there}")]
    NoPartition {
        /// The port's name.
        port: String,
        /// The P_Key asked for.
        pkey: u16,
        /// Those of the port.
        there: String,
    },
    /// The port has its most registrations.
    #[error("{max} pieces of memory are registered with the port, which takes no more")]
    Pins {
        /// Most pieces.
        max: usize,
    },
    /// This process is a forked child of the one that opened the device.
    #[error("the device is the parent's of this process")]
    Foreign,
    /// This process must not register memory with a device.
    #[error(
        "the kernel, before 5.12, or libibverbs, before 35, would take it from forked children"
    )]
    Forks,
    /// A call failed.
    #[error("{call}({what}): {source}{}", advice(call, source))]
    Call {
        /// The function.
        call: &'static str,
        /// Purpose of the call.
        what: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
}

impl VerbsError {
    /// The failure of the last system call.
    fn last(call: &'static str, what: impl Into<String>) -> Self {
        Self::Call { call, what: what.into(), source: Arc::new(io::Error::last_os_error()) }
    }
}

/// Advice to an operator about a failure.
fn advice(call: &str, error: &io::Error) -> &'static str {
    match (call, error.raw_os_error()) {
        ("ibv_open_device", Some(libc::EACCES | libc::EPERM)) => {
            ": this user may not open /dev/infiniband/uverbs*"
        }
        ("ibv_reg_mr" | "ibv_create_qp" | "ibv_create_cq", Some(libc::ENOMEM | libc::EAGAIN)) => {
            ": raise the limit on locked memory (ulimit -l)"
        }
        _ => "",
    }
}
