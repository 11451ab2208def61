//! Any graph, with links of any speed: the least times hold, and the slowest link of a way sets the pace.

use erd_sim::experiment::{Begin, Experiment, Results};
use erd_sim::fabric::least::LeastTimes;
use erd_sim::patterns::bound::Bound;
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use erd_sim::summary::Summary;
use std::path::Path;

/// Hosts of 10, 40 and 100 Gb/s, with switches that are joined by links of other speeds and delays.
const GRAPH: &str = r#"
links = { rate_gbps = 40, delay_ns = 700, queue = { bytes = 400000 }, red = { min = { bytes = 60000 }, max = { bytes = 240000 } } }

[topology.graph]
hosts = ["slow", "middle", "fast", "far"]
switches = ["a", "b", "c", "d"]
links = [
  { between = ["slow", "a"], link = { rate_gbps = 10 } },
  { between = ["middle", "a"] },
  { between = ["b", "fast"], link = { rate_gbps = 100 } },
  { between = ["far", "d"], there = { rate_gbps = 100 }, back = { rate_gbps = 25 } },
  { between = ["a", "b"], count = 3, link = { rate_gbps = 25 } },
  { between = ["a", "c"], link = { delay_ns = 5000 } },
  { between = ["c", "b"] },
  { between = ["b", "d"], there = { rate_gbps = 200 }, back = { rate_gbps = 50 } },
  { between = ["d", "c"], link = { rate_gbps = 100 } },
]

[engines]
scheme = "nscc"
paths = 32
"#;

fn prepare(work: &str) -> Prepared {
    let file = ScenarioFile::read("graph.toml", &format!("{GRAPH}\n{work}")).expect("a scenario");
    file.prepare(Path::new("nowhere")).expect("it can run")
}

fn run(prepared: Prepared, threads: usize) -> (Results, Summary) {
    let link = prepared.link();
    let Prepared { plan, work, mut engines, failures, seed, limit_ps, .. } = prepared;
    engines.begin = Begin::Warm;
    let times = LeastTimes::new(&plan);
    let bound = Bound::of(&work, &link, |from, to, bytes| times.ps(from, to, bytes));
    let experiment = Experiment { plan, work, engines, seed, threads };
    let results = experiment.run_with(limit_ps, &failures).expect("done in time");
    let summary = Summary::of(&results, &bound);
    (results, summary)
}

#[test]
fn no_message_is_faster_than_the_bound_says() {
    for bytes in [1, 4_096, 500_000] {
        let pattern = format!(
            "[[work]]\npattern = {{ pattern = \"all-to-all\", message_bytes = {bytes}, window_messages = 3 }}"
        );
        let (results, summary) = run(prepare(&pattern), 1);
        assert_eq!(results.flows.len(), 12);
        let slowdown = summary.slowdown.expect("messages");
        assert!(slowdown.min >= 1.0, "{bytes} bytes: {slowdown:?}");
        assert!(summary.completion_us.expect("messages").mean >= summary.bound_mean_us);
        assert_eq!(run(prepare(&pattern), 3).0, results, "on three threads");
    }
}

#[test]
fn the_slowest_link_of_a_way_sets_the_pace() {
    let bytes = 20_000_000_u64;
    for (from, to, gbps) in [
        ("slow", "fast", 10.0),
        ("fast", "slow", 10.0),
        ("middle", "fast", 40.0),
        // Out at 50 Gb/s, but the receiver's link has 25.
        ("fast", "far", 25.0),
        ("far", "fast", 50.0),
    ] {
        let work =
            format!("[[work]]\nflows = [{{ from = {from:?}, to = {to:?}, bytes = {bytes} }}]");
        let took_s = run(prepare(&work), 1).0.flows[0].completion_ps() as f64 / 1e12;
        let reached = bytes as f64 * 8.0 / 1e9 / took_s;
        assert!(
            reached < gbps && reached > 0.75 * gbps,
            "{from} to {to}: {reached} of {gbps} Gb/s"
        );
    }
}
