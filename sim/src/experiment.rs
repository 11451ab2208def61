//! Work over a network, from its beginning to its end.

use crate::critical::CriticalPath;
use crate::fabric::Fabric;
use crate::fabric::blueprint::{Blueprint, NodeId};
use crate::host::SimHost;
use crate::ids::{HostId, LinkId, name_of};
use crate::info_path::{FrameCounts, InfoPathSettings};
use crate::link::{Health, LinkCounters, NodeCounters};
use crate::scenario::SchemeMaker;
use crate::schemes::{self, NameError};
use crate::time::{PS_PER_S, Picos, from_ns, serialization_ps, to_ns};
use crate::transport::eqds::EqdsHost;
use crate::transport::erd::ErdHost;
use crate::transport::roce::RoceHost;
use crate::transport::{Protocol, Repeats};
use crate::wire::{CHECKSUM_BYTES, Wire};
use crate::work::{Flow, LESSON_PARTS, Work};
use erd_rd::cc::LEARNING_SAMPLES;
use erd_rd::config::CREDIT_MAX;
use erd_rd::{Config, Endpoint, Nanos};
use std::rc::Rc;
use std::sync::Arc;

/// Time between two greetings of one host, and from the last one to the beginning.
const GREETING_PS: Picos = from_ns(1_000);
const AFTER_GREETINGS_PS: Picos = from_ns(1_000_000);
/// Packets that a flow sends before the work, for its controller to learn from: a round trip is sampled at least every second
/// packet.
const LESSON_PACKETS: u64 = 2 * LEARNING_SAMPLES as u64;
/// Round trips that learning takes, about.
const LESSON_ROUNDS: u64 = 40;
/// Simulated time between two looks whether all is done, while something happens.
const SLICE_PS: Picos = from_ns(20_000);

/// The engines of an experiment.
#[derive(Clone)]
pub struct Engines {
    /// What they speak. The other settings are erd's.
    pub protocol: Protocol,
    /// Congestion control.
    pub scheme: SchemeMaker,
    /// Path numbers (entropies) that they spray over.
    pub paths: u16,
    /// Shortest retransmission timeout and scan spacing.
    pub rto_min_ns: Nanos,
    /// They are told the base round trip between the hosts furthest apart.
    pub base_known: bool,
    /// Switches trim.
    pub trimming: bool,
    /// How messages begin.
    pub begin: Begin,
    /// They have information paths, and these are their settings.
    pub info_path: Option<InfoPathSettings>,
}

/// How messages begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// Strangers meet: they open a session, and long messages ask first.
    Cold,
    /// Sessions are open, and all messages are granted, as the papers assume.
    Warm,
    /// The same, and flows have sent as much before as a controller learns from: what it costs to learn is set-up.
    Learned,
}

/// Why an experiment ended without being done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfinished {
    /// The time was not enough.
    #[error(
        "{open} tasks were not done after {limit_ps} ps of simulated time, the first of them on host {host}"
    )]
    Late {
        /// Tasks that were not done.
        open: usize,
        /// The time.
        limit_ps: Picos,
        /// The first host with such a task.
        host: u32,
    },
    /// A host gave a message up.
    #[error(
        "host {host} gave up {failed} messages after {at_ps} ps of simulated time, as no way led to their receivers or back"
    )]
    GivenUp {
        /// The first such host.
        host: u32,
        /// How many messages.
        failed: u64,
        /// When the run noticed it.
        at_ps: Picos,
    },
}

/// Work over a network.
pub struct Experiment {
    /// The network.
    pub plan: Arc<Blueprint>,
    /// What the hosts do.
    pub work: Work,
    /// How they do it.
    pub engines: Engines,
    /// All the randomness there is.
    pub seed: u64,
    /// Threads that run it at most. The results are the same for any number. Work with triggers has one.
    pub threads: usize,
}

/// A change of a link's health.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Failure {
    /// When, from the beginning of the work on.
    pub at: Picos,
    /// Which.
    pub link: LinkId,
    /// How it does from then on.
    pub health: Health,
}

/// How a message fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowResult {
    /// Which.
    pub flow: Flow,
    /// When the sender could begin.
    pub began: Picos,
    /// When the receiver had all of it.
    pub arrived: Picos,
    /// When the sender knew.
    pub acknowledged: Picos,
}

impl FlowResult {
    /// Completion time: from its beginning until the receiver had all of it.
    #[must_use]
    pub fn completion_ps(&self) -> Picos {
        self.arrived - self.began
    }
}

/// Looks at a run while it goes on. It may stop the network at any time, which changes no result.
pub trait Observer {
    /// The network stands just before its work, which begins at `begin`: what its hosts exchange beforehand is over.
    fn begin(&mut self, fabric: &mut Fabric, flows: &[Flow], begin: Picos);

    /// Runs the network up to `end`.
    fn run_until(&mut self, fabric: &mut Fabric, end: Picos);
}

/// Nobody looks.
struct Unobserved;

impl Observer for Unobserved {
    fn begin(&mut self, _: &mut Fabric, _: &[Flow], _: Picos) {}

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        fabric.run_until(end);
    }
}

/// What came of an experiment.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// Every message, in the order of their numbers.
    pub flows: Vec<FlowResult>,
    /// Counters of all links together.
    pub links: LinkCounters,
    /// Packets that ended at a switch or a host.
    pub nodes: NodeCounters,
    /// Data packets sent, without repeats.
    pub data_packets: u64,
    /// Events that the simulator ran.
    pub events: u64,
    /// Repeats of them.
    pub repeats: Repeats,
    /// Frames of the information paths.
    pub frames: FrameCounts,
    /// When its work began.
    pub begin: Picos,
    /// What decided how long it took.
    pub critical: CriticalPath,
}

impl Experiment {
    /// Runs it until everything is done, for at most `limit_ps` of simulated time.
    ///
    /// # Errors
    /// The time was not enough, or a host gave a message up.
    pub fn run(self, limit_ps: Picos) -> Result<Results, Unfinished> {
        self.run_with(limit_ps, &[])
    }

    /// The same while links break and heal, at times from the beginning of the work on. They are in the order of time.
    ///
    /// # Errors
    /// As [`Experiment::run`].
    pub fn run_with(self, limit_ps: Picos, failures: &[Failure]) -> Result<Results, Unfinished> {
        Ok(self.run_observed(limit_ps, failures, &mut Unobserved)?.0)
    }

    /// The same while an observer looks at it. Returns the network as it is at the end, too.
    ///
    /// # Errors
    /// As [`Experiment::run`].
    pub fn run_observed(
        self,
        limit_ps: Picos,
        failures: &[Failure],
        observer: &mut impl Observer,
    ) -> Result<(Results, Fabric), Unfinished> {
        let flows = self.work.flows().to_vec();
        let (mut fabric, begin_ps) = self.build();
        observer.begin(&mut fabric, &flows, begin_ps);
        let limit_ps = begin_ps + limit_ps;
        let mut failures = failures.iter().peekable();
        let mut end = begin_ps;
        loop {
            let until = end.min(limit_ps);
            let at = failures.peek().map(|failure| begin_ps + failure.at);
            if let Some(at) = at.filter(|at| *at <= until) {
                // It acts before anything else that happens at that time.
                if at > 0 {
                    observer.run_until(&mut fabric, at - 1);
                }
                while let Some(failure) = failures.next_if(|failure| begin_ps + failure.at == at) {
                    fabric.set_health(failure.link, failure.health);
                }
                continue;
            }
            observer.run_until(&mut fabric, until);
            let now = fabric.now();
            if let Some((host, failed)) = given_up(&fabric) {
                return Err(Unfinished::GivenUp { host, failed, at_ps: now - begin_ps });
            }
            let open = fabric.hosts().position(|host| host.open_tasks() > 0);
            match open {
                None => break,
                Some(host) if now >= limit_ps => {
                    let open = fabric.hosts().map(SimHost::open_tasks).sum();
                    let limit_ps = limit_ps - begin_ps;
                    return Err(Unfinished::Late { open, limit_ps, host: host as u32 });
                }
                // Nothing happens before the next event, which may be far away.
                Some(_) => end = fabric.next_at().unwrap_or(limit_ps).max(now + SLICE_PS),
            }
        }
        Ok((results(&fabric, flows, begin_ps), fabric))
    }

    /// The network just before its work, and when that begins.
    fn build(self) -> (Fabric, Picos) {
        let Experiment { plan, mut work, engines, seed, threads } = self;
        let has_learned = engines.begin == Begin::Learned && (engines.scheme)().learns();
        let begin_ps = match engines.begin {
            // The baselines' connections are open.
            _ if engines.protocol != Protocol::Erd => 0,
            Begin::Cold => 0,
            Begin::Learned if has_learned => learn_first(&plan, &mut work),
            Begin::Warm | Begin::Learned => work.greet_first(1, GREETING_PS, AFTER_GREETINGS_PS),
        };
        let rtt_ns = longest_rtt_ns(&plan);
        let base_rtt_ns = if engines.base_known { rtt_ns } else { 0 };
        let triggers = work.take_triggers();
        let threads = if triggers.is_empty() { threads } else { 1 };
        let mut tasks = work.into_hosts().into_iter();
        let links = Arc::clone(&plan);
        let mut fabric = Fabric::new(plan, threads, seed, |id| {
            let uplink = &links.links()[links.links_of(NodeId(id.0)).start as usize];
            let rate = uplink.config.bytes_per_s.unwrap_or(0);
            let network = Known { base_rtt_ns, rate, wire: links.wire() };
            let tasks = tasks.next().unwrap_or_default();
            match &engines.protocol {
                Protocol::Erd => {
                    let endpoint = engines.endpoint(id, network, seed);
                    ErdHost::new(id, endpoint, tasks, engines.info_path).into()
                }
                Protocol::Eqds(settings) => {
                    EqdsHost::new(id, settings.clone(), (rate, rtt_ns), seed, tasks).into()
                }
                Protocol::Roce(settings) => {
                    RoceHost::new(id, settings.clone(), rate, seed, tasks).into()
                }
            }
        });
        fabric.set_triggers(triggers);
        if begin_ps > 0 {
            fabric.run_until(begin_ps - 1);
            if !has_learned {
                fabric.begin();
            }
        }
        (fabric, begin_ps)
    }
}

/// What a host's engine is told of the network.
#[derive(Clone, Copy)]
struct Known {
    base_rtt_ns: Nanos,
    rate: u64,
    wire: Wire,
}

impl Engines {
    /// Engines with this scheme, or another transport: 64 paths, timeouts of at least 100 us, a known base round trip, open
    /// sessions, no trimming, and no information path.
    ///
    /// # Errors
    /// There is no scheme or transport of this name.
    pub fn named(name: &str) -> Result<Engines, NameError> {
        let mut engines = Engines {
            protocol: Protocol::Erd,
            scheme: Rc::new(|| schemes::by_name(schemes::NAMES[0]).expect("the first scheme")),
            paths: 64,
            rto_min_ns: 100_000,
            base_known: true,
            trimming: false,
            begin: Begin::Warm,
            info_path: None,
        };
        engines.choose(name)?;
        Ok(engines)
    }

    /// Chooses what the hosts speak by the name of a scheme or of another transport, with settings of it that are not
    /// changed.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn choose(&mut self, name: &str) -> Result<(), NameError> {
        if let Some(protocol) = Protocol::by_name(name) {
            self.protocol = protocol;
            return Ok(());
        }
        schemes::named(name)?;
        let name = name.to_owned();
        self.protocol = Protocol::Erd;
        self.scheme = Rc::new(move || schemes::by_name(&name).expect("built once before"));
        Ok(())
    }

    fn endpoint(&self, host: HostId, network: Known, seed: u64) -> Endpoint {
        let Known { base_rtt_ns, rate, wire } = network;
        // The simulated network changes no bytes, so checksums would find nothing.
        let mut config = Config::new(name_of(host), 1, |seed, _| seed);
        config.datagram_bytes = (wire.datagram_bytes() + CHECKSUM_BYTES) as u16;
        config.burst_bytes = wire.datagram_bytes();
        config.paths = self.paths;
        config.rto_min_ns = self.rto_min_ns;
        config.scan_min_ns = self.rto_min_ns;
        // No receiver's buffer is ever the bottleneck.
        config.recv_buffer_bytes = u32::MAX;
        config.link_bytes_per_s = rate;
        config.base_rtt_ns = base_rtt_ns;
        config.trimming = self.trimming;
        config.info_path = self.info_path.is_some();
        config.prompt_acks = wire == Wire::Htsim;
        if self.begin != Begin::Cold {
            (config.eager_bytes, config.eager_credit_bytes) = (CREDIT_MAX, CREDIT_MAX);
            config.unexpected_bytes = u64::MAX;
        }
        let seed = seed ^ (u64::from(host.0) + 1) << 32;
        Endpoint::new(config, (self.scheme)(), seed).expect("the settings are within their ranges")
    }
}

/// Puts before everything else what flows learn from, one pair after the other. Returns when the rest begins.
fn learn_first(plan: &Blueprint, work: &mut Work) -> Picos {
    let bytes = LESSON_PACKETS * u64::from(plan.wire().payload_bytes());
    let uplink = &plan.links()[plan.links_of(NodeId(0)).start as usize].config;
    let rate = uplink.bytes_per_s.unwrap_or(PS_PER_S);
    // A flow that learns has few packets in flight at first. Then it needs the time of its bytes, twice as long at most, and one
    // part of the hosts after the other does.
    let learning_ps = LESSON_ROUNDS * from_ns(longest_rtt_ns(plan));
    let sending_ps = 2 * serialization_ps(bytes as u32, rate);
    work.teach_first(
        bytes,
        learning_ps + Picos::from(LESSON_PARTS) * sending_ps,
        AFTER_GREETINGS_PS,
    )
}

/// Round trip of a lone full segment and its acknowledgement between the first host and the last.
pub(crate) fn longest_rtt_ns(plan: &Blueprint) -> Nanos {
    let (first, last) = (HostId(0), HostId(plan.hosts() - 1));
    let there = plan.lone_ps(first, last, plan.wire().full_bytes());
    to_ns(there + plan.lone_ps(last, first, plan.wire().ack_bytes()))
}

/// The first host that gave messages up, and how many.
fn given_up(fabric: &Fabric) -> Option<(u32, u64)> {
    (0..).zip(fabric.hosts().map(SimHost::failures)).find(|(_, failed)| *failed > 0)
}

fn results(fabric: &Fabric, flows: Vec<Flow>, begin: Picos) -> Results {
    let critical = CriticalPath::of(fabric, &flows, begin);
    let flows: Vec<FlowResult> = flows
        .into_iter()
        .map(|flow| {
            let sent = fabric.host(flow.from).times(flow.send);
            let received = fabric.host(flow.to).times(flow.receive);
            let (began, acknowledged) = (sent.began, sent.done);
            FlowResult { flow, began, arrived: received.arrived, acknowledged }
        })
        .collect();
    let mut links = LinkCounters::default();
    for link in 0..fabric.plan().links().len() as u32 {
        links.add(&fabric.counters(LinkId(link)));
    }
    let (mut data_packets, mut repeats) = (0, Repeats::default());
    let mut frames = FrameCounts::default();
    for stats in fabric.hosts().map(SimHost::stats) {
        data_packets += stats.data_packets;
        repeats.add(&stats.repeats);
        frames.add(stats.frames);
    }
    let (nodes, events) = (fabric.node_counters(), fabric.events());
    Results { flows, links, nodes, data_packets, events, repeats, frames, begin, critical }
}
