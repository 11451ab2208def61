//! An owner's receive context: opening it, and the owner's calls on messages that it has queued.

use super::owner::SrxOwner;
use crate::domain::DomainFid;
use crate::{errno, object};
use erd_core::endpoint::{discard_queued, start_queued};
use erd_core::flags::Flags;
use erd_core::foreign::Slip;
use erd_core::shared_receive::SharedReceives;
use erd_ffi::fi::{
    FI_EINVAL, FI_PEER, NOSYS_ATOMIC, NOSYS_CM, NOSYS_COLLECTIVE, NOSYS_EP, NOSYS_FID, NOSYS_MSG,
    NOSYS_RMA, NOSYS_SRX_PEER, NOSYS_TAGGED, fi_ops, fi_ops_srx_peer, fi_peer_rx_entry, fi_rx_attr,
    fid_ep,
};
use erd_ffi::guard::guarded;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID_OPS: fi_ops = fi_ops { close: object::close::<SharedReceives>, ..NOSYS_FID };

static PEER_OPS: fi_ops_srx_peer = fi_ops_srx_peer {
    start_msg: start,
    start_tag: start,
    discard_msg: discard,
    discard_tag: discard,
    ..NOSYS_SRX_PEER
};

/// `fi_srx_context` with `FI_PEER`: `context` is a `struct fi_peer_srx_context`.
///
/// # Safety
/// `srx` is writable, `context` NULL or as said.
pub(crate) unsafe fn open(
    domain: &Arc<DomainFid>,
    attr: &fi_rx_attr,
    srx: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    if !domain.takes_peers("fi_srx_context") {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's promise.
    let Some(owner) = (unsafe { SrxOwner::read(context) }) else {
        tracing::info!(
            "fi_srx_context: with FI_PEER the context is a struct fi_peer_srx_context, whose srx \
             has all of owner_ops"
        );
        return -FI_EINVAL;
    };
    let rx_flags = Flags::from_bits_retain(attr.op_flags & !FI_PEER);
    let inner = SharedReceives::new(domain, (0, rx_flags, false), Some(Arc::new(owner)));
    let abi = fid_ep {
        fid: object::base::<SharedReceives>(std::ptr::null_mut(), &FID_OPS),
        ops: &NOSYS_EP,
        cm: &NOSYS_CM,
        msg: &NOSYS_MSG,
        rma: &NOSYS_RMA,
        tagged: &NOSYS_TAGGED,
        atomic: &NOSYS_ATOMIC,
        collective: &NOSYS_COLLECTIVE,
    };
    owner.set_peer_ops(&PEER_OPS);
    // SAFETY: the caller gave a place for the new object.
    unsafe { *srx = object::publish(abi, inner) };
    0
}

guarded! {
    /// Starts a queued message, for which there is a receive now.
    unsafe extern "C" fn start(entry: *mut fi_peer_rx_entry) -> c_int {
        if entry.is_null() {
            tracing::info!("start_msg, start_tag: no entry");
            return -FI_EINVAL;
        }
        // SAFETY: an entry that was queued, which the owner lends us again.
        let key = unsafe { (*entry).peer_context } as u64;
        errno::status(start_queued(key, Slip(entry.cast())))
    }

    /// Discards a queued message. Its entry is the owner's.
    unsafe extern "C" fn discard(entry: *mut fi_peer_rx_entry) -> c_int {
        if entry.is_null() {
            tracing::info!("discard_msg, discard_tag: no entry");
            return -FI_EINVAL;
        }
        // SAFETY: an entry that was queued.
        discard_queued(unsafe { (*entry).peer_context } as u64);
        0
    }
}
