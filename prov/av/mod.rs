//! `fid_av`: the address vector, peers' names by index (`fi_av(3)`).
//!
//! `FI_AV_MAP` behaves as `FI_AV_TABLE`, as the man page encourages.

mod insert;
mod keys;

use crate::domain::DomainFid;
use crate::eq::BoundEq;
use crate::errno;
use crate::object::{self, Class};
use erd_core::av::entries::Entries;
use erd_core::av::table::NotThere;
use erd_core::av::{AddressVector, RX_CTX_BITS_MAX};
use erd_core::settings::KeySource;
use erd_core::sockaddr;
use erd_core::uses::Users;
use erd_ffi::fi::{
    FI_AUTH_KEY, FI_AV_MAP, FI_AV_TABLE, FI_AV_UNSPEC, FI_AV_USER_ID, FI_CLASS_AV, FI_EALREADY,
    FI_EBADFLAGS, FI_EINVAL, FI_ENOSYS, FI_EVENT, FI_READ, FI_SYMMETRIC, NOSYS_AV, NOSYS_FID,
    fi_addr_t, fi_av_attr, fi_ops, fi_ops_av, fid, fid_av, fid_xpu_ctx,
};
use erd_ffi::guard::guarded;
use parking_lot::Mutex;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

/// An address vector, with the state that only libfabric needs.
pub struct AvFid {
    /// The vector.
    pub av: Arc<AddressVector>,
    /// Insertions report on an event queue.
    asynchronous: bool,
    eq: Mutex<Option<BoundEq>>,
}

impl Deref for AvFid {
    type Target = AddressVector;

    fn deref(&self) -> &AddressVector {
        &self.av
    }
}

// SAFETY: `fid_av` begins with its `fid`, and no other state has this class.
unsafe impl Class for AvFid {
    type Abi = fid_av;
    const FCLASS: usize = FI_CLASS_AV;

    fn users(&self) -> &Users {
        self.av.users()
    }
}

/// `fi_av_open` of `fi_av(3)`.
///
/// # Safety
/// `attr` and `av` are as the man page says.
pub unsafe fn open(
    domain: &Arc<DomainFid>,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || av.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's attributes, which never grew.
    let asked = unsafe { *attr };
    let known_type = matches!(asked.r#type, FI_AV_UNSPEC | FI_AV_MAP | FI_AV_TABLE);
    let rx_ctx_bits = u32::try_from(asked.rx_ctx_bits).ok().filter(|n| *n <= RX_CTX_BITS_MAX);
    let (true, Some(rx_ctx_bits), 0) = (known_type, rx_ctx_bits, asked.flags & !OPEN_FLAGS) else {
        tracing::info!(
            av_type = asked.r#type,
            asked.rx_ctx_bits,
            flags = asked.flags,
            "fi_av_open: type may be UNSPEC, MAP or TABLE, rx_ctx_bits 0 to {RX_CTX_BITS_MAX}, \
             flags FI_EVENT, FI_SYMMETRIC, FI_AV_USER_ID, and FI_READ with a name"
        );
        return -FI_EINVAL;
    };
    let name = if asked.name.is_null() {
        None
    } else {
        // SAFETY: the caller's name is a C string.
        match unsafe { CStr::from_ptr(asked.name) }.to_str() {
            Ok(name) => Some(name),
            Err(_) => return -FI_EINVAL,
        }
    };
    let read_only = asked.flags & FI_READ != 0;
    if domain.settings.keys == KeySource::Vectors && name.is_some() {
        tracing::warn!("fi_av_open: an AV with a name has no keys, which FI_AV_AUTH_KEY needs");
        return -FI_EINVAL;
    }
    let entries = match Entries::open(name, asked.count, domain.family(), read_only) {
        Ok(entries) => entries,
        Err(error) => return -errno::of(error),
    };
    let map_addr = entries.map_addr();
    let user_ids = asked.flags & FI_AV_USER_ID != 0;
    let inner = Arc::new(AvFid {
        av: AddressVector::with(&domain.domain, entries, rx_ctx_bits, user_ids),
        asynchronous: asked.flags & FI_EVENT != 0,
        eq: Mutex::new(None),
    });
    let abi = fid_av { fid: object::base::<AvFid>(context, &FID_OPS), ops: &AV_OPS };
    // SAFETY: the caller gave its attributes, of which `type` is also an answer, and a place for
    // the new object.
    unsafe {
        if asked.r#type == FI_AV_UNSPEC {
            (*attr).r#type = FI_AV_TABLE;
        }
        if let Some(map_addr) = map_addr {
            (*attr).map_addr = map_addr;
        }
        *av = object::publish(abi, inner);
    }
    0
}

/// Flags of `fi_av_open`.
const OPEN_FLAGS: u64 = FI_EVENT | FI_SYMMETRIC | FI_AV_USER_ID | FI_READ;

static FID_OPS: fi_ops = fi_ops { close: object::close::<AvFid>, bind: av_bind, ..NOSYS_FID };

static AV_OPS: fi_ops_av = fi_ops_av {
    insert: insert::av_insert,
    insertsvc: insert::av_insertsvc,
    insertsym: insert::av_insertsym,
    remove: av_remove,
    lookup: av_lookup,
    straddr: av_straddr,
    lookup2: av_lookup2,
    set_user_id: av_set_user_id,
    insert_auth_key: keys::av_insert_auth_key,
    lookup_auth_key: keys::av_lookup_auth_key,
    ..NOSYS_AV
};

/// `fi_av_lookup`.
///
/// # Safety
/// `av` is open, the buffer as the man page says.
unsafe fn lookup(
    av: *mut fid_av,
    fi_addr: fi_addr_t,
    addr: *mut c_void,
    addrlen: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { object::inner::<AvFid>(av) }.addr(fi_addr);
    let (Some(found), false) = (found, addrlen.is_null()) else {
        return -FI_EINVAL;
    };
    // SAFETY: the caller's buffer and length. Like libfabric's own providers, a short buffer gets
    // a part and no error: the length tells.
    unsafe { sockaddr::write(found, addr, addrlen) };
    0
}

guarded! {
    unsafe extern "C" fn av_bind(av: *mut fid, other: *mut fid, flags: u64) -> c_int {
        if flags != 0 {
            return -FI_EBADFLAGS;
        }
        // SAFETY: libfabric calls with our open AV and another open object.
        let (Some(av), Some(eq)) = (unsafe {
            (object::from_fid::<AvFid>(av), object::from_fid(other))
        }) else {
            return -FI_EINVAL;
        };
        let mut slot = av.eq.lock();
        if slot.is_some() {
            return -FI_EALREADY;
        }
        *slot = Some(BoundEq::new(eq));
        0
    }

    unsafe extern "C" fn av_remove(
        av: *mut fid_av,
        fi_addr: *mut fi_addr_t,
        count: usize,
        flags: u64,
    ) -> c_int {
        if flags & !FI_AUTH_KEY != 0 || (fi_addr.is_null() && count > 0) {
            return -FI_EINVAL;
        }
        // SAFETY: libfabric calls with our open AV.
        let av = unsafe { object::inner::<AvFid>(av) };
        let mut answer = 0;
        for index in 0..count {
            // SAFETY: the caller's array has `count` places.
            let fi_addr = unsafe { *fi_addr.add(index) };
            if flags & FI_AUTH_KEY != 0 {
                if let Err(error) = av.remove_key(fi_addr) {
                    tracing::info!(fi_addr, %error, "fi_av_remove: the key stays");
                    answer = -errno::of(error);
                }
                continue;
            }
            if av.remove(fi_addr) == Err(NotThere) {
                tracing::info!(fi_addr, "fi_av_remove: no such address");
                answer = -FI_EINVAL;
            }
        }
        answer
    }

    unsafe extern "C" fn av_lookup(
        av: *mut fid_av,
        fi_addr: fi_addr_t,
        addr: *mut c_void,
        addrlen: *mut usize,
    ) -> c_int {
        // SAFETY: libfabric calls with our open AV and a buffer as fi_av(3) says.
        unsafe { lookup(av, fi_addr, addr, addrlen) }
    }

    unsafe extern "C" fn av_lookup2(
        av: *mut fid_av,
        fi_addr: fi_addr_t,
        buf: *mut c_void,
        len: *mut usize,
        flags: u64,
        _ctx: *mut fid_xpu_ctx,
    ) -> c_int {
        if flags != 0 {
            return -FI_ENOSYS;
        }
        // SAFETY: as above.
        unsafe { lookup(av, fi_addr, buf, len) }
    }

    unsafe extern "C" fn av_set_user_id(
        av: *mut fid_av,
        fi_addr: fi_addr_t,
        user_id: fi_addr_t,
        flags: u64,
    ) -> c_int {
        if flags & !FI_AUTH_KEY != 0 {
            return -FI_EBADFLAGS;
        }
        // SAFETY: libfabric calls with our open AV.
        let av = unsafe { object::inner::<AvFid>(av) };
        if !av.has_user_ids() {
            tracing::info!("fi_av_set_user_id: the AV was opened without FI_AV_USER_ID");
            return -FI_EINVAL;
        }
        let set = match flags & FI_AUTH_KEY {
            0 => av.set_user_id(fi_addr, user_id),
            _ => av.set_key_user_id(fi_addr, user_id),
        };
        set.map_or(-FI_EINVAL, |()| 0)
    }

    unsafe extern "C" fn av_straddr(
        av: *mut fid_av,
        addr: *const c_void,
        buf: *mut c_char,
        len: *mut usize,
    ) -> *const c_char {
        // SAFETY: libfabric calls with our open AV, whose addresses all have one length.
        let family = unsafe { object::inner::<AvFid>(av) }.domain().family();
        // SAFETY: the caller's address and, unless NULL, its length.
        let (decoded, no_len) =
            unsafe { (sockaddr::read(addr, family.addr_bytes()), len.is_null()) };
        let text = match decoded {
            Ok(Some(SocketAddr::V4(addr))) => format!("fi_sockaddr_in://{addr}"),
            Ok(Some(SocketAddr::V6(addr))) => format!("fi_sockaddr_in6://{addr}"),
            _ => return std::ptr::null(),
        };
        if no_len || buf.is_null() {
            return std::ptr::null();
        }
        // SAFETY: the caller's buffer has `*len` bytes; what is written ends with a 0 within it.
        unsafe {
            let kept = text.len().min((*len).saturating_sub(1));
            if *len > 0 {
                std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, kept);
                buf.add(kept).write(0);
            }
            *len = text.len() + 1;
        }
        buf
    }
}
