//! The window of DCTCP as RFC 8257 has it, in packets: TCP's slow start and congestion avoidance (RFC 5681), and a cut by
//! the share of marked bytes.

use erd_rd::Nanos;
use erd_rd::cc::{AckSample, Loss, Timeout};

/// Window at the beginning (RFC 6928).
const FIRST_PACKETS: f32 = 10.0;
/// Least window after a cut (RFC 5681, equation 4), and the one after a timeout.
const CUT_LEAST_PACKETS: f32 = 2.0;
const TIMEOUT_PACKETS: f32 = 1.0;
/// Part of the window that a loss takes (RFC 5681, equation 4).
const LOSS_CUT: f32 = 0.5;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct DctcpWindow {
    gain: f32,
    cwnd: f32,
    /// Below it the window doubles in a round trip.
    slow_start: f32,
    /// Average share of marked bytes; 1 at the beginning (RFC 8257, 3.3).
    alpha: f32,
    round_began: Nanos,
    acked_bytes: u64,
    marked_bytes: u64,
    /// When the window was cut. It neither grows nor is cut again until a packet sent later comes back.
    cut_at: Option<Nanos>,
}

impl DctcpWindow {
    pub(super) fn new(gain: f32, now: Nanos) -> DctcpWindow {
        DctcpWindow {
            gain,
            cwnd: FIRST_PACKETS,
            slow_start: f32::INFINITY,
            alpha: 1.0,
            round_began: now,
            acked_bytes: 0,
            marked_bytes: 0,
            cut_at: None,
        }
    }

    pub(super) fn packets(&self) -> f32 {
        self.cwnd
    }

    /// Takes an acknowledgement. It gives the share of marked bytes when a round ends: a packet sent in it comes back.
    pub(super) fn on_ack(&mut self, ack: &AckSample) -> Option<f32> {
        self.acked_bytes += ack.acked_bytes;
        self.marked_bytes += u64::from(ack.ce_bytes);
        let share = self.end_round(ack);
        let comes_back = ack.rtt_ns.is_some() && self.cut_at.is_some_and(|at| ack.sent_at >= at);
        self.cut_at = self.cut_at.filter(|_| !comes_back);
        if ack.ce_bytes > 0 {
            self.cut(ack.now, self.alpha / 2.0);
        } else if self.cut_at.is_none() && !ack.app_limited {
            self.grow(ack.acked_packets as f32);
        }
        share
    }

    fn end_round(&mut self, ack: &AckSample) -> Option<f32> {
        if ack.rtt_ns.is_none() || ack.sent_at < self.round_began || self.acked_bytes == 0 {
            return None;
        }
        let share = (self.marked_bytes as f32 / self.acked_bytes as f32).min(1.0);
        self.alpha += self.gain * (share - self.alpha);
        (self.acked_bytes, self.marked_bytes, self.round_began) = (0, 0, ack.now);
        Some(share)
    }

    fn grow(&mut self, acked_packets: f32) {
        let fast = acked_packets.min((self.slow_start - self.cwnd).max(0.0));
        self.cwnd += fast;
        self.cwnd += (acked_packets - fast) / self.cwnd;
    }

    /// Takes a part off the window, once a round trip.
    fn cut(&mut self, now: Nanos, part: f32) {
        if self.cut_at.is_none() {
            self.cwnd = (self.cwnd * (1.0 - part)).max(CUT_LEAST_PACKETS);
            (self.slow_start, self.cut_at) = (self.cwnd, Some(now));
        }
    }

    pub(super) fn on_loss(&mut self, loss: &Loss) {
        self.cut(loss.now, LOSS_CUT);
    }

    pub(super) fn on_timeout(&mut self, timeout: &Timeout) {
        // Later timeouts in a row find one packet in flight.
        if timeout.in_a_row <= 1 {
            self.slow_start = (self.cwnd * LOSS_CUT).max(CUT_LEAST_PACKETS);
        }
        (self.cwnd, self.cut_at) = (TIMEOUT_PACKETS, None);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A packet that was sent a round trip of 10 us before, and came back.
    pub(in crate::baselines) fn ack(now: Nanos, packets: u32, marked: u32) -> AckSample {
        AckSample {
            now,
            sent_at: now - 10_000,
            acked_bytes: u64::from(packets) * 1_000,
            acked_packets: packets,
            rtt_ns: Some(10_000),
            path: 0,
            ce_bytes: marked * 1_000,
            lag_packets: 0,
            in_flight_bytes: 5_000,
            app_limited: false,
        }
    }

    /// Known answers, computed by hand.
    #[test]
    fn the_window_doubles_and_is_cut_by_the_average_share() {
        let mut window = DctcpWindow::new(0.0625, 5_000);
        assert_eq!(window.on_ack(&ack(14_000, 10, 0)), None, "sent before the round began");
        assert_eq!(window.packets(), 20.0);
        // 10 + 30 packets, none marked: alpha is 1 - 1/16.
        assert_eq!(window.on_ack(&ack(20_000, 30, 0)), Some(0.0));
        assert_eq!((window.packets(), window.alpha), (50.0, 0.9375));
        // A quarter is marked. The average is 0.9375 - 0.6875 / 16, and half of it goes.
        assert_eq!(window.on_ack(&ack(30_000, 40, 10)), Some(0.25));
        let alpha = 0.9375 - 0.6875 / 16.0;
        assert_eq!((window.packets(), window.alpha), (50.0 * (1.0 - alpha / 2.0), alpha));
        // Marks of the same round trip and losses cut no more, and nothing grows.
        let before = window.packets();
        window.on_ack(&ack(39_999, 4, 4));
        window.on_ack(&ack(39_999, 4, 0));
        assert_eq!(window.packets(), before);
        // What was sent after the cut ends it. The window grows by a packet for a window.
        window.on_ack(&ack(40_000, 2, 0));
        assert_eq!(window.packets(), before + 2.0 / before);
    }

    #[test]
    fn losses_halve_and_timeouts_start_again() {
        let loss = |now| Loss {
            now,
            sent_at: 0,
            bytes: 1_000,
            path: 0,
            kind: erd_rd::cc::LossKind::Order,
            in_flight_bytes: 0,
        };
        let mut window = DctcpWindow::new(0.0625, 0);
        window.cwnd = 40.0;
        window.on_loss(&loss(50_000));
        window.on_loss(&loss(50_001));
        assert_eq!(window.packets(), 20.0);
        for in_a_row in 1..4 {
            window.on_timeout(&Timeout { now: 90_000, in_flight_bytes: 0, in_a_row });
        }
        assert_eq!((window.packets(), window.slow_start), (1.0, 10.0));
        window.on_ack(&ack(200_000, 12, 0));
        // Nine packets of slow start, and three in a window of ten.
        assert_eq!(window.packets(), 10.3);
    }

    #[test]
    fn an_application_that_limits_makes_no_window_grow() {
        let mut window = DctcpWindow::new(0.0625, 0);
        window.on_ack(&AckSample { app_limited: true, ..ack(20_000, 10, 0) });
        assert_eq!(window.packets(), FIRST_PACKETS);
    }
}
