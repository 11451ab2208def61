//! Queues whose entries go to another provider's ([`crate::peer`]).

use super::queue::Format;
use super::{CqInner, calls};
use crate::domain::DomainInner;
use crate::object;
use crate::peer::owner::CqOwner;
use crate::watch::Watch;
use erd_ffi::fi::{
    FI_EINVAL, FI_EOTHER, FI_WAIT_NONE, NOSYS_CQ, NOSYS_FID, fi_ops, fi_ops_cq, fid_cq,
};
use erd_ffi::guard::guarded;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

static FID_OPS: fi_ops = fi_ops { close: object::close::<CqInner>, ..NOSYS_FID };

/// The owner's queue is read, not this one.
static CQ_OPS: fi_ops_cq = fi_ops_cq { read: peer_read, strerror: calls::cq_strerror, ..NOSYS_CQ };

/// `fi_cq_open` with `FI_PEER`: `context` is a `struct fi_peer_cq_context`.
///
/// # Safety
/// `cq` is writable, `context` NULL or as said.
pub(super) unsafe fn open(
    domain: &Arc<DomainInner>,
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
    let Ok(watch) = Watch::new(FI_WAIT_NONE, 0) else { return -FI_EINVAL };
    let inner = Arc::new(CqInner::with(domain, (Format::Tagged, false), watch, Some(owner)));
    let fid = object::base::<CqInner>(std::ptr::null_mut(), &FID_OPS);
    // SAFETY: the caller gave a place for the new object.
    unsafe { *cq = object::publish(fid_cq { fid, ops: &CQ_OPS }, inner) };
    0
}

impl CqInner {
    /// Whether entries go to another provider's queue.
    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Gives the owner, if there is one, the entries that are there. It calls, and no lock of an
    /// endpoint is held.
    pub(crate) fn hand_over(&self) {
        let Some(owner) = &self.owner else { return };
        // Who is at it already takes all.
        let Some(_handing) = self.handing.try_lock() else { return };
        let mut queue = self.queue.lock();
        while let Some(entry) = queue.lend() {
            self.note(&queue);
            drop(queue);
            let written = owner.write(&entry);
            queue = self.queue.lock();
            if !written {
                queue.put_back(entry);
                self.note(&queue);
                return;
            }
            queue.written(&entry);
        }
    }
}

guarded! {
    /// The owner lets us progress.
    unsafe extern "C" fn peer_read(cq: *mut fid_cq, _buf: *mut c_void, count: usize) -> isize {
        if count > 0 {
            tracing::info!(count, "fi_cq_read: the entries of this CQ are in its owner's");
            return -(FI_EINVAL as isize);
        }
        // SAFETY: the owner calls with our open CQ.
        let cq = unsafe { object::inner::<CqInner>(cq) };
        cq.watch.progress();
        cq.watch.serve_owners();
        cq.hand_over();
        if cq.watch.has_failed() { -(FI_EOTHER as isize) } else { 0 }
    }
}
