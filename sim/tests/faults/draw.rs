//! What a seed stands for: a scenario file. `erd-sim scenario` runs the text as well, and so do the tests of what the seeds
//! found.

use super::dice::Dice;
use erd_rd::cc::schemes::{NAMES, profiles};
use erd_sim::fabric::blueprint::{Blueprint, NodeId};
use erd_sim::ids::LinkId;
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use erd_sim::schemes::BASELINES;
use std::fmt::{self, Write};
use std::path::Path;

/// Links that change, at most.
const LINKS_MAX: u64 = 6;
/// Links begin to fail within this time.
const BEGIN_US: f64 = 300.0;

/// A scenario file. Its `Debug` form is the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Drawn(pub String);

impl fmt::Debug for Drawn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Drawn {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Drawn {
        let mut dice = Dice::new(seed);
        let mut text = format!("seed = {seed}\n");
        let rate = links(&mut dice, &mut text);
        let hosts = network(&mut dice, rate);
        text += &hosts.text;
        let can_pause = hosts.is_tree && !text.contains("trimming = true");
        text += &switches(&mut dice, can_pause);
        text += &engines(&mut dice);
        text += &work(&mut dice, hosts.count);
        let plan = Drawn(text.clone()).prepare().plan;
        let failures = failures(&mut dice, &plan);
        Drawn(format!("limit_ms = {}\n{text}{}", failures.limit_ms, failures.text))
    }

    /// Reads the file.
    pub fn prepare(&self) -> Prepared {
        let file = ScenarioFile::read("seed.toml", &self.0);
        let prepared = file.and_then(|file| file.prepare(Path::new("")));
        prepared.unwrap_or_else(|error| panic!("{error} in\n{}", self.0))
    }
}

/// What all links are like. Returns the rate in Gb/s.
fn links(dice: &mut Dice, text: &mut String) -> f64 {
    let rate = dice.pick(&[10.0, 40.0, 100.0, 400.0]);
    let queue = dice.spread(9_000.0, 300_000.0) as u64;
    let delay = dice.spread(50.0, 5_000.0);
    *text += "[links]\n";
    let _ = writeln!(text, "rate_gbps = {rate}\ndelay_ns = {delay:.3}");
    let _ = writeln!(text, "queue = {{ bytes = {queue} }}");
    if dice.chance(0.7) {
        let (min, max) = (queue / dice.between(4, 20), queue - queue / dice.between(5, 20));
        let _ = writeln!(text, "red = {{ min = {{ bytes = {min} }}, max = {{ bytes = {max} }} }}");
    }
    let (trimming, control_first) = (dice.chance(0.4), dice.chance(0.5));
    let _ = writeln!(text, "trimming = {trimming}\ncontrol_first = {control_first}");
    rate
}

/// A network's part of the file, and how many hosts it has.
struct Hosts {
    text: String,
    count: u64,
    is_tree: bool,
}

fn network(dice: &mut Dice, rate: f64) -> Hosts {
    if dice.chance(0.3) { graph(dice, rate) } else { tree(dice, rate) }
}

/// A tree of up to three tiers, with any number of links upwards and other rates further up.
fn tree(dice: &mut Dice, rate: f64) -> Hosts {
    let tiers = dice.between(1, 3);
    let hashed = dice.chance(0.8);
    let mut text = format!("[topology.tree]\nhashed = {hashed}\ntiers = [\n");
    let mut count = 1;
    let mut bundle = 1;
    for tier in 1..=tiers {
        let children = dice.between(2, if tier == 1 { 4 } else { 3 });
        count *= children;
        let above = dice.between(1, 2);
        let up = if tier < tiers { above * dice.between(1, 3) } else { 0 };
        let _ =
            write!(text, "  {{ children = {children}, links_per_child = {bundle}, links_up = {up}");
        if tier > 1 {
            let part = dice.pick(&[0.25, 0.5, 1.0, 2.0]);
            let _ = write!(text, ", links = {{ rate_gbps = {} }}", rate * part);
        }
        text += " },\n";
        bundle = above;
    }
    text += "]\n";
    Hosts { text, count, is_tree: true }
}

/// Switches joined at random, with other rates and delays. Ways of as many links may differ in both.
fn graph(dice: &mut Dice, rate: f64) -> Hosts {
    let (count, switches) = (dice.between(2, 8), dice.between(1, 5));
    let names = |kind: &str, count: u64| {
        (0..count).map(|at| format!("\"{kind}{at}\"")).collect::<Vec<_>>().join(", ")
    };
    let hashed = dice.chance(0.8);
    let mut text = format!("[topology.graph]\nhashed = {hashed}\n");
    let _ = writeln!(text, "hosts = [{}]", names("h", count));
    let _ = writeln!(text, "switches = [{}]\nlinks = [", names("s", switches));
    for host in 0..count {
        let switch = dice.between(0, switches - 1);
        let _ = writeln!(text, "  {{ between = [\"h{host}\", \"s{switch}\"] }},");
    }
    let more = dice.between(0, 3);
    for at in 1..switches + more {
        // The first ones join all switches.
        let one = if at < switches { at } else { dice.between(0, switches - 1) };
        let other =
            if at < switches { dice.between(0, at - 1) } else { dice.between(0, switches - 1) };
        if one == other {
            continue;
        }
        let (links, delay) = (dice.between(1, 2), dice.spread(50.0, 10_000.0));
        let rate = rate * dice.pick(&[0.25, 0.5, 1.0, 2.0]);
        let _ = writeln!(
            text,
            "  {{ between = [\"s{one}\", \"s{other}\"], count = {links}, link = {{ rate_gbps = {rate}, delay_ns = {delay:.3} }} }},"
        );
    }
    text += "]\n";
    Hosts { text, count, is_tree: false }
}

/// Switches that balance by flowlets, or that pause senders. Pauses can hold each other up for ever where links form rings,
/// as in any such network, so that only trees have them.
fn switches(dice: &mut Dice, can_pause: bool) -> String {
    match dice.between(0, 19) {
        0 | 1 => {
            let gap = dice.spread(0.5, 100.0);
            format!("[switches]\nbalancing = \"flowlet\"\nflowlet_gap_us = {gap:.3}\n")
        }
        2 | 3 if can_pause => {
            let xoff = dice.between(10_000, 60_000);
            let xon = xoff - dice.between(1_000, 9_000);
            let pfc = dice.pick(&[
                "alpha = 0.005".to_owned(),
                format!("xoff = {{ bytes = {xoff} }}, xon = {{ bytes = {xon} }}"),
            ]);
            format!("[switches]\npfc = {{ memory = {{ us = 400 }}, {pfc} }}\n")
        }
        _ => String::new(),
    }
}

fn engines(dice: &mut Dice) -> String {
    let name = dice.pick(&[NAMES, BASELINES].concat());
    let name = match profiles(name) {
        [] => name.to_owned(),
        profiles => format!("{name}:{}", dice.pick(profiles)),
    };
    let paths = dice.pick(&[1, 2, 4, 8, 16, 64, 256]);
    let rto = dice.pick(&[20, 50, 100, 1_000]);
    let (base_known, warm) = (dice.chance(0.7), dice.chance(0.4));
    format!(
        "[engines]\nscheme = \"{name}\"\npaths = {paths}\nrto_min_us = {rto}\nbase_known = {base_known}\nwarm = {warm}\n"
    )
}

/// The length of a message.
fn bytes(dice: &mut Dice) -> u64 {
    let most = dice.pick(&[1.0, 5_000.0, 60_000.0, 300_000.0]);
    dice.spread(1.0, most) as u64
}

fn work(dice: &mut Dice, hosts: u64) -> String {
    let mut text = String::new();
    for _ in 0..dice.between(1, 2) {
        text += "[[work]]\n";
        if dice.chance(0.5) {
            text += &flows(dice, hosts);
        } else {
            text += &pattern(dice, hosts);
        }
    }
    text
}

/// Messages at random, some of which wait for others.
fn flows(dice: &mut Dice, hosts: u64) -> String {
    let mut text = "flows = [\n".to_owned();
    let mut ends: Vec<(u64, u64)> = Vec::new();
    for at in 0..dice.between(1, 12) {
        let (mut from, len) = (dice.between(0, hosts - 1), bytes(dice));
        let mut after = String::new();
        if at > 0 && dice.chance(0.4) {
            let first = dice.index(ends.len());
            from = ends[first].1;
            after = format!(", after = {first}");
        }
        let to = (from + dice.between(1, hosts - 1)) % hosts;
        let start = if dice.chance(0.5) { 0.0 } else { dice.unit() * BEGIN_US };
        let _ = writeln!(
            text,
            "  {{ from = {from}, to = {to}, bytes = {len}, start_us = {start:.3}{after} }},"
        );
        ends.push((from, to));
    }
    text + "]\n"
}

fn pattern(dice: &mut Dice, hosts: u64) -> String {
    let (len, most) = (bytes(dice), hosts - 1);
    let start = dice.pick(&[0, 1_000, 100_000]);
    match dice.between(0, 3) {
        0 => format!(
            "pattern = {{ pattern = \"permutation\", message_bytes = {len}, start_spread_ns = {start} }}\n"
        ),
        1 => format!(
            "pattern = {{ pattern = \"incast\", message_bytes = {len}, senders = {}, start_spread_ns = {start} }}\n",
            dice.between(1, most)
        ),
        2 => format!(
            "pattern = {{ pattern = \"all-to-all\", message_bytes = {}, window_messages = {}, start_spread_ns = {start} }}\n",
            len / most + 1,
            dice.between(1, most)
        ),
        _ => {
            // The other algorithms reduce and gather for some numbers of hosts alone.
            let (operation, algorithm) = dice.pick(&[
                ("all-reduce", "ring"),
                ("all-reduce", "halving-doubling"),
                ("all-reduce", "double-tree"),
                ("reduce-scatter", "ring"),
                ("all-gather", "ring"),
            ]);
            let (len, reduce) = (len.max(hosts), dice.pick(&[0.0, 10.0, 1_000.0]));
            format!(
                "pattern = {{ pattern = \"collective\", operation = \"{operation}\", algorithm = \"{algorithm}\", data_bytes = {len}, reduce_ps_per_byte = {reduce} }}\n"
            )
        }
    }
}

/// The part of the file that says what breaks, and how long the run may take.
struct Failures {
    text: String,
    limit_ms: u64,
}

/// How a link is named: its ends, and which of parallel ones it is.
fn name_of(plan: &Blueprint, link: LinkId) -> String {
    let node = |node: NodeId| match node.0.checked_sub(plan.hosts()) {
        Some(switch) => format!("s{switch}"),
        None => format!("h{}", node.0),
    };
    let this = &plan.links()[link.0 as usize];
    let before = plan.links_of(this.from).start..link.0;
    let which = before.filter(|at| plan.links()[*at as usize].to == this.to).count();
    format!("link = [\"{}\", \"{}\"]\nwhich = {which}", node(this.from), node(this.to))
}

fn failures(dice: &mut Dice, plan: &Blueprint) -> Failures {
    if dice.chance(0.03) {
        return cut_off(dice, plan);
    }
    let for_ever = dice.chance(0.15);
    let mut text = String::new();
    for _ in 0..dice.between(0, LINKS_MAX) {
        let link = name_of(plan, LinkId(dice.index(plan.links().len()) as u32));
        let both = dice.chance(0.6);
        let mut note = |at: f64, health: &str| {
            let _ = writeln!(
                text,
                "[[failures]]\n{link}\nboth_ways = {both}\nat_us = {at:.3}\nhealth = {health}"
            );
        };
        let mut at = if dice.chance(0.2) { 0.0 } else { dice.unit() * BEGIN_US };
        for _ in 0..dice.pick(&[1, 1, 1, 2, 5]) {
            note(at, &health(dice));
            at += dice.spread(1.0, 2_000.0);
            if !(for_ever && dice.chance(0.5)) {
                note(at, "\"up\"");
                at += dice.spread(1.0, 200.0);
            }
        }
    }
    Failures { text, limit_ms: 20_000 }
}

fn health(dice: &mut Dice) -> String {
    match dice.between(0, 4) {
        0 | 1 => "\"dead\"".to_owned(),
        2 => format!("{{ slowed = {} }}", dice.between(2, 50)),
        3 => format!("{{ lossy = {:.4} }}", dice.spread(0.0005, 0.3)),
        _ => format!("{{ lossy = {:.4} }}", dice.spread(0.3, 1.0)),
    }
}

/// The link of a host is dead from the beginning on, one way or both.
fn cut_off(dice: &mut Dice, plan: &Blueprint) -> Failures {
    let host = dice.index(plan.hosts() as usize) as u32;
    let link = name_of(plan, LinkId(plan.links_of(NodeId(host)).start));
    let (both, limit_ms) = (dice.chance(0.5), dice.pick(&[20, 8_000]));
    let text = format!("[[failures]]\n{link}\nboth_ways = {both}\nat_us = 0\nhealth = \"dead\"\n");
    Failures { text, limit_ms }
}
