//! What must come of messages, by how links do in the end.

use erd_sim::experiment::{Engines, Failure};
use erd_sim::fabric::blueprint::{Blueprint, LinkPlan, NodeId, Routes, SwitchPlan};
use erd_sim::fabric::receiver::Receivers;
use erd_sim::hop::Hop;
use erd_sim::ids::{HostId, LinkId};
use erd_sim::link::{Health, LinkConfig};
use erd_sim::time::{Picos, serialization_ps};
use erd_sim::topology::SEGMENT_WIRE_BYTES;
use erd_sim::transport::Protocol;
use erd_sim::work::Flow;

/// A link that loses no more than this counts as one that works.
const LOSSY_MAX: f64 = 0.3;
/// Messages must arrive where this share of the path numbers works in each direction, the same numbers or others. Where
/// fewer do, they may also end with an error: hellos take turns over all paths, and a few dozen are sent before an engine
/// gives up.
const GOOD_SHARE: f64 = 0.5;
/// Links that trim still work for a steady sender ([`is_steady`]) if no more than so many times what they carry comes to
/// them. Beyond that, headers of trimmed packets, which go first, may leave no room for data.
const TRIMMED_TIMES_MAX: u64 = 16;
/// Path numbers that stand for all, of which a RoCEv2 queue pair has any: among so many, each way of a small network is
/// taken.
const ALL_PATHS: u16 = 1024;

/// What must come of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Everything arrives.
    Arrives,
    /// Something cannot arrive, as nothing comes to a host or from it.
    Fails,
    /// Either.
    Either,
}

/// What must come of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    pub due: Due,
    /// Some hosts may neither get a message nor give it up.
    pub may_wait: bool,
    /// Hosts may send all the time, and nothing arrives.
    pub may_send_on: bool,
}

/// Whether links work in the end, and whether they were dead all the time.
struct Ends {
    works: Vec<bool>,
    /// Headers of trimmed packets may leave no room for data.
    starved: Vec<bool>,
    dead_in_the_end: Vec<bool>,
    always_dead: Vec<bool>,
}

/// Senders that do not slow down for trimmed packets.
fn is_steady(engines: &Engines) -> bool {
    let name = (engines.scheme)().name();
    engines.protocol != Protocol::Erd || ["erd", "spray", "single", "plb"].contains(&name)
}

impl Ends {
    fn of(plan: &Blueprint, is_steady: bool, failures: &[Failure]) -> Ends {
        let starved = |link: &LinkPlan, times| is_steady && starves(plan, link, times);
        let whole: Vec<bool> = plan.links().iter().map(|link| starved(link, 1)).collect();
        let mut ends = Ends {
            works: whole.iter().map(|starved| !starved).collect(),
            starved: whole.clone(),
            dead_in_the_end: vec![false; whole.len()],
            always_dead: vec![false; whole.len()],
        };
        for Failure { at, link, health } in failures {
            let link = link.0 as usize;
            ends.starved[link] = match health {
                Health::Slowed { times } => starved(&plan.links()[link], *times),
                Health::Dead => false,
                _ => whole[link],
            };
            let sound = match health {
                Health::Up | Health::Slowed { .. } => true,
                Health::Lossy { share } => *share <= LOSSY_MAX,
                // Of full packets.
                Health::Corrupt { bits } => bits * 8.0 * f64::from(SEGMENT_WIRE_BYTES) <= LOSSY_MAX,
                Health::Dead => false,
            };
            ends.works[link] = sound && !ends.starved[link];
            let dead = *health == Health::Dead;
            ends.dead_in_the_end[link] = dead;
            ends.always_dead[link] = dead && (*at == 0 || ends.always_dead[link]);
        }
        ends
    }
}

/// A link that is so many times slower than it was may have no room for data. Hosts send what comes to it, and no
/// more than other links bring to its switch. A host hands its own link no more than that can carry.
fn starves(plan: &Blueprint, link: &LinkPlan, times: u32) -> bool {
    let rate = |link: &LinkPlan| link.config.bytes_per_s.unwrap_or(u64::MAX);
    let sum = |links: &mut dyn Iterator<Item = &LinkPlan>| -> u64 {
        links.map(rate).fold(0, u64::saturating_add)
    };
    if !link.config.trimming || link.from.0 < plan.hosts() {
        return false;
    }
    let sent = sum(&mut plan.links().iter().filter(|other| other.from.0 < plan.hosts()));
    let others = plan.links().iter().filter(|other| other.to == link.from);
    let brought = sum(&mut others.filter(|other| other.from != link.to));
    let carried = rate(link) / u64::from(times);
    sent.min(brought) > carried.saturating_mul(TRIMMED_TIMES_MAX)
}

/// All packets from one host to another take one way, so that none overtakes another.
pub fn keeps_order(plan: &Blueprint, engines: &Engines) -> bool {
    let is_fixed = plan.flowlet_gap_ps().is_none() && plan.rerouting().is_none();
    let paths = match &engines.protocol {
        Protocol::Roce(settings) => settings.qps,
        Protocol::Eqds(settings) => settings.paths,
        Protocol::Erd => engines.paths,
    };
    is_fixed && paths == 1
}

/// Nothing marks packets before a host's ring is full, so nothing slows RoCEv2 down. Where hosts send to each other in step,
/// the ring can lose the same packets, and the acknowledgements among them, each time that they are repeated.
fn loses_in_step(plan: &Blueprint, engines: &Engines) -> bool {
    let is_bounded = |all: Receivers| all.ring_packets.is_some() || all.ring_bytes.is_some();
    matches!(engines.protocol, Protocol::Roce(_)) && plan.receivers().is_some_and(is_bounded)
}

/// A sender of RoCEv2 goes back at once for each trimmed packet. If its rate rises several times between two notifications,
/// it is soon as fast as before. Then a queue that is full of packets which the receiver does not want can cut each repeat, too.
fn goes_back_on(plan: &Blueprint, engines: &Engines) -> bool {
    let Protocol::Roce(settings) = &engines.protocol else { return false };
    let trimming = plan.links().iter().filter(|link| link.config.trimming);
    let spacings = trimming.map(|link| settings.cnp_ps.max(mark_spacing_ps(&link.config)));
    spacings.max().is_some_and(|spacing_ps| spacing_ps > 2 * settings.timer_ps)
}

/// Time between two packets that a link marks, at most: its queue cuts packets before it is so long that all are marked.
fn mark_spacing_ps(config: &LinkConfig) -> Picos {
    let Some(red) = config.red.filter(|red| red.most_ppm > 0) else { return Picos::MAX };
    let packets = u64::from(1_000_000_u32.div_ceil(red.most_ppm));
    let rate = config.bytes_per_s.unwrap_or(u64::MAX);
    packets * serialization_ps(SEGMENT_WIRE_BYTES, rate)
}

/// What must come of these messages.
pub fn due(plan: &Blueprint, flows: &[Flow], engines: &Engines, failures: &[Failure]) -> Expected {
    let ends = Ends::of(plan, is_steady(engines), failures);
    // Flowlets go wherever the switches send them.
    let wanders = plan.flowlet_gap_ps().is_some();
    let (paths, good_share) = match &engines.protocol {
        Protocol::Roce(_) => (ALL_PATHS, 1.0),
        Protocol::Eqds(settings) => (settings.paths, GOOD_SHARE),
        // A flow whose scheme keeps to one path stays on it, even if it is dead.
        Protocol::Erd if ["single", "plb"].contains(&(engines.scheme)().name()) => {
            (engines.paths, 1.0)
        }
        Protocol::Erd => (engines.paths, GOOD_SHARE),
    };
    let good_share = if wanders { 1.0 } else { good_share };
    let all_work = ends.works.iter().all(|works| *works);
    let goes_back_on = goes_back_on(plan, engines);
    let may_send_on = ends.starved.contains(&true) || goes_back_on;
    let mut expected = Expected { due: Due::Arrives, may_wait: false, may_send_on };
    for flow in flows.iter().filter(|_| !all_work) {
        let share = share(plan, &ends, (paths, engines.protocol == Protocol::Erd), flow);
        if is_cut_off(plan, flow, &ends) {
            expected.due = Due::Fails;
        } else if share < good_share && expected.due == Due::Arrives {
            expected.due = Due::Either;
        }
    }
    if expected.due == Due::Arrives && (goes_back_on || loses_in_step(plan, engines)) {
        expected.due = Due::Either;
    }
    // The baselines never give up, and an engine does not while it hears a little.
    let limps = ends.works.iter().zip(&ends.dead_in_the_end).any(|(works, dead)| !works && !dead);
    expected.may_wait |= limps || engines.protocol != Protocol::Erd;
    if wanders && expected.due == Due::Fails {
        expected.due = Due::Either;
    }
    expected
}

/// A host's only link was dead all the time: no path avoids it.
fn is_cut_off(plan: &Blueprint, flow: &Flow, ends: &Ends) -> bool {
    let hosts = [flow.from, flow.to].map(|host| NodeId(host.0));
    let links = plan.links().iter().zip(&ends.always_dead);
    links
        .filter(|(_, dead)| **dead)
        .any(|(link, _)| hosts.contains(&link.from) || hosts.contains(&link.to))
}

/// Share of the path numbers whose ways have no link that fails. erd's answers may take other paths than its questions: it
/// counts the direction in which fewer numbers work. The others' acknowledgements go out on the path of what they acknowledge.
fn share(plan: &Blueprint, ends: &Ends, (paths, is_erd): (u16, bool), flow: &Flow) -> f64 {
    let works = |path: u16, from: HostId, to: HostId| {
        let hop = Hop { path, ..Hop::probe(from, to, 100) };
        let way = match plan.rerouting() {
            Some(_) => around(plan, &ends.dead_in_the_end, &hop),
            None => Some(plan.way(&hop)),
        };
        way.is_some_and(|way| way.iter().all(|link| ends.works[link.0 as usize]))
    };
    let there = |path: &u16| works(*path, flow.from, flow.to);
    let back = |path: &u16| works(*path, flow.to, flow.from);
    let count = if is_erd {
        (0..paths).filter(there).count().min((0..paths).filter(back).count())
    } else {
        (0..paths).filter(|path| there(path) && back(path)).count()
    };
    count as f64 / f64::from(paths)
}

/// The way of a packet once all switches know of the dead links; `None` where it has no link left.
fn around(plan: &Blueprint, dead: &[bool], hop: &Hop) -> Option<Vec<LinkId>> {
    let mut way = vec![LinkId(plan.links_of(NodeId(hop.from.0)).start)];
    loop {
        let node = plan.links()[way[way.len() - 1].0 as usize].to;
        let Some(switch) = node.0.checked_sub(plan.hosts()) else { return Some(way) };
        let left: Vec<u32> = onwards(plan, node, hop.to)
            .into_iter()
            .filter(|link| is_last(plan, *link) || !dead[*link as usize])
            .filter(|link| is_last(plan, *link) || reaches(plan, dead, *link, hop.to))
            .collect();
        if left.is_empty() {
            return None;
        }
        let SwitchPlan { spread, .. } = &plan.switches()[switch as usize];
        way.push(LinkId(left[spread.pick(left.len() as u32, hop) as usize]));
    }
}

/// The link leads to a host. Its switch has no other one, and keeps to it.
fn is_last(plan: &Blueprint, link: u32) -> bool {
    plan.links()[link as usize].to.0 < plan.hosts()
}

/// Whether the switch at a link's end has a way to a host that is not dead.
fn reaches(plan: &Blueprint, dead: &[bool], link: u32, to: HostId) -> bool {
    let node = plan.links()[link as usize].to;
    onwards(plan, node, to)
        .into_iter()
        .any(|next| is_last(plan, next) || (!dead[next as usize] && reaches(plan, dead, next, to)))
}

/// The links that lead from a switch towards a host.
fn onwards(plan: &Blueprint, node: NodeId, to: HostId) -> Vec<u32> {
    let first = plan.links_of(node).start;
    let switch = &plan.switches()[(node.0 - plan.hosts()) as usize];
    match &switch.routes {
        Routes::Tree { first_host, hosts, hosts_per_child, links_per_child, links_up } => {
            let down = hosts / hosts_per_child * links_per_child;
            match to.0.checked_sub(*first_host).filter(|below| below < hosts) {
                Some(below) => {
                    let child = first + below / hosts_per_child * links_per_child;
                    (child..child + links_per_child).collect()
                }
                None => (first + down..first + down + links_up).collect(),
            }
        }
        Routes::Table { by_host, links } => {
            let (at, count) = by_host[to.0 as usize];
            links[at as usize..(at + count) as usize].iter().map(|link| first + link).collect()
        }
        Routes::Dragonfly(_) | Routes::Rail(_) => unreachable!("senders choose the way"),
    }
}
