//! The random runs find each mutant, or a scripted attack does where peers that keep to the protocol do not
//! bring it out. Cargo builds this test only with the feature `mutants`.
//!
//! `MUTANTS_ONLY=ReadsSacksOneOff` hunts that one alone and shows how it fails.

#[path = "../../../rd/tests/intruder/mod.rs"]
mod intruder;
#[path = "../../../port/tests/world/mod.rs"]
mod negotiation;
use erd_rd::mutants::{Mutant, switch_off, switch_on};
use erd_rd::units::MICROSECOND;
use erd_world::campaign::Campaign;
use erd_world::dead_paths;
use erd_world::keyed;
use erd_world::neighbours;
use erd_world::net::Faults;
use erd_world::shipped::runs;
use erd_world::swarm::{Options, Weather, run};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// Mutants that an attack brings out: peers that keep to the protocol do not, or hardly.
const ATTACKS: [(Mutant, fn()); 14] = [
    (Mutant::AdmitsStrangers, intruder::sends_unbidden),
    (Mutant::AcceptsDuplicates, intruder::repeats_a_packet),
    (Mutant::RaisesLimitsOnAStaleAck, intruder::raises_limits_by_a_stale_acknowledgement),
    (Mutant::LetsAnyPacketPay, dead_paths::unacknowledged),
    (Mutant::AnswersOnADeadPath, dead_paths::crossed_pair),
    (Mutant::SkipsTheNewcomerQuota, intruder::takes_all_places),
    (Mutant::MixesUpItsKeys, keyed::another_jobs_member),
    (Mutant::TakesForgeries, || drop(FORGERIES.run())),
    (Mutant::TakesReplays, keyed::replays),
    (Mutant::TakesEntriesOfAnyWriter, neighbours::entries_of_another_session),
    (Mutant::WithholdsLimitsOfALane, neighbours::more_messages_than_may_wait),
    (Mutant::ForgetsWhatWasReadAtTheEnd, neighbours::what_was_read_before_the_end),
    (Mutant::LendsClosedMemory, runs::closes_what_it_lent),
    (Mutant::LeavesBuffersReadable, runs::leaves_while_it_is_read),
];

/// A short campaign against a key.
const FORGERIES: Campaign = Campaign { seed: 1, hides: false, phase_bits: 22, count: 2000 };

/// Seeds within which a mutant must show.
const SEEDS_MAX: u64 = 500;

/// The mutant that the caller wants alone; an empty name stands for all.
fn only() -> Option<Mutant> {
    let name = std::env::var("MUTANTS_ONLY").ok().filter(|name| !name.is_empty())?;
    Some(name.parse().unwrap_or_else(|error| panic!("MUTANTS_ONLY: {error}")))
}

/// Whether the attack succeeds with the mutant and fails without.
fn is_found_by(attack: fn(), mutant: Mutant) -> bool {
    switch_on(mutant);
    let found = catch_unwind(attack).is_err();
    switch_off();
    found && catch_unwind(attack).is_ok()
}

/// A run whose long writes come in batches of short datagrams, some of which overtake others. One run in 80 then has a
/// batch that begins with the datagram that a region expects and goes on with another; of all runs, one in thousands.
fn in_batches(seed: u64) -> Options {
    let mut options = runs::options(seed);
    (options.weather, options.key, options.faults) = (Weather::Rough, None, Faults::default());
    options.len_max_bytes = 1 << 16;
    (options.links.jitter_ns, options.links.bytes_per_us) = (MICROSECOND, 2000);
    for setup in &mut options.setups {
        (setup.habits.gro, setup.habits.round_ns) = (1.0, 20 * MICROSECOND);
        setup.limits.datagram_limit_bytes = 1232;
        setup.lanes = None;
    }
    options
}

/// Runs a seed of the world whose nodes have the mutant's code.
fn run_seed(mutant: Mutant, seed: u64) {
    if mutant == Mutant::WipesAfterHandingIn {
        runs::run(&in_batches(seed));
    } else if Mutant::LIBRARY.contains(&mutant) {
        runs::run(&runs::options(seed));
    } else if Mutant::LANES.contains(&mutant) {
        run(&Options::new(seed).near());
        runs::run(&runs::options(seed).near());
    } else if Mutant::NEGOTIATION.contains(&mutant) {
        let mut bytes = [0; 4096];
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
        negotiation::run(&bytes);
    } else {
        run(&Options::new(seed));
    }
}

/// The first seed that fails with the mutant, and whether it passes without.
fn first_seed(mutant: Mutant) -> Option<(u64, bool)> {
    let fails = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run_seed(mutant, *seed))).is_err();
    switch_on(mutant);
    let found = (1..=SEEDS_MAX).find(fails);
    switch_off();
    found.map(|seed| (seed, !fails(&seed)))
}

/// How the mutant was found, or why it counts as missed.
fn hunt(mutant: Mutant) -> Result<String, String> {
    if let Some((_, attack)) = ATTACKS.iter().find(|(attacked, _)| *attacked == mutant) {
        let found = is_found_by(*attack, mutant);
        return if found { Ok("by an attack".into()) } else { Err("by no attack".into()) };
    }
    match first_seed(mutant) {
        Some((seed, true)) => Ok(format!("with seed {seed}")),
        // A seed that fails without the mutant too has not found it.
        Some((seed, false)) => Err(format!("seed {seed} fails without it too")),
        None => Err(format!("by none of {SEEDS_MAX} seeds")),
    }
}

/// One test hunts all, because the whole process has one switch. A mutant that no place in the engine asks
/// for changes nothing, so this test misses it.
#[test]
fn every_mutant_is_found() {
    let only = only();
    let hook = take_hook();
    if only.is_none() {
        set_hook(Box::new(|_| {}));
    }
    let mut missed = Vec::new();
    let hunted = |mutant: &Mutant| only.is_none_or(|it| it == *mutant);
    for mutant in Mutant::ALL.concat().into_iter().filter(hunted) {
        match hunt(mutant) {
            Ok(how) => println!("{mutant:?} found {how}: {}", mutant.effect()),
            Err(why) => missed.push(format!("{mutant:?}, {why}: {}", mutant.effect())),
        }
    }
    // Whoever reads the log sees this test's own failure.
    set_hook(hook);
    assert!(missed.is_empty(), "mutants that were not found: {missed:#?}");
}
