//! Finds the first entry of a list with the same key as another: a hash table of groups. A group links the entries
//! with one key in the order in which they came.
//!
//! The index knows its entries by their slots in the list. Its user has the keys, and compares them.
//!
//! Groups with the same place in the table are chained. So few collisions of hashes are all that constant cost needs
//! (`hashing` has them), and memory follows from the number of groups alone. A table with open addressing needs more of
//! the hash. It also begins afresh after removals, at times that nobody can tell before.

use super::list::NONE;
use super::steps;
use alloc::vec::Vec;
use core::mem;

/// Before an entry: it is not in the index.
const OUTSIDE: u32 = NONE - 1;

/// The place of an entry in its group, and of its group in the table.
#[derive(Clone, Copy)]
struct Link {
    /// The entry before; the last of the group, if this is the first.
    before: u32,
    /// The entry after, or [`NONE`].
    after: u32,
    /// The first entry of the next group in the same place, or [`NONE`]. Only the first entry of a group has it.
    chained: u32,
    hash: u32,
}

const UNLINKED: Link = Link { before: OUTSIDE, after: NONE, chained: NONE, hash: 0 };

/// Most bytes of an index for each entry that [`Index::reserve`] makes room for.
pub(super) const ENTRY_BYTES: usize = size_of::<Link>() + 4 * size_of::<u32>();

/// See the module's text.
#[derive(Default)]
pub(super) struct Index {
    /// By slot.
    links: Vec<Link>,
    /// The first entries of groups, in a power of two places.
    places: Vec<u32>,
    /// Bits of a hash that the place does not depend on.
    shift: u32,
    groups: usize,
}

impl Index {
    /// Makes room for entries in all slots below `slots`. False if there is no memory for it.
    pub fn reserve(&mut self, slots: usize) -> bool {
        let count = places_for(slots);
        let (more_links, more) =
            (slots.saturating_sub(self.links.len()), count > self.places.len());
        let mut places = Vec::new();
        let fits = self.links.try_reserve_exact(more_links).is_ok()
            && (!more || places.try_reserve_exact(count).is_ok());
        if fits && more {
            self.spread(places, count);
        }
        fits
    }

    /// Moves the groups to `count` places, in this memory.
    fn spread(&mut self, mut places: Vec<u32>, count: usize) {
        places.resize(count, NONE);
        self.shift = u32::BITS - count.trailing_zeros();
        for mut head in mem::replace(&mut self.places, places) {
            while head != NONE {
                let next = self.links[head as usize].chained;
                self.chain(head);
                head = next;
            }
        }
    }

    /// The first entry of a group with this hash, for [`Index::first_of`].
    #[inline]
    pub fn alike(&self, hash: u32) -> Option<u32> {
        self.alike_from(*self.places.get(self.place(hash))?, hash)
    }

    /// The same for the groups from this one on, which have the same place.
    #[inline]
    fn alike_from(&self, head: u32, hash: u32) -> Option<u32> {
        let mut at = head;
        while at != NONE {
            steps::count();
            let link = &self.links[at as usize];
            if link.hash == hash {
                return Some(at);
            }
            at = link.chained;
        }
        None
    }

    /// The first entry of the group with a key, if `head` begins one with the same hash. `same` says whether an entry has
    /// the key.
    pub fn first_of(&self, head: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut alike = Some(head);
        while let Some(at) = alike
            && !same(at)
        {
            let link = &self.links[at as usize];
            alike = self.alike_from(link.chained, link.hash);
        }
        alike
    }

    /// The first entry with a key that has this hash.
    pub fn first(&self, hash: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        self.first_of(self.alike(hash)?, same)
    }

    /// Adds an entry behind those with its key, of which `head` is the first.
    pub fn push(&mut self, slot: u32, hash: u32, head: Option<u32>) {
        steps::count();
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, UNLINKED);
        }
        let link = Link { before: slot, hash, ..UNLINKED };
        if let Some(head) = head {
            let last = mem::replace(&mut self.links[head as usize].before, slot);
            self.links[last as usize].after = slot;
            self.links[slot as usize] = Link { before: last, ..link };
            return;
        }
        self.links[slot as usize] = link;
        self.groups += 1;
        if 2 * self.groups > self.places.len() {
            self.spread(Vec::new(), places_for(self.groups));
        }
        self.chain(slot);
    }

    /// Takes an entry out. False if it is not there.
    pub fn remove(&mut self, slot: u32) -> bool {
        steps::count();
        let Some(&link) = self.links.get(slot as usize) else { return false };
        if link.before == OUTSIDE {
            return false;
        }
        let is_first = self.links[link.before as usize].after == NONE;
        self.links[slot as usize] = UNLINKED;
        match (is_first, link.after) {
            (true, NONE) => {
                self.groups -= 1;
                self.replace(slot, link.hash, link.chained);
            }
            (true, next) => {
                let Link { before, chained, .. } = link;
                let links = &mut self.links[next as usize];
                (links.before, links.chained) = (before, chained);
                self.replace(slot, link.hash, next);
            }
            (false, NONE) => {
                self.links[link.before as usize].after = NONE;
                self.cut(slot, link);
            }
            (false, next) => {
                self.links[link.before as usize].after = next;
                self.links[next as usize].before = link.before;
            }
        }
        true
    }

    /// Puts a group into its place.
    fn chain(&mut self, head: u32) {
        let place = self.place(self.links[head as usize].hash);
        self.links[head as usize].chained = mem::replace(&mut self.places[place], head);
    }

    /// Puts `other` where `head`, with this hash, is among the first entries of groups.
    fn replace(&mut self, head: u32, hash: u32, other: u32) {
        let place = self.place(hash);
        let mut at = self.places[place];
        if at == head {
            self.places[place] = other;
            return;
        }
        while self.links[at as usize].chained != head {
            steps::count();
            at = self.links[at as usize].chained;
        }
        self.links[at as usize].chained = other;
    }

    /// The group whose last entry was `last` ends with the one before.
    fn cut(&mut self, last: u32, link: Link) {
        let mut head = self.places[self.place(link.hash)];
        while self.links[head as usize].before != last {
            steps::count();
            head = self.links[head as usize].chained;
        }
        self.links[head as usize].before = link.before;
    }

    fn place(&self, hash: u32) -> usize {
        (hash >> self.shift) as usize
    }

    /// What must stay true: the groups have all entries, once each. Returns their number.
    #[cfg(test)]
    pub fn check(&self) -> usize {
        let (mut count, mut groups) = (0, 0);
        for (place, &head) in self.places.iter().enumerate() {
            let mut head = head;
            while head != NONE {
                let first = self.links[head as usize];
                assert_eq!(self.place(first.hash), place);
                let (mut last, mut at) = (head, first.after);
                while at != NONE {
                    let link = self.links[at as usize];
                    assert_eq!((link.before, link.hash), (last, first.hash));
                    (last, at, count) = (at, link.after, count + 1);
                }
                assert_eq!(first.before, last);
                (head, count, groups) = (first.chained, count + 1, groups + 1);
            }
        }
        assert_eq!(self.links.iter().filter(|link| link.before != OUTSIDE).count(), count);
        assert_eq!(self.groups, groups);
        count
    }

    /// Bytes of its memory.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>() + self.places.capacity() * size_of::<u32>()
    }
}

/// Places for so many groups: two for each, or up to four. So most places that a search finds nothing in are empty.
fn places_for(groups: usize) -> usize {
    2 * groups.next_power_of_two()
}
