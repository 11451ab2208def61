//! Garbage in lanes (protocol.md §12.8): `LANE_GARBAGE=1000000` sets how many entries of it at least.
//!
//! Fast: `CARGO_PROFILE_TEST_OPT_LEVEL=3 LANE_GARBAGE=1000000 cargo test -p erd-world --test garbage -- --nocapture`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Entries of garbage that a plain run tries.
const GARBAGE: u64 = 5_000;

#[test]
fn who_writes_garbage_harms_nobody_else() {
    let number = |name| {
        let text = std::env::var(name).ok();
        text.map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is a number")))
    };
    if let Some(seed) = number("GARBAGE_SEED") {
        return println!("{} entries of garbage", erd_world::garbage::run(seed));
    }
    let total = number("LANE_GARBAGE").unwrap_or(GARBAGE);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
    let base = clock.as_nanos() as u64 % 1_000_000_007 * 100_000;
    let (mut tried, mut seed) = (0, base);
    while tried < total {
        println!("GARBAGE_SEED={seed}");
        tried += erd_world::garbage::run(seed);
        seed += 1;
    }
    println!("{tried} entries of garbage in {} worlds", seed - base);
}
