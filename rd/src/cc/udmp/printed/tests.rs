//! Known answers, computed by hand from algorithms 1 and 2 and figure 3. Network: 100 Gb/s, 12 us, packets of 3000
//! bytes, so that the BDP has 50.

use super::*;
use crate::cc::Scheme;
use crate::cc::schemes::by_profile;
use crate::cc::udmp::UDMP;

const RTT: Nanos = 12_000;

fn flow() -> PrintedUdmp {
    flow_of(RTT)
}

fn flow_of(base_rtt_ns: Nanos) -> PrintedUdmp {
    let mut scheme = UDMP.scheme();
    for option in by_profile("udmp", "paper").unwrap().options() {
        scheme.set(option.name, option.value).unwrap();
    }
    let params = FlowParams {
        now: 0,
        datagram_bytes: 3000,
        paths: 8,
        first_rtt_ns: base_rtt_ns,
        base_rtt_ns,
        link_bytes_per_s: 12_500_000_000,
        burst_bytes: 0,
        trimming: false,
    };
    PrintedUdmp::new(&params, 1, scheme.shared())
}

fn feed(flow: &mut PrintedUdmp, now: Nanos, path: u16, rtt_ns: Nanos, lag_packets: u32) {
    flow.on_ack(&AckSample {
        now,
        sent_at: now.saturating_sub(rtt_ns),
        acked_bytes: 3000,
        acked_packets: 1,
        rtt_ns: Some(rtt_ns),
        path,
        ce_bytes: 0,
        lag_packets,
        in_flight_bytes: 6000,
        app_limited: true,
    });
}

fn assert_near(is: f32, expected: f32) {
    assert!((is - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{is}, not {expected}");
}

#[test]
fn a_flow_begins_with_a_bdp_of_tokens_at_the_rate_of_the_line() {
    let mut flow = flow();
    assert_eq!(flow.window_bytes(), 150_000);
    assert_near(flow.rate, 12.5);
    let sent = |in_flight_bytes| SentBurst {
        now: 0,
        bytes: 3000,
        packets: 1,
        path: 0,
        in_flight_bytes,
        retransmission: false,
    };
    flow.on_sent(&sent(3000));
    assert_eq!(flow.window_bytes(), 150_000);
    flow.tokens = 0.0;
    assert_eq!(flow.window_bytes(), 3000);
}

#[test]
fn the_gradient_of_the_average_moves_the_rate_once_a_round_trip() {
    let mut flow = flow();
    feed(&mut flow, 10_000, 0, 16_000, 0);
    // The first sample is the average. 2 packets are in flight: the third acknowledgement counts.
    feed(&mut flow, 11_000, 0, 16_000, 0);
    feed(&mut flow, 12_000, 0, 16_000, 0);
    assert_near(flow.rate, 12.5);
    // smooth: 16 + (24 - 16) / 8 us; 1 us in 4: line 31 takes a quarter of the rate.
    feed(&mut flow, 14_000, 0, 24_000, 0);
    assert_near(flow.smooth_ns, 17_000.0);
    assert_near(flow.rate, 9.375);
    // Back: 17 + (9 - 17) / 8 us in 2 us; line 33 adds half of the rest of the line.
    flow.to_ignore_packets = 0.0;
    feed(&mut flow, 16_000, 0, 9_000, 0);
    assert_near(flow.rate, 9.375 + 0.5 * 3.125);
}

#[test]
fn a_high_average_bounds_the_rate_by_the_base_at_once() {
    let mut flow = flow();
    feed(&mut flow, 10_000, 0, 48_000, 0);
    // Above 3 base round trips: 12.5 * 12 / 48.
    assert_near(flow.rate, 3.125);
}

#[test]
fn an_acknowledgement_clocks_two_packets_one_or_none_onto_its_path() {
    let mut flow = flow();
    feed(&mut flow, 0, 0, 20_000, 0);
    flow.tokens = 0.0;
    flow.clocked.clear();
    (flow.rate, flow.pool_bytes) = (0.0, 12_000.0);
    feed(&mut flow, 0, 1, 19_000, 0);
    feed(&mut flow, 0, 2, 31_000, 0);
    feed(&mut flow, 0, 3, 40_000, 0);
    // Too far behind the foremost packet: section III-D.
    feed(&mut flow, 0, 4, 12_000, 65);
    assert_near(flow.pool_bytes, 3_000.0);
    assert_near(flow.tokens, 3.0);
    // With one packet left in the pool, a fast one clocks one.
    feed(&mut flow, 0, 5, 12_000, 64);
    assert_near(flow.pool_bytes, 0.0);
    feed(&mut flow, 0, 6, 12_000, 0);
    assert_eq!(flow.clocked, [1, 1, 2, 5]);
    assert_eq!([flow.next_path(0), flow.next_path(0), flow.next_path(0)], [1, 1, 2]);
}

/// Figure 3, a second as 100 us: a packet a second, round trips of 2 s and 3 s, an average of 2.5. At 6 s path 2's
/// acknowledgement comes first.
#[test]
fn the_traffic_of_figure_3_is_four_to_two() {
    let mut flow = flow_of(200_000);
    for (at, path) in [(2, 1), (3, 2), (4, 1), (6, 2), (6, 1)] {
        flow.rate = 0.03;
        flow.smooth_ns = 250_000.0;
        flow.clock_at(100_000 * at, path, if path == 1 { 200_000 } else { 300_000 });
    }
    // With the packet that each path had at 0 s, four and two have left before 6 s.
    assert_eq!(flow.clocked, [1, 1, 2, 1, 2, 1]);
}

impl PrintedUdmp {
    fn clock_at(&mut self, now: Nanos, path: u16, rtt_ns: Nanos) {
        self.refill(now);
        let sample = AckSample {
            now,
            sent_at: now - rtt_ns,
            acked_bytes: 3000,
            acked_packets: 1,
            rtt_ns: Some(rtt_ns),
            path,
            ce_bytes: 0,
            lag_packets: 0,
            in_flight_bytes: 6000,
            app_limited: false,
        };
        self.clock(&sample, rtt_ns as f32);
    }
}
