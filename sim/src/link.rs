//! What a link is like, how it does, and what it has counted.

use crate::time::{Picos, serialization_ps};

/// Random early detection, applied when a packet leaves the queue: it is marked by what is queued
/// behind it (SMaRTT, section II; STrack, section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Red {
    /// Depth up to which nothing is marked, in bytes.
    pub min_bytes: u64,
    /// Depth from which everything is marked, in bytes.
    pub max_bytes: u64,
    /// Share of packets that is marked just below that depth, in millionths (Pmax of DCQCN, section 3).
    pub most_ppm: u32,
}

impl Red {
    /// The share of marked packets rises from nothing to everything.
    #[must_use]
    pub const fn linear(min_bytes: u64, max_bytes: u64) -> Red {
        Red { min_bytes, max_bytes, most_ppm: 1_000_000 }
    }
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

/// Packets that take another way through a device than those around them: adaptive routing, a link of several cables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overtaking {
    /// Packets in a million that others overtake.
    pub share_ppm: u32,
    /// Each of them is late by the time of so many packets at most.
    pub places: u32,
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
    /// A full queue that trims gives half of the arriving packets the place of the last one that waits, and cuts that one, as
    /// uet-htsim's queues do. Otherwise it cuts the arriving one.
    pub trims_last: bool,
    /// Packets without payload go first: acknowledgements and the like.
    pub control_first: bool,
    /// Noise, if any.
    pub jitter: Option<Jitter>,
    /// Packets out of order, if there are any.
    pub overtaking: Option<Overtaking>,
    /// What the depth of the queue is told in, in bytes; `None` if nobody asks.
    pub depth_unit_bytes: Option<u64>,
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
            trims_last: false,
            control_first: false,
            jitter: None,
            overtaking: None,
            depth_unit_bytes: None,
        }
    }

    /// How long it takes to send so many bytes.
    #[must_use]
    pub fn sending_ps(&self, bytes: u32) -> Picos {
        self.bytes_per_s.map_or(0, |rate| serialization_ps(bytes, rate))
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
    /// Changes bits at random: the far end drops the packets that have a wrong one.
    Corrupt {
        /// Which share of bits, 0 to 1.
        bits: f64,
    },
    /// Loses everything, silently.
    Dead,
}

/// Counters of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct LinkCounters {
    /// Packets offered to it.
    pub offered: u64,
    /// Bytes offered to it.
    pub offered_bytes: u64,
    /// Bytes that its transmitter has sent or begun to send.
    pub sent_bytes: u64,
    /// Packets dropped because the queue was full.
    pub drops: u64,
    /// Payloads cut off because the queue was full.
    pub trims: u64,
    /// Packets marked.
    pub marks: u64,
    /// Packets lost because of its health.
    pub lost: u64,
    /// How often its far end made it pause, and for how long.
    pub pauses: u64,
    /// See there, in picoseconds.
    pub paused_ps: u64,
    /// Packets that arrived with a wrong bit, and were dropped.
    pub corrupted: u64,
}

impl LinkCounters {
    /// Adds those of another link.
    pub fn add(&mut self, other: &LinkCounters) {
        let LinkCounters { offered, offered_bytes, sent_bytes, drops, trims, marks, lost, .. } =
            other;
        self.offered += offered;
        self.offered_bytes += offered_bytes;
        self.sent_bytes += sent_bytes;
        self.drops += drops;
        self.trims += trims;
        self.marks += marks;
        self.lost += lost;
        self.pauses += other.pauses;
        self.paused_ps += other.paused_ps;
        self.corrupted += other.corrupted;
    }
}

/// Packets that ended at a switch or a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct NodeCounters {
    /// A switch had no link left to the receiver, after it had learnt of dead links.
    pub no_route: u64,
    /// A host's ring was full.
    pub ring_drops: u64,
}

/// The end of a wire: when what comes is looked at.
#[derive(Clone, Debug)]
pub struct WireEnd {
    jitter: Option<Jitter>,
    overtaking: Option<Overtaking>,
    poll_at: Picos,
}

impl WireEnd {
    /// One with the noise and the order of a link.
    #[must_use]
    pub fn new(config: &LinkConfig) -> WireEnd {
        WireEnd { jitter: config.jitter, overtaking: config.overtaking, poll_at: 0 }
    }

    /// True if packets are looked at as they come.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.jitter.is_none() && self.overtaking.is_none()
    }

    /// When a packet is looked at that comes at a time, which is no earlier than that of the packet before, and took so long to
    /// send.
    pub fn seen_at(
        &mut self,
        at: Picos,
        sending_ps: Picos,
        mut random: impl FnMut() -> u32,
    ) -> Picos {
        if let Some(Overtaking { share_ppm, places }) = self.overtaking
            && u64::from(random()) * 1_000_000 < u64::from(share_ppm) << 32
        {
            // Not by whole packets: two would arrive at one instant.
            let most_ps = u128::from(sending_ps) * u128::from(places);
            return at + 1 + ((u128::from(random()) * most_ps) >> 32) as Picos;
        }
        let Some(jitter) = self.jitter else { return at };
        if at >= self.poll_at {
            self.poll_at = at + jitter.draw(random);
        }
        self.poll_at
    }
}

impl Jitter {
    /// The time until the next poll, from two random numbers.
    fn draw(&self, mut random: impl FnMut() -> u32) -> Picos {
        // Never 0, so that the logarithm is finite.
        let uniform = (f64::from(random()) + 0.5) / 4_294_967_296.0;
        let wait = (-libm::log(uniform) * self.mean_ps as f64) as Picos;
        let spike = u64::from(random()) * 1_000_000 < u64::from(self.spikes_ppm) << 32;
        wait + if spike { self.spike_ps } else { 0 }
    }
}
