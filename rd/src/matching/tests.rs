//! What callers of a matcher may rely on.

mod cost;
mod hashes;
mod model;

use super::*;
use crate::units::{KeyIndex, PeerId};
use core::hash::Hasher;

const RANDOM: u64 = 7;
const ANY: Senders<u8> = Senders::Any;

/// A source's key is its upper half.
impl Source for u8 {
    type Key = KeyIndex;

    fn key(self) -> KeyIndex {
        KeyIndex(self >> 4)
    }

    fn number(self, _: impl Hasher) -> u64 {
        self.into()
    }

    fn key_number(key: KeyIndex, _: impl Hasher) -> u64 {
        key.0.into()
    }
}

/// The source of the message with this number, of one key.
fn source(number: u64) -> PeerId {
    PeerId { index: (number % 50) as u32, generation: 1, key: KeyIndex(0) }
}

fn matcher() -> Matcher<u8, &'static str, &'static str> {
    Matcher::new(8, 8, RANDOM)
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
    let own = matcher.find_unexpected(&untagged(Senders::Key(KeyIndex(1))), |_| true).unwrap();
    assert_eq!(matcher.remove_unexpected(own), "own");
}

#[test]
fn tagged_and_untagged_never_meet() {
    let mut matcher = matcher();
    matcher.post(untagged(ANY), "msg").unwrap();
    assert_eq!(matcher.find_posted(1, Some(0)), None);
    matcher.push_unexpected(1, Some(0), "tagged").unwrap();
    assert_eq!(matcher.find_unexpected(&untagged(ANY), |_| true), None);
    assert!(matcher.find_unexpected(&tagged(ANY, 5, u64::MAX), |_| true).is_some());
}

#[test]
fn message_that_arrived_first_wins() {
    let mut matcher = matcher();
    matcher.push_unexpected(1, Some(3), "a").unwrap();
    matcher.push_unexpected(2, Some(3), "b").unwrap();
    matcher.push_unexpected(1, Some(4), "c").unwrap();
    let any = matcher.find_unexpected(&tagged(ANY, 3, 0), |_| true).unwrap();
    assert_eq!(matcher.remove_unexpected(any), "a");
    let directed =
        matcher.find_unexpected(&tagged(Senders::One(1), 0, u64::MAX), |_| true).unwrap();
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
    let mut matcher = Matcher::<u8, (), ()>::new(1, 1, RANDOM);
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
