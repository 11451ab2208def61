//! The libfabric that loaded us.
//!
//! We do not link libfabric, so that one shared object works with every version and without any.
//! Its log and parameters are looked up at run time in the library that is already loaded. That
//! may be invisible to a plain look-up by name (Python loads it with `RTLD_LOCAL`), and some
//! Python wheels change its file name.

use crate::fi::{Provider, fi_log_level, fi_log_subsys, fi_param_type, fi_provider};
use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::OnceLock;

type LogEnabledFn = unsafe extern "C" fn(*const fi_provider, fi_log_level, fi_log_subsys) -> c_int;
type LogFn = unsafe extern "C" fn(
    *const fi_provider,
    fi_log_level,
    fi_log_subsys,
    *const c_char,
    c_int,
    *const c_char,
    ...
);
type ParamDefineFn = unsafe extern "C" fn(
    *const fi_provider,
    *const c_char,
    fi_param_type,
    *const c_char,
    ...
) -> c_int;
type VersionFn = unsafe extern "C" fn() -> u32;
type ParamGetFn = unsafe extern "C" fn(*mut fi_provider, *const c_char, *mut c_void) -> c_int;

/// What we call in libfabric. All five are FABRIC_1.0 symbols.
pub(crate) struct Host {
    pub(crate) provider: &'static Provider,
    /// The newest API that it has.
    version: u32,
    pub(crate) log_enabled: LogEnabledFn,
    pub(crate) log: LogFn,
    pub(crate) param_define: ParamDefineFn,
    pub(crate) param_get: ParamGetFn,
}

static HOST: OnceLock<Host> = OnceLock::new();
static REGISTERED: OnceLock<&'static Provider> = OnceLock::new();

/// Finds the loaded libfabric and uses its log and parameters for `provider` from now on.
///
/// Answers whether there is one. `fi_prov_ini` calls this first. A second call changes nothing.
pub fn attach(provider: &'static Provider) -> bool {
    if HOST.get().is_none()
        && let Some(host) = find(provider)
    {
        // Another thread may have been faster; then its findings are as good.
        let _ = HOST.set(host);
    }
    HOST.get().is_some()
}

/// The description that libfabric registers, where it is not the one of [`attach`]: `FI_LOG_PROV` silences that one. The
/// first call decides.
pub fn register(provider: &'static Provider) {
    // Another libfabric in this process registers the same.
    let _ = REGISTERED.set(provider);
}

/// The description that libfabric has registered.
pub(crate) fn registered(host: &Host) -> &'static Provider {
    REGISTERED.get().copied().unwrap_or(host.provider)
}

/// The newest API of the libfabric that loaded us, if one did.
#[must_use]
pub fn api_version() -> Option<u32> {
    get().map(|host| host.version)
}

/// The libfabric that loaded us, if one did.
pub(crate) fn get() -> Option<&'static Host> {
    HOST.get()
}

fn find(provider: &'static Provider) -> Option<Host> {
    // The handles are never closed: the functions must stay where they are for as long as our
    // code may call them, which is until the process ends.
    by_handle(provider, open_loaded(c"libfabric.so.1"))
        .or_else(|| by_handle(provider, open_loaded(&renamed_library()?)))
        .or_else(|| by_handle(provider, Some(libc::RTLD_DEFAULT)))
}

/// A handle of a library if it is loaded already.
fn open_loaded(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; with RTLD_NOLOAD no foreign code runs.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    (!handle.is_null()).then_some(handle)
}

/// The file name of MPICH's library, and of those made to its ABI.
const MPICH: &CStr = c"libmpi.so.12";

/// This process has MPICH loaded, or an MPI made to its ABI.
#[must_use]
pub fn serves_mpich() -> bool {
    let Some(handle) = open_loaded(MPICH) else { return false };
    // SAFETY: the handle just taken; the library stays, since others loaded it.
    unsafe { libc::dlclose(handle) };
    true
}

fn by_handle(provider: &'static Provider, handle: Option<*mut c_void>) -> Option<Host> {
    let handle = handle?;
    let log_enabled = symbol(handle, c"fi_log_enabled")?;
    let log = symbol(handle, c"fi_log")?;
    let param_define = symbol(handle, c"fi_param_define")?;
    let param_get = symbol(handle, c"fi_param_get")?;
    let version = symbol(handle, c"fi_version")?;
    // SAFETY: libfabric declares these names with these types since FABRIC_1.0.
    unsafe {
        Some(Host {
            provider,
            version: core::mem::transmute::<*mut c_void, VersionFn>(version)(),
            log_enabled: core::mem::transmute::<*mut c_void, LogEnabledFn>(log_enabled),
            log: core::mem::transmute::<*mut c_void, LogFn>(log),
            param_define: core::mem::transmute::<*mut c_void, ParamDefineFn>(param_define),
            param_get: core::mem::transmute::<*mut c_void, ParamGetFn>(param_get),
        })
    }
}

fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `handle` came from dlopen or is RTLD_DEFAULT, the name is a C string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// The path of a loaded library called `libfabric<something>`, as in Python wheels.
fn renamed_library() -> Option<CString> {
    let mut found: Option<CString> = None;
    // SAFETY: `visit` has the type that is asked for, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    return found;

    /// Called for each loaded object; a non-zero answer ends the search.
    unsafe extern "C" fn visit(
        object: *mut libc::dl_phdr_info,
        _size_bytes: usize,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid description of one object.
        let name = unsafe { (*object).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: not NULL, so it is a C string.
        let path = unsafe { CStr::from_ptr(name) };
        if !is_libfabric(path.to_bytes()) {
            return 0;
        }
        // SAFETY: `renamed_library` passes a pointer to its own `found`.
        unsafe { *found.cast::<Option<CString>>() = Some(path.to_owned()) };
        1
    }
}

/// Whether the file is a shared object whose name begins with `libfabric`.
fn is_libfabric(path: &[u8]) -> bool {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    file.starts_with(b"libfabric") && file.windows(3).any(|part| part == b".so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_libraries_are_recognised_and_others_not() {
        assert!(is_libfabric(b"/site-packages/x.libs/libfabric-5e2f3a.so.1.28.0"));
        assert!(is_libfabric(b"libfabric.so.1"));
        assert!(!is_libfabric(b"/usr/lib/libfabric/liberd_fi.so"));
        assert!(!is_libfabric(b""));
    }
}
