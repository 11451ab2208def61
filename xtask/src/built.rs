//! Test programs as `cargo test --workspace` builds them. Cargo builds any other choice of packages apart, with other
//! features, which takes half a minute for each.

use anyhow::{Context, Result};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// What makes cargo build the programs and name them.
const BUILD: [&str; 4] = ["test", "--no-run", "--message-format", "json"];
/// Most time for a program, if the caller says nothing else.
const LIMIT: Duration = Duration::from_secs(900);
/// The packages with mutants, whose programs share what they are built of.
const WITH_MUTANTS: [&str; 6] =
    ["--package", "erd-world", "--package", "erd-model", "--features", "erd-model/mutants"];

/// The program with the tests of this name in a package, in the package's directory. A library's name is its package's,
/// with underscores.
///
/// # Errors
/// The compiler's message, or there is no such program.
pub fn tests(layout: &Layout, log: &Path, package: &str, name: &str) -> Result<Job> {
    find(layout, log, &["--workspace"], (package, name))
}

/// The program of a package that hunts mutants.
///
/// # Errors
/// As [`tests`].
pub fn mutants(layout: &Layout, log: &Path, package: &str) -> Result<Job> {
    find(layout, log, &WITH_MUTANTS, (package, "mutants"))
}

fn find(
    layout: &Layout,
    log: &Path,
    packages: &[&str],
    (package, name): (&str, &str),
) -> Result<Job> {
    let messages = layout.cargo(&BUILD).args(packages).run(log)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = messages.filter_map(|message| program(&message, package, name)).next();
    found.with_context(|| format!("cargo named no tests {name} of {package}"))
}

/// The program that a message of cargo's names, if it is this one.
fn program(message: &Value, package: &str, name: &str) -> Option<Job> {
    let program = message["executable"].as_str()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let dir = manifest.parent()?;
    let id = message["package_id"].as_str()?;
    // "path+file:///dir#name@version", or "…/name#version" where the directory has that name.
    let (path, rest) = id.split_once('#')?;
    let of = rest.split_once('@').map_or_else(|| path.rsplit('/').next(), |(of, _)| Some(of))?;
    let is_it = is_test && of == package && message["target"]["name"].as_str()? == name;
    is_it.then(|| Job::new(program).dir(dir).limit(LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_package_and_name() {
        let message = |id: &str, test: bool| {
            serde_json::json!({
                "package_id": id, "manifest_path": "/a/world/Cargo.toml", "executable": "/t/faults-1",
                "profile": {"test": test}, "target": {"name": "faults"}
            })
        };
        let named = message("path+file:///a/world#erd-world@0.1.0", true);
        assert!(program(&named, "erd-world", "faults").is_some());
        assert!(program(&named, "erd-model", "faults").is_none());
        assert!(program(&named, "erd-world", "garbage").is_none());
        let unnamed = message("path+file:///a/erd-world#0.1.0", true);
        assert!(program(&unnamed, "erd-world", "faults").is_some());
        let no_test = message("path+file:///a/world#erd-world@0.1.0", false);
        assert!(program(&no_test, "erd-world", "faults").is_none());
    }
}
