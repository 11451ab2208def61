//! The order in which matched messages are reported as received.
//!
//! The engine reports a message as soon as all its bytes are there: a short one overtakes a long one before it, or one
//! that lost a packet. An application that numbers what it receives by the order of completions would mix them up. So
//! the owner of a receive queue reports the messages of one source in the order in which they were matched.
//!
//! Only eager messages take part. A rendezvous waits for its receiver, and takes as long as its length needs, so it
//! neither holds others back nor waits for them.
//!
//! The owner calls [`MatchOrder::matched`] with each match, except of a whole message that has none to wait for
//! ([`MatchOrder::is_clear`]), and [`MatchOrder::ended`] when the message is whole. It then reports what
//! [`MatchOrder::next`] returns, until that is nothing. It takes a failed message out by [`MatchOrder::failed`]. Before
//! that failure it reports all that [`MatchOrder::whole`] returns: these messages are there, and wait for one that may
//! never come.
//!
//! It keeps one entry for each match without a report, so the bound of those bounds it.

use crate::mutants::{Mutant, mutant};
use alloc::vec::Vec;
use slab::Slab;

/// Names an entry until it is reported or taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    source: u32,
    slot: u32,
}

/// No link.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    after: u32,
    whole: bool,
    entry: T,
}

/// The oldest and the newest entry of one source.
#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
}

/// See the module's text. `T` is the owner's data of a message.
#[derive(Debug)]
pub struct MatchOrder<T> {
    nodes: Slab<Node<T>>,
    /// By source. The numbers of sources are small, as they index the engine's table of peers.
    ends: Vec<Ends>,
}

impl<T> Default for MatchOrder<T> {
    fn default() -> Self {
        MatchOrder { nodes: Slab::new(), ends: Vec::new() }
    }
}

impl<T: Copy> MatchOrder<T> {
    /// Adds a matched message of `source`, behind its earlier ones.
    pub fn matched(&mut self, source: u32, entry: T) -> Place {
        if self.ends.len() <= source as usize {
            self.ends.resize(source as usize + 1, Ends { head: NONE, tail: NONE });
        }
        let slot = self.nodes.insert(Node { after: NONE, whole: false, entry }) as u32;
        let ends = &mut self.ends[source as usize];
        match ends.tail {
            NONE => ends.head = slot,
            tail => self.nodes[tail as usize].after = slot,
        }
        ends.tail = slot;
        Place { source, slot }
    }

    /// True if all messages of `source` are reported, so that one that is whole when matched can be, too.
    #[must_use]
    pub fn is_clear(&self, source: u32) -> bool {
        self.ends.get(source as usize).is_none_or(|ends| ends.head == NONE)
    }

    /// Marks a message as whole. [`MatchOrder::next`] returns it in its turn.
    pub fn ended(&mut self, place: Place) {
        self.nodes[place.slot as usize].whole = true;
    }

    /// The oldest message of `source`, taken out, if it is whole.
    pub fn next(&mut self, source: u32) -> Option<T> {
        if mutant(Mutant::ReportsOutOfMatchOrder) {
            return self.whole(source);
        }
        let head = self.ends.get(source as usize)?.head;
        if head == NONE || !self.nodes[head as usize].whole {
            return None;
        }
        self.unlink(source, NONE, head)
    }

    /// The oldest message of `source` that is whole, taken out.
    pub fn whole(&mut self, source: u32) -> Option<T> {
        let (before, slot) = self.find(source, |_, node| node.whole)?;
        self.unlink(source, before, slot)
    }

    /// Takes out a message that will never be whole.
    pub fn failed(&mut self, place: Place) {
        if let Some((before, slot)) = self.find(place.source, |slot, _| slot == place.slot) {
            self.unlink(place.source, before, slot);
        }
    }

    /// Number of unreported messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if everything is reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The first entry of `source` that is `wanted`, and the one before it.
    fn find(&self, source: u32, wanted: impl Fn(u32, &Node<T>) -> bool) -> Option<(u32, u32)> {
        let (mut before, mut at) = (NONE, self.ends.get(source as usize)?.head);
        while at != NONE {
            let node = &self.nodes[at as usize];
            if wanted(at, node) {
                return Some((before, at));
            }
            (before, at) = (at, node.after);
        }
        None
    }

    fn unlink(&mut self, source: u32, before: u32, slot: u32) -> Option<T> {
        let node = self.nodes.try_remove(slot as usize)?;
        let ends = &mut self.ends[source as usize];
        match before {
            NONE => ends.head = node.after,
            before => self.nodes[before as usize].after = node.after,
        }
        if ends.tail == slot {
            ends.tail = before;
        }
        Some(node.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    fn all(order: &mut MatchOrder<u32>, source: u32) -> Vec<u32> {
        core::iter::from_fn(|| order.next(source)).collect()
    }

    #[test]
    fn whole_messages_wait_for_the_one_before_them() {
        let mut order = MatchOrder::default();
        let places: Vec<_> = (0..4).map(|at| order.matched(5, at)).collect();
        order.ended(places[1]);
        order.ended(places[3]);
        assert_eq!(all(&mut order, 5), []);
        order.ended(places[0]);
        assert_eq!(all(&mut order, 5), [0, 1]);
        order.ended(places[2]);
        assert_eq!(all(&mut order, 5), [2, 3]);
        assert!(order.is_empty());
    }

    #[test]
    fn sources_do_not_wait_for_each_other() {
        let mut order = MatchOrder::default();
        let (first, second) = (order.matched(0, 1), order.matched(1, 2));
        order.ended(second);
        assert_eq!((all(&mut order, 0), all(&mut order, 1)), (vec![], vec![2]));
        order.ended(first);
        assert_eq!(all(&mut order, 0), [1]);
        assert_eq!((all(&mut order, 7), order.whole(7)), (vec![], None), "nobody");
    }

    #[test]
    fn a_failure_lets_the_others_go() {
        let mut order = MatchOrder::default();
        let places: Vec<_> = (0..4).map(|at| order.matched(0, at)).collect();
        order.ended(places[1]);
        order.ended(places[3]);
        assert_eq!((order.whole(0), order.whole(0), order.whole(0)), (Some(1), Some(3), None));
        order.failed(places[2]);
        let last = order.matched(0, 4);
        order.failed(places[0]);
        assert_eq!(order.len(), 1);
        order.ended(last);
        assert_eq!(all(&mut order, 0), [4]);
    }

    #[test]
    fn random_calls_agree_with_a_list() {
        for seed in 0..200 {
            let mut rng = Pcg32::new(seed, 1);
            let mut order = MatchOrder::default();
            let mut model: Vec<VecDeque<(Place, u32, bool)>> = vec![VecDeque::new(); 3];
            for entry in 0..300 {
                let source = rng.next_u32() % 3;
                let list = &mut model[source as usize];
                let at = rng.next_u32() as usize % list.len().max(1);
                match rng.next_u32() % 8 {
                    0..=2 => list.push_back((order.matched(source, entry), entry, false)),
                    3..=5 if !list.is_empty() => {
                        list[at].2 = true;
                        order.ended(list[at].0);
                    }
                    6 if !list.is_empty() => {
                        let (place, ..) = list.remove(at).unwrap();
                        order.failed(place);
                    }
                    7 => {
                        let first = list.iter().position(|(_, _, whole)| *whole);
                        let wanted = first.and_then(|at| list.remove(at)).map(|found| found.1);
                        assert_eq!(order.whole(source), wanted);
                    }
                    _ => {}
                }
                while let Some((_, entry, true)) = list.front().copied() {
                    assert_eq!(order.next(source), Some(entry), "seed {seed}");
                    list.pop_front();
                }
                assert_eq!(order.next(source), None, "seed {seed}");
                assert_eq!(order.len(), model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }
}
