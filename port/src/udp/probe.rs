//! Probes of the UDP port on one address: what this kernel grants, and whether datagrams arrive.

use erd_types::Ecn;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::{Dst, PortError, PortOptions, RxSocket, Stop, TxSockets, sockopt};
use crate::Burst;
use erd_sys::wait::{Interest, WaitSet};

/// The features that an endpoint's sockets got, read back from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Receive buffer, in the kernel's accounting: twice what was asked for, if that was granted.
    pub recv_buffer_bytes: usize,
    /// Send buffer of each send socket, likewise.
    pub send_buffer_bytes: usize,
    /// Datagrams that one send takes in one piece (`UDP_SEGMENT`); 1 without GSO.
    pub gso_segments: u16,
    /// The kernel delivers bursts in one piece (`UDP_GRO`).
    pub gro: bool,
    /// The kernel reports congestion marks of arrivals (`IP_RECVTOS`, `IPV6_RECVTCLASS`).
    pub ecn_read: bool,
    /// Packets leave as ECN-capable (`IP_TOS`, `IPV6_TCLASS`).
    pub ecn_write: bool,
    /// The kernel stamps arrivals (`SO_TIMESTAMPNS`).
    pub timestamps: bool,
    /// The kernel counts drops of a full buffer (`SO_RXQ_OVFL`).
    pub drop_counts: bool,
    /// The kernel never fragments packets (`IP_MTU_DISCOVER`).
    pub dont_fragment: bool,
}

impl Capabilities {
    /// Opens sockets on `ip` as an endpoint with these options does, reads them back and closes them.
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
                libc::IP_PMTUDISC_PROBE,
            ),
            IpAddr::V6(_) => (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVTCLASS,
                libc::IPV6_TCLASS,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
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

/// Sends of one trial: chance may lose one.
const TRIES: u32 = 3;

/// Fate of a datagram between two sockets of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It arrived, with this mark; it was sent with [`Ecn::Ect0`].
    Arrived(Ecn),
    /// It was sent, and did not arrive in time.
    Lost,
    /// It could not be sent.
    Refused {
        /// The error of `sendmsg(2)`: `EPERM` is mostly a firewall's.
        errno: i32,
    },
    /// It exceeds the path's MTU.
    TooBig {
        /// The path's MTU in bytes, IP header included.
        mtu_bytes: u32,
    },
}

impl Trial {
    /// Sends a datagram of `payload_bytes`, at least 1, from a send socket on `ip` to a receive
    /// socket there, up to three times, each with a third of `patience`. It may not be fragmented.
    /// Nothing leaves the host.
    ///
    /// # Errors
    /// As [`RxSocket::bind`] and [`TxSockets::open`], or if waiting fails.
    pub fn of(ip: IpAddr, payload_bytes: u16, patience: Duration) -> Result<Trial, PortError> {
        let fail = |call| move |source| PortError::Socket { call, source };
        let options = PortOptions { recv_slots: 1, ..PortOptions::default() };
        let mut rx = RxSocket::bind(SocketAddr::new(ip, 0), &options)?;
        let tx = TxSockets::open(ip, &options)?;
        let set = WaitSet::new().map_err(fail("epoll_create1"))?;
        set.add(rx.fd(), Interest::Readable).map_err(fail("epoll_ctl"))?;
        let bytes = vec![0x5a; payload_bytes.into()];
        let mut trial = Trial::Lost;
        for _ in 0..TRIES {
            trial = send_one(&tx, rx.local_addr(), &bytes);
            set.wait(Some(patience / TRIES)).map_err(fail("epoll_wait"))?;
            let mut mark = None;
            let looked = rx.recv(1, |got| mark = (got.data == bytes).then_some(got.ecn));
            looked.map_err(fail("recvmmsg"))?;
            if let Some(mark) = mark {
                return Ok(Trial::Arrived(mark));
            }
        }
        Ok(trial)
    }
}

/// [`Trial::Lost`] if it was sent.
fn send_one(tx: &TxSockets, to: SocketAddr, bytes: &[u8]) -> Trial {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let dst = Dst::from(to);
    // SAFETY: the one part is the datagram's bytes.
    match unsafe { tx.send(&[Burst::single(&dst, Ecn::Ect0, &part)]) }.stop {
        Some(Stop::Failed { errno }) => Trial::Refused { errno },
        Some(Stop::TooBig { mtu_bytes }) => Trial::TooBig { mtu_bytes },
        Some(Stop::Blocked) | None => Trial::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_was_not_asked_for_is_not_there() {
        let none = PortOptions {
            gso: false,
            gro: false,
            ecn: false,
            timestamps: false,
            ..PortOptions::default()
        };
        let got = Capabilities::of(LOOPBACK, &none).unwrap();
        assert_eq!(
            (got.gso_segments, got.gro, got.ecn_read, got.ecn_write),
            (1, false, false, false)
        );
        assert!(!got.timestamps && got.dont_fragment && got.recv_buffer_bytes > 0);
        let all = Capabilities::of(LOOPBACK, &PortOptions::default()).unwrap();
        assert!(all.ecn_read && all.ecn_write && all.timestamps && all.send_buffer_bytes > 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn datagrams_of_every_size_arrive_on_loopback() {
        for bytes in [1, 1472, 65_507] {
            let trial = Trial::of(LOOPBACK, bytes, Duration::from_secs(15)).unwrap();
            assert_eq!(trial, Trial::Arrived(Ecn::Ect0), "{bytes}");
        }
    }
}
