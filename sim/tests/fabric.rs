//! Messages over trees of switches: every one arrives, none sooner than it can, and a run depends on its seed alone.

use erd_sim::experiment::{Begin, Engines, Experiment, Failure, Results};
use erd_sim::fabric::blueprint::Blueprint;
use erd_sim::fabric::clos::Clos;
use erd_sim::ids::{HostId, LinkId};
use erd_sim::link::{Health, Jitter, LinkConfig, Red};
use erd_sim::schemes;
use erd_sim::time::{Picos, from_ns};
use erd_sim::topology::{PAYLOAD_BYTES, SEGMENT_WIRE_BYTES};
use erd_sim::work::Work;
use std::sync::Arc;

const LINK_BYTES_PER_S: u64 = 12_500_000_000;
const LIMIT_PS: Picos = from_ns(50_000_000);

fn link() -> LinkConfig {
    LinkConfig {
        bytes_per_s: Some(LINK_BYTES_PER_S),
        buffer_bytes: 150_000,
        red: Some(Red::linear(30_000, 120_000)),
        control_first: true,
        ..LinkConfig::delay(from_ns(500))
    }
}

/// 32 hosts below 8 leaves in 4 pods, with half the links upwards that they could use.
fn tree(link: LinkConfig) -> Blueprint {
    Clos::of(link, &[(4, 2), (2, 2), (4, 0)], 3).build().expect("a tree")
}

/// Every host sends to the one half-way round.
fn across(hosts: u32, bytes: u64) -> Work {
    let mut work = Work::new(hosts);
    for from in 0..hosts {
        work.message(HostId(from), HostId((from + hosts / 2) % hosts), bytes);
    }
    work
}

fn experiment(scheme: &'static str, link: LinkConfig, work: Work) -> Experiment {
    let engines = Engines {
        paths: 16,
        trimming: link.trimming,
        begin: Begin::Cold,
        ..Engines::named(scheme).expect("a scheme")
    };
    Experiment { plan: Arc::new(tree(link)), work, engines, seed: 9, threads: 1 }
}

fn run(experiment: Experiment) -> Results {
    experiment.run(LIMIT_PS).expect("everything is done in time")
}

/// Time that the bytes of a message take on its sender's link.
fn sending_ps(bytes: u64) -> Picos {
    let segments = bytes.div_ceil(PAYLOAD_BYTES.into());
    let wire = bytes + segments * u64::from(SEGMENT_WIRE_BYTES - PAYLOAD_BYTES);
    wire * 1_000_000_000_000 / LINK_BYTES_PER_S
}

#[test]
fn a_run_is_the_same_on_any_number_of_threads() {
    let noise = Jitter { mean_ps: from_ns(3_000), spike_ps: from_ns(50_000), spikes_ppm: 1_000 };
    for scheme in ["nscc", "strack", "spray", "plb"] {
        for jitter in [None, Some(noise)] {
            let link = LinkConfig { jitter, buffer_bytes: 60_000, ..link() };
            let results = [1, 2, 5].map(|threads| {
                let experiment = experiment(scheme, link, across(32, 1_500_000));
                run(Experiment { threads, ..experiment })
            });
            let seen = results[0].links;
            assert!(seen.marks + seen.drops > 0, "{scheme}: queues grow, {seen:?}");
            assert!(results[1..].iter().all(|other| *other == results[0]), "{scheme}, {jitter:?}");
        }
    }
}

/// Pauses and queues end flowlets at other moments in other orders of events, so a wrong order shows.
#[test]
fn flowlets_are_the_same_on_any_number_of_threads() {
    let link = LinkConfig { buffer_bytes: 60_000, ..link() };
    let with_gap = |gap_ps, threads| {
        let experiment = experiment("single", link, across(32, 1_500_000));
        let plan = Arc::new(tree(link).with_flowlets(gap_ps));
        run(Experiment { plan, threads, ..experiment })
    };
    let results = [1, 2, 5].map(|threads| with_gap(from_ns(500), threads));
    assert!(results[0].links.drops > 0, "queues grow");
    assert!(results[1..].iter().all(|other| *other == results[0]));
    // A gap that no pause exceeds leaves each flow on its first link.
    assert_ne!(with_gap(from_ns(1_000_000_000), 1).flows, results[0].flows);
}

/// A flow whose packets pause often meets a dead link, whichever it is, and leaves it again. A hash would send all its
/// packets to one link.
#[test]
fn flowlets_of_one_flow_use_all_links() {
    for up in [0, 1] {
        let mut work = Work::new(32);
        for n in 0..16 {
            let flow = work.message(HostId(0), HostId(31), 20_000);
            work.start_at(flow, from_ns(n * 50_000));
        }
        let experiment = experiment("single", link(), work);
        let plan = tree(link()).with_flowlets(from_ns(10_000));
        let first = plan.links_of(plan.node_of(erd_sim::ids::SwitchId(0))).start;
        // The first leaf has links to its four hosts and then two upwards.
        let dead = Failure { at: 0, link: LinkId(first + 4 + up), health: Health::Dead };
        let experiment = Experiment { plan: Arc::new(plan), ..experiment };
        let results = experiment.run_with(LIMIT_PS, &[dead]).expect("everything is done in time");
        assert!(results.links.lost > 0, "link {up} is tried");
    }
}

#[test]
fn another_seed_gives_another_run() {
    let one = run(experiment("nscc", link(), across(32, 300_000)));
    let other = Experiment { seed: 10, ..experiment("nscc", link(), across(32, 300_000)) };
    assert_ne!(run(other).flows, one.flows);
}

#[test]
fn no_message_is_faster_than_its_links() {
    for scheme in [schemes::NAMES, schemes::BASELINES].concat() {
        for bytes in [1, 4_096, 100_000] {
            let results = run(experiment(scheme, link(), across(32, bytes)));
            let plan = tree(link());
            for flow in &results.flows {
                let (from, to) = (flow.flow.from, flow.flow.to);
                let least = sending_ps(bytes) + plan.lone_ps(from, to, 0);
                assert!(flow.completion_ps() > least, "{scheme}: {flow:?} took less than {least}");
                assert!(flow.acknowledged > flow.arrived, "{scheme}: {flow:?}");
            }
        }
    }
}

#[test]
fn a_lone_long_message_fills_its_link() {
    let bytes = 8_000_000;
    let mut work = Work::new(32);
    work.message(HostId(0), HostId(31), bytes);
    let results = run(experiment("nscc", link(), work));
    let took = results.flows[0].completion_ps();
    // The session, the grant and the first round trips are all that it may lose.
    assert!(took < sending_ps(bytes) + from_ns(400_000), "{took} ps");
}

#[test]
fn open_sessions_and_granted_messages_save_their_round_trips() {
    let completion = |begin| {
        let mut work = Work::new(32);
        let flow = work.message(HostId(0), HostId(31), 100_000);
        work.start_at(flow, from_ns(5_000));
        let mut experiment = experiment("spray", link(), work);
        experiment.engines.begin = begin;
        let [flow] = run(experiment).flows[..] else { panic!("greetings are not shown") };
        flow.completion_ps()
    };
    let (cold, warm) = (completion(Begin::Cold), completion(Begin::Warm));
    let round_trip = 2 * tree(link()).lone_ps(HostId(0), HostId(31), 0);
    assert!(cold > warm + 2 * round_trip, "{cold} and {warm} ps");
    assert!(warm < sending_ps(100_000) + round_trip + from_ns(5_000), "{warm} ps");
}

/// A lone message of a flow that has learned takes hardly more than its own time. One that has not begins with few packets in
/// flight, and takes some round trips more.
#[test]
fn what_flows_learn_before_the_work_costs_it_nothing() {
    let completion = |begin| {
        let mut work = Work::new(32);
        work.message(HostId(0), HostId(31), 2_000_000);
        let mut experiment = experiment("nscc", link(), work);
        experiment.engines.begin = begin;
        run(experiment).flows[0].completion_ps()
    };
    let (warm, learned) = (completion(Begin::Warm), completion(Begin::Learned));
    let round_trip = 2 * tree(link()).lone_ps(HostId(0), HostId(31), 0);
    std::println!(
        "XX warm {warm} learned {learned} rtt {round_trip} = {}",
        (warm as f64 - learned as f64) / round_trip as f64
    );
    assert!(warm > learned + 2 * round_trip, "{warm} and {learned} ps");
    assert!(warm < learned + 8 * round_trip, "{warm} and {learned} ps");
    assert!(learned < sending_ps(2_000_000) + 3 * round_trip, "{learned} ps");
}

#[test]
fn hosts_wait_for_what_they_need() {
    // A message goes from host to host, and each computes before it hands it on.
    let (hops, computing_ps) = (10, from_ns(7_000));
    let mut work = Work::new(32);
    let flows: Vec<_> =
        (0..hops).map(|hop| work.message(HostId(hop * 3), HostId(hop * 3 + 3), 50_000)).collect();
    for pair in flows.windows(2) {
        let [first, then] = [pair[0], pair[1]].map(|flow| work.flows()[flow.0 as usize]);
        let think = work.compute(then.from, computing_ps);
        work.after(then.from, first.receive, think);
        work.after(then.from, think, then.send);
    }
    let results = run(experiment("nscc", link(), work));
    for pair in results.flows.windows(2) {
        assert_eq!(pair[1].began, pair[0].arrived + computing_ps);
    }
}

#[test]
fn full_queues_drop_or_trim_and_everything_arrives() {
    let begins = [Begin::Cold, Begin::Warm];
    for (trimming, begin) in [false, true].into_iter().flat_map(|t| begins.map(|b| (t, b))) {
        let link = LinkConfig { buffer_bytes: 30_000, trimming, ..link() };
        let mut work = Work::new(32);
        for from in 1..32 {
            work.message(HostId(from), HostId(0), 200_000);
        }
        let mut experiment = experiment("spray", link, work);
        (experiment.engines.trimming, experiment.engines.begin) = (trimming, begin);
        let Results { links, .. } = run(experiment);
        assert!(if trimming { links.trims > 0 } else { links.drops > 0 }, "{links:?}");
    }
}

#[test]
fn broken_links_cost_packets_and_no_message() {
    let experiment = experiment("nscc", link(), across(32, 500_000));
    let up = experiment.plan.links_of(experiment.plan.node_of(erd_sim::ids::SwitchId(0)));
    // The first leaf has links to its four hosts and then two upwards.
    let link = LinkId(up.start + 4);
    for health in [Health::Dead, Health::Lossy { share: 0.2 }, Health::Slowed { times: 20 }] {
        let plan = Arc::clone(&experiment.plan);
        let engines = experiment.engines.clone();
        let whole = Experiment { work: across(32, 500_000), plan, engines, seed: 9, threads: 2 };
        let broken = [Failure { at: from_ns(50_000), link, health }];
        let results = whole.run_with(LIMIT_PS, &broken).expect("everything is done in time");
        assert_eq!(results.links.lost > 0, !matches!(health, Health::Slowed { .. }), "{health:?}");
    }
}

#[test]
fn what_cannot_end_in_time_is_told() {
    let error = experiment("nscc", link(), across(32, 5_000_000))
        .run(from_ns(50_000))
        .expect_err("too short");
    assert_eq!(
        error.to_string(),
        "64 tasks were not done after 50000000 ps of simulated time, the first of them on host 0"
    );
}
