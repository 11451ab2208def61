//! UDMP: delay as the only signal for rate and paths (docs/cc/udmp.md).
//!
//! The gradient of the average round trip sets a rate. The rate fills a byte pool. Each acknowledgement may move bytes
//! of the pool into the token pool, two packets, one or none. Clocked bytes go out on its own path, a second packet on
//! the next path in turn. Sections, algorithms (A) and lines (l.) cited here are the paper's.

mod clock;
mod printed;
mod rows;
#[cfg(test)]
mod tests;

use super::pipe::{Pipe, lesser, short_f32};
use super::scheme::SchemeTable;
use super::stamp::Stamp;
use super::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, LossKind, SentBurst,
    Timeout, View,
};
use crate::units::{Ecn, Nanos, SECOND};
use alloc::boxed::Box;
use alloc::sync::Arc;
use clock::ByteClock;
use printed::PrintedUdmp;
use rows::OPTIONS;
pub use rows::UdmpOptions;

/// UDMP.
pub static UDMP: SchemeTable<UdmpOptions> = SchemeTable {
    name: "udmp",
    options: &OPTIONS,
    start: UdmpOptions::default,
    ack_policy: |_| AckPolicy::PerPacket,
    loss_detection: |_| LossDetection::Receiver,
    learns: |options| !options.law.is_printed(),
    build: |options, params, seed| match options.law.is_printed() {
        false => Box::new(Udmp::new(params, seed, options)),
        true => Box::new(PrintedUdmp::new(params, seed, options)),
    },
};

/// Bound of the gradient: one round trip at most halves the rate.
const GRADIENT_MAX: f32 = 0.5;
/// Greatest weight of a sample.
const WEIGHT_MAX: f32 = 0.5;
/// Part of the noise of a single path's delay that is left in the average of all: 8 paths make it
/// smaller by the root of 8.
const NOISE_LEFT: f32 = 0.35;
/// Part of the slack that the bytes in flight may fill: a lone flow stays below its threshold.
const WINDOW_SLACK: f32 = 0.8;
/// Increases are so many times greater in the lower half of the slack (TIMELY: N, "hyperactive").
const HASTE: f32 = 5.0;
/// The byte pool keeps at most a quarter of a window, as a power of two, and two packets, since an
/// acknowledgement clocks two.
const POOL_SHIFT: u32 = 2;
const POOL_PACKETS: u32 = 2;
/// Packets that a path may send in a row.
const ROW_PACKETS: u32 = 4;
/// Least share of the line rate that a flow begins with when it finds a queue.
const BEGIN_MIN: f32 = 1.0 / 16.0;
/// A lost packet or a silence leaves at least this share of the rate.
const KEEP_MIN: f32 = 0.5;
/// Factor above a rate learned only from deliveries, which would never rise otherwise.
const HEADROOM: f32 = 1.25;
/// Round trips of silence after which clocked bytes say nothing about their path.
const IDLE_RTTS: f32 = 4.0;
/// A time is kept in units of 64 ns, so that 32 bits last for 4.5 minutes.
const TICK_SHIFT: u32 = 6;
type Tick = Stamp<TICK_SHIFT>;
/// A rate is kept in units of 2^-12 bytes per tick: from a datagram in some seconds to 130 Tb/s.
const RATE_SHIFT: u32 = 12;
const RATE_UNIT: f32 = (1 << (TICK_SHIFT + RATE_SHIFT)) as f32;
/// Bound of all pools, even with a broken clock.
const POOL_MAX_BYTES: f32 = (1 << 30) as f32;
/// Pace of tokens without a path, times the rate: an engine that wakes late does not catch up, so at the rate itself it
/// would stay below.
const PACE: f32 = 2.0;

/// The noise is known, and the first window is out.
const BEGUN: u8 = 1;
/// The next burst leaves its path.
const EXPLORE: u8 = 2;
/// No path.
const NONE: u16 = u16::MAX;

/// One flow. Times are ns, sizes bytes, rates bytes per ns.
#[derive(Clone, Debug)]
struct Udmp {
    pipe: Pipe,
    options: Arc<UdmpOptions>,
    /// Bytes that acknowledgements have clocked and that were not sent yet.
    clock: Option<Box<ByteClock>>,
    /// Rate as a share of the line rate, above 0 and at most 1.
    share: f32,
    /// Derived: the rate itself, in [`RATE_UNIT`]s of a byte per ns, and the bytes that it sends in the longest round
    /// trip without congestion.
    rate_q: u32,
    window_bytes: u32,
    /// Byte pool: bytes that the rate has granted and no acknowledgement has clocked. Below 0 until the first window's
    /// advance is repaid.
    pool_bytes: i32,
    /// Average round trip over all paths.
    smooth_ns: f32,
    /// The same at the last update.
    last_smooth_ns: f32,
    /// Least round trip since then.
    least_ns: f32,
    /// T_low minus the typical round trip, as of the last update.
    slack_ns: f32,
    /// Tokens without a path: the first window, a restart, second packets, and bytes that no acknowledgement could
    /// clock.
    free_bytes: u32,
    in_flight_bytes: u32,
    refill_at: Tick,
    update_at: Tick,
    datagram_bytes: u16,
    paths: u16,
    /// State of the draws.
    draw: u16,
    /// The next path in turn.
    turn: u16,
    /// The path of the latest loss, which has no turn until the next exploration, or [`NONE`].
    shunned: u16,
    /// [`BEGUN`], [`EXPLORE`].
    flags: u8,
}

/// A bounded number, so that bytes in flight and tokens, or twice the acknowledged bytes, fit into 32 bits.
fn small(bytes: u64) -> u32 {
    bytes.min(POOL_MAX_BYTES as u64) as u32
}

impl Udmp {
    fn new(params: &FlowParams, seed: u64, options: &Arc<UdmpOptions>) -> Udmp {
        let now = Tick::of(params.now);
        let paths = params.paths.max(1);
        let mut udmp = Udmp {
            pipe: Pipe::new(params),
            options: Arc::clone(options),
            clock: None,
            share: 1.0,
            rate_q: 0,
            window_bytes: 0,
            pool_bytes: 0,
            smooth_ns: 0.0,
            last_smooth_ns: 0.0,
            least_ns: f32::MAX,
            slack_ns: 0.0,
            free_bytes: 0,
            in_flight_bytes: 0,
            refill_at: now,
            update_at: now,
            datagram_bytes: u16::try_from(params.datagram_bytes).unwrap_or(u16::MAX).max(1),
            paths,
            draw: seed as u16,
            turn: (seed % u64::from(paths)) as u16,
            shunned: NONE,
            flags: 0,
        };
        udmp.smooth_ns = udmp.pipe.typical_rtt_ns();
        udmp.set_share(1.0);
        udmp.free_bytes = udmp.grant_bytes();
        udmp
    }

    /// Bytes per ns of the link.
    fn line(&self) -> f32 {
        let headroom = if self.pipe.learns_rate() { HEADROOM } else { 1.0 };
        self.pipe.bytes_per_ns() * headroom
    }

    fn rate(&self) -> f32 {
        self.rate_q as f32 / RATE_UNIT
    }

    /// Noise of the average round trip.
    fn noise_ns(&self) -> f32 {
        NOISE_LEFT * self.pipe.noise_ns()
    }

    fn low_ns(&self) -> f32 {
        self.pipe.typical_rtt_ns() + self.slack_ns
    }

    /// Sets the share, at least one datagram per round trip, and the values derived from it and the estimates of the
    /// network.
    #[inline(never)]
    fn set_share(&mut self, share: f32) {
        let typical_ns = self.pipe.typical_rtt_ns();
        let datagram = f32::from(self.datagram_bytes);
        let least = datagram / typical_ns.max(self.smooth_ns);
        let line = self.line().max(least);
        self.share = share.clamp(least / line, 1.0);
        let rate = self.share * line;
        // Rounded up: a pool filled for one packet must not miss it, and a rate is never 0.
        self.rate_q = ((rate * RATE_UNIT) as u32).saturating_add(1);
        self.slack_ns = (self.options.t_low.0 * typical_ns).max(self.noise_ns());
        // On a short slow link a datagram is more than the BDP: two of them keep it busy.
        let whole = line * (typical_ns + WINDOW_SLACK * self.slack_ns);
        let window = self.share * whole.max(POOL_PACKETS as f32 * datagram);
        self.window_bytes = window.clamp(datagram, POOL_MAX_BYTES) as u32;
    }

    /// Bytes that the rate grants in a typical round trip.
    fn grant_bytes(&self) -> u32 {
        let bytes = self.rate() * self.pipe.typical_rtt_ns();
        (bytes.min(POOL_MAX_BYTES) as u32).max(self.least_bytes())
    }

    fn least_bytes(&self) -> u32 {
        POOL_PACKETS * u32::from(self.datagram_bytes)
    }

    fn clocked_bytes(&self) -> u32 {
        self.clock.as_ref().map_or(0, |clock| clock.total_bytes())
    }

    fn tokens(&self) -> u32 {
        self.free_bytes + self.clocked_bytes()
    }

    /// Bytes that may still get tokens: allowed in flight, less those in flight or with tokens.
    fn room_bytes(&self) -> u32 {
        let taken = self.in_flight_bytes + self.tokens();
        self.window_bytes.saturating_sub(taken)
    }

    /// Bytes that the next burst may take: the oldest clocked path's, so that no path sends another's share. Less than
    /// a datagram joins the next, or it would block the entries behind it.
    fn allowance_bytes(&self) -> u32 {
        let datagram = u32::from(self.datagram_bytes);
        let Some((_, first_bytes)) = self.clock.as_ref().and_then(|clock| clock.first()) else {
            return self.free_bytes.min(ROW_PACKETS * datagram);
        };
        if first_bytes >= datagram { first_bytes } else { self.tokens().min(datagram) }
    }

    /// The average follows each sample (A1 l.18). Packets of a burst come together, and count as one sample. Late
    /// samples are bounded, so that spikes do not carry the average away.
    fn sample(&mut self, rtt_ns: f32, elapsed_ns: f32) {
        self.least_ns = lesser(rtt_ns, self.least_ns);
        let weight =
            lesser(self.options.alpha.0 * elapsed_ns, WEIGHT_MAX * self.pipe.typical_rtt_ns());
        let late_ns = lesser(rtt_ns - self.smooth_ns, self.slack_ns);
        self.smooth_ns += weight * late_ns / self.pipe.typical_rtt_ns();
    }

    /// Fills the byte pool (A1 l.20, before clocking). Returns the bytes that do not fit.
    fn refill(&mut self, now: Nanos) -> u32 {
        let elapsed = u64::from(self.refill_at.units_until(now));
        self.refill_at = Tick::of(now);
        let granted = (elapsed * u64::from(self.rate_q)) >> RATE_SHIFT;
        let filled = self.pool_bytes + granted.min(POOL_MAX_BYTES as u64) as i32;
        let most = (self.window_bytes >> POOL_SHIFT).max(self.least_bytes()) as i32;
        self.pool_bytes = filled.min(most);
        (filled - self.pool_bytes) as u32
    }

    /// Whether a sample is so far behind the foremost packet that its path is left alone. A queue of one round trip
    /// must not look like a lost order.
    fn is_behind(&self, lag_packets: u32) -> bool {
        let bytes = lag_packets as f32 * f32::from(self.datagram_bytes);
        lag_packets as f32 > self.options.delta.0
            && bytes > self.line() * self.pipe.typical_rtt_ns()
    }

    /// Moves bytes from the pool to the path of an acknowledgement that is so late, two packets for
    /// one, as many, or none (A2). A second packet goes to any path.
    fn clock(&mut self, ack: &AckSample, late_ns: f32) {
        if late_ns >= self.pipe.scale_ns() || self.is_behind(ack.lag_packets) {
            return;
        }
        let acked_bytes = small(ack.acked_bytes);
        let wanted = if late_ns < 0.0 { 2 * acked_bytes } else { acked_bytes };
        let afford = (self.pool_bytes.max(0) as u32).min(self.room_bytes());
        let mut clocked = wanted;
        if wanted > afford {
            let packet = acked_bytes.min(self.datagram_bytes.into()).max(1);
            clocked = (afford / packet * packet).min(wanted);
        }
        if clocked == 0 {
            return;
        }
        self.pool_bytes -= clocked as i32;
        let spread = self.options.spread.0;
        let mut own = if spread > 0.0 { clocked.min(acked_bytes) } else { clocked };
        if late_ns > 0.0 && self.random() * self.pipe.scale_ns() < spread * late_ns {
            own = 0;
        }
        if ack.path == self.shunned {
            own = 0;
        }
        let mut free = clocked;
        if own > 0 && ack.path < self.paths {
            let row = ROW_PACKETS * u32::from(self.datagram_bytes);
            let clock = self.clock.get_or_insert_with(|| Box::new(ByteClock::new(self.paths)));
            free = clocked - clock.push(ack.path, own, row);
        }
        self.free_bytes = self.free_bytes.saturating_add(free);
    }

    /// Turns bytes that no acknowledgement could clock into tokens of any path.
    #[inline(never)]
    fn overflow(&mut self, ack: &AckSample, excess_bytes: u32) {
        if !ack.app_limited {
            self.free_bytes += excess_bytes.min(self.room_bytes());
        }
    }

    /// Takes an acknowledgement without a sample, which says nothing about path or delay.
    #[cold]
    fn on_ack_without_sample(&mut self, ack: &AckSample) {
        if self.flags & BEGUN == 0 {
            self.learn(ack);
            return;
        }
        let excess_bytes = self.refill(ack.now);
        self.clock(ack, 0.0);
        self.overflow(ack, excess_bytes);
    }

    /// A1 l.22 to 37: severe congestion at each acknowledgement, the gradient once per round trip.
    fn control(&mut self, ack: &AckSample) {
        let typical_ns = self.pipe.typical_rtt_ns();
        if self.smooth_ns > typical_ns + self.options.t_high.0 * self.slack_ns {
            self.set_share(self.share.min(typical_ns / self.smooth_ns));
        }
        let age = ack.now.saturating_sub(ack.sent_at) >> TICK_SHIFT;
        if u64::from(self.update_at.units_until(ack.now)) >= age {
            self.update(ack);
        }
    }

    #[inline(never)]
    fn update(&mut self, ack: &AckSample) {
        let noise_ns = self.noise_ns();
        let change_ns = self.smooth_ns - self.last_smooth_ns;
        let change_ns = change_ns - change_ns.clamp(-noise_ns, noise_ns);
        let gradient = change_ns / self.update_at.ns_until(ack.now).max(1.0);
        self.set_share(self.updated(gradient, ack.app_limited));
        self.restart_interval(ack.now);
        // With a probability of base round trip over probe interval, the next burst leaves its path.
        if self.random() * self.options.probe_us.0 * 1e3 < self.pipe.base_rtt_ns() {
            (self.shunned, self.flags) = (NONE, self.flags | EXPLORE);
        }
    }

    /// Part of the round trip above the uncongested one, as a share of it. Where even the least one is too long,
    /// that is not noise.
    fn lateness(&self) -> f32 {
        let clear_ns = (1.0 + self.options.t_low.0) * self.pipe.scale_ns();
        (1.0 - self.low_ns() / self.smooth_ns).max(1.0 - clear_ns / self.least_ns)
    }

    /// The share after one round trip with this gradient.
    fn updated(&self, gradient: f32, app_limited: bool) -> f32 {
        let gradient = self.options.gain.0 * gradient.clamp(-GRADIENT_MAX, GRADIENT_MAX);
        let (share, late) = (self.share, self.lateness());
        let mut change = 0.0;
        if late > 0.0 {
            change -= share * (self.options.beta.0 * late + gradient.max(0.0));
        }
        if app_limited {
            return share + change;
        }
        if gradient < 0.0 {
            change -= gradient * share.min(1.0 - share);
        }
        if late <= 0.0 || gradient <= 0.0 {
            let is_calm = late <= 0.0 && self.smooth_ns < self.low_ns() - self.slack_ns / 2.0;
            change += self.options.additive.0 * if is_calm { HASTE } else { 1.0 };
        }
        share + change
    }

    fn restart_interval(&mut self, now: Nanos) {
        self.update_at = Tick::of(now);
        self.last_smooth_ns = self.smooth_ns;
        self.least_ns = f32::MAX;
    }

    /// A uniform number between 0 and 1, in steps of 1/4096: the upper bits of a congruence.
    fn random(&mut self) -> f32 {
        self.draw = self.draw.wrapping_mul(25_173).wrapping_add(13_849);
        f32::from(self.draw >> 4) / 4_096.0
    }

    /// Makes clocked bytes tokens of any path.
    fn forget_paths(&mut self) {
        if let Some(clock) = &mut self.clock {
            self.free_bytes = self.free_bytes.saturating_add(clock.clear());
        }
    }

    /// Restarts a flow with nothing in flight, which no acknowledgement will clock. It gets the grant of one round
    /// trip, as an advance.
    #[inline(never)]
    fn restart(&mut self, now: Nanos) {
        let idle_ns = IDLE_RTTS * self.smooth_ns.max(self.pipe.typical_rtt_ns());
        if self.refill_at.ns_until(now) > idle_ns {
            self.forget_paths();
            self.free_bytes = self.free_bytes.min(self.grant_bytes());
            self.restart_interval(now);
        }
        self.refill(now);
        let tokens = self.tokens();
        let owed = self.pool_bytes.min(0).unsigned_abs();
        let advance = self.grant_bytes().saturating_sub(owed.saturating_add(tokens));
        let debt = (self.options.advance.0 * advance as f32) as u32;
        self.pool_bytes -= debt.min(advance) as i32;
        self.free_bytes += advance.max(self.least_bytes().saturating_sub(tokens));
    }

    /// The engine holds a flow that learns its noise at few packets, whose tokens come back. Then the first window goes
    /// out over all paths, a small one where there is a queue.
    #[cold]
    fn learn(&mut self, ack: &AckSample) {
        self.refill_at = Tick::of(ack.now);
        if !self.pipe.has_learned() {
            self.set_share(1.0);
            let back = self.free_bytes.saturating_add(small(ack.acked_bytes));
            self.free_bytes = back.min(self.grant_bytes());
            return;
        }
        self.flags |= BEGUN;
        let late_ns = self.smooth_ns - self.pipe.typical_rtt_ns();
        self.set_share((1.0 - late_ns / self.slack_ns).max(BEGIN_MIN));
        (self.free_bytes, self.pool_bytes) = (0, 0);
        self.restart(ack.now);
        self.restart_interval(ack.now);
    }

    fn next_in_turn(&mut self) -> u16 {
        if self.turn == self.shunned {
            self.turn = self.turn_after();
        }
        let path = self.turn;
        self.turn = self.turn_after();
        path
    }

    fn turn_after(&self) -> u16 {
        let next = self.turn + 1;
        if next < self.paths { next } else { 0 }
    }
}

impl Controller for Udmp {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.in_flight_bytes = small(sent.in_flight_bytes);
        if sent.in_flight_bytes <= u64::from(sent.bytes) {
            self.restart(sent.now);
        }
        let mut rest = small(sent.bytes.into());
        if let Some(clock) = &mut self.clock {
            rest = clock.take(rest);
        }
        let free = rest.min(self.free_bytes);
        self.free_bytes -= free;
        if rest > free {
            // The engine allows one packet without a token.
            let filled = self.pool_bytes - (rest - free) as i32;
            self.pool_bytes = filled.max(-(self.window_bytes as i32));
        }
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        self.in_flight_bytes = small(ack.in_flight_bytes);
        let Some(rtt_ns) = ack.rtt_ns else {
            self.on_ack_without_sample(ack);
            return;
        };
        let rtt_ns = short_f32(rtt_ns);
        // A lone packet is a whole window's sample.
        let is_lone = ack.in_flight_bytes == 0;
        let elapsed_ns = if is_lone { f32::MAX } else { self.refill_at.ns_until(ack.now) };
        self.sample(rtt_ns, elapsed_ns);
        if self.flags & BEGUN == 0 {
            self.learn(ack);
            return;
        }
        let excess_bytes = self.refill(ack.now);
        if self.pool_bytes > 0 {
            self.clock(ack, rtt_ns - self.smooth_ns);
        }
        if excess_bytes > 0 {
            self.overflow(ack, excess_bytes);
        }
        self.control(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.in_flight_bytes = small(loss.in_flight_bytes);
        self.refill(loss.now);
        let window = loss.in_flight_bytes.saturating_add(loss.bytes.into()).max(1) as f32;
        let part = self.options.loss.0 * loss.bytes as f32 / window;
        self.set_share(self.share * (1.0 - part).max(KEEP_MIN));
        if loss.kind != LossKind::Trim {
            self.shunned = loss.path;
        }
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.in_flight_bytes = small(timeout.in_flight_bytes);
        self.refill(timeout.now);
        self.set_share(self.share * KEEP_MIN);
        self.forget_paths();
    }

    fn window_bytes(&self) -> u64 {
        let mut allowed = u64::from(self.in_flight_bytes) + u64::from(self.allowance_bytes());
        if self.in_flight_bytes == 0 {
            // A restart gives as much.
            allowed = allowed.max(self.least_bytes().into());
        }
        allowed.min(self.window_bytes.into()).max(u64::from(self.datagram_bytes))
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        // Acknowledgements clock the rest.
        let unclocked = self.free_bytes > 0 && self.clocked_bytes() == 0;
        unclocked.then(|| ((PACE * self.rate() * SECOND as f32) as u64).max(1))
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        match self.clock.as_ref().and_then(|clock| clock.first()) {
            Some((path, _)) if self.flags & EXPLORE == 0 => path,
            _ => {
                self.flags &= !EXPLORE;
                self.next_in_turn()
            }
        }
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: (self.low_ns() - self.pipe.base_rtt_ns()).max(0.0) as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths,
        }
    }
}
