//! Checks of the dependencies, from cargo's metadata: their licences, and that none is there twice.
//!
//! cargo-deny checks this too, but a fresh machine with two cores takes 3 to 6 minutes to build it.

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package, Resolve};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use erd_e2e::report::Done;
use spdx::{Expression, ParseMode};
use std::collections::BTreeMap;
use std::path::Path;

/// Licences that a dependency may have; of alternatives (`OR`) one must be here.
const ALLOWED: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
];

/// Reason for two generations of random numbers.
const RAND_OF_SEARCH: &str = "stateright, which searches tests/model, has the older one below its rand 0.9; nothing that ships has it";

/// Packages of which two versions are accepted, each with the reason.
const TWICE: &[(&str, &str)] = &[
    (
        "syn",
        "zerocopy, below the test relay's TUN devices, names its derive macros only to fix their version; nothing builds them",
    ),
    (
        "hashbrown",
        "dashmap, below stateright, which searches tests/model, has the older one; nothing that ships has it",
    ),
    ("rand_chacha", RAND_OF_SEARCH),
    ("rand_core", RAND_OF_SEARCH),
];

/// Checks every package that this platform builds, with features, build scripts and tests.
///
/// # Errors
/// Names each package whose licence or source isn't allowed, or that is there twice.
pub fn check(layout: &Layout, log: &Path) -> Result<Done> {
    let (metadata, resolve) = metadata(layout, log)?;
    let packages: Vec<&Package> = resolve.nodes.iter().map(|node| &metadata[&node.id]).collect();
    let found = complaints(&packages);
    if !found.is_empty() {
        bail!("{}", found.join("\n"));
    }
    Done::one(format!("{} packages", packages.len()))
}

/// All packages of the workspace and their dependencies, from cargo.
///
/// # Errors
/// cargo fails or is silent.
pub fn metadata(layout: &Layout, log: &Path) -> Result<(Metadata, Resolve)> {
    let host = host(layout, log)?;
    let text = Job::new("cargo")
        .args(["metadata", "--format-version", "1", "--all-features", "--quiet"])
        .args(["--filter-platform", &host])
        .dir(&layout.root)
        .run(log)?;
    let line =
        text.lines().find(|line| line.starts_with('{')).context("cargo metadata was silent")?;
    let mut metadata = MetadataCommand::parse(line)?;
    let resolve = metadata.resolve.take().context("no resolve graph")?;
    Ok((metadata, resolve))
}

/// The compiler's default target triple, such as `x86_64-unknown-linux-gnu`.
///
/// # Errors
/// If rustc does not report it.
pub fn host(layout: &Layout, log: &Path) -> Result<String> {
    let text = layout.rustc(&["-vV"], log)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

fn complaints(packages: &[&Package]) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for Package { name, version, license, source, .. } in packages {
        versions.entry(name.as_ref()).or_default().push(version.to_string());
        let licence = license.as_deref().unwrap_or_default();
        if !is_allowed(licence) {
            found.push(format!("{name} {version}: licence \"{licence}\" is not among {ALLOWED:?}"));
        }
        if let Some(source) = source.as_ref().filter(|source| !source.repr.starts_with("registry+"))
        {
            found.push(format!("{name} {version} comes from {source}, not from the registry"));
        }
    }
    for (name, versions) in versions {
        if versions.len() > 1 && !TWICE.iter().any(|(twice, _)| *twice == name) {
            found.push(format!(
                "{name} is there {} times: {}",
                versions.len(),
                versions.join(", ")
            ));
        }
    }
    found
}

/// Evaluates an SPDX expression; `/` is the old form of `OR`.
fn is_allowed(expression: &str) -> bool {
    let mode =
        ParseMode { allow_slash_as_or_operator: true, allow_deprecated: true, ..ParseMode::STRICT };
    // An exception or "or later" makes a licence another one.
    let is_listed = |licence: &spdx::LicenseReq| ALLOWED.contains(&licence.to_string().as_str());
    Expression::parse_mode(expression, mode).is_ok_and(|parsed| parsed.evaluate(is_listed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, version: &str, licence: &str, source: &str) -> Package {
        let package = json!({
            "name": name, "version": version, "license": licence, "source": source, "id": name,
            "manifest_path": "dir/Cargo.toml", "dependencies": [], "targets": [], "features": {},
        });
        serde_json::from_value(package).expect("a package")
    }

    #[test]
    fn expressions_are_understood() {
        for allowed in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-2.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in [
            "",
            "GPL-2.0",
            "GPL-2.0 WITH LLVM-exception",
            "MIT AND GPL-2.0",
            "(MIT OR GPL-2.0) AND MPL-2.0",
            "MIT MIT",
            "mit",
            "Apache 2.0",
            "Apache-2.0+",
            "(MIT",
        ] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn planted_faults_are_named() {
        let found = complaints(&[
            &package("good", "1.0.0", "MIT", "registry+somewhere"),
            &package("good", "2.0.0", "MIT", "registry+somewhere"),
            &package("copyleft", "1.0.0", "GPL-3.0", "registry+somewhere"),
            &package("stray", "1.0.0", "MIT", "git+somewhere"),
        ]);
        assert_eq!(found.len(), 3, "{found:#?}");
        for name in ["good", "copyleft", "stray"] {
            assert!(found.iter().any(|line| line.starts_with(name)), "{name}");
        }
    }
}
