//! What came of a claim, and whether it is what the paper says.

use super::claims::{Claim, ClaimCase, ClaimFigure, Measure, Scale, Show};
use super::runs::ClaimRun;
use super::scenario::Column;
use super::watcher::WatchedPairs;
use serde::{Deserialize, Serialize};

/// A gain counts as the paper's from this part of it on, and a value as equal within this distance.
const TOLERANCE: f64 = 0.1;

/// What came of a claim.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimOutcome {
    /// At which size.
    pub size: Scale,
    /// A hash of all its scenarios.
    pub fingerprint: String,
    /// With each column's constants.
    pub columns: Vec<ColumnOutcome>,
}

/// What came of it with the constants of one column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnOutcome {
    /// Whose constants.
    pub column: Column,
    /// All comparisons.
    pub values: Vec<Value>,
    /// Runs of all arms: medians over the seeds.
    pub arms: Vec<ArmRun>,
    /// Runs that did not end.
    pub unended: Vec<String>,
    /// Runs that were faster than the network can be.
    pub too_fast: Vec<String>,
}

/// One comparison.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Work.
    pub case: String,
    /// With what the subject is compared; empty for its own value.
    pub against: String,
    /// As the claim shows it.
    pub value: f64,
}

/// How an arm fared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRun {
    /// Work.
    pub case: String,
    /// The arm's name; empty for the subject.
    pub arm: String,
    /// Medians, each of its own.
    pub median: ClaimRun,
}

/// Whether it is what the paper says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As the paper says, or better.
    Holds,
    /// In the same direction, and less of it.
    Less,
    /// Not at all, or the other way.
    Not,
    /// The paper gives no number.
    Open,
}

impl Measure {
    /// The value of a run.
    #[must_use]
    pub fn of(self, run: &ClaimRun) -> f64 {
        match self {
            Measure::MeanUs => run.mean_us,
            Measure::P99Us => run.p99_us,
            Measure::MaxUs => run.max_us,
            Measure::WholeUs => run.whole_us,
            Measure::Spread => run.max_us / run.least_us,
            Measure::WorstOverMean => run.max_us / run.mean_us,
            Measure::Trims => run.trims as f64,
            Measure::LatePercent => run.pairs.late_percent,
            Measure::FarLatePercent => run.pairs.far_late_percent,
            Measure::LateP99Packets => run.pairs.late_p99_packets,
            Measure::ShortestShare => run.pairs.shortest_share,
            Measure::GoodputGbps => run.goodput_gbps,
        }
    }
}

impl Show {
    /// The value that is shown of a subject and what it is compared with.
    #[must_use]
    pub fn of(self, measure: Measure, subject: &ClaimRun, against: Option<&ClaimRun>) -> f64 {
        let own = measure.of(subject);
        let other = against.map_or(f64::NAN, |run| measure.of(run));
        match self {
            Show::Own => own,
            // Nothing at all counts as one, so that the ratio stays a number.
            Show::Times if measure == Measure::Trims => other.max(1.0) / own.max(1.0),
            Show::Times => other / own,
            Show::Less => (1.0 - own / other) * 100.0,
            Show::LessUs => other - own,
            Show::More => (own / other - 1.0) * 100.0,
            Show::OverBound => (subject.whole_us / subject.bound_whole_us - 1.0) * 100.0,
        }
    }

    /// The value with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        let digits = if value.abs() < 10.0 { 2 } else { usize::from(value.abs() < 100.0) };
        let digits = if matches!(self, Show::Less | Show::More | Show::OverBound) {
            usize::from(value.abs() < 10.0)
        } else {
            digits
        };
        // No "-0".
        let scale = 10_f64.powi(digits as i32);
        let value = (value * scale).round() / scale + 0.0;
        match self {
            Show::Own => format!("{value:.digits$}"),
            Show::Times => format!("{value:.digits$}x"),
            Show::Less | Show::More | Show::OverBound => format!("{value:.digits$} %"),
            Show::LessUs => format!("{value:.digits$} us"),
        }
    }
}

impl ClaimFigure {
    /// The paper's number as text.
    #[must_use]
    pub fn text(self, show: Show) -> String {
        match self {
            ClaimFigure::UpTo(value) => format!("up to {}", show.text(value)),
            ClaimFigure::AtLeast(value) => format!("at least {}", show.text(value)),
            ClaimFigure::Range([from, to]) => format!("{} to {}", show.text(from), show.text(to)),
            ClaimFigure::Within(value) => format!("at most {}", show.text(value)),
            ClaimFigure::Equal(value) => format!("about {}", show.text(value)),
            ClaimFigure::Unstated => "-".to_owned(),
        }
    }

    /// What `values` say of it.
    #[must_use]
    pub fn verdict(self, show: Show, values: &[f64]) -> Verdict {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // A ratio of 1 is no gain.
        let none = if show == Show::Times { 1.0 } else { 0.0 };
        let gains = |ours: f64, paper: f64| {
            let needed = none + (paper - none) * (1.0 - TOLERANCE);
            match ours - none {
                _ if ours >= needed => Verdict::Holds,
                gain if gain > 0.0 => Verdict::Less,
                _ => Verdict::Not,
            }
        };
        match self {
            ClaimFigure::UpTo(value) => gains(most, value),
            ClaimFigure::AtLeast(value) => match gains(least, value) {
                Verdict::Not if most > none => Verdict::Less,
                verdict => verdict,
            },
            ClaimFigure::Range([from, to]) => match (gains(least, from), gains(most, to)) {
                (Verdict::Holds, Verdict::Holds) => Verdict::Holds,
                (Verdict::Not, Verdict::Not) => Verdict::Not,
                _ => Verdict::Less,
            },
            ClaimFigure::Within(value) if most <= value => Verdict::Holds,
            ClaimFigure::Equal(value)
                if [least, most].iter().all(|ours| (ours / value - 1.0).abs() <= TOLERANCE) =>
            {
                Verdict::Holds
            }
            ClaimFigure::Within(_) | ClaimFigure::Equal(_) => Verdict::Not,
            ClaimFigure::Unstated => Verdict::Open,
        }
    }
}

impl ColumnOutcome {
    /// The runs that went wrong.
    pub fn problems(&self) -> impl Iterator<Item = &String> {
        self.too_fast.iter().chain(&self.unended)
    }

    /// Compares the runs of a case. The runs of an arm are those of its seeds.
    pub fn add(
        &mut self,
        claim: &Claim,
        case: &ClaimCase,
        arms: &[(String, Vec<Result<ClaimRun, String>>)],
    ) {
        let mut medians = Vec::new();
        for (arm, runs) in arms {
            let mut good = Vec::new();
            for run in runs {
                let who = if arm.is_empty() { "the subject" } else { arm };
                match run {
                    Ok(run) => {
                        good.push(run.clone());
                        if let Some(what) = below_bound(run) {
                            self.too_fast.push(format!("{}, {who}: {what}", case.name));
                        }
                    }
                    Err(why) => self.unended.push(format!("{}, {who}: {why}", case.name)),
                }
            }
            medians.push((good.len() == runs.len()).then(|| median(&good)));
        }
        for ((arm, _), run) in arms.iter().zip(&medians) {
            if let Some(run) = run {
                let (case, arm) = (case.name.clone(), arm.clone());
                self.arms.push(ArmRun { case, arm, median: run.clone() });
            }
        }
        let (Some(measure), Some(show)) = (claim.measure, claim.show) else { return };
        let Some(Some(subject)) = medians.first() else { return };
        let mut push = |against: &str, run: Option<&ClaimRun>| {
            let value = (show.of(measure, subject, run) * 1e4).round() / 1e4;
            let (case, against) = (case.name.clone(), against.to_owned());
            self.values.push(Value { case, against, value });
        };
        if claim.against.is_empty() {
            push("", None);
        }
        for ((arm, _), run) in arms.iter().zip(&medians).skip(1) {
            if let Some(run) = run {
                push(arm, Some(run));
            }
        }
    }
}

/// A run that is faster than the network can be is a bug.
fn below_bound(run: &ClaimRun) -> Option<String> {
    let (mean, whole) = (run.mean_us / run.bound_mean_us, run.whole_us / run.bound_whole_us);
    // The times are rounded to picoseconds.
    (mean.min(whole) < 1.0 - 1e-6).then(|| {
        format!(
            "BELOW THE CAPACITY BOUND: mean {} us of at least {}, whole {} us of at least {}",
            run.mean_us, run.bound_mean_us, run.whole_us, run.bound_whole_us
        )
    })
}

/// The median of each value.
fn median(runs: &[ClaimRun]) -> ClaimRun {
    let of = |value: fn(&ClaimRun) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    ClaimRun {
        hosts: runs[0].hosts,
        least_us: of(|run| run.least_us),
        mean_us: of(|run| run.mean_us),
        p99_us: of(|run| run.p99_us),
        max_us: of(|run| run.max_us),
        whole_us: of(|run| run.whole_us),
        bound_mean_us: of(|run| run.bound_mean_us),
        bound_whole_us: of(|run| run.bound_whole_us),
        goodput_gbps: of(|run| run.goodput_gbps),
        data_packets: of(|run| run.data_packets as f64) as u64,
        repeats: of(|run| run.repeats as f64) as u64,
        repeats_spurious: of(|run| run.repeats_spurious as f64) as u64,
        trims: of(|run| run.trims as f64) as u64,
        drops: of(|run| run.drops as f64) as u64,
        timeouts: of(|run| run.timeouts as f64) as u64,
        marks: of(|run| run.marks as f64) as u64,
        pauses: of(|run| run.pauses as f64) as u64,
        pairs: WatchedPairs {
            late_percent: of(|run| run.pairs.late_percent),
            far_late_percent: of(|run| run.pairs.far_late_percent),
            late_p99_packets: of(|run| run.pairs.late_p99_packets),
            shortest_share: of(|run| run.pairs.shortest_share),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mean_us: f64, whole_us: f64) -> ClaimRun {
        ClaimRun {
            hosts: 2,
            least_us: mean_us,
            mean_us,
            p99_us: mean_us,
            max_us: whole_us,
            whole_us,
            bound_mean_us: 10.0,
            bound_whole_us: 20.0,
            goodput_gbps: 1.0,
            data_packets: 1,
            repeats: 0,
            repeats_spurious: 0,
            trims: 0,
            drops: 0,
            timeouts: 0,
            marks: 0,
            pauses: 0,
            pairs: WatchedPairs::default(),
        }
    }

    #[test]
    fn what_is_below_the_bound_is_told() {
        assert_eq!(below_bound(&run(10.0, 20.0)), None);
        assert!(below_bound(&run(9.9, 20.0)).is_some());
        assert!(below_bound(&run(10.0, 19.9)).is_some());
    }

    #[test]
    fn comparisons_have_the_direction_that_they_are_told_with() {
        let (fast, slow) = (run(10.0, 20.0), run(15.0, 25.0));
        let of = |show: Show| show.of(Measure::WholeUs, &fast, Some(&slow));
        assert_eq!((of(Show::Times), of(Show::LessUs)), (1.25, 5.0));
        assert!((of(Show::Less) - 20.0).abs() < 1e-9 && (of(Show::More) + 20.0).abs() < 1e-9);
        assert_eq!(Show::OverBound.of(Measure::WholeUs, &slow, None), 25.0);
    }

    #[test]
    fn a_claim_holds_from_nine_tenths_of_its_gain_on() {
        let verdict =
            |figure: ClaimFigure, show: Show, values: &[f64]| figure.verdict(show, values);
        assert_eq!(verdict(ClaimFigure::UpTo(50.0), Show::Less, &[3.0, 45.0]), Verdict::Holds);
        assert_eq!(verdict(ClaimFigure::UpTo(50.0), Show::Less, &[3.0, 44.0]), Verdict::Less);
        assert_eq!(verdict(ClaimFigure::UpTo(50.0), Show::Less, &[-3.0]), Verdict::Not);
        assert_eq!(verdict(ClaimFigure::UpTo(6.0), Show::Times, &[1.0]), Verdict::Not);
        assert_eq!(verdict(ClaimFigure::UpTo(6.0), Show::Times, &[5.5]), Verdict::Holds);
        assert_eq!(verdict(ClaimFigure::AtLeast(15.0), Show::Less, &[-1.0, 20.0]), Verdict::Less);
        let range = ClaimFigure::Range([15.0, 28.0]);
        assert_eq!(verdict(range, Show::Less, &[14.0, 40.0]), Verdict::Holds);
        assert_eq!(verdict(range, Show::Less, &[1.0, 40.0]), Verdict::Less);
        assert_eq!(verdict(range, Show::Less, &[-2.0, 0.0]), Verdict::Not);
        assert_eq!(verdict(ClaimFigure::Within(6.0), Show::OverBound, &[7.0]), Verdict::Not);
        assert_eq!(verdict(ClaimFigure::Equal(1.65), Show::Own, &[1.6]), Verdict::Holds);
    }
}
