//! The application's hints, read from its `fi_info`.

use crate::auth_key;
use erd_core::settings::{JobKey, KeySource};
use erd_core::sockaddr::{self, BadAddress};
use erd_ffi::fi::compat;
use erd_ffi::fi::{fi_domain_attr, fi_ep_attr, fi_info, fi_rx_attr, fi_tx_attr, fid};
use std::ffi::{CStr, c_char};
use std::net::SocketAddr;

/// Hints. Zero means no demand, so absent attributes are zeros.
pub struct Hints {
    /// Capabilities asked for.
    pub caps: u64,
    /// Address format.
    pub addr_format: u32,
    /// Local address.
    pub src: Option<SocketAddr>,
    /// Peer's address.
    pub dest: Option<SocketAddr>,
    /// The handle to pass back.
    pub handle: *mut fid,
    /// Transmit attributes.
    pub tx: fi_tx_attr,
    /// Receive attributes.
    pub rx: fi_rx_attr,
    /// Endpoint attributes.
    pub ep: fi_ep_attr,
    /// Domain attributes; fields newer than the application's API are zero.
    pub domain: fi_domain_attr,
    /// Keys of the domain.
    pub domain_keys: KeySource,
    /// Key of the endpoint.
    pub ep_key: Option<JobKey>,
    /// Name of the domain, which is an interface's or an RDMA device's.
    pub domain_name: Option<String>,
    /// Name of the fabric, which is a network.
    pub fabric_name: Option<String>,
    /// Lowest version of the provider.
    pub prov_version: u32,
}

impl Hints {
    /// No hints.
    #[must_use]
    pub const fn none() -> Hints {
        Hints {
            caps: 0,
            addr_format: 0,
            src: None,
            dest: None,
            handle: std::ptr::null_mut(),
            tx: fi_tx_attr::ZERO,
            rx: fi_rx_attr::ZERO,
            ep: fi_ep_attr::ZERO,
            domain: fi_domain_attr::ZERO,
            domain_keys: KeySource::None,
            ep_key: None,
            domain_name: None,
            fabric_name: None,
            prov_version: 0,
        }
    }

    /// Reads the hints of an application that asks for API `version`.
    ///
    /// # Errors
    /// If an address is not valid.
    ///
    /// # Safety
    /// `hints` is NULL or valid as `fi_getinfo(3)` says, as far as `version` reaches.
    pub unsafe fn read(hints: *const fi_info, version: u32) -> Result<Hints, BadAddress> {
        // SAFETY: NULL or the application's hints.
        let Some(hints) = (unsafe { hints.as_ref() }) else {
            return Ok(Hints::none());
        };
        let mut read = Hints {
            caps: hints.caps,
            addr_format: hints.addr_format,
            handle: hints.handle,
            ..Hints::none()
        };
        // SAFETY: attributes are NULL or as long as `version` says, `fi_rx_attr` and
        // `fi_fabric_attr` never grew; names are NULL or C strings; addresses and keys have their lengths.
        unsafe {
            read.src = sockaddr::read(hints.src_addr, hints.src_addrlen)?;
            read.dest = sockaddr::read(hints.dest_addr, hints.dest_addrlen)?;
            if !hints.tx_attr.is_null() {
                read.tx = compat::read(hints.tx_attr, version);
            }
            if let Some(rx) = hints.rx_attr.as_ref() {
                read.rx = *rx;
            }
            if !hints.ep_attr.is_null() {
                read.ep = compat::read(hints.ep_attr, version);
                if let Ok(key) = auth_key::of_endpoint(&read.ep, &KeySource::None) {
                    read.ep_key = key;
                }
            }
            if !hints.domain_attr.is_null() {
                read.domain = compat::read(hints.domain_attr, version);
                read.domain_name = text(read.domain.name);
                // `check` refuses those that are not valid.
                if let Ok(keys) = auth_key::of_domain(&read.domain) {
                    read.domain_keys = keys;
                }
            }
            if let Some(fabric) = hints.fabric_attr.as_ref() {
                read.fabric_name = text(fabric.name);
                read.prov_version = fabric.prov_version;
            }
        }
        Ok(read)
    }
}

/// # Safety
/// `name` is NULL or a C string.
pub(super) unsafe fn text(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}
