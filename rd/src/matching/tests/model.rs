//! Holds the matcher to a plain model over random calls: two vectors, in order, of which the first that fits wins.

use super::super::hashing::Hashing;
use super::super::list::{FEW, SHORT};
use super::super::posted::PostedQueue;
use super::super::unexpected::{INDEXES_MAX, UnexpectedQueue};
use super::super::{Key, Matcher, Pattern, QueueFull, Senders, Source, TagMask};
use alloc::vec::Vec;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Entries of each kind that the matchers here have room for.
const MAX: u32 = 64;
/// Calls of a run. Their lists grow and shrink some 20 times.
const CALLS: u32 = 12_000;
/// Calls after which lists that grew shrink, and the other way round.
const TURN: u32 = 300;
/// Sources, of two keys.
const SOURCES: &[u8] = &[1, 2, 17, 18];
/// Masks of ignored bits. With the kinds of senders there are more classes than indexes.
const MASKS: &[u64] = &[0, 1, 2, 3, u64::MAX];
/// Tags, of which some differ in ignored bits only.
const TAGS: u32 = 6;

/// The first that fits, in order, with what a matcher calls it.
#[derive(Default)]
struct Model {
    posted: Vec<(Pattern<u8>, u32, Key)>,
    unexpected: Vec<(u8, Option<u64>, u32, Key)>,
    /// What the run has come across: long lists of both kinds, all indexes in use, a full queue.
    met: [bool; 4],
}

struct Run {
    random: Pcg32,
    matcher: Matcher<u8, u32, u32>,
    model: Model,
    /// Masks in use.
    masks: usize,
    /// The name of the next entry.
    next: u32,
}

fn fits(pattern: &Pattern<u8>, source: u8, tag: Option<u64>) -> bool {
    let senders = match pattern.from {
        Senders::Any => true,
        Senders::Key(key) => source.key() == key,
        Senders::One(one) => one == source,
    };
    let tags = match (pattern.tag, tag) {
        (Some(mask), Some(tag)) => mask.tag | mask.ignore == tag | mask.ignore,
        (None, None) => true,
        _ => false,
    };
    senders && tags
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Pcg32::new(seed, 11);
        let masks = 1 + random.next_u32() as usize % MASKS.len();
        let matcher = Matcher::new(MAX, MAX, seed);
        Run { random, matcher, model: Model::default(), masks, next: 0 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.next_u32() as usize % end
    }

    fn source(&mut self) -> u8 {
        SOURCES[self.below(SOURCES.len())]
    }

    /// One message in eight is untagged.
    fn tag(&mut self) -> Option<u64> {
        (self.below(8) > 0).then(|| u64::from(self.random.next_u32() % TAGS))
    }

    fn pattern(&mut self) -> Pattern<u8> {
        let (source, kind) = (self.source(), self.below(3));
        let from = [Senders::Any, Senders::Key(source.key()), Senders::One(source)][kind];
        let ignore = MASKS[self.below(self.masks)];
        Pattern { from, tag: self.tag().map(|tag| TagMask { tag, ignore }) }
    }

    fn posted_at(&self, key: Option<Key>) -> Option<usize> {
        key.map(|key| self.model.posted.iter().position(|posted| posted.2 == key).expect("a key"))
    }

    fn unexpected_at(&self, key: Option<Key>) -> Option<usize> {
        let at = |key| self.model.unexpected.iter().position(|message| message.3 == key);
        key.map(|key| at(key).expect("a key"))
    }

    fn remove_posted(&mut self, at: usize) {
        let (pattern, name, key) = self.model.posted.remove(at);
        assert_eq!(self.matcher.remove_posted(key), (pattern, name));
    }

    fn remove_unexpected(&mut self, at: usize) {
        let (.., name, key) = self.model.unexpected.remove(at);
        assert_eq!(self.matcher.remove_unexpected(key), name);
    }

    fn post(&mut self, pattern: Pattern<u8>) {
        let kind =
            |posted: &&(Pattern<u8>, u32, Key)| posted.0.tag.is_some() == pattern.tag.is_some();
        let len = self.model.posted.iter().filter(kind).count();
        match self.matcher.post(pattern, self.next) {
            Ok(key) => self.model.posted.push((pattern, self.next, key)),
            Err(QueueFull) => assert_eq!(len, MAX as usize),
        }
        self.model.met[0] |= len > SHORT;
        self.next += 1;
    }

    fn push(&mut self, source: u8, tag: Option<u64>) {
        let kind = |message: &&(u8, Option<u64>, u32, Key)| message.1.is_some() == tag.is_some();
        let len = self.model.unexpected.iter().filter(kind).count();
        match self.matcher.push_unexpected(source, tag, self.next) {
            Ok(key) => self.model.unexpected.push((source, tag, self.next, key)),
            Err(QueueFull) => {
                assert_eq!(len, MAX as usize);
                self.model.met[3] = true;
            }
        }
        self.model.met[1] |= len > SHORT;
        self.next += 1;
    }

    /// A message comes. It meets a receive, which may stay for more messages, or is kept if `grows`.
    fn arrive(&mut self, grows: bool) {
        let (source, tag) = (self.source(), self.tag());
        let expected = self.model.posted.iter().position(|posted| fits(&posted.0, source, tag));
        let found = self.matcher.find_posted(source, tag);
        assert_eq!(self.posted_at(found), expected);
        match expected {
            Some(at) if !grows || self.below(4) > 0 => self.remove_posted(at),
            None if grows => self.push(source, tag),
            _ => {}
        }
    }

    /// A receive comes. It meets a message, which a peek leaves there, or is kept if `grows`.
    fn ask(&mut self, grows: bool) {
        let pattern = self.pattern();
        let expected =
            self.model.unexpected.iter().position(|message| fits(&pattern, message.0, message.1));
        let has_room = self.below(4) > 0;
        let found = self.matcher.find_unexpected(&pattern, |_| has_room);
        assert_eq!(self.unexpected_at(found), expected);
        match expected {
            Some(at) if !grows || self.below(4) > 0 => self.remove_unexpected(at),
            None if grows => self.post(pattern),
            _ => {}
        }
        let all = self.matcher.unexpected.iter().any(|queue| queue.indexes() == INDEXES_MAX);
        self.model.met[2] |= all;
    }

    /// The application cancels a receive, or drops a message, by what it knows of it.
    fn cancel(&mut self) {
        if !self.model.posted.is_empty() {
            let at = self.below(self.model.posted.len());
            let name = self.model.posted[at].1;
            let found = self.matcher.search_posted(|posted| *posted == name);
            assert_eq!(self.posted_at(found), Some(at));
            self.remove_posted(at);
        }
        if !self.model.unexpected.is_empty() {
            let at = self.below(self.model.unexpected.len());
            self.remove_unexpected(at);
        }
    }

    /// A session ends.
    fn end(&mut self) {
        let gone = self.source();
        let directed = |posted: &(Pattern<u8>, u32, Key)| posted.0.from == Senders::One(gone);
        let (posted, unexpected) = (&mut self.model.posted, &mut self.model.unexpected);
        let mut ended: Vec<_> = posted.extract_if(.., |posted| directed(posted)).collect();
        ended.sort_by_key(|posted| posted.0.tag.is_some());
        let names: Vec<u32> = ended.iter().map(|posted| posted.1).collect();
        assert_eq!(self.matcher.take_posted(gone), names);
        let mut void: Vec<_> = unexpected.extract_if(.., |message| message.0 == gone).collect();
        void.sort_by_key(|message| message.1.is_some());
        let names: Vec<u32> = void.iter().map(|message| message.2).collect();
        assert_eq!(self.matcher.take_unexpected(|source, _| source == gone), names);
    }

    fn call(&mut self, call: u32) {
        let grows = (call / TURN).is_multiple_of(2);
        match self.below(100) {
            0 if self.below(4) == 0 => self.end(),
            0..4 => self.cancel(),
            4..52 => self.ask(grows),
            _ => self.arrive(grows),
        }
        // A growing list keeps what it meets, now and then.
        if grows && self.below(3) == 0 {
            let (pattern, source, tag) = (self.pattern(), self.source(), self.tag());
            self.post(pattern);
            self.push(source, tag);
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.matcher.posted_len(), self.model.posted.len());
        assert_eq!(self.matcher.unexpected_len(), self.model.unexpected.len());
        self.matcher.posted.iter().for_each(PostedQueue::check);
        self.matcher.unexpected.iter().for_each(UnexpectedQueue::check);
    }

    /// Runs all calls, and empties both queues. Returns what the run has come across.
    fn run(mut self) -> [bool; 4] {
        for call in 0..CALLS {
            self.call(call);
        }
        while !self.model.posted.is_empty() || !self.model.unexpected.is_empty() {
            self.cancel();
            self.check();
        }
        self.model.met
    }
}

#[test]
fn agrees_with_a_plain_model() {
    let mut met = [false; 4];
    for seed in 0..40 {
        let run = Run::new(seed).run();
        met = core::array::from_fn(|at| met[at] || run[at]);
    }
    assert_eq!(met, [true; 4], "long lists of receives and of messages, all indexes, a full queue");
}

/// Keys that have the same hash, though they are not the same, cost time only.
#[test]
fn agrees_with_a_plain_model_where_all_hashes_are_the_same() {
    for seed in 0..10 {
        let mut run = Run::new(seed);
        run.matcher.hashing = Hashing::blind();
        run.run();
    }
}

/// A list that was long gives its index up where it says, and not before.
#[test]
fn a_list_about_as_long_as_an_index_pays_keeps_what_it_has() {
    let mut matcher = Matcher::<u8, (), ()>::new(MAX, MAX, 3);
    let exactly = |tag| Pattern { from: Senders::Any, tag: Some(TagMask { tag, ignore: 0 }) };
    let keys: Vec<Key> =
        (0..=SHORT as u64).map(|tag| matcher.post(exactly(tag), ()).unwrap()).collect();
    assert!(matcher.posted[1].is_indexed());
    for (left, key) in (0..keys.len()).rev().zip(keys) {
        matcher.remove_posted(key);
        assert_eq!(matcher.posted[1].is_indexed(), left > FEW);
        matcher.posted[1].check();
    }
}
