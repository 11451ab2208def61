//! The index of a peer, in calls and completions.

/// Where the name of a peer is in an address vector, or what the user calls it.
pub type PeerIndex = u64;
/// The name is in no address vector.
pub const NOWHERE: PeerIndex = u64::MAX;
/// A receive takes messages of any peer.
pub const ANYONE: PeerIndex = u64::MAX;
