//! Scenarios: endless flows over a bottleneck, and the measurement of their results.

use crate::fabric::Fabric;
use crate::fabric::blueprint::Spread;
use crate::host::SimHost;
use crate::ids::{HostId, LinkId};
use crate::link::LinkCounters;
use crate::meter::DepthMeter;
use crate::time::{Picos, from_ns};
use crate::topology::Bottleneck;
use crate::work::{TaskId, Work};
use erd_rd::cc::Scheme;
use std::rc::Rc;

/// Length of the messages of a flow, in bytes.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Messages that a flow has outstanding, unless a scenario says otherwise.
const OUTSTANDING: u32 = 8;
/// Round trips over which staggered flows start.
const STAGGER_RTTS: u64 = 100;

/// When flows start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// All at once.
    Simultaneous,
    /// One after the other, evenly over 100 base round trips.
    Staggered,
}

/// Makes the scheme that a host uses.
pub type SchemeMaker = Rc<dyn Fn() -> Box<dyn Scheme>>;

/// Flows over a [`Bottleneck`], one of each sender.
#[derive(Clone)]
pub struct Scenario {
    /// The network.
    pub net: Bottleneck,
    /// Congestion control of every host.
    pub scheme: SchemeMaker,
    /// When flows start.
    pub start: Start,
    /// Messages of 1 MiB that each flow has outstanding.
    pub outstanding: u32,
    /// Base round trips before the measurement, after the last flow has started.
    pub warmup_rtts: u64,
    /// Base round trips of the measurement.
    pub measured_rtts: u64,
}

/// What flows reached during the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Payload placed, as a share of what the paths can carry.
    pub utilisation: f64,
    /// Jain's fairness index of the flows' payload.
    pub jain: f64,
    /// Payload of the flow that got least, as a share of the mean.
    pub least: f64,
    /// Mean of all queues together, in units of the BDP.
    pub queue_mean_bdp: f64,
    /// 99th percentile of a path's queue, in units of the path's share of the BDP.
    pub queue_p99_bdp: f64,
    /// Packets offered to the paths.
    pub packets: u64,
    /// Packets dropped by full queues.
    pub drops: u64,
    /// Payloads cut off by full queues.
    pub trims: u64,
    /// Packets marked.
    pub marks: u64,
    /// Retransmissions asked for by a NACK or found by later packets.
    pub rtx_nack: u64,
    /// Retransmissions found by a probe.
    pub rtx_probe: u64,
    /// Retransmissions that were not needed.
    pub rtx_spurious: u64,
    /// Operations that ended with an error, since the start.
    pub failures: u64,
    /// Events since the start.
    pub events: u64,
}

/// Counters of everything at one time.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    placed_bytes: Vec<u64>,
    links: LinkCounters,
    rtx: [u64; 3],
}

/// A network with its flows, in motion.
pub struct Run {
    /// The network.
    pub network: Fabric,
    /// Its paths.
    pub paths: Vec<LinkId>,
    /// Who receives.
    pub receiver: HostId,
    /// The receiver's task for each flow.
    pub sinks: Vec<TaskId>,
}

impl Scenario {
    /// One flow of `scheme` over 8 paths of 50 Gb/s with a base round trip of 12 us, so that the
    /// BDP is 143 packets; marking between 20 and 80 % of a BDP (SMaRTT, section IV); buffers of
    /// 5 BDP.
    #[must_use]
    pub fn new(scheme: SchemeMaker, flows: u32, seed: u64) -> Scenario {
        Scenario {
            net: Bottleneck {
                senders: flows,
                paths: 8,
                entropies: 8,
                spread: Spread::Modulo,
                link_bytes_per_s: 50_000_000_000,
                base_rtt_ns: 12_000,
                base_known: true,
                buffer_bdp: 5.0,
                red_bdp: Some((0.2, 0.8)),
                trimming: false,
                jitter: None,
                overtaking: None,
                // It is never the bottleneck.
                recv_buffer_bytes: u32::MAX,
                rto_min_ns: 100_000,
                seed,
            },
            scheme,
            start: Start::Simultaneous,
            outstanding: OUTSTANDING,
            warmup_rtts: 500,
            measured_rtts: 500,
        }
    }

    /// So many base round trips.
    #[must_use]
    pub fn rtts(&self, count: u64) -> Picos {
        count * from_ns(self.net.base_rtt_ns)
    }

    /// When the warm-up is over.
    #[must_use]
    pub fn warm_at(&self) -> Picos {
        let stagger = if self.start == Start::Staggered { STAGGER_RTTS } else { 0 };
        self.rtts(stagger + self.warmup_rtts)
    }

    /// Receivers share out no links.
    pub fn share_no_link(&mut self) {
        let make = Rc::clone(&self.scheme);
        self.scheme = Rc::new(move || {
            let mut scheme = make();
            scheme.set("link_share", 0.0).expect("an option of schemes that react");
            scheme
        });
    }

    /// Builds the network and its flows.
    #[must_use]
    pub fn begin(&self) -> Run {
        let receiver = HostId(self.net.senders);
        let mut work = Work::new(self.net.senders + 1);
        for sender in 0..self.net.senders {
            let start = match self.start {
                Start::Simultaneous => 0,
                Start::Staggered => {
                    self.rtts(STAGGER_RTTS) * u64::from(sender) / u64::from(self.net.senders)
                }
            };
            let flow = work.stream(HostId(sender), receiver, MESSAGE_BYTES, self.outstanding);
            work.start_at(flow, start);
        }
        let sinks = work.flows().iter().map(|flow| flow.receive).collect();
        let (network, paths, receiver) = self.net.build(&*self.scheme, work);
        Run { network, paths, receiver, sinks }
    }

    /// Runs it and measures.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let mut run = self.begin();
        run.network.run_until(self.warm_at());
        let before = run.snapshot();
        run.reset_depths();
        run.network.run_until(self.warm_at() + self.rtts(self.measured_rtts));
        let after = run.snapshot();
        let seconds = (self.measured_rtts * self.net.base_rtt_ns) as f64 / 1e9;
        run.outcome(&before, &after, self.net.payload_bytes_per_s() * seconds)
    }
}

impl Run {
    /// Payload placed of each flow so far, in bytes.
    #[must_use]
    pub fn placed_bytes(&self) -> Vec<u64> {
        let host = self.network.host(self.receiver);
        self.sinks.iter().map(|task| host.placed_bytes(*task)).collect()
    }

    /// Operations that ended with an error so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.network.hosts().map(SimHost::failures).sum()
    }

    fn snapshot(&self) -> Snapshot {
        let mut links = LinkCounters::default();
        for &path in &self.paths {
            let counters = self.network.counters(path);
            links.offered += counters.offered;
            links.drops += counters.drops;
            links.trims += counters.trims;
            links.marks += counters.marks;
        }
        let mut rtx = [0; 3];
        for host in self.network.hosts().take(self.receiver.0 as usize) {
            let repeats = host.stats().repeats;
            for (sum, one) in rtx.iter_mut().zip([
                repeats.nack + repeats.order + repeats.trim,
                repeats.probe,
                repeats.spurious,
            ]) {
                *sum += one;
            }
        }
        Snapshot { placed_bytes: self.placed_bytes(), links, rtx }
    }

    fn reset_depths(&mut self) {
        let now = self.network.now();
        for &path in &self.paths {
            self.network.queue_mut(path).reset_depth(now);
        }
    }

    fn outcome(&mut self, before: &Snapshot, after: &Snapshot, capacity_bytes: f64) -> Outcome {
        let now = self.network.now();
        for &path in &self.paths {
            self.network.queue_mut(path).settle_depth(now);
        }
        let depths: Vec<&DepthMeter> =
            self.paths.iter().filter_map(|&path| self.network.queue(path).depth()).collect();
        let placed: Vec<f64> = before
            .placed_bytes
            .iter()
            .zip(&after.placed_bytes)
            .map(|(b, a)| (a - b) as f64)
            .collect();
        let sum: f64 = placed.iter().sum();
        Outcome {
            utilisation: sum / capacity_bytes,
            jain: jain(&placed),
            least: least(&placed),
            queue_mean_bdp: depths.iter().map(|d| d.mean_units()).sum::<f64>()
                / depths.len() as f64,
            queue_p99_bdp: DepthMeter::quantile_units(&depths, 0.01),
            packets: after.links.offered - before.links.offered,
            drops: after.links.drops - before.links.drops,
            trims: after.links.trims - before.links.trims,
            marks: after.links.marks - before.links.marks,
            rtx_nack: after.rtx[0] - before.rtx[0],
            rtx_probe: after.rtx[1] - before.rtx[1],
            rtx_spurious: after.rtx[2] - before.rtx[2],
            failures: self.failures(),
            events: self.network.events(),
        }
    }
}

/// The least of all, as a share of their mean; 0 when none has any.
#[must_use]
pub fn least(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    if mean > 0.0 { least / mean } else { 0.0 }
}

/// Jain's fairness index: 1 when all are equal, 1/n when one has everything; 0 when none has any.
#[must_use]
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (values.len() as f64 * squares) }
}
