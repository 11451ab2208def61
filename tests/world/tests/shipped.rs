//! Random runs of shipped endpoints in virtual time under faults.
//!
//! `erd_world::seeds` says which seeds.

use erd_world::seeds::{self, Seeds};
use erd_world::shipped::runs::{Report, options, run};
use erd_world::swarm::add_stats;

fn run_seed(seed: u64) -> Report {
    seeds::run(seed, &options(seed), "shipped", run)
}

#[test]
fn swarm() {
    let (base, count) = match Seeds::asked() {
        Seeds::Many(base, count) => (base, count),
        Seeds::One(seed) => return println!("{:#?}\n{:#?}", options(seed), run_seed(seed)),
    };
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
