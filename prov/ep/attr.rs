//! The attributes of an endpoint, from the caller's `fi_info`.

use crate::auth_key;
use crate::domain::DomainFid;
use crate::entry;
use erd_core::domain::Domain;
use erd_core::endpoint::{EpConfig, MIN_MULTI_RECV_BYTES, MSG_BYTES_MAX};
use erd_core::flags::Flags;
use erd_core::settings::{INJECT_BYTES, JobKey, QUEUE_SIZE_MAX, RX_SIZE_MAX};
use erd_ffi::fi::compat;
use erd_ffi::fi::{FI_DIRECTED_RECV, FI_SOURCE, FI_SOURCE_ERR, fi_info};
use std::ffi::c_int;

/// Reads an `fi_info` made by this provider's `fi_getinfo`.
///
/// # Safety
/// `info` is valid as `fi_endpoint(3)` says; its parts are NULL or valid.
pub(crate) unsafe fn config_of(info: &fi_info, domain: &Domain) -> EpConfig {
    let settings = &domain.settings;
    let mut config = EpConfig {
        tx_size: settings.tx_size,
        rx_size: settings.rx_size,
        inject_bytes: INJECT_BYTES as u64,
        max_msg_bytes: MSG_BYTES_MAX as u64,
        min_multi_recv_bytes: MIN_MULTI_RECV_BYTES,
        directed: info.caps & FI_DIRECTED_RECV != 0,
        source: info.caps & FI_SOURCE != 0,
        source_err: info.caps & FI_SOURCE_ERR != 0,
        queue_pair: None,
        tx_contexts: 0,
        completes_early: entry::manners().completes_early(),
        tx_flags: Flags::empty(),
        rx_flags: Flags::empty(),
        local: true,
        key: None,
    };
    // SAFETY: the caller's promise; only fields that were always there are read.
    unsafe {
        if let Some(tx) = info.tx_attr.as_ref() {
            config.tx_size = size(tx.size, config.tx_size, QUEUE_SIZE_MAX);
            config.inject_bytes = config.inject_bytes.min(tx.inject_size as u64);
            config.tx_flags = Flags::from_bits_retain(tx.op_flags);
            config.completes_early &= !config.tx_flags.intersects(Flags::LATE_LEVELS);
        }
        if let Some(rx) = info.rx_attr.as_ref() {
            config.rx_size = size(rx.size, config.rx_size, RX_SIZE_MAX);
            config.rx_flags = Flags::from_bits_retain(rx.op_flags);
        }
        if let Some(ep) = info.ep_attr.as_ref() {
            config.max_msg_bytes = config.max_msg_bytes.min(ep.max_msg_size as u64);
        }
    }
    config
}

/// The key of an endpoint alone.
///
/// # Safety
/// As [`config_of`]; `info` is of the API version that the fabric was opened with.
///
/// # Errors
/// `FI_EINVAL` if it is not valid.
pub(crate) unsafe fn key_of(info: &fi_info, domain: &DomainFid) -> Result<Option<JobKey>, c_int> {
    if info.ep_attr.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let key = unsafe {
        let attr = compat::read(info.ep_attr, domain.api_version());
        auth_key::of_endpoint(&attr, &domain.settings.keys)
    };
    key.map_err(|bad| bad.refuse("fi_endpoint: ep_attr->auth_key"))
}

fn size(asked: usize, default: usize, most: usize) -> usize {
    if asked == 0 { default } else { asked.min(most) }
}
