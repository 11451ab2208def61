//! Random fabrics find each mutant of the simulator. Cargo builds this test only with the feature `mutants`.

#[path = "faults/accounts.rs"]
mod accounts;
#[path = "faults/breaks.rs"]
mod breaks;
#[path = "faults/dice.rs"]
mod dice;
#[path = "faults/draw.rs"]
mod draw;
#[path = "faults/due.rs"]
mod due;
#[path = "faults/judge.rs"]
mod judge;
#[path = "faults/networks.rs"]
mod networks;
#[path = "faults/samples.rs"]
mod samples;

use draw::Drawn;
use erd_sim::mutants::{Mutant, switch_off, switch_on};
use judge::Report;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// Seeds within which a mutant must show.
const SEEDS_MAX: u64 = 1000;
/// The same for the few that one seed in thousands brings out. Only those that can do so are run.
const RARE_SEEDS_MAX: u64 = 20_000;

/// What a scenario needs to bring out one of the few.
fn needs(mutant: Mutant) -> Option<[&'static str; 2]> {
    match mutant {
        // Others leave the ways that fail, or soon have all they want.
        Mutant::LeadsIntoDeadEnds => Some(["rerouting", "\"roce\""]),
        Mutant::KeepsMemoryOfTheDead => Some(["pfc", "[[failures]]"]),
        _ => None,
    }
}

/// The first seed that fails with the mutant, whether it passes without, and what came of the seeds before it.
fn first_seed(mutant: Mutant) -> Option<(u64, bool, Report)> {
    let needs = needs(mutant);
    let most = if needs.is_some() { RARE_SEEDS_MAX } else { SEEDS_MAX };
    let mut passed = Report::default();
    let mut fails = |seed: &u64| {
        let drawn = Drawn::new(*seed);
        if !needs.iter().flatten().all(|word| drawn.0.contains(word)) {
            return false;
        }
        let report = catch_unwind(AssertUnwindSafe(|| judge::seed(&drawn, *seed)));
        report.as_ref().into_iter().for_each(|report| passed.add(report));
        report.is_err()
    };
    switch_on(mutant);
    let found = (1..=most).find(&mut fails);
    switch_off();
    let passes = found.is_some_and(|seed| !fails(&seed));
    found.map(|seed| (seed, passes, passed))
}

/// All mutants, or the one that the caller wants alone.
fn hunted() -> Vec<Mutant> {
    match std::env::var("MUTANTS_ONLY").ok().filter(|name| !name.is_empty()) {
        Some(name) => {
            vec![name.parse().unwrap_or_else(|error| panic!("MUTANTS_ONLY: {error}"))]
        }
        None => Mutant::ALL.concat(),
    }
}

/// One test hunts all, because the whole process has one switch. A mutant that no place in the simulator asks for changes
/// nothing, so this test misses it.
#[test]
fn every_mutant_is_found() {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mutant in hunted() {
        match first_seed(mutant) {
            Some((seed, true, Report { events, .. })) => {
                let effect = mutant.effect();
                println!("{mutant:?} found with seed {seed} after {events} events: {effect}");
            }
            // A seed that fails without the mutant too has not found it.
            Some((seed, false, _)) => {
                missed.push(format!("{mutant:?}: seed {seed} fails without it"))
            }
            None => missed.push(format!("{mutant:?}: no seed")),
        }
    }
    // The log shows this test's own failure.
    set_hook(hook);
    assert!(missed.is_empty(), "mutants that were not found: {missed:#?}");
}
