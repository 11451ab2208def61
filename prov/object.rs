//! The common part of this provider's libfabric objects.
//!
//! An object is a box that begins with libfabric's own structure and goes on with an `Arc` of the
//! provider's state:
//!
//! ```text
//! FidBox<CqFid> = { fid: fid_cq, owner: Process, inner: Arc<CqFid> }   (#[repr(C)])
//! ```
//!
//! [`publish`] makes the box and gives its pointer to C. [`inner`] and [`from_fid`] find the state behind a pointer
//! that C hands back. [`close`] is the `fi_ops.close` of every class. A child holds a `Use` of each object that it
//! needs; an object with uses answers `-FI_EBUSY` to close. A forked process owns none of its parent's objects: closing
//! them there does nothing.

use erd_core::uses::Users;
use erd_ffi::fi::{FI_EBUSY, FI_EINVAL, fid};
use erd_sys::process::Process;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// State behind one class of libfabric objects.
///
/// # Safety
/// `Abi` must be a `#[repr(C)]` structure whose first field is `fid`, and `FCLASS` must be the
/// class of the objects with this state and of no other state.
pub unsafe trait Class: Sized + Send + Sync + 'static {
    /// The structure that C sees.
    type Abi;
    /// `fid.fclass` of such objects.
    const FCLASS: usize;

    /// Objects that need this one open.
    fn users(&self) -> &Users;

    /// Called once by `fi_close`, after the check for users and before the object goes.
    ///
    /// # Errors
    /// A positive error number; the object then stays open.
    fn closing(self: &Arc<Self>) -> Result<(), c_int> {
        Ok(())
    }
}

/// One object: C's part first.
#[repr(C)]
pub struct FidBox<T: Class> {
    fid: T::Abi,
    owner: Process,
    inner: Arc<T>,
}

/// Makes the box of an object and hands it to C; [`close`] takes it back.
#[must_use]
pub fn publish<T: Class>(abi: T::Abi, inner: Arc<T>) -> *mut T::Abi {
    Box::into_raw(Box::new(FidBox { fid: abi, owner: Process::current(), inner })).cast()
}

/// C's base part of a new object of class `T`.
#[must_use]
pub fn base<T: Class>(context: *mut c_void, ops: &'static erd_ffi::fi::fi_ops) -> fid {
    fid { fclass: T::FCLASS, context, ops }
}

/// The state of an object that came in through one of its own class's operations.
///
/// The reference covers the provider's part only, so C's part may be written meanwhile.
///
/// # Safety
/// `abi` must come from [`publish`] for the same `T` and must not be closed during `'a`.
#[must_use]
pub unsafe fn inner<'a, T: Class>(abi: *mut T::Abi) -> &'a Arc<T> {
    let whole = abi.cast::<FidBox<T>>();
    // SAFETY: `abi` is the first field of a live `FidBox<T>` (caller's promise, `repr(C)`).
    unsafe { &(*whole).inner }
}

/// The state behind a pointer to any object of C.
///
/// `None` if the pointer is NULL or the object has another class.
///
/// # Safety
/// `any` must be NULL or point to a live libfabric object; one of class `T::FCLASS` must belong to
/// this provider (libfabric gives a provider only its own objects) and stay open during `'a`.
#[must_use]
pub unsafe fn from_fid<'a, T: Class>(any: *mut fid) -> Option<&'a Arc<T>> {
    // SAFETY: a non-NULL pointer points to a live `fid` (caller's promise).
    if any.is_null() || unsafe { (*any).fclass } != T::FCLASS {
        return None;
    }
    // SAFETY: the class says that it is the `fid` at the start of a `FidBox<T>`.
    Some(unsafe { inner(any.cast()) })
}

/// `fi_ops.close` of class `T`.
///
/// # Safety
/// As `fi_close(3)`: `any` is an open object that nobody uses during or after the call.
pub unsafe extern "C" fn close<T: Class>(any: *mut fid) -> c_int {
    // SAFETY: the caller's promise is the same.
    erd_ffi::guard::call("fi_close", || unsafe { try_close::<T>(any) }, || ())
}

/// # Safety
/// As [`close`].
unsafe fn try_close<T: Class>(any: *mut fid) -> c_int {
    // SAFETY: the caller hands over an open object.
    let Some(state) = (unsafe { from_fid::<T>(any) }) else {
        return -FI_EINVAL;
    };
    let whole = any.cast::<FidBox<T>>();
    // SAFETY: `from_fid` found class `T`, so this is a live `FidBox<T>`.
    if !unsafe { (*whole).owner }.is_current() {
        return 0;
    }
    if state.users().count() != 0 {
        return -FI_EBUSY;
    }
    if let Err(errno) = state.closing() {
        return -errno;
    }
    // SAFETY: `publish` made the box with `Box::into_raw`, and nobody uses it after the call.
    drop(unsafe { Box::from_raw(whole) });
    0
}

/// `fi_ops.close` of a second object of the same state ([`publish`]): the state stays open.
///
/// # Safety
/// As [`close`].
pub unsafe extern "C" fn release<T: Class>(any: *mut fid) -> c_int {
    let whole = any.cast::<FidBox<T>>();
    // SAFETY: libfabric calls with an open object of this class.
    if unsafe { (*whole).owner }.is_current() {
        // SAFETY: `publish` made the box with `Box::into_raw`, and nobody uses it after the call.
        drop(unsafe { Box::from_raw(whole) });
    }
    0
}

/// Does a `strerror` call: `text` copied into the caller's buffer as far as it fits, or `text` itself if there is no
/// buffer.
///
/// # Safety
/// `buf` is NULL or writable for `len` bytes.
#[must_use]
pub unsafe fn give_text(text: &'static CStr, buf: *mut c_char, len: usize) -> *const c_char {
    if buf.is_null() || len == 0 {
        return text.as_ptr();
    }
    let kept = text.count_bytes().min(len - 1);
    // SAFETY: the buffer has `len` bytes by the caller's promise, and `kept` is less.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buf, kept);
        buf.add(kept).write(0);
    }
    buf
}
