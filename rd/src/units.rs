//! Number types: time, sequence numbers, identifiers.

pub use erd_types::{Ecn, KeyIndex, MICROSECOND, MILLISECOND, Nanos, PeerAddress, SECOND};

/// Packet sequence number of one flow direction; wraps at 2^32 (protocol.md §4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Psn(pub u32);

impl Psn {
    /// The number `n` packets later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Psn {
        Psn(self.0.wrapping_add(n))
    }

    /// How many packets `self` lies after `base`; negative when it lies before it.
    #[must_use]
    pub const fn since(self, base: Psn) -> i32 {
        self.0.wrapping_sub(base.0) as i32
    }
}

/// Send order of messages between two peers; wraps at 2^32 (protocol.md §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Order(pub u32);

impl Order {
    #[cfg(test)]
    /// The order `n` messages later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Order {
        Order(self.0.wrapping_add(n))
    }

    /// How many messages `self` lies after `base`; negative when it lies before it.
    #[must_use]
    pub const fn since(self, base: Order) -> i32 {
        self.0.wrapping_sub(base.0) as i32
    }
}

/// A peer as the engine numbers it: index into its peer table plus a generation, so that a number kept past
/// [`crate::Endpoint::forget`] names no peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PeerId {
    /// Slot in the peer table.
    pub index: u32,
    /// Generation of that slot.
    pub generation: u32,
    /// The key that both use.
    pub key: KeyIndex,
}
