//! The packages as a user has them: installed, found by libfabric without settings, removed again.

use crate::fabric::{Core, Provider};
use crate::layout::{Layout, empty};
use crate::pingpong::{self, PingPong};
use crate::process::{Job, last_lines};
use crate::programs::compile_with;
use crate::report::{Done, Report};
use crate::{setup, verbs};
use anyhow::{Context, Result, bail};
use rustix::process::getuid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An environment with only the search path.
const NOTHING: [&str; 3] = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"];
/// The remark in reports for users other than root.
const NOT_ROOT: &str = "only root may change what lies under /usr, even for one process";

/// Packages of the clean root beside those of every Debian.
const CLEAN_ROOT_PACKAGES: &str = "libfabric-bin,gcc,libc6-dev,pkgconf";
/// A program in C that was written from the header and the man pages, and how its line begins that
/// shows success.
const BY_THE_MANUAL: (&str, &str) = ("two_processes", "4096 bytes written, read and counted in");

/// Directory in `target` of the packages that users get.
pub const DIST: &str = "dist";

/// Packages of this source.
#[derive(Debug)]
pub struct Packages {
    /// The Debian package.
    pub deb: PathBuf,
    /// The tarball.
    pub tarball: PathBuf,
}

/// The function that makes the packages, as `cargo xtask dist` does, in a directory of `target`.
pub type Pack = fn(&Layout, &str) -> Result<Packages>;

/// Adds the steps; to build everything twice takes minutes, and is in the full tier only.
pub fn steps(report: &mut Report, layout: &Layout, provider: &Provider, full: bool, pack: Pack) {
    report.step("package", |log| {
        let packages = twice(layout, pack)?;
        unpacked_tarball(layout, &packages, log)?;
        laid_over(layout, &packages, provider, log)
    });
    let missing = || (!getuid().is_root()).then_some(NOT_ROOT);
    report.step_unless("package in a clean root", missing, |log| {
        installed(layout, &clean_root(layout, log)?, &pack(layout, DIST)?, provider, log)
    });
    if full {
        report.step("packages built again", |log| rebuilt(layout, pack, log));
    }
}

fn bytes(packages: &Packages) -> Result<[Vec<u8>; 2]> {
    Ok([fs::read(&packages.deb)?, fs::read(&packages.tarball)?])
}

/// Packs twice, which must give the same bytes.
fn twice(layout: &Layout, pack: Pack) -> Result<Packages> {
    let first = bytes(&pack(layout, DIST)?)?;
    let packages = pack(layout, DIST)?;
    if first != bytes(&packages)? {
        bail!("packed again, the packages are not the same");
    }
    Ok(packages)
}

/// Builds all of the packages again, in an empty directory of another name.
fn rebuilt(layout: &Layout, pack: Pack, log: &Path) -> Result<Done> {
    let first = pack(layout, DIST)?;
    empty(layout.own.join("dist-again-build"))?;
    let again = pack(layout, "dist-again")?;
    if bytes(&first)? != bytes(&again)? {
        bail!("built again, the packages are not the same");
    }
    let sum = Job::new("sha256sum").args([&first.deb, &again.deb]).run(log)?;
    Done::one(format!("the same bytes, {}", &sum[..sum.len().min(16)]))
}

/// The tarball under a prefix that libfabric is told of.
fn unpacked_tarball(layout: &Layout, packages: &Packages, log: &Path) -> Result<()> {
    let prefix = empty(layout.own.join("unpacked-tarball"))?;
    let unpack = Job::new("tar").args(["--extract", "--strip-components=1", "--file"]);
    unpack.args([&packages.tarball]).args(["--directory".as_ref(), prefix.as_os_str()]).run(log)?;
    let job = Job::new("fi_info").args(["-p", "erd"]);
    job.env("FI_PROVIDER_PATH", prefix.join("lib/libfabric")).run(log)?;
    Job::new(prefix.join("bin/erd")).args(["info"]).run(log)?;
    links(layout, &prefix, log)
}

/// Compiles and runs a program with what pkg-config says of an unpacked prefix, whose library exports
/// the recorded functions with their versions.
fn links(layout: &Layout, prefix: &Path, log: &Path) -> Result<()> {
    let lib = prefix.join("lib");
    let exported = verbs::exported(&lib.join("liberd.so.1"), log)?;
    let recorded = verbs::recorded(layout)?;
    let versioned = recorded.iter().map(|name| format!("{name}@@ERD_1.0")).collect();
    verbs::same(&versioned, &exported)?;
    let config = Job::new("pkg-config").args(["--cflags", "--libs", "erd"]);
    let flags = config.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).run(log)?;
    let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let program = compile_with(layout, "examples/verbs_pingpong", &flags, log)?;
    Job::new(program).args(["1000"]).env("LD_LIBRARY_PATH", lib).run(log)?;
    Ok(())
}

/// The Debian package's files over the system's own, for single processes: as if it were installed.
fn laid_over(
    layout: &Layout,
    packages: &Packages,
    provider: &Provider,
    log: &Path,
) -> Result<Done> {
    let root = empty(layout.own.join("unpacked-package"))?;
    Job::new("dpkg-deb")
        .args(["--extract".as_ref(), packages.deb.as_os_str(), root.as_os_str()])
        .run(log)?;
    if !getuid().is_root() {
        return Ok(Done::Skipped(NOT_ROOT.to_owned()));
    }
    let overlay = "mount -t overlay -o ro,lowerdir=\"$0\"/usr:/usr erd /usr && exec \"$@\"";
    let root = root.to_str().context("the target directory's path is not UTF-8")?;
    let place = ["unshare", "--mount", "sh", "-c", overlay, root];
    let probe = Job::new("true").under(place).finish(log)?;
    if !probe.is_success() {
        let last = last_lines(&probe.output, 1);
        return Ok(Done::Skipped(format!("nothing can be laid over /usr here ({last})")));
    }
    let dir = empty(layout.own.join("by-the-manual"))?;
    by_the_manual(layout, &place, (&dir, &dir), log)?;
    works(&place, provider, log)
}

/// A Debian of this machine's release with libfabric's programs in it; made once.
fn clean_root(layout: &Layout, log: &Path) -> Result<PathBuf> {
    let root = layout.own.join("clean-root");
    let stamp = layout.own.join("clean-root.packages");
    if root.exists() && fs::read_to_string(&stamp).is_ok_and(|has| has == CLEAN_ROOT_PACKAGES) {
        return Ok(root);
    }
    empty(root.clone())?;
    setup::packages(layout, &["mmdebstrap"])?;
    let release = fs::read_to_string("/etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release names no release")?;
    // Under another name until it is whole.
    let part = empty(layout.own.join("clean-root.part"))?;
    Job::new("mmdebstrap")
        .args(["--variant=essential", &format!("--include={CLEAN_ROOT_PACKAGES}"), suite])
        .args([&part])
        .limit(Duration::from_secs(900))
        .run(log)?;
    fs::rename(&part, &root)?;
    fs::write(&stamp, CLEAN_ROOT_PACKAGES)?;
    Ok(root)
}

/// Installs, tries and removes the package.
fn installed(
    layout: &Layout,
    root: &Path,
    packages: &Packages,
    provider: &Provider,
    log: &Path,
) -> Result<Done> {
    let directory = root.to_str().context("the target directory's path is not UTF-8")?;
    let place = ["chroot", directory];
    let dpkg = |args: &[&str]| Job::new("dpkg").args(args).under(NOTHING).under(place).run(log);
    fs::copy(&packages.deb, root.join("tmp/erd.deb"))?;
    dpkg(&["--install", "/tmp/erd.deb"])?;
    let done = by_the_manual(layout, &place, (&root.join("tmp"), Path::new("/tmp")), log)
        .and_then(|()| works(&place, provider, log));
    let files = dpkg(&["--listfiles", "erd"])?;
    dpkg(&["--purge", "erd"])?;
    let left = files.lines().find(|file| root.join(file.trim_start_matches('/')).is_file());
    if let Some(file) = left {
        bail!("{file} is there after the package was removed");
    }
    if fi_info(&place).run(log).is_ok() {
        bail!("fi_info finds erd after the package was removed");
    }
    done
}

/// Asks for erd where only the package tells its place.
fn works(place: &[&str], provider: &Provider, log: &Path) -> Result<Done> {
    fi_info(place).run(log)?;
    erd_sees_it(place, log)?;
    let mut run = PingPong::new(&["-m", "tagged", "-S", "all", "-I", "20"]);
    run.under = place.iter().chain(&NOTHING).map(|word| (*word).to_owned()).collect();
    let sizes =
        pingpong::rows(&run.run(&Core::system(), provider, &provider.counters(log), log)?)?;
    Done::many(
        sizes.len(),
        format!("C program; fi_info; erd doctor; fi_pingpong with {} sizes", sizes.len()),
    )
}

/// Compiles and runs a program with nothing but what the package has installed. The directory is
/// given as it is called here, and there.
fn by_the_manual(
    layout: &Layout,
    place: &[&str],
    (here, there): (&Path, &Path),
    log: &Path,
) -> Result<()> {
    let (name, shows) = BY_THE_MANUAL;
    let source = format!("{name}.c");
    fs::copy(layout.root.join("tests/c").join(&source), here.join(&source))?;
    let build = "cd \"$0\" && cc -Wall -Wextra -Werror -o program \"$1\" $(pkg-config --cflags --libs erd) && ./program";
    let there = there.to_str().context("the target directory's path is not UTF-8")?;
    let job = Job::new("sh").args(["-c", build, there, &source]).under(NOTHING).under(place);
    let output = job.run(log)?;
    if !output.lines().any(|line| line.starts_with(shows)) {
        bail!("{name} wrote no line that begins with \"{shows}\"");
    }
    Ok(())
}

/// The doctor finds the provider where the package put it, without settings.
fn erd_sees_it(place: &[&str], log: &Path) -> Result<()> {
    let doctor = Job::new("erd").args(["doctor", "--json"]).under(NOTHING).under(place);
    let found: Value = serde_json::from_str(&doctor.finish(log)?.output).context("erd doctor")?;
    let found = found.as_array().context("no findings")?;
    let asked = found.iter().find(|finding| finding["check"] == "libfabric");
    match asked.map(|finding| (&finding["verdict"], &finding["text"])) {
        Some((verdict, _)) if verdict == "ok" => Ok(()),
        told => bail!("erd doctor says of libfabric: {told:?}"),
    }
}

fn fi_info(place: &[&str]) -> Job {
    Job::new("fi_info").args(["-p", "erd"]).under(NOTHING).under(place)
}
