//! The size of a flow's state, and paths without marks.

extern crate std;

use super::super::LEARNING_SAMPLES;
use super::super::options::Choice;
use super::super::paths::{EcnBitmap, Reps};
use super::*;
use std::println;
use std::vec::Vec;

fn params(paths: u16) -> FlowParams {
    FlowParams {
        now: 0,
        datagram_bytes: 4096,
        paths,
        first_rtt_ns: 12_000,
        base_rtt_ns: 12_000,
        link_bytes_per_s: 12_500_000_000,
        burst_bytes: 0,
        trimming: false,
    }
}

/// A flow whose first samples, all that it learns from, took `rtt_ns`.
fn learned(scheme: &'static SchemeTable<NsccOptions>, rtt_ns: Nanos) -> Nscc {
    let mut flow = Nscc::new(scheme.scheme().shared(), &params(8), 1);
    for n in 1..=u64::from(LEARNING_SAMPLES) {
        flow.on_ack(&ack(n * rtt_ns / 4, rtt_ns, (n % 8) as u16));
    }
    flow
}

fn ack(now: Nanos, rtt_ns: Nanos, path: u16) -> AckSample {
    AckSample {
        now,
        sent_at: now.saturating_sub(rtt_ns),
        acked_bytes: 4096,
        acked_packets: 1,
        rtt_ns: Some(rtt_ns),
        path,
        ce_bytes: 0,
        lag_packets: 0,
        in_flight_bytes: 4 * 4096,
        app_limited: false,
    }
}

#[test]
fn a_flow_that_finds_a_queue_begins_small() {
    for scheme in [&NSCC, &SMARTT] {
        let (free, queued) = (learned(scheme, 12_000), learned(scheme, 30_000));
        assert_eq!(free.window_bytes(), 225_000, "1.5 BDP where there is none");
        assert!(queued.window_bytes() < 225_000 / 12, "{}", queued.window_bytes());
    }
}

#[test]
fn without_marks_a_path_is_late_as_often_as_it_is_behind_the_others() {
    let mut flow = learned(&NSCC, 22_000);
    // All stand 10 us above the base, which is more than the target.
    assert!(flow.target_ns() < 10_000.0);
    let mut late = |rtt_ns: Nanos| {
        let sample = ack(1_000_000, rtt_ns, 0);
        (0..1_000).filter(|_| flow.is_marked(&sample, rtt_ns as f32).0).count()
    };
    assert_eq!(late(21_900), 0);
    assert!((450..550).contains(&late(28_000)), "half a round trip behind");
    assert!((700..800).contains(&late(31_000)));
    assert_eq!(late(34_000), 1_000);
    assert!(flow.is_marked(&ack(1_000_000, 22_000, 0), 22_000.0).1, "but the window uses it");
    // A queue of more than a round trip is late by itself.
    let mut full = learned(&NSCC, 42_000);
    assert!(full.is_marked(&ack(1_000_000, 36_000, 0), 36_000.0).0);
}

#[test]
fn under_jitter_paths_are_taken_in_turn() {
    let scheme = NSCC.scheme();
    let mut flow = Nscc::new(scheme.shared(), &params(4), 1);
    flow.next_path(0);
    for n in 0..Nanos::from(LEARNING_SAMPLES) {
        flow.on_ack(&ack(1_000 * n, 12_000 + 60_000 * (n % 2), 0));
    }
    assert!(flow.has(JITTERY));
    let turn: Vec<u16> = (0..8).map(|n| flow.next_path(1_000_000 + n)).collect();
    assert_eq!(turn, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn a_flow_takes_at_most_128_bytes_and_its_paths_16_each() {
    let flow = size_of::<Nscc>();
    let fixed = size_of::<PathSpread>();
    let both = fixed + size_of::<(Reps, EcnBitmap)>();
    println!("flow {flow}, with REPS or the bitmap {fixed}, with both {both}");
    assert!(flow <= 128);
    assert!(fixed <= 16 * 4, "over the usual 4 paths");
    assert!(both <= 16 * 8, "over 8 paths, the most that one domain opens");
}

#[test]
fn path_state_comes_with_the_first_burst_over_several_paths() {
    let params = params(1);
    let scheme = NSCC.scheme();
    let mut lone = Nscc::new(scheme.shared(), &params, 1);
    assert_eq!(lone.next_path(0), 0);
    assert!(lone.spread.is_none());
    let mut flow = Nscc::new(scheme.shared(), &FlowParams { paths: 4, ..params }, 1);
    assert!(flow.spread.is_none());
    assert!(flow.next_path(0) < 4);
    assert!(flow.spread.is_some());
}

#[test]
fn the_only_path_that_loses_is_left_for_a_while_however_bursts_are_spread() {
    for paths_by in 0..4 {
        let mut spread = PathSpread::new(Choice(paths_by as f32), 1);
        let kind = LossKind::Nack;
        let loss = Loss { now: 0, sent_at: 0, bytes: 1, path: 2, kind, in_flight_bytes: 0 };
        spread.lost(&loss, 30_000.0);
        for n in 0..100 {
            let path = spread.next(n * 9_000, 3);
            assert_ne!(path, 2);
            spread.told(2, false);
        }
        assert!((0..100).any(|_| spread.next(2_000_000, 3) == 2), "way {paths_by}");
        // The last path is never left.
        let mut lone = PathSpread::new(Choice(paths_by as f32), 1);
        lone.lost(&Loss { path: 0, ..loss }, 30_000.0);
        assert_eq!(lone.next(0, 0), 0);
    }
}
