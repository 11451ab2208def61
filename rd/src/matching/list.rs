//! A list in the order in which its entries came, linked through a slab: an entry can be taken out anywhere.

use super::steps;
use slab::Slab;

/// Entries up to which a search walks a list. For one entry more an index costs less.
pub(super) const SHORT: usize = 16;
/// Entries at which a list drops its index. That is fewer than make one, so that few calls make or drop one.
pub(super) const FEW: usize = 4;

/// No link.
pub(super) const NONE: u32 = u32::MAX;

/// A queue is at its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

/// An entry and its neighbours.
struct Node<T> {
    before: u32,
    after: u32,
    item: T,
}

/// See the module's text. A slot names an entry until it is removed.
pub(super) struct List<T> {
    nodes: Slab<Node<T>>,
    head: u32,
    tail: u32,
    max: u32,
}

impl<T> List<T> {
    /// An empty list of at most `max` entries.
    pub fn new(max: u32) -> Self {
        // An index keeps the last two numbers for itself.
        Self { nodes: Slab::new(), head: NONE, tail: NONE, max: max.min(NONE - 2) }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Entries that have room, with those that are there. Each slot is less.
    pub fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// Memory, in bytes, that the next entry takes: 0 unless the list must grow.
    pub fn growth_bytes(&self) -> usize {
        if self.is_full() { grown_len(self.len()) * size_of::<Node<T>>() } else { 0 }
    }

    /// True if the list grows with the next entry.
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity()
    }

    pub fn push(&mut self, item: T) -> Result<u32, QueueFull> {
        if self.nodes.len() >= self.max as usize {
            return Err(QueueFull);
        }
        let slot = self.nodes.insert(Node { before: self.tail, after: NONE, item }) as u32;
        match self.tail {
            NONE => self.head = slot,
            tail => self.node(tail).after = slot,
        }
        self.tail = slot;
        Ok(slot)
    }

    /// The slot of the first entry.
    pub fn first(&self) -> Option<u32> {
        linked(self.head)
    }

    /// The slot of the entry before this one.
    pub fn before(&self, slot: u32) -> Option<u32> {
        linked(self.nodes[slot as usize].before)
    }

    /// The slot of the entry after this one.
    pub fn after(&self, slot: u32) -> Option<u32> {
        linked(self.nodes[slot as usize].after)
    }

    /// The first entry that `wanted` picks.
    pub fn find(&self, mut wanted: impl FnMut(&T) -> bool) -> Option<u32> {
        self.iter().find(|(_, item)| wanted(item)).map(|(slot, _)| slot)
    }

    /// All entries with their slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let slot = linked(at)?;
            steps::count();
            let node = &self.nodes[slot as usize];
            at = node.after;
            Some((slot, &node.item))
        })
    }

    pub fn get(&self, slot: u32) -> &T {
        &self.nodes[slot as usize].item
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        &mut self.node(slot).item
    }

    pub fn remove(&mut self, slot: u32) -> T {
        let node = self.nodes.remove(slot as usize);
        match node.before {
            NONE => self.head = node.after,
            before => self.node(before).after = node.after,
        }
        match node.after {
            NONE => self.tail = node.before,
            after => self.node(after).before = node.before,
        }
        node.item
    }

    /// Gives the memory of an empty list back.
    pub fn give_back(&mut self) {
        debug_assert!(self.nodes.is_empty(), "slots stay valid");
        self.nodes = Slab::new();
    }

    /// Bytes of its memory.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.capacity() * size_of::<Node<T>>()
    }

    fn node(&mut self, slot: u32) -> &mut Node<T> {
        &mut self.nodes[slot as usize]
    }
}

/// Entries that a full list of `len` has room for, or a little more, once it has grown.
pub(super) fn grown_len(len: usize) -> usize {
    2 * (len + 4)
}

fn linked(slot: u32) -> Option<u32> {
    (slot != NONE).then_some(slot)
}
