//! What a person sees of runs: figures, rows of messages, and a page with plots. The page is one file that needs no
//! network.
//!
//! [`figures`] says which numbers are shown of a run, [`rows`] writes a row for each message, [`plots`] draws, [`page`] puts
//! the page together.

pub mod figures;
pub mod page;
pub mod plots;
pub mod rows;

use crate::experiment::{FlowResult, Results};
use crate::patterns::bound::Bound;
use crate::series::{DISTANCES, Series};
use crate::summary::Summary;
use crate::time::Picos;
use serde::Serialize;

/// A run with a scheme and a seed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SchemeRun {
    /// All the randomness there was.
    pub seed: u64,
    /// What came of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its queues.
    pub queues: Queues,
    /// The order of its packets.
    pub order: Order,
    /// Its messages.
    #[serde(skip)]
    pub messages: Vec<MessageRow>,
    /// How it went over time.
    #[serde(skip)]
    pub series: Series,
}

/// Runs with one scheme and several seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Group {
    /// The scheme, and what else differs between groups.
    pub name: String,
    /// One for each seed.
    pub runs: Vec<SchemeRun>,
    /// Why runs have no results: the time was not enough.
    pub unfinished: Vec<String>,
}

/// How a message fared, in microseconds from the beginning of the work on.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct MessageRow {
    /// Its number.
    pub message: u32,
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Payload.
    pub bytes: u64,
    /// When the sender could begin.
    pub began_us: f64,
    /// From then until the receiver had all of it.
    pub completion_us: f64,
    /// From then until the sender knew.
    pub acknowledged_us: f64,
    /// Least such time until the receiver has all of it that the network allows.
    pub least_us: f64,
    /// Completion time over the least one.
    pub slowdown: f64,
}

/// Queues of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Queues {
    /// Greatest depth of any.
    pub max_bytes: u64,
    /// The row of links with the deepest queues on average.
    pub busiest: String,
    /// Their mean depth.
    pub busiest_mean_bytes: f64,
}

/// Order of data packets, over the pairs of hosts that were watched.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Order {
    /// Share of packets that came after later ones.
    pub late_share: f64,
    /// Most later packets that overtook one.
    pub behind_max: u32,
}

impl SchemeRun {
    /// Of an experiment, the bound of its work, and its samples.
    #[must_use]
    pub fn of(seed: u64, results: &Results, bound: &Bound, series: Series) -> SchemeRun {
        let flows = results.flows.iter().zip(&bound.flows_ps);
        SchemeRun {
            seed,
            summary: Summary::of(results, bound),
            queues: Queues::of(&series),
            order: Order::of(&series),
            messages: (0..)
                .zip(flows)
                .map(|(number, (flow, least))| message(number, flow, *least, results.begin))
                .collect(),
            series,
        }
    }
}

fn message(number: u32, result: &FlowResult, least: Picos, begin: Picos) -> MessageRow {
    let us = |time: Picos| time as f64 / 1e6;
    let completion_us = us(result.completion_ps());
    MessageRow {
        message: number,
        from: result.flow.from.0,
        to: result.flow.to.0,
        bytes: result.flow.bytes,
        began_us: us(result.began.saturating_sub(begin)),
        completion_us,
        acknowledged_us: us(result.acknowledged - result.began),
        least_us: us(least),
        slowdown: if least > 0 { completion_us / us(least) } else { 1.0 },
    }
}

impl Queues {
    fn of(series: &Series) -> Queues {
        let lengths: Vec<f64> =
            (0..series.samples()).map(|at| series.length_ps(at) as f64).collect();
        let whole = lengths.iter().sum::<f64>().max(1.0);
        let mut queues = Queues::default();
        for row in &series.rows {
            let area = row.queue_mean_bytes.iter().zip(&lengths).map(|(mean, len)| mean * len);
            let mean = area.sum::<f64>() / whole;
            if mean > queues.busiest_mean_bytes {
                queues.busiest_mean_bytes = mean;
                queues.busiest.clone_from(&row.name);
            }
            let most = row.queue_max_bytes.iter().copied().max().unwrap_or(0);
            queues.max_bytes = queues.max_bytes.max(most);
        }
        queues
    }
}

impl Order {
    fn of(series: &Series) -> Order {
        let counts = behind(series);
        let all: u64 = counts.iter().sum();
        let late = all - counts[0];
        let behind_max = series.pairs.iter().map(|pair| pair.behind_max).max().unwrap_or(0);
        Order { late_share: late as f64 / all.max(1) as f64, behind_max }
    }
}

/// Packets of all watched pairs, by how far they came behind.
fn behind(series: &Series) -> [u64; DISTANCES] {
    let mut counts = [0; DISTANCES];
    for pair in &series.pairs {
        counts.iter_mut().zip(pair.behind).for_each(|(sum, count)| *sum += count);
    }
    counts
}
