//! aws-ofi-nccl's own functional tests, in its protocol SENDRECV. tests/c/host_cuda.c stands in for CUDA.

use super::{Form, launcher, place};
use crate::fabric::Provider;
use crate::layout::{Layout, empty};
use crate::process::{Job, last_lines};
use crate::programs::compile_with;
use crate::report::{Done, Report};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variable with the directory in which somebody installed it, with its functional tests.
const PLACE: &str = "ERD_OFI_NCCL";
/// The tests that have a meaning in this protocol, and their ranks.
const TESTS: &[(&str, u32)] = &[
    ("nccl_connection", 2),
    (TRANSFER, 2),
    ("ring", 4),
    ("inflight_close", 2),
    ("reuse_listen_comm", 2),
];
const TRANSFER: &str = "nccl_message_transfer";
/// Most time for one of them.
const LIMIT: Duration = Duration::from_secs(240);
/// Least bytes that erd's counters show after them, which move 2 GB.
const BYTES_MIN: u64 = 1 << 30;
/// Names by which the plugin and its tests ask for CUDA's runtime.
const CUDA_NAMES: [&str; 3] = ["libcudart.so", "libcudart.so.12", "libcudart.so.13"];

/// Rank 1 is killed while both wait for their messages. Its shell stays, so the launcher sees no dead process, until
/// rank 0 has told an error: the test itself then waits for rank 1 over MPI.
const KILLED: &str = r#"
cd "$1"
if [ "$PMI_RANK" = 0 ]; then
    exec stdbuf -oL "$0" > rank-0
fi
stdbuf -oL "$0" > rank-1 & rank=$!
until grep -q "Polling for completion" rank-1; do sleep 0.01; done
kill -KILL $rank
until grep -q "rank 0 failed" rank-0; do sleep 0.1; done
grep "rank 0 failed" rank-0
"#;

/// Adds its steps. The plugin forbids shared memory, so a provider with lanes has none.
pub fn steps(report: &mut Report, layout: &Layout, provider: &Provider) {
    if provider.has_lanes() {
        return;
    }
    let missing = || place(PLACE).is_none().then_some("ERD_OFI_NCCL names no aws-ofi-nccl");
    for form in Form::all(provider) {
        let name = format!("aws-ofi-nccl's tests, SENDRECV{}", form.traits());
        report.step_unless(&name, missing, |log| tests(layout, &form, log));
    }
    let name = format!("aws-ofi-nccl, SENDRECV, a rank killed{}", provider.traits());
    report.step_unless(&name, missing, |log| killed(layout, provider, log));
}

/// The job with the plugin, and with the stand-in for CUDA.
fn with_plugin(layout: &Layout, job: Job, provider: &Provider, log: &Path) -> Result<Job> {
    let place = place(PLACE).context(PLACE)?;
    let mut dirs: OsString = stand_in(layout, log)?.into();
    dirs.push(":");
    dirs.push(place.join("lib"));
    let job = provider.give(job).env("LD_LIBRARY_PATH", dirs);
    Ok(job.env("OFI_NCCL_PROTOCOL", "SENDRECV"))
}

/// Compiles the stand-in; returns a directory that has it under each name.
fn stand_in(layout: &Layout, log: &Path) -> Result<PathBuf> {
    let flags = ["-shared", "-fPIC"].map(str::to_owned);
    let library = compile_with(layout, "tests/c/host_cuda", &flags, log)?;
    let dir = empty(layout.own.join("host-cuda"))?;
    for name in CUDA_NAMES {
        fs::copy(&library, dir.join(name)).with_context(|| format!("copying to {name}"))?;
    }
    Ok(dir)
}

fn program(name: &str) -> Result<PathBuf> {
    Ok(place(PLACE).context(PLACE)?.join("bin").join(name))
}

fn tests(layout: &Layout, form: &Form, log: &Path) -> Result<Done> {
    let counters = form.provider.counters(log);
    for &(name, ranks) in TESTS {
        let job = launcher(layout, ranks)?.args([program(name)?]);
        let job = counters.give(with_plugin(layout, job, &form.provider, log)?);
        let output = job.limit(LIMIT).run(log)?;
        let chosen = format!("Selected provider is {}", form.provider.name);
        ensure!(output.contains(&chosen), "{name}: erd is not the plugin's provider");
    }
    let remark = form.proof(&counters, BYTES_MIN)?;
    Done::many(TESTS.len(), format!("{} programs pass; {remark}", TESTS.len()))
}

fn killed(layout: &Layout, provider: &Provider, log: &Path) -> Result<Done> {
    let dir = empty(log.with_extension("dir"))?;
    let job = launcher(layout, 2)?.args(["sh", "-c", KILLED]).args([&program(TRANSFER)?, &dir]);
    let job = with_plugin(layout, job, provider, log)?.limit(Duration::from_secs(60));
    let ended = job.finish(log)?;
    ensure!(ended.status.is_some(), "rank 0 told no error within its time");
    let told = ended.output.lines().find(|line| line.contains("rank 0 failed"));
    let Some(told) = told else {
        bail!("rank 0 told no error:\n{}", last_lines(&ended.output, 15));
    };
    Done::one(told.split("NET/OFI ").last().unwrap_or(told).trim())
}
