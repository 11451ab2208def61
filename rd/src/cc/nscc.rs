//! NSCC and SMaRTT: a window steered by marks, delay and trims together (docs/cc/nscc.md and
//! docs/cc/smartt.md). One controller with two sets of parameters: `nscc` follows the Ultra
//! Ethernet Consortium's public simulator, `smartt` the paper (its sections are cited here).

mod balancer;
mod printed;
mod rows;
mod spread;
#[cfg(test)]
mod tests;

use super::options::{REFERENCE_BDP_BYTES, REFERENCE_PACKET_BYTES, REFERENCE_RTT_NS};
use super::paths::PATHS_MAX;
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
use printed::PrintedNscc;
use rows::NsccForm;
pub use rows::NsccOptions;
use spread::PathSpread;

/// NSCC, as in the consortium's simulator.
pub static NSCC: SchemeTable<NsccOptions> = SchemeTable {
    name: "nscc",
    options: &rows::NSCC,
    start: NsccOptions::default,
    ack_policy: |options| match options.ack_packets.0 as u8 {
        0 => AckPolicy::PerPacket,
        packets => AckPolicy::Coalesced { packets },
    },
    loss_detection: |options| match options.law.is_printed() {
        false => LossDetection::PathOrder,
        // By trims and timeouts alone, as far as the engine lets.
        true => LossDetection::Receiver,
    },
    learns: |options| !options.law.is_printed(),
    build: |options, params, seed| match options.law.is_printed() {
        false => Box::new(Nscc::new(options, params, seed)),
        true => Box::new(PrintedNscc::new(options, params, seed)),
    },
};

/// SMaRTT, as in the paper.
pub static SMARTT: SchemeTable<NsccOptions> = SchemeTable {
    name: "smartt",
    options: &rows::SMARTT,
    start: NsccOptions::smartt,
    ack_policy: NSCC.ack_policy,
    loss_detection: NSCC.loss_detection,
    learns: NSCC.learns,
    build: NSCC.build,
};

/// Least share of the greatest window that a flow begins with when it has found a queue.
const BEGIN_LEAST: f32 = 1.0 / 16.0;
/// A linear congruence (Numerical Recipes), whose upper bits are used.
const DRAW_TIMES: u32 = 1_664_525;
const DRAW_PLUS: u32 = 1_013_904_223;

/// Queueing delay that counts as none, unless the noise is more.
const EMPTY_NS: f32 = 1_000.0;
/// A multiplicative decrease keeps at least this share (equation 1).
const KEEP_LEAST: f32 = 0.5;
/// A fast increase adds at most so many bytes per byte acknowledged: 2 MTU per ACK.
const FAST_MOST: f32 = 2.0;
/// Increases are applied once so many datagrams were acknowledged, or once per round trip.
const ADJUST_DATAGRAMS: i32 = 8;
/// The greatest window takes at least so many datagrams, however small the BDP is.
const MAX_WINDOW_DATAGRAMS: f32 = 2.0;
/// Delay fed to the average by an ACK that is late but unmarked, in base round trips.
const STALE_RTTS: f32 = 0.25;
/// QuickAdapt's window does not run.
const UNMEASURED: u8 = 1;
/// QuickAdapt fired at `window_at`: ignore feedback on earlier packets.
const ADAPTED: u8 = 2;
/// Something was lost in QuickAdapt's window.
const LOST: u8 = 4;
/// Sends after idling, without an acknowledgement so far.
const RESTARTED: u8 = 8;
/// Switches trim.
const TRIMMING: u8 = 16;
/// Paths are not spread by REPS.
const NO_REPS: u8 = 32;
/// Round trips have jitter.
const JITTERY: u8 = 64;
/// [`Nscc::due_at`] is unknown or, after silence, so old that it may seem to lie ahead.
const SILENT: u8 = 128;
/// With any of these an acknowledgement takes the slow path.
const ODD: u8 = UNMEASURED | RESTARTED | NO_REPS | JITTERY | SILENT;
/// Furthest that [`Nscc::due_at`] can lie ahead.
const DUE_MOST_NS: f32 = 2_147_483_648.0;

/// One flow. Windows are in bytes, spans in ns; so are stored times, which wrap.
#[derive(Clone, Debug)]
struct Nscc {
    options: Arc<NsccOptions>,
    spread: Option<Box<PathSpread>>,
    /// The latest random number.
    draw: u32,
    /// Time of the next work that is due once per round trip or per QuickAdapt window. The seed until there is a first
    /// path.
    due_at: u32,
    pipe: Pipe,
    /// At least one datagram, at most `max_window` BDP.
    cwnd: f32,
    /// Increases not yet applied, times the window: in bytes squared.
    increase: f32,
    /// Average queueing delay in ns.
    average_ns: f32,
    /// Newly received bytes since QuickAdapt's window began, except those in `left_bytes`.
    counted_bytes: f32,
    /// Bytes to be received until increases are applied, not below 0 between acknowledgements.
    left_bytes: i32,
    /// Bytes acknowledged in a row without congestion; infinite while fast increase is on.
    empty_bytes: f32,
    /// QuickAdapt's window, and the longest time it ignores feedback: the paper's trtt.
    window_ns: f32,
    /// Fair increase in bytes.
    fair_bytes: f32,
    /// Proportional increase in bytes per ns below the target; smartt: times the round trip.
    slope: f32,
    /// Start of QuickAdapt's window. The times here wrap: after a pause of just 4.3 s or a multiple of it a
    /// gate opens late, by less than the span it guards. A gate of more than 4.3 s stays closed.
    window_at: Stamp<0>,
    decreased_at: Stamp<0>,
    adjusted_at: Stamp<0>,
    datagram_bytes: u16,
    last_path: u8,
    /// [`UNMEASURED`], [`ADAPTED`] and so on.
    flags: u8,
}

/// Weight of a sample of so many packets: the gain for one, never more than all.
fn weight(gain: f32, packets: f32) -> f32 {
    packets * gain / (1.0 - gain + packets * gain).max(f32::MIN_POSITIVE)
}

impl Nscc {
    fn new(options: &Arc<NsccOptions>, params: &FlowParams, seed: u64) -> Nscc {
        let now = Stamp::of(params.now);
        let mut flow = Nscc {
            options: Arc::clone(options),
            spread: None,
            draw: (seed >> 32) as u32,
            due_at: (seed ^ seed >> 32) as u32,
            pipe: Pipe::new(params),
            cwnd: f32::INFINITY,
            increase: 0.0,
            average_ns: 0.0,
            counted_bytes: 0.0,
            left_bytes: 0,
            empty_bytes: 0.0,
            window_ns: 0.0,
            fair_bytes: 0.0,
            slope: 0.0,
            window_at: now,
            // No decrease so far: as far back as the stamp can hold.
            decreased_at: Stamp::of(params.now.wrapping_sub(u64::from(u32::MAX / 2))),
            adjusted_at: now,
            datagram_bytes: params.datagram_bytes.clamp(1, u16::MAX.into()) as u16,
            last_path: (params.paths.clamp(1, PATHS_MAX) - 1) as u8,
            flags: UNMEASURED | SILENT | if params.trimming { TRIMMING } else { 0 },
        };
        flow.left_bytes = flow.batch_bytes();
        flow.derive();
        flow
    }

    fn is_smartt(&self) -> bool {
        self.options.form == NsccForm::Smartt
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Derives values from the shared estimate.
    #[inline(never)]
    fn derive(&mut self) {
        let options = &self.options;
        let rtts = if self.has(TRIMMING) { options.target_trim } else { options.target };
        // A sample holds the queue's delay and noise on top of it.
        let target = rtts.0 * self.pipe.typical_rtt_ns() + self.pipe.noise_ns();
        self.window_ns = self.pipe.typical_rtt_ns() + target;
        self.fair_bytes = self.options.fair.0 * self.unit_bytes();
        let most = self.options.proportional.0 * self.unit_bytes();
        let scale = if self.is_smartt() {
            self.pipe.base_rtt_ns()
        } else {
            (target / REFERENCE_RTT_NS).min(1.0)
        };
        self.slope = most * scale / target;
        let is_jittery = self.pipe.typical_rtt_ns() > self.pipe.scale_ns();
        self.flags = self.flags & !JITTERY | if is_jittery { JITTERY } else { 0 };
        if is_jittery
            && self.pipe.has_learned()
            && let Some(spread) = &mut self.spread
        {
            // After a late poll REPS would send all its packets back to the path that they came from.
            spread.take_turns();
        }
        self.clamp();
    }

    /// Queueing delay aimed at.
    fn target_ns(&self) -> f32 {
        self.window_ns - self.pipe.typical_rtt_ns()
    }

    fn datagram(&self) -> f32 {
        f32::from(self.datagram_bytes)
    }

    /// At least two datagrams: with a single one the link would rest while it is acknowledged.
    fn max_window_bytes(&self) -> f32 {
        let least = MAX_WINDOW_DATAGRAMS * self.datagram();
        greater(self.options.max_window.0 * self.pipe.bdp_bytes(), least)
    }

    /// Every change of the window or its bounds ends here.
    #[inline(always)]
    fn clamp(&mut self) {
        self.cwnd = greater(lesser(self.cwnd, self.max_window_bytes()), self.datagram());
    }

    /// The scale of the increases: so many times the reference network's BDP. Where that is next
    /// to nothing, the greatest window's share, or a small window would never grow again.
    fn scale(&self) -> f32 {
        self.max_window_bytes() / self.options.max_window.0 / REFERENCE_BDP_BYTES
    }

    /// Packet that increases are counted in, scaled to the BDP.
    fn unit_bytes(&self) -> f32 {
        self.datagram().min(REFERENCE_PACKET_BYTES) * self.scale()
    }

    /// True if the acknowledgement has only its sample, and no round ends.
    #[inline(always)]
    fn runs_on(&self, now: Nanos) -> bool {
        self.flags & ODD == 0 && ((now as u32).wrapping_sub(self.due_at) as i32) < 0
    }

    /// Sets the due time: the end of QuickAdapt's window, or of the round trip since the last increase by time.
    fn set_due(&mut self, now: Nanos) {
        if self.spread.is_none() && self.last_path > 0 {
            // It is still the seed.
            return;
        }
        self.flags &= !SILENT;
        let window = self.window_ns - self.window_at.ns_until(now);
        let rtt = self.pipe.typical_rtt_ns() - self.adjusted_at.ns_until(now);
        self.due_at = (now as u32).wrapping_add(lesser(lesser(window, rtt), DUE_MOST_NS) as u32);
    }

    /// Whether feedback is from before QuickAdapt set the window.
    fn is_stale(&self, now: Nanos, sent_at: Nanos) -> bool {
        self.has(ADAPTED)
            && self.window_at.is_since(sent_at)
            && self.window_at.ns_until(now) < self.window_ns
    }

    #[inline(always)]
    fn average(&mut self, ack: &AckSample, bytes: f32, delay_ns: f32) {
        let gain = self.options.gain.0;
        let weight = if ack.acked_packets != 1 || ack.acked_bytes > REFERENCE_PACKET_BYTES as u64 {
            core::hint::cold_path();
            weight(gain, greater(bytes / REFERENCE_PACKET_BYTES, ack.acked_packets as f32))
        } else {
            gain
        };
        self.average_ns += weight * (delay_ns - self.average_ns);
    }

    /// Drops the increases that are not applied yet.
    fn drop_increases(&mut self) {
        self.increase = 0.0;
        self.counted_bytes += self.uncounted_bytes();
        self.left_bytes = self.batch_bytes();
    }

    /// Increases are applied once so much was acknowledged.
    fn batch_bytes(&self) -> i32 {
        ADJUST_DATAGRAMS * i32::from(self.datagram_bytes)
    }

    /// The bytes counted in `left_bytes`.
    fn uncounted_bytes(&self) -> f32 {
        (i64::from(self.batch_bytes()) - i64::from(self.left_bytes)) as f32
    }

    fn stop_fast(&mut self) {
        self.empty_bytes = 0.0;
    }

    /// Algorithm 2: at the end of a window with severe congestion, the bytes received in it become the congestion
    /// window. Returns whether it did.
    fn quick_adapt(&mut self, now: Nanos, delay_ns: f32) -> bool {
        if !self.has(UNMEASURED) && self.window_at.ns_until(now) < self.window_ns {
            return false;
        }
        // With trims the paper needs no further sign.
        let by_trims = self.is_smartt() && self.has(TRIMMING);
        let late = !by_trims && delay_ns > self.options.qa_delay.0 * self.target_ns();
        let achieved = self.counted_bytes + self.uncounted_bytes();
        let little = by_trims || achieved < self.options.qa_share.0 * self.max_window_bytes();
        let fires = !self.has(UNMEASURED) && (self.has(LOST) || late) && little;
        if fires {
            self.cwnd = self.cwnd.min(achieved);
            self.drop_increases();
            self.stop_fast();
        }
        self.start_window(now);
        if fires {
            self.flags |= ADAPTED;
        }
        fires
    }

    fn start_window(&mut self, now: Nanos) {
        self.flags &= !(UNMEASURED | ADAPTED | LOST);
        self.counted_bytes = -self.uncounted_bytes();
        self.window_at = Stamp::of(now);
    }

    /// Algorithm 3. Returns whether fast increase is on.
    #[inline(always)]
    fn fast_increase(&mut self, bytes: f32, delay_ns: f32) -> bool {
        if delay_ns >= greater(self.pipe.noise_ns(), EMPTY_NS) {
            self.stop_fast();
            return false;
        }
        self.empty_bytes += bytes;
        if self.empty_bytes <= self.cwnd {
            return false;
        }
        self.empty_bytes = f32::INFINITY;
        let scale = if self.is_smartt() { 1.0 } else { self.scale() };
        self.cwnd += bytes * lesser(self.options.fast.0 * scale, FAST_MOST);
        self.clamp();
        true
    }

    /// Equation 2.
    #[inline(always)]
    fn fair_increase(&mut self, bytes: f32) {
        self.increase += self.fair_bytes * bytes;
    }

    /// Equation 3 in the paper's form or the simulator's.
    #[inline(always)]
    fn proportional_increase(&mut self, bytes: f32, delay_ns: f32, target_ns: f32) {
        let step = self.slope * (target_ns - delay_ns);
        if self.is_smartt() {
            let step = step / (self.pipe.base_rtt_ns() + delay_ns);
            self.increase += bytes * (lesser(step, self.cwnd) + self.fair_bytes);
        } else {
            self.increase += bytes * step;
        }
    }

    /// Equation 1, once a round trip.
    #[inline(always)]
    fn multiplicative_decrease(&mut self, now: Nanos) {
        let excess = self.average_ns - self.target_ns();
        if excess <= 0.0 || self.decreased_at.ns_until(now) <= self.pipe.typical_rtt_ns() {
            return;
        }
        let base = if self.is_smartt() { self.pipe.base_rtt_ns() } else { 0.0 };
        let share = excess / (base + self.average_ns);
        self.cwnd *= greater(1.0 - self.options.decrease.0 * share, KEEP_LEAST);
        self.clamp();
        self.decreased_at = Stamp::of(now);
    }

    /// Applies the increases while none is due by time.
    #[inline(always)]
    fn adjust_by_bytes(&mut self) {
        if self.left_bytes < 0 {
            self.apply_increases();
            self.clamp();
        }
    }

    #[inline(always)]
    fn apply_increases(&mut self) {
        self.cwnd += self.increase / self.cwnd;
        self.drop_increases();
    }

    /// Applies the increases.
    fn adjust(&mut self, now: Nanos, app_limited: bool) {
        let elapsed = self.adjusted_at.ns_until(now);
        let rtt = self.pipe.typical_rtt_ns();
        if self.left_bytes >= 0 && elapsed <= rtt {
            return;
        }
        self.apply_increases();
        if elapsed >= rtt {
            if !app_limited {
                self.cwnd += self.options.steady.0 * self.unit_bytes();
            }
            self.adjusted_at = Stamp::of(now);
        }
        self.clamp();
    }

    /// Algorithm 1 for an unmarked acknowledgement.
    #[inline(always)]
    fn apply_clear(&mut self, ack: &AckSample, bytes: f32, delay_ns: f32, target_ns: f32) {
        if ack.app_limited {
            return;
        }
        if delay_ns >= target_ns {
            self.stop_fast();
            self.fair_increase(bytes);
        } else if !self.fast_increase(bytes, delay_ns) {
            self.proportional_increase(bytes, delay_ns, target_ns);
        }
    }

    /// Algorithm 1 for an acknowledgement that counts as marked, part for part.
    #[inline(always)]
    fn apply_marked(&mut self, ack: &AckSample, bytes: f32, delay_ns: f32) {
        let target_ns = self.target_ns();
        let late = delay_ns >= target_ns;
        self.stop_fast();
        if late {
            self.multiplicative_decrease(ack.now);
        }
        let marked_bytes = if ack.ce_bytes == 0 { bytes } else { ack.ce_bytes as f32 };
        let bytes = bytes - marked_bytes;
        if ack.app_limited || bytes <= 0.0 {
            return;
        }
        if late {
            self.fair_increase(bytes);
        } else {
            self.proportional_increase(bytes, delay_ns, target_ns);
        }
    }

    /// Whether a sample counts as marked for its path and for the window.
    fn is_marked(&mut self, ack: &AckSample, rtt_ns: f32) -> (bool, bool) {
        if ack.ce_bytes > 0 {
            return (true, true);
        }
        if self.pipe.has_marks() {
            return (false, false);
        }
        let path_bad = if self.has(JITTERY) {
            rtt_ns - self.pipe.base_rtt_ns() >= self.target_ns()
        } else {
            self.is_path_late(rtt_ns)
        };
        (path_bad, self.pipe.queue_delay_ns() >= self.target_ns())
    }

    /// Without marks and jitter, whether a path is late. Each sample draws the bound again, so the further a path is
    /// behind the one in the middle, the more of its packets count as marked, as with RED. With a fixed bound all
    /// traffic beyond it would leave at once, and come back at once.
    #[inline(always)]
    fn is_path_late(&mut self, rtt_ns: f32) -> bool {
        let rtt = self.pipe.typical_rtt_ns();
        // A queue of one round trip is late by itself.
        let middle = lesser(self.pipe.queue_delay_ns(), rtt);
        let behind = rtt_ns - self.pipe.base_rtt_ns() - middle;
        if behind <= 0.0 {
            return false;
        }
        self.draw = self.draw.wrapping_mul(DRAW_TIMES).wrapping_add(DRAW_PLUS);
        behind * 65_536.0 >= f32::from((self.draw >> 16) as u16) * rtt
    }

    #[inline(always)]
    fn tell(&mut self, path: u16, bad: bool) {
        if let Some(spread) = &mut self.spread {
            spread.told(path, bad);
        }
    }

    /// Takes the delay of an unmarked sample into the average.
    #[inline(always)]
    fn average_clear(&mut self, ack: &AckSample, bytes: f32, delay_ns: f32) {
        // If it is late, it is out of date: the queue has drained meanwhile.
        if delay_ns > self.target_ns() && !self.is_smartt() {
            self.average(ack, bytes, STALE_RTTS * self.pipe.base_rtt_ns());
        } else {
            self.average(ack, bytes, delay_ns);
        }
    }

    /// See [`PathSpread::tell_reps`].
    #[inline(always)]
    fn tell_reps(&mut self, path: u16, bad: bool) {
        if let Some(spread) = &mut self.spread {
            spread.tell_reps(path, bad);
        }
    }

    /// An unmarked sample while nothing is due: most of them.
    #[inline(always)]
    fn on_clear_ack(&mut self, ack: &AckSample, path_bad: bool) {
        let delay = self.pipe.queue_delay_ns();
        let (target, bytes) = (self.target_ns(), short_f32(ack.acked_bytes));
        self.tell_reps(ack.path, path_bad);
        if delay >= target {
            self.average_clear(ack, bytes, delay);
            self.apply_clear(ack, bytes, delay, target);
        } else {
            self.average(ack, bytes, delay);
            self.apply_clear(ack, bytes, delay, target);
        }
        self.adjust_by_bytes();
    }

    /// A marked one.
    #[inline(never)]
    fn on_marked_ack(&mut self, ack: &AckSample, path_bad: bool) {
        let (delay, bytes) = (self.pipe.queue_delay_ns(), short_f32(ack.acked_bytes));
        self.tell_reps(ack.path, path_bad);
        self.average(ack, bytes, delay);
        if self.is_stale(ack.now, ack.sent_at) {
            self.drop_increases();
        } else {
            self.apply_marked(ack, bytes, delay);
            self.adjust_by_bytes();
        }
    }

    /// One of a network that has marked nothing so far, without jitter.
    #[inline(never)]
    fn on_unmarking_ack(&mut self, ack: &AckSample, rtt_ns: f32) {
        let path_bad = self.is_path_late(rtt_ns);
        if self.pipe.queue_delay_ns() >= self.target_ns() {
            self.on_marked_ack(ack, path_bad);
        } else {
            self.on_clear_ack(ack, path_bad);
        }
    }

    /// An acknowledgement without a plain sample, or when something is due.
    #[inline(never)]
    fn on_odd_ack(&mut self, ack: &AckSample) {
        let learns = !self.pipe.has_learned();
        if self.pipe.on_ack(ack) {
            self.derive();
        }
        if learns && self.pipe.has_learned() {
            self.begin();
        }
        self.flags &= !RESTARTED;
        let bytes = short_f32(ack.acked_bytes);
        self.left_bytes -= ack.acked_bytes.min(i32::MAX as u64) as i32;
        let (delay, marked) = match ack.rtt_ns {
            Some(rtt_ns) => {
                let (path_bad, marked) = self.is_marked(ack, short_f32(rtt_ns));
                self.tell(ack.path, path_bad);
                (self.pipe.queue_delay_ns(), marked)
            }
            None => (self.average_ns, ack.ce_bytes > 0),
        };
        match (ack.rtt_ns, marked) {
            (None, _) => {}
            (_, true) => self.average(ack, bytes, delay),
            (_, false) => self.average_clear(ack, bytes, delay),
        }
        if marked && self.is_stale(ack.now, ack.sent_at) {
            self.drop_increases();
        } else if !self.quick_adapt(ack.now, delay) {
            if marked {
                self.apply_marked(ack, bytes, delay);
            } else {
                self.apply_clear(ack, bytes, delay, self.target_ns());
            }
            self.adjust(ack.now, ack.app_limited);
        }
        self.clamp();
        self.set_due(ack.now);
    }

    /// Ends the learning. A newcomer that found a queue begins small: later newcomers would learn the queue of its
    /// first window as noise.
    fn begin(&mut self) {
        let queue = self.average_ns / (self.options.target.0 * self.pipe.typical_rtt_ns());
        let first = greater(1.0 - queue, BEGIN_LEAST) * self.max_window_bytes();
        self.cwnd = lesser(self.cwnd, first);
    }

    /// The first path, or the only one.
    #[inline(never)]
    fn first_path(&mut self, now: Nanos) -> u16 {
        if self.last_path == 0 {
            return 0;
        }
        let spread = PathSpread::new(self.options.paths_by, self.due_at.into());
        if !spread.is_reps() {
            self.flags |= NO_REPS;
        }
        self.spread.insert(Box::new(spread)).next(now, self.last_path)
    }
}

impl Controller for Nscc {
    fn on_sent(&mut self, sent: &SentBurst) {
        let alone = sent.in_flight_bytes <= u64::from(sent.bytes);
        if alone
            && !self.has(UNMEASURED)
            && self.window_at.ns_until(sent.now) > 2.0 * self.window_ns
        {
            // The measurements before the pause say little: at most one BDP, paced.
            self.flags = self.flags & !ADAPTED | UNMEASURED | RESTARTED;
            self.drop_increases();
            self.stop_fast();
            self.cwnd = self.cwnd.min(self.pipe.bdp_bytes());
            self.clamp();
        }
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if let Some(rtt_ns) = ack.rtt_ns.map(short_f32)
            && self.pipe.is_plain(ack, rtt_ns)
            && self.runs_on(ack.now)
        {
            self.pipe.take(ack.now, rtt_ns);
            // A plain acknowledgement has less than 2^30.
            self.left_bytes -= ack.acked_bytes as i32;
            if ack.ce_bytes > 0 {
                self.pipe.apply_mark(ack);
                self.on_marked_ack(ack, true);
            } else if self.pipe.has_marks() {
                self.on_clear_ack(ack, false);
            } else {
                self.on_unmarking_ack(ack, rtt_ns);
            }
        } else {
            self.on_odd_ack(ack);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        let trim = loss.kind == LossKind::Trim;
        if let Some(spread) = &mut self.spread {
            spread.told(loss.path, true);
            spread.lost(loss, self.pipe.typical_rtt_ns());
            if self.flags & TRIMMING != 0 && !trim {
                // Congestion trims packets; a vanished one met a failure.
                spread.freeze(loss.now);
            }
        }
        if trim && !self.is_smartt() {
            // A full queue holds about one round trip.
            let gain = self.options.gain.0;
            self.average_ns += gain * (self.pipe.typical_rtt_ns() - self.average_ns);
        }
        if self.is_stale(loss.now, loss.sent_at) {
            return;
        }
        self.flags |= LOST;
        if !self.quick_adapt(loss.now, 0.0) {
            self.cwnd -= loss.bytes as f32;
        }
        self.clamp();
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.flags |= LOST | SILENT;
        if let Some(spread) = &mut self.spread {
            spread.on_timeout(timeout.now);
        }
        if timeout.in_a_row > 1 {
            self.stop_fast();
            self.cwnd *= KEEP_LEAST;
            self.clamp();
        }
    }

    fn window_bytes(&self) -> u64 {
        self.cwnd as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        let per_ns = self.cwnd / self.pipe.typical_rtt_ns();
        self.has(RESTARTED).then_some((per_ns * 1e9) as u64)
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        match &mut self.spread {
            Some(spread) => spread.next(now, self.last_path),
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
            target_ns: libm::roundf(self.target_ns()) as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: u16::from(self.last_path) + 1,
        }
    }
}
