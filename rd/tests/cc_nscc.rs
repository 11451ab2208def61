//! NSCC and SMaRTT replay their paper's worked behaviour (docs/cc/nscc.md, docs/cc/smartt.md).

use erd_rd::cc::nscc::{NSCC, NsccOptions, SMARTT};
use erd_rd::cc::scheme::TableScheme;
use erd_rd::cc::{
    AckSample, Controller, FlowParams, LEARNING_SAMPLES, Loss, LossKind, Scheme, SentBurst, Timeout,
};
use erd_rd::units::Nanos;
use std::collections::VecDeque;

const PACKET: u32 = 4096;
/// Base round trip of the paper: 84 us are 7 of them (section III-D).
const BASE: Nanos = 12_000;
/// The reference network: 100 Gb/s, so 150 kB of BDP and a = 1.
const SLOW: FlowParams = FlowParams {
    now: 0,
    datagram_bytes: PACKET,
    paths: 4,
    first_rtt_ns: BASE,
    base_rtt_ns: 0,
    link_bytes_per_s: 12_500_000_000,
    burst_bytes: 0,
    trimming: false,
};
/// The paper's simulation: 800 Gb/s, so 1.2 MB of BDP and a = 8.
const FAST: FlowParams = FlowParams { link_bytes_per_s: 100_000_000_000, ..SLOW };
const FAST_TRIM: FlowParams = FlowParams { trimming: true, ..FAST };

fn schemes() -> [TableScheme<NsccOptions>; 2] {
    [NSCC.scheme(), SMARTT.scheme()]
}

/// A packet that waited `queue_ns` comes back, unmarked.
fn ack(now: Nanos, queue_ns: Nanos) -> AckSample {
    AckSample {
        now,
        sent_at: now.saturating_sub(BASE + queue_ns),
        acked_bytes: u64::from(PACKET),
        acked_packets: 1,
        rtt_ns: Some(BASE + queue_ns),
        path: 0,
        ce_bytes: 0,
        lag_packets: 0,
        in_flight_bytes: 1 << 20,
        app_limited: false,
    }
}

fn marked(now: Nanos, queue_ns: Nanos) -> AckSample {
    AckSample { ce_bytes: PACKET, ..ack(now, queue_ns) }
}

fn trim(now: Nanos, sent_at: Nanos) -> Loss {
    let (bytes, kind) = (PACKET, LossKind::Trim);
    Loss { now, sent_at, bytes, path: 0, kind, in_flight_bytes: 1 << 20 }
}

/// Tells of a mark that changes no window, so that late no longer counts as marked.
fn show_a_mark(flow: &mut dyn Controller) {
    flow.on_ack(&AckSample { acked_bytes: 0, acked_packets: 0, rtt_ns: None, ..marked(0, 0) });
}

/// Cuts a new flow's window to `bytes`. The first loss only starts what QuickAdapt measures.
fn shrink(flow: &mut dyn Controller, bytes: u64) {
    let bytes = (flow.window_bytes() - bytes) as u32;
    flow.on_loss(&Loss { bytes, ..trim(0, 0) });
}

/// Unmarked packets come back evenly over time with one delay, for `rounds` round trips. Returns
/// by how much the window grew a round trip.
fn growth(flow: &mut dyn Controller, queue_ns: Nanos, rounds: u32) -> f64 {
    for _ in 0..16 {
        // The filter sees the delay before any byte counts.
        flow.on_ack(&AckSample { acked_bytes: 0, acked_packets: 0, ..ack(BASE, queue_ns) });
    }
    let before = flow.window_bytes() as f64;
    let (mut passed, mut now) = (0.0, BASE as f64);
    while passed < f64::from(rounds) {
        let share = f64::from(PACKET) / flow.window_bytes() as f64;
        now += share * (BASE + queue_ns) as f64;
        passed += share;
        flow.on_ack(&ack(now as Nanos, queue_ns));
    }
    (flow.window_bytes() as f64 - before) / passed
}

#[track_caller]
fn near(value: f64, expected: f64, share: f64) {
    assert!((value - expected).abs() <= share * expected, "{value} is not {expected}");
}

#[test]
fn a_flow_starts_at_one_and_a_half_bdp() {
    for scheme in schemes() {
        assert_eq!(scheme.build(&SLOW, 1).window_bytes(), 225_000);
        assert_eq!(scheme.build(&FAST, 1).window_bytes(), 1_800_000);
        let tiny = FlowParams { link_bytes_per_s: 1_000, ..SLOW };
        assert_eq!(
            scheme.build(&tiny, 1).window_bytes(),
            2 * u64::from(PACKET),
            "two packets, however small the BDP"
        );
    }
}

#[test]
fn unmarked_and_late_is_a_fair_increase() {
    // nscc adds its 0.3 packets in any case, once in 12 us: twice in these round trips of 30 us.
    for (scheme, packets) in [(NSCC.scheme(), 2.6), (SMARTT.scheme(), 5.0)] {
        let mut flow = scheme.build(&SLOW, 1);
        shrink(&mut *flow, 60_000);
        show_a_mark(&mut *flow);
        let bytes = growth(&mut *flow, 18_000, 4);
        near(bytes, packets * f64::from(PACKET), 0.1);
    }
}

#[test]
fn a_fair_increase_is_the_same_in_bytes_for_large_and_small_windows() {
    let grown = [20_000, 100_000].map(|window| {
        let mut flow = SMARTT.scheme().build(&SLOW, 1);
        shrink(&mut *flow, window);
        show_a_mark(&mut *flow);
        growth(&mut *flow, 18_000, 3)
    });
    near(grown[0], grown[1], 0.2);
}

#[test]
fn unmarked_and_early_is_a_proportional_increase() {
    // Half of the target: nscc takes half of 4 packets times 7.2 us / 12 us, and 0.3; the paper 2/5 of a
    // packet (equation 3 with trtt 18, rtt 15, brtt 12) and a fair increase.
    for (scheme, queue_ns, packets) in [(NSCC.scheme(), 3_600, 1.5), (SMARTT.scheme(), 3_000, 5.4)]
    {
        let mut flow = scheme.build(&SLOW, 1);
        shrink(&mut *flow, 60_000);
        near(growth(&mut *flow, queue_ns, 4), packets * f64::from(PACKET), 0.1);
    }
}

#[test]
fn increases_grow_with_the_bdp() {
    for scheme in schemes() {
        let grown = [SLOW, FAST].map(|params| {
            let mut flow = scheme.build(&params, 1);
            shrink(&mut *flow, 60_000);
            show_a_mark(&mut *flow);
            growth(&mut *flow, 2_900, 6)
        });
        near(grown[1] / grown[0], 8.0, 0.3);
    }
}

/// Brings the average delay to `queue_ns` with one heavy sample, after the filter has seen it.
fn marked_and_late(flow: &mut dyn Controller, now: Nanos, queue_ns: Nanos) {
    for _ in 0..7 {
        flow.on_ack(&AckSample { acked_bytes: 0, acked_packets: 0, ..marked(now, queue_ns) });
    }
    flow.on_ack(&AckSample { acked_packets: 1 << 20, ..marked(now, queue_ns) });
}

#[test]
fn marked_and_late_decreases_by_equation_1_once_a_round_trip() {
    for scheme in schemes() {
        let mut flow = scheme.build(&SLOW, 1);
        // nscc: 1 - 0.8 (14.4 - 7.2) / 14.4. smartt: 1 - 0.8 (36 - 18) / 36.
        let queue_ns = if scheme.name() == "nscc" { 14_400 } else { 24_000 };
        marked_and_late(&mut *flow, 40_000, queue_ns);
        near(flow.window_bytes() as f64, 0.6 * 225_000.0, 0.01);
        marked_and_late(&mut *flow, 50_000, queue_ns);
        near(flow.window_bytes() as f64, 0.6 * 225_000.0, 0.01);
        marked_and_late(&mut *flow, 52_500, queue_ns);
        // nscc has added its 0.3 packets.
        let steady = if scheme.name() == "nscc" { 0.3 * f64::from(PACKET) } else { 0.0 };
        near(flow.window_bytes() as f64, 0.36 * 225_000.0 + steady, 0.01);
    }
}

#[test]
fn a_decrease_halves_at_most() {
    for scheme in schemes() {
        let mut flow = scheme.build(&SLOW, 1);
        marked_and_late(&mut *flow, 2_000_000, 1_000_000);
        near(flow.window_bytes() as f64, 112_500.0, 0.01);
    }
}

#[test]
fn marked_and_early_leaves_the_window_to_the_path_choice() {
    let mut flow = SMARTT.scheme().build(&SLOW, 1);
    shrink(&mut *flow, 60_000);
    let before = flow.window_bytes();
    for n in 0..200 {
        flow.on_ack(&marked(BASE + n * 500, 3_000));
    }
    assert_eq!(flow.window_bytes(), before);
}

#[test]
fn equality_with_the_target_is_late() {
    let mut flow = NSCC.scheme().build(&SLOW, 1);
    shrink(&mut *flow, 60_000);
    show_a_mark(&mut *flow);
    near(growth(&mut *flow, 8_400, 4), 2.15 * f64::from(PACKET), 0.1);
}

/// An incast of `degree` flows: this one gets its share of the link from `from` on, for `for_ns`.
/// Returns when it ended.
fn incast(
    flow: &mut dyn Controller,
    degree: u64,
    queue_ns: Nanos,
    from: Nanos,
    for_ns: Nanos,
) -> Nanos {
    let gap = u64::from(PACKET) * degree / 100;
    let mut now = from;
    while now < from + for_ns {
        flow.on_ack(&marked(now, queue_ns));
        now += gap;
    }
    now
}

/// A new flow gets its share of an incast and loses one packet at its begin. Returns when
/// QuickAdapt fired, if it did.
fn adapt(flow: &mut dyn Controller, degree: u64, kind: LossKind) -> Option<Nanos> {
    let whole = flow.window_bytes();
    let mut now = BASE;
    flow.on_ack(&marked(now, 3_000));
    flow.on_loss(&Loss { kind, ..trim(now, 0) });
    while now < 4 * BASE {
        now = incast(flow, degree, 3_000, now, 1);
        if flow.window_bytes() < whole / 2 {
            return Some(now - u64::from(PACKET) * degree / 100);
        }
    }
    None
}

#[test]
fn quick_adapt_drops_a_16_to_1_incast_to_a_sixteenth_in_one_target_rtt() {
    // Section III-E. Target RTT: 18 us in the paper, 21 us in the simulator.
    for (scheme, target_rtt) in [(SMARTT.scheme(), 18_000), (NSCC.scheme(), 21_000)] {
        let mut flow = scheme.build(&FAST_TRIM, 1);
        let now = incast(&mut *flow, 16, 3_000, BASE, target_rtt);
        flow.on_loss(&trim(now, now - BASE));
        near(flow.window_bytes() as f64, target_rtt as f64 * 100.0 / 16.0, 0.1);
        // Just what came back after the first: the loss that let it adapt cuts nothing more.
        let packets = (now - BASE) / (u64::from(PACKET) * 16 / 100) - 1;
        assert_eq!(flow.window_bytes(), packets * u64::from(PACKET));
    }
}

#[test]
fn with_trims_the_paper_adapts_to_any_share_and_the_simulator_below_an_eighth() {
    for (scheme, adapts) in [(SMARTT.scheme(), true), (NSCC.scheme(), false)] {
        let mut flow = scheme.build(&FAST_TRIM, 1);
        assert_eq!(adapt(&mut *flow, 4, LossKind::Trim).is_some(), adapts);
        let mut flow = scheme.build(&FAST_TRIM, 1);
        assert!(adapt(&mut *flow, 16, LossKind::Trim).is_some());
    }
}

#[test]
fn without_trimming_a_long_delay_and_little_received_adapt() {
    for scheme in schemes() {
        let mut flow = scheme.build(&FAST, 1);
        // 16:1, and more than 4 targets late; the window of 24 us holds 150 kB at that share.
        incast(&mut *flow, 16, 60_000, 100_000, 27_000);
        assert!(flow.window_bytes() <= 160_000, "{}", flow.window_bytes());
        let mut flow = scheme.build(&FAST, 1);
        // The same share and a shorter delay: one decrease a round trip at most, by little.
        incast(&mut *flow, 16, 13_000, 100_000, 27_000);
        assert!(flow.window_bytes() > 1_000_000, "{}", flow.window_bytes());
    }
}

#[test]
fn without_trimming_a_loss_and_little_received_adapt() {
    for scheme in schemes() {
        for (degree, adapts) in [(16, true), (4, false)] {
            let mut flow = scheme.build(&FAST, 1);
            let kind = LossKind::Nack;
            assert_eq!(adapt(&mut *flow, degree, kind).is_some(), adapts);
            assert!(!adapts || flow.window_bytes() <= 160_000);
        }
    }
}

#[test]
fn the_first_window_only_measures() {
    for scheme in schemes() {
        let mut flow = scheme.build(&FAST_TRIM, 1);
        flow.on_loss(&trim(BASE, 0));
        assert_eq!(flow.window_bytes(), 1_800_000 - u64::from(PACKET));
    }
}

#[test]
fn quick_adapt_never_raises_the_window() {
    for scheme in schemes() {
        let mut flow = scheme.build(&FAST_TRIM, 1);
        shrink(&mut *flow, u64::from(PACKET));
        for n in 0..20 {
            flow.on_loss(&trim(BASE + 2_000 * n, 2_000 * n));
            incast(&mut *flow, 16, 3_000, BASE + 2_000 * n, 2_000);
            // 32 packets come back in that time.
            assert!(flow.window_bytes() < 4 * u64::from(PACKET), "{}", flow.window_bytes());
        }
    }
}

#[test]
fn what_was_sent_before_quick_adapt_is_ignored_and_what_was_sent_after_is_not() {
    for scheme in schemes() {
        let mut flow = scheme.build(&FAST_TRIM, 1);
        let now = adapt(&mut *flow, 16, LossKind::Trim).expect("an incast");
        let adapted = flow.window_bytes();
        for n in 0..10 {
            flow.on_loss(&trim(now + 10 * n, now - 1_000));
            marked_and_late(&mut *flow, now + 1_000 * n, 24_000);
        }
        assert_eq!(flow.window_bytes(), adapted, "sent before");
        flow.on_loss(&trim(now + 12_000, now + 500));
        assert_eq!(flow.window_bytes(), adapted - u64::from(PACKET), "sent after");
    }
}

#[test]
fn the_ignore_phase_ends_after_one_target_rtt() {
    for scheme in schemes() {
        let mut flow = scheme.build(&FAST_TRIM, 1);
        let now = adapt(&mut *flow, 16, LossKind::Trim).expect("an incast");
        let adapted = flow.window_bytes();
        flow.on_loss(&trim(now + 17_000, now - 1_000));
        assert_eq!(flow.window_bytes(), adapted);
        // More than this was received since, so that nothing is adapted again.
        let many =
            AckSample { acked_bytes: 300_000, acked_packets: 74, ..marked(now + 17_000, 5_000) };
        flow.on_ack(&many);
        flow.on_ack(&AckSample { sent_at: now - 1_000, ..marked(now + 22_000, 5_000) });
        let before = flow.window_bytes();
        flow.on_loss(&trim(now + 22_500, now - 1_000));
        assert_eq!(flow.window_bytes(), before - u64::from(PACKET));
    }
}

#[test]
fn trims_saturate_at_one_packet() {
    for scheme in schemes() {
        let mut flow = scheme.build(&FAST_TRIM, 1);
        for _ in 0..10_000 {
            flow.on_loss(&trim(BASE, 0));
        }
        assert_eq!(flow.window_bytes(), u64::from(PACKET));
        flow.on_loss(&Loss { bytes: u32::MAX, ..trim(BASE, 0) });
        assert_eq!(flow.window_bytes(), u64::from(PACKET));
    }
}

#[test]
fn fast_increase_begins_once_a_window_came_back_without_a_queue() {
    // Per byte: 0.25 a in the simulator, 2 MTU an ACK in the paper.
    for (scheme, params, gain) in
        [(NSCC.scheme(), SLOW, 0.25), (NSCC.scheme(), FAST, 2.0), (SMARTT.scheme(), SLOW, 2.0)]
    {
        let mut flow = scheme.build(&params, 1);
        shrink(&mut *flow, 41_000);
        // Other increases come in batches; three equal steps in a row are fast increase.
        let steps: Vec<f64> = (1..200)
            .map(|n| {
                let before = flow.window_bytes();
                flow.on_ack(&ack(BASE + 300 * n, 0));
                (flow.window_bytes() - before) as f64 / f64::from(PACKET)
            })
            .collect();
        let is_fast = |three: &[f64]| three.iter().all(|step| (step - gain).abs() < 0.01);
        let first = steps.windows(3).position(is_fast).expect("fast increase");
        assert!(first >= 10, "41 kB are 10 packets: {first}");
    }
}

#[test]
fn fast_increase_reaches_and_keeps_the_greatest_window() {
    for scheme in schemes() {
        let mut flow = scheme.build(&SLOW, 1);
        shrink(&mut *flow, u64::from(PACKET));
        let mut most = 0;
        for n in 0..5_000 {
            flow.on_ack(&ack(BASE + 330 * n, 0));
            most = most.max(flow.window_bytes());
        }
        assert_eq!(most, 225_000, "every way out is clamped");
        assert_eq!(flow.window_bytes(), 225_000);
    }
}

#[test]
fn a_queue_or_a_mark_ends_fast_increase() {
    for end in [ack(40_000, 3_000), marked(40_000, 0)] {
        let mut flow = SMARTT.scheme().build(&FAST, 1);
        shrink(&mut *flow, 20_000);
        for n in 0..20 {
            flow.on_ack(&ack(BASE + 330 * n, 0));
        }
        // The filter takes a few samples to see a queue.
        for _ in 0..16 {
            flow.on_ack(&end);
        }
        let before = flow.window_bytes();
        flow.on_ack(&ack(41_000, 0));
        assert!(flow.window_bytes() - before < u64::from(PACKET));
    }
}

#[test]
fn late_counts_as_marked_until_the_network_has_marked() {
    for scheme in schemes() {
        let mut silent = scheme.build(&SLOW, 1);
        shrink(&mut *silent, 150_000);
        assert!(growth(&mut *silent, 20_000, 5) < -10_000.0);
        let mut marking = scheme.build(&SLOW, 1);
        shrink(&mut *marking, 150_000);
        show_a_mark(&mut *marking);
        assert!(growth(&mut *marking, 20_000, 2) > 8_000.0);
    }
}

#[test]
fn a_burst_is_one_sample_with_its_weight() {
    for scheme in schemes() {
        let windows = [1, 8].map(|packets: u32| {
            let mut flow = scheme.build(&SLOW, 1);
            for _ in 0..LEARNING_SAMPLES {
                flow.on_ack(&AckSample { acked_bytes: 0, acked_packets: 0, ..ack(0, 0) });
            }
            shrink(&mut *flow, 100_000);
            show_a_mark(&mut *flow);
            for n in 0..(320 / packets) {
                let one = ack(BASE + u64::from(n * packets) * 300, 18_000);
                let acked_bytes = u64::from(PACKET * packets);
                flow.on_ack(&AckSample { acked_bytes, acked_packets: packets, ..one });
            }
            flow.window_bytes() as f64
        });
        near(windows[0], windows[1], 0.1);
    }
}

#[test]
fn an_app_limited_flow_does_not_grow() {
    for scheme in schemes() {
        let mut flow = scheme.build(&SLOW, 1);
        shrink(&mut *flow, 60_000);
        let before = flow.window_bytes();
        for n in 0..1_000 {
            flow.on_ack(&AckSample { app_limited: true, ..ack(BASE + 1_000 * n, 0) });
        }
        assert_eq!(flow.window_bytes(), before);
    }
}

#[test]
fn a_flow_restarts_at_one_bdp_and_paced_after_idling() {
    for scheme in schemes() {
        let mut flow = scheme.build(&SLOW, 1);
        flow.on_ack(&ack(BASE, 0));
        assert_eq!(flow.window_bytes(), 225_000);
        assert_eq!(flow.pace_bytes_per_s(), None);
        let sent = |now, in_flight_bytes| SentBurst {
            now,
            bytes: PACKET,
            packets: 1,
            path: 0,
            in_flight_bytes,
            retransmission: false,
        };
        flow.on_sent(&sent(500_000, 3 * u64::from(PACKET)));
        assert_eq!(flow.window_bytes(), 225_000, "waiting for packets is not idling");
        let now = 1_000_000;
        flow.on_sent(&sent(now, u64::from(PACKET)));
        assert_eq!(flow.window_bytes(), 150_000);
        near(flow.pace_bytes_per_s().expect("paced") as f64, 12.5e9, 0.01);
        flow.on_ack(&ack(now + BASE, 0));
        assert_eq!(flow.pace_bytes_per_s(), None);
    }
}

#[test]
fn silence_halves_the_window_from_the_second_timeout_on() {
    let mut flow = NSCC.scheme().build(&SLOW, 1);
    let silence = |in_a_row| Timeout { now: 1_000_000, in_flight_bytes: 4096, in_a_row };
    flow.on_timeout(&silence(1));
    assert_eq!(flow.window_bytes(), 225_000);
    flow.on_timeout(&silence(2));
    assert_eq!(flow.window_bytes(), 112_500);
    (3..20).for_each(|n| flow.on_timeout(&silence(n)));
    assert_eq!(flow.window_bytes(), u64::from(PACKET));
}

#[test]
fn no_feedback_breaks_the_bounds() {
    let mut dice = 0x9e37_79b9_7f4a_7c15u64;
    let mut roll = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        dice >> 33
    };
    for scheme in schemes() {
        for params in [SLOW, FAST_TRIM, FlowParams { datagram_bytes: 65_000, ..FAST }] {
            let mut flow = scheme.build(&params, 1);
            let mut now = 0;
            for _ in 0..20_000 {
                now += roll() % 5_000;
                let wild = |n: u64, usual: u64| if n.is_multiple_of(50) { u64::MAX } else { usual };
                let one = ack(now, wild(roll(), roll() % 40_000).min(1 << 40));
                match roll() % 8 {
                    0 => flow.on_loss(&trim(now, now.saturating_sub(roll() % 20_000))),
                    1 => flow.on_ack(&AckSample { acked_bytes: wild(roll(), 0), ..one }),
                    2 => flow.on_ack(&AckSample { rtt_ns: None, sent_at: now, ..one }),
                    3 => flow.on_ack(&AckSample { ce_bytes: wild(roll(), 4096) as u32, ..one }),
                    _ => flow.on_ack(&one),
                }
                let most =
                    (flow.view().bdp_bytes as f64 * 1.5).max(f64::from(params.datagram_bytes));
                let window = flow.window_bytes();
                assert!(window >= u64::from(params.datagram_bytes));
                assert!(window as f64 <= most * 1.001 + 2.0, "{window} above {most}");
                assert!(flow.next_path(now) < params.paths);
            }
        }
    }
}

fn with_paths_by(by: f32) -> Box<dyn Controller> {
    let mut scheme = NSCC.scheme();
    scheme.set("paths_by", by).expect("a valid choice");
    scheme.build(&FlowParams { paths: 16, ..SLOW }, 7)
}

#[test]
fn reps_uses_again_what_came_back_unmarked_in_order() {
    let mut flow = with_paths_by(0.0);
    flow.next_path(0);
    for (path, ce_bytes) in [(5, 0), (9, PACKET), (11, 0), (2, 0)] {
        flow.on_ack(&AckSample { path, ce_bytes, ..ack(BASE, 0) });
    }
    assert_eq!([0; 3].map(|_| flow.next_path(BASE)), [5, 11, 2]);
}

#[test]
fn a_late_path_is_not_used_again_where_nothing_marks() {
    let mut flow = with_paths_by(0.0);
    flow.next_path(0);
    for (path, queue_ns) in [(5, 0), (9, 30_000), (11, 0)] {
        flow.on_ack(&AckSample { path, ..ack(BASE, queue_ns) });
    }
    assert_eq!([0; 2].map(|_| flow.next_path(BASE)), [5, 11]);
}

#[test]
fn reps_freezes_to_good_paths_for_10_ms_after_a_timeout() {
    let mut flow = with_paths_by(0.0);
    let distinct = |flow: &mut dyn Controller, now| {
        let mut seen: Vec<u16> = (0..200).map(|_| flow.next_path(now)).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    assert_eq!(distinct(&mut *flow, 0).len(), 16);
    let silence = Timeout { now: 0, in_flight_bytes: 4096, in_a_row: 1 };
    flow.on_timeout(&silence);
    assert_eq!(distinct(&mut *flow, 0).len(), 16, "it knows of no good path yet");
    for path in [3, 8] {
        flow.on_ack(&AckSample { path, ..ack(BASE, 0) });
    }
    assert_eq!(distinct(&mut *flow, 9_000_000), [3, 8]);
    assert_eq!(distinct(&mut *flow, 11_000_000).len(), 16);
}

#[test]
fn the_bitmap_skips_a_marked_path_once() {
    let mut flow = with_paths_by(2.0);
    flow.next_path(0);
    flow.on_ack(&AckSample { path: 5, ..marked(BASE, 0) });
    let first: Vec<u16> = (0..15).map(|_| flow.next_path(BASE)).collect();
    assert!(!first.contains(&5));
    assert!((0..16).any(|_| flow.next_path(BASE) == 5));
}

#[test]
fn mixed_recycles_first_and_then_avoids_marks_and_losses() {
    let mut flow = with_paths_by(3.0);
    flow.next_path(0);
    for (path, ce_bytes) in [(5, 0), (9, PACKET), (11, 0)] {
        flow.on_ack(&AckSample { path, ce_bytes, ..ack(BASE, 0) });
    }
    flow.on_loss(&Loss { path: 4, ..trim(BASE, 0) });
    assert_eq!([0; 2].map(|_| flow.next_path(BASE)), [5, 11]);
    let next: Vec<u16> = (0..14).map(|_| flow.next_path(BASE)).collect();
    assert!(!next.contains(&9) && !next.contains(&4), "{next:?}");
}

#[test]
fn oblivious_uses_nothing() {
    let (mut told, mut untold) = (with_paths_by(1.0), with_paths_by(1.0));
    for n in 0..100 {
        told.on_ack(&marked(BASE + n * 100, 30_000));
        assert_eq!(told.next_path(0), untold.next_path(0));
    }
}

#[test]
fn a_parameter_out_of_range_is_refused_and_old_flows_keep_theirs() {
    let mut scheme = SMARTT.scheme();
    let old = scheme.build(&SLOW, 1);
    assert!(scheme.set("paths_by", 4.0).is_err());
    scheme.set("max_window", 1.0).expect("in range");
    scheme.set("target", 1.0).expect("in range");
    assert_eq!(scheme.build(&SLOW, 1).window_bytes(), 150_000);
    assert_eq!((old.window_bytes(), old.view().target_ns), (225_000, 6_000));
}

/// What a switch does.
#[derive(Clone, Copy)]
struct Switch {
    marks: bool,
    trims: bool,
}

/// How often each case is tried.
const SEEDS: u64 = 4;
/// In so many slots all flows begin: four base round trips.
const STARTS: u64 = 4 * 36;

/// 24 bits that look random.
fn mixed(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// What the engine lets be in flight while a flow learns.
const LEARNING_BYTES: u64 = 4 * PACKET as u64;

/// What flows reach in the second half.
#[derive(Debug)]
struct Reached {
    /// Share of the link's slots that were used.
    filled: f64,
    /// Jain's index of the flows' bytes.
    jain: f64,
    /// Mean queue.
    queued_bdp: f64,
}

/// Jain's index.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (squares * shares.len() as f64)
}

/// Flows over one 100 Gb/s bottleneck with a buffer of 5 BDP, one packet a slot. With seed 0 all begin
/// at once, with another each in one of the first [`STARTS`] slots.
fn bottleneck(scheme: &dyn Scheme, flows: usize, switch: Switch, seed: u64) -> Reached {
    const SLOTS: u64 = 40_000;
    const SLOT_NS: u64 = 328;
    let params = FlowParams { trimming: switch.trims, ..SLOW };
    let sender = |n| (scheme.build(&params, n as u64), 0_u64, LEARNING_SAMPLES);
    let start = |n| if seed == 0 { 0 } else { mixed(seed << 8 | n) % STARTS };
    let starts: Vec<u64> = (0..flows as u64).map(start).collect();
    let mut senders: Vec<_> = (0..flows).map(sender).collect();
    let mut queue: VecDeque<(usize, Nanos)> = VecDeque::new();
    let mut back: VecDeque<(Nanos, usize, Nanos, Option<bool>)> = VecDeque::new();
    let (mut got, mut queued) = (vec![0.0; flows], 0.0);
    for slot in 0..SLOTS {
        let now = slot * SLOT_NS;
        while back.front().is_some_and(|packet| packet.0 <= now) {
            let (_, at, sent_at, mark) = back.pop_front().expect("seen");
            let (flow, in_flight, learning) = &mut senders[at];
            *in_flight -= u64::from(PACKET);
            *learning = learning.saturating_sub(u8::from(mark.is_some()));
            let kind = if switch.trims { LossKind::Trim } else { LossKind::Nack };
            match mark {
                Some(mark) => flow.on_ack(&AckSample {
                    sent_at,
                    rtt_ns: Some(now - sent_at),
                    ce_bytes: if mark { PACKET } else { 0 },
                    in_flight_bytes: *in_flight,
                    ..ack(now, 0)
                }),
                None => {
                    flow.on_loss(&Loss { kind, in_flight_bytes: *in_flight, ..trim(now, sent_at) })
                }
            }
        }
        for n in 0..flows {
            let at = (n + slot as usize) % flows;
            if slot < starts[at] {
                continue;
            }
            let (flow, in_flight, learning) = &mut senders[at];
            // The engine keeps little in flight while a flow learns its noise.
            let most = if *learning > 0 { LEARNING_BYTES } else { u64::MAX };
            // A host's own link is no faster than the bottleneck.
            if *in_flight + u64::from(PACKET) <= flow.window_bytes().min(most) || *in_flight == 0 {
                *in_flight += u64::from(PACKET);
                if queue.len() < 5 * 36 {
                    queue.push_back((at, now));
                } else {
                    back.push_back((now + BASE, at, now, None));
                }
            }
        }
        if let Some((at, sent_at)) = queue.pop_front() {
            // RED from 20 % to 80 % of a BDP, at dequeue, with a fixed sequence of dice.
            let chance = (queue.len() as f64 / 36.0 - 0.2) / 0.6;
            let dice = mixed(slot) as f64 / f64::from(1 << 24);
            back.push_back((now + BASE, at, sent_at, Some(switch.marks && dice < chance)));
            if slot >= SLOTS / 2 {
                got[at] += f64::from(PACKET);
            }
        }
        if slot >= SLOTS / 2 {
            queued += queue.len() as f64 * f64::from(PACKET) / (SLOTS / 2) as f64;
        }
    }
    Reached {
        filled: got.iter().sum::<f64>() / ((SLOTS / 2) as f64 * f64::from(PACKET)),
        jain: jain(&got),
        queued_bdp: queued / 150_000.0,
    }
}

#[test]
fn flows_share_a_bottleneck_fairly_and_fill_it() {
    for scheme in schemes() {
        for flows in [1, 8, 32] {
            for (marks, trims) in [(true, false), (true, true), (false, false)] {
                for seed in 0..SEEDS {
                    let reached = bottleneck(&scheme, flows, Switch { marks, trims }, seed);
                    let case = format!("{} {flows} {marks} {trims} {seed}", scheme.name());
                    println!("{case}: {reached:?}");
                    assert!(reached.filled > 0.95, "{case}");
                    // Flows that begin in one slot stay in step, and learn each other's queue as noise.
                    let in_step = seed == 0 && !marks;
                    assert!(reached.jain > if in_step { 0.9 } else { 0.95 }, "{case}");
                    // Without marks the paper's larger increases keep more of the 5 BDP in use.
                    assert!(reached.queued_bdp < if marks { 1.5 } else { 3.5 }, "{case}");
                }
            }
        }
    }
}
