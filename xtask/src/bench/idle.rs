//! Idle peers on this host: what they cost an endpoint that talks to another one.

use super::{DEBIAN_PACKAGES, cpus};
use crate::BenchArgs;
use anyhow::Result;
use erd_e2e::fabric::{Core, ERD, Provider};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use erd_e2e::programs::compile;
use erd_e2e::setup;
use std::time::Duration;

/// Peers of the endpoint that is measured.
const PEERS: &str = "2,5,1000";
/// Processes that have those which are idle.
const PROCESSES: &str = "16";
const RUNS: usize = 5;

/// Measures, and prints the figures.
///
/// # Errors
/// A program that does not build, or does not run to its end.
pub fn run(layout: &Layout, args: &BenchArgs) -> Result<()> {
    setup::packages(layout, DEBIAN_PACKAGES)?;
    setup::build_provider(layout)?;
    let program = compile(layout, "tests/c/bench_idle")?;
    let job = Job::new(&program)
        .args(["-p", ERD, "-a", "127.0.0.1", "-n", PEERS, "-k", PROCESSES, "-c", &cpus()])
        .args(["-r", &args.runs.unwrap_or(RUNS).to_string()])
        .env("FI_LOG_LEVEL", "error")
        .limit(Duration::from_secs(600));
    let job = Provider::new(layout, ERD).give(Core::system().give(job));
    println!("{}", job.run(&layout.logs.join("bench-idle.log"))?);
    Ok(())
}
