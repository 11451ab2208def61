//! Hashes of tags that look alike, and of keys that differ in one part.

use super::super::hashing::{Hashing, KINDS, Kind};
use super::source;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Tags that a peer might choose: neighbours, multiples, and those that differ in high bits only.
#[test]
fn tags_that_look_alike_spread() {
    const TAGS: u64 = 1 << 12;
    const PLACE_BITS: u32 = 12;
    for random in 0..100 {
        let hashing = Hashing::new(random);
        let senders = hashing.senders(Kind::Any.of(source(0)));
        for shift in [0, 7, 16, 32, 52] {
            for step in [1, 3, 0x1_0001] {
                let mut places = BTreeMap::new();
                for tag in 0..TAGS {
                    let part = hashing.tag((tag * step) << shift, hashing.ignored(0));
                    let hash = part.with(senders);
                    *places.entry(hash >> (u32::BITS - PLACE_BITS)).or_insert(0_u64) += 1;
                }
                // The groups that a search passes. By chance there would be two for each tag.
                let passed: u64 = places.values().map(|count| count * count).sum();
                assert!(passed < 8 * TAGS, "{passed} with {shift}, {step}, {random}");
            }
        }
    }
}

/// Senders and masks count, too.
#[test]
fn each_part_of_a_key_changes_the_hash() {
    let hashing = Hashing::new(9);
    let mut hashes = Vec::new();
    for kind in KINDS {
        for ignore in [0, 1, 1 << 63] {
            for number in 0..4 {
                let (ignored, senders) =
                    (hashing.ignored(ignore), hashing.senders(kind.of(source(number))));
                hashes.extend([0, 2, 1 << 62].map(|tag| hashing.tag(tag, ignored).with(senders)));
            }
        }
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 3 * 3 * (1 + 1 + 4), "any source and one key are one part each");
}

#[test]
fn the_key_follows_from_the_random_bits() {
    let hash = |random| {
        let hashing = Hashing::new(random);
        hashing.tag(1, hashing.ignored(0)).with(Default::default())
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
