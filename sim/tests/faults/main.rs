//! Random runs over small fabrics whose links fail: everything arrives where there is a way, and a run ends with an error
//! where there is none.
//!
//! `seeds` says which seeds. A seed stands for a scenario file, which a failure prints.

mod accounts;
mod breaks;
mod dice;
mod draw;
mod due;
mod found;
mod judge;
mod networks;
mod samples;
#[path = "../../../tests/world/src/seeds.rs"]
mod seeds;

use draw::Drawn;
use judge::Report;
use seeds::Seeds;

fn run_seed(seed: u64) -> Report {
    seeds::run(seed, &Drawn::new(seed), "-p erd-sim --test faults", |drawn| {
        judge::seed(drawn, seed)
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
