//! The number of segments that one GSO send may have: 64 on older kernels, 128 since Linux 6.9. Only a trial tells
//! which.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use super::sockopt;

/// Every kernel that has GSO takes this many.
const SEGMENTS_FLOOR: u16 = 64;

/// The known limits, largest first.
const SEGMENTS_KNOWN: [u16; 2] = [128, SEGMENTS_FLOOR];

/// The most segments of one send; 1 where the kernel has no GSO. Tried once per process, on
/// loopback.
pub(super) fn max_segments() -> u16 {
    static LIMIT: OnceLock<u16> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let limit = probe().unwrap_or(1);
        tracing::info!(segments = limit, "UDP GSO limit");
        limit
    })
}

fn probe() -> io::Result<u16> {
    let socket =
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).or_else(|_| UdpSocket::bind(("::1", 0)))?;
    sockopt::set_int(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 1)?;
    let own: SocketAddr = socket.local_addr()?;
    // One-byte segments to ourselves: the socket's own buffer holds them until it is closed.
    let bytes = [0_u8; SEGMENTS_KNOWN[0] as usize];
    let fits = |segments: &u16| socket.send_to(&bytes[..usize::from(*segments)], own).is_ok();
    Ok(SEGMENTS_KNOWN.into_iter().find(fits).unwrap_or(SEGMENTS_FLOOR))
}
