//! LAPS as its paper prints it (`law` = 1): equation 1 and algorithms 1 and 2, without the product's filter, loss score
//! and dead paths. It is for comparisons with the paper (docs/cc/laps.md, "Profiles", which also has the readings of
//! what contradicts). Latencies are round trips: their common part cancels out.

#[cfg(test)]
mod tests;

use super::rows::LapsOptions;
use crate::cc::paths::{self, PATHS_MAX};
use crate::cc::pipe::{Pipe, short_f32};
use crate::cc::profiles::{LAPS_LATENCY_MOST_NS, LAPS_RATE_LEAST};
use crate::cc::{AckSample, Controller, FlowParams, Loss, SentBurst, Timeout, View};
use crate::units::{Ecn, Nanos, SECOND};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// A row of the path information table. Every path stays valid: the paper does not say when one is not.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Least round trip, without the margin of `baseVal`; that of the flow before the first sample.
    least_ns: f32,
    /// `realVal`.
    real_ns: f32,
    /// `time`.
    at: Nanos,
    is_sampled: bool,
}

/// One flow. Rates are in bytes per ns.
#[derive(Clone, Debug)]
pub(super) struct PrintedLaps {
    options: Arc<LapsOptions>,
    pipe: Pipe,
    rng: Pcg32,
    paths: Box<[Path]>,
    packet_bytes: f32,
    /// The paper's `curRate` and `expRate`.
    rate: f32,
    expected: f32,
    stage: f32,
    next_decrease_at: Nanos,
    next_increase_at: Nanos,
}

impl PrintedLaps {
    pub(super) fn new(options: &Arc<LapsOptions>, params: &FlowParams, seed: u64) -> PrintedLaps {
        let pipe = Pipe::raw(params);
        let base_ns = pipe.base_rtt_ns();
        let path = Path { least_ns: base_ns, real_ns: base_ns, at: params.now, is_sampled: false };
        PrintedLaps {
            options: Arc::clone(options),
            pipe,
            rng: paths::rng(seed),
            paths: vec![path; usize::from(params.paths.clamp(1, PATHS_MAX))].into(),
            packet_bytes: params.datagram_bytes.max(1) as f32,
            rate: pipe.bytes_per_ns(),
            expected: pipe.bytes_per_ns(),
            stage: 0.0,
            next_decrease_at: params.now,
            next_increase_at: params.now,
        }
    }

    /// Section III-F: a queue of 5 packets at each switch.
    fn margin_ns(&self) -> f32 {
        self.options.margin.0 * self.packet_bytes / self.pipe.bytes_per_ns()
    }

    /// Algorithm 2, lines 4 and 5: T and t.
    fn bounds_ns(&self) -> (f32, f32) {
        let greatest = self.paths.iter().map(|path| path.least_ns).fold(0.0, f32::max);
        let least = self.paths.iter().map(|path| path.real_ns).fold(f32::INFINITY, f32::min);
        (greatest + self.margin_ns(), least)
    }

    /// Algorithm 2, lines 6 to 15, with the gates' comparisons the right way round. Twice a one-way latency is a round
    /// trip.
    fn adjust(&mut self, now: Nanos) {
        let (greatest_ns, least_ns) = self.bounds_ns();
        if least_ns > greatest_ns && self.next_decrease_at <= now {
            self.expected = self.rate;
            self.rate *= self.options.keep.0;
            self.next_decrease_at = now + least_ns as Nanos;
            self.stage = 0.0;
        } else if least_ns <= greatest_ns && self.next_increase_at <= now {
            self.stage += 1.0;
            if self.stage > self.options.stages.0 {
                self.expected *= 2.0;
            }
            self.rate = 0.5 * (self.expected + self.rate);
            self.next_increase_at = now + least_ns as Nanos;
        }
        let line = self.pipe.bytes_per_ns();
        self.expected = self.expected.min(line);
        self.rate = self.rate.min(line).max(line * LAPS_RATE_LEAST);
    }

    /// Algorithm 1, lines 5 to 8, for one stale path at random (section III-H). The packet is the probe.
    fn probe(&mut self, now: Nanos) -> Option<u16> {
        let is_stale = |path: &Path| now.saturating_sub(path.at) as f32 > path.real_ns;
        let stale = self.paths.iter().filter(|path| is_stale(path)).count();
        if stale == 0 {
            return None;
        }
        let nth = usize::from(paths::uniform(&mut self.rng, stale as u16));
        let stale = |(_, path): &(usize, &mut Path)| is_stale(path);
        let (at, path) = self.paths.iter_mut().enumerate().filter(stale).nth(nth)?;
        path.real_ns = (2.0 * path.real_ns).min(LAPS_LATENCY_MOST_NS);
        path.at = now;
        Some(at as u16)
    }

    /// Equation 1. Less the least latency, no exponential underflows for all.
    fn weight(&self, path: &Path, least_ns: f32) -> f32 {
        let quarter_ns = self.options.quarter.0 * self.pipe.base_rtt_ns();
        libm::exp2f(-2.0 * (path.real_ns - least_ns) / quarter_ns)
    }

    fn draw(&mut self) -> u16 {
        let least_ns = self.bounds_ns().1;
        let all: f32 = self.paths.iter().map(|path| self.weight(path, least_ns)).sum();
        let mut rest = all * (self.rng.next_u32() as f32 / u32::MAX as f32);
        for (at, path) in self.paths.iter().enumerate() {
            rest -= self.weight(path, least_ns);
            if rest <= 0.0 {
                return at as u16;
            }
        }
        self.paths.len() as u16 - 1
    }
}

impl Controller for PrintedLaps {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        let Some(rtt_ns) = ack.rtt_ns.map(short_f32) else { return };
        if let Some(path) = self.paths.get_mut(usize::from(ack.path)) {
            path.least_ns = if path.is_sampled { path.least_ns.min(rtt_ns) } else { rtt_ns };
            path.is_sampled = true;
            path.real_ns = rtt_ns;
            path.at = ack.now;
        }
        self.adjust(ack.now);
    }

    fn on_loss(&mut self, _: &Loss) {}

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        (self.options.window.0 * self.pipe.bdp_bytes()).max(self.packet_bytes) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        Some((self.rate * SECOND as f32) as u64)
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        if self.paths.len() == 1 {
            return 0;
        }
        self.probe(now).unwrap_or_else(|| self.draw())
    }

    fn may_move(&self) -> bool {
        false
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.margin_ns() as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths.len() as u16,
        }
    }
}
