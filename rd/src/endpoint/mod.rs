//! The engine's boundary: one endpoint and its peers.
//!
//! Calls in: [`Endpoint::send`], [`Endpoint::accept`], [`Endpoint::release`] (commands),
//! [`Endpoint::handle_packet`], [`Endpoint::handle_timeout`] (events). Calls out:
//! [`Endpoint::poll_transmit`], [`Endpoint::poll_timeout`]. After any call in, the driver polls
//! the calls out. Time never goes backwards. No call blocks or re-enters; each does work bounded
//! by its input, and `handle_timeout` by [`TIMERS_PER_CALL`].

mod expect;
mod places;
mod receive;
mod replies;
mod rma;
mod room;
mod schedule;

use crate::cc::Scheme;
use crate::config::{Config, ConfigError, Near};
use crate::host::{EndReason, Host, MsgRef, OpError, RecvToken, SendToken};
use crate::peer::{Core, FlowView, Op, Peer, Phase, Role};
use crate::stats::Stats;
use crate::transmit::TxBurst;
use crate::units::{Nanos, PeerId};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::net::SocketAddr;
use replies::Replies;
use room::Room;
use schedule::{Peers, Schedule};
use slab::Slab;

pub use crate::arrival::RxMeta;
pub use expect::Expected;
pub use rma::{Rma, RmaRequest};
pub use schedule::TIMERS_PER_CALL;

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkRequest {
    /// To whom.
    pub peer: PeerId,
    /// The driver's name for the operation.
    pub token: SendToken,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Tag, or `None` for an untagged message.
    pub tag: Option<u64>,
    /// Remote completion data.
    pub data: Option<u64>,
    /// [`Host::sent`] is called only after the peer matched the message.
    pub match_complete: bool,
    /// The application waits for [`Host::sent`].
    pub awaited: bool,
    /// It goes out only when everything before it to the same peer has ended.
    pub fence: bool,
}

/// Why a post was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PostError {
    /// As many operations are outstanding as `Config::sends_max` allows; progress, then retry.
    #[error("all send slots are in use")]
    Full,
    /// The peer is not (or no longer) known.
    #[error("unknown peer")]
    UnknownPeer,
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    Closed,
    /// As many peers are known as `Config::peers_max` allows.
    #[error("the peer table is full")]
    TableFull,
    /// An atomic request names more than [`ATOMIC_MAX_BYTES`](crate::wire::remote::ATOMIC_MAX_BYTES)
    /// of memory, or its operand is not as long as that (twice as long with a comparand) or empty.
    #[error("an atomic request takes at most 512 bytes of memory, and an operand as long")]
    Operand,
}

/// One reliable-datagram endpoint.
pub struct Endpoint {
    core: Core,
    peers: Peers,
    names: BTreeMap<SocketAddr, u32>,
    schedule: Schedule,
    replies: Replies,
    generation: u32,
    room: Room,
    closed: bool,
}

impl Endpoint {
    /// An endpoint with no peers. `seed` is all the randomness it ever gets; take it from the
    /// operating system where session ids must not be guessed.
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
        })
    }

    /// From here on sessions with peers on this host ([`Host::is_near`]) have other terms.
    ///
    /// # Errors
    /// [`ConfigError`] names what is out of range.
    pub fn set_near(&mut self, near: Near) -> Result<(), ConfigError> {
        near.check()?;
        self.core.near = Some(near);
        Ok(())
    }

    /// Finds or makes the entry of a peer, and keeps it until [`Endpoint::let_go`] was called as
    /// often as this. Sends nothing.
    ///
    /// # Errors
    /// [`PostError::TableFull`], [`PostError::Closed`].
    pub fn peer<H: Host>(
        &mut self,
        now: Nanos,
        name: SocketAddr,
        host: &mut H,
    ) -> Result<PeerId, PostError> {
        if self.closed {
            return Err(PostError::Closed);
        }
        let index = self.peer_index(now, name, host).ok_or(PostError::TableFull)?;
        let peer = &mut self.peers[index as usize];
        if peer.kept == 0 {
            self.room.left(name);
        }
        peer.kept = peer.kept.saturating_add(1);
        if peer.session.phase() == Phase::Leaving {
            // It was to make room: what is posted now opens another session.
            peer.end(&mut self.core, host, EndReason::Failed(OpError::Canceled));
            self.schedule.reschedule(&self.core, peer);
        }
        Ok(peer.id)
    }

    /// The driver has no use for a peer any more. Its session goes on, for the peer may have; its
    /// entry goes when room is needed and nothing is under way, after a goodbye. Until then, and
    /// after another [`Endpoint::peer`], its number stays the same. Unknown peers are ignored.
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

    /// The peer in a place of the table, with or without a session: each peer is in one of the places
    /// below [`Endpoint::peer_places`], also one that was never sent to.
    #[must_use]
    pub fn peer_at(&self, place: usize) -> Option<PeerId> {
        self.peers.get(place).map(|peer| peer.id)
    }

    /// The peer's name.
    #[must_use]
    pub fn peer_name(&self, peer: PeerId) -> Option<SocketAddr> {
        self.known(peer).map(|p| p.name)
    }

    /// Ends the session with a peer and forgets it; its sends fail with
    /// [`OpError::Canceled`]. Unknown peers are ignored.
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
        // Those before it wait for a flush, and this one makes nothing due either.
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

    /// An unexpected eager message was consumed, or an unexpected rendezvous is not wanted (its
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

    /// Adds `delta` to the number of directed receives that wait for a peer. While it is above
    /// zero the open session's liveness is watched.
    pub fn watch(&mut self, peer: PeerId, delta: i32) {
        if self.known(peer).is_some() {
            let entry = &mut self.peers[peer.index as usize];
            entry.watched = entry.watched.saturating_add_signed(delta);
            self.schedule.reschedule(&self.core, entry);
        }
    }

    /// ICMP told that nothing listens at `name`.
    pub fn handle_unreachable(&mut self, name: SocketAddr) {
        if let Some(&index) = self.names.get(&name) {
            self.peers[index as usize].live.refuse();
        }
    }

    /// The payload of a send to `name` could not be read. There is no telling a receiver that a
    /// message it has in part is void, so the session ends (protocol.md §3.3).
    pub fn handle_bad_buffer<H: Host>(&mut self, name: SocketAddr, host: &mut H) {
        if let Some(&index) = self.names.get(&name) {
            let peer = &mut self.peers[index as usize];
            peer.end(&mut self.core, host, EndReason::Failed(OpError::BadBuffer));
            self.schedule.reschedule(&self.core, peer);
        }
    }

    /// Acknowledgements of a stream's packets that nobody asked for go out no more often than this, or
    /// than 4 in a round trip: for ports on which a datagram takes the host long. 0 at first.
    pub fn set_ack_spacing(&mut self, spacing_ns: Nanos) {
        self.core.ack_spacing_ns = spacing_ns;
    }

    /// ICMP told that the path to `name` carries datagrams of at most `datagram_bytes`. That is
    /// tried before it is believed.
    pub fn handle_path_told(&mut self, now: Nanos, name: SocketAddr, datagram_bytes: u16) {
        if let Some(&index) = self.names.get(&name) {
            let peer = &mut self.peers[index as usize];
            peer.on_path_told(now, datagram_bytes);
            self.schedule.ready(peer);
        }
    }

    /// This host's kernel did not send a datagram to `name`, since the link carries at most
    /// `datagram_bytes`.
    pub fn handle_too_big(&mut self, now: Nanos, name: SocketAddr, datagram_bytes: u16) {
        if let Some(&index) = self.names.get(&name) {
            let peer = &mut self.peers[index as usize];
            peer.on_too_big(now, datagram_bytes);
            self.schedule.ready(peer);
        }
    }

    /// Fills `burst` with the next datagrams to send; false when nothing is due.
    ///
    /// With `flush` false (after a post) only what should go at once is sent: small messages
    /// when nothing is in flight to their peer, or full datagrams. With `flush` true (from
    /// progress) what queued up goes too.
    pub fn poll_transmit<H: Host>(
        &mut self,
        now: Nanos,
        flush: bool,
        host: &mut H,
        burst: &mut TxBurst,
    ) -> bool {
        burst.clear();
        if self.replies.emit_next(&mut self.core, now, burst) {
            return true;
        }
        if flush {
            self.core.looked_at = now;
            self.schedule.flush(&mut self.peers);
        }
        for _ in 0..self.schedule.ready_len() {
            let Some(index) = self.schedule.pop_ready() else { break };
            let Some(peer) = self.peers.get_mut(index as usize) else { continue };
            self.schedule.left(peer);
            let sent = peer.transmit(&mut self.core, host, now, flush, burst);
            self.schedule.reschedule(&self.core, peer);
            if sent {
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

    /// [`Endpoint::poll_transmit`] with `flush` may have something to send without a further event.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.replies.is_empty() || self.schedule.has_ready()
    }

    /// [`Endpoint::poll_transmit`] without `flush` may have something to send.
    #[must_use]
    pub fn has_due(&self) -> bool {
        !self.replies.is_empty() || self.schedule.has_due()
    }

    /// Something was posted that has not been in a datagram yet. It waits for a call of
    /// [`Endpoint::poll_transmit`] with `flush`, or for an arrival.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.core.queued > 0
    }

    /// Runs timers that are due. Drain the port first: an answer may be waiting there.
    pub fn handle_timeout<H: Host>(&mut self, now: Nanos, host: &mut H) {
        self.core.now = now;
        for _ in 0..TIMERS_PER_CALL {
            let Some(index) = self.schedule.pop_due(now, &mut self.peers) else { break };
            let peer = &mut self.peers[index as usize];
            peer.on_timer(&mut self.core, host, now);
            self.schedule.ready(peer);
            self.schedule.reschedule_after(&self.core, peer, now);
        }
        self.schedule.compact(&self.core, &mut self.peers);
    }

    /// When [`Endpoint::handle_timeout`] wants to be called; may lie in the past.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.schedule.next()
    }

    /// [`Endpoint::poll_timeout`] without wake-ups that are due and would do nothing: a timer that was
    /// stopped, or put off, leaves one.
    pub fn poll_true_timeout(&mut self, now: Nanos) -> Option<Nanos> {
        self.schedule.correct(&self.core, now, &mut self.peers);
        self.schedule.next()
    }

    /// Sends that have not ended.
    #[must_use]
    pub fn outstanding_sends(&self) -> usize {
        self.core.ops.len() - self.core.silent
    }

    /// Peers known.
    #[must_use]
    pub fn peer_count(&self) -> usize {
        self.peers.len()
    }

    /// Says goodbye to every open session. Sends that are outstanding fail with
    /// [`OpError::Canceled`]; nothing can be posted any more.
    pub fn close<H: Host>(&mut self, now: Nanos, host: &mut H) {
        self.closed = true;
        for (_, peer) in &mut self.peers {
            peer.leave(&mut self.core, host, now);
            self.schedule.ready(peer);
        }
    }

    /// Peers wait for word of requests that were met here, or of matches. Closing now would have
    /// their operations fail though they were done.
    #[must_use]
    pub fn owes_answers(&self) -> bool {
        self.peers.iter().any(|(_, p)| p.owes_answers())
    }

    /// True once every goodbye was confirmed or given up.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed && self.peers.iter().all(|(_, p)| p.session.phase() == Phase::Idle)
    }

    /// A snapshot of the flow towards a peer; `None` without a session. Cheap enough to be taken
    /// at any time.
    #[must_use]
    pub fn flow(&self, peer: PeerId) -> Option<FlowView> {
        self.known(peer).filter(|p| p.session.is_open()).map(Peer::flow)
    }

    /// The session with a peer is open, and no probe of it waits for an answer: a message that is
    /// posted now will most likely be delivered.
    #[must_use]
    pub fn answers(&self, peer: PeerId) -> bool {
        self.known(peer).is_some_and(|p| p.session.is_open() && p.live.is_answering())
    }

    /// KiB sent to a peer on each path since the flow was last idle; nothing when it is.
    pub fn path_kib(&self, peer: PeerId) -> impl Iterator<Item = u32> {
        self.known(peer).into_iter().flat_map(|p| p.path_kib())
    }

    /// Of [`Config::unexpected_bytes`], what is lent to peers or taken.
    #[must_use]
    pub fn lent_bytes(&self) -> u64 {
        self.core.budget.taken_bytes()
    }

    /// Checks what must stay true of each peer between two calls. For tests: it looks at all there is.
    ///
    /// # Panics
    /// If something is not as it must be, which is a bug of the engine.
    pub fn check(&self) {
        self.peers.iter().for_each(|(_, peer)| peer.check(&self.core));
        let resting = self.peers.iter().filter(|(_, peer)| peer.ready && peer.rests).count();
        assert_eq!(self.schedule.resting(), resting, "who rests keeps its turn");
        let queued: usize = self.peers.iter().map(|(_, peer)| peer.queued()).sum();
        assert_eq!(self.core.queued, queued, "what is queued is in a queue");
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.core.stats
    }
}

/// The peer of a message whose session still stands.
fn live(peers: &mut Peers, msg: MsgRef) -> Option<&mut Peer> {
    of_session(peers, msg).filter(|p| p.session.is_open())
}

/// The peer of a message whose session has not ended, though it may be about to.
fn of_session(peers: &mut Peers, msg: MsgRef) -> Option<&mut Peer> {
    peers.get_mut(msg.peer.index as usize).map(Box::as_mut).filter(|p| {
        p.id == msg.peer && p.session.number() == msg.session && p.session.phase() != Phase::Idle
    })
}
