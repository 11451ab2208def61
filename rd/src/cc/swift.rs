//! Swift (Kumar et al., SIGCOMM 2020): additive increase and multiplicative decrease on delay, with a target that grows
//! for small windows; paced below one packet. Oblivious spray (docs/cc/swift.md).

mod printed;
mod rows;

use super::paths::{self, Uniform};
use super::pipe::Pipe;
use super::scheme::SchemeTable;
use super::window::{Window, round_trip_since};
use super::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, SentBurst, Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use alloc::sync::Arc;
use printed::PrintedSwift;
pub use rows::SwiftOptions;
use rows::{GAP_MAX_NS, OPTIONS};

/// Swift.
pub static SWIFT: SchemeTable<SwiftOptions> = SchemeTable {
    name: "swift",
    options: &OPTIONS,
    start: SwiftOptions::default,
    ack_policy: |_| AckPolicy::PerPacket,
    loss_detection: |_| LossDetection::Receiver,
    learns: |options| !options.law.is_printed(),
    build: |options, params, seed| match options.law.is_printed() {
        false => Box::new(Swift::new(options, params, seed)),
        true => Box::new(PrintedSwift::new(options, params, seed)),
    },
};

/// Windows between which flow scaling works, as 1 over their square roots: 0.1 and 100 packets
/// (htsim).
const FS_AT_MIN: f32 = 3.162_277_7;
const FS_AT_MAX: f32 = 0.1;
/// Least window in packets: a thousand flows can share a path that one packet fills.
const PACKETS_MIN: f32 = 0.001;
/// Timeouts in a row after which the window starts again (htsim's threshold of retransmissions).
const TIMEOUTS_RESET: u32 = 5;

/// One flow.
#[derive(Clone, Debug)]
struct Swift {
    options: Arc<SwiftOptions>,
    pipe: Pipe,
    window: Window,
    spray: Box<Uniform>,
    decreased_at: Nanos,
}

impl Swift {
    fn new(options: &Arc<SwiftOptions>, params: &FlowParams, seed: u64) -> Swift {
        let pipe = Pipe::new(params);
        let window = Window::new(params, &pipe);
        let spray = Box::new(Uniform::new(paths::rng(seed), params.paths));
        Swift { options: Arc::clone(options), pipe, window, spray, decreased_at: 0 }
    }

    /// Target of the queueing delay: the base target and flow scaling. A small window gets a
    /// larger target, so that many flows share a queue fairly.
    fn target_ns(&self) -> f32 {
        let base = self.pipe.target_ns(self.options.target);
        let part = (inverse_root(self.window.packets()) - FS_AT_MAX) / (FS_AT_MIN - FS_AT_MAX);
        base + self.options.fs_range.0 * base * part.clamp(0.0, 1.0)
    }

    /// Multiplies the window, once per round trip.
    fn decrease(&mut self, now: Nanos, factor: f32) {
        if round_trip_since(self.decreased_at, now, &self.pipe) {
            self.window.shrink_to(self.window.packets() * factor, PACKETS_MIN);
            self.decreased_at = now;
        }
    }
}

impl Controller for Swift {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.window.on_sent(sent, &self.pipe);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if self.pipe.on_ack(ack) {
            self.window.bound(&self.pipe);
        }
        let (queue, target) = (self.pipe.queue_delay_ns(), self.target_ns());
        if queue < target {
            if self.window.is_used(ack) {
                // Below one packet, each acknowledgement stands for one packet of growth.
                let per_packet = self.options.ai.0 / self.window.packets().max(1.0);
                let growth = per_packet * ack.acked_packets as f32;
                self.window.grow(growth, &self.pipe);
            }
        } else if ack.rtt_ns.is_some() {
            let excess = (queue - target) / (self.pipe.base_rtt_ns() + queue);
            let cut = (self.options.beta.0 * excess).min(self.options.max_mdf.0);
            self.decrease(ack.now, 1.0 - cut);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.spray.on_loss(loss, self.pipe.typical_rtt_ns());
        self.decrease(loss.now, 1.0 - self.options.max_mdf.0);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.spray.on_timeout();
        if timeout.in_a_row >= TIMEOUTS_RESET {
            self.window.shrink_to(PACKETS_MIN, PACKETS_MIN);
            self.decreased_at = timeout.now;
        } else {
            self.decrease(timeout.now, 1.0 - self.options.max_mdf.0);
        }
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        let packets = self.window.packets();
        if packets >= 1.0 {
            return None;
        }
        let rtt_ns = self.pipe.base_rtt_ns() + self.pipe.queue_delay_ns();
        let gap_ns = (rtt_ns / packets).clamp(1.0, GAP_MAX_NS);
        Some(((self.window.packet_bytes() as f32 * 1e9 / gap_ns) as u64).max(1))
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        self.spray.next(now)
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.target_ns() as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.spray.paths(),
        }
    }
}

/// 1 over the square root, by Newton's method from a guess that halves the exponent.
fn inverse_root(x: f32) -> f32 {
    let mut y = f32::from_bits(0x5F37_5A86_u32.wrapping_sub(x.to_bits() >> 1));
    for _ in 0..3 {
        y *= 1.5 - 0.5 * x * y * y;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::super::options::TypicalRtts;
    use super::*;

    const RTT: Nanos = 10_000;

    /// 100 packets of BDP.
    fn flow() -> Swift {
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1_250,
            paths: 8,
            first_rtt_ns: RTT,
            base_rtt_ns: 0,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        };
        Swift::new(SWIFT.scheme().shared(), &params, 1)
    }

    fn ack(flow: &Swift, now: Nanos, packets: u32, rtt_ns: Nanos) -> AckSample {
        AckSample {
            now,
            sent_at: now - rtt_ns,
            acked_bytes: u64::from(packets) * 1_250,
            acked_packets: packets,
            rtt_ns: Some(rtt_ns),
            path: 0,
            ce_bytes: 0,
            lag_packets: 0,
            in_flight_bytes: flow.window_bytes(),
            app_limited: false,
        }
    }

    /// One round trip's acknowledgements, ten packets each.
    fn round(flow: &mut Swift, now: Nanos, rtt_ns: Nanos) {
        for _ in 0..10 {
            let ack = ack(flow, now, 10, rtt_ns);
            flow.on_ack(&ack);
        }
    }

    #[test]
    fn below_target_the_window_grows_by_ai_per_round_trip() {
        let mut flow = flow();
        for n in 1..=10 {
            round(&mut flow, n * RTT, RTT);
        }
        let packets = flow.window.packets();
        assert!((109.0..110.1).contains(&packets), "{packets}");
    }

    #[test]
    fn growth_stops_at_two_bdp() {
        let mut flow = flow();
        for n in 1..=2_000 {
            round(&mut flow, n * RTT, RTT);
        }
        assert_eq!(flow.window_bytes(), 250_000);
    }

    #[test]
    fn a_decrease_follows_the_excess_and_comes_once_per_round_trip() {
        let mut flow = flow();
        round(&mut flow, RTT, RTT);
        let before = flow.window.packets();
        let now = 1_000_000;
        // The filter takes two blocks of eight samples to believe it.
        round(&mut flow, now, 3 * RTT);
        round(&mut flow, now, 3 * RTT);
        // 20 us of queue against a target of 10 us, of 30 us: 1 - 0.8 / 3. The estimates of the
        // typical round trip and of the noise move the target up a little.
        let once = flow.window.packets() / before;
        assert!((0.72..0.80).contains(&once), "{once}");
        let after = flow.window.packets();
        round(&mut flow, now + RTT, 3 * RTT);
        assert_eq!(flow.window.packets(), after, "within the same round trip");
        round(&mut flow, now + 3 * RTT, 3 * RTT);
        assert!(flow.window.packets() < after);
    }

    #[test]
    fn no_decrease_takes_more_than_half() {
        let mut flow = flow();
        round(&mut flow, RTT, RTT);
        let before = flow.window.packets();
        for i in 0..24 {
            let ack = ack(&flow, 10_000_000 + i, 1, 500 * RTT);
            flow.on_ack(&ack);
        }
        let ratio = flow.window.packets() / before;
        assert!((0.5..0.52).contains(&ratio), "{ratio}");
    }

    #[test]
    fn below_one_packet_it_paces_and_comes_back() {
        let mut flow = flow();
        round(&mut flow, RTT, RTT);
        for n in 1..=TIMEOUTS_RESET {
            let now = u64::from(n) * 1_000_000;
            flow.on_timeout(&Timeout { now, in_flight_bytes: 1_250, in_a_row: n });
        }
        assert_eq!(flow.window.packets(), PACKETS_MIN);
        assert_eq!(flow.window_bytes(), 1_250, "one packet is always allowed");
        // 1250 B every 1000 round trips of 10 us.
        let pace = flow.pace_bytes_per_s().unwrap();
        assert!((124_000..126_000).contains(&pace), "{pace}");
        let ack = AckSample { in_flight_bytes: 0, ..ack(&flow, 20_000_000, 1, RTT) };
        flow.on_ack(&ack);
        assert!(flow.pace_bytes_per_s().is_none(), "{}", flow.window.packets());
    }

    #[test]
    fn small_windows_get_larger_targets() {
        let mut flow = flow();
        let base = flow.pipe.target_ns(TypicalRtts(1.0));
        assert!((flow.target_ns() / base - 1.0).abs() < 1e-3, "none at 100 packets");
        flow.window.shrink_to(10.0, PACKETS_MIN);
        let at_ten = flow.target_ns() / base;
        assert!((at_ten - 1.353).abs() < 0.01, "{at_ten}");
        flow.window.shrink_to(0.01, PACKETS_MIN);
        assert!((flow.target_ns() / base - 6.0).abs() < 1e-3, "bounded by fs_range");
    }

    #[test]
    fn what_the_application_limits_does_not_grow() {
        let mut flow = flow();
        for n in 1..=100 {
            let limited = AckSample { app_limited: true, ..ack(&flow, n * RTT, 10, RTT) };
            flow.on_ack(&limited);
            let unused = AckSample { in_flight_bytes: 1_250, ..ack(&flow, n * RTT, 10, RTT) };
            flow.on_ack(&unused);
        }
        assert_eq!(flow.window_bytes(), 125_000);
    }

    #[test]
    fn inverse_root_is_exact_enough() {
        for x in [0.001f32, 0.1, 1.0, 4.0, 100.0, 1e7] {
            let y = inverse_root(x);
            assert!((y * y * x - 1.0).abs() < 1e-4, "{x}");
        }
    }

    #[test]
    fn state_is_small() {
        let bytes = size_of::<Swift>();
        assert!(bytes <= 128, "{bytes}");
    }
}
