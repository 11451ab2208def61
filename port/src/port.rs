//! What carries datagrams, for those who do not care how.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::Burst;
use crate::udp::{NetError, Next, Plan, RxDatagram, SendReport, Taken};

/// The port of one endpoint: it receives at the endpoint's name, and sends over several paths.
///
/// [`Sockets`](crate::udp::Sockets) are UDP's. A simulated network implements it too, so that the loop
/// that runs over sockets runs there as well.
pub trait Port {
    /// Takes what has arrived, `budget` arrivals at most, and hands it to `f` datagram by datagram. Returns how
    /// many; 0 means that nothing is there.
    ///
    /// # Errors
    /// What the system reports, other than that nothing is there.
    fn recv(&mut self, budget: usize, f: impl FnMut(RxDatagram<'_>)) -> io::Result<usize>;

    /// Payload may be received straight into its place.
    fn takes_plans(&self) -> bool;

    /// Looks at what arrives next, and leaves it there ([`RxSocket::look_ahead`]).
    ///
    /// [`RxSocket::look_ahead`]: crate::udp::RxSocket::look_ahead
    ///
    /// # Errors
    /// As [`Port::recv`].
    fn look_ahead(
        &mut self,
        plan: &Plan,
        tail_bytes: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> io::Result<Next>;

    /// Takes one arrival, with its payloads received straight into the places of `plan`
    /// ([`RxSocket::recv_planned`]).
    ///
    /// [`RxSocket::recv_planned`]: crate::udp::RxSocket::recv_planned
    ///
    /// # Safety
    /// Every place of the plan can be written to and read from until this returns. Who else but `f`
    /// writes there may spoil what did not meet the plan.
    ///
    /// # Errors
    /// As [`Port::recv`].
    unsafe fn recv_planned(
        &mut self,
        plan: &Plan,
        is_expected: impl FnMut(usize, &[u8], &[u8]) -> bool,
        f: impl FnMut(RxDatagram<'_>),
    ) -> io::Result<Taken>;

    /// Bursts that it takes now, as far as it knows: no more are made ready for it.
    fn room(&self) -> usize;

    /// Sends `bursts` in order until one cannot be sent. Never blocks.
    ///
    /// # Safety
    /// Each part of each `iov` is readable for its length during the call. What [`Burst::sealed`] asks for
    /// holds afterwards.
    unsafe fn send(&mut self, bursts: &[Burst<'_>]) -> SendReport;

    /// Hands the network errors that have come in for earlier sends to `f`, a bounded number of them.
    fn drain_errors(&mut self, f: impl FnMut(SocketAddr, NetError));

    /// Hands the fds that tell of arrivals to `f`.
    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>));
}

/// What carries control packets beside a [`Port`], reliably and in order, to peers that have it too.
pub trait FramePort {
    /// Sends `bytes` to the peer at `to`. True means taken, not delivered; false that the caller is to use the
    /// port.
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool;

    /// Hands what has arrived to `f`, with where it came from; `f` says whether it was a peer's. Returns
    /// how many.
    ///
    /// # Errors
    /// What the system reports, other than that nothing is there.
    fn recv(&mut self, f: impl FnMut(&[u8], SocketAddr) -> bool) -> io::Result<usize>;

    /// When it is to be looked at, even if nothing arrives.
    fn next_ns(&self) -> Option<u64>;

    /// Hands the fds that tell of arrivals to `f`.
    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>));
}
