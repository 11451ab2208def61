//! The program that prints the simulator's tables and runs scenarios.

mod cli;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use erd_rd::cc::options::OptionInfo;
use erd_rd::config::PATHS_MAX;
use erd_sim::experiment::{Begin, Engines, Experiment, FlowResult};
use erd_sim::fabric::clos::Clos;
use erd_sim::ids::HostId;
use erd_sim::link::{LinkConfig, Red};
use erd_sim::reproduce::command::ReproduceArgs;
use erd_sim::scenario::{SchemeMaker, Start};
use erd_sim::schemes;
use erd_sim::tables::{self, TABLES, Table};
use erd_sim::time::{Picos, from_ns};
use erd_sim::work::Work;
use std::rc::Rc;
use std::sync::Arc;
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
    /// Runs a scenario from a file (docs/scenarios.md), and shows how its messages fared.
    Scenario(cli::scenario::ScenarioArgs),
    /// Runs a scenario with several schemes and seeds, and compares them.
    Compare(cli::compare::CompareArgs),
    /// Says which scheme and settings suit a scenario's network and work, and why.
    Advise(cli::advise::AdviseArgs),
    /// Runs the papers' claims, and writes what came of them (docs/reproduction.md).
    Reproduce(ReproduceArgs),
    /// Runs a permutation over a fat tree of three tiers, and prints how fast the simulator is.
    Speed(SpeedArgs),
}

#[derive(clap::Args)]
struct SpeedArgs {
    /// Scheme of the flows.
    #[arg(long, default_value = "nscc")]
    scheme: String,
    /// Hosts of each of the 16 pods; a multiple of 8.
    #[arg(long, default_value_t = 64)]
    pod: u32,
    /// Bytes of each message.
    #[arg(long, default_value_t = 2_000_000)]
    bytes: u64,
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sessions have to be opened, and messages to be granted.
    #[arg(long)]
    cold: bool,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
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
        Command::Scenario(args) => cli::scenario::run(&args),
        Command::Compare(args) => cli::compare::run(&args),
        Command::Advise(args) => cli::advise::run(&args),
        Command::Reproduce(args) => args.run(),
        Command::Speed(args) => speed(&args),
    }
}

fn known(scheme: &str) -> anyhow::Result<()> {
    schemes::named(scheme)?;
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

/// Links of 200 Gb/s and 1 us; queues of a BDP that mark between 20 and 80 %.
fn speed_tree(args: &SpeedArgs) -> Clos {
    const BDP_BYTES: u64 = 300_000;
    let link = LinkConfig {
        bytes_per_s: Some(25_000_000_000),
        buffer_bytes: BDP_BYTES,
        red: Some(Red::linear(BDP_BYTES / 5, BDP_BYTES * 4 / 5)),
        control_first: true,
        ..LinkConfig::delay(from_ns(1_000))
    };
    Clos::of(link, &[(8, 8), (args.pod / 8, args.pod / 8), (16, 0)], args.seed)
}

fn speed(args: &SpeedArgs) -> anyhow::Result<()> {
    ensure!(
        args.pod >= 8 && args.pod.is_multiple_of(8),
        "--pod is a multiple of 8, not {}",
        args.pod
    );
    let plan = speed_tree(args).build()?;
    let hosts = plan.hosts();
    let mut work = Work::new(hosts);
    for from in 0..hosts {
        // To the other half: every message crosses the top tier.
        let to = (from * 5 + hosts / 2 + 3) % hosts;
        if from != to {
            work.message(HostId(from), HostId(to), args.bytes);
        }
    }
    let begin = if args.cold { Begin::Cold } else { Begin::Warm };
    let engines = Engines { begin, ..Engines::named(&args.scheme)? };
    let began = Instant::now();
    let experiment =
        Experiment { plan: Arc::new(plan), work, engines, seed: args.seed, threads: args.threads };
    let results = experiment.run(from_ns(1_000_000_000))?;
    let seconds = began.elapsed().as_secs_f64();
    let mut times: Vec<Picos> = results.flows.iter().map(FlowResult::completion_ps).collect();
    times.sort_unstable();
    let us = |at: usize| times[at] as f64 / 1e6;
    println!("{hosts} hosts, {} messages of {} bytes", times.len(), args.bytes);
    let last = times.len() - 1;
    println!(
        "completion, us: least {:.1}, median {:.1}, 99 % {:.1}, most {:.1}",
        us(0),
        us(last / 2),
        us(last * 99 / 100),
        us(last)
    );
    println!("{:?}", results.links);
    let (packets, events) = (results.data_packets as f64, results.events as f64);
    println!(
        "{seconds:.2} s: {:.0} data packets a second, {:.1} events each, {:.2} million events a second",
        packets / seconds,
        events / packets,
        events / seconds / 1e6
    );
    Ok(())
}
