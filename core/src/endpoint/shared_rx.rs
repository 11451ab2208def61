//! The shared receive context that an endpoint is bound to, and what has arrived for it.

use crate::shared_receive::{SharedMember, SharedReceives};
use crate::uses::Use;
use erd_rd::PeerId;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// The context that an endpoint is bound to.
pub(super) struct SharedRx {
    pub srx: Arc<SharedReceives>,
    pub endpoint: Weak<dyn SharedMember>,
    /// Messages that were not offered yet, oldest first.
    pub fresh: VecDeque<(PeerId, Option<u64>)>,
    /// Those that were given a receive when there was no room for it here: they are offered again, before
    /// the others.
    pub refused: VecDeque<(PeerId, Option<u64>)>,
    pub _use: Use,
}

impl SharedRx {
    pub(super) fn new(srx: &Arc<SharedReceives>, endpoint: Weak<dyn SharedMember>) -> SharedRx {
        SharedRx {
            srx: Arc::clone(srx),
            endpoint,
            fresh: VecDeque::new(),
            refused: VecDeque::new(),
            _use: srx.hold(),
        }
    }

    /// Messages wait to be offered.
    pub(super) fn waits(&self) -> bool {
        !self.fresh.is_empty() || !self.refused.is_empty()
    }
}

impl Drop for SharedRx {
    fn drop(&mut self) {
        self.srx.leave(&self.endpoint);
    }
}
