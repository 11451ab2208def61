//! How NSCC spreads its bursts over the paths.

use crate::cc::paths::{self, EcnBitmap, Reps};
use crate::units::{MILLISECOND, Nanos};
use alloc::boxed::Box;
use rand_pcg::Pcg32;

/// How long REPS stays with paths that work once one may be dead.
const FREEZE_NS: Nanos = 10 * MILLISECOND;

/// How bursts are spread, one variant for each value of `paths_by`. This is the path state; a flow
/// has it from its first burst over several paths on.
#[derive(Clone, Debug)]
pub(super) enum Spread {
    Oblivious(Pcg32),
    Reps(Reps, Pcg32),
    Bitmap(EcnBitmap),
    /// Recycled paths first; without one, the next that was not marked.
    Mixed(Box<(Reps, EcnBitmap)>),
}

impl Spread {
    /// The way that a value of `paths_by` names.
    pub(super) fn new(paths_by: f32, seed: u64) -> Spread {
        match paths_by as u8 {
            0 => Spread::Reps(Reps::default(), paths::rng(seed)),
            1 => Spread::Oblivious(paths::rng(seed)),
            2 => Spread::Bitmap(EcnBitmap::default()),
            _ => Spread::Mixed(Box::default()),
        }
    }

    /// An acknowledgement or a loss told of a path.
    pub(super) fn told(&mut self, path: u16, bad: bool) {
        match self {
            Spread::Oblivious(_) => {}
            Spread::Reps(reps, _) => reps.on_ack(path, bad),
            Spread::Bitmap(bitmap) => bitmap.on_ack(path, bad),
            Spread::Mixed(both) => {
                both.0.on_ack(path, bad);
                both.1.on_ack(path, bad);
            }
        }
    }

    /// A path may be dead.
    pub(super) fn freeze(&mut self, now: Nanos) {
        if let Spread::Reps(reps, _) = self {
            reps.freeze(now.saturating_add(FREEZE_NS));
        }
    }

    /// The next burst's path, at most `last_path`.
    #[inline(always)]
    pub(super) fn next(&mut self, now: Nanos, last_path: u8) -> u16 {
        if let Spread::Reps(reps, rng) = self {
            return match reps.recycle(last_path) {
                Some(path) => path,
                None => reps.explore(now, rng, last_path),
            };
        }
        self.next_of_others(last_path)
    }

    #[inline(never)]
    fn next_of_others(&mut self, last_path: u8) -> u16 {
        let paths = u16::from(last_path) + 1;
        match self {
            Spread::Oblivious(rng) | Spread::Reps(_, rng) => paths::uniform(rng, paths),
            Spread::Bitmap(bitmap) => bitmap.next(paths),
            Spread::Mixed(both) => match both.0.recycle(last_path) {
                Some(path) => path,
                None => both.1.next(paths),
            },
        }
    }
}
