//! A new key in the place of another (protocol.md §11.9).

use super::Endpoint;
use crate::host::{EndReason, Host, OpError};
use crate::keys::{KeySet, Keys};
use crate::mutants::{Mutant, mutant};
use crate::units::{KeyIndex, Nanos};
use alloc::sync::Arc;

impl Endpoint {
    /// A new key takes the place of another. Both are valid for `overlap_ns`. Sessions go over to the new one meanwhile. Those whose peers do not get it by then end with
    /// [`OpError::KeysDiffer`]. False if the place is empty, or two keys are valid already: call it again later.
    pub fn renew_key(
        &mut self,
        now: Nanos,
        at: KeyIndex,
        key: Arc<dyn Keys>,
        overlap_ns: Nanos,
    ) -> bool {
        let present = self.core.key(at).map(Keys::id);
        if present == Some(key.id()) {
            return true;
        }
        if self.is_changing_keys() || !self.core.cfg.keys.renew(at, key) {
            return false;
        }
        let overlap_ns = if mutant(Mutant::RenewsAtOnce) { 0 } else { overlap_ns };
        self.overlap_ends = Some(now + overlap_ns);
        for (_, peer) in &mut self.peers {
            if peer.id.key == at {
                peer.renew_key(now);
                self.schedule.reschedule(&self.core, peer);
            }
        }
        true
    }

    /// Forgets all keys, for the copy of the endpoint in a forked child. That must not be used afterwards.
    pub fn forget_keys(&mut self) {
        self.core.cfg.keys = KeySet::default();
        self.peers.iter_mut().for_each(|(_, peer)| peer.proofs = None);
    }

    /// True if it has keys, of its own or of a session. For tests.
    #[must_use]
    pub fn holds_keys(&self) -> bool {
        !self.core.cfg.keys.is_empty() || self.peers.iter().any(|(_, peer)| peer.proofs.is_some())
    }

    /// True while two keys of a place are valid.
    #[must_use]
    pub fn is_changing_keys(&self) -> bool {
        self.overlap_ends.is_some()
    }

    /// Ends the validity of keys before the newest, once their time is over.
    pub(super) fn check_overlap<H: Host>(&mut self, now: Nanos, host: &mut H) {
        if self.overlap_ends.is_none_or(|at| at > now) {
            return;
        }
        self.overlap_ends = None;
        for (_, peer) in &mut self.peers {
            if !peer.is_renewed(&self.core) {
                let error = match peer.session.is_open() {
                    true => OpError::KeysDiffer,
                    false => OpError::Canceled,
                };
                peer.end(&mut self.core, host, EndReason::Failed(error));
                self.schedule.reschedule(&self.core, peer);
            }
        }
        self.core.cfg.keys.retire();
    }
}
