//! The networks of the seeds.

use super::dice::Dice;
use erd_sim::fabric::blueprint::NodeId;
use std::fmt::Write;

/// What kind of network it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Tree,
    Graph,
    Dragonfly,
    Rail,
}

impl Kind {
    /// Whether senders choose the way.
    pub fn is_told(self) -> bool {
        matches!(self, Kind::Dragonfly | Kind::Rail)
    }
}

/// A network's part of the file, and how many hosts it has.
pub struct Network {
    pub text: String,
    pub hosts: u64,
    pub kind: Kind,
    /// The letters of its nodes' names, in the order of the nodes, and how many nodes each stands for.
    letters: Vec<(char, u64)>,
}

impl Network {
    fn new(kind: Kind, hosts: u64, text: String) -> Network {
        Network { text, hosts, kind, letters: vec![('h', hosts), ('s', u64::MAX)] }
    }

    /// A node's name.
    pub fn name_of(&self, node: NodeId) -> String {
        let mut number = u64::from(node.0);
        for (letter, count) in &self.letters {
            if number < *count {
                return format!("{letter}{number}");
            }
            number -= count;
        }
        unreachable!("every node has a letter")
    }
}

/// A network whose hosts' links have a rate in Gb/s.
pub fn network(dice: &mut Dice, rate: f64) -> Network {
    match dice.between(0, 19) {
        0..10 => tree(dice, rate),
        10..15 => graph(dice, rate),
        15..18 => dragonfly(dice, rate),
        _ => rail(dice, rate),
    }
}

/// A tree of up to three tiers, with any number of links upwards and other rates further up.
fn tree(dice: &mut Dice, rate: f64) -> Network {
    let tiers = dice.between(1, 3);
    let hashed = dice.chance(0.8);
    let mut text = format!("[topology.tree]\nhashed = {hashed}\ntiers = [\n");
    let mut hosts = 1;
    let mut bundle = 1;
    for tier in 1..=tiers {
        let children = dice.between(2, if tier == 1 { 4 } else { 3 });
        hosts *= children;
        let above = dice.between(1, 2);
        let up = if tier < tiers { above * dice.between(1, 3) } else { 0 };
        let _ =
            write!(text, "  {{ children = {children}, links_per_child = {bundle}, links_up = {up}");
        if tier > 1 {
            let _ = write!(text, ", links = {{ rate_gbps = {} }}", rate * part(dice));
        }
        text += " },\n";
        bundle = above;
    }
    text += "]\n";
    Network::new(Kind::Tree, hosts, text)
}

/// How much faster other links are than those of hosts.
fn part(dice: &mut Dice) -> f64 {
    dice.pick(&[0.25, 0.5, 1.0, 2.0])
}

/// What some links are like, that have a rate and a delay of their own.
fn link(dice: &mut Dice, rate: f64) -> String {
    let (rate, delay) = (rate * part(dice), dice.spread(50.0, 10_000.0));
    format!("{{ rate_gbps = {rate}, delay_ns = {delay:.3} }}")
}

/// Switches joined at random, with other rates and delays. Ways of as many links may differ in both.
fn graph(dice: &mut Dice, rate: f64) -> Network {
    let (hosts, switches) = (dice.between(2, 8), dice.between(1, 5));
    let names = |kind: &str, count: u64| {
        (0..count).map(|at| format!("\"{kind}{at}\"")).collect::<Vec<_>>().join(", ")
    };
    let hashed = dice.chance(0.8);
    let mut text = format!("[topology.graph]\nhashed = {hashed}\n");
    let _ = writeln!(text, "hosts = [{}]", names("h", hosts));
    let _ = writeln!(text, "switches = [{}]\nlinks = [", names("s", switches));
    for host in 0..hosts {
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
        let (links, link) = (dice.between(1, 2), link(dice, rate));
        let _ = writeln!(
            text,
            "  {{ between = [\"s{one}\", \"s{other}\"], count = {links}, link = {link} }},"
        );
    }
    text += "]\n";
    Network::new(Kind::Graph, hosts, text)
}

fn dragonfly(dice: &mut Dice, rate: f64) -> Network {
    let (groups, switches) = (dice.between(1, 4), dice.between(1, 3));
    let hosts = dice.between(if groups * switches == 1 { 2 } else { 1 }, 2);
    // Those of a group reach every other group equally often.
    let fits = |links: &u64| groups > 1 && (switches * links).is_multiple_of(groups - 1);
    let fitting: Vec<u64> = (1..=4).filter(fits).collect();
    let global_links = if fitting.is_empty() { 0 } else { dice.pick(&fitting) };
    let text = format!(
        "[topology.dragonfly]\ngroups = {groups}\nswitches = {switches}\nhosts = {hosts}\n\
         global_links = {global_links}\nhashed = {}\nlocal = {}\nglobal = {}\n",
        dice.chance(0.3),
        link(dice, rate),
        link(dice, rate),
    );
    Network::new(Kind::Dragonfly, groups * switches * hosts, text)
}

fn rail(dice: &mut Dice, rate: f64) -> Network {
    let servers = dice.between(1, 3);
    let gpus = dice.between(if servers == 1 { 2 } else { 1 }, 4);
    let text = format!(
        "[topology.rail]\nservers = {servers}\ngpus = {gpus}\nhashed = {}\nnvlink = {}\nrail = {}\n",
        dice.chance(0.3),
        link(dice, rate),
        link(dice, rate),
    );
    let hosts = servers * gpus;
    let letters = vec![('h', hosts), ('g', hosts), ('n', servers), ('r', gpus)];
    Network { letters, ..Network::new(Kind::Rail, hosts, text) }
}
