//! Queues whose entries go to another provider's queue ([`crate::peer`]).

use super::format::Format;
use super::{CqFid, calls};
use crate::domain::DomainFid;
use crate::object;
use crate::peer::owner::CqOwner;
use erd_core::completion::CompletionQueue;
use erd_core::watch::{WaitKind, Watch};
use erd_ffi::fi::{FI_EINVAL, FI_EOTHER, NOSYS_CQ, NOSYS_FID, fi_ops, fi_ops_cq, fid_cq};
use erd_ffi::guard::guarded;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID_OPS: fi_ops = fi_ops { close: object::close::<CqFid>, ..NOSYS_FID };

/// Applications read the owner's queue, not this one.
static CQ_OPS: fi_ops_cq = fi_ops_cq { read: peer_read, strerror: calls::cq_strerror, ..NOSYS_CQ };

/// `fi_cq_open` with `FI_PEER`: `context` is a `struct fi_peer_cq_context`.
///
/// # Safety
/// `cq` is writable, `context` NULL or as said.
pub(super) unsafe fn open(
    domain: &Arc<DomainFid>,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    if !domain.takes_peers("fi_cq_open") {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's promise.
    let Some(owner) = (unsafe { CqOwner::read(context) }) else {
        tracing::info!(
            "fi_cq_open: with FI_PEER the context is a struct fi_peer_cq_context, whose cq has \
             owner_ops with write and writeerr"
        );
        return -FI_EINVAL;
    };
    let watch = Watch::new(WaitKind::Never, 0, &domain.held);
    let inner = Arc::new(CqFid {
        cq: CompletionQueue::new(domain, watch, Some(Box::new(owner))),
        format: Format::Tagged,
        api_version: domain.api_version(),
        threshold: false,
        shown: super::shown::Shown::new(),
    });
    let fid = object::base::<CqFid>(std::ptr::null_mut(), &FID_OPS);
    // SAFETY: the caller gave a place for the new object.
    unsafe { *cq = object::publish(fid_cq { fid, ops: &CQ_OPS }, inner) };
    0
}

guarded! {
    /// The owner lets us progress.
    unsafe extern "C" fn peer_read(cq: *mut fid_cq, _buf: *mut c_void, count: usize) -> isize {
        if count > 0 {
            tracing::info!(count, "fi_cq_read: the entries of this CQ are in its owner's");
            return -(FI_EINVAL as isize);
        }
        // SAFETY: the owner calls with our open CQ.
        let cq = unsafe { object::inner::<CqFid>(cq) };
        cq.serve();
        if cq.watch.has_failed() { -(FI_EOTHER as isize) } else { 0 }
    }
}
