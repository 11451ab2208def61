//! What an endpoint is bound to: an AV, queues, counters, shared contexts.

use super::complete::{BoundCntr, BoundCq, Direction};
use super::driver::Driver;
use super::host::tx_of;
use super::peer_rx::PeerRx;
use super::shared_rx::SharedRx;
use super::{Endpoint, State};
use crate::av::{AddressVector, Member};
use crate::completion::CompletionQueue;
use crate::counter::Counter;
use crate::error::Error;
use crate::flags::Flags;
use crate::shared_receive::SharedReceives;
use crate::uses::{Use, Users};
use crate::watch::Watch;
use std::sync::{Arc, Weak};

/// Flags of a counter that count what sends and receives do not.
const REMOTE_FLAGS: Flags = Flags::REMOTE.union(Flags::READ).union(Flags::WRITE);

/// See the module's text.
#[derive(Default)]
pub(super) struct Bindings {
    pub av: Option<(Arc<AddressVector>, Use)>,
    pub tx: Direction,
    /// Of the transmit contexts of a scalable endpoint after the first.
    pub more_tx: Vec<Direction>,
    pub rx: Direction,
    /// An event queue, which stays open as long.
    pub eq: Option<Use>,
    /// Shared contexts.
    pub shared: Option<SharedRx>,
    /// Another provider's receive context.
    pub peer: Option<PeerRx>,
    pub stx: Option<Use>,
}

/// A context of a scalable endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A transmit context, by its number.
    Tx(u8),
    /// A receive context.
    Rx,
}

/// Something that an application reads, and so lets endpoints progress. It is open as long as the
/// endpoint is bound to it.
pub(super) enum Watched {
    Cq(Arc<CompletionQueue>),
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
pub enum Bound<'a> {
    /// An address vector.
    Av(&'a Arc<AddressVector>),
    /// A queue for sends, receives or both. With `selective`, only operations complete there that ask for it.
    Cq {
        /// The queue.
        cq: &'a Arc<CompletionQueue>,
        /// [`Flags::SEND`], [`Flags::RECV`] or both.
        of: Flags,
        /// See above.
        selective: bool,
    },
    /// A counter of these kinds of operations.
    Cntr(&'a Arc<Counter>, Flags),
    /// An event queue, to stay open as long as the endpoint.
    Events(&'a Users),
    /// A shared receive context.
    Srx(&'a Arc<SharedReceives>),
    /// A shared transmit context, of which there is nothing else.
    Stx(&'a Users),
}

impl Endpoint {
    /// Binds the endpoint; `ctx` is the transmit context that is meant. An endpoint that is enabled
    /// takes what `attach_late` says.
    ///
    /// # Errors
    /// Why not.
    pub fn attach(self: &Arc<Self>, what: Bound<'_>, ctx: u8) -> Result<(), Error> {
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
                if bindings.shared.is_some() || bindings.peer.is_some() {
                    tracing::info!("fi_ep_bind: the endpoint has a shared receive context already");
                    return Err(Error::Invalid);
                }
                if let Some(owner) = srx.owner() {
                    bindings.peer = Some(PeerRx::new(srx, owner, self));
                    let _ = self.srx_owner.set(Arc::clone(owner));
                    return Ok(());
                }
                bindings.shared = Some(SharedRx::new(srx, self));
                srx.join(self);
                None
            }
            Bound::Stx(stx) => {
                bindings.stx = Some(stx.add());
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
    pub fn detach(&self, role: Role) {
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
        self.watches.lock().iter().for_each(|watched| watched.watch().add(self));
        self.domain.joined(self);
    }

    /// The opposite of [`Endpoint::join_watches`], for good.
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
fn attach_late(driver: &mut Driver, what: Bound<'_>, ctx: u8) -> Result<Option<Watched>, Error> {
    let host = &mut driver.host;
    let both = (tx_of(&mut host.tx, &mut host.more_tx, ctx), &mut host.rx);
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
        // All that endpoints send goes through the domain's sockets, with a shared transmit context or
        // without. A program that binds one late may close it before the endpoint, so the endpoint does not hold it.
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

/// What is watched for a direction.
fn watches_of(direction: &Direction) -> impl Iterator<Item = *const Watch> {
    let cq = direction.cq.as_ref().map(|bound| &raw const bound.cq.watch);
    let counters = [&direction.cntr, &direction.reads, &direction.writes];
    let counters = counters.map(|cntr| cntr.as_ref().map(|bound| &raw const bound.cntr.watch));
    cq.into_iter().chain(counters.into_iter().flatten())
}

/// Where sends and receives complete.
type Both<'a> = (&'a mut Direction, &'a mut Direction);

fn bind_cq(
    (tx, rx): Both<'_>,
    cq: &Arc<CompletionQueue>,
    of: Flags,
    selective: bool,
) -> Result<(), Error> {
    let mut places = [(Flags::SEND, &mut tx.cq), (Flags::RECV, &mut rx.cq)];
    if places.iter().any(|(flag, place)| of.contains(*flag) && place.is_some()) {
        tracing::info!("fi_ep_bind: this direction has a CQ already");
        return Err(Error::Invalid);
    }
    for (_, place) in places.iter_mut().filter(|(flag, _)| of.contains(*flag)) {
        **place = Some(BoundCq::new(cq, selective));
    }
    Ok(())
}

fn bind_cntr((tx, rx): Both<'_>, cntr: &Arc<Counter>, flags: Flags) -> Result<(), Error> {
    if !(Flags::SEND | Flags::RECV | REMOTE_FLAGS).contains(flags) || flags.is_empty() {
        tracing::info!(?flags, "fi_ep_bind: a counter counts sends, receives, reads or writes");
        return Err(Error::Flags);
    }
    let mut places = [
        (Flags::SEND, &mut tx.cntr),
        (Flags::READ, &mut tx.reads),
        (Flags::WRITE, &mut tx.writes),
        (Flags::RECV, &mut rx.cntr),
        (Flags::REMOTE_READ, &mut rx.reads),
        (Flags::REMOTE_WRITE, &mut rx.writes),
    ];
    if places.iter().any(|(flag, place)| flags.contains(*flag) && place.is_some()) {
        tracing::info!("fi_ep_bind: this kind of operation has a counter already");
        return Err(Error::Invalid);
    }
    for (_, place) in places.iter_mut().filter(|(flag, _)| flags.contains(*flag)) {
        **place = Some(BoundCntr::new(cntr));
    }
    Ok(())
}
