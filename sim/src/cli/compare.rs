//! `erd-sim compare`: every scheme with every seed.

use super::progress::bar;
use super::{Output, Scenario, jobs};
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use erd_sim::report::Group;
use erd_sim::report::figures::{ALL, Figure};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// What the printed table shows; the report has everything.
const SHOWN: &[&str] = &[
    "mean completion, us",
    "p50 completion, us",
    "p99 completion, us",
    "max completion, us",
    "p99 slowdown",
    "goodput, Gb/s",
    "fairness (Jain)",
    "repeats, % of packets",
    "packets trimmed",
    "packets that came late, %",
    "deepest queue, kB",
];

#[derive(clap::Args)]
pub struct CompareArgs {
    /// The scenario's file.
    file: PathBuf,
    /// Schemes, as NAME or NAME:PROFILE, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    schemes: Vec<String>,
    /// Seeds, separated by commas; that of the file unless given.
    #[arg(long, value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Runs at once; as many as there are processors unless given. The results are the same for any number.
    #[arg(long)]
    jobs: Option<usize>,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &CompareArgs) -> Result<()> {
    let scenario = Scenario::read(&args.file)?;
    let source = scenario.source();
    let seeds = match &args.seeds[..] {
        [] => vec![source.read()?.seed],
        seeds => seeds.to_vec(),
    };
    let bar = bar(args.schemes.len() * seeds.len(), "runs", args.output.quiet);
    bar.tick();
    let groups = source.matrix(&args.schemes, &seeds, jobs(args.jobs)?, &|| bar.inc(1))?;
    bar.finish_and_clear();
    let list = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let seeds = if seeds.len() == 1 { "seed" } else { "seeds" };
    let about = format!("Schemes side by side, {seeds} {list}.");
    let all: Vec<Value> = groups.iter().map(figures).collect::<Result<_>>()?;
    let json = json!({ "scenario": scenario.name, "schemes": all });
    if args.output.json {
        println!("{json:#}");
    } else {
        println!("{}", table(&groups, SHOWN));
        for group in &groups {
            group.unfinished.iter().for_each(|why| println!("{}: {why}", group.name));
        }
    }
    args.output.write(&scenario, &about, &groups, &json)
}

/// Medians of figures, a line for each group.
pub fn table(groups: &[Group], names: &[&str]) -> Table {
    let figures: Vec<&Figure> = ALL.iter().filter(|of| names.contains(&of.name)).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let head = figures.iter().map(|figure| figure.name.replace(", ", ",\n"));
    table.set_header(std::iter::once(String::new()).chain(head));
    for group in groups {
        let values = figures.iter().map(|figure| figure.text(figure.median(group)));
        table.add_row(std::iter::once(group.name.clone()).chain(values));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A group's medians and runs.
pub fn figures(group: &Group) -> Result<Value> {
    let median = |figure: &Figure| (figure.name.to_owned(), json!(figure.median(group)));
    let medians: Map<String, Value> = ALL.iter().map(median).collect();
    let mut value = serde_json::to_value(group)?;
    value["medians"] = medians.into();
    Ok(value)
}
