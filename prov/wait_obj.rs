//! libfabric's wait objects, on which readers of a queue or counter sleep.

use crate::object;
use crate::poll::WaitFid;
use erd_core::domain::Domain;
use erd_core::watch::{WaitKind, Watch};
use erd_ffi::fi::{
    FI_EINVAL, FI_ENOSYS, FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_NONE,
    FI_WAIT_SET, FI_WAIT_UNSPEC, FI_WAIT_YIELD, fi_wait_obj, fid_wait,
};
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

/// The watch of an object of `domain` that is opened with this wait object. `FI_WAIT_UNSPEC` is an fd.
///
/// # Errors
/// A positive error number if the wait object is not supported.
///
/// # Safety
/// With `FI_WAIT_SET`, `wait_set` is NULL or an open wait set.
pub(crate) unsafe fn watch(
    wait_obj: fi_wait_obj,
    wait_set: *mut fid_wait,
    domain: &Domain,
) -> Result<Watch, c_int> {
    let spin_ns = domain.settings.spin_ns;
    let kind = match wait_obj {
        FI_WAIT_NONE => WaitKind::Never,
        FI_WAIT_UNSPEC | FI_WAIT_FD => WaitKind::Fd,
        FI_WAIT_YIELD => WaitKind::Yield,
        FI_WAIT_SET => {
            // SAFETY: the caller's promise.
            let set = unsafe { object::from_fid::<WaitFid>(wait_set.cast()) };
            return Ok(Watch::in_set(&set.ok_or(FI_EINVAL)?.set, spin_ns, &domain.held));
        }
        FI_WAIT_MUTEX_COND => return Err(FI_ENOSYS),
        _ => return Err(FI_EINVAL),
    };
    Ok(Watch::new(kind, spin_ns, &domain.held))
}

/// `FI_GETWAIT` and `FI_GETWAITOBJ`.
///
/// # Safety
/// `arg` is what `fi_control(3)` says for the command, or NULL.
pub(crate) unsafe fn control(watch: &Watch, command: c_int, arg: *mut c_void) -> c_int {
    if arg.is_null() {
        return -FI_EINVAL;
    }
    match command {
        FI_GETWAIT if watch.kind() == WaitKind::Fd => {
            let Ok(fd) = watch.fd() else { return -FI_ENOSYS };
            // SAFETY: for an fd the argument points to an int.
            unsafe { arg.cast::<c_int>().write(fd.as_raw_fd()) };
            0
        }
        FI_GETWAITOBJ => {
            let object = match watch.kind() {
                WaitKind::Never => FI_WAIT_NONE,
                WaitKind::Fd => FI_WAIT_FD,
                WaitKind::Yield => FI_WAIT_YIELD,
            };
            // SAFETY: the argument points to the type of wait object.
            unsafe { arg.cast::<fi_wait_obj>().write(object) };
            0
        }
        _ => -FI_ENOSYS,
    }
}
