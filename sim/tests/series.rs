//! Samples of runs: they change nothing, and they add up to what the run has done.

use erd_sim::experiment::{Begin, Engines, Experiment, Results};
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use erd_sim::series::sampler::Sampler;
use erd_sim::series::{FLOWS_MAX, SAMPLES_MAX, Series};
use std::path::Path;

const SCENARIO: &str = r#"
limit_ms = 50
[links]
rate_gbps = 100
delay_ns = 1000
queue = { bdp = 1 }
red = { min = { bdp = 0.2 }, max = { bdp = 0.8 } }
control_first = true
[topology.tree]
tiers = [{ children = 4, links_up = 2 }, { children = 4 }]
[[work]]
pattern = { pattern = "permutation", message_bytes = 1000000, reach = "other-pod" }
[[work]]
pattern = { pattern = "incast", message_bytes = 300000, senders = 8 }
[engines]
scheme = "nscc"
paths = 16
[[failures]]
link = ["s0", "s4"]
at_us = 20
health = "dead"
"#;

fn prepared(text: &str) -> Prepared {
    let file = ScenarioFile::read("series.toml", text).expect("a scenario");
    file.prepare(Path::new("")).expect("a network and work")
}

fn experiment(threads: usize) -> (Experiment, Prepared) {
    let Prepared { plan, work, engines, seed, .. } = prepared(SCENARIO);
    (Experiment { plan, work, engines, seed, threads }, prepared(SCENARIO))
}

fn sampled(threads: usize) -> (Results, Series) {
    let (experiment, Prepared { limit_ps, failures, .. }) = experiment(threads);
    let mut sampler = Sampler::default();
    let run = experiment.run_observed(limit_ps, &failures, &mut sampler);
    let (results, mut fabric) = run.expect("done in time");
    (results, sampler.finish(&mut fabric))
}

#[test]
fn samples_change_no_result_and_are_the_same_on_any_number_of_threads() {
    let (experiment, Prepared { limit_ps, failures, .. }) = experiment(1);
    let alone = experiment.run_with(limit_ps, &failures).expect("done in time");
    let (results, series) = sampled(1);
    assert_eq!(alone, results);
    assert_eq!(sampled(3), (results, series));
}

#[test]
fn samples_add_up_to_the_run() {
    let (results, series) = sampled(1);
    let samples = series.samples();
    assert!((SAMPLES_MAX / 2..SAMPLES_MAX).contains(&samples), "{samples}");
    assert_eq!(series.flows.len(), FLOWS_MAX);
    for flow in &series.flows {
        assert_eq!(flow.arrived_bytes.iter().sum::<u64>(), flow.flow.bytes);
        assert!(flow.window_bytes.iter().any(|window| *window > 0));
        assert_eq!((flow.arrived_bytes.len(), flow.window_bytes.len()), (samples, samples));
    }
    let sent: u64 = series.rows.iter().flat_map(|row| &row.sent_bytes).sum();
    let links = results.links;
    assert!(links.lost > 0, "a link died");
    assert!(sent > results.flows.iter().map(|flow| flow.flow.bytes).sum::<u64>() * 2);
    assert!(sent <= links.sent_bytes && links.sent_bytes <= links.offered_bytes);
    for row in &series.rows {
        let queues = row.queue_mean_bytes.iter().zip(&row.queue_max_bytes);
        assert!(queues.clone().all(|(mean, max)| *mean <= *max as f64), "{}", row.name);
        assert!((0..samples).all(|at| series.utilisation(row, at) <= 1.0));
    }
    assert!(series.rows.iter().any(|row| row.queue_max_bytes.iter().any(|max| *max > 0)));
    for pair in &series.pairs {
        let sent: u64 = pair.path_packets.iter().sum();
        let arrived: u64 = pair.behind.iter().sum();
        assert!(0 < arrived && arrived <= sent, "{pair:?}");
    }
    assert!(series.pairs.iter().any(|pair| pair.behind_max > 0), "it sprays over unequal paths");
}

/// Packets that a controller learns from leave before the work, and no sample has them.
#[test]
fn what_is_sent_before_the_work_has_no_place_in_the_series() {
    // Queues that lose nothing: nothing is sent again.
    let text = SCENARIO.replace("queue = { bdp = 1 }", "queue = { bdp = 100 }");
    let Prepared { plan, work, mut engines, seed, limit_ps, .. } = prepared(&text);
    engines.choose("smartt:product").expect("a scheme that learns");
    let engines = Engines { begin: Begin::Learned, ..engines };
    let bytes: Vec<((u32, u32), u64)> =
        work.flows().iter().map(|flow| ((flow.from.0, flow.to.0), flow.bytes)).collect();
    let experiment = Experiment { plan, work, engines, seed, threads: 1 };
    let mut sampler = Sampler::default();
    let (results, mut fabric) =
        experiment.run_observed(limit_ps, &[], &mut sampler).expect("done in time");
    assert!(results.begin > 0, "flows have learned");
    let series = sampler.finish(&mut fabric);
    assert_eq!(series.whole_ps, fabric.now() - results.begin);
    let repeats = results.repeats;
    assert_eq!((repeats.nack, repeats.probe, repeats.order, repeats.timeout), (0, 0, 0, 0));
    for pair in &series.pairs {
        let messages = bytes.iter().filter(|(ends, _)| *ends == (pair.from, pair.to));
        let packets: u64 = messages.map(|(_, bytes)| bytes.div_ceil(4096)).sum();
        let sent: u64 = pair.path_packets.iter().sum();
        // Packets are not all full.
        assert!((packets..packets * 11 / 10).contains(&sent), "{pair:?}");
        assert_eq!(pair.behind.iter().sum::<u64>(), sent, "{pair:?}");
    }
    let sent: u64 = series.rows.iter().flat_map(|row| &row.sent_bytes).sum();
    assert!(sent < results.links.sent_bytes, "links carried the lessons, too");
}
