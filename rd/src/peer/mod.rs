//! One peer: its session, its transmit and receive flows, its timers.
//!
//! `Peer` holds the state; `session.rs` sets up and ends, `tx.rs` and `bundle.rs` build packets, `rx.rs`
//! takes data, `recovery.rs` takes acknowledgements, `timers.rs` watches the clock, `remote.rs`
//! asks for a peer's memory.

mod ack;
mod bundle;
mod flow;
mod grants;
mod hosts;
mod next_packet;
mod path_size;
mod paths;
mod payload;
mod recovery;
mod remote;
mod rx;
mod session;
mod timers;
mod tx;
mod wrong_keys;

pub use flow::{FlowView, Repeated};
pub(crate) use path_size::PathSize;
pub(crate) use remote::{Asked, Role, Task};
pub(crate) use rx::{Budget, Rx, SpareGaps, tables};
pub use rx::{MESSAGE_COST_BYTES, ORDERS_LEAST};
pub(crate) use session::{Refusal, emit_control};
pub(crate) use tx::Tx;
pub(crate) use wrong_keys::WrongKeys;

use crate::cc::{Controller, Scheme};
use crate::config::{Config, Near, Seals};
use crate::host::SendToken;
use crate::mutants::{Mutant, mutant};
use crate::stats::Stats;
use crate::units::{Nanos, PeerId};
use crate::wire::record::Record;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::net::SocketAddr;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use siphasher::sip::SipHasher24;
use slab::Slab;

/// A send operation, from post to completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub token: SendToken,
    /// Index of the peer.
    pub peer: u32,
    pub len_bytes: u64,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub match_notice: bool,
    /// The application waits for its end.
    pub awaited: bool,
    /// Send order; given when the message is first put on the wire.
    pub order: u32,
    /// Packets that carry part of it and are not acknowledged.
    pub unacked: u32,
    /// Payload bytes put on the wire.
    pub sent_bytes: u64,
    /// Payload bytes to send in all: known at once for eager messages, from the CTS otherwise.
    pub wanted_bytes: Option<u64>,
    /// Links granted so far, in bytes; a CTS for less is a repetition.
    pub granted_bytes: u64,
    /// Its announcement (record or first segment) is on the wire.
    pub announced: bool,
    /// It goes out only when all before it to the same peer have ended.
    pub fence: bool,
    pub role: Role,
}

impl Op {
    pub(crate) fn is_done(&self) -> bool {
        self.announced
            && (self.unacked == 0 || mutant(Mutant::CompletesBeforeTheAck))
            && !self.match_notice
            && self.wanted_bytes == Some(self.sent_bytes)
    }
}

/// What all peers of an endpoint share.
pub(crate) struct Core {
    pub cfg: Config,
    pub scheme: Box<dyn Scheme>,
    /// What holds towards peers on this host, where that is something else.
    pub near: Option<Near>,
    pub rng: ChaCha8Rng,
    /// Of cookies and of asker ids: nobody else knows it.
    pub key: [u64; 2],
    pub stats: Stats,
    /// Bounded by `cfg.sends_max`, and by what [`remote`] says of those that are silent.
    pub ops: Slab<Op>,
    /// Operations of which the driver does not think as its sends: answers to peers, and reads of
    /// which it has heard.
    pub silent: usize,
    /// Those among `ops` that are in a peer's queue: not in any datagram yet.
    pub queued: usize,
    /// What the requests among `ops` ask for.
    pub asked: Slab<Asked>,
    /// Peers that sent data lately; they share the receive buffer.
    pub active_senders: u32,
    /// See [`crate::Endpoint::set_ack_spacing`].
    pub ack_spacing_ns: Nanos,
    /// Records of the bundle being read; bounded by a datagram.
    pub scratch: Vec<Record>,
    /// Time of the packet or timer being handled.
    pub now: Nanos,
    /// See [`wrong_keys`].
    pub wrong_keys: WrongKeys,
    /// Sessions begun, over all peers: grows within an epoch.
    pub sessions: u32,
    /// When the driver last flushed, which it does whenever it has looked for arrivals.
    pub looked_at: Nanos,
    /// What is lent of [`Config::unexpected_bytes`].
    pub budget: Budget,
    pub spare_gaps: SpareGaps,
    /// The peer whose rendezvous message got a segment last.
    pub filling: Option<u32>,
}

/// What a session begins with, which depends on where the peer is.
pub(crate) struct Terms<'a> {
    pub datagram_bytes: u16,
    pub paths: u16,
    pub link_bytes_per_s: u64,
    pub seals: Option<Seals>,
    pub scheme: &'a dyn Scheme,
}

impl Core {
    /// Of an endpoint without peers. `seed` is all the randomness it ever gets.
    pub(crate) fn new(cfg: Config, scheme: Box<dyn Scheme>, seed: u64) -> Core {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let key = [rng.next_u64(), rng.next_u64()];
        Core {
            budget: Budget::new(cfg.unexpected_bytes),
            spare_gaps: SpareGaps::default(),
            cfg,
            scheme,
            near: None,
            rng,
            key,
            stats: Stats::default(),
            ops: Slab::new(),
            silent: 0,
            queued: 0,
            asked: Slab::new(),
            active_senders: 0,
            ack_spacing_ns: 0,
            scratch: Vec::new(),
            now: 0,
            wrong_keys: WrongKeys::default(),
            sessions: 0,
            looked_at: 0,
            filling: None,
        }
    }

    /// Of peers on this host, or of others.
    pub(crate) fn terms(&self, near: bool) -> Terms<'_> {
        match self.near.as_ref().filter(|_| near) {
            Some(near) => Terms {
                datagram_bytes: near.datagram_bytes,
                paths: near.paths,
                link_bytes_per_s: near.link_bytes_per_s,
                seals: near.seals,
                scheme: &*near.scheme,
            },
            None => Terms {
                datagram_bytes: self.cfg.datagram_bytes,
                paths: self.cfg.paths,
                link_bytes_per_s: self.cfg.link_bytes_per_s,
                seals: self.cfg.seals,
                scheme: &*self.scheme,
            },
        }
    }

    /// What names us to the peer to which we are `local_session`, where strangers may read it. Only a
    /// keyed hash: the session id does not follow from it. The index of the peer is in both.
    pub(crate) fn asker_id(&self, local_session: u64) -> u64 {
        let mut hash = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hash.write_u64(local_session);
        (hash.finish() << 24) | (local_session & 0xff_ffff)
    }

    /// Bytes that one sender may have in flight towards this endpoint: its share of half the
    /// receive buffer (the other half pays for the kernel's bookkeeping), at least two datagrams.
    pub(crate) fn recv_window_bytes(&self, datagram_bytes: u16) -> u32 {
        let share = self.cfg.recv_buffer_bytes / 2 / self.active_senders.max(1);
        share.max(2 * u32::from(datagram_bytes))
    }
}

/// Where a peer's session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// No session.
    Idle,
    /// Hellos go out.
    Opening,
    /// Both sides know each other.
    Open,
    /// Goodbyes go out.
    Leaving,
}

/// The other side of an open session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Remote {
    pub session: u64,
    /// Names it in its probes and goodbyes.
    pub asker: u64,
    pub epoch: u64,
    pub incarnation: u32,
}

/// Set-up progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    pub cookie: u64,
    /// Epoch of the only process that may know our session id: the one that gave the cookie.
    pub proven_to: Option<u64>,
    /// When the peer sent the challenge that the next hello answers; 0 for none.
    pub echo: u32,
    pub tries: u32,
    /// When the next hello or goodbye is due.
    pub next_at: Option<Nanos>,
    /// A welcome is due, echoing this send time.
    pub welcome: Option<u32>,
}

/// Whether the peer still answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Liveness {
    pub last_heard: Nanos,
    /// Since when the peer owes an answer.
    pub owed_since: Option<Nanos>,
    /// Probes (or hellos) unanswered in a row.
    pub probes: u32,
    /// When the next probe is due.
    pub probe_at: Option<Nanos>,
    /// Probes to be sent now, on as many paths.
    pub probes_due: u16,
    /// ICMP said that nobody listens, since the peer was last heard.
    pub refused: u32,
}

/// Probes that fit into the deadline at least, so that bad luck alone is no death.
const PROBES_PER_DEADLINE: Nanos = 10;

/// The longest time between two probes.
fn longest_spacing_ns(cfg: &Config) -> Nanos {
    cfg.peer_timeout_ns / PROBES_PER_DEADLINE
}

/// One part in so many of a smaller deviation is taken.
const SHRINK: Nanos = 64;

/// Round-trip estimate (RFC 6298 arithmetic, without the receiver's hold time), but that the
/// deviation shrinks slowly. Hundreds of samples in a round trip may come from one poll of a
/// socket and hardly differ; at the RFC's pace they would make it forget what the next poll does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    pub smoothed_ns: Nanos,
    pub variance_ns: Nanos,
}

impl Rtt {
    pub(crate) fn sample(&mut self, rtt_ns: Nanos) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = rtt_ns.max(1);
            self.variance_ns = rtt_ns / 2;
            return;
        }
        let error = self.smoothed_ns.abs_diff(rtt_ns);
        let gain = if error > self.variance_ns { 4 } else { SHRINK };
        self.variance_ns = ((gain - 1) * self.variance_ns + error) / gain;
        self.smoothed_ns = ((7 * self.smoothed_ns + rtt_ns) / 8).max(1);
    }

    /// Time after which silence is worth a probe, where packets and their acknowledgements may wait for
    /// processes for `lag_ns`.
    pub(crate) fn probe_timeout_ns(&self, cfg: &Config, lag_ns: Nanos) -> Nanos {
        let silence = 2 * (self.smoothed_ns + lag_ns) + 4 * self.variance_ns;
        silence.min(longest_spacing_ns(cfg)).max(cfg.rto_min_ns)
    }
}

/// With the controller, an idle peer takes less than 4 KiB.
const _: () = assert!(size_of::<Peer>() <= 2048);

/// One peer.
pub(crate) struct Peer {
    pub id: PeerId,
    pub name: SocketAddr,
    pub phase: Phase,
    /// Counts this peer's sessions; names one in [`crate::MsgRef`].
    pub session: u32,
    pub local_session: u64,
    pub remote: Remote,
    /// Epoch and incarnation of the peer's last session: within that epoch, a hello of an earlier
    /// one is stale even when no session stands.
    pub oldest: (u64, u32),
    /// The peer's id in the last session that ended: packets of ours may still be on their way to
    /// it, so no other session uses it.
    pub gave_up: u64,
    pub setup: Setup,
    pub live: Liveness,
    pub rtt: Rtt,
    /// What the path carries in one piece.
    pub size: PathSize,
    /// What the session uses, in bytes: what `size` says, in a shorter way.
    pub datagram_bytes: u16,
    /// The peer is on this host, and its session has the terms of such.
    pub near: bool,
    /// Paths of the session.
    pub paths: u16,
    pub info_path: bool,
    pub payload_checksum: bool,
    /// Which segments to the peer are sealed.
    pub seals: Option<Seals>,
    /// The session is new, or the peer was silent: who has its address is asked before the next segment
    /// that would be sealed.
    pub doubted: bool,
    /// The peer has used our session id, so it has our greeting.
    pub met: bool,
    /// The peer takes requests to its memory.
    pub takes_requests: bool,
    /// Path of the latest control packet that was not an acknowledgement.
    pub control_path: u16,
    /// Directed receives waiting for this peer.
    pub watched: u32,
    /// How often the driver asked for this entry and did not let it go; 0 if a hello made it.
    pub kept: u32,
    pub tx: Tx,
    pub rx: Rx,
    pub cc: Option<Box<dyn Controller>>,
    /// When something last happened to the flows.
    pub active_at: Nanos,
    /// When their memory may be given back, and later what else is kept for flows in use.
    pub reclaim_at: Option<Nanos>,
    /// Queued in the endpoint's ready list.
    pub ready: bool,
    /// Queued in the endpoint's list of those that wait for a flush.
    pub waits_for_flush: bool,
    /// Earliest entry in the endpoint's timer heap.
    pub wake_at: Nanos,
}

impl Peer {
    pub(crate) fn new(id: PeerId, name: SocketAddr, size: PathSize) -> Peer {
        Peer {
            id,
            name,
            phase: Phase::Idle,
            session: 0,
            local_session: 0,
            remote: Remote::default(),
            oldest: (0, 0),
            gave_up: 0,
            setup: Setup::default(),
            live: Liveness::default(),
            rtt: Rtt::default(),
            size,
            datagram_bytes: 0,
            near: false,
            paths: 1,
            info_path: false,
            payload_checksum: false,
            seals: None,
            doubted: false,
            met: false,
            takes_requests: false,
            control_path: 0,
            watched: 0,
            kept: 0,
            tx: Tx::default(),
            rx: Rx::default(),
            cc: None,
            active_at: 0,
            reclaim_at: None,
            ready: false,
            waits_for_flush: false,
            wake_at: Nanos::MAX,
        }
    }

    /// Path of the next control packet that is no acknowledgement. They take turns, for a path may
    /// be dead.
    pub(crate) fn next_control_path(&mut self) -> u16 {
        let path = self.control_path % self.paths;
        self.control_path = path + 1;
        path
    }

    /// A snapshot of the flow towards the peer.
    pub(crate) fn flow(&self) -> FlowView {
        FlowView {
            window_bytes: self.cc.as_ref().map_or(0, |cc| cc.window_bytes()),
            pace_bytes_per_s: self.cc.as_ref().and_then(|cc| cc.pace_bytes_per_s()),
            in_flight_bytes: self.tx.in_flight_bytes,
            rtt_ns: self.rtt.smoothed_ns,
            controller: self.cc.as_ref().map(|cc| cc.view()).unwrap_or_default(),
            last_heard_ns: self.live.last_heard,
            ..self.tx.flow.view()
        }
    }

    /// Notes that the flows are in use, so that their memory is not reclaimed yet.
    pub(crate) fn touch(&mut self, now: Nanos) {
        self.active_at = now;
        self.reclaim_at = Some(now + timers::GIVE_BACK_NS);
    }
}
