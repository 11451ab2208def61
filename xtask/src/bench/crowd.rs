//! Thousands of peers in turn, which a program plays.

use super::{DEBIAN_PACKAGES, cpus};
use crate::BenchArgs;
use anyhow::Result;
use erd_e2e::fabric::{Core, ERD, Provider};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use erd_e2e::programs::compile;
use erd_e2e::setup;
use std::time::Duration;

/// Peers at each point.
const PEERS: &str = "16,256,4096,16384";
const RUNS: usize = 5;

/// Measures, and prints a line of figures for each point of each run.
///
/// # Errors
/// A program that does not build, or does not run to its end.
pub fn run(layout: &Layout, args: &BenchArgs) -> Result<()> {
    setup::packages(layout, DEBIAN_PACKAGES)?;
    setup::build_provider(layout)?;
    let crowd = setup::build_fast_crowd(layout)?;
    let program = compile(layout, "tests/c/bench_crowd")?;
    for _ in 0..args.runs.unwrap_or(RUNS) {
        let job = Job::new(&program)
            .args(["-p", ERD, "-n", PEERS, "-c", &cpus(), "-r"])
            .args([crowd.as_os_str()])
            .env("FI_LOG_LEVEL", "error")
            .limit(Duration::from_secs(600));
        let job = Provider::new(layout, ERD).give(Core::system().give(job));
        print!("{}", job.run(&layout.logs.join("bench-crowd.log"))?);
    }
    Ok(())
}
