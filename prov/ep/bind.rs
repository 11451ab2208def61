//! What an endpoint is bound to: an AV, queues, counters, an EQ (`fi_ep_bind`).

use super::complete::{BoundCntr, BoundCq, Direction};
use super::{EpInner, State};
use crate::av::{AvInner, Member};
use crate::cntr::CntrInner;
use crate::cq::CqInner;
use crate::domain::BoundEq;
use crate::eq::EqInner;
use crate::object::{self, Use};
use crate::watch::Watch;
use erd_ffi::fi::{
    FI_EBADFLAGS, FI_EINVAL, FI_EOPBADSTATE, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE,
    FI_SELECTIVE_COMPLETION, FI_SEND, FI_WRITE, fid,
};
use std::ffi::c_int;
use std::sync::{Arc, Weak};

/// Flags of a counter that count what sends and receives do not.
const REMOTE_FLAGS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// See the module's text.
#[derive(Default)]
pub(super) struct Bindings {
    pub av: Option<(Arc<AvInner>, Use)>,
    pub tx: Direction,
    pub rx: Direction,
    pub eq: Option<BoundEq>,
}

/// Something that an application reads, and so lets endpoints progress. It is open as long as the
/// endpoint is bound to it.
pub(super) enum Watched {
    Cq(Arc<CqInner>),
    Cntr(BoundCntr),
}

impl Watched {
    pub(super) fn watch(&self) -> &Watch {
        match self {
            Watched::Cq(cq) => &cq.watch,
            Watched::Cntr(bound) => &bound.cntr.watch,
        }
    }
}

/// What an endpoint can be bound to; queues and counters with what they are for.
#[derive(Clone, Copy)]
pub(crate) enum Bound<'a> {
    Av(&'a Arc<AvInner>),
    Cq(&'a Arc<CqInner>, u64),
    Cntr(&'a Arc<CntrInner>, u64),
    Eq(&'a Arc<EqInner>),
}

impl EpInner {
    /// `fi_ep_bind`.
    ///
    /// # Errors
    /// A positive error number.
    ///
    /// # Safety
    /// `other` is an open object of this provider.
    pub(super) unsafe fn bind(self: &Arc<Self>, other: *mut fid, flags: u64) -> Result<(), c_int> {
        // SAFETY: the caller's promise, for each class.
        let found = unsafe {
            let av = object::from_fid::<AvInner>(other).map(Bound::Av);
            let cq = object::from_fid::<CqInner>(other).map(|cq| Bound::Cq(cq, flags));
            let cntr = object::from_fid::<CntrInner>(other).map(|cntr| Bound::Cntr(cntr, flags));
            let eq = object::from_fid::<EqInner>(other).map(Bound::Eq);
            av.or(cq).or(cntr).or(eq)
        };
        let Some(what) = found else {
            tracing::info!("fi_ep_bind: an endpoint takes an AV, a CQ, a counter or an EQ");
            return Err(FI_EINVAL);
        };
        self.attach(what)
    }

    /// Binds the endpoint, which is not enabled yet.
    ///
    /// # Errors
    /// A positive error number.
    pub(crate) fn attach(self: &Arc<Self>, what: Bound<'_>) -> Result<(), c_int> {
        let mut state = self.lock();
        let State::Setup(setup) = &mut *state else {
            tracing::info!("fi_ep_bind: the endpoint is enabled already");
            return Err(FI_EOPBADSTATE);
        };
        let bindings = &mut setup.bindings;
        let watched = match what {
            Bound::Av(av) => {
                if bindings.av.is_some() || !Arc::ptr_eq(av.domain(), &self.domain) {
                    return Err(FI_EINVAL);
                }
                let member: Weak<dyn Member> = Arc::downgrade(self) as Weak<dyn Member>;
                bindings.av = Some((Arc::clone(av), av.attach(member)));
                None
            }
            Bound::Cq(cq, flags) => {
                bind_cq(bindings, cq, flags)?;
                Some(Watched::Cq(Arc::clone(cq)))
            }
            Bound::Cntr(cntr, flags) => {
                bind_cntr(bindings, cntr, flags)?;
                Some(Watched::Cntr(BoundCntr::new(cntr)))
            }
            Bound::Eq(eq) => {
                bindings.eq = Some(BoundEq::new(eq));
                None
            }
        };
        // Never both locks: readers hold theirs first.
        drop(state);
        self.watches.lock().extend(watched);
        Ok(())
    }

    /// From now on readers of the queues and counters let this endpoint progress.
    pub(super) fn join_watches(self: &Arc<Self>) {
        self.watches.lock().iter().for_each(|watched| watched.watch().add(self));
        self.domain.joined(self);
    }

    /// The opposite of [`EpInner::join_watches`], for good.
    pub(super) fn leave_watches(&self) {
        self.domain.left(self);
        let watches = std::mem::take(&mut *self.watches.lock());
        watches.iter().for_each(|watched| watched.watch().remove(self));
    }
}

fn bind_cq(bindings: &mut Bindings, cq: &Arc<CqInner>, flags: u64) -> Result<(), c_int> {
    if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
        || flags & (FI_SEND | FI_RECV) == 0
    {
        tracing::info!(flags, "fi_ep_bind: a CQ is for FI_TRANSMIT, FI_RECV or both");
        return Err(FI_EBADFLAGS);
    }
    let selective = flags & FI_SELECTIVE_COMPLETION != 0;
    for (flag, direction) in [(FI_SEND, &mut bindings.tx), (FI_RECV, &mut bindings.rx)] {
        if flags & flag != 0 {
            if direction.cq.is_some() {
                tracing::info!("fi_ep_bind: this direction has a CQ already");
                return Err(FI_EINVAL);
            }
            direction.cq = Some(BoundCq::new(cq, selective));
        }
    }
    Ok(())
}

fn bind_cntr(bindings: &mut Bindings, cntr: &Arc<CntrInner>, flags: u64) -> Result<(), c_int> {
    if flags & !(FI_SEND | FI_RECV | REMOTE_FLAGS) != 0 || flags == 0 {
        tracing::info!(flags, "fi_ep_bind: a counter counts sends, receives, reads or writes");
        return Err(FI_EBADFLAGS);
    }
    let (tx, rx) = (&mut bindings.tx, &mut bindings.rx);
    let places = [
        (FI_SEND, &mut tx.cntr),
        (FI_READ, &mut tx.reads),
        (FI_WRITE, &mut tx.writes),
        (FI_RECV, &mut rx.cntr),
        (FI_REMOTE_READ, &mut rx.reads),
        (FI_REMOTE_WRITE, &mut rx.writes),
    ];
    for (flag, place) in places {
        if flags & flag != 0 {
            if place.is_some() {
                tracing::info!("fi_ep_bind: this kind of operation has a counter already");
                return Err(FI_EINVAL);
            }
            *place = Some(BoundCntr::new(cntr));
        }
    }
    Ok(())
}
