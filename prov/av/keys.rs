//! The keys of an address vector (`FI_AV_AUTH_KEY`).

use super::AvFid;
use crate::{auth_key, errno, object};
use erd_core::settings::KEY_BYTES;
use erd_ffi::fi::{FI_EBADFLAGS, FI_EINVAL, fi_addr_t, fid_av};
use erd_ffi::guard::guarded;
use std::ffi::{c_int, c_void};

guarded! {
    /// `fi_av_insert_auth_key`.
    pub(super) unsafe extern "C" fn av_insert_auth_key(
        av: *mut fid_av,
        key: *const c_void,
        size_bytes: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
    ) -> c_int {
        if flags != 0 {
            return -FI_EBADFLAGS;
        }
        // SAFETY: libfabric calls with our open AV.
        let av = unsafe { object::inner::<AvFid>(av) };
        if fi_addr.is_null() || !av.takes_keys() {
            tracing::warn!("fi_av_insert_auth_key: needs a place, and a domain with FI_AV_AUTH_KEY");
            return -FI_EINVAL;
        }
        // SAFETY: the caller's key, of the length that it says.
        let key = unsafe { auth_key::read(key, size_bytes) };
        let key = key.map_err(|bad| bad.refuse("fi_av_insert_auth_key: auth_key"));
        let inserted = key.and_then(|key| av.insert_key(key).map_err(errno::of));
        match inserted {
            Ok(name) => {
                // SAFETY: the caller's place.
                unsafe { *fi_addr = name };
                0
            }
            Err(errno) => -errno,
        }
    }

    /// `fi_av_lookup_auth_key`.
    pub(super) unsafe extern "C" fn av_lookup_auth_key(
        av: *mut fid_av,
        fi_addr: fi_addr_t,
        key: *mut c_void,
        size_bytes: *mut usize,
    ) -> c_int {
        // SAFETY: libfabric calls with our open AV.
        let found = unsafe { object::inner::<AvFid>(av) }.key_of(fi_addr);
        let (Some(found), false) = (found, size_bytes.is_null()) else {
            return -FI_EINVAL;
        };
        // SAFETY: the caller's length, and a buffer that has it. A short buffer gets a part, as an address does.
        unsafe {
            let room = std::mem::replace(&mut *size_bytes, KEY_BYTES);
            if !key.is_null() {
                let bytes = found.bytes();
                key.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), room.min(KEY_BYTES));
            }
        }
        0
    }
}
