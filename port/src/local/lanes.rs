//! What the loop asks of shared memory. [`super::LocalPort`] has it; a simulated host has it too, so that the loop that
//! runs over memory runs there as well.

use super::link::{End, Fate};
use super::ring::Refused;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Hands the bytes of an entry, piece by piece, to what it gets.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&[u8]));

/// A link, as long as it is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct LinkId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl LinkId {
    /// As a number, which no other link of the port has.
    #[must_use]
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The link of this number.
    #[must_use]
    pub fn numbered(number: u64) -> LinkId {
        LinkId { index: number as u32, generation: (number >> 32) as u32 }
    }
}

/// How a peer can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// By this link.
    Link(LinkId),
    /// Perhaps by a link: the peer has been asked.
    Asked,
    /// By no link.
    None,
}

/// What became of bytes that were to be read out of a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pulled {
    /// They are in place, and the peer's buffer was there all the time.
    Done,
    /// This process cannot read them there.
    Never,
    /// The link is no more.
    Gone,
}

/// What a step found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The endpoint of this name is reached by this link.
    Up(SocketAddr, LinkId),
    /// The endpoint of this name was asked, and is not reached by a link.
    Refused(SocketAddr),
    /// The endpoint of this name has read more of what was written to it.
    Room(SocketAddr),
    /// The link is no more. The peer has read so much of what was written to it, as [`Lanes::read_by_peer`] counts.
    Down(SocketAddr, LinkId, End, u64),
}

/// The links of an endpoint.
pub trait Lanes: Send {
    /// How the endpoint of this name can be reached. Asks it, if nobody has.
    fn reach(&mut self, name: SocketAddr, now: u64) -> Reach;

    /// Writes an entry of `len` bytes to a link, as [`super::link::Link::put`]; `None` if the link is no more.
    fn put(
        &mut self,
        id: LinkId,
        kind: u8,
        len: usize,
        fill: Fill<'_>,
    ) -> Option<Result<u64, Refused>>;

    /// See [`super::link::Link::starve`].
    fn starve(&mut self, id: LinkId);

    /// How much of what this side has written the peer has read; `None` if the link is no more.
    fn read_by_peer(&mut self, id: LinkId) -> Option<u64>;

    /// True if the peer has written what has not been read.
    fn has_entries(&mut self, id: LinkId) -> bool;

    /// Reads `len` bytes out of the memory of the process at the other end of a link.
    ///
    /// # Safety
    /// Every piece of `to` may be written, up to `len` bytes in all.
    unsafe fn pull(
        &mut self,
        id: LinkId,
        from: &mut [libc::iovec],
        to: &mut [libc::iovec],
        len: usize,
    ) -> Pulled;

    /// Reads what has arrived, a bounded number of entries, and hands it to `f` with its kind. Returns the number.
    fn poll(&mut self, now: u64, f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate) -> usize;

    /// Goes on with meetings, and looks for processes that have ended, if it is time. What became of that is handed to
    /// `f`. The caller has polled before: what a peer wrote before its end counts.
    fn work(&mut self, now: u64, f: &mut dyn FnMut(Event));

    /// Ends a link that is of no use any more. The next [`Lanes::work`] says so.
    fn break_off(&mut self, id: LinkId);

    /// Ends a link: the caller wants no more of it. The next [`Lanes::work`] says so, too.
    fn close(&mut self, id: LinkId);

    /// True if nothing has come or gone for a while.
    fn rests(&mut self, now: u64) -> bool;

    /// From here on [`Lanes::fd`] tells of entries, too, until the next [`Lanes::poll`]. True if some are there
    /// already: then it tells nothing.
    fn arm(&mut self) -> bool;

    /// True if somebody who sleeps may rely on [`Lanes::arm`] in vain, because of a [`Lanes::poll`] since. Once.
    fn was_disarmed(&mut self) -> bool;

    /// [`Lanes::arm`] for somebody who sleeps already: if entries are there, [`Lanes::fd`] is readable.
    fn rearm(&mut self);

    /// The time of the next [`Lanes::work`], if nothing arrives before.
    fn next_ns(&self) -> Option<u64>;

    /// Number of links.
    fn links(&self) -> usize;

    /// Readable when there may be something for [`Lanes::work`] or, after [`Lanes::arm`], for
    /// [`Lanes::poll`].
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}
