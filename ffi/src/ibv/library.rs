//! libibverbs, loaded at run time: one shared object serves machines with and without it.

use super::abi::*;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Why libibverbs cannot be used.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum LibraryError {
    /// It is not installed.
    #[error("libibverbs.so.1 cannot be loaded: install the package of that name")]
    NoLibrary,
    /// The installed one is too old.
    #[error("the installed libibverbs has no {symbol}: version 32 or newer is needed")]
    Old {
        /// The missing function.
        symbol: &'static str,
    },
}

/// Declares the functions that we call, and finds them by name.
macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) -> $ret:ty;)*) => {
        /// The functions of libibverbs that are real symbols; the others are members of a context
        /// (`infiniband/verbs.h` has them as inline functions).
        pub struct Library {
            $(#[doc = concat!("`", stringify!($name), "(3)`.")] pub $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// A child may be forked while the device has pages of this process: since Linux 5.12 the child
            /// gets copies. Before that, either the parent lost them or the child did without.
            pub forks_keep_pages: bool,
        }

        impl Library {
            /// # Safety
            /// `handle` is that of libibverbs.
            unsafe fn resolve(handle: *mut c_void) -> Result<Self, LibraryError> {
                $(
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: an open handle, and a string that ends with a zero.
                    let $name = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
                    if $name.is_null() {
                        return Err(LibraryError::Old { symbol: stringify!($name) });
                    }
                )*
                // Older libraries do not have it. It asks the kernel, so it is called once.
                const IBV_FORK_UNNEEDED: c_uint = 2;
                // SAFETY: as above.
                let asked = unsafe { libc::dlsym(handle, c"ibv_is_fork_initialized".as_ptr()) };
                let forks_keep_pages = !asked.is_null() && {
                    // SAFETY: libibverbs declares this name with this type.
                    let status = unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(asked)
                    };
                    // SAFETY: no arguments.
                    unsafe { status() == IBV_FORK_UNNEEDED }
                };
                Ok(Self {forks_keep_pages, $(
                    // SAFETY: libibverbs declares this name with this type.
                    $name: unsafe {
                        core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $ret>(
                            $name,
                        )
                    },
                )*})
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list: fn(*mut *mut ibv_device) -> ();
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char;
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: fn(*mut ibv_context) -> c_int;
    ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    ibv_query_pkey: fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    _ibv_query_gid_table: fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
    ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
    ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
    ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut ibv_cq, c_uint) -> ();
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
    ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah: fn(*mut ibv_ah) -> c_int;
    ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event: fn(*mut ibv_async_event) -> ();
    ibv_wc_status_str: fn(c_uint) -> *const c_char;
    ibv_fork_init: fn() -> c_int;
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("libibverbs")
    }
}

impl Library {
    /// The library, loaded at the first call. It stays loaded.
    ///
    /// # Errors
    /// It is not installed, or lacks a function.
    pub fn get() -> Result<&'static Library, LibraryError> {
        static LIBRARY: OnceLock<Result<Library, LibraryError>> = OnceLock::new();
        LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
    }

    /// What a completion's status means.
    #[must_use]
    pub fn status_text(&self, status: c_uint) -> String {
        // SAFETY: the function answers a static string for every number.
        let text = unsafe { (self.ibv_wc_status_str)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: not null, so it is a C string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn load() -> Result<Library, LibraryError> {
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
    // SAFETY: the name is a C string. What runs on loading is the library's own set-up.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), flags) };
    if handle.is_null() {
        return Err(LibraryError::NoLibrary);
    }
    // SAFETY: the handle is libibverbs', and is never closed.
    let library = unsafe { Library::resolve(handle) }?;
    // Kernels before 5.12 move pages of a process that forks from under the device; the library's own
    // queues lie in such pages.
    // Since then this would only take what is registered away from children.
    if !library.forks_keep_pages {
        // SAFETY: no arguments. It fails if somebody registered memory before, who has then decided.
        let rc = unsafe { (library.ibv_fork_init)() };
        if rc != 0 {
            tracing::debug!(errno = rc, "ibv_fork_init");
        }
    }
    Ok(library)
}
