//! Address vectors: the names of peers by index.
//!
//! Inserting an address never touches the network. An address inserted again keeps its index. It leaves once it was
//! removed as often as inserted.

pub mod entries;
pub mod keys;
pub mod shared;
pub mod symmetric;
pub mod table;

use crate::admission::Names;
use crate::domain::Domain;
use crate::error::Error;
use crate::peer_index::{NOWHERE, PeerIndex};
use crate::settings::KeySource;
use crate::sockaddr::Family;
use crate::uses::{Use, Users};
use entries::Entries;
use erd_crypto::JobKey;
use erd_rd::keys::{KeyId, KeySet};
use erd_rd::{KeyIndex, PeerAddress};
use keys::AvKeys;
use parking_lot::{Mutex, RwLock};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use table::{NotThere, Table};

pub use table::ENTRIES_MAX;

/// Notices from an AV to an endpoint that is bound to it.
pub trait Member: Send + Sync {
    /// An address has left `fi_addr`. Its session may go on: the other side decides, too.
    fn peer_removed(&self, fi_addr: PeerIndex);

    /// Addresses were inserted.
    fn names_added(&self);

    /// The results of [`AddressVector::find`] have changed.
    fn names_changed(&self);
}

/// Most receive contexts of a scalable endpoint.
pub const RX_CONTEXTS_MAX: usize = 1 << RX_CTX_BITS_MAX;
/// Most bits of their number.
pub const RX_CTX_BITS_MAX: u32 = 6;

/// State of an address vector.
pub struct AddressVector {
    domain: Arc<Domain>,
    table: RwLock<Entries>,
    /// The keys of its addresses, where the domain leaves them to address vectors.
    keys: RwLock<AvKeys>,
    /// High bits of an `fi_addr` that name a receive context.
    rx_ctx_bits: u32,
    /// Users name addresses themselves in all insertions.
    user_ids: bool,
    /// Endpoints bound here; adding one removes those that are gone.
    members: Mutex<Vec<Weak<dyn Member>>>,
    users: Users,
    _domain_use: Use,
}

impl Drop for AddressVector {
    fn drop(&mut self) {
        self.domain.admission.shrank();
    }
}

impl Names for AddressVector {
    fn has(&self, name: SocketAddr, key: Option<KeyId>) -> bool {
        let key = match key {
            Some(id) if self.takes_keys() => self.keys.read().find(id),
            _ => Some(KeyIndex::default()),
        };
        key.is_some_and(|key| self.table.read().name(&PeerAddress { name, key }, false).is_some())
    }

    fn has_host(&self, host: IpAddr) -> bool {
        self.table.read().has_host(host)
    }
}

impl AddressVector {
    /// An AV without addresses, with room for `count` before it grows.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, count: usize) -> Arc<AddressVector> {
        AddressVector::with(domain, Entries::Own(Table::with_room(count)), 0, false)
    }

    /// An AV of these addresses, whose users name them themselves if `user_ids`. The high bits of an
    /// index name a receive context.
    #[must_use]
    pub fn with(
        domain: &Arc<Domain>,
        entries: Entries,
        rx_ctx_bits: u32,
        user_ids: bool,
    ) -> Arc<AddressVector> {
        let av = Arc::new(AddressVector {
            domain: Arc::clone(domain),
            table: RwLock::new(entries),
            keys: RwLock::default(),
            rx_ctx_bits,
            user_ids,
            members: Mutex::new(Vec::new()),
            users: Users::default(),
            _domain_use: domain.hold(),
        });
        domain.admission.opened(Arc::downgrade(&av) as Weak<dyn Names>);
        av
    }

    /// Objects that need the AV.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Users name addresses themselves in all insertions.
    #[must_use]
    pub fn has_user_ids(&self) -> bool {
        self.user_ids
    }

    /// True if each address has a key of this vector.
    #[must_use]
    pub fn takes_keys(&self) -> bool {
        matches!(self.domain.settings.keys, KeySource::Vectors)
    }

    /// Inserts a key, and returns its name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the domain's keys are not those of address vectors, [`Error::NoMemory`] if there are as
    /// many as an endpoint takes.
    pub fn insert_key(&self, key: JobKey) -> Result<PeerIndex, Error> {
        if !self.takes_keys() {
            return Err(Error::Invalid);
        }
        self.keys.write().insert(key, self.domain.settings.hides)
    }

    /// Takes one insertion of a key back.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such key, [`Error::Busy`] if endpoints or addresses have it.
    pub fn remove_key(&self, name: PeerIndex) -> Result<(), Error> {
        self.keys.write().remove(name)
    }

    /// The id of the key of this name.
    #[must_use]
    pub fn key_id(&self, name: PeerIndex) -> Option<KeyId> {
        let keys = self.keys.read();
        keys.place(name).and_then(|at| keys.id(at))
    }

    /// The name of a peer at `fi_addr`, and the id of its key where the domain leaves keys to address vectors.
    #[must_use]
    pub fn one(&self, fi_addr: PeerIndex) -> Option<(SocketAddr, Option<KeyId>)> {
        let keys = self.keys.read();
        self.address(fi_addr).map(|address| (address.name, keys.id(address.key)))
    }

    /// The place of a key that a call names.
    #[must_use]
    pub fn key_place(&self, name: PeerIndex) -> Option<KeyIndex> {
        self.keys.read().place(name)
    }

    /// The key of this name, or that of the address of this name.
    #[must_use]
    pub fn key_of(&self, name: PeerIndex) -> Option<JobKey> {
        let keys = self.keys.read();
        let address = || self.address(name).map(|address| address.key);
        let at = keys.place(name).or_else(address)?;
        keys.job(at).cloned()
    }

    /// The ids of all keys.
    #[must_use]
    pub fn key_ids(&self) -> Vec<KeyId> {
        self.keys.read().ids()
    }

    /// The name of a key in completions; [`NOWHERE`] without one.
    #[must_use]
    pub fn shown_key(&self, key: KeyIndex) -> PeerIndex {
        self.keys.read().shown(key, self.user_ids).unwrap_or(NOWHERE)
    }

    /// The keys of an endpoint that is enabled now.
    #[must_use]
    pub(crate) fn key_set(&self) -> KeySet {
        self.keys.read().set()
    }

    /// Inserts the name of a peer, with the key of this name where the domain leaves keys to address vectors.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name of another family, and for a key that is missing or has no place here;
    /// [`Error::Address`] for a name that cannot be a peer's, else as [`Entries::insert`].
    pub fn insert_name(
        &self,
        addr: SocketAddr,
        key: Option<PeerIndex>,
    ) -> Result<PeerIndex, Error> {
        let name = usable(addr, self.domain.family())?;
        if key.is_some() != self.takes_keys() {
            return Err(Error::Invalid);
        }
        let Some(key) = key else {
            return Ok(self.table.write().insert(name.into())?.into());
        };
        let mut keys = self.keys.write();
        let key = keys.place(key).ok_or(Error::Invalid)?;
        let (mut table, address) = (self.table.write(), PeerAddress { name, key });
        let is_new = table.name(&address, false).is_none();
        let index = table.insert(address)?;
        if is_new {
            keys.address_came(key);
        }
        Ok(index.into())
    }

    /// Takes back an insertion that nobody has seen.
    pub fn take_back(&self, index: PeerIndex) {
        let mut keys = self.keys.write();
        let mut table = self.table.write();
        if let Ok(Some(address)) = table.remove(index) {
            table.free(index);
            keys.address_left(address.key);
        }
    }

    /// Tells endpoints that addresses were inserted.
    pub fn tell_of_names(&self) {
        self.each_member(|member| member.names_added());
    }

    /// The domain that the AV belongs to.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The name and key at `fi_addr`. The name of a receive context (`fi_rx_addr`) has the port of its
    /// endpoint plus the context's number.
    #[must_use]
    pub fn address(&self, fi_addr: PeerIndex) -> Option<PeerAddress> {
        let mut address = self.table.read().get(self.base(fi_addr))?;
        if self.rx_ctx_bits > 0 {
            let context = u16::try_from(fi_addr >> (u64::BITS - self.rx_ctx_bits)).ok()?;
            address.name.set_port(address.name.port().checked_add(context)?);
        }
        Some(address)
    }

    /// The name at `fi_addr`.
    #[must_use]
    pub fn addr(&self, fi_addr: PeerIndex) -> Option<SocketAddr> {
        self.address(fi_addr).map(|address| address.name)
    }

    /// An `fi_addr` without the number of a receive context.
    #[must_use]
    pub fn base(&self, fi_addr: PeerIndex) -> PeerIndex {
        fi_addr & (PeerIndex::MAX >> self.rx_ctx_bits)
    }

    /// Index of an address, or the user's own name for it, or [`NOWHERE`].
    #[must_use]
    pub fn find(&self, address: PeerAddress) -> PeerIndex {
        self.table.read().name(&address, self.user_ids).unwrap_or(NOWHERE)
    }

    /// True if the address is there.
    #[must_use]
    pub(crate) fn knows(&self, address: PeerAddress) -> bool {
        self.table.read().name(&address, false).is_some()
    }

    /// Completions name the key `name` by `user_id` from now on.
    ///
    /// # Errors
    /// [`NotThere`].
    pub fn set_key_user_id(&self, name: PeerIndex, user_id: u64) -> Result<(), NotThere> {
        self.keys.write().set_user_id(name, user_id).then_some(()).ok_or(NotThere)
    }

    /// Completions name the address at `fi_addr` by `user_id` from now on.
    ///
    /// # Errors
    /// [`NotThere`].
    pub fn set_user_id(&self, fi_addr: PeerIndex, user_id: u64) -> Result<(), NotThere> {
        self.table.write().set_user_id(fi_addr, user_id)?;
        self.each_member(|member| member.names_changed());
        Ok(())
    }

    /// Calls `f` for each member, without the locks: a member may look an address up meanwhile.
    fn each_member(&self, f: impl FnMut(Arc<dyn Member>)) {
        let members = self.members.lock().clone();
        members.iter().filter_map(Weak::upgrade).for_each(f);
    }

    /// Binds an endpoint: the AV tells it of removals, and stays open until the result is dropped.
    #[must_use]
    pub fn attach(&self, member: Weak<dyn Member>) -> Use {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
        self.users.add()
    }

    /// Takes one insertion of an address back.
    ///
    /// # Errors
    /// [`NotThere`].
    pub fn remove(&self, fi_addr: PeerIndex) -> Result<(), NotThere> {
        let gone = self.table.write().remove(fi_addr)?;
        if let Some(address) = gone {
            self.domain.admission.shrank();
            self.each_member(|member| member.peer_removed(fi_addr));
            // The index is free only now: an endpoint not yet told must not take an address that another thread inserts
            // for this one.
            self.table.write().free(fi_addr);
            self.keys.write().address_left(address.key);
        }
        Ok(())
    }
}

/// Checks the address of a peer.
fn usable(addr: SocketAddr, family: Family) -> Result<SocketAddr, Error> {
    if Family::of(addr.ip()) != family {
        return Err(Error::Invalid);
    }
    if addr.port() == 0 || addr.ip().is_unspecified() || addr.ip().is_multicast() {
        return Err(Error::Address);
    }
    Ok(addr)
}
