//! The state of a session's lane (protocol.md §12).

use super::rare::{Empty, Rare};
use super::rx::links::Incoming;
use crate::host::{Lane, Reach, RecvToken, Sources};
use crate::units::Nanos;
use crate::wire::setup::FEATURE_LANE;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Longest bundle of records that is filled at once, and longest message that goes with its record, in bytes.
pub(super) const ROOM_BYTES: u16 = 8 << 10;
/// A message or a write whose bytes are being read where they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulling {
    pub incoming: Incoming,
    /// If it is a part of a read.
    pub place: Option<Place>,
    pub sources: Sources,
    pub done_bytes: u64,
}

impl Pulling {
    /// Nothing has been read yet.
    pub fn new(incoming: Incoming, sources: Sources) -> Pulling {
        Pulling { incoming, place: None, sources, done_bytes: 0 }
    }
}

/// A part of a read whose bytes are in the target's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The link that waits for them.
    pub slot: u16,
    /// Send order of the request.
    pub order: u32,
    /// The target's number for its answer.
    pub answer: u32,
}

/// What the initiator has to say of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub answer: u32,
    pub order: u32,
    /// It cannot read the bytes there: the target must send them.
    pub sends: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LaneSide {
    /// The lane that this side can use in the session that is set up.
    pub offer: Option<Lane>,
    /// The lane of the session: both sides can use it.
    pub way: Option<Lane>,
    /// Entries written, as the host counts.
    pub written: u64,
    /// Bytes of the entries written in this session.
    pub sent_bytes: u64,
    /// Operations that end when the peer has read so far. In order; bounded by `sends_max`.
    pub unread: VecDeque<(u64, u32)>,
    /// Bounded by the order window.
    pub pulls: VecDeque<Pulling>,
    /// Where the bytes are of the record at hand.
    pub sources: Sources,
    /// When to try again, after the lane was full.
    pub retry_at: Option<Nanos>,
    /// Answers whose places are to be told, with their send orders. Bounded by the responder's answers.
    pub lends: VecDeque<(u32, u32)>,
    /// What is to be said of answers of the peer's. Bounded by the links.
    pub taken: VecDeque<Taken>,
    /// An entry has come before the peer's greeting.
    pub missed: bool,
    /// The limits are to be told.
    pub owes_limits: bool,
    /// Bytes of the head of the entry at hand.
    pub head: Vec<u8>,
}

/// What an entry is to its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stand {
    /// Part of its data.
    Data,
    /// It came before the peer's greeting; `fresh` the first time.
    Greeting { fresh: bool },
    /// Nothing: it is of a session that has ended.
    Nothing,
}

const NO_LANE: LaneSide = LaneSide {
    offer: None,
    way: None,
    written: 0,
    sent_bytes: 0,
    unread: VecDeque::new(),
    pulls: VecDeque::new(),
    sources: Sources::NONE,
    retry_at: None,
    lends: VecDeque::new(),
    taken: VecDeque::new(),
    missed: false,
    owes_limits: false,
    head: Vec::new(),
};

impl Default for LaneSide {
    fn default() -> LaneSide {
        NO_LANE
    }
}

impl Empty for LaneSide {
    const EMPTY: &'static LaneSide = &NO_LANE;
}

/// What a session without a lane may be asked, too.
impl Rare<LaneSide> {
    /// The state for a new session, with this offer.
    pub fn begin(&mut self, reach: Reach) {
        self.forget();
        if let Reach::Lane(lane) = reach {
            self.offer = Some(lane);
        }
    }

    /// The session is open. The peer's greeting says whether it can use the lane.
    pub fn open(&mut self, peer_can: bool) {
        if let Some(lane) = self.get_mut() {
            lane.way = lane.offer.filter(|_| peer_can);
        }
    }

    /// Where the bytes are of the record at hand; nowhere the second time.
    pub fn take_sources(&mut self) -> Sources {
        self.get_mut().map(|lane| core::mem::take(&mut lane.sources)).unwrap_or_default()
    }

    /// Nobody waits any more for the bytes of this link.
    pub fn drop_pull(&mut self, slot: usize, order: u32) {
        let Some(lane) = self.get_mut() else { return };
        lane.pulls.retain(|pulling| {
            pulling
                .place
                .is_none_or(|place| (usize::from(place.slot), place.order) != (slot, order))
        });
    }
}

impl LaneSide {
    /// What a greeting says of the lane.
    pub fn feature(&self) -> u32 {
        if self.offer.is_some() { FEATURE_LANE } else { 0 }
    }

    /// True if nothing is left to be written or read, as far as there is room.
    pub fn is_done(&self) -> bool {
        let told = self.lends.is_empty() && self.taken.is_empty() && !self.owes_limits;
        told && self.pulls.is_empty()
    }

    /// The buffers that are being read into.
    pub fn buffers(&self) -> impl Iterator<Item = RecvToken> {
        // A read ends as an operation.
        let others = self.pulls.iter().filter(|pulling| pulling.place.is_none());
        others.map(|pulling| pulling.incoming.to)
    }

    /// Notes an answer of this send order, whose bytes the peer may read.
    pub fn lend(&mut self, op: u32, order: u32) {
        self.lends.push_back((op, order));
    }

    /// When to try again, or look how far the peer has read.
    pub fn wake_at(&self) -> Nanos {
        self.retry_at.unwrap_or(Nanos::MAX)
    }
}
