//! Random runs of shipped endpoints in virtual time under faults.
//!
//! `erd_world::seeds` says which seeds.

use erd_world::seeds::{self, Seeds};
use erd_world::shipped::runs::{
    Report, closes_what_it_lent, leaves_while_it_is_read, options, run,
};
use erd_world::swarm::add_stats;

fn run_seed(seed: u64) -> Report {
    seeds::run(seed, &options(seed), "-p erd-world --test shipped", run)
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
    seeds::judge_replays(|seed| {
        let report = run_seed(seed);
        (report.digest, (report.events, report.stats))
    });
}

#[test]
fn a_read_of_memory_that_was_closed_meanwhile_is_refused() {
    closes_what_it_lent();
}

#[test]
fn nobody_takes_the_buffers_of_who_has_left() {
    leaves_while_it_is_read();
}
