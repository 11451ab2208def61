//! The functions for devices, protection domains, memory and addresses.

use super::boundary::{self, count, not_null, sized, status, value};
use super::types::{
    ERD_DEVICE_LOOPBACK, ERD_DEVICE_RDMA, erd_ah, erd_context, erd_context_attr, erd_device_info,
    erd_mr, erd_pd, erd_setting, erd_wc,
};
use super::{AHS, CONTEXTS, MRS, PDS, find, publish, remove};
use crate::verbs::{Access, ContextOptions, Device, Error};
use erd_core::settings::KEY_BYTES;
use erd_core::sockaddr;
use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::Once;

/// The log goes to standard error, as `FI_LOG_LEVEL` says, unless libfabric is there.
fn start_log() {
    static START: Once = Once::new();
    // An installed subscriber stays.
    START.call_once(|| drop(erd_ffi::log::install()));
}

/// `erd_version(3)`
#[unsafe(no_mangle)]
pub extern "C" fn erd_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// `erd_last_error(3)`
#[unsafe(no_mangle)]
pub extern "C" fn erd_last_error() -> *const c_char {
    boundary::last_error()
}

/// `erd_query_devices(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_query_devices(list: *mut erd_device_info, room: c_int) -> c_int {
    count("erd_query_devices", || {
        start_log();
        let room =
            usize::try_from(room).map_err(|_| Error::argument("count", room, "0 or more"))?;
        if room > 0 {
            not_null("list", list)?;
        }
        let devices = Device::list()?;
        for (at, device) in devices.iter().take(room).enumerate() {
            // SAFETY: the caller's list has room for `count`.
            unsafe { list.add(at).write(describe(device)) };
        }
        Ok(devices.len())
    })
}

fn describe(device: &Device) -> erd_device_info {
    let loopback = if device.is_loopback() { ERD_DEVICE_LOOPBACK } else { 0 };
    let rdma = if device.is_rdma() { ERD_DEVICE_RDMA } else { 0 };
    erd_device_info {
        name: chars(&device.name()),
        address: chars(&device.address().to_string()),
        mtu_bytes: device.mtu_bytes(),
        flags: loopback | rdma,
        speed_mbps: device.speed_mbps().unwrap_or(0).into(),
    }
}

/// A text in an array, cut to fit, with its final zero.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
    array
}

/// `erd_open_device(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_open_device(
    name: *const c_char,
    attr: *const erd_context_attr,
) -> *mut erd_context {
    value("erd_open_device", null_mut(), || {
        start_log();
        // SAFETY: the caller's text and structure.
        let (name, options) = unsafe { (boundary::text("name", name)?, options(attr)?) };
        let device = match name {
            Some(name) => Device::find(name)?,
            None => {
                let none = || Error::NoDevice { name: "(any)".into(), there: "none".into() };
                Device::list()?.into_iter().next().ok_or_else(none)?
            }
        };
        publish(&CONTEXTS, device.open_with(&options)?)
    })
}

/// # Safety
/// `attr` is NULL or as the man page says.
unsafe fn options(attr: *const erd_context_attr) -> Result<ContextOptions, Error> {
    let mut options = ContextOptions::new();
    if attr.is_null() {
        return Ok(options);
    }
    // SAFETY: the caller's structure, of which every byte is a value.
    let attr = unsafe { sized("attr", attr, offset_of!(erd_context_attr, key_size)) }?;
    // SAFETY: the caller's texts and list.
    unsafe {
        for at in 0..attr.num_settings as usize {
            not_null("attr->settings", attr.settings)?;
            let erd_setting { name, value } = attr.settings.add(at).read();
            let pair = (boundary::text("setting", name)?, boundary::text("setting", value)?);
            let (Some(name), Some(value)) = pair else {
                return Err(Error::argument("attr->settings", "NULL", "a name and a value"));
            };
            options = options.setting(name, value);
        }
        if let Some(name) = boundary::text("attr->controller", attr.controller)? {
            options = options.controller(name);
        }
        let parameters = boundary::text("attr->controller_options", attr.controller_options)?;
        if let Some(parameters) = parameters {
            options = options.controller_options(parameters);
        }
    }
    if attr.paths > 0 {
        options = options.setting("paths", &attr.paths.to_string());
    }
    if attr.key_size != 0 {
        if attr.key_size as usize != KEY_BYTES {
            return Err(Error::argument("attr->key_size", attr.key_size, "32, or 0 without a key"));
        }
        not_null("attr->key", attr.key)?;
        // SAFETY: the caller's key, of the length just checked; bytes lie anywhere.
        options = options.key(unsafe { attr.key.cast::<[u8; KEY_BYTES]>().read() });
    }
    Ok(options)
}

/// `erd_close_device(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_close_device(context: *mut erd_context) -> c_int {
    status("erd_close_device", || {
        remove(&CONTEXTS, "context", context, |context| context.users()).map(drop)
    })
}

/// `erd_alloc_pd(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_alloc_pd(context: *mut erd_context) -> *mut erd_pd {
    value("erd_alloc_pd", null_mut(), || {
        publish(&PDS, find(&CONTEXTS, "context", context)?.alloc_pd())
    })
}

/// `erd_dealloc_pd(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_dealloc_pd(pd: *mut erd_pd) -> c_int {
    status("erd_dealloc_pd", || remove(&PDS, "pd", pd, |pd| pd.users()).map(drop))
}

/// `erd_reg_mr(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_reg_mr(
    pd: *mut erd_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
    rkey: *mut u64,
) -> *mut erd_mr {
    value("erd_reg_mr", null_mut(), || {
        let pd = find(&PDS, "pd", pd)?;
        let invalid = || Error::argument("access", access, "flags of enum erd_access_flags");
        let access = Access::from_bits(access).ok_or_else(invalid)?;
        // SAFETY: the caller lends the memory until erd_dereg_mr().
        let region = unsafe { pd.reg_mr_raw(addr.cast(), length, access) }?;
        if !rkey.is_null() {
            // SAFETY: the caller's place.
            unsafe { rkey.write(region.rkey()) };
        }
        publish(&MRS, region)
    })
}

/// `erd_dereg_mr(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_dereg_mr(mr: *mut erd_mr) -> c_int {
    status("erd_dereg_mr", || {
        // A call of another thread may hold it; nobody reaches the memory all the same.
        remove(&MRS, "mr", mr, |_| 0)?.end();
        Ok(())
    })
}

/// `erd_create_ah(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_create_ah(
    pd: *mut erd_pd,
    name: *const libc::sockaddr,
    length: libc::socklen_t,
) -> *mut erd_ah {
    value("erd_create_ah", null_mut(), || {
        let pd = find(&PDS, "pd", pd)?;
        // SAFETY: the caller's address, as long as it says.
        let read = unsafe { sockaddr::read(name.cast(), length as usize) };
        let valid = "an IPv4 or IPv6 socket address";
        let invalid = |error| Error::argument("name", error, valid);
        let peer = read.map_err(invalid)?.ok_or_else(|| Error::argument("name", "NULL", valid))?;
        publish(&AHS, pd.create_ah(peer)?)
    })
}

/// `erd_create_ah(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_create_ah_by_name(
    pd: *mut erd_pd,
    host_and_port: *const c_char,
) -> *mut erd_ah {
    value("erd_create_ah_by_name", null_mut(), || {
        let pd = find(&PDS, "pd", pd)?;
        not_null("host_and_port", host_and_port)?;
        // SAFETY: the caller's text.
        let name = unsafe { boundary::text("host_and_port", host_and_port) }?.unwrap_or_default();
        publish(&AHS, pd.create_ah_by_name(name)?)
    })
}

/// `erd_create_ah(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_create_ah_from_wc(pd: *mut erd_pd, wc: *const erd_wc) -> *mut erd_ah {
    value("erd_create_ah_from_wc", null_mut(), || {
        let pd = find(&PDS, "pd", pd)?;
        not_null("wc", wc)?;
        // SAFETY: the caller's completion.
        let wc = unsafe { wc.read() };
        let length = (wc.peer_length as usize).min(size_of_val(&wc.peer));
        // SAFETY: the array has as many bytes.
        let read = unsafe { sockaddr::read(wc.peer.as_ptr().cast(), length) };
        let unknown = || Error::argument("wc->peer", "unknown", "that of a receive or failure");
        let peer = read.ok().flatten().ok_or_else(unknown)?;
        publish(&AHS, pd.create_ah(peer)?)
    })
}

/// `erd_create_ah(3)`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erd_destroy_ah(ah: *mut erd_ah) -> c_int {
    status("erd_destroy_ah", || remove(&AHS, "ah", ah, |_| 0).map(drop))
}
