//! The calls of `fi_tagged(3)`.

use super::fid::state;
use erd_core::endpoint::Buffers;
use erd_core::endpoint::Call;
use erd_core::endpoint::Post;
use erd_core::endpoint::RecvRequest;
use erd_core::endpoint::SendRequest;
use erd_core::flags::Flags;
use erd_ffi::fi::{FI_EINVAL, NOSYS_TAGGED, fi_addr_t, fi_msg_tagged, fi_ops_tagged, fid_ep};
use erd_ffi::guard::guarded;
use erd_rd::matching::TagMask;
use libc::iovec;
use std::ffi::{c_int, c_void};

/// All calls, for every endpoint.
pub(super) static TAGGED_OPS: fi_ops_tagged = fi_ops_tagged {
    recv: trecv,
    recvv: trecvv,
    recvmsg: trecvmsg,
    send: tsend,
    sendv: tsendv,
    sendmsg: tsendmsg,
    inject: tinject,
    senddata: tsenddata,
    injectdata: tinjectdata,
    ..NOSYS_TAGGED
};

/// Buffers of many messages take only untagged ones, even as the default.
const NOT_TAGGED: Flags = Flags::MULTI_RECV;

/// The receive of a message structure; its buffers are `None` for a list that is not valid.
///
/// # Safety
/// `msg` is as `fi_tagged(3)` says.
unsafe fn recv_of(msg: &fi_msg_tagged, flags: u64) -> (Option<Buffers>, RecvRequest) {
    // SAFETY: the caller's promise.
    let buffers = unsafe { Buffers::many(msg.msg_iov, msg.iov_count) };
    let request = RecvRequest::new(msg.addr, msg.context, Flags::from_bits_retain(flags));
    let mask = TagMask { tag: msg.tag, ignore: msg.ignore };
    (buffers, RecvRequest { tag: Some(mask), ..request })
}

/// The send of a message structure, likewise.
///
/// # Safety
/// As [`recv_of`].
unsafe fn send_of(msg: &fi_msg_tagged, flags: u64) -> (Option<Buffers>, Call) {
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
pub(super) unsafe fn post_of(
    msg: &fi_msg_tagged,
    flags: u64,
    receives: bool,
) -> Result<Post, c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        if receives {
            let (buffers, request) = recv_of(msg, flags);
            let buffers = buffers.ok_or(FI_EINVAL)?;
            return Ok(Post::Recv(RecvRequest { buffers, ..request }));
        }
        let (buffers, call) = send_of(msg, flags);
        let buffers = buffers.ok_or(FI_EINVAL)?;
        Ok(Post::Send(SendRequest { buffers, tag: Some(msg.tag), call }))
    }
}

guarded! {
    unsafe extern "C" fn trecv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        _desc: *mut c_void,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: libfabric calls with our open endpoint, and a buffer lent until completion.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf, len)) };
        let request = RecvRequest::new(src_addr, context, ep.rx_flags().difference(NOT_TAGGED));
        ep.recv(Some(buffers), RecvRequest { tag: Some(TagMask { tag, ignore }), ..request })
    }

    unsafe extern "C" fn trecvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above, for each of `count` pieces.
        let (ep, buffers) = unsafe { (state(ep), Buffers::many(iov, count)) };
        let request = RecvRequest::new(src_addr, context, ep.rx_flags().difference(NOT_TAGGED));
        ep.recv(buffers, RecvRequest { tag: Some(TagMask { tag, ignore }), ..request })
    }

    unsafe extern "C" fn trecvmsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_tagged,
        flags: u64,
    ) -> isize {
        if msg.is_null() || flags & NOT_TAGGED.bits() != 0 {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: as above; the message is the caller's.
        let (ep, (buffers, request)) = unsafe { (state(ep), recv_of(&*msg, flags)) };
        ep.recv(buffers, request)
    }

    unsafe extern "C" fn tsend(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above; the buffer is only read.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len).described(desc)) };
        ep.send(Some(buffers), Some(tag), Call::new(dest_addr, context, ep.tx_flags()))
    }

    unsafe extern "C" fn tsendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above.
        let (ep, buffers) = unsafe { (state(ep), Buffers::many(iov, count).map(|buffers| buffers.described_by(desc))) };
        ep.send(buffers, Some(tag), Call::new(dest_addr, context, ep.tx_flags()))
    }

    unsafe extern "C" fn tsendmsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_tagged,
        flags: u64,
    ) -> isize {
        if msg.is_null() {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: as above; the message is the caller's.
        let (ep, msg) = unsafe { (state(ep), &*msg) };
        // SAFETY: as above.
        let (buffers, call) = unsafe { send_of(msg, flags) };
        ep.send(buffers, Some(msg.tag), call)
    }

    unsafe extern "C" fn tinject(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
        tag: u64,
    ) -> isize {
        // SAFETY: as above; the buffer is copied before the call returns.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        ep.send(Some(buffers), Some(tag), Call::inject(dest_addr))
    }

    unsafe extern "C" fn tsenddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len).described(desc)) };
        let call = Call::new(dest_addr, context, ep.tx_flags());
        ep.send(Some(buffers), Some(tag), call.with_data(data))
    }

    unsafe extern "C" fn tinjectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
    ) -> isize {
        // SAFETY: as above; the buffer is copied before the call returns.
        let (ep, buffers) = unsafe { (state(ep), Buffers::one(buf.cast_mut(), len)) };
        ep.send(Some(buffers), Some(tag), Call::inject(dest_addr).with_data(data))
    }
}
