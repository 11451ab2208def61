//! Change of the job's key while sessions go on (protocol.md §11.9).
//!
//! A side with a new key tells its peers by a probe that names it. A side that has the key too goes on with it at once,
//! and so does the first one, when a packet under the new key comes back. Each side asks until both directions have
//! changed.

use super::telling::Telling;
use super::{Core, Peer};
use crate::host::OpError;
use crate::keys::{KeyId, KeyRef};
use crate::units::Nanos;

impl Peer {
    /// The endpoint has a new key in the place of this peer's.
    pub(crate) fn renew_key(&mut self, now: Nanos) {
        match self.session.is_open() {
            true => self.telling = Some(Telling::of_open(now, self.id.index)),
            // A peer that has answered a hello has the key of that, and may not have another.
            false => self.session.keep_key(),
        }
    }

    /// A session begins while two keys are valid: it may have begun with the older one.
    pub(super) fn watch_key(&mut self, core: &Core, now: Nanos) {
        let changes = core.cfg.keys.before(self.id.key).is_some();
        self.telling = changes.then_some(Telling::of_new(now));
    }

    /// Time of the next probe that tells of a new key.
    pub(super) fn tells_at(&self) -> Option<Nanos> {
        self.telling.map(Telling::next_at)
    }

    /// Tells the peer of the new key, if it is due and the session has not changed yet.
    pub(super) fn check_renewal(&mut self, core: &Core, now: Nanos) {
        let Some(telling) = self.telling.filter(|telling| telling.next_at() <= now) else { return };
        self.telling = None;
        if !self.is_renewed(core) {
            self.telling = Some(telling.told(now));
            self.tells_key = true;
            if !self.live.asks() {
                self.live.ask();
            }
        }
    }

    /// True unless the session uses a key that is not the newest in its place.
    pub(crate) fn is_renewed(&self, core: &Core) -> bool {
        self.proofs.as_ref().is_none_or(|proofs| proofs.is_renewed(&core.cfg.keys))
    }

    /// A proven probe of the peer names a key.
    pub(crate) fn has_key(&mut self, core: &Core, id: Option<KeyId>) {
        if let (Some(proofs), Some(id)) = (&mut self.proofs, id) {
            proofs.peer_has(&core.cfg.keys, id);
        }
    }

    /// The key of the next hello: the newest, unless somebody said that this process does not have it.
    pub(super) fn hello_key(&self, core: &Core) -> KeyRef {
        let (at, keys) = (self.id.key, &core.cfg.keys);
        let before = keys.before(at).filter(|_| self.session.says_hello_with_older());
        before.or_else(|| keys.newest(at)).unwrap_or_default()
    }

    /// Notes what a process without our key said of why it does not answer.
    pub(crate) fn heard_hint(&mut self, core: &Core, now: Nanos, hint: OpError) {
        let has_older = core.cfg.keys.before(self.id.key).is_some();
        self.session.heard_hint(hint);
        if has_older && hint == OpError::KeysDiffer {
            self.session.try_older(now);
        }
    }
}
