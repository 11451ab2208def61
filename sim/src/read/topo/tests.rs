use super::*;
use crate::hop::Hop;
use crate::ids::HostId;
use crate::link::LinkConfig;
use crate::read::fuzz;
use crate::time::{PS_PER_NS, Picos};

const LEAF_SPINE: &str = "\
# 24 hosts, twice as much below as above
nodes 24
Tiers 2
Podsize 24

Tier 0
Downlink_speed_Gbps 200
Radix_Down 8
Radix_Up 4
Oversubscribed 2
Downlink_Latency_ns 500
Switch_Latency_ns 300
Queue_Up 70000

Tier 1
Downlink_speed_Gbps 200
Radix_Down 6
Bundle 2
Downlink_Latency_ns 700
Switch_Latency_ns 90
Queue_Down 80000
";

const FAT_TREE: &str = "\
Nodes 16
Tiers 3
Podsize 4
Tier 0
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 100
Switch_Latency_ns 10
Tier 1
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 1
Downlink_Latency_ns 200
Switch_Latency_ns 20
Tier 2
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 400
Switch_Latency_ns 40
";

const QUEUES: QueueSettings = QueueSettings {
    buffer_bytes: 50_000,
    red: Some(Red::linear(10_000, 40_000)),
    red_to_hosts: false,
    trimming: true,
    control_first: true,
};

fn read(text: &str) -> Result<Topo, String> {
    Topo::read("a.topo", text).map_err(|error| error.to_string())
}

/// Links and time on the way of a packet without bytes.
fn way(topo: &Topo, from: u32, to: u32) -> (usize, Picos) {
    let plan = topo.clos(&QUEUES, 1).build().expect("a tree");
    let (from, to) = (HostId(from), HostId(to));
    (plan.way(&Hop::probe(from, to, 0)).len(), plan.lone_ps(from, to, 0))
}

#[test]
fn a_lone_packet_takes_as_long_as_in_htsim() {
    // 2 x 500 + 2 x 700 on links, 300 + 90 + 300 in switches; below one switch 2 x 500 + 300.
    let topo = read(LEAF_SPINE).expect("valid");
    assert_eq!(way(&topo, 0, 23), (4, 3_090 * PS_PER_NS));
    assert_eq!(way(&topo, 0, 7), (2, 1_300 * PS_PER_NS));
    // 2 x (100 + 200 + 400) on links, 10 + 20 + 40 + 20 + 10 in switches; within a pod 2 x 300 and 10 + 20 + 10.
    let topo = read(FAT_TREE).expect("valid");
    assert_eq!(way(&topo, 0, 15), (6, 1_500 * PS_PER_NS));
    assert_eq!(way(&topo, 0, 3), (4, 640 * PS_PER_NS));
    assert_eq!(way(&topo, 0, 1), (2, 210 * PS_PER_NS));
}

#[test]
fn links_are_as_the_file_and_the_caller_say() {
    let clos = read(LEAF_SPINE).expect("valid").clos(&QUEUES, 1);
    let link = |propagation_ns: u64, buffer_bytes| LinkConfig {
        bytes_per_s: Some(25_000_000_000),
        buffer_bytes,
        red: QUEUES.red,
        trimming: true,
        control_first: true,
        ..LinkConfig::delay(propagation_ns * PS_PER_NS)
    };
    let [leaf, spine] = &clos.tiers[..] else { panic!("two tiers") };
    assert_eq!((leaf.children, leaf.links_per_child, leaf.links_up), (8, 1, 4));
    assert_eq!((spine.children, spine.links_per_child, spine.links_up), (3, 2, 0));
    assert_eq!(leaf.down, LinkConfig { red: None, ..link(500, 50_000) });
    assert_eq!(leaf.up, LinkConfig { red: None, trimming: false, ..link(800, u64::MAX) });
    assert_eq!(spine.down, link(1_000, 80_000));
    assert_eq!(spine.up, link(790, 70_000));
    let queues = QueueSettings { red_to_hosts: true, ..QUEUES };
    assert_eq!(read(LEAF_SPINE).expect("valid").clos(&queues, 1).tiers[0].down, link(500, 50_000));
}

/// Mistakes that are made in a valid file: what is replaced, by what, and what the error says.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("nodes 24", "Nodes x4", "a.topo:2: expected Nodes from 1 to 1048576, found \"x4\""),
    ("nodes 24", "Nodes +24", "a.topo:2: expected Nodes from 1 to 1048576, found \"+24\""),
    ("nodes 24", "Nodes", "a.topo:2: expected Nodes from 1 to 1048576 at the line's end"),
    ("nodes 24", "Nodes 24 5", "a.topo:2: expected the line's end, found \"5\""),
    ("nodes 24", "", "a.topo:6: expected Nodes in the header, before the first Tier"),
    (
        "nodes 24",
        "Hosts 24",
        "a.topo:2: expected Nodes, Tiers, Podsize or Tier in the header, found \"Hosts\"",
    ),
    ("Tiers 2", "Tiers 4", "a.topo:3: expected Tiers from 2 to 3, found \"4\""),
    ("Tiers 2", "Tiers 2\nTiers 2", "a.topo:4: Tiers is there twice, first in line 3"),
    ("Tiers 2", "Tiers 3", "a.topo: Tier 2 is missing"),
    ("Podsize 24", "Podsize 5", "a.topo:2: 24 Nodes are no multiple of the Podsize of 5"),
    (
        "Podsize 24",
        "Podsize 12",
        "a.topo:4: a tree of 2 tiers is one pod: expected Podsize 24, found 12",
    ),
    ("Tier 1", "Tier 2", "a.topo:15: expected a tier's number from 0 to 1, found \"2\""),
    ("Tier 1", "Tier 0", "a.topo:15: Tier 0 is there twice, first in line 6"),
    (
        "Bundle 2",
        "Bundles 2",
        "a.topo:18: expected one of Downlink_speed_Gbps, Radix_Up, Radix_Down, Queue_Up, Queue_Down, Oversubscribed, Bundle, Switch_Latency_ns, Downlink_Latency_ns, found \"Bundles\"",
    ),
    ("Bundle 2", "Queue_Up 5", "a.topo:18: Queue_Up in the top tier, which has no links up"),
    ("Bundle 2", "Radix_Down 6", "a.topo:18: Radix_Down is there twice, first in line 17"),
    (
        "Bundle 2",
        "Bundle 3",
        "a.topo:17: expected Radix_Down 9, the links to 3 Tier 0 switches in each pod with Bundle 3, found 6",
    ),
    (
        "Radix_Up 4",
        "Radix_Up 4\nBundle 2",
        "a.topo:10: hosts have one link: expected Bundle 1 in Tier 0",
    ),
    ("Radix_Up 4", "", "a.topo:6: Tier 0 has no Radix_Up"),
    (
        "Radix_Up 4",
        "Radix_Up 3",
        "a.topo:9: Radix_Up 3 of Tier 0 is no multiple of Bundle 2 of Tier 1",
    ),
    ("Radix_Down 8", "Radix_Down 7", "a.topo:8: Podsize 24 is no multiple of Radix_Down 7"),
    ("Downlink_Latency_ns 700", "", "a.topo:15: Tier 1 has no Downlink_Latency_ns"),
    (
        "Downlink_Latency_ns 700",
        "Downlink_Latency_ns 0",
        "a.topo:19: expected Downlink_Latency_ns from 1 to 1000000000, found \"0\"",
    ),
    (
        "Oversubscribed 2",
        "",
        "a.topo:6: a switch of Tier 0 has 1600 Gb/s down and 800 Gb/s up, which is not Oversubscribed 1",
    ),
    (
        "Oversubscribed 2",
        "Oversubscribed 3",
        "a.topo:10: a switch of Tier 0 has 1600 Gb/s down and 800 Gb/s up, which is not Oversubscribed 3",
    ),
];

#[test]
fn mistakes_name_the_line_and_what_is_expected() {
    for (from, to, expected) in MISTAKES {
        assert!(LEAF_SPINE.contains(from));
        let text = LEAF_SPINE.replacen(from, to, 1);
        assert_eq!(read(&text), Err((*expected).to_owned()), "{from:?} became {to:?}");
    }
    assert_eq!(read(""), Err("a.topo: Nodes is missing".to_owned()));
    let pods = FAT_TREE.replace("Radix_Down 4", "Radix_Down 8");
    let expected = "a.topo:18: expected Radix_Down 4, the links to 4 pods with Bundle 1, found 8";
    assert_eq!(read(&pods), Err((*expected).to_owned()));
}

/// Whatever a text says, it is refused or can be built, or the tree says why it is too large.
#[test]
fn no_text_breaks_the_reader() {
    for valid in [LEAF_SPINE, FAT_TREE] {
        fuzz::try_texts(valid, |text| {
            if let Ok(topo) = read(text)
                && topo.nodes <= 4096
            {
                let _ = topo.clos(&QUEUES, 1).build();
            }
        });
    }
}
