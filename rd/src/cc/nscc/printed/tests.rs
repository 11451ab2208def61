//! Known answers, computed by hand from the paper's equations and from uet-htsim's text. Network: 100 Gb/s, 12 us, so
//! BDP is 150,000 bytes and every scale 1; packets of 4096 bytes in the paper's, 4160 with 64 of headers in htsim's.

use super::*;
use crate::cc::AckPolicy;
use crate::cc::nscc::{NSCC, SMARTT};
use crate::cc::scheme::SchemeTable;
use crate::cc::schemes::by_profile;

const RTT: Nanos = 12_000;

fn flow(table: &'static SchemeTable<NsccOptions>, profile: &str, trimming: bool) -> PrintedNscc {
    let mut scheme = table.scheme();
    for option in by_profile(table.name, profile).unwrap().options() {
        crate::cc::Scheme::set(&mut scheme, option.name, option.value).unwrap();
    }
    let params = FlowParams {
        now: 0,
        datagram_bytes: if profile == "htsim" { 4160 } else { 4096 },
        paths: 8,
        first_rtt_ns: RTT,
        base_rtt_ns: RTT,
        link_bytes_per_s: 12_500_000_000,
        burst_bytes: 0,
        trimming,
    };
    PrintedNscc::new(scheme.shared(), &params, 1)
}

fn paper() -> PrintedNscc {
    flow(&SMARTT, "paper", true)
}

fn htsim() -> PrintedNscc {
    flow(&NSCC, "htsim", true)
}

/// An acknowledgement of one packet with a queueing delay of `delay_ns`.
fn ack(flow: &PrintedNscc, now: Nanos, delay_ns: Nanos, marked: bool) -> AckSample {
    let bytes = flow.mtu_bytes as u32;
    AckSample {
        now,
        sent_at: now.saturating_sub(RTT + delay_ns),
        acked_bytes: bytes.into(),
        acked_packets: 1,
        rtt_ns: Some(RTT + delay_ns),
        path: 3,
        ce_bytes: if marked { bytes } else { 0 },
        lag_packets: 0,
        in_flight_bytes: 100_000,
        app_limited: false,
    }
}

fn feed(flow: &mut PrintedNscc, now: Nanos, delay_ns: Nanos, marked: bool) {
    let ack = ack(flow, now, delay_ns, marked);
    flow.on_ack(&ack);
}

fn trim(now: Nanos, bytes: u32) -> Loss {
    let (kind, in_flight_bytes) = (LossKind::Trim, 60_000);
    Loss { now, sent_at: 0, bytes, path: 3, kind, in_flight_bytes }
}

fn assert_near(is: f32, expected: f32) {
    assert!((is - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{is}, not {expected}");
}

#[test]
fn both_begin_at_the_greatest_window() {
    assert_near(paper().cwnd, 225_000.0);
    assert_near(htsim().cwnd, 225_000.0);
    assert!(!paper().may_move() && paper().pace_bytes_per_s().is_none());
}

/// processNack: update_base_rtt_on_nack.
#[test]
fn a_trimmed_packet_lowers_htsims_base_alone() {
    for (mut flow, base_ns) in [(htsim(), 9_000.0), (paper(), RTT as f32)] {
        flow.on_loss(&Loss { sent_at: 1_000, ..trim(10_000, 4160) });
        assert_near(flow.base_ns(), base_ns);
    }
}

#[test]
fn the_papers_increases() {
    // Equation 2: 4096 / 100,000 * 4096 * 5. The average moves, the window of QuickAdapt begins.
    let mut flow = paper();
    flow.cwnd = 100_000.0;
    feed(&mut flow, 10, 6_000, false);
    assert_near(flow.cwnd, 100_000.0 + 838.8608);
    assert_near(flow.average_ns, 75.0);
    // Equation 3 at a third of the target's distance: (18 - 15) / 15 * 4096 * pi, pi = 12 / 6; then equation 2.
    let mut flow = paper();
    flow.cwnd = 100_000.0;
    feed(&mut flow, 10, 3_000, false);
    assert_near(flow.cwnd, 100_000.0 + 0.04096 * (1_638.4 + 20_480.0));
    // Marked below the target: only the path changes.
    let mut flow = paper();
    flow.cwnd = 100_000.0;
    feed(&mut flow, 10, 5_999, true);
    assert_near(flow.cwnd, 100_000.0);
}

#[test]
fn the_papers_decrease_is_on_round_trips_once_in_a_base_one() {
    let mut flow = paper();
    flow.cwnd = 100_000.0;
    flow.average_ns = 12_000.0;
    // avg_rtt is 24 us and stays there: 1 - (24 - 18) / 24 * 0.8.
    feed(&mut flow, 20_000, 12_000, true);
    assert_near(flow.cwnd, 80_000.0);
    feed(&mut flow, 31_000, 12_000, true);
    assert_near(flow.cwnd, 80_000.0);
    feed(&mut flow, 32_001, 12_000, true);
    assert_near(flow.cwnd, 64_000.0);
    // An average below the target would raise the window.
    flow.average_ns = 0.0;
    feed(&mut flow, 50_000, 12_000, true);
    assert_near(flow.cwnd, 64_000.0);
}

#[test]
fn the_papers_fast_increase_adds_two_packets_an_acknowledgement() {
    let mut flow = paper();
    flow.cwnd = 10_000.0;
    // More than the window in a row: 3 packets, and what the proportional increase added meanwhile.
    feed(&mut flow, 10, 500, false);
    feed(&mut flow, 20, 500, false);
    assert!(!flow.is_fast && flow.cwnd > 10_000.0 && flow.cwnd < 100_000.0);
    flow.empty_bytes = flow.cwnd;
    let before = flow.cwnd;
    feed(&mut flow, 30, 500, false);
    assert_near(flow.cwnd, before + 8_192.0);
    feed(&mut flow, 40, 500, true);
    assert!(!flow.is_fast && flow.empty_bytes == 0.0);
}

#[test]
fn the_papers_quick_adapt_takes_what_came_in_one_target_round_trip() {
    let mut flow = paper();
    feed(&mut flow, 0, 20_000, true);
    // The first window ends at 18 us. In it come 5 packets and a trim, which costs its bytes.
    for n in 1..=5 {
        feed(&mut flow, 1_000 * n, 20_000, true);
    }
    let before = flow.cwnd;
    flow.on_loss(&trim(17_999, 4096));
    assert_near(flow.cwnd, before - 4096.0);
    feed(&mut flow, 18_000, 20_000, true);
    assert_near(flow.cwnd, 6.0 * 4096.0);
    assert!(!flow.triggered, "one trim, one adaptation");
    // 100,000 bytes were in flight: their acknowledgements change nothing, but a trim still costs its bytes.
    for n in 0..24 {
        feed(&mut flow, 19_000 + n, 0, false);
    }
    assert_near(flow.cwnd, 24_576.0);
    flow.on_loss(&trim(20_000, 4096));
    assert_near(flow.cwnd, 20_480.0);
}

#[test]
fn htsims_increases_come_after_eight_packets_or_a_round_trip() {
    let mut flow = htsim();
    flow.cwnd = 100_000.0;
    // 9 packets, late: fi is 5 * 4096 for each byte; none before the ninth.
    for n in 1..=8 {
        feed(&mut flow, n, 9_000, false);
    }
    assert_near(flow.cwnd, 100_000.0);
    feed(&mut flow, 9, 9_000, false);
    assert_near(flow.cwnd, 100_000.0 + 9.0 * 4_160.0 * 20_480.0 / 100_000.0);
    // After a round trip: one proportional increase, 4 * 4096 / 12 us * (9 - 3) us, and eta, 0.15 * 4096.
    let mut flow = htsim();
    flow.cwnd = 100_000.0;
    feed(&mut flow, 12_001, 3_000, false);
    assert_near(flow.cwnd, 100_000.0 + 4_160.0 * 8_192.0 / 100_000.0 + 614.4);
}

#[test]
fn htsims_average_and_decrease_are_on_delays() {
    let mut flow = htsim();
    flow.cwnd = 100_000.0;
    flow.average_ns = 12_000.0;
    // 1 - 0.8 * (12 - 9) / 12.
    feed(&mut flow, 10, 12_000, true);
    assert_near(flow.cwnd, 80_000.0);
    // Late and unmarked stands for a quarter of the base round trip; a trim for a round trip.
    feed(&mut flow, 20, 12_000, false);
    assert_near(flow.average_ns, 12_000.0 - 0.0125 * 9_000.0);
    let before = flow.average_ns;
    flow.on_loss(&trim(30, 4160));
    assert_near(flow.average_ns, before + 0.0125 * (12_000.0 - before));
}

#[test]
fn htsims_quick_adapt_ignores_marked_acknowledgements_alone() {
    let mut flow = htsim();
    feed(&mut flow, RTT + 1, 0, true);
    flow.on_loss(&trim(RTT + 2, 4160));
    assert_near(flow.cwnd, 225_000.0 - 4_160.0);
    // Its window is 21 us long. One packet came, which is less than an eighth of 225,000.
    feed(&mut flow, RTT + 21_002, 20_000, true);
    assert_near(flow.cwnd, 4_160.0);
    assert_near(flow.to_ignore_bytes, 100_000.0);
    flow.on_loss(&trim(RTT + 21_003, 4160));
    assert_near(flow.cwnd, 4_160.0);
    // An unmarked one counts, ignored bytes or not.
    flow.adjusted_at = RTT + 21_000;
    feed(&mut flow, RTT + 21_004, 9_000, false);
    assert_near(flow.increase, 4_160.0 * 20_480.0);
    feed(&mut flow, RTT + 21_005, 9_000, true);
    assert_near(flow.increase, 0.0);
}

#[test]
fn htsims_acknowledgements_stand_for_4_packets_and_the_papers_for_one() {
    let policy = |profile| by_profile("nscc", profile).unwrap().ack_policy();
    assert_eq!(policy("htsim"), AckPolicy::Coalesced { packets: 4 });
    assert_eq!([policy("paper"), policy("product")], [AckPolicy::PerPacket; 2]);
    assert!(htsim().is_strict() && !paper().is_strict());
}

#[test]
fn htsims_base_falls_and_its_network_stays() {
    let mut flow = htsim();
    let mut early = ack(&flow, 1, 0, false);
    early.rtt_ns = Some(8_000);
    flow.on_ack(&early);
    assert_near(flow.base_ns(), 8_000.0);
    assert_near(flow.most_bytes(), 150_000.0);
    assert_near(flow.target_ns(), 9_000.0);
}
