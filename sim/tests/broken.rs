//! Links that die, come and go or change bits, switches that route around them, and hosts that are slow to look.

use erd_sim::experiment::{Engines, Experiment, Failure, FlowResult, Results};
use erd_sim::fabric::blueprint::{Blueprint, NodeId, Rerouting};
use erd_sim::fabric::clos::Clos;
use erd_sim::fabric::receiver::{Delay, Receivers};
use erd_sim::ids::{HostId, LinkId, SwitchId};
use erd_sim::link::{Health, LinkConfig, Red};
use erd_sim::time::{Picos, from_ns};
use erd_sim::work::Work;
use std::sync::Arc;

const LIMIT_PS: Picos = from_ns(100_000_000);
const HOSTS: u32 = 32;

/// 32 hosts below 8 leaves in 4 pods.
fn tree() -> Blueprint {
    let link = LinkConfig {
        bytes_per_s: Some(12_500_000_000),
        buffer_bytes: 300_000,
        red: Some(Red::linear(30_000, 120_000)),
        control_first: true,
        ..LinkConfig::delay(from_ns(500))
    };
    Clos::of(link, &[(4, 2), (2, 2), (4, 0)], 3).build().expect("a tree")
}

fn experiment(plan: Blueprint, work: Work) -> Experiment {
    let engines = Engines { paths: 16, ..Engines::named("nscc").expect("a scheme") };
    Experiment { plan: Arc::new(plan), work, engines, seed: 9, threads: 1 }
}

fn run(experiment: Experiment, failures: &[Failure]) -> Results {
    experiment.run_with(LIMIT_PS, failures).expect("everything is done in time")
}

/// Every host sends to the one half-way round, from a time on.
fn across(start: Picos) -> Work {
    let mut work = Work::new(HOSTS);
    for from in 0..HOSTS {
        let message = work.message(HostId(from), HostId((from + HOSTS / 2) % HOSTS), 200_000);
        work.start_at(message, start);
    }
    work
}

/// A link upwards of the first leaf, which has four hosts, and the link back.
fn up_and_back(plan: &Blueprint, up: u32) -> [LinkId; 2] {
    let leaf = plan.node_of(SwitchId(0));
    let link = plan.links_of(leaf).start + 4 + up;
    let above = plan.links()[link as usize].to;
    let mut back = plan.links_of(above);
    let back = back.find(|back| plan.links()[*back as usize].to == leaf).expect("both directions");
    [link, back].map(LinkId)
}

fn all(links: &[LinkId], at_ns: u64, health: Health) -> Vec<Failure> {
    links.iter().map(|link| Failure { at: from_ns(at_ns), link: *link, health }).collect()
}

#[test]
fn once_all_know_no_packet_goes_to_a_dead_link() {
    let lost = |rerouting: Option<[u64; 2]>| {
        let plan = match rerouting.map(|times| times.map(from_ns)) {
            None => tree(),
            Some([near_ps, far_ps]) => tree().with_rerouting(Rerouting { near_ps, far_ps }),
        };
        let dead = all(&up_and_back(&plan, 0), 10_000, Health::Dead);
        let results = run(experiment(plan, across(from_ns(1_000_000))), &dead);
        assert_eq!(results.nodes.no_route, 0, "the other link upwards is left");
        results.links.lost
    };
    assert!(lost(None) > 0, "without rerouting");
    assert_eq!(lost(Some([10_000, 900_000])), 0, "all know before the messages begin");
    assert!(lost(Some([2_000_000, 2_000_000])) > 0, "it is later than the messages");
}

#[test]
fn a_switch_without_any_link_left_loses_packets_until_one_is_back() {
    let plan = tree().with_rerouting(Rerouting { near_ps: 0, far_ps: 0 });
    let links = [up_and_back(&plan, 0), up_and_back(&plan, 1)].concat();
    let mut failures = all(&links, 10_000, Health::Dead);
    failures.extend(all(&links, 3_000_000, Health::Up));
    let results = run(experiment(plan, across(from_ns(1_000_000))), &failures);
    assert!(results.nodes.no_route > 0);
    assert_eq!(results.links.lost, 0, "switches at the dead links know of them at once");
}

#[test]
fn a_run_with_flaps_rerouting_and_slow_hosts_is_the_same_on_any_number_of_threads() {
    let tail = Delay::Pareto { min_ps: from_ns(200), shape: 1.3, max_ps: from_ns(90_000) };
    let receivers = Receivers {
        ring_packets: Some(64),
        delay: tail,
        packet_ps: from_ns(150),
        reorder_ps: from_ns(80),
        ..Receivers::default()
    };
    let results = [1, 2, 5].map(|threads| {
        let rerouting = Rerouting { near_ps: from_ns(3_000), far_ps: from_ns(20_000) };
        let plan = tree().with_rerouting(rerouting).with_receivers(receivers);
        let links = up_and_back(&plan, 1);
        let mut failures: Vec<Failure> = (0..20)
            .flat_map(|time| {
                let mut flap = all(&links, 5_000 + time * 60_000, Health::Dead);
                flap.extend(all(&links, 35_000 + time * 60_000, Health::Up));
                flap
            })
            .collect();
        let corrupt = plan.links_of(NodeId(3)).start;
        failures.insert(
            0,
            Failure { at: 0, link: LinkId(corrupt), health: Health::Corrupt { bits: 1e-6 } },
        );
        run(Experiment { threads, ..experiment(plan, across(0)) }, &failures)
    });
    assert!(results[0].links.lost > 0 && results[0].links.corrupted > 0);
    assert!(results[1..].iter().all(|other| *other == results[0]));
}

#[test]
fn wrong_bits_cost_their_share_of_packets() {
    let bits = 1e-5;
    let mut work = Work::new(HOSTS);
    let bytes = 8_000_000;
    work.message(HostId(0), HostId(31), bytes);
    let plan = tree();
    let link = LinkId(plan.links_of(NodeId(0)).start);
    let corrupt = all(&[link], 0, Health::Corrupt { bits });
    let results = run(experiment(plan, work), &corrupt);
    assert_eq!((results.links.lost, results.links.drops), (0, 0));
    // About 28 % of full packets of 4200 bytes. Repeats are lost, too.
    let share = 1.0 - (1.0 - bits).powf(4_200.0 * 8.0);
    let packets = bytes as f64 / 4_096.0;
    let found = results.links.corrupted as f64 / (packets + results.links.corrupted as f64);
    assert!((found - share).abs() < 0.05, "{found} of {packets} packets, expected {share}");
}

#[test]
fn a_small_ring_drops_what_a_slow_host_cannot_take() {
    let result = |receivers| {
        let mut work = Work::new(HOSTS);
        for from in 1..9 {
            work.message(HostId(from), HostId(0), 300_000);
        }
        run(experiment(tree().with_receivers(receivers), work), &[])
    };
    let slow = Receivers { bytes_per_s: Some(5_000_000_000), ..Receivers::default() };
    let small = result(Receivers { ring_packets: Some(8), ..slow });
    assert!(small.nodes.ring_drops > 0, "the ring is full at times");
    assert_eq!(result(slow).nodes.ring_drops, 0, "a ring without a limit is never full");
    let whole = small.flows.iter().map(|flow| flow.arrived).max();
    let least = 8 * 300_000 * 1_000_000_000_000 / 5_000_000_000;
    assert!(whole >= Some(least), "{whole:?}: no faster than the host takes bytes");
}

/// What reordering costs is seen with several paths alone: packets of one path stay in order.
#[test]
fn reordering_slows_a_busy_host_down() {
    let whole = |paths, reorder_ps| {
        let receivers =
            Receivers { bytes_per_s: Some(12_500_000_000), reorder_ps, ..Receivers::default() };
        let mut experiment = experiment(tree().with_receivers(receivers), across(0));
        experiment.engines.paths = paths;
        let results = run(experiment, &[]);
        assert_eq!(results.links.drops, 0, "a repeat would be out of order");
        results.flows.iter().map(FlowResult::completion_ps).max()
    };
    assert!(whole(16, from_ns(500)) > whole(16, 0));
    assert_eq!(whole(1, from_ns(500)), whole(1, 0));
}

/// Headers of trimmed packets overtake data. They are no data themselves, so packets of one path stay in order.
#[test]
fn packets_are_in_order_though_trimmed_ones_go_first() {
    let whole = |reorder_ps| {
        let receivers =
            Receivers { bytes_per_s: Some(12_500_000_000), reorder_ps, ..Receivers::default() };
        let mut plan = tree().with_receivers(receivers);
        plan.change_links(|link| {
            (link.trimming, link.buffer_bytes, link.red) = (true, 30_000, None);
        });
        let mut work = Work::new(HOSTS);
        for from in 1..9 {
            work.message(HostId(from), HostId(0), 200_000);
        }
        let mut experiment = experiment(plan, work);
        (experiment.engines.paths, experiment.engines.trimming) = (1, true);
        let results = run(experiment, &[]);
        assert!(results.links.trims > 0, "queues are short");
        results.flows.iter().map(FlowResult::completion_ps).max()
    };
    assert_eq!(whole(from_ns(500)), whole(0));
}

#[test]
fn a_host_that_looks_later_gets_messages_later() {
    let took = |receivers: Option<Receivers>| {
        let mut work = Work::new(HOSTS);
        work.message(HostId(0), HostId(31), 4_000);
        let plan = tree();
        let plan = match receivers {
            None => plan,
            Some(receivers) => plan.with_receivers(receivers),
        };
        run(experiment(plan, work), &[]).flows[0]
    };
    let late = Receivers { delay: Delay::Constant { ps: from_ns(7_000) }, ..Receivers::default() };
    let (prompt, late) = (took(None), took(Some(late)));
    assert_eq!(late.completion_ps(), prompt.completion_ps() + from_ns(7_000));
    assert_eq!(took(Some(Receivers::default())).completion_ps(), prompt.completion_ps());
}
