//! Prints the simulator's tables.

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use erd_rd::config::PATHS_MAX;
use erd_sim::scenario::Start;
use erd_sim::schemes;
use erd_sim::tables::{self, TABLES, Table};
use std::time::Instant;

/// Runs the erd engine over simulated networks.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints a table as the repository keeps it.
    Table {
        /// Its name: ecn, noecn, trimming, jitter or faults.
        name: String,
        /// Only these schemes.
        #[arg(long)]
        scheme: Vec<String>,
    },
    /// Runs flows once, prints what they reach, and how fast the simulator is.
    Run(RunArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Scheme of the flows.
    scheme: String,
    /// How many flows.
    #[arg(long, default_value_t = 8)]
    flows: u32,
    /// Paths, each with its part of the rate.
    #[arg(long, default_value_t = 8)]
    paths: u16,
    /// Path numbers to spray over; as many as paths unless given.
    #[arg(long)]
    entropies: Option<u16>,
    /// Flows start one after the other.
    #[arg(long)]
    staggered: bool,
    /// No marks.
    #[arg(long)]
    no_ecn: bool,
    /// Base round trips of the measurement.
    #[arg(long, default_value_t = 500)]
    rtts: u64,
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Table { name, scheme } => table(&name, &scheme),
        Command::Run(args) => run(&args),
    }
}

fn known(scheme: &str) -> anyhow::Result<()> {
    ensure!(schemes::by_name(scheme).is_some(), "schemes are {:?}", schemes::NAMES);
    Ok(())
}

fn table(name: &str, only: &[String]) -> anyhow::Result<()> {
    let names = TABLES.map(|table| table.name);
    let table = Table::by_name(name).with_context(|| format!("tables are {names:?}"))?;
    only.iter().try_for_each(|scheme| known(scheme))?;
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    print!("{}", table.text(if only.is_empty() { schemes::NAMES } else { &only }));
    Ok(())
}

fn run(args: &RunArgs) -> anyhow::Result<()> {
    known(&args.scheme)?;
    let paths = args.paths;
    ensure!((1..=PATHS_MAX).contains(&paths), "--paths lies between 1 and {PATHS_MAX}");
    ensure!(args.flows > 0 && args.rtts > 0, "--flows and --rtts are at least 1");
    let entropies = args.entropies.unwrap_or(paths);
    ensure!((1..=PATHS_MAX).contains(&entropies), "--entropies lies between 1 and {PATHS_MAX}");
    let mut scenario = tables::scenario(&args.scheme, args.flows);
    (scenario.net.paths, scenario.net.entropies) = (paths, entropies);
    scenario.net.seed = args.seed;
    scenario.net.red_bdp = scenario.net.red_bdp.filter(|_| !args.no_ecn);
    scenario.measured_rtts = args.rtts;
    if args.staggered {
        scenario.start = Start::Staggered;
    }
    let began = Instant::now();
    let outcome = scenario.run();
    let seconds = began.elapsed().as_secs_f64();
    println!("{outcome:#?}");
    let events = outcome.events as f64 / seconds / 1e6;
    println!("{seconds:.2} s, {events:.2} million events a second");
    Ok(())
}
