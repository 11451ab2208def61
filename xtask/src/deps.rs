//! Licences of the dependencies, and that none is there twice, from what cargo knows of them.

use anyhow::{Context, Result, bail};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use erd_e2e::report::Done;
use serde_json::Value;
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

/// Packages of which two versions are accepted, each with the reason.
const TWICE: &[(&str, &str)] = &[(
    "syn",
    "zerocopy, below the test relay's TUN devices, names its derive macros only to fix their version; nothing builds them",
)];

/// Checks every package that this platform builds, with features, build scripts and tests.
///
/// # Errors
/// Names each package whose licence or source isn't allowed, or that is there twice.
pub fn check(layout: &Layout, log: &Path) -> Result<Done> {
    let packages = used_packages(&metadata(layout, log)?)?;
    let found = complaints(&packages);
    if !found.is_empty() {
        bail!("{}", found.join("\n"));
    }
    Done::one(format!("{} packages", packages.len()))
}

/// All packages of the workspace and how they depend on each other, as cargo tells it.
///
/// # Errors
/// cargo fails or is silent.
pub fn metadata(layout: &Layout, log: &Path) -> Result<Value> {
    let host = host(layout, log)?;
    let text = Job::new("cargo")
        .args(["metadata", "--format-version", "1", "--all-features", "--quiet"])
        .args(["--filter-platform", &host])
        .dir(&layout.root)
        .run(log)?;
    let line =
        text.lines().find(|line| line.starts_with('{')).context("cargo metadata was silent")?;
    Ok(serde_json::from_str(line)?)
}

/// The triple that the compiler builds for by itself, such as `x86_64-unknown-linux-gnu`.
///
/// # Errors
/// rustc does not tell.
pub fn host(layout: &Layout, log: &Path) -> Result<String> {
    let text = Job::new("rustc").args(["--version", "--verbose"]).dir(&layout.root).run(log)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

/// What is checked of a package.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    licence: String,
    source: Option<String>,
}

fn used_packages(metadata: &Value) -> Result<Vec<Package>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("no resolve graph")?;
    let used: Vec<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let packages = metadata["packages"].as_array().context("no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(&id)))
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]),
            source: package["source"].as_str().map(str::to_owned),
        })
        .collect())
}

fn complaints(packages: &[Package]) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let Package { name, version, licence, source } = package;
        versions.entry(name).or_default().push(version);
        if !is_allowed(licence) {
            found.push(format!("{name} {version}: licence \"{licence}\" is not among {ALLOWED:?}"));
        }
        if source.as_ref().is_some_and(|source| !source.starts_with("registry+")) {
            found.push(format!("{name} {version} comes from {source:?}, not from the registry"));
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
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) && rest.is_empty()
}

fn any_of(rest: &mut &[&str]) -> bool {
    let mut allowed = all_of(rest);
    while let [first, tail @ ..] = *rest
        && *first == "OR"
    {
        *rest = tail;
        allowed |= all_of(rest);
    }
    allowed
}

fn all_of(rest: &mut &[&str]) -> bool {
    let mut allowed = one(rest);
    while let [first, tail @ ..] = *rest
        && *first == "AND"
    {
        *rest = tail;
        allowed &= one(rest);
    }
    allowed
}

fn one(rest: &mut &[&str]) -> bool {
    let [first, tail @ ..] = *rest else { return false };
    *rest = tail;
    if *first == "(" {
        let inner = any_of(rest);
        let closed = rest.first() == Some(&")");
        *rest = rest.get(1..).unwrap_or_default();
        return inner && closed;
    }
    // An exception makes a licence another one.
    if let ["WITH", exception, tail @ ..] = *rest {
        *rest = tail;
        return ALLOWED.contains(&format!("{first} WITH {exception}").as_str());
    }
    ALLOWED.contains(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, licence: &str, source: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: licence.to_owned(),
            source: Some(source.to_owned()),
        }
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
            "(MIT",
        ] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn planted_faults_are_named() {
        let found = complaints(&[
            package("good", "1.0.0", "MIT", "registry+somewhere"),
            package("good", "2.0.0", "MIT", "registry+somewhere"),
            package("copyleft", "1.0.0", "GPL-3.0", "registry+somewhere"),
            package("stray", "1.0.0", "MIT", "git+somewhere"),
        ]);
        assert_eq!(found.len(), 3, "{found:#?}");
        for name in ["good", "copyleft", "stray"] {
            assert!(found.iter().any(|line| line.starts_with(name)), "{name}");
        }
    }
}
