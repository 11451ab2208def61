//! The tables of docs/reproduction.md.

use super::claims::{Book, Claim, ClaimFigure, Paper, PaperNetwork, Scale, Show};
use super::outcome::{ClaimOutcome, ColumnOutcome, Verdict};
use super::scenario::Column;
use anyhow::Context;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the tables lie between.
const MARKERS: [&str; 2] = ["<!-- results: begin -->\n", "<!-- results: end -->\n"];

/// Replaces what lies between the markers of the page by the tables.
///
/// # Errors
/// A marker is missing.
pub fn rewritten(
    page: &str,
    book: &Book,
    outcomes: &BTreeMap<String, ClaimOutcome>,
) -> anyhow::Result<String> {
    let [begin, end] = MARKERS;
    let missing = |marker: &str| format!("the page has no line {:?}", marker.trim_end());
    let (before, rest) = page.split_once(begin).with_context(|| missing(begin))?;
    let (_, after) = rest.split_once(end).with_context(|| missing(end))?;
    Ok(format!("{before}{begin}\n{}{end}{after}", tables(book, outcomes)))
}

fn tables(book: &Book, outcomes: &BTreeMap<String, ClaimOutcome>) -> String {
    let mut out = String::new();
    for paper in &book.papers {
        let _ = write!(out, "## {}\n\n{}.\n\n", paper.paper, paper.title);
        results(&mut out, book, paper, outcomes);
        others(&mut out, paper);
    }
    out.push_str("## Networks\n\n");
    out.push_str("| network | from the paper | where it is silent |\n| --- | --- | --- |\n");
    for (name, network) in &book.constants.networks {
        let PaperNetwork { about, source, silent, .. } = network;
        let like = network.like.as_ref().map(|like| format!(", else as `{like}`"));
        let _ = writeln!(
            out,
            "| `{name}`: {about}{} | {source} | {silent} |",
            like.unwrap_or_default()
        );
    }
    out.push('\n');
    out
}

fn results(
    out: &mut String,
    book: &Book,
    paper: &Paper,
    outcomes: &BTreeMap<String, ClaimOutcome>,
) {
    if !paper.claims.iter().any(Claim::is_run) {
        return;
    }
    out.push_str("| claim | paper | ours, `paper` | ours, `product` | scenario | mean over the capacity bound | why it differs |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
    for claim in paper.claims.iter().filter(|claim| claim.is_run()) {
        let (Some(figure), Some(show)) = (claim.figure, claim.show) else { continue };
        let outcome = outcomes.get(&claim.id);
        let cell = |column: Column| match outcome.and_then(|outcome| outcome.column(column)) {
            None => "not run yet".to_owned(),
            Some(column) => values(column, figure, show),
        };
        let bounds = outcome.map_or_else(|| "-".to_owned(), ClaimOutcome::bounds);
        let _ = writeln!(
            out,
            "| {} (`{}`; {}) | {} | {} | {} | {} | {bounds} | {} |",
            claim.says,
            claim.id,
            claim.source,
            figure.text(show),
            cell(Column::Paper),
            cell(Column::Product),
            scenario(claim, outcome),
            book.reasons.get(&claim.id).map_or("", String::as_str),
        );
    }
    out.push('\n');
}

/// Claims without a run.
fn others(out: &mut String, paper: &Paper) {
    let mut claims = paper.claims.iter().filter(|claim| !claim.is_run()).peekable();
    if claims.peek().is_none() {
        return;
    }
    out.push_str("| claim without a run | what of it |\n| --- | --- |\n");
    for claim in claims {
        let what = match (&claim.by_arithmetic, &claim.not_run) {
            (Some(what), _) => format!("by arithmetic: {what}"),
            (None, Some(why)) => format!("left out: {why}"),
            (None, None) => continue,
        };
        let _ = writeln!(out, "| {} ({}) | {what} |", claim.says, claim.source);
    }
    out.push('\n');
}

/// All comparisons, and the verdict.
fn values(column: &ColumnOutcome, figure: ClaimFigure, show: Show) -> String {
    if column.values.is_empty() {
        return column.problems().next().map_or("-".to_owned(), |why| format!("none: {why}"));
    }
    let values: Vec<f64> = column.values.iter().map(|value| value.value).collect();
    let verdict = match figure.verdict(show, &values) {
        Verdict::Holds => "**holds**: ",
        Verdict::Less => "**less**: ",
        Verdict::Not => "**not so**: ",
        Verdict::Open => "",
    };
    let list: Vec<String> = column
        .values
        .iter()
        .map(|value| {
            let names = [&value.case, &value.against];
            let names: Vec<&str> =
                names.into_iter().filter(|name| !name.is_empty()).map(String::as_str).collect();
            format!("{} ({})", show.text(value.value), names.join(", "))
        })
        .collect();
    let rest = match (column.problems().count(), column.problems().next()) {
        (1, Some(what)) => format!("; a run failed: {what}"),
        (count, Some(what)) => format!("; {count} runs failed: {what}"),
        (_, None) => String::new(),
    };
    format!("{verdict}{}{rest}", list.join(", "))
}

/// The network and the size at which the claim was run.
fn scenario(claim: &Claim, outcome: Option<&ClaimOutcome>) -> String {
    let mut names: Vec<&str> = claim.network.iter().map(String::as_str).collect();
    let others = claim.arms().filter_map(|arm| arm.network.as_deref());
    let others = others.chain(claim.cases.iter().filter_map(|case| case.network.as_deref()));
    for name in others {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let size = match outcome {
        None => String::new(),
        Some(outcome) => {
            let arms = outcome.columns.iter().flat_map(|column| &column.arms);
            let mut hosts: Vec<u32> = arms.map(|arm| arm.median.hosts).collect();
            hosts.sort_unstable();
            hosts.dedup();
            let hosts: Vec<String> = hosts.iter().map(u32::to_string).collect();
            let size = match outcome.size {
                Scale::Full => "full size",
                Scale::Scaled => "scaled",
                Scale::Short => "short form",
            };
            format!("; {size}, {} hosts", hosts.join(" or "))
        }
    };
    format!("{}{size}", names.join(", "))
}

impl ClaimOutcome {
    fn column(&self, column: Column) -> Option<&ColumnOutcome> {
        self.columns.iter().find(|outcome| outcome.column == column)
    }

    /// The subject's mean completion time over its least one.
    fn bounds(&self) -> String {
        let of = |column: &ColumnOutcome| {
            let subject = column.arms.iter().filter(|arm| arm.arm.is_empty());
            let ratios: Vec<f64> =
                subject.map(|arm| arm.median.mean_us / arm.median.bound_mean_us).collect();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match ratios.len() {
                0 => "-".to_owned(),
                1 => format!("{least:.2}"),
                _ => format!("{least:.2} to {most:.2}"),
            }
        };
        self.columns.iter().map(of).collect::<Vec<_>>().join("; ")
    }
}
