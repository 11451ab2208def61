//! Each planted bug is found by the random runs. Built only with the feature `planted-bugs`.

mod world;

use erd_rd::planted::{BUGS, plant};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use world::swarm::{Options, run};

/// Seeds within which a bug must show.
const SEEDS_MAX: u64 = 500;

/// One test for all, because the switch is one for the whole process.
#[test]
fn every_planted_bug_is_found() {
    set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (index, what) in BUGS.iter().enumerate() {
        plant(index + 1);
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
