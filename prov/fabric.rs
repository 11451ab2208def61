//! `fid_fabric`: one network, under which domains and event queues are opened (`fi_fabric(3)`).

use crate::object::{self, Class};
use erd_core::uses::{Use, Users};
use erd_ffi::fi::{
    FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_CLASS_FABRIC, FI_CLASS_WAIT, FI_EINVAL, FI_ENODATA,
    FI_ENOSYS, NOSYS_FABRIC, NOSYS_FID, fi_eq_attr, fi_fabric_attr, fi_info, fi_ops, fi_ops_fabric,
    fi_wait_attr, fid, fid_domain, fid_eq, fid_fabric, fid_wait,
};
use erd_ffi::guard::guarded;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

/// State of a fabric.
pub struct FabricInner {
    /// Name: the network that its domains' interfaces are in, as address and prefix.
    pub name: String,
    /// The API version that the application asked `fi_getinfo` for; the provider does not touch newer fields of its
    /// structures.
    pub api_version: u32,
    /// The libfabric that opened it has the interface of `FI_PEER` that we know. An application opens domains without its
    /// libfabric.
    pub takes_peers: bool,
    users: Users,
}

// SAFETY: `fid_fabric` begins with its `fid`, and no other state has this class.
unsafe impl Class for FabricInner {
    type Abi = fid_fabric;
    const FCLASS: usize = FI_CLASS_FABRIC;

    fn users(&self) -> &Users {
        &self.users
    }
}

impl FabricInner {
    /// State of a fabric called `name`, for an application that asked for `api_version`.
    #[must_use]
    pub fn new(name: String, api_version: u32) -> Arc<FabricInner> {
        let takes_peers = crate::peer::is_available();
        Arc::new(FabricInner { name, api_version, takes_peers, users: Users::default() })
    }

    /// Keeps the fabric open until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }
}

static FID_OPS: fi_ops = fi_ops { close: object::close::<FabricInner>, ..NOSYS_FID };

static FABRIC_OPS: fi_ops_fabric = fi_ops_fabric {
    domain: open_domain,
    domain2: open_domain2,
    eq_open,
    wait_open,
    trywait,
    ..NOSYS_FABRIC
};

guarded! {
    /// `fi_provider.fabric`, see `fi_fabric(3)`.
    ///
    /// # Safety
    /// `attr` comes from an `fi_info` of this provider, `fabric` is writable.
    pub unsafe extern "C" fn open(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int {
        if attr.is_null() || fabric.is_null() {
            return -FI_EINVAL;
        }
        // SAFETY: not NULL, so `attr` is the caller's attribute, and its name NULL or a C string.
        let (name, api_version) = unsafe {
            let name = (*attr).name;
            let text = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy());
            (text.map(|text| text.into_owned()), (*attr).api_version)
        };
        let settings = match crate::entry::settings() {
            Ok(settings) => settings,
            Err(errno) => return -errno,
        };
        let Some(name) = name.filter(|name| crate::info::is_fabric(&settings, name)) else {
            tracing::info!("fi_fabric: no interface is in the fabric that attr->name says");
            return -FI_ENODATA;
        };
        let abi = fid_fabric {
            fid: object::base::<FabricInner>(context, &FID_OPS),
            ops: &FABRIC_OPS,
            api_version,
        };
        // SAFETY: the caller gave a place for the new object.
        unsafe { *fabric = object::publish(abi, FabricInner::new(name, api_version)) };
        0
    }

    unsafe extern "C" fn open_domain(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with an open fabric of ours and pointers as fi_domain(3) says.
        unsafe { crate::domain::open(object::inner::<FabricInner>(fabric), info, domain, context) }
    }

    unsafe extern "C" fn open_domain2(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        flags: u64,
        context: *mut c_void,
    ) -> c_int {
        if flags != 0 {
            tracing::info!(flags, "fi_domain2: peer domains are not supported; flags must be 0");
            return -FI_ENOSYS;
        }
        // SAFETY: as above.
        unsafe { crate::domain::open(object::inner::<FabricInner>(fabric), info, domain, context) }
    }

    unsafe extern "C" fn eq_open(
        fabric: *mut fid_fabric,
        attr: *mut fi_eq_attr,
        eq: *mut *mut fid_eq,
        context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with an open fabric of ours and pointers as fi_eq(3) says.
        unsafe { crate::eq::open(object::inner::<FabricInner>(fabric), attr, eq, context) }
    }

    unsafe extern "C" fn wait_open(
        fabric: *mut fid_fabric,
        attr: *mut fi_wait_attr,
        waitset: *mut *mut fid_wait,
    ) -> c_int {
        // SAFETY: libfabric calls with an open fabric of ours and pointers as fi_poll(3) says.
        unsafe { crate::poll::open_wait(fabric, attr, waitset) }
    }

    unsafe extern "C" fn trywait(
        _fabric: *mut fid_fabric,
        fids: *mut *mut fid,
        count: c_int,
    ) -> c_int {
        let count = usize::try_from(count).unwrap_or(0);
        if fids.is_null() && count > 0 {
            return -FI_EINVAL;
        }
        for index in 0..count {
            // SAFETY: the caller's array has `count` open objects.
            let answer = unsafe { trywait_one(*fids.add(index)) };
            if answer != 0 {
                return answer;
            }
        }
        0
    }
}

/// `fi_trywait(3)` for one object: 0 if it is safe to sleep on it.
///
/// # Safety
/// `any` is an open object of this provider or NULL.
unsafe fn trywait_one(any: *mut fid) -> c_int {
    if any.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's promise; each function gets an object of its own class.
    unsafe {
        match (*any).fclass {
            FI_CLASS_EQ => crate::eq::trywait(any),
            FI_CLASS_CQ => crate::cq::trywait(any),
            FI_CLASS_CNTR => crate::cntr::trywait(any),
            FI_CLASS_WAIT => crate::poll::trywait(any),
            _ => -FI_EINVAL,
        }
    }
}
