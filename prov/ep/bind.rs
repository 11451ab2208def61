//! What an endpoint is bound to: an AV, queues, counters, an EQ (`fi_ep_bind`).

use super::complete::{BoundCntr, BoundCq, Direction};
use super::driver::Driver;
use super::fid::Role;
use super::host::tx_of;
use super::peer_rx::PeerRx;
use super::shared_rx::SharedRx;
use super::{EpInner, State};
use crate::av::{AvInner, Member};
use crate::cntr::CntrInner;
use crate::cq::CqInner;
use crate::eq::{BoundEq, EqInner};
use crate::object::{self, Use};
use crate::shared::{SrxInner, StxInner};
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
    /// Of the transmit contexts of a scalable endpoint after the first.
    pub more_tx: Vec<Direction>,
    pub rx: Direction,
    pub eq: Option<BoundEq>,
    /// Shared contexts.
    pub shared: Option<SharedRx>,
    /// Another provider's receive context.
    pub peer: Option<PeerRx>,
    pub stx: Option<Use>,
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
    Srx(&'a Arc<SrxInner>),
    Stx(&'a Arc<StxInner>),
}

impl EpInner {
    /// `fi_ep_bind`.
    ///
    /// # Errors
    /// A positive error number.
    ///
    /// # Safety
    /// `other` is an open object of this provider.
    pub(super) unsafe fn bind(
        self: &Arc<Self>,
        other: *mut fid,
        flags: u64,
        ctx: u8,
    ) -> Result<(), c_int> {
        // SAFETY: the caller's promise, for each class.
        let found = unsafe {
            let av = object::from_fid::<AvInner>(other).map(Bound::Av);
            let cq = object::from_fid::<CqInner>(other).map(|cq| Bound::Cq(cq, flags));
            let cntr = object::from_fid::<CntrInner>(other).map(|cntr| Bound::Cntr(cntr, flags));
            let eq = object::from_fid::<EqInner>(other).map(Bound::Eq);
            let srx = object::from_fid::<SrxInner>(other).map(Bound::Srx);
            let stx = object::from_fid::<StxInner>(other).map(Bound::Stx);
            av.or(cq).or(cntr).or(eq).or(srx).or(stx)
        };
        let Some(what) = found else {
            tracing::info!("fi_ep_bind: an AV, a CQ, a counter, an EQ or a shared context");
            return Err(FI_EINVAL);
        };
        self.attach(what, ctx)
    }

    /// Binds the endpoint; `ctx` is the transmit context that is meant. An endpoint that is enabled
    /// takes what [`attach_late`] says.
    ///
    /// # Errors
    /// A positive error number.
    pub(crate) fn attach(self: &Arc<Self>, what: Bound<'_>, ctx: u8) -> Result<(), c_int> {
        let mut state = self.lock();
        let bindings = match &mut *state {
            State::Setup(setup) => &mut setup.bindings,
            State::Enabled(driver) => {
                let watched = attach_late(driver, what, ctx)?;
                drop(state);
                if let Some(watched) = watched {
                    watched.watch().add(self);
                    self.watches.lock().push(watched);
                }
                return Ok(());
            }
            State::Closed => return Err(FI_EOPBADSTATE),
        };
        let tx = tx_of(&mut bindings.tx, &mut bindings.more_tx, ctx);
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
                bind_cq((tx, &mut bindings.rx), cq, flags)?;
                Some(Watched::Cq(Arc::clone(cq)))
            }
            Bound::Cntr(cntr, flags) => {
                bind_cntr((tx, &mut bindings.rx), cntr, flags)?;
                Some(Watched::Cntr(BoundCntr::new(cntr)))
            }
            Bound::Eq(eq) => {
                bindings.eq = Some(BoundEq::new(eq));
                None
            }
            Bound::Srx(srx) => {
                if bindings.shared.is_some() || bindings.peer.is_some() {
                    tracing::info!("fi_ep_bind: the endpoint has a shared receive context already");
                    return Err(FI_EINVAL);
                }
                if let Some(owner) = srx.owner() {
                    bindings.peer = Some(PeerRx::new(srx, owner, self));
                    let _ = self.srx_owner.set(owner);
                    return Ok(());
                }
                bindings.shared = Some(SharedRx::new(srx, self));
                srx.join(self);
                None
            }
            Bound::Stx(stx) => {
                bindings.stx = Some(stx.hold());
                None
            }
        };
        // Never both locks: readers hold theirs first.
        drop(state);
        self.watches.lock().extend(watched);
        Ok(())
    }

    /// A context of a scalable endpoint closes: what it was bound to may be closed before the
    /// endpoint.
    pub(super) fn detach(&self, role: Role) {
        let mut state = self.lock();
        let (tx, more_tx, rx) = match &mut *state {
            State::Setup(setup) => {
                let bound = &mut setup.bindings;
                (&mut bound.tx, &mut bound.more_tx, &mut bound.rx)
            }
            State::Enabled(driver) => {
                let host = &mut driver.host;
                (&mut host.tx, &mut host.more_tx, &mut host.rx)
            }
            State::Closed => return,
        };
        let left = match role {
            Role::Tx(ctx) => std::mem::take(tx_of(tx, more_tx, ctx)),
            Role::Rx(_) => std::mem::take(rx),
        };
        let stay: Vec<_> = [&*tx, &*rx].into_iter().chain(&*more_tx).flat_map(watches_of).collect();
        drop(state);
        let gone: Vec<_> = watches_of(&left).filter(|watch| !stay.contains(watch)).collect();
        self.watches.lock().retain(|watched| {
            let goes = gone.contains(&std::ptr::from_ref(watched.watch()));
            if goes {
                watched.watch().remove(self);
            }
            !goes
        });
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

/// Binds an endpoint whose engine runs already. libfabric's manual wants everything bound before;
/// its own providers take more, and Sandia OpenSHMEM relies on that. A queue or counter for what
/// has none counts what completes from now on. An AV and a context of receives decide whose
/// messages came so far, and so come too late.
fn attach_late(driver: &mut Driver, what: Bound<'_>, ctx: u8) -> Result<Option<Watched>, c_int> {
    let host = &mut driver.host;
    let both = (tx_of(&mut host.tx, &mut host.more_tx, ctx), &mut host.rx);
    match what {
        Bound::Cq(cq, flags) => {
            bind_cq(both, cq, flags)?;
            Ok(Some(Watched::Cq(Arc::clone(cq))))
        }
        Bound::Cntr(cntr, flags) => {
            bind_cntr(both, cntr, flags)?;
            Ok(Some(Watched::Cntr(BoundCntr::new(cntr))))
        }
        Bound::Eq(eq) => {
            driver._eq = Some(BoundEq::new(eq));
            Ok(None)
        }
        // All that endpoints send goes through the domain's sockets, with a shared transmit context or
        // without. A program that binds one late may close it before the endpoint, so the endpoint does not hold it.
        Bound::Stx(_) => Ok(None),
        Bound::Av(_) | Bound::Srx(_) => {
            tracing::info!(
                "fi_ep_bind: an AV or a shared receive context is bound before fi_enable; a CQ, a \
                 counter, an EQ or a shared transmit context may come later"
            );
            Err(FI_EOPBADSTATE)
        }
    }
}

/// What is watched for a direction.
fn watches_of(direction: &Direction) -> impl Iterator<Item = *const Watch> {
    let cq = direction.cq.as_ref().map(|bound| &raw const bound.cq.watch);
    let counters = [&direction.cntr, &direction.reads, &direction.writes];
    let counters = counters.map(|cntr| cntr.as_ref().map(|bound| &raw const bound.cntr.watch));
    cq.into_iter().chain(counters.into_iter().flatten())
}

/// Where sends and receives complete.
type Both<'a> = (&'a mut Direction, &'a mut Direction);

fn bind_cq((tx, rx): Both<'_>, cq: &Arc<CqInner>, flags: u64) -> Result<(), c_int> {
    if flags & !(FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
        || flags & (FI_SEND | FI_RECV) == 0
    {
        tracing::info!(flags, "fi_ep_bind: a CQ is for FI_TRANSMIT, FI_RECV or both");
        return Err(FI_EBADFLAGS);
    }
    let selective = flags & FI_SELECTIVE_COMPLETION != 0;
    let mut places = [(FI_SEND, &mut tx.cq), (FI_RECV, &mut rx.cq)];
    if places.iter().any(|(flag, place)| flags & flag != 0 && place.is_some()) {
        tracing::info!("fi_ep_bind: this direction has a CQ already");
        return Err(FI_EINVAL);
    }
    for (_, place) in places.iter_mut().filter(|(flag, _)| flags & flag != 0) {
        **place = Some(BoundCq::new(cq, selective));
    }
    Ok(())
}

fn bind_cntr((tx, rx): Both<'_>, cntr: &Arc<CntrInner>, flags: u64) -> Result<(), c_int> {
    if flags & !(FI_SEND | FI_RECV | REMOTE_FLAGS) != 0 || flags == 0 {
        tracing::info!(flags, "fi_ep_bind: a counter counts sends, receives, reads or writes");
        return Err(FI_EBADFLAGS);
    }
    let mut places = [
        (FI_SEND, &mut tx.cntr),
        (FI_READ, &mut tx.reads),
        (FI_WRITE, &mut tx.writes),
        (FI_RECV, &mut rx.cntr),
        (FI_REMOTE_READ, &mut rx.reads),
        (FI_REMOTE_WRITE, &mut rx.writes),
    ];
    if places.iter().any(|(flag, place)| flags & flag != 0 && place.is_some()) {
        tracing::info!("fi_ep_bind: this kind of operation has a counter already");
        return Err(FI_EINVAL);
    }
    for (_, place) in places.iter_mut().filter(|(flag, _)| flags & flag != 0) {
        **place = Some(BoundCntr::new(cntr));
    }
    Ok(())
}
