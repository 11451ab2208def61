//! The engine's boundary: one endpoint and its peers.
//!
//! Calls in: [`Endpoint::send`], [`Endpoint::accept`], [`Endpoint::release`] (commands),
//! [`Endpoint::handle_packet`], [`Endpoint::handle_timeout`] (events). Calls out:
//! [`Endpoint::poll_transmit`], [`Endpoint::poll_timeout`]. After any call in, the driver polls
//! the calls out. Time never goes backwards. No call blocks or re-enters; each does work bounded
//! by its input, and `handle_timeout` by [`TIMERS_PER_CALL`].

mod expect;
mod lanes;
mod places;
mod proven;
mod receive;
mod renewal;
mod replies;
mod rma;
mod room;
mod schedule;

use crate::cc::Scheme;
use crate::config::{Config, ConfigError, Near};
use crate::host::{EndReason, Host, MsgRef, OpError, RecvToken};
use crate::peer::{Core, FlowView, Op, Peer, Phase, Role};
use crate::stats::Stats;
use crate::transmit::TxBurst;
use crate::units::{KeyIndex, Nanos, PeerAddress, PeerId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::SocketAddr;
use replies::Replies;
use room::Room;
use schedule::{Peers, Schedule};
use slab::Slab;

pub use crate::arrival::RxMeta;
pub use crate::host::WorkRequest;
pub use expect::Expected;
pub use lanes::EntryFate;
pub use rma::{Rma, RmaRequest};
pub use schedule::TIMERS_PER_CALL;

/// Reason for refusing a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// `Config::sends_max` operations are outstanding; progress, then retry.
    #[error("all send slots are in use")]
    Full,
    /// The peer is not (or no longer) known.
    #[error("unknown peer")]
    UnknownPeer,
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    Closed,
    /// The endpoint has no key in that place.
    #[error("the endpoint has no such key")]
    NoKey,
    /// `Config::peers_max` peers are known.
    #[error("the peer table is full")]
    TableFull,
    /// An atomic request names more than [`ATOMIC_MAX_BYTES`](crate::wire::remote::ATOMIC_MAX_BYTES) of memory, or its
    /// operand is empty, or not as long as that (twice as long with a comparand).
    #[error("an atomic request takes at most 512 bytes of memory, and an operand as long")]
    Operand,
}

/// One reliable-datagram endpoint.
pub struct Endpoint {
    core: Core,
    peers: Peers,
    names: BTreeMap<PeerAddress, u32>,
    schedule: Schedule,
    replies: Replies,
    generation: u32,
    room: Room,
    closed: bool,
    /// Time at which the keys before the newest lose their validity, if there are any.
    overlap_ends: Option<Nanos>,
}

impl Endpoint {
    /// An endpoint with no peers. `seed` is all the randomness it ever gets. Take it from the operating system where
    /// nobody may guess session ids.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is out of range.
    pub fn new(
        config: Config,
        scheme: Box<dyn Scheme>,
        seed: u64,
    ) -> Result<Endpoint, ConfigError> {
        config.check()?;
        Ok(Endpoint {
            core: Core::new(config, scheme, seed),
            peers: Slab::new(),
            names: BTreeMap::new(),
            schedule: Schedule::default(),
            replies: Replies::default(),
            generation: 0,
            room: Room::default(),
            closed: false,
            overlap_ends: None,
        })
    }

    /// From here on sessions with peers on this host ([`Host::is_near`]) use these settings.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is out of range.
    pub fn set_near(&mut self, near: Near) -> Result<(), ConfigError> {
        near.check()?;
        self.core.near = Some(near);
        Ok(())
    }

    /// Finds or makes the entry of a peer, and keeps it until [`Endpoint::let_go`] was called as
    /// often as this. Sends nothing. A name alone stands for the peer with the first key, or without one.
    ///
    /// # Errors
    /// [`PostError::TableFull`], [`PostError::Closed`], [`PostError::NoKey`].
    pub fn peer<H: Host>(
        &mut self,
        now: Nanos,
        address: impl Into<PeerAddress>,
        host: &mut H,
    ) -> Result<PeerId, PostError> {
        let address = address.into();
        if self.closed {
            return Err(PostError::Closed);
        }
        let has_key = match self.core.is_keyed() {
            true => self.core.key(address.key).is_some(),
            false => address.key == KeyIndex::default(),
        };
        if !has_key {
            return Err(PostError::NoKey);
        }
        let index = self.peer_index(now, address, host).ok_or(PostError::TableFull)?;
        let peer = &mut self.peers[index as usize];
        if peer.kept == 0 {
            self.room.left(address.name);
        }
        peer.kept = peer.kept.saturating_add(1);
        if peer.session.phase() == Phase::Leaving {
            // The endpoint was ending it to make room: a new post opens another session.
            peer.end(&mut self.core, host, EndReason::Failed(OpError::Canceled));
            self.schedule.reschedule(&self.core, peer);
        }
        Ok(peer.id)
    }

    /// Drops the driver's reference to a peer. Its session goes on, since the peer may still need it. When the endpoint
    /// needs room and nothing is under way, it says goodbye and drops the entry. Until then, and after another
    /// [`Endpoint::peer`], the peer's number stays the same. Ignores unknown peers.
    pub fn let_go(&mut self, peer: PeerId) {
        if self.known(peer).is_some() {
            let peer = &mut self.peers[peer.index as usize];
            if peer.kept == 1 {
                self.room.came(peer.name);
            }
            peer.kept = peer.kept.saturating_sub(1);
        }
    }

    fn known(&self, peer: PeerId) -> Option<&Peer> {
        self.peers.get(peer.index as usize).map(Box::as_ref).filter(|p| p.id == peer)
    }

    /// Places of the table of peers, [`Config::peers_max`] at most.
    #[must_use]
    pub fn peer_places(&self) -> usize {
        self.peers.capacity()
    }

    /// The peer in a place of the table, with or without a session. Each peer has a place below
    /// [`Endpoint::peer_places`], even without any send to it.
    #[must_use]
    pub fn peer_at(&self, place: usize) -> Option<PeerId> {
        self.peers.get(place).map(|peer| peer.id)
    }

    /// The peer's name.
    #[must_use]
    pub fn peer_name(&self, peer: PeerId) -> Option<SocketAddr> {
        self.known(peer).map(|p| p.name)
    }

    /// The peer's name and key.
    #[must_use]
    pub fn peer_address(&self, peer: PeerId) -> Option<PeerAddress> {
        self.known(peer).map(Peer::address)
    }

    /// The peers of a name, one for each key.
    fn peers_of(&self, name: SocketAddr) -> Vec<usize> {
        let found = self.names.range(PeerAddress::all_of(name));
        found.map(|(_, index)| *index as usize).collect()
    }

    /// Ends the session with a peer and forgets it; its sends fail with [`OpError::Canceled`]. Ignores unknown peers.
    pub fn forget<H: Host>(&mut self, peer: PeerId, host: &mut H) {
        if self.known(peer).is_none() {
            return;
        }
        let mut gone = self.peers.remove(peer.index as usize);
        gone.end(&mut self.core, host, EndReason::Failed(OpError::Canceled));
        if gone.kept == 0 {
            self.room.left(gone.name);
        }
        self.lost(&mut gone);
    }

    /// Queues a message. It goes out with the next [`Endpoint::poll_transmit`].
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn send(&mut self, now: Nanos, wr: WorkRequest) -> Result<(), PostError> {
        self.check_post(wr.peer)?;
        let op = Op {
            tag: wr.tag,
            data: wr.data,
            match_notice: wr.match_complete,
            awaited: wr.awaited,
            delivery: wr.delivery,
            fence: wr.fence,
            ..Op::new(wr.token, wr.peer.index, wr.len_bytes, Role::Message)
        };
        self.post(now, wr.peer, op);
        Ok(())
    }

    fn check_post(&self, peer: PeerId) -> Result<(), PostError> {
        if self.closed {
            return Err(PostError::Closed);
        }
        if self.known(peer).is_none() {
            return Err(PostError::UnknownPeer);
        }
        match self.outstanding_sends() >= self.core.cfg.sends_max as usize {
            true => Err(PostError::Full),
            false => Ok(()),
        }
    }

    fn post(&mut self, now: Nanos, peer: PeerId, op: Op) {
        let len_bytes = op.len_bytes;
        let index = self.core.ops.insert(op);
        let peer = &mut self.peers[peer.index as usize];
        peer.post(now, index as u32, len_bytes, self.core.cfg.eager_bytes);
        self.core.queued += 1;
        // The messages before it wait for a flush, and this one makes nothing due either.
        if !peer.waits_for_flush || peer.bundle_due(&self.core, false) {
            self.schedule.ready(peer);
        }
    }

    /// Gives an unexpected rendezvous message its buffer. False when its session ended meanwhile:
    /// the message is void and `to` stays the driver's.
    pub fn accept<H: Host>(
        &mut self,
        msg: MsgRef,
        to: RecvToken,
        capacity_bytes: u64,
        host: &mut H,
    ) -> bool {
        let Some(peer) = live(&mut self.peers, msg) else { return false };
        let accepted = peer.accept(&mut self.core, host, msg.order.0, to, capacity_bytes);
        self.schedule.ready(peer);
        accepted
    }

    /// Releases an unexpected eager message that was consumed, or an unexpected rendezvous that nobody wants (its
    /// sender sees success).
    pub fn release(&mut self, msg: MsgRef) {
        match of_session(&mut self.peers, msg) {
            Some(peer) => {
                peer.release(&mut self.core, msg.order, msg.credit_bytes);
                self.schedule.ready(peer);
            }
            None => self.core.budget.release(msg.session, msg.credit_bytes),
        }
    }

    /// Adds `delta` to the number of directed receives that wait for a peer. While it is above zero, the engine watches
    /// the liveness of the open session.
    pub fn watch(&mut self, peer: PeerId, delta: i32) {
        if self.known(peer).is_some() {
            let entry = &mut self.peers[peer.index as usize];
            entry.watched = entry.watched.saturating_add_signed(delta);
            self.schedule.reschedule(&self.core, entry);
        }
    }

    /// ICMP reported that nothing listens at `name`. Nobody can prove that: with a key it counts for nothing.
    pub fn handle_unreachable(&mut self, name: SocketAddr) {
        if self.core.is_keyed() {
            return;
        }
        for index in self.peers_of(name) {
            self.peers[index].live.refuse();
        }
    }

    /// The payload of a send to `name` could not be read. A receiver cannot learn that a message it has in part is
    /// void, so the session ends (protocol.md §3.3).
    pub fn handle_bad_buffer<H: Host>(&mut self, name: SocketAddr, host: &mut H) {
        for index in self.peers_of(name) {
            let peer = &mut self.peers[index];
            peer.end(&mut self.core, host, EndReason::Failed(OpError::BadBuffer));
            self.schedule.reschedule(&self.core, peer);
        }
    }

    /// Peers that send data: each has its share of the receive buffer.
    pub fn active_senders(&self, now: Nanos) -> u32 {
        self.core.inbound.senders(now)
    }

    /// Sets the receive buffering below the engine, of which peers hear with their next acknowledgements.
    pub fn set_recv_buffer_bytes(&mut self, bytes: u32) {
        self.core.cfg.recv_buffer_bytes = bytes;
    }

    /// Sets the least spacing of unrequested acknowledgements of a stream, never more than 4 in a round trip, for ports
    /// on which a datagram costs the host much time. 0 at first.
    pub fn set_ack_spacing(&mut self, spacing_ns: Nanos) {
        self.core.ack_spacing_ns = spacing_ns;
    }

    /// Starts congestion control again towards each peer, as if its session had just been opened. A simulator measures from
    /// then on.
    pub fn renew_control(&mut self, now: Nanos) {
        self.peers.iter_mut().for_each(|(_, peer)| peer.renew_control(&mut self.core, now));
    }

    /// ICMP reported that the path to `name` carries datagrams of at most `datagram_bytes`. The engine tests that
    /// before it believes it.
    pub fn handle_path_told(&mut self, now: Nanos, name: SocketAddr, datagram_bytes: u16) {
        for index in self.peers_of(name) {
            let peer = &mut self.peers[index];
            peer.on_path_told(now, datagram_bytes);
            self.schedule.ready(peer);
        }
    }

    /// This host's kernel did not send a datagram to `name`, since the link carries at most
    /// `datagram_bytes`.
    pub fn handle_too_big(&mut self, now: Nanos, name: SocketAddr, datagram_bytes: u16) {
        for index in self.peers_of(name) {
            let peer = &mut self.peers[index];
            peer.on_too_big(now, datagram_bytes);
            self.schedule.ready(peer);
        }
    }

    /// Notes a flush at `now` that asked for no burst, since nothing was ready or the port had no room.
    pub fn note_flush(&mut self, now: Nanos) {
        self.core.looked_at = now;
    }

    /// Fills `burst` with the next datagrams to send; false when nothing is due.
    ///
    /// With `flush` false (after a post) it sends only small messages when nothing is in flight to their peer, and full
    /// datagrams. With `flush` true (from progress) it sends queued messages too.
    pub fn poll_transmit<H: Host>(
        &mut self,
        now: Nanos,
        flush: bool,
        host: &mut H,
        burst: &mut TxBurst,
    ) -> bool {
        burst.clear();
        if self.replies.emit_next(&mut self.core, now, burst, host) {
            return true;
        }
        if flush {
            self.note_flush(now);
            self.schedule.flush(&mut self.peers);
        }
        for _ in 0..self.schedule.ready_len() {
            let Some(peer) = self.schedule.pop_ready(&mut self.peers) else { break };
            let sent = peer.transmit(&mut self.core, host, now, flush, burst);
            self.schedule.reschedule(&self.core, peer);
            if sent {
                burst.key = peer.id.key;
                match peer.may_have_more(now) {
                    true => self.schedule.ready(peer),
                    false => self.schedule.rest(peer),
                }
                return true;
            }
            if !flush && peer.has_queued() {
                self.schedule.wait_for_flush(peer);
            }
        }
        false
    }

    /// True if [`Endpoint::poll_transmit`] with `flush` may have something to send without a further event.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.replies.is_empty() || self.schedule.has_ready()
    }

    /// True if [`Endpoint::poll_transmit`] without `flush` may have something to send.
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.replies.is_empty() || self.schedule.has_due()
    }

    /// True if a posted operation has not been in a datagram yet. It waits for a call of [`Endpoint::poll_transmit`]
    /// with `flush`, or for an arrival.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.core.queued > 0
    }

    /// Runs timers that are due. Drain the port first: an answer may be waiting there.
    pub fn handle_timeout<H: Host>(&mut self, now: Nanos, host: &mut H) {
        self.core.now = now;
        self.check_overlap(now, host);
        for _ in 0..TIMERS_PER_CALL {
            let Some(index) = self.schedule.pop_due(now, &mut self.peers) else { break };
            let peer = &mut self.peers[index as usize];
            peer.on_timer(&mut self.core, host, now);
            self.schedule.ready(peer);
            self.schedule.reschedule_after(&self.core, peer, now);
        }
        self.schedule.compact(&self.core, &mut self.peers);
    }

    /// Time of the next call of [`Endpoint::handle_timeout`]; may lie in the past.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.schedule.next().into_iter().chain(self.overlap_ends).min()
    }

    /// [`Endpoint::poll_timeout`] without wake-ups that are due and would do nothing: a timer that was
    /// stopped, or put off, leaves one.
    pub fn poll_true_timeout(&mut self, now: Nanos) -> Option<Nanos> {
        self.schedule.correct(&self.core, now, &mut self.peers);
        self.poll_timeout()
    }

    /// Number of sends that have not ended.
    #[must_use]
    pub fn outstanding_sends(&self) -> usize {
        self.core.ops.len() - self.core.silent
    }

    /// Number of known peers.
    #[must_use]
    pub fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// Says goodbye to every open session. Outstanding sends fail with [`OpError::Canceled`]; the endpoint takes no
    /// more posts.
    pub fn close<H: Host>(&mut self, now: Nanos, host: &mut H) {
        self.closed = true;
        for (_, peer) in &mut self.peers {
            peer.leave(&mut self.core, host, now);
            self.schedule.ready(peer);
        }
    }

    /// True if peers wait for answers to requests met here, or for match notices. Closing now would fail their
    /// operations though they were done.
    #[must_use]
    pub fn owes_answers(&self) -> bool {
        self.peers.iter().any(|(_, p)| p.owes_answers())
    }

    /// True once every goodbye was confirmed or given up.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed && self.peers.iter().all(|(_, p)| p.session.phase() == Phase::Idle)
    }

    /// A snapshot of the flow towards a peer; `None` without a session. Cheap at any time.
    #[must_use]
    pub fn flow(&self, peer: PeerId) -> Option<FlowView> {
        self.known(peer).filter(|p| p.session.is_open()).map(Peer::flow)
    }

    /// True if the session with a peer is open, and no probe of it waits for an answer: a message posted now will most
    /// likely be delivered.
    #[must_use]
    pub fn answers(&self, peer: PeerId) -> bool {
        self.known(peer).is_some_and(|p| p.session.is_open() && p.live.is_answering())
    }

    /// KiB sent to a peer on each path since the flow was last idle; empty when it is.
    pub fn path_kib(&self, peer: PeerId) -> impl Iterator<Item = u32> {
        self.known(peer).into_iter().flat_map(|p| p.path_kib())
    }

    /// Part of [`Config::unexpected_bytes`] that is lent to peers or in use.
    #[must_use]
    pub fn lent_bytes(&self) -> u64 {
        self.core.budget.taken_bytes()
    }

    /// Checks the invariants of each peer between two calls. For tests: it reads all state.
    ///
    /// # Panics
    /// If an invariant is broken, which is a bug of the engine.
    pub fn check(&self) {
        self.peers.iter().for_each(|(_, peer)| peer.check(&self.core));
        let resting = self.peers.iter().filter(|(_, peer)| peer.ready && peer.rests).count();
        assert_eq!(self.schedule.resting(), resting, "who rests keeps its turn");
        let queued: usize = self.peers.iter().map(|(_, peer)| peer.queued()).sum();
        assert_eq!(self.core.queued, queued, "what is queued is in a queue");
        let on_network = self.peers.iter().filter(|(_, peer)| peer.is_on_network()).count();
        assert_eq!(self.core.on_network, on_network, "those on the network are counted");
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }
}

/// The peer of a message whose session is open.
fn live(peers: &mut Peers, msg: MsgRef) -> Option<&mut Peer> {
    of_session(peers, msg).filter(|p| p.session.is_open())
}

/// The peer of a message whose session has not ended; it may be ending.
fn of_session(peers: &mut Peers, msg: MsgRef) -> Option<&mut Peer> {
    peers.get_mut(msg.peer.index as usize).map(Box::as_mut).filter(|p| {
        p.id == msg.peer && p.session.number() == msg.session && p.session.phase() != Phase::Idle
    })
}
