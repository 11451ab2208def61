//! The parameters of NSCC and SMaRTT.

use crate::cc::settings::Setting;

pub(super) const TARGET: usize = 0;
pub(super) const TARGET_TRIM: usize = 1;
pub(super) const MAX_WINDOW: usize = 2;
pub(super) const FAIR: usize = 3;
pub(super) const PROPORTIONAL: usize = 4;
pub(super) const STEADY: usize = 5;
pub(super) const FAST: usize = 6;
pub(super) const DECREASE: usize = 7;
pub(super) const GAIN: usize = 8;
pub(super) const QA_SHARE: usize = 9;
pub(super) const QA_DELAY: usize = 10;
pub(super) const PATHS_BY: usize = 11;
pub(super) const COUNT: usize = 12;

const fn setting(
    name: &'static str,
    (default, min, max): (f32, f32, f32),
    help: &'static str,
) -> Setting {
    Setting { name, default, min, max, help }
}

/// The parameters; the arguments are where the schemes differ.
const fn table(
    target: f32,
    target_trim: f32,
    fair: f32,
    proportional: f32,
    steady: f32,
    fast: f32,
) -> [Setting; COUNT] {
    [
        setting(
            "target",
            (target, 0.05, 10.0),
            "queueing delay aimed at, in typical round trips, noise apart",
        ),
        setting("target_trim", (target_trim, 0.05, 10.0), "the same where switches trim"),
        setting("max_window", (1.5, 1.0, 8.0), "greatest window, in BDP (paper III-J)"),
        setting("fair", (fair, 0.0, 100.0), "fair increase a round trip, in packets times a"),
        setting(
            "proportional",
            (proportional, 0.0, 100.0),
            "proportional increase a round trip without a queue, in packets times a",
        ),
        setting(
            "steady",
            (steady, 0.0, 10.0),
            "increase a round trip in any case, in packets times a",
        ),
        setting(
            "fast",
            (fast, 0.0, 2.0),
            "fast increase, bytes per byte acknowledged; nscc: times a",
        ),
        setting("decrease", (0.8, 0.05, 1.0), "factor of the multiplicative decrease (equation 1)"),
        setting("gain", (0.0125, 0.0001, 1.0), "weight of one packet in the average delay"),
        setting(
            "qa_share",
            (0.125, 0.0, 1.0),
            "QuickAdapt only below this share of the greatest window; smartt: without trimming",
        ),
        setting("qa_delay", (4.0, 1.0, 100.0), "QuickAdapt above this delay, in targets"),
        setting("paths_by", (0.0, 0.0, 3.0), "0 REPS, 1 oblivious, 2 ECN bitmap, 3 mixed"),
    ]
}

pub(super) static NSCC: [Setting; COUNT] = table(0.6, 0.75, 2.0, 4.0, 0.3, 0.25);
pub(super) static SMARTT: [Setting; COUNT] = table(0.5, 0.5, 5.0, 1.0, 0.0, 2.0);
