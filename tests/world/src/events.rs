//! The events of a world, one after the other.

use super::net::{Datagram, Net};
use erd_rd::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event; `A` is the type of actions of applications and of the world.
#[derive(Debug)]
pub enum Event<A> {
    /// A datagram reaches its node.
    Arrive(Datagram),
    /// A node runs.
    Wake(usize),
    /// The kernel tells node `at` that nobody listens at node `dead`.
    Unreachable {
        /// Node that gets the report.
        at: usize,
        /// The dead node.
        dead: usize,
    },
    /// A router tells node `at` that a datagram to node `to` was too big.
    TooBig {
        /// Node that gets the report.
        at: usize,
        /// Node that the datagram was for.
        to: usize,
    },
    /// An action.
    Do(A),
}

/// An event with its place in the order of events.
struct Entry<A>(Nanos, u64, Event<A>);

impl<A> PartialEq for Entry<A> {
    fn eq(&self, other: &Entry<A>) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl<A> Eq for Entry<A> {}

impl<A> PartialOrd for Entry<A> {
    fn partial_cmp(&self, other: &Entry<A>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<A> Ord for Entry<A> {
    fn cmp(&self, other: &Entry<A>) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A run with more events than this does not end by itself.
const EVENTS_MAX: u64 = 20_000_000;

/// The events to come. Those of one moment come in the order in which they were entered.
pub struct Events<A> {
    queue: BinaryHeap<Reverse<Entry<A>>>,
    seq: u64,
    /// Events that have happened.
    pub handled: u64,
}

impl<A> Default for Events<A> {
    fn default() -> Events<A> {
        Events { queue: BinaryHeap::new(), seq: 0, handled: 0 }
    }
}

impl<A> Events<A> {
    /// Enters an event.
    pub fn push(&mut self, at: Nanos, event: Event<A>) {
        self.seq += 1;
        self.queue.push(Reverse(Entry(at, self.seq, event)));
    }

    /// The next event and its time; `None` if none comes up to `until`.
    pub fn next(&mut self, until: Nanos) -> Option<(Nanos, Event<A>)> {
        if self.queue.peek().is_none_or(|Reverse(entry)| entry.0 > until) {
            return None;
        }
        let Reverse(Entry(at, _, event)) = self.queue.pop()?;
        self.handled += 1;
        assert!(self.handled < EVENTS_MAX, "the run does not end");
        Some((at, event))
    }

    /// Hands a burst to the network, and enters the resulting events.
    pub fn send(&mut self, now: Nanos, net: &mut Net, burst: Vec<Datagram>) {
        for (at, datagram) in net.transmit(now, burst) {
            self.push(at, Event::Arrive(datagram));
        }
        for (at, to) in std::mem::take(&mut net.too_big) {
            self.push(now + net.links.delay_ns, Event::TooBig { at, to });
        }
    }
}
