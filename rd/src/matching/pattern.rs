//! What a receive asks for, and what a message shows.

use crate::units::{KeyIndex, PeerId};
use core::fmt::Debug;
use core::hash::Hasher;

/// An owner's name of a source.
pub trait Source: Copy + Eq {
    /// A name of a key.
    type Key: Copy + Eq + Debug;

    /// The key that the source and the receiver use.
    fn key(self) -> Self::Key;

    /// A number for hash tables: equal sources have equal numbers, and few others have the same. Where peers choose what
    /// names a source, the number comes out of `keyed`.
    fn number(self, keyed: impl Hasher) -> u64;

    /// The same for a key.
    fn key_number(key: Self::Key, keyed: impl Hasher) -> u64;
}

impl Source for PeerId {
    type Key = KeyIndex;

    fn key(self) -> KeyIndex {
        self.key
    }

    /// The engine chooses a peer's place.
    fn number(self, _: impl Hasher) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn key_number(key: KeyIndex, _: impl Hasher) -> u64 {
        key.0.into()
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
    pub(super) fn takes(self, source: S) -> bool {
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
    pub(super) fn accepts(&self, source: S, tag: u64) -> bool {
        self.from.takes(source) && self.tag.is_none_or(|mask| mask.accepts(tag))
    }

    /// The tag and its mask, with some tag if it takes untagged messages.
    pub(super) fn mask(&self) -> TagMask {
        self.tag.unwrap_or(TagMask { tag: 0, ignore: 0 })
    }
}
