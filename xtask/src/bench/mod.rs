//! `cargo xtask bench`: providers side by side, in alternating runs on the same libfabric.

mod crowd;
mod faces;
mod idle;
mod results;
mod table;

use crate::BenchArgs;
use anyhow::{Context, Result, bail};
use erd_e2e::fabric::{Core, Provider};
use erd_e2e::layout::Layout;
use erd_e2e::netns;
use erd_e2e::process::{Job, append};
use erd_e2e::programs::compile;
use erd_e2e::setup;
use indicatif::{ProgressBar, ProgressStyle};
use results::{Results, Test};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Packages to install.
const DEBIAN_PACKAGES: &[&str] =
    &["gcc", "libc6-dev", "libfabric-dev", "python3", "python3-venv", "iproute2"];
/// Most time for one point of one run; a provider that needs more is reported as hanging.
const POINT_LIMIT_S: u64 = 20;

/// The plan of measurements.
#[derive(Debug)]
struct Plan {
    core: Core,
    program: PathBuf,
    hub_program: PathBuf,
    behind_program: PathBuf,
    providers: Vec<String>,
    runs: usize,
    quick: bool,
    point_ms: u64,
    cpus: String,
    tests: [(Test, &'static [u64]); 12],
}

const LATENCY_SIZES: &[u64] = &[0, 8, 64, 1024, 8192, 65_536, 1 << 20, 4 << 20];
const BANDWIDTH_SIZES: &[u64] = &[64, 1024, 8192, 65_536, 1 << 20, 4 << 20];
const QUICK_LATENCY_SIZES: &[u64] = &[8, 64, 65_536, 1 << 20];
const QUICK_BANDWIDTH_SIZES: &[u64] = &[65_536, 1 << 20];
const EXCHANGE_SIZES: &[u64] = &[8, 1024, 4096, 16_384, 65_536];
const REUSE_SIZES: &[u64] = &[1 << 20];
const RATE_SIZES: &[u64] = &[64];
const MEMORY_SIZES: &[u64] = &[65_536, 1 << 20];
const FETCH_SIZES: &[u64] = &[8];
const SLEEP_SIZES: &[u64] = &[8];
const BEHIND_SIZES: &[u64] = &[64, 65_536, 131_072, 1 << 20];
const HUB_ENDPOINTS: &[u64] = &[1, 16, 256, 1000];
const QUICK_HUB_ENDPOINTS: &[u64] = &[16, 256];

/// Measures, prints the tables, writes the JSON.
///
/// # Errors
/// If something needed is missing, or no provider could be measured.
pub fn run(layout: &Layout, args: &BenchArgs) -> Result<()> {
    if args.idle {
        return idle::run(layout, args);
    }
    if args.crowd {
        return crowd::run(layout, args);
    }
    let plan = Plan::new(layout, args)?;
    let results = measure(layout, &plan)?;
    table::print(&plan.providers, &plan.tests, &results);
    let mut report = results.json(&plan.core.name, &plan.cpus);
    if plan.providers.iter().any(|name| name == erd_e2e::fabric::ERD) {
        let faces = faces::run(layout, &plan)?;
        report["faces"] = faces.json(&plan.core.name, &plan.cpus)["points"].take();
    }
    let file = layout.own.join("bench.json");
    let text = serde_json::to_string_pretty(&report)?;
    fs::write(&file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    println!("\nresults: {}", layout.short(&file).display());
    if results.is_empty() {
        bail!("no provider could be measured");
    }
    Ok(())
}

impl Plan {
    fn new(layout: &Layout, args: &BenchArgs) -> Result<Plan> {
        setup::packages(layout, DEBIAN_PACKAGES)?;
        let providers: Vec<String> = args.providers.split(',').map(str::to_owned).collect();
        if providers.iter().any(|name| name == erd_e2e::fabric::ERD) {
            setup::build_provider(layout)?;
        }
        let core = if args.system {
            Core::system()
        } else {
            setup::venv(layout, "mpich")?;
            Core::wheel(layout)?
        };
        let program = compile(layout, "tests/c/bench")?;
        let hub_program = compile(layout, "tests/c/bench_hub")?;
        let behind_program = compile(layout, "tests/c/bench_behind")?;
        let quick = args.quick;
        Ok(Plan {
            core,
            program,
            hub_program,
            behind_program,
            providers,
            runs: args.runs.unwrap_or(if quick { 1 } else { 5 }).max(1),
            quick,
            point_ms: if quick { 100 } else { 200 },
            cpus: cpus(),
            tests: [
                (Test::Latency, if quick { QUICK_LATENCY_SIZES } else { LATENCY_SIZES }),
                (Test::Sleep, SLEEP_SIZES),
                (Test::Exchange, EXCHANGE_SIZES),
                (Test::Bandwidth, if quick { QUICK_BANDWIDTH_SIZES } else { BANDWIDTH_SIZES }),
                (Test::Reuse, REUSE_SIZES),
                (Test::Rate, RATE_SIZES),
                (Test::Write, MEMORY_SIZES),
                (Test::Read, MEMORY_SIZES),
                (Test::Fetch, FETCH_SIZES),
                (Test::Hub, if quick { QUICK_HUB_ENDPOINTS } else { HUB_ENDPOINTS }),
                (Test::Behind, BEHIND_SIZES),
                (Test::Bulk, BEHIND_SIZES),
            ],
        })
    }

    /// The tests that have a run of their own: the one of [`Test::Behind`] gives the points of [`Test::Bulk`], too.
    fn measured(&self) -> impl Iterator<Item = (Test, &'static [u64])> {
        self.tests.into_iter().filter(|(test, _)| *test != Test::Bulk)
    }

    fn points(&self) -> usize {
        let sizes: usize = self.measured().map(|(_, sizes)| sizes.len()).sum();
        self.runs * self.providers.len() * sizes
    }

    fn has_two_cpus(&self) -> bool {
        self.cpus.split_once(',').is_some_and(|(first, second)| first != second)
    }

    fn job(&self, layout: &Layout, name: &str, test: Test, sizes: &[u64]) -> Job {
        let list: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let list = list.join(",");
        let limit = Duration::from_secs(POINT_LIMIT_S * (sizes.len() as u64 + 1) + 20);
        let job = match test {
            Test::Hub => Job::new(&self.hub_program).args(["-n", &list]),
            Test::Behind | Test::Bulk => Job::new(&self.behind_program).args(["-s", &list]),
            _ => Job::new(&self.program).args(["-t", test.name(), "-s", &list]),
        };
        // The long message takes as long as it takes.
        let job = match test {
            Test::Behind | Test::Bulk => job,
            _ => job.args(["-m", &self.point_ms.to_string()]),
        };
        let job = job
            .args(["-p", name, "-c", &self.cpus])
            .args(["-l", &POINT_LIMIT_S.to_string()])
            .limit(limit);
        // Shared memory has no addresses of its own to ask for.
        let job = if name == "shm" { job } else { job.args(["-a", "127.0.0.1"]) };
        let job =
            Provider::new(layout, name).give(self.core.give(job)).env("FI_LOG_LEVEL", "error");
        // A loopback of its own, so that nobody else's bytes are counted.
        if netns::available() { netns::private(job) } else { job }
    }
}

/// Runs everything, `runs` times, in an order that changes from run to run.
fn measure(layout: &Layout, plan: &Plan) -> Result<Results> {
    let bar = ProgressBar::new(plan.points() as u64);
    let style = "{bar:30} {pos}/{len} points, {elapsed} of about {duration}  {msg}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let log = layout.logs.join("bench.log");
    let _ = fs::remove_file(&log);
    let mut results = Results::default();
    for run in 0..plan.runs {
        for (test, sizes) in plan.measured() {
            for turn in 0..plan.providers.len() {
                let name = &plan.providers[(turn + run) % plan.providers.len()];
                bar.set_message(format!("{name} {}", test.name()));
                let job = plan.job(layout, name, test, sizes);
                let lines = plan.has_two_cpus() && test != Test::Hub;
                let job = if lines { job.args(["-n"]) } else { job };
                let ended = job.finish(&log)?;
                let found = results.take(name, &ended.output)?;
                if !ended.is_success() || found < sizes.len() {
                    let why = results.gave_up(name, test, &ended.output);
                    append(&log, &format!("{name} {}: {why}\n", test.name()))?;
                }
                bar.inc(sizes.len() as u64);
            }
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

/// The first two CPUs that this process may use, as the program takes them.
fn cpus() -> String {
    let allowed = rustix::thread::sched_getaffinity(None);
    let all = |set: rustix::thread::CpuSet| -> Vec<usize> {
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
    };
    match allowed.map(all).as_deref() {
        Ok([first, second, ..]) => format!("{first},{second}"),
        Ok([only]) => format!("{only},{only}"),
        _ => "-1,-1".to_owned(),
    }
}
