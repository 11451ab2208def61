//! `erd-sim advise`: which scheme and settings to choose.

use super::compare::{figures, table};
use super::progress::bar;
use super::{Scenario, jobs};
use anyhow::Result;
use erd_sim::advise::{Advice, Question};
use erd_sim::report::Group;
use erd_sim::schemes;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What decides, and what else a reader asks for.
const SHOWN: &[&str] = &[
    "mean completion, us",
    "p99 completion, us",
    "max completion, us",
    "p99 slowdown",
    "goodput, Gb/s",
    "repeats, % of packets",
    "deepest queue, kB",
];

#[derive(clap::Args)]
pub struct AdviseArgs {
    /// The scenario's file: the network and what its hosts do.
    file: PathBuf,
    /// Schemes to try, separated by commas; all unless given.
    #[arg(long, value_delimiter = ',')]
    schemes: Vec<String>,
    /// Seeds to try each candidate with, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    seeds: Vec<u64>,
    /// Runs at once; as many as there are processors unless given. The advice is the same for any number.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

pub fn run(args: &AdviseArgs) -> Result<()> {
    let scenario = Scenario::read(&args.file)?;
    let all: Vec<String> = schemes::NAMES.iter().map(|name| (*name).to_owned()).collect();
    let question = Question {
        source: scenario.source(),
        schemes: if args.schemes.is_empty() { &all } else { &args.schemes },
        seeds: &args.seeds,
        jobs: jobs(args.jobs)?,
    };
    let bar = bar(0, "runs", args.quiet);
    let advice = question.answer(&|runs| bar.set_length(runs as u64), &|| bar.inc(1));
    bar.finish_and_clear();
    let advice = advice?;
    if args.json {
        println!("{:#}", as_json(&advice)?);
    } else {
        print(&advice);
    }
    Ok(())
}

fn as_json(advice: &Advice) -> Result<Value> {
    let candidate = |(candidate, group): &(_, Group)| -> Result<Value> {
        let mut value = figures(group)?;
        value["candidate"] = serde_json::to_value(candidate)?;
        Ok(value)
    };
    let candidates: Vec<Value> = advice.candidates.iter().map(candidate).collect::<Result<_>>()?;
    Ok(json!({ "reasons": advice.reasons, "candidates": candidates }))
}

fn print(advice: &Advice) {
    let groups: Vec<Group> = advice.candidates.iter().map(|(_, group)| group.clone()).collect();
    println!("{}", table(&groups, SHOWN));
    let Some((best, _)) = advice.candidates.first() else { return };
    println!("\nChoose {best}: FI_ERD_CC={} FI_ERD_PATHS={}", best.scheme, best.paths);
    match best.trimming {
        Some(true) => println!("Let the switches trim."),
        Some(false) => println!("Let the switches drop rather than trim."),
        None => {}
    }
    println!("The steps that decided:");
    for reason in &advice.reasons {
        println!("- {reason}");
    }
}
