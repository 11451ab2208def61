//! DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257): once per round trip the window shrinks by half
//! the average share of marked bytes. Oblivious spray, or one path per flow (docs/cc/dctcp.md).

use super::options::{Choice, Field, OptionRow, Share, TypicalRtts, row};
use super::paths::{self, Uniform};
use super::pipe::Pipe;
use super::scheme::SchemeTable;
use super::window::{Window, marked_share, round_trip_since};
use super::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, SentBurst, Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;

/// Options of DCTCP.
#[derive(Clone, Copy, Debug, Default)]
pub struct DctcpOptions {
    /// Weight of a round trip's marked share in the average.
    pub g: Share,
    /// Queueing delay that counts as a mark without ECN.
    pub late: TypicalRtts,
    /// 1: each flow keeps to one path; 0: oblivious spray.
    pub single_path: Choice,
}

const OPTIONS: [OptionRow<DctcpOptions>; 3] = [
    row("g", Field::Share(|o| &mut o.g), 0.0625, [0.001, 1.0], "RFC 8257, section 4.2"),
    row("late", Field::TypicalRtts(|o| &mut o.late), 1.0, [0.05, 32.0], "docs: counts as a mark"),
    row("single_path", Field::Choice(|o| &mut o.single_path), 0.0, [0.0, 1.0], "docs: one path"),
];

/// DCTCP.
pub static DCTCP: SchemeTable<DctcpOptions> = SchemeTable {
    name: "dctcp",
    options: &OPTIONS,
    start: DctcpOptions::default,
    ack_policy: |_| AckPolicy::Coalesced { packets: ACK_PACKETS },
    loss_detection: |options| {
        if options.is_single() {
            LossDetection::OutOfOrder { least_packets: REORDER_PACKETS }
        } else {
            LossDetection::Receiver
        }
    },
    learns: |_| true,
    build: |options, params, seed| Box::new(Dctcp::new(options, params, seed)),
};

impl DctcpOptions {
    fn is_single(&self) -> bool {
        self.single_path.0 >= 0.5
    }
}

/// Packets per acknowledgement: acknowledgements count marks in bytes, and DCTCP is made for delayed acknowledgements
/// of a few packets.
const ACK_PACKETS: u8 = 4;
/// Duplicate acknowledgements that mean a loss to TCP (RFC 5681); one path keeps order.
const REORDER_PACKETS: u16 = 3;
/// Least window in packets.
const PACKETS_MIN: f32 = 1.0;

/// One flow.
#[derive(Clone, Debug)]
struct Dctcp {
    pipe: Pipe,
    window: Window,
    spray: Box<Uniform>,
    round_at: Nanos,
    cut_at: Nanos,
    gain: f32,
    late: TypicalRtts,
    /// The same in ns.
    late_ns: f32,
    /// Average share of marked bytes.
    alpha: f32,
    /// Bytes of this round trip, and how many of them were marked.
    acked_bytes: f32,
    marked_bytes: f32,
    /// Below it, in packets, the window doubles per round trip.
    slow_start: f32,
    /// The first path that it uses.
    path: u16,
}

impl Dctcp {
    fn new(options: &DctcpOptions, params: &FlowParams, seed: u64) -> Dctcp {
        let pipe = Pipe::new(params);
        let (mut rng, all) = (paths::rng(seed), params.paths.max(1));
        let (paths, path) =
            if options.is_single() { (1, paths::uniform(&mut rng, all)) } else { (all, 0) };
        Dctcp {
            pipe,
            window: Window::new(params, &pipe),
            spray: Box::new(Uniform::new(rng, paths)),
            round_at: params.now,
            cut_at: 0,
            gain: options.g.0,
            late: options.late,
            late_ns: pipe.target_ns(options.late),
            alpha: 1.0,
            acked_bytes: 0.0,
            marked_bytes: 0.0,
            slow_start: 0.0,
            path,
        }
    }

    /// A round ends when a packet comes back that was sent after the round began.
    fn end_round(&mut self, ack: &AckSample) {
        if ack.rtt_ns.is_none() || ack.sent_at < self.round_at || self.acked_bytes <= 0.0 {
            return;
        }
        self.alpha += self.gain * (self.marked_bytes / self.acked_bytes - self.alpha);
        (self.acked_bytes, self.marked_bytes) = (0.0, 0.0);
        self.round_at = ack.now;
    }

    /// Multiplies the window, once per round trip; returns whether it did.
    fn decrease(&mut self, now: Nanos, factor: f32) -> bool {
        let is_due = round_trip_since(self.cut_at, now, &self.pipe);
        if is_due {
            self.window.shrink_to(self.window.packets() * factor, PACKETS_MIN);
            self.slow_start = self.window.packets();
            self.cut_at = now;
        }
        is_due
    }
}

impl Controller for Dctcp {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.window.on_sent(sent, &self.pipe);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if self.pipe.on_ack(ack) {
            self.late_ns = self.pipe.target_ns(self.late);
            self.window.bound(&self.pipe);
        }
        let marked = marked_share(&self.pipe, ack, self.late_ns);
        self.acked_bytes += ack.acked_bytes as f32;
        self.marked_bytes += marked * ack.acked_bytes as f32;
        self.end_round(ack);
        if marked > 0.0 {
            self.decrease(ack.now, 1.0 - self.alpha / 2.0);
        } else if self.window.is_used(ack) {
            let (acked, packets) = (ack.acked_packets as f32, self.window.packets());
            let growth = if packets < self.slow_start {
                acked.min(self.slow_start - packets)
            } else {
                acked / packets
            };
            self.window.grow(growth, &self.pipe);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.spray.on_loss(loss, self.pipe.typical_rtt_ns());
        self.decrease(loss.now, 0.5);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.spray.on_timeout();
        // Slow start goes back to half of the window, as after a TCP timeout. Later timeouts in a row find one packet,
        // and must not erase that memory.
        if timeout.in_a_row <= 1 {
            self.slow_start = self.window.packets() / 2.0;
        }
        self.window.shrink_to(PACKETS_MIN, PACKETS_MIN);
        self.cut_at = timeout.now;
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        self.path + self.spray.next(now)
    }

    fn may_move(&self) -> bool {
        self.spray.paths() > 1
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.late_ns as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.spray.paths(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scheme;
    use super::*;

    const RTT: Nanos = 10_000;

    fn params() -> FlowParams {
        FlowParams {
            now: 0,
            datagram_bytes: 1_250,
            paths: 8,
            first_rtt_ns: RTT,
            base_rtt_ns: 0,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        }
    }

    /// 100 packets of BDP.
    fn flow() -> Dctcp {
        Dctcp::new(DCTCP.scheme().shared(), &params(), 1)
    }

    /// A round trip of ten acknowledgements; the last `marked` of them are marked.
    fn round(flow: &mut Dctcp, now: Nanos, rtt_ns: Nanos, marked: u32) {
        for i in 0..10 {
            let acked_bytes = flow.window_bytes() / 10;
            let ack = AckSample {
                now,
                sent_at: now - rtt_ns,
                acked_bytes,
                acked_packets: (acked_bytes / 1_250) as u32,
                rtt_ns: Some(rtt_ns),
                path: 0,
                ce_bytes: if i >= 10 - marked { acked_bytes as u32 } else { 0 },
                lag_packets: 0,
                in_flight_bytes: flow.window_bytes() - acked_bytes,
                app_limited: false,
            };
            flow.on_ack(&ack);
        }
    }

    #[test]
    fn the_average_follows_the_marked_share() {
        let mut flow = flow();
        assert_eq!(flow.alpha, 1.0);
        for n in 1..=200 {
            round(&mut flow, n * RTT, RTT, 3);
        }
        assert!((flow.alpha - 0.3).abs() < 0.02, "{}", flow.alpha);
    }

    #[test]
    fn few_marks_cut_little_and_many_cut_half() {
        let mut flow = flow();
        round(&mut flow, RTT, RTT, 0);
        flow.alpha = 0.1;
        let before = flow.window.packets();
        round(&mut flow, 2 * RTT, RTT, 1);
        let ratio = flow.window.packets() / before;
        assert!((ratio - 0.95).abs() < 0.02, "{ratio}");
        flow.alpha = 1.0;
        let before = flow.window.packets();
        round(&mut flow, 4 * RTT, RTT, 10);
        let ratio = flow.window.packets() / before;
        assert!((ratio - 0.5).abs() < 0.05, "one cut in a round trip: {ratio}");
    }

    #[test]
    fn without_marks_it_grows_by_one_packet_per_round_trip_to_two_bdp() {
        let mut flow = flow();
        for n in 1..=10 {
            round(&mut flow, n * RTT, RTT, 0);
        }
        assert!((108.0..111.0).contains(&flow.window.packets()), "{}", flow.window.packets());
        for n in 11..=1_000 {
            round(&mut flow, n * RTT, RTT, 0);
        }
        assert_eq!(flow.window_bytes(), 250_000);
    }

    #[test]
    fn a_loss_halves_once_and_a_timeout_starts_slowly() {
        let mut flow = flow();
        let mut loss = Loss {
            now: 100 * RTT,
            sent_at: 0,
            bytes: 1_250,
            path: 0,
            kind: super::super::LossKind::Nack,
            in_flight_bytes: 0,
        };
        flow.on_loss(&loss);
        loss.now += 1;
        flow.on_loss(&loss);
        assert_eq!(flow.window.packets(), 50.0);
        for in_a_row in 1..=2 {
            flow.on_timeout(&Timeout { now: 200 * RTT, in_flight_bytes: 0, in_a_row });
        }
        assert_eq!(flow.window_bytes(), 1_250);
        for n in 0..10u64 {
            let one = AckSample {
                now: (300 + n) * RTT,
                sent_at: (299 + n) * RTT,
                acked_bytes: flow.window_bytes(),
                acked_packets: (flow.window_bytes() / 1_250) as u32,
                rtt_ns: Some(RTT),
                path: 0,
                ce_bytes: 0,
                lag_packets: 0,
                in_flight_bytes: 0,
                app_limited: false,
            };
            flow.on_ack(&one);
        }
        let packets = flow.window.packets();
        assert!((25.0..32.0).contains(&packets), "doubles up to 25, then one a round: {packets}");
    }

    #[test]
    fn without_ecn_delay_counts_as_marks() {
        let mut flow = flow();
        for n in 1..=20 {
            round(&mut flow, n * RTT, RTT, 0);
        }
        let before = flow.window.packets();
        for n in 0..20 {
            round(&mut flow, 1_000_000 + n * 20 * RTT, 20 * RTT, 0);
        }
        assert!(flow.window.packets() < before / 2.0, "{}", flow.window.packets());
    }

    #[test]
    fn one_path_or_all() {
        let mut spray = flow();
        let first = spray.next_path(0);
        assert!((0..100).any(|_| spray.next_path(0) != first));
        let mut scheme = DCTCP.scheme();
        scheme.set("single_path", 1.0).unwrap();
        assert_eq!(scheme.loss_detection(), LossDetection::OutOfOrder { least_packets: 3 });
        let used = |seed| {
            let mut flow = Dctcp::new(scheme.shared(), &params(), seed);
            let path = flow.next_path(0);
            assert!((0..100).all(|_| flow.next_path(0) == path) && path < 8);
            path
        };
        assert!((0..50).any(|seed| used(seed) != used(0)));
    }

    #[test]
    fn state_is_small() {
        let bytes = size_of::<Dctcp>();
        assert!(bytes <= 128, "{bytes}");
    }
}
