//! What a flow knows of the network: base and typical round trip, noise, bandwidth, and so the
//! bandwidth-delay product (BDP). Shared by all controllers.
//!
//! On real sockets a round trip has jitter that no queue makes. A controller that compares it with
//! the least one seen takes jitter for congestion. So the delay is filtered (least of a block of
//! samples), the noise that is left is estimated from the differences between neighbours, which a
//! queue hardly moves, and targets are never below that noise.

use super::{Ack, FlowParams};
use crate::units::{Nanos, SECOND};

/// Samples of one filtered delay at most.
const BLOCK_MAX: u32 = 8;
/// How long a least round trip counts: this and the window before it.
const WINDOW_MS: u32 = 5_000;
/// Weight of a new difference, as a power of two.
const GAIN: f32 = 1.0 / 16.0;
/// p90 of an exponential distribution in units of its mean.
const P90: f32 = 2.3;
/// Round trip assumed before anything was measured, in ns.
const RTT_UNKNOWN_NS: f32 = 20_000.0;
/// Most that a bandwidth-delay product can be, in bytes: 16 GiB, which is 400 Gb/s over 340 ms. A
/// wrong guess at bandwidth or round trip goes no further.
const BDP_MAX_BYTES: f32 = 17_179_869_184.0;
/// Bandwidth assumed before anything was measured: 100 Gb/s, in bytes per ns.
const LINK_UNKNOWN: f32 = 12.5;

/// See the module. All times are in ns; [`f32`] keeps them to 7 digits.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    /// Bytes per ns; 0 while unknown.
    link: f32,
    /// Most bytes per ns delivered lately, for when the link's speed is unknown.
    delivered: f32,
    /// Mean difference of neighbouring raw samples of one path.
    jitter_ns: f32,
    /// Mean difference of neighbouring filtered delays.
    noise_ns: f32,
    least_ns: u32,
    least_before_ns: u32,
    window_at_ms: u32,
    /// The sample before, and its path.
    last_ns: u32,
    /// Least of the block so far; the delay of the block before.
    block_ns: u32,
    filtered_ns: u32,
    /// Bytes delivered since.
    count_bytes: u32,
    count_at_us: u32,
    last_path: u16,
    block_len: u8,
    /// A mark was seen: the network marks.
    marks: bool,
}

impl Pipe {
    /// A flow's first idea of its network.
    #[must_use]
    pub fn new(params: &FlowParams) -> Pipe {
        let first = u32::try_from(params.first_rtt_ns).unwrap_or(u32::MAX);
        Pipe {
            link: params.link_bytes_per_s as f32 / SECOND as f32,
            delivered: 0.0,
            jitter_ns: 0.0,
            noise_ns: 0.0,
            least_ns: if first == 0 { u32::MAX } else { first },
            least_before_ns: u32::MAX,
            window_at_ms: (params.now / 1_000_000) as u32,
            last_ns: 0,
            block_ns: u32::MAX,
            filtered_ns: first,
            count_bytes: 0,
            count_at_us: (params.now / 1_000) as u32,
            last_path: 0,
            block_len: 0,
            marks: false,
        }
    }

    /// Takes an acknowledgement's sample. Call it first, for each one. `window_bytes` over
    /// `packet_bytes` bounds the filter: its block is at most half a window.
    pub fn on_ack(&mut self, ack: &Ack, window_bytes: u64, packet_bytes: u32) {
        self.marks |= ack.ce_bytes > 0;
        self.count(ack);
        let Some(rtt_ns) = ack.rtt_ns else { return };
        let rtt = u32::try_from(rtt_ns).unwrap_or(u32::MAX).max(1);
        let now_ms = (ack.now / 1_000_000) as u32;
        if now_ms.wrapping_sub(self.window_at_ms) >= WINDOW_MS {
            self.window_at_ms = now_ms;
            self.least_before_ns = self.least_ns;
            self.least_ns = rtt;
        }
        self.least_ns = self.least_ns.min(rtt);
        let base = self.base_rtt_ns();
        if self.last_ns != 0 && self.last_path == ack.path {
            track(&mut self.jitter_ns, rtt.abs_diff(self.last_ns), base);
        }
        (self.last_ns, self.last_path) = (rtt, ack.path);
        self.block_ns = self.block_ns.min(rtt);
        self.block_len += 1;
        let half = (window_bytes / u64::from(packet_bytes.max(1)) / 2) as u32;
        if u32::from(self.block_len) >= half.clamp(1, BLOCK_MAX) {
            track(&mut self.noise_ns, self.block_ns.abs_diff(self.filtered_ns), base);
            self.filtered_ns = self.block_ns;
            (self.block_ns, self.block_len) = (u32::MAX, 0);
        }
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
        match self.least_ns.min(self.least_before_ns) {
            u32::MAX => RTT_UNKNOWN_NS,
            least => least as f32,
        }
    }

    /// Base round trip with the mean of the jitter: what a lone packet takes.
    #[must_use]
    pub fn typical_rtt_ns(&self) -> f32 {
        self.base_rtt_ns() + self.jitter_ns
    }

    /// Filtered delay above the base: that of queues, but for [`Pipe::noise_ns`].
    #[must_use]
    pub fn queue_delay_ns(&self) -> f32 {
        let rtt = if self.block_ns < self.filtered_ns { self.block_ns } else { self.filtered_ns };
        (rtt as f32 - self.base_rtt_ns()).max(0.0)
    }

    /// p90 of the filtered delay without queues: no target should lie below.
    #[must_use]
    pub fn noise_ns(&self) -> f32 {
        P90 * self.noise_ns
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
        ack.ce_bytes > 0 || (late && !self.marks)
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
