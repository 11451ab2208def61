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
use judge::{How, Report};
use seeds::Seeds;

/// Of so many seeds one runs on several threads, too, and one while samples are taken, unless it has more events than this:
/// threads meet after each delay of the shortest link.
const TWICE: u64 = 8;
const TWICE_EVENTS_MAX: u64 = 30_000;

fn run_seed(seed: u64) -> Report {
    seeds::run(seed, &Drawn::new(seed), "-p erd-sim --test faults", |drawn| {
        let (report, ended) = judge::run(drawn, How::PLAIN);
        let again = match seed % TWICE {
            0 => How { threads: 2 + (seed / TWICE % 3) as usize, ..How::PLAIN },
            1 => How { sampled: true, ..How::PLAIN },
            _ => return report,
        };
        if report.events <= TWICE_EVENTS_MAX {
            assert_eq!(judge::run(drawn, again).1, ended, "{again:?} gave another run");
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
