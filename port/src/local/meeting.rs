//! A meeting with another process: from the connection to the link, or its refusal (`docs/protocol.md` §12.2).

use super::claim::Claim;
use super::courier::Connection;
use super::offer::Offer;
use super::segment::Segment;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Meetings at the same time.
pub(super) const MEETINGS_MAX: usize = 256;
/// How long one may take. A peer that progresses answers in the time of a few steps, or of its helper's pause.
pub(super) const PATIENCE_NS: u64 = 1_000_000_000;

/// One meeting.
#[derive(Debug)]
pub(super) struct Meeting {
    /// `None` once the peer has said that an offer of its own is under way.
    pub connection: Option<Connection>,
    /// The descriptors that come with an offer of the peer's, or with its answer.
    pub claim: Option<Claim>,
    /// When it ends at the latest.
    pub ends_at_ns: u64,
    /// The offer of this side, if it made one.
    pub ours: Option<Ours>,
    /// The peer's, with what came with it, while there is something to be read of the link before it.
    pub theirs: Option<(Offer, Vec<OwnedFd>)>,
}

/// An offer of this side.
#[derive(Debug)]
pub(super) struct Ours {
    pub to: SocketAddr,
    /// The place in the table of links that is kept for it.
    pub index: usize,
    pub segment: Segment,
}

impl Meeting {
    /// True if this side has made the endpoint of this name an offer.
    pub(super) fn is_with(&self, name: SocketAddr) -> bool {
        self.ours.as_ref().is_some_and(|ours| ours.to == name)
    }
}
