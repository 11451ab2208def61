//! Reproduces the papers' claims: runs each with the paper's constants and with the product's, compares, and writes what
//! came of it (docs/reproduction.md).
//!
//! `sim/claims` says what is claimed and under which constants ([`claims`]). Each run is a scenario as a file could have
//! it ([`scenario`]). A run that is faster than the network can be, or that does not end, is a problem, and the command fails.

pub mod claims;
pub mod command;
pub mod outcome;
pub mod page;
pub mod runs;
pub mod scenario;
pub mod watcher;

use anyhow::Context;
use claims::{Arm, Book, Claim, ClaimCase, Scale};
use outcome::{ClaimOutcome, ColumnOutcome};
use runs::{Runs, fnv};
use scenario::Column;
use std::collections::BTreeMap;
use std::path::Path;

/// What came of each claim, by its name.
pub type Outcomes = BTreeMap<String, ClaimOutcome>;

/// The runs of a claim.
struct Plan<'a> {
    column: Column,
    case: &'a ClaimCase,
    /// Of the subject first: a name, and a text for each seed.
    arms: Vec<(&'a str, Vec<String>)>,
}

impl Book {
    /// The claims that are run at a size and whose name contains `only`.
    pub fn selected(&self, size: Scale, only: &str) -> impl Iterator<Item = &Claim> {
        let runs = move |claim: &&Claim| claim.cases.iter().any(|case| case.sizes.contains(&size));
        self.claims().filter(move |claim| claim.id.contains(only)).filter(runs)
    }

    /// Runs a claim on so many threads. `note` hears how many runs of how many have ended.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn reproduce(
        &self,
        claim: &Claim,
        size: Scale,
        (runs, jobs): (&mut Runs, usize),
        note: impl FnMut(usize, usize),
    ) -> anyhow::Result<ClaimOutcome> {
        let plans = self.plans(claim, size)?;
        let texts: Vec<String> = texts(&plans).cloned().collect();
        runs.add(&texts, jobs, note)?;
        let empty = |column| ColumnOutcome {
            column,
            values: Vec::new(),
            arms: Vec::new(),
            unended: Vec::new(),
            too_fast: Vec::new(),
        };
        let mut columns = Column::BOTH.map(empty);
        for plan in &plans {
            let Some(column) = columns.iter_mut().find(|column| column.column == plan.column)
            else {
                continue;
            };
            let run = |text: &String| runs.get(text).clone();
            let arms: Vec<_> = plan
                .arms
                .iter()
                .map(|(name, texts)| ((*name).to_owned(), texts.iter().map(run).collect()))
                .collect();
            column.add(claim, plan.case, &arms);
        }
        let fingerprint = fingerprint(&texts);
        Ok(ClaimOutcome { size, fingerprint, columns: columns.to_vec() })
    }

    /// The hash of a claim's scenarios.
    ///
    /// # Errors
    /// The claim cannot be run.
    pub fn fingerprint(&self, claim: &Claim, size: Scale) -> anyhow::Result<String> {
        let texts: Vec<String> = texts(&self.plans(claim, size)?).cloned().collect();
        Ok(fingerprint(&texts))
    }

    /// Tells of every run of a claim: what it is, and its scenario.
    ///
    /// # Errors
    /// The claim cannot be run.
    pub fn each_run(
        &self,
        claim: &Claim,
        size: Scale,
        mut tell: impl FnMut(&str, &str),
    ) -> anyhow::Result<()> {
        for Plan { column, case, arms } in self.plans(claim, size)? {
            for (arm, texts) in arms {
                for text in texts {
                    let about = format!("{}, {column:?}, {}, {arm:?}", claim.id, case.name);
                    tell(&about, &text);
                }
            }
        }
        Ok(())
    }

    fn plans<'a>(&self, claim: &'a Claim, size: Scale) -> anyhow::Result<Vec<Plan<'a>>> {
        let mut plans = Vec::new();
        for column in Column::BOTH {
            for case in claim.cases.iter().filter(|case| case.sizes.contains(&size)) {
                let texts = |arm: &Arm| scenario::texts(self, claim, case, arm, (column, size));
                let subject = claim.subject.as_ref().context("expected a subject")?;
                let mut arms = vec![("", texts(subject)?)];
                for arm in &claim.against {
                    arms.push((arm.name.as_str(), texts(arm)?));
                }
                plans.push(Plan { column, case, arms });
            }
        }
        Ok(plans)
    }
}

fn texts<'a>(plans: &'a [Plan<'a>]) -> impl Iterator<Item = &'a String> {
    plans.iter().flat_map(|plan| &plan.arms).flat_map(|(_, texts)| texts)
}

/// Hash of all texts.
fn fingerprint(texts: &[String]) -> String {
    let bytes: Vec<u8> = texts.iter().flat_map(|text| text.bytes().chain([0])).collect();
    format!("{:016x}", fnv(&bytes))
}

/// What came of earlier runs; nothing if there is no file.
///
/// # Errors
/// The file is no such thing.
pub fn read_outcomes(file: &Path) -> anyhow::Result<Outcomes> {
    if !file.exists() {
        return Ok(Outcomes::new());
    }
    let name = || file.display().to_string();
    serde_json::from_str(&std::fs::read_to_string(file).with_context(name)?).with_context(name)
}
