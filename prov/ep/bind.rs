//! Binding endpoints to other objects (`fi_ep_bind`).

use super::fid::Caller;
use crate::av::AvFid;
use crate::cq::CqFid;
use crate::eq::EqInner;
use crate::errno;
use crate::object::{self, Class};
use crate::shared::StxInner;
use erd_core::counter::Counter;
use erd_core::endpoint::Bound;
use erd_core::flags::Flags;
use erd_core::shared_receive::SharedReceives;
use erd_ffi::fi::{FI_EBADFLAGS, FI_EINVAL, FI_RECV, FI_SELECTIVE_COMPLETION, FI_SEND, fid};
use std::ffi::c_int;

impl Caller<'_> {
    /// `fi_ep_bind`.
    ///
    /// # Errors
    /// A positive error number.
    ///
    /// # Safety
    /// `other` is NULL or an open object of this provider.
    pub(super) unsafe fn bind(&self, other: *mut fid, flags: u64) -> Result<(), c_int> {
        // SAFETY: the caller's promise.
        let what = unsafe { bound(other, flags) }?;
        self.ep.attach(what, self.own.ctx).map_err(errno::of)
    }
}

/// Role of an object for an endpoint that is bound to it.
///
/// # Safety
/// As [`Caller::bind`].
unsafe fn bound<'a>(other: *mut fid, flags: u64) -> Result<Bound<'a>, c_int> {
    // SAFETY: the caller's promise, for each class.
    let (av, cq, cntr, eq, srx, stx) = unsafe {
        (
            object::from_fid::<AvFid>(other),
            object::from_fid::<CqFid>(other),
            object::from_fid::<Counter>(other),
            object::from_fid::<EqInner>(other),
            object::from_fid::<SharedReceives>(other),
            object::from_fid::<StxInner>(other),
        )
    };
    if let Some(cq) = cq {
        return of_cq(cq, flags);
    }
    let av = av.map(|av| Bound::Av(&av.av));
    let cntr = cntr.map(|cntr| Bound::Cntr(cntr, Flags::from_bits_retain(flags)));
    let eq = eq.map(|eq| Bound::Events(eq.users()));
    let shared = srx.map(Bound::Srx).or(stx.map(|stx| Bound::Stx(stx.users())));
    av.or(cntr).or(eq).or(shared).ok_or_else(|| {
        tracing::info!("fi_ep_bind: an AV, a CQ, a counter, an EQ or a shared context");
        FI_EINVAL
    })
}

fn of_cq(cq: &CqFid, flags: u64) -> Result<Bound<'_>, c_int> {
    if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
        || flags & (FI_SEND | FI_RECV) == 0
    {
        tracing::info!(flags, "fi_ep_bind: a CQ is for FI_TRANSMIT, FI_RECV or both");
        return Err(FI_EBADFLAGS);
    }
    let of = Flags::from_bits_truncate(flags & (FI_SEND | FI_RECV));
    Ok(Bound::Cq { cq: &cq.cq, of, selective: flags & FI_SELECTIVE_COMPLETION != 0 })
}
