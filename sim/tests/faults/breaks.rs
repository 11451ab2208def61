//! What breaks in the seeds, and when.

use super::dice::Dice;
use super::networks::Network;
use erd_sim::fabric::blueprint::{Blueprint, NodeId};
use erd_sim::ids::LinkId;
use std::fmt::Write;

/// Links that change, at most, without those that change together.
const LINKS_MAX: u64 = 6;
/// Links begin to fail within this time.
pub const BEGIN_US: f64 = 300.0;

/// The part of the file that says what breaks, and how long the run may take.
pub struct Failures {
    pub text: String,
    pub limit_ms: u64,
}

/// How a link is named: its ends, and which of parallel ones it is.
fn name_of(plan: &Blueprint, network: &Network, link: LinkId) -> String {
    let this = &plan.links()[link.0 as usize];
    let before = plan.links_of(this.from).start..link.0;
    let which = before.filter(|at| plan.links()[*at as usize].to == this.to).count();
    let [from, to] = [this.from, this.to].map(|node| network.name_of(node));
    format!("link = [\"{from}\", \"{to}\"]\nwhich = {which}")
}

pub fn failures(dice: &mut Dice, plan: &Blueprint, network: &Network) -> Failures {
    if dice.chance(0.03) {
        return cut_off(dice, plan, network);
    }
    let for_ever = dice.chance(0.15);
    let mut text = String::new();
    if plan.rerouting().is_some() && dice.chance(0.5) {
        text += &dead_for_ever(dice, plan, network);
    }
    for _ in 0..dice.between(0, LINKS_MAX) {
        let link = name_of(plan, network, LinkId(dice.index(plan.links().len()) as u32));
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
    if dice.chance(0.05) {
        text += &many(dice);
    }
    Failures { text, limit_ms: 20_000 }
}

fn health(dice: &mut Dice) -> String {
    match dice.between(0, 7) {
        0 | 1 => "\"dead\"".to_owned(),
        2 => format!("{{ slowed = {} }}", dice.between(2, 50)),
        3 => format!("{{ lossy = {:.4} }}", dice.spread(0.0005, 0.3)),
        4 => format!("{{ lossy = {:.4} }}", dice.spread(0.3, 1.0)),
        // Of a hundred thousand packets one, or almost all.
        5 => format!("{{ corrupt = {:.12} }}", dice.spread(3e-10, 1e-4)),
        _ => {
            let (down, up) = (dice.spread(0.1, 500.0), dice.spread(0.1, 500.0));
            let times = dice.pick(&[1, 3, 20]);
            format!("{{ flaps = {{ down_us = {down:.3}, up_us = {up:.3}, times = {times} }} }}")
        }
    }
}

/// A link between switches that dies and stays dead: only that shows whether switches lead packets around it.
fn dead_for_ever(dice: &mut Dice, plan: &Blueprint, network: &Network) -> String {
    let of_switches = |link: &u32| {
        let link = &plan.links()[*link as usize];
        link.from.0 >= plan.hosts() && link.to.0 >= plan.hosts()
    };
    let links: Vec<u32> = (0..plan.links().len() as u32).filter(of_switches).collect();
    if links.is_empty() {
        return String::new();
    }
    let (link, at) = (name_of(plan, network, LinkId(dice.pick(&links))), dice.unit() * BEGIN_US);
    format!("[[failures]]\n{link}\nat_us = {at:.3}\nhealth = \"dead\"\n")
}

/// Many links that are not well, for some time or for ever.
fn many(dice: &mut Dice) -> String {
    let links = dice.pick(&["all", "hosts", "switches"]);
    let health = match dice.between(0, 2) {
        0 => format!("{{ slowed = {} }}", dice.between(2, 4)),
        1 => format!("{{ lossy = {:.4} }}", dice.spread(0.0005, 0.02)),
        _ => format!("{{ corrupt = {:.12} }}", dice.spread(3e-10, 1e-6)),
    };
    let at = dice.unit() * BEGIN_US;
    let mut text =
        format!("[[failures]]\nlinks = \"{links}\"\nat_us = {at:.3}\nhealth = {health}\n");
    if dice.chance(0.5) {
        let at = at + dice.spread(1.0, 2_000.0);
        let _ =
            write!(text, "[[failures]]\nlinks = \"{links}\"\nat_us = {at:.3}\nhealth = \"up\"\n");
    }
    text
}

/// The link of a host is dead from the beginning on, one way or both.
fn cut_off(dice: &mut Dice, plan: &Blueprint, network: &Network) -> Failures {
    let host = dice.index(plan.hosts() as usize) as u32;
    let link = name_of(plan, network, LinkId(plan.links_of(NodeId(host)).start));
    let (both, limit_ms) = (dice.chance(0.5), dice.pick(&[20, 8_000]));
    let text = format!("[[failures]]\n{link}\nboth_ways = {both}\nat_us = 0\nhealth = \"dead\"\n");
    Failures { text, limit_ms }
}
