//! Replays the corpus of the fuzz target `negotiation`, and what bytes of a seed say.

mod world;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use world::Counts;

/// Seeds that are run; the failing one is printed.
const SEEDS: u64 = 500;

fn add(sum: &mut Counts, one: Counts) {
    sum.up += one.up;
    sum.silent += one.silent;
    sum.without += one.without;
    sum.malformed += one.malformed;
    sum.forged += one.forged;
}

#[test]
fn bytes_of_a_seed_say_what_happens() {
    let mut sum = Counts::default();
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut bytes = [0; 4096];
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
        add(&mut sum, world::run(&bytes));
    }
    let all = [sum.up, sum.silent, sum.without, sum.malformed, sum.forged];
    assert!(all.iter().all(|count| *count > 0), "not everything happened: {sum:?}");
}

#[test]
fn corpus() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/negotiation");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .expect("the corpus")
        .map(|file| file.expect("a file").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{dir} is empty");
    for file in files {
        println!("{}", file.display());
        world::run(&std::fs::read(&file).expect("readable"));
    }
}
