//! Random runs over small fabrics whose links fail: everything arrives where there is a way, and a run ends with an error
//! where there is none.
//!
//! `seeds` says which seeds. A seed stands for a scenario file, which a failure prints.

mod dice;
mod draw;
mod found;
mod judge;
#[path = "../../../tests/world/src/seeds.rs"]
mod seeds;

use draw::Drawn;
use judge::Report;
use seeds::Seeds;

/// Of so many seeds one runs on two threads, too, unless it has more events than this: threads meet after each delay of the
/// shortest link.
const TWICE: u64 = 16;
const TWICE_EVENTS_MAX: u64 = 30_000;

fn run_seed(seed: u64) -> Report {
    seeds::run(seed, &Drawn::new(seed), "-p erd-sim --test faults", |drawn| {
        let (report, ended) = judge::run(drawn, 1);
        if seed.is_multiple_of(TWICE) && report.events <= TWICE_EVENTS_MAX {
            assert_eq!(judge::run(drawn, 2).1, ended, "two threads gave another run");
        }
        report
    })
}

#[test]
fn swarm() {
    let (base, count) = match Seeds::asked() {
        Seeds::Many(base, count) => (base, count),
        Seeds::One(seed) => return println!("{:?}\n{:#?}", Drawn::new(seed), run_seed(seed)),
    };
    let mut sum = Report::default();
    for seed in base..base + count {
        sum.add(&run_seed(seed));
    }
    println!("{sum:#?}");
}

#[test]
fn a_seed_replays_its_run() {
    seeds::judge_replays(|seed| {
        let report = run_seed(seed);
        (report.events as u32, report)
    });
}
