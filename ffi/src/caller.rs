//! The libfabric whose call is under way, where a process has several of them.
//!
//! All of them share one description of the provider, and nothing that they pass tells which one calls. The stack does: the
//! first frame that is not ours is the caller's.

use core::ffi::{CStr, c_int, c_void};
use core::mem::MaybeUninit;

type VersionFn = unsafe extern "C" fn() -> u32;

/// What the platform's unwinder hands to its callback, which it alone knows.
#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

/// To go on to the next frame.
const GO_ON: c_int = 0;
/// To end the walk (`_URC_NORMAL_STOP`).
const STOP: c_int = 4;

// The unwinder that the standard library needs, too; its interface is part of the platform's ABI.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
}

/// Where the loader has put an object, and its path.
struct Object {
    base: *mut c_void,
    path: *const libc::c_char,
}

/// The newest API of the libfabric that called us; `None` if the caller is no libfabric.
#[must_use]
pub fn api_version() -> Option<u32> {
    let object = calling_object()?;
    // SAFETY: the loader's text, which stays while its object does; that one's code is on the stack.
    let path = unsafe { CStr::from_ptr(object.path) };
    // SAFETY: the path is a C string; with RTLD_NOLOAD no foreign code runs.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle just taken, and a C string.
    let version = unsafe { libc::dlsym(handle, c"fi_version".as_ptr()) };
    // The look-up goes on to the libraries that the object needs.
    let is_its_own =
        !version.is_null() && object_at(version).is_some_and(|at| at.base == object.base);
    // SAFETY: libfabric declares the name with this type since FABRIC_1.0.
    let found =
        is_its_own.then(|| unsafe { core::mem::transmute::<*mut c_void, VersionFn>(version)() });
    // SAFETY: the handle just taken; the library stays, since its code is on the stack.
    unsafe { libc::dlclose(handle) };
    found
}

/// The first object on the stack that is not ours.
fn calling_object() -> Option<Object> {
    struct Walk {
        own: *mut c_void,
        found: Option<Object>,
    }
    unsafe extern "C" fn visit(context: *mut Context, walk: *mut c_void) -> c_int {
        // SAFETY: the unwinder's own context, and the walk of the caller below.
        let (at, walk) = unsafe { (_Unwind_GetIP(context), &mut *walk.cast::<Walk>()) };
        // A return address may lie behind the last instruction of its function.
        let at = core::ptr::without_provenance_mut(at.saturating_sub(1));
        walk.found = object_at(at).filter(|object| object.base != walk.own);
        if walk.found.is_some() { STOP } else { GO_ON }
    }
    let own = object_at(visit as *mut c_void)?.base;
    let mut walk = Walk { own, found: None };
    // SAFETY: `visit` has the type that is asked for, and `walk` outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.found
}

/// The object that this address lies in.
fn object_at(at: *mut c_void) -> Option<Object> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; the result outlives the call.
    let is_there = unsafe { libc::dladdr(at, info.as_mut_ptr()) } != 0;
    // SAFETY: all zeros are valid, and so is what the loader writes.
    let info = unsafe { info.assume_init() };
    let is_whole = is_there && !info.dli_fname.is_null();
    is_whole.then_some(Object { base: info.dli_fbase, path: info.dli_fname })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_thread_that_no_libfabric_called_has_none() {
        let outside = calling_object().expect("something has started this thread");
        let own = object_at(api_version as *mut c_void).expect("this program");
        assert!(outside.base != own.base);
        assert_eq!(api_version(), None);
    }
}
