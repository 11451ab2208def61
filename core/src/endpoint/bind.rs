//! Binding an endpoint to an AV, queues, counters and shared contexts.

use super::bindings::{Both, Bound, Role, Watched, bind_cntr, bind_cq, watches_of};
use super::complete::BoundCntr;
use super::driver::Driver;
use super::host::tx_of;
use super::receives::Receives;
use super::receives::foreign::Foreign;
use super::receives::shared::Shared;
use super::{Endpoint, State};
use crate::av::Member;
use crate::error::Error;
use crate::polled::Polled;
use std::sync::{Arc, Weak};

impl Endpoint {
    fn as_polled(self: &Arc<Self>) -> Arc<dyn Polled> {
        Arc::clone(self) as _
    }

    /// Binds the endpoint; `ctx` selects the transmit context. An enabled endpoint takes only what `attach_late`
    /// allows.
    ///
    /// # Errors
    /// Error of the binding.
    pub fn attach(self: &Arc<Self>, what: Bound<'_>, ctx: u8) -> Result<(), Error> {
        let mut state = self.lock();
        let bindings = match &mut *state {
            State::Setup(setup) => &mut setup.bindings,
            State::Enabled(driver) => {
                let watched = attach_late(driver, what, ctx)?;
                drop(state);
                if let Some(watched) = watched {
                    watched.watch().add(&self.as_polled());
                    self.watches.lock().push(watched);
                }
                return Ok(());
            }
            State::Closed => return Err(Error::State),
        };
        let tx = tx_of(&mut bindings.tx, &mut bindings.more_tx, ctx);
        let watched = match what {
            Bound::Av(av) => {
                if bindings.av.is_some() || !Arc::ptr_eq(av.domain(), &self.domain) {
                    return Err(Error::Invalid);
                }
                let member: Weak<dyn Member> = Arc::downgrade(self) as Weak<dyn Member>;
                bindings.av = Some((Arc::clone(av), av.attach(member)));
                None
            }
            Bound::Cq { cq, of, selective } => {
                bind_cq((tx, &mut bindings.rx), cq, of, selective)?;
                Some(Watched::Cq(Arc::clone(cq)))
            }
            Bound::Cntr(cntr, flags) => {
                bind_cntr((tx, &mut bindings.rx), cntr, flags)?;
                Some(Watched::Cntr(BoundCntr::new(cntr)))
            }
            Bound::Events(users) => {
                bindings.eq = Some(users.add());
                None
            }
            Bound::Srx(srx) => {
                if bindings.receives.is_some() {
                    tracing::info!("fi_ep_bind: the endpoint has a shared receive context already");
                    return Err(Error::Invalid);
                }
                if let Some(owner) = srx.owner() {
                    let foreign = Foreign::new(srx, owner, Arc::downgrade(self) as _);
                    bindings.receives = Some(Receives::Foreign(foreign));
                    let _ = self.srx_owner.set(Arc::clone(owner));
                    return Ok(());
                }
                let shared = Shared::new(srx, Arc::downgrade(self) as _);
                bindings.receives = Some(Receives::Shared(shared));
                srx.join(Arc::downgrade(self) as _);
                None
            }
            Bound::Stx(stx) => {
                bindings.stx = Some(stx.add());
                None
            }
        };
        // Never hold both locks: readers take theirs first.
        drop(state);
        self.watches.lock().extend(watched);
        Ok(())
    }

    /// A context of a scalable endpoint closes: the objects that it was bound to may close before the endpoint.
    pub fn detach(&self, role: Role) {
        let mut state = self.lock();
        let (tx, more_tx, rx) = match &mut *state {
            State::Setup(setup) => {
                let bound = &mut setup.bindings;
                (&mut bound.tx, &mut bound.more_tx, &mut bound.rx)
            }
            State::Enabled(driver) => {
                let host = &mut driver.host;
                (&mut host.tx, &mut host.more_tx, &mut host.under_way.rx)
            }
            State::Closed => return,
        };
        let left = match role {
            Role::Tx(ctx) => std::mem::take(tx_of(tx, more_tx, ctx)),
            Role::Rx => std::mem::take(rx),
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
        let polled = self.as_polled();
        self.watches.lock().iter().for_each(|watched| watched.watch().add(&polled));
        self.domain.joined(&polled);
    }

    /// The opposite of [`Endpoint::join_watches`], for good.
    pub(super) fn leave_watches(&self) {
        self.domain.left(self);
        let watches = std::mem::take(&mut *self.watches.lock());
        watches.iter().for_each(|watched| watched.watch().remove(self));
    }
}

/// Binds an endpoint whose engine runs already. libfabric's manual wants everything bound before; its own providers
/// take more, and Sandia OpenSHMEM relies on that. A queue or counter where there was none counts completions from now
/// on. An AV and a receive context come too late, since they decide about messages that have already come.
fn attach_late(driver: &mut Driver, what: Bound<'_>, ctx: u8) -> Result<Option<Watched>, Error> {
    let host = &mut driver.host;
    let tx = tx_of(&mut host.tx, &mut host.more_tx, ctx);
    let both: Both<'_> = (tx, &mut host.under_way.rx);
    match what {
        Bound::Cq { cq, of, selective } => {
            bind_cq(both, cq, of, selective)?;
            Ok(Some(Watched::Cq(Arc::clone(cq))))
        }
        Bound::Cntr(cntr, flags) => {
            bind_cntr(both, cntr, flags)?;
            Ok(Some(Watched::Cntr(BoundCntr::new(cntr))))
        }
        Bound::Events(users) => {
            driver._eq = Some(users.add());
            Ok(None)
        }
        // All endpoints send through the domain's sockets, with a shared transmit context or without. A program that
        // binds one late may close it before the endpoint, so the endpoint does not hold it.
        Bound::Stx(_) => Ok(None),
        Bound::Av(_) | Bound::Srx(_) => {
            tracing::info!(
                "fi_ep_bind: an AV or a shared receive context is bound before fi_enable; a CQ, a \
                 counter, an EQ or a shared transmit context may come later"
            );
            Err(Error::State)
        }
    }
}
