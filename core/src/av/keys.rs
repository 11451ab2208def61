//! The keys of an address vector (`FI_AV_AUTH_KEY` of `fi_domain(3)`).
//!
//! Each key has a place, which it keeps while it is there. An endpoint takes the keys over when it is enabled.

use crate::error::Error;
use crate::peer_index::PeerIndex;
use erd_crypto::{JobKey, Keyring};
use erd_rd::KeyIndex;
use erd_rd::keys::{KEYS_MAX, KeyId, KeySet, Keys};
use std::sync::Arc;

/// The name of the key in the first place. Names of addresses are less, and the bits above are those of receive
/// contexts.
const FIRST: PeerIndex = 1 << 40;

/// The name of a key in calls and completions.
#[must_use]
pub fn name_of(key: KeyIndex) -> PeerIndex {
    FIRST + PeerIndex::from(key.0)
}

struct Place {
    job: JobKey,
    /// Endpoints with the key have it too.
    keys: Arc<Keyring>,
    /// Insertions not yet taken back.
    uses: u32,
    /// Addresses with the key.
    addresses: u32,
    /// Its name in completions, if not [`name_of`] its place.
    user_id: Option<u64>,
}

/// Keys by place; at most [`KEYS_MAX`].
#[derive(Default)]
pub(super) struct AvKeys {
    places: Vec<Option<Place>>,
}

impl AvKeys {
    /// Inserts a key. One that is there already keeps its place and counts once more.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if there are [`KEYS_MAX`].
    pub fn insert(&mut self, job: JobKey, hides: bool) -> Result<PeerIndex, Error> {
        let known = |place: &&mut Place| place.job == job;
        if let Some(place) = self.places.iter_mut().flatten().find(known) {
            place.uses += 1;
            return self.find(job.id()).map(name_of).ok_or(Error::Invalid);
        }
        let at = match self.places.iter().position(Option::is_none) {
            Some(at) => at,
            None if self.places.len() < KEYS_MAX => {
                self.places.push(None);
                self.places.len() - 1
            }
            None => return Err(Error::NoMemory),
        };
        let keys = Arc::new(Keyring::new(job.clone(), hides));
        self.places[at] = Some(Place { job, keys, uses: 1, addresses: 0, user_id: None });
        Ok(name_of(KeyIndex(at as u8)))
    }

    /// The place of a key that a call names.
    pub fn place(&self, name: PeerIndex) -> Option<KeyIndex> {
        let at = KeyIndex(u8::try_from(name.checked_sub(FIRST)?).ok()?);
        self.get(at).map(|_| at)
    }

    fn get(&self, at: KeyIndex) -> Option<&Place> {
        self.places.get(usize::from(at.0))?.as_ref()
    }

    fn get_mut(&mut self, at: KeyIndex) -> Option<&mut Place> {
        self.places.get_mut(usize::from(at.0))?.as_mut()
    }

    /// The id of the key in a place.
    pub fn id(&self, at: KeyIndex) -> Option<KeyId> {
        self.get(at).map(|place| place.keys.id())
    }

    /// The key in a place.
    pub fn job(&self, at: KeyIndex) -> Option<&JobKey> {
        self.get(at).map(|place| &place.job)
    }

    /// The place of a key.
    pub fn find(&self, id: KeyId) -> Option<KeyIndex> {
        let is = |place: &Option<Place>| place.as_ref().is_some_and(|own| own.keys.id() == id);
        self.places.iter().position(is).map(|at| KeyIndex(at as u8))
    }

    /// Takes one insertion back.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such key, [`Error::Busy`] if endpoints or addresses have it.
    pub fn remove(&mut self, name: PeerIndex) -> Result<(), Error> {
        let at = self.place(name).ok_or(Error::Invalid)?;
        let place = self.get_mut(at).ok_or(Error::Invalid)?;
        if place.uses > 1 {
            place.uses -= 1;
            return Ok(());
        }
        if place.addresses > 0 || Arc::strong_count(&place.keys) > 1 {
            return Err(Error::Busy);
        }
        self.places[usize::from(at.0)] = None;
        Ok(())
    }

    /// Notes that an address with the key came.
    pub fn address_came(&mut self, at: KeyIndex) {
        if let Some(place) = self.get_mut(at) {
            place.addresses += 1;
        }
    }

    /// Notes that an address with the key left.
    pub fn address_left(&mut self, at: KeyIndex) {
        if let Some(place) = self.get_mut(at) {
            place.addresses = place.addresses.saturating_sub(1);
        }
    }

    /// Name of a key in completions: the user's, or else the vector's, unless all names are `users_own`.
    pub fn shown(&self, at: KeyIndex, users_own: bool) -> Option<u64> {
        let place = self.get(at)?;
        place.user_id.or((!users_own).then_some(name_of(at)))
    }

    /// Sets the name of a key in completions. False if there is no such key.
    pub fn set_user_id(&mut self, name: PeerIndex, user_id: u64) -> bool {
        let place = self.place(name).and_then(|at| self.get_mut(at));
        place.map(|place| place.user_id = Some(user_id)).is_some()
    }

    /// The ids of all keys.
    pub fn ids(&self) -> Vec<KeyId> {
        self.places.iter().flatten().map(|place| place.keys.id()).collect()
    }

    /// The keys, for an endpoint.
    pub fn set(&self) -> KeySet {
        let keys = |place: &Option<Place>| {
            place.as_ref().map(|place| Arc::clone(&place.keys) as Arc<dyn Keys>)
        };
        KeySet::new(self.places.iter().map(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> JobKey {
        JobKey::new(&[byte; 32])
    }

    #[test]
    fn keys_keep_their_places_until_nothing_needs_them() {
        let mut keys = AvKeys::default();
        let names: Vec<_> = (0..3).map(|byte| keys.insert(key(byte), true).unwrap()).collect();
        assert_eq!(keys.insert(key(1), true), Ok(names[1]), "it is there");
        let set = keys.set();
        for name in &names {
            let taken_back = if *name == names[1] { keys.remove(*name) } else { Ok(()) };
            assert_eq!(taken_back, Ok(()));
            assert_eq!(keys.remove(*name), Err(Error::Busy), "an endpoint has it");
        }
        drop(set);
        let at = keys.place(names[0]).unwrap();
        keys.address_came(at);
        assert_eq!(keys.remove(names[0]), Err(Error::Busy), "an address has it");
        keys.address_left(at);
        assert_eq!(keys.remove(names[0]), Ok(()));
        assert_eq!(keys.remove(names[0]), Err(Error::Invalid));
        assert_eq!((keys.place(names[0]), keys.find(key(2).id())), (None, Some(KeyIndex(2))));
        assert_eq!(keys.insert(key(9), true), Ok(names[0]), "the free place");
    }

    #[test]
    fn there_are_as_many_as_an_endpoint_takes() {
        let mut keys = AvKeys::default();
        for byte in 0..KEYS_MAX as u8 {
            assert!(keys.insert(key(byte), true).is_ok());
        }
        assert_eq!(keys.insert(key(99), true), Err(Error::NoMemory));
        for other in [0, 1, FIRST - 1, FIRST + KEYS_MAX as u64, u64::MAX] {
            assert_eq!(keys.place(other), None);
        }
    }
}
