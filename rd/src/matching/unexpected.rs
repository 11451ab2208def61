//! Messages of one kind, tagged or untagged, that no receive has met.
//!
//! A short list is walked. In a longer one a search goes by the index of its [`Class`], which groups messages by what
//! the class looks at. The index begins empty, and covers the list from its head to some message. A search that finds
//! nothing there goes on behind, and takes what it passes into the index. So a class passes each message once.
//!
//! A message that arrives costs nothing but its place in the list.

use super::hashing::{Class, Hashing, Part};
use super::index::{ENTRY_BYTES, Index};
use super::list::{FEW, List, QueueFull, SHORT, grown_len};
use super::pattern::{Pattern, Senders, Source, TagMask};
use super::steps;
use alloc::vec::Vec;

/// Most indexes of a list.
pub(super) const INDEXES_MAX: usize = 8;
/// Entries of the list above which its memory goes back once it is empty.
const KEPT: usize = 1 << 10;
/// An index is made at the cost of so many steps of a search for each message.
const INDEX_COST: usize = 8;

struct Unexpected<S, U> {
    source: S,
    tag: u64,
    entry: U,
}

/// The index of a class.
struct ByClass {
    class: Class,
    /// The part of the ignored bits in a hash.
    part: Part,
    index: Index,
    /// The last message in the index, which has those before it, too.
    covered: Option<u32>,
    /// When it was last asked, in the list's searches.
    asked: u64,
}

/// See the module's text.
pub(super) struct UnexpectedQueue<S: Source, U> {
    list: List<Unexpected<S, U>>,
    /// The first `live` are in use, and the others are empty.
    indexes: Vec<ByClass>,
    live: usize,
    /// Searches of a long list until now.
    searches: u64,
    /// Messages passed, since an index was last dropped, by searches without one.
    passed: usize,
}

impl<S: Source, U> UnexpectedQueue<S, U> {
    pub fn new(max: u32) -> Self {
        Self { list: List::new(max), indexes: Vec::new(), live: 0, searches: 0, passed: 0 }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Memory, in bytes, that the next message takes: 0 unless the list must grow, and the indexes with it.
    pub fn growth_bytes(&self) -> usize {
        let indexes_bytes = self.live * ENTRY_BYTES * grown_len(self.list.len());
        if self.list.is_full() { self.list.growth_bytes() + indexes_bytes } else { 0 }
    }

    pub fn push(&mut self, source: S, tag: u64, entry: U) -> Result<u32, QueueFull> {
        let grows = self.list.is_full();
        let slot = self.list.push(Unexpected { source, tag, entry })?;
        if grows {
            self.grow_indexes();
        }
        Ok(slot)
    }

    /// The first message that a receive with this pattern takes.
    pub fn find(
        &mut self,
        hashing: &Hashing,
        pattern: &Pattern<S>,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Option<u32> {
        if self.list.len() <= SHORT {
            return self.list.find(|message| message.is_for(pattern));
        }
        self.find_in_many(hashing, pattern, has_room)
    }

    /// The same in a long list.
    // It stays out of the way of a short one, and so does `leave`.
    #[inline(never)]
    fn find_in_many(
        &mut self,
        hashing: &Hashing,
        pattern: &Pattern<S>,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Option<u32> {
        self.searches += 1;
        let class = Class { kind: pattern.from.kind(), ignore: pattern.mask().ignore };
        let known = self.indexes[..self.live].iter().position(|by| by.class == class);
        // A receive from anyone often takes the first message. It needs no index for that.
        let near = if known.is_some() { 1 } else { SHORT };
        let found = self.list.iter().take(near).find(|(_, message)| message.is_for(pattern));
        if let Some((slot, _)) = found {
            return Some(slot);
        }
        match known.or_else(|| self.begin(hashing, class, has_room)) {
            Some(at) => {
                self.indexes[at].asked = self.searches;
                self.indexes[at].find(&self.list, hashing, pattern)
            }
            None => self.pass(pattern),
        }
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut U {
        &mut self.list.get_mut(slot).entry
    }

    pub fn remove(&mut self, slot: u32) -> U {
        if self.live > 0 {
            self.leave(slot);
        }
        let message = self.list.remove(slot);
        if self.list.len() == 0 && self.list.capacity() > KEPT {
            self.give_back();
        }
        message.entry
    }

    /// Takes out all messages that `wanted` picks, in order.
    pub fn take(&mut self, mut wanted: impl FnMut(S, &U) -> bool) -> Vec<U> {
        let mut taken = Vec::new();
        let mut next = self.list.first();
        while let Some(slot) = next {
            next = self.list.after(slot);
            let message = self.list.get(slot);
            if wanted(message.source, &message.entry) {
                taken.push(self.remove(slot));
            }
        }
        taken
    }

    /// Takes a message out of the indexes before it goes, and all others if they are few.
    #[inline(never)]
    fn leave(&mut self, slot: u32) {
        for by in &mut self.indexes[..self.live] {
            if by.index.remove(slot) && by.covered == Some(slot) {
                by.covered = self.list.before(slot);
            }
        }
        if self.list.len() - 1 <= FEW {
            (0..self.live).rev().for_each(|at| self.drop_index(at));
        }
    }

    /// Finds without an index. Once such searches have cost as much as an index, the one that was asked longest ago
    /// makes room.
    fn pass(&mut self, pattern: &Pattern<S>) -> Option<u32> {
        let passed = &mut self.passed;
        let found = self.list.find(|message| {
            *passed += 1;
            message.is_for(pattern)
        });
        if self.live == INDEXES_MAX && self.passed > INDEX_COST * self.list.len() {
            self.passed = 0;
            let oldest = (0..self.live).min_by_key(|at| self.indexes[*at].asked);
            oldest.into_iter().for_each(|at| self.drop_index(at));
        }
        found
    }

    /// The place of a new index; `None` if there are too many, or too little memory.
    fn begin(
        &mut self,
        hashing: &Hashing,
        class: Class,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Option<usize> {
        let at = self.live;
        if at == INDEXES_MAX || !has_room(ENTRY_BYTES * self.list.capacity()) {
            return None;
        }
        let part = hashing.ignored(class.ignore);
        if at == self.indexes.len() {
            self.indexes.push(ByClass::new(class, part));
        }
        let by = &mut self.indexes[at];
        (by.class, by.part) = (class, part);
        if !by.index.reserve(self.list.capacity()) {
            by.index = Index::default();
            return None;
        }
        self.live += 1;
        Some(at)
    }

    /// Makes room in the indexes for all that the list has room for.
    fn grow_indexes(&mut self) {
        let slots = self.list.capacity();
        for at in (0..self.live).rev() {
            if !self.indexes[at].index.reserve(slots) {
                self.drop_index(at);
            }
        }
    }

    /// Empties an index, and keeps its memory for the next.
    fn drop_index(&mut self, at: usize) {
        let by = &mut self.indexes[at];
        while let Some(slot) = by.covered {
            by.index.remove(slot);
            by.covered = self.list.before(slot);
        }
        self.live -= 1;
        self.indexes.swap(at, self.live);
    }

    /// Gives the memory of an empty list back.
    fn give_back(&mut self) {
        self.list.give_back();
        self.indexes = Vec::new();
    }

    /// Bytes of its memory.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        let indexes_bytes: usize = self.indexes.iter().map(|by| by.index.bytes()).sum();
        self.list.bytes() + indexes_bytes
    }

    #[cfg(test)]
    pub fn indexes(&self) -> usize {
        self.live
    }

    /// What must stay true: an index has the messages up to the one that it covers, and no index in use has the class of
    /// another.
    #[cfg(test)]
    pub fn check(&self) {
        for (at, by) in self.indexes.iter().enumerate() {
            let covered =
                by.covered.and_then(|last| self.list.iter().position(|(slot, _)| slot == last));
            assert_eq!(by.covered.is_some(), covered.is_some(), "a message that waits");
            assert_eq!(by.index.check(), covered.map_or(0, |last| last + 1));
            assert!(at < self.live || by.covered.is_none(), "no index that nobody asks");
            let twins = self.indexes[..self.live].iter().filter(|other| other.class == by.class);
            assert!(at >= self.live || twins.count() == 1);
        }
    }
}

impl<S: Source, U> Unexpected<S, U> {
    fn is_for(&self, pattern: &Pattern<S>) -> bool {
        pattern.accepts(self.source, self.tag)
    }
}

impl ByClass {
    fn new(class: Class, part: Part) -> ByClass {
        ByClass { class, part, index: Index::default(), covered: None, asked: 0 }
    }

    fn find<S: Source, U>(
        &mut self,
        list: &List<Unexpected<S, U>>,
        hashing: &Hashing,
        pattern: &Pattern<S>,
    ) -> Option<u32> {
        let hash = self.hash(hashing, pattern.from, pattern.mask().tag);
        let known = self.index.first(hash, |slot| list.get(slot).is_for(pattern));
        if known.is_some() {
            return known;
        }
        let mut next = self.covered.map_or(list.first(), |last| list.after(last));
        while let Some(slot) = next {
            steps::count();
            let message = list.get(slot);
            if message.is_for(pattern) {
                return next;
            }
            self.cover(list, hashing, slot);
            next = list.after(slot);
        }
        None
    }

    /// Takes the next message of the list into the index.
    fn cover<S: Source, U>(&mut self, list: &List<Unexpected<S, U>>, hashing: &Hashing, slot: u32) {
        let Unexpected { source, tag, .. } = list.get(slot);
        let senders = self.class.kind.of(*source);
        let mask = TagMask { tag: *tag, ignore: self.class.ignore };
        let same = |other| {
            let other = list.get(other);
            senders.takes(other.source) && mask.accepts(other.tag)
        };
        let hash = self.hash(hashing, senders, *tag);
        let head = self.index.first(hash, same);
        self.index.push(slot, hash, head);
        self.covered = Some(slot);
    }

    fn hash<S: Source>(&self, hashing: &Hashing, senders: Senders<S>, tag: u64) -> u32 {
        hashing.tag(tag & !self.class.ignore, self.part).with(hashing.senders(senders))
    }
}
