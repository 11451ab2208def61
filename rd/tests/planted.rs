//! Each planted bug is found by the random runs, or by a scripted attack where peers that keep to the
//! protocol do not bring it out. Built only with the feature `planted-bugs`.

mod intruder;
mod world;

use erd_rd::planted::{BUGS, plant};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use world::swarm::{Options, run};

/// Bugs that an attack brings out, by number: peers that keep to the protocol do not, or hardly.
const ATTACKS: [(usize, fn()); 4] = [
    (1, intruder::repeats_a_packet),
    (22, intruder::breaks_a_seal),
    (24, intruder::raises_limits_by_a_stale_acknowledgement),
    (25, intruder::takes_all_places),
];

/// Seeds within which a bug must show.
const SEEDS_MAX: u64 = 500;

/// One test for all, because the switch is one for the whole process.
#[test]
fn every_planted_bug_is_found() {
    set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (index, what) in BUGS.iter().enumerate() {
        plant(index + 1);
        if let Some((_, attack)) = ATTACKS.iter().find(|(bug, _)| *bug == index + 1) {
            let found = catch_unwind(*attack).is_err();
            plant(0);
            match found && catch_unwind(*attack).is_ok() {
                true => println!("bug {:2} found by an attack: {what}", index + 1),
                false => missed.push((*what, None)),
            }
            continue;
        }
        let fails = |seed: &u64| {
            let options = Options::new(*seed);
            catch_unwind(AssertUnwindSafe(|| run(&options))).is_err()
        };
        let found = (1..=SEEDS_MAX).find(fails);
        // A seed that fails without the bug too has not found it.
        plant(0);
        match found.filter(|seed| !fails(seed)) {
            Some(seed) => println!("bug {:2} found with seed {seed}: {what}", index + 1),
            None => missed.push((*what, found)),
        }
    }
    assert!(missed.is_empty(), "bugs that no seed finds: {missed:#?}");
}
