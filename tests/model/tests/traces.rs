//! Recorded runs of the fault world are held against the model's rules.
//!
//! `erd_world::seeds` says which seeds. One seed alone shows what its process told and heard before a mismatch.

use erd_model::rules::Rule;
use erd_model::trace::{Coverage, validate, wire};
use erd_world::record::{Entry, Record, What};
use erd_world::seeds::{self, Seeds};
use erd_world::swarm::{Options, run_recorded};
use std::collections::BTreeSet;

/// More than any of these runs has.
const ENTRIES_MAX: usize = 1 << 21;
/// Packets shown before a mismatch.
const SHOWN: usize = 40;

/// Seeds that use every rule but those of [`NOT_USED`].
const SEEDS: std::ops::RangeInclusive<u64> = 1..=100;
/// Rules that these runs do not use, or that the validation does not tell apart.
const NOT_USED: &[Rule] = &[
    // By chance, in one of some hundred seeds.
    Rule::HelloOfAnother,
    Rule::HelloGaveUp,
    Rule::ChallengeOfAnother,
    Rule::WelcomeStale,
    Rule::Left,
    // The network of these worlds holds no hello back until it is stale.
    Rule::HelloStale,
    Rule::HelloUsedId,
    Rule::ResetUsedId,
    Rule::GoodbyeOfAnother,
    Rule::ConfirmationStale,
    // The nodes are closed after all faults.
    Rule::HelloClosed,
    Rule::AckEarly,
    // All nodes have the same key, or none.
    Rule::VersionEnds,
    Rule::OtherKey,
    // What cannot be read as a packet of the session never comes to the rules.
    Rule::DataOutside,
    Rule::AckImpossible,
];

fn show(entries: &[Entry]) {
    let Some(last) = entries.last() else { return };
    let packets = entries.iter().filter(|entry| entry.life == last.life).filter_map(|entry| {
        let read = |packet| format!("{:?}", wire::read(packet));
        match &entry.what {
            What::Told(packet) => Some((entry.at, "told", packet.to, read(packet))),
            What::Heard(packet) => Some((entry.at, "heard", packet.from, read(packet))),
            _ => None,
        }
    });
    let packets: Vec<_> = packets.collect();
    for (at, how, name, packet) in &packets[packets.len().saturating_sub(SHOWN)..] {
        eprintln!("{at:>12} {how} {name} {packet}");
    }
}

fn judge(options: &Options) -> Coverage {
    let record = Record::new(ENTRIES_MAX);
    run_recorded(options, &record);
    assert_eq!(record.left_out(), 0, "the run has more than {ENTRIES_MAX} entries");
    let entries = record.take();
    validate(&entries).unwrap_or_else(|mismatch| {
        show(&entries[..=mismatch.at]);
        panic!("entry {} of {}: {}", mismatch.at, entries.len(), mismatch.why)
    })
}

fn run_seed(seed: u64) -> Coverage {
    seeds::run(seed, &Options::for_traces(seed), "-p erd-model --test traces", judge)
}

fn sum(seeds: impl Iterator<Item = u64>) -> Coverage {
    let mut sum = Coverage::new();
    for (rule, count) in seeds.flat_map(run_seed) {
        *sum.entry(rule).or_default() += count;
    }
    sum
}

#[test]
fn swarm() {
    let used = match Seeds::asked() {
        Seeds::Many(base, count) => sum(base..base + count),
        Seeds::One(seed) => run_seed(seed),
    };
    println!("{used:#?}\n{} of {} rules used", used.len(), Rule::ALL.len());
}

#[test]
fn the_runs_use_the_rules() {
    let used = sum(SEEDS);
    let is_expected = |rule: &Rule| !NOT_USED.contains(rule);
    let all: BTreeSet<Rule> = Rule::ALL.iter().map(|(rule, ..)| *rule).collect();
    let missing: Vec<_> =
        all.into_iter().filter(is_expected).filter(|r| !used.contains_key(r)).collect();
    assert!(missing.is_empty(), "no run uses {missing:?}");
}
