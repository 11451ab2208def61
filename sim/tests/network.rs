//! The network model against what is known of queues: Little's law, a fixed window's queue, RED,
//! fairness of a plain additive increase.

use erd_rd::Ecn;
use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, Scheme, SentBurst, Timeout,
    View,
};
use erd_sim::ids::HostId;
use erd_sim::link::Health;
use erd_sim::scenario::{Scenario, Start, jain, least};
use erd_sim::tables::noise;
use erd_sim::topology::{DATAGRAM_BYTES, SEGMENT_WIRE_BYTES};
use erd_sim::trial::{PathTrial, RevivalTrial};
use std::rc::Rc;

/// What a test's controller does with its window.
#[derive(Clone, Copy, PartialEq)]
enum Law {
    /// Nothing.
    Fixed,
    /// Adds a packet a round trip; halves it on a mark or a loss, once a round trip.
    Aimd,
}

/// A window in datagrams, over all paths in turn.
#[derive(Clone, Copy)]
struct Window {
    law: Law,
    datagrams: f64,
    paths: u16,
    path: u16,
    cut_at: u64,
}

impl Window {
    fn cut(&mut self, now: u64, rtt_ns: u64) {
        if self.law == Law::Aimd && now >= self.cut_at + rtt_ns {
            self.datagrams = (self.datagrams / 2.0).max(1.0);
            self.cut_at = now;
        }
    }
}

impl Controller for Window {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, ack: &AckSample) {
        if ack.ce_bytes > 0 {
            self.cut(ack.now, ack.rtt_ns.unwrap_or(0));
        } else if self.law == Law::Aimd {
            self.datagrams += f64::from(ack.acked_packets) / self.datagrams;
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.cut(loss.now, 20_000);
    }

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        // The engine asks for room for a payload checksum too, which these packets do not have.
        (self.datagrams * f64::from(DATAGRAM_BYTES)) as u64 + 4
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, _: u64) -> u16 {
        self.path = (self.path + 1) % self.paths;
        self.path
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        View::default()
    }
}

impl Scheme for Window {
    fn name(&self) -> &'static str {
        "window"
    }

    fn ack_policy(&self) -> AckPolicy {
        AckPolicy::PerPacket
    }

    fn loss_detection(&self) -> LossDetection {
        LossDetection::Receiver
    }

    fn learns(&self) -> bool {
        false
    }

    fn build(&self, params: &FlowParams, _: u64) -> Box<dyn Controller> {
        Box::new(Window { paths: params.paths, ..*self })
    }
}

/// Flows with such windows over one path; half a BDP each unless told otherwise.
fn scenario(law: Law, datagrams: f64, flows: u32) -> Scenario {
    let window = Window { law, datagrams, paths: 1, path: 0, cut_at: 0 };
    let mut scenario = Scenario::new(Rc::new(move || Box::new(window)), flows, 7);
    (scenario.net.paths, scenario.net.entropies) = (1, 1);
    (scenario.warmup_rtts, scenario.measured_rtts) = (100, 300);
    scenario
}

/// What fits into the network, in full segments.
fn bdp_segments(scenario: &Scenario) -> f64 {
    scenario.net.bdp_bytes() / f64::from(SEGMENT_WIRE_BYTES)
}

fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{what}: {value}, not {expected}");
}

#[test]
fn a_small_window_is_delivered_once_a_round_trip() {
    for part in [0.25, 0.5, 0.9] {
        let bdp = bdp_segments(&scenario(Law::Fixed, 1.0, 1));
        let outcome = scenario(Law::Fixed, (part * bdp).floor(), 1).run();
        assert_near("utilisation", outcome.utilisation, part, 0.015);
        assert!(outcome.queue_mean_bdp < 0.02, "{outcome:?}");
    }
}

#[test]
fn a_large_window_stands_in_the_queue() {
    for (flows, paths) in [(1, 1), (4, 1), (1, 8), (4, 8)] {
        let bdp = bdp_segments(&scenario(Law::Fixed, 1.0, 1));
        let window = (2.0 * bdp / f64::from(flows)).round();
        let mut scenario = scenario(Law::Fixed, window, flows);
        (scenario.net.paths, scenario.net.entropies) = (paths, paths);
        let outcome = scenario.run();
        assert_near("utilisation", outcome.utilisation, 1.0, 0.01);
        let in_flight = window * f64::from(flows) / bdp;
        assert_near("queue", outcome.queue_mean_bdp, in_flight - 1.0, 0.05);
        assert_near("Jain's index", outcome.jain, 1.0, 0.01);
        assert_eq!((outcome.drops, outcome.rtx_spurious, outcome.failures), (0, 0, 0));
    }
}

#[test]
fn jitter_lengthens_the_round_trip_by_its_mean() {
    // So few packets that they hardly queue when one poll lets them all go.
    let mut scenario = scenario(Law::Fixed, 4.0, 1);
    scenario.net.jitter = Some(erd_sim::link::Jitter { spikes_ppm: 0, ..noise(13_000) });
    scenario.measured_rtts = 20_000;
    let expected = 4.0 / bdp_segments(&scenario) * 12.0 / 25.0;
    assert_near("utilisation", scenario.run().utilisation, expected, 0.05 * expected);
}

#[test]
fn marks_grow_with_the_queue() {
    for (queue, share) in [(0.1, 0.0), (0.35, 0.25), (0.65, 0.75), (0.9, 1.0)] {
        let mut scenario = scenario(Law::Fixed, 1.0, 1);
        let window = ((1.0 + queue) * bdp_segments(&scenario)).round();
        let law = Window { law: Law::Fixed, datagrams: window, paths: 1, path: 0, cut_at: 0 };
        scenario.scheme = Rc::new(move || Box::new(law));
        scenario.measured_rtts = 1_000;
        let outcome = scenario.run();
        let marked = outcome.marks as f64 / outcome.packets as f64;
        assert_near("share of marked packets", marked, share, 0.04);
    }
}

#[test]
fn additive_increase_is_fair_and_fills_the_link() {
    for start in [Start::Simultaneous, Start::Staggered] {
        let mut scenario = scenario(Law::Aimd, 4.0, 8);
        scenario.start = start;
        (scenario.warmup_rtts, scenario.measured_rtts) = (500, 2_000);
        let outcome = scenario.run();
        assert!(outcome.utilisation > 0.9 && outcome.jain > 0.95, "{outcome:?}");
        assert!(outcome.queue_mean_bdp < 0.8 && outcome.drops == 0, "{outcome:?}");
    }
}

#[test]
fn full_queues_drop_or_trim_and_the_engine_repairs() {
    for trimming in [false, true] {
        let mut scenario = scenario(Law::Fixed, 200.0, 2);
        scenario.net.trimming = trimming;
        scenario.net.buffer_bdp = 1.0;
        let outcome = scenario.run();
        assert_eq!(outcome.trims > 0, trimming, "{outcome:?}");
        assert_eq!(outcome.drops > 0, !trimming, "{outcome:?}");
        assert!(outcome.utilisation > 0.5 && outcome.failures == 0, "{outcome:?}");
        assert!(outcome.queue_p99_bdp <= 1.02, "{outcome:?}");
        assert!(outcome.rtx_nack + outcome.rtx_probe > 0, "{outcome:?}");
    }
}

#[test]
fn one_seed_gives_one_run() {
    let of_seed = |seed: u64| {
        let mut scenario = scenario(Law::Aimd, 4.0, 8);
        scenario.net.seed = seed;
        scenario.net.jitter = Some(noise(13_000));
        scenario.run()
    };
    assert_eq!(of_seed(1), of_seed(1));
    assert_ne!(of_seed(1), of_seed(2));
}

#[test]
fn packets_do_not_leak() {
    let scenario = scenario(Law::Fixed, 200.0, 4);
    let mut run = scenario.begin();
    run.network.run_until(scenario.rtts(1_000));
    // No more than the windows and what acknowledges them can be under way.
    assert!(run.network.packets_under_way() <= 2 * 4 * 200, "{}", run.network.packets_under_way());
    let placed = run.placed_bytes();
    assert_eq!(placed.len(), 4);
    assert!(placed.iter().all(|&bytes| bytes > 0), "{placed:?}");
    assert_eq!(run.network.host(HostId(4)).failures(), 0);
}

#[test]
fn the_engine_leaves_a_bad_path_that_its_scheme_ignores() {
    let mut scenario = scenario(Law::Fixed, 40.0, 4);
    (scenario.net.paths, scenario.net.entropies) = (4, 4);
    for fault in [Health::Slowed { times: 8 }, Health::Dead] {
        let trial = PathTrial { scenario: scenario.clone(), path: 2, fault, held_rtts: 100 };
        let outcome = trial.run();
        assert!(outcome.left_rtos.is_some_and(|rtos| rtos <= 4.0), "{fault:?}: {outcome:?}");
        assert!(outcome.back_rtos.is_some(), "{fault:?}: {outcome:?}");
    }
    let revival = RevivalTrial { scenario, path: 0, dead_rtos: 5 };
    assert!(revival.run().is_some_and(|rtos| rtos > 0.05), "data cannot move at once");
}

#[test]
fn jains_index_is_what_he_says() {
    assert_near("equal", jain(&[3.0, 3.0, 3.0]), 1.0, 1e-9);
    assert_near("one of four", jain(&[0.0, 5.0, 0.0, 0.0]), 0.25, 1e-9);
    assert_near("one and two", jain(&[1.0, 2.0]), 0.9, 1e-9);
    assert_near("none", jain(&[0.0, 0.0]), 0.0, 1e-9);
}

#[test]
fn the_least_share_is_of_the_mean() {
    assert_near("equal", least(&[3.0, 3.0]), 1.0, 1e-9);
    assert_near("one and three", least(&[3.0, 1.0]), 0.5, 1e-9);
    assert_near("none", least(&[0.0, 0.0]), 0.0, 1e-9);
}
