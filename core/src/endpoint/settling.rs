//! Settling: before memory goes back to its owner, waiting until no datagram is being sent from it.

use erd_port::PinId;
use erd_port::verbs::{SETTLE_NS, VerbsPort};
use erd_sys::clock::monotonic_ns;
use std::sync::Arc;

/// Makes sure that no datagram of a failing operation is being sent from its memory: the owner is about to get that
/// back, while the peer may not know of the end.
pub(super) struct Settling {
    port: Option<Arc<VerbsPort>>,
    /// Memory that was settled, and not sent from since.
    done: Vec<PinId>,
    /// Time at which datagrams under way are dropped: all operations of a step wait once.
    until_ns: u64,
}

impl Settling {
    pub(super) fn new(port: Option<Arc<VerbsPort>>) -> Settling {
        Settling { port, done: Vec::new(), until_ns: 0 }
    }

    /// Notes that datagrams are about to be sent.
    pub(super) fn sends(&mut self) {
        self.done.clear();
    }

    /// True if something waited, so the clock has moved.
    pub(super) fn has_waited(&self) -> bool {
        !self.done.is_empty()
    }

    /// Waits until datagrams from this memory are sent, or dropped.
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
