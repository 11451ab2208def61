//! What is linked into the shared object and the command: a CycloneDX list of it, and the licences'
//! texts.
//!
//! From what cargo knows, in few lines: cargo-cyclonedx writes a list beside each manifest of the
//! workspace, with this machine's paths as identifiers, and cargo-about is two hundred crates to build.

use super::VERSION;
use crate::deps;
use anyhow::{Context, Result};
use erd_e2e::layout::Layout;
use erd_e2e::process::Job;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The packages whose dependencies are listed: the shared object's, and the command's.
const ROOTS: [&str; 2] = ["erd-fi", "erd-tool"];
/// How files begin that have a licence in them.
const LICENCE_FILES: &[&str] =
    &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Everything that is linked in.
#[derive(Debug)]
pub struct Components {
    /// By cargo's identifier; the root is among them.
    found: BTreeMap<String, Component>,
    /// Version of the compiler, which is that of Rust's standard library.
    rust: String,
    /// Its copyright notices, where the compiler came with them.
    rust_notices: Option<PathBuf>,
}

#[derive(Debug)]
struct Component {
    name: String,
    version: String,
    licence: String,
    authors: String,
    repository: Option<String>,
    dir: PathBuf,
    is_ours: bool,
    needs: Vec<String>,
}

impl Components {
    /// Asks cargo.
    ///
    /// # Errors
    /// cargo does not answer as it should.
    pub fn find(layout: &Layout, log: &Path) -> Result<Components> {
        let rustc = |args: &[&str]| Job::new("rustc").args(args).dir(&layout.root).run(log);
        let version = rustc(&["--version"])?;
        let rust = version.split(' ').nth(1).context("rustc told no version")?.to_owned();
        let sysroot = rustc(&["--print", "sysroot"])?;
        let notices = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
        let rust_notices = notices.exists().then_some(notices);
        Ok(Components { found: linked(&deps::metadata(layout, log)?)?, rust, rust_notices })
    }

    /// The copyright notices of Rust's standard library, where the compiler came with them.
    #[must_use]
    pub fn rust_notices(&self) -> Option<&Path> {
        self.rust_notices.as_deref()
    }

    /// The list in CycloneDX's form, made at `time`.
    #[must_use]
    pub fn cyclonedx(&self, time: &str) -> String {
        let roots = ROOTS.map(|root| format!("pkg:cargo/{root}@{VERSION}"));
        let std = format!("pkg:generic/rust-std@{}", self.rust);
        let mut components: Vec<Value> = self.found.values().map(Component::cyclonedx).collect();
        components.push(json!({
            "type": "library", "bom-ref": std, "name": "rust-std", "version": self.rust,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        }));
        let graph = self.found.values().map(|component| {
            let mut needs: Vec<String> =
                component.needs.iter().map(|id| self.found[id].url()).collect();
            if roots.contains(&component.url()) {
                needs.push(std.clone());
            }
            json!({ "ref": component.url(), "dependsOn": needs })
        });
        let whole = json!({ "ref": "erd", "dependsOn": roots });
        let list = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "timestamp": time,
                "component": {
                    "type": "application", "bom-ref": "erd", "name": "erd", "version": VERSION,
                    "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                },
            },
            "components": components,
            "dependencies": graph.chain([whole]).collect::<Vec<_>>(),
        });
        format!("{list:#}\n")
    }

    /// The licences: who has which, and each text once.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn licences(&self) -> Result<String> {
        let mut list = format!(
            "liberd_fi.so and the command erd {VERSION} are made of erd, Rust's standard library {} (MIT OR Apache-2.0)\n\
             and these packages:\n\n",
            self.rust
        );
        let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for component in self.found.values().filter(|component| !component.is_ours) {
            let Component { name, version, licence, authors, .. } = component;
            writeln!(list, "{name} {version}: {licence} ({authors})")?;
            for text in component.licence_texts()? {
                texts.entry(text).or_default().push(name);
            }
        }
        for (text, names) in texts {
            write!(list, "\n{}\n{}\n\n{}\n", "-".repeat(80), names.join(", "), text.trim())?;
        }
        Ok(list)
    }
}

impl Component {
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    fn cyclonedx(&self) -> Value {
        let mut value = json!({
            "type": "library", "bom-ref": self.url(), "purl": self.url(),
            "name": self.name, "version": self.version,
            "licenses": [{ "expression": self.licence }],
        });
        if let Some(repository) = &self.repository {
            value["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
        }
        value
    }

    fn licence_texts(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.dir)
            .with_context(|| format!("the sources of {} in {}", self.name, self.dir.display()))?;
        let mut texts = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            if path.is_file() && LICENCE_FILES.iter().any(|start| name.starts_with(start)) {
                texts.push(fs::read_to_string(&path)?);
            }
        }
        Ok(texts)
    }
}

/// Walks from the root over what is linked: no build scripts, no macros, no tests.
fn linked(metadata: &Value) -> Result<BTreeMap<String, Component>> {
    let by_id = |list: &Value| -> Option<BTreeMap<String, Value>> {
        let entries = list.as_array()?.iter();
        Some(entries.filter_map(|e| Some((e["id"].as_str()?.to_owned(), e.clone()))).collect())
    };
    let packages = by_id(&metadata["packages"]).context("no packages")?;
    let nodes = by_id(&metadata["resolve"]["nodes"]).context("no resolve graph")?;
    let find = |root: &str| {
        let found = packages.iter().find(|(_, package)| package["name"] == root);
        Ok(found.with_context(|| format!("no package {root}"))?.0.clone())
    };
    let mut waiting = ROOTS.iter().map(|root| find(root)).collect::<Result<Vec<_>>>()?;
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        let (package, node) = (&packages[&id], &nodes[&id]);
        let linked = |dep: &&Value| is_normal(dep) && !is_macro(&packages, dep);
        let deps = node["deps"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let needs: Vec<String> =
            deps.filter(linked).filter_map(|dep| dep["pkg"].as_str().map(str::to_owned)).collect();
        waiting.extend(needs.iter().filter(|need| !found.contains_key(*need)).cloned());
        found.insert(id, component(package, needs)?);
    }
    Ok(found)
}

fn is_normal(dep: &Value) -> bool {
    dep["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k["kind"].is_null()))
}

fn is_macro(packages: &BTreeMap<String, Value>, dep: &Value) -> bool {
    let package = dep["pkg"].as_str().and_then(|id| packages.get(id));
    let targets = package.and_then(|package| package["targets"].as_array());
    targets.is_some_and(|targets| targets.iter().any(|t| t["kind"][0] == "proc-macro"))
}

fn component(package: &Value, needs: Vec<String>) -> Result<Component> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let authors = package["authors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let authors: Vec<&str> = authors.iter().filter_map(Value::as_str).collect();
    let manifest = package["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
    Ok(Component {
        name: text(&package["name"]),
        version: text(&package["version"]),
        // The old form of "OR", which SPDX does not have any more.
        licence: text(&package["license"]).replace('/', " OR "),
        authors: if authors.is_empty() { "its authors".to_owned() } else { authors.join(", ") },
        repository: package["repository"].as_str().map(str::to_owned),
        dir: manifest.context("a package without a manifest")?.to_owned(),
        is_ours: package["source"].is_null(),
        needs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(id: &str, kind: &str, source: &Value) -> Value {
        json!({
            "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0", "authors": [],
            "source": source, "manifest_path": "dir/Cargo.toml", "targets": [{ "kind": [kind] }],
        })
    }

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let dep = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let deps = [
            dep("linked", Value::Null),
            dep("macros", Value::Null),
            dep("tests", json!("dev")),
            dep("script", json!("build")),
        ];
        let away = json!("registry+somewhere");
        let metadata = json!({
            "packages": [
                package(ROOTS[0], "cdylib", &Value::Null), package("linked", "lib", &away),
                package(ROOTS[1], "bin", &Value::Null), package("shown", "lib", &away),
                package("macros", "proc-macro", &away), package("tests", "lib", &away),
                package("script", "lib", &away),
            ],
            "resolve": { "nodes": [
                { "id": ROOTS[0], "deps": deps }, { "id": "linked", "deps": [] },
                { "id": ROOTS[1], "deps": [dep("shown", Value::Null)] }, { "id": "shown", "deps": [] },
            ] },
        });
        let found = linked(&metadata).expect("a list");
        assert_eq!(found.keys().collect::<Vec<_>>(), [ROOTS[0], ROOTS[1], "linked", "shown"]);
        assert_eq!(found["linked"].licence, "MIT OR Apache-2.0");
        assert!(found[ROOTS[0]].is_ours && !found["linked"].is_ours);
    }
}
