//! The traits of ports. The loop above them does not know which port it runs over.

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
    /// Takes at most `budget` arrivals, and hands them to `f` datagram by datagram. Returns the number of
    /// datagrams; 0 means that none is there.
    ///
    /// # Errors
    /// The system's error, unless it only means that nothing is there.
    fn recv(&mut self, budget: usize, f: impl FnMut(RxDatagram<'_>)) -> io::Result<usize>;

    /// True if nothing more has arrived, as far as the port knows without a look.
    fn is_drained(&self) -> bool {
        false
    }

    /// True if the port changes arrivals or holds them back, for a test. The fds do not report arrivals that it holds
    /// back, and the loop must not ask it to receive into planned places.
    fn tampers(&self) -> bool;

    /// Looks at the next arrival, and leaves it there ([`RxSocket::look_ahead`]).
    ///
    /// [`RxSocket::look_ahead`]: crate::udp::RxSocket::look_ahead
    ///
    /// # Errors
    /// As [`Port::recv`].
    fn look_ahead(
        &mut self,
        plan: &Plan,
        is_expected: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Next>;

    /// Takes one arrival, with its payloads received straight into the places of `plan`
    /// ([`RxSocket::recv_planned`]).
    ///
    /// [`RxSocket::recv_planned`]: crate::udp::RxSocket::recv_planned
    ///
    /// # Safety
    /// Every place of the plan can be written to and read from until this returns. If another thread writes there,
    /// an arrival that does not meet the plan may be spoiled.
    ///
    /// # Errors
    /// As [`Port::recv`].
    unsafe fn recv_planned(
        &mut self,
        plan: &Plan,
        is_expected: impl FnMut(usize, &[u8]) -> bool,
        f: impl FnMut(RxDatagram<'_>),
    ) -> io::Result<Taken>;

    /// The number of bursts that the port can take now, as far as it knows. The loop makes no more ready.
    fn room(&self) -> usize;

    /// Sends `bursts` in order until one cannot be sent. Never blocks.
    ///
    /// # Safety
    /// Each part of each `iov` is readable for its length during the call.
    unsafe fn send(&mut self, bursts: &[Burst<'_>]) -> SendReport;

    /// Hands a bounded number of network errors of earlier sends to `f`.
    fn drain_errors(&mut self, f: impl FnMut(SocketAddr, NetError));

    /// Hands the fds that report arrivals to `f`.
    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>));
}

/// A port for control packets beside a [`Port`]. It is reliable and in order, and reaches peers that have one too.
pub trait FramePort {
    /// Sends `bytes` to the peer at `to`. True means taken, not delivered. False means that the caller has to use
    /// the [`Port`].
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool;

    /// Hands each frame that has arrived to `f`, with its source; `f` returns whether a peer sent it. Returns the
    /// number of frames.
    ///
    /// # Errors
    /// The system's error, unless it only means that nothing is there.
    fn recv(&mut self, f: impl FnMut(&[u8], SocketAddr) -> bool) -> io::Result<usize>;

    /// The time of the next look, if nothing arrives before.
    fn next_ns(&self) -> Option<u64>;

    /// Hands the fds that report arrivals to `f`.
    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>));
}
