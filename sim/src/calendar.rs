//! A calendar queue: events in the order of their time and, at one instant, of their key. A key depends on what happens
//! alone, never on when it was entered, so a run is the same however its parts are spread over threads.
//!
//! A node acts on another one only after a while. Days that are no longer than that go node by node: a node's events of
//! the day come one after the other, in their order, and its memory is fetched once for all of them.

use crate::days::{DAYS, Days, Entry};
use crate::time::Picos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Days between two looks whether a day has the right length.
const REVIEW_DAYS: u32 = 4096;
/// Events of a day on average, beyond which days become shorter.
const CROWDED: u64 = 96;
/// Events of a day on average, below which days become longer.
const SPARSE: u64 = 8;
/// Shortest day, in picoseconds.
const SHORTEST_PS: Picos = 1 << 6;
/// Longest day: a millisecond.
const LONGEST_PS: Picos = 1 << 30;
/// Events at the end of a day among which most new ones belong.
const NEAR: usize = 16;
/// Nodes for each event of a day, beyond which a comparison of events is cheaper than a count for each node.
const NODES_PER_EVENT: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Calendar<E> {
    /// A node acts on another one no sooner than after this time.
    apart_ps: Picos,
    /// Length of a day.
    length_ps: Picos,
    /// All events before this are in `today`.
    begin: Picos,
    /// The day that this lies in: divisions take long.
    first_day: u64,
    /// The last one comes first.
    today: Vec<Entry<E>>,
    /// Those of the next day, while they are put in order.
    coming: Vec<Entry<E>>,
    days: Days<E>,
    /// Events beyond the last day.
    far: BinaryHeap<Reverse<Entry<E>>>,
    /// Where the next event of each node goes, while a day is put in order.
    places: Vec<u32>,
    /// Days and events since the last review.
    reviewed: (u32, u64),
    taken: u64,
}

impl<E: Copy> Calendar<E> {
    /// An empty calendar for so many nodes, which act on each other no sooner than after this time.
    #[must_use]
    pub fn new(nodes: u32, apart_ps: Picos) -> Calendar<E> {
        Calendar {
            apart_ps,
            length_ps: apart_ps.clamp(SHORTEST_PS, LONGEST_PS),
            begin: 0,
            first_day: 0,
            today: Vec::new(),
            coming: Vec::new(),
            days: Days::new(),
            far: BinaryHeap::new(),
            places: vec![0; nodes as usize],
            reviewed: (0, 0),
            taken: 0,
        }
    }

    /// From now on nodes act on each other at once.
    pub fn act_at_once(&mut self) {
        debug_assert!(self.today.is_empty(), "between two days");
        self.apart_ps = 0;
    }

    /// Days go node by node.
    fn goes_by_node(&self) -> bool {
        self.length_ps <= self.apart_ps
    }

    /// Enters an event. It may lie in the present, but not in the past.
    pub fn push(&mut self, at: Picos, key: u64, event: E) {
        let entry = Entry { at, key, event };
        if at < self.begin {
            let place = match self.goes_by_node() {
                true => place_in(&self.today, (entry.node(), entry.order()), |other| {
                    (other.node(), other.order())
                }),
                false => place_in(&self.today, entry.order(), Entry::order),
            };
            self.today.insert(place, entry);
            return;
        }
        let day = at / self.length_ps;
        if day - self.first_day < DAYS as u64 {
            self.days.put(day, entry);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// Takes the next event, if it happens before `end` or then. Where days go node by node, all events up to an `end`
    /// are taken before another one is given.
    pub fn pop_until(&mut self, end: Picos) -> Option<Entry<E>> {
        loop {
            if let Some(next) = self.today.last() {
                if next.at > end {
                    return None;
                }
                self.taken += 1;
                return self.today.pop();
            }
            self.turn_to_next_day(end)?;
        }
    }

    /// The next event, if it happens today. Days are short, but events of one instant are all of one day.
    #[must_use]
    pub fn today(&self) -> Option<&Entry<E>> {
        self.today.last()
    }

    /// All that is left of today, the next event first.
    pub fn rest_of_today(&self) -> impl Iterator<Item = &Entry<E>> {
        self.today.iter().rev()
    }

    /// A node acts on another one no sooner than after this time.
    #[must_use]
    pub fn apart_ps(&self) -> Picos {
        self.apart_ps
    }

    /// When the next event happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Picos> {
        if !self.today.is_empty() {
            return self.today.iter().map(|entry| entry.at).min();
        }
        let near = self.days.next_busy(self.first_day);
        let near = near.and_then(|day| self.days.each(day).map(|entry| entry.at).min());
        near.into_iter().chain(self.far.peek().map(|entry| entry.0.at)).min()
    }

    /// Events taken so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Begins the next day that has events, or what of it lies before `end`.
    fn turn_to_next_day(&mut self, end: Picos) -> Option<()> {
        if self.begin > end {
            return None;
        }
        if self.reviewed.0 >= REVIEW_DAYS {
            self.review();
        }
        let near = self.days.next_busy(self.first_day);
        let far = self.far.peek().map(|entry| entry.0.at / self.length_ps);
        let day = near.into_iter().chain(far).min()?;
        let first = day * self.length_ps;
        if first > end {
            return None;
        }
        let last = (first + (self.length_ps - 1)).min(end);
        self.begin = last + 1;
        self.first_day = self.begin / self.length_ps;
        if near == Some(day) {
            self.days.take(day, last, &mut self.coming);
        }
        while self.far.peek().is_some_and(|entry| entry.0.at <= last) {
            self.coming.extend(self.far.pop().map(|entry| entry.0));
        }
        self.reviewed.0 += 1;
        self.reviewed.1 += self.coming.len() as u64;
        self.arrange();
        Some(())
    }

    /// Puts what comes in order.
    fn arrange(&mut self) {
        let by_node = self.goes_by_node();
        let Calendar { today, coming, places, .. } = self;
        if !by_node || coming.len() * NODES_PER_EVENT < places.len() {
            std::mem::swap(today, coming);
            today.sort_unstable_by_key(|entry| {
                Reverse((if by_node { entry.node() } else { 0 }, entry.order()))
            });
            return;
        }
        places.fill(0);
        for entry in &*coming {
            places[entry.node()] += 1;
        }
        let mut before = 0;
        for place in places.iter_mut().rev() {
            before += std::mem::replace(place, before);
        }
        // Every place is written.
        today.resize(coming.len(), coming[0]);
        for entry in coming.drain(..) {
            let place = &mut places[entry.node()];
            today[*place as usize] = entry;
            *place += 1;
        }
        for events in today.chunk_by_mut(|one, other| one.node() == other.node()) {
            events.sort_unstable_by_key(|entry| Reverse(entry.order()));
        }
    }

    /// Makes days shorter or longer, so that each has a handful of events. Days that go node by node are never too long.
    fn review(&mut self) {
        let (days, events) = std::mem::take(&mut self.reviewed);
        let shortest_ps = self.apart_ps.clamp(SHORTEST_PS, LONGEST_PS);
        let length_ps = match events / u64::from(days) {
            CROWDED.. if self.length_ps > shortest_ps => (self.length_ps / 2).max(shortest_ps),
            ..SPARSE if self.length_ps < LONGEST_PS => self.length_ps * 2,
            _ => return,
        };
        debug_assert!(self.today.is_empty(), "between two days");
        let mut all: Vec<Entry<E>> = self.far.drain().map(|entry| entry.0).collect();
        while let Some(day) = self.days.next_busy(self.first_day) {
            self.days.take(day, Picos::MAX, &mut all);
        }
        self.length_ps = length_ps;
        self.first_day = self.begin / length_ps;
        for Entry { at, key, event } in all {
            self.push(at, key, event);
        }
    }
}

/// Where an entry belongs among others, of which the last one comes first. It is soon its turn: the place is searched for
/// from the end.
fn place_in<E, K: Ord>(others: &[Entry<E>], own: K, of: impl Fn(&Entry<E>) -> K) -> usize {
    let is_later = |other: &Entry<E>| of(other) > own;
    let mut from = others.len().saturating_sub(NEAR);
    while from > 0 && !is_later(&others[from]) {
        from = from.saturating_sub(NEAR.max(others.len() - from));
    }
    from + others[from..].partition_point(is_later)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::days::NODE_SHIFT;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    /// Events near, far and at once come in order, whatever the calendar does with its days.
    #[test]
    fn events_come_in_order_of_time_and_key() {
        let mut rng = Pcg64::seed_from_u64(5);
        let mut calendar = Calendar::new(1, 0);
        let mut model = BinaryHeap::new();
        let (mut now, mut key) = (0, 0);
        for round in 0..300_000_u64 {
            // Crowded and sparse phases, so that days change their length both ways.
            let busy = round / 50_000 % 2 == 0;
            for _ in 0..rng.next_u32() % if busy { 4 } else { 2 } {
                let shift = rng.next_u32() % if busy { 14 } else { 44 };
                let at = now + rng.next_u64() % (1 << shift);
                key += 1;
                calendar.push(at, key * 7919 % 1_000_003, key);
                model.push(Reverse((at, key * 7919 % 1_000_003, key)));
            }
            let end = now + rng.next_u64() % 100_000;
            let next = model.peek().filter(|next| next.0.0 <= end).copied();
            assert_eq!(calendar.next_at(), model.peek().map(|next| next.0.0));
            let taken = calendar.pop_until(end);
            assert_eq!(taken.map(|e| Reverse((e.at, e.key, e.event))), next, "round {round}");
            if next.is_some() {
                model.pop();
            }
            now = next.map_or(end, |next| next.0.0);
        }
        assert!(model.len() > 100 && calendar.taken() > 100_000, "something was left and taken");
    }

    /// Nodes that act on each other after a while: all that happens up to an end is taken, each node's events in order.
    #[test]
    fn short_days_go_node_by_node() {
        const NODES: u64 = 40;
        const APART_PS: Picos = 1000;
        let mut rng = Pcg64::seed_from_u64(6);
        let mut calendar = Calendar::new(NODES as u32, APART_PS);
        let mut model: Vec<BinaryHeap<_>> = (0..NODES).map(|_| BinaryHeap::new()).collect();
        let (mut end, mut number, mut most) = (0, 0, 0);
        for round in 0..2000_u64 {
            // Crowded and sparse phases: the one goes node by node, the other does not for long.
            let (busy, begin) = (round / 500 % 2 == 0, end);
            end += rng.next_u64() % (3 * APART_PS);
            let mut enter = |calendar: &mut Calendar<u64>, model: &mut Vec<_>, node, at| {
                number += 1;
                let key = (node << NODE_SHIFT) | (number * 7919 % 1_000_003);
                calendar.push(at, key, number);
                let of_node: &mut BinaryHeap<_> = &mut model[node as usize];
                of_node.push(Reverse((at, key, number)));
            };
            for _ in 0..if busy { 200 } else { 1 } {
                let shift = rng.next_u32() % if busy { 12 } else { 26 };
                let at = begin + 1 + rng.next_u64() % (1 << shift);
                enter(&mut calendar, &mut model, rng.next_u64() % NODES, at);
            }
            let mut run = 0;
            while let Some(taken) = calendar.pop_until(end) {
                let node = taken.node();
                let next = model[node].pop();
                assert_eq!(next, Some(Reverse((taken.at, taken.key, taken.event))));
                run = if calendar.today().is_some_and(|next| next.node() == node) {
                    run + 1
                } else {
                    0
                };
                most = most.max(run);
                if rng.next_u32() % 4 == 0 {
                    let soon = taken.at + rng.next_u64() % APART_PS;
                    enter(&mut calendar, &mut model, node as u64, soon);
                    let later = taken.at + APART_PS + rng.next_u64() % APART_PS;
                    enter(&mut calendar, &mut model, rng.next_u64() % NODES, later);
                }
            }
            let left = model.iter().filter_map(|of_node| of_node.peek()).map(|next| next.0.0);
            assert!(left.clone().all(|at| at > end), "all of round {round} was taken");
            assert_eq!(calendar.next_at(), left.min());
        }
        assert!(most > 10, "a node's events came together, {most} at most");
    }
}
