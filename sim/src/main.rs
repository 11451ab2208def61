//! Prints the simulator's tables.

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
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
    /// Runs flows for 5000 round trips and tells how fast the simulator is.
    Speed {
        /// Scheme of the flows.
        #[arg(default_value = "erd")]
        scheme: String,
        /// How many.
        #[arg(default_value_t = 8)]
        flows: u32,
    },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Table { name, scheme } => table(&name, &scheme),
        Command::Speed { scheme, flows } => speed(&scheme, flows),
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

fn speed(scheme: &str, flows: u32) -> anyhow::Result<()> {
    known(scheme)?;
    let mut scenario = tables::scenario(scheme, flows);
    scenario.measured_rtts = 5_000;
    let began = Instant::now();
    let outcome = scenario.run();
    let seconds = began.elapsed().as_secs_f64();
    println!("{outcome:#?}");
    let packets = outcome.packets as f64 * 1.1 / seconds / 1e6;
    println!("{seconds:.2} s, about {packets:.2} million packets a second");
    Ok(())
}
