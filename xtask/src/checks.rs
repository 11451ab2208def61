//! Checks of the source: format, lints, documentation, dependencies, and cargo's own tests.

use crate::{built, deps, dist};
use anyhow::{Context, Result, bail};
use erd_e2e::layout::Layout;
use erd_e2e::netns;
use erd_e2e::process::{Ended, Job, Running, append};
use erd_e2e::report::{Done, Report};
use erd_e2e::sanitizers::STRESS;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seeds of simulated faults that the short tier tries.
const SHORT_SEEDS: u32 = 500;
/// Seeds that the full tier tries.
const FULL_SEEDS: u32 = 10_000;
/// Steps that try these seeds: name, package, program.
const FAULTS: &[(&str, &str, &str)] = &[
    ("simulated faults", "erd-world", "faults"),
    ("simulated faults, endpoints as they ship", "erd-world", "shipped"),
    ("simulated faults against the protocol's model", "erd-model", "traces"),
    ("simulated fabrics whose links fail", "erd-sim", "faults"),
];
/// Forgeries that the full tier tries in the simulated world.
const FORGERIES: &str = "100000000";
/// Forgeries that the full tier tries over real sockets, and their test.
const FORGERIES_UDP: &str = "1000000";
const FORGERIES_UDP_TEST: &str =
    "ep::tests::forgeries::nothing_of_an_attacker_on_the_path_is_taken";
/// Steps of the full tier that try all inputs within wide bounds; `cargo test` tries those within small ones. What is
/// private is tried beside the code.
const WIDE_BOUNDS: &[(&str, &[&str])] = &[
    ("every input within wide bounds", &["--package", "erd-rd", "--test", "bounds"]),
    (
        "every input within wide bounds, private parts",
        &[
            "--package",
            "erd-rd",
            "--package",
            "erd-core",
            "--package",
            "erd-port",
            "--lib",
            "bounds::",
        ],
    ),
];
/// Duration of the stress test with many threads, beside its run in `cargo test` over loopback's datagrams.
const STRESS_SECONDS: &str = "5";

/// Adds the steps.
pub fn steps(report: &mut Report, layout: &Layout, full: bool) {
    report.step("rustfmt", |log| {
        layout.cargo(&["fmt", "--all", "--check"]).run(log)?;
        Done::one("no differences")
    });
    report.step("clippy", |log| {
        for features in [&[][..], &["--all-features"]] {
            let job = layout.cargo(&["clippy", "--workspace", "--all-targets"]).args(features);
            job.args(["--", "-D", "warnings"]).run(log)?;
        }
        Done::one("no warnings")
    });
    report.step("rustdoc", |log| {
        let job = layout.cargo(&["doc", "--workspace", "--no-deps"]);
        job.env("RUSTDOCFLAGS", "-D warnings").run(log)?;
        Done::one("no warnings")
    });
    report.step("licences and duplicates", |log| deps::check(layout, log));
    report.step("cargo test", |log| {
        let job = layout.cargo(&["test", "--workspace", "--no-fail-fast"]);
        // Named headers must exist: without them the test would skip their comparison.
        let include = std::env::var_os("ERD_FABRIC_INCLUDE").unwrap_or("/usr/include".into());
        // Likewise the program, or the tests of the dissector are skipped.
        let job = job.env("ERD_FABRIC_INCLUDE", include).env("ERD_TSHARK", "tshark");
        count_tests(job.finish(log)?)
    });
    report.step("the provider without shared memory", |log| {
        let job = built::tests(layout, log, "erd", "erd")?;
        // What needs a lane is left out.
        let job = job.args(["--skip", "ep::tests::lanes"]).env("FI_ERD_LOCAL", "udp");
        count_tests(job.finish(log)?)
    });
    report.step("many threads at once, an Ethernet's datagrams", |log| {
        let job = built::tests(layout, log, "erd", "erd")?.args([STRESS, "--exact"]);
        let job = job.env("FI_ERD_MTU", "1472").env("ERD_STRESS_SECONDS", STRESS_SECONDS);
        count_tests(job.finish(log)?)
    });
    report.step("mutants of the protocol", |log| {
        let job = built::mutants(layout, log, "erd-world")?.args(["--nocapture"]);
        // All mutants are hunted, whatever the caller's own environment says.
        let output = job.env("MUTANTS_ONLY", "").run(log)?;
        let is_found =
            |line: &&str| [" found with seed ", " found by "].iter().any(|how| line.contains(how));
        let found = output.lines().filter(is_found).count();
        Done::many(found, format!("{found} found"))
    });
    report.step("mutants of the protocol, by their traces", |log| {
        let output = built::mutants(layout, log, "erd-model")?.args(["--nocapture"]).run(log)?;
        let found = output.lines().filter(|line| line.contains(" found with seed ")).count();
        Done::many(found, format!("{found} found"))
    });
    let seeds = if full { FULL_SEEDS } else { SHORT_SEEDS };
    for (name, package, test) in FAULTS {
        report.step(name, |log| faults(layout, log, (package, test), seeds));
    }
    if full {
        full_steps(report, layout);
    }
}

/// Adds the steps of the full tier.
fn full_steps(report: &mut Report, layout: &Layout) {
    report.step("packages for Rust programs", |log| {
        let built = layout.target.join("xtask/packages");
        forget_packages(&dist::cargo_home()?, &built)?;
        let job = layout.cargo(&["publish", "--workspace", "--dry-run", "--allow-dirty"]);
        let job = job.args(["--target-dir".as_ref(), built.as_os_str()]);
        let output = job.run(log)?;
        let built = output.matches("aborting upload due to dry run").count();
        Done::many(built, format!("{built} packages, built from what they contain"))
    });
    for (name, test) in WIDE_BOUNDS {
        report.step(name, |log| {
            let job = optimised(layout.cargo(&["test"]).args(*test));
            count_tests(job.env("BOUNDS", "large").finish(log)?)
        });
    }
    report.step("mutants of the simulator", |log| {
        let test = ["test", "--package", "erd-sim", "--features", "mutants", "--test", "mutants"];
        let job = layout.cargo(&test).args(["--", "--nocapture"]).env("MUTANTS_ONLY", "");
        let output = job.run(log)?;
        let found = output.lines().filter(|line| line.contains(" found with seed ")).count();
        Done::many(found, format!("{found} found"))
    });
    report.step("the protocol's model, large scenes", |log| {
        let test = ["test", "--package", "erd-model", "--test", "search", "every_property_holds"];
        let job = layout.cargo(&test).env("BOUNDS", "large").limit(Duration::from_secs(3600));
        count_tests(job.finish(log)?)
    });
    report.step("strangers and little memory", |log| {
        let test = ["test", "--package", "erd", "--lib", "ep::tests::strangers"];
        let job = layout.cargo(&test).args(["--", "--ignored", "--test-threads", "1"]);
        let job = job.args(["--skip", "strangers::victim"]);
        count_tests(job.finish(log)?)
    });
    report.step("forgeries, simulated", |log| {
        let test = ["test", "--package", "erd-world", "--test", "forgeries"];
        let job = optimised(layout.cargo(&test)).args(["--", "--nocapture"]);
        let job = job.env("FORGERIES", FORGERIES).limit(Duration::from_secs(3600));
        count_tests(job.finish(log)?)
    });
    report.step("forgeries, over sockets", |log| {
        let test = ["test", "--package", "erd", "--lib", FORGERIES_UDP_TEST];
        layout.cargo(&test).args(["--no-run"]).run(log)?;
        let job = layout.cargo(&test).args(["--", "--exact", "--nocapture"]);
        let job = job.env("FORGERIES_UDP", FORGERIES_UDP);
        // There this user may see the packets of the loopback.
        let job = if netns::available() { netns::private(job) } else { job };
        count_tests(job.finish(log)?)
    });
}

/// Adds the steps that read the packages' files without building anything.
pub fn packaging_steps(report: &mut Report, layout: &Layout) {
    report.step("man pages", |log| {
        let pages = dist::pages(layout)?;
        Job::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&pages).run(log)?;
        Done::many(pages.len(), format!("{} pages, no warnings", pages.len()))
    });
    report.step("Spack recipe", |log| {
        let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
        let recipe = layout.root.join("packaging/spack/package.py");
        Job::new("python3").args(["-c", parse]).args([recipe]).run(log)?;
        Done::one("it is Python; there is no Spack here to run it")
    });
}

/// Removes what cargo unpacked from our packages in an earlier dry run, and what it `built` of that: it takes both for
/// those of the present packages, which have the same version.
fn forget_packages(cargo_home: &Path, built: &Path) -> Result<()> {
    if built.exists() {
        fs::remove_dir_all(built)?;
    }
    let Ok(registries) = fs::read_dir(cargo_home.join("registry/src")) else { return Ok(()) };
    for registry in registries {
        let registry = registry?;
        // A registry without a host is a directory of packages.
        if !registry.file_name().as_encoded_bytes().starts_with(b"-") {
            continue;
        }
        for package in fs::read_dir(registry.path())? {
            let package = package?;
            if package.file_name().as_encoded_bytes().starts_with(b"erd") {
                fs::remove_dir_all(package.path())?;
            }
        }
    }
    Ok(())
}

/// A test that is long enough to be worth optimising; its debug assertions stay.
fn optimised(job: Job) -> Job {
    job.env("CARGO_PROFILE_TEST_OPT_LEVEL", "2")
}

/// Adds up the `test result:` lines, or names the tests that failed.
fn count_tests(ended: Ended) -> Result<Done> {
    let failed = |line: &&str| line.ends_with("... FAILED") || line.contains("panicked at");
    let failed: Vec<&str> = ended.output.lines().filter(failed).collect();
    if !ended.is_success() && !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    let (mut passed, mut binaries) = (0, 0);
    for line in ended.success()?.lines() {
        let Some(counts) = line.trim().strip_prefix("test result: ok. ") else { continue };
        let count = counts.split(' ').next().unwrap_or_default();
        passed += count.parse::<usize>().with_context(|| format!("cargo test wrote: {line}"))?;
        binaries += 1;
    }
    Done::many(passed, format!("{passed} tests in {binaries} binaries"))
}

/// Runs a package's program `test` under random faults from fresh seeds, in two processes.
fn faults(layout: &Layout, log: &Path, (package, test): (&str, &str), seeds: u32) -> Result<Done> {
    let run = built::tests(layout, log, package, test)?
        .args(["swarm", "--exact", "--nocapture"])
        .env("FAULTS_SEEDS", (seeds / 2).to_string())
        .limit(Duration::from_secs(u64::from(seeds) + 600));
    let halves: Vec<(Running, PathBuf)> = ["a", "b"]
        .into_iter()
        .map(|half| {
            let file = log.with_extension(format!("{half}.log"));
            let _ = std::fs::remove_file(&file);
            Ok((run.start(&file)?, file))
        })
        .collect::<Result<_>>()?;
    let mut from = Vec::new();
    for (half, file) in halves {
        let ended = half.finish(&file)?;
        append(log, &ended.output)?;
        if !ended.is_success() {
            let replay = ended.output.lines().find(|line| line.starts_with("replay:"));
            let replay = replay.unwrap_or("no seed was printed").to_owned();
            return ended.success().context(replay).and_then(|_| bail!("it failed with status 0"));
        }
        let seeds = ended.output.lines().find(|line| line.contains(" seeds from "));
        from.push(seeds.context("the run named no seeds")?.to_owned());
    }
    Done::one(from.join(", "))
}
