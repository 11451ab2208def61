//! What a provider registers, and the enumerators of the log and of parameters:
//! `fi_provider(3)`, `rdma/providers/fi_prov.h`, `rdma/providers/fi_log.h`.
#![allow(missing_docs, reason = "libfabric's names and meanings: fi_provider(3)")]
#![allow(non_camel_case_types, reason = "libfabric's names")]

use super::layout::{c_consts, layout_of};
use super::object::fid_fabric;
use super::structs::fi_context;
use super::structs::{fi_fabric_attr, fi_info};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

pub type fi_param_type = c_uint;
pub type fi_log_subsys = c_uint;
pub type fi_log_level = c_uint;

c_consts! {
    fi_param_type:
        FI_PARAM_STRING = 0,
        FI_PARAM_INT = 1,
        FI_PARAM_BOOL = 2,
        FI_PARAM_SIZE_T = 3;
    fi_log_subsys:
        FI_LOG_CORE = 0,
        FI_LOG_FABRIC = 1,
        FI_LOG_DOMAIN = 2,
        FI_LOG_EP_CTRL = 3,
        FI_LOG_EP_DATA = 4,
        FI_LOG_AV = 5,
        FI_LOG_CQ = 6,
        FI_LOG_EQ = 7,
        FI_LOG_MR = 8,
        FI_LOG_CNTR = 9;
    fi_log_level:
        FI_LOG_WARN = 0,
        FI_LOG_TRACE = 1,
        FI_LOG_INFO = 2,
        FI_LOG_DEBUG = 3;
}

/// What `fi_prov_ini` returns. The core writes to `context`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    pub context: fi_context,
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int,
    pub fabric: unsafe extern "C" fn(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}

/// What this module declares, for comparison with C headers.
pub(crate) const LAYOUTS: &[super::Layout] = &[layout_of!(fi_provider {
    version fi_version context name getinfo fabric cleanup
})];

/// A [`fi_provider`] for a `static`, which the core may write to.
#[repr(transparent)]
pub struct Provider(UnsafeCell<fi_provider>);

// SAFETY: Rust code never makes a reference into the cell, it only hands out the pointer; the
// core writes `context` while it registers the provider, under its own lock.
unsafe impl Sync for Provider {}
// SAFETY: likewise; the name is static, and nothing else points to anything.
unsafe impl Send for Provider {}

impl Provider {
    /// Wraps the description of a provider, with this name in place of its own.
    #[must_use]
    pub const fn new(name: &'static CStr, description: fi_provider) -> Self {
        Self(UnsafeCell::new(fi_provider { name: name.as_ptr(), ..description }))
    }

    /// The pointer to return from `fi_prov_ini`.
    #[must_use]
    pub const fn as_ptr(&self) -> *mut fi_provider {
        self.0.get()
    }
}
