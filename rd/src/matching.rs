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
//! A key stays valid until its entry is removed. A match at the head of a queue costs one
//! comparison; removal by key costs the same anywhere.

use crate::units::{KeyIndex, PeerId};
use alloc::vec::Vec;
use core::fmt::Debug;
use slab::Slab;

/// An owner's name of a source.
pub trait Source: Copy + Eq {
    /// A name of a key.
    type Key: Copy + Eq + Debug;

    /// The key that the source and the receiver use.
    fn key(self) -> Self::Key;
}

impl Source for PeerId {
    type Key = KeyIndex;

    fn key(self) -> KeyIndex {
        self.key
    }
}

/// Sources that a receive takes messages from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Senders<S: Source> {
    /// Any.
    Any,
    /// Those with this key.
    Key(S::Key),
    /// This one.
    One(S),
}

impl<S: Source> Senders<S> {
    fn takes(self, source: S) -> bool {
        match self {
            Senders::Any => true,
            Senders::Key(key) => source.key() == key,
            Senders::One(wanted) => source == wanted,
        }
    }
}

/// Messages that a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern<S: Source> {
    /// Their sources.
    pub from: Senders<S>,
    /// Tag and mask of ignored bits; `None` takes untagged messages.
    pub tag: Option<TagMask>,
}

/// A tag, with a mask of bits that do not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagMask {
    /// The tag wanted.
    pub tag: u64,
    /// Bits that may differ.
    pub ignore: u64,
}

impl TagMask {
    /// True if a message's `tag` differs in ignored bits only.
    #[must_use]
    pub const fn accepts(self, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0
    }
}

impl<S: Source> Pattern<S> {
    /// True if a message from `source` with `tag` may be received. Both must be tagged, or none:
    /// the matcher compares within one kind only.
    fn accepts(&self, source: S, tag: u64) -> bool {
        self.from.takes(source) && self.tag.is_none_or(|mask| mask.accepts(tag))
    }
}

/// Names an entry of a [`Matcher`] until the entry is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    tagged: bool,
    slot: u32,
}

/// A queue is at its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

struct Posted<S: Source, R> {
    pattern: Pattern<S>,
    entry: R,
}

struct Unexpected<S, U> {
    source: S,
    tag: u64,
    entry: U,
}

/// Queues of posted receives and of unexpected messages, tagged and untagged.
pub struct Matcher<S: Source, R, U> {
    posted: [Queue<Posted<S, R>>; 2],
    unexpected: [Queue<Unexpected<S, U>>; 2],
}

impl<S: Source, R, U> Matcher<S, R, U> {
    /// An empty matcher for at most `posted_max` receives and `unexpected_max` messages of each
    /// kind.
    #[must_use]
    pub fn new(posted_max: u32, unexpected_max: u32) -> Self {
        Self {
            posted: [Queue::new(posted_max), Queue::new(posted_max)],
            unexpected: [Queue::new(unexpected_max), Queue::new(unexpected_max)],
        }
    }

    /// Posted receives that have not been removed.
    #[must_use]
    pub fn posted_len(&self) -> usize {
        self.posted.iter().map(Queue::len).sum()
    }

    /// Unexpected messages that have not been removed.
    #[must_use]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.iter().map(Queue::len).sum()
    }

    /// Adds a receive behind those posted before it.
    ///
    /// # Errors
    /// [`QueueFull`] at the limit given to [`Matcher::new`].
    pub fn post(&mut self, pattern: Pattern<S>, entry: R) -> Result<Key, QueueFull> {
        let tagged = pattern.tag.is_some();
        let slot = self.posted[usize::from(tagged)].push(Posted { pattern, entry })?;
        Ok(Key { tagged, slot })
    }

    /// The first posted receive that takes a message from `source`.
    #[must_use]
    pub fn find_posted(&self, source: S, tag: Option<u64>) -> Option<Key> {
        let (tagged, wanted) = (tag.is_some(), tag.unwrap_or(0));
        let queue = &self.posted[usize::from(tagged)];
        let slot = queue.find(|posted| posted.pattern.accepts(source, wanted))?;
        Some(Key { tagged, slot })
    }

    /// The first posted receive of any kind that `wanted` picks.
    #[must_use]
    pub fn search_posted(&self, mut wanted: impl FnMut(&R) -> bool) -> Option<Key> {
        for tagged in [true, false] {
            let queue = &self.posted[usize::from(tagged)];
            if let Some(slot) = queue.find(|posted| wanted(&posted.entry)) {
                return Some(Key { tagged, slot });
            }
        }
        None
    }

    /// Takes out all receives from `source` only, in the order posted within a kind.
    pub fn take_posted(&mut self, source: S) -> Vec<R> {
        let pick = |posted: &Posted<S, R>| posted.pattern.from == Senders::One(source);
        take_all(&mut self.posted, pick).map(|posted| posted.entry).collect()
    }

    /// The owner's data of a posted receive.
    ///
    /// # Panics
    /// If the entry was removed.
    pub fn posted_mut(&mut self, key: Key) -> (&Pattern<S>, &mut R) {
        let posted = self.posted[usize::from(key.tagged)].get_mut(key.slot);
        (&posted.pattern, &mut posted.entry)
    }

    /// Takes a receive out: it is matched, used up or canceled.
    ///
    /// # Panics
    /// If the entry was removed before.
    pub fn remove_posted(&mut self, key: Key) -> (Pattern<S>, R) {
        let posted = self.posted[usize::from(key.tagged)].remove(key.slot);
        (posted.pattern, posted.entry)
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
        let slot = self.unexpected[usize::from(tagged)].push(Unexpected { source, tag, entry })?;
        Ok(Key { tagged, slot })
    }

    /// Memory, in bytes, that the next [`Matcher::push_unexpected`] takes: 0 unless its queue must grow.
    #[must_use]
    pub fn growth_bytes(&self, tagged: bool) -> usize {
        self.unexpected[usize::from(tagged)].growth_bytes()
    }

    /// The first unexpected message that a receive with this pattern takes.
    #[must_use]
    pub fn find_unexpected(&self, pattern: &Pattern<S>) -> Option<Key> {
        let tagged = pattern.tag.is_some();
        let queue = &self.unexpected[usize::from(tagged)];
        let slot = queue.find(|message| pattern.accepts(message.source, message.tag))?;
        Some(Key { tagged, slot })
    }

    /// Takes out all unexpected messages that `wanted` picks, in order of arrival within a kind.
    pub fn take_unexpected(&mut self, mut wanted: impl FnMut(S, &U) -> bool) -> Vec<U> {
        let pick = |message: &Unexpected<S, U>| wanted(message.source, &message.entry);
        take_all(&mut self.unexpected, pick).map(|message| message.entry).collect()
    }

    /// The owner's data of an unexpected message.
    ///
    /// # Panics
    /// If the entry was removed.
    pub fn unexpected_mut(&mut self, key: Key) -> &mut U {
        &mut self.unexpected[usize::from(key.tagged)].get_mut(key.slot).entry
    }

    /// Takes a message out: it is matched, claimed, discarded or void.
    ///
    /// # Panics
    /// If the entry was removed before.
    pub fn remove_unexpected(&mut self, key: Key) -> U {
        self.unexpected[usize::from(key.tagged)].remove(key.slot).entry
    }
}

fn take_all<'a, T>(
    queues: &'a mut [Queue<T>; 2],
    mut wanted: impl FnMut(&T) -> bool + 'a,
) -> impl Iterator<Item = T> + 'a {
    queues.iter_mut().flat_map(move |queue| queue.take(&mut wanted))
}

/// No link.
const NONE: u32 = u32::MAX;

/// An entry and its neighbours.
struct Node<T> {
    before: u32,
    after: u32,
    item: T,
}

/// A list in order of arrival, linked through a slab, so that an entry can be taken out anywhere.
struct Queue<T> {
    nodes: Slab<Node<T>>,
    head: u32,
    tail: u32,
    max: u32,
}

impl<T> Queue<T> {
    fn new(max: u32) -> Self {
        // The last index stands for no link.
        Self { nodes: Slab::new(), head: NONE, tail: NONE, max: max.min(NONE - 1) }
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn growth_bytes(&self) -> usize {
        let (len, capacity) = (self.nodes.len(), self.nodes.capacity());
        if len < capacity { 0 } else { 2 * (len + 4) * size_of::<Node<T>>() }
    }

    fn push(&mut self, item: T) -> Result<u32, QueueFull> {
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

    fn find(&self, mut wanted: impl FnMut(&T) -> bool) -> Option<u32> {
        let mut at = self.head;
        while at != NONE {
            let node = &self.nodes[at as usize];
            if wanted(&node.item) {
                return Some(at);
            }
            at = node.after;
        }
        None
    }

    /// Removes all entries that `wanted` picks, in one pass.
    fn take(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        let mut at = self.head;
        while at != NONE {
            let node = self.node(at);
            let (slot, after) = (at, node.after);
            if wanted(&node.item) {
                taken.push(self.remove(slot));
            }
            at = after;
        }
        taken
    }

    fn get_mut(&mut self, slot: u32) -> &mut T {
        &mut self.node(slot).item
    }

    fn remove(&mut self, slot: u32) -> T {
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

    fn node(&mut self, slot: u32) -> &mut Node<T> {
        &mut self.nodes[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::Rng;

    const ANY: Senders<u8> = Senders::Any;

    /// A source's key is its upper half.
    impl Source for u8 {
        type Key = KeyIndex;

        fn key(self) -> KeyIndex {
            KeyIndex(self >> 4)
        }
    }

    fn matcher() -> Matcher<u8, &'static str, &'static str> {
        Matcher::new(8, 8)
    }

    fn tagged(from: Senders<u8>, tag: u64, ignore: u64) -> Pattern<u8> {
        Pattern { from, tag: Some(TagMask { tag, ignore }) }
    }

    fn untagged(from: Senders<u8>) -> Pattern<u8> {
        Pattern { from, tag: None }
    }

    #[test]
    fn receive_posted_first_wins() {
        let mut matcher = matcher();
        let first = matcher.post(untagged(ANY), "first").unwrap();
        matcher.post(untagged(ANY), "second").unwrap();
        assert_eq!(matcher.find_posted(1, None), Some(first));
        assert_eq!(matcher.remove_posted(first).1, "first");
        let next = matcher.find_posted(1, None).unwrap();
        assert_eq!(matcher.remove_posted(next).1, "second");
        assert_eq!(matcher.find_posted(1, None), None);
        assert_eq!(matcher.posted_len(), 0);
    }

    #[test]
    fn source_tag_and_mask_decide() {
        let mut matcher = matcher();
        matcher.post(tagged(Senders::One(2), 7, 0), "from 2").unwrap();
        matcher.post(tagged(ANY, 0x10, 0x0f), "masked").unwrap();
        assert_eq!(matcher.find_posted(1, Some(7)), None, "another source");
        let exact = matcher.find_posted(2, Some(7)).unwrap();
        assert_eq!(*matcher.posted_mut(exact).1, "from 2");
        let masked = matcher.find_posted(1, Some(0x1c)).unwrap();
        assert_eq!(*matcher.posted_mut(masked).1, "masked");
        assert_eq!(matcher.find_posted(1, Some(0x2c)), None, "a bit outside the mask");
    }

    #[test]
    fn a_receive_from_a_key_takes_all_its_sources_and_no_other() {
        let mut matcher = matcher();
        matcher.post(untagged(Senders::Key(KeyIndex(1))), "of the key").unwrap();
        assert_eq!(matcher.find_posted(2, None), None);
        assert!(matcher.find_posted(0x12, None).is_some());
        matcher.push_unexpected(2, None, "other").unwrap();
        matcher.push_unexpected(0x13, None, "own").unwrap();
        let own = matcher.find_unexpected(&untagged(Senders::Key(KeyIndex(1)))).unwrap();
        assert_eq!(matcher.remove_unexpected(own), "own");
    }

    #[test]
    fn tagged_and_untagged_never_meet() {
        let mut matcher = matcher();
        matcher.post(untagged(ANY), "msg").unwrap();
        assert_eq!(matcher.find_posted(1, Some(0)), None);
        matcher.push_unexpected(1, Some(0), "tagged").unwrap();
        assert_eq!(matcher.find_unexpected(&untagged(ANY)), None);
        assert!(matcher.find_unexpected(&tagged(ANY, 5, u64::MAX)).is_some());
    }

    #[test]
    fn message_that_arrived_first_wins() {
        let mut matcher = matcher();
        matcher.push_unexpected(1, Some(3), "a").unwrap();
        matcher.push_unexpected(2, Some(3), "b").unwrap();
        matcher.push_unexpected(1, Some(4), "c").unwrap();
        let any = matcher.find_unexpected(&tagged(ANY, 3, 0)).unwrap();
        assert_eq!(matcher.remove_unexpected(any), "a");
        let directed = matcher.find_unexpected(&tagged(Senders::One(1), 0, u64::MAX)).unwrap();
        assert_eq!(matcher.remove_unexpected(directed), "c");
        assert_eq!(matcher.unexpected_len(), 1);
    }

    #[test]
    fn entry_can_stay_for_more_messages() {
        let mut matcher = matcher();
        let key = matcher.post(untagged(ANY), "buffer of many").unwrap();
        assert_eq!(matcher.find_posted(1, None), Some(key));
        *matcher.posted_mut(key).1 = "less room";
        assert_eq!(matcher.find_posted(2, None), Some(key));
        assert_eq!(matcher.remove_posted(key).1, "less room");
    }

    #[test]
    fn limits_hold_for_each_kind() {
        let mut matcher = Matcher::<u8, (), ()>::new(1, 1);
        matcher.post(untagged(ANY), ()).unwrap();
        assert_eq!(matcher.post(untagged(ANY), ()), Err(QueueFull));
        matcher.post(tagged(ANY, 1, 0), ()).unwrap();
        matcher.push_unexpected(1, None, ()).unwrap();
        assert_eq!(matcher.push_unexpected(1, None, ()), Err(QueueFull));
        matcher.push_unexpected(1, Some(1), ()).unwrap();
    }

    #[test]
    fn entries_are_found_by_what_the_owner_keeps() {
        let mut matcher = matcher();
        matcher.post(tagged(Senders::One(3), 1, 0), "x").unwrap();
        let any = matcher.post(untagged(ANY), "y").unwrap();
        assert_eq!(matcher.search_posted(|entry| *entry == "y"), Some(any));
        assert_eq!(matcher.search_posted(|entry| *entry == "z"), None);
    }

    #[test]
    fn a_sources_receives_and_messages_can_be_taken_out() {
        let mut matcher = matcher();
        for (source, name) in
            [(Senders::One(3), "a"), (ANY, "b"), (Senders::One(3), "c"), (Senders::One(4), "d")]
        {
            matcher.post(tagged(source, 1, 0), name).unwrap();
        }
        assert_eq!(matcher.take_posted(3), ["a", "c"]);
        let rest = [3, 4].map(|source| matcher.find_posted(source, Some(1)).unwrap());
        assert_eq!(*matcher.posted_mut(rest[0]).1, "b");
        assert_eq!((rest[0], matcher.posted_len()), (rest[1], 2), "links hold");
        for (source, name) in [(1, "p"), (2, "q"), (1, "r")] {
            matcher.push_unexpected(source, None, name).unwrap();
        }
        assert_eq!(matcher.take_unexpected(|source, _| source == 1), ["p", "r"]);
        assert_eq!(matcher.unexpected_len(), 1);
    }

    /// The linked queues agree with plain vectors over a long random run.
    #[test]
    fn agrees_with_a_plain_model() {
        let mut random = Pcg32::new(5, 11);
        let mut matcher = Matcher::<u8, u32, u32>::new(64, 64);
        let mut posted: VecDeque<(Pattern<u8>, u32)> = VecDeque::new();
        let mut unexpected: Vec<(u8, u64, u32)> = Vec::new();
        for step in 0..20_000_u32 {
            let (source, tag) =
                ([1, 2, 17][(random.next_u32() % 3) as usize], u64::from(random.next_u32() % 4));
            if random.next_u32().is_multiple_of(2) {
                let ignore = if random.next_u32().is_multiple_of(4) { 3 } else { 0 };
                let from = match random.next_u32() % 3 {
                    0 => Senders::Any,
                    1 => Senders::Key(source.key()),
                    _ => Senders::One(source),
                };
                let pattern = tagged(from, tag, ignore);
                let expected = unexpected.iter().position(|m| pattern.accepts(m.0, m.1));
                let got = matcher.find_unexpected(&pattern).map(|k| matcher.remove_unexpected(k));
                assert_eq!(got, expected.map(|at| unexpected.remove(at).2), "step {step}");
                if got.is_none() && matcher.post(pattern, step).is_ok() {
                    posted.push_back((pattern, step));
                }
            } else {
                let expected = posted.iter().position(|(p, _)| p.accepts(source, tag));
                let got = matcher.find_posted(source, Some(tag)).map(|k| matcher.remove_posted(k));
                let model = expected.and_then(|at| posted.remove(at));
                assert_eq!(got.map(|g| g.1), model.map(|m| m.1), "step {step}");
                if got.is_none() && matcher.push_unexpected(source, Some(tag), step).is_ok() {
                    unexpected.push((source, tag, step));
                }
            }
            assert_eq!(matcher.posted_len(), posted.len());
            assert_eq!(matcher.unexpected_len(), unexpected.len());
        }
    }
}
