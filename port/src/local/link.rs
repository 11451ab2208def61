//! A link: two rings, one each way, between two endpoints of one host (`docs/protocol.md` §12).

use super::bell::Bell;
use super::claim::Claim;
use super::process::Neighbour;
use super::ring::{Broken, Memory, Reader, Refused, Slot, Writer};
use super::segment::{Part, Segment};
use super::waker::Waker;
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes of a ring. They take memory as far as they are used.
pub const RING_BYTES: usize = 256 << 10;
/// Bytes of both.
pub const LINK_BYTES: usize = 2 * RING_BYTES;
/// Bytes of a ring that have memory from the first on.
pub const FIRST_BYTES: usize = 8 << 10;
/// Longest entry, with everything in it (`docs/protocol.md` §12.5).
pub const ENTRY_MAX_BYTES: usize = 16 << 10;

/// Which of the two rings this side writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The first: this side made the offer.
    First,
    /// The second.
    Second,
}

/// The bell of a peer's endpoint, which its local peers ring, and how to wake it.
#[derive(Debug)]
pub struct TheirBell {
    /// The bell.
    pub bell: Bell,
    /// Wakes its owner.
    pub waker: Waker,
    /// The waker's descriptor.
    pub claim: Claim,
}

/// See the module's text.
#[derive(Debug)]
pub struct Link {
    /// The endpoint at the other end.
    pub name: SocketAddr,
    /// Its process.
    pub process: Arc<Neighbour>,
    segment: Segment,
    way: Way,
    writer: Writer,
    reader: Reader,
    theirs: TheirBell,
    /// Where this side rings it.
    place: usize,
    /// This side looks at its ring at each step.
    watched: bool,
}

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The next one may follow.
    Taken,
    /// It stays, and comes again.
    Later,
    /// The same, and it may be waited for in vain if its writer is no more.
    Waits,
    /// Its reader wants no more of the link. It does not count as read.
    Over,
    /// It is not what an honest peer writes.
    Wrong,
}

/// What is behind the entries that were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// Nothing yet.
    Nothing,
    /// Perhaps another.
    More,
    /// One that its reader cannot take yet.
    Kept,
    /// The same, because its writer must do something else before.
    Waiting,
    /// One that its reader does not want, nor any after it.
    Unwanted,
}

/// What put an end to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The peer's endpoint has closed it.
    Closed,
    /// The peer's process has ended.
    Died,
    /// The peer has written what it must not.
    Broken,
}

impl Link {
    /// A link with these parts. The peer's bell is rung at `place`.
    #[must_use]
    pub fn new(
        name: SocketAddr,
        process: Arc<Neighbour>,
        (segment, way): (Segment, Way),
        (theirs, place): (TheirBell, usize),
    ) -> Link {
        let (writer, reader) = (Writer::new(RING_BYTES, FIRST_BYTES), Reader::new(RING_BYTES));
        let link =
            Link { name, process, segment, way, writer, reader, theirs, place, watched: false };
        link.reader.watch(&link.their_ring(), false);
        link
    }

    fn ring(&self, way: Way) -> Part<'_> {
        let at = if way == Way::First { 0 } else { RING_BYTES };
        self.segment.part(at, RING_BYTES)
    }

    fn their_ring(&self) -> Part<'_> {
        self.ring(match self.way {
            Way::First => Way::Second,
            Way::Second => Way::First,
        })
    }

    /// Writes an entry of `len` bytes, which `fill` hands piece by piece to what it gets. Returns how much has been
    /// written with it, in all: see [`Link::read_by_peer`].
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn put(
        &mut self,
        kind: u8,
        len: usize,
        fill: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> Result<u64, Refused> {
        debug_assert!(len <= ENTRY_MAX_BYTES, "an entry of the protocol");
        let (way, segment) = (self.way, &self.segment);
        let at = if way == Way::First { 0 } else { RING_BYTES };
        let ring = segment.part(at, RING_BYTES);
        let back = |bytes| segment.populate(at, bytes);
        let slot: Slot = self.writer.reserve(&ring, len, back)?;
        let mut done = 0;
        fill(&mut |piece: &[u8]| {
            // More than was said does not fit.
            let piece = &piece[..piece.len().min(len - done)];
            ring.write(slot.at + done, piece);
            done += piece.len();
        });
        debug_assert_eq!(done, len, "an entry is as long as was said");
        self.writer.publish(&ring, &slot, kind);
        self.tell();
        Ok(self.writer.written())
    }

    /// Tells the peer that there is news.
    fn tell(&self) {
        let wakes = match self.writer.wants_bell(&self.ring(self.way)) {
            true => self.theirs.bell.ring(self.place),
            false => self.theirs.bell.must_wake(),
        };
        if wakes {
            self.theirs.waker.wake();
        }
    }

    /// Asks for a bell once there is room. The caller tries once more after this.
    pub fn starve(&mut self) {
        let at = if self.way == Way::First { 0 } else { RING_BYTES };
        self.writer.starve(&self.segment.part(at, RING_BYTES));
    }

    /// How much of what this side has written the peer has read.
    ///
    /// # Errors
    /// The peer says what cannot be.
    pub fn read_by_peer(&mut self) -> Result<u64, Broken> {
        let at = if self.way == Way::First { 0 } else { RING_BYTES };
        self.writer.consumed(&self.segment.part(at, RING_BYTES))
    }

    /// Reads up to `budget` entries: copies each to `scratch`, and hands it with its kind to `f`. Returns their number,
    /// and what is behind them.
    ///
    /// # Errors
    /// What is there is no entry, a longer one than the protocol has, or a wrong one.
    pub fn read(
        &mut self,
        budget: usize,
        scratch: &mut [u8],
        mut f: impl FnMut(u8, &[u8]) -> Fate,
    ) -> Result<(usize, Behind), Broken> {
        let at = if self.way == Way::First { RING_BYTES } else { 0 };
        let ring = self.segment.part(at, RING_BYTES);
        let (mut count, mut behind) = (0, Behind::Nothing);
        while let Some(entry) = self.reader.next(&ring)? {
            if count == budget {
                behind = Behind::More;
                break;
            }
            let bytes = scratch.get_mut(..entry.len).ok_or(Broken)?;
            ring.read(entry.at, bytes);
            match f(entry.kind, bytes) {
                Fate::Taken => self.reader.pass(&entry),
                Fate::Wrong => return Err(Broken),
                Fate::Later => {
                    behind = Behind::Kept;
                    break;
                }
                Fate::Waits => {
                    behind = Behind::Waiting;
                    break;
                }
                Fate::Over => {
                    behind = Behind::Unwanted;
                    break;
                }
            }
            count += 1;
        }
        if count > 0 && self.reader.tell(&ring) && self.theirs.bell.ring(self.place) {
            self.theirs.waker.wake();
        }
        Ok((count, behind))
    }

    /// True if an entry is there, or what is none.
    #[must_use]
    pub fn has_news(&mut self) -> bool {
        let at = if self.way == Way::First { RING_BYTES } else { 0 };
        !matches!(self.reader.next(&self.segment.part(at, RING_BYTES)), Ok(None))
    }

    /// Whether this side looks at its ring at each step. If it does not any more, it looks once more after this call.
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
        self.reader.watch(&self.their_ring(), watched);
    }

    /// See [`Link::watch`].
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// True if the peer's endpoint has closed it. What it wrote before can be read.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        super::ring::is_closed(&self.their_ring())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A forked child has a copy of this value, and none of the memory.
        if !self.segment.is_here() {
            return;
        }
        super::ring::close(&self.ring(self.way));
        if self.theirs.bell.ring(self.place) {
            self.theirs.waker.wake();
        }
    }
}
