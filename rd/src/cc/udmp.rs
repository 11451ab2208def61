//! UDMP: delay as the one signal for rate and paths (docs/cc/udmp.md).
//!
//! The gradient of the average round trip sets a rate. The rate fills a byte pool. Each
//! acknowledgement may move bytes of the pool into the token pool, two packets, one or none, and
//! what it clocks goes out on its own path.

use super::paths;
use super::pipe::Pipe;
use super::settings::{Setting, defaults};
use super::{
    Ack, AckPolicy, Controller, FlowParams, Loss, LossDetection, Scheme, Sent, Timeout, View,
};
use crate::units::{Ecn, Nanos, SECOND};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

const T_HIGH: usize = 0;
const T_LOW: usize = 1;
const ALPHA: usize = 2;
const ADDITIVE: usize = 3;
const BETA: usize = 4;
const LOSS: usize = 5;
const DELTA: usize = 6;
const PROBE_US: usize = 7;
const RESERVE: usize = 8;
const SPREAD: usize = 9;
const COUNT: usize = 10;

/// The paper prints a value for `delta` alone; the others are justified in docs/cc/udmp.md.
const SETTINGS: [Setting; COUNT] = [
    Setting {
        name: "t_high",
        default: 3.0,
        min: 1.5,
        max: 50.0,
        help: "severe congestion above so many typical round trips (paper: Thigh)",
    },
    Setting {
        name: "t_low",
        default: 0.5,
        min: 0.0,
        max: 10.0,
        help: "no congestion up to so many typical round trips above one, or the noise",
    },
    Setting {
        name: "alpha",
        default: 1.0 / 8.0,
        min: 1.0 / 256.0,
        max: 0.5,
        help: "least weight of a sample in the average round trip (paper: alpha)",
    },
    Setting {
        name: "additive",
        default: 1.0 / 128.0,
        min: 0.0,
        max: 0.25,
        help: "increase per round trip below the low threshold, as a share of the line rate",
    },
    Setting {
        name: "beta",
        default: 0.8,
        min: 0.0,
        max: 1.0,
        help: "strength of the decrease per round trip above t_high (TIMELY: beta)",
    },
    Setting {
        name: "loss",
        default: 0.7,
        min: 0.1,
        max: 1.0,
        help: "what a round trip with losses leaves of the rate",
    },
    Setting {
        name: "delta",
        default: 64.0,
        min: 1.0,
        max: 65_535.0,
        help: "an acknowledgement so many packets behind the foremost clocks nothing (Fig. 7)",
    },
    Setting {
        name: "probe_us",
        default: 1_000.0,
        min: 10.0,
        max: 1e7,
        help: "a random path is tried once in so many microseconds, on average",
    },
    Setting {
        name: "reserve",
        default: 2.0,
        min: 0.0,
        max: 64.0,
        help: "packets that slow paths leave in the pool for faster ones (paper: 0)",
    },
    Setting {
        name: "spread",
        default: 1.0,
        min: 0.0,
        max: 1.0,
        help: "share of a second clocked packet that any path may carry (paper: 0)",
    },
];

/// The gradient's bound: a round trip cannot make the rate fall below half.
const GRADIENT_MAX: f32 = 0.5;
/// Greatest weight of a sample.
const ALPHA_MAX: f32 = 0.5;
/// Bytes in flight at most, in BDP: one on the wire and one as a queue.
const WINDOW_BDP: f32 = 2.0;
/// Parts of a BDP that one burst may take when no acknowledgement has clocked it.
const FREE_BURST_PARTS: f32 = 4.0;
/// Packets that the pools hold at least: an acknowledgement clocks two.
const POOL_PACKETS: f32 = 2.0;
/// The least rate is one datagram in so many typical round trips.
const FLOOR_RTTS: f32 = 8.0;
/// Of the severe threshold: so many times the noise above the low one.
const NOISE_FACTOR: f32 = 4.0;
/// A rate that was only learned from deliveries is exceeded by this factor, or it never rises.
const HEADROOM: f32 = 1.25;
/// Round trips of silence after which clocked credit says nothing about its path.
const IDLE_RTTS: f32 = 4.0;
/// A time is kept in units of 64 ns, so that 32 bits last for 4.5 minutes.
const TICK_SHIFT: u32 = 6;
/// Bound of all pools, whatever a broken clock tells.
const BDP_MAX: f32 = (1 << 30) as f32;
/// Tokens without a path are paced at so many times the rate: an engine that wakes late does not
/// catch up, so at the rate itself it would stay below.
const PACE: f32 = 2.0;
/// End of the queue of paths.
const NONE: u16 = u16::MAX;

/// Builds UDMP controllers.
#[derive(Clone, Debug)]
pub struct UdmpScheme {
    values: Arc<[f32; COUNT]>,
}

impl Default for UdmpScheme {
    fn default() -> Self {
        UdmpScheme { values: Arc::new(defaults(&SETTINGS)) }
    }
}

impl Scheme for UdmpScheme {
    fn name(&self) -> &'static str {
        "udmp"
    }

    fn ack_policy(&self) -> AckPolicy {
        AckPolicy::PerPacket
    }

    fn loss_detection(&self) -> LossDetection {
        LossDetection::Receiver
    }

    fn learns(&self) -> bool {
        true
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn values(&mut self) -> &mut [f32] {
        &mut Arc::make_mut(&mut self.values)[..]
    }

    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller> {
        Box::new(Udmp::new(params, seed, Arc::clone(&self.values)))
    }
}

/// One flow. Times are ns, sizes bytes, rates bytes per ns.
#[derive(Clone, Debug)]
struct Udmp {
    pipe: Pipe,
    rng: Pcg32,
    values: Arc<[f32; COUNT]>,
    /// What acknowledgements have clocked and was not sent yet, with its paths.
    credits: Option<Box<Credits>>,
    /// Rate as a share of the line rate, above 0 and at most 1.
    share: f32,
    /// Byte pool: what the rate has granted and no acknowledgement has clocked. Below 0, at least
    /// one BDP, while the first window's advance is not made up for.
    pool: f32,
    /// Average round trip over all paths; 0 before the first sample.
    smooth_ns: f32,
    /// The same at the last update.
    last_smooth_ns: f32,
    /// Tokens without a path: the first window, a restart, what no acknowledgement could clock.
    free_bytes: u32,
    in_flight_bytes: u32,
    /// Bytes that must still leave the flight before the next update.
    left_bytes: u32,
    refill_at: u32,
    update_at: u32,
    datagram_bytes: u32,
    paths: u16,
    /// The rate was cut for a loss since the last update.
    cut: bool,
    /// The next burst tries a random path.
    explore: bool,
}

fn ticks(now: Nanos) -> u32 {
    (now >> TICK_SHIFT) as u32
}

fn since_ns(now: Nanos, at: u32) -> f32 {
    (u64::from(ticks(now).wrapping_sub(at)) << TICK_SHIFT) as f32
}

fn small(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Udmp {
    fn new(params: &FlowParams, seed: u64, values: Arc<[f32; COUNT]>) -> Udmp {
        let now = ticks(params.now);
        let mut udmp = Udmp {
            pipe: Pipe::new(params),
            rng: paths::rng(seed),
            values,
            credits: None,
            share: 1.0,
            pool: 0.0,
            smooth_ns: 0.0,
            last_smooth_ns: 0.0,
            free_bytes: 0,
            in_flight_bytes: 0,
            left_bytes: 0,
            refill_at: now,
            update_at: now,
            datagram_bytes: params.datagram_bytes.max(1),
            paths: params.paths.max(1),
            cut: false,
            explore: false,
        };
        udmp.free_bytes = udmp.bdp() as u32;
        udmp
    }

    fn line(&self) -> f32 {
        let headroom = if self.pipe.learns_rate() { HEADROOM } else { 1.0 };
        self.pipe.bytes_per_ns() * headroom
    }

    fn pool_least(&self) -> f32 {
        POOL_PACKETS * self.datagram_bytes as f32
    }

    /// Bound of the token pool.
    fn bdp(&self) -> f32 {
        (self.line() * self.pipe.typical_rtt_ns()).max(self.pool_least()).min(BDP_MAX)
    }

    /// Bound of the byte pool: what the rate grants in a round trip, at most one BDP.
    fn pool_most(&self) -> f32 {
        (self.share * self.line() * self.pipe.typical_rtt_ns()).max(self.pool_least()).min(BDP_MAX)
    }

    fn t_low_ns(&self) -> f32 {
        let typical = self.pipe.typical_rtt_ns();
        typical + self.pipe.noise_ns().max(self.values[T_LOW] * typical)
    }

    fn t_high_ns(&self) -> f32 {
        let floor = self.t_low_ns() + NOISE_FACTOR * self.pipe.noise_ns();
        (self.values[T_HIGH] * self.pipe.typical_rtt_ns()).max(floor)
    }

    fn clocked_bytes(&self) -> u32 {
        self.credits.as_ref().map_or(0, |credits| credits.total_bytes())
    }

    fn tokens(&self) -> f32 {
        self.clocked_bytes() as f32 + self.free_bytes as f32
    }

    /// What the next burst may take: the oldest credit's, so that no path sends another's share.
    /// Credits smaller than a datagram join, or they would block those behind them.
    fn allowance_bytes(&self) -> u32 {
        let Some((_, first_bytes)) = self.credits.as_ref().and_then(|c| c.first()) else {
            let part = (self.bdp() / FREE_BURST_PARTS) as u32;
            return self.free_bytes.min(part.max(self.datagram_bytes));
        };
        if first_bytes >= self.datagram_bytes {
            return first_bytes;
        }
        self.clocked_bytes().saturating_add(self.free_bytes).min(self.datagram_bytes)
    }

    fn set_share(&mut self, share: f32) {
        let floor = self.datagram_bytes as f32
            / (FLOOR_RTTS * self.pipe.typical_rtt_ns() * self.line()).max(1.0);
        self.share = share.min(1.0).max(floor.min(1.0));
    }

    /// The average follows each sample (algorithm 1, line 18), faster when few are in flight.
    fn sample(&mut self, ack: &Ack, rtt_ns: f32) {
        if self.smooth_ns == 0.0 {
            (self.smooth_ns, self.last_smooth_ns) = (rtt_ns, rtt_ns);
            self.restart_interval(ack.now);
            return;
        }
        let window = ack.in_flight_bytes.saturating_add(ack.acked_bytes).max(1) as f32;
        let weight = (ack.acked_bytes as f32 / window).max(self.values[ALPHA]).min(ALPHA_MAX);
        self.smooth_ns += weight * (rtt_ns - self.smooth_ns);
    }

    /// Fills the byte pool (line 20, before clocking). Returns what does not fit.
    fn refill(&mut self, now: Nanos) -> f32 {
        let most = self.pool_most();
        let added = self.share * self.line() * since_ns(now, self.refill_at);
        let excess = (self.pool + added - most).max(0.0).min(added);
        self.pool = (self.pool + added).min(most);
        self.refill_at = ticks(now);
        excess
    }

    /// How many packets one acknowledged packet clocks (algorithm 2).
    fn grade(&self, ack: &Ack) -> u32 {
        // A queue of one round trip on one path must not look like a lost order.
        let window = self.bdp() / self.datagram_bytes as f32;
        if ack.lag_packets as f32 > self.values[DELTA].max(window) {
            return 0;
        }
        // Without a sample the acknowledgement says nothing about its path.
        let Some(rtt_ns) = ack.rtt_ns else { return 1 };
        let rtt_ns = rtt_ns as f32;
        if rtt_ns < self.smooth_ns && !ack.app_limited {
            return 2;
        }
        u32::from(rtt_ns < self.smooth_ns + self.pipe.base_rtt_ns())
    }

    /// What an acknowledgement of this grade leaves in the pool, so that slow paths give way to
    /// faster ones while the pool is short.
    fn reserve(&self, ack: &Ack, grade: u32) -> f32 {
        if grade != 1 || ack.app_limited || ack.rtt_ns.is_none() {
            return 0.0;
        }
        self.values[RESERVE] * self.datagram_bytes as f32
    }

    /// Moves bytes from the pool to the acknowledgement's path. `excess_bytes` is what the pool
    /// did not hold: the clock is too slow for the rate, so it is handed out beside it.
    fn clock(&mut self, ack: &Ack, excess_bytes: f32) {
        if ack.acked_bytes == 0 {
            return;
        }
        let packets = ack.acked_packets.max(1);
        let size = (ack.acked_bytes as f32 / packets as f32).max(1.0);
        let grade = self.grade(ack);
        let room = (self.bdp() - self.tokens()).max(0.0);
        let kept = self.reserve(ack, grade);
        // One byte more: a pool filled for exactly one packet must not miss it by rounding.
        let afford = (((self.pool - kept).min(room) + 1.0).max(0.0) / size) as u32;
        let clocked = packets.saturating_mul(grade).min(afford) as f32 * size;
        self.pool = self.pool.min((self.pool - clocked).max(0.0));
        let mut extra = 0.0;
        if !ack.app_limited && self.smooth_ns <= self.t_high_ns() {
            extra = excess_bytes.min((room - clocked).max(0.0));
        }
        let mut own = clocked.min(packets as f32 * size);
        own += (clocked - own) * (1.0 - self.values[SPREAD]);
        if grade == 0 || ack.path >= self.paths {
            own = 0.0;
        }
        self.free_bytes += (clocked - own + extra) as u32;
        if own >= 1.0 {
            let credits = self.credits.get_or_insert_with(|| Box::new(Credits::new(self.paths)));
            credits.push(ack.path, own as u32);
        }
    }

    /// Algorithm 1, lines 22 to 37.
    fn control(&mut self, ack: &Ack) {
        let (typical, high) = (self.pipe.typical_rtt_ns(), self.t_high_ns());
        let mut share = self.share;
        if self.smooth_ns > high {
            share = share.min(typical / self.smooth_ns);
        }
        let elapsed_ns = since_ns(ack.now, self.update_at);
        let due = self.smooth_ns > 0.0 && self.left_bytes == 0 && elapsed_ns >= typical;
        if due {
            let gradient = (self.smooth_ns - self.last_smooth_ns) / elapsed_ns;
            share = self.updated(share, gradient, ack.app_limited);
            self.last_smooth_ns = self.smooth_ns;
            self.cut = false;
            self.restart_interval(ack.now);
            self.draw_exploration();
        }
        self.set_share(share);
    }

    /// The share after one round trip with this gradient.
    fn updated(&self, share: f32, gradient: f32, app_limited: bool) -> f32 {
        let gradient = gradient.clamp(-GRADIENT_MAX, GRADIENT_MAX);
        let high = self.t_high_ns();
        if self.smooth_ns > high {
            return share * (1.0 - self.values[BETA] * (1.0 - high / self.smooth_ns));
        }
        let low = self.smooth_ns <= self.t_low_ns();
        if gradient > 0.0 && !low {
            return share - gradient * share;
        }
        if app_limited {
            return share;
        }
        let additive = if low { self.values[ADDITIVE] } else { 0.0 };
        // All flows see the same gradient: together they may take what eq. 3 says is spare.
        share + additive + (-gradient).max(0.0) * share.min(1.0 - share)
    }

    fn restart_interval(&mut self, now: Nanos) {
        self.update_at = ticks(now);
        self.left_bytes = self.in_flight_bytes;
    }

    /// Once per round trip: with a probability of base round trip over probe interval, the next
    /// burst leaves its path.
    fn draw_exploration(&mut self) {
        let probability = self.pipe.base_rtt_ns() / (self.values[PROBE_US] * 1e3);
        let draw = self.rng.next_u32() as f32 / u32::MAX as f32;
        self.explore |= draw < probability;
    }

    /// Losses cut the rate once per interval. The interval starts anew, so that other packets
    /// of the same window do not cut again.
    fn cut(&mut self, now: Nanos) {
        if !self.cut {
            self.set_share(self.share * self.values[LOSS]);
            self.restart_interval(now);
            self.cut = true;
        }
    }

    /// Nothing was in flight: no acknowledgement will clock, so the pool becomes tokens.
    fn restart(&mut self, now: Nanos) {
        let idle = IDLE_RTTS * self.smooth_ns.max(self.pipe.typical_rtt_ns());
        if since_ns(now, self.refill_at) > idle {
            self.forget_paths();
        }
        self.refill(now);
        let moved = self.pool.min(self.bdp() - self.tokens()).max(0.0);
        self.pool -= moved;
        self.free_bytes += moved as u32;
    }

    /// Credit stays, its paths do not.
    fn forget_paths(&mut self) {
        if let Some(credits) = &mut self.credits {
            self.free_bytes = self.free_bytes.saturating_add(credits.clear());
        }
    }
}

impl Controller for Udmp {
    fn on_sent(&mut self, sent: &Sent) {
        self.in_flight_bytes = small(sent.in_flight_bytes);
        if sent.in_flight_bytes <= u64::from(sent.bytes) {
            self.restart(sent.now);
        }
        let mut rest = sent.bytes;
        if let Some(credits) = &mut self.credits {
            rest = credits.take(rest);
        }
        let free = rest.min(self.free_bytes);
        self.free_bytes -= free;
        // The engine allows one packet without a token.
        self.pool = self.pool.min((self.pool - (rest - free) as f32).max(0.0));
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.pipe.on_ack(ack);
        self.in_flight_bytes = small(ack.in_flight_bytes);
        self.left_bytes = self.left_bytes.saturating_sub(small(ack.acked_bytes));
        if let Some(rtt_ns) = ack.rtt_ns {
            self.sample(ack, rtt_ns as f32);
        }
        let excess_bytes = self.refill(ack.now);
        if self.pipe.has_learned() {
            self.clock(ack, excess_bytes);
        } else {
            // The first window is an advance on the rate of one round trip, over all paths.
            self.pool = -self.bdp();
            self.free_bytes = self.bdp() as u32;
        }
        self.control(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.in_flight_bytes = small(loss.in_flight_bytes);
        self.left_bytes = self.left_bytes.saturating_sub(loss.bytes);
        self.refill(loss.now);
        self.cut(loss.now);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.in_flight_bytes = small(timeout.in_flight_bytes);
        self.refill(timeout.now);
        self.cut(timeout.now);
        self.forget_paths();
    }

    fn window_bytes(&self) -> u64 {
        let allowed = u64::from(self.in_flight_bytes) + u64::from(self.allowance_bytes());
        let most = (WINDOW_BDP * self.bdp()) as u64;
        allowed.min(most).max(u64::from(self.datagram_bytes))
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        // Acknowledgements clock the rest.
        let unclocked = self.free_bytes > 0 && self.clocked_bytes() == 0;
        unclocked.then(|| ((PACE * self.share * self.line() * SECOND as f32) as u64).max(1))
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        if self.paths == 1 {
            return 0;
        }
        let clocked = self.credits.as_ref().and_then(|credits| credits.first());
        match clocked {
            Some((path, _)) if !self.explore => path,
            _ => {
                self.explore = false;
                paths::uniform(&mut self.rng, self.paths)
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
            target_ns: (self.t_low_ns() - self.pipe.base_rtt_ns()) as Nanos,
            bdp_bytes: self.bdp() as u64,
            paths: 0,
        }
    }
}

/// What acknowledgements have clocked on one path. It is in the queue while it has credit.
#[derive(Clone, Copy, Debug)]
struct Slot {
    bytes: u32,
    /// Path behind it in the queue.
    next: u16,
}

/// A queue of paths with the bytes each may send. A path is queued once, so that the queue is
/// never longer than the number of paths.
#[derive(Clone, Debug)]
struct Credits {
    slots: Box<[Slot]>,
    total_bytes: u32,
    head: u16,
    tail: u16,
}

impl Credits {
    fn new(paths: u16) -> Credits {
        let slots = vec![Slot { bytes: 0, next: NONE }; usize::from(paths)].into_boxed_slice();
        Credits { slots, total_bytes: 0, head: NONE, tail: NONE }
    }

    fn total_bytes(&self) -> u32 {
        self.total_bytes
    }

    /// The path that waits longest, and its bytes.
    fn first(&self) -> Option<(u16, u32)> {
        self.slots.get(usize::from(self.head)).map(|slot| (self.head, slot.bytes))
    }

    /// Adds credit to a path below the path count.
    fn push(&mut self, path: u16, bytes: u32) {
        if bytes == 0 {
            return;
        }
        self.total_bytes += bytes;
        let slot = &mut self.slots[usize::from(path)];
        slot.bytes += bytes;
        if slot.bytes == bytes {
            self.append(path);
        }
    }

    fn append(&mut self, path: u16) {
        self.slots[usize::from(path)].next = NONE;
        match self.slots.get_mut(usize::from(self.tail)) {
            Some(last) => last.next = path,
            None => self.head = path,
        }
        self.tail = path;
    }

    /// Takes the bytes of a burst; returns what no credit covered. A path with more to send goes
    /// to the back, so that one path with steady credit does not hold up the others.
    fn take(&mut self, bytes: u32) -> u32 {
        let mut rest = bytes;
        while let Some((path, credit)) = self.first() {
            let taken = credit.min(rest);
            rest -= taken;
            self.total_bytes -= taken;
            let slot = &mut self.slots[usize::from(path)];
            slot.bytes -= taken;
            self.head = slot.next;
            if self.head == NONE {
                self.tail = NONE;
            }
            if credit > taken {
                self.append(path);
                break;
            }
            if rest == 0 {
                break;
            }
        }
        rest
    }

    /// Empties the queue; returns the bytes that were in it.
    fn clear(&mut self) -> u32 {
        let bytes = self.total_bytes;
        self.take(bytes);
        bytes
    }
}

#[cfg(test)]
mod tests;
