//! The receives of an endpoint: its own, in a shared receive context, or in another library's.
//!
//! A message meets its receive when it arrives or when the receive is posted, whichever is later. The endpoint places
//! its payload straight into the application's memory, unless the payload came first. Then a held buffer keeps it until
//! the message is whole and its receive is there.
//!
//! - `own`, `shared`, `foreign`: the three kinds. Each has its messages, its lock and its calls;
//! - `queue`: messages that wait for a receive; `many`: buffers that take many messages;
//! - `under_way`: receives until they are reported; `held`: payloads that came before their receives;
//! - `post`, `search`: the application's calls on the endpoint's own receives; `shared_calls`, `foreign_calls`: the
//!   calls of a context and of an owner.

pub(super) mod foreign;
mod foreign_calls;
mod held;
pub(crate) mod many;
pub(super) mod own;
mod post;
pub(super) mod queue;
mod search;
pub(super) mod shared;
mod shared_calls;
pub(super) mod under_way;

use super::operations::RecvOp;
use crate::cause::Cause;
use crate::error::Error;
use crate::random;
use crate::shared_receive::SharedReceives;
use erd_rd::matching::Matcher;
use erd_rd::{Arrived, PeerId, Verdict};
use foreign::Foreign;
use own::Own;
use queue::{Queue, Unexpected};
use shared::Shared;
use std::ffi::c_void;
use std::sync::Arc;
use under_way::UnderWay;

/// Bytes of one message in the table of an owner's messages, with its share of free places.
const GROWTH_BYTES: usize = 8 * size_of::<foreign::Message>();

/// See the module's text.
pub(super) enum Receives {
    /// The endpoint's own.
    Own(Own),
    /// A shared context has them.
    Shared(Shared),
    /// Another library has them.
    Foreign(Foreign),
}

impl Receives {
    /// Takes a message whose turn has come: see [`erd_rd::Host::arrived`].
    pub(super) fn arrived(&mut self, arrived: &Arrived, ops: &mut UnderWay) -> Verdict {
        let mut message = Unexpected::new(arrived);
        if let Receives::Own(own) = self
            && let Some(recv) = own.match_posted(&message, ops)
        {
            return ops.matched(recv, arrived, &message);
        }
        let tagged = message.tag.is_some();
        let verdict = ops.hold(&mut message, arrived.rendezvous, self.growth_bytes(tagged));
        match self {
            _ if verdict == Verdict::NoBuffer => {}
            Receives::Own(own) => own.queue.keep(message),
            Receives::Shared(shared) => shared.keep(message),
            Receives::Foreign(foreign) => foreign.keep(message),
        }
        verdict
    }

    /// Memory, in bytes, that the next message takes which no receive has met.
    fn growth_bytes(&self, tagged: bool) -> usize {
        match self {
            Receives::Own(own) => own.queue.matcher.growth_bytes(tagged),
            // The context keeps a note of it, too.
            Receives::Shared(shared) => {
                shared.queue.matcher.growth_bytes(tagged) + shared.srx.growth_bytes(tagged)
            }
            Receives::Foreign(_) => GROWTH_BYTES,
        }
    }

    /// Messages that a search covers; `None` if an owner has their receives.
    fn queue(&mut self) -> Option<&mut Queue> {
        match self {
            Receives::Own(own) => Some(&mut own.queue),
            Receives::Shared(shared) => Some(&mut shared.queue),
            Receives::Foreign(_) => None,
        }
    }

    /// True if a message was claimed with this context.
    fn claims(&mut self, context: *mut c_void) -> bool {
        self.queue().is_some_and(|queue| queue.claims(context))
    }

    fn foreign(&mut self) -> Option<&mut Foreign> {
        if let Receives::Foreign(foreign) = self { Some(foreign) } else { None }
    }

    /// `fi_cancel`: true if a posted receive had this context.
    ///
    /// # Errors
    /// [`Error::Unimplemented`] if another provider has the receives.
    pub(super) fn cancel(
        &mut self,
        context: *mut c_void,
        ops: &mut UnderWay,
    ) -> Result<bool, Error> {
        match self {
            Receives::Own(own) => Ok(own.cancel(context, ops)),
            Receives::Shared(_) => Ok(false),
            Receives::Foreign(_) => {
                tracing::info!("fi_cancel: another provider has the receives of this endpoint");
                Err(Error::Unimplemented)
            }
        }
    }

    /// The payload of messages for which `is_gone` holds will never come.
    pub(super) fn void(&mut self, cause: Cause, is_gone: impl Fn(&Unexpected) -> bool) {
        match self {
            Receives::Own(own) => drop(own.queue.void(cause, is_gone)),
            Receives::Shared(shared) => shared.void(cause, is_gone),
            Receives::Foreign(foreign) => foreign.void(cause, is_gone),
        }
    }

    /// Fails the receives that wait for one peer only, whose session failed: they would wait forever.
    pub(super) fn fail_directed(&mut self, peer: PeerId, cause: Cause, ops: &mut UnderWay) {
        let Receives::Own(own) = self else { return };
        for posted in own.queue.matcher.take_posted(peer) {
            ops.watches.push((peer, -1));
            ops.end_posted(posted, cause, Some(peer));
        }
    }

    /// True if messages wait until the application has read completions.
    pub(super) fn wait_for_room(&self) -> bool {
        match self {
            Receives::Own(own) => own.starved,
            Receives::Shared(shared) => shared.waits(),
            Receives::Foreign(_) => false,
        }
    }

    /// True unless asking for receives takes a call of their owner.
    pub(super) fn need_no_call(&self) -> bool {
        !matches!(self, Receives::Foreign(_))
    }

    /// The shared context that has the receives.
    pub(super) fn context(&self) -> Option<Arc<SharedReceives>> {
        if let Receives::Shared(shared) = self { Some(Arc::clone(&shared.srx)) } else { None }
    }

    /// Gives an owner's receive back, which ends without a report.
    pub(super) fn give_back(&self, op: &RecvOp) {
        if let Receives::Foreign(foreign) = self {
            foreign.give_back(op);
        }
    }

    /// Drops all that wait: messages and the endpoint's own receives.
    pub(super) fn abandon(&mut self) {
        if let Some(queue) = self.queue() {
            queue.matcher = Matcher::new(0, u32::MAX, random::u64());
        }
    }
}
