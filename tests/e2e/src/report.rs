//! The report of a run: a line for each step as it ends, a table, and the closing line.

use crate::process::append;
use anyhow::{Result, bail};
use comfy_table::{Table, presets};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Outcome of a step that did not fail.
#[derive(Debug)]
pub enum Done {
    /// It passed: how many checks it made, and a remark.
    Passed(u32, String),
    /// It could not run here, with the reason.
    Skipped(String),
}

impl Done {
    /// One check passed.
    pub fn one(remark: impl Into<String>) -> Result<Done> {
        Ok(Done::Passed(1, remark.into()))
    }

    /// Several checks passed; none at all is a failure.
    ///
    /// # Errors
    /// When `count` is 0.
    pub fn many(count: usize, remark: impl Into<String>) -> Result<Done> {
        if count == 0 {
            bail!("it ran, but nothing was checked");
        }
        Ok(Done::Passed(u32::try_from(count)?, remark.into()))
    }
}

const SKIP: &str = "SKIP";

/// One step's row.
#[derive(Debug)]
struct Row {
    verdict: &'static str,
    name: String,
    took: Duration,
    remark: String,
}

/// The rows so far.
#[derive(Debug)]
pub struct Report {
    rows: Vec<Row>,
    logs: PathBuf,
    only: Option<String>,
    list: bool,
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Report {
    /// No rows yet; `only` limits the run to steps whose name contains it, `list` names the steps
    /// and runs none.
    #[must_use]
    pub fn new(logs: &Path, only: Option<String>, list: bool) -> Report {
        Report {
            rows: Vec::new(),
            logs: logs.to_owned(),
            only,
            list,
            passed: 0,
            failed: 0,
            skipped: 0,
        }
    }

    /// Runs one step with its own log file, and prints how it ended.
    pub fn step(&mut self, name: &str, work: impl FnOnce(&Path) -> Result<Done>) {
        if self.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            self.needed(name, work);
        }
    }

    /// Runs a step if nothing is missing; otherwise skips it, and names what is missing.
    pub fn step_unless(
        &mut self,
        name: &str,
        missing: impl FnOnce() -> Option<&'static str>,
        work: impl FnOnce(&Path) -> Result<Done>,
    ) {
        self.step(name, |log| match missing() {
            Some(why) => Ok(Done::Skipped(why.to_owned())),
            None => work(log),
        });
    }

    /// Runs a step that others need, whatever `only` is; returns whether it passed.
    pub fn needed(&mut self, name: &str, work: impl FnOnce(&Path) -> Result<Done>) -> bool {
        if self.list {
            println!("{name}");
            return true;
        }
        let log = self.logs.join(format!("{}.log", file_name(name)));
        let _ = std::fs::remove_file(&log);
        let start = Instant::now();
        let outcome = work(&log);
        let took = start.elapsed();
        let (verdict, remark) = match outcome {
            Ok(Done::Passed(count, remark)) => {
                self.passed += count;
                ("PASS", remark)
            }
            Ok(Done::Skipped(why)) => {
                self.skipped += 1;
                (SKIP, why)
            }
            Err(error) => {
                self.failed += 1;
                let text = format!("{error:#}");
                let _ = append(&log, &format!("FAILED: {text}\n"));
                println!("{}", indented(&text));
                ("FAIL", format!("{} (see {})", first_line(&text), log.display()))
            }
        };
        println!("{verdict} [{:>7.1} s] {name}: {remark}", took.as_secs_f64());
        self.rows.push(Row { verdict, name: name.to_owned(), took, remark });
        verdict == "PASS"
    }

    /// Prints the table and the closing line; returns whether nothing failed.
    #[must_use]
    pub fn close(self) -> bool {
        if self.list {
            return true;
        }
        let mut table = table(["", "step", "s", "remark"]);
        for row in &self.rows {
            let took = format!("{:.1}", row.took.as_secs_f64());
            let remark =
                if row.verdict == SKIP { in_short(&row.remark) } else { row.remark.clone() };
            let remark = first_line(&remark);
            table.add_row([row.verdict, row.name.as_str(), took.as_str(), remark]);
        }
        println!("\n{table}\n");
        for line in skipped(&self.rows) {
            println!("{line}");
        }
        let skipped = match self.skipped {
            0 => String::new(),
            count => format!(", {count} skipped"),
        };
        println!("{} passed, {} failed{skipped}", self.passed, self.failed);
        self.failed == 0 && self.passed > 0
    }
}

/// A table with this header, as all commands print them.
#[must_use]
pub fn table(header: impl Into<comfy_table::Row>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    table
}

/// A line for each reason why steps were skipped, which names them.
fn skipped(rows: &[Row]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| row.verdict == SKIP) {
        let why = in_short(&row.remark);
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&row.name),
            None => reasons.push((why, vec![&row.name])),
        }
    }
    let line = |(why, names): (String, Vec<&str>)| {
        format!("{} skipped: {why}: {}", names.len(), names.join("; "))
    };
    reasons.into_iter().map(line).collect()
}

/// The first line and the last: the failure, and its program's last output.
fn in_short(text: &str) -> String {
    let last = text.trim_end().lines().skip(1).last().map(str::trim);
    let last = last.filter(|last| !last.is_empty());
    last.map_or_else(|| first_line(text).to_owned(), |last| format!("{}: {last}", first_line(text)))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

fn file_name(step: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    step.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_for_skipping_are_told_once_with_their_steps() {
        let row = |verdict, name: &str, remark: &str| Row {
            verdict,
            name: name.to_owned(),
            took: Duration::ZERO,
            remark: remark.to_owned(),
        };
        let rows = [
            row("PASS", "one", "well"),
            row(SKIP, "two", "no rules (nft: not found)"),
            row(
                SKIP,
                "three",
                "no machine: exit status 100: apt-get\nReading\nE: no such package\n",
            ),
            row(SKIP, "four", "no rules (nft: not found)"),
        ];
        let told = [
            "2 skipped: no rules (nft: not found): two; four",
            "1 skipped: no machine: exit status 100: apt-get: E: no such package: three",
        ];
        assert_eq!(skipped(&rows), told);
    }
}
