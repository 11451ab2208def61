//! Types that the protocol engine and the ports share, so that neither depends on the other.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod mutants;

use core::net::SocketAddr;
use core::ops::RangeInclusive;

/// Monotonic time or a span of it, in nanoseconds. The zero point is the driver's choice.
pub type Nanos = u64;

/// One microsecond in [`Nanos`].
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond in [`Nanos`].
pub const MILLISECOND: Nanos = 1_000_000;
/// One second in [`Nanos`].
pub const SECOND: Nanos = 1_000_000_000;

/// The two ECN bits of the IPv4 TOS byte or the IPv6 traffic class (RFC 3168, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The sender's transport does not take part, or the port cannot tell.
    #[default]
    NotEct = 0,
    /// ECN-capable, codepoint ECT(1).
    Ect1 = 1,
    /// ECN-capable, codepoint ECT(0).
    Ect0 = 2,
    /// Congestion experienced: a switch marked the packet.
    Ce = 3,
}

impl Ecn {
    /// The TOS or traffic class byte of a packet with this mark and class (DSCP, 0 to 63).
    #[must_use]
    pub const fn in_class(self, dscp: u8) -> u8 {
        dscp << 2 | self as u8
    }

    /// The ECN bits of a TOS or traffic class byte.
    #[must_use]
    pub const fn from_tos(tos: u8) -> Self {
        match tos & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// The place of a key among those of an endpoint; 0 where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, PartialOrd, Ord)]
pub struct KeyIndex(pub u8);

/// What identifies a peer: the name of its process, and the key that both use. A process with several keys is a peer for
/// each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PeerAddress {
    /// The name, which the process tells in its greetings.
    pub name: SocketAddr,
    /// The key.
    pub key: KeyIndex,
}

impl PeerAddress {
    /// Every address of a name, from the first to the last.
    #[must_use]
    pub fn all_of(name: SocketAddr) -> RangeInclusive<PeerAddress> {
        let with = |key| PeerAddress { name, key: KeyIndex(key) };
        with(0)..=with(u8::MAX)
    }
}

impl From<SocketAddr> for PeerAddress {
    /// With the first key, or none.
    fn from(name: SocketAddr) -> PeerAddress {
        PeerAddress { name, key: KeyIndex::default() }
    }
}
