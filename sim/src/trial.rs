//! Trials: paths that slow down, lose packets or die, and the time until the traffic reacts.

use crate::ids::LinkId;
use crate::link::Health;
use crate::scenario::{Run, Scenario};
use crate::time::{PS_PER_NS, Picos, from_ns};

/// Traffic has left a path when it carries less than this share of all bytes.
const LEFT_SHARE: f64 = 0.05;
/// Base round trips over which a share is taken.
const SHARE_RTTS: usize = 4;
/// Traffic is back when the path carries this part of an even share.
const BACK_PART: f64 = 0.5;
/// Longest wait for the first data after all paths were dead, in RTO.
const REVIVAL_RTOS_MAX: u64 = 1_000;
/// Steps of that wait.
const REVIVAL_STEP: Picos = 100 * PS_PER_NS;

/// One path fails and heals.
#[derive(Clone)]
pub struct PathTrial {
    /// The flows. Their warm-up goes before, their measurement is not used.
    pub scenario: Scenario,
    /// Which path.
    pub path: usize,
    /// What becomes of it.
    pub fault: Health,
    /// Base round trips until it heals, and as many after that.
    pub held_rtts: u64,
}

/// Times in units of the retransmission timeout; `None` where it did not happen in time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathOutcome {
    /// From the fault until the path carried less than 5 % of the bytes.
    pub left_rtos: Option<f64>,
    /// From the healing until it carried half an even share; `None` also if nothing had left.
    pub back_rtos: Option<f64>,
    /// Payload placed while the fault lasted, as a share of what the sound paths can carry.
    pub utilisation: f64,
    /// Operations that ended with an error.
    pub failures: u64,
}

impl PathTrial {
    /// Runs it.
    #[must_use]
    pub fn run(&self) -> PathOutcome {
        let mut run = self.scenario.begin();
        run.network.run_until(self.scenario.warm_at());
        let path = run.paths[self.path];
        run.network.set_health(path, self.fault);
        let placed_before: u64 = run.placed_bytes().iter().sum();
        let faulty = self.shares(&mut run, path);
        let placed = run.placed_bytes().iter().sum::<u64>() - placed_before;
        run.network.set_health(path, Health::Up);
        let healed = self.shares(&mut run, path);
        let paths = run.paths.len() as f64;
        let seconds = (self.held_rtts * self.scenario.net.base_rtt_ns) as f64 / 1e9;
        let capacity = self.scenario.net.payload_bytes_per_s() * (paths - 1.0) / paths;
        let even = 1.0 / paths;
        let left = faulty.iter().position(|share| *share < LEFT_SHARE);
        let back = healed.iter().position(|share| *share >= BACK_PART * even);
        PathOutcome {
            left_rtos: self.rtos(left),
            back_rtos: self.rtos(left.and(back)),
            utilisation: placed as f64 / (capacity * seconds),
            failures: run.failures(),
        }
    }

    /// The path's share of the bytes offered to all, over some round trips from each one on.
    fn shares(&self, run: &mut Run, path: LinkId) -> Vec<f64> {
        let mut bins = Vec::new();
        let mut before = offered(run, path);
        for _ in 0..self.held_rtts {
            run.network.run_until(run.network.now() + self.scenario.rtts(1));
            let now = offered(run, path);
            bins.push((now.0 - before.0, now.1 - before.1));
            before = now;
        }
        let share = |window: &[(u64, u64)]| {
            let part: u64 = window.iter().map(|bin| bin.0).sum();
            let all: u64 = window.iter().map(|bin| bin.1).sum();
            // While nothing moves, nothing has left.
            if all == 0 { 1.0 / run.paths.len() as f64 } else { part as f64 / all as f64 }
        };
        bins.windows(SHARE_RTTS).map(share).collect()
    }

    fn rtos(&self, rtts: Option<usize>) -> Option<f64> {
        let net = &self.scenario.net;
        rtts.map(|rtts| rtts as f64 * net.base_rtt_ns as f64 / net.rto_min_ns as f64)
    }
}

/// Bytes offered to one path, and to all.
fn offered(run: &Run, path: LinkId) -> (u64, u64) {
    let bytes = |id: LinkId| run.network.counters(id).offered_bytes;
    (bytes(path), run.paths.iter().map(|&id| bytes(id)).sum())
}

/// All paths die, and some time later one of them heals.
#[derive(Clone)]
pub struct RevivalTrial {
    /// The flows. Their warm-up goes before, their measurement is not used.
    pub scenario: Scenario,
    /// The path that heals.
    pub path: usize,
    /// How long all are dead, in RTO.
    pub dead_rtos: u64,
}

impl RevivalTrial {
    /// Runs it: how long after the healing the first data arrives, in RTO. `None` if none does
    /// within 1000 RTO.
    #[must_use]
    pub fn run(&self) -> Option<f64> {
        let mut run = self.scenario.begin();
        run.network.run_until(self.scenario.warm_at());
        for &path in &run.paths {
            run.network.set_health(path, Health::Dead);
        }
        let rto = from_ns(self.scenario.net.rto_min_ns);
        let healed = run.network.now() + self.dead_rtos * rto;
        run.network.run_until(healed);
        run.network.set_health(run.paths[self.path], Health::Up);
        let before = run.placed_bytes();
        while run.network.now() < healed + REVIVAL_RTOS_MAX * rto {
            run.network.run_until(run.network.now() + REVIVAL_STEP);
            if run.placed_bytes() != before {
                return Some((run.network.now() - healed) as f64 / rto as f64);
            }
        }
        None
    }
}
