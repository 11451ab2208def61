//! STrack: a window from delay, marks and what was achieved; paths from marks (docs/cc/strack.md).

use super::paths::EcnBitmap;
use super::pipe::{Pipe, greater, lesser, short_f32};
use super::settings::{self, Setting};
use super::{
    Ack, AckPolicy, Controller, FlowParams, Loss, LossDetection, Scheme, Sent, Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The paper's packet: its constants count packets of this size (section 4.2).
const PACKET_BYTES: f32 = 4096.0;
/// BDP and round trip that the paper's constants are for (table 1): 100 Gb/s times 12 us.
const SCALE_BDP_BYTES: f32 = 150_000.0;
const SCALE_RTT_NS: f32 = 12_000.0;
/// Longest span that stored times can tell from a shorter one: half of where their 32 bits wrap, 2.1
/// s. A longer one counts as this. After a pause by chance near 4.3 s or a multiple of it, what is to
/// happen once in a span is late by one.
const SPAN_MOST_NS: f32 = 2_147_483_648.0;
/// Fewest paths to spray over, if the flow has them (algorithm 3, line 18).
const PATHS_MIN: u64 = 8;
/// Most paths that the bitmap holds.
const PATHS_MAX: u16 = 256;
/// The largest cut (algorithm 4, line 15) and, of the BDP, the largest growth in a round trip: more
/// would undo every cut at once where round trips are long.
const HALF: f32 = 0.5;
/// What was achieved counts for quick adaptation below this share of the largest window
/// (algorithm 4, line 11).
const ACHIEVED_SHARE: f32 = 1.0 / 8.0;

const TARGET: usize = 0;
const HIGH: usize = 1;
const EWMA: usize = 2;
const ALPHA: usize = 3;
const BETA: usize = 4;
const ETA: usize = 5;
const GAMMA: usize = 6;
const SACK_PACKETS: usize = 7;
const ORDER_PACKETS: usize = 8;
const MAX_BDP: usize = 9;

const fn setting(name: &'static str, [min, default, max]: [f32; 3], help: &'static str) -> Setting {
    Setting { name, default, min, max, help }
}

const SETTINGS: [Setting; 10] = [
    setting("target", [0.1, 1.0, 10.0], "target delay in base round trips, noise apart (table 1)"),
    setting("high", [1.0, 3.0, 100.0], "high delay in target delays (table 1: Qhigh)"),
    setting("ewma", [0.001, 0.125, 1.0], "weight of a new delay in the mean (table 1)"),
    setting("alpha", [0.0, 4.0, 1000.0], "growth below the target, in 4 KiB packets (table 1)"),
    setting("beta", [0.0, 5.0, 1000.0], "growth when a queue is gone, in 4 KiB packets (table 1)"),
    setting("eta", [0.0, 0.15, 1000.0], "growth each round trip, in 4 KiB packets (table 1)"),
    setting("gamma", [0.0, 0.8, 1.0], "multiplicative decrease (table 1)"),
    setting("sack_packets", [1.0, 2.0, 255.0], "packets for each SACK (section 3.3.1)"),
    setting("order_packets", [1.0, 5.0, 65535.0], "least out-of-order threshold (section 3.3.2)"),
    setting("max_bdp", [1.0, 1.3, 2.0], "largest window in BDP, one packet on top (section 3.2)"),
];

type Values = [f32; SETTINGS.len()];

/// Builds STrack controllers.
#[derive(Clone, Debug)]
pub struct StrackScheme {
    /// Shared with the flows; a change makes a copy, so that they keep theirs.
    values: Arc<Values>,
}

impl Default for StrackScheme {
    fn default() -> Self {
        StrackScheme { values: Arc::new(settings::defaults(&SETTINGS)) }
    }
}

impl Scheme for StrackScheme {
    fn name(&self) -> &'static str {
        "strack"
    }

    fn ack_policy(&self) -> AckPolicy {
        AckPolicy::Coalesced { packets: (self.values[SACK_PACKETS] as u8).max(1) }
    }

    fn loss_detection(&self) -> LossDetection {
        LossDetection::OutOfOrder { least_packets: (self.values[ORDER_PACKETS] as u16).max(1) }
    }

    fn learns(&self) -> bool {
        true
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn values(&mut self) -> &mut [f32] {
        let values: &mut Values = Arc::make_mut(&mut self.values);
        values
    }

    fn build(&self, params: &FlowParams, _seed: u64) -> Box<dyn Controller> {
        Box::new(Strack::new(params, Arc::clone(&self.values)))
    }
}

/// One flow's window and paths.
#[derive(Clone, Debug)]
struct Strack {
    pipe: Pipe,
    values: Arc<Values>,
    /// Made at the first choice among several paths.
    spray: Option<Box<EcnBitmap>>,
    /// When the window was last cut, when it last grew for fairness, and since when `count_bytes`
    /// counts: in ns, wrapping.
    cut_at: u32,
    shuffled_at: u32,
    count_at: u32,
    /// Derived from the shared estimate, when that moves.
    bdp_bytes: f32,
    window_max_bytes: f32,
    target_ns: f32,
    /// Typical round trip, and the same with the target delay.
    rtt_ns: u32,
    period_ns: u32,
    window_bytes: f32,
    mean_delay_ns: f32,
    packet_bytes: f32,
    /// Bytes acknowledged in this period.
    count_bytes: f32,
    /// The same of the period before; infinite where the flow had too little to send to tell.
    achieved_bytes: f32,
    paths: u16,
    /// As many of them as what is known of a path is fresh for (section 3.1): twice the window.
    paths_in_use: u16,
    /// The path of an unmarked acknowledgement, for the next packet.
    clean_path: Option<u8>,
    /// The flow had less to send than the window allowed, some time in this period.
    limited: bool,
}

impl Strack {
    fn new(params: &FlowParams, values: Arc<Values>) -> Strack {
        let now = params.now as u32;
        let mut strack = Strack {
            pipe: Pipe::new(params),
            values,
            spray: None,
            cut_at: now,
            shuffled_at: now,
            count_at: now,
            bdp_bytes: 0.0,
            window_max_bytes: 0.0,
            target_ns: 0.0,
            rtt_ns: 0,
            period_ns: 0,
            window_bytes: 0.0,
            mean_delay_ns: 0.0,
            packet_bytes: params.datagram_bytes.max(1) as f32,
            count_bytes: 0.0,
            achieved_bytes: f32::INFINITY,
            paths: params.paths.clamp(1, PATHS_MAX),
            paths_in_use: 0,
            clean_path: None,
            limited: true,
        };
        strack.derive();
        strack.window_bytes = strack.window_max_bytes;
        strack.choose_paths();
        strack
    }

    /// What follows from the shared estimate.
    #[inline(never)]
    fn derive(&mut self) {
        // A sample holds the queue's delay and noise on top of it.
        self.target_ns = self.values[TARGET] * self.pipe.base_rtt_ns() + self.pipe.noise_ns();
        let rtt_ns = self.pipe.typical_rtt_ns();
        self.rtt_ns = rtt_ns.min(SPAN_MOST_NS) as u32;
        self.period_ns = (rtt_ns + self.target_ns).min(SPAN_MOST_NS) as u32;
        // `max_bdp` BDP in whole packets, and one more that arrives meanwhile. More than one BDP,
        // since a lone flow does not load all its paths alike.
        let packet = self.packet_bytes as u64;
        self.bdp_bytes = self.pipe.bdp_bytes();
        let packets = ((self.values[MAX_BDP] * self.bdp_bytes) as u64).div_ceil(packet) + 1;
        self.window_max_bytes = (packets * packet) as f32;
    }

    /// Keeps the window between one packet and the most.
    fn clamp(&mut self) {
        let most = lesser(self.window_bytes, self.window_max_bytes);
        self.window_bytes = greater(most, self.packet_bytes);
    }

    /// A constant in 4 KiB packets, scaled to the BDP (table 1: `bdp_sf`), as a share of the BDP.
    fn scaled_bdps(&self, at: usize) -> f32 {
        self.values[at] * (PACKET_BYTES / SCALE_BDP_BYTES)
    }

    /// Algorithm 2. What was acknowledged within a round trip and the target delay.
    #[inline(always)]
    fn count(&mut self, ack: &Ack) {
        self.count_bytes += short_f32(ack.acked_bytes);
        if ack.app_limited {
            self.limited = true;
        }
        if since_ns(self.count_at, ack.now) > self.period_ns {
            self.end_period(ack);
        }
    }

    #[inline(always)]
    fn end_period(&mut self, ack: &Ack) {
        let achieved = if self.limited { f32::INFINITY } else { self.count_bytes };
        self.start_period(ack.now, achieved);
        self.limited = ack.app_limited;
    }

    fn start_period(&mut self, now: Nanos, achieved_bytes: f32) {
        self.achieved_bytes = achieved_bytes;
        (self.count_bytes, self.count_at, self.limited) = (0.0, now as u32, false);
    }

    /// What is not [`Pipe::is_plain`].
    #[inline(never)]
    fn on_odd_ack(&mut self, ack: &Ack) {
        let rtt_ns = ack.rtt_ns.map(short_f32);
        if self.pipe.on_odd_sample(ack, rtt_ns) {
            self.derive();
        }
        self.count(ack);
        match rtt_ns {
            Some(rtt_ns) => self.on_sample(ack, rtt_ns),
            None => self.clamp(),
        }
    }

    #[inline(always)]
    fn on_sample(&mut self, ack: &Ack, rtt_ns: f32) {
        // The path is judged by its own sample, the window by the filtered delay of all.
        let late = || rtt_ns - self.pipe.base_rtt_ns() > self.target_ns;
        self.heed_path(ack.path, self.pipe.is_bad(ack, late));
        self.adjust(ack);
        self.clamp();
    }

    /// Algorithm 3, lines 2 to 10.
    #[inline(always)]
    fn heed_path(&mut self, path: u16, marked: bool) {
        if path >= self.paths {
            return;
        }
        self.clean_path = (!marked).then_some(path as u8);
        if let Some(spray) = &mut self.spray {
            spray.on_ack(path, marked);
        }
    }

    /// Sets the paths in use.
    #[inline(always)]
    fn choose_paths(&mut self) {
        let packets = (2.0 * self.window_bytes / self.packet_bytes) as u64;
        self.paths_in_use = packets.max(PATHS_MIN).min(u64::from(self.paths)) as u16;
    }

    /// Adds so many BDP for each window that is acknowledged, and for one at most.
    #[inline(always)]
    fn grow(&mut self, ack: &Ack, bdps: f32) {
        if !ack.app_limited {
            let windows = lesser(short_f32(ack.acked_bytes) / self.window_bytes, 1.0);
            self.window_bytes += bdps * self.bdp_bytes * windows;
        }
    }

    /// Algorithm 4, but for the clamp.
    #[inline(always)]
    fn adjust(&mut self, ack: &Ack) {
        let (target, delay) = (self.target_ns, self.pipe.queue_delay_ns());
        self.mean_delay_ns += self.values[EWMA] * (delay - self.mean_delay_ns);
        if delay < target {
            if !self.pipe.is_marked(ack, false) {
                // alpha (target - delay), where alpha is 4 bdp_sf delay_sf / rtt and delay_sf is
                // rtt / 12 us.
                let alpha = self.scaled_bdps(ALPHA) * (1.0 / SCALE_RTT_NS);
                self.grow(ack, lesser(alpha * (target - delay), HALF));
            }
        } else {
            self.heed_delay(ack, delay);
        }
        if since_ns(self.shuffled_at, ack.now) > self.rtt_ns {
            self.shuffle(ack);
        }
    }

    /// Algorithm 4 for a delay that is not below the target.
    #[inline(always)]
    fn heed_delay(&mut self, ack: &Ack, delay: f32) {
        let target = self.target_ns;
        let is_high = delay > self.values[HIGH] * target;
        if is_high && !self.pipe.is_marked(ack, delay > target) {
            self.grow(ack, self.scaled_bdps(BETA));
        } else if delay > target
            && self.mean_delay_ns > target
            && since_ns(self.cut_at, ack.now) > self.rtt_ns
        {
            self.cut(ack.now, is_high);
        }
    }

    /// Algorithm 4, line 18 on: once in a round trip.
    #[inline(always)]
    fn shuffle(&mut self, ack: &Ack) {
        self.shuffled_at = ack.now as u32;
        if !ack.app_limited {
            self.window_bytes += self.scaled_bdps(ETA) * self.bdp_bytes;
        }
        self.clamp();
        self.choose_paths();
    }

    /// Algorithm 4, lines 11 to 17.
    #[inline(always)]
    fn cut(&mut self, now: Nanos, is_high: bool) {
        self.cut_at = now as u32;
        let little = self.window_bytes.min(self.window_max_bytes * ACHIEVED_SHARE);
        if is_high && self.achieved_bytes < little {
            self.window_bytes = self.achieved_bytes;
        } else {
            let excess = (self.mean_delay_ns - self.target_ns) / self.mean_delay_ns;
            self.window_bytes *= (1.0 - self.values[GAMMA] * excess).max(HALF);
        }
    }
}

impl Controller for Strack {
    fn on_sent(&mut self, sent: &Sent) {
        // After a pause, what was achieved before tells nothing of the network.
        if self.limited && sent.in_flight_bytes <= u64::from(sent.bytes) {
            self.start_period(sent.now, f32::INFINITY);
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt_ns) = ack.rtt_ns.map(short_f32)
            && self.pipe.is_plain(ack, rtt_ns)
        {
            self.pipe.take(ack.now, rtt_ns);
            self.count(ack);
            self.on_sample(ack, rtt_ns);
        } else {
            self.on_odd_ack(ack);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        // The window does not react (section 3.3). No acknowledgement tells of a path that drops
        // everything, so the loss does.
        if let Some(spray) = &mut self.spray {
            spray.on_ack(loss.path, true);
        }
        self.clean_path = self.clean_path.filter(|path| u16::from(*path) != loss.path);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        let is_known = self.achieved_bytes.is_finite();
        let achieved = if is_known { self.achieved_bytes } else { self.count_bytes };
        self.window_bytes = self.window_bytes.min(achieved);
        self.clamp();
        self.choose_paths();
        self.cut_at = timeout.now as u32;
        // If silence lasts, nothing was achieved since.
        self.start_period(timeout.now, 0.0);
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        if self.paths == 1 {
            return 0;
        }
        let spray = self.spray.get_or_insert_default();
        match self.clean_path.take().map(u16::from) {
            Some(path) => {
                spray.resume_after(path);
                path
            }
            None => spray.next(self.paths_in_use),
        }
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.target_ns as Nanos,
            bdp_bytes: self.bdp_bytes as u64,
            paths: self.paths_in_use,
        }
    }
}

fn since_ns(then: u32, now: Nanos) -> u32 {
    (now as u32).wrapping_sub(then)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use alloc::vec::Vec;
    use core::mem::size_of;
    use rand_pcg::rand_core::Rng;

    const PACKET: u64 = 4096;
    /// 1.3 times 150 kB, 48 packets, and one.
    const WINDOW_MAX: u64 = 49 * PACKET;
    const RTT_NS: Nanos = 12_000;

    /// The network of the paper's table 1.
    fn params() -> FlowParams {
        FlowParams {
            now: 0,
            datagram_bytes: PACKET as u32,
            paths: 256,
            first_rtt_ns: RTT_NS,
            base_rtt_ns: 0,
            link_bytes_per_s: 12_500_000_000,
            trimming: false,
        }
    }

    fn flow(params: &FlowParams) -> Strack {
        Strack::new(params, StrackScheme::default().values)
    }

    fn ack(now: Nanos, rtt_ns: Nanos, packets: u32, marked: bool) -> Ack {
        let acked_bytes = u64::from(packets) * PACKET;
        Ack {
            now,
            sent_at: now.saturating_sub(rtt_ns),
            acked_bytes,
            acked_packets: packets,
            rtt_ns: Some(rtt_ns),
            path: 0,
            ce_bytes: if marked { acked_bytes as u32 } else { 0 },
            lag_packets: 0,
            in_flight_bytes: 0,
            app_limited: false,
        }
    }

    fn sent(now: Nanos, in_flight_packets: u64) -> Sent {
        let in_flight_bytes = in_flight_packets * PACKET;
        let (bytes, packets) = (PACKET as u32, 1);
        Sent { now, bytes, packets, path: 0, in_flight_bytes, retransmission: false }
    }

    fn silence(now: Nanos, in_a_row: u32) -> Timeout {
        Timeout { now, in_flight_bytes: PACKET, in_a_row }
    }

    /// A flow that a timeout has left one packet.
    fn small(params: &FlowParams) -> Strack {
        let mut flow = flow(params);
        flow.on_timeout(&silence(0, 1));
        assert_eq!(flow.window_bytes(), u64::from(params.datagram_bytes));
        flow
    }

    /// Feeds samples 1 us apart, from `from` on; returns the windows after each.
    fn feed(flow: &mut Strack, from: Nanos, count: u64, rtt_ns: Nanos, marked: bool) -> Vec<u64> {
        let step = |n| {
            flow.on_ack(&ack(from + n * 1_000, rtt_ns, 1, marked));
            flow.window_bytes()
        };
        (0..count).map(step).collect()
    }

    #[test]
    fn unmarked_and_early_grows_by_the_distance_to_the_target() {
        // 1 + 4/1 packets without a queue, 1 + 2/1 at half the target.
        for (rtt_ns, packets) in [(12_000, 5), (18_000, 3)] {
            let mut flow = small(&params());
            // The delay is the median of three samples; the first two may not grow the window.
            for now in [8_000, 9_000] {
                flow.on_ack(&Ack { app_limited: true, ..ack(now, rtt_ns, 1, false) });
            }
            assert_eq!(flow.window_bytes(), PACKET);
            flow.on_ack(&ack(10_000, rtt_ns, 1, false));
            assert_eq!(flow.window_bytes(), packets * PACKET);
        }
    }

    #[test]
    fn growth_is_of_bytes_not_of_packets() {
        let mut flow = small(&FlowParams { datagram_bytes: 65_536, ..params() });
        flow.on_ack(&ack(10_000, RTT_NS, 16, false));
        assert_eq!(flow.window_bytes(), 65_536 + 4 * PACKET);
        // Four packets in one acknowledgement count as much as four acknowledgements.
        let (mut one, mut four) = (small(&params()), small(&params()));
        for flow in [&mut one, &mut four] {
            flow.on_ack(&ack(5_000, RTT_NS, 1, false));
        }
        one.on_ack(&ack(10_000, RTT_NS, 4, false));
        feed(&mut four, 7_000, 4, RTT_NS, false);
        let (one, four) = (one.window_bytes(), four.window_bytes());
        assert!(one >= four && one < four + four / 4, "{one} {four}");
    }

    #[test]
    fn one_acknowledgement_grows_by_one_round_trip_at_most() {
        let mut flow = small(&params());
        flow.on_ack(&ack(10_000, RTT_NS, 64, false));
        assert_eq!(flow.window_bytes(), 5 * PACKET);
        // delay_sf alone would be 83 here and the growth 9 BDP.
        let mut flow = small(&FlowParams { first_rtt_ns: 1_000_000, ..params() });
        flow.on_ack(&ack(10_000, 1_000_000, 1, false));
        let grown = flow.window_bytes() - PACKET;
        assert!(grown <= flow.view().bdp_bytes / 2, "{grown}");
        assert!(grown >= flow.view().bdp_bytes / 3, "{grown}");
    }

    #[test]
    fn marked_and_early_keeps_the_window_and_moves_on() {
        let mut flow = small(&params());
        assert_eq!(flow.next_path(0), 0);
        flow.on_ack(&ack(500, RTT_NS, 1, false));
        assert_eq!(flow.next_path(0), 0);
        for path in 1..8 {
            assert_eq!(flow.next_path(0), path);
        }
        let before = flow.window_bytes();
        assert_eq!(feed(&mut flow, 1_000, 10, 18_000, true), [before; 10]);
        let first = flow.next_path(0);
        assert_ne!(first, 0, "path 0 was marked");
    }

    #[test]
    fn marked_and_late_cuts_once_in_a_round_trip() {
        let mut flow = flow(&params());
        let windows = feed(&mut flow, 20_000, 15, 36_000, true);
        let cut = windows.iter().position(|w| *w < WINDOW_MAX).expect("a cut");
        let ratio = windows[cut] as f32 / WINDOW_MAX as f32;
        // The mean has just passed the target: 1 - 0.8 (13.2 - 12) / 13.2.
        assert!((0.90..0.96).contains(&ratio), "{ratio}");
        assert!(windows[cut..].iter().all(|w| *w >= windows[cut]));
        let later = feed(&mut flow, 60_000, 1, 36_000, true)[0];
        assert!(later < windows[cut] && later * 2 >= windows[cut]);
    }

    #[test]
    fn a_high_delay_cuts_to_what_was_achieved_in_bytes() {
        let mut flow = flow(&params());
        flow.on_sent(&sent(0, 1));
        // Periods are longer than a round trip and the target, 24 us: two packets in each.
        let mut windows = Vec::new();
        for n in 1..16 {
            flow.on_ack(&ack(n * 13_000, 72_000, 1, true));
            windows.push(flow.window_bytes());
        }
        // The shuffle's 614 bytes come on top.
        let cut = windows.iter().position(|w| *w < WINDOW_MAX).expect("a cut");
        assert_eq!(windows[cut..], [2 * PACKET + 614].repeat(windows.len() - cut));
    }

    #[test]
    fn little_achieved_alone_cuts_by_half_at_most() {
        let mut flow = flow(&params());
        flow.on_sent(&sent(0, 1));
        let mut before = flow.window_bytes();
        for n in 1..40 {
            flow.on_ack(&ack(n * 13_000, 46_000, 1, true));
            assert!(flow.window_bytes() * 2 >= before);
            before = flow.window_bytes();
        }
        assert!(before < WINDOW_MAX / 4);
    }

    #[test]
    fn a_high_delay_never_raises_the_window() {
        let mut flow = small(&params());
        let mut before = flow.window_bytes();
        for n in 1..40 {
            flow.on_ack(&ack(n * 7_000, 72_000, 1, true));
            // But for the fairness shuffle, less than a packet.
            assert!(flow.window_bytes() < before + PACKET / 4);
            before = flow.window_bytes();
        }
    }

    #[test]
    fn unmarked_and_late_grows_only_above_the_high_delay() {
        let mut flow = flow(&params());
        feed(&mut flow, 20_000, 40, 72_000, true);
        let before = flow.window_bytes();
        assert!(before < WINDOW_MAX / 2);
        flow.on_ack(&ack(60_500, 72_000, 1, false));
        let grown = (flow.window_bytes() - before) as f32;
        let expected = 5.0 * PACKET as f32 * PACKET as f32 / before as f32;
        let shuffle = 0.15 * PACKET as f32 + 1.0;
        assert!(grown >= expected - 1.0 && grown <= expected + shuffle, "{grown} {expected}");
        // Between target and Qhigh it may fall.
        let before = flow.window_bytes();
        feed(&mut flow, 100_000, 30, 40_000, false);
        assert!(flow.window_bytes() < before);
    }

    #[test]
    fn without_ecn_late_counts_as_marked() {
        for (ecn, falls) in [(false, true), (true, false)] {
            let mut flow = flow(&params());
            flow.on_ack(&ack(1_000, RTT_NS, 1, ecn));
            let windows = feed(&mut flow, 20_000, 60, 72_000, false);
            assert_eq!(windows[59] < WINDOW_MAX / 2, falls, "{windows:?}");
        }
    }

    #[test]
    fn the_shuffle_adds_a_little_once_in_a_round_trip() {
        let mut flow = small(&params());
        // Marked and early: nothing else moves the window.
        feed(&mut flow, 12_001, 37, 13_000, true);
        let (shuffles, each) = (3, 0.15 * PACKET as f32);
        let grown = (flow.window_bytes() - PACKET) as f32;
        assert!((grown - shuffles as f32 * each).abs() < 0.2 * each, "{grown}");
    }

    #[test]
    fn limited_flows_do_not_grow() {
        let mut flow = small(&params());
        for n in 1..100 {
            let ack = ack(n * 10_000, RTT_NS, 4, false);
            flow.on_ack(&Ack { app_limited: true, ..ack });
        }
        assert_eq!(flow.window_bytes(), PACKET);
    }

    #[test]
    fn a_pause_is_not_taken_for_little_achieved() {
        let mut flow = flow(&params());
        flow.on_sent(&sent(0, 1));
        let last = ack(30_000, RTT_NS, 1, false);
        flow.on_ack(&Ack { app_limited: true, ..last });
        flow.on_sent(&sent(1_000_000, 1));
        let before = flow.window_bytes();
        let windows = feed(&mut flow, 1_012_000, 22, 72_000, true);
        assert!(windows[21] < before);
        assert!(windows.iter().all(|w| *w * 4 >= before), "two cuts by half at most");
    }

    #[test]
    fn a_timeout_leaves_what_was_achieved_then_one_packet() {
        let mut flow = flow(&params());
        flow.on_sent(&sent(0, 1));
        feed(&mut flow, 12_000, 14, RTT_NS, false);
        assert_eq!(flow.window_bytes(), WINDOW_MAX);
        flow.on_timeout(&silence(1_000_000, 1));
        assert_eq!(flow.window_bytes(), 14 * PACKET, "up to 25 us after the start");
        flow.on_timeout(&silence(3_000_000, 2));
        assert_eq!(flow.window_bytes(), PACKET);
    }

    #[test]
    fn a_timeout_never_raises_the_window() {
        let mut flow = flow(&params());
        // A delay just below Qhigh, while 24 packets are achieved in each period.
        feed(&mut flow, 20_000, 200, 47_000, true);
        let before = flow.window_bytes();
        assert!(before < 12 * PACKET, "{before}");
        flow.on_timeout(&silence(1_000_000, 1));
        assert_eq!(flow.window_bytes(), before);
    }

    #[test]
    fn a_loss_moves_the_path_not_the_window() {
        let mut flow = flow(&params());
        assert_eq!(flow.next_path(0), 0);
        let (bytes, kind) = (PACKET as u32, super::super::LossKind::Order);
        flow.on_loss(&Loss { now: 1, sent_at: 0, bytes, path: 1, kind, in_flight_bytes: 0 });
        assert_eq!(flow.window_bytes(), WINDOW_MAX);
        assert_eq!(flow.next_path(1), 2);
    }

    #[test]
    fn the_window_stays_between_one_packet_and_the_most_bdp_with_one_more() {
        let mut flow = flow(&params());
        feed(&mut flow, 1_000, 200, RTT_NS, false);
        assert_eq!(flow.window_bytes(), WINDOW_MAX);
        let (mut rng, mut now) = (super::super::paths::rng(1), 0);
        for _ in 0..100_000 {
            now += u64::from(rng.next_u32() % 20_000);
            let (rtt_ns, packets) = (u64::from(rng.next_u32() >> 10), rng.next_u32() % 64);
            match rng.next_u32() % 16 {
                0 => flow.on_timeout(&silence(now, 1)),
                1 => flow.on_sent(&sent(now, u64::from(packets))),
                n => flow.on_ack(&ack(now, rtt_ns, packets, n % 2 == 0)),
            }
            // 1.3 BDP, rounded up, and one packet.
            let max = flow.view().bdp_bytes * 13 / 10 + 2 * PACKET;
            assert!((PACKET..=max).contains(&flow.window_bytes()));
            assert!(flow.next_path(now) < 256);
        }
    }

    #[test]
    fn a_marked_path_is_skipped_once() {
        let mut flow = small(&params());
        let round = |flow: &mut Strack| (0..8).map(|_| flow.next_path(0)).collect::<Vec<_>>();
        assert_eq!(round(&mut flow), [0, 1, 2, 3, 4, 5, 6, 7]);
        flow.on_ack(&Ack { path: 3, ..ack(1_000, RTT_NS, 1, true) });
        assert_eq!(round(&mut flow), [0, 1, 2, 4, 5, 6, 7, 0]);
        assert_eq!(round(&mut flow), [1, 2, 3, 4, 5, 6, 7, 0]);
        // One packet clears one bit: 3 is skipped behind 2 and once more for itself.
        for path in [2, 3] {
            flow.on_ack(&Ack { path, ..ack(1_000, RTT_NS, 1, true) });
        }
        assert_eq!(round(&mut flow), [1, 4, 5, 6, 7, 0, 1, 2]);
        assert_eq!(round(&mut flow), [4, 5, 6, 7, 0, 1, 2, 3]);
        // All marked: still a path.
        for path in 0..8 {
            flow.on_ack(&Ack { path, ..ack(1_000, RTT_NS, 1, true) });
        }
        assert_eq!(flow.next_path(0), 4);
    }

    #[test]
    fn an_unmarked_path_is_used_next_even_path_0() {
        let mut flow = small(&params());
        for path in [5, 0] {
            flow.on_ack(&Ack { path, ..ack(1_000, 60_000, 1, false) });
            assert_ne!(flow.next_path(0), path, "late without ECN");
            flow.on_ack(&Ack { path, ..ack(2_000, RTT_NS, 1, false) });
            assert_eq!([flow.next_path(0), flow.next_path(0)], [path, path + 1]);
        }
    }

    #[test]
    fn paths_follow_the_window() {
        assert_eq!(flow(&params()).view().paths, 98);
        assert_eq!(small(&params()).view().paths, 8);
        let mut few = flow(&FlowParams { paths: 3, ..params() });
        assert_eq!(few.view().paths, 3);
        assert!((0..9).all(|_| few.next_path(0) < 3));
        assert_eq!(flow(&FlowParams { paths: 1, ..params() }).next_path(0), 0);
    }

    #[test]
    fn jitter_of_hosts_is_not_taken_for_a_queue() {
        let mut flow = flow(&params());
        let mut rng = super::super::paths::rng(7);
        let mut sum_bytes = 0;
        for n in 0..2_000u64 {
            // Up to 40 us late, three times the paper's target, and paths change.
            let rtt_ns = RTT_NS + u64::from(rng.next_u32() % 40_000);
            let ack = ack(n * 1_300, rtt_ns, 4, false);
            flow.on_ack(&Ack { path: (n / 4 % 8) as u16, ..ack });
            sum_bytes += flow.window_bytes();
        }
        assert!(flow.view().target_ns >= flow.view().typical_rtt_ns);
        let mean_bytes = sum_bytes / 2_000;
        assert!(mean_bytes * 10 >= flow.view().bdp_bytes * 9, "{mean_bytes}");
    }

    #[test]
    fn settings_reach_new_flows_only() {
        let mut scheme = StrackScheme::default();
        assert_eq!(scheme.ack_policy(), AckPolicy::Coalesced { packets: 2 });
        assert_eq!(scheme.loss_detection(), LossDetection::OutOfOrder { least_packets: 5 });
        let old = scheme.build(&params(), 0);
        settings::set(&mut scheme, "target", 2.0).expect("a setting");
        settings::set(&mut scheme, "sack_packets", 8.0).expect("a setting");
        settings::set(&mut scheme, "max_bdp", 1.0).expect("a setting");
        let new = scheme.build(&params(), 0);
        // 150 kB are 37 packets, and one more.
        assert_eq!((old.window_bytes(), new.window_bytes()), (WINDOW_MAX, 38 * PACKET));
        assert_eq!((old.view().target_ns, new.view().target_ns), (12_000, 24_000));
        assert_eq!(scheme.ack_policy(), AckPolicy::Coalesced { packets: 8 });
        assert_eq!((new.ecn(), new.pace_bytes_per_s()), (Ecn::Ect0, None));
    }

    #[test]
    fn state_is_small() {
        std::println!("strack {} bitmap {}", size_of::<Strack>(), size_of::<EcnBitmap>());
        assert!(size_of::<Strack>() <= 128);
        assert!(size_of::<EcnBitmap>() <= 16 * PATHS_MIN as usize);
        assert!(flow(&params()).spray.is_none());
    }
}
