//! The owners of places in the peer table, by address, present and past (protocol.md §3.5).
//!
//! An entry that the driver keeps stays. A hello made all others: they are *newcomers* until the driver asks for them,
//! and the endpoint drops them when it needs room.

use crate::units::PeerAddress;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Most peers remembered without a place.
const FORGOTTEN_MAX: usize = 64;

/// The owners of places, besides the table itself.
#[derive(Default)]
pub(super) struct Room {
    /// Newcomers by the address they came from; addresses without newcomers are absent.
    newcomers: BTreeMap<IpAddr, u32>,
    /// Peers that lost their places lately, with the session id that was used there last; at most
    /// [`FORGOTTEN_MAX`].
    forgotten: VecDeque<(PeerAddress, u64)>,
    /// Place at which the last search for room ended.
    evict_at: u32,
}

/// Address that a name counts under: a host has a whole /64 of IPv6.
pub(super) fn address(name: SocketAddr) -> IpAddr {
    match name.ip() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

/// The first and the last name of an address.
pub(super) fn names(address: IpAddr) -> [SocketAddr; 2] {
    match address {
        IpAddr::V4(_) => [SocketAddr::new(address, 0), SocketAddr::new(address, u16::MAX)],
        IpAddr::V6(ip) => {
            let last = core::net::SocketAddrV6::new(
                Ipv6Addr::from_bits(ip.to_bits() | u128::from(u64::MAX)),
                u16::MAX,
                u32::MAX,
                u32::MAX,
            );
            [SocketAddr::new(address, 0), last.into()]
        }
    }
}

impl Room {
    /// Counts a newcomer that got a place, or whose entry the driver keeps no more.
    pub(super) fn came(&mut self, name: SocketAddr) {
        *self.newcomers.entry(address(name)).or_default() += 1;
    }

    /// Uncounts a newcomer that lost its place, or whose entry the driver keeps.
    pub(super) fn left(&mut self, name: SocketAddr) {
        let address = address(name);
        if let Some(count) = self.newcomers.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.newcomers.remove(&address);
            }
        }
    }

    /// Number of newcomers of the address.
    pub(super) fn newcomers_of(&self, name: SocketAddr) -> u32 {
        self.newcomers.get(&address(name)).copied().unwrap_or(0)
    }

    /// The next `looks` places of a table of `most` to search for room.
    pub(super) fn next_looks(
        &mut self,
        looks: u32,
        most: u32,
    ) -> impl Iterator<Item = u32> + use<> {
        let from = self.evict_at;
        self.evict_at = (from + looks) % most;
        (0..looks).map(move |i| (from + i) % most)
    }

    /// Keeps a peer that lost its place, with the session id that it used last.
    pub(super) fn forget(&mut self, peer: PeerAddress, session: u64) {
        self.forgotten.truncate(FORGOTTEN_MAX - 1);
        self.forgotten.push_front((peer, session));
    }

    /// The kept session id of a peer without a place; 0 for none.
    pub(super) fn last_of(&self, peer: PeerAddress) -> u64 {
        self.forgotten.iter().find(|(gone, _)| *gone == peer).map_or(0, |(_, session)| *session)
    }

    /// Returns the kept session id of a peer that gets a place again.
    pub(super) fn recall(&mut self, peer: PeerAddress) -> Option<u64> {
        let at = self.forgotten.iter().position(|(gone, _)| *gone == peer)?;
        self.forgotten.remove(at).map(|(_, session)| session)
    }
}
