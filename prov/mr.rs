//! `fid_mr`: registered memory (`fi_mr(3)`).
//!
//! No registration is needed for local buffers; where the domain has an RDMA device, it sends from those that
//! are registered without copying them (docs/verbs.md). Memory registered for remote access gets a
//! key in the domain's table; other registrations have none.

use crate::cntr::CntrInner;
use crate::domain::DomainInner;
use crate::object::{self, Class, Use, Users};
use crate::region::{Piece, Region};
use erd_ffi::fi::compat;
use erd_ffi::fi::{
    FI_CLASS_EP, FI_CLASS_MR, FI_CLASS_RX_CTX, FI_CLASS_SEP, FI_EBADFLAGS, FI_EINVAL,
    FI_EKEYREJECTED, FI_ENABLE, FI_ENOKEY, FI_ENOMEM, FI_ENOSYS, FI_EOPBADSTATE, FI_ETOOSMALL,
    FI_GET_RAW_MR, FI_HMEM_SYSTEM, FI_KEY_NOTAVAIL, FI_MR_BASIC, FI_MR_DMABUF, FI_MR_ENDPOINT,
    FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_REFRESH, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND,
    FI_WRITE, NOSYS_FID, NOSYS_MR, fi_mr_attr, fi_mr_map_raw, fi_mr_raw_attr, fi_ops, fi_ops_mr,
    fid, fid_mr,
};
use erd_ffi::guard::guarded;
use erd_port::PinId;
use libc::iovec;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Most pieces of memory under one key.
pub const MR_IOV_LIMIT: usize = 8;
/// What peers may do.
const REMOTE_ACCESS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
/// What is read to be sent: by messages, by writes, and in answer to peers' reads.
const SENT_FROM: u64 = FI_SEND | FI_WRITE | FI_REMOTE_READ;
/// Most keys of a domain.
pub const REGIONS_MAX: usize = 1 << 20;
/// Keys remembered after they were taken back.
const GONE_MAX: usize = 1024;
/// Bytes of a raw key.
const RAW_KEY_BYTES: usize = size_of::<u64>();

/// Why a region gets no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoKey {
    /// The key that the application asked for is in use.
    Taken,
    /// The domain has [`REGIONS_MAX`] regions.
    Full,
}

/// A domain's regions by key.
pub struct MrTable {
    provider_keys: bool,
    at_enable: bool,
    virtual_addresses: bool,
    regions: Mutex<HashMap<u64, Arc<Region>>>,
    /// The last [`GONE_MAX`] keys that were taken back: peers may use them still.
    gone: Mutex<VecDeque<u64>>,
}

impl MrTable {
    /// An empty table for a domain of this `mr_mode`.
    #[must_use]
    pub fn new(mr_mode: c_int) -> MrTable {
        // FI_MR_BASIC is the name of before 1.5 for these modes together.
        let has = |bit| mr_mode & (bit | FI_MR_BASIC) != 0;
        MrTable {
            provider_keys: has(FI_MR_PROV_KEY),
            virtual_addresses: has(FI_MR_VIRT_ADDR),
            at_enable: mr_mode & FI_MR_ENDPOINT != 0,
            regions: Mutex::default(),
            gone: Mutex::default(),
        }
    }

    /// Gives a region its key: an unguessable one, or the one that the application asks for.
    ///
    /// # Errors
    /// [`NoKey`].
    pub fn insert(&self, region: Arc<Region>, requested_key: u64) -> Result<u64, NoKey> {
        let mut regions = self.regions.lock();
        if regions.len() >= REGIONS_MAX {
            return Err(NoKey::Full);
        }
        let key = if self.provider_keys { fresh_key(&regions) } else { requested_key };
        if key == FI_KEY_NOTAVAIL || regions.contains_key(&key) {
            return Err(NoKey::Taken);
        }
        regions.insert(key, region);
        Ok(key)
    }

    /// A stranger could guess a key: the application chooses them.
    #[must_use]
    pub fn has_guessable_keys(&self) -> bool {
        !self.provider_keys
    }

    /// The region with this key.
    #[must_use]
    pub fn find(&self, key: u64) -> Option<Arc<Region>> {
        self.regions.lock().get(&key).cloned()
    }

    /// Takes a key back; peers that use it from now on are refused.
    pub fn remove(&self, key: u64) {
        self.regions.lock().remove(&key);
        let mut gone = self.gone.lock();
        gone.truncate(GONE_MAX - 1);
        gone.push_front(key);
    }

    /// Whether a key stands, or was taken back lately.
    #[must_use]
    pub fn stood(&self, key: u64) -> bool {
        self.regions.lock().contains_key(&key) || self.gone.lock().contains(&key)
    }

    /// Regions with a key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.lock().len()
    }

    /// True if no region has a key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A random key that is not in use.
fn fresh_key(regions: &HashMap<u64, Arc<Region>>) -> u64 {
    loop {
        let key = erd_core::random::u64();
        if key != FI_KEY_NOTAVAIL && !regions.contains_key(&key) {
            return key;
        }
    }
}

/// State of a registration.
pub struct MrInner {
    domain: Arc<DomainInner>,
    region: Arc<Region>,
    requested_key: u64,
    /// `FI_KEY_NOTAVAIL` without remote access, and before it is enabled.
    key: Mutex<u64>,
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_mr` begins with its `fid`, and no other state has this class.
unsafe impl Class for MrInner {
    type Abi = fid_mr;
    const FCLASS: usize = FI_CLASS_MR;

    fn users(&self) -> &Users {
        &self.users
    }

    fn closing(self: &Arc<Self>) -> Result<(), c_int> {
        let key = *self.key.lock();
        if key != FI_KEY_NOTAVAIL {
            self.domain.regions.remove(key);
        }
        self.region.close();
        Ok(())
    }
}

impl MrInner {
    fn is_remote(&self) -> bool {
        self.region.access() != 0
    }

    /// Gives the registration its key, if it is to have one. Answers the key.
    fn enable(&self) -> Result<u64, c_int> {
        let mut key = self.key.lock();
        if *key != FI_KEY_NOTAVAIL {
            return Err(FI_EOPBADSTATE);
        }
        if self.is_remote() {
            let inserted = self.domain.regions.insert(Arc::clone(&self.region), self.requested_key);
            *key = inserted.map_err(|reason| match reason {
                NoKey::Taken => FI_ENOKEY,
                NoKey::Full => FI_ENOMEM,
            })?;
        }
        Ok(*key)
    }

    /// # Safety
    /// `attr` is as `fi_mr_raw_attr` of `fi_mr(3)` says.
    unsafe fn raw_attr(&self, attr: *mut fi_mr_raw_attr) -> c_int {
        let key = *self.key.lock();
        if key == FI_KEY_NOTAVAIL {
            return -FI_EKEYREJECTED;
        }
        // SAFETY: the caller's structure; its pointers are NULL or places as the page says.
        unsafe {
            let attr = &mut *attr;
            if attr.key_size.is_null() {
                return -FI_EINVAL;
            }
            let room = std::mem::replace(&mut *attr.key_size, RAW_KEY_BYTES);
            if room < RAW_KEY_BYTES || attr.raw_key.is_null() {
                return -FI_ETOOSMALL;
            }
            if !attr.base_addr.is_null() {
                *attr.base_addr = self.region.base();
            }
            attr.raw_key.cast::<[u8; RAW_KEY_BYTES]>().write(key.to_ne_bytes());
        }
        0
    }
}

/// `fi_mr_map_raw`: a raw key is the key.
///
/// # Safety
/// `map` is as `fi_mr(3)` says.
pub unsafe fn map_raw(map: *const fi_mr_map_raw) -> c_int {
    // SAFETY: the caller's structure.
    let map = unsafe { &*map };
    if map.key_size != RAW_KEY_BYTES || map.raw_key.is_null() || map.key.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's raw key has the length just checked, and `key` is a place.
    unsafe { *map.key = u64::from_ne_bytes(map.raw_key.cast::<[u8; RAW_KEY_BYTES]>().read()) };
    0
}

/// The pieces of a caller's array. `None` if there are none or too many.
///
/// # Safety
/// `iov` is NULL or has `count` elements.
unsafe fn pieces(iov: *const iovec, count: usize) -> Option<Vec<Piece>> {
    if iov.is_null() || !(1..=MR_IOV_LIMIT).contains(&count) {
        return None;
    }
    // SAFETY: not NULL, and the caller vouches for the length.
    let iov = unsafe { std::slice::from_raw_parts(iov, count) };
    let piece = |part: &iovec| Piece { start: part.iov_base as usize, len_bytes: part.iov_len };
    Some(iov.iter().map(piece).collect())
}

/// Registers memory.
///
/// # Safety
/// `domain` is an open object; `attr.mr_iov` is NULL or has `attr.iov_count` elements; `mr` is
/// writable.
unsafe fn register(domain: *mut fid, attr: &fi_mr_attr, flags: u64, mr: *mut *mut fid_mr) -> c_int {
    if flags & FI_MR_DMABUF != 0 || attr.iface != FI_HMEM_SYSTEM {
        tracing::info!(iface = attr.iface, "fi_mr_reg: only memory of the host can be registered");
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's promise.
    let (domain, pieces) =
        unsafe { (object::from_fid::<DomainInner>(domain), pieces(attr.mr_iov, attr.iov_count)) };
    let (Some(domain), Some(pieces), false) = (domain, pieces, mr.is_null()) else {
        tracing::info!(count = attr.iov_count, "fi_mr_reg: 1 to {MR_IOV_LIMIT} pieces");
        return -FI_EINVAL;
    };
    let access = attr.access & REMOTE_ACCESS;
    let region = Region::new(pieces, access, domain.regions.virtual_addresses);
    let region = if attr.access & SENT_FROM != 0 { domain.pinned(region) } else { region };
    let desc = region.memory().map_or(0, PinId::number);
    let inner = Arc::new(MrInner {
        domain: Arc::clone(domain),
        region: Arc::new(region),
        requested_key: attr.requested_key,
        key: Mutex::new(FI_KEY_NOTAVAIL),
        users: Users::default(),
        _domain_use: domain.hold(),
    });
    let key = if domain.regions.at_enable { Ok(FI_KEY_NOTAVAIL) } else { inner.enable() };
    let key = match key {
        Ok(key) => key,
        Err(errno) => {
            tracing::info!(errno, key = attr.requested_key, "fi_mr_reg: no key");
            return -errno;
        }
    };
    let fid = object::base::<MrInner>(attr.context, &FID_OPS);
    // Never followed: a number that may be out of date, and then names nothing.
    let mem_desc = std::ptr::without_provenance_mut(desc as usize);
    let abi = fid_mr { fid, mem_desc, key };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *mr = object::publish(abi, inner) };
    0
}

static FID_OPS: fi_ops =
    fi_ops { close: object::close::<MrInner>, bind: mr_bind, control: mr_control, ..NOSYS_FID };

/// Registration, for the domain's table.
pub static MR_OPS: fi_ops_mr =
    fi_ops_mr { reg: mr_reg, regv: mr_regv, regattr: mr_regattr, ..NOSYS_MR };

guarded! {
    unsafe extern "C" fn mr_reg(
        domain: *mut fid,
        buf: *const c_void,
        len: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) -> c_int {
        let iov = iovec { iov_base: buf.cast_mut(), iov_len: len };
        let attr = fi_mr_attr {
            mr_iov: &raw const iov,
            iov_count: 1,
            access,
            offset,
            requested_key,
            context,
            ..fi_mr_attr::ZERO
        };
        // SAFETY: libfabric calls with our open domain; the array is our own.
        unsafe { register(domain, &attr, flags, mr) }
    }

    unsafe extern "C" fn mr_regv(
        domain: *mut fid,
        iov: *const iovec,
        count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) -> c_int {
        let attr = fi_mr_attr {
            mr_iov: iov,
            iov_count: count,
            access,
            offset,
            requested_key,
            context,
            ..fi_mr_attr::ZERO
        };
        // SAFETY: libfabric calls with our open domain and an array as fi_mr(3) says.
        unsafe { register(domain, &attr, flags, mr) }
    }

    unsafe extern "C" fn mr_regattr(
        domain: *mut fid,
        attr: *const fi_mr_attr,
        flags: u64,
        mr: *mut *mut fid_mr,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain.
        let Some(state) = (unsafe { object::from_fid::<DomainInner>(domain) }) else {
            return -FI_EINVAL;
        };
        if attr.is_null() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's attributes, read as far as its API version reaches.
        let attr = unsafe { compat::read(attr, state.api_version()) };
        // SAFETY: an array as fi_mr(3) says.
        unsafe { register(domain, &attr, flags, mr) }
    }

    unsafe extern "C" fn mr_bind(mr: *mut fid, other: *mut fid, flags: u64) -> c_int {
        // SAFETY: libfabric calls with our open registration and another open object or NULL.
        let (mr, cntr, endpoint) = unsafe {
            let endpoint = !other.is_null() && matches!((*other).fclass, FI_CLASS_EP | FI_CLASS_RX_CTX | FI_CLASS_SEP);
            (object::from_fid::<MrInner>(mr), object::from_fid::<CntrInner>(other), endpoint)
        };
        match (mr, cntr) {
            // A key holds for all endpoints of the domain, so there is nothing to note.
            (Some(_), None) if endpoint => 0,
            (Some(_), Some(_)) if flags & !REMOTE_ACCESS != 0 || flags == 0 => {
                tracing::info!(flags, "fi_mr_bind: a counter is for FI_REMOTE_READ or _WRITE");
                -FI_EBADFLAGS
            }
            (Some(mr), Some(cntr)) => {
                mr.region.count_in(cntr, flags);
                mr.domain.watch_region(cntr);
                0
            }
            _ => -FI_EINVAL,
        }
    }

    unsafe extern "C" fn mr_control(mr: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open registration.
        let Some(state) = (unsafe { object::from_fid::<MrInner>(mr) }) else {
            return -FI_EINVAL;
        };
        match command {
            FI_ENABLE if state.domain.regions.at_enable => match state.enable() {
                Ok(key) => {
                    // SAFETY: the object's C part, of which no reference exists; `fi_mr_key` may
                    // be called after this returns.
                    unsafe { (*mr.cast::<fid_mr>()).key = key };
                    0
                }
                Err(errno) => -errno,
            },
            // Without FI_MR_ENDPOINT a registration is enabled from the start.
            FI_ENABLE | FI_REFRESH => 0,
            // SAFETY: this command's argument is what fi_mr(3) says.
            FI_GET_RAW_MR if !arg.is_null() => unsafe { state.raw_attr(arg.cast()) },
            _ => -FI_ENOSYS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Arc<Region> {
        let pieces = vec![Piece { start: 4096, len_bytes: 10 }];
        Arc::new(Region::new(pieces, FI_REMOTE_READ, false))
    }

    #[test]
    fn an_applications_key_is_kept_and_cannot_be_given_twice() {
        let table = MrTable::new(0);
        assert_eq!(table.insert(region(), 7), Ok(7));
        assert_eq!(table.insert(region(), 7), Err(NoKey::Taken));
        assert_eq!(table.insert(region(), u64::MAX), Err(NoKey::Taken));
        table.remove(7);
        assert!(table.stood(7) && !table.stood(8));
        assert_eq!(table.insert(region(), 7), Ok(7));
    }

    #[test]
    fn the_providers_keys_differ_from_each_other_and_from_what_was_asked() {
        for mode in [FI_MR_PROV_KEY, FI_MR_BASIC] {
            let table = MrTable::new(mode);
            let keys: Vec<_> = (0..64).map(|_| table.insert(region(), 7).expect("key")).collect();
            assert_eq!(table.len(), 64);
            assert!(keys.iter().all(|key| *key > 1 << 32), "{keys:?}");
        }
    }
}
