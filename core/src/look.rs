//! Looks: one poll of the many endpoints of a queue or counter, at no cost for those that are idle.
//!
//! An epoll set reports arrivals ([`crate::watch`]). An endpoint that has other work tells each of its looks as it
//! gives up its lock, so nobody has to ask it.
//!
//! Lock order: an endpoint's state, then its [`Teller`]'s list, then a [`Look`]'s times. A look holds
//! none of its own while it takes an endpoint's.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Never.
pub const NEVER_NS: u64 = u64::MAX;
/// Entries for each endpoint beyond which the heap is rebuilt.
const ENTRIES_PER_PLACE: usize = 4;
/// Entries that are always allowed.
const ENTRIES_FREE: usize = 64;

/// The due times of a look's endpoints. An endpoint may be due later than this says, never earlier.
#[derive(Default)]
struct Dues {
    /// Entries that do not carry their place's time in `told_ns` are stale.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// By place; [`NEVER_NS`] for those that have no entry.
    told_ns: Vec<u64>,
}

impl Dues {
    fn tell(&mut self, place: u32, at_ns: u64) {
        let index = place as usize;
        if index >= self.told_ns.len() {
            self.told_ns.resize(index + 1, NEVER_NS);
        }
        if at_ns >= self.told_ns[index] {
            return;
        }
        self.told_ns[index] = at_ns;
        if self.heap.len() > ENTRIES_PER_PLACE * self.told_ns.len() + ENTRIES_FREE {
            let told = self.told_ns.iter().zip(0..).filter(|(at, _)| **at != NEVER_NS);
            self.heap = told.map(|(at, place)| Reverse((*at, place))).collect();
        } else {
            self.heap.push(Reverse((at_ns, place)));
        }
    }

    /// The earliest time, after removal of stale entries.
    fn next_ns(&mut self) -> u64 {
        while let Some(&Reverse((at_ns, place))) = self.heap.peek() {
            if self.told_ns[place as usize] == at_ns {
                return at_ns;
            }
            self.heap.pop();
        }
        NEVER_NS
    }

    fn pop_due(&mut self, now: u64) -> Option<u32> {
        if self.next_ns() > now {
            return None;
        }
        let Reverse((_, place)) = self.heap.pop()?;
        self.told_ns[place as usize] = NEVER_NS;
        Some(place)
    }

    fn forget(&mut self, place: u32) {
        if let Some(told) = self.told_ns.get_mut(place as usize) {
            *told = NEVER_NS;
        }
    }
}

/// The times of one look.
#[derive(Default)]
pub struct Look {
    dues: Mutex<Dues>,
    /// The earliest of `dues`, written under its lock: a look before that time need not take the lock.
    next_ns: AtomicU64,
    count: AtomicU64,
}

impl Look {
    /// Counts a look. [`Teller::looks`] sums these counts.
    pub fn count(&self) {
        // A count lost between two threads does no harm.
        self.count.store(self.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The endpoint at `place` is due at `at_ns` at the latest.
    pub fn tell(&self, place: u32, at_ns: u64) {
        let mut dues = self.dues.lock();
        dues.tell(place, at_ns);
        self.next_ns.store(dues.next_ns(), Ordering::Relaxed);
    }

    /// Takes a place that is due, if there is one. Its endpoint tells its next time when it is called.
    pub(crate) fn pop_due(&self, now: u64) -> Option<u32> {
        if self.next_ns.load(Ordering::Relaxed) > now {
            return None;
        }
        let mut dues = self.dues.lock();
        let place = dues.pop_due(now);
        self.next_ns.store(dues.next_ns(), Ordering::Relaxed);
        place
    }

    /// Latest time (ns) at which the first endpoint is due.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Relaxed)
    }

    /// The endpoint at `place` has left.
    pub fn forget(&self, place: u32) {
        self.dues.lock().forget(place);
    }
}

/// An endpoint's announcements to its looks.
pub struct Teller {
    /// A time that all looks know, or an earlier one; 0 while there is nothing to tell.
    told_ns: AtomicU64,
    /// Bounded by the queues and counters that an endpoint is bound to.
    looks: Mutex<Vec<(Arc<Look>, u32)>>,
}

impl Default for Teller {
    fn default() -> Teller {
        Teller { told_ns: AtomicU64::new(0), looks: Mutex::default() }
    }
}

impl Teller {
    /// Adds `look`, which knows the endpoint as `place`. The endpoint is due at once.
    pub fn join(&self, look: &Arc<Look>, place: u32) {
        self.looks.lock().push((Arc::clone(look), place));
        self.told_ns.store(NEVER_NS, Ordering::Relaxed);
        self.tell(0);
    }

    /// The opposite of [`Teller::join`].
    pub fn leave(&self, look: &Arc<Look>) {
        let mut looks = self.looks.lock();
        looks.retain(|(other, place)| {
            let stays = !Arc::ptr_eq(other, look);
            if !stays {
                other.forget(*place);
            }
            stays
        });
        if looks.is_empty() {
            self.told_ns.store(0, Ordering::Relaxed);
        }
    }

    /// True if a time earlier than the looks know must be told.
    #[must_use]
    pub(crate) fn is_asked(&self) -> bool {
        self.told_ns.load(Ordering::Relaxed) != 0
    }

    /// Tells the looks that the endpoint is due at `at_ns`. The caller holds its lock, or passes 0.
    pub fn tell(&self, at_ns: u64) {
        // Before the looks are told: a look that takes the entry at once asks for the next.
        if self.told_ns.fetch_min(at_ns, Ordering::Relaxed) <= at_ns {
            return;
        }
        self.looks.lock().iter().for_each(|(look, place)| look.tell(*place, at_ns));
    }

    /// A look has taken its entry and is about to call the endpoint: the next due time must be told again.
    pub fn ask(&self) {
        self.told_ns.store(NEVER_NS, Ordering::Relaxed);
    }

    /// Sum of the counts of the endpoint's looks.
    #[must_use]
    pub fn looks(&self) -> u64 {
        let looks = self.looks.lock();
        looks.iter().map(|(look, _)| look.count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_due_comes_first_and_once() {
        let look = Look::default();
        for (place, at_ns) in [(0, 50), (1, 10), (2, 30), (1, 40)] {
            look.tell(place, at_ns);
        }
        assert_eq!(look.next_ns(), 10);
        assert_eq!(look.pop_due(9), None);
        assert_eq!(look.pop_due(35), Some(1), "a later time of the same place changes nothing");
        assert_eq!(look.pop_due(35), Some(2));
        assert_eq!(look.pop_due(35), None);
        assert_eq!(look.pop_due(50), Some(0));
        assert_eq!((look.pop_due(NEVER_NS - 1), look.next_ns()), (None, NEVER_NS));
    }

    #[test]
    fn an_earlier_time_takes_the_place_of_a_later() {
        let look = Look::default();
        look.tell(3, 100);
        look.tell(3, 20);
        assert_eq!(look.pop_due(20), Some(3));
        assert_eq!(look.pop_due(100), None, "the later entry is stale");
        look.tell(3, 100);
        look.forget(3);
        assert_eq!(look.pop_due(100), None, "who has left is not due");
    }

    #[test]
    fn stale_entries_are_bounded() {
        let mut dues = Dues::default();
        for at_ns in (1..100_000).rev() {
            dues.tell(0, at_ns);
            dues.tell(1, 2 * at_ns);
        }
        assert!(dues.heap.len() <= ENTRIES_PER_PLACE * 2 + ENTRIES_FREE + 1);
        assert_eq!((dues.pop_due(2), dues.pop_due(2), dues.pop_due(2)), (Some(0), Some(1), None));
    }

    #[test]
    fn an_endpoint_tells_all_its_looks_what_they_do_not_know() {
        let (one, other, teller) = (Arc::default(), Arc::default(), Teller::default());
        assert!(!teller.is_asked(), "nobody wants to know");
        teller.join(&one, 5);
        teller.join(&other, 7);
        let taken = |look: &Arc<Look>, now| {
            let place = look.pop_due(now);
            if place.is_some() {
                teller.ask();
            }
            place
        };
        assert_eq!((taken(&one, 0), taken(&other, 0)), (Some(5), Some(7)), "at once");
        assert!(teller.is_asked());
        teller.tell(100);
        teller.tell(200);
        assert_eq!((one.next_ns(), other.next_ns()), (100, 100));
        teller.tell(60);
        assert_eq!((taken(&one, 99), other.next_ns()), (Some(5), 60));
        teller.tell(300);
        assert_eq!((one.next_ns(), other.next_ns()), (300, 60), "the other looks once too often");
        one.count();
        other.count();
        assert_eq!(teller.looks(), 2);
        teller.leave(&one);
        assert_eq!((one.next_ns(), taken(&one, 300)), (300, None));
        teller.tell(70);
        assert_eq!(taken(&other, 70), Some(7));
        teller.leave(&other);
        assert!(!teller.is_asked());
    }
}
