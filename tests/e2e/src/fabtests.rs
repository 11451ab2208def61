//! libfabric's fabtests (docs/fabtests.md), where the environment names an installation of them.

use crate::fabric::Provider;
use crate::layout::Layout;
use crate::netns;
use crate::process::Job;
use crate::report::{Done, Report};
use crate::setup;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variable with the directory of their programs and of runfabtests.sh. No package has them.
const PLACE: &str = "ERD_FABTESTS";
/// Most time for the lists.
const LIMIT: Duration = Duration::from_secs(1800);
/// The case that fails over every provider without collectives (docs/fabtests.md).
const FAILING: &str = "fi_multinode_coll";

/// Adds the step of the lists unit, functional, short and multinode.
pub fn step(report: &mut Report, layout: &Layout, provider: &Provider) {
    let missing = || place().is_none().then_some("ERD_FABTESTS names no installation of fabtests");
    report.step_unless(
        &format!("fabtests' lists{}", provider.traits()),
        || missing().or_else(netns::missing).or_else(|| provider.watch_missing()),
        |log| lists(layout, provider, log),
    );
}

fn place() -> Option<PathBuf> {
    setup::named(PLACE)
}

fn lists(layout: &Layout, provider: &Provider, log: &Path) -> Result<Done> {
    let place = place().context(PLACE)?;
    let job = Job::new("python3").args([layout.root.join("tests/fabtests.py")]);
    let job = provider.give(job.args([place, layout.provider_dir()])).limit(LIMIT);
    let output = netns::private(provider.watch(job)).finish(log)?.output;
    let cases = |verdict: &str| -> Vec<&str> {
        let verdict = format!("{verdict} ");
        output.lines().filter(|line| line.starts_with(&verdict)).collect()
    };
    let failed: Vec<&str> = cases("FAIL").into_iter().filter(|case| !is_failing(case)).collect();
    let other = [cases("notrun"), cases("absent"), failed].concat();
    if !other.is_empty() {
        bail!("{}", other.join("\n"));
    }
    // The sums are the last thing that the script writes.
    if !output.lines().any(|line| line.starts_with("{'")) {
        bail!("the lists were not run to their end");
    }
    let wire = provider.check_wire(&output)?.unwrap_or_default();
    let passed = cases("pass").len();
    Done::many(passed, format!("{passed} cases pass; {wire}"))
}

/// Whether a line is that of the case that fails.
fn is_failing(line: &str) -> bool {
    line.split_whitespace().any(|word| word == FAILING)
}
