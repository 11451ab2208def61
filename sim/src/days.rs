//! The days of a [`Calendar`](crate::calendar::Calendar): events that wait, by day, in no order.

use crate::time::Picos;
use std::cmp::Ordering;

/// Days that there are places for.
pub(crate) const DAYS: usize = 1 << 14;
/// Events of a block.
const BLOCK: usize = 32;
/// No block.
const NONE: u32 = u32::MAX;

/// First bit of the node in a key.
pub const NODE_SHIFT: u32 = 40;

/// An event with its place in the order.
#[derive(Clone, Copy, Debug)]
pub struct Entry<E> {
    /// When.
    pub at: Picos,
    /// Orders the events of one instant. Those with the same key are alike. Its upper bits are the node.
    pub key: u64,
    /// What.
    pub event: E,
}

impl<E> Entry<E> {
    pub(crate) fn order(&self) -> (Picos, u64) {
        (self.at, self.key)
    }

    pub(crate) fn node(&self) -> usize {
        (self.key >> NODE_SHIFT) as usize
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

/// Some events of one day: so many, and the block that was filled before, or the next free one.
#[derive(Clone, Copy, Debug)]
struct Block {
    events: u32,
    other: u32,
}

/// See the module. Each day has a chain of blocks, which are used again. There are as many as the most events that ever
/// waited need.
#[derive(Debug)]
pub(crate) struct Days<E> {
    /// The last block of each day.
    last: Vec<u32>,
    /// A bit for each day that has events.
    busy: Vec<u64>,
    blocks: Vec<Block>,
    /// Their events, [`BLOCK`] for each.
    events: Vec<Entry<E>>,
    /// The first free block.
    free: u32,
}

impl<E: Copy> Days<E> {
    pub(crate) fn new() -> Days<E> {
        Days {
            last: vec![NONE; DAYS],
            busy: vec![0; DAYS / 64],
            blocks: Vec::new(),
            events: Vec::new(),
            free: NONE,
        }
    }

    /// Enters an event of a day.
    pub(crate) fn put(&mut self, day: u64, entry: Entry<E>) {
        let slot = day as usize % DAYS;
        let mut at = self.last[slot];
        if at == NONE || self.blocks[at as usize].events == BLOCK as u32 {
            at = self.add_block(slot, entry);
        }
        let block = &mut self.blocks[at as usize];
        self.events[at as usize * BLOCK + block.events as usize] = entry;
        block.events += 1;
    }

    /// Gives a day one more block; `entry` is what a new one is filled with.
    fn add_block(&mut self, slot: usize, entry: Entry<E>) -> u32 {
        let other = self.last[slot];
        let at = match self.free {
            NONE => {
                self.events.resize(self.events.len() + BLOCK, entry);
                self.blocks.push(Block { events: 0, other });
                self.blocks.len() as u32 - 1
            }
            free => {
                let block = &mut self.blocks[free as usize];
                self.free = std::mem::replace(&mut block.other, other);
                block.events = 0;
                free
            }
        };
        self.busy[slot / 64] |= 1 << (slot % 64);
        self.last[slot] = at;
        at
    }

    /// The events of a day, the latest entered first.
    pub(crate) fn each(&self, day: u64) -> impl Iterator<Item = &Entry<E>> {
        let mut next = self.last[day as usize % DAYS];
        std::iter::from_fn(move || {
            let at = (next != NONE).then_some(next as usize)?;
            let block = &self.blocks[at];
            next = block.other;
            Some(self.events[at * BLOCK..][..block.events as usize].iter().rev())
        })
        .flatten()
    }

    /// Takes the events of a day that happen before `until` or then, the latest entered first.
    pub(crate) fn take(&mut self, day: u64, until: Picos, out: &mut Vec<Entry<E>>) {
        let slot = day as usize % DAYS;
        let mut next = std::mem::replace(&mut self.last[slot], NONE);
        self.busy[slot / 64] &= !(1 << (slot % 64));
        let mut stay = Vec::new();
        while next != NONE {
            let at = next as usize;
            let events = self.events[at * BLOCK..][..self.blocks[at].events as usize].iter().rev();
            for entry in events {
                if entry.at <= until { out.push(*entry) } else { stay.push(*entry) }
            }
            let block = &mut self.blocks[at];
            next = std::mem::replace(&mut block.other, self.free);
            self.free = at as u32;
        }
        for entry in stay.into_iter().rev() {
            self.put(day, entry);
        }
    }

    /// The first day with events, from `day` on.
    pub(crate) fn next_busy(&self, day: u64) -> Option<u64> {
        let first = day as usize % DAYS;
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
        Some(day + ahead as u64)
    }
}
