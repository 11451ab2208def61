//! Worlds in which everybody writes garbage into lanes, beside entries that are right: no engine may come to harm.

use super::lanes::LaneHabits;
use super::ledger::Rules;
use super::rng::Rng;
use super::script::ANY_FAILURE;
use super::swarm::{Options, build};

/// Runs the world of a seed. Returns how many entries were garbage.
///
/// # Panics
/// If an engine breaks one of its invariants, writes where it must not, or never rests.
#[must_use]
pub fn run(seed: u64) -> u64 {
    let mut options = Options::with_neighbours(seed);
    let mut rng = Rng::new(seed, 27);
    let all = (1 << options.setups.len()) - 1;
    let habits = LaneHabits {
        delay_ns: rng.log_range(100, 10_000),
        capacity_bytes: rng.pick(&[1, 20 << 10, 256 << 10]),
        pulls: rng.chance(0.5),
        spoil: rng.pick(&[0.001, 0.01, 0.1]),
        ..LaneHabits::default()
    };
    for setup in &mut options.setups {
        setup.limits.near_limit_bytes = setup.limits.datagram_limit_bytes;
        (setup.limits.near, setup.lanes) = (all, Some(habits));
    }
    let mut world = build(&options, None);
    world.ledger.rules = Rules { forged: true, ..ANY_FAILURE };
    world.run_for(2 * options.spread_ns + 2 * options.span_ns + options.timeout_ns);
    let spoiled = world.spoiled();
    world.calm();
    world.run_for(3 * options.timeout_ns);
    spoiled
}
