//! The program that prints the simulator's tables.

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use erd_rd::cc::options::OptionInfo;
use erd_rd::config::PATHS_MAX;
use erd_sim::scenario::{SchemeMaker, Start};
use erd_sim::schemes;
use erd_sim::tables::{self, TABLES, Table};
use std::rc::Rc;
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
    /// Hosts whose polls are late by so many us on average, one in a thousand by 200.
    #[arg(long)]
    noise_us: Option<u64>,
    /// Base round trips of the measurement: 500, or 5000 with noise, unless given.
    #[arg(long)]
    rtts: Option<u64>,
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A setting of the scheme, as NAME=VALUE; several may be given.
    #[arg(long, value_parser = setting)]
    set: Vec<(String, f32)>,
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

fn setting(text: &str) -> anyhow::Result<(String, f32)> {
    let (name, value) = text.split_once('=').context("a setting is given as NAME=VALUE")?;
    let value = value.parse().with_context(|| format!("{value:?} is no number"))?;
    Ok((name.to_owned(), value))
}

/// Makes a scheme with some settings changed.
fn with_settings(name: &str, values: &[(String, f32)]) -> anyhow::Result<SchemeMaker> {
    let mut changed = schemes::by_name(name).context("no such scheme")?;
    for (setting, value) in values {
        changed.set(setting, *value).with_context(|| {
            let options = changed.options().iter().map(OptionInfo::to_string).collect::<Vec<_>>();
            format!("setting {setting:?} of {name}, which has: {}", options.join(", "))
        })?;
    }
    let (name, values) = (name.to_owned(), values.to_vec());
    Ok(Rc::new(move || {
        let mut scheme = schemes::by_name(&name).expect("built once before");
        for (setting, value) in &values {
            scheme.set(setting, *value).expect("set once before");
        }
        scheme
    }))
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
    ensure!(args.flows > 0 && args.rtts != Some(0), "--flows and --rtts are at least 1");
    let entropies = args.entropies.unwrap_or(paths);
    ensure!((1..=PATHS_MAX).contains(&entropies), "--entropies lies between 1 and {PATHS_MAX}");
    let mut scenario = tables::scenario(&args.scheme, args.flows);
    (scenario.net.paths, scenario.net.entropies) = (paths, entropies);
    scenario.net.seed = args.seed;
    scenario.net.red_bdp = scenario.net.red_bdp.filter(|_| !args.no_ecn);
    if let Some(mean_us) = args.noise_us {
        tables::make_noisy(&mut scenario, mean_us);
    }
    scenario.measured_rtts = args.rtts.unwrap_or(scenario.measured_rtts);
    scenario.scheme = with_settings(&args.scheme, &args.set)?;
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
