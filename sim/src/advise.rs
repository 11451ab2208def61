//! Advice for a network and its work: runs candidates (schemes, numbers of paths, trimming on and off) over a scenario, and
//! chooses one by a fixed rule. Of the candidates that were done in time with every seed, each step of [`STEPS`] keeps those
//! within a tolerance of the best; then the candidate with the fewest paths is chosen, of several the first one.

use crate::compare::{Case, CaseError, Origin, groups};
use crate::report::Group;
use crate::report::figures::{Figure, MAX, MEAN, P99, QUEUE, REPEATS};
use serde::Serialize;
use std::fmt;

/// What a step of the rule compares. Of several seeds the median counts, and of the greatest completion time the worst.
pub struct Step {
    /// The number.
    pub figure: Figure,
    /// Share of the best value by which others may be worse.
    pub tolerance: f64,
    /// What others may be worse by in any case, in the figure's unit.
    pub least: f64,
    /// The worst of the seeds counts.
    pub worst: bool,
}

/// The rule: tails first, for they hold up jobs; then the mean; then what the scheme costs the network.
pub const STEPS: &[Step] = &[
    Step { figure: P99, tolerance: 0.03, least: 0.0, worst: false },
    Step { figure: MEAN, tolerance: 0.03, least: 0.0, worst: false },
    Step { figure: MAX, tolerance: 0.03, least: 0.0, worst: true },
    Step { figure: REPEATS, tolerance: 0.1, least: 0.1, worst: false },
    Step { figure: QUEUE, tolerance: 0.1, least: 1.0, worst: false },
];

/// Numbers of paths that the second round tries with the best schemes of the first one.
const PATHS: [u16; 5] = [1, 4, 16, 64, 256];
/// Schemes that go on to the second round.
const FINALISTS: usize = 3;
/// What erd uses between hosts unless it is told otherwise.
const DEFAULT: (&str, u16) = ("nscc", 4);

/// Something that could be chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Candidate {
    /// Scheme.
    pub scheme: String,
    /// Path numbers.
    pub paths: u16,
    /// Switches trim; `None` if they cannot.
    pub trimming: Option<bool>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}, {} path{}",
            self.scheme,
            self.paths,
            if self.paths == 1 { "" } else { "s" }
        )?;
        match self.trimming {
            Some(true) => write!(out, ", trimming"),
            Some(false) => write!(out, ", no trimming"),
            None => Ok(()),
        }
    }
}

/// See the module.
pub struct Advice {
    /// Every candidate with its runs, the chosen one first, the others in the order in which the rule left them out, last
    /// ones first.
    pub candidates: Vec<(Candidate, Group)>,
    /// A sentence for each step until one candidate is left.
    pub reasons: Vec<String>,
}

/// Why there is no advice.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum AdviceError {
    /// The scenario or a scheme is wrong.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// Nothing was done in time.
    #[error("no candidate finished; a larger limit_ms may help. {0}")]
    Unfinished(String),
}

/// What is asked for.
pub struct Question<'a> {
    /// The scenario.
    pub source: Origin<'a>,
    /// Schemes to try.
    pub schemes: &'a [String],
    /// Seeds to try each with.
    pub seeds: &'a [u64],
    /// Runs at once.
    pub jobs: usize,
}

impl Question<'_> {
    /// Runs the candidates and chooses. `plan` is told how many runs there will be, `done` of each.
    ///
    /// # Errors
    /// Something is wrong with the scenario, or nothing was done in time.
    pub fn answer(
        &self,
        plan: &dyn Fn(usize),
        done: &(dyn Fn() + Sync),
    ) -> Result<Advice, AdviceError> {
        let prepared = self.source.prepare(&Case::default())?;
        let (paths, trims) = (prepared.engines.paths, prepared.engines.trimming.then_some(true));
        drop(prepared);
        let candidate =
            |scheme: &str, paths| Candidate { scheme: scheme.to_owned(), paths, trimming: trims };
        let mut first: Vec<Candidate> =
            self.schemes.iter().map(|scheme| candidate(scheme, paths)).collect();
        let default = candidate(DEFAULT.0, DEFAULT.1);
        if self.schemes.iter().any(|scheme| scheme == DEFAULT.0) && !first.contains(&default) {
            first.push(default);
        }
        let most = FINALISTS.min(first.len()) * PATHS.len() * if trims.is_some() { 2 } else { 1 };
        plan((first.len() + most) * self.seeds.len());
        let mut all = self.run(first, done)?;
        let (order, _) = chosen(&all)?;
        let mut finalists: Vec<String> = Vec::new();
        for at in order {
            let scheme = &all[at].0.scheme;
            if finalists.len() < FINALISTS && !finalists.contains(scheme) {
                finalists.push(scheme.clone());
            }
        }
        let trimmings: &[Option<bool>] =
            if trims.is_some() { &[Some(true), Some(false)] } else { &[None] };
        let mut second = Vec::new();
        for scheme in finalists {
            for (paths, trimming) in
                PATHS.iter().flat_map(|paths| trimmings.iter().map(move |trim| (*paths, *trim)))
            {
                let candidate = Candidate { scheme: scheme.clone(), paths, trimming };
                if all.iter().all(|(known, _)| *known != candidate) {
                    second.push(candidate);
                }
            }
        }
        all.extend(self.run(second, done)?);
        let (order, reasons) = chosen(&all)?;
        let mut left: Vec<Option<(Candidate, Group)>> = all.into_iter().map(Some).collect();
        let candidates = order.into_iter().filter_map(|at| left[at].take()).collect();
        Ok(Advice { candidates, reasons })
    }

    fn run(
        &self,
        candidates: Vec<Candidate>,
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<(Candidate, Group)>, CaseError> {
        let case = |candidate: &Candidate, seed: u64| Case {
            scheme: Some(candidate.scheme.clone()),
            paths: Some(candidate.paths),
            untrimmed: candidate.trimming == Some(false),
            seed: Some(seed),
        };
        let cases: Vec<Case> = candidates
            .iter()
            .flat_map(|candidate| self.seeds.iter().map(move |seed| case(candidate, *seed)))
            .collect();
        let names: Vec<String> = candidates.iter().map(Candidate::to_string).collect();
        let outcomes = self.source.run_all(&cases, self.jobs, done)?;
        let groups = groups(&names, outcomes, self.seeds.len());
        Ok(candidates.into_iter().zip(groups).collect())
    }
}

/// Places of the candidates, the best one first, and a sentence for each step.
fn chosen(all: &[(Candidate, Group)]) -> Result<(Vec<usize>, Vec<String>), AdviceError> {
    let is_done = |at: &usize| all[*at].1.unfinished.is_empty() && !all[*at].1.runs.is_empty();
    let (mut kept, late): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(is_done);
    if kept.is_empty() {
        let why = all.iter().flat_map(|(_, group)| group.unfinished.first()).next();
        return Err(AdviceError::Unfinished(why.cloned().unwrap_or_default()));
    }
    let mut reasons = Vec::new();
    if !late.is_empty() {
        reasons.push(format!("{} of {} candidates were not done in time", late.len(), all.len()));
    }
    let mut left_out = late;
    for step in STEPS {
        if kept.len() == 1 {
            break;
        }
        let value = |at: &usize| step.value(&all[*at].1);
        kept.sort_by(|a, b| value(a).total_cmp(&value(b)));
        let best = kept[0];
        let most = (value(&best) * (1.0 + step.tolerance)).max(value(&best) + step.least);
        let (near, mut worse): (Vec<usize>, Vec<usize>) =
            kept.iter().partition(|at| value(at) <= most);
        reasons.push(format!(
            "{}: {} is the best, with {} ({} of {} candidates are near it)",
            step.figure.name,
            step.figure.text(Some(value(&best))),
            all[best].0,
            near.len(),
            kept.len()
        ));
        worse.append(&mut left_out);
        (kept, left_out) = (near, worse);
    }
    kept.sort_by_key(|at| (all[*at].0.paths, *at));
    kept.append(&mut left_out);
    Ok((kept, reasons))
}

impl Step {
    /// What counts of a group's runs.
    fn value(&self, group: &Group) -> f64 {
        let worst = || group.runs.iter().filter_map(self.figure.of).fold(0.0, f64::max);
        if self.worst { worst() } else { self.figure.median(group).unwrap_or(0.0) }
    }
}
