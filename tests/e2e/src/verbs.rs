//! The library without libfabric: its exports, and the examples in C and in Rust.

use crate::layout::Layout;
use crate::process::Job;
use crate::programs::compile_with;
use crate::report::{Done, Report};
use crate::sanitizers::{self, LIBRARY};
use crate::setup;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// Random sequences of calls that are run under memcheck.
const SEQUENCES: u32 = 4;
/// Examples in Rust, with their arguments here and how the line begins that shows success.
const IN_RUST: &[(&str, &[&str], &str)] = &[
    ("pingpong", &["2000"], "2000 rounds of 64 bytes"),
    ("latency", &["64", "2000"], "{\"test\":\"latency\",\"size\":64,\"count\":2000"),
    ("key_value", &[], "client: 200 values were read"),
    ("all_reduce", &["4", "200000"], "200000 numbers of 4 ranks summed"),
    ("controllers", &["8"], "single"),
    ("tokio_echo", &[], "100 messages came back"),
];
/// Programs in C, likewise.
const IN_C: &[(&str, &[&str], &str)] = &[
    ("examples/verbs_pingpong", &["2000"], "2000 rounds of 64 bytes"),
    ("examples/verbs_all_reduce", &["4", "200000"], "200000 numbers of 4 ranks summed"),
    ("tests/c/forked_verbs", &[], "three children came and went"),
];

/// Adds the steps.
pub fn steps(report: &mut Report, layout: &Layout) {
    report.step("C API, exported symbols", |log| {
        let exported = exported(&layout.provider_file(), log)?;
        let names = exported.iter().map(|symbol| symbol.split('@').next().unwrap_or_default());
        same(&recorded(layout)?, &names.map(str::to_owned).collect())?;
        Done::many(exported.len(), format!("{} as recorded", exported.len()))
    });
    report.step("C API, random calls, memcheck", |log| {
        let programs = sanitizers::unit_tests(layout, &[LIBRARY], log)?;
        for seed in 1..=SEQUENCES {
            Job::new(sanitizers::of_package(&programs, LIBRARY)?)
                .args(["random_calls_are_answered_as_documented"])
                .env("CAPI_SEED", seed.to_string())
                .under(["valgrind", "--quiet", "--leak-check=no", "--error-exitcode=9"])
                .limit(Duration::from_secs(120))
                .run(log)?;
        }
        Done::many(SEQUENCES as usize, format!("{SEQUENCES} sequences, no error"))
    });
    for (name, args, shows) in IN_C {
        report.step(&format!("{name}.c"), |log| {
            let flags = flags(layout)?;
            let program = compile_with(layout, name, &flags, log)?;
            let library = layout.own.join("lib");
            let job = Job::new(program).args(*args).env("LD_LIBRARY_PATH", library);
            shown(job, shows, log)
        });
    }
    for (name, args, shows) in IN_RUST {
        report.step(&format!("example {name} in Rust"), |log| {
            let build = layout.cargo(&["build", "--package", "erd", "--example", name]);
            build.limit(setup::DEBUG_LIMIT).run(log)?;
            let program = layout.target.join("debug/examples").join(name);
            shown(Job::new(program).args(*args), shows, log)
        });
    }
}

/// Runs an example, which must write a line that begins so.
fn shown(job: Job, begins: &str, log: &Path) -> Result<Done> {
    let output = job.limit(Duration::from_secs(120)).run(log)?;
    match output.lines().find(|line| line.starts_with(begins)) {
        Some(line) => Done::one(line),
        None => bail!("no line begins with \"{begins}\""),
    }
}

/// The compiler flags to find the built library.
///
/// # Errors
/// Links to it that cannot be made.
pub fn flags(layout: &Layout) -> Result<Vec<String>> {
    let dir = layout.own.join("lib");
    fs::create_dir_all(&dir)?;
    for name in ["liberd.so", "liberd.so.1"] {
        let link = dir.join(name);
        let _ = fs::remove_file(&link);
        symlink(layout.provider_file(), &link).with_context(|| format!("making {name}"))?;
    }
    let include = layout.root.join("include");
    Ok(vec![format!("-I{}", include.display()), format!("-L{}", dir.display()), "-lerd".to_owned()])
}

/// Symbols that a shared object exports, with their versions.
///
/// # Errors
/// What nm says.
pub fn exported(library: &Path, log: &Path) -> Result<BTreeSet<String>> {
    let args = ["--dynamic", "--defined-only", "--with-symbol-versions"];
    let list = Job::new("nm").args(args).args([library]).run(log)?;
    let mut symbols: BTreeSet<String> = list
        .lines()
        .filter(|line| !line.contains(" A "))
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    if !symbols.iter().any(|symbol| symbol.starts_with("fi_prov_ini")) {
        bail!("{} is no provider for libfabric", library.display());
    }
    symbols.retain(|symbol| !symbol.starts_with("fi_prov_ini"));
    Ok(symbols)
}

/// Functions in the record of the ABI.
///
/// # Errors
/// There is no record.
pub fn recorded(layout: &Layout) -> Result<BTreeSet<String>> {
    let record = fs::read_to_string(layout.root.join("tests/abi/liberd.so.1.txt"))?;
    let name = |line: &str| {
        let before = line.strip_suffix(");")?.split('(').next()?;
        before.rsplit([' ', '*']).next().map(str::to_owned)
    };
    Ok(record.lines().filter_map(name).collect())
}

/// # Errors
/// If the two differ.
pub fn same(recorded: &BTreeSet<String>, exported: &BTreeSet<String>) -> Result<()> {
    let differences: Vec<&String> = recorded.symmetric_difference(exported).collect();
    if differences.is_empty() {
        return Ok(());
    }
    bail!("exported or recorded, but not both: {differences:?}")
}
