//! The library's two faces beside the provider: half round trips over `erd.h`, over the crate's verbs and over
//! libfabric, in turns. They share one path, so they should take the same time.

use super::Plan;
use super::results::{Results, Test};
use super::table;
use anyhow::{Result, bail};
use erd_e2e::fabric::{ERD, Provider};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use erd_e2e::programs::compile_with;
use erd_e2e::{netns, setup, verbs};
use std::time::Duration;

/// Their names in the table, the provider first.
const FACES: [&str; 3] = [ERD, "erd.h", "erd::verbs"];
const SIZES: &[u64] = &[64, 1024];
/// Messages of one point there and back.
const ROUNDS: &str = "20000";
/// Turns for each run of the plan: a point takes a fifth of a second, and single ones vary by more
/// than the faces do.
const TURNS: usize = 3;

/// Measures, and prints the table; returns the measurements.
///
/// # Errors
/// A program that does not build, or does not run to its end.
pub fn run(layout: &Layout, plan: &Plan) -> Result<Results> {
    let log = layout.logs.join("bench-faces.log");
    let _ = std::fs::remove_file(&log);
    let flags = verbs::flags(layout)?;
    let in_c = compile_with(layout, "tests/c/bench_verbs", &flags, &log)?;
    let in_rust = setup::build_example(layout, "erd", "latency", &log)?;
    let mut results = Results::default();
    for turn in 0..plan.runs * if plan.quick { 1 } else { TURNS } {
        for size in SIZES {
            let bytes = size.to_string();
            for at in 0..FACES.len() {
                let face = FACES[(at + turn) % FACES.len()];
                let job = match face {
                    "erd.h" => Job::new(&in_c)
                        .args([bytes.as_str(), ROUNDS])
                        .args(plan.cpus.split(','))
                        .env("LD_LIBRARY_PATH", layout.own.join("lib")),
                    "erd::verbs" => Job::new(&in_rust).args([&bytes, ROUNDS, &plan.cpus]),
                    _ => plan.job(layout, ERD, Test::Latency, &[*size]),
                };
                let job = Provider::new(layout, ERD).give(job).limit(Duration::from_secs(60));
                let job = if face != ERD && netns::available() { netns::private(job) } else { job };
                if results.take(face, &job.run(&log)?)? != 1 {
                    bail!("{face} measured nothing");
                }
            }
        }
    }
    let faces = FACES.map(str::to_owned);
    println!("\nThe provider and the library, half round trip in us: p50 (p99, p99.9)");
    println!("{}", table::table(&faces, Test::Latency, SIZES, &results));
    Ok(results)
}
