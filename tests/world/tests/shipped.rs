//! Random runs of shipped endpoints in virtual time under faults.
//!
//! `FAULTS_SEEDS=500` sets how many fresh seeds a test run tries, `FAULTS_BASE=n` the first of them;
//! `FAULTS_SEED=n` replays one.

use erd_world::shipped::runs::{Report, options, run};
use erd_world::swarm::add_stats;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seeds that a plain test run tries.
const SEEDS_DEFAULT: u64 = 100;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text}")))
}

fn run_seed(seed: u64) -> Report {
    let options = options(seed);
    catch_unwind(AssertUnwindSafe(|| run(&options))).unwrap_or_else(|panic| {
        eprintln!("{options:#?}");
        eprintln!("replay: FAULTS_SEED={seed} cargo test -p erd-world --test shipped swarm");
        resume_unwind(panic)
    })
}

fn base_seed() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    // Short enough to type, distinct enough between runs.
    clock.as_nanos() as u64 % 1_000_000_007 * 100_000
}

#[test]
fn swarm() {
    if let Some(seed) = number("FAULTS_SEED") {
        println!("{:#?}\n{:#?}", options(seed), run_seed(seed));
        return;
    }
    let base = number("FAULTS_BASE").unwrap_or_else(base_seed);
    let count = number("FAULTS_SEEDS").unwrap_or(SEEDS_DEFAULT);
    println!("{count} seeds from {base}");
    let mut sum = Report::default();
    for seed in base..base + count {
        let report = run_seed(seed);
        add_stats(&mut sum.stats, &report.stats);
        sum.messages += report.messages;
        sum.receives += report.receives;
        sum.accesses += report.accesses;
        sum.failed += report.failed;
        sum.events += report.events;
        sum.span_ns += report.span_ns;
    }
    println!("{sum:#?}");
}

#[test]
fn a_seed_replays_its_run() {
    for seed in 1..=20 {
        let (first, second) = (run_seed(seed), run_seed(seed));
        assert_eq!(first.digest, second.digest, "seed {seed} ran differently the second time");
        assert_eq!((first.events, first.stats), (second.events, second.stats));
    }
    assert_ne!(run_seed(1).digest, run_seed(2).digest, "the digest tells runs apart");
}
