//! The commands that run scenarios.

pub mod advise;
pub mod compare;
mod progress;
pub mod scenario;

use anyhow::{Context, Result, ensure};
use erd_sim::compare::Origin;
use erd_sim::report::{Group, page::Page, rows};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A file of rows, a page, and how much is said on the way.
#[derive(clap::Args)]
pub struct Output {
    /// Write a report: a page with plots, in this file if it ends in .html, otherwise in a directory of this name, with
    /// the rows and the figures.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Write a row for each message to this file, as comma-separated values.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// A scenario's file, read.
struct Scenario {
    name: String,
    text: String,
    dir: PathBuf,
}

impl Scenario {
    fn read(file: &Path) -> Result<Scenario> {
        let name = file.display().to_string();
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let dir = file.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Scenario { name, text, dir })
    }

    fn source(&self) -> Origin<'_> {
        Origin { file: &self.name, text: &self.text, dir: &self.dir }
    }

    /// The file's name without directories.
    fn title(&self) -> &str {
        Path::new(&self.name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(&self.name)
    }
}

impl Output {
    /// Writes what was asked for. `json` are the figures.
    fn write(
        &self,
        scenario: &Scenario,
        about: &str,
        groups: &[Group],
        json: &serde_json::Value,
    ) -> Result<()> {
        if let Some(file) = &self.csv {
            write_rows(file, groups)?;
        }
        let Some(report) = &self.report else { return Ok(()) };
        let page = Page { title: scenario.title(), about, groups, scenario: &scenario.text };
        let html = page.html()?;
        let write = |file: &Path, text: &str| {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
        };
        if report.extension().is_some_and(|extension| extension == "html") {
            return write(report, &html);
        }
        fs::create_dir_all(report)
            .with_context(|| format!("cannot make the directory {}", report.display()))?;
        write(&report.join("report.html"), &html)?;
        write(&report.join("figures.json"), &format!("{json:#}\n"))?;
        write_rows(&report.join("messages.csv"), groups)
    }
}

fn write_rows(file: &Path, groups: &[Group]) -> Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    rows::write(File::create(file).with_context(cannot)?, groups).with_context(cannot)
}

/// Runs at once: as many as there are processors, unless told otherwise.
fn jobs(asked: Option<usize>) -> Result<usize> {
    ensure!(asked != Some(0), "--jobs is at least 1");
    let processors = || std::thread::available_parallelism().map_or(1, Into::into);
    Ok(asked.unwrap_or_else(processors))
}
