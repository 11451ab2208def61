//! Posted receives of one kind, tagged or untagged.
//!
//! A short list is walked. A longer one has an index: each receive is in a group of those that ask for the same, and the
//! groups of one class are found by the hash of what a message shows that class. So a message looks at the first
//! receive of one group in each class, and the receive posted first wins among these.

use super::hashing::{Hashing, KINDS, Kind, Part};
use super::index::Index;
use super::list::{FEW, List, QueueFull, SHORT};
use super::pattern::{Pattern, Senders, Source};
use super::steps;
use alloc::vec::Vec;
use slab::Slab;

struct Posted<S: Source, R> {
    pattern: Pattern<S>,
    entry: R,
}

/// What the index says of a receive.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Those posted earlier have lower numbers.
    order: u64,
    /// The name of its mask.
    mask: u32,
}

/// The receives that ignore the same bits of tags.
struct Mask {
    ignore: u64,
    /// Its part of a hash.
    part: Part,
    /// Numbers of its receives, by kind of senders. Not all are 0.
    counts: [u32; KINDS.len()],
    name: u32,
}

/// The classes of the receives in an index. Those that differ in their kind of senders only are in one place.
#[derive(Default)]
struct Masks {
    all: Vec<Mask>,
    /// By name, which stays the same when others go: the place among all.
    places: Slab<usize>,
    /// Numbers of receives, by kind of senders.
    counts: [u32; KINDS.len()],
}

/// See the module's text.
pub(super) struct PostedQueue<S: Source, R> {
    list: List<Posted<S, R>>,
    /// All receives, if `is_indexed`; else none.
    index: Index,
    masks: Masks,
    /// By slot.
    known: Vec<Known>,
    is_indexed: bool,
    /// The number of the next receive in the index.
    order: u64,
}

impl<S: Source, R> PostedQueue<S, R> {
    pub fn new(max: u32) -> Self {
        Self {
            list: List::new(max),
            index: Index::default(),
            masks: Masks::default(),
            known: Vec::new(),
            is_indexed: false,
            order: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn push(
        &mut self,
        hashing: &Hashing,
        pattern: Pattern<S>,
        entry: R,
    ) -> Result<u32, QueueFull> {
        let slot = self.list.push(Posted { pattern, entry })?;
        if self.is_indexed || self.list.len() > SHORT {
            self.index(hashing, slot);
        }
        Ok(slot)
    }

    /// The first receive that takes a message.
    pub fn find(&self, hashing: &Hashing, source: S, tag: u64) -> Option<u32> {
        let takes = |posted: &Posted<S, R>| posted.pattern.accepts(source, tag);
        if !self.is_indexed {
            return self.list.find(takes);
        }
        // The first receive of all often matches: it is a buffer of many messages, or messages come in the order of
        // their receives.
        let first = self.list.first().filter(|slot| takes(self.list.get(*slot)));
        first.or_else(|| self.look_up(hashing, source, tag))
    }

    /// The first receive that `wanted` picks.
    pub fn search(&self, mut wanted: impl FnMut(&R) -> bool) -> Option<u32> {
        self.list.find(|posted| wanted(&posted.entry))
    }

    pub fn get_mut(&mut self, slot: u32) -> (&Pattern<S>, &mut R) {
        let posted = self.list.get_mut(slot);
        (&posted.pattern, &mut posted.entry)
    }

    pub fn remove(&mut self, slot: u32) -> (Pattern<S>, R) {
        if self.is_indexed {
            self.leave(slot);
        }
        let posted = self.list.remove(slot);
        (posted.pattern, posted.entry)
    }

    /// Takes out all receives from this source only, in order.
    pub fn take_from(&mut self, source: S) -> Vec<R> {
        let mut taken = Vec::new();
        // Peers decide how often sessions end, and most programs take messages from anyone.
        if self.is_indexed && self.masks.counts[Kind::One as usize] == 0 {
            return taken;
        }
        let mut next = self.list.first();
        while let Some(slot) = next {
            next = self.list.after(slot);
            if self.list.get(slot).pattern.from == Senders::One(source) {
                taken.push(self.remove(slot).1);
            }
        }
        taken
    }

    /// The first receive of the index that takes a message.
    // Apart from its callers the loop has the registers that it needs.
    #[inline(never)]
    fn look_up(&self, hashing: &Hashing, source: S, tag: u64) -> Option<u32> {
        let senders = KINDS.map(|kind| kind.of(source));
        let senders_parts = KINDS.map(|kind| match self.masks.counts[kind as usize] {
            0 => Part::default(),
            _ => hashing.senders(senders[kind as usize]),
        });
        let mut first = (u64::MAX, None);
        for mask in &self.masks.all {
            let part = hashing.tag(tag & !mask.ignore, mask.part);
            for kind in 0..KINDS.len() {
                if mask.counts[kind] == 0 {
                    continue;
                }
                steps::count();
                if let Some(head) = self.index.alike(part.with(senders_parts[kind])) {
                    first = first.min(self.first_of(head, mask.name, &senders[kind], tag));
                }
            }
        }
        first.1
    }

    /// The number and slot of the first receive that asks for these senders and this tag, if `head` begins a group with
    /// the same hash.
    // Few hashes are the same, so this stays out of the loop.
    #[inline(never)]
    fn first_of(&self, head: u32, mask: u32, senders: &Senders<S>, tag: u64) -> (u64, Option<u32>) {
        let found = self.index.first_of(head, |slot| self.asks_for(slot, mask, senders, tag));
        (found.map_or(u64::MAX, |slot| self.known[slot as usize].order), found)
    }

    /// True if a receive in the index has this mask, and asks for these senders and this tag.
    #[inline]
    fn asks_for(&self, slot: u32, mask: u32, senders: &Senders<S>, tag: u64) -> bool {
        let pattern = &self.list.get(slot).pattern;
        let same = self.known[slot as usize].mask == mask && pattern.from == *senders;
        same && pattern.mask().accepts(tag)
    }

    /// Puts the last receive into the index, or all of them if there is none.
    // A short list has none, so this stays out of its way, and so does `leave`.
    #[inline(never)]
    fn index(&mut self, hashing: &Hashing, last: u32) {
        let mut next = if self.is_indexed { Some(last) } else { self.list.first() };
        self.is_indexed = true;
        while let Some(slot) = next {
            self.enter(hashing, slot);
            next = self.list.after(slot);
        }
    }

    /// Puts a receive into the index.
    fn enter(&mut self, hashing: &Hashing, slot: u32) {
        let pattern = self.list.get(slot).pattern;
        let mask = pattern.mask();
        let (name, part) = self.masks.join(hashing, pattern.from.kind(), mask.ignore);
        if self.known.len() <= slot as usize {
            self.known.resize(slot as usize + 1, Known::default());
        }
        self.known[slot as usize] = Known { order: self.order, mask: name };
        self.order += 1;
        let part = hashing.tag(mask.tag & !mask.ignore, part);
        let hash = part.with(hashing.senders(pattern.from));
        let same = |other| self.asks_for(other, name, &pattern.from, mask.tag);
        let head = self.index.first(hash, same);
        self.index.push(slot, hash, head);
    }

    /// Takes a receive out of the index before it goes, and all others if they are few.
    #[inline(never)]
    fn leave(&mut self, slot: u32) {
        self.take_off(slot);
        if self.list.len() - 1 > FEW {
            return;
        }
        let mut next = self.list.first();
        while let Some(other) = next {
            if other != slot {
                self.take_off(other);
            }
            next = self.list.after(other);
        }
        self.is_indexed = false;
    }

    fn take_off(&mut self, slot: u32) {
        let was_there = self.index.remove(slot);
        debug_assert!(was_there, "all receives are in the index");
        let kind = self.list.get(slot).pattern.from.kind();
        self.masks.leave(kind, self.known[slot as usize].mask);
    }

    #[cfg(test)]
    pub fn is_indexed(&self) -> bool {
        self.is_indexed
    }

    /// Bytes of its memory.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let known_bytes = self.known.capacity() * size_of::<Known>();
        self.list.bytes() + self.index.bytes() + known_bytes
    }

    /// What must stay true: the index has all receives or none, and each mask those that it counts.
    #[cfg(test)]
    pub fn check(&self) {
        let len = if self.is_indexed { self.list.len() } else { 0 };
        assert_eq!(self.index.check(), len);
        for mask in &self.masks.all {
            let name = |slot: u32| self.known[slot as usize].mask;
            let own = || self.list.iter().filter(|(slot, _)| name(*slot) == mask.name);
            let counts = KINDS.map(|kind| {
                own().filter(|(_, posted)| posted.pattern.from.kind() == kind).count() as u32
            });
            assert_eq!((counts, counts != [0; KINDS.len()]), (mask.counts, true));
        }
        let counts = self.masks.all.iter().map(|mask| mask.counts);
        let sums = counts.fold([0; KINDS.len()], |sums, counts| {
            core::array::from_fn(|kind| sums[kind] + counts[kind])
        });
        assert_eq!((sums, sums.iter().sum::<u32>()), (self.masks.counts, len as u32));
        assert!(self.is_indexed || self.list.len() <= SHORT, "a long list has an index");
    }
}

impl Masks {
    /// The name of a mask, new if need be, and its part of a hash. It has one more receive.
    fn join(&mut self, hashing: &Hashing, kind: Kind, ignore: u64) -> (u32, Part) {
        self.counts[kind as usize] += 1;
        if let Some(mask) = self.all.iter_mut().find(|mask| mask.ignore == ignore) {
            mask.counts[kind as usize] += 1;
            return (mask.name, mask.part);
        }
        let (part, name) = (hashing.ignored(ignore), self.places.insert(self.all.len()) as u32);
        let mut counts = [0; KINDS.len()];
        counts[kind as usize] = 1;
        self.all.push(Mask { ignore, part, counts, name });
        (name, part)
    }

    /// The mask has one receive less.
    fn leave(&mut self, kind: Kind, name: u32) {
        self.counts[kind as usize] -= 1;
        let place = self.places[name as usize];
        let counts = &mut self.all[place].counts;
        counts[kind as usize] -= 1;
        if *counts == [0; KINDS.len()] {
            self.all.swap_remove(place);
            self.places.remove(name as usize);
            if let Some(moved) = self.all.get(place) {
                self.places[moved.name as usize] = place;
            }
        }
    }
}
