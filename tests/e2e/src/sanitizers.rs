//! The library's tests under AddressSanitizer and ThreadSanitizer, and its stress test under both for longer, over a
//! network that loses, doubles and reorders. Both come with rustc, and are asked for as on a nightly toolchain
//! (`RUSTC_BOOTSTRAP`), so the compiler of the tests is that of the product. ThreadSanitizer must see inside the
//! standard library, too, so that is built from source.

use crate::layout::Layout;
use crate::process::{Ended, Job, last_lines};
use crate::report::{Done, Report};
use crate::setup;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The stress test of prov/ep/tests/stress.
pub const STRESS: &str = "ep::tests::stress::many_threads_do_everything_at_once";
/// The package of the ports, whose tests of queue pairs the virtual machine runs.
pub const PORT: &str = "erd-port";
/// The library's.
pub const LIBRARY: &str = "erd";
/// The packages below the library that have unsafe code, whose unit tests Miri runs as far as it can.
const BELOW: [&str; 3] = ["erd-sys", "erd-ffi", PORT];
/// The package of the endpoints, below the library's faces.
const CORE: &str = "erd-core";
/// The packages whose unit tests are run.
pub const PACKAGES: [&str; 5] = [BELOW[0], BELOW[1], BELOW[2], CORE, LIBRARY];
/// The target of sanitizer builds.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Arguments that make cargo build unit tests and name the programs.
const BUILD_TESTS: [&str; 5] = ["test", "--lib", "--no-run", "--message-format", "json"];
/// Most time for a build, of the standard library too.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const RUN_LIMIT: Duration = Duration::from_secs(600);
/// Tests that are run under memcheck.
const MEMCHECKED: [(&str, &[&str]); 2] = [
    (CORE, &["atomics::", "region::", "registration::"]),
    (LIBRARY, &["ep::tests::contexts", "ep::tests::memory", "ep::tests::triggers"]),
];
/// Duration of the stress test.
const STRESS_SECONDS: &str = "25";
/// The test of port/src/local of a peer that spoils what it shares, and how many words it spoils.
const GARBAGE: &str =
    "local::port::tests::garbage::garbage_in_every_word_that_is_shared_spoils_one_link";
const GARBAGE_WRITES: (&str, &str) = ("ERD_GARBAGE_WRITES", "10000000");
/// The stress test's largest datagrams: loopback's, and those of an Ethernet, where most messages take several.
const MTUS: [&str; 2] = ["auto", "1472"];
/// Faults of the stress test's network.
const FAULTS: &str = "loss=0.01,dup=0.01,reorder=0.1,seed=1";

/// A sanitizer of rustc's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sanitizer {
    /// Memory that is used after its end or beyond its bounds, and leaks.
    Address,
    /// Races between threads.
    Thread,
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Sanitizer::Address => "AddressSanitizer",
            Sanitizer::Thread => "ThreadSanitizer",
        }
    }

    /// Cargo with the sanitizer; its outputs are apart from others.
    fn cargo(self, layout: &Layout) -> Job {
        let (flags, dir) = match self {
            Sanitizer::Address => ("-Zsanitizer=address", "asan"),
            Sanitizer::Thread => ("-Zsanitizer=thread --cfg erd_tsan", "tsan"),
        };
        // Unoptimised, a race has a tenth of the chances.
        let levels = ["CARGO_PROFILE_DEV_OPT_LEVEL", "CARGO_PROFILE_TEST_OPT_LEVEL"];
        let job = levels.iter().fold(layout.cargo(&[]), |job, level| job.env(level, "1"));
        job.env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", layout.own.join(dir))
            .limit(BUILD_LIMIT)
    }

    /// The programs with the packages' unit tests.
    ///
    /// # Errors
    /// The compiler's message.
    pub fn tests(self, layout: &Layout, log: &Path) -> Result<Vec<PathBuf>> {
        let std: &[&str] = if self == Sanitizer::Thread { &["-Zbuild-std"] } else { &[] };
        built(
            self.cargo(layout).args(BUILD_TESTS).args(["--target", TARGET]).args(std),
            &PACKAGES,
            log,
        )
    }
}

/// Builds the programs with the packages' unit tests.
fn built(cargo: Job, packages: &[&str], log: &Path) -> Result<Vec<PathBuf>> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    Ok(programs(&cargo.args(packages).run(log)?))
}

/// The programs with the unit tests of these packages, without a sanitizer.
///
/// # Errors
/// The compiler's message.
pub fn unit_tests(layout: &Layout, packages: &[&str], log: &Path) -> Result<Vec<PathBuf>> {
    built(layout.cargo(&BUILD_TESTS), packages, log)
}

/// The programs that cargo's messages name.
fn programs(messages: &str) -> Vec<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect()
}

/// The program with a package's unit tests.
///
/// # Errors
/// It is not there.
pub fn of_package<'a>(programs: &'a [PathBuf], package: &str) -> Result<&'a Path> {
    let begin = format!("{}-", package.replace('-', "_"));
    let named = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin))
    };
    let found = programs.iter().find(named);
    found.map(PathBuf::as_path).with_context(|| format!("cargo named no program {begin}..."))
}

/// Reason for having no sanitizers here, if so.
#[must_use]
pub fn missing() -> Option<String> {
    let found = cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"));
    (!found).then(|| format!("not run: the steps build for {TARGET} only"))
}

/// Adds the step that needs valgrind: peers' memory, atomics, shared and scalable contexts and triggers, which
/// fi_pingpong does not use. Only memcheck sees uses of memory that was never written.
pub fn memcheck_step(report: &mut Report, layout: &Layout) {
    report.step("memory, atomics and contexts, memcheck", |log| {
        let mut passed = 0;
        for (package, tests) in MEMCHECKED {
            let programs = unit_tests(layout, &[package], log)?;
            let job = Job::new(of_package(&programs, package)?)
                .args(["--test-threads", "2"])
                .args(tests)
                .env("ERD_TEST_SLOWNESS", "8")
                .under([
                    "valgrind",
                    "--quiet",
                    "--leak-check=no",
                    "--fair-sched=yes",
                    "--error-exitcode=9",
                ]);
            passed += verdict(job.limit(RUN_LIMIT).finish(log)?)?.0;
        }
        Done::many(passed, format!("{passed} tests, no error"))
    });
}

/// Adds the steps.
pub fn steps(report: &mut Report, layout: &Layout) {
    for sanitizer in [Sanitizer::Address, Sanitizer::Thread] {
        report.step(&format!("{}: tests and stress", sanitizer.name()), |log| {
            if let Some(why) = missing() {
                return Ok(Done::Skipped(why));
            }
            if let (Sanitizer::Thread, Err(why)) = (sanitizer, setup::rust_source(layout)) {
                return Ok(Done::Skipped(format!("not run: {why:#}")));
            }
            run(layout, sanitizer, log)
        });
    }
    report.step("Miri: tests of sys, ffi and port", |log| match miri(layout, log) {
        Ok(()) => interpreted(layout, log),
        Err(why) => Ok(Done::Skipped(format!("not run: {why:#}"))),
    });
}

/// Installs Miri, which only nightly toolchains have.
///
/// # Errors
/// There is no such toolchain, or the parts cannot be added to it.
fn miri(layout: &Layout, log: &Path) -> Result<()> {
    let add = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
    Job::new("rustup").args(add).limit(BUILD_LIMIT).run(log).context("no nightly with Miri")?;
    let setup = Job::new("rustup").args(["run", "nightly", "cargo", "miri", "setup"]);
    setup
        .dir(&layout.root)
        .limit(BUILD_LIMIT)
        .run(log)
        .map(drop)
        .context("Miri builds no standard library")
}

/// Runs the tests that make no system calls but those that Miri knows. It leaves out the tests of every input within
/// bounds and those of rings in plain memory: what they call has no unsafe code, and Miri would take hours for them.
fn interpreted(layout: &Layout, log: &Path) -> Result<Done> {
    let mut passed = 0;
    for package in BELOW {
        let ended = Job::new("rustup")
            .args(["run", "nightly", "cargo", "miri", "test", "--package", package, "--lib"])
            .args(["--", "--skip", "bounds::", "--skip", "local::ring::"])
            .dir(&layout.root)
            .env("MIRIFLAGS", "-Zmiri-disable-isolation")
            .env("CARGO_TARGET_DIR", layout.own.join("miri"))
            .limit(BUILD_LIMIT)
            .finish(log)?;
        passed += verdict(ended).with_context(|| package.to_owned())?.0;
    }
    Done::many(passed, format!("{passed} tests"))
}

fn run(layout: &Layout, sanitizer: Sanitizer, log: &Path) -> Result<Done> {
    let mut passed = 0;
    let programs = sanitizer.tests(layout, log)?;
    for package in PACKAGES {
        let program = of_package(&programs, package)?;
        let ended = Job::new(program).dir(&layout.root).limit(RUN_LIMIT).finish(log)?;
        passed += verdict(ended)?.0;
    }
    let mut told = Vec::new();
    if sanitizer == Sanitizer::Address {
        let garbage = Job::new(of_package(&programs, PORT)?)
            .args([GARBAGE, "--exact", "--nocapture"])
            .env(GARBAGE_WRITES.0, GARBAGE_WRITES.1)
            .limit(RUN_LIMIT);
        let (spoiled, output) = verdict(garbage.finish(log)?)?;
        passed += spoiled;
        let words = output.lines().find(|line| line.contains(" words spoiled: "));
        told.push(words.context("the test told of no garbage")?.to_owned());
    }
    let library = of_package(&programs, LIBRARY)?;
    for mtu in MTUS {
        let stress = Job::new(library)
            .args([STRESS, "--exact", "--nocapture"])
            .env("ERD_STRESS_SECONDS", STRESS_SECONDS)
            .env("FI_ERD_TEST_FAULTS", FAULTS)
            .env("FI_ERD_MTU", mtu)
            .limit(RUN_LIMIT);
        let (stressed, output) = verdict(stress.finish(log)?)?;
        passed += stressed;
        let rounds = output.lines().find(|line| line.starts_with("rounds: "));
        told.push(rounds.context("the stress test told no rounds")?.to_owned());
    }
    let told = told.join("; ");
    Done::many(passed, format!("{passed} tests; twice {STRESS_SECONDS} s of stress, {told}"))
}

/// Number of passed tests, and their output; a sanitizer's report is a failure, whatever the tests themselves
/// report.
fn verdict(ended: Ended) -> Result<(usize, String)> {
    if let Some(summary) = ended.output.lines().find(|line| line.starts_with("SUMMARY: ")) {
        let begins = ["==ERROR: ", "WARNING: ThreadSanitizer"];
        let report = ended
            .output
            .lines()
            .skip_while(|line| !begins.iter().any(|begin| line.contains(begin)));
        let report: Vec<&str> = report.take(40).collect();
        bail!("{summary}\n{}", report.join("\n"));
    }
    let output = ended.success()?;
    let result = output.lines().find_map(|line| line.trim().strip_prefix("test result: ok. "));
    let count = result.and_then(|counts| counts.split(' ').next()?.parse::<usize>().ok());
    let count = count.filter(|count| *count > 0);
    let count = count.with_context(|| format!("no test ran:\n{}", last_lines(&output, 20)))?;
    Ok((count, output))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(output: &str) -> Ended {
        use std::os::unix::process::ExitStatusExt;
        let status = Some(std::process::ExitStatus::from_raw(0));
        Ended { status, output: output.to_owned(), shown: String::new() }
    }

    #[test]
    fn a_report_fails_a_run_that_passed_and_so_does_a_run_of_nothing() {
        let passed = "running 2 tests\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        assert_eq!(verdict(ended(passed)).expect("passed").0, 2);
        let racy = "WARNING: ThreadSanitizer: data race (pid=1)\n  #0 here\n\
                    SUMMARY: ThreadSanitizer: data race lib.rs:1 in f\n";
        let error = verdict(ended(&format!("{racy}{passed}"))).expect_err("a race").to_string();
        assert!(error.starts_with("SUMMARY") && error.contains("#0 here"), "{error}");
        assert!(verdict(ended("test result: ok. 0 passed; 0 failed\n")).is_err());
    }

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\nnoise\n\
                        {\"executable\":\"/t/erd-1\"}\n{\"executable\":\"/t/erd_ffi-2\"}\n";
        let found = programs(messages);
        for (package, program) in [("erd-ffi", "/t/erd_ffi-2"), (LIBRARY, "/t/erd-1")] {
            assert_eq!(of_package(&found, package).expect("named"), Path::new(program));
        }
        assert!(of_package(&found, PORT).is_err());
    }
}
