//! Authorization keys of libfabric (`auth_key`): the keys of jobs (docs/security.md). A domain, an endpoint or an address
//! vector may have them.

use erd_core::settings::{JobKey, KEY_BYTES, KeySource};
use erd_ffi::fi::{FI_AV_AUTH_KEY, FI_EINVAL, fi_domain_attr, fi_ep_attr};
use std::ffi::{c_int, c_void};
use thiserror::Error;

/// The reason why an application's key is refused.
#[derive(Clone, Copy, Debug, Error)]
pub(crate) enum BadKey {
    /// Its length.
    #[error("must have {KEY_BYTES} bytes, not {0}")]
    Length(usize),
    /// There is no key.
    #[error("must not be NULL")]
    Missing,
    /// The address vectors have the keys.
    #[error("must be left out with FI_AV_AUTH_KEY")]
    OfVectors,
}

impl BadKey {
    /// Logs the refusal, and returns its error number. `place` names the call and its argument.
    pub fn refuse(self, place: &str) -> c_int {
        tracing::warn!("{place} {self}");
        FI_EINVAL
    }
}

/// The key of `size_bytes` at `key`.
///
/// # Errors
/// [`BadKey`] if it has another length than [`KEY_BYTES`], or is not there.
///
/// # Safety
/// `key` is NULL, or has `size_bytes`.
pub(crate) unsafe fn read(key: *const c_void, size_bytes: usize) -> Result<JobKey, BadKey> {
    if size_bytes != KEY_BYTES {
        return Err(BadKey::Length(size_bytes));
    }
    if key.is_null() {
        return Err(BadKey::Missing);
    }
    // SAFETY: the caller's promise; an array of bytes lies anywhere.
    let bytes = unsafe { &*key.cast::<[u8; KEY_BYTES]>() };
    Ok(JobKey::new(bytes))
}

/// The keys that a domain's attributes choose; `KeySource::None` leaves them to `FI_ERD_KEY_FILE`.
///
/// # Errors
/// As [`read`], and for a key beside those of address vectors.
///
/// # Safety
/// A key that is not NULL has as many bytes as the attributes say.
pub(crate) unsafe fn of_domain(attr: &fi_domain_attr) -> Result<KeySource, BadKey> {
    match attr.auth_key_size {
        0 => Ok(KeySource::None),
        FI_AV_AUTH_KEY if attr.auth_key.is_null() => Ok(KeySource::Vectors),
        FI_AV_AUTH_KEY => Err(BadKey::OfVectors),
        // SAFETY: the caller's promise.
        size_bytes => unsafe { read(attr.auth_key.cast(), size_bytes) }.map(KeySource::Application),
    }
}

/// The key of an endpoint alone, if it has one, in a domain with these keys.
///
/// # Errors
/// As [`of_domain`].
///
/// # Safety
/// As [`of_domain`].
pub(crate) unsafe fn of_endpoint(
    attr: &fi_ep_attr,
    domain: &KeySource,
) -> Result<Option<JobKey>, BadKey> {
    match attr.auth_key_size {
        0 => Ok(None),
        _ if *domain == KeySource::Vectors => Err(BadKey::OfVectors),
        // SAFETY: the caller's promise.
        size_bytes => unsafe { read(attr.auth_key.cast(), size_bytes) }.map(Some),
    }
}
