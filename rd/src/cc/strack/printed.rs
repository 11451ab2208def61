//! STrack as its paper prints it (`law` = 1): algorithms 1 to 4 and table 1, without the product's protections. It is
//! for comparisons with the paper (docs/cc/strack.md, "Profiles", which also has the readings of what contradicts).

#[cfg(test)]
mod tests;

use super::rows::{PATHS_MIN, StrackOptions};
use crate::cc::options::{
    REFERENCE_BDP_BYTES, REFERENCE_PACKET_BYTES, REFERENCE_RTT_NS, ScaledPackets,
};
use crate::cc::paths::{EcnBitmap, PATHS_MAX};
use crate::cc::pipe::{Pipe, short_f32};
use crate::cc::profiles::{STRACK_ACHIEVED_SHARE, STRACK_KEEP_LEAST};
use crate::cc::{AckSample, Controller, FlowParams, Loss, SentBurst, Timeout, View};
use crate::units::{Ecn, Nanos};
use alloc::sync::Arc;

/// One flow. The window is in packets, as printed.
#[derive(Clone, Debug)]
pub(super) struct PrintedStrack {
    options: Arc<StrackOptions>,
    pipe: Pipe,
    marked: EcnBitmap,
    /// Algorithm 3's `next_path_id`.
    next: Option<u16>,
    paths: u16,
    /// The network's base round trip: as given, or else the flow's.
    given_ns: f32,
    packet_bytes: f32,
    cwnd: f32,
    average_ns: f32,
    count_bytes: f32,
    /// Unknown until the first period ends.
    achieved_bytes: Option<f32>,
    count_at: Nanos,
    cut_at: Option<Nanos>,
    shuffled_at: Nanos,
}

impl PrintedStrack {
    pub(super) fn new(params: &FlowParams, options: &Arc<StrackOptions>) -> PrintedStrack {
        let mut flow = PrintedStrack {
            options: Arc::clone(options),
            pipe: Pipe::raw(params),
            marked: EcnBitmap::default(),
            next: None,
            paths: params.paths.clamp(1, PATHS_MAX),
            given_ns: params.base_rtt_ns as f32,
            packet_bytes: params.datagram_bytes.max(1) as f32,
            cwnd: f32::INFINITY,
            average_ns: 0.0,
            count_bytes: 0.0,
            achieved_bytes: None,
            count_at: params.now,
            cut_at: None,
            shuffled_at: params.now,
        };
        flow.clamp();
        flow
    }

    fn network_ns(&self) -> f32 {
        if self.given_ns > 0.0 { self.given_ns } else { self.pipe.base_rtt_ns() }
    }

    fn target_ns(&self) -> f32 {
        self.options.target.0 * self.network_ns()
    }

    /// Whole packets of a BDP.
    fn most(&self) -> f32 {
        let packets = self.options.max_bdp.0 * self.pipe.bdp_bytes() / self.packet_bytes;
        libm::ceilf(packets).max(1.0)
    }

    fn clamp(&mut self) {
        self.cwnd = self.cwnd.min(self.most()).max(1.0);
    }

    /// A constant of table 1 that has `bdp_sf`, in packets of this flow: the paper's have 4 KiB.
    fn scaled(&self, packets: ScaledPackets) -> f32 {
        let scale = self.network_ns() * self.pipe.bytes_per_ns() / REFERENCE_BDP_BYTES;
        packets.0 * scale * (REFERENCE_PACKET_BYTES / self.packet_bytes)
    }

    fn passed(&self, at: Nanos, now: Nanos) -> bool {
        now.saturating_sub(at) as f32 > self.pipe.base_rtt_ns()
    }

    /// Algorithm 2.
    fn count(&mut self, ack: &AckSample) {
        self.count_bytes += short_f32(ack.acked_bytes);
        let period_ns = self.pipe.base_rtt_ns() + self.target_ns();
        if ack.now.saturating_sub(self.count_at) as f32 > period_ns {
            self.achieved_bytes = Some(core::mem::take(&mut self.count_bytes));
            self.count_at = ack.now;
        }
    }

    /// Algorithm 4. `alpha` is 4 bdp_sf delay_sf / base_rtt, where delay_sf is base_rtt / 12 us.
    fn adjust(&mut self, now: Nanos, marked: bool, delay_ns: f32) {
        let target_ns = self.target_ns();
        let is_high = delay_ns > self.options.high.0 * target_ns;
        self.average_ns += self.options.ewma.0 * (delay_ns - self.average_ns);
        if !marked && is_high {
            self.cwnd += self.scaled(self.options.beta) / self.cwnd;
        } else if !marked && delay_ns < target_ns {
            let alpha = self.scaled(self.options.alpha) / REFERENCE_RTT_NS;
            self.cwnd += alpha * (target_ns - delay_ns) / self.cwnd;
        } else if self.cut_at.is_none_or(|at| self.passed(at, now)) && self.average_ns > target_ns {
            self.cut(now, delay_ns, is_high);
        }
        if self.passed(self.shuffled_at, now) {
            self.cwnd += self.scaled(self.options.eta);
            self.shuffled_at = now;
        }
        self.clamp();
    }

    /// Algorithm 4, lines 11 to 17.
    fn cut(&mut self, now: Nanos, delay_ns: f32, is_high: bool) {
        let target_ns = self.target_ns();
        let achieved = self.achieved_bytes.map(|bytes| bytes / self.packet_bytes);
        let little = achieved.filter(|packets| *packets < STRACK_ACHIEVED_SHARE * self.most());
        if is_high && let Some(packets) = little {
            self.cwnd = packets;
        } else if delay_ns > target_ns {
            let excess = (self.average_ns - target_ns) / self.average_ns;
            self.cwnd *= (1.0 - self.options.gamma.0 * excess).max(STRACK_KEEP_LEAST);
        } else {
            return;
        }
        self.cut_at = Some(now);
    }
}

impl Controller for PrintedStrack {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        self.count(ack);
        if ack.rtt_ns.is_none() {
            return;
        }
        let marked = ack.ce_bytes > 0;
        self.next = (!marked).then_some(ack.path);
        self.marked.on_ack(ack.path, marked);
        self.adjust(ack.now, marked, self.pipe.queue_delay_ns());
    }

    fn on_loss(&mut self, _: &Loss) {}

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        (self.cwnd * self.packet_bytes) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    /// Algorithm 3, `choose_path`.
    fn next_path(&mut self, _: Nanos) -> u16 {
        if let Some(path) = self.next.take().filter(|path| *path < self.paths) {
            self.marked.resume_after(path);
            return path;
        }
        let fresh = (2.0 * self.cwnd) as u64;
        let paths = fresh.max(PATHS_MIN).min(u64::from(self.paths)) as u16;
        self.marked.next(paths)
    }

    fn may_move(&self) -> bool {
        false
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.target_ns() as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths,
        }
    }
}
