//! What a flow knows of the network: base and typical round trip, noise, bandwidth, and so the
//! bandwidth-delay product (BDP). Shared by all controllers.
//!
//! On real sockets a round trip has jitter that no queue makes. A controller that compares it with
//! the least one seen takes jitter for congestion. So the delay is filtered (median of three
//! samples), the noise that is left is estimated from the differences between neighbours, which a
//! queue moves less, and targets are never below that noise.

use super::{Ack, FlowParams};
use crate::units::{Nanos, SECOND};

/// Samples of one filtered delay.
const BLOCK: usize = 3;
/// Samples after which a flow knows its noise; a multiple of [`BLOCK`]. Until then the engine lets
/// little be in flight: a flow's own queue is no noise.
const LEARNED: u8 = super::LEARNING_SAMPLES;
/// How long a least round trip counts: this and the window before it, in s.
const WINDOW_S: u8 = 5;
/// Binary logarithm of the packet size in bytes up to which all round trips count as alike: the
/// packets of networks. Those of a loopback can be larger.
const LARGE: u8 = 13;
/// Weight of a new difference, as a power of two.
const GAIN: f32 = 1.0 / 32.0;
/// So much of a difference beyond what queues make is noise.
const REST: f32 = 2.0;
/// Differences that queues may make, in base round trips.
const QUEUES: f32 = 0.5;
/// p97 of an exponential distribution in units of its mean.
const TAIL: f32 = 3.5;
/// Round trip assumed before anything was measured, in ns.
const RTT_UNKNOWN_NS: f32 = 20_000.0;
/// Most that a bandwidth-delay product can be, in bytes: 16 GiB, which is 400 Gb/s over 340 ms. A
/// wrong guess at bandwidth or round trip goes no further.
const BDP_MAX_BYTES: f32 = 17_179_869_184.0;
/// Bandwidth assumed before anything was measured: 100 Gb/s, in bytes per ns.
const LINK_UNKNOWN: f32 = 12.5;

/// A mark was seen: the network marks.
const MARKS: u8 = 1;
/// The base round trip was given.
const GIVEN: u8 = 2;

/// See the module. All times are in ns; [`f32`] keeps them to 7 digits.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    /// Bytes per ns; 0 while unknown.
    link: f32,
    /// Most bytes per ns delivered lately, for when the link's speed is unknown.
    delivered: f32,
    /// Mean difference of neighbouring raw samples.
    jitter_ns: f32,
    /// Mean difference of neighbouring filtered delays.
    noise_ns: f32,
    least_ns: u32,
    least_before_ns: u32,
    /// Median of the latest whole block.
    filtered_ns: u32,
    /// The latest samples; a block is three of them.
    recent_ns: [u32; BLOCK],
    /// Bytes delivered since.
    count_bytes: u32,
    count_at_us: u32,
    /// Start of the present window of the least round trip, in s, wrapping.
    window_at_s: u8,
    /// Binary logarithm of the largest mean packet of an acknowledgement, in bytes.
    size: u8,
    /// Samples taken, as far as it matters.
    samples: u8,
    /// [`MARKS`], [`GIVEN`].
    flags: u8,
}

impl Pipe {
    /// A flow's first idea of its network.
    #[must_use]
    pub fn new(params: &FlowParams) -> Pipe {
        let given = params.base_rtt_ns > 0;
        let first = u32::try_from(params.first_rtt_ns).unwrap_or(u32::MAX);
        Pipe {
            link: params.link_bytes_per_s as f32 / SECOND as f32,
            delivered: 0.0,
            jitter_ns: 0.0,
            noise_ns: 0.0,
            least_ns: if first == 0 { u32::MAX } else { first },
            least_before_ns: if given { params.base_rtt_ns as u32 } else { u32::MAX },
            filtered_ns: first,
            recent_ns: [first; BLOCK],
            count_bytes: 0,
            count_at_us: (params.now / 1_000) as u32,
            window_at_s: (params.now / SECOND) as u8,
            size: LARGE,
            samples: 0,
            flags: if given { GIVEN } else { 0 },
        }
    }

    /// Takes an acknowledgement's sample. Call it first, for each one.
    pub fn on_ack(&mut self, ack: &Ack) {
        if ack.ce_bytes > 0 {
            self.flags |= MARKS;
        }
        self.count(ack);
        let Some(rtt_ns) = ack.rtt_ns else { return };
        let rtt = u32::try_from(rtt_ns).unwrap_or(u32::MAX).max(1);
        if self.is_small(ack, rtt) {
            return;
        }
        let now_s = (ack.now / SECOND) as u8;
        if self.flags & GIVEN == 0 && now_s.wrapping_sub(self.window_at_s) >= WINDOW_S {
            self.window_at_s = now_s;
            self.least_before_ns = self.least_ns;
            self.least_ns = rtt;
        }
        self.least_ns = self.least_ns.min(rtt);
        // A marked packet has met a queue, which is no noise.
        let learns = self.samples < LEARNED && ack.ce_bytes == 0;
        let at = usize::from(self.samples) % BLOCK;
        let last = self.recent_ns[(at + BLOCK - 1) % BLOCK];
        let base = self.base_rtt_ns();
        if last != 0 && learns {
            track(&mut self.jitter_ns, rtt.abs_diff(last), base);
        }
        self.recent_ns[at] = rtt;
        if at + 1 == BLOCK {
            let median = median(self.recent_ns);
            if learns {
                track(&mut self.noise_ns, median.abs_diff(self.filtered_ns), base);
            }
            self.filtered_ns = median;
        }
        self.samples =
            if self.samples < LEARNED + BLOCK as u8 - 1 { self.samples + 1 } else { LEARNED };
    }

    /// Small packets take less time than large ones where a large one's copies or its time on the
    /// link count: the round trips of the largest are what the window is made for. The first larger
    /// packet begins the least round trip anew.
    fn is_small(&mut self, ack: &Ack, rtt: u32) -> bool {
        if ack.acked_packets == 0 || ack.acked_bytes == 0 {
            return false;
        }
        let size = (ack.acked_bytes as u32 / ack.acked_packets).max(1).ilog2() as u8;
        let size = size.max(LARGE);
        if size > self.size {
            self.size = size;
            if self.flags & GIVEN == 0 {
                (self.least_ns, self.least_before_ns) = (rtt, u32::MAX);
            }
        }
        size + 1 < self.size
    }

    /// Measures what is delivered, over a typical round trip and at least 100 us.
    fn count(&mut self, ack: &Ack) {
        let now_us = (ack.now / 1_000) as u32;
        self.count_bytes = self.count_bytes.saturating_add(ack.acked_bytes as u32);
        let span_us = now_us.wrapping_sub(self.count_at_us);
        if (span_us as f32) < (self.typical_rtt_ns() / 1e3).max(100.0) {
            return;
        }
        let rate = self.count_bytes as f32 / (span_us as f32 * 1e3);
        // What an idle flow delivers says little; a peak is forgotten within seconds.
        if rate > self.delivered || !ack.app_limited {
            self.delivered = rate.max(self.delivered * (1.0 - 1.0 / 1024.0));
        }
        (self.count_bytes, self.count_at_us) = (0, now_us);
    }

    /// Least round trip within the last 5 to 10 s.
    #[must_use]
    pub fn base_rtt_ns(&self) -> f32 {
        let least = if self.flags & GIVEN != 0 { u32::MAX } else { self.least_ns };
        match least.min(self.least_before_ns) {
            u32::MAX => RTT_UNKNOWN_NS,
            least => least as f32,
        }
    }

    /// Base round trip with the mean of the jitter: what a lone packet takes.
    #[must_use]
    pub fn typical_rtt_ns(&self) -> f32 {
        let base = self.base_rtt_ns();
        base + above(self.jitter_ns, QUEUES * base)
    }

    /// Filtered delay above the base: that of queues, but for [`Pipe::noise_ns`]. Over several
    /// paths it is that of the path in the middle.
    #[must_use]
    pub fn queue_delay_ns(&self) -> f32 {
        (self.filtered_ns as f32 - self.base_rtt_ns()).max(0.0)
    }

    /// p97 of the filtered delay without queues: no target should lie below.
    #[must_use]
    pub fn noise_ns(&self) -> f32 {
        TAIL * above(self.noise_ns, QUEUES * self.base_rtt_ns())
    }

    /// A paper's target of `round_trips`, raised to what the noise allows.
    #[must_use]
    pub fn target_ns(&self, round_trips: f32) -> f32 {
        (round_trips * self.typical_rtt_ns()).max(self.noise_ns())
    }

    /// Bytes per ns of the link; what was delivered at most, if its speed is unknown.
    #[must_use]
    pub fn bytes_per_ns(&self) -> f32 {
        if self.link > 0.0 {
            self.link
        } else if self.delivered > 0.0 {
            self.delivered
        } else {
            LINK_UNKNOWN
        }
    }

    /// Whether enough samples were taken to know the noise. Until then the engine lets little be
    /// in flight.
    #[must_use]
    pub fn has_learned(&self) -> bool {
        self.samples >= LEARNED
    }

    /// Whether [`Pipe::bytes_per_ns`] is only what was delivered so far.
    #[must_use]
    pub fn learns_rate(&self) -> bool {
        self.link <= 0.0 && self.delivered > 0.0
    }

    /// Bandwidth-delay product at the typical round trip, in bytes; at most 16 GiB.
    #[must_use]
    pub fn bdp_bytes(&self) -> f32 {
        (self.bytes_per_ns() * self.typical_rtt_ns()).min(BDP_MAX_BYTES)
    }

    /// Whether a sample counts as marked. Until the network has marked anything, `late` says:
    /// without ECN a controller that heeds marks alone would control nothing.
    #[must_use]
    pub fn is_marked(&self, ack: &Ack, late: bool) -> bool {
        ack.ce_bytes > 0 || (late && self.flags & MARKS == 0)
    }

    /// The base round trip and the typical one, for a [`super::View`].
    #[must_use]
    pub fn rtts_ns(&self) -> (Nanos, Nanos) {
        (self.base_rtt_ns() as Nanos, self.typical_rtt_ns() as Nanos)
    }
}

/// Follows the mean of a difference. One outlier counts for four times the mean or one base round
/// trip, so that spikes do not carry it away.
fn track(mean_ns: &mut f32, difference_ns: u32, base_ns: f32) {
    let bounded = (difference_ns as f32).min((4.0 * *mean_ns).max(base_ns));
    *mean_ns += GAIN * (bounded - *mean_ns);
}

/// What is left of a mean difference when that which queues make is taken off.
fn above(mean_ns: f32, queues_ns: f32) -> f32 {
    (REST * (mean_ns - queues_ns)).clamp(0.0, mean_ns)
}

fn median([a, b, c]: [u32; BLOCK]) -> u32 {
    a.max(b).min(a.min(b).max(c))
}
