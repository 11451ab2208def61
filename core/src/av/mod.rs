//! Address vectors: the names of peers by index.
//!
//! Inserting an address never touches the network. An address inserted again keeps its index. It leaves once it was
//! removed as often as inserted.

pub mod entries;
pub mod shared;
pub mod symmetric;
pub mod table;

use crate::admission::Names;
use crate::domain::Domain;
use crate::error::Error;
use crate::peer_index::{NOWHERE, PeerIndex};
use crate::sockaddr::Family;
use crate::uses::{Use, Users};
use entries::Entries;
use parking_lot::{Mutex, RwLock};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use table::{NotThere, Table};

pub use table::ENTRIES_MAX;

/// Notices from an AV to an endpoint that is bound to it.
pub trait Member: Send + Sync {
    /// `addr` has left `fi_addr`. Its session may go on: the other side decides, too.
    fn peer_removed(&self, fi_addr: PeerIndex, addr: SocketAddr);

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
    fn has(&self, addr: SocketAddr) -> bool {
        self.table.read().name(&addr, false).is_some()
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

    /// Inserts the name of a peer.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name of another family, [`Error::Address`] for one that cannot be a
    /// peer's, else as [`Entries::insert`].
    pub fn insert_name(&self, addr: SocketAddr) -> Result<PeerIndex, Error> {
        let addr = usable(addr, self.domain.family())?;
        let index = self.table.write().insert(addr)?;
        Ok(index.into())
    }

    /// Takes back an insertion that nobody has seen.
    pub fn take_back(&self, index: PeerIndex) {
        let mut table = self.table.write();
        if let Ok(Some(_)) = table.remove(index) {
            table.free(index);
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

    /// The address at `fi_addr`. That of a receive context (`fi_rx_addr`) has the port of its
    /// endpoint plus the context's number.
    #[must_use]
    pub fn addr(&self, fi_addr: PeerIndex) -> Option<SocketAddr> {
        let mut addr = self.table.read().get(self.base(fi_addr))?;
        if self.rx_ctx_bits > 0 {
            let context = u16::try_from(fi_addr >> (u64::BITS - self.rx_ctx_bits)).ok()?;
            addr.set_port(addr.port().checked_add(context)?);
        }
        Some(addr)
    }

    /// An `fi_addr` without the number of a receive context.
    #[must_use]
    pub fn base(&self, fi_addr: PeerIndex) -> PeerIndex {
        fi_addr & (PeerIndex::MAX >> self.rx_ctx_bits)
    }

    /// Index of `addr`, or the user's own name for it, or [`NOWHERE`].
    #[must_use]
    pub fn find(&self, addr: SocketAddr) -> PeerIndex {
        self.table.read().name(&addr, self.user_ids).unwrap_or(NOWHERE)
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
        if let Some(addr) = gone {
            self.domain.admission.shrank();
            self.each_member(|member| member.peer_removed(fi_addr, addr));
            // The index is free only now: an endpoint not yet told must not take an address that another thread inserts
            // for this one.
            self.table.write().free(fi_addr);
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
