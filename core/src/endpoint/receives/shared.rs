//! An endpoint's side of its shared receive context ([`crate::shared_receive`]), with the messages that have arrived
//! for it.
//!
//! The endpoint first keeps a message as unexpected. A context matches by the sender's name, which only the engine can
//! tell. So the endpoint offers messages to the context when the engine's call is over.

use super::queue::{Queue, Unexpected};
use crate::cause::Cause;
use crate::shared_receive::{SharedMember, SharedReceives};
use crate::uses::Use;
use erd_rd::PeerId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// See the module's text.
pub struct Shared {
    pub queue: Queue,
    pub srx: Arc<SharedReceives>,
    pub endpoint: Weak<dyn SharedMember>,
    /// Messages not offered yet, oldest first.
    fresh: VecDeque<(PeerId, Option<u64>)>,
    /// Messages that got a receive when there was no room for it here: the endpoint offers them again, before the
    /// others.
    pub refused: VecDeque<(PeerId, Option<u64>)>,
    _use: Use,
}

impl Shared {
    pub fn new(srx: &Arc<SharedReceives>, endpoint: Weak<dyn SharedMember>) -> Shared {
        let (fresh, refused) = (VecDeque::new(), VecDeque::new());
        let (queue, srx, _use) = (Queue::new(0), Arc::clone(srx), srx.hold());
        Shared { queue, srx, endpoint, fresh, refused, _use }
    }

    /// Keeps a message that has come.
    pub fn keep(&mut self, message: Unexpected) {
        self.queue.keep(message);
        self.fresh.push_back((message.msg.peer, message.tag));
    }

    /// True if messages wait to be offered.
    pub fn waits(&self) -> bool {
        !self.fresh.is_empty() || !self.refused.is_empty()
    }

    /// The peer and tag of the next message to offer.
    pub fn next(&mut self) -> Option<(PeerId, Option<u64>)> {
        self.refused.pop_front().or_else(|| self.fresh.pop_front())
    }

    /// See [`Queue::void`].
    pub fn void(&mut self, cause: Cause, is_gone: impl Fn(&Unexpected) -> bool) {
        let mut counts = HashMap::new();
        for message in self.queue.void(cause, is_gone) {
            *counts.entry((message.msg.peer, message.tag)).or_insert(0) += 1;
        }
        self.srx.withdraw(&self.endpoint, counts);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.srx.leave(&self.endpoint);
    }
}
