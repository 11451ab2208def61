//! `cargo xtask dist`: a Debian package and a tarball, in target/dist.
//!
//! dpkg's own tools make the package from packaging/debian: they come with every Debian, compute what
//! the shared object depends on, and write archives that depend on nothing but their content and
//! SOURCE_DATE_EPOCH. cargo-deb takes 3 to 6 minutes to build on two cores, and asks them for the dependencies
//! too. It packs what rustc linked, while `cc` links the library here. It makes no tarball, which needs the
//! same files laid out.

mod components;
mod debian;
mod stage;

pub use stage::pages;

use crate::deps;
use anyhow::{Context, Result, bail};
use components::{Components, VERSION};
use erd_e2e::layout::Layout;
use erd_e2e::package::Packages;
use erd_e2e::process::Job;
use erd_e2e::setup;
use stage::{LIBRARY, Parts, Stage};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Packages to install.
const DEBIAN_PACKAGES: &[&str] = &["gcc", "libc6-dev", "dpkg-dev", "git"];

/// Builds the packages in `target/<name>`, all that they are made of in directories of that name.
///
/// # Errors
/// If a tool is missing, or a build fails.
pub fn run(layout: &Layout, name: &str) -> Result<Packages> {
    setup::packages(layout, DEBIAN_PACKAGES)?;
    let log = layout.logs.join("dist.log");
    let _ = fs::remove_file(&log);
    let epoch = source_date(layout, &log)?;
    let time = Job::new("date").args(["--utc", "+%FT%TZ", "--date", &format!("@{epoch}")]);
    let parts = Parts {
        library: library(layout, name, &log)?,
        tool: tool(layout, name, &log)?,
        components: Components::find(layout, &log)?,
        time: time.run(&log)?.trim().to_owned(),
        epoch,
    };
    let dir = layout.target.join(name);
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    remove_old(&dir)?;
    let packages = Packages {
        deb: debian::package(layout, &parts, &dir, &log)?,
        tarball: tarball(layout, &parts, &dir, &log)?,
    };
    for file in [&packages.deb, &packages.tarball] {
        println!("made {}", layout.short(file).display());
    }
    Ok(packages)
}

/// Removes packages of an earlier version, or another machine: the files there belong together.
fn remove_old(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = name.starts_with("erd_") && name.ends_with(".deb")
            || name.starts_with("erd-") && name.ends_with(".tar.gz");
        if ours {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// SOURCE_DATE_EPOCH, or the time of the latest commit.
fn source_date(layout: &Layout, log: &Path) -> Result<String> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => Job::new("git")
            .args(["log", "-1", "--format=%ct"])
            .dir(&layout.root)
            .run(log)
            .context("set SOURCE_DATE_EPOCH where there is no git repository")?,
    };
    let seconds: u64 = text
        .trim()
        .parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH must be seconds since 1970, is {text:?}"))?;
    Ok(seconds.to_string())
}

/// Builds the shared object.
///
/// This function links it, not rustc, whose own list of exports does not work with symbol versions.
fn library(layout: &Layout, name: &str, log: &Path) -> Result<PathBuf> {
    println!("building the packages' {LIBRARY}");
    let args = ["rustc", "--package", "erd-fi", "--crate-type", "staticlib"];
    let built = build(layout, name, &args, log)?;
    let library = link(layout, &built, log)?;
    without_paths(layout, &library, log)?;
    Ok(library)
}

/// Builds the command.
fn tool(layout: &Layout, name: &str, log: &Path) -> Result<PathBuf> {
    println!("building the packages' erd");
    let tool = build(layout, name, &["build", "--package", "erd-tool"], log)?.join("erd");
    without_paths(layout, &tool, log)?;
    Ok(tool)
}

/// The directory where cargo keeps what it has fetched.
pub fn cargo_home() -> Result<PathBuf> {
    match env::var_os("CARGO_HOME") {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => Ok(env::home_dir().context("neither CARGO_HOME nor HOME is set")?.join(".cargo")),
    }
}

/// Directories of this machine, and their names in the packages.
///
/// Where the standard library's sources are installed, as some tools need them, rustc names their files
/// by where they are; elsewhere by the compiler's commit, as here.
fn places(layout: &Layout, log: &Path) -> Result<[(PathBuf, String); 3]> {
    let cargo_home = cargo_home()?;
    let sysroot = layout.rustc(&["--print", "sysroot"], log)?;
    let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    let about = layout.rustc(&["-vV"], log)?;
    let commit = about.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.context("rustc -vV names no commit")?;
    Ok([
        (layout.root.clone(), "erd".to_owned()),
        (cargo_home, "cargo".to_owned()),
        (sources, format!("/rustc/{commit}")),
    ])
}

/// Has cargo build something apart from `target/release`, whose flags it does not share: without symbols, and with the
/// same names of source files on every machine. Returns its path.
///
/// The target is named, so that cargo's configuration does not choose another, and build scripts do
/// not get the flags.
fn build(layout: &Layout, name: &str, args: &[&str], log: &Path) -> Result<PathBuf> {
    let remap =
        |(dir, name): &(PathBuf, String)| format!("--remap-path-prefix={}={name}", dir.display());
    let flags = places(layout, log)?.each_ref().map(remap);
    // A dependency has C and assembly.
    let c_flags = places(layout, log)?
        .each_ref()
        .map(|(dir, name)| format!("-ffile-prefix-map={}={name}", dir.display()));
    let (host, target) = (deps::host(layout, log)?, layout.own.join(format!("{name}-build")));
    layout
        .cargo(args)
        .args(["--release", "--locked", "--target", &host])
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CFLAGS", c_flags.join(" "))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .run(log)?;
    Ok(target.join(host).join("release"))
}

fn without_paths(layout: &Layout, file: &Path, log: &Path) -> Result<()> {
    let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    for (dir, _) in places(layout, log)? {
        let path = dir.as_os_str().as_encoded_bytes();
        if bytes.windows(path.len()).any(|window| window == path) {
            bail!("{} has the path {} in it", file.display(), dir.display());
        }
    }
    Ok(())
}

/// Links the archive that rustc made.
fn link(layout: &Layout, built: &Path, log: &Path) -> Result<PathBuf> {
    let library = built.join(LIBRARY);
    let map = layout.root.join("so/liberd.map");
    Job::new("cc")
        .args(["-shared".as_ref(), "-o".as_ref(), library.as_os_str()])
        .args(["-Wl,--whole-archive".as_ref(), built.join("liberd_fi.a").as_os_str()])
        .args(["-Wl,--no-whole-archive", "-Wl,--gc-sections", "-Wl,--strip-all"])
        .args(["-Wl,--build-id=none", "-Wl,-z,relro,-z,now", "-Wl,-z,nodelete"])
        .args([format!("-Wl,-soname,{LIBRARY}"), format!("-Wl,--version-script={}", map.display())])
        .args(["-lgcc_s", "-lm", "-lc"])
        .limit(Duration::from_secs(300))
        .run(log)?;
    Ok(library)
}

/// The tarball: one directory with what belongs under a prefix such as /usr/local.
fn tarball(layout: &Layout, parts: &Parts, dir: &Path, log: &Path) -> Result<PathBuf> {
    let triple = debian::architecture("DEB_HOST_GNU_TYPE", log)?;
    let name = format!("erd-{VERSION}-{triple}");
    let work = Stage::new(layout.own.join("dist-tarball"))?;
    let prefix = work.below(&name);
    prefix.fill(layout, parts, ("${pcfiledir}/../..", "lib"))?;
    prefix.manual(layout, None)?;
    let file = dir.join(format!("{name}.tar.gz"));
    Job::new("tar")
        .args(["--create", "--use-compress-program=gzip -9n", "--format=gnu", "--sort=name"])
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .args([&format!("--mtime=@{}", parts.epoch), "--directory"])
        .args([work.root()])
        .args(["--file".as_ref(), file.as_os_str(), name.as_ref()])
        .run(log)?;
    Ok(file)
}
