//! What a run looks like over time. The sampler reads a network at fixed intervals of virtual time and changes nothing in
//! it, so a run with samples has the same results as one without. Memory is bounded: when [`SAMPLES_MAX`] intervals are
//! full, each two become one, and the interval doubles.
//!
//! [`sampler`] is the observer that takes samples, [`rows`] says which links share a row, [`watch`] counts the packets of a
//! few pairs of hosts.

pub mod rows;
pub mod sampler;
pub mod watch;

use crate::mutants::{Mutant, mutant};
use crate::time::Picos;
use crate::work::Flow;
use serde::Serialize;
pub use watch::{DISTANCES, PairCounts};

/// Most intervals of a series.
pub const SAMPLES_MAX: usize = 256;
/// Most flows whose throughput and window are sampled.
pub const FLOWS_MAX: usize = 8;
/// Most pairs of hosts whose packets are counted.
pub const PAIRS_MAX: usize = 64;

/// The samples of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Series {
    /// Length of an interval. The last one may be shorter.
    pub interval_ps: Picos,
    /// From the beginning of the work until the last sample.
    pub whole_ps: Picos,
    /// Links, from the hosts upwards and down again.
    pub rows: Vec<RowSeries>,
    /// Some of the flows.
    pub flows: Vec<FlowSeries>,
    /// Some of the pairs of hosts.
    pub pairs: Vec<PairCounts>,
}

/// A link over time, or neighbouring links of one tier.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RowSeries {
    /// Links from here to there, by tiers: 0 are the hosts.
    pub tiers: [u32; 2],
    /// The link, or the first and the last one.
    pub name: String,
    /// What the links could send in a second.
    pub bytes_per_s: u64,
    /// How many links these are.
    pub links: u32,
    /// Mean depth of a queue, in each interval.
    pub queue_mean_bytes: Vec<f64>,
    /// Greatest depth of a queue, in each interval.
    pub queue_max_bytes: Vec<u64>,
    /// Bytes that the links sent, in each interval.
    pub sent_bytes: Vec<u64>,
}

/// A flow over time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowSeries {
    /// Which.
    #[serde(serialize_with = "flow_number")]
    pub flow: Flow,
    /// Payload that the receiver got, in each interval.
    pub arrived_bytes: Vec<u64>,
    /// Congestion window at the end of each interval; 0 while there is none.
    pub window_bytes: Vec<u64>,
}

fn flow_number<S: serde::Serializer>(flow: &Flow, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format!("h{} to h{}", flow.from.0, flow.to.0))
}

impl Series {
    /// Intervals so far.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.rows.first().map_or(0, |row| row.sent_bytes.len())
    }

    /// Length of an interval, the last one of which may be short.
    #[must_use]
    pub fn length_ps(&self, at: usize) -> Picos {
        let begin = at as u64 * self.interval_ps;
        self.whole_ps.saturating_sub(begin).min(self.interval_ps)
    }

    /// Share of what a row's links could send that they sent in an interval.
    #[must_use]
    pub fn utilisation(&self, row: &RowSeries, at: usize) -> f64 {
        let seconds = self.length_ps(at) as f64 / 1e12;
        let most = row.bytes_per_s as f64 * seconds;
        if most > 0.0 { (row.sent_bytes[at] as f64 / most).min(1.0) } else { 0.0 }
    }

    /// Makes one interval of each two. The number of them is even.
    fn double(&mut self) {
        self.interval_ps *= 2;
        for row in &mut self.rows {
            fold(&mut row.queue_mean_bytes, |a, b| (a + b) / 2.0);
            fold(&mut row.queue_max_bytes, u64::max);
            fold(&mut row.sent_bytes, |a, b| if mutant(Mutant::HalvesSamples) { b } else { a + b });
        }
        for flow in &mut self.flows {
            fold(&mut flow.arrived_bytes, |a, b| a + b);
            fold(&mut flow.window_bytes, |_, last| last);
        }
    }
}

/// Makes one value of each two.
fn fold<T: Copy>(values: &mut Vec<T>, join: impl Fn(T, T) -> T) {
    let half = values.len() / 2;
    for at in 0..half {
        values[at] = join(values[2 * at], values[2 * at + 1]);
    }
    values.truncate(half);
}

/// At most `most` of `count` things, evenly spaced.
pub fn spread(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let taken = count.min(most);
    (0..taken).map(move |at| at * count / taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_things_of_many_are_evenly_spaced() {
        assert_eq!(spread(10, 4).collect::<Vec<_>>(), [0, 2, 5, 7]);
        assert_eq!(spread(3, 4).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(spread(0, 4).count(), 0);
    }

    #[test]
    fn doubling_keeps_sums_and_maxima() {
        let row = RowSeries {
            tiers: [0, 1],
            name: String::new(),
            bytes_per_s: 4_000_000_000_000,
            links: 1,
            queue_mean_bytes: vec![1.0, 3.0, 5.0, 5.0],
            queue_max_bytes: vec![9, 4, 5, 7],
            sent_bytes: vec![1, 2, 3, 4],
        };
        let mut series =
            Series { interval_ps: 1, whole_ps: 3, rows: vec![row], ..Series::default() };
        series.double();
        let row = &series.rows[0];
        assert_eq!(row.queue_mean_bytes, [2.0, 5.0]);
        assert_eq!(row.queue_max_bytes, [9, 7]);
        assert_eq!(row.sent_bytes, [3, 7]);
        assert_eq!((series.interval_ps, series.samples()), (2, 2));
        assert_eq!((series.length_ps(0), series.length_ps(1)), (2, 1));
        assert_eq!(series.utilisation(row, 0), 3.0 / 8.0);
    }
}
