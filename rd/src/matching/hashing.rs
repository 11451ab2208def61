//! The hash of what a receive asks for: senders, ignored bits, and the tag without them.
//!
//! Peers choose tags, so the hash has a secret key. The tag and the ignored bits are mixed, and multiplied by an odd
//! random number. A keyed hash of the senders is added, and the upper bits of the sum count. Two keys that anyone chose
//! without knowing the secret share the upper n bits with a probability of at most 2 / 2^n (M. Dietzfelbinger, T. Hagerup,
//! J. Katajainen, M. Penttonen, "A reliable randomized algorithm for the closest-pair problem", J. Algorithms 25, 1997).
//! Peers see neither hashes nor an order that depends on them. The mixing is for tags in a row: without it, one number in
//! a hundred would put them into heaps.
//!
//! A message needs a hash for each class of receives. This one takes some 10 instructions, and SipHash would take 100.

use super::pattern::{Senders, Source};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use siphasher::sip::SipHasher13;

/// How a receive names its senders: see [`Senders`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Any,
    Key,
    One,
}

/// All of them, in the order of their numbers.
pub(super) const KINDS: [Kind; 3] = [Kind::Any, Kind::Key, Kind::One];

impl Kind {
    /// What a receive of this kind says of its senders, if it takes messages from `source`.
    pub fn of<S: Source>(self, source: S) -> Senders<S> {
        match self {
            Kind::Any => Senders::Any,
            Kind::Key => Senders::Key(source.key()),
            Kind::One => Senders::One(source),
        }
    }
}

impl<S: Source> Senders<S> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Senders::Any => Kind::Any,
            Senders::Key(_) => Kind::Key,
            Senders::One(_) => Kind::One,
        }
    }
}

/// Receives that look at the same things: at the source, its key or neither, and at the same bits of the tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Class {
    pub kind: Kind,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
}

/// A part of what a hash depends on.
#[derive(Clone, Copy, Default)]
pub(super) struct Part(u64);

impl Part {
    /// The hash of a tag and of senders.
    pub fn with(self, senders: Part) -> u32 {
        (self.0.wrapping_add(senders.0) >> 32) as u32
    }
}

/// The secret key.
pub(super) struct Hashing {
    /// Factors of a tag, before and after it is mixed with the ignored bits. They are odd.
    tag: u64,
    mixed: u64,
    ignored: Wide,
    /// By kind.
    senders: [Wide; KINDS.len()],
    /// The key of the numbers of sources.
    numbers: [u64; 2],
}

/// A strongly universal hash of 64 bits: the upper half of `factor * number + summand` modulo 2^128
/// (M. Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer arithmetic without
/// primes", STACS 1996).
struct Wide {
    factor: u128,
    summand: u128,
}

impl Wide {
    fn hash(&self, number: u64) -> Part {
        let product = self.factor.wrapping_mul(number.into());
        Part((product.wrapping_add(self.summand) >> 64) as u64)
    }
}

impl Hashing {
    /// A key that follows from `random`.
    pub fn new(random: u64) -> Hashing {
        let mut rng = ChaCha8Rng::seed_from_u64(random);
        let mut number = || rng.next_u64();
        let (tag, mixed, numbers) = (number() | 1, number() | 1, [number(), number()]);
        let mut double = || u128::from(number()) << 64 | u128::from(number());
        let mut wide = || Wide { factor: double(), summand: double() };
        Hashing { tag, mixed, ignored: wide(), senders: KINDS.map(|_| wide()), numbers }
    }

    /// A key with which all hashes are the same.
    #[cfg(test)]
    pub fn blind() -> Hashing {
        let wide = || Wide { factor: 0, summand: 0 };
        Hashing {
            tag: 0,
            mixed: 0,
            ignored: wide(),
            senders: KINDS.map(|_| wide()),
            numbers: [0; 2],
        }
    }

    /// What [`Hashing::tag`] needs to know of ignored bits.
    pub fn ignored(&self, ignore: u64) -> Part {
        self.ignored.hash(ignore)
    }

    /// The part of a tag without ignored bits, and of these.
    pub fn tag(&self, tag: u64, ignored: Part) -> Part {
        let sum = self.tag.wrapping_mul(tag ^ tag >> 32).wrapping_add(ignored.0);
        Part(self.mixed.wrapping_mul(sum ^ sum >> 32))
    }

    /// The part of the senders.
    pub fn senders<S: Source>(&self, senders: Senders<S>) -> Part {
        let keyed = SipHasher13::new_with_keys(self.numbers[0], self.numbers[1]);
        let number = match senders {
            Senders::Any => 0,
            Senders::Key(key) => S::key_number(key, keyed),
            Senders::One(source) => source.number(keyed),
        };
        self.senders[senders.kind() as usize].hash(number)
    }
}
