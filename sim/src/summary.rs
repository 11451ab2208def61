//! What an experiment shows in a few lines.

use crate::critical::CriticalPath;
use crate::experiment::{FlowResult, Results};
use crate::info_path::FrameCounts;
use crate::link::{LinkCounters, NodeCounters};
use crate::patterns::bound::Bound;
use crate::time::Picos;
use crate::transport::Repeats;
use serde::Serialize;
use std::fmt;

/// Picoseconds of a microsecond.
const PS_PER_US: f64 = 1e6;

/// A distribution, from its least value to its greatest.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Percentiles {
    /// Least.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Greatest.
    pub max: f64,
}

impl Percentiles {
    /// Of some values; `None` of none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Percentiles> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        // The least value that so many of a hundred do not exceed.
        let at = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Percentiles { min, mean, p50: at(50), p99: at(99), max })
    }
}

/// The critical path of a run; see [`CriticalPath`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct PathTimes {
    /// From the beginning until the last task was done, in us.
    pub whole_us: f64,
    /// Computations on the path, in us.
    pub compute_us: f64,
    /// Messages on the path, in us.
    pub network_us: f64,
    /// The path waits for a start time or a trigger, in us.
    pub idle_us: f64,
    /// Messages on the path.
    pub messages: usize,
    /// Computations on the path.
    pub computations: usize,
    /// Share of the whole that messages took.
    pub network_share: f64,
}

impl From<&CriticalPath> for PathTimes {
    fn from(path: &CriticalPath) -> PathTimes {
        let us = |time: Picos| time as f64 / PS_PER_US;
        PathTimes {
            whole_us: us(path.whole_ps),
            compute_us: us(path.compute_ps),
            network_us: us(path.network_ps),
            idle_us: us(path.idle_ps),
            messages: path.messages,
            computations: path.computations,
            network_share: path.network_share(),
        }
    }
}

impl fmt::Display for PathTimes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathTimes { whole_us, compute_us, network_us, idle_us, .. } = self;
        write!(
            out,
            "critical path {whole_us:.2} us: {compute_us:.2} in {} computations, ",
            self.computations
        )?;
        write!(out, "{network_us:.2} in {} messages, {idle_us:.2} idle; ", self.messages)?;
        write!(out, "network {:.1} %", self.network_share * 100.0)
    }
}

/// See the module.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Messages.
    pub messages: usize,
    /// Their payload.
    pub payload_bytes: u64,
    /// Completion times in us.
    pub completion_us: Option<Percentiles>,
    /// Times until the senders knew, in us: what uet-htsim calls completion.
    pub acknowledged_us: Option<Percentiles>,
    /// Completion times over the least ones that the network allows.
    pub slowdown: Option<Percentiles>,
    /// Least mean of the completion times that the hosts' links allow, in us.
    pub bound_mean_us: f64,
    /// From the beginning until the last message had arrived, in us.
    pub whole_us: f64,
    /// Least such time that the hosts' links allow.
    pub bound_whole_us: f64,
    /// Payload over that time.
    pub goodput_bytes_per_s: f64,
    /// Jain's index of the messages' rates: 1 if all are equal.
    pub fairness: f64,
    /// What decided how long the work took, in us.
    pub critical_path: PathTimes,
    /// Data packets, without repeats.
    pub data_packets: u64,
    /// Repeats of them.
    pub repeats: Repeats,
    /// Frames of the information paths.
    pub frames: FrameCounts,
    /// Counters of all links together.
    pub links: LinkCounters,
    /// Packets that ended at a switch or a host.
    pub nodes: NodeCounters,
}

impl Summary {
    /// Of an experiment and the bound of its work.
    #[must_use]
    pub fn of(results: &Results, bound: &Bound) -> Summary {
        let flows = &results.flows;
        let us = |time: Picos| time as f64 / PS_PER_US;
        let completion = |flow: &FlowResult| us(flow.completion_ps());
        let acknowledged = |flow: &FlowResult| us(flow.acknowledged - flow.began);
        let payload_bytes = flows.iter().map(|flow| flow.flow.bytes).sum();
        let arrived = flows.iter().map(|flow| flow.arrived).max().unwrap_or(0);
        let whole_us = us(arrived.saturating_sub(results.begin));
        let slowdown = flows.iter().zip(&bound.flows_ps);
        let rates: Vec<f64> =
            flows.iter().map(|flow| flow.flow.bytes as f64 / completion(flow)).collect();
        Summary {
            messages: flows.len(),
            payload_bytes,
            completion_us: Percentiles::of(flows.iter().map(completion)),
            acknowledged_us: Percentiles::of(flows.iter().map(acknowledged)),
            slowdown: Percentiles::of(slowdown.map(|(flow, least)| completion(flow) / us(*least))),
            bound_mean_us: us(bound.mean_ps),
            whole_us,
            bound_whole_us: us(bound.whole_ps),
            goodput_bytes_per_s: payload_bytes as f64 / whole_us * 1e6,
            fairness: crate::scenario::jain(&rates),
            critical_path: PathTimes::from(&results.critical),
            data_packets: results.data_packets,
            repeats: results.repeats,
            frames: results.frames,
            links: results.links,
            nodes: results.nodes,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} messages, {} bytes", self.messages, self.payload_bytes)?;
        let head = ["", "least", "mean", "median", "99 %", "most"];
        let [name, rest @ ..] = head;
        write!(out, "{name:<20}")?;
        rest.iter().try_for_each(|word| write!(out, " {word:>11}"))?;
        for (name, spread) in [("completion, us", self.completion_us), ("slowdown", self.slowdown)]
        {
            let Some(Percentiles { min, mean, p50, p99, max }) = spread else { continue };
            write!(out, "\n{name:<20}")?;
            [min, mean, p50, p99, max]
                .iter()
                .try_for_each(|value| write!(out, " {value:>11.2}"))?;
        }
        writeln!(out, "\nmean completion at best {:.2} us", self.bound_mean_us)?;
        writeln!(
            out,
            "all arrived after {:.2} us, at best {:.2}",
            self.whole_us, self.bound_whole_us
        )?;
        writeln!(out, "{}", self.critical_path)?;
        let gigabytes = self.goodput_bytes_per_s / 1e9;
        writeln!(out, "goodput {gigabytes:.3} GB/s, fairness {:.4}", self.fairness)?;
        let Repeats { nack, probe, order, trim, timeout, spurious } = self.repeats;
        write!(
            out,
            "{} data packets; repeats: {nack} by scan, {probe} by probe, ",
            self.data_packets
        )?;
        writeln!(
            out,
            "{order} by order, {trim} trimmed, {timeout} by timeout; {spurious} not needed"
        )?;
        let FrameCounts { frames, repeats, .. } = self.frames;
        if frames > 0 {
            writeln!(out, "information paths: {frames} frames, {repeats} repeats")?;
        }
        let LinkCounters { offered, drops, trims, marks, lost, corrupted, pauses, .. } = self.links;
        write!(
            out,
            "links: {offered} packets, {drops} dropped, {trims} trimmed, {marks} marked, {lost} lost, "
        )?;
        let NodeCounters { no_route, ring_drops } = self.nodes;
        write!(
            out,
            "{corrupted} corrupted, {pauses} pauses; {no_route} had no route, {ring_drops} found a full ring"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_so_many_do_not_exceed() {
        assert_eq!(Percentiles::of([]), None);
        let one = Percentiles::of([3.0]).expect("a value");
        assert_eq!((one.min, one.mean, one.p50, one.p99, one.max), (3.0, 3.0, 3.0, 3.0, 3.0));
        let hundred = Percentiles::of((1..=100).rev().map(f64::from)).expect("values");
        assert_eq!((hundred.min, hundred.p50, hundred.p99, hundred.max), (1.0, 50.0, 99.0, 100.0));
        assert_eq!(hundred.mean, 50.5);
    }
}
