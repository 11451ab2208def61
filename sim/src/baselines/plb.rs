//! PLB (Qureshi et al., SIGCOMM 2022) over DCTCP: a flow keeps to one path, and takes another at random after rounds of
//! congestion (docs/baselines.md).

use super::dctcp::DctcpWindow;
use erd_rd::cc::options::{Count, Field, Micros, OptionRow, Share, row};
use erd_rd::cc::paths;
use erd_rd::cc::pipe::Pipe;
use erd_rd::cc::scheme::SchemeTable;
use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, SentBurst, Timeout, View,
};
use erd_rd::{Ecn, Nanos};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Options of PLB.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlbOptions {
    /// K: a round with at least this share of marked bytes is congested.
    pub congested: Share,
    /// M: congested rounds in a row after which a flow moves when nothing is in flight; 0 for never.
    pub idle_rounds: Count,
    /// N: congested rounds in a row after which a flow moves at once; 0 for never.
    pub forced_rounds: Count,
    /// After a timeout, a flow moves no more for one to two such times.
    pub pause: Micros,
    /// Weight of a round's marked share in DCTCP's average.
    pub g: Share,
}

const OPTIONS: [OptionRow<PlbOptions>; 5] = [
    row(
        "congested",
        Field::Share(|o| &mut o.congested),
        0.5,
        [0.0, 1.0],
        "Linux: tcp_plb_cong_thresh, K",
    ),
    row(
        "idle_rounds",
        Field::Count(|o| &mut o.idle_rounds),
        3.0,
        [0.0, 31.0],
        "Linux: tcp_plb_idle_rehash_rounds, M",
    ),
    row(
        "forced_rounds",
        Field::Count(|o| &mut o.forced_rounds),
        12.0,
        [0.0, 31.0],
        "LAPS, IV-B; Linux: tcp_plb_rehash_rounds, N",
    ),
    row(
        "pause",
        Field::Micros(|o| &mut o.pause),
        60e6,
        [0.0, 255e6],
        "Linux: tcp_plb_suspend_rto_sec",
    ),
    row("g", Field::Share(|o| &mut o.g), 0.0625, [0.001, 1.0], "RFC 8257, section 4.2"),
];

/// PLB.
pub static PLB: SchemeTable<PlbOptions> = SchemeTable {
    name: "plb",
    options: &OPTIONS,
    start: PlbOptions::default,
    ack_policy: |_| AckPolicy::Coalesced { packets: ACK_PACKETS },
    loss_detection: |_| LossDetection::OutOfOrder { least_packets: REORDER_PACKETS },
    learns: |_| false,
    build: |options, params, seed| Box::new(Plb::new(options, params, seed)),
};

/// Packets of an acknowledgement: every second one at least (RFC 5681, section 4.2).
const ACK_PACKETS: u8 = 2;
/// Later packets that mean a loss (RFC 5681, section 3.2).
const REORDER_PACKETS: u16 = 3;

/// One flow.
#[derive(Debug)]
struct Plb {
    options: PlbOptions,
    pipe: Pipe,
    window: DctcpWindow,
    rng: Pcg32,
    packet_bytes: u32,
    paths: u16,
    path: u16,
    congested_rounds: u32,
    paused_until: Nanos,
}

impl Plb {
    fn new(options: &PlbOptions, params: &FlowParams, seed: u64) -> Plb {
        let mut rng = paths::rng(seed);
        let paths = params.paths.clamp(1, paths::PATHS_MAX);
        Plb {
            options: *options,
            pipe: Pipe::raw(params),
            window: DctcpWindow::new(options.g.0, params.now),
            packet_bytes: params.datagram_bytes.max(1),
            path: paths::uniform(&mut rng, paths),
            rng,
            paths,
            congested_rounds: 0,
            paused_until: 0,
        }
    }

    /// Takes another path, each with the same probability.
    fn repath(&mut self) {
        if self.paths > 1 {
            let step = 1 + paths::uniform(&mut self.rng, self.paths - 1);
            self.path = (self.path + step) % self.paths;
        }
        self.congested_rounds = 0;
    }

    fn has_reached(&self, rounds: Count) -> bool {
        rounds.0 >= 1.0 && self.congested_rounds as f32 >= rounds.0
    }
}

impl Controller for Plb {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        if let Some(share) = self.window.on_ack(ack) {
            let is_congested = share >= self.options.congested.0;
            self.congested_rounds = if is_congested { self.congested_rounds + 1 } else { 0 };
        }
        let is_due = self.has_reached(self.options.forced_rounds)
            || ack.in_flight_bytes == 0 && self.has_reached(self.options.idle_rounds);
        if is_due && ack.now >= self.paused_until {
            self.repath();
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.window.on_loss(loss);
    }

    /// TCP takes another path at each timeout, and PLB then leaves it alone: the old one may be dead.
    fn on_timeout(&mut self, timeout: &Timeout) {
        self.window.on_timeout(timeout);
        self.repath();
        let part = f64::from(self.rng.next_u32()) / f64::from(u32::MAX);
        let pause_ns = f64::from(self.options.pause.0) * 1e3 * (1.0 + part);
        self.paused_until = timeout.now + pause_ns as Nanos;
    }

    fn window_bytes(&self) -> u64 {
        (f64::from(self.window.packets()) * f64::from(self.packet_bytes)) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        self.path
    }

    fn may_move(&self) -> bool {
        false
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        let bdp_bytes = self.pipe.bdp_bytes() as u64;
        View { base_rtt_ns, typical_rtt_ns, target_ns: 0, bdp_bytes, paths: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dctcp::tests::ack;
    use super::*;
    use erd_rd::cc::Scheme;

    const RTT: Nanos = 10_000;
    /// No round.
    const NEVER: [u64; 0] = [];

    fn flow(paths: u16) -> Box<dyn Controller> {
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1_000,
            paths,
            first_rtt_ns: RTT,
            base_rtt_ns: RTT,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        };
        PLB.scheme().build(&params, 1)
    }

    /// Rounds of ten packets, so many of them marked, from a time in round trips on. It gives the rounds after which the
    /// path was another one.
    fn moves(
        flow: &mut dyn Controller,
        from: u64,
        rounds: u64,
        marked: u32,
        idle: bool,
    ) -> Vec<u64> {
        let mut moved = Vec::new();
        for round in 0..rounds {
            let before = flow.next_path(0);
            let in_flight_bytes = if idle { 0 } else { 5_000 };
            flow.on_ack(&AckSample { in_flight_bytes, ..ack((from + round) * RTT, 10, marked) });
            if flow.next_path(0) != before {
                moved.push(round + 1);
            }
        }
        moved
    }

    #[test]
    fn twelve_congested_rounds_in_a_row_move_a_busy_flow() {
        let mut flow = flow(64);
        assert_eq!(moves(&mut *flow, 1, 30, 5, false), [12, 24]);
        assert_eq!(moves(&mut *flow, 31, 30, 4, false), NEVER, "less than half is no congestion");
        assert_eq!(moves(&mut *flow, 61, 11, 10, false), NEVER);
        assert_eq!(moves(&mut *flow, 72, 1, 0, false), NEVER);
        assert_eq!(
            moves(&mut *flow, 73, 11, 10, false),
            NEVER,
            "a good round starts the count again"
        );
    }

    #[test]
    fn three_congested_rounds_in_a_row_move_an_idle_flow() {
        assert_eq!(moves(&mut *flow(64), 1, 7, 10, true), [3, 6]);
    }

    #[test]
    fn a_timeout_moves_and_pauses() {
        let mut flow = flow(64);
        let before = flow.next_path(0);
        flow.on_timeout(&Timeout { now: RTT, in_flight_bytes: 0, in_a_row: 1 });
        assert_ne!(flow.next_path(0), before);
        assert_eq!(flow.window_bytes(), 1_000);
        let minute = 60_000_000_000 / RTT;
        assert_eq!(moves(&mut *flow, 2, 30, 10, true), NEVER);
        assert_eq!(moves(&mut *flow, minute - 10, 10, 10, true), NEVER, "a minute at least");
        assert_eq!(moves(&mut *flow, 2 * minute + 2, 1, 10, true), [1]);
    }

    #[test]
    fn a_move_takes_any_other_path() {
        let mut flow = flow(4);
        let mut seen = [0; 4];
        for from in 0..400 {
            moves(&mut *flow, 1 + from * 3, 3, 10, true);
            seen[usize::from(flow.next_path(0))] += 1;
        }
        assert!(seen.iter().all(|times| (70..130).contains(times)), "{seen:?}");
        assert_eq!(moves(&mut *self::flow(1), 1, 30, 10, true), NEVER, "one path stays");
    }

    #[test]
    fn limits_of_zero_never_move() {
        let mut scheme = PLB.scheme();
        scheme.set("idle_rounds", 0.0).unwrap();
        scheme.set("forced_rounds", 0.0).unwrap();
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1_000,
            paths: 64,
            first_rtt_ns: RTT,
            base_rtt_ns: RTT,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        };
        assert_eq!(moves(&mut *scheme.build(&params, 1), 1, 100, 10, true), NEVER);
    }
}
