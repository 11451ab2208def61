//! The shared object that libfabric loads, and that programs link for the functions of `erd.h`
//! (`erd::verbs_c`). It is a package of its own because a library that is built as `rlib` and `cdylib`
//! at once is not optimised across crates.

use erd_ffi::fi::fi_provider;

/// libfabric's way in, see `fi_provider(3)`.
///
/// # Safety
/// Called by libfabric, once, while it loads its providers.
// SAFETY: the name is libfabric's for this function, and no other library of the process is asked
// for it by name: libfabric looks it up in the handle of this object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_prov_ini() -> *mut fi_provider {
    erd_ffi::guard::call("fi_prov_ini", erd::entry::start, || ())
}
