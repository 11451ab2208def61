//! NSCC as uet-htsim computes it (`law` = 2), and SMaRTT as its paper prints it (`law` = 1). The product's controller
//! is in `nscc.rs`; this one has none of its protections, and is for comparisons with the sources
//! (docs/cc/nscc.md, "Profiles"). A number and letter name an algorithm or line of the paper.

#[cfg(test)]
mod tests;

use super::balancer::{Balancer, News};
use super::rows::NsccOptions;
use crate::cc::options::{REFERENCE_BDP_BYTES, REFERENCE_RTT_NS, ScaledPackets};
use crate::cc::paths::PATHS_MAX;
use crate::cc::pipe::{Pipe, short_f32};
use crate::cc::profiles::{
    HTSIM_BATCH_PACKETS, HTSIM_HEADER_BYTES, HTSIM_STALE, NSCC_KEEP_LEAST, NSCC_NEAR_BASE_NS,
};
use crate::cc::{AckSample, Controller, FlowParams, Loss, LossKind, SentBurst, Timeout, View};
use crate::units::{Ecn, Nanos};
use alloc::sync::Arc;

/// Whose algorithm it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Law {
    Paper,
    Htsim,
}

/// One flow. Windows are in bytes, delays in ns above the base round trip.
#[derive(Clone, Debug)]
pub(super) struct PrintedNscc {
    options: Arc<NsccOptions>,
    pipe: Pipe,
    balancer: Balancer,
    law: Law,
    trimming: bool,
    last_path: u8,
    /// The network's round trip: as given, or else the flow's base.
    given_ns: f32,
    mtu_bytes: f32,
    cwnd: f32,
    /// Increases that the next adjustment applies, times the window: in bytes squared.
    increase: f32,
    average_ns: f32,
    /// Bytes received since the window of QuickAdapt began, since increases were applied, and since QuickAdapt fired.
    achieved_bytes: f32,
    received_bytes: f32,
    ignored_bytes: f32,
    /// Bytes in flight when QuickAdapt fired.
    to_ignore_bytes: f32,
    /// Bytes in a row without congestion, and whether fast increase is on.
    empty_bytes: f32,
    is_fast: bool,
    /// A trim asks for QuickAdapt.
    triggered: bool,
    /// End of QuickAdapt's window, once there is one.
    window_end: Option<Nanos>,
    decreased_at: Option<Nanos>,
    adjusted_at: Nanos,
}

impl PrintedNscc {
    pub(super) fn new(options: &Arc<NsccOptions>, params: &FlowParams, seed: u64) -> PrintedNscc {
        let paths = params.paths.clamp(1, PATHS_MAX);
        let mut flow = PrintedNscc {
            options: Arc::clone(options),
            pipe: Pipe::raw(params),
            balancer: Balancer::new(options.paths_by, seed, paths),
            law: if options.law.number() == 1 { Law::Paper } else { Law::Htsim },
            trimming: params.trimming,
            last_path: (paths - 1) as u8,
            given_ns: params.base_rtt_ns as f32,
            mtu_bytes: params.datagram_bytes.max(1) as f32,
            cwnd: f32::INFINITY,
            increase: 0.0,
            average_ns: 0.0,
            achieved_bytes: 0.0,
            received_bytes: 0.0,
            ignored_bytes: 0.0,
            to_ignore_bytes: 0.0,
            empty_bytes: 0.0,
            is_fast: false,
            triggered: false,
            window_end: None,
            decreased_at: None,
            adjusted_at: params.now,
        };
        flow.clamp();
        flow
    }

    fn base_ns(&self) -> f32 {
        self.pipe.base_rtt_ns()
    }

    /// The paper has one base round trip; uet-htsim also one of the network, which does not move.
    fn network_ns(&self) -> f32 {
        let is_fixed = self.law == Law::Htsim && self.given_ns > 0.0;
        if is_fixed { self.given_ns } else { self.base_ns() }
    }

    /// Delay aimed at.
    fn target_ns(&self) -> f32 {
        let rtts = if self.trimming { self.options.target_trim } else { self.options.target };
        rtts.0 * self.network_ns()
    }

    /// QuickAdapt's window: the paper's trtt.
    fn window_ns(&self) -> f32 {
        self.base_ns() + self.target_ns()
    }

    fn most_bytes(&self) -> f32 {
        self.options.max_window.0 * self.pipe.bdp_bytes()
    }

    /// Every change of the window ends here.
    fn clamp(&mut self) {
        self.cwnd = self.cwnd.min(self.most_bytes()).max(self.mtu_bytes);
    }

    /// The scale of the increases.
    fn scale(&self) -> f32 {
        self.network_ns() * self.pipe.bytes_per_ns() / REFERENCE_BDP_BYTES
    }

    /// So many packets of increase, in bytes: of the MTU, or in uet-htsim without headers.
    fn scaled_bytes(&self, packets: ScaledPackets) -> f32 {
        let headers = if self.law == Law::Htsim { HTSIM_HEADER_BYTES } else { 0.0 };
        packets.0 * (self.mtu_bytes - headers).max(1.0) * self.scale()
    }

    fn average(&mut self, delay_ns: f32) {
        self.average_ns += self.options.gain.0 * (delay_ns - self.average_ns);
    }

    fn is_ignoring(&self) -> bool {
        self.ignored_bytes < self.to_ignore_bytes
    }

    /// A2, and uet-htsim's `quick_adapt`. Returns whether it fired.
    fn quick_adapt(&mut self, now: Nanos, wanted: bool, in_flight_bytes: u64) -> bool {
        let is_over = match (self.law, self.window_end) {
            (_, None) => true,
            (Law::Paper, Some(end)) => now >= end,
            (Law::Htsim, Some(end)) => now > end,
        };
        if !is_over {
            return false;
        }
        let fires = self.window_end.is_some() && wanted;
        if fires {
            self.cwnd = self.achieved_bytes;
            self.clamp();
            self.to_ignore_bytes = short_f32(in_flight_bytes);
            self.ignored_bytes = 0.0;
            self.triggered = false;
        }
        self.achieved_bytes = 0.0;
        self.window_end = Some(now.saturating_add(self.window_ns() as Nanos));
        fires
    }

    /// Whether QuickAdapt should fire at the end of its window, by an acknowledgement or a loss.
    fn wants_adapt(&self, delay_ns: f32) -> bool {
        let late = delay_ns > self.options.qa_delay.0 * self.target_ns();
        let share = self.options.qa_share.0;
        match self.law {
            Law::Paper if self.trimming => self.triggered,
            // III-E, "QuickAdapt without trimming".
            Law::Paper => late && self.achieved_bytes < share * self.cwnd,
            Law::Htsim => {
                (self.triggered || late) && self.achieved_bytes < share * self.most_bytes()
            }
        }
    }

    /// A3. Returns whether it is on.
    fn fast_increase(&mut self, bytes: f32, delay_ns: f32, marked: bool) -> bool {
        if marked || delay_ns >= NSCC_NEAR_BASE_NS {
            self.empty_bytes = 0.0;
            self.is_fast = false;
            return false;
        }
        self.empty_bytes += bytes;
        self.is_fast |= self.empty_bytes > self.cwnd;
        if self.is_fast {
            self.cwnd += self.options.fast.0
                * match self.law {
                    Law::Paper => self.mtu_bytes,
                    Law::Htsim => bytes * self.scale(),
                };
        }
        self.is_fast
    }

    /// Equation 2, times the window.
    fn fair_increase(&mut self, bytes: f32) {
        self.increase += bytes * self.scaled_bytes(self.options.fair);
    }

    /// Equation 3, times the window; in uet-htsim without the fair increase.
    fn proportional_increase(&mut self, bytes: f32, delay_ns: f32) {
        let (below, most) = (self.target_ns() - delay_ns, self.options.proportional);
        match self.law {
            Law::Paper => {
                let pi = self.base_ns() / self.target_ns();
                let step = below / (self.base_ns() + delay_ns) * self.scaled_bytes(most) * pi;
                self.increase += bytes * step.min(self.cwnd);
                self.fair_increase(bytes);
            }
            Law::Htsim => {
                self.increase += bytes * below * self.scaled_bytes(most) / REFERENCE_RTT_NS;
            }
        }
    }

    /// Equation 1: on round trips in the paper, on delays in uet-htsim; once a base round trip.
    fn multiplicative_decrease(&mut self, now: Nanos) {
        let excess = self.average_ns - self.target_ns();
        let passed = |at: Nanos| now.saturating_sub(at) as f32;
        if excess <= 0.0 || self.decreased_at.is_some_and(|at| passed(at) <= self.base_ns()) {
            return;
        }
        let whole = self.average_ns + if self.law == Law::Paper { self.base_ns() } else { 0.0 };
        let keep = 1.0 - self.options.decrease.0 * excess / whole;
        self.cwnd *= keep.max(NSCC_KEEP_LEAST);
        self.decreased_at = Some(now);
    }

    /// The paper applies increases with each acknowledgement, uet-htsim after 8 packets or a round trip.
    fn adjust(&mut self, now: Nanos) {
        self.clamp();
        if self.law == Law::Htsim {
            let elapsed = now.saturating_sub(self.adjusted_at) as f32;
            let is_batch = self.received_bytes > HTSIM_BATCH_PACKETS * self.mtu_bytes;
            if !is_batch && elapsed <= self.network_ns() {
                return;
            }
            self.apply_increases();
            if elapsed >= self.network_ns() {
                self.cwnd += self.scaled_bytes(self.options.steady);
                self.adjusted_at = now;
            }
        } else {
            self.apply_increases();
        }
        self.clamp();
    }

    fn apply_increases(&mut self) {
        self.cwnd += self.increase / self.cwnd;
        self.drop_increases();
    }

    fn drop_increases(&mut self) {
        self.increase = 0.0;
        self.received_bytes = 0.0;
    }

    /// A4, lines 5 to 14.
    fn on_paper_ack(&mut self, ack: &AckSample, bytes: f32, delay_ns: f32, marked: bool) {
        if self.is_ignoring() {
            return;
        }
        let wanted = self.wants_adapt(delay_ns);
        if self.quick_adapt(ack.now, wanted, ack.in_flight_bytes)
            || self.fast_increase(bytes, delay_ns, marked)
        {
            self.clamp();
            return;
        }
        self.apply_case(ack.now, bytes, delay_ns, marked);
        self.adjust(ack.now);
    }

    /// uet-htsim's `updateCwndOnAck_NSCC`.
    fn on_htsim_ack(&mut self, ack: &AckSample, bytes: f32, delay_ns: f32, marked: bool) {
        let wanted = self.wants_adapt(delay_ns);
        if marked && self.is_ignoring() || self.quick_adapt(ack.now, wanted, ack.in_flight_bytes) {
            self.drop_increases();
            return;
        }
        let below = delay_ns < self.target_ns();
        if marked || !below || !self.fast_increase(bytes, delay_ns, false) {
            self.apply_case(ack.now, bytes, delay_ns, marked);
        }
        self.adjust(ack.now);
    }

    /// A1, the four cases. A delay equal to the target is late.
    fn apply_case(&mut self, now: Nanos, bytes: f32, delay_ns: f32, marked: bool) {
        match (marked, delay_ns >= self.target_ns()) {
            (true, true) => {
                if self.law == Law::Htsim {
                    self.is_fast = false;
                    self.empty_bytes = 0.0;
                }
                self.multiplicative_decrease(now);
            }
            (true, false) => {}
            (false, true) => self.fair_increase(bytes),
            (false, false) => self.proportional_increase(bytes, delay_ns),
        }
    }

    /// Takes an unmarked or marked sample into the average.
    fn average_sample(&mut self, delay_ns: f32, marked: bool) {
        let is_stale = self.law == Law::Htsim && !marked && delay_ns > self.target_ns();
        self.average(if is_stale { HTSIM_STALE.0 * self.base_ns() } else { delay_ns });
    }

    /// A4, lines 15 to 22, and uet-htsim's `updateCwndOnNack_NSCC`.
    fn on_trim(&mut self, loss: &Loss) {
        let bytes = loss.bytes as f32;
        self.ignored_bytes += bytes;
        self.triggered = true;
        // The packet still counted as in flight.
        let in_flight_bytes = loss.in_flight_bytes + u64::from(loss.bytes);
        match self.law {
            Law::Paper => {
                self.cwnd -= bytes;
                if !self.is_ignoring() {
                    self.quick_adapt(loss.now, true, in_flight_bytes);
                }
            }
            Law::Htsim => {
                // processNack: update_base_rtt_on_nack.
                self.pipe.lower_base(short_f32(loss.now.saturating_sub(loss.sent_at)));
                self.average(self.network_ns());
                let wanted = self.wants_adapt(0.0);
                if self.is_ignoring() || self.quick_adapt(loss.now, wanted, in_flight_bytes) {
                    self.drop_increases();
                } else {
                    self.cwnd -= bytes;
                }
            }
        }
    }
}

impl Controller for PrintedNscc {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        let marked = ack.ce_bytes > 0;
        let bytes = short_f32(ack.acked_bytes);
        self.achieved_bytes += bytes;
        self.received_bytes += bytes;
        self.ignored_bytes += bytes;
        let delay_ns = match ack.rtt_ns {
            Some(_) => {
                let delay_ns = self.pipe.queue_delay_ns();
                self.average_sample(delay_ns, marked);
                self.balancer.told(ack.path, if marked { News::Marked } else { News::Clear });
                delay_ns
            }
            None => self.average_ns,
        };
        match self.law {
            Law::Paper => self.on_paper_ack(ack, bytes, delay_ns, marked),
            Law::Htsim => self.on_htsim_ack(ack, bytes, delay_ns, marked),
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        if loss.kind == LossKind::Trim {
            self.balancer.told(loss.path, News::Trimmed);
            self.on_trim(loss);
        } else if self.law == Law::Htsim || !self.is_ignoring() {
            self.cwnd -= loss.bytes as f32;
        }
        self.clamp();
    }

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        self.cwnd as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        self.balancer.next(self.last_path)
    }

    fn may_move(&self) -> bool {
        false
    }

    /// uet-htsim's sendNewPacket and can_send_NSCC.
    fn is_strict(&self) -> bool {
        self.law == Law::Htsim
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
            paths: u16::from(self.last_path) + 1,
        }
    }
}
