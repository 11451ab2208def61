//! Numbers with a meaning: time, sequence numbers, identifiers.

/// Monotonic time or a span of it, in nanoseconds. The zero point is the driver's choice.
pub type Nanos = u64;

/// One microsecond in [`Nanos`].
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond in [`Nanos`].
pub const MILLISECOND: Nanos = 1_000_000;
/// One second in [`Nanos`].
pub const SECOND: Nanos = 1_000_000_000;

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

/// A peer as the engine numbers it: index into its peer table plus a generation, so that a
/// number kept past [`crate::Endpoint::forget`] names nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PeerId {
    /// Slot in the peer table.
    pub index: u32,
    /// Generation of that slot.
    pub generation: u32,
}

/// The two ECN bits of the IP header (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// The sender's transport does not take part, or the port cannot tell.
    #[default]
    NotEct,
    /// ECN-capable, codepoint ECT(1).
    Ect1,
    /// ECN-capable, codepoint ECT(0).
    Ect0,
    /// Congestion experienced: a switch marked the packet.
    Ce,
}
