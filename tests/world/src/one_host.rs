//! Random runs whose nodes share memory (protocol.md §12).

use super::lanes::LaneHabits;
use super::node::Setup;
use super::rng::Rng;
use super::sim::{Action, World};
use super::swarm::{Options, Weather};
use erd_rd::Nanos;
use erd_rd::units::{MICROSECOND, MILLISECOND};

/// One seed in so many puts all nodes on one host.
pub(crate) const NEAR_SEEDS: u64 = 4;

/// More than a node reads of a message in one step.
const LONG_BYTES: u64 = 10 << 20;

/// Lets the nodes of one host share memory, in half of the runs.
pub(crate) fn share(rng: &mut Rng, setups: &mut [Setup], weather: Weather) {
    if rng.chance(0.5) {
        return;
    }
    let habits = lanes(rng, weather);
    setups.iter_mut().for_each(|setup| setup.lanes = Some(habits));
}

fn lanes(rng: &mut Rng, weather: Weather) -> LaneHabits {
    let is_harsh = matches!(weather, Weather::Storm | Weather::Deadly);
    LaneHabits {
        ask_ns: rng.log_range(MICROSECOND, 5 * MILLISECOND),
        delay_ns: rng.log_range(100, 100 * MICROSECOND),
        capacity_bytes: rng.pick(&[1, 20 << 10, 256 << 10]),
        refusal: rng.pick(&[0.0, 0.3]),
        absence: rng.pick(&[0.0, 0.3]),
        pulls: rng.chance(0.7),
        spoil: 0.0,
        breaks: if is_harsh { rng.pick(&[0.0, 0.001, 0.01]) } else { 0.0 },
        remembers: false,
    }
}

impl Options {
    /// The same where all nodes are on one host and share memory; some messages are long.
    #[must_use]
    pub fn near(mut self) -> Options {
        let rng = &mut Rng::new(self.seed, 18);
        let habits = lanes(rng, self.weather);
        if rng.chance(0.3) {
            self.len_max_bytes = LONG_BYTES;
            self.budget_bytes += 2 * LONG_BYTES;
        }
        self.on_one_host(habits)
    }

    /// The same where all nodes are on one host and share memory in this way.
    #[must_use]
    pub fn on_one_host(mut self, habits: LaneHabits) -> Options {
        let all = (1 << self.setups.len()) - 1;
        for setup in &mut self.setups {
            let limits = &mut setup.limits;
            (limits.near, limits.near_limit_bytes) = (all, limits.datagram_limit_bytes);
            setup.lanes = Some(habits);
        }
        self
    }
}

/// Schedules ends of sessions while their lanes are in use. They are drawn apart, so that the rest of a seed is the same
/// with and without them.
pub(super) fn plan_partings(o: &Options, world: &mut World, start: Nanos) {
    let has_lanes = o.setups.iter().any(|setup| setup.lanes.is_some());
    if !has_lanes || !o.rules().closes {
        return;
    }
    let rng = &mut Rng::new(o.seed, 17);
    for _ in 0..rng.pick(&[0, 4, 40]) {
        let pair = (rng.below(o.nodes()) as usize, rng.below(o.nodes()) as usize);
        world.at(start + rng.below(o.span_ns), Action::Forget(pair.0, pair.1));
    }
}
