//! `fid_cntr`: completion counters (`fi_cntr(3)`).

use crate::domain::DomainFid;
use crate::errno;
use crate::object::{self, Class};
use crate::peer::owner::CntrOwner;
use crate::wait_obj;
use erd_core::counter::{Counter, Waited};
use erd_core::foreign::CounterOwner;
use erd_core::trigger::Trigger;
use erd_core::uses::Users;
use erd_ffi::fi::{
    FI_CLASS_CNTR, FI_CNTR_EVENTS_BYTES, FI_CNTR_EVENTS_COMP, FI_EAGAIN, FI_EAVAIL, FI_EINVAL,
    FI_EOTHER, FI_ETIMEDOUT, FI_PEER, NOSYS_CNTR, NOSYS_FID, compat, fi_cntr_attr, fi_ops,
    fi_ops_cntr, fid, fid_cntr,
};
use erd_ffi::guard::guarded;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

// SAFETY: `fid_cntr` begins with its `fid`, and no other state has this class.
unsafe impl Class for Counter {
    type Abi = fid_cntr;
    const FCLASS: usize = FI_CLASS_CNTR;

    fn users(&self) -> &Users {
        Counter::users(self)
    }

    fn closing(self: &Arc<Self>) -> Result<(), c_int> {
        self.close();
        Ok(())
    }
}

static FID_OPS: fi_ops =
    fi_ops { close: object::close::<Counter>, control: cntr_control, ..NOSYS_FID };

static CNTR_OPS: fi_ops_cntr = fi_ops_cntr {
    read: cntr_read,
    readerr: cntr_readerr,
    add: cntr_add,
    set: cntr_set,
    wait: cntr_wait,
    adderr: cntr_adderr,
    seterr: cntr_seterr,
    ..NOSYS_CNTR
};

/// Applications read the owner's counter, not this one.
static PEER_OPS: fi_ops_cntr = fi_ops_cntr { read: peer_read, ..NOSYS_CNTR };

/// The owner's counter behind one that is opened with `FI_PEER`.
///
/// # Safety
/// `context` is NULL or a `struct fi_peer_cntr_context`.
unsafe fn owner(domain: &DomainFid, bytes: bool, context: *mut c_void) -> Option<CntrOwner> {
    if !domain.takes_peers("fi_cntr_open") {
        return None;
    }
    if bytes {
        tracing::info!("fi_cntr_open: events: with FI_PEER, FI_CNTR_EVENTS_COMP alone");
        return None;
    }
    // SAFETY: the caller's promise.
    let owner = unsafe { CntrOwner::read(context) };
    if owner.is_none() {
        tracing::info!(
            "fi_cntr_open: with FI_PEER the context is a struct fi_peer_cntr_context, whose cntr \
             has owner_ops with inc and incerr"
        );
    }
    owner
}

/// `fi_cntr_open(3)`.
///
/// # Safety
/// `attr` and `cntr` are as the man page says, and `context` with `FI_PEER` as `fi_peer(3)` says.
pub unsafe fn open(
    domain: &Arc<DomainFid>,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || cntr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's attribute, read as far as its API version reaches.
    let attr = unsafe { compat::read(attr, domain.api_version()) };
    let bytes = match attr.events {
        FI_CNTR_EVENTS_COMP => false,
        FI_CNTR_EVENTS_BYTES => true,
        events => {
            tracing::info!(events, "fi_cntr_open: unknown kind of events");
            return -FI_EINVAL;
        }
    };
    if attr.flags & !FI_PEER != 0 {
        tracing::info!(attr.flags, "fi_cntr_open: flags may be FI_PEER");
        return -FI_EINVAL;
    }
    let owner = if attr.flags == FI_PEER {
        // SAFETY: the caller's promise.
        match unsafe { owner(domain, bytes, context) } {
            Some(owner) => Some(Box::new(owner) as Box<dyn CounterOwner>),
            None => return -FI_EINVAL,
        }
    } else {
        None
    };
    let (context, ops) =
        if owner.is_some() { (std::ptr::null_mut(), &PEER_OPS) } else { (context, &CNTR_OPS) };
    // SAFETY: the caller's attribute, whose wait set is open where one is meant.
    let watch = match unsafe { wait_obj::watch(attr.wait_obj, attr.wait_set, domain) } {
        Ok(watch) => watch,
        Err(errno) => return -errno,
    };
    let inner = match Counter::new(&domain.domain, bytes, watch, owner) {
        Ok(inner) => inner,
        Err(error) => return -errno::of(error),
    };
    let abi = fid_cntr { fid: object::base::<Counter>(context, &FID_OPS), ops };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *cntr = object::publish(abi, inner) };
    0
}

/// `fi_trywait(3)` for a counter: 0 if it is safe to sleep on its fd until it changes.
///
/// # Safety
/// `any` is an open counter of this provider.
pub unsafe fn trywait(any: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    let Some(cntr) = (unsafe { object::from_fid::<Counter>(any) }) else {
        return -FI_EINVAL;
    };
    if !cntr.watch.can_sleep() {
        return -FI_EINVAL;
    }
    if cntr.may_sleep() { 0 } else { -FI_EAGAIN }
}

guarded! {
    /// The owner lets us progress.
    unsafe extern "C" fn peer_read(cntr: *mut fid_cntr) -> u64 {
        // SAFETY: the owner calls with our open counter.
        unsafe { object::inner::<Counter>(cntr) }.serve();
        0
    }

    unsafe extern "C" fn cntr_read(cntr: *mut fid_cntr) -> u64 {
        // SAFETY: libfabric calls with our open counter.
        unsafe { object::inner::<Counter>(cntr) }.read_value()
    }

    unsafe extern "C" fn cntr_readerr(cntr: *mut fid_cntr) -> u64 {
        // SAFETY: libfabric calls with our open counter.
        unsafe { object::inner::<Counter>(cntr) }.read_errors()
    }

    unsafe extern "C" fn cntr_add(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<Counter>(cntr) };
        cntr.add(value);
        cntr.act();
        0
    }

    unsafe extern "C" fn cntr_adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<Counter>(cntr) };
        cntr.add_errors(value);
        cntr.act();
        0
    }

    unsafe extern "C" fn cntr_set(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<Counter>(cntr) };
        cntr.set(value);
        cntr.act();
        0
    }

    unsafe extern "C" fn cntr_seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<Counter>(cntr) };
        cntr.set_errors(value);
        cntr.act();
        0
    }

    unsafe extern "C" fn cntr_wait(
        cntr: *mut fid_cntr,
        threshold: u64,
        timeout_ms: c_int,
    ) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<Counter>(cntr) };
        match cntr.wait(threshold, timeout_ms) {
            Waited::Reached => 0,
            Waited::Errors => -FI_EAVAIL,
            Waited::Failed => -FI_EOTHER,
            Waited::TimedOut => -FI_ETIMEDOUT,
        }
    }

    unsafe extern "C" fn cntr_control(any: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let Some(cntr) = (unsafe { object::from_fid::<Counter>(any) }) else {
            return -FI_EINVAL;
        };
        // SAFETY: the argument is what fi_cntr(3) says for the command.
        unsafe { wait_obj::control(&cntr.watch, command, arg) }
    }
}
