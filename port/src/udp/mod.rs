//! The UDP port: one bound receive socket per endpoint and the send sockets of a domain.
//!
//! Set-up goes through `socket2`; the packet path is plain `recvmmsg(2)` and `sendmmsg(2)` with
//! everything on the stack, so no packet costs an allocation. Start with [`RxSocket`] and
//! [`TxSockets`].

mod addr;
mod calls;
mod errqueue;
mod faults;
mod gso;
pub(crate) mod owner;
mod plan;
mod ports;
mod probe;
mod route;
mod rx;
mod sockets;
mod sockopt;
mod split;
mod tx;

use std::io;
use std::net::SocketAddr;

pub use addr::Dst;
pub use erd_types::Ecn;
pub use errqueue::{NetError, Unreachable};
pub use faults::FaultRates;
pub use plan::Plan;
pub use ports::PortRange;
pub use probe::{Capabilities, Trial};
pub use route::{Interface, interfaces, is_own, max_payload_bytes, path_mtu_bytes, route_source};
pub use rx::{Next, RxDatagram, RxSocket, Taken};
pub use sockets::Sockets;
pub use tx::{SendReport, Stop, TxSockets};

/// The largest payload of one UDP datagram over IPv4, in bytes; also the largest GSO burst.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;

/// The most receive slots, that is datagrams or GRO batches of one system call.
pub const MAX_RECV_SLOTS: u16 = 32;

/// Room for the largest datagram and the largest GRO batch: a smaller slot would cut a batch off.
const SLOT_BYTES: usize = 64 << 10;

/// The most send sockets (paths) of a domain.
pub const MAX_PATHS: u16 = 256;

/// A port's requests to the kernel. The port works without those that this kernel lacks, after one log line.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// Receive buffer to ask for. The kernel doubles it to account for its own overhead;
    /// [`RxSocket::granted_recv_bytes`] is the granted size.
    pub recv_buffer_bytes: usize,
    /// Send buffer of each send socket, likewise.
    pub send_buffer_bytes: usize,
    /// Send sockets, each with its own source port and so its own path: 1 to [`MAX_PATHS`].
    pub paths: u16,
    /// Receive slots of 64 KiB: 1 to [`MAX_RECV_SLOTS`].
    pub recv_slots: u16,
    /// Send a burst of several datagrams in one piece (`UDP_SEGMENT`).
    pub gso: bool,
    /// Receive a burst in one piece (`UDP_GRO`).
    pub gro: bool,
    /// Send as ECT(0) unless a burst says otherwise, and read the marks of arrivals.
    pub ecn: bool,
    /// Have the kernel stamp arrivals (`SO_TIMESTAMPNS`), for [`RxDatagram::hold_ns`].
    pub timestamps: bool,
    /// Ports for those whose address names none; `None` leaves them to the kernel.
    pub ports: Option<PortRange>,
    /// The class of all that is sent (DSCP), 0 to 63.
    pub dscp: u8,
    /// A bad network, for tests. Then the port receives no payload straight into its place.
    pub faults: Option<FaultRates>,
}

impl Default for PortOptions {
    fn default() -> Self {
        Self {
            recv_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            paths: 1,
            recv_slots: 16,
            gso: true,
            gro: true,
            ecn: true,
            timestamps: true,
            ports: None,
            dscp: 0,
            faults: None,
        }
    }
}

/// Reason why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// An option is out of range.
    #[error("{name} is {value}; valid values are {min} to {max}")]
    Option {
        /// The field of [`PortOptions`].
        name: &'static str,
        /// The value.
        value: usize,
        /// The least valid value.
        min: usize,
        /// The greatest valid value.
        max: usize,
    },
    /// The address is taken, or not one of this host.
    #[error("cannot bind a UDP socket to {addr}: {source}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call of the set-up failed.
    #[error("{call} failed: {source}")]
    Socket {
        /// The system call or socket option.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

fn check_range(name: &'static str, value: usize, max: usize) -> Result<(), PortError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(PortError::Option { name, value, min: 1, max })
}
