//! The event queue. Events of one instant happen in the order in which they were entered, so that a run depends only on
//! its inputs.

use crate::ids::{HostId, LinkId};
use crate::time::Picos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// A link has sent the packet that it was sending.
    LinkSent(LinkId),
    /// The foremost packet on a link's wire arrives.
    LinkArrival(LinkId),
    /// A host has something to do: a timer is due, or a flow starts.
    HostWake(HostId),
}

/// The events to come. Links and hosts enter at most a few each, so it stays small.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<(Picos, u64, Event)>>,
    entered: u64,
}

impl EventQueue {
    /// Enters an event.
    pub fn push(&mut self, at: Picos, event: Event) {
        self.heap.push(Reverse((at, self.entered, event)));
        self.entered += 1;
    }

    /// Takes the next event, if it happens before `end` or then.
    pub fn pop_until(&mut self, end: Picos) -> Option<(Picos, Event)> {
        let Reverse((at, _, _)) = self.heap.peek()?;
        if *at > end {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    /// How many events were entered so far.
    #[must_use]
    pub fn entered(&self) -> u64 {
        self.entered
    }
}
