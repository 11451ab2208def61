extern crate std;

use super::super::Scheme;
use super::*;
use alloc::vec::Vec;
use core::mem::size_of;
use rand_pcg::rand_core::Rng;

const PACKET: u64 = 4096;
/// Twice 150 kB, 74 packets, and one.
const WINDOW_MAX: u64 = 75 * PACKET;
/// 150 kB and one packet.
const WINDOW_FIRST: u64 = 150_000 + PACKET;
const RTT_NS: Nanos = 12_000;

/// The network of the paper's table 1.
fn params() -> FlowParams {
    FlowParams {
        now: 0,
        datagram_bytes: PACKET as u32,
        paths: 256,
        first_rtt_ns: RTT_NS,
        base_rtt_ns: 0,
        link_bytes_per_s: 12_500_000_000,
        burst_bytes: 0,
        trimming: false,
    }
}

fn flow(params: &FlowParams) -> Strack {
    Strack::new(params, STRACK.scheme().shared())
}

fn ack(now: Nanos, rtt_ns: Nanos, packets: u32, marked: bool) -> AckSample {
    let acked_bytes = u64::from(packets) * PACKET;
    AckSample {
        now,
        sent_at: now.saturating_sub(rtt_ns),
        acked_bytes,
        acked_packets: packets,
        rtt_ns: Some(rtt_ns),
        path: 0,
        ce_bytes: if marked { acked_bytes as u32 } else { 0 },
        lag_packets: 0,
        in_flight_bytes: 0,
        app_limited: false,
    }
}

fn sent(now: Nanos, in_flight_packets: u64) -> SentBurst {
    let in_flight_bytes = in_flight_packets * PACKET;
    let (bytes, packets) = (PACKET as u32, 1);
    SentBurst { now, bytes, packets, path: 0, in_flight_bytes, retransmission: false }
}

fn silence(now: Nanos, in_a_row: u32) -> Timeout {
    Timeout { now, in_flight_bytes: PACKET, in_a_row }
}

/// A flow at its largest window.
fn full(params: &FlowParams) -> Strack {
    let mut flow = flow(params);
    flow.window_bytes = flow.window_max_bytes;
    flow
}

/// A small flow that judges paths by marks alone, as algorithm 3 is printed.
fn by_marks_alone() -> Strack {
    let mut scheme = STRACK.scheme();
    scheme.set("apart", 0.0).expect("a setting");
    let mut flow = Strack::new(&params(), scheme.shared());
    flow.on_timeout(&silence(0, 1));
    flow.on_ack(&AckSample { app_limited: true, ..ack(100, RTT_NS, 1, true) });
    flow
}

/// A flow that a timeout has left one packet.
fn small(params: &FlowParams) -> Strack {
    let mut flow = flow(params);
    flow.on_timeout(&silence(0, 1));
    assert_eq!(flow.window_bytes(), u64::from(params.datagram_bytes));
    flow
}

/// The same in a network that has marked.
fn small_with_ecn() -> Strack {
    let mut flow = small(&params());
    flow.on_ack(&AckSample { app_limited: true, ..ack(100, RTT_NS, 1, true) });
    assert_eq!(flow.window_bytes(), PACKET);
    flow
}

/// Feeds samples 1 us apart, from `from` on; returns the windows after each.
fn feed(flow: &mut Strack, from: Nanos, count: u64, rtt_ns: Nanos, marked: bool) -> Vec<u64> {
    let step = |n| {
        flow.on_ack(&ack(from + n * 1_000, rtt_ns, 1, marked));
        flow.window_bytes()
    };
    (0..count).map(step).collect()
}

#[test]
fn unmarked_and_early_grows_by_the_distance_to_the_target() {
    // 1 + 4/1 packets without a queue, 1 + 2/1 at half the target.
    for (rtt_ns, packets) in [(12_000, 5), (18_000, 3)] {
        let mut flow = small_with_ecn();
        // The delay is the median of three samples; the first two may not grow the window.
        for now in [7_000, 8_000, 9_000] {
            flow.on_ack(&AckSample { app_limited: true, ..ack(now, rtt_ns, 1, false) });
        }
        assert_eq!(flow.window_bytes(), PACKET);
        flow.on_ack(&ack(10_000, rtt_ns, 1, false));
        assert_eq!(flow.window_bytes(), packets * PACKET);
    }
}

#[test]
fn growth_is_of_bytes_not_of_packets() {
    let mut flow = small(&FlowParams { datagram_bytes: 65_536, ..params() });
    flow.on_ack(&ack(10_000, RTT_NS, 16, false));
    assert_eq!(flow.window_bytes(), 65_536 + 4 * PACKET);
    // Four packets in one acknowledgement count as much as four acknowledgements.
    let (mut one, mut four) = (small(&params()), small(&params()));
    for flow in [&mut one, &mut four] {
        flow.on_ack(&ack(5_000, RTT_NS, 1, false));
    }
    one.on_ack(&ack(10_000, RTT_NS, 4, false));
    feed(&mut four, 7_000, 4, RTT_NS, false);
    let (one, four) = (one.window_bytes(), four.window_bytes());
    assert!(one >= four && one < four + four / 4, "{one} {four}");
}

#[test]
fn one_acknowledgement_grows_by_one_round_trip_at_most() {
    let mut flow = small(&params());
    flow.on_ack(&ack(10_000, RTT_NS, 64, false));
    assert_eq!(flow.window_bytes(), 5 * PACKET);
    // delay_sf alone would be 83 here and the growth 9 BDP.
    let mut flow = small(&FlowParams { first_rtt_ns: 1_000_000, ..params() });
    flow.on_ack(&ack(10_000, 1_000_000, 1, false));
    let grown = flow.window_bytes() - PACKET;
    assert!(grown <= flow.view().bdp_bytes / 2, "{grown}");
    assert!(grown >= flow.view().bdp_bytes / 3, "{grown}");
}

#[test]
fn without_ecn_nothing_grows_where_there_is_a_queue() {
    for (rtt_ns, grows) in [(13_000, true), (14_000, false), (23_000, false)] {
        let mut flow = small(&params());
        let windows = feed(&mut flow, 1_000, 10, rtt_ns, false);
        assert_eq!(windows[9] > windows[2], grows, "{windows:?}");
    }
}

#[test]
fn marked_and_early_keeps_the_window_and_moves_on() {
    let mut flow = by_marks_alone();
    assert_eq!(flow.next_path(0), 0);
    flow.on_ack(&ack(500, RTT_NS, 1, false));
    assert_eq!(flow.next_path(0), 0);
    for path in 1..8 {
        assert_eq!(flow.next_path(0), path);
    }
    let before = flow.window_bytes();
    assert_eq!(feed(&mut flow, 1_000, 10, 18_000, true), [before; 10]);
    let first = flow.next_path(0);
    assert_ne!(first, 0, "path 0 was marked");
}

#[test]
fn marked_and_late_cuts_once_in_a_round_trip() {
    let mut flow = full(&params());
    let windows = feed(&mut flow, 20_000, 15, 36_000, true);
    let cut = windows.iter().position(|w| *w < WINDOW_MAX).expect("a cut");
    let ratio = windows[cut] as f32 / WINDOW_MAX as f32;
    // The mean has just passed the target: 1 - 0.8 (13.2 - 12) / 13.2.
    assert!((0.90..0.96).contains(&ratio), "{ratio}");
    assert!(windows[cut..].iter().all(|w| *w >= windows[cut]));
    let later = feed(&mut flow, 60_000, 1, 36_000, true)[0];
    assert!(later < windows[cut] && later * 2 >= windows[cut]);
}

#[test]
fn a_high_delay_cuts_to_what_was_achieved_in_bytes() {
    let mut flow = full(&params());
    flow.on_sent(&sent(0, 1));
    // Periods are longer than a round trip and the target, 24 us: two packets in each.
    let mut windows = Vec::new();
    for n in 1..16 {
        flow.on_ack(&ack(n * 13_000, 72_000, 1, true));
        windows.push(flow.window_bytes());
    }
    // The shuffle's 614 bytes come on top.
    let cut = windows.iter().position(|w| *w < WINDOW_MAX).expect("a cut");
    assert_eq!(windows[cut..], [2 * PACKET + 614].repeat(windows.len() - cut));
}

#[test]
fn little_achieved_alone_cuts_by_half_at_most() {
    let mut flow = full(&params());
    flow.on_sent(&sent(0, 1));
    let mut before = flow.window_bytes();
    for n in 1..40 {
        flow.on_ack(&ack(n * 13_000, 46_000, 1, true));
        assert!(flow.window_bytes() * 2 >= before);
        before = flow.window_bytes();
    }
    assert!(before < WINDOW_MAX / 4);
}

#[test]
fn a_high_delay_never_raises_the_window() {
    let mut flow = small(&params());
    let mut before = flow.window_bytes();
    for n in 1..40 {
        flow.on_ack(&ack(n * 7_000, 72_000, 1, true));
        // Apart from the fairness shuffle, less than a packet.
        assert!(flow.window_bytes() < before + PACKET / 4);
        before = flow.window_bytes();
    }
}

#[test]
fn unmarked_and_late_grows_only_above_the_high_delay() {
    let mut flow = full(&params());
    feed(&mut flow, 20_000, 40, 72_000, true);
    let before = flow.window_bytes();
    assert!(before < WINDOW_MAX / 2);
    flow.on_ack(&ack(60_500, 72_000, 1, false));
    let grown = (flow.window_bytes() - before) as f32;
    let expected = 5.0 * PACKET as f32 * PACKET as f32 / before as f32;
    let shuffle = 0.15 * PACKET as f32 + 1.0;
    assert!(grown >= expected - 1.0 && grown <= expected + shuffle, "{grown} {expected}");
    // Between target and Qhigh it may fall.
    let before = flow.window_bytes();
    feed(&mut flow, 100_000, 30, 40_000, false);
    assert!(flow.window_bytes() < before);
}

#[test]
fn without_ecn_late_counts_as_marked() {
    for (ecn, falls) in [(false, true), (true, false)] {
        let mut flow = full(&params());
        flow.on_ack(&ack(1_000, RTT_NS, 1, ecn));
        let windows = feed(&mut flow, 20_000, 60, 72_000, false);
        assert_eq!(windows[59] < WINDOW_MAX / 2, falls, "{windows:?}");
    }
}

#[test]
fn the_shuffle_adds_a_little_once_in_a_round_trip() {
    let mut flow = small(&params());
    // Marked and early: nothing else moves the window.
    feed(&mut flow, 12_001, 37, 13_000, true);
    let (shuffles, each) = (3, 0.15 * PACKET as f32);
    let grown = (flow.window_bytes() - PACKET) as f32;
    assert!((grown - shuffles as f32 * each).abs() < 0.2 * each, "{grown}");
}

#[test]
fn limited_flows_do_not_grow() {
    let mut flow = small(&params());
    for n in 1..100 {
        let ack = ack(n * 10_000, RTT_NS, 4, false);
        flow.on_ack(&AckSample { app_limited: true, ..ack });
    }
    assert_eq!(flow.window_bytes(), PACKET);
}

#[test]
fn a_pause_is_not_taken_for_little_achieved() {
    let mut flow = flow(&params());
    flow.on_sent(&sent(0, 1));
    let last = ack(30_000, RTT_NS, 1, false);
    flow.on_ack(&AckSample { app_limited: true, ..last });
    flow.on_sent(&sent(1_000_000, 1));
    let before = flow.window_bytes();
    let windows = feed(&mut flow, 1_012_000, 22, 72_000, true);
    assert!(windows[21] < before);
    assert!(windows.iter().all(|w| *w * 4 >= before), "two cuts by half at most");
}

#[test]
fn a_timeout_leaves_what_was_achieved_then_one_packet() {
    let mut flow = full(&params());
    flow.on_sent(&sent(0, 1));
    feed(&mut flow, 12_000, 14, RTT_NS, false);
    assert_eq!(flow.window_bytes(), WINDOW_MAX);
    flow.on_timeout(&silence(1_000_000, 1));
    assert_eq!(flow.window_bytes(), 14 * PACKET, "up to 25 us after the start");
    flow.on_timeout(&silence(3_000_000, 2));
    assert_eq!(flow.window_bytes(), PACKET);
}

#[test]
fn a_timeout_never_raises_the_window() {
    let mut flow = flow(&params());
    // A delay just below Qhigh, while 24 packets are achieved in each period.
    feed(&mut flow, 20_000, 200, 47_000, true);
    let before = flow.window_bytes();
    assert!(before < 12 * PACKET, "{before}");
    flow.on_timeout(&silence(1_000_000, 1));
    assert_eq!(flow.window_bytes(), before);
}

#[test]
fn a_loss_moves_the_path_not_the_window() {
    let mut flow = full(&params());
    assert_eq!(flow.next_path(0), 0);
    flow.on_loss(&loss(1, 1));
    assert_eq!(flow.window_bytes(), WINDOW_MAX);
    assert_eq!(flow.next_path(1), 2);
}

#[test]
fn the_window_stays_between_one_packet_and_the_most_bdp_with_one_more() {
    let mut flow = flow(&params());
    feed(&mut flow, 1_000, 2_000, RTT_NS, false);
    assert_eq!(flow.window_bytes(), WINDOW_MAX);
    let (mut rng, mut now) = (crate::cc::paths::rng(1), 0);
    for _ in 0..100_000 {
        now += u64::from(rng.next_u32() % 20_000);
        let (rtt_ns, packets) = (u64::from(rng.next_u32() >> 10), rng.next_u32() % 64);
        match rng.next_u32() % 16 {
            0 => flow.on_timeout(&silence(now, 1)),
            1 => flow.on_sent(&sent(now, u64::from(packets))),
            n => flow.on_ack(&ack(now, rtt_ns, packets, n % 2 == 0)),
        }
        // Two BDP, rounded up, and one packet.
        let max = flow.view().bdp_bytes * 2 + 2 * PACKET;
        assert!((PACKET..=max).contains(&flow.window_bytes()));
        assert!(flow.next_path(now) < 256);
    }
}

#[test]
fn a_marked_path_is_skipped_once() {
    let mut flow = by_marks_alone();
    let round = |flow: &mut Strack| (0..8).map(|_| flow.next_path(0)).collect::<Vec<_>>();
    assert_eq!(round(&mut flow), [0, 1, 2, 3, 4, 5, 6, 7]);
    flow.on_ack(&AckSample { path: 3, ..ack(1_000, RTT_NS, 1, true) });
    assert_eq!(round(&mut flow), [0, 1, 2, 4, 5, 6, 7, 0]);
    assert_eq!(round(&mut flow), [1, 2, 3, 4, 5, 6, 7, 0]);
    // One packet clears one bit: 3 is skipped behind 2 and once more for itself.
    for path in [2, 3] {
        flow.on_ack(&AckSample { path, ..ack(1_000, RTT_NS, 1, true) });
    }
    assert_eq!(round(&mut flow), [1, 4, 5, 6, 7, 0, 1, 2]);
    assert_eq!(round(&mut flow), [4, 5, 6, 7, 0, 1, 2, 3]);
    // All marked: still a path.
    for path in 0..8 {
        flow.on_ack(&AckSample { path, ..ack(1_000, RTT_NS, 1, true) });
    }
    assert_eq!(flow.next_path(0), 4);
}

#[test]
fn an_unmarked_path_is_used_next_even_path_0() {
    let mut flow = by_marks_alone();
    assert_eq!(flow.next_path(0), 0);
    for path in [5, 0] {
        flow.on_ack(&AckSample { path, ..ack(2_000, RTT_NS, 1, false) });
        assert_eq!([flow.next_path(0), flow.next_path(0)], [path, path + 1]);
    }
}

#[test]
fn marks_and_delay_must_agree_on_a_path() {
    let turns = [0, 1, 2, 3, 4, 5, 6, 7];
    let on = [1, 2, 3, 4, 5, 6, 7, 0];
    let (used, skipped) = ([3, 4, 5, 6, 7, 0, 1, 2], [1, 2, 4, 5, 6, 7, 0, 1]);
    for (rtt_ns, marked, next) in [
        (31_000, true, skipped),
        (31_000, false, on),
        (29_000, true, on),
        (17_000, true, on),
        (19_000, false, on),
        (17_000, false, used),
    ] {
        let mut flow = small_with_ecn();
        assert_eq!(turns.map(|_| flow.next_path(0)), turns);
        // The first acknowledgements of path 0 are later than the first round trip, so it is skipped once.
        feed(&mut flow, 1_000, 6, 24_000, true);
        assert_eq!(turns.map(|_| flow.next_path(0)), on);
        flow.on_ack(&AckSample { path: 3, ..ack(10_000, rtt_ns, 1, marked) });
        assert_eq!(turns.map(|_| flow.next_path(0)), next, "{rtt_ns} {marked}");
    }
}

#[test]
fn the_first_window_is_one_bdp_and_a_packet() {
    assert_eq!(flow(&params()).window_bytes(), WINDOW_FIRST);
}

#[test]
fn jitter_of_hosts_lengthens_the_window_but_not_the_queue() {
    let mut flow = flow(&params());
    let mut rng = crate::cc::paths::rng(3);
    for n in 0..1_000u64 {
        let rtt_ns = RTT_NS + u64::from(rng.next_u32() % 48_000);
        flow.on_ack(&ack(n * 1_300, rtt_ns, 4, false));
    }
    let (view, base_bdp) = (flow.view(), 150_000.0);
    assert!(view.bdp_bytes as f32 > 2.0 * base_bdp, "{}", view.bdp_bytes);
    let queue = flow.window_max_bytes - view.bdp_bytes as f32;
    assert!(queue < 1.1 * base_bdp + 2.0 * PACKET as f32, "{queue}");
}

#[test]
fn what_is_trimmed_leaves_the_window() {
    let mut flow = full(&params());
    let trim = |n| Loss { kind: LossKind::Trim, ..loss(n, 1) };
    for n in 1..=10 {
        flow.on_loss(&trim(n));
        assert_eq!(flow.window_bytes(), WINDOW_MAX - n * PACKET);
    }
    for n in 11..200 {
        flow.on_loss(&trim(n));
    }
    assert_eq!(flow.window_bytes(), PACKET);
}

#[test]
fn without_ecn_paths_are_compared_with_the_one_in_the_middle() {
    let turns = [0, 1, 2, 3, 4, 5, 6, 7];
    let on = [1, 2, 3, 4, 5, 6, 7, 0];
    for (rtt_ns, next) in [
        (60_000, [1, 2, 4, 5, 6, 7, 0, 1]),
        (29_000, on),
        (24_000, on),
        (19_000, on),
        (RTT_NS, [3, 4, 5, 6, 7, 0, 1, 2]),
    ] {
        let mut flow = small(&params());
        assert_eq!(turns.map(|_| flow.next_path(0)), turns);
        // The first acknowledgements of path 0 are later than the first round trip, so it is skipped once.
        feed(&mut flow, 1_000, 6, 24_000, false);
        assert_eq!(turns.map(|_| flow.next_path(0)), [1, 2, 3, 4, 5, 6, 7, 0]);
        flow.on_ack(&AckSample { path: 3, ..ack(10_000, rtt_ns, 1, false) });
        assert_eq!(turns.map(|_| flow.next_path(0)), next, "{rtt_ns}");
    }
}

fn loss(now: Nanos, path: u16) -> Loss {
    let (bytes, kind) = (PACKET as u32, crate::cc::LossKind::Order);
    Loss { now, sent_at: now, bytes, path, kind, in_flight_bytes: 0 }
}

#[test]
fn a_path_that_alone_loses_is_left_for_a_while() {
    let mut flow = small_with_ecn();
    assert_eq!(flow.next_path(0), 0);
    flow.on_loss(&loss(10_000, 3));
    for _ in 0..30 {
        // Neither in turn nor for its late acknowledgements.
        flow.on_ack(&AckSample { path: 3, ..ack(11_000, RTT_NS, 1, false) });
        assert_ne!(flow.next_path(11_000), 3);
    }
    // 32 round trips later it is in use again.
    assert!((0..16).any(|_| flow.next_path(500_000) == 3));
}

#[test]
fn paths_follow_the_window() {
    assert_eq!(flow(&params()).view().paths, 75);
    assert_eq!(small(&params()).view().paths, 8);
    let mut few = flow(&FlowParams { paths: 3, ..params() });
    assert_eq!(few.view().paths, 3);
    assert!((0..9).all(|_| few.next_path(0) < 3));
    assert_eq!(flow(&FlowParams { paths: 1, ..params() }).next_path(0), 0);
}

#[test]
fn jitter_of_hosts_is_not_taken_for_a_queue() {
    let mut flow = flow(&params());
    let mut rng = crate::cc::paths::rng(7);
    let mut sum_bytes = 0;
    for n in 0..2_000u64 {
        // Up to 40 us late, three times the paper's target, and paths change.
        let rtt_ns = RTT_NS + u64::from(rng.next_u32() % 40_000);
        let ack = ack(n * 1_300, rtt_ns, 4, false);
        flow.on_ack(&AckSample { path: (n / 4 % 8) as u16, ..ack });
        sum_bytes += flow.window_bytes();
    }
    assert!(flow.view().target_ns >= flow.view().typical_rtt_ns);
    let mean_bytes = sum_bytes / 2_000;
    assert!(mean_bytes * 10 >= flow.view().bdp_bytes * 9, "{mean_bytes}");
}

#[test]
fn settings_reach_new_flows_only() {
    let mut scheme = STRACK.scheme();
    assert_eq!(scheme.ack_policy(), AckPolicy::Coalesced { packets: 2 });
    assert_eq!(scheme.loss_detection(), LossDetection::OutOfOrder { least_packets: 5 });
    let mut old = scheme.build(&params(), 0);
    scheme.set("target", 2.0).expect("a setting");
    scheme.set("sack_packets", 8.0).expect("a setting");
    scheme.set("max_bdp", 1.0).expect("a setting");
    let mut new = scheme.build(&params(), 0);
    // 150 kB are 37 packets, and one more.
    let most = |flow: &mut dyn Controller| {
        for n in 1..100 {
            flow.on_ack(&ack(n * 1_000, RTT_NS, 16, false));
        }
        flow.window_bytes()
    };
    assert_eq!((old.view().target_ns, new.view().target_ns), (12_000, 24_000));
    assert_eq!((most(&mut *old), most(&mut *new)), (WINDOW_MAX, 38 * PACKET));
    assert_eq!(scheme.ack_policy(), AckPolicy::Coalesced { packets: 8 });
    assert_eq!((new.ecn(), new.pace_bytes_per_s()), (Ecn::Ect0, None));
}

#[test]
fn state_is_small() {
    std::println!("strack {} spray {}", size_of::<Strack>(), size_of::<Spray>());
    assert!(size_of::<Strack>() <= 128);
    assert!(size_of::<Spray>() <= 16 * PATHS_MIN as usize);
    assert!(flow(&params()).spray.is_none());
}
