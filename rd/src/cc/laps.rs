//! LAPS: bursts go to the paths with the least round trip, by softmax; the rate falls when even the
//! fastest path is slower than the slowest should be (docs/cc/laps.md). Sections, equations and
//! algorithms cited here are the paper's.

mod printed;
mod rows;
mod table;
#[cfg(test)]
mod tests;

use super::options::REFERENCE_PACKET_BYTES;
use super::pipe::{Pipe, greater, lesser, short_f32};
use super::scheme::SchemeTable;
use super::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, LossKind, SentBurst,
    Timeout, View,
};
use crate::units::{Ecn, Nanos, SECOND};
use alloc::boxed::Box;
use alloc::sync::Arc;
use printed::PrintedLaps;
pub use rows::LapsOptions;
use rows::OPTIONS;
use table::{ChoiceTerms, PathTable};

/// LAPS.
pub static LAPS: SchemeTable<LapsOptions> = SchemeTable {
    name: "laps",
    options: &OPTIONS,
    start: LapsOptions::default,
    ack_policy: |_| AckPolicy::PerPacket,
    loss_detection: |_| LossDetection::PathOrder,
    learns: |options| !options.law.is_printed(),
    build: |options, params, seed| match options.law.is_printed() {
        false => Box::new(Laps::new(options, params, seed)),
        true => Box::new(PrintedLaps::new(options, params, seed)),
    },
};

/// Halvings that make a quarter.
const HALVINGS: f32 = 2.0;
/// Least margin in typical round trips: on fast links 15 packets take almost no time.
const MARGIN_RTTS: f32 = 0.25;
/// Least margin.
const MARGIN_LEAST_NS: f32 = 1_000.0;
/// The rate never falls below this share of the greatest one.
const RATE_LEAST: f32 = 1.0 / 1024.0;
/// Two datagrams are never further apart.
const SPACING_MOST_NS: f32 = 1e8;
/// Without a known link speed the rate may grow to this many times the delivered rate.
const LEARNT: f32 = 1.25;
/// Share of a round trip after which doubtful lateness is checked again.
const SOON: f32 = 0.25;
/// The longest time between two changes of the rate.
const GATE_MOST_NS: f32 = 1e9;
/// Twice as long, in ticks of the gate.
const GATE_MOST_TICKS: u32 = (2.0 * GATE_MOST_NS) as u32 >> TICK_SHIFT;
/// p99 of an exponential distribution in units of its mean.
const P99: f32 = 4.6;
/// Increase of the loss score for a loss; an acknowledged packet decreases it by one.
const LOSS_ADDS: u8 = 16;
/// A score above this means congestion: more than a sixteenth was lost.
const LOSS_MANY: u8 = 64;
/// Unit of the gate, as a power of two in ns. 32 bits of it wrap after 549 s.
const TICK_SHIFT: u32 = 7;

/// One flow. Rates are in bytes per ns.
#[derive(Clone, Debug)]
struct Laps {
    options: Arc<LapsOptions>,
    table: PathTable,
    pipe: Pipe,
    /// The paper's curRate.
    rate: f32,
    /// The paper's expRate: the target of increases.
    expected: f32,
    /// Earliest time of the next change of the rate, in ticks of 2^[`TICK_SHIFT`] ns.
    gate_at: u32,
    datagram_bytes: u16,
    /// Increases since the last decrease: the paper's incStage.
    stage: u8,
    /// Losses on paths that answer, weighed against arrivals.
    loss_score: u8,
    /// Sends after idling, without an acknowledgement so far.
    restarted: bool,
}

impl Laps {
    fn new(options: &Arc<LapsOptions>, params: &FlowParams, seed: u64) -> Laps {
        let pipe = Pipe::new(params);
        let mut flow = Laps {
            options: Arc::clone(options),
            table: PathTable::new(params.now, params.paths, pipe.base_rtt_ns(), seed),
            rate: pipe.bytes_per_ns(),
            expected: pipe.bytes_per_ns(),
            pipe,
            gate_at: (params.now >> TICK_SHIFT) as u32,
            datagram_bytes: params.datagram_bytes.clamp(1, u16::MAX.into()) as u16,
            stage: 0,
            loss_score: 0,
            restarted: false,
        };
        flow.derive();
        flow.bound();
        flow
    }

    /// Derives values from the shared estimate. Queueing delay counts as none up to five packets a switch, a quarter
    /// round trip, and the noise.
    fn derive(&mut self) {
        let packet = f32::from(self.datagram_bytes).min(REFERENCE_PACKET_BYTES);
        let packets_ns = self.options.margin.0 * packet / self.pipe.bytes_per_ns();
        let share_ns = (MARGIN_RTTS * self.pipe.typical_rtt_ns()).max(MARGIN_LEAST_NS);
        self.table.margin_ns = packets_ns.min(GATE_MOST_NS).max(self.pipe.noise_ns()).max(share_ns);
    }

    /// The paper's T.
    fn threshold_ns(&self) -> f32 {
        self.table.threshold_ns()
    }

    fn terms(&self) -> ChoiceTerms {
        terms(&self.options, &self.pipe, &self.table)
    }

    fn rate_most(&self) -> f32 {
        let factor = if self.pipe.learns_rate() { LEARNT } else { 1.0 };
        (factor * self.pipe.bytes_per_ns()).max(self.rate_floor())
    }

    /// One datagram each 100 ms, whatever the estimates.
    fn rate_floor(&self) -> f32 {
        f32::from(self.datagram_bytes) / SPACING_MOST_NS
    }

    fn decrease(&mut self) {
        self.expected = self.rate;
        self.rate *= self.options.keep.0;
        self.stage = 0;
    }

    fn increase(&mut self) {
        self.stage = self.stage.saturating_add(1);
        if f32::from(self.stage) > self.options.stages.0 {
            self.expected *= 2.0;
        }
        // The doubled expectation is bounded before the rate follows it.
        self.expected = self.expected.min(self.rate_most());
        self.rate = (self.expected + self.rate) / 2.0;
    }

    /// Every change of the rates ends here.
    fn bound(&mut self) {
        let most = self.rate_most();
        let least = (most * RATE_LEAST).max(self.rate_floor());
        self.rate = self.rate.clamp(least, most);
        self.expected = self.expected.clamp(least, most);
    }

    /// Algorithm 2, once per round trip; `least_ns` is the paper's t.
    fn adjust(&mut self, ack: &AckSample, least_ns: f32) {
        let (threshold, margin) = (self.threshold_ns(), self.table.margin_ns);
        let over = least_ns.is_finite() && least_ns > threshold;
        let mut wait_ns = threshold;
        // A recent sample with less than the margin of queue would be a path below T.
        if self.loss_score > LOSS_MANY || (over && self.pipe.queue_delay_ns() > margin) {
            self.loss_score = 0;
            self.decrease();
            if over {
                wait_ns = least_ns;
            }
        } else if over {
            // One late sample, or the first of a queue: the next few decide.
            wait_ns *= SOON;
        } else if !ack.app_limited {
            self.increase();
        }
        self.bound();
        let wait_ns = wait_ns.min(GATE_MOST_NS) as Nanos;
        self.gate_at = (ack.now.saturating_add(wait_ns) >> TICK_SHIFT) as u32;
    }

    fn forgive(&mut self, ack: &AckSample) {
        let packets = u8::try_from(ack.acked_packets).unwrap_or(u8::MAX);
        self.loss_score = self.loss_score.saturating_sub(packets);
    }

    /// Takes an acknowledgement without a sample, the first one, or one after a long time.
    #[inline(never)]
    fn on_odd_ack(&mut self, ack: &AckSample) {
        let beta = beta(&self.options, &self.pipe, &self.table);
        let sample = ack.rtt_ns.map(short_f32).and_then(|rtt_ns| {
            self.table.renew(ack.now);
            self.table.on_sample(ack, rtt_ns, beta)
        });
        match sample {
            Some((rtt_ns, changed)) => self.on_sample(ack, rtt_ns, changed),
            None => self.learn(ack, None),
        }
    }

    /// Takes a round trip without its path's extra delay.
    #[inline(always)]
    fn on_sample(&mut self, ack: &AckSample, rtt_ns: f32, changed: bool) {
        if self.pipe.is_plain(ack, rtt_ns) {
            self.pipe.take(ack.now, rtt_ns);
            if changed || self.gate_is_open(ack.now) {
                self.survey(ack);
            }
        } else {
            self.on_odd_sample(ack, rtt_ns, changed);
        }
    }

    /// The same for a sample that is not [`Pipe::is_plain`].
    #[inline(never)]
    fn on_odd_sample(&mut self, ack: &AckSample, rtt_ns: f32, changed: bool) {
        self.learn(ack, Some(rtt_ns));
        if changed || self.gate_is_open(ack.now) {
            self.survey(ack);
        }
    }

    fn learn(&mut self, ack: &AckSample, rtt_ns: Option<f32>) {
        if self.pipe.on_odd_sample(ack, rtt_ns) {
            self.derive();
        }
    }

    /// Checks all paths, and the rate if that is due.
    #[inline(never)]
    fn survey(&mut self, ack: &AckSample) {
        let least_ns = self.table.survey(ack.now, &self.terms(), ack.in_flight_bytes > 0);
        if self.gate_is_open(ack.now) {
            self.adjust(ack, least_ns);
        }
    }

    fn gate_is_open(&self, now: Nanos) -> bool {
        let left = self.gate_at.wrapping_sub((now >> TICK_SHIFT) as u32);
        // A time further ahead than any gate is an old one that wrapped.
        left == 0 || left > GATE_MOST_TICKS
    }
}

/// The paper's beta, for powers of two.
fn beta(options: &LapsOptions, pipe: &Pipe, table: &PathTable) -> f32 {
    HALVINGS / greater(options.quarter.0 * pipe.typical_rtt_ns(), table.margin_ns)
}

fn terms(options: &LapsOptions, pipe: &Pipe, table: &PathTable) -> ChoiceTerms {
    let jitter_ns = pipe.typical_rtt_ns() - pipe.base_rtt_ns();
    let p99_ns = table.longest_ns() + P99 * jitter_ns;
    ChoiceTerms { beta: beta(options, pipe, table), stale_ns: p99_ns.max(options.stale_us.0 * 1e3) }
}

impl Controller for Laps {
    fn on_sent(&mut self, sent: &SentBurst) {
        let alone = sent.in_flight_bytes <= u64::from(sent.bytes);
        self.restarted |= self.table.on_sent(sent.now, sent.path, alone);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if self.loss_score > 0 {
            self.forgive(ack);
        }
        self.restarted = false;
        let beta = beta(&self.options, &self.pipe, &self.table);
        match ack.rtt_ns.map(short_f32) {
            Some(rtt_ns) if !self.table.is_due(ack.now) => {
                match self.table.on_sample(ack, rtt_ns, beta) {
                    Some((rtt_ns, changed)) => self.on_sample(ack, rtt_ns, changed),
                    None => self.on_odd_ack(ack),
                }
            }
            _ => self.on_odd_ack(ack),
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        // Only these come from paths that answer: a dead one is no reason to slow down.
        if matches!(loss.kind, LossKind::Order | LossKind::Trim) {
            self.loss_score = self.loss_score.saturating_add(LOSS_ADDS);
        }
        let terms = self.terms();
        self.table.on_loss(loss, &terms);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        let terms = self.terms();
        self.table.survey(timeout.now, &terms, timeout.in_flight_bytes > 0);
        // The first may be one lost tail; further ones mean that even the probes are lost.
        if timeout.in_a_row > 1 {
            self.decrease();
            self.bound();
        }
    }

    fn window_bytes(&self) -> u64 {
        let bdps = if self.restarted { 1.0 } else { self.options.window.0 };
        let datagram = f32::from(self.datagram_bytes);
        // On a short slow link a datagram is more than the BDP: two of them keep it busy. The pace spaces them where
        // that is too much.
        let most = greater(self.pipe.bdp_bytes(), datagram);
        let bdp = lesser(self.rate * self.threshold_ns(), most);
        greater(bdps * bdp, 2.0 * datagram) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        Some((self.rate * SECOND as f32).max(1.0) as u64)
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        let (pipe, options) = (&self.pipe, &*self.options);
        self.table.next(now, options.probe_every, |table| terms(options, pipe, table))
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.table.margin_ns as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.table.usable(),
        }
    }
}
