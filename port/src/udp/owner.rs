//! The user who owns a socket of this host.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The user whose UDP socket is bound to `name`, as this process's user namespace knows it. `None` if
/// there is none in this network namespace, or several users'.
#[must_use]
pub fn of_udp(name: SocketAddr) -> Option<u32> {
    let file =
        if name.is_ipv4() { "/proc/thread-self/net/udp" } else { "/proc/thread-self/net/udp6" };
    find(&fs::read_to_string(file).ok()?, name)
}

/// Whether this is the user that stands for all users without a name here. Processes of different such users must not
/// take each other for the same user.
#[must_use]
pub fn is_nobody(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    overflow.trim().parse().unwrap_or(65_534) == uid
}

/// The user of the socket at `name` in a table in the form of `proc_net_udp(5)`.
fn find(table: &str, name: SocketAddr) -> Option<u32> {
    let rows = table.lines().skip(1).filter_map(row);
    let mut uids = rows.filter(|(at, _)| *at == name).map(|(_, uid)| uid);
    let first = uids.next()?;
    uids.all(|uid| uid == first).then_some(first)
}

/// A row's local address and user.
fn row(line: &str) -> Option<(SocketAddr, u32)> {
    let mut words = line.split_ascii_whitespace();
    let (ip, port) = words.nth(1)?.split_once(':')?;
    // rem_address, st, queues, timer, retransmissions come before it.
    let uid = words.nth(5)?.parse().ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddr::new(address(ip)?, port), uid))
}

/// An address as words of 32 bits, each in hexadecimal digits and in the host's byte order.
fn address(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| -> Option<[u8; 4]> {
        let digits = digits.get(8 * at..8 * at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (at, to) in bytes.chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  370: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 21 2 00000000 0
  371: 00000000:1F91 00000000:0000 07 00000000:00000000 00:00000000 00000000  1001        0 22 2 00000000 0
  372: 0100007F:1F92 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 23 2 00000000 0
  373: 0100007F:1F92 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 24 2 00000000 0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_owner_is_found_by_address_and_port() {
        let at = |name: &str| find(TABLE, name.parse().expect("an address"));
        assert_eq!(at("127.0.0.1:8080"), Some(1000));
        assert_eq!(at("127.0.0.2:8080"), None, "another address");
        assert_eq!(at("127.0.0.1:8081"), None, "a socket bound everywhere is not looked for");
        assert_eq!(at("127.0.0.1:8082"), None, "two users'");
        assert_eq!(at("127.0.0.1:1"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn sockets_of_both_families_are_in_the_kernels_tables() {
        // SAFETY: it takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = std::net::UdpSocket::bind(any) else { continue };
            let name = socket.local_addr().expect("a name");
            assert_eq!(of_udp(name), Some(own), "{name}");
        }
    }
}
