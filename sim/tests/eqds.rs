//! EQDS over networks that trim.

use erd_sim::experiment::{Experiment, Failure, Results};
use erd_sim::fabric::blueprint::NodeId;
use erd_sim::ids::LinkId;
use erd_sim::link::Health;
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use erd_sim::time::from_ns;
use std::path::Path;

/// 16 hosts below 4 leaves and 4 spines, with 100 Gb/s everywhere.
fn prepared(settings: &str, work: &str) -> Prepared {
    let text = format!(
        "[links]
        rate_gbps = 100
        delay_ns = 500
        queue = {{ bdp = 1 }}
        trimming = true
        control_first = true
        [topology.tree]
        tiers = [{{ children = 4, links_up = 4 }}, {{ children = 4 }}]
        [[work]]
        {work}
        [engines]
        scheme = \"eqds\"
        settings = {{ {settings} }}"
    );
    let file = ScenarioFile::read("test.toml", &text).expect("a scenario");
    file.prepare(Path::new("")).expect("a scenario that can be run")
}

fn run_with(prepared: Prepared, threads: usize, failures: &[Failure]) -> Results {
    let Prepared { plan, work, engines, seed, limit_ps, .. } = prepared;
    let experiment = Experiment { plan, work, engines, seed, threads };
    experiment.run_with(limit_ps, failures).expect("everything arrives")
}

fn run(prepared: Prepared) -> Results {
    run_with(prepared, 1, &[])
}

fn slowest_us(results: &Results) -> f64 {
    results.flows.iter().map(|flow| flow.completion_ps()).max().unwrap_or(0) as f64 / 1e6
}

const INCAST: &str = "pattern = { pattern = \"incast\", senders = 12, message_bytes = 1000000 }";

#[test]
fn a_lone_message_goes_at_the_rate_of_the_pulls() {
    let results = run(prepared("", "flows = [{ from = 0, to = 15, bytes = 4096000 }]"));
    let pulls_us = 1000.0 * 4178.0 / 12500.0 / 0.99;
    let took = slowest_us(&results);
    assert!(took > 0.98 * pulls_us && took < pulls_us + 8.0, "{took} us, {pulls_us} for the pulls");
    assert_eq!((results.data_packets, results.repeats), (1000, Default::default()));
}

/// The first windows of all senders are too much, and what is trimmed comes again; then the receiver takes one packet at a
/// time.
#[test]
fn an_incast_is_trimmed_in_the_first_round_trip_alone() {
    let results = run(prepared("", INCAST));
    let (trims, repeats) = (results.links.trims, results.repeats);
    assert_eq!((trims, repeats.timeout, repeats.spurious), (repeats.trim, 0, 0), "{repeats:?}");
    let first_windows = 12 * 17;
    assert!(trims > 0 && trims < first_windows, "{trims} packets were trimmed");
    let wire_us = 12.0 * 245.0 * 4178.0 / 12500.0;
    let took = slowest_us(&results);
    assert!(took < 1.06 * wire_us, "{took} us, {wire_us} on the wire");
    assert!(results.links.drops == 0);
}

#[test]
fn a_larger_first_window_is_trimmed_more() {
    let trims = [0.5, 1.0, 4.0]
        .map(|bdp| run(prepared(&format!("window_bdp = {bdp}"), INCAST)).links.trims);
    assert!(trims[0] < trims[1] && trims[1] < trims[2], "{trims:?}");
}

#[test]
fn messages_of_any_length_arrive() {
    for (bytes, packets) in [(0, 1), (1, 1), (4096, 1), (4097, 2), (409_600, 100)] {
        let results =
            run(prepared("", &format!("flows = [{{ from = 0, to = 15, bytes = {bytes} }}]")));
        assert_eq!(results.data_packets, packets, "{bytes} bytes");
        assert!(results.flows[0].acknowledged > results.flows[0].arrived);
    }
}

#[test]
fn a_run_is_the_same_on_any_number_of_threads() {
    let work = "pattern = { pattern = \"permutation\", message_bytes = 1000000 }";
    let results = [1, 3].map(|threads| run_with(prepared("", work), threads, &[]));
    assert!(results[0] == results[1]);
}

/// A sender whose packets, pulls and requests are lost for a while goes on afterwards.
#[test]
fn what_a_dead_link_loses_is_sent_again() {
    for at_us in [1, 20, 60] {
        let prepared = prepared("", "flows = [{ from = 0, to = 15, bytes = 1000000 }]");
        let plan = &prepared.plan;
        let uplink = LinkId(plan.links_of(NodeId(0)).start);
        let downlink = (0..plan.links().len() as u32)
            .find(|link| plan.links()[*link as usize].to == NodeId(0))
            .map(LinkId)
            .expect("a link leads to the host");
        let at = |us: u64, link, health| Failure { at: from_ns(us * 1000), link, health };
        for link in [uplink, downlink] {
            let failures = [at(at_us, link, Health::Dead), at(at_us + 300, link, Health::Up)];
            let prepared = self::prepared("", "flows = [{ from = 0, to = 15, bytes = 1000000 }]");
            let results = run_with(prepared, 1, &failures);
            assert!(results.flows[0].completion_ps() > from_ns(300_000), "{at_us} us");
        }
    }
}
