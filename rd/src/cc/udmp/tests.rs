//! The controller by itself, with access to its state. Whole flows: rd/tests/cc_udmp.rs.

extern crate std;

use super::*;
use crate::cc::LossKind;
use crate::units::MILLISECOND;

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
        trimming: false,
    }
}

fn udmp(params: &FlowParams) -> Udmp {
    Udmp::new(params, 7, UdmpScheme::default().values)
}

/// 100 Gb/s and 20 us: a BDP of 250 kB.
fn common() -> Udmp {
    udmp(&params(4, 20_000, 12_500_000_000))
}

fn ack(now: Nanos, path: u16, rtt_ns: Nanos, in_flight_bytes: u64) -> Ack {
    Ack {
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
    udmp.on_sent(&Sent {
        now,
        bytes: packets * PACKET,
        packets,
        path,
        in_flight_bytes,
        retransmission: false,
    });
}

/// A flow that knows its noise, at time `now`.
fn learned(params: &FlowParams, now: Nanos, rtt_ns: Nanos, values: Arc<[f32; COUNT]>) -> Udmp {
    let mut udmp = Udmp::new(params, 7, values);
    for _ in 0..crate::cc::LEARNING_SAMPLES {
        udmp.on_ack(&ack(now, 0, rtt_ns, 4 * 4096));
    }
    (udmp.share, udmp.pool) = (1.0, 0.0);
    (udmp.cut, udmp.explore) = (false, false);
    udmp.restart_interval(now);
    udmp
}

/// A flow in its stride: no tokens, so that what an acknowledgement clocks shows.
fn in_stride(now: Nanos, smooth_ns: f32, pool_packets: f32) -> Udmp {
    let params = params(4, 20_000, 12_500_000_000);
    let mut udmp = learned(&params, now.max(20_000), 20_000, UdmpScheme::default().values);
    udmp.update_at = 0;
    (udmp.smooth_ns, udmp.last_smooth_ns) = (smooth_ns, smooth_ns);
    (udmp.free_bytes, udmp.left_bytes) = (0, u32::MAX);
    udmp.pool = pool_packets * PACKET as f32;
    udmp.refill_at = ticks(now);
    udmp
}

#[test]
fn figure_3_sends_four_and_two() {
    let rtt = [2 * SECOND_NS, 3 * SECOND_NS];
    let mut values = UdmpScheme::default().values;
    // As printed.
    let printed = Arc::make_mut(&mut values);
    (printed[RESERVE], printed[SPREAD]) = (0.0, 0.0);
    let params = params(2, rtt[0], u64::from(PACKET) * SECOND / SECOND_NS);
    let mut udmp = learned(&params, rtt[0], rtt[0], values);
    udmp.refill_at = 0;
    assert_eq!(udmp.free_bytes, 2 * PACKET, "one packet a second over 2 s");
    // What the figure takes as given: the average and the rate stay, no path is explored.
    (udmp.smooth_ns, udmp.left_bytes) = (2.5 * SECOND_NS as f32, u32::MAX);
    let mut log = std::vec::Vec::new();
    // (acknowledged at, path); sent at 0 at random, one each.
    let mut flying = std::collections::BTreeSet::new();
    for (n, path) in [(1, 0), (2, 1)] {
        send(&mut udmp, 0, path, n * u64::from(PACKET), 1);
        flying.insert((rtt[usize::from(path)], 1 - path, n));
        log.push((0, path));
    }
    let mut serial = 2;
    while let Some((now, other, _)) = flying.pop_first() {
        if now >= 12 * SECOND_NS {
            break;
        }
        let path = 1 - other;
        let bytes = flying.len() as u64 * u64::from(PACKET);
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
    let at = |rtt_ns, pool: f32, lag_packets| {
        let mut udmp = in_stride(100_000, 30_000.0, pool);
        udmp.on_ack(&Ack { lag_packets, ..ack(100_000, 1, rtt_ns, 10 * 4096) });
        (udmp.tokens() as u32 / PACKET, udmp.window_bytes() / 4096 * 4096)
    };
    assert_eq!(at(22_000, 9.0, 0), (2, 12 * 4096), "faster than the average");
    assert_eq!(at(35_000, 9.0, 0), (1, 11 * 4096), "within one base round trip above it");
    assert_eq!(at(60_000, 9.0, 0), (0, 10 * 4096), "later");
    assert_eq!(at(22_000, 1.0, 0), (1, 11 * 4096), "the pool has one packet");
    assert_eq!(at(22_000, 0.0, 0), (0, 10 * 4096), "the pool has none");
    assert_eq!(at(22_000, 9.0, 64), (2, 12 * 4096), "as far behind as delta");
    assert_eq!(at(22_000, 9.0, 65), (0, 10 * 4096), "further behind than delta");
}

#[test]
fn a_burst_clocks_by_its_weight() {
    let mut udmp = in_stride(100_000, 30_000.0, 50.0);
    let burst =
        Ack { acked_bytes: 8 * 4096, acked_packets: 8, ..ack(100_000, 3, 22_000, 10 * 4096) };
    udmp.on_ack(&burst);
    assert_eq!((udmp.clocked_bytes(), udmp.free_bytes), (8 * PACKET, 8 * PACKET));
    udmp.explore = false;
    assert_eq!(udmp.next_path(100_000), 3);
}

#[test]
fn small_credits_do_not_block_datagrams() {
    let mut udmp = in_stride(100_000, 30_000.0, 9.0);
    let tail = Ack { acked_bytes: 100, ..ack(100_000, 1, 35_000, 10 * 4096) };
    udmp.on_ack(&tail);
    udmp.on_ack(&ack(100_000, 2, 35_000, 9 * 4096));
    assert!(udmp.window_bytes() >= 10 * 4096, "100 bytes before a datagram's credit");
}

#[test]
fn severe_congestion_cuts_at_once_and_once_per_round_trip() {
    let mut udmp = in_stride(0, 20_000.0, 0.0);
    let mut now = 1_000_000;
    udmp.on_ack(&ack(now, 0, 200_000, 4096));
    assert!(udmp.smooth_ns > udmp.t_high_ns());
    let clamp = 20_000.0 / udmp.smooth_ns;
    assert!((udmp.share - clamp).abs() < 1e-3, "line 23: {} is not {clamp}", udmp.share);
    // The round trip stays high, so the gradient is gone; the rate still falls.
    for _ in 0..20 {
        now += 200_000;
        udmp.left_bytes = 0;
        udmp.on_ack(&ack(now, 0, 200_000, 4096));
    }
    assert!(udmp.share < 0.5 * 0.1, "{} of N * base would stay for ever", udmp.share);
    assert!(udmp.window_bytes() >= 4096);
}

#[test]
fn the_gradient_moves_the_rate_at_most_by_half() {
    let udmp = in_stride(0, 30_000.0, 0.0);
    assert_eq!(udmp.updated(0.8, 0.25, false), 0.8 - 0.25 * 0.8, "line 31");
    assert_eq!(udmp.updated(0.8, -0.25, false), 0.8 + 0.25 * (1.0 - 0.8), "line 33");
    assert_eq!(udmp.updated(0.8, 7.0, false), 0.4);
    assert_eq!(udmp.updated(0.8, 0.0, false), 0.8, "between the thresholds 0 adds 0");
    assert_eq!(udmp.updated(0.8, -0.25, true), 0.8, "limited by the application");
    let low = in_stride(0, 20_000.0, 0.0);
    assert!(low.updated(0.8, 0.1, false) > 0.8, "no queue: jitter does not cut");
}

#[test]
fn losses_of_one_window_cut_once() {
    let mut udmp = in_stride(1_000_000, 20_000.0, 0.0);
    let lost = |now, in_flight_bytes| Loss {
        now,
        sent_at: now - 30_000,
        bytes: PACKET,
        path: 0,
        kind: LossKind::Nack,
        in_flight_bytes,
    };
    for n in 0..10 {
        udmp.on_loss(&lost(1_000_000 + n, (30 - n) * 4096));
    }
    assert_eq!(udmp.share, 0.7);
    for n in 0..21 {
        udmp.on_ack(&ack(1_030_000 + n, 0, 20_000, (20 - n) * 4096));
    }
    udmp.on_loss(&lost(1_100_000, 0));
    assert!(udmp.share < 0.5, "the next window's loss cuts again: {}", udmp.share);
}

#[test]
fn exploration_comes_once_a_probe_interval() {
    let mut udmp = in_stride(0, 20_000.0, 0.0);
    let rounds = 20_000;
    let mut explored = 0;
    for _ in 0..rounds {
        udmp.draw_exploration();
        explored += u32::from(udmp.explore);
        udmp.explore = false;
    }
    // p = 20 us / 1 ms.
    assert!((300..500).contains(&explored), "{explored} of {rounds}, 400 expected");
}

#[test]
fn a_burst_with_nothing_else_in_flight_restarts_the_flow() {
    // Every acknowledgement clocked nothing: there are no tokens, but the pool has what they left.
    let mut udmp = in_stride(1_000_000, 20_000.0, 10.0);
    assert_eq!(udmp.window_bytes(), 4096, "one datagram at least");
    send(&mut udmp, 1_000_000, 0, 4096, 1);
    assert_eq!((udmp.free_bytes, udmp.pool), (9 * PACKET, 0.0));
    assert!(udmp.window_bytes() >= 2 * 4096 && udmp.pace_bytes_per_s().is_some());

    // After a short pause the path of the last credit still counts, after a long one it does not.
    for (pause_ns, kept) in [(30_000, true), (10 * MILLISECOND, false)] {
        let mut udmp = in_stride(1_000_000, 20_000.0, 10.0);
        udmp.on_ack(&ack(1_000_000, 2, 19_000, 0));
        assert_eq!(udmp.clocked_bytes(), 2 * PACKET);
        send(&mut udmp, 1_000_000 + pause_ns, 2, 4096, 1);
        assert_eq!(udmp.clocked_bytes() == PACKET, kept);
        assert!(udmp.tokens() <= udmp.bdp(), "one BDP at most, however long the pause");
    }
}

#[test]
fn nonsense_leaves_the_state_sound() {
    let mut rng = paths::rng(11);
    for link in [0, 1, 12_500_000_000, u64::MAX] {
        let mut udmp = udmp(&params(3, 0, link));
        let mut now = 0;
        for _ in 0..20_000 {
            let mut draw = || u64::from(rng.next_u32() >> (rng.next_u32() % 32));
            let (rtt_ns, in_flight_bytes) = (draw(), draw());
            now += draw();
            match draw() % 4 {
                0 => udmp.on_ack(&Ack {
                    sent_at: 0,
                    acked_bytes: draw(),
                    acked_packets: draw() as u32,
                    rtt_ns: (rtt_ns % 8 != 0).then_some(rtt_ns),
                    path: draw() as u16,
                    app_limited: rtt_ns % 3 == 0,
                    ..ack(now + rtt_ns, 0, rtt_ns, in_flight_bytes)
                }),
                1 => udmp.on_sent(&Sent {
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
            let most = 2.0 * udmp.bdp();
            assert!(udmp.share > 0.0 && udmp.share <= 1.0, "{}", udmp.share);
            assert!(udmp.pool.abs() <= BDP_MAX);
            assert!((u64::from(PACKET)..=most as u64).contains(&udmp.window_bytes()));
            assert!(udmp.next_path(now) < 3 && udmp.pace_bytes_per_s() != Some(0));
        }
    }
}

#[test]
fn paths_take_turns_and_credits_add_up() {
    let mut credits = Credits::new(4);
    credits.push(2, 100);
    credits.push(0, 300);
    credits.push(2, 50);
    assert_eq!((credits.first(), credits.total_bytes), (Some((2, 150)), 450));
    assert_eq!(credits.take(100), 0);
    assert_eq!(credits.first(), Some((0, 300)), "path 2 has more, but had its turn");
    assert_eq!(credits.take(320), 0, "a burst may use two paths' credit");
    assert_eq!(credits.first(), Some((2, 30)));
    assert_eq!(credits.take(100), 70);
    assert_eq!((credits.first(), credits.total_bytes), (None, 0));
    credits.push(3, 7);
    assert_eq!(credits.clear(), 7);
    assert_eq!(credits.first(), None);
}

#[test]
fn the_state_is_small() {
    let (flow, queue, path) = (size_of::<Udmp>(), size_of::<Credits>(), size_of::<Slot>());
    std::println!("UDMP: {flow} bytes a flow, {queue} for its queue, {path} a path");
    assert!(flow <= 128 && path <= 16);
    let mut udmp = common();
    send(&mut udmp, 50_000, 0, 8 * 4096, 8);
    assert!(udmp.credits.is_none(), "path state comes with the first credit");
    udmp.on_ack(&ack(100_000, 0, 20_000, 4096));
    assert!(udmp.credits.is_some());
}
