//! The Debian package.

use super::components::VERSION;
use super::stage::{LIBRARY, Parts, Stage};
use anyhow::{Context, Result, bail};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes the package in `dir`.
///
/// # Errors
/// If dpkg's tools fail, or the changelog does not begin with this version.
pub fn package(layout: &Layout, parts: &Parts, dir: &Path, log: &Path) -> Result<PathBuf> {
    let source = layout.root.join("packaging/debian");
    let changelog = fs::read_to_string(source.join("changelog"))?;
    let version = version(&changelog)?;
    let (multiarch, arch) =
        (architecture("DEB_HOST_MULTIARCH", log)?, architecture("DEB_HOST_ARCH", log)?);
    let work = Stage::new(layout.own.join("dist-debian"))?;
    let root = work.below("debian/erd");
    let usr = root.below("usr");
    usr.fill(layout, parts, ("/usr", &format!("lib/{multiarch}")))?;
    usr.copy(&source.join("changelog"), "share/doc/erd/changelog.Debian")?;
    usr.compress("share/doc/erd/changelog.Debian", log)?;
    usr.manual(layout, Some(log))?;
    // dpkg's tools read debian/ below the directory that they run in.
    for file in ["control", "changelog"] {
        work.copy(&source.join(file), &format!("debian/{file}"))?;
    }
    let tool = |name: &str| Job::new(name).dir(work.root()).env("SOURCE_DATE_EPOCH", &parts.epoch);
    tool("dpkg-shlibdeps")
        .args(["-Tdebian/substvars", "-e"])
        .args([&format!("debian/erd/usr/lib/{multiarch}/{LIBRARY}")])
        .args(["-e", "debian/erd/usr/bin/erd"])
        .run(log)?;
    root.below("DEBIAN").make()?;
    // Packages of programs that link the library depend on this one, and the loader must know it.
    root.write("DEBIAN/shlibs", format!("liberd 1 erd (>= {VERSION})\n").as_bytes())?;
    root.write("DEBIAN/triggers", b"activate-noawait ldconfig\n")?;
    tool("dpkg-gencontrol").args(["-Tdebian/substvars", "-Pdebian/erd"]).run(log)?;
    let file = dir.join(format!("erd_{version}_{arch}.deb"));
    tool("dpkg-deb")
        .args(["--root-owner-group", "-Zxz", "--build", "debian/erd"])
        .args([&file])
        .run(log)?;
    Ok(file)
}

/// The machine's architecture, from dpkg-architecture.
///
/// # Errors
/// If it prints nothing.
pub fn architecture(variable: &str, log: &Path) -> Result<String> {
    let text = Job::new("dpkg-architecture").args(["-q", variable]).run(log)?;
    Ok(text.trim().to_owned())
}

/// The package's version, from the first line of its changelog: `erd (0.1.0-1) unstable; ...`.
fn version(changelog: &str) -> Result<&str> {
    let version = changelog.split(['(', ')']).nth(1).context("no version in the changelog")?;
    if version.split_once('-').map(|(upstream, _)| upstream) != Some(VERSION) {
        bail!("packaging/debian/changelog begins with {version}; Cargo.toml has {VERSION}");
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_this_version() {
        let changelog = include_str!("../../../packaging/debian/changelog");
        assert!(version(changelog).is_ok_and(|version| version.starts_with(VERSION)));
        let error = version("erd (0.0.9-1) unstable; urgency=low\n").expect_err("another version");
        assert!(error.to_string().contains("0.0.9-1"), "{error}");
    }
}
