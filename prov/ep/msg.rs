//! The calls of `fi_msg(3)`.

use super::fid::{Caller, state};
use crate::errno;
use erd_core::endpoint::Buffers;
use erd_core::endpoint::Call;
use erd_core::endpoint::Post;
use erd_core::endpoint::RecvRequest;
use erd_core::endpoint::SendRequest;
use erd_core::error::Error;
use erd_core::flags::Flags;
use erd_ffi::fi::{FI_EINVAL, NOSYS_MSG, fi_addr_t, fi_msg, fi_ops_msg, fid_ep};
use erd_ffi::guard::guarded;
use libc::iovec;
use std::ffi::{c_int, c_void};

/// All calls, for every endpoint.
pub(super) static MSG_OPS: fi_ops_msg = fi_ops_msg {
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
    ..NOSYS_MSG
};

impl Caller<'_> {
    /// Posts a send; `None` stands for a list of the application's that is not valid.
    pub(super) fn send(&self, buffers: Option<Buffers>, tag: Option<u64>, call: Call) -> isize {
        let call = Call { ctx: self.own.ctx, ..call };
        if call.flags.intersects(Flags::TRIGGER) {
            let Some(buffers) = buffers else { return -(FI_EINVAL as isize) };
            return self.trigger(Post::Send(SendRequest { buffers, tag, call }));
        }
        errno::answer(
            self.post(|driver| {
                driver.post_send(buffers.as_ref().ok_or(Error::Invalid)?, tag, &call)
            }),
        )
    }

    /// Posts a receive; `None` stands for a list of the application's that is not valid.
    pub(super) fn recv(&self, buffers: Option<Buffers>, mut request: RecvRequest) -> isize {
        if request.flags.intersects(Flags::TRIGGER) {
            let Some(buffers) = buffers else { return -(FI_EINVAL as isize) };
            return self.trigger(Post::Recv(RecvRequest { buffers, ..request }));
        }
        errno::answer(self.post(|driver| {
            request.buffers.set(buffers.as_ref().ok_or(Error::Invalid)?);
            driver.post_recv(&request)
        }))
    }
}

/// The receive of a message structure; its buffers are `None` for a list that is not valid.
///
/// # Safety
/// `msg` is as `fi_msg(3)` says.
unsafe fn recv_of(msg: &fi_msg, flags: u64) -> (Option<Buffers>, RecvRequest) {
    // SAFETY: the caller's promise.
    let buffers = unsafe { Buffers::many(msg.msg_iov, msg.iov_count) };
    (buffers, RecvRequest::new(msg.addr, msg.context, Flags::from_bits_retain(flags)))
}

/// The send of a message structure, likewise.
///
/// # Safety
/// As [`recv_of`].
unsafe fn send_of(msg: &fi_msg, flags: u64) -> (Option<Buffers>, Call) {
    // SAFETY: the caller's promise.
    let buffers = unsafe {
        Buffers::many(msg.msg_iov, msg.iov_count).map(|buffers| buffers.described_by(msg.desc))
    };
    (
        buffers,
        Call::new(msg.addr, msg.context, Flags::from_bits_retain(flags))
            .with_message_data(msg.data),
    )
}

/// A message structure of deferred work.
///
/// # Safety
/// As [`recv_of`].
pub(super) unsafe fn post_of(msg: &fi_msg, flags: u64, receives: bool) -> Result<Post, c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        if receives {
            let (buffers, request) = recv_of(msg, flags);
            let buffers = buffers.ok_or(FI_EINVAL)?;
            return Ok(Post::Recv(RecvRequest { buffers, ..request }));
        }
        let (buffers, call) = send_of(msg, flags);
        let buffers = buffers.ok_or(FI_EINVAL)?;
        Ok(Post::Send(SendRequest { buffers, tag: None, call }))
    }
}

guarded! {
    unsafe extern "C" fn recv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        _desc: *mut c_void,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: libfabric calls with our open endpoint, and a buffer lent until completion.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf, len)) };
        ep.recv(Some(buffers), RecvRequest::new(src_addr, context, ep.rx_flags()))
    }

    unsafe extern "C" fn recvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above, for each of `count` pieces.
        let (ep, buffers) = unsafe { (state(ep), Buffers::many(iov, count)) };
        ep.recv(buffers, RecvRequest::new(src_addr, context, ep.rx_flags()))
    }

    unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
        if msg.is_null() {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: as above; the message is the caller's.
        let (ep, (buffers, request)) = unsafe { (state(ep), recv_of(&*msg, flags)) };
        ep.recv(buffers, request)
    }

    unsafe extern "C" fn send(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above; the buffer is only read.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len).described(desc)) };
        ep.send(Some(buffers), None, Call::new(dest_addr, context, ep.tx_flags()))
    }

    unsafe extern "C" fn sendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above.
        let (ep, buffers) = unsafe { (state(ep), Buffers::many(iov, count).map(|buffers| buffers.described_by(desc))) };
        ep.send(buffers, None, Call::new(dest_addr, context, ep.tx_flags()))
    }

    unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
        if msg.is_null() {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: as above; the message is the caller's.
        let (ep, (buffers, call)) = unsafe { (state(ep), send_of(&*msg, flags)) };
        ep.send(buffers, None, call)
    }

    unsafe extern "C" fn inject(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
    ) -> isize {
        // SAFETY: as above; the buffer is copied before the call returns.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        ep.send(Some(buffers), None, Call::inject(dest_addr))
    }

    unsafe extern "C" fn senddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len).described(desc)) };
        let call = Call::new(dest_addr, context, ep.tx_flags());
        ep.send(Some(buffers), None, call.with_data(data))
    }

    unsafe extern "C" fn injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
    ) -> isize {
        // SAFETY: as above; the buffer is copied before the call returns.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        ep.send(Some(buffers), None, Call::inject(dest_addr).with_data(data))
    }
}
