//! Deferred work queues (`fi_trigger(3)`): `FI_QUEUE_WORK`, `FI_CANCEL_WORK`, `FI_FLUSH_WORK`.
//!
//! The provider reads a request with its lists when it queues it; the caller may reuse its structures.

use crate::domain::DomainFid;
use crate::ep::deferred_post;
use crate::{errno, object};
use erd_core::counter::Counter;
use erd_core::domain::Domain;
use erd_core::endpoint::Later;
use erd_core::trigger::{Action, Trigger, Which};
use erd_ffi::fi::{
    FI_CANCEL_WORK, FI_EINVAL, FI_FLUSH_WORK, FI_OP_CNTR_ADD, FI_OP_CNTR_SET, fi_deferred_work,
};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// One of the three commands.
///
/// # Safety
/// `arg` is what `fi_trigger(3)` says; NULL only for `FI_FLUSH_WORK`.
pub unsafe fn control(domain: &Arc<DomainFid>, command: c_int, arg: *mut c_void) -> c_int {
    let done = match command {
        FI_CANCEL_WORK => domain.work.cancel(Which::Work(arg as usize)).map_err(errno::of),
        // SAFETY: the caller's promise.
        FI_FLUSH_WORK => unsafe { flush(domain, arg) },
        // SAFETY: the caller's promise.
        _ => unsafe { queue(&domain.domain, arg.cast()) },
    };
    match done {
        Ok(()) => 0,
        Err(errno) => -errno,
    }
}

/// Drops all waiting work, or the work that waits for one counter.
///
/// # Safety
/// `cntr` is NULL or an open counter.
unsafe fn flush(domain: &Domain, cntr: *mut c_void) -> Result<(), c_int> {
    if cntr.is_null() {
        return domain.work.cancel(Which::All).map_err(errno::of);
    }
    // SAFETY: the caller's promise.
    let cntr = unsafe { object::from_fid::<Counter>(cntr.cast()) }.ok_or(FI_EINVAL)?;
    cntr.waiting().clear();
    domain.work.cancel_due(Which::Counter(cntr.waiting().number()));
    Ok(())
}

/// # Safety
/// `work` is as `fi_trigger(3)` says.
unsafe fn queue(domain: &Arc<Domain>, work: *mut fi_deferred_work) -> Result<(), c_int> {
    // SAFETY: the caller's structure, whose counters are NULL or open.
    let (asked, trigger, done) = unsafe {
        let asked = &*work;
        let trigger = object::from_fid::<Counter>(asked.triggering_cntr.cast());
        (asked, trigger, object::from_fid::<Counter>(asked.completion_cntr.cast()))
    };
    let Some(trigger) = trigger else {
        tracing::info!("FI_QUEUE_WORK: triggering_cntr must be a counter");
        return Err(FI_EINVAL);
    };
    let action = match asked.op_type {
        FI_OP_CNTR_SET | FI_OP_CNTR_ADD => {
            // SAFETY: the kind says what the union holds.
            let (cntr, value) = unsafe {
                let op = &*asked.op.cntr;
                (object::from_fid::<Counter>(op.cntr.cast()), op.value)
            };
            let (Some(cntr), None) = (cntr, done) else {
                tracing::info!("FI_QUEUE_WORK: a counter's operation completes nowhere else");
                return Err(FI_EINVAL);
            };
            domain.watch_region(&cntr.watch);
            let cntr: Arc<dyn Trigger> = Arc::clone(cntr) as _;
            match asked.op_type {
                FI_OP_CNTR_SET => Action::Set(cntr, value),
                _ => Action::Add(cntr, value),
            }
        }
        _ => {
            // SAFETY: as above.
            let (endpoint, post) = unsafe { deferred_post(asked) }?;
            if !Arc::ptr_eq(&endpoint.domain, domain) {
                tracing::info!("FI_QUEUE_WORK: the endpoint is another domain's");
                return Err(FI_EINVAL);
            }
            done.into_iter().for_each(|cntr| domain.watch_region(&cntr.watch));
            let later =
                Later::new(endpoint, post, Some(done.map(Arc::clone))).map_err(errno::of)?;
            Action::Post(Box::new(later))
        }
    };
    trigger.defer(domain, asked.threshold, action, work as usize).map_err(errno::of)
}
