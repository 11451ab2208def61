//! What this kernel grants the UDP port on one address.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use super::{PortError, PortOptions, RxSocket, TxSockets, sockopt};

/// What the sockets of an endpoint got, read back from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Receive buffer, in the kernel's accounting: twice what was asked for, if that was granted.
    pub recv_buffer_bytes: usize,
    /// Send buffer of each send socket, likewise.
    pub send_buffer_bytes: usize,
    /// Datagrams that one send takes in one piece (`UDP_SEGMENT`); 1 where it takes none.
    pub gso_segments: u16,
    /// Bursts are received in one piece (`UDP_GRO`).
    pub gro: bool,
    /// Congestion marks of arrivals are told (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    pub ecn_read: bool,
    /// Packets leave as ECN-capable (`IP_TOS`, `IPV6_TCLASS`).
    pub ecn_write: bool,
    /// Arrivals are stamped (`SO_TIMESTAMPNS`).
    pub timestamps: bool,
    /// Drops of a full buffer are counted (`SO_RXQ_OVFL`).
    pub drop_counts: bool,
    /// Packets are never fragmented (`IP_MTU_DISCOVER`).
    pub dont_fragment: bool,
}

impl Capabilities {
    /// Opens sockets on `ip` as an endpoint with these options does, looks at them and closes them.
    ///
    /// # Errors
    /// As [`RxSocket::bind`] and [`TxSockets::open`].
    pub fn of(ip: IpAddr, options: &PortOptions) -> Result<Capabilities, PortError> {
        let rx = RxSocket::bind(SocketAddr::new(ip, 0), options)?;
        let tx = TxSockets::open(ip, &PortOptions { paths: 1, ..options.clone() })?;
        let (level, recv_tos, tos, discover, always) = match ip {
            IpAddr::V4(_) => (
                libc::IPPROTO_IP,
                libc::IP_RECVTOS,
                libc::IP_TOS,
                libc::IP_MTU_DISCOVER,
                libc::IP_PMTUDISC_DO,
            ),
            IpAddr::V6(_) => (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVTCLASS,
                libc::IPV6_TCLASS,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            ),
        };
        let recv = rx.fd().as_raw_fd();
        let send = tx.fds().next().map_or(-1, |fd| fd.as_raw_fd());
        let is_on = |level, name| sockopt::int(recv, level, name).is_ok_and(|value| value != 0);
        let send_bytes = sockopt::int(send, libc::SOL_SOCKET, libc::SO_SNDBUF).unwrap_or(0);
        Ok(Capabilities {
            recv_buffer_bytes: rx.granted_recv_bytes(),
            send_buffer_bytes: usize::try_from(send_bytes).unwrap_or(0),
            gso_segments: tx.gso_max_segments(),
            gro: is_on(libc::SOL_UDP, libc::UDP_GRO),
            ecn_read: is_on(level, recv_tos),
            ecn_write: sockopt::int(send, level, tos).is_ok_and(|tos| tos & 3 != 0),
            timestamps: is_on(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
            drop_counts: is_on(libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
            dont_fragment: sockopt::int(send, level, discover).is_ok_and(|how| how == always),
        })
    }
}
