//! Shared contexts (`fi_stx_context`, `fi_srx_context` of `fi_endpoint(3)`).

use crate::domain::DomainFid;
use crate::errno;
use crate::object::{self, Class};
use erd_core::endpoint::{Buffers, RecvRequest};
use erd_core::flags::Flags;
use erd_core::settings::RX_SIZE_MAX;
use erd_core::shared_receive::SharedReceives;
use erd_core::uses::{Use, Users};
use erd_ffi::fi::{
    FI_CLASS_SRX_CTX, FI_CLASS_STX_CTX, FI_DIRECTED_RECV, FI_EINVAL, FI_ENABLE, FI_ENOENT,
    FI_ENOPROTOOPT, FI_ENOSYS, FI_ETOOSMALL, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, FI_PEER,
    NOSYS_ATOMIC, NOSYS_CM, NOSYS_COLLECTIVE, NOSYS_EP, NOSYS_FID, NOSYS_MSG, NOSYS_RMA,
    NOSYS_TAGGED, fi_addr_t, fi_msg, fi_msg_tagged, fi_ops, fi_ops_ep, fi_ops_msg, fi_ops_tagged,
    fi_rx_attr, fi_tx_attr, fid, fid_ep, fid_stx,
};
use erd_ffi::guard::guarded;
use erd_rd::matching::TagMask;
use libc::iovec;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Buffers of many messages take only untagged ones, even as the default.
const NOT_TAGGED: Flags = Flags::MULTI_RECV;

/// A shared transmit context. It is empty, since endpoints have their own queues.
pub struct StxInner {
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_stx` begins with its `fid`, and no other state has this class.
unsafe impl Class for StxInner {
    type Abi = fid_stx;
    const FCLASS: usize = FI_CLASS_STX_CTX;

    fn users(&self) -> &Users {
        &self.users
    }
}

// SAFETY: `fid_ep` begins with its `fid`, and no other state has this class.
unsafe impl Class for SharedReceives {
    type Abi = fid_ep;
    const FCLASS: usize = FI_CLASS_SRX_CTX;

    fn users(&self) -> &Users {
        SharedReceives::users(self)
    }
}

static STX_FID_OPS: fi_ops = fi_ops { close: object::close::<StxInner>, ..NOSYS_FID };

static SRX_FID_OPS: fi_ops =
    fi_ops { close: object::close::<SharedReceives>, control: srx_control, ..NOSYS_FID };

static SRX_EP_OPS: fi_ops_ep =
    fi_ops_ep { cancel: srx_cancel, getopt: srx_getopt, setopt: srx_setopt, ..NOSYS_EP };

static SRX_MSG_OPS: fi_ops_msg = fi_ops_msg { recv, recvv, recvmsg, ..NOSYS_MSG };

static SRX_TAGGED_OPS: fi_ops_tagged =
    fi_ops_tagged { recv: trecv, recvv: trecvv, recvmsg: trecvmsg, ..NOSYS_TAGGED };

/// `fi_stx_context`.
///
/// # Safety
/// `stx` is writable or NULL.
pub unsafe fn open_transmit(
    domain: &Arc<DomainFid>,
    _attr: *mut fi_tx_attr,
    stx: *mut *mut fid_stx,
    context: *mut c_void,
) -> c_int {
    if stx.is_null() {
        return -FI_EINVAL;
    }
    let inner = Arc::new(StxInner { users: Users::default(), _domain_use: domain.hold() });
    let fid = object::base::<StxInner>(context, &STX_FID_OPS);
    // SAFETY: the caller gave a place for the new object.
    unsafe { *stx = object::publish(fid_stx { fid, ops: &NOSYS_EP }, inner) };
    0
}

/// `fi_srx_context`.
///
/// # Safety
/// `attr` is valid or NULL, `srx` writable or NULL, and `context` with `FI_PEER` as `fi_peer(3)` says.
pub unsafe fn open_receive(
    domain: &Arc<DomainFid>,
    attr: *mut fi_rx_attr,
    srx: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    if srx.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's attributes, which never grew.
    let asked = unsafe { attr.as_ref() };
    if let Some(attr) = asked.filter(|attr| attr.op_flags & FI_PEER != 0) {
        // SAFETY: the caller's promise.
        return unsafe { crate::peer::open_srx(domain, attr, srx, context) };
    }
    let size = asked.map_or(0, |attr| attr.size.min(RX_SIZE_MAX));
    let size = if size == 0 { domain.settings.rx_size } else { size };
    let directed = asked.is_some_and(|attr| attr.caps & FI_DIRECTED_RECV != 0);
    let rx_flags = asked.map_or(0, |attr| attr.op_flags);
    let terms = (size, Flags::from_bits_retain(rx_flags), directed);
    let inner = SharedReceives::new(domain, terms, None);
    let abi = fid_ep {
        fid: object::base::<SharedReceives>(context, &SRX_FID_OPS),
        ops: &SRX_EP_OPS,
        cm: &NOSYS_CM,
        msg: &SRX_MSG_OPS,
        rma: &NOSYS_RMA,
        tagged: &SRX_TAGGED_OPS,
        atomic: &NOSYS_ATOMIC,
        collective: &NOSYS_COLLECTIVE,
    };
    // SAFETY: as above.
    unsafe { *srx = object::publish(abi, inner) };
    0
}

/// Posts a receive; without buffers its list was not valid.
///
/// # Safety
/// `srx` is open.
unsafe fn post(srx: *mut fid_ep, buffers: Option<Buffers>, request: RecvRequest) -> isize {
    // SAFETY: the caller's promise.
    let srx = unsafe { object::inner::<SharedReceives>(srx) };
    let Some(buffers) = buffers.filter(Buffers::are_somewhere) else {
        tracing::info!("a receive's list or a buffer in it is not valid");
        return -(FI_EINVAL as isize);
    };
    errno::answer(srx.post(&RecvRequest { buffers, ..request }))
}

/// The one option that a context has.
fn is_min_multi_recv(level: c_int, name: c_int) -> bool {
    (level, name) == (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV)
}

/// Default flags of receives.
///
/// # Safety
/// As [`post`].
unsafe fn flags(srx: *mut fid_ep) -> Flags {
    // SAFETY: the caller's promise.
    unsafe { object::inner::<SharedReceives>(srx) }.rx_flags()
}

guarded! {
    unsafe extern "C" fn srx_control(srx: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open context. It needs no enabling.
        match (unsafe { object::from_fid::<SharedReceives>(srx) }, command) {
            (Some(_), FI_ENABLE) => 0,
            (Some(_), _) => -FI_ENOSYS,
            (None, _) => -FI_EINVAL,
        }
    }

    unsafe extern "C" fn srx_getopt(
        srx: *mut fid,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        len: *mut usize,
    ) -> c_int {
        // SAFETY: libfabric calls with our open context, and a place of `*len` bytes.
        unsafe {
            match object::from_fid::<SharedReceives>(srx) {
                None => -FI_EINVAL,
                Some(_) if !is_min_multi_recv(level, name) || value.is_null() || len.is_null() => {
                    -FI_ENOPROTOOPT
                }
                Some(_) if *len < size_of::<usize>() => -FI_ETOOSMALL,
                Some(srx) => {
                    let bytes = srx.min_multi_recv_bytes();
                    value.cast::<usize>().write_unaligned(bytes);
                    *len = size_of::<usize>();
                    0
                }
            }
        }
    }

    unsafe extern "C" fn srx_setopt(
        srx: *mut fid,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: usize,
    ) -> c_int {
        // SAFETY: libfabric calls with our open context, and a value of `len` bytes.
        unsafe {
            match object::from_fid::<SharedReceives>(srx) {
                None => -FI_EINVAL,
                Some(_) if !is_min_multi_recv(level, name) || value.is_null() => -FI_ENOPROTOOPT,
                Some(_) if len < size_of::<usize>() => -FI_EINVAL,
                Some(srx) => {
                    let bytes = value.cast::<usize>().read_unaligned();
                    srx.set_min_multi_recv_bytes(bytes);
                    0
                }
            }
        }
    }

    unsafe extern "C" fn srx_cancel(srx: *mut fid, context: *mut c_void) -> isize {
        // SAFETY: libfabric calls with our open context.
        let Some(srx) = (unsafe { object::from_fid::<SharedReceives>(srx) }) else {
            return -(FI_EINVAL as isize);
        };
        if srx.cancel(context) { 0 } else { -(FI_ENOENT as isize) }
    }

    unsafe extern "C" fn recv(
        srx: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        _desc: *mut c_void,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: libfabric calls with our open context, and a buffer lent until completion.
        unsafe {
            let request = RecvRequest::new(src_addr, context, flags(srx));
            post(srx, Some(Buffers::one(buf, len)), request)
        }
    }

    unsafe extern "C" fn recvv(
        srx: *mut fid_ep,
        iov: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above, for each of `count` pieces.
        unsafe {
            let request = RecvRequest::new(src_addr, context, flags(srx));
            post(srx, Buffers::many(iov, count), request)
        }
    }

    unsafe extern "C" fn recvmsg(srx: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
        if msg.is_null() {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: as above; the message is the caller's.
        unsafe {
            let msg = &*msg;
            let request = RecvRequest::new(msg.addr, msg.context, Flags::from_bits_retain(flags));
            post(srx, Buffers::many(msg.msg_iov, msg.iov_count), request)
        }
    }

    unsafe extern "C" fn trecv(
        srx: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        _desc: *mut c_void,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above.
        unsafe {
            let request = RecvRequest::new(src_addr, context, flags(srx).difference(NOT_TAGGED));
            let tag = Some(TagMask { tag, ignore });
            post(srx, Some(Buffers::one(buf, len)), RecvRequest { tag, ..request })
        }
    }

    unsafe extern "C" fn trecvv(
        srx: *mut fid_ep,
        iov: *const iovec,
        _desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: as above, for each of `count` pieces.
        unsafe {
            let request = RecvRequest::new(src_addr, context, flags(srx).difference(NOT_TAGGED));
            let tag = Some(TagMask { tag, ignore });
            post(srx, Buffers::many(iov, count), RecvRequest { tag, ..request })
        }
    }

    unsafe extern "C" fn trecvmsg(
        srx: *mut fid_ep,
        msg: *const fi_msg_tagged,
        flags: u64,
    ) -> isize {
        if msg.is_null() || flags & NOT_TAGGED.bits() != 0 {
            return -(FI_EINVAL as isize);
        }
        // SAFETY: as above; the message is the caller's.
        unsafe {
            let msg = &*msg;
            let request = RecvRequest::new(msg.addr, msg.context, Flags::from_bits_retain(flags));
            let tag = Some(TagMask { tag: msg.tag, ignore: msg.ignore });
            let buffers = Buffers::many(msg.msg_iov, msg.iov_count);
            post(srx, buffers, RecvRequest { tag, ..request })
        }
    }
}
