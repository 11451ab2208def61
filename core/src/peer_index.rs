//! The index of a peer, in calls and completions.

/// Index of a peer's name in an address vector, or the user's own number for it.
pub type PeerIndex = u64;
/// The name is in no address vector.
pub const NOWHERE: PeerIndex = u64::MAX;
/// A receive takes messages of any peer.
pub const ANYONE: PeerIndex = u64::MAX;
