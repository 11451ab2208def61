//! The addresses of an AV: its own, or those that processes share under a name.

use super::shared::Shared;
use super::table::{Full, NotThere, Table};
use crate::sockaddr::Family;
use erd_ffi::fi::{FI_EACCES, FI_EINVAL, FI_ENOMEM, FI_READ, fi_av_attr};
use std::ffi::{CStr, c_int, c_void};
use std::net::{IpAddr, SocketAddr};

/// See the module's text.
pub enum Entries {
    Own(Table),
    Shared(Shared),
}

impl Entries {
    /// What `fi_av_open` asks for.
    ///
    /// # Errors
    /// A positive error number.
    ///
    /// # Safety
    /// The name is NULL or a C string.
    pub unsafe fn open(asked: &fi_av_attr, family: Family) -> Result<Entries, c_int> {
        let read_only = asked.flags & FI_READ != 0;
        if asked.name.is_null() {
            if read_only {
                tracing::info!("fi_av_open: FI_READ is for an AV with a name");
                return Err(FI_EINVAL);
            }
            return Ok(Entries::Own(Table::with_room(asked.count)));
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(asked.name) }.to_str().map_err(|_| FI_EINVAL)?;
        Shared::open(name, asked.count, family, read_only).map(Entries::Shared)
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
    /// A positive error number.
    pub fn insert(&mut self, addr: SocketAddr) -> Result<u32, c_int> {
        match self {
            Entries::Own(table) => table.insert(addr).map_err(|Full| FI_ENOMEM),
            Entries::Shared(shared) if shared.is_read_only() => Err(FI_EACCES),
            Entries::Shared(shared) => shared.insert(addr).map_err(|Full| FI_ENOMEM),
        }
    }

    /// Takes one insertion back. Answers the address if that was its last; its index is not given to
    /// another before [`Entries::free`].
    ///
    /// # Errors
    /// [`NotThere`].
    pub fn remove(&mut self, index: u64) -> Result<Option<SocketAddr>, NotThere> {
        match self {
            Entries::Own(table) => table.remove(index),
            Entries::Shared(shared) => shared.remove(index),
        }
    }

    /// Nobody knows the removed address by its index any more. One that processes share keeps it for
    /// ever.
    pub fn free(&mut self, index: u64) {
        match self {
            Entries::Own(table) => table.free(index),
            Entries::Shared(_) => {}
        }
    }

    /// The address at an index.
    pub fn get(&self, index: u64) -> Option<SocketAddr> {
        match self {
            Entries::Own(table) => table.get(index),
            Entries::Shared(shared) => shared.get(index),
        }
    }

    /// What completions call an address: see [`Table::name`].
    pub fn name(&self, addr: &SocketAddr, users_own: bool) -> Option<u64> {
        match self {
            Entries::Own(table) => table.name(addr, users_own),
            Entries::Shared(shared) => shared.name(addr),
        }
    }

    /// Whether some address is of this host.
    pub fn has_host(&self, host: IpAddr) -> bool {
        match self {
            Entries::Own(table) => table.has_host(host),
            Entries::Shared(shared) => shared.has_host(host),
        }
    }

    /// Lets completions call the address at an index so.
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
