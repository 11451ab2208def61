//! RoCEv2 over networks that pause and networks that drop.

use erd_sim::experiment::Results;
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use erd_sim::time::from_ns;
use std::path::Path;

/// 16 hosts below 4 leaves and 4 spines, with 100 Gb/s everywhere.
fn prepared(settings: &str, switches: &str, work: &str) -> Prepared {
    prepared_with("", settings, switches, work)
}

fn prepared_with(links: &str, settings: &str, switches: &str, work: &str) -> Prepared {
    let text = format!(
        "[links]
        rate_gbps = 100
        delay_ns = 500
        queue = {{ bdp = 2 }}
        red = {{ min = {{ bdp = 1 }}, max = {{ bdp = 1.1 }} }}
        control_first = true
        {links}
        [switches]
        {switches}
        [topology.tree]
        tiers = [{{ children = 4, links_up = 4 }}, {{ children = 4 }}]
        [[work]]
        {work}
        [engines]
        scheme = \"roce\"
        settings = {{ {settings} }}"
    );
    let file = ScenarioFile::read("test.toml", &text).expect("a scenario");
    file.prepare(Path::new("")).expect("a scenario that can be run")
}

fn run(prepared: Prepared, threads: usize) -> Results {
    let Prepared { plan, work, engines, seed, limit_ps, .. } = prepared;
    let experiment = erd_sim::experiment::Experiment { plan, work, engines, seed, threads };
    experiment.run(limit_ps).expect("everything arrives")
}

fn slowest_us(results: &Results) -> f64 {
    results.flows.iter().map(|flow| flow.completion_ps()).max().unwrap_or(0) as f64 / 1e6
}

const PFC: &str = "pfc = { memory = { us = 40 } }";
const INCAST: &str = "pattern = { pattern = \"incast\", senders = 12, message_bytes = 2000000 }";
const PERMUTATION: &str = "pattern = { pattern = \"permutation\", message_bytes = 4000000 }";

#[test]
fn a_lone_message_takes_no_longer_than_its_link() {
    let results = run(prepared("", "", "flows = [{ from = 0, to = 15, bytes = 4096000 }]"), 1);
    let wire_us = 1000.0 * 4178.0 / 12500.0;
    let took = slowest_us(&results);
    assert!(took > wire_us && took < wire_us + 4.0, "{took} us, {wire_us} on the wire");
    assert_eq!(results.data_packets, 1000);
    assert_eq!(results.repeats, Default::default());
}

#[test]
fn a_lossless_incast_repeats_nothing() {
    let results = run(prepared("", PFC, INCAST), 1);
    assert_eq!((results.links.drops, results.repeats), (0, Default::default()));
    assert!(results.links.pauses > 0 && results.links.marks > 0, "{:?}", results.links);
}

/// Without pauses switches drop, and receivers make senders go back.
#[test]
fn a_lossy_incast_goes_back() {
    let results = run(prepared("rto_us = 1000", "", INCAST), 1);
    assert!(results.links.drops > 0 && results.repeats.nack > 0, "{:?}", results.repeats);
    let repeats = results.repeats.nack + results.repeats.timeout;
    assert!(repeats > results.links.drops, "more is sent again than was lost: {repeats}");
}

/// More queue pairs find more of the paths. Without marks the rates stay, and the paths alone decide.
#[test]
fn queue_pairs_spread_over_paths() {
    let times = [1, 16].map(|qps| {
        let settings = format!("qps = {qps}");
        slowest_us(&run(prepared_with("marks = false", &settings, PFC, PERMUTATION), 1))
    });
    assert!(times[0] > 1.2 * times[1], "{times:?} us");
}

#[test]
fn parts_of_a_message_arrive_whole() {
    for (bytes, packets) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (409_600, 100)] {
        let work = format!("flows = [{{ from = 0, to = 15, bytes = {bytes} }}]");
        for qps in [1, 3, 32] {
            let results = run(prepared(&format!("qps = {qps}"), "", &work), 1);
            assert_eq!(results.data_packets, packets, "{bytes} bytes, {qps} queue pairs");
            assert!(results.flows[0].acknowledged > results.flows[0].arrived);
        }
    }
}

#[test]
fn a_run_is_the_same_on_any_number_of_threads() {
    let results = [1, 3].map(|threads| run(prepared("qps = 4", PFC, PERMUTATION), threads));
    assert!(results[0].links.marks > 0 && results[0] == results[1]);
}

/// A packet that is lost at the end of a message is found by the time without progress alone.
#[test]
fn the_last_packet_is_sent_again_after_a_timeout() {
    let text = "flows = [{ from = 0, to = 15, bytes = 40960 }]";
    let Prepared { plan, work, engines, seed, limit_ps, .. } = prepared("rto_us = 500", "", text);
    let uplink = erd_sim::ids::LinkId(plan.links_of(erd_sim::fabric::blueprint::NodeId(0)).start);
    let dead = |at, health| erd_sim::experiment::Failure { at, link: uplink, health };
    let failures = [
        dead(from_ns(2_000), erd_sim::link::Health::Dead),
        dead(from_ns(100_000), erd_sim::link::Health::Up),
    ];
    let experiment = erd_sim::experiment::Experiment { plan, work, engines, seed, threads: 1 };
    let results = experiment.run_with(limit_ps, &failures).expect("it arrives");
    assert!(results.repeats.timeout > 0, "{:?}", results.repeats);
    assert!(results.flows[0].completion_ps() > from_ns(500_000));
}
