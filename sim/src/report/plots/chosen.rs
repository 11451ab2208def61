//! Which plots show what of runs.

use super::bars::Bars;
use super::heat::Heat;
use super::lines::{Axes, Curve, lines};
use super::{Plot, PlotError, legend, number};
use crate::report::{Group, MessageRow, behind};
use crate::series::{DISTANCES, FlowSeries, Series};
use std::collections::BTreeMap;

/// Ratio of the greatest value to the least from which an axis is logarithmic.
const WIDE: f64 = 30.0;

fn names(groups: &[Group]) -> Vec<(String, String)> {
    legend(groups.iter().map(|group| group.name.as_str()))
}

fn messages(group: &Group) -> impl Iterator<Item = &MessageRow> {
    group.runs.iter().flat_map(|run| &run.messages)
}

/// Whether the values of curves need a logarithmic axis.
fn is_wide(values: impl Iterator<Item = f64> + Clone) -> bool {
    let least = values.clone().fold(f64::MAX, f64::min);
    least > 0.0 && values.fold(0.0, f64::max) / least > WIDE
}

/// Distribution of completion times.
pub fn completions(groups: &[Group]) -> Result<Plot, PlotError> {
    distribution(groups, ("Completion times", "completion time, us"), |of| of.completion_us)
}

fn distribution(
    groups: &[Group],
    (title, x): (&str, &str),
    value: fn(&MessageRow) -> f64,
) -> Result<Plot, PlotError> {
    let curve = |group: &Group| -> Curve {
        let mut values: Vec<f64> = messages(group).map(value).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len().max(1) as f64;
        let share = |(at, value): (usize, f64)| (value, (at + 1) as f64 * 100.0 / count);
        values.into_iter().enumerate().map(share).collect()
    };
    let curves: Vec<Curve> = groups.iter().map(curve).collect();
    let log = is_wide(curves.iter().flatten().map(|at| at.0));
    let y = "messages that took no longer, %";
    let axes = Axes { title, x, y, log: [log, false], dots: false };
    Ok(Plot {
        title: title.to_owned(),
        note: "The share of messages that were done within a time.".to_owned(),
        legend: names(groups),
        svg: lines(axes, &curves)?,
    })
}

/// Slowdown by size; its distribution if all messages are of one size.
pub fn slowdowns(groups: &[Group]) -> Result<Plot, PlotError> {
    let mut sizes: Vec<u32> = groups.iter().flat_map(messages).map(size_class).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        let mut plot = distribution(groups, ("Slowdown", "slowdown"), |of| of.slowdown)?;
        "The share of messages within a slowdown: completion time over the least one that the network allows. All \
         messages are of about one size."
            .clone_into(&mut plot.note);
        return Ok(plot);
    }
    let curve = |group: &Group| -> Curve {
        let mut classes: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for message in messages(group) {
            classes.entry(size_class(message)).or_default().push(message.slowdown);
        }
        let p99 = |values: Vec<f64>| {
            crate::summary::Percentiles::of(values).map_or(0.0, |percentiles| percentiles.p99)
        };
        classes.into_iter().map(|(class, values)| (f64::from(class).exp2(), p99(values))).collect()
    };
    let curves: Vec<Curve> = groups.iter().map(curve).collect();
    let wide = is_wide(curves.iter().flatten().map(|at| at.1));
    let title = "Slowdown by size";
    let (x, y) = ("message, bytes", "slowdown, p99");
    Ok(Plot {
        title: title.to_owned(),
        note: "The 99th percentile of the slowdown (completion time over the least one that the network allows) of the \
               messages of a size, from that power of two to the next."
            .to_owned(),
        legend: names(groups),
        svg: lines(Axes { title, x, y, log: [true, wide], dots: true }, &curves)?,
    })
}

/// The power of two below a message's length.
fn size_class(message: &MessageRow) -> u32 {
    message.bytes.max(1).ilog2()
}

/// What all hosts together got over time.
pub fn arriving(groups: &[Group]) -> Result<Plot, PlotError> {
    let curve = |group: &Group| -> Curve {
        let Some(run) = group.runs.first() else { return Vec::new() };
        let series = &run.series;
        let sent = |at: usize| {
            let rows = series.rows.iter().filter(|row| row.tiers[1] == 0);
            rows.map(|row| row.sent_bytes[at]).sum::<u64>()
        };
        over_time(series, |at| rate_gbps(sent(at), series, at))
    };
    let curves: Vec<Curve> = groups.iter().map(curve).collect();
    let title = "Rate of the whole network";
    Ok(Plot {
        title: title.to_owned(),
        note:
            "What all links to hosts carry together, with headers and repeats; of the first seed."
                .to_owned(),
        legend: names(groups),
        svg: lines(Axes { title, y: "rate, Gb/s", ..TIME }, &curves)?,
    })
}

const TIME: Axes<'static> =
    Axes { title: "", x: "time, us", y: "", log: [false, false], dots: false };

/// A value for the middle of each interval.
fn over_time(series: &Series, value: impl Fn(usize) -> f64) -> Curve {
    let middle = |at: usize| {
        let begin = at as u64 * series.interval_ps;
        (begin + series.length_ps(at) / 2) as f64 / 1e6
    };
    (0..series.samples()).map(|at| (middle(at), value(at))).collect()
}

fn rate_gbps(bytes: u64, series: &Series, at: usize) -> f64 {
    let nanoseconds = series.length_ps(at).max(1) as f64 / 1e3;
    bytes as f64 * 8.0 / nanoseconds
}

fn flow_names(series: &Series) -> Vec<(String, String)> {
    let name = |flow: &FlowSeries| format!("h{} to h{}", flow.flow.from.0, flow.flow.to.0);
    let names: Vec<String> = series.flows.iter().map(name).collect();
    legend(names.iter().map(String::as_str))
}

/// The last interval in which anything happens to a flow.
fn last_busy(flow: &FlowSeries) -> usize {
    flow.arrived_bytes.iter().rposition(|bytes| *bytes > 0).map_or(0, |at| at + 1)
}

/// Throughput of some flows over time.
pub fn throughput(series: &Series) -> Result<Plot, PlotError> {
    let curve = |flow: &FlowSeries| -> Curve {
        let rates = over_time(series, |at| rate_gbps(flow.arrived_bytes[at], series, at));
        rates.into_iter().take(last_busy(flow) + 1).collect()
    };
    let curves: Vec<Curve> = series.flows.iter().map(curve).collect();
    let title = "Throughput of some messages";
    Ok(Plot {
        title: title.to_owned(),
        note: format!(
            "Payload that the receiver gets, for {} messages evenly spaced over all.",
            series.flows.len()
        ),
        legend: flow_names(series),
        svg: lines(Axes { title, y: "payload, Gb/s", ..TIME }, &curves)?,
    })
}

/// Congestion windows of some flows over time.
pub fn windows(series: &Series) -> Result<Plot, PlotError> {
    let curve = |flow: &FlowSeries| -> Curve {
        let windows = over_time(series, |at| flow.window_bytes[at] as f64 / 1e3);
        windows.into_iter().take(last_busy(flow)).filter(|at| at.1 > 0.0).collect()
    };
    let curves: Vec<Curve> = series.flows.iter().map(curve).collect();
    let title = "Congestion windows of some messages";
    Ok(Plot {
        title: title.to_owned(),
        note: "Bytes that the sender may have in flight to the receiver, until the message has arrived."
            .to_owned(),
        legend: flow_names(series),
        svg: lines(Axes { title, y: "window, kB", ..TIME }, &curves)?,
    })
}

/// Depth of the queues, links by time.
pub fn queues(name: &str, series: &Series) -> Result<Plot, PlotError> {
    let title = format!("Queues: {name}");
    let value = |row: &crate::series::RowSeries, at: usize| row.queue_max_bytes[at] as f64 / 1e3;
    let heat = Heat { title: &title, unit: "kB", value: &value, most: None };
    let rows = series.rows.iter().map(|row| row.links).max().unwrap_or(1);
    let sharing = if rows > 1 {
        format!(" Up to {rows} neighbouring links share a line.")
    } else {
        String::new()
    };
    Ok(Plot {
        note: format!(
            "The greatest depth of each link's queue in each interval. White: nothing waits.{sharing}"
        ),
        legend: Vec::new(),
        svg: heat.draw(series)?,
        title,
    })
}

/// Utilisation, links by time.
pub fn utilisation(name: &str, series: &Series) -> Result<Plot, PlotError> {
    let title = format!("Utilisation: {name}");
    let value = |row: &crate::series::RowSeries, at: usize| series.utilisation(row, at) * 100.0;
    let heat = Heat { title: &title, unit: "%", value: &value, most: Some(100.0) };
    Ok(Plot {
        note: "The share of its rate that each link sends in each interval. White: it is idle."
            .to_owned(),
        legend: Vec::new(),
        svg: heat.draw(series)?,
        title,
    })
}

/// Shares of path numbers, over the pairs that were watched.
pub fn paths(series: &Series) -> Result<Plot, PlotError> {
    let count = series.pairs.iter().map(|pair| pair.path_packets.len()).max().unwrap_or(0);
    let shares = |path: usize| -> Vec<f64> {
        let share = |pair: &crate::series::PairCounts| {
            let all: u64 = pair.path_packets.iter().sum();
            let packets = pair.path_packets.get(path).copied().unwrap_or(0);
            packets as f64 * 100.0 / all.max(1) as f64
        };
        let is_used = |pair: &&crate::series::PairCounts| !pair.path_packets.is_empty();
        series.pairs.iter().filter(is_used).map(share).collect()
    };
    let mut groups = Vec::new();
    let mut ranges = Vec::new();
    for path in 0..count {
        let shares = shares(path);
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        groups.push((path.to_string(), vec![mean]));
        let least = shares.iter().copied().fold(f64::MAX, f64::min);
        ranges.push((least, shares.iter().copied().fold(0.0, f64::max)));
    }
    let title = "Path shares";
    let bars =
        Bars { title, x: "path number", y: "data packets, %", groups, stacked: false, ranges };
    Ok(Plot {
        title: title.to_owned(),
        note: format!(
            "The share of a sender's data packets that takes each path number: the mean over {} pairs of hosts, and the \
             least and the greatest share.",
            series.pairs.len()
        ),
        legend: Vec::new(),
        svg: bars.draw()?,
    })
}

/// How far packets come out of order.
pub fn reordering(groups: &[Group]) -> Result<Plot, PlotError> {
    let shares: Vec<Vec<f64>> = groups.iter().map(late_shares).collect();
    let last = shares.iter().filter_map(|of| of.iter().rposition(|share| *share > 0.0)).max();
    let name = |class: usize| match class {
        0 => "1".to_owned(),
        _ if class + 2 == DISTANCES => format!("{}+", 1_u64 << class),
        _ => format!("{}-{}", 1_u64 << class, (2_u64 << class) - 1),
    };
    let group = |class: usize| (name(class), shares.iter().map(|of| of[class]).collect());
    let title = "Reordering";
    let bars = Bars {
        title,
        x: "later packets that were faster",
        y: "data packets, %",
        groups: (0..=last.unwrap_or(0)).map(group).collect(),
        stacked: false,
        ranges: Vec::new(),
    };
    Ok(Plot {
        title: title.to_owned(),
        note: format!(
            "The share of data packets that come after so many later ones of the same sender, over the pairs of hosts that \
             are watched. {} come in order.",
            in_order(groups)
        ),
        legend: names(groups),
        svg: bars.draw()?,
    })
}

/// Shares of packets that come behind, by class, without those that do not.
fn late_shares(group: &Group) -> Vec<f64> {
    let mut counts = [0; DISTANCES];
    for run in &group.runs {
        counts.iter_mut().zip(behind(&run.series)).for_each(|(sum, count)| *sum += count);
    }
    let all: u64 = counts.iter().sum();
    counts[1..].iter().map(|count| *count as f64 * 100.0 / all.max(1) as f64).collect()
}

fn in_order(groups: &[Group]) -> String {
    let of = |group: &Group| {
        let late: f64 = late_shares(group).iter().sum();
        format!("{:.1} % ({})", 100.0 - late, group.name)
    };
    groups.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// Completion times of groups side by side: the medians of mean, p99 and greatest.
pub fn comparison(groups: &[Group]) -> Result<Plot, PlotError> {
    use crate::report::figures::{MAX, MEAN, P99};
    let of = |group: &Group| {
        let heights = [MEAN, P99, MAX].map(|figure| figure.median(group).unwrap_or(0.0));
        (group.name.clone(), heights.to_vec())
    };
    let title = "Completion times side by side";
    let groups = groups.iter().map(of).collect();
    let bars =
        Bars { title, x: "", y: "completion time, us", groups, stacked: false, ranges: Vec::new() };
    Ok(Plot {
        title: title.to_owned(),
        note: "Medians over the seeds.".to_owned(),
        legend: legend(["mean", "p99", "max"]),
        svg: bars.draw()?,
    })
}

/// Repeats of data packets by what found the loss.
pub fn repeats(groups: &[Group]) -> Result<Plot, PlotError> {
    let of = |group: &Group| {
        let sum = |of: fn(&crate::transport::Repeats) -> u64| {
            let all = group.runs.iter().map(|run| of(&run.summary.repeats)).sum::<u64>();
            all as f64 / group.runs.len().max(1) as f64
        };
        let heights = [
            sum(|of| of.nack),
            sum(|of| of.probe),
            sum(|of| of.order),
            sum(|of| of.trim),
            sum(|of| of.timeout),
        ];
        (group.name.clone(), heights.to_vec())
    };
    let title = "Repeats by cause";
    let groups: Vec<(String, Vec<f64>)> = groups.iter().map(of).collect();
    let all: f64 = groups.iter().flat_map(|group| &group.1).sum();
    let bars = Bars { title, x: "", y: "packets", groups, stacked: true, ranges: Vec::new() };
    Ok(Plot {
        title: title.to_owned(),
        note: format!(
            "Data packets that are sent again, by what finds the loss; the mean over the seeds. All together: {}.",
            number(all)
        ),
        legend: legend([
            "receiver's scan",
            "probe",
            "later acknowledgements",
            "trimmed",
            "timeout",
        ]),
        svg: bars.draw()?,
    })
}
