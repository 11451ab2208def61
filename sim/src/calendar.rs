//! A calendar queue: events in the order of their time and, at one instant, of their key. A key depends on what happens
//! alone, never on when it was entered, so a run is the same however its parts are spread over threads.

use crate::time::Picos;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Days of the calendar: what lies further ahead waits in a heap.
const DAYS: usize = 1 << 14;
/// Days between two looks whether a day has the right length.
const REVIEW_DAYS: u32 = 4096;
/// Events of a day on average, beyond which days become shorter.
const CROWDED: u64 = 96;
/// Events of a day on average, below which days become longer.
const SPARSE: u64 = 8;
/// Shortest day, as a power of two in picoseconds.
const SHORTEST: u32 = 6;
/// Longest day: a millisecond.
const LONGEST: u32 = 30;
/// Most days whose memory is kept for the next ones.
const SPARE_MAX: usize = 1024;

/// An event with its place in the order.
#[derive(Clone, Copy, Debug)]
pub struct Entry<E> {
    /// When.
    pub at: Picos,
    /// Orders the events of one instant. Those with the same key are alike.
    pub key: u64,
    /// What.
    pub event: E,
}

impl<E> Entry<E> {
    fn order(&self) -> (Picos, u64) {
        (self.at, self.key)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Calendar<E> {
    /// Length of a day: two to this power, in picoseconds.
    length: u32,
    /// The day whose events are in `today`.
    day: u64,
    /// The last one comes first.
    today: Vec<Entry<E>>,
    days: Vec<Vec<Entry<E>>>,
    /// A bit for each day that has events.
    busy: Vec<u64>,
    /// Memory of days that are over.
    spare: Vec<Vec<Entry<E>>>,
    /// Events beyond the last day.
    far: BinaryHeap<Reverse<Entry<E>>>,
    /// Days and events since the last review.
    reviewed: (u32, u64),
    taken: u64,
}

impl<E: Copy> Default for Calendar<E> {
    fn default() -> Self {
        Calendar {
            length: 12,
            day: 0,
            today: Vec::new(),
            days: (0..DAYS).map(|_| Vec::new()).collect(),
            busy: vec![0; DAYS / 64],
            spare: Vec::new(),
            far: BinaryHeap::new(),
            reviewed: (0, 0),
            taken: 0,
        }
    }
}

impl<E: Copy> Calendar<E> {
    /// Enters an event. It may lie in the present, but not in the past.
    pub fn push(&mut self, at: Picos, key: u64, event: E) {
        let entry = Entry { at, key, event };
        let day = at >> self.length;
        if day <= self.day {
            let order = entry.order();
            let place = self.today.partition_point(|other| other.order() > order);
            self.today.insert(place, entry);
        } else if day - self.day < DAYS as u64 {
            self.put(day, entry);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    fn put(&mut self, day: u64, entry: Entry<E>) {
        let slot = day as usize % DAYS;
        let events = &mut self.days[slot];
        if events.is_empty() {
            self.busy[slot / 64] |= 1 << (slot % 64);
            if events.capacity() == 0 {
                *events = self.spare.pop().unwrap_or_default();
            }
        }
        events.push(entry);
    }

    /// Takes the next event, if it happens before `end` or then.
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

    /// When the next event happens.
    #[must_use]
    pub fn next_at(&self) -> Option<Picos> {
        if let Some(next) = self.today.last() {
            return Some(next.at);
        }
        let near = self
            .next_busy_day()
            .and_then(|day| self.days[day as usize % DAYS].iter().map(|entry| entry.at).min());
        near.into_iter().chain(self.far.peek().map(|entry| entry.0.at)).min()
    }

    /// Events taken so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Begins the next day that has events, unless it begins after `end`.
    fn turn_to_next_day(&mut self, end: Picos) -> Option<()> {
        if self.reviewed.0 >= REVIEW_DAYS {
            self.review();
        }
        let near = self.next_busy_day();
        let far = self.far.peek().map(|entry| entry.0.at >> self.length);
        let day = near.into_iter().chain(far).min()?;
        if day << self.length > end {
            return None;
        }
        self.day = day;
        let slot = day as usize % DAYS;
        if near == Some(day) {
            self.busy[slot / 64] &= !(1 << (slot % 64));
            let over = std::mem::replace(&mut self.today, std::mem::take(&mut self.days[slot]));
            if self.spare.len() < SPARE_MAX {
                self.spare.push(over);
            }
        }
        while self.far.peek().is_some_and(|entry| entry.0.at >> self.length == day) {
            self.today.extend(self.far.pop().map(|entry| entry.0));
        }
        self.today.sort_unstable_by_key(|entry| Reverse(entry.order()));
        self.reviewed.0 += 1;
        self.reviewed.1 += self.today.len() as u64;
        Some(())
    }

    /// The first day after the present one with events, of those in the calendar.
    fn next_busy_day(&self) -> Option<u64> {
        let first = (self.day + 1) as usize % DAYS;
        let words = self.busy.len();
        let head = self.busy[first / 64] & (u64::MAX << (first % 64));
        let tail = (1..=words).map(|n| (first / 64 + n) % words);
        let slot = match head {
            // Once round: the first word's other bits come last.
            0 => tail.map(|word| (word, self.busy[word])).find(|(_, bits)| *bits != 0)?,
            bits => (first / 64, bits),
        };
        let slot = slot.0 * 64 + slot.1.trailing_zeros() as usize;
        let ahead = (slot + DAYS - first) % DAYS;
        Some(self.day + 1 + ahead as u64)
    }

    /// Makes days shorter or longer, so that each has a handful of events.
    fn review(&mut self) {
        let (days, events) = std::mem::take(&mut self.reviewed);
        let mean = events / u64::from(days);
        let length = match mean {
            CROWDED.. if self.length > SHORTEST => self.length - 1,
            ..SPARSE if self.length < LONGEST => self.length + 1,
            _ => return,
        };
        debug_assert!(self.today.is_empty(), "between two days");
        // The present day is over: whatever comes is later.
        let begin = (self.day + 1) << self.length;
        let far = self.far.drain().map(|entry| entry.0);
        let all: Vec<Entry<E>> = self.days.iter_mut().flat_map(std::mem::take).chain(far).collect();
        self.busy.fill(0);
        self.length = length;
        self.day = (begin >> length).saturating_sub(1);
        for Entry { at, key, event } in all {
            self.push(at, key, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    /// Events near, far and at once come in order, whatever the calendar does with its days.
    #[test]
    fn events_come_in_order_of_time_and_key() {
        let mut rng = Pcg64::seed_from_u64(5);
        let mut calendar = Calendar::default();
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
}
