//! A congestion window in packets, with the rules that the window-based baselines share. It starts at one BDP, grows
//! only while it is used, stays within bounds, and falls back to one BDP after the flow was idle.

use super::pipe::{Pipe, greater, lesser, short_f32};
use super::{AckSample, FlowParams, SentBurst};
use crate::units::Nanos;

/// Least window, in packets, that a bound may force: two, so that one packet can be under way
/// while the other is acknowledged.
const BOUND_LEAST: f32 = 2.0;
/// Largest window in BDP: a base target of queue beside the bytes in flight.
const WINDOW_BDPS: f32 = 2.0;
/// Growth is added once it is this part of the window. Rounding would lose smaller steps.
const STEP: f32 = 1.0 / 16_384.0;
/// A flow with nothing in flight for less than this was not idle, whatever the round trip.
const IDLE_LEAST_MS: u32 = 2;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    packets: f32,
    /// Growth not yet added.
    owed: f32,
    packet_bytes: f32,
    /// Time of the last burst; wraps after 49 days.
    sent_at_ms: u32,
}

impl Window {
    /// A window of one BDP, at least two packets.
    #[must_use]
    pub fn new(params: &FlowParams, pipe: &Pipe) -> Window {
        let packet_bytes = params.datagram_bytes.max(1) as f32;
        let bdp = pipe.bdp_bytes() / packet_bytes;
        let sent_at_ms = (params.now / 1_000_000) as u32;
        Window { packets: bdp.max(BOUND_LEAST), owed: 0.0, packet_bytes, sent_at_ms }
    }

    /// The window in packets; below 1 when the scheme paces.
    #[must_use]
    pub fn packets(&self) -> f32 {
        self.packets
    }

    /// Bytes of one packet.
    #[must_use]
    pub fn packet_bytes(&self) -> u32 {
        self.packet_bytes as u32
    }

    /// The window in bytes, at least one packet.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_f32() as u64
    }

    fn bytes_f32(&self) -> f32 {
        greater(self.packets, 1.0) * self.packet_bytes
    }

    /// Adds packets, as far as [`Window::bound`] lets it.
    pub fn grow(&mut self, packets: f32, pipe: &Pipe) {
        self.owed += packets;
        if self.owed >= self.packets * STEP {
            self.packets += self.owed;
            self.owed = 0.0;
        }
        self.bound(pipe);
    }

    /// Keeps the window at two BDP or below, but not below two packets.
    pub fn bound(&mut self, pipe: &Pipe) {
        self.keep_within(pipe, WINDOW_BDPS);
    }

    fn keep_within(&mut self, pipe: &Pipe, bdps: f32) {
        let most = bdps * pipe.bdp_bytes() / self.packet_bytes;
        self.packets = lesser(self.packets, greater(most, BOUND_LEAST));
    }

    /// Shrinks it to `packets`, at least `least`. Never grows it.
    pub fn shrink_to(&mut self, packets: f32, least: f32) {
        self.packets = lesser(greater(packets, least), self.packets);
        self.owed = 0.0;
    }

    /// Notes a sent burst. Returns whether the flow was idle: then a window above one BDP is out of date, and falls
    /// back to one BDP.
    pub fn on_sent(&mut self, sent: &SentBurst, pipe: &Pipe) -> bool {
        let now_ms = (sent.now / 1_000_000) as u32;
        let rest_ms = now_ms.wrapping_sub(self.sent_at_ms);
        self.sent_at_ms = now_ms;
        let is_restart = sent.in_flight_bytes <= u64::from(sent.bytes)
            && rest_ms > IDLE_LEAST_MS
            && rest_ms > (pipe.typical_rtt_ns() / 1e6) as u32;
        if is_restart {
            self.keep_within(pipe, 1.0);
        }
        is_restart
    }

    /// Whether the flow used at least half of its window: only then may progress let it grow.
    #[must_use]
    pub fn is_used(&self, ack: &AckSample) -> bool {
        let used = ack.in_flight_bytes.saturating_add(ack.acked_bytes);
        !ack.app_limited && short_f32(used) >= 0.5 * self.bytes_f32()
    }

    /// Whether one more packet fits beside so many bytes in flight.
    #[must_use]
    pub fn has_room(&self, in_flight_bytes: u64) -> bool {
        short_f32(in_flight_bytes) + self.packet_bytes <= self.bytes_f32()
    }
}

/// Part of the newly acknowledged bytes that counts as marked, 0 to 1. Without ECN in the network, all bytes of a
/// sample with a queueing delay above `late_ns` count.
#[must_use]
#[inline(always)]
pub fn marked_share(pipe: &Pipe, ack: &AckSample, late_ns: f32) -> f32 {
    if ack.ce_bytes > 0 {
        return lesser(ack.ce_bytes as f32 / short_f32(ack.acked_bytes.max(1)), 1.0);
    }
    if pipe.has_marks() {
        return 0.0;
    }
    let is_late = ack.rtt_ns.is_some() && pipe.middle_rtt_ns() - pipe.base_rtt_ns() > late_ns;
    if is_late { 1.0 } else { 0.0 }
}

/// Whether a round trip has gone by since the last decrease.
#[must_use]
pub fn round_trip_since(cut_at: Nanos, now: Nanos, pipe: &Pipe) -> bool {
    now.saturating_sub(cut_at) as f32 >= pipe.base_rtt_ns() + pipe.queue_delay_ns()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MILLISECOND;

    fn params() -> FlowParams {
        FlowParams {
            now: 0,
            datagram_bytes: 1_250,
            paths: 4,
            first_rtt_ns: 10_000,
            base_rtt_ns: 0,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        }
    }

    #[test]
    fn starts_at_one_bdp() {
        let pipe = Pipe::new(&params());
        assert_eq!(Window::new(&params(), &pipe).bytes(), 125_000);
        let slow = FlowParams { link_bytes_per_s: 1, ..params() };
        assert_eq!(Window::new(&slow, &Pipe::new(&slow)).bytes(), 2_500);
    }

    #[test]
    fn small_steps_add_up_in_a_large_window() {
        let far = FlowParams { first_rtt_ns: 100_000_000, ..params() };
        let pipe = Pipe::new(&far);
        let mut window = Window::new(&far, &pipe);
        assert_eq!(window.packets(), 1_000_000.0);
        for _ in 0..1_000_000 {
            window.grow(1e-3, &pipe);
        }
        assert!((window.packets() - 1_001_000.0).abs() < 100.0, "{window:?}");
    }

    #[test]
    fn idleness_takes_back_what_lies_above_one_bdp() {
        let pipe = Pipe::new(&params());
        let mut window = Window::new(&params(), &pipe);
        window.grow(100.0, &pipe);
        let mut sent = SentBurst {
            now: MILLISECOND,
            bytes: 1_250,
            packets: 1,
            path: 0,
            in_flight_bytes: 1_250,
            retransmission: false,
        };
        assert!(!window.on_sent(&sent, &pipe));
        assert_eq!(window.bytes(), 250_000);
        sent.now = 100 * MILLISECOND;
        assert!(window.on_sent(&sent, &pipe));
        assert_eq!(window.bytes(), 125_000);
    }
}
