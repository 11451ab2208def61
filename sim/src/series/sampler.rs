//! The observer that takes the samples of a series.

use super::rows::{Row, rows};
use super::{FLOWS_MAX, FlowSeries, PAIRS_MAX, PairCounts, SAMPLES_MAX, Series, spread};
use crate::experiment::Observer;
use crate::fabric::Fabric;
use crate::ids::{HostId, LinkId};
use crate::mutants::{Mutant, mutant};
use crate::time::{Picos, from_ns};
use crate::work::Flow;

/// Length of an interval at the beginning.
const INTERVAL_PS: Picos = from_ns(1_000);

/// See the module.
#[derive(Debug, Default)]
pub struct Sampler {
    series: Series,
    /// The links of each row.
    links: Vec<Vec<LinkId>>,
    pairs: Vec<(HostId, HostId)>,
    begin: Picos,
    /// When the last sample was taken.
    sampled_at: Picos,
    /// What each row's links had sent, and each flow's receiver had got, at that time.
    sent_bytes: Vec<u64>,
    arrived_bytes: Vec<u64>,
}

impl Sampler {
    /// The series, once the run is over: `fabric` is what it has left.
    #[must_use]
    pub fn finish(mut self, fabric: &mut Fabric) -> Series {
        if fabric.now() > self.sampled_at && !mutant(Mutant::OmitsTheLastSample) {
            self.sample(fabric);
        }
        self.series.whole_ps = self.sampled_at - self.begin;
        self.series.pairs = self.pairs.iter().map(|pair| pair_counts(fabric, *pair)).collect();
        self.series
    }

    fn sample(&mut self, fabric: &mut Fabric) {
        let now = fabric.now();
        let rows = self.series.rows.iter_mut().zip(&self.links).zip(&mut self.sent_bytes);
        for ((row, links), before) in rows {
            let (mut sum, mut most, mut sent) = (0.0, 0, 0);
            for link in links {
                let (mean, max) = fabric.queue_mut(*link).take_depth(now);
                sum += mean;
                most = most.max(max);
                sent += fabric.counters(*link).sent_bytes;
            }
            row.queue_mean_bytes.push(sum / f64::from(row.links));
            row.queue_max_bytes.push(most);
            row.sent_bytes.push(sent - *before);
            *before = sent;
        }
        for (series, before) in self.series.flows.iter_mut().zip(&mut self.arrived_bytes) {
            let Flow { from, to, receive, .. } = series.flow;
            let arrived = fabric.host(to).placed_bytes(receive);
            series.arrived_bytes.push(arrived - *before);
            *before = arrived;
            series.window_bytes.push(fabric.host(from).window_bytes(to).unwrap_or(0));
        }
        self.sampled_at = now;
        if self.series.samples() == SAMPLES_MAX {
            self.series.double();
        }
    }
}

impl Observer for Sampler {
    fn begin(&mut self, fabric: &mut Fabric, flows: &[Flow], begin: Picos) {
        let (rows, links): (_, Vec<Vec<LinkId>>) =
            rows(fabric.plan()).into_iter().map(|row: Row| row).unzip();
        let now = fabric.now();
        for link in links.iter().flatten() {
            let queue = fabric.queue_mut(*link);
            queue.watch_depth();
            // The depth before the work has no place in the series. Links may fail before anything else happens.
            queue.take_depth(now);
        }
        let sampled = spread(flows.len(), FLOWS_MAX).map(|at| flows[at]);
        let empty = |flow| FlowSeries { flow, arrived_bytes: vec![], window_bytes: vec![] };
        let sent_bytes =
            |row: &Vec<LinkId>| row.iter().map(|link| fabric.counters(*link).sent_bytes).sum();
        self.sent_bytes = links.iter().map(sent_bytes).collect();
        self.series = Series {
            interval_ps: INTERVAL_PS,
            rows,
            flows: sampled.map(empty).collect(),
            ..Series::default()
        };
        self.arrived_bytes = vec![0; self.series.flows.len()];
        self.links = links;
        let watched = spread(flows.len(), PAIRS_MAX).map(|at| (flows[at].from, flows[at].to));
        self.pairs = watched.collect();
        self.pairs.sort_unstable();
        self.pairs.dedup();
        fabric.watch(&self.pairs);
        (self.begin, self.sampled_at) = (begin, begin);
    }

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        while self.sampled_at + self.series.interval_ps <= end {
            fabric.run_until(self.sampled_at + self.series.interval_ps);
            self.sample(fabric);
        }
        fabric.run_until(end);
    }
}

fn pair_counts(fabric: &Fabric, (from, to): (HostId, HostId)) -> PairCounts {
    let (behind, behind_max) = fabric.order(from, to);
    let path_packets = fabric.paths(from, to).to_vec();
    PairCounts { from: from.0, to: to.0, path_packets, behind, behind_max }
}
