//! Users of this host.

use std::fs;

/// Whether this is the user that stands for all users without a name here. Processes of different such users must not
/// take each other for the same user.
#[must_use]
pub fn is_nobody(uid: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    overflow.trim().parse().unwrap_or(65_534) == uid
}
