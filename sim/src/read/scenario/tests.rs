use super::*;
use crate::experiment::longest_rtt_ns;
use crate::fabric::blueprint::NodeId;
use crate::hop::Hop;
use crate::ids::HostId;
use crate::info_path::Carries;
use crate::link::{LinkConfig, Red};
use crate::read::fuzz;
use std::collections::HashSet;
use std::path::PathBuf;

const TREE: &str = r#"
seed = 7
limit_ms = 20.5

[links]
rate_gbps = 100
delay_ns = 500
queue = { bdp = 2 }
red = { min = { bytes = 1000 }, max = { bdp = 0.5 } }
control_first = true

[topology.tree]
tiers = [
  { children = 2, links_up = 2, switch_ns = 50, down = { marks = false } },
  { children = 3, links_per_child = 2, links = { rate_gbps = 200, queue = { bytes = 9000 } }, up = { trimming = true } },
]

[[work]]
flows = [
  { from = 0, to = "h5", bytes = 2000, start_us = 1.5 },
  { from = 5, to = 1, bytes = 0, after = 0 },
]
[[work]]
pattern = { pattern = "message", from_host = 2, to_host = 3, message_bytes = 5 }

[engines]
scheme = "nscc"
paths = 8

[[failures]]
link = ["h3", "s1"]
at_us = 9
health = { lossy = 0.25 }
[[failures]]
link = ["s0", "s3"]
which = 1
both_ways = false
at_us = 2
health = "dead"
"#;

const GRAPH: &str = r#"
links = { rate_gbps = 10, delay_ns = 1000, queue = { bytes = 5000 } }
work = [{ flows = [{ from = "left", to = "right", bytes = 10 }] }]

[topology.graph]
hosts = ["left", "right", "third"]
switches = ["west", "north", "south", "east"]
links = [
  { between = ["left", "west"] },
  { between = ["east", "right"], link = { rate_gbps = 20 }, back = { delay_ns = 3 } },
  { between = ["third", "west"] },
  { between = ["west", "north"], count = 2 },
  { between = ["north", "east"] },
  { between = ["west", "south"] },
  { between = ["south", "east"] },
  { between = ["north", "south"] },
]

[engines]
scheme = "smartt"

[[failures]]
link = ["north", "west"]
at_us = 1
health = { slowed = 4 }
"#;

fn prepare(text: &str) -> Result<Prepared, String> {
    prepare_in(text, Path::new("nowhere"))
}

fn prepare_in(text: &str, dir: &Path) -> Result<Prepared, String> {
    let file = ScenarioFile::read("a.toml", text);
    file.and_then(|file| file.prepare(dir)).map_err(|error| error.to_string())
}

#[test]
fn a_tree_is_built_as_the_file_says() {
    let prepared = prepare(TREE).expect("valid");
    let plan = &prepared.plan;
    assert_eq!((plan.hosts(), plan.switches().len()), (6, 4));
    assert_eq!((prepared.seed, prepared.limit_ps), (7, 20_500_000_000));
    // 500 ns on each link and 50 ns in the leaves. The BDP is that of 100 Gb/s.
    let bdp_bytes = 12.5 * longest_rtt_ns(plan) as f64;
    let (buffer, deep) = ((2.0 * bdp_bytes) as u64, (0.5 * bdp_bytes) as u64);
    let red = Some(Red::linear(1000, deep));
    let base = LinkConfig {
        bytes_per_s: Some(12_500_000_000),
        buffer_bytes: buffer,
        red,
        control_first: true,
        ..LinkConfig::delay(550_000)
    };
    let upper = LinkConfig { bytes_per_s: Some(25_000_000_000), buffer_bytes: 9000, ..base };
    let way = plan.way(&Hop::probe(HostId(0), HostId(5), 0));
    let way: Vec<_> = way.iter().map(|link| plan.links()[link.0 as usize].config).collect();
    let up = LinkConfig { propagation_ps: 500_000, trimming: true, ..upper };
    let last = LinkConfig { propagation_ps: 500_000, red: None, ..base };
    assert_eq!(way, [base, up, upper, last]);
    assert!(prepared.engines.trimming, "some links trim");
}

/// Figures that uet-htsim prints for its tree of 16 hosts: a round trip of 14.0227 us, queues of 178450 bytes, marks from
/// 37350 to 145250. The packet being sent is not in a queue here.
#[test]
fn htsims_wire_brings_its_packets_and_queues() {
    let text = r#"
        wire = "htsim"
        links = { rate_gbps = 100, delay_ns = 1000 }
        work = [{ flows = [{ from = 0, to = 13, bytes = 2000000 }] }]
        [topology.tree]
        tiers = [{ children = 2, links_up = 2 }, { children = 2, links_up = 2 }, { children = 4 }]
        [engines]
        scheme = "nscc:htsim"
    "#;
    let prepared = prepare(text).expect("valid");
    let link = prepared.link();
    let Prepared { plan, engines, .. } = prepared;
    assert_eq!((longest_rtt_ns(&plan), plan.wire()), (14_022, Wire::Htsim));
    let expected = LinkConfig {
        bytes_per_s: Some(12_500_000_000),
        buffer_bytes: 178_450 - 4_150,
        red: Some(Red::linear(37_350 - 4_150, 145_250 - 4_150)),
        trimming: true,
        trims_last: true,
        control_first: true,
        ..LinkConfig::delay(1_000_000)
    };
    assert!(plan.links().iter().all(|link| link.config == expected));
    assert_eq!((link.payload_bytes, link.overhead_bytes, engines.trimming), (4086, 64, true));
}

#[test]
fn work_and_failures_are_as_the_file_says() {
    let Prepared { plan, work, failures, engines, .. } = prepare(TREE).expect("valid");
    let ends: Vec<_> =
        work.flows().iter().map(|flow| (flow.from.0, flow.to.0, flow.bytes)).collect();
    assert_eq!(ends, [(0, 5, 2000), (5, 1, 0), (2, 3, 5)]);
    let first = work.flows()[0];
    assert_eq!(work.tasks(first.from)[first.send.0 as usize].not_before, 1_500_000);
    assert_eq!(work.tasks(first.to)[first.receive.0 as usize].then, [work.flows()[1].send]);
    assert_eq!(
        (engines.paths, engines.rto_min_ns, (engines.scheme)().name()),
        (8, 100_000, "nscc")
    );
    let seen: Vec<_> = failures
        .iter()
        .map(|Failure { at, link, health }| {
            let link = &plan.links()[link.0 as usize];
            (*at, link.from.0, link.to.0, *health)
        })
        .collect();
    let lossy = Health::Lossy { share: 0.25 };
    let expected =
        [(2_000_000, 6, 9, Health::Dead), (9_000_000, 3, 7, lossy), (9_000_000, 7, 3, lossy)];
    assert_eq!(seen, expected);
    // Of the two links from s0 to the only switch above it is the second one.
    assert_eq!(failures[0].link.0, plan.links_of(NodeId(6)).start + 2 + 1);
}

/// Every shortest way is used, and no other.
#[test]
fn a_graph_sends_over_all_shortest_ways() {
    let Prepared { plan, failures, .. } = prepare(GRAPH).expect("valid");
    let nodes = |from, to, path| {
        let hop = Hop { path, ..Hop::probe(HostId(from), HostId(to), 0) };
        let links = plan.way(&hop).into_iter();
        links.map(|link| (link.0, plan.links()[link.0 as usize].to.0)).collect::<Vec<_>>()
    };
    let ways: HashSet<_> = (0..256).map(|path| nodes(0, 1, path)).collect();
    let through: HashSet<u32> = ways.iter().map(|way| way[1].1).collect();
    assert!(ways.iter().all(|way| way.len() == 4));
    // Two links to the north and one to the south.
    assert_eq!((ways.len(), through), (3, HashSet::from([4, 5])));
    assert_eq!(nodes(0, 2, 9).len(), 2);
    let to_right = plan.links().iter().find(|link| link.to == NodeId(1)).expect("there").config;
    assert_eq!((to_right.bytes_per_s, to_right.propagation_ps), (Some(2_500_000_000), 1_000_000));
    let from_right = plan.links()[plan.links_of(NodeId(1)).start as usize].config;
    assert_eq!((from_right.bytes_per_s, from_right.propagation_ps), (Some(2_500_000_000), 3_000));
    assert_eq!(failures.len(), 4, "two parallel links in both directions");
}

/// A directory with files of its own, which is removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(test: &str, files: &[(&str, &str)]) -> Files {
        let name = format!("erd-sim-scenario-{test}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        for (name, text) in files {
            std::fs::write(dir.join(name), text).expect("a file");
        }
        Files(dir)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const OF_FILES: &str = r#"
[topology.topo]
path = "a.topo"
red_to_hosts = false
[links]
queue = { bdp = 1 }
red = { min = { bdp = 0.2 }, max = { bdp = 0.8 } }
[[work]]
matrix = { path = "a.cm", start_unit = "ps" }
[[work]]
goal = { path = "a.goal" }
[engines]
scheme = "nscc"
"#;

#[test]
fn other_files_are_read() {
    let topo = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 2\nDownlink_Latency_ns 1000\n";
    let matrix = "Nodes 4\nConnections 1\n3->0 start 8 size 77\n";
    let goal = "num_ranks 2\nrank 0 {\nsend 5b to 1\n}\nrank 1 {\nrecv 5b from 0\n}\n";
    let files = Files::new(
        "others",
        &[
            ("a.topo", topo),
            ("a.cm", matrix),
            ("a.goal", goal),
            ("b.cm", "Nodes 0"),
            ("b.topo", "Nodes x"),
        ],
    );
    let dir = files.0.display();
    let Prepared { plan, work, .. } = prepare_in(OF_FILES, &files.0).expect("valid");
    let ends: Vec<_> =
        work.flows().iter().map(|flow| (flow.from.0, flow.to.0, flow.bytes)).collect();
    assert_eq!(ends, [(3, 0, 77), (0, 1, 5)]);
    assert_eq!(work.tasks(HostId(3))[0].not_before, 8);
    let buffers: HashSet<u64> = plan.links().iter().map(|link| link.config.buffer_bytes).collect();
    let bdp_bytes = (12.5 * longest_rtt_ns(&plan) as f64) as u64;
    assert_eq!(buffers, HashSet::from([bdp_bytes, u64::MAX]));
    for (from, to, expected) in [
        ("a.cm", "b.cm", format!("{dir}/b.cm:1: expected Nodes from 1 to 1048576, found \"0\"")),
        ("a.topo", "b.topo", format!("{dir}/b.topo:1: expected Nodes from 1 to 1048576, found \"x\"")),
        ("a.goal", "c.goal", format!("{dir}/c.goal: No such file or directory (os error 2)")),
        ("[links]", "[links]\nrate_gbps = 1", "a.toml:3: expected neither rate_gbps nor delay_ns in [links], as the .topo file has them".to_owned()),
    ] {
        let refused = prepare_in(&OF_FILES.replacen(from, to, 1), &files.0).err();
        assert_eq!(refused, Some(expected), "{from:?} became {to:?}");
    }
}

/// Mistakes that are made in a valid file: what is replaced in a valid file, by what, and what the error says.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("seed = 7", "seed = -7", "a.toml:2: invalid value: integer `-7`, expected u64"),
    (
        "seed = 7",
        "sed = 7",
        "a.toml:2: unknown field `sed`, expected one of `seed`, `limit_ms`, `topology`, `wire`, `links`, `switches`, `hosts`, `work`, `engines`, `failures`",
    ),
    ("seed = 7", "seed 7", "a.toml:2: key with no value, expected `=`"),
    (
        "limit_ms = 20.5",
        "limit_ms = 0",
        "a.toml:3: expected limit_ms of more than 0 and at most 1000000000",
    ),
    (
        "limit_ms = 20.5",
        "limit_ms = nan",
        "a.toml:3: expected limit_ms of more than 0 and at most 1000000000",
    ),
    (
        "rate_gbps = 100",
        "rate_gbps = 0",
        "a.toml:14: expected rate_gbps from 0.001 to 100000, here or in [links]",
    ),
    (
        "rate_gbps = 100",
        "rate = 100",
        "a.toml:6: unknown field `rate`, expected one of `rate_gbps`, `delay_ns`, `queue`, `red`, `marks`, `trimming`, `control_first`",
    ),
    ("delay_ns = 500", "", "a.toml:14: expected delay_ns from 0 to 1000000000, here or in [links]"),
    ("queue = { bdp = 2 }", "queue = { bdp = -1 }", "a.toml:14: expected bdp from 0 to 1000000"),
    (
        "queue = { bdp = 2 }",
        "queue = { packets = 1 }",
        "a.toml:8: unknown variant `packets`, expected `bytes` or `bdp`",
    ),
    (
        "max = { bdp = 0.5 }",
        "max = { bytes = 5 }",
        "a.toml:14: expected red with min up to max, found 1000 and 5 bytes",
    ),
    ("switch_ns = 50", "switch_ns = -50", "a.toml:14: expected switch_ns from 0 to 1000000000"),
    (
        "children = 3",
        "childs = 3",
        "a.toml:15: unknown field `childs`, expected one of `children`, `links_per_child`, `links_up`, `switch_ns`, `links`, `down`, `up`",
    ),
    ("children = 3", "children = 0", "a.toml:14: expected a tree of 2 to 1048576 hosts, found 0"),
    (
        "children = 3",
        "children = 3000000",
        "a.toml:14: expected a tree of 2 to 1048576 hosts, found 6000000",
    ),
    (
        "links_per_child = 2",
        "links_per_child = 3",
        "a.toml:14: tier 0 has 2 links up, which is no multiple of the 3 links that tier 1 has to each switch below",
    ),
    (
        "[topology.tree]",
        "[topology.ring]",
        "a.toml:12: unknown variant `ring`, expected one of `tree`, `topo`, `graph`, `dragonfly`, `rail`",
    ),
    (
        "to = \"h5\"",
        "to = \"h6\"",
        "a.toml:20: expected a host from 0 to 5 or its name, found \"h6\"",
    ),
    (
        "to = \"h5\"",
        "to = \"s0\"",
        "a.toml:20: expected a host from 0 to 5 or its name, found \"s0\"",
    ),
    ("to = \"h5\"", "to = 0", "a.toml:20: expected two hosts, but 0 sends to itself"),
    ("to = \"h5\"", "to = 0.5", "a.toml:20: expected a host's number or name"),
    (
        "bytes = 2000",
        "bytes = 2000000000000",
        "a.toml:20: expected bytes up to 1099511627776, found 2000000000000",
    ),
    ("start_us = 1.5", "start_us = inf", "a.toml:20: expected start_us from 0 to 1000000000000"),
    ("after = 0", "after = 1", "a.toml:21: expected after below 1, the place of this message"),
    (
        "from = 5",
        "from = 4",
        "a.toml:21: expected after with a message to 4, found one to another host",
    ),
    ("to_host = 3", "to_host = 300", "a.toml:23: `to_host` must be below 6, the number of hosts"),
    (
        "from_host = 2",
        "from_host = 2, size = 2",
        "a.toml:23: unknown field `size`, expected one of `from_host`, `to_host`, `message_bytes`, `start_ns`",
    ),
    (
        "pattern = {",
        "gather = {",
        "a.toml:24: unknown variant `gather`, expected one of `matrix`, `goal`, `flows`, `pattern`",
    ),
    ("paths = 8", "paths = 0", "a.toml:28: expected paths from 1 to 256"),
    ("paths = 8", "rto_min_us = 0", "a.toml:28: expected rto_min_us from 1 to 60000000"),
    (
        "paths = 8",
        "info_path = { carries = \"data\" }",
        "a.toml:28: unknown variant `data`, expected `acks` or `nacks`",
    ),
    (
        "paths = 8",
        "info_path = { carries = \"acks\", rto_min_us = 0 }",
        "a.toml:28: expected rto_min_us from 1 to 60000000",
    ),
    (
        "\"nscc\"\npaths = 8",
        "\"roce\"\ninfo_path = { carries = \"acks\" }",
        "a.toml:28: expected no info_path: roce has none",
    ),
    (
        "link = [\"h3\", \"s1\"]",
        "link = [\"h3\", \"s0\"]",
        "a.toml:30: expected a link between \"h3\" and \"s0\"",
    ),
    (
        "link = [\"h3\", \"s1\"]",
        "link = [\"h3\", \"x1\"]",
        "a.toml:30: expected a node, found \"x1\"",
    ),
    ("at_us = 9", "at_us = -9", "a.toml:30: expected at_us from 0 to 1000000000000"),
    ("lossy = 0.25", "lossy = 2.5", "a.toml:30: expected lossy from 0 to 1"),
    ("lossy = 0.25", "slowed = 0", "a.toml:30: expected slowed from 1 to 1000000"),
    (
        "which = 1",
        "which = 2",
        "a.toml:34: expected which below 2, the number of parallel links, found 2",
    ),
];

#[test]
fn mistakes_name_the_line_and_what_is_expected() {
    for (from, to, expected) in MISTAKES {
        assert!(TREE.contains(from));
        let text = TREE.replacen(from, to, 1);
        assert_eq!(prepare(&text).err().as_deref(), Some(*expected), "{from:?} became {to:?}");
    }
    let refused = prepare(&TREE.replace("\"nscc\"", "\"cubic\"")).err().unwrap_or_default();
    assert!(refused.starts_with("a.toml:27: expected a scheme of "), "{refused}");
    let refused = prepare(&TREE.replace("paths = 8", "learned = true")).err();
    assert_eq!(refused.as_deref(), Some("a.toml:28: expected warm = true beside learned"));
    let refused = prepare(&TREE.replace("paths = 8", "settings = { wrong = 1 }")).err();
    let refused = refused.unwrap_or_default();
    assert!(refused.starts_with("a.toml:28: setting wrong of nscc: "), "{refused}");
}

#[test]
fn engines_have_an_information_path_if_the_file_says_so() {
    let path = |setting| {
        let prepared = prepare(&TREE.replace("paths = 8", setting)).expect("a scenario");
        prepared.engines.info_path.map(|path| (path.carries, path.rto_min_ps))
    };
    assert_eq!(path("paths = 8"), None);
    let linux = Some((Carries::Nacks, 200_000_000_000));
    assert_eq!(path("info_path = { carries = \"nacks\" }"), linux);
    let short = Some((Carries::Acks, 5_000_000));
    assert_eq!(path("info_path = { carries = \"acks\", rto_min_us = 5 }"), short);
}

#[test]
fn switches_balance_by_flowlets_if_the_file_says_so() {
    let gap_ps = |switches: &str| {
        let prepared =
            prepare(&TREE.replace("[topology.tree]", &format!("{switches}\n[topology.tree]")));
        prepared.map(|prepared| prepared.plan.flowlet_gap_ps())
    };
    assert_eq!(gap_ps(""), Ok(None));
    assert_eq!(gap_ps("[switches]\nbalancing = \"path\""), Ok(None));
    // The rate of the hosts' links is 100 Gb/s.
    assert_eq!(gap_ps("[switches]\nbalancing = \"flowlet\""), Ok(Some(50_000_000)));
    let given = "[switches]\nbalancing = \"flowlet\"\nflowlet_gap_us = 1.5";
    assert_eq!(gap_ps(given), Ok(Some(1_500_000)));
    for (switches, expected) in [
        (
            "[switches]\nbalancing = \"conga\"",
            "a.toml:13: unknown variant `conga`, expected `path` or `flowlet`",
        ),
        (
            "[switches]\nflowlet_gap_us = 1",
            "a.toml:13: expected balancing = \"flowlet\" beside flowlet_gap_us",
        ),
        (
            "[switches]\nbalancing = \"flowlet\"\nflowlet_gap_us = -1",
            "a.toml:14: expected flowlet_gap_us from 0 to 1000000000000",
        ),
    ] {
        assert_eq!(gap_ps(switches), Err(expected.to_owned()), "{switches}");
    }
}

#[test]
fn mistakes_in_a_graph_name_the_line() {
    for (from, to, expected) in [
        ("\"third\"]", "\"left\"]", "a.toml:6: expected a name of its own, found \"left\" again"),
        (
            "\"third\"]",
            "\"third\", \"lone\"]",
            "a.toml:6: host \"lone\": expected one link of each host, to a switch, found none",
        ),
        (
            "hosts = [\"left\", \"right\", \"third\"]",
            "hosts = [\"left\"]",
            "a.toml:6: expected 2 to 1048576 hosts, and at most 67108864 hosts times switches",
        ),
        (
            "[\"third\", \"west\"]",
            "[\"third\", \"oest\"]",
            "a.toml:11: expected a node, found \"oest\"",
        ),
        (
            "[\"third\", \"west\"]",
            "[\"third\", \"left\"]",
            "a.toml:11: expected one link of each host, to a switch",
        ),
        (
            "[\"third\", \"west\"]",
            "[\"left\", \"west\"]",
            "a.toml:11: expected one link of each host, to a switch",
        ),
        (
            "[\"third\", \"west\"] }",
            "[\"third\", \"west\"], count = 2 }",
            "a.toml:11: expected one link of each host, to a switch",
        ),
        ("count = 2", "count = 0", "a.toml:12: expected count from 1 to 1024"),
        (
            "[\"west\", \"south\"]",
            "[\"west\", \"west\"]",
            "a.toml:14: expected two nodes, found one twice",
        ),
        (
            "rate_gbps = 20",
            "rate_gbps = -20",
            "a.toml:10: expected rate_gbps from 0.001 to 100000, here or in [links]",
        ),
        (
            "[\"east\", \"right\"]",
            "[\"east\", \"right\", \"left\"]",
            "a.toml:10: expected the names of two nodes, found 3",
        ),
    ] {
        assert!(GRAPH.contains(from));
        let refused = prepare(&GRAPH.replacen(from, to, 1)).err().unwrap_or_default();
        assert_eq!(refused, expected, "{from:?} became {to:?}");
    }
    let apart = GRAPH.replace("[\"north\", \"east\"]", "[\"north\", \"west\"]");
    let apart = apart.replace("[\"south\", \"east\"]", "[\"south\", \"west\"]");
    let expected = "a.toml:6: host \"right\": expected a way from \"left\"";
    assert_eq!(prepare(&apart).err().as_deref(), Some(expected));
}

/// Whatever a text says, it is refused or can be built. Large networks take long to build, so they are not.
#[test]
fn no_text_breaks_the_reader() {
    for valid in [TREE, GRAPH, OF_FILES] {
        fuzz::try_texts(valid, |text| {
            let digits = text.split(|c: char| !c.is_ascii_digit());
            if digits.map(str::len).max().is_some_and(|most| !(5..=9).contains(&most)) {
                let _ = prepare(text);
            } else {
                let _ = ScenarioFile::read("a.toml", text);
            }
        });
    }
}

/// A matrix can break links of a tree of three tiers; they are dead from the start.
#[test]
fn failures_of_a_matrix_are_dead_links() {
    let matrix = "Nodes 8\nConnections 1\nFailures 1\n0->7 start 0 size 9\nfailure switch_type AGG switch_id 1 link_id 0\n";
    let files = Files::new("failures", &[("f.cm", matrix)]);
    let tree = r#"
links = { rate_gbps = 100, delay_ns = 500 }
topology.tree.tiers = [{ children = 2, links_up = 2 }, { children = 2, links_up = 2 }, { children = 2 }]
work = [{ matrix = { path = "f.cm" } }]
engines = { scheme = "nscc" }
failures = [{ link = ["h0", "s0"], at_us = 1, health = "up" }]
"#;
    let Prepared { plan, failures, .. } = prepare_in(tree, &files.0).expect("valid");
    // 8 hosts and 4 leaves; the second switch of tier 1 and the first one above it.
    let seen: Vec<_> = failures[..2]
        .iter()
        .map(|Failure { at, link, health }| {
            let link = &plan.links()[link.0 as usize];
            (*at, link.from.0, link.to.0, *health)
        })
        .collect();
    assert_eq!(seen, [(0, 13, 18, Health::Dead), (0, 18, 13, Health::Dead)]);
    assert_eq!((failures.len(), failures[2].at), (4, 1_000_000));
    let graph = GRAPH.replace(
        "flows = [{ from = \"left\", to = \"right\", bytes = 10 }]",
        "matrix = { path = \"f.cm\" }",
    );
    let refused = prepare_in(&graph, &files.0).err().unwrap_or_default();
    assert!(
        refused.ends_with("f.cm: expected at most 3 Nodes, as many as hosts, found 8"),
        "{refused}"
    );
    std::fs::write(files.0.join("f.cm"), matrix.replace("8", "3").replace("7", "2"))
        .expect("a file");
    let refused = prepare_in(&graph, &files.0).err();
    let expected = "a.toml:3: expected a tree for a matrix with failures";
    assert_eq!(refused.as_deref(), Some(expected));
}

/// The example of the documentation is valid.
#[test]
fn the_documented_example_is_valid() {
    let page = include_str!("../../../../docs/scenarios.md");
    let example = page.split("```").find_map(|block| block.strip_prefix("toml"));
    let prepared = prepare(example.expect("an example")).expect("valid");
    assert_eq!((prepared.plan.hosts(), prepared.failures.len()), (32, 2));
}
