//! The command `erd-sim reproduce`.

use super::claims::{Book, Scale};
use super::page;
use super::runs::Runs;
use super::{Outcomes, read_outcomes};
use anyhow::{Context, ensure};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

/// Options of `reproduce`.
#[derive(clap::Args)]
pub struct ReproduceArgs {
    /// How large networks and work are. The short form writes nothing.
    #[arg(long, value_enum, default_value = "scaled")]
    size: Scale,
    /// Only claims whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Runs at a time; as many as there are processors unless given.
    #[arg(long)]
    jobs: Option<NonZero<usize>>,
    /// File that keeps each run as soon as it has ended: a command that is interrupted goes on from there.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Run nothing: write the page again from earlier results.
    #[arg(long)]
    page_only: bool,
    /// Run nothing: print the scenarios, as `erd-sim scenario` reads them.
    #[arg(long, conflicts_with = "page_only")]
    print: bool,
    /// Directory of the claims.
    #[arg(long, default_value = "sim/claims")]
    claims: PathBuf,
    /// File with what came of them; that of other claims stays in it.
    #[arg(long, default_value = "sim/tables/reproduction.json")]
    results: PathBuf,
    /// Page with the tables.
    #[arg(long, default_value = "docs/reproduction.md")]
    page: PathBuf,
}

impl ReproduceArgs {
    /// Runs the claims, and writes results and page.
    ///
    /// # Errors
    /// A file is wrong, no claim is meant, a claim could not be run, or a run was faster than the network can be.
    pub fn run(&self) -> anyhow::Result<()> {
        let book = Book::read(&self.claims)?;
        let mut outcomes = read_outcomes(&self.results)?;
        if self.page_only {
            return self.write(&book, &outcomes);
        }
        let claims: Vec<_> = book.selected(self.size, &self.only).collect();
        ensure!(!claims.is_empty(), "no claim that is run has {:?} in its name", self.only);
        if self.print {
            for claim in &claims {
                book.each_run(claim, self.size, |about, text| println!("# {about}\n{text}"))?;
            }
            return Ok(());
        }
        if self.size != Scale::Short {
            // A file that cannot be written is named now, not after the first claim's runs.
            self.write(&book, &outcomes)?;
        }
        let mut runs = self.keep.as_deref().map_or_else(|| Ok(Runs::default()), Runs::kept_in)?;
        let jobs = self.jobs();
        let mut problems = Vec::new();
        for (at, claim) in claims.iter().enumerate() {
            let outcome = book.reproduce(claim, self.size, (&mut runs, jobs), |done, all| {
                eprint!("\r[{}/{}] {}: {done} of {all} runs ", at + 1, claims.len(), claim.id);
            });
            let outcome = outcome.with_context(|| format!("claim {}", claim.id))?;
            eprintln!();
            for column in &outcome.columns {
                column.problems().for_each(|what| eprintln!("  {what}"));
                let unended = column.unended.iter().filter(|_| !claim.may_not_end);
                problems.extend(
                    column
                        .too_fast
                        .iter()
                        .chain(unended)
                        .map(|what| format!("{}: {what}", claim.id)),
                );
            }
            outcomes.insert(claim.id.clone(), outcome);
            if self.size != Scale::Short {
                // What has been run is kept if the rest is interrupted.
                self.write(&book, &outcomes)?;
            }
        }
        println!("{} claims, {} runs went wrong", claims.len(), problems.len());
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        Ok(())
    }

    fn jobs(&self) -> usize {
        let all = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        self.jobs.unwrap_or_else(all).get()
    }

    fn write(&self, book: &Book, outcomes: &Outcomes) -> anyhow::Result<()> {
        let known = |id: &String| book.claims().any(|claim| claim.is_run() && claim.id == *id);
        let kept: Outcomes = outcomes
            .iter()
            .filter(|(id, _)| known(id))
            .map(|(id, o)| (id.clone(), o.clone()))
            .collect();
        let text = serde_json::to_string_pretty(&kept)? + "\n";
        write(&self.results, &text)?;
        let name = || self.page.display().to_string();
        let page = fs::read_to_string(&self.page).with_context(name)?;
        write(&self.page, &page::rewritten(&page, book, &kept).with_context(name)?)
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
