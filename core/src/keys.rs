//! The table of registered memory by key.

use crate::region::Region;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The key of a registration that has none.
pub const NO_KEY: u64 = u64::MAX;
/// Most keys of a domain.
pub const REGIONS_MAX: usize = 1 << 20;
/// Keys remembered after their removal.
const GONE_MAX: usize = 1024;

/// Why a region gets no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoKey {
    /// The key that the application asked for is in use.
    Taken,
    /// The domain has [`REGIONS_MAX`] regions.
    Full,
}

/// How registered memory gets its keys, and how peers address its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyTerms {
    /// Keys are chosen at random, so that nobody can guess them; else the application chooses.
    pub random: bool,
    /// A registration gets its key when it is enabled.
    pub at_enable: bool,
    /// Peers address the first byte by its virtual address; else by 0.
    pub by_address: bool,
}

/// A domain's regions by key.
pub struct KeyTable {
    terms: KeyTerms,
    regions: Mutex<HashMap<u64, Arc<Region>>>,
    /// The last [`GONE_MAX`] removed keys: peers may still use them.
    gone: Mutex<VecDeque<u64>>,
}

impl KeyTable {
    /// An empty table.
    #[must_use]
    pub fn new(terms: KeyTerms) -> KeyTable {
        KeyTable { terms, regions: Mutex::default(), gone: Mutex::default() }
    }

    /// Rules for keys.
    #[must_use]
    pub fn terms(&self) -> KeyTerms {
        self.terms
    }

    /// Gives a region its key: an unguessable one, or the one that the application asks for.
    ///
    /// # Errors
    /// [`NoKey`], if the key is in use or the table is full.
    pub fn insert(&self, region: Arc<Region>, requested_key: u64) -> Result<u64, NoKey> {
        let mut regions = self.regions.lock();
        if regions.len() >= REGIONS_MAX {
            return Err(NoKey::Full);
        }
        let key = if self.terms.random { fresh_key(&regions) } else { requested_key };
        if key == NO_KEY || regions.contains_key(&key) {
            return Err(NoKey::Taken);
        }
        regions.insert(key, region);
        Ok(key)
    }

    /// True if a stranger could guess a key, since the application chooses them.
    #[must_use]
    pub(crate) fn has_guessable_keys(&self) -> bool {
        !self.terms.random
    }

    /// The region with this key.
    #[must_use]
    pub fn find(&self, key: u64) -> Option<Arc<Region>> {
        self.regions.lock().get(&key).cloned()
    }

    /// Removes a key; the endpoint refuses peers that use it from now on.
    pub fn remove(&self, key: u64) {
        self.regions.lock().remove(&key);
        let mut gone = self.gone.lock();
        gone.truncate(GONE_MAX - 1);
        gone.push_front(key);
    }

    /// Whether a key is valid, or was removed lately.
    #[must_use]
    pub(crate) fn stood(&self, key: u64) -> bool {
        self.regions.lock().contains_key(&key) || self.gone.lock().contains(&key)
    }
}

/// A random key that is not in use.
fn fresh_key(regions: &HashMap<u64, Arc<Region>>) -> u64 {
    loop {
        let key = crate::random::u64();
        if key != NO_KEY && !regions.contains_key(&key) {
            return key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Flags;
    use crate::region::Piece;

    fn region() -> Arc<Region> {
        let pieces = vec![Piece { start: 4096, len_bytes: 10 }];
        Arc::new(Region::new(pieces, Flags::REMOTE_READ, false))
    }

    #[test]
    fn an_applications_key_is_kept_and_cannot_be_given_twice() {
        let table = KeyTable::new(KeyTerms::default());
        assert_eq!(table.insert(region(), 7), Ok(7));
        assert_eq!(table.insert(region(), 7), Err(NoKey::Taken));
        assert_eq!(table.insert(region(), u64::MAX), Err(NoKey::Taken));
        table.remove(7);
        assert!(table.stood(7) && !table.stood(8));
        assert_eq!(table.insert(region(), 7), Ok(7));
    }

    #[test]
    fn the_providers_keys_differ_from_each_other_and_from_what_was_asked() {
        let table = KeyTable::new(KeyTerms { random: true, ..KeyTerms::default() });
        let keys: Vec<_> = (0..64).map(|_| table.insert(region(), 7).expect("key")).collect();
        assert_eq!(table.regions.lock().len(), 64);
        assert!(keys.iter().all(|key| *key > 1 << 32), "{keys:?}");
    }
}
