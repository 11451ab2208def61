//! Runs of one scenario that differ in scheme, paths, trimming or seed, on several threads. Each run has one thread and
//! builds its own network, so the results are the same on any number of them.

use crate::experiment::Experiment;
use crate::fabric::least::LeastTimes;
use crate::patterns::bound::Bound;
use crate::read::ReadError;
use crate::read::scenario::{Prepared, ScenarioFile};
use crate::report::{Group, SchemeRun};
use crate::schemes::NameError;
use crate::series::sampler::Sampler;
use erd_rd::config::PATHS_MAX;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most runs of one comparison: the samples of each take up to a megabyte.
pub const RUNS_MAX: usize = 1024;

/// A scenario's text, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// What errors call it.
    pub file: &'a str,
    /// Its text.
    pub text: &'a str,
    /// Where paths of files start.
    pub dir: &'a Path,
}

/// What a run has instead of what the scenario says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Case {
    /// Another scheme, as NAME or NAME:PROFILE. The scenario's settings are those of its own scheme.
    pub scheme: Option<String>,
    /// Another number of paths.
    pub paths: Option<u16>,
    /// Switches drop where they would trim.
    pub untrimmed: bool,
    /// Another seed.
    pub seed: Option<u64>,
}

/// Why a case cannot be run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum CaseError {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] ReadError),
    /// There is no such scheme.
    #[error(transparent)]
    Scheme(#[from] NameError),
    /// There cannot be so many paths.
    #[error("expected 1 to {PATHS_MAX} paths, found {0}")]
    Paths(u16),
    /// They are too many.
    #[error("expected at most {RUNS_MAX} runs, found {0}")]
    Runs(usize),
}

/// What came of a case: a run, or why it was not done in time.
pub type Compared = Result<Box<SchemeRun>, String>;

impl Origin<'_> {
    /// The scenario as it is written.
    ///
    /// # Errors
    /// Something is wrong with it.
    pub fn read(&self) -> Result<ScenarioFile, ReadError> {
        ScenarioFile::read(self.file, self.text)
    }

    /// Builds what a case runs.
    ///
    /// # Errors
    /// Something is wrong with the scenario or the case.
    pub fn prepare(&self, case: &Case) -> Result<Prepared, CaseError> {
        let mut file = self.read()?;
        file.seed = case.seed.unwrap_or(file.seed);
        let mut prepared = file.prepare(self.dir)?;
        let engines = &mut prepared.engines;
        if let Some(name) = &case.scheme {
            engines.choose(name)?;
        }
        if let Some(paths) = case.paths {
            if !(1..=PATHS_MAX).contains(&paths) {
                return Err(CaseError::Paths(paths));
            }
            engines.paths = paths;
        }
        if case.untrimmed {
            engines.trimming = false;
            Arc::make_mut(&mut prepared.plan).change_links(|link| link.trimming = false);
        }
        Ok(prepared)
    }

    fn run(&self, case: &Case) -> Result<Compared, CaseError> {
        let prepared = self.prepare(case)?;
        let bound = bound_of(&prepared);
        let Prepared { plan, work, engines, failures, seed, limit_ps, .. } = prepared;
        let experiment = Experiment { plan, work, engines, seed, threads: 1 };
        let mut sampler = Sampler::default();
        let run = experiment.run_observed(limit_ps, &failures, &mut sampler);
        Ok(run.map_err(|why| format!("seed {seed}: {why}")).map(|(results, mut fabric)| {
            Box::new(SchemeRun::of(seed, &results, &bound, sampler.finish(&mut fabric)))
        }))
    }

    /// Runs cases, so many at once, and gives the outcomes in their order. `done` is told of each.
    ///
    /// # Errors
    /// Something is wrong with the scenario or a case; of several errors that of the first case.
    pub fn run_all(
        &self,
        cases: &[Case],
        jobs: usize,
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<Compared>, CaseError> {
        if cases.len() > RUNS_MAX {
            return Err(CaseError::Runs(cases.len()));
        }
        let next = AtomicUsize::new(0);
        let outcomes: Vec<Mutex<Option<Result<Compared, CaseError>>>> =
            cases.iter().map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, cases.len().max(1)) {
                scope.spawn(|| {
                    while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed))
                        && let Some(case) = cases.get(at)
                    {
                        let outcome = self.run(case);
                        *outcomes[at].lock().unwrap_or_else(PoisonError::into_inner) =
                            Some(outcome);
                        done();
                    }
                });
            }
        });
        let taken = outcomes.into_iter().map(|outcome| {
            outcome.into_inner().unwrap_or_else(PoisonError::into_inner).expect("each case ran")
        });
        taken.collect()
    }

    /// Runs every scheme with every seed. Each scheme is a group.
    ///
    /// # Errors
    /// As [`Origin::run_all`].
    pub fn matrix(
        &self,
        schemes: &[String],
        seeds: &[u64],
        jobs: usize,
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<Group>, CaseError> {
        let case = |scheme: &String, seed: &u64| Case {
            scheme: Some(scheme.clone()),
            seed: Some(*seed),
            ..Case::default()
        };
        let cases: Vec<Case> = schemes
            .iter()
            .flat_map(|scheme| seeds.iter().map(move |seed| case(scheme, seed)))
            .collect();
        let outcomes = self.run_all(&cases, jobs, done)?;
        Ok(groups(schemes, outcomes, seeds.len()))
    }
}

/// The least times of a scenario's work over its network, with the packets of what its hosts speak.
#[must_use]
pub fn bound_of(prepared: &Prepared) -> Bound {
    let Prepared { plan, work, cuts, .. } = prepared;
    let times = LeastTimes::new(plan);
    Bound::within(work, &prepared.link(), cuts, |from, to, bytes| times.ps(from, to, bytes))
}

/// Groups of so many outcomes each.
pub(crate) fn groups(names: &[String], outcomes: Vec<Compared>, each: usize) -> Vec<Group> {
    let mut outcomes = outcomes.into_iter();
    let group = |name: &String| {
        let mut group = Group { name: name.clone(), runs: Vec::new(), unfinished: Vec::new() };
        for outcome in outcomes.by_ref().take(each) {
            match outcome {
                Ok(run) => group.runs.push(*run),
                Err(why) => group.unfinished.push(why),
            }
        }
        group
    };
    names.iter().map(group).collect()
}
