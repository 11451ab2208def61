//! The calls of `fi_cq(3)`.

use super::format::{self, Format};
use super::shown::{SHOWN_BYTES_MAX, Shown, is_place};
use super::{CqFid, Target};
use crate::domain::DomainFid;
use crate::{errno, object, wait_obj};
use erd_core::completion::CompletionQueue;
use erd_core::completion::queue::Nothing;
use erd_ffi::fi::{
    FI_AFFINITY, FI_CQ_COND_NONE, FI_CQ_COND_THRESHOLD, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA,
    FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED, FI_CQ_FORMAT_UNSPEC, FI_EAGAIN, FI_EAVAIL, FI_EINVAL,
    FI_EOTHER, FI_PEER, NOSYS_CQ, NOSYS_FID, compat, fi_addr_t, fi_cq_attr, fi_cq_err_entry,
    fi_ops, fi_ops_cq, fid, fid_cq,
};
use erd_ffi::guard::guarded;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

static FID_OPS: fi_ops = fi_ops { close: object::close::<CqFid>, control: cq_control, ..NOSYS_FID };

static CQ_OPS: fi_ops_cq = fi_ops_cq {
    read: cq_read,
    readfrom: cq_readfrom,
    readerr: cq_readerr,
    sread: cq_sread,
    sreadfrom: cq_sreadfrom,
    signal: cq_signal,
    strerror: cq_strerror,
    ..NOSYS_CQ
};

/// `fi_cq_open(3)`.
///
/// # Safety
/// `attr` and `cq` are as the man page says.
pub unsafe fn open(
    domain: &Arc<DomainFid>,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || cq.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's attribute, read as far as its API version reaches.
    let attr = unsafe { compat::read(attr, domain.api_version()) };
    if attr.flags == FI_PEER {
        // SAFETY: the caller's promise.
        return unsafe { super::peer::open(domain, cq, context) };
    }
    let (Some(format), Some(threshold)) = (format(&attr), threshold(&attr)) else {
        tracing::info!(attr.format, attr.wait_cond, "fi_cq_open: unknown format or condition");
        return -FI_EINVAL;
    };
    if attr.flags & !FI_AFFINITY != 0 {
        tracing::info!(attr.flags, "fi_cq_open: flags may be FI_AFFINITY, or FI_PEER alone");
        return -FI_EINVAL;
    }
    // SAFETY: the caller's attribute, whose wait set is open where one is meant.
    let watch = match unsafe { wait_obj::watch(attr.wait_obj, attr.wait_set, domain) } {
        Ok(watch) => watch,
        Err(errno) => return -errno,
    };
    let cq_inner = CompletionQueue::new(domain, watch, None);
    if let Err(error) = cq_inner.watch.join_set(&cq_inner) {
        return -errno::of(error);
    }
    let inner = Arc::new(CqFid {
        cq: cq_inner,
        format,
        api_version: domain.api_version(),
        threshold,
        shown: Shown::new(),
    });
    let abi = fid_cq { fid: object::base::<CqFid>(context, &FID_OPS), ops: &CQ_OPS };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *cq = object::publish(abi, inner) };
    0
}

fn format(attr: &fi_cq_attr) -> Option<Format> {
    match attr.format {
        FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Some(Format::Context),
        FI_CQ_FORMAT_MSG => Some(Format::Msg),
        FI_CQ_FORMAT_DATA => Some(Format::Data),
        FI_CQ_FORMAT_TAGGED => Some(Format::Tagged),
        _ => None,
    }
}

fn threshold(attr: &fi_cq_attr) -> Option<bool> {
    match attr.wait_cond {
        FI_CQ_COND_NONE => Some(false),
        FI_CQ_COND_THRESHOLD => Some(true),
        _ => None,
    }
}

/// `fi_trywait(3)` for a CQ: 0 if it is safe to sleep on its fd.
///
/// # Safety
/// `any` is an open CQ of this provider.
pub unsafe fn trywait(any: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    let Some(cq) = (unsafe { object::from_fid::<CqFid>(any) }) else {
        return -FI_EINVAL;
    };
    if !cq.watch.can_sleep() {
        return -FI_EINVAL;
    }
    if cq.may_sleep() { 0 } else { -FI_EAGAIN }
}

/// Result of a read. An endpoint that a bug has failed completes nothing any more, so waiting readers get an error.
fn answer(cq: &CompletionQueue, result: Result<usize, Nothing>) -> isize {
    match result {
        Ok(count) => count as isize,
        Err(Nothing::Empty) if cq.watch.has_failed() => -(FI_EOTHER as isize),
        Err(Nothing::Empty) => -(FI_EAGAIN as isize),
        Err(Nothing::Error) => -(FI_EAVAIL as isize),
    }
}

/// # Safety
/// `cq` is an open CQ of ours, and `to` as `fi_cq_sreadfrom(3)` says.
unsafe fn sleep_read(
    cq: &CqFid,
    (buf, count, sources): (*mut c_void, usize, *mut fi_addr_t),
    cond: *const c_void,
    timeout_ms: c_int,
) -> isize {
    if !cq.watch.can_sleep() {
        tracing::info!("fi_cq_sread: the CQ was opened with FI_WAIT_NONE");
        return -(FI_EINVAL as isize);
    }
    // With FI_CQ_COND_THRESHOLD the pointer is a number.
    let wanted = if cq.threshold { (cond as usize).max(1) } else { 1 };
    let to = Target { format: cq.format, buf, sources };
    let result = cq.read_or_sleep(count, wanted, timeout_ms, |place, entry| {
        // SAFETY: the caller vouches for `count` places.
        unsafe { to.write(place, entry) };
    });
    answer(cq, result)
}

guarded! {
    unsafe extern "C" fn cq_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
        // SAFETY: libfabric calls with our open CQ.
        let cq = unsafe { object::inner::<CqFid>(cq) };
        let to = Target { format: cq.format, buf, sources: std::ptr::null_mut() };
        // SAFETY: the caller's buffer has `count` places.
        answer(cq, cq.read(count, |place, entry| unsafe { to.write(place, entry) }))
    }

    unsafe extern "C" fn cq_readfrom(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> isize {
        // SAFETY: as above.
        let cq = unsafe { object::inner::<CqFid>(cq) };
        let to = Target { format: cq.format, buf, sources };
        // SAFETY: as above, and so have the sources.
        answer(cq, cq.read(count, |place, entry| unsafe { to.write(place, entry) }))
    }

    unsafe extern "C" fn cq_sread(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        cond: *const c_void,
        timeout_ms: c_int,
    ) -> isize {
        // SAFETY: as above.
        unsafe {
            let room = (buf, count, std::ptr::null_mut());
            sleep_read(object::inner::<CqFid>(cq), room, cond, timeout_ms)
        }
    }

    unsafe extern "C" fn cq_sreadfrom(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
        cond: *const c_void,
        timeout_ms: c_int,
    ) -> isize {
        // SAFETY: as above.
        unsafe {
            sleep_read(object::inner::<CqFid>(cq), (buf, count, sources), cond, timeout_ms)
        }
    }

    unsafe extern "C" fn cq_readerr(
        cq: *mut fid_cq,
        buf: *mut fi_cq_err_entry,
        _flags: u64,
    ) -> isize {
        if buf.is_null() {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: libfabric calls with our open CQ.
        let cq = unsafe { object::inner::<CqFid>(cq) };
        // The text is the caller's until it reads the next error.
        let mut shown = cq.shown.lock();
        let Some(mut entry) = cq.read_error() else { return -(FI_EAGAIN as isize) };
        let Some(failure) = entry.failure.take() else { return -(FI_EAGAIN as isize) };
        let error = format::error(&entry, &failure);
        let len_bytes = failure.text.len().min(SHOWN_BYTES_MAX);
        shown[..len_bytes].copy_from_slice(&failure.text[..len_bytes]);
        let error = fi_cq_err_entry {
            err_data: if len_bytes == 0 { std::ptr::null_mut() } else { shown.as_mut_ptr().cast() },
            err_data_size: len_bytes,
            ..error
        };
        // SAFETY: the caller's entry, as long as its API version says.
        unsafe { compat::write_cq_err(buf, &error, cq.api_version, is_place) };
        1
    }

    unsafe extern "C" fn cq_signal(cq: *mut fid_cq) -> c_int {
        // SAFETY: libfabric calls with our open CQ.
        let cq = unsafe { object::inner::<CqFid>(cq) };
        if !cq.watch.can_sleep() {
            return -FI_EINVAL;
        }
        cq.signal();
        0
    }

    pub(super) unsafe extern "C" fn cq_strerror(
        _cq: *mut fid_cq,
        prov_errno: c_int,
        _err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char {
        let text = erd_core::cause::text(prov_errno);
        if buf.is_null() || len == 0 {
            return text.as_ptr();
        }
        let bytes = text.to_bytes();
        let kept = bytes.len().min(len - 1);
        // SAFETY: the caller's buffer has `len` bytes, of which this writes at most all.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buf, kept);
            buf.add(kept).write(0);
        }
        buf
    }

    unsafe extern "C" fn cq_control(any: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open CQ.
        let Some(cq) = (unsafe { object::from_fid::<CqFid>(any) }) else {
            return -FI_EINVAL;
        };
        // SAFETY: the argument is what fi_cq(3) says for the command.
        unsafe { wait_obj::control(&cq.watch, command, arg) }
    }
}
