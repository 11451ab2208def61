//! Choosing paths (entropies), shared by the controllers.

use super::{Loss, LossKind};
use crate::units::Nanos;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Most paths of a flow.
pub const PATHS_MAX: u16 = 256;

/// A uniform path below `paths`.
#[must_use]
pub fn uniform(rng: &mut Pcg32, paths: u16) -> u16 {
    ((u64::from(rng.next_u32()) * u64::from(paths)) >> 32) as u16
}

/// A generator from a flow's seed.
#[must_use]
pub fn rng(seed: u64) -> Pcg32 {
    Pcg32::seed_from_u64(seed)
}

/// Time for which a path with losses of its own is left alone, in typical round trips.
const LEFT_RTTS: Nanos = 32;
/// Time for which a loss is remembered, in typical round trips. Losses that all paths share, one in so many packets,
/// then cost an eighth of a path at most; more frequent ones show that they are shared.
const LOSS_MEMORY_RTTS: Nanos = 256;
/// Losses of packets sent closer together than this, in typical round trips, count as one overflow.
const OVERFLOW_RTTS: Nanos = 4;
/// Longest span that counts, in us: 67 s, of the 71 minutes after which times wrap.
const SPAN_MOST_US: u32 = 1 << 26;

/// No path has this number.
const NO_PATH: u16 = u16::MAX;

/// Leaves a path alone that loses packets while the others lose none. Two losses in a row on different paths count as
/// shared, and no path is left alone for them: after an overflow as long as a path would be, otherwise as long as
/// losses are remembered. Times are in us and wrap after 71 minutes: an expired one may by chance count once more, for
/// 67 s at most.
#[derive(Clone, Copy, Debug)]
pub struct LossyPath {
    /// Time at which the newest loss became known, and send time of the lost packet.
    lost_at_us: u32,
    sent_at_us: u32,
    /// Until then a path is left alone or, without one, losses count as shared.
    until_us: u32,
    /// The path of the newest loss; none at first.
    lost: u16,
    /// Path that is left alone, if any.
    left: u16,
}

impl Default for LossyPath {
    fn default() -> Self {
        LossyPath { lost_at_us: 0, sent_at_us: 0, until_us: 0, lost: NO_PATH, left: NO_PATH }
    }
}

impl LossyPath {
    /// Takes a loss, on a flow of this typical round trip. A payload that was cut off means a queue.
    pub fn on_loss(&mut self, loss: &Loss, rtt_ns: Nanos) {
        if loss.kind == LossKind::Trim {
            return;
        }
        let rtts =
            |count: Nanos| (count.saturating_mul(rtt_ns) / 1_000).min(SPAN_MOST_US.into()) as u32;
        let (now_us, sent_at_us) = (us(loss.now), us(loss.sent_at));
        let is_known = self.lost != NO_PATH;
        let is_fresh = is_known && now_us.wrapping_sub(self.lost_at_us) < rtts(LOSS_MEMORY_RTTS);
        let is_shared = is_known && self.left == NO_PATH && !self.is_over(loss.now);
        if is_fresh && self.lost != loss.path {
            let apart_us = (sent_at_us.wrapping_sub(self.sent_at_us) as i32).unsigned_abs();
            let is_overflow = apart_us < rtts(OVERFLOW_RTTS);
            let until_us =
                now_us.wrapping_add(rtts(if is_overflow { LEFT_RTTS } else { LOSS_MEMORY_RTTS }));
            if !is_shared || until_us.wrapping_sub(self.until_us) as i32 > 0 {
                self.until_us = until_us;
            }
            self.left = NO_PATH;
        } else if !is_shared {
            self.until_us = now_us.wrapping_add(rtts(LEFT_RTTS));
            self.left = loss.path;
        }
        (self.lost_at_us, self.sent_at_us, self.lost) = (now_us, sent_at_us, loss.path);
    }

    /// Takes a timeout. Nothing arrives at all: another path may heal first.
    pub fn on_timeout(&mut self) {
        self.left = NO_PATH;
        self.until_us = self.lost_at_us;
    }

    /// Whether a path should not be used now.
    #[must_use]
    pub fn is_left(&self, now: Nanos, path: u16) -> bool {
        self.was_left(path) && self.left(now).is_some()
    }

    /// Whether a path was left alone lately: only such a path can be [`LossyPath::is_left`]. Most were not, and this is
    /// one comparison.
    #[must_use]
    #[inline(always)]
    pub fn was_left(&self, path: u16) -> bool {
        self.left == path
    }

    /// The path that should not be used now.
    #[must_use]
    pub fn left(&self, now: Nanos) -> Option<u16> {
        (self.left != NO_PATH && !self.is_over(now)).then_some(self.left)
    }

    fn is_over(&self, now: Nanos) -> bool {
        !(1..=SPAN_MOST_US).contains(&self.until_us.wrapping_sub(us(now)))
    }
}

/// In us; see [`LossyPath`] about wrapping.
fn us(at: Nanos) -> u32 {
    (at / 1_000) as u32
}

/// Oblivious spray, except for a [`LossyPath`].
#[derive(Clone, Debug)]
pub struct Uniform {
    rng: Pcg32,
    lossy: LossyPath,
    paths: u16,
}

impl Uniform {
    /// A spray over so many paths, at least one.
    #[must_use]
    pub fn new(rng: Pcg32, paths: u16) -> Uniform {
        Uniform { rng, lossy: LossyPath::default(), paths: paths.max(1) }
    }

    /// Number of paths.
    #[must_use]
    pub fn paths(&self) -> u16 {
        self.paths
    }

    /// Random bits.
    pub fn bits(&mut self) -> u32 {
        self.rng.next_u32()
    }

    /// A path at random, each with the same probability, except the one that is left alone.
    #[inline(never)]
    pub fn next(&mut self, now: Nanos) -> u16 {
        match self.lossy.left(now) {
            Some(left) if self.paths > 1 => {
                let path = uniform(&mut self.rng, self.paths - 1);
                path + u16::from(path >= left)
            }
            _ => uniform(&mut self.rng, self.paths),
        }
    }

    /// `path`, or one at random if that is left alone.
    #[inline(always)]
    pub fn keep(&mut self, now: Nanos, path: u16) -> u16 {
        if self.lossy.was_left(path) { self.check(now, path) } else { path }
    }

    #[inline(never)]
    fn check(&mut self, now: Nanos, path: u16) -> u16 {
        if self.lossy.is_left(now, path) { self.next(now) } else { path }
    }

    /// See [`LossyPath::on_loss`].
    pub fn on_loss(&mut self, loss: &Loss, rtt_ns: f32) {
        self.lossy.on_loss(loss, rtt_ns as Nanos);
    }

    /// See [`LossyPath::on_timeout`].
    pub fn on_timeout(&mut self) {
        self.lossy.on_timeout();
    }
}

/// One bit a path, at most 256 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathBits([u64; 4]);

impl PathBits {
    /// Whether a path's bit is set.
    #[must_use]
    pub fn get(&self, path: u16) -> bool {
        self.0[usize::from(path >> 6) & 3] >> (path & 63) & 1 == 1
    }

    /// Sets a path's bit.
    #[inline]
    pub fn set(&mut self, path: u16, on: bool) {
        let word = &mut self.0[usize::from(path >> 6) & 3];
        *word = *word & !(1 << (path & 63)) | u64::from(on) << (path & 63);
    }

    /// The first path from `from` on, below `paths`, whose bit is not set. Reads four words at most, and mostly one.
    #[must_use]
    pub fn first_clear(&self, from: u16, paths: u16) -> Option<u16> {
        let mut mask = u64::MAX << (from & 63);
        for (at, word) in self.0.iter().enumerate().skip(usize::from(from >> 6)) {
            let clear = !word & mask;
            if clear != 0 {
                let path = (at as u16) << 6 | clear.trailing_zeros() as u16;
                return (path < paths).then_some(path);
            }
            mask = u64::MAX;
        }
        None
    }

    #[cfg(test)]
    /// Number of bits set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Round robin over the unmarked paths (STrack, algorithm 3; the same as the Ultra Ethernet simulator's bitmap): a mark
/// makes it skip the path once.
#[derive(Clone, Copy, Debug, Default)]
pub struct EcnBitmap {
    skip: PathBits,
    next: u16,
}

impl EcnBitmap {
    /// Takes an acknowledgement's news of a path.
    pub fn on_ack(&mut self, path: u16, marked: bool) {
        self.skip.set(path, marked);
    }

    /// The next path below `paths`, which is at least 1. One packet clears one bit only, that of
    /// the first path that it skips.
    #[inline]
    pub fn next(&mut self, paths: u16) -> u16 {
        let first = if self.next < paths { self.next } else { self.next % paths };
        let path = if self.skip.get(first) { self.skip(first, paths) } else { first };
        self.next = path + 1;
        path
    }

    /// The next path behind a marked one. When all are marked, a whole round ends at the first,
    /// which is clear by then.
    fn skip(&mut self, first: u16, paths: u16) -> u16 {
        self.skip.set(first, false);
        let behind = self.skip.first_clear(first + 1, paths);
        behind.or_else(|| self.skip.first_clear(0, paths)).unwrap_or(first)
    }

    /// Continues the round behind `path`, which was chosen otherwise.
    pub fn resume_after(&mut self, path: u16) {
        self.next = path.wrapping_add(1);
    }
}

/// Entropies that came back unmarked (REPS: recycled entropy packet spraying).
const REPS_SLOTS: usize = 8;

/// REPS: uses entropies again whose packets came back unmarked, the oldest first; without one, it explores a random
/// path. While a loss is fresh, it uses the cached ones again and again instead (freezing), so it explores no dead
/// path.
#[derive(Clone, Debug, Default)]
pub struct Reps {
    /// A ring.
    cached: [u8; REPS_SLOTS],
    /// Numbers of those that came back, and of those used again or overwritten, wrapping. The second may lag behind
    /// until the next use.
    came: u32,
    used: u32,
    frozen_until: Nanos,
}

impl Reps {
    /// Takes an acknowledgement's news of a path.
    #[inline]
    pub fn on_ack(&mut self, path: u16, marked: bool) {
        if marked {
            return;
        }
        self.cached[self.came as usize % REPS_SLOTS] = path as u8;
        self.came = self.came.wrapping_add(1);
    }

    /// Freezes after a timeout or a loss: some path may be dead.
    pub fn freeze(&mut self, until: Nanos) {
        self.frozen_until = until;
    }

    /// The unused path that came back unmarked the longest ago, at most `last_path`.
    #[inline]
    pub fn recycle(&mut self, last_path: u8) -> Option<u16> {
        let mut oldest = self.used;
        let fresh = self.came.wrapping_sub(oldest);
        if fresh == 0 {
            return None;
        }
        if fresh > REPS_SLOTS as u32 {
            oldest = self.came.wrapping_sub(REPS_SLOTS as u32);
        }
        self.used = oldest.wrapping_add(1);
        Some(self.cached(oldest, last_path))
    }

    fn cached(&self, at: u32, last_path: u8) -> u16 {
        let path = self.cached[at as usize % REPS_SLOTS];
        u16::from(if path <= last_path { path } else { last_path })
    }

    /// The next path up to `last_path` when there is none to recycle.
    #[must_use]
    pub fn explore(&self, now: Nanos, rng: &mut Pcg32, last_path: u8) -> u16 {
        // Slots that hold a path: all but at the beginning, and by chance after 2^32 paths.
        let filled = self.came.min(REPS_SLOTS as u32);
        if now < self.frozen_until && filled > 0 {
            let back = u32::from(uniform(rng, filled as u16)) + 1;
            return self.cached(self.came.wrapping_sub(back), last_path);
        }
        uniform(rng, u16::from(last_path) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Nanos = 10_000;

    fn lose(lossy: &mut LossyPath, rtts: Nanos, path: u16) {
        let (now, kind) = (rtts * RTT, LossKind::Nack);
        let loss = Loss { now, sent_at: now, bytes: 1, path, kind, in_flight_bytes: 0 };
        lossy.on_loss(&loss, RTT);
    }

    fn is_left(lossy: &LossyPath, rtts: Nanos) -> bool {
        lossy.left(rtts * RTT).is_some()
    }

    #[test]
    fn a_path_that_alone_loses_is_left_for_a_while() {
        let mut lossy = LossyPath::default();
        for (lost, until) in [(100, 132), (120, 152), (300, 332), (784, 816)] {
            lose(&mut lossy, lost, 7);
            assert_eq!(lossy.left(lost * RTT), Some(7));
            assert!(is_left(&lossy, until - 1) && !is_left(&lossy, until), "{lost}");
        }
    }

    #[test]
    fn losses_everywhere_leave_nothing() {
        let mut lossy = LossyPath::default();
        lose(&mut lossy, 100, 0);
        for n in 1..1_000 {
            lose(&mut lossy, 100 + 7 * n, (n % 8) as u16);
            assert!(!is_left(&lossy, 100 + 7 * n), "{n}");
        }
        // Two in a row on one path by chance do not change that.
        lose(&mut lossy, 7_100, 3);
        lose(&mut lossy, 7_110, 3);
        assert!(!is_left(&lossy, 7_110));
    }

    #[test]
    fn an_overflow_is_forgotten_sooner() {
        let mut lossy = LossyPath::default();
        for path in 0..8 {
            lose(&mut lossy, 100, path);
        }
        assert!(!is_left(&lossy, 100));
        lose(&mut lossy, 500, 3);
        assert!(is_left(&lossy, 500));
        // And what another path loses later takes it back.
        lose(&mut lossy, 510, 4);
        assert!(!is_left(&lossy, 510));
    }

    #[test]
    fn a_payload_cut_off_leaves_no_path_and_silence_takes_all_back() {
        let mut lossy = LossyPath::default();
        let (now, kind) = (RTT, LossKind::Trim);
        lossy.on_loss(&Loss { now, sent_at: 0, bytes: 1, path: 1, kind, in_flight_bytes: 0 }, RTT);
        assert!(!is_left(&lossy, 1));
        lose(&mut lossy, 1, 1);
        assert!(is_left(&lossy, 2));
        lossy.on_timeout();
        assert!(!is_left(&lossy, 2));
    }

    #[test]
    fn the_spray_is_even_over_the_paths_that_are_not_left() {
        let mut spray = Uniform::new(rng(1), 4);
        let kind = LossKind::Nack;
        let loss = Loss { now: RTT, sent_at: 0, bytes: 1, path: 1, kind, in_flight_bytes: 0 };
        spray.on_loss(&loss, RTT as f32);
        let mut counts = [0; 4];
        for _ in 0..3_000 {
            counts[usize::from(spray.next(2 * RTT))] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!([0, 2, 3].iter().all(|&path| (900..1_100).contains(&counts[path])), "{counts:?}");
        // The only path there is stays in use.
        let mut single = Uniform::new(rng(1), 1);
        single.on_loss(&Loss { path: 0, ..loss }, RTT as f32);
        assert_eq!(single.next(2 * RTT), 0);
    }
}
