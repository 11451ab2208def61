//! What the loop asks of shared memory. [`LocalPort`] has it; a simulated host has it too, so that the loop that runs
//! over memory runs there as well.

use super::link::Fate;
use super::port::{Event, LinkId, LocalPort, Pulled, Reach};
use super::ring::Refused;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Hands the bytes of an entry, piece by piece, to what it gets.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&[u8]));

/// See [`LocalPort`]'s functions of the same names.
pub trait Lanes: Send {
    /// See [`LocalPort::reach`].
    fn reach(&mut self, name: SocketAddr, now: u64) -> Reach;

    /// See [`LocalPort::put`].
    fn put(
        &mut self,
        id: LinkId,
        kind: u8,
        len: usize,
        fill: Fill<'_>,
    ) -> Option<Result<u64, Refused>>;

    /// See [`LocalPort::starve`].
    fn starve(&mut self, id: LinkId);

    /// See [`LocalPort::read_by_peer`].
    fn read_by_peer(&mut self, id: LinkId) -> Option<u64>;

    /// See [`LocalPort::has_entries`].
    fn has_entries(&mut self, id: LinkId) -> bool;

    /// See [`LocalPort::pull`].
    ///
    /// # Safety
    /// As there.
    unsafe fn pull(
        &mut self,
        id: LinkId,
        from: &mut [libc::iovec],
        to: &mut [libc::iovec],
        len: usize,
    ) -> Pulled;

    /// See [`LocalPort::poll`].
    fn poll(&mut self, now: u64, f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate) -> usize;

    /// See [`LocalPort::work`].
    fn work(&mut self, now: u64, f: &mut dyn FnMut(Event));

    /// See [`LocalPort::break_off`].
    fn break_off(&mut self, id: LinkId);

    /// See [`LocalPort::close`].
    fn close(&mut self, id: LinkId);

    /// See [`LocalPort::rests`].
    fn rests(&mut self, now: u64) -> bool;

    /// See [`LocalPort::arm`].
    fn arm(&mut self) -> bool;

    /// See [`LocalPort::next_ns`].
    fn next_ns(&self) -> Option<u64>;

    /// See [`LocalPort::links`].
    fn links(&self) -> usize;

    /// See [`LocalPort::fd`].
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

impl Lanes for LocalPort {
    fn reach(&mut self, name: SocketAddr, now: u64) -> Reach {
        self.reach(name, now)
    }

    fn put(
        &mut self,
        id: LinkId,
        kind: u8,
        len: usize,
        fill: Fill<'_>,
    ) -> Option<Result<u64, Refused>> {
        self.put(id, kind, len, fill)
    }

    fn starve(&mut self, id: LinkId) {
        self.starve(id);
    }

    fn read_by_peer(&mut self, id: LinkId) -> Option<u64> {
        self.read_by_peer(id)
    }

    fn has_entries(&mut self, id: LinkId) -> bool {
        self.has_entries(id)
    }

    unsafe fn pull(
        &mut self,
        id: LinkId,
        from: &mut [libc::iovec],
        to: &mut [libc::iovec],
        len: usize,
    ) -> Pulled {
        // SAFETY: the caller's promise.
        unsafe { self.pull(id, from, to, len) }
    }

    fn poll(&mut self, now: u64, f: &mut dyn FnMut(LinkId, u8, &[u8]) -> Fate) -> usize {
        self.poll(now, f)
    }

    fn work(&mut self, now: u64, f: &mut dyn FnMut(Event)) {
        self.work(now, f);
    }

    fn break_off(&mut self, id: LinkId) {
        self.break_off(id);
    }

    fn close(&mut self, id: LinkId) {
        self.close(id);
    }

    fn rests(&mut self, now: u64) -> bool {
        self.rests(now)
    }

    fn arm(&mut self) -> bool {
        self.arm()
    }

    fn next_ns(&self) -> Option<u64> {
        self.next_ns()
    }

    fn links(&self) -> usize {
        self.links()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd())
    }
}
