//! Messages over networks where senders choose the way: dragonflies and rails.

use erd_sim::experiment::{Engines, Experiment, Failure, Results};
use erd_sim::fabric::blueprint::{Blueprint, Spread};
use erd_sim::fabric::dragonfly::Dragonfly;
use erd_sim::fabric::rail::Rail;
use erd_sim::ids::{HostId, LinkId};
use erd_sim::link::{Health, LinkConfig, Red};
use erd_sim::read::scenario::ScenarioFile;
use erd_sim::time::{Picos, from_ns};
use erd_sim::work::Work;
use std::path::Path;
use std::sync::Arc;

const LINK_BYTES_PER_S: u64 = 12_500_000_000;
const LIMIT_PS: Picos = from_ns(50_000_000);

fn link() -> LinkConfig {
    LinkConfig {
        bytes_per_s: Some(LINK_BYTES_PER_S),
        buffer_bytes: 150_000,
        red: Some(Red::linear(30_000, 120_000)),
        ..LinkConfig::delay(from_ns(1_000))
    }
}

fn dragonfly(spread: Spread) -> Blueprint {
    let (host, local, global) = (link(), link(), link());
    let dragonfly = Dragonfly {
        groups: 5,
        switches: 4,
        hosts: 2,
        global_links: 1,
        spread,
        host,
        local,
        global,
    };
    dragonfly.build().expect("fits")
}

fn rail(spread: Spread) -> Blueprint {
    let host = LinkConfig { bytes_per_s: Some(2 * LINK_BYTES_PER_S), ..link() };
    let (nvlink, rail) = (link(), link());
    Rail { servers: 4, gpus: 4, spread, host, nvlink, rail }.build().expect("fits")
}

fn experiment(scheme: &'static str, plan: Blueprint, work: Work) -> Experiment {
    let engines = Engines { paths: 8, ..Engines::named(scheme).expect("a scheme") };
    Experiment { plan: Arc::new(plan), work, engines, seed: 9, threads: 1 }
}

fn run(experiment: Experiment) -> Results {
    experiment.run(LIMIT_PS).expect("everything is done in time")
}

/// Every host sends to the one half-way round.
fn across(hosts: u32, bytes: u64) -> Work {
    let mut work = Work::new(hosts);
    for from in 0..hosts {
        work.message(HostId(from), HostId((from + hosts / 2) % hosts), bytes);
    }
    work
}

#[test]
fn a_run_is_the_same_on_any_number_of_threads() {
    for scheme in ["laps", "laps:paper", "spray"] {
        for plan in [dragonfly, rail] {
            for spread in [Spread::Modulo, Spread::Hashed { salt: 5 }] {
                let results = [1, 2, 5].map(|threads| {
                    let plan = plan(spread);
                    let work = across(plan.hosts(), 400_000);
                    run(Experiment { threads, ..experiment(scheme, plan, work) })
                });
                assert!(results[1..].iter().all(|other| *other == results[0]), "{scheme}");
            }
        }
    }
}

/// A switch balances by flowlets: the first one on the way chooses for the sender, whose one path number would always
/// mean the straight way.
#[test]
fn flowlets_use_all_ways() {
    let gap_ps = from_ns(50_000);
    let bytes_by = |plan: Blueprint, threads| {
        let mut work = Work::new(plan.hosts());
        for (from, start) in (0..4).flat_map(|from| (0..40).map(move |at| (from, at))) {
            let message = work.message(HostId(from), HostId(12 + from), 20_000);
            work.start_at(message, start * 4 * gap_ps);
        }
        let mut experiment = experiment("nscc", plan, work);
        experiment.engines.paths = 1;
        run(Experiment { threads, ..experiment })
    };
    let straight = bytes_by(rail(Spread::Modulo), 1);
    let flowlets =
        [1, 3].map(|threads| bytes_by(rail(Spread::Modulo).with_flowlets(gap_ps), threads));
    assert_eq!(flowlets[0], flowlets[1]);
    // The straight way has four links there and four back; the others have two switches more.
    assert!(flowlets[0].links.offered > straight.links.offered * 5 / 4);
}

/// The straight way has one link of 100 Gb/s; the host's own has twice that.
#[test]
fn several_ways_carry_more_than_the_straight_one() {
    let bytes = 4_000_000;
    let one_link_ps = bytes * 1_000_000_000_000 / LINK_BYTES_PER_S;
    let took = |scheme| {
        let plan = rail(Spread::Modulo);
        let mut work = Work::new(plan.hosts());
        work.message(HostId(0), HostId(15), bytes);
        run(experiment(scheme, plan, work)).flows[0].completion_ps()
    };
    assert!(took("laps:paper") < one_link_ps, "the server's other GPUs carry a part");
}

/// LAPS leaves the way whose link is broken, and what it sent there arrives by others.
#[test]
fn a_broken_straight_way_costs_no_message() {
    let plan = rail(Spread::Modulo);
    let gpu = plan.links_of(erd_sim::fabric::blueprint::NodeId(16)).start;
    // In front of host 0: its links to the host, to its rail, to its server.
    let broken = Failure { at: from_ns(20_000), link: LinkId(gpu + 1), health: Health::Dead };
    for scheme in ["laps", "nscc"] {
        let plan = rail(Spread::Modulo);
        let work = across(plan.hosts(), 2_000_000);
        let results =
            experiment(scheme, plan, work).run_with(LIMIT_PS, &[broken]).expect("done in time");
        assert!(results.links.lost > 0);
    }
}

/// The network of LAPS, as the file among the examples has it.
#[test]
fn the_example_with_rails_can_run() {
    let file = include_str!("../scenarios/laps-rail.toml");
    let prepared = ScenarioFile::read("laps-rail.toml", file)
        .and_then(|file| file.prepare(Path::new("nowhere")))
        .expect("a scenario");
    assert_eq!(prepared.plan.hosts(), 64);
    assert_eq!(prepared.plan.choices(HostId(0), HostId(63)), 8);
    assert_eq!(prepared.work.flows().len(), 100);
}
