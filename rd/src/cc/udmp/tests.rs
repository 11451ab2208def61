//! The controller by itself, with access to its state. Whole flows: rd/tests/cc_udmp.rs.

extern crate std;

use super::*;
use crate::cc::options::{Factor, Micros, Share, TypicalRtts};
use crate::units::MILLISECOND;
use rand_pcg::rand_core::Rng;

const PACKET: u32 = 4096;
/// The paper's second in Figure 3: one packet of the token rate.
const SECOND_NS: Nanos = 10_240;

fn params(paths: u16, rtt_ns: Nanos, link_bytes_per_s: u64) -> FlowParams {
    FlowParams {
        base_rtt_ns: 0,
        now: 0,
        datagram_bytes: PACKET,
        paths,
        first_rtt_ns: rtt_ns,
        link_bytes_per_s,
        burst_bytes: 0,
        trimming: false,
    }
}

fn udmp(params: &FlowParams) -> Udmp {
    Udmp::new(params, 7, UDMP.scheme().shared())
}

fn ack(now: Nanos, path: u16, rtt_ns: Nanos, in_flight_bytes: u64) -> AckSample {
    AckSample {
        now,
        sent_at: now - rtt_ns,
        acked_bytes: PACKET.into(),
        acked_packets: 1,
        rtt_ns: Some(rtt_ns),
        path,
        ce_bytes: 0,
        lag_packets: 0,
        in_flight_bytes,
        app_limited: false,
    }
}

fn send(udmp: &mut Udmp, now: Nanos, path: u16, in_flight_bytes: u64, packets: u32) {
    udmp.on_sent(&SentBurst {
        now,
        bytes: packets * PACKET,
        packets,
        path,
        in_flight_bytes,
        retransmission: false,
    });
}

/// A flow that knows its noise, at time `now`.
fn learned(params: &FlowParams, now: Nanos, rtt_ns: Nanos, options: &Arc<UdmpOptions>) -> Udmp {
    let mut udmp = Udmp::new(params, 7, options);
    for _ in 0..crate::cc::LEARNING_SAMPLES {
        udmp.on_ack(&ack(now, 0, rtt_ns, 4 * 4096));
    }
    udmp
}

/// A running flow without tokens, so that the bytes an acknowledgement clocks show.
fn in_stride(now: Nanos, smooth_ns: f32, pool_packets: i32) -> Udmp {
    let params = params(4, 20_000, 12_500_000_000);
    let mut udmp = learned(&params, now.max(20_000), 20_000, UDMP.scheme().shared());
    (udmp.smooth_ns, udmp.last_smooth_ns, udmp.least_ns) = (smooth_ns, smooth_ns, 20_000.0);
    (udmp.free_bytes, udmp.in_flight_bytes) = (0, 0);
    udmp.pool_bytes = pool_packets * PACKET as i32;
    // The next update is far away.
    (udmp.refill_at, udmp.update_at) = (Tick::of(now), Tick::of(now));
    udmp
}

#[test]
fn figure_3_sends_four_and_two() {
    let rtt = [2 * SECOND_NS, 3 * SECOND_NS];
    // As printed: no window, no advance, second packets stay on their path.
    let (spread, advance, t_low) = (Share(0.0), Share(0.0), TypicalRtts(10.0));
    let printed = Arc::new(UdmpOptions { spread, advance, t_low, ..**UDMP.scheme().shared() });
    let params = params(2, rtt[0], u64::from(PACKET) * SECOND / SECOND_NS);
    let mut udmp = learned(&params, rtt[0], rtt[0], &printed);
    assert_eq!(udmp.free_bytes, 2 * PACKET, "one packet a second over 2 s");
    // The figure's assumptions: the average and the rate stay, no path is explored.
    udmp.refill_at = Tick::of(0);
    let mut log = std::vec::Vec::new();
    // (acknowledged at, path); sent at 0, one each.
    let mut flying = std::collections::BTreeSet::new();
    for (n, path) in [(1, 0), (2, 1)] {
        send(&mut udmp, 0, path, n * u64::from(PACKET), 1);
        flying.insert((rtt[usize::from(path)], 1 - path, n));
        log.push((0, path));
    }
    (udmp.free_bytes, udmp.pool_bytes) = (0, 0);
    let mut serial = 2;
    while let Some((now, other, _)) = flying.pop_first() {
        if now >= 12 * SECOND_NS {
            break;
        }
        let path = 1 - other;
        let bytes = flying.len() as u64 * u64::from(PACKET);
        udmp.update_at = Tick::of(now);
        // The sample pulls the average as far from 2.5 as it puts it.
        udmp.smooth_ns = 2.5 * SECOND_NS as f32;
        udmp.on_ack(&ack(now, path, rtt[usize::from(path)], bytes));
        while udmp.window_bytes() >= (flying.len() as u64 + 1) * u64::from(PACKET) {
            let path = udmp.next_path(now);
            serial += 1;
            flying.insert((now + rtt[usize::from(path)], 1 - path, serial));
            send(&mut udmp, now, path, flying.len() as u64 * u64::from(PACKET), 1);
            log.push((now / SECOND_NS, path));
        }
    }
    let period = [(0, 0), (0, 1), (2, 0), (2, 0), (3, 1), (4, 0)];
    assert_eq!(log[..6], period, "path 1 four times, path 2 twice");
    let again = period.map(|(at, path)| (at + 6, path));
    let mut second = log[6..].to_vec();
    second.sort_unstable();
    assert_eq!(second, again, "the process repeats");
}

#[test]
fn an_acknowledgement_clocks_two_one_or_none() {
    let at = |rtt_ns, pool, lag_packets| {
        let mut udmp = in_stride(100_000, 30_000.0, pool);
        udmp.on_ack(&AckSample { lag_packets, ..ack(100_000, 1, rtt_ns, 10 * 4096) });
        (udmp.clocked_bytes() / PACKET, udmp.free_bytes / PACKET)
    };
    assert_eq!(at(22_000, 9, 0), (1, 1), "faster than the average: one here, one on any path");
    let (own, any) = at(35_000, 9, 0);
    assert_eq!(own + any, 1, "within one base round trip above it");
    assert_eq!(at(60_000, 9, 0), (0, 0), "later");
    assert_eq!(at(22_000, 1, 0), (1, 0), "the pool has one packet");
    assert_eq!(at(22_000, 0, 0), (0, 0), "the pool has none");
    assert_eq!(at(22_000, 9, 64), (1, 1), "as far behind as delta");
    // A BDP is 61 packets.
    assert_eq!(at(22_000, 9, 65), (0, 0), "further behind than delta and a BDP");
}

#[test]
fn the_later_a_path_the_more_packets_leave_it() {
    let left = |rtt_ns| {
        let mut left = 0;
        for seed in 0..1_000 {
            let mut udmp = in_stride(100_000, 30_000.0, 9);
            udmp.draw = seed * 65;
            udmp.on_ack(&ack(100_000, 1, rtt_ns, 10 * 4096));
            assert_eq!(udmp.tokens(), PACKET);
            left += udmp.free_bytes / PACKET;
        }
        left
    };
    assert_eq!(left(30_000), 0, "at the average");
    let (near, far) = (left(35_000), left(48_000));
    assert!((75..175).contains(&near), "{near} of 1000, an eighth expected");
    assert!((400..500).contains(&far), "{far} of 1000, 45 % expected");
}

#[test]
fn one_path_sends_no_long_row() {
    let mut udmp = in_stride(100_000, 30_000.0, 16);
    let burst =
        AckSample { acked_bytes: 8 * 4096, acked_packets: 8, ..ack(100_000, 3, 22_000, 10 * 4096) };
    udmp.on_ack(&burst);
    assert_eq!((udmp.clocked_bytes(), udmp.free_bytes), (4 * PACKET, 12 * PACKET));
    udmp.flags &= !EXPLORE;
    assert_eq!(udmp.next_path(100_000), 3);
}

#[test]
fn small_bytes_do_not_block_datagrams() {
    let mut udmp = in_stride(100_000, 30_000.0, 9);
    let tail = AckSample { acked_bytes: 100, ..ack(100_000, 1, 22_000, 10 * 4096) };
    udmp.on_ack(&tail);
    udmp.on_ack(&ack(100_000, 2, 22_000, 9 * 4096));
    assert!(udmp.window_bytes() >= 10 * 4096, "100 bytes before a datagram's");
}

#[test]
fn severe_congestion_cuts_at_once_and_once_per_round_trip() {
    let mut udmp = in_stride(0, 100_000.0, 0);
    let mut now = 1_000_000;
    // 20 us and four times a slack of 12 us.
    udmp.update_at = Tick::of(now);
    udmp.on_ack(&ack(now, 0, 100_000, 4096));
    let bound = 20_000.0 / udmp.smooth_ns;
    assert!((udmp.share - bound).abs() < 1e-3, "line 23: {} is not {bound}", udmp.share);
    // The round trip stays high, so the gradient is gone; the rate still falls.
    for _ in 0..20 {
        now += 100_000;
        udmp.on_ack(&ack(now, 0, 100_000, 4096));
    }
    assert!(udmp.share < 0.1, "{}: N * base would stay for ever", udmp.share);
    assert!(udmp.window_bytes() >= 4096);
}

#[test]
fn the_gradient_is_bounded_and_counts_above_the_threshold() {
    let mut udmp = in_stride(0, 40_000.0, 0);
    udmp.share = 0.8;
    let options = Arc::make_mut(&mut udmp.options);
    (options.gain, options.beta, options.additive) = (Factor(1.0), Factor(0.0), Share(0.0));
    let is = |share: f32, expected: f32| (share - expected).abs() < 1e-6;
    assert!(is(udmp.updated(0.25, false), 0.8 - 0.25 * 0.8), "line 31");
    assert!(is(udmp.updated(-0.25, false), 0.8 + 0.25 * 0.2), "line 33");
    assert!(is(udmp.updated(7.0, false), 0.4));
    assert!(is(udmp.updated(0.0, false), 0.8));
    assert!(is(udmp.updated(-0.25, true), 0.8), "limited by the application");
    udmp.smooth_ns = 20_000.0;
    assert!(is(udmp.updated(0.25, false), 0.8), "no queue: jitter does not cut");
}

#[test]
fn a_round_trip_without_congestion_raises_the_rate_and_one_with_it_lowers_it() {
    let mut udmp = in_stride(0, 20_000.0, 0);
    udmp.share = 0.5;
    let step = |udmp: &Udmp| udmp.updated(0.0, false) - 0.5;
    let calm = step(&udmp);
    udmp.smooth_ns = 29_000.0;
    let near = step(&udmp);
    assert!((near * 256.0 - 1.0).abs() < 1e-3 && (calm / near - HASTE).abs() < 1e-3);
    udmp.smooth_ns = 64_000.0;
    // Twice T_low: half of beta, and one step up.
    assert!((step(&udmp) - near + 0.5 * 0.25).abs() < 1e-3);
    assert_eq!(udmp.updated(0.0, true), 0.5 - 0.5 * 0.25, "limited by the application");
}

#[test]
fn learnt_noise_does_not_hide_a_standing_queue() {
    let mut udmp = in_stride(0, 60_000.0, 0);
    udmp.slack_ns = 100_000.0;
    assert!(udmp.lateness() < 0.0, "noise, if some packets are fast");
    udmp.least_ns = 45_000.0;
    assert!((udmp.lateness() - (1.0 - 32.0 / 45.0)).abs() < 1e-3, "the fastest took 45 us");
}

#[test]
fn a_flow_that_finds_a_queue_begins_small() {
    let params = params(4, 20_000, 12_500_000_000);
    let begun = |rtt_ns| {
        let mut udmp = Udmp::new(&params, 7, UDMP.scheme().shared());
        for n in 1..=u64::from(crate::cc::LEARNING_SAMPLES) {
            udmp.on_ack(&ack(n * rtt_ns, 0, rtt_ns, 4 * 4096));
        }
        (udmp.share, udmp.free_bytes)
    };
    assert_eq!(begun(20_000), (1.0, 250_000), "a BDP where there is none");
    let (share, free_bytes) = begun(40_000);
    assert!(share == BEGIN_MIN && free_bytes < 20_000, "{share}, {free_bytes}");
}

#[test]
fn packets_of_a_burst_are_one_sample_and_spikes_are_bounded() {
    let mut udmp = in_stride(1_000_000, 20_000.0, 0);
    let now = 1_005_000;
    udmp.update_at = Tick::of(now);
    udmp.on_ack(&ack(now, 0, 28_000, 10 * 4096));
    let once = udmp.smooth_ns;
    // Weight 2 * 5 / 20.
    assert!((once - 24_000.0).abs() < 200.0, "{once}");
    for _ in 0..50 {
        udmp.on_ack(&ack(now, 0, 28_000, 10 * 4096));
    }
    assert_eq!(udmp.smooth_ns, once);
    udmp.update_at = Tick::of(now + 5_000);
    udmp.on_ack(&ack(now + 5_000, 0, 200_000, 10 * 4096));
    assert!(udmp.smooth_ns < once + 6_100.0, "at most the slack counts: {}", udmp.smooth_ns);
}

#[test]
fn a_loss_costs_what_it_is_of_the_window() {
    let mut udmp = in_stride(1_000_000, 20_000.0, 0);
    let lost = |in_flight_bytes| Loss {
        now: 1_000_000,
        sent_at: 900_000,
        bytes: PACKET,
        path: 0,
        kind: LossKind::Nack,
        in_flight_bytes,
    };
    udmp.on_loss(&lost(49 * 4096));
    assert!((udmp.share - 0.98).abs() < 1e-3, "{}", udmp.share);
    for n in (0..49).rev() {
        udmp.on_loss(&lost(n * 4096));
    }
    assert!(udmp.share < 0.02, "all of a window: {}", udmp.share);
    let before = udmp.share;
    udmp.on_timeout(&Timeout { now: 2_000_000, in_flight_bytes: 4096, in_a_row: 1 });
    assert!(udmp.share >= before * 0.5 && udmp.window_bytes() >= 4096);
}

#[test]
fn exploration_comes_once_a_probe_interval() {
    let mut udmp = in_stride(0, 20_000.0, 0);
    let (rounds, mut explored) = (20_000, 0);
    for n in 1..=rounds {
        udmp.least_ns = 20_000.0;
        udmp.update(&ack(n * 20_000, 0, 20_000, 4096));
        explored += u32::from(udmp.flags & EXPLORE != 0);
        udmp.flags &= !EXPLORE;
    }
    // p = 20 us / 1 ms.
    assert!((300..500).contains(&explored), "{explored} of {rounds}, 400 expected");
    udmp.pool_bytes = PACKET as i32;
    udmp.on_ack(&ack(rounds * 20_000, 2, 19_000, 4096));
    (udmp.flags, udmp.turn) = (BEGUN | EXPLORE, 3);
    assert_eq!((udmp.next_path(0), udmp.next_path(0)), (3, 2), "one burst leaves its path");
}

#[test]
fn the_path_of_a_loss_is_left_until_the_next_exploration() {
    let mut udmp = in_stride(1_000_000, 20_000.0, 0);
    udmp.on_loss(&Loss {
        now: 1_000_000,
        sent_at: 900_000,
        bytes: PACKET,
        path: 2,
        kind: LossKind::Nack,
        in_flight_bytes: 0,
    });
    let turns = |udmp: &mut Udmp| (0..8).map(|_| udmp.next_path(0)).filter(|p| *p == 2).count();
    assert_eq!(turns(&mut udmp), 0);
    udmp.pool_bytes = PACKET as i32;
    udmp.on_ack(&ack(1_000_000, 2, 19_000, 0));
    assert_eq!((udmp.clocked_bytes(), udmp.free_bytes), (0, PACKET), "nor does it clock");
    Arc::make_mut(&mut udmp.options).probe_us = Micros(10.0);
    udmp.least_ns = 20_000.0;
    udmp.update(&ack(1_100_000, 0, 20_000, 4096));
    assert_eq!(turns(&mut udmp), 2);
}

#[test]
fn a_burst_with_nothing_else_in_flight_restarts_the_flow() {
    // Every acknowledgement clocked nothing: there are no tokens, but the rate has granted some.
    let mut udmp = in_stride(1_000_000, 20_000.0, 10);
    assert_eq!(udmp.window_bytes(), 2 * 4096, "two packets at least");
    send(&mut udmp, 1_000_000, 0, 4096, 1);
    assert_eq!(udmp.free_bytes, 250_000 - PACKET, "what the rate grants in a round trip");
    assert!(udmp.pool_bytes <= 10 * PACKET as i32 - 250_000, "as an advance");
    assert!(udmp.window_bytes() >= 2 * 4096 && udmp.pace_bytes_per_s().is_some());
    let (free_bytes, pool_bytes) = (udmp.free_bytes, udmp.pool_bytes);
    send(&mut udmp, 1_000_000, 0, 4096, 1);
    assert_eq!((udmp.free_bytes, udmp.pool_bytes), (free_bytes - PACKET, pool_bytes), "once");

    // After a short pause a clocked path still counts, after a long one it does not.
    for (pause_ns, kept) in [(30_000, true), (10 * MILLISECOND, false)] {
        let mut udmp = in_stride(1_000_000, 20_000.0, 10);
        for path in [2, 3] {
            udmp.on_ack(&ack(1_000_000, path, 19_000, 0));
        }
        assert_eq!(udmp.clocked_bytes(), 2 * PACKET);
        send(&mut udmp, 1_000_000 + pause_ns, 2, 4096, 1);
        assert_eq!(udmp.clocked_bytes() == PACKET, kept);
        assert!(udmp.tokens() <= udmp.grant_bytes(), "however long the pause");
    }
}

#[test]
fn nonsense_leaves_the_state_sound() {
    let mut rng = crate::cc::paths::rng(11);
    for link in [0, 1, 12_500_000_000, u64::MAX] {
        let mut udmp = udmp(&params(3, 0, link));
        let mut now = 0;
        for _ in 0..20_000 {
            let mut draw = || u64::from(rng.next_u32() >> (rng.next_u32() % 32));
            let (rtt_ns, in_flight_bytes) = (draw(), draw());
            now += draw();
            match draw() % 4 {
                0 => udmp.on_ack(&AckSample {
                    sent_at: 0,
                    acked_bytes: draw(),
                    acked_packets: draw() as u32,
                    rtt_ns: (rtt_ns % 8 != 0).then_some(rtt_ns),
                    path: draw() as u16,
                    app_limited: rtt_ns % 3 == 0,
                    ..ack(now + rtt_ns, 0, rtt_ns, in_flight_bytes)
                }),
                1 => udmp.on_sent(&SentBurst {
                    now,
                    bytes: draw() as u32,
                    packets: 1,
                    path: 0,
                    in_flight_bytes,
                    retransmission: false,
                }),
                2 => udmp.on_loss(&Loss {
                    now,
                    sent_at: 0,
                    bytes: draw() as u32,
                    path: draw() as u16,
                    kind: LossKind::Probe,
                    in_flight_bytes,
                }),
                _ => udmp.on_timeout(&Timeout { now, in_flight_bytes, in_a_row: 1 }),
            }
            assert!(udmp.share > 0.0 && udmp.share <= 1.0, "{}", udmp.share);
            assert!(udmp.pool_bytes.unsigned_abs() <= 1 << 30);
            assert!(udmp.window_bytes() >= u64::from(PACKET) && udmp.window_bytes() <= 1 << 30);
            assert!(udmp.next_path(now) < 3 && udmp.pace_bytes_per_s() != Some(0));
        }
    }
}

#[test]
fn the_state_is_small() {
    let flow = size_of::<Udmp>();
    std::println!("UDMP: {flow} bytes a flow");
    assert!(flow <= 128);
    let mut udmp = udmp(&params(4, 20_000, 12_500_000_000));
    send(&mut udmp, 50_000, 0, 8 * 4096, 8);
    assert!(udmp.clock.is_none(), "path state comes with the first path that is clocked");
}
