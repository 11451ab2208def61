//! The event queue. Events of one instant happen in the order in which they were entered, so that a run depends only on
//! its inputs.

use crate::ids::{HostId, LinkId};
use crate::time::Picos;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A link has sent the packet that it was sending.
    LinkSent(LinkId),
    /// The foremost packet on a link's wire arrives.
    LinkArrival(LinkId),
    /// A host has something to do: a timer is due, or a flow starts.
    HostWake(HostId),
}

/// An event with its time and the number of its entry, which orders those of one instant.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Picos,
    number: u64,
    event: Event,
}

impl Entry {
    /// Orders in one comparison.
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.number)
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, since the heap gives that first.
    fn cmp(&self, other: &Entry) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

/// The events to come. Links and hosts enter at most a few each, so it stays small.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Entry>,
    entered: u64,
}

impl EventQueue {
    /// Enters an event.
    pub fn push(&mut self, at: Picos, event: Event) {
        self.heap.push(Entry { at, number: self.entered, event });
        self.entered += 1;
    }

    /// Takes the next event, if it happens before `end` or then.
    pub fn pop_until(&mut self, end: Picos) -> Option<(Picos, Event)> {
        if self.heap.peek()?.at > end {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// How many events were entered so far.
    #[must_use]
    pub fn entered(&self) -> u64 {
        self.entered
    }
}
