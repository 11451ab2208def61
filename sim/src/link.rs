//! One direction of a link: a queue, a transmitter, and a wire.

use crate::ids::{HostId, Node};
use crate::meter::DepthMeter;
use crate::packet::{PacketId, PacketPool};
use crate::time::{Picos, serialization_ps};
use erd_rd::Ecn;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;

/// Packets that a host hands over at once to a link that takes any number.
const ROOM_MAX: usize = 64;

/// Trimmed headers that may wait at a link; more are dropped.
const HEADERS_MAX: usize = 4096;
/// Longest datagram that a full queue which trims takes for a header, in bytes.
const SHORT_BYTES: usize = 256;

/// Random early detection, applied when a packet leaves the queue: it is marked by what is queued
/// behind it (SMaRTT, section II; STrack, section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Red {
    /// Depth up to which nothing is marked, in bytes.
    pub min_bytes: u64,
    /// Depth from which everything is marked, in bytes.
    pub max_bytes: u64,
}

/// Noise of a software path, at the end of a wire. What arrives is looked at by a poll that comes
/// after an exponential time; everything that arrived meanwhile is taken with it. So packets keep
/// their order, and the mean delay is `mean_ps` however dense they come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter {
    /// Mean of the exponential time.
    pub mean_ps: Picos,
    /// A rare further delay of a poll.
    pub spike_ps: Picos,
    /// Polls in a million that have it.
    pub spikes_ppm: u32,
}

/// What a link is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Rate; `None` sends at once and never queues.
    pub bytes_per_s: Option<u64>,
    /// Time on the wire.
    pub propagation_ps: Picos,
    /// Most bytes that wait, without the packet being sent.
    pub buffer_bytes: u64,
    /// Marking, if any.
    pub red: Option<Red>,
    /// A full queue cuts payloads off instead of dropping packets. What is left goes first, and so
    /// do short packets then.
    pub trimming: bool,
    /// Noise, if any.
    pub jitter: Option<Jitter>,
    /// What the depth of the queue is told in, in bytes.
    pub depth_unit_bytes: u64,
}

impl LinkConfig {
    /// A link that only delays.
    #[must_use]
    pub fn delay(propagation_ps: Picos) -> LinkConfig {
        LinkConfig {
            bytes_per_s: None,
            propagation_ps,
            buffer_bytes: u64::MAX,
            red: None,
            trimming: false,
            jitter: None,
            depth_unit_bytes: 1,
        }
    }
}

/// How a link does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Health {
    /// As configured.
    Up,
    /// At a part of its rate.
    Slowed {
        /// How many times slower.
        times: u32,
    },
    /// Loses packets at random.
    Lossy {
        /// Which share, 0 to 1.
        share: f64,
    },
    /// Loses everything, silently.
    Dead,
}

/// Counters of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Packets offered to it.
    pub offered: u64,
    /// Bytes offered to it.
    pub offered_bytes: u64,
    /// Packets dropped because the queue was full.
    pub drops: u64,
    /// Payloads cut off because the queue was full.
    pub trims: u64,
    /// Packets marked.
    pub marks: u64,
    /// Packets lost because of its health.
    pub lost: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    health: Health,
    to: Node,
    feeder: Option<HostId>,
    /// Bounded by `config.buffer_bytes`.
    queue: VecDeque<PacketId>,
    queued_bytes: u64,
    /// What overtakes: trimmed headers, and short packets that found a full queue; at most [`HEADERS_MAX`].
    headers: VecDeque<PacketId>,
    sending: Option<PacketId>,
    /// Packets on their way with their times of arrival, in order. The transmitter bounds it.
    wire: VecDeque<(Picos, PacketId)>,
    poll_at: Picos,
    rng: Pcg32,
    counters: LinkCounters,
    depth: DepthMeter,
}

impl Link {
    /// An idle link to `to`. A link of a host, `feeder`, asks it for more when it is idle.
    #[must_use]
    pub fn new(config: LinkConfig, to: Node, feeder: Option<HostId>, seed: u64) -> Link {
        Link {
            config,
            health: Health::Up,
            to,
            feeder,
            queue: VecDeque::new(),
            queued_bytes: 0,
            headers: VecDeque::new(),
            sending: None,
            wire: VecDeque::new(),
            poll_at: 0,
            rng: Pcg32::seed_from_u64(seed),
            counters: LinkCounters::default(),
            depth: DepthMeter::new(config.depth_unit_bytes),
        }
    }

    /// Where it ends.
    #[must_use]
    pub fn to(&self) -> Node {
        self.to
    }

    /// The host that feeds it.
    #[must_use]
    pub fn feeder(&self) -> Option<HostId> {
        self.feeder
    }

    /// Packets that its feeder may hand it now.
    #[must_use]
    pub(crate) fn room(&self) -> usize {
        match self.is_idle() {
            false => 0,
            true if self.only_delays() => ROOM_MAX,
            true => 1,
        }
    }

    /// Nothing is being sent, so nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    /// Packets only pass, without a time to send them.
    #[must_use]
    pub fn only_delays(&self) -> bool {
        self.config.bytes_per_s.is_none()
    }

    /// Counters since the start.
    #[must_use]
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Depth of its queue.
    #[must_use]
    pub fn depth(&self) -> &DepthMeter {
        &self.depth
    }

    /// Measures the depth of the queue from now on.
    pub fn reset_depth(&mut self, now: Picos) {
        self.depth.reset(now);
    }

    /// Brings the meter up to now.
    pub fn settle_depth(&mut self, now: Picos) {
        self.depth.set(now, self.queued_bytes);
    }

    /// Changes how it does, from the next packet on. A link that dies loses what waits.
    pub fn set_health(&mut self, now: Picos, health: Health, pool: &mut PacketPool) {
        self.health = health;
        if health == Health::Dead {
            let waiting = self.queue.drain(..).chain(self.headers.drain(..));
            for id in waiting {
                self.counters.lost += 1;
                pool.give_back(id);
            }
            self.queued_bytes = 0;
            self.depth.set(now, 0);
        }
    }

    /// Counts a packet and takes it into the queue, trims or drops it. True if it waits there.
    pub fn enqueue(&mut self, now: Picos, id: PacketId, pool: &mut PacketPool) -> bool {
        let packet = pool.get_mut(id);
        let bytes = u64::from(packet.wire_bytes());
        self.counters.offered += 1;
        self.counters.offered_bytes += bytes;
        if self.loses() {
            self.counters.lost += 1;
            pool.give_back(id);
            return false;
        }
        let full = self.queued_bytes + bytes > self.config.buffer_bytes;
        let short = packet.head.len() <= SHORT_BYTES;
        if full && self.config.trimming && packet.payload_bytes > 0 {
            packet.trim();
            self.counters.trims += 1;
        }
        let overtakes = packet.trimmed || (full && self.config.trimming);
        if overtakes && short && self.headers.len() < HEADERS_MAX {
            self.headers.push_back(id);
        } else if full {
            self.counters.drops += 1;
            pool.give_back(id);
            return false;
        } else {
            self.queue.push_back(id);
            self.queued_bytes += bytes;
            self.depth.set(now, self.queued_bytes);
        }
        true
    }

    /// Whether the link's health costs a packet.
    fn loses(&mut self) -> bool {
        match self.health {
            Health::Up | Health::Slowed { .. } => false,
            Health::Lossy { share } => f64::from(self.rng.next_u32()) < share * 4_294_967_296.0,
            Health::Dead => true,
        }
    }

    /// Begins to send the next packet; says when it is sent. `None` when nothing waits or a
    /// packet is being sent.
    pub fn start(&mut self, now: Picos, pool: &mut PacketPool) -> Option<Picos> {
        if self.sending.is_some() {
            return None;
        }
        let id = self.dequeue(now, pool)?;
        self.sending = Some(id);
        let times = if let Health::Slowed { times } = self.health { times } else { 1 };
        let rate = self.config.bytes_per_s? / u64::from(times.max(1));
        Some(now + serialization_ps(pool.get(id).wire_bytes(), rate.max(1)))
    }

    fn dequeue(&mut self, now: Picos, pool: &mut PacketPool) -> Option<PacketId> {
        if let Some(id) = self.headers.pop_front() {
            return Some(id);
        }
        let id = self.queue.pop_front()?;
        let packet = pool.get_mut(id);
        self.queued_bytes -= u64::from(packet.wire_bytes());
        self.depth.set(now, self.queued_bytes);
        let capable = matches!(packet.ecn, Ecn::Ect0 | Ecn::Ect1);
        if capable && self.marks() {
            packet.ecn = Ecn::Ce;
            self.counters.marks += 1;
        }
        Some(id)
    }

    fn marks(&mut self) -> bool {
        let Some(red) = self.config.red else { return false };
        if self.queued_bytes <= red.min_bytes {
            return false;
        }
        let span = red.max_bytes.saturating_sub(red.min_bytes).max(1);
        let above = self.queued_bytes - red.min_bytes;
        u64::from(self.rng.next_u32()) * span < above << 32
    }

    /// The packet being sent has left the transmitter; `None` if the link died under it.
    pub fn finish(&mut self, pool: &mut PacketPool) -> Option<PacketId> {
        let id = self.sending.take()?;
        if self.health == Health::Dead {
            self.counters.lost += 1;
            pool.give_back(id);
            return None;
        }
        Some(id)
    }

    /// Whether a packet that left the transmitter is at the other end at once.
    #[must_use]
    pub fn is_instant(&self) -> bool {
        self.config.propagation_ps == 0 && self.config.jitter.is_none()
    }

    /// Puts a packet on the wire. Says when it arrives if no packet is before it; otherwise its
    /// turn comes when that one has arrived.
    pub fn launch(&mut self, now: Picos, id: PacketId) -> Option<Picos> {
        let mut at = now + self.config.propagation_ps;
        if let Some(jitter) = self.config.jitter {
            if at >= self.poll_at {
                self.poll_at = at + draw(&mut self.rng, &jitter);
            }
            at = self.poll_at;
        }
        self.wire.push_back((at, id));
        (self.wire.len() == 1).then_some(at)
    }

    /// Takes a packet that has arrived.
    pub fn arrived(&mut self, now: Picos) -> Option<PacketId> {
        self.wire.pop_front_if(|(at, _)| *at <= now).map(|(_, id)| id)
    }

    /// When the next packet on the wire arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Picos> {
        self.wire.front().map(|(at, _)| *at)
    }
}

fn draw(rng: &mut Pcg32, jitter: &Jitter) -> Picos {
    // Never 0, so that the logarithm is finite.
    let uniform = (f64::from(rng.next_u32()) + 0.5) / 4_294_967_296.0;
    let wait = (-libm::log(uniform) * jitter.mean_ps as f64) as Picos;
    let spike = u64::from(rng.next_u32()) * 1_000_000 < u64::from(jitter.spikes_ppm) << 32;
    wait + if spike { jitter.spike_ps } else { 0 }
}
