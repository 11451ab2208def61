//! The table of registered memory by key.

use crate::region::{Audience, Region};
use erd_rd::keys::KeyId;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::SocketAddr;
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
    /// Each access by a peer looks here. Only this process chooses which keys are in it, so the quicker hash will do.
    regions: Mutex<HashMap<u64, Arc<Region>>>,
    /// The last [`GONE_MAX`] removed keys, with those who had them: they may still use them.
    gone: Mutex<VecDeque<(u64, Audience)>>,
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
        let Some(region) = self.regions.lock().remove(&key) else { return };
        let mut gone = self.gone.lock();
        gone.truncate(GONE_MAX - 1);
        gone.push_front((key, region.audience().clone()));
    }

    /// Whether a key is valid for the peer of this name and key of a job, or was until lately.
    #[must_use]
    pub(crate) fn stood(&self, key: u64, (name, job): (SocketAddr, Option<KeyId>)) -> bool {
        self.find(key).is_some_and(|region| region.is_for(name, job))
            || self.gone.lock().iter().any(|(gone, had)| *gone == key && had.has(name, job))
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
        let anyone = ("192.0.2.1:7000".parse().expect("address"), None);
        assert!(table.stood(7, anyone) && !table.stood(8, anyone));
        assert_eq!(table.insert(region(), 7), Ok(7));
    }

    #[test]
    fn a_key_stood_only_for_those_who_had_it() {
        let table = KeyTable::new(KeyTerms::default());
        let limited = |to| {
            let pieces = vec![Piece { start: 4096, len_bytes: 10 }];
            Arc::new(Region::new(pieces, Flags::REMOTE_READ, false).only_for(to))
        };
        let name = "192.0.2.1:7000".parse().expect("address");
        let (ours, theirs) = ((name, Some([1; 8])), (name, Some([2; 8])));
        let elsewhere = ("192.0.2.2:7000".parse().expect("address"), Some([1; 8]));
        assert_eq!(table.insert(limited(Audience::Keys(vec![[1; 8]])), 7), Ok(7));
        assert_eq!(table.insert(limited(Audience::One(name, [1; 8])), 8), Ok(8));
        for round in 0..2 {
            assert!(table.stood(7, ours) && table.stood(8, ours), "{round}");
            assert!(table.stood(7, elsewhere) && !table.stood(8, elsewhere), "{round}");
            assert!(!table.stood(7, theirs) && !table.stood(8, theirs), "{round}");
            table.remove(7);
            table.remove(8);
        }
    }

    #[test]
    fn the_providers_keys_differ_from_each_other_and_from_what_was_asked() {
        let table = KeyTable::new(KeyTerms { random: true, ..KeyTerms::default() });
        let keys: Vec<_> = (0..64).map(|_| table.insert(region(), 7).expect("key")).collect();
        assert_eq!(table.regions.lock().len(), 64);
        assert!(keys.iter().all(|key| *key > 1 << 32), "{keys:?}");
    }
}
