//! Installing what is missing: Debian packages, and MPI implementations in virtual environments.

use crate::layout::Layout;
use crate::process::Job;
use anyhow::{Context, Result, bail};
use rustix::process::getuid;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Packages that the steps need.
pub const TEST_PACKAGES: &[&str] = &[
    "gcc",
    "libc6-dev",
    "libfabric-dev",
    "libfabric-bin",
    "python3",
    "python3-venv",
    "openmpi-bin",
    "iproute2",
    "libibverbs-dev",
    "nftables",
    "valgrind",
    "dpkg-dev",
    "git",
    "mandoc",
    "pkgconf",
    "g++",
    "tshark",
];

/// Most time for the packages.
const APT_LIMIT: Duration = Duration::from_secs(600);
/// Most time for a build without optimisation.
pub const DEBUG_LIMIT: Duration = Duration::from_secs(600);
/// Most time for one virtual environment.
const VENV_LIMIT: Duration = Duration::from_secs(300);

/// A new key for a job, in the file `name` that its owner alone can read.
///
/// # Errors
/// If it cannot be written.
pub fn job_key(layout: &Layout, name: &str) -> Result<PathBuf> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = layout.own.join(name);
    if path.exists() {
        fs::remove_file(&path)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(digits.as_bytes())?;
    Ok(path)
}

/// Installs those of `packages` that are missing; returns their names.
///
/// # Errors
/// Packages that are missing and can't be installed: the message names them.
pub fn packages(layout: &Layout, packages: &[&str]) -> Result<Vec<String>> {
    let missing: Vec<String> =
        packages.iter().filter(|name| !is_installed(name)).map(|name| (*name).to_owned()).collect();
    if missing.is_empty() {
        return Ok(missing);
    }
    println!("installing {}", missing.join(" "));
    let log = layout.logs.join("setup-packages.log");
    let as_root: &[&str] = if getuid().is_root() { &[] } else { &["sudo"] };
    let apt = |args: &[&str]| {
        Job::new("apt-get")
            .args(args)
            .under(as_root.iter().chain(&["env", "DEBIAN_FRONTEND=noninteractive"]))
            .limit(APT_LIMIT)
            .run(&log)
    };
    apt(&["update"])
        .and_then(|_| {
            let mut args = vec!["install", "--yes", "--no-install-recommends"];
            args.extend(missing.iter().map(String::as_str));
            apt(&args)
        })
        .with_context(|| format!("please install the packages {}", missing.join(" ")))?;
    Ok(missing)
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f=${db:Status-Status}", package]).output();
    query.is_ok_and(|query| query.stdout.starts_with(b"installed"))
}

/// Makes the virtual environment `name` with what tests/mpi/requirements-`name`.txt lists, unless
/// it is there and up to date.
///
/// # Errors
/// An environment that can't be made, packages that can't be had.
pub fn venv(layout: &Layout, name: &str) -> Result<PathBuf> {
    venv_of(layout, name, &format!("tests/mpi/requirements-{name}.txt"), &[])
}

/// The same with the list `wanted` of the repository, and flags for pip.
///
/// # Errors
/// As [`venv`].
pub fn venv_of(layout: &Layout, name: &str, wanted: &str, flags: &[&str]) -> Result<PathBuf> {
    let wanted = layout.root.join(wanted);
    let list =
        fs::read_to_string(&wanted).with_context(|| format!("reading {}", wanted.display()))?;
    let dir = layout.venv(name);
    let stamp = dir.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|have| have == list) {
        return Ok(dir);
    }
    println!("making {}", layout.short(&dir).display());
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    let log = layout.logs.join(format!("setup-venv-{name}.log"));
    Job::new("python3").args(["-m", "venv"]).args([&dir]).limit(VENV_LIMIT).run(&log)?;
    Job::new(dir.join("bin/pip"))
        .args(["install", "--disable-pip-version-check", "--requirement"])
        .args([&wanted])
        .args(flags)
        .limit(VENV_LIMIT)
        .run(&log)?;
    fs::write(&stamp, list).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(dir)
}

/// Adds the standard library's source to the toolchain, unless it is there.
///
/// # Errors
/// A toolchain that it cannot be added to.
pub fn rust_source(layout: &Layout) -> Result<()> {
    let log = layout.logs.join("setup-rust-source.log");
    let sysroot = layout.rustc(&["--print", "sysroot"], &log)?;
    if Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/std/src/lib.rs").exists() {
        return Ok(());
    }
    Job::new("rustup")
        .args(["component", "add", "rust-src"])
        .dir(&layout.root)
        .limit(VENV_LIMIT)
        .run(&log)
        .map(drop)
        .context("the toolchain has no source of the standard library, and rustup adds none")
}

/// The directory of the libfabric that an MPI's wheel carries.
///
/// # Errors
/// A wheel that carries none.
pub fn wheel_libfabric(venv: &Path, mpi: &str) -> Result<PathBuf> {
    let dir = venv.join("lib").join(mpi);
    if !dir.join("libfabric.so.1").exists() {
        bail!("no libfabric.so.1 in {}", dir.display());
    }
    Ok(dir)
}

/// Builds the release shared object.
///
/// # Errors
/// The compiler's message.
pub fn build_provider(layout: &Layout) -> Result<()> {
    println!("building liberd_fi.so");
    let log = layout.logs.join("build.log");
    layout.cargo(&["build", "--release", "--package", "erd-fi"]).run(&log)?;
    if !layout.provider_file().exists() {
        bail!("the build left no {}", layout.provider_file().display());
    }
    Ok(())
}

/// Builds the test relay; returns the program.
///
/// # Errors
/// The compiler's message.
pub fn build_relay(layout: &Layout) -> Result<PathBuf> {
    build(layout, "erd-relay")?;
    Ok(layout.target.join("debug/erd-relay"))
}

/// Builds the program that plays thousands of peers; returns it.
///
/// # Errors
/// The compiler's message.
pub fn build_crowd(layout: &Layout) -> Result<PathBuf> {
    build(layout, "erd-crowd")?;
    Ok(layout.target.join("debug/erd-crowd"))
}

/// The same, to measure with.
///
/// # Errors
/// The compiler's message.
pub fn build_fast_crowd(layout: &Layout) -> Result<PathBuf> {
    let log = layout.logs.join("build-erd-crowd.log");
    layout.cargo(&["build", "--release", "--package", "erd-crowd"]).run(&log)?;
    Ok(layout.target.join("release/erd-crowd"))
}

/// Builds the command `erd`; returns the program.
///
/// # Errors
/// The compiler's message.
pub fn build_tool(layout: &Layout) -> Result<PathBuf> {
    build(layout, "erd-tool")?;
    Ok(layout.target.join("debug/erd"))
}

fn build(layout: &Layout, package: &str) -> Result<()> {
    let log = layout.logs.join(format!("build-{package}.log"));
    layout.cargo(&["build", "--package", package]).limit(DEBUG_LIMIT).run(&log).map(drop)
}

/// Builds an example to measure with; returns the program.
///
/// # Errors
/// The compiler's message.
pub fn build_example(layout: &Layout, package: &str, name: &str, log: &Path) -> Result<PathBuf> {
    let build = layout.cargo(&["build", "--release", "--package", package, "--example", name]);
    build.run(log).with_context(|| format!("building the example {name}"))?;
    Ok(layout.target.join("release/examples").join(name))
}

/// The directory that a variable of the environment names.
#[must_use]
pub fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}
