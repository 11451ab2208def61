//! Swift's algorithm 1 without the product's filter, noise, idle restart and paths left alone (`law` = 1). It is for
//! comparisons with the papers that compare with it (docs/cc/swift.md, "Profiles").

use super::rows::{GAP_MAX_NS, SwiftOptions};
use crate::cc::paths::{self, PATHS_MAX};
use crate::cc::pipe::{Pipe, short_f32};
use crate::cc::profiles::{
    SWIFT_SCALING_LEAST, SWIFT_SCALING_MOST, SWIFT_TIMEOUTS_RESET, SWIFT_WINDOW_LEAST,
    SWIFT_WINDOW_MOST,
};
use crate::cc::{AckSample, Controller, FlowParams, Loss, SentBurst, Timeout, View};
use crate::units::{Ecn, Nanos};
use alloc::sync::Arc;
use rand_pcg::Pcg32;

/// One flow. The window is in packets.
#[derive(Clone, Debug)]
pub(super) struct PrintedSwift {
    options: Arc<SwiftOptions>,
    pipe: Pipe,
    rng: Pcg32,
    paths: u16,
    packet_bytes: f32,
    cwnd: f32,
    rtt_ns: f32,
    /// Packets acknowledged since the latest sample.
    acked_packets: f32,
    decreased_at: Option<Nanos>,
}

impl PrintedSwift {
    pub(super) fn new(options: &Arc<SwiftOptions>, params: &FlowParams, seed: u64) -> PrintedSwift {
        let pipe = Pipe::raw(params);
        let packet_bytes = params.datagram_bytes.max(1) as f32;
        PrintedSwift {
            options: Arc::clone(options),
            pipe,
            rng: paths::rng(seed),
            paths: params.paths.clamp(1, PATHS_MAX),
            packet_bytes,
            cwnd: (pipe.bdp_bytes() / packet_bytes).clamp(1.0, SWIFT_WINDOW_MOST),
            rtt_ns: pipe.base_rtt_ns(),
            acked_packets: 0.0,
            decreased_at: None,
        }
    }

    /// Target of the whole round trip: the base target and flow scaling.
    fn target_ns(&self) -> f32 {
        let base = (1.0 + self.options.target.0) * self.pipe.base_rtt_ns();
        let range = self.options.fs_range.0 * base;
        let inverse = |packets: f32| 1.0 / libm::sqrtf(packets);
        let (most, least) = (inverse(SWIFT_SCALING_LEAST), inverse(SWIFT_SCALING_MOST));
        let alpha = range / (most - least);
        base + (alpha * (inverse(self.cwnd) - least)).clamp(0.0, range)
    }

    fn set_cwnd(&mut self, now: Nanos, packets: f32) {
        let packets = packets.clamp(SWIFT_WINDOW_LEAST, SWIFT_WINDOW_MOST);
        if packets < self.cwnd {
            self.decreased_at = Some(now);
        }
        self.cwnd = packets;
    }

    fn can_decrease(&self, now: Nanos) -> bool {
        self.decreased_at.is_none_or(|at| now.saturating_sub(at) as f32 >= self.rtt_ns)
    }

    /// The reaction to a loss: at most once a round trip.
    fn cut(&mut self, now: Nanos) {
        if self.can_decrease(now) {
            self.set_cwnd(now, self.cwnd * (1.0 - self.options.max_mdf.0));
        }
    }
}

impl Controller for PrintedSwift {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        self.acked_packets += ack.acked_packets as f32;
        let Some(rtt_ns) = ack.rtt_ns.map(short_f32) else { return };
        self.rtt_ns = rtt_ns;
        let acked_packets = core::mem::take(&mut self.acked_packets);
        let (target_ns, options) = (self.target_ns(), &self.options);
        if rtt_ns < target_ns {
            let grown = options.ai.0 * acked_packets / self.cwnd.max(1.0);
            self.set_cwnd(ack.now, self.cwnd + grown);
        } else if self.can_decrease(ack.now) {
            let cut = options.beta.0 * (rtt_ns - target_ns) / rtt_ns;
            self.set_cwnd(ack.now, self.cwnd * (1.0 - cut.min(options.max_mdf.0)));
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.cut(loss.now);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        if timeout.in_a_row >= SWIFT_TIMEOUTS_RESET {
            self.set_cwnd(timeout.now, SWIFT_WINDOW_LEAST);
        } else {
            self.cut(timeout.now);
        }
    }

    fn window_bytes(&self) -> u64 {
        (self.cwnd.max(1.0) * self.packet_bytes) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        let gap_ns = (self.rtt_ns / self.cwnd).clamp(1.0, GAP_MAX_NS);
        (self.cwnd < 1.0).then_some(((self.packet_bytes * 1e9 / gap_ns) as u64).max(1))
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        paths::uniform(&mut self.rng, self.paths)
    }

    fn may_move(&self) -> bool {
        false
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: (self.target_ns() - self.pipe.base_rtt_ns()) as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Known answers, computed by hand from algorithm 1. Network: 100 Gb/s, 12 us; packets of 1500 bytes, 100 a BDP.

    use super::*;
    use crate::cc::Scheme;
    use crate::cc::schemes::by_profile;
    use crate::cc::swift::SWIFT;

    const RTT: Nanos = 12_000;

    fn flow() -> PrintedSwift {
        let mut scheme = SWIFT.scheme();
        for option in by_profile("swift", "paper").unwrap().options() {
            scheme.set(option.name, option.value).unwrap();
        }
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1500,
            paths: 8,
            first_rtt_ns: RTT,
            base_rtt_ns: RTT,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        };
        PrintedSwift::new(scheme.shared(), &params, 1)
    }

    fn feed(flow: &mut PrintedSwift, now: Nanos, rtt_ns: Nanos) {
        flow.on_ack(&AckSample {
            now,
            sent_at: now.saturating_sub(rtt_ns),
            acked_bytes: 1500,
            acked_packets: 1,
            rtt_ns: Some(rtt_ns),
            path: 0,
            ce_bytes: 0,
            lag_packets: 0,
            in_flight_bytes: 3000,
            app_limited: true,
        });
    }

    fn assert_near(is: f32, expected: f32) {
        assert!((is - expected).abs() <= 1e-4 * expected.abs().max(1e-2), "{is}, not {expected}");
    }

    #[test]
    fn targets_of_flow_scaling() {
        let mut flow = flow();
        assert_near(flow.cwnd, 100.0);
        assert_near(flow.target_ns(), 24_000.0);
        flow.cwnd = 0.1;
        assert_near(flow.target_ns(), 144_000.0);
        // 120 us * (1 / sqrt(4) - 1 / 10) / (sqrt(10) - 1 / 10).
        flow.cwnd = 4.0;
        assert_near(flow.target_ns(), 24_000.0 + 120_000.0 * 0.4 / 3.062_277_7);
    }

    #[test]
    fn increases_and_decreases() {
        let mut flow = flow();
        feed(&mut flow, 1, 23_999);
        assert_near(flow.cwnd, 100.01);
        // 1 - 0.8 * (30 - 24) / 30, once in a round trip of 30 us.
        flow.cwnd = 100.0;
        feed(&mut flow, 1_000, 30_000);
        assert_near(flow.cwnd, 84.0);
        feed(&mut flow, 30_999, 30_000);
        assert_near(flow.cwnd, 84.0);
        // At most a half.
        flow.cwnd = 100.0;
        feed(&mut flow, 2_000_000, 1_000_000);
        assert_near(flow.cwnd, 50.0);
        // Below one packet, a packet for each acknowledged one.
        flow.cwnd = 0.25;
        feed(&mut flow, 2_100_000, 24_000);
        assert_near(flow.cwnd, 1.25);
    }

    /// An acknowledgement that was lost has told no delay. The next one stands for its packets, too.
    #[test]
    fn packets_without_a_sample_count_with_the_next_one() {
        let mut flow = flow();
        let unsampled = AckSample {
            now: 1,
            sent_at: 1,
            acked_bytes: 4500,
            acked_packets: 3,
            rtt_ns: None,
            path: 0,
            ce_bytes: 0,
            lag_packets: 0,
            in_flight_bytes: 3000,
            app_limited: false,
        };
        flow.on_ack(&unsampled);
        assert_near(flow.cwnd, 100.0);
        feed(&mut flow, 2, 20_000);
        assert_near(flow.cwnd, 100.04);
        feed(&mut flow, 3, 20_000);
        assert_near(flow.cwnd, 100.04 + 1.0 / 100.04);
        // At the target, nothing moves; a late sample takes its packets with it.
        flow.on_ack(&unsampled);
        flow.cwnd = 100.0;
        feed(&mut flow, 4, 24_000);
        feed(&mut flow, 5, 20_000);
        assert_near(flow.cwnd, 100.01);
    }

    /// Every decrease, whatever its cause, opens a round trip without another one.
    #[test]
    fn losses_and_delays_share_one_gate() {
        let loss = |now| Loss {
            now,
            sent_at: 0,
            bytes: 1500,
            path: 0,
            kind: crate::cc::LossKind::Nack,
            in_flight_bytes: 0,
        };
        let mut flow = flow();
        feed(&mut flow, 100_000, 30_000);
        assert_near(flow.cwnd, 84.0);
        flow.on_loss(&loss(129_999));
        assert_near(flow.cwnd, 84.0);
        flow.on_loss(&loss(130_000));
        assert_near(flow.cwnd, 42.0);
        feed(&mut flow, 159_999, 30_000);
        assert_near(flow.cwnd, 42.0);
    }

    #[test]
    fn losses_halve_timeouts_reset_and_small_windows_are_paced() {
        let mut flow = flow();
        let timeout = |now, in_a_row| Timeout { now, in_flight_bytes: 0, in_a_row };
        flow.on_timeout(&timeout(1, 1));
        flow.on_timeout(&timeout(2, 2));
        assert_near(flow.cwnd, 50.0);
        assert!(flow.pace_bytes_per_s().is_none() && !flow.may_move());
        flow.cwnd = 0.5;
        assert_eq!(flow.pace_bytes_per_s(), Some(62_500_000));
        flow.on_timeout(&timeout(3, 5));
        assert_near(flow.cwnd, 0.001);
    }
}
