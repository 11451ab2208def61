//! Numbers of the pieces of a network.

/// A host, by its place in [`crate::network::Network`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostId(pub u32);

/// A link, by its place in [`crate::network::Network`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkId(pub u32);

/// A switch, by its place in [`crate::network::Network`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SwitchId(pub u32);

/// Where a link ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    /// At a host.
    Host(HostId),
    /// At a switch.
    Switch(SwitchId),
}
