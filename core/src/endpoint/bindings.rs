//! The objects that an endpoint is bound to, and their checks.

use super::complete::{BoundCntr, BoundCq, Direction};
use super::receives::Receives;
use crate::av::AddressVector;
use crate::completion::CompletionQueue;
use crate::counter::Counter;
use crate::error::Error;
use crate::flags::Flags;
use crate::shared_receive::SharedReceives;
use crate::uses::{Use, Users};
use crate::watch::Watch;
use std::sync::Arc;

/// Flags of counters that count other operations than sends and receives.
const REMOTE_FLAGS: Flags = Flags::REMOTE.union(Flags::READ).union(Flags::WRITE);

/// Bindings of an endpoint before it is enabled.
#[derive(Default)]
pub struct Bindings {
    pub(super) av: Option<(Arc<AddressVector>, Use)>,
    pub(super) tx: Direction,
    /// The directions of a scalable endpoint's transmit contexts after the first.
    pub(super) more_tx: Vec<Direction>,
    pub(super) rx: Direction,
    /// An event queue, which stays open as long.
    pub(super) eq: Option<Use>,
    /// The receive context, if the endpoint has no receives of its own.
    pub(super) receives: Option<Receives>,
    /// A shared transmit context.
    pub(super) stx: Option<Use>,
}

/// A context of a scalable endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A transmit context, by its number.
    Tx(u8),
    /// A receive context.
    Rx,
}

/// A queue or counter that an application reads, which lets endpoints progress. It stays open while the endpoint is
/// bound to it.
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

/// An object to bind an endpoint to; queues and counters with their purpose.
#[derive(Clone, Copy)]
pub enum Bound<'a> {
    /// An address vector.
    Av(&'a Arc<AddressVector>),
    /// A queue for sends, receives or both. With `selective`, only operations that ask for it complete there.
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
    /// A shared transmit context, which has no other state.
    Stx(&'a Users),
}

/// The watches of a direction's queue and counters.
pub(super) fn watches_of(direction: &Direction) -> impl Iterator<Item = *const Watch> {
    let cq = direction.cq.as_ref().map(|bound| &raw const bound.cq.watch);
    let counters = [&direction.cntr, &direction.reads, &direction.writes];
    let counters = counters.map(|cntr| cntr.as_ref().map(|bound| Arc::as_ptr(&bound.cntr.watch)));
    cq.into_iter().chain(counters.into_iter().flatten())
}

/// Completion of sends and of receives.
pub(super) type Both<'a> = (&'a mut Direction, &'a mut Direction);

pub(super) fn bind_cq(
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

pub(super) fn bind_cntr(
    (tx, rx): Both<'_>,
    cntr: &Arc<Counter>,
    flags: Flags,
) -> Result<(), Error> {
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
