//! Known answers, computed by hand from algorithms 1 to 4 and table 1. Network: 100 Gb/s, 12 us, packets of 4096 bytes:
//! `bdp_sf` is 1 and the BDP 36.6 packets, so the largest window is 37.

use super::*;
use crate::cc::Scheme;
use crate::cc::schemes::by_profile;
use crate::cc::strack::STRACK;

const RTT: Nanos = 12_000;

fn flow() -> PrintedStrack {
    let mut scheme = STRACK.scheme();
    for option in by_profile("strack", "paper").unwrap().options() {
        scheme.set(option.name, option.value).unwrap();
    }
    let params = FlowParams {
        now: 0,
        datagram_bytes: 4096,
        paths: 16,
        first_rtt_ns: RTT,
        base_rtt_ns: RTT,
        link_bytes_per_s: 12_500_000_000,
        burst_bytes: 0,
        trimming: false,
    };
    PrintedStrack::new(&params, scheme.shared())
}

fn feed(flow: &mut PrintedStrack, now: Nanos, path: u16, delay_ns: Nanos, marked: bool) {
    flow.on_ack(&AckSample {
        now,
        sent_at: now.saturating_sub(RTT + delay_ns),
        acked_bytes: 4096,
        acked_packets: 1,
        rtt_ns: Some(RTT + delay_ns),
        path,
        ce_bytes: if marked { 4096 } else { 0 },
        lag_packets: 0,
        in_flight_bytes: 100_000,
        app_limited: true,
    });
}

fn assert_near(is: f32, expected: f32) {
    assert!((is - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{is}, not {expected}");
}

#[test]
fn the_window_begins_at_a_bdp_and_no_loss_moves_it() {
    let mut flow = flow();
    assert_eq!(flow.window_bytes(), 37 * 4096);
    flow.on_timeout(&Timeout { now: 1, in_flight_bytes: 0, in_a_row: 3 });
    assert_eq!(flow.window_bytes(), 37 * 4096);
}

#[test]
fn increases_of_algorithm_4() {
    let mut flow = flow();
    flow.cwnd = 10.0;
    // Line 9: 4 / 12 us * (12 - 3) us / 10.
    feed(&mut flow, 10, 0, 3_000, false);
    assert_near(flow.cwnd, 10.3);
    // Line 7: 5 / 10.3, above 36 us alone.
    feed(&mut flow, 20, 0, 36_001, false);
    assert_near(flow.cwnd, 10.3 + 5.0 / 10.3);
    // Line 20: 0.15 once more than a base round trip has passed; a mark below the target does nothing else.
    let before = flow.cwnd;
    feed(&mut flow, 12_000, 0, 1_000, true);
    assert_near(flow.cwnd, before);
    feed(&mut flow, 12_001, 0, 1_000, true);
    assert_near(flow.cwnd, before + 0.15);
}

#[test]
fn decreases_of_algorithm_4() {
    let mut flow = flow();
    flow.cwnd = 20.0;
    flow.average_ns = 16_000.0;
    // Line 15: 1 - 0.8 * (16 - 12) / 16, unmarked or not.
    feed(&mut flow, 10, 0, 16_000, false);
    assert_near(flow.cwnd, 16.0);
    // Not twice in a base round trip.
    feed(&mut flow, 11, 0, 16_000, true);
    assert_near(flow.cwnd, 16.0);
    // At most a half: avg_delay is 100 us by then.
    flow.average_ns = 100_000.0;
    flow.shuffled_at = 12_011;
    feed(&mut flow, 12_011, 0, 30_000, true);
    assert_near(flow.cwnd, 8.0);
}

#[test]
fn achieved_bytes_of_algorithm_2_are_the_window_of_a_heavy_incast() {
    let mut flow = flow();
    // Nothing is known in the first period, of 24 us.
    flow.average_ns = 1_000_000.0;
    feed(&mut flow, 24_000, 0, 50_000, true);
    assert_near(flow.cwnd, 18.5 + 0.15);
    // 3 packets came in it: less than 37 / 8.
    flow.average_ns = 1_000_000.0;
    feed(&mut flow, 24_000, 0, 50_000, true);
    flow.shuffled_at = 36_001;
    feed(&mut flow, 36_001, 0, 50_000, true);
    assert_near(flow.achieved_bytes.unwrap(), 3.0 * 4096.0);
    assert_near(flow.cwnd, 3.0);
}

#[test]
fn paths_of_algorithm_3() {
    let mut flow = flow();
    flow.cwnd = 5.0;
    // max(8, 2 * 5) of 16 paths in turn, until an acknowledgement comes.
    let turn: [u16; 10] = core::array::from_fn(|_| flow.next_path(0));
    assert_eq!(turn, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // Unmarked: its path once, and on from there; path 0 is a path.
    feed(&mut flow, 1, 0, 0, false);
    assert_eq!([flow.next_path(0), flow.next_path(0)], [0, 1]);
    // Marked: skipped once.
    feed(&mut flow, 2, 2, 0, true);
    assert_eq!([flow.next_path(0), flow.next_path(0)], [3, 4]);
    flow.marked.resume_after(1);
    assert_eq!(flow.next_path(0), 2);
    assert!(!flow.may_move());
}
