//! STrack: a window from delay, marks and the achieved rate; paths from marks (docs/cc/strack.md).

mod printed;
mod rows;
#[cfg(test)]
mod tests;

use super::options::REFERENCE_RTT_NS;
use super::paths::{EcnBitmap, LossyPath, PATHS_MAX};
use super::pipe::{Pipe, greater, lesser, short_f32};
use super::scheme::SchemeTable;
use super::stamp::Stamp;
use super::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, LossKind, SentBurst,
    Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use alloc::sync::Arc;
use printed::PrintedStrack;
pub use rows::StrackOptions;
use rows::{OPTIONS, PATHS_MIN};

/// Longest span that stored times can tell from a shorter one: half of where their 32 bits wrap, 2.1 s. A longer one
/// counts as this. After a pause that happens to be near 4.3 s or a multiple of it, work that is due once in a span is
/// late by one span.
const SPAN_MOST_NS: f32 = 2_147_483_648.0;
/// The largest cut (algorithm 4, line 15) and, of the BDP, the largest growth in a round trip: more
/// would undo every cut at once where round trips are long.
const HALF: f32 = 0.5;
/// The achieved bytes count for quick adaptation below this share of the largest window (algorithm 4, line 11).
const ACHIEVED_SHARE: f32 = 1.0 / 8.0;

/// Without marks, a delay up to this part of that difference is no queue: a tenth of a base round trip,
/// and mean jitter.
const EARLY_PART: f32 = 0.2;
/// p99.5 of an exponential distribution in units of its mean.
const P995: f32 = 5.3;

/// STrack.
pub static STRACK: SchemeTable<StrackOptions> = SchemeTable {
    name: "strack",
    options: &OPTIONS,
    start: StrackOptions::default,
    ack_policy: |options| AckPolicy::Coalesced { packets: (options.sack_packets.0 as u8).max(1) },
    loss_detection: |options| LossDetection::OutOfOrder {
        least_packets: (options.order_packets.0 as u16).max(1),
    },
    learns: |options| !options.law.is_printed(),
    build: |options, params, _| match options.law.is_printed() {
        false => Box::new(Strack::new(params, options)),
        true => Box::new(PrintedStrack::new(params, options)),
    },
};

/// The paths of a flow that has several.
#[derive(Clone, Copy, Debug, Default)]
struct Spray {
    marked: EcnBitmap,
    lossy: LossyPath,
    /// As many paths as keep their state fresh (section 3.1): twice the window.
    in_use: u16,
    /// The path of an unmarked acknowledgement, for the next packet.
    clean: Option<u8>,
}

impl Spray {
    /// The path of the next packet: the clean one, or the next in turn that is not marked.
    #[inline(always)]
    fn next(&mut self, now: Nanos) -> u16 {
        let Some(path) = self.clean.take().map(u16::from) else { return self.next_in_turn(now) };
        self.marked.resume_after(path);
        self.keep(now, path)
    }

    #[inline(never)]
    fn next_in_turn(&mut self, now: Nanos) -> u16 {
        let path = self.marked.next(self.in_use);
        self.keep(now, path)
    }

    /// `path`, or the next one if that is left alone.
    #[inline(always)]
    fn keep(&mut self, now: Nanos, path: u16) -> u16 {
        if self.lossy.was_left(path) { self.check(now, path) } else { path }
    }

    #[inline(never)]
    fn check(&mut self, now: Nanos, path: u16) -> u16 {
        if !self.lossy.is_left(now, path) {
            return path;
        }
        self.marked.on_ack(path, true);
        self.marked.next(self.in_use)
    }
}

/// One flow's window and paths.
#[derive(Clone, Debug)]
struct Strack {
    pipe: Pipe,
    options: Arc<StrackOptions>,
    /// Made at the first choice among several paths.
    spray: Option<Box<Spray>>,
    /// Times of the window's last cut, of its last growth for fairness, and of the start of `count_bytes`: in ns,
    /// wrapping.
    cut_at: Stamp<0>,
    shuffled_at: Stamp<0>,
    count_at: Stamp<0>,
    /// Derived from the shared estimate, when that moves. The unit of growth: the BDP, or one packet if that is more.
    /// Shares of a BDP of a few bytes would never add up to a packet.
    scale_bytes: f32,
    window_max_bytes: f32,
    target_ns: f32,
    /// Least difference (ns) of a path's round trip from the one in the middle that counts; 0 for none.
    apart_ns: f32,
    /// Typical round trip, and the same with the target delay.
    rtt_ns: u32,
    period_ns: u32,
    window_bytes: f32,
    mean_delay_ns: f32,
    packet_bytes: f32,
    /// Bytes acknowledged in this period.
    count_bytes: f32,
    /// The same of the period before; infinite if the flow had too little to send.
    achieved_bytes: f32,
    paths: u16,
    /// True if the flow had less to send than the window allowed, some time in this period.
    limited: bool,
}

impl Strack {
    fn new(params: &FlowParams, options: &Arc<StrackOptions>) -> Strack {
        let now = Stamp::of(params.now);
        let mut strack = Strack {
            pipe: Pipe::new(params),
            options: Arc::clone(options),
            spray: None,
            cut_at: now,
            shuffled_at: now,
            count_at: now,
            scale_bytes: 0.0,
            window_max_bytes: 0.0,
            target_ns: 0.0,
            apart_ns: 0.0,
            rtt_ns: 0,
            period_ns: 0,
            window_bytes: 0.0,
            mean_delay_ns: 0.0,
            packet_bytes: params.datagram_bytes.max(1) as f32,
            count_bytes: 0.0,
            achieved_bytes: f32::INFINITY,
            paths: params.paths.clamp(1, PATHS_MAX),
            limited: true,
        };
        strack.derive();
        // With more, later flows would push out present ones.
        strack.window_bytes = strack.scale_bytes + strack.packet_bytes;
        strack.clamp();
        strack
    }

    /// Derives values from the shared estimate.
    #[inline(never)]
    fn derive(&mut self) {
        // A sample holds the queue's delay and noise on top of it.
        let (scale_ns, rtt_ns) = (self.pipe.scale_ns(), self.pipe.typical_rtt_ns());
        self.target_ns = self.options.target.0 * scale_ns + self.pipe.noise_ns();
        let apart = self.options.apart.0;
        let jitter_ns = if apart > 0.0 { P995 * (rtt_ns - scale_ns) } else { 0.0 };
        self.apart_ns = apart * scale_ns + jitter_ns;
        self.rtt_ns = rtt_ns.min(SPAN_MOST_NS) as u32;
        self.period_ns = (rtt_ns + self.target_ns).min(SPAN_MOST_NS) as u32;
        // The bytes that fill the typical round trip, including jitter of hosts, plus those that a lone flow may keep
        // in queues, which hold so many base round trips. In whole packets, and one more that arrives meanwhile.
        let (packet, bdp_bytes) = (self.packet_bytes as u64, self.pipe.bdp_bytes());
        self.scale_bytes = greater(bdp_bytes, self.packet_bytes);
        let queue_bytes = (self.options.max_bdp.0 - 1.0) * bdp_bytes * (scale_ns / rtt_ns);
        let packets = ((bdp_bytes + queue_bytes) as u64).div_ceil(packet) + 1;
        self.window_max_bytes = (packets * packet) as f32;
    }

    /// Keeps the window between one packet and the most.
    fn clamp(&mut self) {
        let most = lesser(self.window_bytes, self.window_max_bytes);
        self.window_bytes = greater(most, self.packet_bytes);
    }

    /// Algorithm 2: counts the bytes acknowledged within a round trip and the target delay.
    #[inline(always)]
    fn count(&mut self, ack: &AckSample, bytes: f32) {
        self.count_bytes += bytes;
        if ack.app_limited {
            self.limited = true;
        }
        if self.count_at.units_until(ack.now) > self.period_ns {
            self.end_period(ack);
        }
    }

    #[inline(always)]
    fn end_period(&mut self, ack: &AckSample) {
        let achieved = if self.limited { f32::INFINITY } else { self.count_bytes };
        self.start_period(ack.now, achieved);
        self.limited = ack.app_limited;
    }

    fn start_period(&mut self, now: Nanos, achieved_bytes: f32) {
        self.achieved_bytes = achieved_bytes;
        (self.count_bytes, self.count_at, self.limited) = (0.0, Stamp::of(now), false);
    }

    /// Takes an acknowledgement that is not [`Pipe::is_plain`]. One function for both, by [`Pipe::on_ack`], would be
    /// simpler, but takes 16 instructions more for each packet: 161 in place of 145 (`cargo xtask cost`, 8 paths).
    #[inline(never)]
    fn on_odd_ack(&mut self, ack: &AckSample) {
        let rtt_ns = ack.rtt_ns.map(short_f32);
        if self.pipe.on_odd_sample(ack, rtt_ns) {
            self.derive();
        }
        let bytes = short_f32(ack.acked_bytes);
        self.count(ack, bytes);
        match rtt_ns {
            Some(rtt_ns) => self.on_sample(ack, bytes, rtt_ns),
            None => self.clamp(),
        }
    }

    #[inline(always)]
    fn on_sample(&mut self, ack: &AckSample, bytes: f32, rtt_ns: f32) {
        self.apply_path(ack, rtt_ns);
        self.adjust(ack, bytes);
        self.clamp();
    }

    /// Algorithm 3, lines 2 to 10. Its own sample judges the path, the filtered delay of all judges the window. A path
    /// counts as marked if it is slower than the one in the middle by more than jitter explains, and marked where the
    /// network marks. It counts as unmarked if it is as much faster, and unmarked. Other samples say nothing. Marks
    /// alone, or an absolute bound, would call all paths marked when the queue is at the target, and so leave them
    /// unequal.
    #[inline(always)]
    fn apply_path(&mut self, ack: &AckSample, rtt_ns: f32) {
        let Some(spray) = &mut self.spray else { return };
        if ack.path >= self.paths {
            return;
        }
        let slower = rtt_ns - self.pipe.middle_rtt_ns();
        let is_slow = slower > 0.0;
        let has_marks = self.pipe.has_marks();
        let is_bad = if has_marks { ack.ce_bytes > 0 } else { is_slow };
        let marks_alone = has_marks && self.apart_ns == 0.0;
        if !marks_alone && (slower.abs() <= self.apart_ns || is_bad != is_slow) {
            return;
        }
        spray.clean = (!is_bad).then_some(ack.path as u8);
        spray.marked.on_ack(ack.path, is_bad);
    }

    /// Number of paths to use.
    #[inline(always)]
    fn fresh_paths(&self) -> u16 {
        let packets = (2.0 * self.window_bytes / self.packet_bytes) as u64;
        packets.max(PATHS_MIN).min(u64::from(self.paths)) as u16
    }

    /// Sets the paths in use.
    #[inline(always)]
    fn choose_paths(&mut self) {
        let fresh = self.fresh_paths();
        if let Some(spray) = &mut self.spray {
            spray.in_use = fresh;
        }
    }

    /// The first path, or the only one.
    #[inline(never)]
    fn first_path(&mut self, now: Nanos) -> u16 {
        if self.paths == 1 {
            return 0;
        }
        let in_use = self.fresh_paths();
        self.spray.insert(Box::new(Spray { in_use, ..Spray::default() })).next(now)
    }

    /// Adds `bdps` BDP for each window of `bytes`, at most for one.
    #[inline(always)]
    fn grow(&mut self, ack: &AckSample, bytes: f32, bdps: f32) {
        if !ack.app_limited {
            let windows = lesser(bytes / self.window_bytes, 1.0);
            self.window_bytes += bdps * self.scale_bytes * windows;
        }
    }

    /// Algorithm 4, except the clamp.
    #[inline(always)]
    fn adjust(&mut self, ack: &AckSample, bytes: f32) {
        let (target, delay) = (self.target_ns, self.pipe.queue_delay_ns());
        self.mean_delay_ns += self.options.ewma.0 * (delay - self.mean_delay_ns);
        if delay < target {
            if !self.pipe.is_marked(ack, || self.has_queue(delay)) {
                // alpha (target - delay), where alpha is 4 bdp_sf delay_sf / rtt and delay_sf is
                // rtt / 12 us.
                let alpha = self.options.alpha.bdps() * (1.0 / REFERENCE_RTT_NS);
                self.grow(ack, bytes, lesser(alpha * (target - delay), HALF));
            }
        } else {
            self.apply_delay(ack, bytes, delay);
        }
        if self.shuffled_at.units_until(ack.now) > self.rtt_ns {
            self.shuffle(ack);
        }
    }

    /// Without marks, whether there is a queue at all, beyond jitter and noise. Marks report the queue behind a packet.
    /// A delay reports it one queue later, when many flows have grown too far.
    #[inline(always)]
    fn has_queue(&self, delay: f32) -> bool {
        delay > EARLY_PART * self.apart_ns + self.pipe.noise_ns()
    }

    /// Algorithm 4 for a delay that is not below the target.
    #[inline(always)]
    fn apply_delay(&mut self, ack: &AckSample, bytes: f32, delay: f32) {
        let target = self.target_ns;
        let is_high = delay > self.options.high.0 * target;
        if is_high && !self.pipe.is_marked(ack, || delay > target) {
            self.grow(ack, bytes, self.options.beta.bdps());
        } else if delay > target
            && self.mean_delay_ns > target
            && self.cut_at.units_until(ack.now) > self.rtt_ns
        {
            self.cut(ack.now, is_high);
        }
    }

    /// Algorithm 4, line 18 on: once in a round trip.
    #[inline(always)]
    fn shuffle(&mut self, ack: &AckSample) {
        self.shuffled_at = Stamp::of(ack.now);
        if !ack.app_limited {
            self.window_bytes += self.options.eta.bdps() * self.scale_bytes;
        }
        self.clamp();
        self.choose_paths();
    }

    /// Algorithm 4, lines 11 to 17.
    #[inline(always)]
    fn cut(&mut self, now: Nanos, is_high: bool) {
        self.cut_at = Stamp::of(now);
        let little = self.window_bytes.min(self.window_max_bytes * ACHIEVED_SHARE);
        if is_high && self.achieved_bytes < little {
            self.window_bytes = self.achieved_bytes;
        } else {
            let excess = (self.mean_delay_ns - self.target_ns) / self.mean_delay_ns;
            self.window_bytes *= (1.0 - self.options.gamma.0 * excess).max(HALF);
        }
    }
}

impl Controller for Strack {
    fn on_sent(&mut self, sent: &SentBurst) {
        // After a pause, earlier achievements say nothing about the network.
        if self.limited && sent.in_flight_bytes <= u64::from(sent.bytes) {
            self.start_period(sent.now, f32::INFINITY);
        }
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if let Some(rtt_ns) = ack.rtt_ns.map(short_f32)
            && self.pipe.is_plain(ack, rtt_ns)
        {
            self.pipe.apply_mark(ack);
            self.pipe.take(ack.now, rtt_ns);
            let bytes = short_f32(ack.acked_bytes);
            self.count(ack, bytes);
            self.on_sample(ack, bytes, rtt_ns);
        } else {
            self.on_odd_ack(ack);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        // The window does not react to vanished packets (section 3.3). A trimmed packet was too much for the buffers.
        if loss.kind == LossKind::Trim {
            self.window_bytes -= loss.bytes as f32;
            self.clamp();
        }
        // No acknowledgement reports a path that drops everything, so the loss must.
        if let Some(spray) = &mut self.spray {
            spray.marked.on_ack(loss.path, true);
            spray.lossy.on_loss(loss, Nanos::from(self.rtt_ns));
            spray.clean = spray.clean.filter(|path| u16::from(*path) != loss.path);
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        let is_known = self.achieved_bytes.is_finite();
        let achieved = if is_known { self.achieved_bytes } else { self.count_bytes };
        self.window_bytes = self.window_bytes.min(achieved);
        self.clamp();
        self.choose_paths();
        self.cut_at = Stamp::of(timeout.now);
        if let Some(spray) = &mut self.spray {
            spray.lossy.on_timeout();
        }
        // In lasting silence nothing was achieved.
        self.start_period(timeout.now, 0.0);
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        match &mut self.spray {
            Some(spray) => spray.next(now),
            None => self.first_path(now),
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
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.spray.as_ref().map_or_else(|| self.fresh_paths(), |spray| spray.in_use),
        }
    }
}
