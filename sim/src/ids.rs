//! Id numbers of a network's links, switches and hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A host, by its place in [`crate::fabric::Fabric`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HostId(pub u32);

/// A link, by its place in [`crate::fabric::Fabric`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// A switch, by its place in [`crate::fabric::Fabric`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(pub u32);

/// The UDP port of every host.
const PORT: u16 = 4791;

/// The name of a host: its number is the address.
#[must_use]
pub fn name_of(host: HostId) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(host.0)), PORT)
}

/// The host of a name that [`name_of`] gave.
#[must_use]
pub fn host_of(name: SocketAddr) -> Option<HostId> {
    match name.ip() {
        IpAddr::V4(ip) => Some(HostId(ip.to_bits())),
        IpAddr::V6(_) => None,
    }
}
