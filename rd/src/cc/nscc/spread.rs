//! Spreading of NSCC's bursts over the paths.

use crate::cc::Loss;
use crate::cc::options::Choice;
use crate::cc::paths::{self, EcnBitmap, LossyPath, Reps};
use crate::units::{MILLISECOND, Nanos};
use alloc::boxed::Box;
use rand_pcg::Pcg32;

/// Time for which REPS stays with working paths once one may be dead.
const FREEZE_NS: Nanos = 10 * MILLISECOND;

/// Most choices in place of a path that is left alone.
const CHOICES: u32 = 8;

/// The path state; a flow has it from its first burst over several paths on.
#[derive(Clone, Debug)]
pub(super) struct PathSpread {
    way: Way,
    lossy: LossyPath,
}

/// How bursts are spread, one variant for each value of `paths_by`.
#[derive(Clone, Debug)]
enum Way {
    Oblivious(Pcg32),
    Reps(Reps, Pcg32),
    Bitmap(EcnBitmap),
    /// Recycled paths first; without one, the next that was not marked.
    Mixed(Box<(Reps, EcnBitmap)>),
}

impl PathSpread {
    /// The way that a value of `paths_by` names.
    pub(super) fn new(paths_by: Choice, seed: u64) -> PathSpread {
        let way = match paths_by.number() {
            0 => Way::Reps(Reps::default(), paths::rng(seed)),
            1 => Way::Oblivious(paths::rng(seed)),
            2 => Way::Bitmap(EcnBitmap::default()),
            _ => Way::Mixed(Box::default()),
        };
        PathSpread { way, lossy: LossyPath::default() }
    }

    /// Whether it is REPS.
    pub(super) fn is_reps(&self) -> bool {
        matches!(self.way, Way::Reps(..))
    }

    /// Takes the news of a path from an acknowledgement or a loss.
    pub(super) fn told(&mut self, path: u16, bad: bool) {
        match &mut self.way {
            Way::Oblivious(_) => {}
            Way::Reps(reps, _) => reps.on_ack(path, bad),
            Way::Bitmap(bitmap) => bitmap.on_ack(path, bad),
            Way::Mixed(both) => {
                both.0.on_ack(path, bad);
                both.1.on_ack(path, bad);
            }
        }
    }

    /// The same for REPS, without a check for other ways: 124 instructions for each packet. With [`PathSpread::told`]
    /// it takes 149, and 138 where that checks for REPS first and calls a function for the others (`cargo xtask cost`,
    /// 8 paths).
    #[inline(always)]
    pub(super) fn tell_reps(&mut self, path: u16, bad: bool) {
        if let Way::Reps(reps, _) = &mut self.way {
            reps.on_ack(path, bad);
        }
    }

    /// Takes paths in turn, as the bitmap does, in place of REPS.
    pub(super) fn take_turns(&mut self) {
        if self.is_reps() {
            self.way = Way::Bitmap(EcnBitmap::default());
        }
    }

    /// Notes that a packet sent on a path vanished.
    pub(super) fn lost(&mut self, loss: &Loss, rtt_ns: f32) {
        self.lossy.on_loss(loss, rtt_ns as Nanos);
    }

    /// Notes that nothing arrives at all.
    pub(super) fn on_timeout(&mut self, now: Nanos) {
        self.lossy.on_timeout();
        self.freeze(now);
    }

    /// Notes that a path may be dead.
    pub(super) fn freeze(&mut self, now: Nanos) {
        if let Way::Reps(reps, _) = &mut self.way {
            reps.freeze(now.saturating_add(FREEZE_NS));
        }
    }

    /// The next burst's path, at most `last_path`.
    #[inline(always)]
    pub(super) fn next(&mut self, now: Nanos, last_path: u8) -> u16 {
        // Most paths are recycled. All other cases end in a call, so that no register must be saved.
        if let Way::Reps(reps, _) = &mut self.way
            && let Some(path) = reps.recycle(last_path)
        {
            return if self.lossy.was_left(path) { self.check(now, path, last_path) } else { path };
        }
        self.next_unusual(now, last_path)
    }

    #[inline(never)]
    fn next_unusual(&mut self, now: Nanos, last_path: u8) -> u16 {
        let path = self.choose(now, last_path);
        if self.lossy.was_left(path) { self.check(now, path, last_path) } else { path }
    }

    /// `left`, or another path if that one is left alone now.
    #[inline(never)]
    fn check(&mut self, now: Nanos, left: u16, last_path: u8) -> u16 {
        if !self.lossy.is_left(now, left) {
            return left;
        }
        for _ in 0..CHOICES {
            let path = self.choose(now, last_path);
            if path != left {
                return path;
            }
        }
        if left < last_path.into() { left + 1 } else { 0 }
    }

    fn choose(&mut self, now: Nanos, last_path: u8) -> u16 {
        let paths = u16::from(last_path) + 1;
        match &mut self.way {
            Way::Oblivious(rng) => paths::uniform(rng, paths),
            Way::Reps(reps, rng) => match reps.recycle(last_path) {
                Some(path) => path,
                None => reps.explore(now, rng, last_path),
            },
            Way::Bitmap(bitmap) => bitmap.next(paths),
            Way::Mixed(both) => match both.0.recycle(last_path) {
                Some(path) => path,
                None => both.1.next(paths),
            },
        }
    }
}
