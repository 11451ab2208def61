//! Memory that goes back to its owner while datagrams may be on their way out of it.

use erd_port::PinId;
use erd_port::udp::Shares;
use erd_port::verbs::{SETTLE_NS, VerbsPort};
use erd_sys::clock::monotonic_ns;
use std::net::SocketAddr;
use std::sync::Arc;

/// Sees to it that no datagram of an operation that fails is on its way out of its memory: who owns that is
/// about to have it back, while the peer may not know of an end.
pub(super) struct Settling {
    port: Option<Arc<VerbsPort>>,
    /// What peers read where it lies.
    shares: Option<Arc<Shares>>,
    /// Memory of which nothing has been sent since.
    done: Vec<PinId>,
    /// Datagrams under way are thrown away then: all operations of a step wait once.
    until_ns: u64,
}

impl Settling {
    pub(super) fn new(port: Option<Arc<VerbsPort>>, shares: Option<Arc<Shares>>) -> Settling {
        Settling { port, shares, done: Vec::new(), until_ns: 0 }
    }

    /// The peer called `name` may read payloads where they lie.
    pub(super) fn reaches(&self, name: SocketAddr) -> bool {
        self.shares.as_ref().is_some_and(|shares| shares.reaches(name))
    }

    /// Datagrams are about to be sent.
    pub(super) fn sends(&mut self) {
        self.done.clear();
    }

    /// Something waited, so that it is later than it was.
    pub(super) fn has_waited(&self) -> bool {
        !self.done.is_empty()
    }

    /// An operation fails: peers that have not read its payload are not to read it any more.
    pub(super) fn recall(&self) {
        self.shares.iter().for_each(|shares| shares.recall());
    }

    /// Waits until datagrams from this memory are sent, or thrown away.
    pub(super) fn settle(&mut self, memory: Option<PinId>) {
        let (Some(port), Some(memory)) = (&self.port, memory) else { return };
        if self.done.is_empty() {
            self.until_ns = monotonic_ns() + SETTLE_NS;
        }
        if !self.done.contains(&memory) {
            port.settle(memory, self.until_ns);
            self.done.push(memory);
        }
    }
}
