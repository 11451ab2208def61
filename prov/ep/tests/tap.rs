//! What somebody on the path sees of the datagrams on the loopback: a packet socket. It needs `CAP_NET_RAW`, which a
//! user has in a network namespace of their own.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `struct virtio_net_hdr`, Ethernet's header, and the least of IPv4's and UDP's.
const OFFLOAD_BYTES: usize = 10;
const ETHERNET_BYTES: usize = 14;
const UDP_BYTES: usize = 8;
/// Where the offload header tells the length of the datagrams that travel as one packet.
const SEGMENT_AT: usize = 4;
/// Longest packet, with its headers.
const PACKET_BYTES: usize = OFFLOAD_BYTES + ETHERNET_BYTES + (64 << 10);

/// See the module's text.
pub struct Tap {
    socket: OwnedFd,
    packet: Box<[u8]>,
}

/// A datagram that was seen.
pub struct Seen {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

impl Tap {
    /// A tap on the loopback.
    pub fn new() -> io::Result<Tap> {
        let protocol = (libc::ETH_P_IP as u16).to_be();
        let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the calls take values, or pointers to locals of the stated lengths; the descriptor is new.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, flags, i32::from(protocol));
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let socket = OwnedFd::from_raw_fd(fd);
            for (level, name, value) in [
                (libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1),
                (libc::SOL_SOCKET, libc::SO_RCVBUF, 16 << 20),
            ] {
                let (at, len) = ((&raw const value).cast(), size_of::<i32>() as u32);
                if libc::setsockopt(fd, level, name, at, len) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            let address = libc::sockaddr_ll {
                sll_family: libc::AF_PACKET as u16,
                sll_protocol: protocol,
                sll_ifindex: libc::if_nametoindex(c"lo".as_ptr()) as i32,
                ..std::mem::zeroed()
            };
            let (at, len) = ((&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32);
            if libc::bind(fd, at, len) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Tap { socket, packet: vec![0; PACKET_BYTES].into() })
        }
    }

    /// The datagrams of the next packet; `None` if there is none. Datagrams that the kernel holds as one are told apart.
    pub fn next(&mut self) -> Option<Vec<Seen>> {
        let (at, room) = (self.packet.as_mut_ptr().cast(), self.packet.len());
        // SAFETY: a zeroed address is one, and the pointers are to places of the stated lengths.
        let (len, outgoing) = unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            let mut address_len = size_of::<libc::sockaddr_ll>() as u32;
            let fd = self.socket.as_raw_fd();
            let to = (&raw mut address).cast();
            let len = libc::recvfrom(fd, at, room, libc::MSG_TRUNC, to, &raw mut address_len);
            (len, address.sll_pkttype == libc::PACKET_OUTGOING)
        };
        let packet = self.packet.get(..usize::try_from(len).ok()?).unwrap_or_default();
        // The loopback shows each packet twice.
        Some(if outgoing { Vec::new() } else { datagrams(packet).unwrap_or_default() })
    }
}

/// The datagrams of an IPv4 packet behind its offload and Ethernet headers, if it is of UDP.
fn datagrams(packet: &[u8]) -> Option<Vec<Seen>> {
    let segment = packet.get(SEGMENT_AT..SEGMENT_AT + 2)?;
    let segment = usize::from(u16::from_ne_bytes(segment.try_into().ok()?));
    let ip = packet.get(OFFLOAD_BYTES + ETHERNET_BYTES..)?;
    let udp = ip.get(4 * usize::from(ip.first()? & 0xf)..)?;
    if *ip.get(9)? != libc::IPPROTO_UDP as u8 {
        return None;
    }
    let word = |bytes: &[u8], at: usize| -> Option<u16> {
        Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
    };
    let host = |at: usize| -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?))
    };
    let (from, to) = (host(12)?, host(16)?);
    let (from, to) = ((from, word(udp, 0)?).into(), (to, word(udp, 2)?).into());
    let payload = udp.get(UDP_BYTES..)?;
    let each = if segment == 0 { payload.len() } else { segment };
    let seen = payload.chunks(each.max(1)).map(|bytes| Seen { from, to, bytes: bytes.to_vec() });
    Some(seen.collect())
}
