//! What the engine asks of a job's key (protocol.md §11). The cryptography stands behind these traits: the engine says
//! what is proven, under which counter, and who may read it.

use crate::units::KeyIndex;
use crate::wire::put_name;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use zeroize::{Zeroize, ZeroizeOnDrop};

#[cfg(test)]
mod bounds;
#[cfg(test)]
pub(crate) mod toy;

/// Most keys of an endpoint.
pub const KEYS_MAX: usize = 16;
/// Bytes of a key's id.
pub const KEY_ID_BYTES: usize = 8;
/// A name of a key, which tells nothing else about it.
pub type KeyId = [u8; KEY_ID_BYTES];
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 16;
/// Bytes that a key adds to a packet: a counter or the key's id, and the proof.
pub const TRAILER_BYTES: usize = KEY_ID_BYTES + PROOF_BYTES;
/// Packets of one direction under one secret, as a power of two. AES-GCM allows more (2^24.5 of the largest size, by
/// RFC 8446, §5.5).
pub const PHASE_BITS: u32 = 22;

/// A secret of 256 bits. It is wiped when it goes.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret(pub [u8; 32]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// The proofs of a packet outside a session: what is covered, in this order, each with its length.
#[derive(Clone, Copy, Debug)]
pub struct Loose<'a> {
    /// Header and body, without the proof, with a zero checksum.
    pub packet: &'a [u8],
    /// The name of the process that wrote it.
    pub writer: SocketAddr,
    /// The name of the process that it is for.
    pub reader: SocketAddr,
    /// The random bytes of the greeting that it answers; empty for a question.
    pub question: &'a [u8],
}

impl Loose<'_> {
    /// The bytes that the proof covers, after the packet: both names, and the question.
    #[must_use]
    pub fn context(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * crate::wire::NAME_BYTES + self.question.len());
        for name in [self.writer, self.reader] {
            // A host's own number of a link, which another host does not know, is no part of a name.
            put_name(&mut bytes, SocketAddr::new(name.ip().to_canonical(), name.port()));
        }
        bytes.extend_from_slice(self.question);
        bytes
    }
}

/// Which of the keys that were in a place one after another; each key has the number after the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Turn(pub u8);

impl Turn {
    /// No key's.
    pub(crate) const PAST: Turn = Turn(u8::MAX);

    fn next(self) -> Turn {
        Turn((self.0 + 1) % Turn::PAST.0)
    }

    fn previous(self) -> Turn {
        Turn(self.0.checked_sub(1).unwrap_or(Turn::PAST.0 - 1))
    }
}

/// A key of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct KeyRef {
    pub at: KeyIndex,
    pub turn: Turn,
}

/// The key in a place, and the one before while both are valid.
#[derive(Clone, Debug)]
struct Place {
    newest: Arc<dyn Keys>,
    turn: Turn,
    before: Option<Arc<dyn Keys>>,
}

/// The keys of an endpoint, each in a place that stays its own. Without any, no packet is proven.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    /// At most [`KEYS_MAX`] places.
    places: Vec<Option<Place>>,
}

impl KeySet {
    /// Keys in the first places, in this order; a place may be empty. Those beyond [`KEYS_MAX`] are left out.
    pub fn new(keys: impl IntoIterator<Item = Option<Arc<dyn Keys>>>) -> KeySet {
        let place = |key: Option<_>| {
            key.map(|newest| Place { newest, turn: Turn::default(), before: None })
        };
        KeySet { places: keys.into_iter().take(KEYS_MAX).map(place).collect() }
    }

    /// One key.
    #[must_use]
    pub fn one(key: Arc<dyn Keys>) -> KeySet {
        KeySet::new([Some(key)])
    }

    /// True if there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    fn place(&self, at: KeyIndex) -> Option<&Place> {
        self.places.get(usize::from(at.0))?.as_ref()
    }

    /// The key in a place: the newest.
    #[must_use]
    pub fn get(&self, at: KeyIndex) -> Option<&dyn Keys> {
        self.place(at).map(|place| &*place.newest)
    }

    /// The places in which there is a key; the first where there is none at all, so that a name has an address.
    pub(crate) fn places(&self) -> impl Iterator<Item = KeyIndex> {
        let count = if self.is_empty() { 1 } else { self.places.len() };
        let all = (0..count).map(|at| KeyIndex(at as u8));
        all.filter(|at| self.is_empty() || self.get(*at).is_some())
    }

    /// The place of a key.
    #[must_use]
    pub fn find(&self, id: KeyId) -> Option<KeyIndex> {
        self.find_ref(id).map(|key| key.at)
    }

    /// A key by its id, and its place.
    #[must_use]
    pub fn find_key(&self, id: KeyId) -> Option<(KeyIndex, &dyn Keys)> {
        let key = self.find_ref(id)?;
        Some((key.at, self.of(key)?))
    }

    /// The key of this id, which may be one before the newest.
    pub(crate) fn find_ref(&self, id: KeyId) -> Option<KeyRef> {
        let in_place = |(at, place): (usize, &Option<Place>)| {
            let place = place.as_ref()?;
            let is_before = || place.before.as_ref().is_some_and(|key| key.id() == id);
            let turn = match place.newest.id() == id {
                true => place.turn,
                false if is_before() => place.turn.previous(),
                false => return None,
            };
            Some(KeyRef { at: KeyIndex(at as u8), turn })
        };
        self.places.iter().enumerate().find_map(in_place)
    }

    /// The newest key in a place.
    pub(crate) fn newest(&self, at: KeyIndex) -> Option<KeyRef> {
        self.place(at).map(|place| KeyRef { at, turn: place.turn })
    }

    /// The key before the newest in a place, while it is valid.
    pub(crate) fn before(&self, at: KeyIndex) -> Option<KeyRef> {
        let place = self.place(at).filter(|place| place.before.is_some())?;
        Some(KeyRef { at, turn: place.turn.previous() })
    }

    /// The key that this names, while it is valid.
    pub(crate) fn of(&self, key: KeyRef) -> Option<&dyn Keys> {
        let place = self.place(key.at)?;
        match key.turn == place.turn {
            true => Some(&*place.newest),
            false => place.before.as_deref().filter(|_| key.turn == place.turn.previous()),
        }
    }

    /// Puts a new key in the place of another, which stays valid. False if there is none, the one before it is still
    /// valid, or the new key has another place already.
    pub fn renew(&mut self, at: KeyIndex, key: Arc<dyn Keys>) -> bool {
        if self.find(key.id()).is_some() {
            return false;
        }
        let place = self.places.get_mut(usize::from(at.0)).and_then(Option::as_mut);
        let Some(place) = place.filter(|place| place.before.is_none()) else { return false };
        place.before = Some(core::mem::replace(&mut place.newest, key));
        place.turn = place.turn.next();
        true
    }

    /// Drops the keys before the newest.
    pub fn retire(&mut self) {
        self.places.iter_mut().flatten().for_each(|place| place.before = None);
    }
}

impl From<Arc<dyn Keys>> for KeySet {
    fn from(key: Arc<dyn Keys>) -> KeySet {
        KeySet::one(key)
    }
}

/// The key of a job, as the engine sees it.
pub trait Keys: core::fmt::Debug + Send + Sync {
    /// The name of the key.
    fn id(&self) -> KeyId;
    /// True if this side wants payload hidden.
    fn hides(&self) -> bool;
    /// See [`PHASE_BITS`].
    fn phase_bits(&self) -> u32 {
        PHASE_BITS
    }
    /// The proof of a packet outside a session.
    fn prove(&self, loose: &Loose<'_>) -> [u8; PROOF_BYTES];
    /// Whether `proof` is the one that [`Keys::prove`] gives. Takes the same time for all of a length.
    fn verify(&self, loose: &Loose<'_>, proof: &[u8]) -> bool;
    /// The secrets of a session's directions, out of what both sides said: of what `ours` sends, and of what `theirs`
    /// sends. With both swapped, the result is swapped.
    fn session(&self, ours: &[u8], theirs: &[u8]) -> (Secret, Secret);
    /// The secret of the next phase, from which this one's does not follow.
    fn next(&self, secret: &Secret) -> Secret;
    /// The cipher of a phase.
    fn cipher(&self, secret: &Secret) -> Box<dyn Cipher>;
    /// The secret of a phase in a session that began under another key and goes on under this one. Whoever has only one
    /// of the two keys cannot derive it.
    fn renewed(&self, secret: &Secret) -> Secret;
}

/// The cipher of one direction and phase. No counter serves for two packets of one secret.
pub trait Cipher: Send {
    /// The proof of a packet with a readable `rest`.
    fn prove(&self, counter: u64, head: &[u8], rest: &[u8]) -> [u8; PROOF_BYTES];
    /// Whether `proof` is the one that [`Cipher::prove`] gives. Takes the same time for all of a length.
    fn verify(&self, counter: u64, head: &[u8], rest: &[u8], proof: &[u8]) -> bool;
    /// Encrypts `rest` in its place; `head` stays readable. Returns the proof of both.
    fn hide(&self, counter: u64, head: &[u8], rest: &mut [u8]) -> [u8; PROOF_BYTES];
    /// Decrypts `hidden` into `out`, of the same length. False if the packet is not the one that was hidden under this
    /// counter; then `out` must not be used.
    fn open(&self, counter: u64, head: &[u8], hidden: &[u8], proof: &[u8], out: &mut [u8]) -> bool;
}
