//! What uet-htsim's README prints for its first example: one message of 2 MB across the tree that it builds for 16 hosts.

use erd_sim::experiment::Experiment;
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use std::path::Path;

const ONE: &str = r#"
wire = "htsim"
links = { rate_gbps = 100, delay_ns = 1000 }
work = [{ flows = [{ from = 0, to = 13, bytes = 2000000 }] }]
[topology.tree]
tiers = [{ children = 2, links_up = 2 }, { children = 2, links_up = 2 }, { children = 4 }]
[engines]
scheme = "nscc:htsim"
warm = true
"#;

/// "finished at 176.2 ... total packets 490 ... ACKs: 124".
#[test]
fn a_lone_message_takes_as_long_as_in_htsim() {
    let prepared = ScenarioFile::read("one", ONE).and_then(|file| file.prepare(Path::new("")));
    let Prepared { plan, work, engines, seed, limit_ps, .. } = prepared.expect("valid");
    let experiment = Experiment { plan, work, engines, seed, threads: 1 };
    let results = experiment.run(limit_ps).expect("it ends");
    let flow = results.flows[0];
    let tenths_us = (flow.acknowledged - flow.began + 50_000) / 100_000;
    assert_eq!(tenths_us, 1_762, "{flow:?}");
    // One more is the greeting.
    assert_eq!(results.data_packets, 490 + 1);
    // Both greet with four more packets. Each packet crosses six links.
    assert_eq!(results.links.offered, 6 * (490 + 124 + 1 + 5));
}
