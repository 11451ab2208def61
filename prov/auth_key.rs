//! Authorization keys of libfabric (`auth_key`): a domain may have the key of its job. erd refuses all others: a program
//! that sets one would otherwise take its endpoints and memory for closed to others.

use erd_core::settings::{JobKey, KEY_BYTES};
use erd_ffi::fi::{FI_EINVAL, fi_domain_attr};
use std::ffi::c_int;

/// Refuses a key of `size_bytes`; 0 is none. `place` names the call and the structure.
///
/// # Errors
/// `FI_EINVAL` if there is a key.
pub(crate) fn refuse(place: &str, size_bytes: usize) -> Result<(), c_int> {
    if size_bytes == 0 {
        return Ok(());
    }
    tracing::warn!(
        size_bytes,
        "{place}->auth_key_size must be 0: only domains have a key of their own"
    );
    Err(FI_EINVAL)
}

/// The key of a domain, if it has one. `call` names the call.
///
/// # Errors
/// `FI_EINVAL` if the key has another length than [`KEY_BYTES`], or is not there.
///
/// # Safety
/// A key that is not NULL has as many bytes as the attributes say.
pub(crate) unsafe fn of_domain(call: &str, attr: &fi_domain_attr) -> Result<Option<JobKey>, c_int> {
    match attr.auth_key_size {
        0 => Ok(None),
        KEY_BYTES if !attr.auth_key.is_null() => {
            // SAFETY: the caller's promise; an array of bytes lies anywhere.
            let bytes = unsafe { attr.auth_key.cast::<[u8; KEY_BYTES]>().read() };
            Ok(Some(JobKey::new(bytes)))
        }
        size_bytes => {
            let is_there = !attr.auth_key.is_null();
            tracing::warn!(
                size_bytes,
                is_there,
                "{call}: domain_attr->auth_key must be {KEY_BYTES} bytes long, or auth_key_size 0"
            );
            Err(FI_EINVAL)
        }
    }
}
