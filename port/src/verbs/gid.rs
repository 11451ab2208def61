//! The choice of an entry in a port's GID table.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A global identifier: 16 bytes, of which an IPv4 address is the mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that a RoCE v2 GID is.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// The wire format of a GID's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GidKind {
    /// InfiniBand's own.
    InfiniBand,
    /// RoCE over Ethernet frames alone, which no router forwards.
    RoceV1,
    /// RoCE over UDP.
    RoceV2,
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index in the table.
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// Its kind.
    pub kind: GidKind,
    /// The network interface that it belongs to; 0 for none.
    pub ifindex: u32,
}

impl GidEntry {
    /// The rank, greater for better entries: RoCE v2 or InfiniBand (RoCE v1 is not usable); routed addresses before
    /// link-local ones; IPv4 before IPv6; low indices first. `None` for one that is not usable.
    fn rank(&self) -> Option<(bool, bool, std::cmp::Reverse<u8>)> {
        if self.kind == GidKind::RoceV1 || self.gid.0 == [0; 16] {
            return None;
        }
        let (routed, v4) = match self.gid.ip() {
            IpAddr::V4(ip) => (!ip.is_link_local(), true),
            IpAddr::V6(ip) => (!ip.is_unicast_link_local(), false),
        };
        Some((routed, v4, std::cmp::Reverse(self.index)))
    }
}

/// The best entry of a table.
#[must_use]
pub fn best(table: &[GidEntry]) -> Option<GidEntry> {
    table.iter().filter(|entry| entry.rank().is_some()).max_by_key(|entry| entry.rank()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u8, address: &str, kind: GidKind) -> GidEntry {
        let v6 = match address.parse().expect("address") {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        GidEntry { index, gid: Gid(v6.octets()), kind, ifindex: 1 }
    }

    #[test]
    fn routable_roce_v2_over_ipv4_is_taken_wherever_it_stands() {
        use GidKind::{InfiniBand, RoceV1, RoceV2};
        let table = [
            entry(0, "fe80::1", RoceV1),
            entry(1, "fe80::1", RoceV2),
            entry(2, "192.0.2.1", RoceV1),
            entry(3, "2001:db8::1", RoceV2),
            entry(4, "169.254.0.1", RoceV2),
            entry(5, "192.0.2.1", RoceV2),
            entry(6, "192.0.2.2", RoceV2),
        ];
        let best = |table: &[GidEntry]| best(table).map(|entry| entry.index);
        assert_eq!(best(&table), Some(5));
        assert_eq!(best(&table[..5]), Some(3), "routed IPv6 before IPv4 of one link");
        assert_eq!(best(&table[..2]), Some(1), "link-local is better than nothing");
        assert_eq!(best(&table[..1]), None, "RoCE v1 is not");
        assert_eq!(best(&[entry(0, "fe80::1", InfiniBand)]), Some(0), "InfiniBand's default");
    }
}
