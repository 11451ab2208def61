use crate::fabric::receiver::{Delay, Receivers};
use crate::link::Health;
use crate::read::scenario::{Prepared, ScenarioFile};
use std::path::Path;

const TEXT: &str = r#"
[links]
rate_gbps = 100
delay_ns = 1000
[topology.tree]
tiers = [{ children = 2, links_up = 2 }, { children = 2, links_per_child = 2 }]
[switches]
rerouting = { detect_us = 1, converge_us = 50 }
[hosts]
ring_packets = 1024
delay = { exponential_ns = 700 }
[[work]]
flows = [{ from = 0, to = 3, bytes = 10 }]
[engines]
scheme = "nscc"
[[failures]]
link = ["s0", "s2"]
at_us = 10
health = { flaps = { down_us = 2, up_us = 3, times = 2 } }
[[failures]]
links = "all"
at_us = 0
health = { corrupt = 1e-9 }
"#;

fn prepare(text: &str) -> Result<Prepared, String> {
    let read = ScenarioFile::read("s.toml", text);
    read.and_then(|file| file.prepare(Path::new("nowhere"))).map_err(|error| error.to_string())
}

#[test]
fn failures_become_changes_of_links_in_the_order_of_time() {
    let prepared = prepare(TEXT).expect("a scenario");
    let all = prepared.plan.links().len();
    let (corrupt, flaps) = prepared.failures.split_at(all);
    assert!(corrupt.iter().all(|failure| failure.health == Health::Corrupt { bits: 1e-9 }));
    // Two parallel links, both ways.
    let seen: Vec<_> = flaps.iter().step_by(4).map(|change| (change.at, change.health)).collect();
    let us = |at: u64| at * 1_000_000;
    let (dead, up) = (Health::Dead, Health::Up);
    assert_eq!(flaps.len(), 16);
    assert_eq!(seen, [(us(10), dead), (us(12), up), (us(15), dead), (us(17), up)]);
    let rerouting = prepared.plan.rerouting().expect("they reroute");
    assert_eq!((rerouting.near_ps, rerouting.far_ps), (us(1), us(50)));
    assert_eq!(prepared.plan.receivers().expect("rings").ring_packets, Some(1024));
    for (links, count) in [("hosts", 8), ("switches", 8)] {
        let text = TEXT.replace("\"all\"", &format!("{links:?}"));
        let prepared = prepare(&text).expect("a scenario");
        assert_eq!(prepared.failures.len(), 16 + count, "{links}");
    }
}

#[test]
fn hosts_take_the_times_of_the_file() {
    let times = "ring_bytes = 5000\npacket_ns = 1.5\nrate_gbps = 80\nreorder_ns = 0.75";
    let prepared = prepare(&TEXT.replace("ring_packets = 1024", times)).expect("a scenario");
    let expected = Receivers {
        ring_packets: None,
        ring_bytes: Some(5000),
        delay: Delay::Exponential { mean_ps: 700_000 },
        packet_ps: 1_500,
        bytes_per_s: Some(10_000_000_000),
        reorder_ps: 750,
    };
    assert_eq!(prepared.plan.receivers(), Some(expected));
}

/// What stands in the text, what replaces it, and what is then refused.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "links = \"all\"",
        "links = \"none\"",
        "21: unknown variant `none`, expected one of `all`, `hosts`, `switches`",
    ),
    ("links = \"all\"", "", "20: expected either link or links"),
    (
        "links = \"all\"",
        "links = \"all\"\nwhich = 0",
        "20: expected neither which nor both_ways beside links",
    ),
    ("corrupt = 1e-9", "corrupt = 1.5", "20: expected corrupt from 0 to 1"),
    ("up_us = 3", "up_us = 0", "16: expected down_us and up_us above 0 and up to 1000000000000"),
    (
        "times = 2",
        "times = 0",
        "16: expected times from 1 to 2097152, and an end within 1000000000000 us",
    ),
    ("times = 2", "times = 2000000", "16: expected at most 4194304 changes of links"),
    (
        "at_us = 10",
        "which = 2\nat_us = 10",
        "16: expected which below 2, the number of parallel links, found 2",
    ),
    ("\"s2\"", "\"s1\"", "16: expected a link between \"s0\" and \"s1\""),
    (
        "detect_us = 1",
        "detect_us = 51",
        "8: expected detect_us from 0 to converge_us, and that up to 1000000000000",
    ),
    ("ring_packets = 1024", "ring_packets = 0", "9: expected ring_packets of at least 1"),
    (
        "ring_packets = 1024",
        "ring_bytes = 9",
        "9: expected ring_bytes of at least 4194, a full packet",
    ),
    ("exponential_ns = 700", "exponential_ns = -7", "9: expected delay from 0 to 1000000000 ns"),
    (
        "exponential_ns = 700",
        "uniform_ns = [7, 6]",
        "9: expected uniform_ns from less to more, found [7, 6]",
    ),
    (
        "exponential_ns = 700",
        "pareto_ns = { min = 0, shape = 1, max = 9 }",
        "9: expected pareto_ns with min above 0 and up to max, and shape from 0.1 to 100",
    ),
    ("ring_packets = 1024", "packet_ns = -1", "9: expected packet_ns from 0 to 1000000000"),
    ("ring_packets = 1024", "rate_gbps = 0", "9: expected rate_gbps from 0.001 to 100000"),
    ("ring_packets = 1024", "reorder_ns = 2e9", "9: expected reorder_ns from 0 to 1000000000"),
];

#[test]
fn what_cannot_break_names_its_line() {
    for (from, to, expected) in MISTAKES {
        assert!(TEXT.contains(from), "{from}");
        let refused = prepare(&TEXT.replacen(from, to, 1)).err();
        assert_eq!(refused, Some(format!("s.toml:{expected}")), "{from} became {to}");
    }
    let told = TEXT.replace("[topology.tree]", "[topology.rail]\nservers = 2\ngpus = 2\n#");
    let told = told.replace("\"s0\", \"s2\"", "\"g0\", \"r0\"");
    let told =
        told.lines().filter(|line| !line.starts_with("tiers")).collect::<Vec<_>>().join("\n");
    let refused = prepare(&told).err().expect("refused");
    let expected = "expected no rerouting in a dragonfly or rail network: senders choose the way";
    assert!(refused.ends_with(expected), "{refused}");
}
