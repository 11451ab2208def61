use super::super::{Prepared, ScenarioFile};
use crate::hop::Hop;
use crate::ids::HostId;
use std::path::Path;

fn text(topology: &str, failed: &str) -> String {
    format!(
        r#"
[links]
rate_gbps = 100
delay_ns = 1000
queue = {{ bytes = 150000 }}
{topology}
[[work]]
flows = [{{ from = 0, to = 7, bytes = 10 }}]
[engines]
scheme = "laps"
[[failures]]
link = {failed}
at_us = 1
health = "dead"
"#
    )
}

fn prepare(topology: &str, failed: &str) -> Result<Prepared, String> {
    let read = ScenarioFile::read("s.toml", &text(topology, failed));
    read.and_then(|file| file.prepare(Path::new("nowhere"))).map_err(|error| error.to_string())
}

const RAIL: &str = "[topology.rail]\nservers = 4\ngpus = 2\nhost = { rate_gbps = 200 }";
const DRAGONFLY: &str = "[topology.dragonfly]\ngroups = 3\nswitches = 2\nhosts = 2\nglobal_links = 1\nglobal = { delay_ns = 9000 }";

#[test]
fn rails_and_dragonflies_are_read() {
    let rail = prepare(RAIL, r#"["g5", "r1"]"#).expect("a scenario");
    assert_eq!((rail.plan.hosts(), rail.link().bytes_per_s), (8, 25_000_000_000));
    // Host 5 has the switch 8 + 5, and the second rail is the last node.
    for failure in &rail.failures {
        let link = &rail.plan.links()[failure.link.0 as usize];
        assert_eq!(link.from.0 + link.to.0, 13 + 21);
        assert_eq!(link.config.bytes_per_s, Some(12_500_000_000));
    }
    assert_eq!(rail.failures.len(), 2);
    let dragonfly = prepare(DRAGONFLY, r#"["s1", "s0"]"#).expect("a scenario");
    let plan = &dragonfly.plan;
    assert_eq!((plan.hosts(), plan.switches().len()), (12, 6));
    let way = plan.way(&Hop::probe(HostId(0), HostId(11), 100));
    let delays = way.iter().map(|link| plan.links()[link.0 as usize].config.propagation_ps);
    assert_eq!(delays.filter(|delay| *delay == 9_000_000).count(), 1, "one global link");
}

#[test]
fn what_does_not_fit_names_its_line() {
    let refused = |topology: &str| prepare(topology, r#"["h0", "h1"]"#).err().expect("refused");
    let replaced = |from: &str, to: &str| DRAGONFLY.replace(from, to);
    for (topology, expected) in [
        (
            replaced("global_links = 1", "global_links = 2").replace("groups = 3", "groups = 4"),
            "s.toml:10: expected a network: global_links times 2 switches must be a multiple of 3, the number of other groups",
        ),
        (
            replaced("switches = 2", "switches = 0"),
            "s.toml:8: expected a network: switches must be at least 1",
        ),
        (
            replaced("hosts = 2", "hosts = -2"),
            "s.toml:9: invalid value: integer `-2`, expected u32",
        ),
        (
            replaced("delay_ns = 9000", "delay_ns = -1"),
            "s.toml:7: global links: expected delay_ns from 0 to 1000000000, here or in [links]",
        ),
        (
            RAIL.replace("gpus = 2", "gpus = 0"),
            "s.toml:8: expected a network: gpus must be at least 1",
        ),
        (
            RAIL.replace("gpus = 2", "gpus = 1").replace("servers = 4", "servers = 1"),
            "s.toml:7: expected 2 to 1048576 hosts, found 1",
        ),
        (
            RAIL.replace("gpus = 2", "gpus = 2000000"),
            "s.toml:7: expected a network: servers must be smaller",
        ),
    ] {
        let error = refused(&topology);
        assert!(error.starts_with(expected), "{error}");
    }
    for (failed, expected) in [
        (r#"["s0", "r1"]"#, r#"s.toml:14: expected a node, found "s0""#),
        (r#"["g8", "r1"]"#, r#"s.toml:14: expected a node, found "g8""#),
        (r#"["g2", "r1"]"#, r#"s.toml:14: expected a link between "g2" and "r1""#),
    ] {
        assert_eq!(prepare(RAIL, failed).err().expect("refused"), expected);
    }
}
