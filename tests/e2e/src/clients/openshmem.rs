//! Sandia OpenSHMEM's own tests.

use super::kills::{self, Signs};
use super::{Form, launcher, place};
use crate::fabric::Provider;
use crate::layout::Layout;
use crate::process::{Job, last_lines};
use crate::report::{Done, Report};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variable with the directory in which somebody built it, and its tests.
const PLACE: &str = "ERD_SOS";
/// The directories of its tests.
const DIRS: [&str; 4] = ["unit", "shmemx", "spec-example", "apps"];
/// Most time for the tests of one directory.
const LIMIT: Duration = Duration::from_secs(1800);
/// Seconds for one test: the longest takes 14 on two busy processors.
const TEST_SECONDS: &str = "180";
/// Least bytes that erd's counters show after the tests, which move 37 GB with two ranks.
const BYTES_MIN: u64 = 1 << 30;

/// Rank 1 is killed once rank 0 has put some hundred times. Its shell stays, so the launcher sees no dead process: rank 0
/// must end by itself. Rank 0 writes to a file, because the launcher drops what a rank that aborts has just written.
const KILLED: &str = r#"
cd "$1"
if [ "$PMI_RANK" = 0 ]; then
    exec "$0" -t -l 1000000 -e 65536 2> rank-0
fi
"$0" -l 1000000 -e 65536 & echo $! > victim
sleep 600
"#;
/// Rank 0 writes the number of its puts after as many of them. The rounds take one of the first marks in turn.
const PUTS: u32 = 200;
const MARKS: u32 = 5;
/// What its library says when an operation fails.
const FAILED: &str = "Error in operation";

/// Adds its steps.
pub fn steps(report: &mut Report, layout: &Layout, provider: &Provider) {
    let missing = || place(PLACE).is_none().then_some("ERD_SOS names no built Sandia OpenSHMEM");
    for form in Form::all(provider) {
        for ranks in [2, 4] {
            let name = format!("Sandia OpenSHMEM's tests, {ranks} ranks{}", form.traits());
            report.step_unless(&name, missing, |log| tests(layout, &form, ranks, log));
        }
    }
    let name = format!("Sandia OpenSHMEM, a rank killed{}", provider.traits());
    report.step_unless(&name, missing, |log| killed(layout, provider, log));
}

fn tests_dir(name: &str) -> Result<PathBuf> {
    Ok(place(PLACE).context(PLACE)?.join("modules/tests-sos/test").join(name))
}

fn tests(layout: &Layout, form: &Form, ranks: u32, log: &Path) -> Result<Done> {
    let runner = launcher(layout, ranks)?.under(["timeout", TEST_SECONDS]).shown();
    let counters = form.provider.counters(log);
    let mut passed = 0;
    for dir in DIRS {
        let job = Job::new("make").args(["-k", "check"]).args([&format!("NPROCS={ranks}")]);
        let job = job.args([&format!("TEST_RUNNER={runner}")]).dir(tests_dir(dir)?).limit(LIMIT);
        let job = form.provider.give(job).env("SHMEM_OFI_PROVIDER", &form.provider.name);
        let ended = counters.give(job).finish(log)?;
        let is_failure = |line: &&str| line.starts_with("FAIL: ") || line.starts_with("ERROR: ");
        let failed: Vec<&str> = ended.output.lines().filter(is_failure).collect();
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        let output = ended.success()?;
        let here = output.lines().filter(|line| line.starts_with("PASS: ")).count();
        ensure!(here > 0, "{dir}: no test ran\n{}", last_lines(&output, 15));
        passed += here;
    }
    Done::many(passed, format!("{passed} tests pass; {}", form.proof(&counters, BYTES_MIN)?))
}

fn killed(layout: &Layout, provider: &Provider, log: &Path) -> Result<Done> {
    let program = tests_dir("unit")?.join("bigput");
    kills::rounds(provider, log, |round| {
        let job = launcher(layout, 2)?.args(["sh", "-c", KILLED]).args([&program, round.dir]);
        let mut ranks = round.start(job.env("SHMEM_OFI_PROVIDER", &provider.name))?;
        let mark = format!(".{}", PUTS * (1 + round.number % MARKS));
        let under_way = ("rank-0", mark.as_str(), 1);
        let error = ("rank-0", FAILED);
        let signs = Signs { victim: "victim", under_way, span_us: kills::LONG_US, error };
        let told = round.kill(&mut ranks, &signs)?;
        let ended = ranks.finish(log)?;
        ensure!(ended.status.is_some(), "rank 0 did not end within its time");
        ensure!(!ended.is_success(), "rank 0 ended without an error");
        Ok(told)
    })
}
