//! Forgeries against a job with a key, by the million: `FORGERIES=100000000` sets how many. A program of its own, since
//! it measures the memory of its process.
//!
//! Fast: `CARGO_PROFILE_TEST_OPT_LEVEL=3 FORGERIES=100000000 cargo test -p erd-world --test forgeries -- --nocapture`.

use erd_rd::stats::DROP_NAMES;
use erd_world::adversary::{KINDS, Trick};
use erd_world::campaign::{Campaign, Outcome};
use std::collections::BTreeMap;
use std::time::Instant;

/// Forgeries that a plain test run tries.
const FORGERIES: u64 = 100_000;
/// Forgeries of one world. The ledger of a world keeps every honest message.
const WORLD_FORGERIES: u64 = 1_000_000;
/// Memory that the process may have more than after the first worlds.
const GROWTH_BYTES_MAX: u64 = 32 << 20;

/// Memory that the process has in use.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number") * 4096
}

fn show(outcome: &Outcome, seconds: f64, first_bytes: u64) {
    let count = outcome.count();
    println!("{count} forgeries in {seconds:.1} s, {:.0} a second", count as f64 / seconds);
    println!("{} answers to them; {} copies without effect", outcome.answers, outcome.copies);
    for (name, drops) in DROP_NAMES.iter().zip(outcome.drops).filter(|(_, drops)| *drops > 0) {
        println!("{drops:>12} {name}");
    }
    println!("each trick, then how often with a packet of kind 0 to 11, and of no kind:");
    let mut tricks: BTreeMap<Trick, Vec<u64>> = BTreeMap::new();
    for ((trick, kind), count) in &outcome.tried {
        tricks.entry(*trick).or_insert_with(|| vec![0; KINDS + 1])[KINDS.min(*kind as usize)] +=
            count;
    }
    tricks.iter().for_each(|(trick, kinds)| println!("{trick:?} {kinds:?}"));
    println!("memory: {first_bytes} after the first worlds, {} at the end", resident_bytes());
}

#[test]
fn every_forgery_is_dropped_and_counted() {
    let asked = std::env::var("FORGERIES").ok();
    let total = asked.map_or(FORGERIES, |text| text.parse().expect("FORGERIES is a number"));
    let begun = Instant::now();
    let (mut sum, mut first_bytes) = (Outcome::default(), 0);
    for seed in 1.. {
        // Four kinds of jobs in turn.
        let (hides, phase_bits) = (seed % 2 == 0, if seed % 4 < 2 { 22 } else { 10 });
        let left = total.saturating_sub(sum.count());
        if left == 0 {
            break;
        }
        let count = left.min(total.div_ceil(4)).min(WORLD_FORGERIES);
        let campaign = Campaign { seed, hides, phase_bits, count };
        println!("{campaign:?}");
        sum.add(&campaign.run());
        if seed <= 4 {
            first_bytes = resident_bytes();
        }
    }
    show(&sum, begun.elapsed().as_secs_f64(), first_bytes);
    assert_eq!(sum.count(), total);
    let grown = resident_bytes().saturating_sub(first_bytes);
    assert!(grown <= GROWTH_BYTES_MAX, "{grown} bytes more than after the first worlds");
    if total >= FORGERIES {
        for trick in Trick::all() {
            let kinds = (0..KINDS as u8).filter(|kind| sum.tried.contains_key(&(trick, *kind)));
            assert!(trick == Trick::Lie || kinds.count() == KINDS, "{trick:?} with all kinds");
        }
    }
}
