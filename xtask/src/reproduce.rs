//! The papers' claims, reproduced by the simulator (docs/reproduction.md).

use crate::ReproduceArgs;
use anyhow::{Context, Result};
use erd_e2e::layout::Layout;
use erd_e2e::report::{Done, Report};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Most time for the short form of all claims. It takes seconds.
const SHORT_LIMIT: Duration = Duration::from_secs(300);
/// Builds the simulator and has it run claims.
const RUN: [&str; 6] = ["run", "--release", "--package", "erd-sim", "--", "reproduce"];

/// Runs the claims in `args`; the simulator writes what came of them. Returns whether all could be run, and no run was faster
/// than the network can be.
///
/// # Errors
/// If there is no cargo.
pub fn run(layout: &Layout, args: &ReproduceArgs) -> Result<bool> {
    let mut command = Command::new("cargo");
    command.args(RUN).current_dir(&layout.root);
    if args.full {
        command.args(["--size", "full"]);
    } else if args.short {
        command.args(["--size", "short"]);
    }
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    if args.page_only {
        command.arg("--page-only");
    } else if !args.short {
        // An hour of runs is not lost when the command is interrupted.
        fs::create_dir_all(&layout.target)?;
        command.arg("--keep").arg(layout.target.join("reproduced.jsonl"));
    }
    Ok(command.status().context("starting cargo")?.success())
}

/// Adds the step that runs the short form of all claims.
pub fn step(report: &mut Report, layout: &Layout) {
    report.step("the papers' claims, short form", |log| {
        layout.cargo(&["build", "--release", "--package", "erd-sim"]).run(log)?;
        let job = layout.cargo(&RUN).args(["--size", "short"]).limit(SHORT_LIMIT);
        let output = job.run(log)?;
        let line = output.lines().find(|line| line.contains(" claims, "));
        let line = line.context("the simulator named no claims")?;
        let count = line.split(' ').next().and_then(|count| count.parse().ok());
        Done::many(count.context("the simulator counted no claims")?, line)
    });
}
