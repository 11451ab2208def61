//! What every run must keep to, whatever breaks.

use super::accounts;
use super::draw::Drawn;
use super::due::{Due, Expected, due, keeps_order};
use super::samples::Samples;
use erd_sim::compare::bound_of;
use erd_sim::experiment::{Experiment, FlowResult, Observer, Results, Unfinished};
use erd_sim::fabric::Fabric;
use erd_sim::fabric::blueprint::{Blueprint, NodeId};
use erd_sim::link::{LinkCounters, NodeCounters};
use erd_sim::patterns::bound::Bound;
use erd_sim::read::scenario::Prepared;
use erd_sim::time::{PS_PER_NS, PS_PER_S, Picos, from_ns};
use erd_sim::transport::Protocol;
use erd_sim::wire::Wire;
use erd_sim::work::{Flow, Work};
use std::collections::{BTreeMap, BTreeSet};

/// Looks at the balance between two of them are so many slices of the run apart.
const LOOKS: u64 = 16;

/// An engine that hears nothing gives up within this time.
const GIVES_UP_PS: Picos = from_ns(8_000_000_000);

/// What came of a seed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    pub events: u64,
    pub messages: u64,
    pub links: LinkCounters,
    pub nodes: NodeCounters,
    /// Runs that ended with an error.
    pub ended: u64,
    pub error: String,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.messages += other.messages;
        self.links.add(&other.links);
        self.nodes.no_route += other.nodes.no_route;
        self.nodes.ring_drops += other.nodes.ring_drops;
        self.ended += other.ended;
    }
}

/// How a scenario is run. Its results depend on nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    pub threads: usize,
    /// Samples are taken meanwhile.
    pub sampled: bool,
}

impl How {
    pub const PLAIN: How = How { threads: 1, sampled: false };
}

/// Looks at a run.
#[derive(Default)]
struct Watch {
    flows: Vec<Flow>,
    slices: u64,
    limit_ps: Picos,
    counters: LinkCounters,
    nodes: NodeCounters,
    events: u64,
    samples: Option<Samples>,
}

impl Observer for Watch {
    fn begin(&mut self, fabric: &mut Fabric, flows: &[Flow], begin: Picos) {
        self.flows = flows.to_vec();
        self.limit_ps += begin;
        if let Some(samples) = &mut self.samples {
            samples.begin(fabric, flows, begin);
        }
    }

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        match &mut self.samples {
            Some(samples) => samples.run_until(fabric, end),
            None => fabric.run_until(end),
        }
        self.slices += 1;
        if self.slices.is_multiple_of(LOOKS) || end >= self.limit_ps {
            self.look(fabric);
        }
    }
}

impl Watch {
    /// The counters add up, and no message has more bytes than it is long, or is done with fewer. What was acknowledged and has not
    /// arrived is held.
    fn look(&mut self, fabric: &Fabric) {
        accounts::look(fabric);
        let mut unplaced_bytes: BTreeMap<_, u64> = BTreeMap::new();
        for flow in &self.flows {
            let (from, to) = (fabric.host(flow.from), fabric.host(flow.to));
            let placed = to.placed_bytes(flow.receive);
            assert!(placed <= flow.bytes, "{placed} bytes of {flow:?} were placed");
            let (sent, received) = (from.times(flow.send), to.times(flow.receive));
            // What ends with an error is done, too.
            if from.failures() + to.failures() > 0 {
                continue;
            }
            if received.arrived < Picos::MAX {
                assert_eq!(placed, flow.bytes, "{flow:?} has arrived");
            } else if sent.done < Picos::MAX {
                *unplaced_bytes.entry(flow.to).or_default() += flow.bytes - placed;
            }
        }
        for (host, unplaced_bytes) in unplaced_bytes {
            let held_bytes = fabric.host(host).held_bytes();
            assert!(
                unplaced_bytes <= held_bytes,
                "{unplaced_bytes} of {held_bytes} held at {host:?}"
            );
        }
        (self.counters, self.events) = (accounts::all_links(fabric), fabric.events());
        self.nodes = fabric.node_counters();
    }
}

/// Of so many seeds one runs on several threads, too, and one while samples are taken, unless it has more events than this:
/// threads meet after each delay of the shortest link.
const TWICE: u64 = 8;
const TWICE_EVENTS_MAX: u64 = 30_000;

/// Runs the scenario of a seed and judges it. Some of them run once more in another way.
///
/// # Panics
/// The run broke a rule.
pub fn seed(drawn: &Drawn, seed: u64) -> Report {
    let (report, ended) = run(drawn, How::PLAIN);
    change_nothing(drawn, &ended);
    let again = match seed % TWICE {
        0 => How { threads: 2 + (seed / TWICE % 3) as usize, ..How::PLAIN },
        1 => How { sampled: true, ..How::PLAIN },
        _ => return report,
    };
    if report.events <= TWICE_EVENTS_MAX {
        assert_eq!(run(drawn, again).1, ended, "{again:?} gave another run");
    }
    report
}

/// Settings that change nothing. Where no packet can overtake another, hosts may take as long as they like for packets out
/// of order. Without a frame, it is all one whether there are information paths.
fn change_nothing(drawn: &Drawn, ended: &Result<Results, Unfinished>) {
    let Prepared { plan, engines, .. } = drawn.prepare();
    let other = drawn.with_free_reordering().filter(|_| keeps_order(&plan, &engines));
    if let Some(other) = other {
        assert_eq!(run(&other, How::PLAIN).1, *ended, "packets in order took longer");
    }
    let is_empty = ended.as_ref().is_ok_and(|results| results.frames.frames == 0);
    if let Some(other) = drawn.without_info_path().filter(|_| is_empty) {
        assert_eq!(run(&other, How::PLAIN).1, *ended, "empty streams changed something");
    }
}

/// Runs a scenario and judges it.
///
/// # Panics
/// The run broke a rule.
pub fn run(drawn: &Drawn, how: How) -> (Report, Result<Results, Unfinished>) {
    let prepared = drawn.prepare();
    let bound = bound_of(&prepared);
    let Prepared { plan, work, engines, failures, seed, limit_ps, .. } = prepared;
    let Expected { due, may_wait, .. } = due(&plan, work.flows(), &engines, &failures);
    let known: Vec<Known> = work.flows().iter().map(|flow| Known::of(&plan, &work, flow)).collect();
    let samples = how.sampled.then(Samples::default);
    // An engine acknowledges a message once it is there, and hands it over once those before it are there, too.
    let has_turns = engines.protocol == Protocol::Erd;
    let mut watch = Watch { samples, limit_ps, ..Watch::default() };
    let experiment = Experiment { plan, work, engines, seed, threads: how.threads };
    let ended = experiment.run_observed(limit_ps, &failures, &mut watch);
    let mut report = Report { messages: known.len() as u64, ..Report::default() };
    let ended = ended.map(|(results, mut fabric)| {
        watch.look(&fabric);
        assert_ne!(due, Due::Fails, "messages arrived over dead links");
        judge(&results, &fabric, &known, &bound, has_turns);
        accounts::look_at_results(&fabric, &results);
        if let Some(samples) = watch.samples.take() {
            samples.judge(&mut fabric);
        }
        accounts::look_at_rest(&mut fabric);
        accounts::look_for_drops(&fabric, &failures);
        results
    });
    (report.links, report.nodes, report.events) = (watch.counters, watch.nodes, watch.events);
    if let Err(error) = &ended {
        assert_ne!(due, Due::Arrives, "{error}");
        let hangs = matches!(error, Unfinished::Late { .. }) && limit_ps >= GIVES_UP_PS;
        assert!(may_wait || !hangs, "a host did not give up: {error}");
        (report.ended, report.error) = (1, error.to_string());
    }
    (report, ended)
}

/// What is known of a message before the run.
struct Known {
    least_ps: Picos,
    /// When it begins, from the beginning of the work on, if it waits for no other task.
    begins: Option<Picos>,
}

impl Known {
    fn of(plan: &Blueprint, work: &Work, flow: &Flow) -> Known {
        let task = &work.tasks(flow.from)[flow.send.0 as usize];
        let begins = (task.needs == 0).then_some(task.not_before);
        Known { least_ps: least_ps(plan, flow), begins }
    }
}

/// All messages have arrived whole and once, none sooner than it can.
fn judge(results: &Results, fabric: &Fabric, known: &[Known], bound: &Bound, has_turns: bool) {
    assert_eq!(results.flows.len(), known.len());
    let failures: u64 = fabric.hosts().map(|host| host.failures()).sum();
    assert_eq!(failures, 0, "operations ended with an error, and nobody was told");
    let held_bytes: u64 = fabric.hosts().map(|host| host.held_bytes()).sum();
    assert_eq!(held_bytes, 0, "the turn of all has come");
    // What an engine writes into a head costs nothing there, so that short messages take no time for their bytes.
    let plan = fabric.plan();
    let is_exact = plan.wire() == Wire::Ethernet;
    let mut sum = 0;
    for ((result, known), bound) in results.flows.iter().zip(known).zip(&bound.flows_ps) {
        let FlowResult { flow, began, arrived, acknowledged } = *result;
        assert!(began <= arrived && arrived < Picos::MAX, "{result:?}");
        assert!(arrived <= acknowledged || has_turns, "{result:?}");
        assert!(began <= acknowledged && acknowledged < Picos::MAX, "{result:?}");
        assert_eq!(fabric.host(flow.to).placed_bytes(flow.receive), flow.bytes, "{result:?}");
        let took = result.completion_ps();
        let Known { least_ps: least, begins } = *known;
        let least = if is_exact { least.max(*bound) } else { least };
        assert!(took >= least, "{result:?} took {took} ps, and needs {least}");
        // A host that has just acted begins up to a nanosecond late. The bound of the mean counts from the time in the work.
        let given =
            begins.map_or(began, |at| (results.begin + at).max(began.saturating_sub(PS_PER_NS)));
        assert!(given <= began, "{result:?} began before {given}");
        sum += u128::from(arrived - given);
    }
    let mean = sum / results.flows.len().max(1) as u128;
    let end = results.flows.iter().map(|flow| flow.arrived).max().unwrap_or(0) - results.begin;
    if is_exact {
        assert!(mean >= bound.mean_ps.into(), "a mean of {mean} ps below {bound:?}");
    }
    // The bound gives each message packets of its own, and an engine puts several short ones into one.
    let bundles = |flow: &FlowResult| flow.flow.bytes < u64::from(plan.wire().payload_bytes());
    if is_exact && !results.flows.iter().any(bundles) {
        assert!(end >= bound.whole_ps, "all arrived after {end} ps, before {bound:?}");
    }
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
    let rate = uplink.bytes_per_s.filter(|_| plan.wire() == Wire::Ethernet).unwrap_or(u64::MAX);
    reached[flow.to.0 as usize]
        + (u128::from(flow.bytes) * u128::from(PS_PER_S) / u128::from(rate)) as Picos
}
