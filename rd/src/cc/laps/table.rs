//! LAPS' path table (the paper's PIT): the state of each path, and the weighted choice.

use crate::cc::options::Count;
use crate::cc::paths::{self, PATHS_MAX};
use crate::cc::pipe::{greater, lesser};
use crate::cc::stamp::Stamp;
use crate::cc::{AckSample, Loss, LossKind};
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::vec;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Weight of the fastest path.
const FULL: u16 = u16::MAX;
/// Unit of [`Path::at`], as a power of two in ns. 32 bits of it wrap after 549 s: a path that was
/// idle so long may then be probed late, by one interval.
const TICK_SHIFT: u32 = 7;
type Tick = Stamp<TICK_SHIFT>;
/// Unit of [`Path::sent`]: 4 us. Comparisons hold for round trips up to 134 ms; beyond, a path may
/// count as idle while it is not, or the other way round, until its next sample.
const SENT_SHIFT: u32 = 12;
/// Unit of the ageing clock, as a power of two in ns: 1.07 s. 8 bits of it wrap after 275 s: after
/// an idle time near a multiple of it bases are not forgotten but age.
const AGE_SHIFT: u32 = 30;
/// Once in so many units, bases move half-way to the measured value.
const AGE_STEPS: u8 = 5;
const AGE_SHARE: f32 = 0.5;
/// Bases are dropped when so many units passed without that.
const FORGET_STEPS: u8 = 10;
/// Most doublings of a value: the interval of probes grows up to 1024 times.
const DOUBLINGS_MAX: u8 = 10;
/// Greatest value of a path: 1 s.
const REAL_MAX_NS: f32 = 1e9;
/// A path that is silent for less than this is not dead.
const DEAD_LEAST_NS: f32 = 1e6;
/// Paths checked for a stale one, per probe.
const LOOK_MOST: usize = 16;
/// Most draws until one is taken; after that the choice is by the sum of all weights.
const DRAWS_MOST: u32 = 4;
/// A sample this far below the least value, in margins, makes all weights be computed again.
const BELOW: f32 = 0.125;

/// Four times what a parabola through both ends of an octave lies below its chord, in 1 / 65,536: 0.344.
const SAG: u32 = 22_544;
/// Weight of a guess, as a power of two.
const GUESS_SHIFT: u32 = 4;

/// The path was measured.
const KNOWN: u8 = 1;
/// The path does not answer.
const DEAD: u8 = 2;
/// Something is probably in flight on it.
const WAITING: u8 = 4;
/// A loss doubled its value, and no sample came since.
const LOSSY: u8 = 8;

/// A span of 1 ns to 4 s in 16 bits: 5 of exponent, 11 of mantissa. Relative error 1/4096.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span(u16);

impl Span {
    const ONE_BITS: u32 = 127 << 23;

    fn new(ns: f32) -> Span {
        let bits = lesser(greater(ns, 1.0), 4e9).to_bits() - Span::ONE_BITS;
        Span(((bits + (1 << 11)) >> 12) as u16)
    }

    fn ns(self) -> f32 {
        f32::from_bits((u32::from(self.0) << 12) + Span::ONE_BITS)
    }
}

/// One path, 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Time since which it waits for an answer or, if it does not, of its last answer or probe.
    at: Tick,
    /// Least round trip: the paper's baseVal without its margin.
    base: Span,
    /// Round trip now, doubled by probes and losses: the paper's realVal.
    real: Span,
    /// Mean deviation of the samples.
    var: Span,
    /// Its share of the choice.
    weight: u16,
    /// Time of the last send on it.
    sent: u16,
    flags: u8,
    doublings: u8,
}

impl Path {
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn set(&mut self, flag: u8, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// True if its value is a measured one.
    fn is_measured(&self) -> bool {
        self.has(KNOWN) && !self.has(LOSSY) && self.doublings == 0
    }

    /// True if its value is a measured one, and it answers.
    fn is_alive(&self) -> bool {
        self.flags & (KNOWN | LOSSY | DEAD) == KNOWN && self.doublings == 0
    }

    /// True if nothing is known of it, good or bad.
    fn is_untried(&self) -> bool {
        !self.has(KNOWN) && !self.has(LOSSY) && self.doublings == 0
    }

    fn double(&mut self) {
        self.real = Span::new((2.0 * self.real.ns()).min(REAL_MAX_NS));
    }

    /// Doubles the value and with it the time to the next probe.
    fn back_off(&mut self) {
        if self.doublings < DOUBLINGS_MAX {
            self.doublings += 1;
            self.double();
        }
    }

    /// Longest time (ns) for an answer: srtt + 4 var.
    fn patience_ns(&self) -> f32 {
        self.real.ns() + 4.0 * self.var.ns()
    }

    fn die(&mut self, now: Nanos) {
        if !self.has(DEAD) {
            self.set(DEAD, true);
            self.at = Tick::of(now);
            self.back_off();
        }
        self.set(WAITING, false);
    }

    /// Lets the base follow a route that became longer, and drops that of a path that has gone.
    fn age(&mut self) {
        if self.has(DEAD) {
            self.set(KNOWN, false);
        } else if self.is_measured() {
            let (base, real) = (self.base.ns(), self.real.ns());
            self.base = Span::new(base + AGE_SHARE * (real - base).max(0.0));
        }
    }

    /// True if it is idle, and silent for longer than its value and `stale_ns`, doubled with each probe.
    fn is_stale(&self, now: Nanos, stale_ns: f32) -> bool {
        let least = stale_ns * (1u32 << self.doublings) as f32;
        !self.has(WAITING) && self.at.ns_until(now) > self.real.ns().max(least)
    }

    /// Takes a sample: down at once, up by half, so that one late packet is no queue. It replaces a guess. Returns the
    /// new value, in ns.
    #[inline(always)]
    fn take(&mut self, rtt_ns: f32) -> f32 {
        let mut real = rtt_ns;
        if self.is_alive() {
            let (before, var) = (self.real.ns(), self.var.ns());
            self.var = Span::new(var + 0.25 * ((rtt_ns - before).abs() - var));
            if rtt_ns > before {
                real = 0.5 * (before + rtt_ns);
            }
        } else {
            real = self.take_anew(real);
        }
        self.real = Span::new(real);
        if rtt_ns < self.base.ns() {
            self.base = Span::new(rtt_ns);
        }
        real
    }

    fn take_anew(&mut self, rtt_ns: f32) -> f32 {
        if !self.has(KNOWN) {
            self.base = Span::new(rtt_ns);
            self.var = Span::new(rtt_ns / 2.0);
        }
        let rises = self.is_measured() && rtt_ns > self.real.ns();
        self.set(KNOWN, true);
        self.set(DEAD | LOSSY, false);
        self.doublings = 0;
        if rises { (self.real.ns() + rtt_ns) / 2.0 } else { rtt_ns }
    }

    /// Equation 1 without its denominator; the least value is subtracted before `exp`, so that the fastest path has
    /// full weight and nothing underflows as a whole. A guess gets a sixteenth: it waits for its answer.
    fn weigh(&self, least_ns: f32, beta: f32) -> u16 {
        let weight = halve(beta * greater(self.real.ns() - least_ns, 0.0));
        if self.is_alive() {
            weight
        } else if self.has(DEAD) {
            0
        } else if self.is_untried() {
            FULL
        } else {
            weight >> GUESS_SHIFT
        }
    }
}

/// 1 halved so many times, within 0.4 %: 2^-x with a parabola in place of each octave, in units of 1 /
/// [`FULL`].
fn halve(times: f32) -> u16 {
    // 16 bits before the point, 16 behind.
    let left = (lesser(16.0 - times, 16.0) * 65_536.0) as u32;
    let (whole, part) = (left >> 16, left & 0xffff);
    let sag = (((part * (0x1_0000 - part)) >> 16) * SAG) >> 16;
    ((0x1_0000 + part - sag) >> (16 - whole)).min(FULL.into()) as u16
}

/// The present inputs to the choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChoiceTerms {
    /// The paper's beta, per ns, for powers of two.
    pub(super) beta: f32,
    /// Least silence of a stale path.
    pub(super) stale_ns: f32,
}

/// All paths of one peer. Round trips are compared as they are: their common part, one offset for
/// the peer, cancels out, and a longer path stays longer.
#[derive(Clone, Debug)]
pub(super) struct PathTable {
    /// Empty until first needed.
    slots: Box<[Path]>,
    rng: Pcg32,
    /// Last burst or sample.
    active_at: Tick,
    /// Least value at the last computation of the weights.
    least: Span,
    /// Greatest base of the paths that answer.
    longest: Span,
    /// The least base of all paths: the peer's one offset.
    shortest: Span,
    /// Queueing delay that counts as none.
    pub(super) margin_ns: f32,
    /// The path with the highest number.
    last: u8,
    aged_at: u8,
}

impl PathTable {
    /// `rtt_ns` is a first guess.
    pub(super) fn new(now: Nanos, paths: u16, rtt_ns: f32, seed: u64) -> PathTable {
        PathTable {
            slots: Box::default(),
            rng: paths::rng(seed),
            active_at: Tick::of(now),
            least: Span::new(rtt_ns),
            longest: Span::new(rtt_ns),
            shortest: Span::new(REAL_MAX_NS),
            margin_ns: 0.0,
            last: (paths.clamp(1, PATHS_MAX) - 1) as u8,
            aged_at: (now >> AGE_SHIFT) as u8,
        }
    }

    #[inline(never)]
    fn slots(&mut self, now: Nanos) -> &mut [Path] {
        if self.slots.is_empty() {
            let fresh = Path {
                at: Tick::of(now),
                base: self.least,
                real: self.least,
                var: Span::new(self.least.ns() / 2.0),
                weight: FULL,
                sent: 0,
                flags: 0,
                doublings: 0,
            };
            let paths = usize::from(self.last) + 1;
            self.slots = vec![fresh; paths].into_boxed_slice();
        }
        &mut self.slots
    }

    /// Greatest base round trip of the paths that answer.
    pub(super) fn longest_ns(&self) -> f32 {
        self.longest.ns()
    }

    /// The paper's T: the greatest base of the paths, with the margin.
    pub(super) fn threshold_ns(&self) -> f32 {
        self.longest_ns() + self.margin_ns
    }

    /// Number of paths that answer, as far as is known.
    pub(super) fn usable(&self) -> u16 {
        let dead = self.slots.iter().filter(|path| path.has(DEAD)).count() as u16;
        u16::from(self.last) + 1 - dead
    }

    /// Notes a burst sent on `path`. True if the flow had been idle for longer than the margin and the longest path.
    pub(super) fn on_sent(&mut self, now: Nanos, path: u16, alone: bool) -> bool {
        let idle = alone && self.active_at.ns_until(now) > self.threshold_ns();
        self.active_at = Tick::of(now);
        if self.slots.is_empty() {
            self.slots(now);
        }
        if let Some(path) = self.slots.get_mut(usize::from(path)) {
            path.sent = (now >> SENT_SHIFT) as u16;
            // The wait counts from the oldest burst: later ones do not prolong it.
            if !path.has(WAITING) {
                path.set(WAITING, true);
                path.at = Tick::of(now);
            }
        }
        idle
    }

    /// Allocates missing state and drops old state, before a sample. Rarely due: see [`PathTable::is_due`].
    #[inline(never)]
    pub(super) fn renew(&mut self, now: Nanos) {
        self.slots(now);
        self.forget(now);
    }

    /// Whether [`PathTable::renew`] has something to do.
    #[inline(always)]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        ((now >> AGE_SHIFT) as u8).wrapping_sub(self.aged_at) >= FORGET_STEPS
    }

    /// Takes a path's round trip in ns. Returns the round trip of the fastest path that it implies, for the estimates
    /// of the whole flow, and whether to weigh all paths again; `None` if there is no such path.
    #[inline(always)]
    pub(super) fn on_sample(
        &mut self,
        ack: &AckSample,
        rtt_ns: f32,
        beta: f32,
    ) -> Option<(f32, bool)> {
        self.active_at = Tick::of(ack.now);
        let least = self.least.ns();
        let path = self.slots.get_mut(usize::from(ack.path))?;
        let rtt = lesser(greater(rtt_ns, 1.0), REAL_MAX_NS);
        let real = path.take(rtt);
        path.weight = halve(beta * greater(real - least, 0.0));
        path.at = Tick::of(ack.now);
        if ((ack.sent_at >> SENT_SHIFT) as u16).wrapping_sub(path.sent) as i16 >= 0 {
            // Nothing newer is under way.
            path.set(WAITING, false);
        }
        if path.base.0 < self.shortest.0 {
            self.shortest = path.base;
        }
        let longer = path.base.ns() - self.shortest.ns();
        // Spans are rounded: the difference of two long ones must not look shorter than any path.
        let on_shortest = greater(rtt - longer, lesser(self.shortest.ns(), rtt));
        Some((on_shortest, real < least - BELOW * self.margin_ns))
    }

    /// Drops old measurements, which say nothing now.
    fn forget(&mut self, now: Nanos) {
        let aged = (now >> AGE_SHIFT) as u8;
        if aged.wrapping_sub(self.aged_at) < FORGET_STEPS {
            return;
        }
        self.aged_at = aged;
        self.shortest = Span::new(REAL_MAX_NS);
        for path in &mut self.slots {
            path.set(KNOWN, false);
        }
    }

    /// Takes a loss on a path. A path that answered since has a queue or an error. One that did not answer in its time
    /// is dead, which the loss confirms.
    pub(super) fn on_loss(&mut self, loss: &Loss, terms: &ChoiceTerms) {
        let Some(path) = self.slots(loss.now).get_mut(usize::from(loss.path)) else { return };
        let silent = matches!(loss.kind, LossKind::Nack | LossKind::Probe);
        let late = path.has(WAITING) && path.at.ns_until(loss.now) > path.patience_ns();
        if silent && late {
            path.die(loss.now);
        } else if !path.has(LOSSY) {
            path.set(LOSSY, true);
            path.double();
        }
        self.reweigh(loss.path, terms.beta);
    }

    /// Computes one path's weight.
    fn reweigh(&mut self, path: u16, beta: f32) {
        let least = self.least.ns();
        if let Some(path) = self.slots.get_mut(usize::from(path)) {
            path.weight = path.weigh(least, beta);
        }
    }

    /// Updates all paths: the silent ones, the least and greatest values, all weights. Returns the least measured
    /// value, in ns; infinite without one.
    pub(super) fn survey(&mut self, now: Nanos, terms: &ChoiceTerms, in_flight: bool) -> f32 {
        let (mut least, mut measured) = (f32::INFINITY, f32::INFINITY);
        let (mut shortest, mut longest) = (f32::INFINITY, 0.0_f32);
        let aged = (now >> AGE_SHIFT) as u8;
        let age = aged.wrapping_sub(self.aged_at) >= AGE_STEPS;
        for path in self.slots(now) {
            if !in_flight {
                path.set(WAITING, false);
            } else if path.has(WAITING)
                && path.at.ns_until(now) > path.patience_ns().max(DEAD_LEAST_NS)
            {
                path.die(now);
            }
            if age {
                path.age();
            }
            if path.has(KNOWN) {
                shortest = shortest.min(path.base.ns());
            }
            if path.has(DEAD) || !path.has(KNOWN) {
                continue;
            }
            if path.is_measured() {
                measured = measured.min(path.real.ns());
            }
            least = least.min(path.real.ns());
            longest = longest.max(path.base.ns());
        }
        if age {
            self.aged_at = aged;
        }
        if shortest.is_finite() {
            self.shortest = Span::new(shortest);
        }
        if least.is_finite() {
            (self.least, self.longest) = (Span::new(least), Span::new(longest));
        }
        self.weigh_all(terms.beta);
        measured
    }

    fn weigh_all(&mut self, beta: f32) {
        let least = self.least.ns();
        let all_dead = self.slots.iter().all(|path| path.has(DEAD));
        for path in &mut self.slots {
            path.weight = if all_dead { FULL } else { path.weigh(least, beta) };
        }
    }

    /// The next burst's path: one in `probe_every` may be a stale one, if there is one, else by weight. It calls
    /// `terms` only if needed.
    #[inline(always)]
    pub(super) fn next(
        &mut self,
        now: Nanos,
        probe_every: Count,
        terms: impl Fn(&PathTable) -> ChoiceTerms,
    ) -> u16 {
        if self.slots.len() <= 1 {
            if self.last == 0 {
                return 0;
            }
            self.slots(now);
        }
        let random = self.rng.next_u32();
        // The low bits decide whether to probe, the high ones choose the path otherwise.
        if ((random & 0xff) as f32) * probe_every.0 < 256.0
            && let Some(path) = self.probe(now, &terms(self))
        {
            return path;
        }
        match self.draw(random) {
            Some(path) => path,
            None => self.draw_on(terms(self)),
        }
    }

    /// A path at random, with the probability of its weight.
    #[inline(always)]
    fn draw(&self, random: u32) -> Option<u16> {
        let draw = u64::from(random) * self.slots.len() as u64;
        let path = self.slots.get((draw >> 32) as usize)?;
        ((draw as u32) >> 16 < path.weight.into()).then_some((draw >> 32) as u16)
    }

    /// Draws until one is taken: the same shares as by one draw from the sum of all weights, without that sum. After a
    /// few draws it uses the sum.
    #[inline(never)]
    fn draw_on(&mut self, terms: ChoiceTerms) -> u16 {
        for _ in 1..DRAWS_MOST {
            let random = self.rng.next_u32();
            if let Some(path) = self.draw(random) {
                return path;
            }
        }
        self.look_at_all(&terms)
    }

    /// A stale path, if there is one.
    #[inline(never)]
    fn probe(&mut self, now: Nanos, terms: &ChoiceTerms) -> Option<u16> {
        let path = self.find_stale(now, terms.stale_ns)?;
        let slot = &mut self.slots[usize::from(path)];
        slot.back_off();
        slot.at = Tick::of(now);
        self.reweigh(path, terms.beta);
        Some(path)
    }

    /// A path by its share of the sum of weights. If they are all low, their common scale is out of date.
    fn look_at_all(&mut self, terms: &ChoiceTerms) -> u16 {
        if self.total() < u32::from(FULL) / 4 {
            let usable = self.slots.iter().filter(|path| path.has(KNOWN) && !path.has(DEAD));
            let least = usable.map(|path| path.real).min_by_key(|real| real.0);
            self.least = least.unwrap_or(self.least);
            self.weigh_all(terms.beta);
        }
        let random = self.rng.next_u32();
        let mut left = ((u64::from(random) * u64::from(self.total())) >> 32) as u32;
        for (at, path) in self.slots.iter().enumerate() {
            match left.checked_sub(u32::from(path.weight)) {
                Some(rest) => left = rest,
                None => return at as u16,
            }
        }
        u16::from(self.last)
    }

    fn total(&self) -> u32 {
        self.slots.iter().map(|path| u32::from(path.weight)).sum()
    }

    fn find_stale(&mut self, now: Nanos, stale_ns: f32) -> Option<u16> {
        let paths = self.slots.len();
        let from = usize::from(paths::uniform(&mut self.rng, paths as u16));
        for step in 0..paths.min(LOOK_MOST) {
            let at = (from + step) % paths;
            if self.slots[at].is_stale(now, stale_ns) {
                return Some(at as u16);
            }
        }
        None
    }
}
