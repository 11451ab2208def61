//! The verbs port: unreliable datagrams over UD queue pairs of an RDMA device, where there is one.
//!
//! It stands beside the UDP port and sends and receives the same datagrams; a domain opens one
//! [`VerbsPort`], whose queue pairs serve all its endpoints and all their peers: one to receive, and
//! one for each path to send. Start there.
//!
//! - `objects`: libibverbs' objects; `device`, [`gid`]: what there is;
//! - `port`, `send`, `receive`: the queue pairs; `pins`: memory that is sent from without a copy;
//! - [`negotiation`]: what peers tell each other over UDP to find each other here.

mod chain;
mod device;
#[cfg(test)]
mod device_tests;
mod gather;
pub mod gid;
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
pub use port::{Options, SETTLE_NS, VerbsPort};
pub use receive::{Member, Source};
pub use send::{SendStop, Sent};

/// Most queue pairs of a port: one to receive and the others to send.
pub const QPS_MAX: usize = 8;

/// Why something of verbs cannot be had.
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
    /// There is as much registered memory as a port takes.
    #[error("{max} pieces of memory are registered with the port, which takes no more")]
    Pins {
        /// Most pieces.
        max: usize,
    },
    /// This process is a forked child of the one that opened the device.
    #[error("the device is the parent's of this process")]
    Foreign,
    /// Memory of this process may not be given to a device.
    #[error(
        "the kernel, before 5.12, or libibverbs, before 35, would take it from forked children"
    )]
    Forks,
    /// A call failed.
    #[error("{call}({what}): {source}{}", advice(call, source))]
    Call {
        /// The function.
        call: &'static str,
        /// What it was called for.
        what: String,
        /// The system's answer.
        source: Arc<io::Error>,
    },
}

impl VerbsError {
    /// The failure of the last system call.
    fn last(call: &'static str, what: impl Into<String>) -> Self {
        Self::Call { call, what: what.into(), source: Arc::new(io::Error::last_os_error()) }
    }
}

/// What an operator can do about a failure.
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
