//! The provider's own operations, for `fi_open_ops(3)`: `include/rdma/fi_ext_erd.h`.

use crate::domain::DomainFid;
use crate::errno;
use crate::object;
use erd_core::endpoint::Endpoint;
use erd_core::scheme::SchemeChoice;
use erd_ffi::fi::{FI_EINVAL, FI_ENOSYS, FI_ETOOSMALL, fi_addr_t, fid, fid_domain, fid_ep};
use erd_ffi::guard::guarded;
use erd_rd::FlowView;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `struct erd_ops_domain`.
#[repr(C)]
struct ErdOpsDomain {
    size: usize,
    set_cc: unsafe extern "C" fn(*mut fid_domain, *const c_char, *const c_char) -> c_int,
    get_cc: unsafe extern "C" fn(*mut fid_domain, *mut c_char, usize) -> c_int,
}

/// `struct erd_ops_ep`.
#[repr(C)]
struct ErdOpsEp {
    size: usize,
    flow: unsafe extern "C" fn(*mut fid_ep, fi_addr_t, *mut c_void, usize) -> c_int,
    paths: unsafe extern "C" fn(*mut fid_ep, fi_addr_t, *mut u64, usize) -> isize,
}

static DOMAIN_OPS: ErdOpsDomain = ErdOpsDomain { size: size_of::<ErdOpsDomain>(), set_cc, get_cc };
static EP_OPS: ErdOpsEp = ErdOpsEp { size: size_of::<ErdOpsEp>(), flow, paths };

/// Fields of `struct erd_flow`.
const FLOW_FIELDS: usize = 19;

/// The fields of `struct erd_flow`, in order.
fn flow_fields(flow: &FlowView) -> [u64; FLOW_FIELDS] {
    let (cc, again) = (&flow.controller, &flow.repeated);
    [
        flow.window_bytes,
        flow.in_flight_bytes,
        flow.pace_bytes_per_s.unwrap_or(0),
        flow.rtt_ns,
        cc.base_rtt_ns,
        cc.typical_rtt_ns,
        cc.target_ns,
        cc.bdp_bytes,
        cc.paths.into(),
        flow.sent_bytes,
        flow.acked_bytes,
        flow.ce_bytes,
        again.nack,
        again.probe,
        again.order,
        again.trim,
        again.spurious,
        u64::from(flow.out_of_order_16) * 1000 / 16,
        flow.out_of_order_max.into(),
    ]
}

/// Finds a table by its name.
///
/// # Safety
/// `name` is NULL or a C string, `ops` NULL or a place for a pointer.
unsafe fn open<T>(
    name: *const c_char,
    known: &CStr,
    table: &'static T,
    ops: *mut *mut c_void,
) -> c_int {
    if name.is_null() || ops.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller vouches for the name.
    if unsafe { CStr::from_ptr(name) } != known {
        return -FI_ENOSYS;
    }
    // SAFETY: the caller vouches for the place. The table is read only, which its users keep to.
    unsafe { *ops = std::ptr::from_ref(table).cast_mut().cast() };
    0
}

/// # Safety
/// `text` is NULL or a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

guarded! {
    /// `fi_open_ops` on a domain.
    pub unsafe extern "C" fn domain_ops_open(
        domain: *mut fid,
        name: *const c_char,
        flags: u64,
        ops: *mut *mut c_void,
        _context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open domain.
        if flags != 0 || unsafe { object::from_fid::<DomainFid>(domain) }.is_none() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's pointers, as fi_open_ops(3) says.
        unsafe { open(name, c"erd_domain_ops", &DOMAIN_OPS, ops) }
    }

    /// `fi_open_ops` on an endpoint.
    pub unsafe extern "C" fn ep_ops_open(
        ep: *mut fid,
        name: *const c_char,
        flags: u64,
        ops: *mut *mut c_void,
        _context: *mut c_void,
    ) -> c_int {
        // SAFETY: libfabric calls with our open endpoint.
        if flags != 0 || unsafe { object::from_fid::<Endpoint>(ep) }.is_none() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's pointers, as fi_open_ops(3) says.
        unsafe { open(name, c"erd_ep_ops", &EP_OPS, ops) }
    }

    unsafe extern "C" fn set_cc(
        domain: *mut fid_domain,
        name: *const c_char,
        options: *const c_char,
    ) -> c_int {
        if domain.is_null() || name.is_null() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's open domain and strings.
        let (domain, name, options) =
            unsafe { (object::inner::<DomainFid>(domain), text(name), text(options)) };
        match SchemeChoice::new(&name, &options) {
            Ok(choice) => {
                domain.set_scheme(choice);
                0
            }
            Err(error) => {
                tracing::warn!(%error, "set_cc");
                -FI_EINVAL
            }
        }
    }

    unsafe extern "C" fn get_cc(domain: *mut fid_domain, name: *mut c_char, len: usize) -> c_int {
        if domain.is_null() || name.is_null() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's open domain.
        let scheme = unsafe { object::inner::<DomainFid>(domain) }.scheme().name();
        if len <= scheme.len() {
            return -FI_ETOOSMALL;
        }
        // SAFETY: the caller's buffer has `len` bytes, which are more than the name's.
        unsafe {
            std::ptr::copy_nonoverlapping(scheme.as_ptr().cast(), name, scheme.len());
            *name.add(scheme.len()) = 0;
        }
        0
    }

    unsafe extern "C" fn flow(
        ep: *mut fid_ep,
        peer: fi_addr_t,
        flow: *mut c_void,
        len: usize,
    ) -> c_int {
        if ep.is_null() || flow.is_null() {
            return -FI_EINVAL;
        }
        // SAFETY: the caller's open endpoint.
        match unsafe { object::inner::<Endpoint>(ep.cast()) }.flow(peer) {
            Ok(view) => {
                let fields = flow_fields(&view);
                let bytes = len.min(size_of_val(&fields));
                // SAFETY: the caller's structure has `len` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(fields.as_ptr().cast::<u8>(), flow.cast(), bytes);
                }
                0
            }
            Err(error) => -errno::of(error),
        }
    }

    unsafe extern "C" fn paths(
        ep: *mut fid_ep,
        peer: fi_addr_t,
        kib: *mut u64,
        count: usize,
    ) -> isize {
        if ep.is_null() || (kib.is_null() && count > 0) {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: the caller's open endpoint.
        match unsafe { object::inner::<Endpoint>(ep.cast()) }.path_kib(peer) {
            Ok(paths) => {
                let told = paths.len().min(count);
                for (at, path_kib) in paths[..told].iter().enumerate() {
                    // SAFETY: the caller's array has `count` places.
                    unsafe { kib.add(at).write((*path_kib).into()) };
                }
                told as isize
            }
            Err(error) => errno::answer(Err(error)),
        }
    }
}
