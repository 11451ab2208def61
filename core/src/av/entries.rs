//! The address storage of an AV: a table of its own, or one that processes share under a name.

use super::shared::Shared;
use super::table::{Full, NotThere, Table};
use crate::error::Error;
use crate::sockaddr::Family;
use erd_rd::{KeyIndex, PeerAddress};
use std::ffi::c_void;
use std::net::IpAddr;

/// See the module's text.
pub enum Entries {
    /// Its own.
    Own(Table),
    /// Those of a name.
    Shared(Shared),
}

impl Entries {
    /// The AV's own addresses, with room for `count`, or the shared ones called `name` where given.
    ///
    /// # Errors
    /// [`Error::Invalid`] if addresses without a name would be read-only, or the error of opening shared ones.
    pub fn open(
        name: Option<&str>,
        count: usize,
        family: Family,
        read_only: bool,
    ) -> Result<Entries, Error> {
        match name {
            Some(name) => Shared::open(name, count, family, read_only).map(Entries::Shared),
            None if read_only => {
                tracing::info!("fi_av_open: FI_READ is for an AV with a name");
                Err(Error::Invalid)
            }
            None => Ok(Entries::Own(Table::with_room(count))),
        }
    }

    /// The `fi_addr` of each address in turn, in memory that all processes see.
    pub fn map_addr(&self) -> Option<*mut c_void> {
        match self {
            Entries::Own(_) => None,
            Entries::Shared(shared) => Some(shared.map_addr()),
        }
    }

    /// Index of an address; one that is there already keeps its index and counts once more.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if the table is full, [`Error::Access`] if it is read-only.
    pub fn insert(&mut self, addr: PeerAddress) -> Result<u32, Error> {
        match self {
            Entries::Own(table) => table.insert(addr).map_err(|Full| Error::NoMemory),
            Entries::Shared(shared) if shared.is_read_only() => Err(Error::Access),
            // A name alone is shared: keys stay in their process.
            Entries::Shared(_) if addr.key != KeyIndex::default() => Err(Error::Invalid),
            Entries::Shared(shared) => shared.insert(addr.name).map_err(|Full| Error::NoMemory),
        }
    }

    /// Takes one insertion back. Returns the address if that was its last; no other address gets its index before
    /// [`Entries::free`].
    ///
    /// # Errors
    /// [`NotThere`].
    pub fn remove(&mut self, index: u64) -> Result<Option<PeerAddress>, NotThere> {
        match self {
            Entries::Own(table) => table.remove(index),
            Entries::Shared(shared) => Ok(shared.remove(index)?.map(PeerAddress::from)),
        }
    }

    /// Frees the index of a removed address, once nobody uses it. A shared address keeps its index for ever.
    pub fn free(&mut self, index: u64) {
        match self {
            Entries::Own(table) => table.free(index),
            Entries::Shared(_) => {}
        }
    }

    /// The address at an index.
    pub fn get(&self, index: u64) -> Option<PeerAddress> {
        match self {
            Entries::Own(table) => table.get(index),
            Entries::Shared(shared) => shared.get(index).map(PeerAddress::from),
        }
    }

    /// Name of an address in completions: see [`Table::name`].
    pub fn name(&self, addr: &PeerAddress, users_own: bool) -> Option<u64> {
        match self {
            Entries::Own(table) => table.name(addr, users_own),
            Entries::Shared(shared) => {
                shared.name(&addr.name).filter(|_| addr.key == KeyIndex::default())
            }
        }
    }

    /// Whether some address is of this host.
    pub(crate) fn has_host(&self, host: IpAddr) -> bool {
        match self {
            Entries::Own(table) => table.has_host(host),
            Entries::Shared(shared) => shared.has_host(host),
        }
    }

    /// Sets the name in completions of the address at an index.
    ///
    /// # Errors
    /// [`NotThere`]; addresses that processes share have no other names.
    pub fn set_user_id(&mut self, index: u64, user_id: u64) -> Result<(), NotThere> {
        match self {
            Entries::Own(table) => table.set_user_id(index, user_id),
            Entries::Shared(_) => Err(NotThere),
        }
    }
}
