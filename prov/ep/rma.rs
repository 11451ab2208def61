//! The calls of `fi_rma(3)`.

use super::fid::{Caller, state};
use crate::errno;
use erd_core::endpoint::Buffers;
use erd_core::endpoint::Call;
use erd_core::endpoint::Post;
use erd_core::endpoint::RmaPost;
use erd_core::endpoint::call::{list, targets_of};
use erd_core::error::Error;
use erd_core::flags::Flags;
use erd_ffi::fi::{FI_EINVAL, NOSYS_RMA, fi_addr_t, fi_msg_rma, fi_ops_rma, fi_rma_iov, fid_ep};
use erd_ffi::guard::guarded;
use erd_rd::wire::remote::TARGETS_MAX;
use erd_rd::{Target, Targets};
use libc::iovec;
use std::ffi::{c_int, c_void};

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

/// [`RmaPost::read`] or [`RmaPost::write`].
type Make = fn(Buffers, Targets, Call) -> RmaPost;

/// A transfer. `None` stands for a list that is not valid. Both have one length.
fn rma_post_of(
    make: Make,
    call: Call,
    buffers: Option<Buffers>,
    targets: Option<Targets>,
) -> Result<RmaPost, Error> {
    let (buffers, targets) = buffers.zip(targets).ok_or(Error::Invalid)?;
    if buffers.len_bytes() != targets.len_bytes() {
        tracing::info!("fi_rma: the lengths of msg_iov and rma_iov differ");
        return Err(Error::Invalid);
    }
    Ok(make(buffers, targets, call))
}

impl Caller<'_> {
    /// Posts a transfer between the application's memory and a peer's: see [`rma_post_of`].
    fn transfer(
        &self,
        make: Make,
        call: Call,
        buffers: Option<Buffers>,
        targets: Option<Targets>,
    ) -> isize {
        let call = Call { ctx: self.own.ctx, ..call };
        if call.flags.intersects(Flags::TRIGGER) {
            return match rma_post_of(make, call, buffers, targets) {
                Ok(post) => self.trigger(Post::Rma(Box::new(post))),
                Err(error) => errno::answer(Err(error)),
            };
        }
        errno::answer(
            self.post(|driver| driver.post_rma(&rma_post_of(make, call, buffers, targets)?)),
        )
    }

    /// The same with one stretch of the peer's memory, of the buffers' length.
    fn transfer_at(
        &self,
        make: Make,
        call: Call,
        buffers: Option<Buffers>,
        (addr, key): (u64, u64),
    ) -> isize {
        let stretch = |buffers: Buffers| Target { addr, len_bytes: buffers.len_bytes(), key };
        let targets = buffers.and_then(|buffers| Targets::new(&[stretch(buffers)]));
        self.transfer(make, call, buffers, targets)
    }
}

/// Contents of a message structure: the call, and its lists, `None` for one that is not valid.
///
/// # Safety
/// `msg` is as `fi_rma(3)` says.
unsafe fn parts_of(msg: &fi_msg_rma, flags: u64) -> (Call, Option<Buffers>, Option<Targets>) {
    // SAFETY: the caller's promise.
    let stretches = unsafe { list(msg.rma_iov, msg.rma_iov_count, TARGETS_MAX) };
    let target = |part: &fi_rma_iov| {
        Some(Target { addr: part.addr, len_bytes: part.len as u64, key: part.key })
    };
    let targets = stretches.and_then(|stretches| targets_of(stretches, target));
    // With 0 bytes the count belongs to no list.
    let empty = msg.msg_iov.is_null() && targets.is_some_and(|targets| targets.len_bytes() == 0);
    let count = if empty { 0 } else { msg.iov_count };
    // SAFETY: the caller's list.
    let buffers =
        unsafe { Buffers::many(msg.msg_iov, count).map(|buffers| buffers.described_by(msg.desc)) };
    (
        Call::new(msg.addr, msg.context, Flags::from_bits_retain(flags))
            .with_message_data(msg.data),
        buffers,
        targets,
    )
}

/// A message structure of deferred work.
///
/// # Safety
/// As [`parts_of`].
pub(super) unsafe fn post_of(msg: &fi_msg_rma, flags: u64, reads: bool) -> Result<Post, c_int> {
    // SAFETY: the caller's promise.
    let (call, buffers, targets) = unsafe { parts_of(msg, flags) };
    let make = if reads { RmaPost::read } else { RmaPost::write };
    rma_post_of(make, call, buffers, targets)
        .map(|post| Post::Rma(Box::new(post)))
        .map_err(errno::of)
}

/// # Safety
/// As `fi_rma(3)` says of a message.
unsafe fn message(ep: *mut fid_ep, msg: *const fi_msg_rma, make: Make, flags: u64) -> isize {
    if msg.is_null() {
        return -(FI_EINVAL as isize);
    }
    // SAFETY: our open endpoint; the message and its lists are the caller's.
    let (ep, (call, buffers, targets)) = unsafe { (state(ep), parts_of(&*msg, flags)) };
    ep.transfer(make, call, buffers, targets)
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
        let call = Call::new(src_addr, context, ep.tx_flags());
        ep.transfer_at(RmaPost::read, call, Some(buffers), (addr, key))
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
        let call = Call::new(src_addr, context, ep.tx_flags());
        ep.transfer_at(RmaPost::read, call, buffers, (addr, key))
    }

    unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
        // SAFETY: the caller's promise is the same.
        unsafe { message(ep, msg, RmaPost::read, flags) }
    }

    unsafe extern "C" fn write(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above; the buffer is only read.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len).described(desc)) };
        let call = Call::new(dest_addr, context, ep.tx_flags());
        ep.transfer_at(RmaPost::write, call, Some(buffers), (addr, key))
    }

    unsafe extern "C" fn writev(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above, for each of `count` pieces.
        let (ep, buffers) = unsafe { (state(ep), Buffers::many(iov, count).map(|buffers| buffers.described_by(desc))) };
        let call = Call::new(dest_addr, context, ep.tx_flags());
        ep.transfer_at(RmaPost::write, call, buffers, (addr, key))
    }

    unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
        // SAFETY: the caller's promise is the same.
        unsafe { message(ep, msg, RmaPost::write, flags) }
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
        let call = Call::inject(dest_addr);
        ep.transfer_at(RmaPost::write, call, Some(buffers), (addr, key))
    }

    unsafe extern "C" fn writedata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len).described(desc)) };
        let call = Call::new(dest_addr, context, ep.tx_flags()).with_data(data);
        ep.transfer_at(RmaPost::write, call, Some(buffers), (addr, key))
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
        let call = Call::inject(dest_addr).with_data(data);
        ep.transfer_at(RmaPost::write, call, Some(buffers), (addr, key))
    }
}
