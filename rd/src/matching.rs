//! Matching of arrived messages with posted receives (`fi_tagged(3)`, `fi_msg(3)`).
//!
//! A matcher is an object of its own, apart from any endpoint, so that a shared receive context may own one for many
//! endpoints. It is generic over its owner's names of sources (`S`), and over its owner's data of posted receives (`R`)
//! and unexpected messages (`U`).
//!
//! The engine reports messages in send order per source. The owner asks [`Matcher::find_posted`] with each: the receive
//! posted first wins. A message without a receive goes in with [`Matcher::push_unexpected`], and every new receive
//! first asks [`Matcher::find_unexpected`]: the message that arrived first wins. Tagged and untagged traffic never
//! meet.
//!
//! A key stays valid until its entry is removed.
//!
//! # Cost
//!
//! Receives of one class look at the same things: at the source, at its key or at neither, and at the same bits of the
//! tag.
//!
//! | call | cost |
//! | --- | --- |
//! | [`post`](Matcher::post), [`find_posted`](Matcher::find_posted) | linear in the classes of posted receives, whatever the number of receives |
//! | [`push_unexpected`](Matcher::push_unexpected) | constant |
//! | [`find_unexpected`](Matcher::find_unexpected) | each class passes each message once, and nothing else depends on the number of messages |
//! | [`remove_posted`](Matcher::remove_posted), [`remove_unexpected`](Matcher::remove_unexpected) | constant, wherever the entry is |
//! | [`search_posted`](Matcher::search_posted), [`take_posted`](Matcher::take_posted), [`take_unexpected`](Matcher::take_unexpected) | linear in the entries: only cancellations, ends of sessions and buffers of many messages call them |
//!
//! These costs are averages over many calls, as tables grow now and then. Lists of up to `SHORT` entries have no index,
//! since a walk costs less.
//!
//! The first search of a class is linear in the messages that wait, as nobody knows before what a receive will ask for.
//! At most `INDEXES_MAX` classes remember what they have passed. Other classes walk the list in each search. When
//! these walks have cost as much as an index, the index that was asked longest ago makes room. A search also walks the list if
//! the process has no memory for an index.
//!
//! Peers choose tags. The hash has a secret key, so no choice of tags puts many of them into one place.

mod hashing;
mod index;
mod list;
mod pattern;
mod posted;
mod steps;
#[cfg(test)]
mod tests;
mod unexpected;

use alloc::vec::Vec;
use hashing::Hashing;
pub use list::QueueFull;
pub use pattern::{Pattern, Senders, Source, TagMask};
use posted::PostedQueue;
use unexpected::UnexpectedQueue;

/// Names an entry of a [`Matcher`] until the entry is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    tagged: bool,
    slot: u32,
}

/// Queues of posted receives and of unexpected messages, tagged and untagged.
pub struct Matcher<S: Source, R, U> {
    posted: [PostedQueue<S, R>; 2],
    unexpected: [UnexpectedQueue<S, U>; 2],
    hashing: Hashing,
}

impl<S: Source, R, U> Matcher<S, R, U> {
    /// An empty matcher for at most `posted_max` receives and `unexpected_max` messages of each kind. No peer can guess
    /// `random`. It decides what searches cost, and nothing else.
    #[must_use]
    pub fn new(posted_max: u32, unexpected_max: u32, random: u64) -> Self {
        Self {
            posted: [PostedQueue::new(posted_max), PostedQueue::new(posted_max)],
            unexpected: [
                UnexpectedQueue::new(unexpected_max),
                UnexpectedQueue::new(unexpected_max),
            ],
            hashing: Hashing::new(random),
        }
    }

    /// Posted receives that have not been removed.
    #[must_use]
    pub fn posted_len(&self) -> usize {
        self.posted.iter().map(PostedQueue::len).sum()
    }

    /// Unexpected messages that have not been removed.
    #[must_use]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.iter().map(UnexpectedQueue::len).sum()
    }

    /// Adds a receive behind those posted before it.
    ///
    /// # Errors
    /// [`QueueFull`] at the limit given to [`Matcher::new`].
    pub fn post(&mut self, pattern: Pattern<S>, entry: R) -> Result<Key, QueueFull> {
        let tagged = pattern.tag.is_some();
        let slot = self.posted[usize::from(tagged)].push(&self.hashing, pattern, entry)?;
        Ok(Key { tagged, slot })
    }

    /// The first posted receive that takes a message from `source`.
    #[must_use]
    pub fn find_posted(&self, source: S, tag: Option<u64>) -> Option<Key> {
        let (tagged, wanted) = (tag.is_some(), tag.unwrap_or(0));
        let slot = self.posted[usize::from(tagged)].find(&self.hashing, source, wanted)?;
        Some(Key { tagged, slot })
    }

    /// The first posted receive of any kind that `wanted` picks.
    #[must_use]
    pub fn search_posted(&self, mut wanted: impl FnMut(&R) -> bool) -> Option<Key> {
        for tagged in [true, false] {
            if let Some(slot) = self.posted[usize::from(tagged)].search(&mut wanted) {
                return Some(Key { tagged, slot });
            }
        }
        None
    }

    /// Takes out all receives from `source` only, in the order posted within a kind.
    pub fn take_posted(&mut self, source: S) -> Vec<R> {
        self.posted.iter_mut().flat_map(|queue| queue.take_from(source)).collect()
    }

    /// The owner's data of a posted receive.
    ///
    /// # Panics
    /// If the entry was removed.
    pub fn posted_mut(&mut self, key: Key) -> (&Pattern<S>, &mut R) {
        self.posted[usize::from(key.tagged)].get_mut(key.slot)
    }

    /// Takes a receive out: it is matched, used up or canceled.
    ///
    /// # Panics
    /// If the entry was removed before.
    pub fn remove_posted(&mut self, key: Key) -> (Pattern<S>, R) {
        self.posted[usize::from(key.tagged)].remove(key.slot)
    }

    /// Adds a message that no posted receive takes, behind those that arrived before it.
    ///
    /// # Errors
    /// [`QueueFull`] at the limit given to [`Matcher::new`].
    pub fn push_unexpected(
        &mut self,
        source: S,
        tag: Option<u64>,
        entry: U,
    ) -> Result<Key, QueueFull> {
        let (tagged, tag) = (tag.is_some(), tag.unwrap_or(0));
        let slot = self.unexpected[usize::from(tagged)].push(source, tag, entry)?;
        Ok(Key { tagged, slot })
    }

    /// Memory, in bytes, that the next [`Matcher::push_unexpected`] takes: 0 unless its queue must grow. The indexes of
    /// searches grow with it.
    #[must_use]
    pub fn growth_bytes(&self, tagged: bool) -> usize {
        self.unexpected[usize::from(tagged)].growth_bytes()
    }

    /// The first unexpected message that a receive with this pattern takes. A long queue remembers what the search has
    /// passed, for the next one of its class, if `has_room` says that there is memory for so many bytes more.
    #[must_use]
    pub fn find_unexpected(
        &mut self,
        pattern: &Pattern<S>,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Option<Key> {
        let tagged = pattern.tag.is_some();
        let queue = &mut self.unexpected[usize::from(tagged)];
        let slot = queue.find(&self.hashing, pattern, has_room)?;
        Some(Key { tagged, slot })
    }

    /// Takes out all unexpected messages that `wanted` picks, in order of arrival within a kind.
    pub fn take_unexpected(&mut self, mut wanted: impl FnMut(S, &U) -> bool) -> Vec<U> {
        self.unexpected.iter_mut().flat_map(|queue| queue.take(&mut wanted)).collect()
    }

    /// The owner's data of an unexpected message.
    ///
    /// # Panics
    /// If the entry was removed.
    pub fn unexpected_mut(&mut self, key: Key) -> &mut U {
        self.unexpected[usize::from(key.tagged)].get_mut(key.slot)
    }

    /// Takes a message out: it is matched, claimed, discarded or void.
    ///
    /// # Panics
    /// If the entry was removed before.
    pub fn remove_unexpected(&mut self, key: Key) -> U {
        self.unexpected[usize::from(key.tagged)].remove(key.slot)
    }
}
