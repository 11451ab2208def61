//! One peer: its session, its transmit and receive flows, its timers.
//!
//! `Peer` joins parts that own their fields:
//!
//! - `session.rs`: the session's ids and state; `liveness.rs`: whether the peer answers; `tail.rs`: when to ask for the last
//!   packets
//! - `sending.rs`: the sending side (`outbox.rs`: the queues; `transfers.rs`: which payload goes next; `flight.rs`:
//!   unacknowledged packets; `steering.rs`: how many bytes may be in flight, and on which path)
//! - `acks.rs` with `received.rs` and `needless.rs`: acknowledgements; `answers.rs`: their paths; `path_size.rs`: the datagram size of the
//!   path
//! - `proofs.rs` with `replay.rs`: the keys of the session's packets; `telling.rs`: when the peer is told of a new one
//! - `senders.rs`: how many peers send, and share the receive buffer
//! - `rx.rs`: messages of the peer; `requester.rs`, `responder.rs`: requests to its memory, and to ours
//!
//! No part knows `Peer`, which hands each its inputs and passes on its results. Each part has a check of its
//! invariants, which the tests call between two calls of the endpoint.
//!
//! The other files join them: `handshake.rs` sets up and ends, `next_packet.rs` chooses the next packet, `tx.rs`,
//! `fill.rs` and `writing.rs` make packets. `recovery.rs` takes acknowledgements, `endings.rs` completes
//! operations, `timers.rs` watches the clock, `renewal.rs` changes the key, `idle.rs` tells what is under way. `remote.rs` and `rx/requests.rs` make and meet requests.

mod ack;
mod acks;
mod answers;
#[cfg(test)]
mod bounds;
mod bundle;
mod control;
mod endings;
mod fill;
mod flight;
mod flow;
mod handshake;
mod host_delay;
mod idle;
mod inbound;
mod lane;
mod lane_side;
mod liveness;
mod needless;
mod next_packet;
mod op;
mod outbox;
mod path_order;
mod path_size;
mod paths;
mod payload;
mod proofs;
mod rare;
mod received;
mod record;
mod recovery;
mod remote;
mod renewal;
mod replay;
mod requester;
mod responder;
mod restraint;
mod rtt;
mod rx;
mod senders;
mod sending;
mod session;
mod shared;
mod sizing;
mod steering;
mod tail;
mod telling;
mod timers;
mod transfers;
mod tx;
mod writing;
mod wrong_keys;

pub(crate) use control::{Proof, emit_control, unprove};
pub use flow::{FlowView, Repeated};
pub(crate) use handshake::Challenged;
pub(crate) use lane_side::Stand;
pub(crate) use op::{Asked, Op, Role, Task};
pub(crate) use path_size::PathSize;
use proofs::Proofs;
pub use rx::{MESSAGE_COST_BYTES, ORDERS_LEAST};
pub(crate) use rx::{Rx, tables};
pub(crate) use session::Phase;
pub(crate) use shared::Core;

use crate::units::{Nanos, PeerAddress, PeerId};
use acks::Acks;
use alloc::boxed::Box;
use answers::Answers;
use core::net::SocketAddr;
use core::num::NonZeroU64;
use lane_side::LaneSide;
use liveness::Liveness;
use rare::Rare;
use requester::Requester;
use responder::Responder;
use senders::Round;
use sending::Sending;
use session::Session;
use tail::Tail;
use telling::Telling;

/// An endpoint may have tens of thousands of quiet peers. What they lack then has a box of its own ([`rare`]).
const _: () = assert!(size_of::<Peer>() <= 1264);

/// One peer.
pub(crate) struct Peer {
    pub id: PeerId,
    pub name: SocketAddr,
    pub session: Session,
    pub live: Liveness,
    tail: Tail,
    /// The datagram size of the path.
    pub size: PathSize,
    /// Datagram bytes of the session: a copy of the value in `size`.
    pub datagram_bytes: u16,
    /// True if the peer is on this host, and its session uses [`Near`](crate::config::Near).
    pub near: bool,
    /// Paths of the session.
    pub paths: u16,
    pub info_path: bool,
    pub payload_checksum: bool,
    /// With a key, from the opening of the session on.
    pub proofs: Option<Box<Proofs>>,
    /// While the session goes over to another key.
    telling: Option<Telling>,
    /// The next probe names the newest key.
    tells_key: bool,
    /// Path of the next hello or welcome. They have turns of their own: in step with a probe after each of them they would
    /// take every other path alone, and those may all be dead.
    pub greeting_path: u16,
    /// Path of the next other control packet that is not an acknowledgement.
    pub control_path: u16,
    /// Directed receives waiting for this peer.
    pub watched: u32,
    /// The driver's references to this entry; 0 if a hello made it.
    pub kept: u32,
    tx: Sending,
    requester: Requester,
    responder: Responder,
    pub rx: Rx,
    acks: Acks,
    answers: Answers,
    lane: Rare<LaneSide>,
    /// The last round of [`Core::inbound`] in which it sent data.
    heard_in: Round,
    /// It counts among [`Core::on_network`].
    on_network: bool,
    /// Time of the last activity of the flows.
    pub active_at: Nanos,
    /// Time to free their memory, and later the rest of the state for flows in use.
    pub reclaim_at: Option<NonZeroU64>,
    /// Queued in the endpoint's ready list.
    pub ready: bool,
    /// It is ready without anything to send.
    pub rests: bool,
    /// Queued in the endpoint's list of those that wait for a flush.
    pub waits_for_flush: bool,
    /// Earliest entry in the endpoint's timer heap.
    pub wake_at: Nanos,
}

/// The path whose turn it is.
fn take_turn(next: &mut u16, paths: u16) -> u16 {
    let path = *next % paths;
    *next = path + 1;
    path
}

impl Peer {
    /// A peer without a session; `gave_up` is the session id of its earlier one, 0 for none.
    pub(crate) fn new(id: PeerId, name: SocketAddr, size: PathSize, gave_up: u64) -> Peer {
        Peer {
            id,
            name,
            session: Session::new(gave_up),
            live: Liveness::default(),
            tail: Tail::default(),
            size,
            datagram_bytes: 0,
            near: false,
            paths: 1,
            info_path: false,
            payload_checksum: false,
            proofs: None,
            telling: None,
            tells_key: false,
            greeting_path: 0,
            control_path: 0,
            watched: 0,
            kept: 0,
            tx: Sending::default(),
            requester: Requester::default(),
            responder: Responder::default(),
            rx: Rx::default(),
            acks: Acks::default(),
            answers: Answers::default(),
            lane: Rare::default(),
            heard_in: Round::default(),
            on_network: false,
            active_at: 0,
            reclaim_at: None,
            ready: false,
            rests: false,
            waits_for_flush: false,
            wake_at: Nanos::MAX,
        }
    }

    /// What identifies the peer.
    pub(crate) fn address(&self) -> PeerAddress {
        PeerAddress { name: self.name, key: self.id.key }
    }

    /// Path of the next hello or welcome. They take turns, since a path may be dead.
    pub(crate) fn next_greeting_path(&mut self) -> u16 {
        take_turn(&mut self.greeting_path, self.paths)
    }

    /// The same of other control packets that are no acknowledgements.
    pub(crate) fn next_control_path(&mut self) -> u16 {
        take_turn(&mut self.control_path, self.paths)
    }

    /// The path of a probe, also of one for a datagram size: that of a flow which keeps to one, because an answer on another
    /// path tells nothing about it (protocol.md §4.5).
    pub(crate) fn question_path(&mut self, now: Nanos) -> u16 {
        self.tx.steering.only_path(now).unwrap_or_else(|| self.next_control_path())
    }

    /// A snapshot of the flow towards the peer.
    pub(crate) fn flow(&self) -> FlowView {
        let (in_flight_bytes, last_heard_ns) = (self.tx.flight.bytes(), self.live.heard_at());
        if self.has_lane() {
            // What is written is the peer's.
            let sent_bytes = self.lane.sent_bytes;
            let acked_bytes = sent_bytes;
            return FlowView {
                by_lane: true,
                sent_bytes,
                acked_bytes,
                last_heard_ns,
                ..FlowView::default()
            };
        }
        FlowView { in_flight_bytes, last_heard_ns, ..self.tx.steering.view() }
    }

    /// Queues a posted message.
    pub(crate) fn post(&mut self, now: Nanos, op: u32, len_bytes: u64, eager_bytes: u32) {
        self.tx.out.post(op, len_bytes, eager_bytes);
        self.touch(now);
    }

    /// Number of posted messages that are not on the wire.
    pub(crate) fn queued(&self) -> usize {
        self.tx.out.queued()
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub(crate) fn check(&self, core: &Core) {
        // A peer that leaves has ended its operations, and sends nothing from its queues.
        self.session.check();
        let knows = matches!(self.session.phase(), Phase::Open | Phase::Leaving);
        assert_eq!(self.proofs.is_some(), knows && core.is_keyed(), "keys are a session's");
        if self.session.phase() != Phase::Leaving {
            self.tx.check(core);
            self.live.check(self.tx.flight.packets() > 0);
            self.acks.check();
            self.answers.check(self.paths);
            self.rx.check();
            self.responder.check(self.id.index, &core.ops);
            let reads = self.rx.reads();
            self.requester.check(self.id.index, &core.ops, &core.asked, reads);
        }
    }

    /// KiB sent on each path since the flow was last idle.
    pub(crate) fn path_kib(&self) -> impl Iterator<Item = u32> {
        self.tx.steering.path_kib()
    }
}
