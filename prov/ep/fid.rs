//! The endpoint's object for C, of which one endpoint can have several (`fi_alias(3)`): each has
//! default flags of its own.

use crate::object::{self, Class};
use erd_core::endpoint::Endpoint;
use erd_core::endpoint::Role;
use erd_core::flags::Flags;
use erd_core::uses::Use;
use erd_ffi::fi::{
    FI_CLASS_EP, FI_CLASS_RX_CTX, FI_CLASS_TX_CTX, FI_EBADFLAGS, FI_EINVAL, FI_RECV, FI_SEND,
    fi_alias, fi_ops, fid, fid_ep,
};
use erd_ffi::guard::guarded;
use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `fid_ep`, with the state of one object rather than of its endpoint.
#[repr(C)]
pub struct EpFid {
    ep: fid_ep,
    own: Own,
}

/// See [`EpFid`].
pub(super) struct Own {
    /// Default flags of sends and receives.
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    /// The transmit context that it is, or 0.
    pub ctx: u8,
    /// The endpoint stays open as long as an alias of it is.
    _alias_of: Option<Use>,
}

impl EpFid {
    /// The object of `ep`, with these default flags of sends and of receives.
    pub(super) fn new(
        ep: fid_ep,
        (tx_flags, rx_flags): (u64, u64),
        alias_of: Option<Use>,
    ) -> EpFid {
        let (tx_flags, rx_flags) = (AtomicU64::new(tx_flags), AtomicU64::new(rx_flags));
        EpFid { ep, own: Own { tx_flags, rx_flags, ctx: 0, _alias_of: alias_of } }
    }

    fn with_ctx(mut self, ctx: u8) -> EpFid {
        self.own.ctx = ctx;
        self
    }
}

/// The endpoint behind a call, with the object that the call was made on.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub ep: &'a Arc<Endpoint>,
    pub own: &'a Own,
}

impl Deref for Caller<'_> {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        self.ep
    }
}

/// The endpoint behind a call.
///
/// # Safety
/// `ep` is an open endpoint of this provider, or an alias of one.
pub(super) unsafe fn state<'a>(ep: *mut fid_ep) -> Caller<'a> {
    let object = ep.cast::<EpFid>();
    // SAFETY: the caller's promise: endpoints are published with this structure. The reference
    // leaves out C's part.
    unsafe { Caller { ep: object::inner::<Endpoint>(object), own: &(*object).own } }
}

/// [`state`] of a pointer that may be another object.
///
/// # Safety
/// As [`object::from_fid`].
pub(super) unsafe fn state_of<'a>(any: *mut fid) -> Option<Caller<'a>> {
    // SAFETY: NULL or an open object.
    let class = unsafe { any.as_ref() }?.fclass;
    // SAFETY: it is an endpoint, or a context of one, which have one structure.
    matches!(class, FI_CLASS_EP | FI_CLASS_TX_CTX | FI_CLASS_RX_CTX)
        .then(|| unsafe { state(any.cast()) })
}

impl Caller<'_> {
    /// Default flags of sends.
    pub(super) fn tx_flags(&self) -> Flags {
        Flags::from_bits_retain(self.own.tx_flags.load(Ordering::Relaxed))
    }

    /// Default flags of receives.
    pub(super) fn rx_flags(&self) -> Flags {
        Flags::from_bits_retain(self.own.rx_flags.load(Ordering::Relaxed))
    }

    /// `FI_GETOPSFLAG` and `FI_SETOPSFLAG`: the flags select the direction.
    pub(super) fn ops_flag(&self, flags: &mut u64, set: bool) -> Result<(), c_int> {
        let direction = *flags & (FI_SEND | FI_RECV);
        let place = match direction {
            FI_SEND => &self.own.tx_flags,
            FI_RECV => &self.own.rx_flags,
            _ => return Err(FI_EINVAL),
        };
        if set {
            place.store(*flags & !direction, Ordering::Relaxed);
        } else {
            *flags = place.load(Ordering::Relaxed);
        }
        Ok(())
    }
}

/// `FI_ALIAS`: another object of the endpoint, with other flags for one direction.
///
/// # Safety
/// `ep` is an open endpoint of this provider, `alias` as `fi_alias(3)` says.
pub(super) unsafe fn alias(ep: *mut fid, alias: *mut fi_alias) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(caller), alias) = (unsafe { (state_of(ep), &*alias) }) else {
        return -FI_EINVAL;
    };
    let direction = alias.flags & (FI_SEND | FI_RECV);
    let flags = alias.flags & !direction;
    let (tx_flags, rx_flags) = match direction {
        FI_SEND => (flags, caller.rx_flags().bits()),
        FI_RECV => (caller.tx_flags().bits(), flags),
        _ => {
            tracing::info!(alias.flags, "fi_ep_alias: flags are for FI_TRANSMIT or for FI_RECV");
            return -FI_EBADFLAGS;
        }
    };
    if alias.fid.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: C's part of an open endpoint, which changes only while it is opened.
    let copy = unsafe { std::ptr::read(ep.cast::<fid_ep>()) };
    let copy = fid_ep { fid: fid { ops: &ALIAS_OPS, ..copy.fid }, ..copy };
    let object = EpFid::new(copy, (tx_flags, rx_flags), Some(Class::users(&**caller.ep).add()));
    let object = object.with_ctx(caller.own.ctx);
    // SAFETY: the caller gave a place for the new object.
    unsafe { *alias.fid = object::publish(object, Arc::clone(caller.ep)).cast() };
    0
}

/// A context of a scalable endpoint, which `sep` keeps open, with default flags of its own.
pub(crate) fn context_object(
    role: Role,
    flags: (u64, u64),
    sep: Use,
    context: *mut c_void,
) -> EpFid {
    let (fclass, ctx) = match role {
        Role::Tx(nth) => (FI_CLASS_TX_CTX, nth),
        Role::Rx => (FI_CLASS_RX_CTX, 0),
    };
    let fid = fid { fclass, ..object::base::<Endpoint>(context, &CONTEXT_OPS) };
    EpFid::new(super::calls::tables(fid), flags, Some(sep)).with_ctx(ctx)
}

static ALIAS_OPS: fi_ops = fi_ops { close: object::release::<Endpoint>, ..super::calls::FID_OPS };

static CONTEXT_OPS: fi_ops = fi_ops { close: close_context, ..super::calls::FID_OPS };

guarded! {
    unsafe extern "C" fn close_context(any: *mut fid) -> c_int {
        // SAFETY: libfabric calls with our open context.
        let Some(caller) = (unsafe { state_of(any) }) else { return -FI_EINVAL };
        // SAFETY: as above.
        let role = match unsafe { (*any).fclass } {
            FI_CLASS_TX_CTX => Role::Tx(caller.own.ctx),
            _ => Role::Rx,
        };
        // In a forked child the endpoint's bindings are the parent's, including fds.
        if caller.ep.is_own() {
            // Completions that wait for the next call reach the queue.
            caller.ep.step();
            caller.ep.detach(role);
        }
        // SAFETY: as above.
        unsafe { object::release::<Endpoint>(any) }
    }
}
