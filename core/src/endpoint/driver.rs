//! One enabled endpoint: the engine, its sockets, and the loop that runs them.
//!
//! Everything here happens under the endpoint's lock. A step is: take what arrived, run timers
//! that are due, tell the engine what was consumed, send, and hand completions to the queues.

use super::arrivals::{Guess, Lease};
use super::config::EpConfig;
use super::host::EpHost;
use super::link::Link;
use super::net_errors::Inbox;
use super::operations::Owed;
use super::sender::{Outcome, Refusal, Sender};
use crate::admission::Names;
use crate::av::AddressVector;
use crate::cause::Cause;
use crate::completion::queue::Failure;
use crate::domain::Domain;
use crate::error::Error;
use crate::look::NEVER_NS;
use crate::peer_index::{NOWHERE, PeerIndex};
use crate::sockaddr;
use crate::uses::Use;
use erd_port::info_path::InfoPath;
use erd_port::udp::{self, NetError, Next, RxDatagram, RxSocket, Taken, TxSockets};
use erd_rd::{Ecn, Endpoint as Engine, PeerId, PostError, RxMeta};
use erd_sys::clock::monotonic_ns;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Arrivals (datagrams or GRO batches of up to 64 KiB) taken before answers are sent.
const RECV_BATCH: usize = 4;
/// Time between two looks for UDP while verbs is in use, at least: each takes a system call.
const UDP_EVERY_NS: u64 = 20_000;
/// A look in vain is repeated after so many times what it took, so that looks cost little.
const UDP_PATIENCE: u64 = 16;
/// Time between two such looks at most.
const UDP_EVERY_MAX_NS: u64 = 1_000_000;
/// Times that a step looks for arrivals.
const ROUNDS: usize = 8;
/// Batches that a step sends.
const SEND_BATCHES: usize = 16;
/// Shorter arrivals are copied to a region sooner than they are looked at.
const LOOK_WORTH_BYTES: usize = 16 << 10;
/// When to try again after the sockets were full.
const BLOCKED_RETRY_NS: u64 = 100_000;
/// Least time between two looks for network errors without a sign of any.
const ERROR_LOOK_NS: u64 = 1_000_000;
/// The same while the sockets carry little, since verbs is in use.
const ERROR_LOOK_VERBS_NS: u64 = 10_000_000;
/// Time between two looks whether the application has made room, where many endpoints are looked at
/// at once.
const ROOM_LOOK_NS: u64 = 100_000;
/// A timer this late is run even though arrivals keep coming.
const LATE_NS: u64 = 1_000_000;

/// See the module's text.
pub struct Driver {
    /// The protocol engine.
    pub engine: Engine,
    /// What the engine asks of the endpoint.
    pub host: EpHost,
    pub(super) rx: RxSocket,
    /// Where the next datagrams are likely to belong.
    pub guess: Guess,
    /// Where UDP sends from.
    pub tx: Arc<TxSockets>,
    /// Bursts on their way to the ports.
    pub sender: Sender,
    pub(super) info_path: Option<InfoPath>,
    /// Whether UDP or verbs carries a burst.
    pub link: Link,
    /// Name of the congestion control, for who watches.
    pub(super) scheme: &'static str,
    /// When UDP is to be looked for again while verbs is in use.
    pub(super) udp_due_ns: u64,
    pub(super) inbox: Arc<Inbox>,
    /// The domain.
    pub domain: Arc<Domain>,
    /// The address vector.
    pub av: Arc<AddressVector>,
    pub(super) _av_use: Use,
    pub(super) _eq: Option<Use>,
    pub(super) _stx: Option<Use>,
    /// Peers by `fi_addr`; what an AV removes is forgotten.
    pub(super) peers: Vec<Option<PeerId>>,
    /// Peers by `fi_addr` with the number of a receive context ([`AddressVector::base`]).
    pub(super) contexts: HashMap<PeerIndex, PeerId>,
    /// `fi_addr` by peer, for completions, with the peer's generation.
    pub(super) sources: Vec<Option<(u32, PeerIndex)>>,
    pub(super) config: EpConfig,
    /// What the operation about to be posted owes, if it is deferred work.
    pub(super) owed: Option<Box<Owed>>,
    /// When the sockets, being full, are to be tried again.
    pub(super) retry_at_ns: Option<u64>,
}

impl Driver {
    /// The peer at `fi_addr`.
    ///
    /// # Errors
    /// Why not.
    pub fn peer_at(&mut self, fi_addr: PeerIndex) -> Result<PeerId, Error> {
        let index = usize::try_from(fi_addr).map_err(|_| Error::Invalid)?;
        if let Some(Some(peer)) = self.peers.get(index) {
            return Ok(*peer);
        }
        if let Some(peer) = self.contexts.get(&fi_addr) {
            return Ok(*peer);
        }
        let Some(name) = self.av.addr(fi_addr) else {
            tracing::info!(fi_addr, "no such address in the AV");
            return Err(Error::Invalid);
        };
        let peer = match self.engine.peer(monotonic_ns(), name, &mut self.host) {
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

    /// An address left the AV, or moved there. Its session goes on: the peer may know us still.
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

    /// One step; whether something had arrived.
    pub fn progress(&mut self) -> bool {
        let mut now = monotonic_ns();
        let (mut drained, mut arrived) = (false, false);
        for _ in 0..ROUNDS {
            let (taken, everywhere) = self.receive(&mut now);
            if taken == 0 {
                drained = everywhere;
                break;
            }
            arrived = true;
            self.settle();
            self.transmit(now, true);
            // The application waits for what has completed; the rest can follow.
            if self.host.has_completions() {
                break;
            }
            now = monotonic_ns();
        }
        let late_ns = if drained { 0 } else { LATE_NS };
        if self.engine.poll_timeout().is_some_and(|at| at + late_ns <= now) {
            self.engine.handle_timeout(now, &mut self.host);
            self.look_for_errors(now);
        }
        self.read_inbox(now);
        self.feed();
        if self.host.settling.has_waited() {
            now = monotonic_ns();
        }
        self.settle();
        self.transmit(now, true);
        self.publish();
        arrived
    }

    /// Takes a bounded number of arrivals, and says whether it looked everywhere. Brings `now` up to when
    /// they were read: how long they had waited is reckoned from then. With an earlier time what
    /// came while this thread was not scheduled would seem to have come before it was sent.
    fn receive(&mut self, now: &mut u64) -> (usize, bool) {
        let over_verbs = self.receive_verbs(now);
        if !self.link.uses_verbs() {
            self.engine.set_ack_spacing(0);
            return (over_verbs + self.receive_udp(now), true);
        }
        self.engine.set_ack_spacing(self.link.ack_spacing_ns());
        // What came over verbs is answered first.
        let busy_ns = if over_verbs > 0 { UDP_EVERY_MAX_NS } else { 0 };
        if *now < self.udp_due_ns + busy_ns {
            return (over_verbs, false);
        }
        let begun = monotonic_ns();
        let over_udp = self.receive_udp(now);
        let ended = monotonic_ns();
        let pause_ns = if over_udp == 0 { UDP_PATIENCE * (ended - begun) } else { 0 };
        self.udp_due_ns = ended + pause_ns.clamp(UDP_EVERY_NS, UDP_EVERY_MAX_NS);
        (over_verbs + over_udp, true)
    }

    fn receive_udp(&mut self, now: &mut u64) -> usize {
        let mut datagrams = 0;
        for _ in 0..RECV_BATCH {
            let Some(lease) = self.guess.make(&self.engine, &self.host) else {
                datagrams += self.receive_batch(now);
                break;
            };
            match self.receive_guessed(now, &lease) {
                0 => break,
                more => datagrams += more,
            }
        }
        datagrams + self.receive_info(*now)
    }

    fn receive_verbs(&mut self, now: &mut u64) -> usize {
        let (engine, host) = (&mut self.engine, &mut self.host);
        self.link.recv(now, |now, data, source| {
            let from = SocketAddr::new(source.gid.ip(), 0);
            let meta = RxMeta { ecn: source.ecn, trimmed: false, hold_ns: 0, from };
            engine.handle_packet(now, &meta, data, host);
        })
    }

    fn receive_batch(&mut self, now: &mut u64) -> usize {
        let (engine, host, link) = (&mut self.engine, &mut self.host, &mut self.link);
        let mut read_at = None;
        let received = self.rx.recv(RECV_BATCH, |datagram| {
            *now = *read_at.get_or_insert_with(monotonic_ns);
            if !link.takes(datagram.data, datagram.src, *now) {
                engine.handle_packet(*now, &meta(&datagram), datagram.data, host);
            }
        });
        received.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot receive");
            0
        })
    }

    /// Looks whether what comes next is what is expected in a region. There others may look, and peers read:
    /// so nothing of anybody else's may be there, even for a moment. `None` if nothing comes.
    fn is_worth_placing(&mut self) -> Option<bool> {
        let first = self.guess.expected[0];
        let (right, bytes) =
            match self.rx.look_ahead(&self.guess.plan, |head| first.tail_bytes(head)) {
                Ok(Next::Nothing) => return None,
                Ok(Next::Planned { bytes }) => (bytes >= LOOK_WORTH_BYTES, bytes),
                Ok(Next::Other { bytes }) => (false, bytes),
                Err(error) => {
                    tracing::warn!(%error, "cannot look at what arrives");
                    (false, usize::MAX)
                }
            };
        if !right {
            self.guess.learn(Taken::default(), bytes as u64);
        }
        Some(right)
    }

    /// Takes one arrival, the expected one if the guess is right.
    fn receive_guessed(&mut self, now: &mut u64, lease: &Lease) -> usize {
        if lease.is_of_a_region() {
            match self.is_worth_placing() {
                Some(true) => {}
                Some(false) => return self.receive_batch(now),
                None => return 0,
            }
        }
        let (engine, host, link) = (&mut self.engine, &mut self.host, &mut self.link);
        let expected = &self.guess.expected;
        let (mut bytes, mut read_at) = (0, None);
        let is_expected = |place: usize, head: &[u8], tail: &[u8]| expected[place].is(head, tail);
        let take = |datagram: RxDatagram<'_>| {
            bytes += datagram.data.len() as u64;
            let meta = meta(&datagram);
            *now = *read_at.get_or_insert_with(monotonic_ns);
            match datagram.placed {
                Some(payload) => engine.handle_expected(*now, &meta, datagram.data, payload, host),
                None if link.takes(datagram.data, datagram.src, *now) => {}
                None => engine.handle_packet(*now, &meta, datagram.data, host),
            }
        };
        // Who writes to the places of a write that is under way spoils its writer's bytes alone.
        // SAFETY: the places are of buffers that the application lends until their receives
        // complete, which nobody learns before this step ends, or of a region that the lease
        // keeps open.
        let received = unsafe { self.rx.recv_planned(&self.guess.plan, is_expected, take) };
        let taken = received.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot receive");
            // A place that cannot be written to must not keep everything else from coming in.
            bytes = u64::MAX;
            Taken::default()
        });
        if lease.is_of_a_region() && taken.datagrams > 0 && !taken.placed {
            // The head was right, so a seal was broken: what landed there is memory of the writer's process
            // that is used for something else now, and is not for those who may read the region.
            // SAFETY: as above. No byte of the places has been received.
            unsafe { self.guess.plan.wipe() };
        }
        self.guess.learn(taken, bytes);
        taken.datagrams
    }

    fn receive_info(&mut self, now: u64) -> usize {
        let (engine, host) = (&mut self.engine, &mut self.host);
        let Some(path) = &mut self.info_path else { return 0 };
        let received = path.recv(|frame, from| {
            let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
            engine.handle_frame(now, &meta, frame, host)
        });
        received.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot receive from the information path");
            0
        })
    }

    /// Tells the engine what its callbacks could not answer.
    pub fn settle(&mut self) {
        if self.host.shared.is_some() {
            self.offer();
        }
        let out = &mut self.host.out;
        for message in out.releases.drain(..) {
            self.engine.release(message);
        }
        for (peer, delta) in out.watches.drain(..) {
            self.engine.watch(peer, delta);
        }
        for (peer, error) in out.ended.drain(..) {
            let name = self.engine.peer_name(peer).map(tracing::field::display);
            tracing::warn!(peer = name, ?error, "the session with a peer failed");
        }
    }

    /// Sends what is due, as far as the sockets take it. See `Engine::poll_transmit` for
    /// `flush`.
    pub(super) fn transmit(&mut self, now: u64, flush: bool) {
        // If the batches run out, more waits: the next step is due at once.
        self.retry_at_ns = Some(now);
        let mut errors_pending = false;
        for _ in 0..SEND_BATCHES {
            self.fill_batch(now, flush);
            if self.sender.is_empty() {
                self.retry_at_ns = None;
                break;
            }
            self.host.settling.sends();
            let carriers = (&*self.tx, &mut self.link);
            let outcome = self.sender.send(now, &self.host, carriers, &mut errors_pending);
            for token in std::mem::take(&mut self.sender.gone) {
                self.engine.withdraw(token, &mut self.host);
            }
            match outcome {
                // Most often the engine has no more, which it says without being asked for a burst.
                Outcome::Empty if !self.engine.has_ready() => {
                    self.retry_at_ns = None;
                    break;
                }
                Outcome::Empty | Outcome::More => {}
                Outcome::Blocked => {
                    self.retry_at_ns = Some(now + BLOCKED_RETRY_NS);
                    break;
                }
                Outcome::Refused(to, Refusal::TooBig(bytes)) => {
                    self.engine.handle_too_big(now, to, bytes);
                }
                Outcome::Refused(to, Refusal::Failed(libc::EFAULT)) => {
                    // Seen with buffers that are freed before their completion.
                    self.engine.handle_bad_buffer(to, &mut self.host);
                }
                Outcome::Refused(to, Refusal::Failed(errno)) => {
                    tracing::debug!(%to, errno, "cannot send");
                }
            }
        }
        self.link.exchange(&self.tx, now);
        if errors_pending {
            self.domain.net_errors.drain(&self.tx);
        }
    }

    /// Takes bursts from the engine as long as it may have one.
    fn fill_batch(&mut self, now: u64, flush: bool) {
        while let Some(burst) = self.sender.vacant() {
            if !self.engine.poll_transmit(now, flush, &mut self.host, burst) {
                return;
            }
            if !self.host.out.gone.is_empty() {
                // Made of memory that has gone: the engine repairs it.
                for token in std::mem::take(&mut self.host.out.gone) {
                    self.engine.withdraw(token, &mut self.host);
                }
                continue;
            }
            let (to, info_path) = (burst.to, burst.info_path);
            self.link.note(burst, now);
            let taken = info_path && self.send_info(to);
            if !taken {
                self.sender.filled();
            }
            if !self.engine.has_due() {
                return;
            }
        }
    }

    /// Sends the burst just made over the information path; false if UDP has to take it.
    fn send_info(&mut self, to: SocketAddr) -> bool {
        let Some(path) = &mut self.info_path else { return false };
        self.sender.vacant_bytes(&self.host).is_some_and(|bytes| path.send(to, bytes))
    }

    fn look_for_errors(&mut self, now: u64) {
        let every_ns = if self.link.uses_verbs() { ERROR_LOOK_VERBS_NS } else { ERROR_LOOK_NS };
        self.domain.net_errors.look(&self.tx, now, every_ns);
    }

    fn read_inbox(&mut self, now: u64) {
        for (name, error) in self.inbox.take() {
            match error {
                NetError::Unreachable(_) => self.engine.handle_unreachable(name),
                NetError::MtuChanged(mtu_bytes) => {
                    let payload = udp::max_payload_bytes(mtu_bytes, name.is_ipv6());
                    self.engine.handle_path_told(now, name, payload as u16);
                }
                NetError::Other(errno) => tracing::debug!(%name, errno, "ICMP error"),
            }
        }
    }

    /// Hands completions to the queues.
    pub fn publish(&mut self) {
        self.host.lost.clear();
        if self.host.has_completions() {
            self.publish_done();
        }
        if !self.host.parts.is_empty() {
            self.end_parts();
            self.publish_done();
        }
    }

    fn publish_done(&mut self) {
        for at in 0..self.host.rx.done.len() {
            if let (true, Some(peer)) = (self.config.source, self.host.rx.done[at].peer) {
                let source = self.source_of(peer);
                self.host.rx.done[at].entry.source = source;
                if source == NOWHERE && self.config.source_err {
                    self.tell_source(at, peer);
                }
            }
        }
        // Receives first: what a peer's end has let go is reported before its sends that fail.
        let (tx, more_tx) = (&mut self.host.tx, &mut self.host.more_tx);
        for direction in [&mut self.host.rx, tx].into_iter().chain(more_tx) {
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
            if let Some(bound) = &direction.cq {
                bound.cq.push(direction.done.drain(..).map(|done| done.entry));
            }
        }
    }

    /// Makes a completion whose source is not in the AV an error that has the address (`fi_cq(3)`).
    #[cold]
    fn tell_source(&mut self, at: usize, peer: PeerId) {
        let entry = &mut self.host.rx.done[at].entry;
        if let (None, Some(name)) = (&entry.failure, self.engine.peer_name(peer))
            && !self.av.has(name)
        {
            let cause = Cause::SourceUnknown;
            entry.failure = Some(Box::new(Failure {
                cause,
                overflow_bytes: 0,
                text: sockaddr::encode(name).as_bytes().to_vec(),
            }));
        }
    }

    /// Where a peer is in the AV.
    pub(super) fn source_of(&mut self, peer: PeerId) -> PeerIndex {
        let index = peer.index as usize;
        if let Some(Some((generation, fi_addr))) = self.sources.get(index)
            && *generation == peer.generation
        {
            return *fi_addr;
        }
        let name = self.engine.peer_name(peer);
        let fi_addr = name.map_or(NOWHERE, |name| self.av.find(name));
        // An address that is not there may be inserted later, so that is not remembered.
        if fi_addr != NOWHERE {
            if index >= self.sources.len() {
                self.sources.resize(index + 1, None);
            }
            self.sources[index] = Some((peer.generation, fi_addr));
        }
        fi_addr
    }

    /// When the next step is due even if nothing arrives; from here on the fds tell of arrivals.
    pub(super) fn deadline_ns(&mut self) -> Option<u64> {
        if self.link.arm() {
            return Some(0);
        }
        let info_path = self.info_path.as_ref().and_then(InfoPath::next_ns);
        let dues = [self.engine.poll_timeout(), self.retry_at_ns, self.link.next_ns(), info_path];
        dues.into_iter().flatten().min()
    }

    /// When the next step is due, arrivals on the fds apart; [`NEVER_NS`] for not at all. Right if
    /// [`Driver::tells`].
    pub(super) fn due_ns(&self) -> u64 {
        let host = &self.host;
        let timers = self.engine.poll_timeout().unwrap_or(NEVER_NS);
        let due_ns = timers.min(self.link.next_ns().unwrap_or(NEVER_NS));
        if let Some(retry_ns) = self.retry_at_ns {
            return due_ns.min(retry_ns);
        }
        if self.engine.has_ready() || host.has_completions() || !host.out.is_empty() {
            return 0;
        }
        // Room comes when the application reads, which nobody tells.
        if host.waits_for_room() { due_ns.min(monotonic_ns() + ROOM_LOOK_NS) } else { due_ns }
    }

    /// Nothing is to be done but at [`Driver::due_ns`] and when an fd tells of an arrival.
    pub(super) fn tells(&self) -> bool {
        !self.link.has_verbs() && !self.rx.has_faults() && self.host.peer.is_none()
    }

    /// Hands the fds that tell of arrivals to `f`.
    pub(super) fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>)) {
        f(self.rx.fd());
        if let Some(member) = self.link.member() {
            f(member.fd());
        }
        if let Some(path) = &self.info_path {
            f(path.fd());
        }
    }
}

/// Why a post was refused.
pub(super) fn refusal(error: PostError) -> Error {
    match error {
        PostError::Full => Error::Again,
        PostError::UnknownPeer => Error::Invalid,
        PostError::Closed => Error::State,
        PostError::TableFull => Error::NoMemory,
        PostError::Operand => Error::TooLong,
    }
}

fn meta(datagram: &RxDatagram<'_>) -> RxMeta {
    RxMeta { ecn: datagram.ecn, trimmed: false, hold_ns: datagram.hold_ns, from: datagram.src }
}
