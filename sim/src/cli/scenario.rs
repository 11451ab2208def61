//! `erd-sim scenario`: one run.

use super::progress::Watched;
use super::{Output, Scenario};
use anyhow::Result;
use erd_sim::compare::{Case, bound_of};
use erd_sim::experiment::Experiment;
use erd_sim::read::scenario::Prepared;
use erd_sim::report::{Group, Order, Queues, SchemeRun};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct ScenarioArgs {
    /// The file.
    file: PathBuf,
    /// Another scheme than that of the file, as NAME or NAME:PROFILE.
    #[arg(long)]
    scheme: Option<String>,
    /// Another seed than that of the file.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads. The results are the same for any number.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[command(flatten)]
    output: Output,
}

pub fn run(args: &ScenarioArgs) -> Result<()> {
    let scenario = Scenario::read(&args.file)?;
    let source = scenario.source();
    let scheme = match &args.scheme {
        Some(scheme) => scheme.clone(),
        None => source.read()?.engines.scheme.get_ref().clone(),
    };
    let case = Case { scheme: args.scheme.clone(), seed: args.seed, ..Case::default() };
    let prepared = source.prepare(&case)?;
    let bound = bound_of(&prepared);
    let Prepared { plan, work, engines, failures, seed, limit_ps, .. } = prepared;
    let about = format!(
        "{} hosts, {} messages, scheme {scheme} with {} paths, seed {seed}.",
        plan.hosts(),
        work.flows().len(),
        engines.paths
    );
    let experiment = Experiment { plan, work, engines, seed, threads: args.threads };
    let mut watched = Watched::new(args.output.quiet);
    let run = experiment.run_observed(limit_ps, &failures, &mut watched);
    watched.clear();
    let (results, mut fabric) = run?;
    let run = SchemeRun::of(seed, &results, &bound, watched.sampler.finish(&mut fabric));
    let json = serde_json::to_value(&run)?;
    if args.output.json {
        println!("{json:#}");
    } else {
        print(&run);
    }
    let group = Group { name: scheme, runs: vec![run], unfinished: Vec::new() };
    args.output.write(&scenario, &about, &[group], &json)
}

fn print(run: &SchemeRun) {
    let Queues { max_bytes, busiest, busiest_mean_bytes } = &run.queues;
    let Order { late_share, behind_max } = run.order;
    println!("{}", run.summary);
    println!(
        "queues: {:.1} kB at most; {:.1} kB on average at the busiest link, {busiest}",
        *max_bytes as f64 / 1e3,
        busiest_mean_bytes / 1e3
    );
    println!(
        "order: {:.2} % of data packets came late, at most {behind_max} behind",
        late_share * 100.0
    );
}
