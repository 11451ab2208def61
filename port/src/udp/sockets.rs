//! The sockets of one endpoint: its own to receive, and those of its domain to send.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{NetError, Next, Plan, RxDatagram, RxSocket, SendReport, Taken, TxSockets};
use crate::{Burst, Port};

/// See the module's text.
#[derive(Debug)]
pub struct Sockets {
    /// The endpoint's own socket.
    pub rx: RxSocket,
    /// The domain's sockets.
    pub tx: Arc<TxSockets>,
}

impl Port for Sockets {
    fn recv(&mut self, budget: usize, f: impl FnMut(RxDatagram<'_>)) -> io::Result<usize> {
        self.rx.recv(budget, f)
    }

    fn tampers(&self) -> bool {
        self.rx.has_faults()
    }

    fn look_ahead(
        &mut self,
        plan: &Plan,
        is_expected: impl FnOnce(&[u8]) -> bool,
    ) -> io::Result<Next> {
        self.rx.look_ahead(plan, is_expected)
    }

    unsafe fn recv_planned(
        &mut self,
        plan: &Plan,
        is_expected: impl FnMut(usize, &[u8]) -> bool,
        f: impl FnMut(RxDatagram<'_>),
    ) -> io::Result<Taken> {
        // SAFETY: the caller's promise.
        unsafe { self.rx.recv_planned(plan, is_expected, f) }
    }

    /// The kernel reports a full queue when the loop sends.
    fn room(&self) -> usize {
        usize::MAX
    }

    unsafe fn send(&mut self, bursts: &[Burst<'_>]) -> SendReport {
        // SAFETY: the caller's promise.
        unsafe { self.tx.send(bursts) }
    }

    fn drain_errors(&mut self, f: impl FnMut(SocketAddr, NetError)) {
        self.tx.drain_errors(f);
    }

    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>)) {
        f(self.rx.fd());
    }
}
