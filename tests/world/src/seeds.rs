//! The seeds that a test runs: `FAULTS_SEEDS=500` sets how many, `FAULTS_BASE=n` the first of them; `FAULTS_SEED=n`
//! replays one.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seeds that a plain test run tries.
const SEEDS_DEFAULT: u64 = 100;

/// The seeds of a test.
pub enum Seeds {
    /// This one, whose run is shown.
    One(u64),
    /// So many from the first.
    Many(u64, u64),
}

impl Seeds {
    /// The seeds that the environment asks for, or fresh ones.
    pub fn asked() -> Seeds {
        if let Some(seed) = number("FAULTS_SEED") {
            return Seeds::One(seed);
        }
        let base = number("FAULTS_BASE").unwrap_or_else(base_seed);
        let count = number("FAULTS_SEEDS").unwrap_or(SEEDS_DEFAULT);
        println!("{count} seeds from {base}");
        Seeds::Many(base, count)
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text}")))
}

fn base_seed() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    // Short enough to type, distinct enough between runs.
    clock.as_nanos() as u64 % 1_000_000_007 * 100_000
}

/// Runs the seed of these options. If that panics, prints the options and the command that replays the seed. `test` is
/// the package and the program, as Cargo wants them.
pub fn run<O: Debug, R>(seed: u64, options: &O, test: &str, run: impl FnOnce(&O) -> R) -> R {
    catch_unwind(AssertUnwindSafe(|| run(options))).unwrap_or_else(|panic| {
        eprintln!("{options:#?}");
        eprintln!("replay: FAULTS_SEED={seed} cargo test {test} swarm");
        resume_unwind(panic)
    })
}

/// Judges that a seed gives the same run each time. `run` returns the digest of a run, and other values that must not
/// differ.
pub fn judge_replays<T: PartialEq + Debug>(run: impl Fn(u64) -> (u32, T)) {
    for seed in 1..=20 {
        assert_eq!(run(seed), run(seed), "seed {seed} ran differently the second time");
    }
    assert_ne!(run(1).0, run(2).0, "the digest tells runs apart");
}
