//! Bugs of the engine show in its traces: the model finds them from the record alone, whatever the world's own judge says.
//! Cargo builds this test only with the feature `mutants`.

use erd_model::trace::validate;
use erd_rd::mutants::{Mutant, switch_off, switch_on};
use erd_world::record::Record;
use erd_world::swarm::{Options, run_recorded};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// The mutants that traces show. Others change what the model leaves out, or the world's judge ends their runs first.
const MUTANTS: &[Mutant] = &[
    Mutant::CompletesOnTheLastSegment,
    Mutant::CompletesBeforeTheAck,
    Mutant::ReadsSacksOneOff,
    Mutant::IgnoresTheSessionId,
    Mutant::RestartsOnARepeatedHello,
    Mutant::TakesForgeries,
    Mutant::OmitsTheCtsFromRetransmissions,
    Mutant::IgnoresThePsnWrap,
    Mutant::DeliversOutOfOrder,
    Mutant::NotifiesTheMatchOnArrival,
    Mutant::KeepsTheDeadlineRunning,
];
/// Seeds within which a mutant must show.
const SEEDS_MAX: u64 = 60;
/// More than any of these runs has.
const ENTRIES_MAX: usize = 1 << 21;

/// What the model finds in the record of a seed. The world's own judge may end the run before; the model has what was
/// recorded until then.
fn mismatch(mutant: Option<Mutant>, seed: u64) -> Option<String> {
    let record = Record::new(ENTRIES_MAX);
    mutant.into_iter().for_each(switch_on);
    let run = || run_recorded(&Options::for_traces(seed), &record);
    let ended = catch_unwind(AssertUnwindSafe(run));
    switch_off();
    assert!(mutant.is_some() || ended.is_ok(), "seed {seed} fails without a mutant");
    validate(&record.take()).err().map(|mismatch| mismatch.why)
}

#[test]
fn traces_show_what_is_wrong() {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        let found = (1..=SEEDS_MAX).find_map(|seed| Some((seed, mismatch(Some(*mutant), seed)?)));
        match found {
            // A seed that fails without the mutant too has not found it.
            Some((seed, why)) if mismatch(None, seed).is_none() => {
                let why: String = why.chars().take(100).collect();
                println!("{mutant:?} found with seed {seed}: {why}");
            }
            _ => missed.push(mutant),
        }
    }
    set_hook(hook);
    assert!(missed.is_empty(), "mutants that no trace shows: {missed:?}");
}
