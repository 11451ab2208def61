//! Authorization keys of libfabric (`auth_key`). erd has none, so it refuses them: a program that sets one would otherwise
//! take its endpoints and memory for closed to others.

use erd_ffi::fi::FI_EINVAL;
use std::ffi::c_int;

/// Refuses a key of `size_bytes`; 0 is none. `place` names the call and the structure.
///
/// # Errors
/// `FI_EINVAL` if there is a key.
pub(crate) fn refuse(place: &str, size_bytes: usize) -> Result<(), c_int> {
    if size_bytes == 0 {
        return Ok(());
    }
    tracing::warn!(size_bytes, "{place}->auth_key_size must be 0: erd has no authorization keys");
    Err(FI_EINVAL)
}
