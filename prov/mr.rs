//! `fid_mr`: registered memory (`fi_mr(3)`).

use crate::auth_key;
use crate::av::AvFid;
use crate::domain::DomainFid;
use crate::entry;
use crate::errno;
use crate::object::{self, Class};
use erd_core::counter::Counter;
use erd_core::flags::Flags;
use erd_core::region::{Audience, Piece};
use erd_core::registration::{MR_IOV_LIMIT, Registration, Wanted};
use erd_core::settings::KeySource;
use erd_core::uses::Users;
use erd_ffi::fi::compat;
use erd_ffi::fi::{
    FI_ADDR_UNSPEC, FI_AUTH_KEY, FI_CLASS_EP, FI_CLASS_MR, FI_CLASS_RX_CTX, FI_CLASS_SEP,
    FI_DIRECTED_RECV, FI_EBADFLAGS, FI_EINVAL, FI_EKEYREJECTED, FI_ENABLE, FI_ENOSYS, FI_ETOOSMALL,
    FI_GET_RAW_MR, FI_HMEM_SYSTEM, FI_KEY_NOTAVAIL, FI_MR_DMABUF, FI_REFRESH, FI_REMOTE_READ,
    FI_REMOTE_WRITE, NOSYS_FID, NOSYS_MR, fi_mr_attr, fi_mr_auth_key, fi_mr_map_raw,
    fi_mr_raw_attr, fi_ops, fi_ops_mr, fid, fid_mr,
};
use erd_ffi::guard::guarded;
use erd_port::PinId;
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Bytes of a raw key.
const RAW_KEY_BYTES: usize = size_of::<u64>();

// SAFETY: `fid_mr` begins with its `fid`, and no other state has this class.
unsafe impl Class for Registration {
    type Abi = fid_mr;
    const FCLASS: usize = FI_CLASS_MR;

    fn users(&self) -> &Users {
        Registration::users(self)
    }

    fn closing(self: &Arc<Self>) -> Result<(), c_int> {
        self.close();
        Ok(())
    }
}

/// # Safety
/// `attr` is as `fi_mr_raw_attr` of `fi_mr(3)` says.
unsafe fn raw_attr(mr: &Registration, attr: *mut fi_mr_raw_attr) -> c_int {
    let key = mr.key();
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
            *attr.base_addr = mr.region().base();
        }
        attr.raw_key.cast::<[u8; RAW_KEY_BYTES]>().write(key.to_ne_bytes());
    }
    0
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

/// The peers that may reach memory registered without a key.
///
/// # Errors
/// `FI_EINVAL` in a domain that leaves keys to address vectors.
///
/// # Safety
/// `domain` is an open object.
unsafe fn audience_without_key(domain: *mut fid, call: &str) -> Result<Audience, c_int> {
    // SAFETY: the caller's promise.
    let state = unsafe { object::from_fid::<DomainFid>(domain) }.ok_or(FI_EINVAL)?;
    if state.settings.keys == KeySource::Vectors {
        tracing::warn!("{call}: a domain with FI_AV_AUTH_KEY has fi_mr_regattr alone");
        return Err(FI_EINVAL);
    }
    Ok(state.settings.keys.audience())
}

/// The peers that may reach memory registered with these attributes.
///
/// # Errors
/// `FI_EINVAL` if the attributes' key is not valid.
///
/// # Safety
/// The key is as `fi_mr(3)` says.
unsafe fn audience(domain: &DomainFid, attr: &fi_mr_attr, flags: u64) -> Result<Audience, c_int> {
    let is_key = flags & FI_AUTH_KEY != 0;
    match &domain.settings.keys {
        KeySource::Vectors => {}
        own => {
            if is_key {
                tracing::warn!("fi_mr_regattr: FI_AUTH_KEY is for domains with FI_AV_AUTH_KEY");
                return Err(FI_EINVAL);
            }
            if attr.auth_key_size == 0 {
                return Ok(own.audience());
            }
            let place = "fi_mr_regattr: attr->auth_key";
            // SAFETY: the caller's promise.
            let key = unsafe { auth_key::read(attr.auth_key.cast(), attr.auth_key_size) };
            let key = key.map_err(|bad| bad.refuse(place))?;
            if *own == KeySource::None {
                tracing::info!("{place}: endpoints with this key alone reach the memory");
            }
            return Ok(Audience::Keys(vec![key.id()]));
        }
    }
    if attr.auth_key_size != size_of::<fi_mr_auth_key>() || attr.auth_key.is_null() {
        tracing::warn!(
            size_bytes = attr.auth_key_size,
            "fi_mr_regattr: attr->auth_key must be a struct fi_mr_auth_key with FI_AV_AUTH_KEY"
        );
        return Err(FI_EINVAL);
    }
    // SAFETY: the caller's structure, wherever it lies, and the open AV that it names.
    let (av, name) = unsafe {
        let fi_mr_auth_key { av, src_addr } =
            attr.auth_key.cast::<fi_mr_auth_key>().read_unaligned();
        (object::from_fid::<AvFid>(av.cast()), src_addr)
    };
    let av = av.ok_or(FI_EINVAL)?;
    let is_directed = domain.caps & FI_DIRECTED_RECV != 0;
    if is_key && !is_directed {
        tracing::warn!("fi_mr_regattr: FI_AUTH_KEY needs a domain with FI_DIRECTED_RECV");
        return Err(FI_EINVAL);
    }
    let audience = match name {
        FI_ADDR_UNSPEC => Some(Audience::Keys(av.key_ids())),
        _ if !is_directed => Some(Audience::Keys(av.key_ids())),
        name if is_key => av.key_id(name).map(|id| Audience::Keys(vec![id])),
        name => av.one(name).and_then(|(addr, key)| Some(Audience::One(addr, key?))),
    };
    audience.ok_or_else(|| {
        tracing::warn!(name, is_key, "fi_mr_regattr: src_addr has no place in the address vector");
        FI_EINVAL
    })
}

/// Registers memory.
///
/// # Safety
/// `domain` is an open object; `attr.mr_iov` is NULL or has `attr.iov_count` elements; `mr` is
/// writable.
unsafe fn register(
    domain: *mut fid,
    attr: &fi_mr_attr,
    flags: u64,
    audience: Audience,
    mr: *mut *mut fid_mr,
) -> c_int {
    if flags & FI_MR_DMABUF != 0 || attr.iface != FI_HMEM_SYSTEM {
        tracing::info!(iface = attr.iface, "fi_mr_reg: only memory of the host can be registered");
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's promise.
    let (domain, pieces) =
        unsafe { (object::from_fid::<DomainFid>(domain), pieces(attr.mr_iov, attr.iov_count)) };
    let (Some(domain), Some(pieces), false) = (domain, pieces, mr.is_null()) else {
        tracing::info!(count = attr.iov_count, "fi_mr_reg: 1 to {MR_IOV_LIMIT} pieces");
        return -FI_EINVAL;
    };
    let access = Flags::from_bits_retain(attr.access);
    let wanted = Wanted { pieces, access, key: attr.requested_key, audience };
    let inner = match Registration::register(&domain.domain, wanted) {
        Ok(inner) => inner,
        Err(error) => {
            tracing::info!(%error, key = attr.requested_key, "fi_mr_reg: no key");
            return -errno::of(error);
        }
    };
    let desc = inner.region().memory().map_or(0, PinId::number);
    let key = inner.key();
    let fid = object::base::<Registration>(attr.context, &FID_OPS);
    let mem_desc = entry::manners().descriptor(desc);
    let abi = fid_mr { fid, mem_desc, key };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *mr = object::publish(abi, inner) };
    0
}

static FID_OPS: fi_ops = fi_ops {
    close: object::close::<Registration>,
    bind: mr_bind,
    control: mr_control,
    ..NOSYS_FID
};

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
        unsafe {
            match audience_without_key(domain, "fi_mr_reg") {
                Ok(audience) => register(domain, &attr, flags, audience, mr),
                Err(errno) => -errno,
            }
        }
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
        unsafe {
            match audience_without_key(domain, "fi_mr_regv") {
                Ok(audience) => register(domain, &attr, flags, audience, mr),
                Err(errno) => -errno,
            }
        }
    }

    unsafe extern "C" fn mr_regattr(
        domain: *mut fid,
        attr: *const fi_mr_attr,
        flags: u64,
        mr: *mut *mut fid_mr,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain.
        let Some(state) = (unsafe { object::from_fid::<DomainFid>(domain) }) else {
            return -FI_EINVAL;
        };
        if attr.is_null() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's attributes, read as far as its API version reaches.
        let attr = unsafe { compat::read(attr, state.api_version()) };
        // SAFETY: a key, an address vector and an array as fi_mr(3) says.
        unsafe {
            match audience(state, &attr, flags) {
                Ok(audience) => register(domain, &attr, flags, audience, mr),
                Err(errno) => -errno,
            }
        }
    }

    unsafe extern "C" fn mr_bind(mr: *mut fid, other: *mut fid, flags: u64) -> c_int {
        // SAFETY: libfabric calls with our open registration and another open object or NULL.
        let (mr, cntr, endpoint) = unsafe {
            let endpoint = !other.is_null() && matches!((*other).fclass, FI_CLASS_EP | FI_CLASS_RX_CTX | FI_CLASS_SEP);
            (object::from_fid::<Registration>(mr), object::from_fid::<Counter>(other), endpoint)
        };
        match (mr, cntr) {
            // A key holds for all endpoints of the domain, so there is nothing to note.
            (Some(_), None) if endpoint => 0,
            (Some(_), Some(_)) if flags & !(FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 || flags == 0 => {
                tracing::info!(flags, "fi_mr_bind: a counter is for FI_REMOTE_READ or _WRITE");
                -FI_EBADFLAGS
            }
            (Some(mr), Some(cntr)) => {
                let open = cntr.hold();
                mr.region().count_in(Arc::clone(cntr) as _, open, Flags::from_bits_retain(flags));
                mr.domain().watch_region(&cntr.watch);
                0
            }
            _ => -FI_EINVAL,
        }
    }

    unsafe extern "C" fn mr_control(mr: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open registration.
        let Some(state) = (unsafe { object::from_fid::<Registration>(mr) }) else {
            return -FI_EINVAL;
        };
        match command {
            FI_ENABLE if state.domain().regions.terms().at_enable => match state.enable() {
                Ok(key) => {
                    // SAFETY: the object's C part, of which no reference exists; `fi_mr_key` may
                    // be called after this returns.
                    unsafe { (*mr.cast::<fid_mr>()).key = key };
                    0
                }
                Err(error) => -errno::of(error),
            },
            // Without FI_MR_ENDPOINT a registration is enabled from the start.
            FI_ENABLE | FI_REFRESH => 0,
            // SAFETY: this command's argument is what fi_mr(3) says.
            FI_GET_RAW_MR if !arg.is_null() => unsafe { raw_attr(state, arg.cast()) },
            _ => -FI_ENOSYS,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::key_terms;
    use erd_core::keys::KeyTerms;
    use erd_ffi::fi::{FI_MR_BASIC, FI_MR_ENDPOINT, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR};

    #[test]
    fn the_basic_mode_stands_for_its_parts() {
        let basic = key_terms(FI_MR_BASIC);
        assert_eq!(basic, key_terms(FI_MR_PROV_KEY | FI_MR_VIRT_ADDR));
        assert_eq!(basic, KeyTerms { random: true, at_enable: false, by_address: true });
        assert!(key_terms(FI_MR_ENDPOINT).at_enable);
        assert_eq!(key_terms(0), KeyTerms::default());
    }
}
