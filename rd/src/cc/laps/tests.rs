extern crate std;

use super::super::Scheme;
use super::*;
use alloc::vec;
use alloc::vec::Vec;

const LINK_BYTES_PER_S: u64 = 12_500_000_000;
const MICRO: Nanos = 1_000;
/// 15 packets of 4096 B at 12.5 B/ns.
const MARGIN_NS: f32 = 4915.2;

fn flow(paths: u16) -> Laps {
    let params = FlowParams {
        base_rtt_ns: 0,
        now: 0,
        datagram_bytes: 4096,
        paths,
        first_rtt_ns: 12 * MICRO,
        link_bytes_per_s: LINK_BYTES_PER_S,
        burst_bytes: 0,
        trimming: false,
    };
    Laps::new(LAPS.scheme().shared(), &params, 7)
}

fn ack(now: Nanos, path: u16, rtt_ns: Nanos) -> AckSample {
    AckSample {
        now,
        sent_at: now.saturating_sub(rtt_ns),
        acked_bytes: 4096,
        acked_packets: 1,
        rtt_ns: Some(rtt_ns),
        path,
        ce_bytes: 0,
        lag_packets: 0,
        in_flight_bytes: 100_000,
        app_limited: false,
    }
}

fn loss(now: Nanos, path: u16, kind: LossKind) -> Loss {
    Loss { now, sent_at: now, bytes: 4096, path, kind, in_flight_bytes: 100_000 }
}

fn send(flow: &mut Laps, now: Nanos) -> u16 {
    let path = flow.next_path(now);
    send_on(flow, now, path);
    path
}

fn send_on(flow: &mut Laps, now: Nanos, path: u16) {
    let in_flight_bytes = 100_000;
    let (bytes, packets, retransmission) = (4096, 1, false);
    flow.on_sent(&SentBurst { now, bytes, packets, path, in_flight_bytes, retransmission });
}

/// Acknowledges every 100 us, later than any gate here, until the rate changed; returns the new rate.
fn step(flow: &mut Laps, now: &mut Nanos, rtt_ns: Nanos) -> f32 {
    let before = flow.rate;
    for _ in 0..20 {
        *now += 100 * MICRO;
        flow.on_ack(&ack(*now, 0, rtt_ns));
        if flow.rate != before {
            break;
        }
    }
    flow.rate
}

/// Shares of the paths in 100,000 choices at one moment.
fn shares(flow: &mut Laps, now: Nanos, paths: u16) -> Vec<f32> {
    let mut counts = vec![0u32; paths.into()];
    for _ in 0..100_000 {
        counts[usize::from(flow.next_path(now))] += 1;
    }
    counts.iter().map(|count| *count as f32 / 1e5).collect()
}

fn near(left: f32, right: f32, by: f32) -> bool {
    (left - right).abs() <= by
}

/// True if paced at the link's speed; f32 keeps 7 digits.
fn is_full_speed(flow: &Laps) -> bool {
    flow.pace_bytes_per_s().unwrap().abs_diff(LINK_BYTES_PER_S) < 10_000
}

#[test]
fn rates_go_through_the_stages_of_the_paper() {
    let mut flow = flow(1);
    let mut now = 100 * MICRO;
    flow.on_ack(&ack(now, 0, 12 * MICRO));
    // The paper's example: expRate 2a, curRate a, here with a = 0.25 B/ns.
    let a = 0.25;
    (flow.rate, flow.expected) = (2.0 * a, 2.0 * a);
    assert!(near(step(&mut flow, &mut now, 60 * MICRO), a, 1e-6));
    assert!(near(flow.expected, 2.0 * a, 1e-6));
    for stage in 1..=5 {
        let missing = a / (1 << stage) as f32;
        assert!(near(step(&mut flow, &mut now, 12 * MICRO), 2.0 * a - missing, 1e-6));
        assert!(near(flow.expected, 2.0 * a, 1e-6), "recovery keeps the expectation");
    }
    // Then the expectation doubles, again and again: 4a leads to about 3a, 8a to about 5.5a.
    assert!(near(step(&mut flow, &mut now, 12 * MICRO), 3.0 * a, 0.02 * a));
    assert!(near(flow.expected, 4.0 * a, 1e-6));
    assert!(near(step(&mut flow, &mut now, 12 * MICRO), 5.5 * a, 0.02 * a));
    assert!(near(flow.expected, 8.0 * a, 1e-6));
    // A decrease halves, and the rate reached is the new expectation.
    assert!(near(step(&mut flow, &mut now, 60 * MICRO), 2.75 * a, 0.02 * a));
    assert!(near(flow.expected, 5.5 * a, 0.02 * a));
    let recovering = step(&mut flow, &mut now, 12 * MICRO);
    assert!(near(recovering, 4.12 * a, 0.02 * a), "the stages begin again");
}

#[test]
fn a_flow_starts_at_the_speed_of_its_link_and_never_exceeds_it() {
    let mut flow = flow(1);
    assert!(is_full_speed(&flow), "{}", flow.rate);
    for n in 1..200 {
        flow.on_ack(&ack(n * 100 * MICRO, 0, 12 * MICRO));
    }
    assert!(is_full_speed(&flow), "{}", flow.rate);
    assert!(near(flow.expected, 12.5, 1e-5));
}

#[test]
fn the_rate_changes_once_per_round_trip() {
    let mut flow = flow(1);
    flow.on_ack(&ack(100 * MICRO, 0, 12 * MICRO));
    for n in 0..100 {
        flow.on_ack(&ack(130 * MICRO + n * 500, 0, 200 * MICRO));
    }
    // 50 us of acknowledgements that are all late: one decrease.
    assert!(near(flow.rate, 6.25, 1e-5), "{}", flow.rate);
}

#[test]
fn queues_within_the_margin_and_single_spikes_slow_nothing() {
    let mut flow = flow(1);
    let mut now = 0;
    for n in 0..400 {
        now += 20 * MICRO;
        let rtt = if n % 50 == 49 { 212 * MICRO } else { 12 * MICRO + n % 2 * 4 * MICRO };
        flow.on_ack(&ack(now, 0, rtt));
    }
    assert!(is_full_speed(&flow), "{}", flow.rate);
}

#[test]
fn paths_get_softmax_shares() {
    let mut flow = flow(4);
    let now = 100 * MICRO;
    // Slower by 0, 2, 4 and 6 round trips: weights 1, 1/4, 1/16 and 1/64.
    for (path, rtt_ns) in [(0, 12_000), (1, 36_000), (2, 60_000), (3, 84_000)] {
        flow.on_ack(&ack(now, path, rtt_ns));
    }
    flow.on_ack(&ack(now, 0, 12_000));
    assert!(near(flow.table.margin_ns, MARGIN_NS, 0.5));
    let shares = shares(&mut flow, now, 4);
    for (share, weight) in shares.iter().zip([1.0, 0.25, 0.0625, 0.015_625]) {
        assert!(near(*share, weight / 1.328_125, 0.006), "{shares:?}");
    }
}

#[test]
fn almost_no_beta_sprays_evenly() {
    let mut scheme = LAPS.scheme();
    scheme.set("quarter", 1e6).unwrap();
    let params = FlowParams {
        base_rtt_ns: 0,
        now: 0,
        datagram_bytes: 4096,
        paths: 2,
        first_rtt_ns: 12 * MICRO,
        link_bytes_per_s: LINK_BYTES_PER_S,
        burst_bytes: 0,
        trimming: false,
    };
    let mut flow = Laps::new(scheme.shared(), &params, 7);
    let now = 100 * MICRO;
    flow.on_ack(&ack(now, 0, 12 * MICRO));
    flow.on_ack(&ack(now, 1, 500 * MICRO));
    let shares = shares(&mut flow, now, 2);
    assert!(near(shares[0], 0.5, 0.01), "{shares:?}");
}

#[test]
fn a_long_idle_path_does_not_look_free() {
    let mut flow = flow(2);
    let now = 100 * MICRO;
    flow.on_ack(&ack(now, 0, 10 * MICRO));
    flow.on_ack(&ack(now, 1, 30 * MICRO));
    // The short path has a queue now, but is still shorter than the long one without any.
    for _ in 0..10 {
        flow.on_ack(&ack(now, 0, 18 * MICRO));
    }
    let shares = shares(&mut flow, now, 2);
    // It is 12 us slower, of 20 us that make a quarter.
    assert!(near(shares[1], 0.303, 0.02), "{shares:?}");
}

#[test]
fn only_when_all_paths_are_slower_than_the_longest_the_rate_falls() {
    let mut flow = flow(2);
    let mut now = 100 * MICRO;
    flow.on_ack(&ack(now, 0, 10 * MICRO));
    flow.on_ack(&ack(now, 1, 30 * MICRO));
    // 24 us of queue on the short path: it is as slow as the long one, which is free.
    for _ in 0..50 {
        now += 20 * MICRO;
        flow.on_ack(&ack(now, 0, 34 * MICRO));
    }
    assert!(near(flow.rate, 12.5, 1e-4), "{}", flow.rate);
    for n in 0..20 {
        now += 20 * MICRO;
        flow.on_ack(&ack(now, n % 2, 80 * MICRO));
    }
    assert!(flow.rate < 6.3, "{}", flow.rate);
}

/// Drives `flow` with a burst every 10 us; path 1 answers after `rtt_ns`, the others in 12 us. Returns the times of the
/// bursts on path 1.
fn drive(flow: &mut Laps, from: Nanos, to: Nanos, rtt_ns: Option<Nanos>) -> Vec<Nanos> {
    let mut times = Vec::new();
    let mut now = from;
    while now < to {
        let path = send(flow, now);
        let rtt = if path == 1 { rtt_ns } else { Some(12 * MICRO) };
        if path == 1 {
            times.push(now);
        }
        now += 10 * MICRO;
        if let Some(rtt_ns) = rtt {
            let sent_at = now - 10 * MICRO;
            flow.on_ack(&AckSample { sent_at, ..ack(now, path, rtt_ns) });
        }
    }
    times
}

#[test]
fn a_slow_path_is_probed_when_stale_and_only_then() {
    let mut flow = flow(4);
    drive(&mut flow, MICRO, 500 * MICRO, Some(500 * MICRO));
    let times = drive(&mut flow, 500 * MICRO, 20_500 * MICRO, Some(500 * MICRO));
    // 500 us is so slow that it has no weight, and beyond 200 us without an answer it is stale.
    assert!((30..=40).contains(&times.len()), "{}", times.len());
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] > 500 * MICRO);
    }
    // Once a probe shows that the path is fast, it gets its share.
    let times = drive(&mut flow, 20_500 * MICRO, 30_500 * MICRO, Some(12 * MICRO));
    assert!(times.len() > 200, "{}", times.len());
}

#[test]
fn a_dead_path_is_left_probed_more_and_more_rarely_and_found_again() {
    let second = 1_000_000 * MICRO;
    let mut flow = flow(4);
    drive(&mut flow, MICRO, 2_000 * MICRO, Some(12 * MICRO));
    let dying = drive(&mut flow, 2_000 * MICRO, 4_000 * MICRO, None);
    assert!(dying.len() < 80, "left within its time: {}", dying.len());
    assert_eq!(flow.view().paths, 3);
    let times = drive(&mut flow, 4_000 * MICRO, second, None);
    let gaps: Vec<Nanos> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((4..=12).contains(&gaps.len()), "{gaps:?}");
    for pair in gaps.windows(2).take_while(|pair| pair[1] < 150_000 * MICRO) {
        assert!(pair[1] > pair[0] * 3 / 2 && pair[1] < pair[0] * 5 / 2, "{gaps:?}");
    }
    // The interval is bounded, so a second is enough to come back.
    assert!(gaps.iter().all(|gap| *gap < 250_000 * MICRO), "{gaps:?}");
    let back = drive(&mut flow, second, 2 * second, Some(12 * MICRO));
    assert!(back.len() > 10_000, "{}", back.len());
    assert_eq!(flow.view().paths, 4);
}

#[test]
fn a_lost_packet_on_a_silent_path_kills_it_at_once() {
    let mut flow = flow(2);
    flow.on_ack(&ack(100 * MICRO, 0, 12 * MICRO));
    flow.on_ack(&ack(100 * MICRO, 1, 12 * MICRO));
    send_on(&mut flow, 110 * MICRO, 1);
    // srtt + 4 var is 36 us here.
    flow.on_loss(&loss(160 * MICRO, 1, LossKind::Nack));
    assert_eq!(flow.view().paths, 1);
    for _ in 0..1000 {
        assert_eq!(flow.next_path(160 * MICRO), 0);
    }
    // Any answer shows that it lives.
    flow.on_ack(&ack(170 * MICRO, 1, 12 * MICRO));
    assert_eq!(flow.view().paths, 2);
}

#[test]
fn a_loss_between_answers_halves_nothing_but_the_liking_for_the_path() {
    let mut flow = flow(2);
    let now = 100 * MICRO;
    flow.on_ack(&ack(now, 0, 12 * MICRO));
    flow.on_ack(&ack(now, 1, 12 * MICRO));
    for _ in 0..3 {
        flow.on_loss(&loss(now, 1, LossKind::Order));
    }
    // Its value is doubled once, whatever the number, and counts a sixteenth.
    let lossy = shares(&mut flow, now, 2);
    assert!(near(lossy[1], 0.030, 0.005), "{lossy:?}");
    for n in 0..20 {
        flow.on_ack(&ack(now + n * 20 * MICRO, 0, 12 * MICRO));
        flow.on_ack(&ack(now + n * 20 * MICRO, 1, 12 * MICRO));
    }
    assert!(is_full_speed(&flow), "{}", flow.rate);
    let healed = shares(&mut flow, now + 380 * MICRO, 2);
    assert!(near(healed[1], 0.5, 0.01), "{healed:?}");
}

#[test]
fn much_loss_without_delay_slows_down() {
    let mut flow = flow(1);
    for n in 0..2000 {
        let now = 100 * MICRO + n * 300;
        flow.on_ack(&ack(now, 0, 12 * MICRO));
        if n % 4 == 0 {
            flow.on_loss(&loss(now, 0, LossKind::Order));
        }
    }
    assert!(flow.rate < 1.0, "{}", flow.rate);
}

#[test]
fn when_no_path_answers_all_are_tried() {
    let mut flow = flow(4);
    for path in 0..4 {
        flow.on_ack(&ack(100 * MICRO, path, 12 * MICRO));
        send_on(&mut flow, 110 * MICRO, path);
    }
    let now = 20_000 * MICRO;
    flow.on_timeout(&Timeout { now, in_flight_bytes: 16_384, in_a_row: 1 });
    assert!(is_full_speed(&flow), "the first may be a lost tail");
    assert_eq!(flow.view().paths, 0);
    let shares = shares(&mut flow, now, 4);
    assert!(shares.iter().all(|share| near(*share, 0.25, 0.02)), "{shares:?}");
    flow.on_timeout(&Timeout { now, in_flight_bytes: 16_384, in_a_row: 2 });
    assert!(near(flow.rate, 6.25, 1e-5));
}

#[test]
fn what_has_little_to_send_does_not_grow() {
    let mut flow = flow(1);
    (flow.rate, flow.expected) = (1.0, 2.0);
    for n in 1..100 {
        let app_limited = true;
        flow.on_ack(&AckSample { app_limited, ..ack(n * 100 * MICRO, 0, 12 * MICRO) });
    }
    assert!(near(flow.rate, 1.0, 1e-6));
}

#[test]
fn after_idling_half_the_window_until_something_came_back() {
    let mut flow = flow(2);
    flow.on_ack(&ack(100 * MICRO, 0, 12 * MICRO));
    let whole = flow.window_bytes();
    assert!(whole <= 2 * flow.view().bdp_bytes + 1);
    let (bytes, packets, path, retransmission) = (4096, 1, 0, false);
    let now = 10_000 * MICRO;
    let in_flight_bytes = 4096;
    flow.on_sent(&SentBurst { now, bytes, packets, path, in_flight_bytes, retransmission });
    assert!(flow.window_bytes().abs_diff(whole / 2) <= 1);
    flow.on_ack(&ack(10_012 * MICRO, 0, 12 * MICRO));
    assert!(flow.window_bytes().abs_diff(whole) <= 1);
}

#[test]
fn a_longer_route_becomes_the_new_base_in_time() {
    let mut flow = flow(1);
    let mut now = 100 * MICRO;
    flow.on_ack(&ack(now, 0, 12 * MICRO));
    while now < 200_000_000 * MICRO {
        now += 100_000 * MICRO;
        flow.on_ack(&ack(now, 0, 40 * MICRO));
    }
    assert!(near(flow.rate, 12.5, 1e-3), "{}", flow.rate);
}

#[test]
fn whatever_is_told_everything_stays_within_bounds() {
    use rand_pcg::rand_core::Rng;
    for (paths, link_bytes_per_s) in [(1, 0), (4, LINK_BYTES_PER_S), (256, u64::MAX), (3, 1)] {
        let params = FlowParams {
            base_rtt_ns: 0,
            now: u64::MAX - 3_000_000_000,
            datagram_bytes: 65_507,
            paths,
            first_rtt_ns: 0,
            link_bytes_per_s,
            burst_bytes: 0,
            trimming: false,
        };
        let mut flow = Laps::new(LAPS.scheme().shared(), &params, 1);
        let mut rng = crate::cc::paths::rng(paths.into());
        let mut now = params.now;
        for _ in 0..50_000 {
            now = now.saturating_add(u64::from(rng.next_u32() >> (rng.next_u32() % 32)));
            let rtt_ns = rng.next_u64() >> (rng.next_u32() % 64);
            let path = (rng.next_u32() % 300) as u16;
            match rng.next_u32() % 5 {
                0 => flow.on_loss(&loss(now, path, LossKind::Nack)),
                1 => {
                    let in_a_row = rng.next_u32();
                    flow.on_timeout(&Timeout { now, in_flight_bytes: 1, in_a_row });
                }
                2 => send_on(&mut flow, now, path),
                _ => flow
                    .on_ack(&AckSample { acked_bytes: rng.next_u64(), ..ack(now, path, rtt_ns) }),
            }
            assert!(flow.next_path(now) < paths);
            let rate = flow.pace_bytes_per_s().unwrap();
            assert!(rate >= 1 && flow.rate.is_finite() && flow.expected.is_finite());
            assert!(flow.rate <= flow.rate_most() && flow.rate >= 0.0);
            assert!((65_507..1 << 40).contains(&flow.window_bytes()));
        }
    }
}

#[test]
fn state_is_small() {
    let (flow, path) = (size_of::<Laps>(), size_of::<table::Path>());
    std::println!("laps: {flow} bytes, {path} a path");
    assert!(flow <= 128 && path <= 16);
}
