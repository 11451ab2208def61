//! The calls of `fi_rma(3)`.

use super::EpInner;
use super::msg::state;
use super::ops::Buffers;
use super::post_ask::{Access, AskPost};
use erd_ffi::fi::{
    FI_EINVAL, FI_INJECT, FI_REMOTE_CQ_DATA, NOSYS_RMA, fi_addr_t, fi_msg_rma, fi_ops_rma,
    fi_rma_iov, fid_ep,
};
use erd_ffi::guard::guarded;
use erd_rd::wire::remote::TARGETS_MAX;
use erd_rd::{Target, Targets};
use libc::iovec;
use std::ffi::c_void;

/// All calls, for every endpoint.
pub(super) static RMA_OPS: fi_ops_rma = fi_ops_rma {
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
    ..NOSYS_RMA
};

/// What one call says beside its buffers.
#[derive(Clone, Copy)]
struct Call {
    access: Access,
    dest: fi_addr_t,
    context: *mut c_void,
    data: Option<u64>,
    flags: u64,
    silent: bool,
}

impl Call {
    fn new(access: Access, dest: fi_addr_t, context: *mut c_void, flags: u64) -> Call {
        Call { access, dest, context, data: None, flags, silent: false }
    }

    fn silent(dest: fi_addr_t) -> Call {
        let none = std::ptr::null_mut();
        Call { silent: true, ..Call::new(Access::Write, dest, none, FI_INJECT) }
    }
}

impl EpInner {
    /// Posts a transfer between the application's memory and a peer's. `None` stands for a list
    /// that is not valid. Both have one length.
    fn transfer(&self, call: Call, buffers: Option<Buffers>, targets: Option<Targets>) -> isize {
        let (Some(buffers), Some(targets)) = (buffers, targets) else {
            return -(FI_EINVAL as isize);
        };
        if buffers.len_bytes() != targets.len_bytes() {
            tracing::info!("fi_rma: the lengths of msg_iov and rma_iov differ");
            return -(FI_EINVAL as isize);
        }
        let post = AskPost {
            access: call.access,
            buffers,
            operand: Buffers::default(),
            comparand: Buffers::default(),
            targets,
            context: call.context,
            dest: call.dest,
            data: call.data,
            flags: call.flags,
            silent: call.silent,
        };
        self.post(|driver| driver.post_ask(&post))
    }
}

/// One stretch of a peer's memory, as long as what goes there.
fn one(buffers: Option<&Buffers>, addr: u64, key: u64) -> Option<Targets> {
    Targets::new(&[Target { addr, len_bytes: buffers?.len_bytes(), key }])
}

/// The stretches of a caller's list.
///
/// # Safety
/// `iov` is NULL or has `count` elements.
unsafe fn many(iov: *const fi_rma_iov, count: usize) -> Option<Targets> {
    if iov.is_null() || count > TARGETS_MAX {
        return None;
    }
    // SAFETY: not NULL, and the caller vouches for the length.
    let iov = unsafe { std::slice::from_raw_parts(iov, count) };
    let mut list = [Target::default(); TARGETS_MAX];
    for (target, part) in list.iter_mut().zip(iov) {
        *target = Target { addr: part.addr, len_bytes: part.len as u64, key: part.key };
    }
    Targets::new(&list[..count])
}

/// # Safety
/// As `fi_rma(3)` says of a message.
unsafe fn message(ep: *mut fid_ep, msg: *const fi_msg_rma, access: Access, flags: u64) -> isize {
    if msg.is_null() {
        return -(FI_EINVAL as isize);
    }
    // SAFETY: our open endpoint; the message and its lists are the caller's.
    let (ep, msg, buffers, targets) = unsafe {
        let msg = &*msg;
        let buffers = Buffers::many(msg.msg_iov, msg.iov_count);
        (state(ep), msg, buffers, many(msg.rma_iov, msg.rma_iov_count))
    };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    let call = Call::new(access, msg.addr, msg.context, flags);
    ep.transfer(Call { data, ..call }, buffers, targets)
}

guarded! {
    unsafe extern "C" fn read(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        _desc: *mut c_void,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: libfabric calls with our open endpoint, and a buffer lent until completion.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf, len)) };
        let call = Call::new(Access::Read, src_addr, context, ep.tx_flags());
        ep.transfer(call, Some(buffers), one(Some(&buffers), addr, key))
    }

    unsafe extern "C" fn readv(
        ep: *mut fid_ep,
        iov: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above, for each of `count` pieces.
        let (ep, buffers) = unsafe { (state(ep), Buffers::many(iov, count)) };
        let call = Call::new(Access::Read, src_addr, context, ep.tx_flags());
        ep.transfer(call, buffers, one(buffers.as_ref(), addr, key))
    }

    unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
        // SAFETY: the caller's promise is the same.
        unsafe { message(ep, msg, Access::Read, flags) }
    }

    unsafe extern "C" fn write(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        _desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above; the buffer is only read.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        let call = Call::new(Access::Write, dest_addr, context, ep.tx_flags());
        ep.transfer(call, Some(buffers), one(Some(&buffers), addr, key))
    }

    unsafe extern "C" fn writev(
        ep: *mut fid_ep,
        iov: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above, for each of `count` pieces.
        let (ep, buffers) = unsafe { (state(ep), Buffers::many(iov, count)) };
        let call = Call::new(Access::Write, dest_addr, context, ep.tx_flags());
        ep.transfer(call, buffers, one(buffers.as_ref(), addr, key))
    }

    unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
        // SAFETY: the caller's promise is the same.
        unsafe { message(ep, msg, Access::Write, flags) }
    }

    unsafe extern "C" fn inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize {
        // SAFETY: as above; the buffer is copied before the call returns.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        ep.transfer(Call::silent(dest_addr), Some(buffers), one(Some(&buffers), addr, key))
    }

    unsafe extern "C" fn writedata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        _desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        let call = Call::new(Access::Write, dest_addr, context, ep.tx_flags());
        let targets = one(Some(&buffers), addr, key);
        ep.transfer(Call { data: Some(data), ..call }, Some(buffers), targets)
    }

    unsafe extern "C" fn injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize {
        // SAFETY: as above; the buffer is copied before the call returns.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        let targets = one(Some(&buffers), addr, key);
        ep.transfer(Call { data: Some(data), ..Call::silent(dest_addr) }, Some(buffers), targets)
    }
}
