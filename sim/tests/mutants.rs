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
#[allow(dead_code, reason = "who hunts mutants looks at failures alone, not at reports")]
#[path = "faults/judge.rs"]
mod judge;
#[path = "faults/networks.rs"]
mod networks;
#[path = "faults/samples.rs"]
mod samples;

use draw::Drawn;
use erd_sim::mutants::{Mutant, switch_off, switch_on};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// Seeds within which a mutant must show.
const SEEDS_MAX: u64 = 1000;
/// The same for the few that one seed in thousands brings out. Only those that can do so are run.
const RARE_SEEDS_MAX: u64 = 20_000;

/// What a scenario needs to bring out one of the few.
fn needs(mutant: Mutant) -> Option<[&'static str; 2]> {
    // Others leave the ways that fail, or soon have all they want.
    (mutant == Mutant::LeadsIntoDeadEnds).then_some(["rerouting", "\"roce\""])
}

/// The first seed that fails with the mutant, and whether it passes without.
fn first_seed(mutant: Mutant) -> Option<(u64, bool)> {
    let needs = needs(mutant);
    let most = if needs.is_some() { RARE_SEEDS_MAX } else { SEEDS_MAX };
    let fails = |seed: &u64| {
        let drawn = Drawn::new(*seed);
        if !needs.iter().flatten().all(|word| drawn.0.contains(word)) {
            return false;
        }
        catch_unwind(AssertUnwindSafe(|| judge::seed(&drawn, *seed))).is_err()
    };
    switch_on(mutant);
    let found = (1..=most).find(fails);
    switch_off();
    found.map(|seed| (seed, !fails(&seed)))
}

/// All mutants, or the one that the caller wants alone.
fn hunted() -> Vec<Mutant> {
    let only = std::env::var("MUTANTS_ONLY").unwrap_or_default();
    let fits = |mutant: &Mutant| only.is_empty() || format!("{mutant:?}") == only;
    let hunted: Vec<Mutant> = Mutant::ALL.iter().copied().filter(fits).collect();
    assert!(!hunted.is_empty(), "MUTANTS_ONLY: expected one of {:?}, found {only}", Mutant::ALL);
    hunted
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
            Some((seed, true)) => {
                println!("{mutant:?} found with seed {seed}: {}", mutant.effect());
            }
            // A seed that fails without the mutant too has not found it.
            Some((seed, false)) => missed.push(format!("{mutant:?}: seed {seed} fails without it")),
            None => missed.push(format!("{mutant:?}: no seed")),
        }
    }
    // Whoever reads the log sees this test's own failure.
    set_hook(hook);
    assert!(missed.is_empty(), "mutants that were not found: {missed:#?}");
}
