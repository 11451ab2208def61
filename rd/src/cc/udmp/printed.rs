//! UDMP as its paper prints it (`law` = 1): algorithms 1 and 2, without the product's window, thresholds and pacing. It
//! is for comparisons with the paper (docs/cc/udmp.md, "Profiles", which also has the readings of what contradicts).

#[cfg(test)]
mod tests;

use super::rows::UdmpOptions;
use crate::cc::paths::{self, PATHS_MAX};
use crate::cc::pipe::{Pipe, short_f32};
use crate::cc::{AckSample, Controller, FlowParams, Loss, SentBurst, Timeout, View};
use crate::units::{Ecn, Nanos};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Most paths that wait for a packet. The paper has no bound; packets beyond it take a random path.
const CLOCKED_MAX: usize = 8_192;
/// Most tokens, in packets: more than any window holds.
const TOKENS_MAX: f32 = 1e9;

/// One flow. Rates are in bytes per ns.
#[derive(Clone, Debug)]
pub(super) struct PrintedUdmp {
    options: Arc<UdmpOptions>,
    pipe: Pipe,
    rng: Pcg32,
    paths: u16,
    packet_bytes: f32,
    rate: f32,
    smooth_ns: f32,
    last_smooth_ns: f32,
    pool_bytes: f32,
    /// Packets that may be sent.
    tokens: f32,
    /// Paths of acknowledgements whose packets were not sent yet, the oldest first.
    clocked: VecDeque<u8>,
    /// The next packet tries a random path.
    explores: bool,
    in_flight_bytes: u64,
    ignored_packets: f32,
    to_ignore_packets: f32,
    refilled_at: Nanos,
    /// None before the first acknowledgement.
    updated_at: Option<Nanos>,
}

impl PrintedUdmp {
    pub(super) fn new(params: &FlowParams, seed: u64, options: &Arc<UdmpOptions>) -> PrintedUdmp {
        let pipe = Pipe::raw(params);
        let packet_bytes = params.datagram_bytes.max(1) as f32;
        PrintedUdmp {
            options: Arc::clone(options),
            pipe,
            rng: paths::rng(seed),
            paths: params.paths.clamp(1, PATHS_MAX),
            packet_bytes,
            rate: pipe.bytes_per_ns(),
            smooth_ns: 0.0,
            last_smooth_ns: 0.0,
            pool_bytes: 0.0,
            // Algorithm 1, line 2.
            tokens: libm::floorf(pipe.bdp_bytes() / packet_bytes).max(1.0),
            clocked: VecDeque::new(),
            explores: false,
            in_flight_bytes: 0,
            ignored_packets: 0.0,
            to_ignore_packets: 0.0,
            refilled_at: params.now,
            updated_at: None,
        }
    }

    fn high_ns(&self) -> f32 {
        self.options.t_high.0 * self.pipe.base_rtt_ns()
    }

    /// Keeps the rate at the line's or below, and above nothing: one packet in a base round trip.
    fn clamp(&mut self) {
        let least = self.packet_bytes / self.pipe.base_rtt_ns();
        self.rate = self.rate.min(self.pipe.bytes_per_ns()).max(least);
    }

    /// Algorithm 1, lines 20 and 21.
    fn refill(&mut self, now: Nanos) {
        self.pool_bytes += self.rate * now.saturating_sub(self.refilled_at) as f32;
        self.refilled_at = now;
    }

    /// Algorithm 2.
    fn clock(&mut self, ack: &AckSample, rtt_ns: f32) {
        if ack.lag_packets as f32 > self.options.delta.0 {
            return;
        }
        let packet = self.packet_bytes;
        if rtt_ns < self.smooth_ns && self.pool_bytes >= 2.0 * packet {
            self.send_on(ack.path, 2);
        } else if self.pool_bytes >= packet && rtt_ns < self.smooth_ns + self.pipe.base_rtt_ns() {
            self.send_on(ack.path, 1);
        }
    }

    fn send_on(&mut self, path: u16, packets: u8) {
        self.pool_bytes -= f32::from(packets) * self.packet_bytes;
        self.tokens = (self.tokens + f32::from(packets)).min(TOKENS_MAX);
        for _ in 0..packets {
            if self.clocked.len() < CLOCKED_MAX {
                self.clocked.push_back(path.min(self.paths - 1) as u8);
            }
        }
    }

    /// Algorithm 1, lines 22 to 24.
    fn limit(&mut self) {
        if self.smooth_ns > self.high_ns() {
            let line = self.pipe.bytes_per_ns();
            let share = 1.0 - (self.smooth_ns - self.pipe.base_rtt_ns()) / self.smooth_ns;
            self.rate = self.rate.min(line * share);
        }
    }

    /// Algorithm 1, lines 25 to 37.
    fn update(&mut self, ack: &AckSample) {
        if self.ignored_packets <= self.to_ignore_packets {
            return;
        }
        let elapsed = self.updated_at.map_or(0, |at| ack.now.saturating_sub(at));
        if self.updated_at.is_some() && elapsed == 0 {
            return;
        }
        if elapsed > 0 {
            let gradient = (self.smooth_ns - self.last_smooth_ns) / elapsed as f32;
            let line = self.pipe.bytes_per_ns();
            if gradient > 0.0 {
                self.rate -= gradient * line * (self.rate / line);
            } else {
                self.rate += -gradient * line * (1.0 - self.rate / line);
            }
        }
        self.last_smooth_ns = self.smooth_ns;
        self.updated_at = Some(ack.now);
        self.ignored_packets = 0.0;
        self.to_ignore_packets = short_f32(ack.in_flight_bytes) / self.packet_bytes;
        // Section III-D: in each round trip with a probability.
        let probability = self.pipe.base_rtt_ns() / (1e3 * self.options.probe_us.0);
        self.explores = (self.rng.next_u32() as f32) < probability * u32::MAX as f32;
    }
}

impl Controller for PrintedUdmp {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.in_flight_bytes = sent.in_flight_bytes;
        self.tokens = (self.tokens - sent.packets as f32).max(0.0);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        self.in_flight_bytes = ack.in_flight_bytes;
        self.ignored_packets += ack.acked_packets as f32;
        let Some(rtt_ns) = ack.rtt_ns.map(short_f32) else { return };
        if self.updated_at.is_none() {
            self.smooth_ns = rtt_ns;
        }
        self.smooth_ns += self.options.alpha.0 * (rtt_ns - self.smooth_ns);
        self.refill(ack.now);
        self.clock(ack, rtt_ns);
        self.limit();
        self.update(ack);
        self.clamp();
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.in_flight_bytes = loss.in_flight_bytes;
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.in_flight_bytes = timeout.in_flight_bytes;
    }

    fn window_bytes(&self) -> u64 {
        self.in_flight_bytes + (self.tokens * self.packet_bytes) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    /// Algorithm 1, lines 10 to 14: the path that was clocked; in the first round trip, and without one, a random one.
    fn next_path(&mut self, _: Nanos) -> u16 {
        let clocked = self.clocked.pop_front().map(u16::from);
        let explores = core::mem::take(&mut self.explores);
        match clocked.filter(|_| !explores) {
            Some(path) => path,
            None => paths::uniform(&mut self.rng, self.paths),
        }
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
            target_ns: (self.high_ns() - self.pipe.base_rtt_ns()) as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths,
        }
    }
}
