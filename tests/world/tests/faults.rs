//! Random runs of several engines in virtual time under faults.
//!
//! `erd_world::seeds` says which seeds, and `FAULTS_TRACE=1` prints every datagram of one.

use erd_world::seeds::{self, Seeds};
use erd_world::swarm::{Options, Report, add_stats, run};

fn run_seed(seed: u64) -> Report {
    seeds::run(seed, &Options::with_neighbours(seed), "-p erd-world --test faults", run)
}

#[test]
fn swarm() {
    let (base, count) = match Seeds::asked() {
        Seeds::Many(base, count) => (base, count),
        Seeds::One(seed) => {
            return println!("{:#?}\n{:#?}", Options::with_neighbours(seed), run_seed(seed));
        }
    };
    let mut sum = Report::default();
    for seed in base..base + count {
        let report = run_seed(seed);
        add_stats(&mut sum.stats, &report.stats);
        sum.sends += report.sends;
        sum.failed += report.failed;
        sum.events += report.events;
        sum.span_ns += report.span_ns;
        sum.datagrams += report.datagrams;
        sum.kills += report.kills;
        sum.socket_drops += report.socket_drops;
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

/// Processes that replay the seeds. What differs between them differs in few.
const PROCESSES: usize = 8;
/// Where a process finds that it is one of those.
const REPLAYS: &str = "FAULTS_REPLAYS";

#[test]
fn a_seed_replays_its_run_in_another_process() {
    if std::env::var_os(REPLAYS).is_some() {
        let digests = (50..70).map(|seed| format!("{:08x}", run_seed(seed).digest));
        println!("digests: {}", digests.collect::<Vec<_>>().join(" "));
        return;
    }
    let program = std::env::current_exe().expect("this program");
    let replay = || {
        let mut replay = std::process::Command::new(&program);
        let name = "a_seed_replays_its_run_in_another_process";
        let replay = replay.args([name, "--exact", "--nocapture"]).env(REPLAYS, "1").output();
        let output = String::from_utf8(replay.expect("this program runs").stdout).expect("text");
        let digests = output.lines().find(|line| line.starts_with("digests: "));
        digests.unwrap_or_else(|| panic!("no digests in:\n{output}")).to_owned()
    };
    let first = replay();
    assert!((1..PROCESSES).all(|_| replay() == first), "a process ran {first} differently");
}
