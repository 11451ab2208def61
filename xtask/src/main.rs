//! The project's own commands, run as `cargo xtask <command>`.

mod bench;
mod built;
mod checks;
mod cost;
mod demo;
mod deps;
mod dist;
mod lines;
mod reproduce;
mod test;
mod vm;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use erd_e2e::layout::Layout;
use erd_e2e::package;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Commands of the erd project", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install what is missing, build, and show a ping-pong, bandwidth, and two ranks of MPI
    Demo,
    /// Install what is missing, then run the short tier of tests (under 30 minutes on 2 cores)
    Test(TestArgs),
    /// Measure latency, bandwidth and message rate of erd, tcp, udp;ofi_rxd and shm side by side
    Bench(BenchArgs),
    /// Build the Debian package and the tarball, in target/dist
    Dist,
    /// Count the instructions of each congestion controller for an acknowledgement
    Cost,
    /// Count the lines of production code: no tests, comments or blank lines
    Lines,
    /// Run the papers' claims in the simulator, and write what came of them to docs/reproduction.md
    Reproduce(ReproduceArgs),
    /// Boot a virtual machine with two Soft-RoCE devices, and run a command for each, or a script
    Vm(VmArgs),
}

/// Options of `vm`.
#[derive(Debug, Args)]
pub struct VmArgs {
    /// Command for rxe0 (on v0, 10.7.0.1), begun first
    #[arg(long, value_name = "COMMAND", requires = "right")]
    left: Option<String>,
    /// Command for rxe1 (on v1, 10.7.0.2)
    #[arg(long, value_name = "COMMAND", requires = "left")]
    right: Option<String>,
    /// Script for sh instead; OUT in its environment names a directory for files
    #[arg(long, value_name = "FILE", conflicts_with_all = ["left", "right"])]
    script: Option<PathBuf>,
    /// Most time for all, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
}

/// Options of `reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Networks as large as the papers' (hours to days), not of about 128 hosts
    #[arg(long, conflicts_with = "short")]
    full: bool,
    /// Small networks and short messages, in seconds: shows that all claims can be run, and writes nothing
    #[arg(long)]
    short: bool,
    /// Only the claims whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run nothing, and write the page again from earlier results
    #[arg(long)]
    page_only: bool,
}

/// Options of `test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// Run everything: 10,000 seeds, longer MPI runs, mpi4py's own test suite (hours)
    #[arg(long)]
    full: bool,
    /// Run only the steps whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Name the steps and run none
    #[arg(long)]
    list: bool,
}

/// Options of `bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Fewer sizes, one run, less time for each point
    #[arg(long)]
    quick: bool,
    /// The system's libfabric, not the one of the MPICH wheel
    #[arg(long)]
    system: bool,
    /// Providers to measure, separated by commas; the first is compared with the others
    #[arg(long, value_name = "NAMES", default_value = "erd,tcp,udp;ofi_rxd,shm")]
    providers: String,
    /// Alternating runs, of which the medians are taken
    #[arg(long, value_name = "COUNT")]
    runs: Option<usize>,
    /// Only erd with 16 to 16,384 peers in turn, which one program plays
    #[arg(long, conflicts_with = "idle")]
    crowd: bool,
    /// Only erd with 2 to 1,000 peers on this host, of which all but one are idle
    #[arg(long)]
    idle: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = root().and_then(Layout::of).and_then(|layout| match cli.command {
        Command::Demo => demo::run(&layout).map(|()| true),
        Command::Test(args) => test::run(&layout, &args),
        Command::Bench(args) => bench::run(&layout, &args).map(|()| true),
        Command::Dist => dist::run(&layout, package::DIST).map(|_| true),
        Command::Cost => cost::run(&layout).map(|()| true),
        Command::Lines => lines::run(&layout).map(|()| true),
        Command::Reproduce(args) => reproduce::run(&layout, &args),
        Command::Vm(args) => vm::run(&layout, &args),
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root, which cargo tells.
fn root() -> Result<PathBuf> {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").context("run this as `cargo xtask`")?;
    let manifest = fs::canonicalize(&manifest).context("CARGO_MANIFEST_DIR")?;
    Ok(manifest.parent().context("xtask lies at the file system's root")?.to_owned())
}
