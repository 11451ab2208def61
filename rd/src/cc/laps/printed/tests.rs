//! Known answers, computed by hand from equation 1 and algorithms 1 and 2. Network: 100 Gb/s, 12 us, packets of 2500
//! bytes: 15 of them take 3 us.

use super::*;
use crate::cc::Scheme;
use crate::cc::laps::LAPS;
use crate::cc::schemes::by_profile;

const RTT: Nanos = 12_000;

fn flow(paths: u16) -> PrintedLaps {
    let mut scheme = LAPS.scheme();
    for option in by_profile("laps", "paper").unwrap().options() {
        scheme.set(option.name, option.value).unwrap();
    }
    let params = FlowParams {
        now: 0,
        datagram_bytes: 2500,
        paths,
        first_rtt_ns: RTT,
        base_rtt_ns: RTT,
        link_bytes_per_s: 12_500_000_000,
        burst_bytes: 0,
        trimming: false,
    };
    PrintedLaps::new(scheme.shared(), &params, 1)
}

fn feed(flow: &mut PrintedLaps, now: Nanos, path: u16, rtt_ns: Nanos) {
    flow.on_ack(&AckSample {
        now,
        sent_at: now.saturating_sub(rtt_ns),
        acked_bytes: 2500,
        acked_packets: 1,
        rtt_ns: Some(rtt_ns),
        path,
        ce_bytes: 0,
        lag_packets: 0,
        in_flight_bytes: 5000,
        app_limited: true,
    });
}

fn assert_near(is: f32, expected: f32) {
    assert!((is - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{is}, not {expected}");
}

#[test]
fn a_decrease_halves_once_a_round_trip_when_all_paths_are_slower_than_the_slowest_base() {
    let mut flow = flow(2);
    feed(&mut flow, 1, 0, 12_000);
    feed(&mut flow, 2, 1, 14_000);
    assert_eq!(flow.bounds_ns(), (17_000.0, 12_000.0));
    // One path below T is enough.
    feed(&mut flow, 20_000, 0, 30_000);
    feed(&mut flow, 20_001, 1, 17_000);
    assert_near(flow.rate, 12.5);
    feed(&mut flow, 20_002, 1, 20_000);
    assert_near(flow.rate, 6.25);
    assert_near(flow.expected, 12.5);
    // t is 20 us: the next one at 40,002.
    feed(&mut flow, 40_001, 1, 20_000);
    assert_near(flow.rate, 6.25);
    feed(&mut flow, 40_002, 1, 20_000);
    assert_near(flow.rate, 3.125);
    assert_near(flow.expected, 6.25);
}

#[test]
fn increases_go_half_way_to_the_expected_rate_which_doubles_after_five() {
    let mut flow = flow(1);
    feed(&mut flow, 0, 0, 12_000);
    (flow.rate, flow.expected, flow.stage) = (1.0, 2.0, 0.0);
    let mut at = 100_000;
    for rate in [1.5, 1.75, 1.875, 1.9375, 1.96875] {
        feed(&mut flow, at, 0, 12_000);
        feed(&mut flow, at + 11_999, 0, 12_000);
        assert_near(flow.rate, rate);
        at += 12_000;
    }
    feed(&mut flow, at, 0, 12_000);
    assert_near(flow.expected, 4.0);
    assert_near(flow.rate, 0.5 * (4.0 + 1.96875));
    // The stage is not reset: it doubles again, to the line's rate at most.
    for n in 1..=10 {
        feed(&mut flow, at + 12_000 * n, 0, 12_000);
    }
    assert_near(flow.expected, 12.5);
    assert!(flow.rate > 12.4 && flow.rate <= 12.5);
}

#[test]
fn shares_are_the_softmax_of_equation_1() {
    let mut flow = flow(3);
    // beta = ln 4 / 24 us: 24 us slower is a quarter, 48 us a sixteenth.
    for (path, rtt_ns) in [(0, 12_000), (1, 36_000), (2, 60_000)] {
        feed(&mut flow, 1, path, rtt_ns);
    }
    let weights = [0, 1, 2].map(|at| flow.weight(&flow.paths[at], 12_000.0));
    for (weight, expected) in weights.into_iter().zip([1.0, 0.25, 0.0625]) {
        assert_near(weight, expected);
    }
    let mut drawn = [0; 3];
    for _ in 0..21_000 {
        drawn[usize::from(flow.next_path(2))] += 1;
    }
    for (drawn, expected) in drawn.into_iter().zip([16_000_i32, 4_000, 1_000]) {
        assert!((expected - drawn).abs() < 300, "{drawn}, not {expected}");
    }
}

#[test]
fn a_stale_path_is_probed_once_and_its_value_doubles() {
    let mut flow = flow(2);
    feed(&mut flow, 1, 0, 12_000);
    feed(&mut flow, 1, 1, 20_000);
    assert_eq!(flow.probe(12_001), None);
    assert_eq!(flow.probe(12_002), Some(0));
    assert_near(flow.paths[0].real_ns, 24_000.0);
    assert_eq!(flow.probe(20_001), None);
    assert_eq!(flow.probe(20_002), Some(1));
    assert_near(flow.paths[1].real_ns, 40_000.0);
    feed(&mut flow, 24_000, 0, 13_000);
    assert_near(flow.paths[0].real_ns, 13_000.0);
    assert_near(flow.paths[0].least_ns, 12_000.0);
}
