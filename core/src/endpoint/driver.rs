//! One enabled endpoint: the engine, its operations and its ports. The loop in [`crate::run`] runs them.
//!
//! Everything here happens under the endpoint's lock.

use super::config::EpConfig;
use super::host::EpHost;
use super::operations::Owed;
use super::receives::Receives;
use crate::av::AddressVector;
use crate::cause::Cause;
use crate::completion::queue::Failure;
use crate::domain::Domain;
use crate::error::Error;
use crate::look::NEVER_NS;
use crate::peer_index::{NOWHERE, PeerIndex};
use crate::run::{Carriers, Clock, Driven, Kernel, Memory, Outside, Parts};
use crate::sockaddr;
use crate::uses::Use;
use erd_port::Port;
use erd_rd::{Endpoint as Engine, PeerId, PostError};
use erd_types::mutants::{Mutant, mutant};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Time between two checks whether the application has made room, for endpoints that a look covers.
const ROOM_LOOK_NS: u64 = 100_000;

/// See the module's text.
pub struct Driver<O: Outside = Kernel> {
    /// The protocol engine.
    pub engine: Engine,
    /// The engine's host.
    pub host: EpHost,
    /// Its ports.
    pub carriers: Carriers<O>,
    /// Name of the congestion control, for observers.
    pub(super) scheme: &'static str,
    /// The domain.
    pub domain: Arc<Domain>,
    /// The address vector.
    pub av: Arc<AddressVector>,
    pub(super) _av_use: Use,
    pub(super) _eq: Option<Use>,
    pub(super) _stx: Option<Use>,
    /// Peers by `fi_addr`; the driver forgets those that the AV removes.
    pub(super) peers: Vec<Option<PeerId>>,
    /// Peers by `fi_addr` with the number of a receive context ([`AddressVector::base`]).
    pub(super) contexts: HashMap<PeerIndex, PeerId>,
    /// `fi_addr` by peer, for completions, with the peer's generation.
    pub(super) sources: Vec<Option<(u32, PeerIndex)>>,
    pub(super) config: EpConfig,
    /// The debt of the operation about to be posted, if it is deferred work.
    pub(super) owed: Option<Box<Owed>>,
}

impl<O: Outside> Driven for Driver<O> {
    type Outside = O;
    type Memory = EpHost;

    fn parts(&mut self) -> Parts<'_, O, EpHost> {
        let Driver { engine, host, carriers, .. } = self;
        Parts { engine, host, carriers }
    }

    fn settle(&mut self) {
        if let Receives::Shared(_) = self.host.receives {
            self.offer();
        }
        // Most steps leave nothing.
        if !self.host.has_to_settle() {
            return;
        }
        let EpHost { under_way, ended, refused, .. } = &mut self.host;
        for message in under_way.releases.drain(..) {
            if !mutant(Mutant::ForgetsReleases) {
                self.engine.release(message);
            }
        }
        for (peer, delta) in under_way.watches.drain(..) {
            self.engine.watch(peer, delta);
        }
        for (peer, error) in ended.drain(..) {
            let name = self.engine.peer_name(peer).map(tracing::field::display);
            tracing::warn!(peer = name, ?error, "the session with a peer failed");
        }
        refused.write();
    }

    fn feed(&mut self) {
        self.fill_many();
    }

    fn publish(&mut self) {
        self.host.lost.clear();
        if self.host.has_completions() {
            self.publish_done();
        }
        if !self.host.under_way.parts.is_empty() {
            self.end_parts();
            self.publish_done();
        }
    }
}

impl<O: Outside> Driver<O> {
    /// The monotonic time, in nanoseconds.
    pub(super) fn now_ns(&self) -> u64 {
        self.carriers.clock.now_ns()
    }

    /// The peer at `fi_addr`.
    ///
    /// # Errors
    /// Reason why there is none.
    pub fn peer_at(&mut self, fi_addr: PeerIndex) -> Result<PeerId, Error> {
        let index = usize::try_from(fi_addr).map_err(|_| Error::Invalid)?;
        if let Some(Some(peer)) = self.peers.get(index) {
            return Ok(*peer);
        }
        if let Some(peer) = self.contexts.get(&fi_addr) {
            return Ok(*peer);
        }
        let Some(address) = self.av.address(fi_addr) else {
            tracing::info!(fi_addr, "no such address in the AV");
            return Err(Error::Invalid);
        };
        let peer = match self.engine.peer(self.carriers.clock.now_ns(), address, &mut self.host) {
            Ok(peer) => peer,
            Err(error) => return Err(refusal(error)),
        };
        if self.av.base(fi_addr) != fi_addr {
            self.contexts.insert(fi_addr, peer);
            return Ok(peer);
        }
        if index >= self.peers.len() {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }

    /// An address left the AV, or moved there. Its session goes on: the peer may still know us.
    pub(super) fn forget(&mut self, fi_addr: PeerIndex) {
        let index = usize::try_from(fi_addr).unwrap_or(usize::MAX);
        if let Some(peer) = self.peers.get_mut(index).and_then(Option::take) {
            self.engine.let_go(peer);
        }
        let (av, engine) = (&self.av, &mut self.engine);
        self.contexts.retain(|context, peer| {
            let stays = av.base(*context) != fi_addr;
            if !stays {
                engine.let_go(*peer);
            }
            stays
        });
        self.sources.clear();
    }

    fn publish_done(&mut self) {
        for at in 0..self.host.under_way.rx.done.len() {
            if let (true, Some(peer)) = (self.config.source, self.host.under_way.rx.done[at].peer) {
                let source = self.source_of(peer);
                self.host.under_way.rx.done[at].entry.source = source;
                if source == NOWHERE && self.config.source_err {
                    self.tell_source(at, peer);
                }
            }
        }
        // Receives first: the end of a peer reports its receives before its failed sends.
        let (tx, more_tx) = (&mut self.host.tx, &mut self.host.more_tx);
        for direction in [&mut self.host.under_way.rx, tx].into_iter().chain(more_tx) {
            if direction.done.is_empty() {
                continue;
            }
            for done in &mut direction.done {
                if let Some(number) = self.config.queue_pair {
                    done.entry.tag = number.into();
                    done.entry.peer = done.peer.and_then(|peer| self.engine.peer_name(peer));
                }
                if let (Some(failure), Some(peer)) = (&mut done.entry.failure, done.peer)
                    && failure.text.is_empty()
                    && let Some(name) = self.engine.peer_name(peer)
                {
                    failure.text = format!("{name}\0").into_bytes();
                }
            }
            direction.publish();
        }
    }

    /// Makes a completion whose source is not in the AV an error that has the address (`fi_cq(3)`).
    #[cold]
    fn tell_source(&mut self, at: usize, peer: PeerId) {
        let entry = &mut self.host.under_way.rx.done[at].entry;
        if let (None, Some(address)) = (&entry.failure, self.engine.peer_address(peer))
            && !self.av.knows(address)
        {
            let name = address.name;
            if self.av.takes_keys() {
                entry.source = self.av.shown_key(address.key);
            }
            let cause = Cause::SourceUnknown;
            entry.failure = Some(Box::new(Failure {
                cause,
                overflow_bytes: 0,
                text: sockaddr::encode(name).as_bytes().to_vec(),
            }));
        }
    }

    /// Index of a peer in the AV, or [`NOWHERE`].
    pub(super) fn source_of(&mut self, peer: PeerId) -> PeerIndex {
        let index = peer.index as usize;
        if let Some(Some((generation, fi_addr))) = self.sources.get(index)
            && *generation == peer.generation
        {
            return *fi_addr;
        }
        let address = self.engine.peer_address(peer);
        let fi_addr = address.map_or(NOWHERE, |address| self.av.find(address));
        // Do not cache a missing address: it may be inserted later.
        if fi_addr != NOWHERE {
            if index >= self.sources.len() {
                self.sources.resize(index + 1, None);
            }
            self.sources[index] = Some((peer.generation, fi_addr));
        }
        fi_addr
    }

    /// Time at which the next step is due, arrivals on the fds apart; [`NEVER_NS`] for never. Valid if
    /// [`Driver::tells`].
    pub(super) fn due_ns(&mut self) -> u64 {
        let now = self.now_ns();
        let host = &mut self.host;
        let mut local_ns = NEVER_NS;
        if let Some(port) = &mut host.local_port {
            // The next look polls a busy port again. A peer with news wakes a port that rests.
            if !port.rests(now) || port.arm() {
                return 0;
            }
            local_ns = port.next_ns().unwrap_or(NEVER_NS);
        }
        // From here on a datagram may be what makes the next step due.
        self.carriers.udp_due_ns = 0;
        let timers = self.engine.poll_timeout().unwrap_or(NEVER_NS);
        let timers = timers.min(local_ns);
        let due_ns = timers.min(self.carriers.link.next_ns().unwrap_or(NEVER_NS));
        if let Some(retry_ns) = self.carriers.retry_at_ns {
            return due_ns.min(retry_ns);
        }
        if self.engine.has_ready() || host.has_completions() || host.has_to_settle() {
            return 0;
        }
        // Reading by the application makes room, without notice.
        if host.receives.wait_for_room() { due_ns.min(now + ROOM_LOOK_NS) } else { due_ns }
    }

    /// [`Driver::due_ns`] for a look: one that is due at once has its turn in the next look, after the others.
    pub(super) fn due_again_ns(&mut self) -> u64 {
        match self.due_ns() {
            0 => self.now_ns(),
            due_ns => due_ns,
        }
    }

    /// After a step: if somebody sleeps, what this step has disarmed is armed again.
    pub(super) fn keep_armed(&mut self, is_waited_for: impl Fn() -> bool) {
        let Some(port) = &mut self.host.local_port else { return };
        if !port.was_disarmed() {
            return;
        }
        // A thread that is about to sleep says so, then looks at what the looks have been told, and arms.
        fence(Ordering::SeqCst);
        if is_waited_for() {
            port.rearm();
        }
    }

    /// True if work comes only at [`Driver::due_ns`] and with arrivals on an fd.
    pub(super) fn tells(&self) -> bool {
        let Carriers { link, port, .. } = &self.carriers;
        let is_silent = link.has_verbs() || port.tampers();
        !is_silent && self.host.receives.need_no_call()
    }

    /// Hands the fds that report arrivals to `f`.
    pub(super) fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>)) {
        self.carriers.each_fd(f);
        self.host.local_port.iter().filter_map(|port| port.fd()).for_each(f);
    }
}

/// Error of a refused post.
pub(super) fn refusal(error: PostError) -> Error {
    match error {
        PostError::Full => Error::Again,
        PostError::UnknownPeer => Error::Invalid,
        PostError::Closed => Error::State,
        PostError::TableFull => Error::NoMemory,
        PostError::NoKey => Error::Access,
        PostError::Operand => Error::TooLong,
    }
}
