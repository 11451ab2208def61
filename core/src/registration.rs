//! Registrations of memory.
//!
//! No registration is needed for local buffers; where the domain has an RDMA device, the device sends registered
//! buffers without copying them (docs/verbs.md). Memory registered for remote access gets a key in the domain's table;
//! other registrations have none.

use crate::domain::Domain;
use crate::error::Error;
use crate::flags::Flags;
use crate::keys::{NO_KEY, NoKey};
use crate::region::{Audience, Piece, Region};
use crate::uses::{Use, Users};
use parking_lot::Mutex;
use std::sync::Arc;

/// Most pieces of memory under one key.
pub const MR_IOV_LIMIT: usize = 8;
/// Rights of memory that bytes are sent from: messages, writes, and answers to peers' reads.
const SENT_FROM: Flags = Flags::SEND.union(Flags::WRITE).union(Flags::REMOTE_READ);
/// Memory to be registered.
pub struct Wanted {
    /// Its pieces.
    pub pieces: Vec<Piece>,
    /// The accesses that it serves.
    pub access: Flags,
    /// Its key, where the application chooses.
    pub key: u64,
    /// The peers that may reach it.
    pub audience: Audience,
}

/// A registration.
pub struct Registration {
    domain: Arc<Domain>,
    region: Arc<Region>,
    requested_key: u64,
    /// [`NO_KEY`] without remote access, and before it is enabled.
    key: Mutex<u64>,
    users: Users,
    _domain_use: Use,
}

impl Registration {
    /// Registers memory. It gets its key at once, unless the domain gives keys at enabling.
    ///
    /// # Errors
    /// [`Error::NoKey`] if the key is in use, [`Error::NoMemory`] if the domain has [`crate::keys::REGIONS_MAX`]
    /// regions.
    pub fn register(domain: &Arc<Domain>, wanted: Wanted) -> Result<Arc<Registration>, Error> {
        let Wanted { pieces, access, key, audience } = wanted;
        let terms = domain.regions.terms();
        let region = Region::new(pieces, access & Flags::REMOTE, terms.by_address);
        let region = region.only_for(audience);
        let region = if access.intersects(SENT_FROM) { domain.pinned(region) } else { region };
        let inner = Arc::new(Registration {
            domain: Arc::clone(domain),
            region: Arc::new(region),
            requested_key: key,
            key: Mutex::new(NO_KEY),
            users: Users::default(),
            _domain_use: domain.hold(),
        });
        if !terms.at_enable {
            inner.enable()?;
        }
        Ok(inner)
    }

    /// True if peers may reach it.
    #[must_use]
    pub(crate) fn is_remote(&self) -> bool {
        !self.region.access().is_empty()
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Its key, or [`NO_KEY`].
    #[must_use]
    pub fn key(&self) -> u64 {
        *self.key.lock()
    }

    /// Objects that need the registration.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Gives the registration its key, if it gets one. Returns the key.
    ///
    /// # Errors
    /// [`Error::State`] if it has one, else as [`Registration::register`].
    pub fn enable(&self) -> Result<u64, Error> {
        let mut key = self.key.lock();
        if *key != NO_KEY {
            return Err(Error::State);
        }
        if self.is_remote() {
            let inserted = self.domain.regions.insert(Arc::clone(&self.region), self.requested_key);
            *key = inserted.map_err(|reason| match reason {
                NoKey::Taken => Error::NoKey,
                NoKey::Full => Error::NoMemory,
            })?;
        }
        Ok(*key)
    }

    /// Removes the key, waits for accesses under way and lets none begin.
    pub fn close(&self) {
        let key = self.key();
        if key != NO_KEY {
            self.domain.regions.remove(key);
        }
        self.region.close();
    }
}
