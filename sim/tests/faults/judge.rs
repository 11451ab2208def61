//! What every run must keep to, whatever breaks.

use super::draw::Drawn;
use erd_sim::experiment::{Experiment, Failure, FlowResult, Observer, Results, Unfinished};
use erd_sim::fabric::Fabric;
use erd_sim::fabric::blueprint::{Blueprint, NodeId};
use erd_sim::fabric::least::LeastTimes;
use erd_sim::hop::Hop;
use erd_sim::ids::{HostId, LinkId};
use erd_sim::link::{Health, LinkCounters};
use erd_sim::patterns::bound::Bound;
use erd_sim::read::scenario::Prepared;
use erd_sim::time::{PS_PER_S, Picos};
use erd_sim::topology::SEGMENT_WIRE_BYTES;
use erd_sim::work::Flow;
use std::collections::BTreeSet;

/// A link that loses no more than this counts as one that works.
const LOSSY_MAX: f64 = 0.3;
/// Messages must arrive where this share of the path numbers works in both directions. Where fewer do, they may also end
/// with an error: hellos take turns over all paths, and a few dozen are sent before an engine gives up.
const GOOD_SHARE: f64 = 0.5;
/// Looks at the balance between two of them are so many slices of the run apart.
const LOOKS: u64 = 16;

/// What came of a seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    pub events: u64,
    pub messages: u64,
    pub links: LinkCounters,
    /// Runs that ended with an error.
    pub ended: u64,
    pub error: String,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.messages += other.messages;
        self.links.add(&other.links);
        self.ended += other.ended;
    }
}

/// What must come of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// Everything arrives.
    Arrives,
    /// Something cannot arrive.
    Fails,
    /// Either.
    Either,
}

/// Looks at a run.
#[derive(Default)]
struct Watch {
    begin: Picos,
    flows: Vec<Flow>,
    slices: u64,
    counters: LinkCounters,
    events: u64,
}

impl Observer for Watch {
    fn begin(&mut self, _: &mut Fabric, flows: &[Flow], begin: Picos) {
        (self.flows, self.begin) = (flows.to_vec(), begin);
    }

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        fabric.run_until(end);
        self.slices += 1;
        if self.slices.is_multiple_of(LOOKS) {
            self.look(fabric);
        }
    }
}

impl Watch {
    /// Each packet that left a host has arrived, was dropped, or is under way. No message has more bytes than it is long.
    fn look(&mut self, fabric: &Fabric) {
        let plan = fabric.plan();
        let mut all = LinkCounters::default();
        let mut sent = 0;
        for (at, link) in (0..).zip(plan.links()) {
            let counters = fabric.counters(LinkId(at));
            all.add(&counters);
            sent += if link.from.0 < plan.hosts() { counters.offered } else { 0 };
        }
        let stats = fabric.hosts().filter_map(|host| Some(host.endpoint()?.stats()));
        let taken: u64 = stats
            .map(|stats| stats.rx_data + stats.rx_control + stats.drops.iter().sum::<u64>())
            .sum();
        let under_way = fabric.packets_under_way() as u64;
        assert_eq!(
            sent,
            taken + all.drops + all.lost + under_way,
            "packets sent; {taken} taken, {under_way} under way, {all:?}"
        );
        for flow in &self.flows {
            let placed = fabric.host(flow.to).placed_bytes(flow.receive);
            assert!(placed <= flow.bytes, "{placed} bytes of {flow:?} were placed");
        }
        (self.counters, self.events) = (all, fabric.events());
    }
}

/// Runs a scenario and judges it.
///
/// # Panics
/// The run broke a rule.
pub fn run(drawn: &Drawn, threads: usize) -> (Report, Result<Results, Unfinished>) {
    let Prepared { plan, work, link, cuts, engines, failures, seed, limit_ps } = drawn.prepare();
    // A flow whose scheme keeps to one path stays on it, even if it is dead. Flowlets go wherever the switches send them.
    let keeps = ["single", "plb"].contains(&(engines.scheme)().name());
    let wanders = drawn.0.contains("flowlet");
    let good_share = if keeps || wanders { 1.0 } else { GOOD_SHARE };
    let due = match due(&plan, work.flows(), &failures, (engines.paths, good_share)) {
        Due::Fails if wanders => Due::Either,
        due => due,
    };
    let times = LeastTimes::new(&plan);
    let bound = Bound::within(&work, &link, &cuts, |from, to, bytes| times.ps(from, to, bytes));
    let least: Vec<Picos> = work.flows().iter().map(|flow| least_ps(&plan, flow)).collect();
    let mut watch = Watch::default();
    let experiment = Experiment { plan, work, engines, seed, threads };
    let ended = experiment.run_observed(limit_ps, &failures, &mut watch);
    let mut report = Report { messages: least.len() as u64, ..Report::default() };
    let ended = ended.map(|(results, fabric)| {
        watch.look(&fabric);
        assert_ne!(due, Due::Fails, "messages arrived over dead links");
        judge(&results, &fabric, &least, &bound);
        results
    });
    (report.links, report.events) = (watch.counters, watch.events);
    if let Err(error) = &ended {
        assert_ne!(due, Due::Arrives, "{error}");
        (report.ended, report.error) = (1, error.to_string());
    }
    (report, ended)
}

/// All messages have arrived whole and once, none sooner than it can.
fn judge(results: &Results, fabric: &Fabric, least: &[Picos], bound: &Bound) {
    assert_eq!(results.flows.len(), least.len());
    let failures: u64 = fabric.hosts().map(|host| host.failures()).sum();
    assert_eq!(failures, 0, "operations ended with an error, and nobody was told");
    let mut sum = 0;
    for (result, least) in results.flows.iter().zip(least) {
        let FlowResult { flow, began, arrived, acknowledged } = *result;
        assert!(began <= arrived && arrived <= acknowledged, "{result:?}");
        assert!(acknowledged < Picos::MAX, "{result:?}");
        assert_eq!(fabric.host(flow.to).placed_bytes(flow.receive), flow.bytes, "{result:?}");
        let took = result.completion_ps();
        assert!(took >= *least, "{result:?} took {took} ps, and needs {least}");
        sum += u128::from(took);
    }
    let mean = sum / results.flows.len().max(1) as u128;
    assert!(mean >= bound.mean_ps.into(), "a mean of {mean} ps below {bound:?}");
    let end = results.flows.iter().map(|flow| flow.arrived).max().unwrap_or(0) - results.begin;
    assert!(results.critical.whole_ps >= end, "{:?} ended at {end}", results.critical);
    let path = &results.critical;
    assert_eq!(path.whole_ps, path.compute_ps + path.network_ps + path.idle_ps, "{path:?}");
}

/// Least time of a message: its bytes on its sender's link, and the shortest delays on the way.
fn least_ps(plan: &Blueprint, flow: &Flow) -> Picos {
    let mut reached = vec![Picos::MAX; plan.nodes() as usize];
    let mut open = BTreeSet::from([(0, flow.from.0)]);
    while let Some((at, node)) = open.pop_first() {
        if reached[node as usize] <= at {
            continue;
        }
        reached[node as usize] = at;
        for link in plan.links_of(NodeId(node)) {
            let link = &plan.links()[link as usize];
            open.insert((at + link.config.propagation_ps, link.to.0));
        }
    }
    let uplink = &plan.links()[plan.links_of(NodeId(flow.from.0)).start as usize].config;
    let rate = uplink.bytes_per_s.unwrap_or(u64::MAX);
    reached[flow.to.0 as usize]
        + (u128::from(flow.bytes) * u128::from(PS_PER_S) / u128::from(rate)) as Picos
}

/// What must come of messages, by how links do in the end.
fn due(
    plan: &Blueprint,
    flows: &[Flow],
    failures: &[Failure],
    (paths, good_share): (u16, f64),
) -> Due {
    let links = plan.links().len();
    // Whether a link works in the end, and whether it was dead all the time.
    let (mut works, mut dead) = (vec![true; links], vec![false; links]);
    for Failure { at, link, health } in failures {
        let link = link.0 as usize;
        works[link] = match health {
            Health::Up | Health::Slowed { .. } => true,
            Health::Lossy { share } => *share <= LOSSY_MAX,
            // Of full packets.
            Health::Corrupt { bits } => bits * 8.0 * f64::from(SEGMENT_WIRE_BYTES) <= LOSSY_MAX,
            Health::Dead => false,
        };
        dead[link] = *health == Health::Dead && (*at == 0 || dead[link]);
    }
    // Share of the path numbers whose ways there and back have no link of these: an acknowledgement goes out on the path of
    // what it acknowledges.
    let share = |flow: &Flow, bad: &dyn Fn(LinkId) -> bool| {
        let works = |path: u16, from: HostId, to: HostId| {
            let way = plan.way(&Hop { path, ..Hop::probe(from, to, 100) });
            !way.iter().any(|link| bad(*link))
        };
        let both =
            |path: &u16| works(*path, flow.from, flow.to) && works(*path, flow.to, flow.from);
        (0..paths).filter(both).count() as f64 / f64::from(paths)
    };
    let mut due = Due::Arrives;
    for flow in flows {
        let always_dead = |link: LinkId| dead[link.0 as usize];
        let hosts = [flow.from, flow.to].map(|host| NodeId(host.0));
        // A host's only link: no path avoids it.
        let cut_off = (0..)
            .zip(plan.links())
            .any(|(at, link)| dead[at] && (hosts.contains(&link.from) || hosts.contains(&link.to)));
        if cut_off {
            return Due::Fails;
        }
        let fails = |link: LinkId| !works[link.0 as usize];
        if share(flow, &always_dead) == 0.0 || share(flow, &fails) < good_share {
            due = Due::Either;
        }
    }
    due
}
