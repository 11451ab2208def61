//! The numbers that are shown of a run, each with its name and unit.

use super::{Group, SchemeRun};
use crate::summary::{Percentiles, Summary};

/// What makes a number a good one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Less.
    Less,
    /// More.
    More,
    /// Neither: it tells what happened.
    Neither,
}

/// A number of a run.
pub struct Figure {
    /// What it is, with its unit.
    pub name: &'static str,
    /// Digits after the point.
    pub digits: usize,
    /// What makes it a good one.
    pub better: Better,
    /// The number; `None` if a run has none, for lack of messages.
    pub of: fn(&SchemeRun) -> Option<f64>,
}

const fn figure(
    name: &'static str,
    digits: usize,
    better: Better,
    of: fn(&SchemeRun) -> Option<f64>,
) -> Figure {
    Figure { name, digits, better, of }
}

fn completion(run: &SchemeRun, of: fn(&Percentiles) -> f64) -> Option<f64> {
    run.summary.completion_us.as_ref().map(of)
}

fn slowdown(run: &SchemeRun, of: fn(&Percentiles) -> f64) -> Option<f64> {
    run.summary.slowdown.as_ref().map(of)
}

/// Share of data packets that a count is, in percent.
fn of_packets(summary: &Summary, count: u64) -> Option<f64> {
    Some(count as f64 * 100.0 / summary.data_packets.max(1) as f64)
}

/// Mean completion time.
pub const MEAN: Figure =
    figure("mean completion, us", 1, Better::Less, |run| completion(run, |of| of.mean));
/// 99th percentile of the completion times.
pub const P99: Figure =
    figure("p99 completion, us", 1, Better::Less, |run| completion(run, |of| of.p99));
/// Greatest completion time.
pub const MAX: Figure =
    figure("max completion, us", 1, Better::Less, |run| completion(run, |of| of.max));
/// Repeats by all causes.
pub const REPEATS: Figure = figure("repeats, % of packets", 3, Better::Less, |run| {
    of_packets(&run.summary, run.summary.repeats.all())
});
/// Greatest queue.
pub const QUEUE: Figure =
    figure("deepest queue, kB", 1, Better::Less, |run| Some(run.queues.max_bytes as f64 / 1e3));

/// All of them, in the order in which they are shown.
pub const ALL: &[Figure] = &[
    figure("messages", 0, Better::Neither, |run| Some(run.summary.messages as f64)),
    figure("min completion, us", 1, Better::Less, |run| completion(run, |of| of.min)),
    MEAN,
    figure("least mean that the network allows, us", 1, Better::Neither, |run| {
        Some(run.summary.bound_mean_us)
    }),
    figure("p50 completion, us", 1, Better::Less, |run| completion(run, |of| of.p50)),
    P99,
    MAX,
    figure("mean slowdown", 2, Better::Less, |run| slowdown(run, |of| of.mean)),
    figure("p99 slowdown", 2, Better::Less, |run| slowdown(run, |of| of.p99)),
    figure("max slowdown", 2, Better::Less, |run| slowdown(run, |of| of.max)),
    figure("all arrived after, us", 1, Better::Less, |run| Some(run.summary.whole_us)),
    figure("goodput, Gb/s", 1, Better::More, |run| {
        Some(run.summary.goodput_bytes_per_s * 8.0 / 1e9)
    }),
    figure("fairness (Jain)", 4, Better::More, |run| Some(run.summary.fairness)),
    figure("data packets", 0, Better::Neither, |run| Some(run.summary.data_packets as f64)),
    REPEATS,
    figure("repeats found by scan", 0, Better::Neither, |run| {
        Some(run.summary.repeats.nack as f64)
    }),
    figure("repeats found by probe", 0, Better::Neither, |run| {
        Some(run.summary.repeats.probe as f64)
    }),
    figure("repeats found by order", 0, Better::Neither, |run| {
        Some(run.summary.repeats.order as f64)
    }),
    figure("repeats of trimmed packets", 0, Better::Neither, |run| {
        Some(run.summary.repeats.trim as f64)
    }),
    figure("repeats after a timeout", 0, Better::Neither, |run| {
        Some(run.summary.repeats.timeout as f64)
    }),
    figure("repeats not needed", 0, Better::Less, |run| Some(run.summary.repeats.spurious as f64)),
    figure("packets dropped by full queues", 0, Better::Less, |run| {
        Some(run.summary.links.drops as f64)
    }),
    figure("packets lost on links", 0, Better::Neither, |run| Some(run.summary.links.lost as f64)),
    figure("packets trimmed", 0, Better::Less, |run| Some(run.summary.links.trims as f64)),
    figure("packets marked", 0, Better::Neither, |run| Some(run.summary.links.marks as f64)),
    figure("packets that came late, %", 2, Better::Less, |run| Some(run.order.late_share * 100.0)),
    figure("farthest behind, packets", 0, Better::Less, |run| {
        Some(f64::from(run.order.behind_max))
    }),
    QUEUE,
    figure("busiest link's mean queue, kB", 1, Better::Less, |run| {
        Some(run.queues.busiest_mean_bytes / 1e3)
    }),
];

impl Figure {
    /// The median over a group's runs; `None` if none of them has the number.
    #[must_use]
    pub fn median(&self, group: &Group) -> Option<f64> {
        let mut values: Vec<f64> = group.runs.iter().filter_map(self.of).collect();
        values.sort_by(f64::total_cmp);
        let half = values.len() / 2;
        match values.len() {
            0 => None,
            count if count % 2 == 1 => Some(values[half]),
            _ => Some((values[half - 1] + values[half]) / 2.0),
        }
    }

    /// A number of its kind as a text.
    #[must_use]
    pub fn text(&self, value: Option<f64>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.*}", self.digits))
    }

    /// Whether a value is as good as any of these, and better than some.
    #[must_use]
    pub fn is_best(&self, value: f64, among: &[Option<f64>]) -> bool {
        let values = || among.iter().flatten();
        if values().all(|other| *other == value) {
            return false;
        }
        match self.better {
            Better::Less => values().all(|other| value <= *other),
            Better::More => values().all(|other| value >= *other),
            Better::Neither => false,
        }
    }
}
