//! The kernel's interfaces and routes.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use super::addr::RawAddr;
use super::{MAX_DATAGRAM_BYTES, sockopt};
use erd_sys::sysfs::Sysfs;

/// The MTU that the kernel reports for its own addresses, unless loopback has a smaller one.
const OWN_MTU_BYTES: u32 = 65_535;

/// One address of one interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub addr: IpAddr,
    /// Bits of the address that name its network.
    pub prefix: u8,
    /// The link's MTU in bytes, IP header included.
    pub mtu_bytes: u32,
    /// Up and running.
    pub up: bool,
    /// The loopback interface.
    pub loopback: bool,
    /// The link's speed in Mbit/s, where the device reports it.
    pub speed_mbps: Option<u32>,
}

/// The interfaces' addresses, in the kernel's order (`getifaddrs(3)`); empty on failure. Their speeds are those of `sysfs`.
#[must_use]
pub fn interfaces(sysfs: &Sysfs) -> Vec<Interface> {
    let mut found = Vec::new();
    let mut links = BTreeMap::new();
    each_address(|addr, entry| {
        // SAFETY: the entry's name is a C string, and its addresses are null or socket addresses.
        let (name, mask) = unsafe {
            let name = CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
            (name, RawAddr::read_ip(entry.ifa_netmask))
        };
        let flags = entry.ifa_flags as i32;
        let (mtu_bytes, speed_mbps) = *links
            .entry(name.clone())
            .or_insert_with(|| (link_mtu_bytes(&name), sysfs.speed_mbps(&name)));
        found.push(Interface {
            addr,
            prefix: mask.map_or(0, prefix_bits),
            mtu_bytes,
            up: flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0,
            loopback: flags & libc::IFF_LOOPBACK != 0,
            speed_mbps,
            name,
        });
    });
    found
}

/// Hands each address and its entry in the kernel's list to `f`; none on failure.
fn each_address(mut f: impl FnMut(IpAddr, &libc::ifaddrs)) {
    let mut head = std::ptr::null_mut();
    // SAFETY: `head` is writable; on success it is a list that `freeifaddrs` takes back below.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return;
    }
    let mut next = head;
    while !next.is_null() {
        // SAFETY: `next` is a non-null entry of the list, which is not yet freed.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // SAFETY: an entry's address is null or a socket address.
        if let Some(addr) = unsafe { RawAddr::read_ip(entry.ifa_addr) } {
            f(addr, entry);
        }
    }
    // SAFETY: `head` came from `getifaddrs`, and nothing borrowed from the list is left.
    unsafe { libc::freeifaddrs(head) };
}

fn prefix_bits(mask: IpAddr) -> u8 {
    let bits = match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones(),
        IpAddr::V6(mask) => mask.to_bits().count_ones(),
    };
    bits as u8
}

/// The link's MTU in bytes, from the kernel, since sysfs shows the namespace that it was mounted in. 0 if unknown.
fn link_mtu_bytes(name: &str) -> u32 {
    let Ok(socket) = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0)))
    else {
        return 0;
    };
    // SAFETY: an ifreq is integers and a union of them, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let asked = &raw mut request;
    // SAFETY: the request is a zero-ended name that outlives the call; the answer is its mtu field.
    let (rc, mtu) = unsafe {
        let rc = libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, asked);
        (rc, request.ifr_ifru.ifru_mtu)
    };
    if rc == 0 { u32::try_from(mtu).unwrap_or(0) } else { 0 }
}

/// The address that stands for every address of this host, in the family of `dst`.
fn any(dst: SocketAddr) -> IpAddr {
    match dst {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn probe(local: IpAddr, dst: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((local, 0))?;
    socket.connect(dst)?;
    Ok(socket)
}

/// Whether packets to `dst` stay on this host, since it is an address of this network namespace. Sends nothing.
#[must_use]
pub fn is_own(dst: SocketAddr) -> bool {
    let ip = dst.ip();
    // The kernel sends to an address of its own from that address. If an interface has several addresses of one
    // network, the kernel sends to all of them from the first.
    let own = |from: &UdpSocket| {
        let source = from.local_addr()?.ip();
        let stays = mtu_bytes(from, dst)? == OWN_MTU_BYTES;
        Ok::<bool, io::Error>(source == ip || stays && addresses().contains(&ip))
    };
    ip.is_loopback() || probe(any(dst), dst).is_ok_and(|from| own(&from).unwrap_or(false))
}

/// The addresses of all interfaces.
fn addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    each_address(|addr, _| found.push(addr));
    found
}

/// The MTU in bytes, IP header included, that the kernel knows for the path from `local` to `dst`: the link's, or less
/// if a router has reported less, and at most 65535 (so for loopback's 65536, too). Sends nothing.
///
/// # Errors
/// If there is no route, or `local` is not an address of this host.
pub fn path_mtu_bytes(local: IpAddr, dst: SocketAddr) -> io::Result<u32> {
    mtu_bytes(&probe(local, dst)?, dst)
}

fn mtu_bytes(from: &UdpSocket, dst: SocketAddr) -> io::Result<u32> {
    let (level, name) = match dst {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mtu = sockopt::int(from.as_raw_fd(), level, name)?;
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The most payload of one unfragmented UDP datagram at this MTU, in bytes.
#[must_use]
pub fn max_payload_bytes(mtu_bytes: u32, v6: bool) -> usize {
    let headers: u32 = if v6 { 40 + 8 } else { 20 + 8 };
    (mtu_bytes.saturating_sub(headers) as usize).min(MAX_DATAGRAM_BYTES)
}

/// The source address that the kernel takes towards `dst`. Sends nothing.
///
/// # Errors
/// If there is no route.
pub fn route_source(dst: SocketAddr) -> io::Result<IpAddr> {
    Ok(probe(any(dst), dst)?.local_addr()?.ip())
}
