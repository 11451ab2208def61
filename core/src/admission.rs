//! Admission of peers: to sessions, and to registered memory where a stranger could guess the key.
//!
//! A domain opens sessions with everybody, or only with those that the application has named (`FI_ERD_STRANGERS`).
//!
//! A key that the application chose is often a small number. So a region of such a key serves only initiators that the
//! application has named: a host counts as known when an address vector of the domain has an address of it
//! (`FI_ERD_KEY_PEERS`). Random keys need no such rule: knowing one is the proof.

use crate::settings::PeerRule;
use erd_rd::PeerId;
use erd_rd::keys::KeyId;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Part of an address vector that this rule reads.
pub trait Names: Send + Sync {
    /// True if `name` is there, with this key where addresses have keys of their own.
    fn has(&self, name: SocketAddr, key: Option<KeyId>) -> bool;

    /// True if some address there is of this host.
    fn has_host(&self, host: IpAddr) -> bool;
}

/// The rule of a domain, and the addresses that it consults.
pub struct Admission {
    /// The peers that may use keys of the application.
    keys: PeerRule,
    /// The peers that may open sessions.
    sessions: PeerRule,
    /// The domain's address vectors; opening one removes those that are gone.
    avs: Mutex<Vec<Weak<dyn Names>>>,
    /// Grows when an address leaves: earlier decisions are made again.
    shrunk: AtomicU64,
}

impl Admission {
    /// Rules for keys of the application and for sessions, without addresses.
    pub fn new(keys: PeerRule, sessions: PeerRule) -> Admission {
        Admission { keys, sessions, avs: Mutex::default(), shrunk: AtomicU64::new(0) }
    }

    /// The domain has one more address vector.
    pub fn opened(&self, av: Weak<dyn Names>) {
        let mut avs = self.avs.lock();
        avs.retain(|av| av.strong_count() > 0);
        avs.push(av);
    }

    /// Addresses have left an address vector.
    pub(crate) fn shrank(&self) {
        self.shrunk.fetch_add(1, Ordering::Release);
    }

    /// Whether the endpoint that has proven to receive at `name` may use keys of the application.
    pub(crate) fn admits(&self, name: SocketAddr, key: Option<KeyId>) -> bool {
        self.fits(self.keys, name, key)
    }

    /// Whether some address vector has an address of this host.
    fn has_host(&self, host: IpAddr) -> bool {
        self.any(|av| av.has_host(host))
    }

    fn fits(&self, rule: PeerRule, name: SocketAddr, key: Option<KeyId>) -> bool {
        match rule {
            PeerRule::Any => true,
            PeerRule::Names => self.any(|av| av.has(name, key)),
            PeerRule::Hosts => self.has_host(name.ip()),
        }
    }

    fn any(&self, mut is_so: impl FnMut(&dyn Names) -> bool) -> bool {
        self.avs.lock().iter().filter_map(Weak::upgrade).any(|av| is_so(&*av))
    }
}

/// The peers of an endpoint that were admitted, so that the address vectors are not asked for every request.
pub struct Admitted {
    admission: Arc<Admission>,
    /// By the peer's index: its generation, and [`Admission::shrunk`] when it was admitted. At most as many as the
    /// engine has peers.
    peers: Vec<Option<(u32, u64)>>,
}

impl Admitted {
    /// No peer is admitted yet.
    pub fn new(admission: &Arc<Admission>) -> Admitted {
        Admitted { admission: Arc::clone(admission), peers: Vec::new() }
    }

    /// Whether the endpoint called `name` may open a session, under this key.
    pub(crate) fn may_open(&self, name: SocketAddr, key: Option<KeyId>) -> bool {
        self.admission.fits(self.admission.sessions, name, key)
    }

    /// Whether the application has named this host.
    pub(crate) fn knows(&self, host: IpAddr) -> bool {
        self.admission.has_host(host)
    }

    /// See [`Admission::admits`]. Peers admitted before stay admitted when other processes take their addresses out of
    /// a shared address vector.
    pub(crate) fn admits(
        &mut self,
        peer: PeerId,
        name: SocketAddr,
        key: impl FnOnce() -> Option<KeyId>,
    ) -> bool {
        let shrunk = self.admission.shrunk.load(Ordering::Acquire);
        let index = peer.index as usize;
        let admitted = Some((peer.generation, shrunk));
        if self.peers.get(index).is_some_and(|known| *known == admitted) {
            return true;
        }
        let admits = self.admission.admits(name, key());
        if admits {
            if index >= self.peers.len() {
                self.peers.resize(index + 1, None);
            }
            self.peers[index] = admitted;
        }
        admits
    }
}
