//! libfabric's names of address formats.

use erd_core::sockaddr::Family;
use erd_ffi::fi::{FI_FORMAT_UNSPEC, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOCKADDR_IP};

/// The family that an `addr_format` names, if it names one.
#[must_use]
pub fn family(addr_format: u32) -> Option<Family> {
    match addr_format {
        FI_SOCKADDR_IN => Some(Family::V4),
        FI_SOCKADDR_IN6 => Some(Family::V6),
        _ => None,
    }
}

/// The `addr_format` of a family.
#[must_use]
pub fn of(family: Family) -> u32 {
    match family {
        Family::V4 => FI_SOCKADDR_IN,
        Family::V6 => FI_SOCKADDR_IN6,
    }
}

/// Whether addresses of `addr_format` can be used at all.
#[must_use]
pub fn is_known(addr_format: u32) -> bool {
    matches!(
        addr_format,
        FI_FORMAT_UNSPEC | FI_SOCKADDR | FI_SOCKADDR_IP | FI_SOCKADDR_IN | FI_SOCKADDR_IN6
    )
}
