//! The components linked into the shared object and the command: a CycloneDX list, and the texts of their licences.
//!
//! Made from cargo's metadata: cargo-cyclonedx and cargo-about take 3 to 6 minutes each to build on two cores. The
//! first also writes a list beside each manifest of the workspace, with this machine's paths as identifiers.

use crate::deps;
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, NodeDep, Package, PackageId, Resolve, Target};
use erd_e2e::layout::Layout;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Version of the packages: the workspace's.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The packages whose dependencies are listed: the shared object's, and the command's.
const ROOTS: [&str; 2] = ["erd-fi", "erd-tool"];
/// Prefixes of the names of licence files.
const LICENCE_FILES: &[&str] =
    &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// Everything that is linked in.
#[derive(Debug)]
pub struct Components {
    /// By cargo's identifier; the roots are among them.
    found: BTreeMap<PackageId, Component>,
    /// Version of the compiler, which is that of Rust's standard library.
    rust: String,
    /// Its copyright notices, where the compiler came with them.
    rust_notices: Option<PathBuf>,
}

#[derive(Debug)]
struct Component {
    package: Package,
    needs: Vec<PackageId>,
}

impl Components {
    /// Asks cargo.
    ///
    /// # Errors
    /// If cargo's output is not as expected.
    pub fn find(layout: &Layout, log: &Path) -> Result<Components> {
        let version = layout.rustc(&["--version"], log)?;
        let rust = version.split(' ').nth(1).context("rustc told no version")?.to_owned();
        let sysroot = layout.rustc(&["--print", "sysroot"], log)?;
        let notices = Path::new(sysroot.trim()).join("share/doc/rust/COPYRIGHT-library.html");
        let rust_notices = notices.exists().then_some(notices);
        let (metadata, resolve) = deps::metadata(layout, log)?;
        Ok(Components { found: linked(&metadata, &resolve)?, rust, rust_notices })
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

    /// The licences: the components of each, and each text once.
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
        // Packages without a source are ours.
        for component in self.found.values().filter(|component| component.package.source.is_some())
        {
            let Package { name, version, authors, .. } = &component.package;
            let authors = if authors.is_empty() { "its authors" } else { &authors.join(", ") };
            writeln!(list, "{name} {version}: {} ({authors})", component.licence())?;
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
        format!("pkg:cargo/{}@{}", self.package.name, self.package.version)
    }

    /// The old form of "OR" is a slash, which SPDX has dropped.
    fn licence(&self) -> String {
        self.package.license.as_deref().unwrap_or_default().replace('/', " OR ")
    }

    fn cyclonedx(&self) -> Value {
        let mut value = json!({
            "type": "library", "bom-ref": self.url(), "purl": self.url(),
            "name": self.package.name, "version": self.package.version,
            "licenses": [{ "expression": self.licence() }],
        });
        if let Some(repository) = &self.package.repository {
            value["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
        }
        value
    }

    fn licence_texts(&self) -> Result<Vec<String>> {
        let Package { name, manifest_path, .. } = &self.package;
        let dir = manifest_path.parent().context("a package without a manifest")?;
        let entries =
            fs::read_dir(dir).with_context(|| format!("the sources of {name} in {dir}"))?;
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

/// Walks from the roots over what is linked: no build scripts, no macros, no tests.
fn linked(metadata: &Metadata, resolve: &Resolve) -> Result<BTreeMap<PackageId, Component>> {
    let find = |root: &str| {
        let found = metadata.packages.iter().find(|package| package.name == root);
        Ok(found.with_context(|| format!("no package {root}"))?.id.clone())
    };
    let is_linked = |dep: &&NodeDep| {
        let is_normal = dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
        is_normal && !metadata[&dep.pkg].targets.iter().any(Target::is_proc_macro)
    };
    let mut waiting = ROOTS.iter().map(|root| find(root)).collect::<Result<Vec<_>>>()?;
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        let linked = resolve[&id].deps.iter().filter(is_linked);
        let needs: Vec<PackageId> = linked.map(|dep| dep.pkg.clone()).collect();
        waiting.extend(needs.iter().filter(|need| !found.contains_key(*need)).cloned());
        let package = metadata[&id].clone();
        found.insert(id, Component { package, needs });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(id: &str, kind: &str, source: &Value) -> Value {
        json!({
            "id": id, "name": id, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source,
            "manifest_path": "dir/Cargo.toml", "dependencies": [], "features": {},
            "targets": [{ "name": id, "kind": [kind], "src_path": "dir/lib.rs" }],
        })
    }

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let dep = |id: &str, kind: Value| json!({ "name": id, "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let node = |id: &str, deps: Value| json!({ "id": id, "deps": deps, "dependencies": [] });
        let deps = json!([
            dep("linked", Value::Null),
            dep("macros", Value::Null),
            dep("tests", json!("dev")),
            dep("script", json!("build")),
        ]);
        let away = json!("registry+somewhere");
        let packages = json!([
            package(ROOTS[0], "cdylib", &Value::Null),
            package("linked", "lib", &away),
            package(ROOTS[1], "bin", &Value::Null),
            package("shown", "lib", &away),
            package("macros", "proc-macro", &away),
            package("tests", "lib", &away),
            package("script", "lib", &away),
        ]);
        let metadata = json!({
            "packages": packages, "workspace_members": [], "workspace_root": "", "target_directory": "",
            "version": 1,
        });
        let metadata: Metadata = serde_json::from_value(metadata).expect("packages");
        let resolve: Resolve = serde_json::from_value(json!({ "nodes": [
            node(ROOTS[0], deps), node("linked", json!([])),
            node(ROOTS[1], json!([dep("shown", Value::Null)])), node("shown", json!([])),
        ] }))
        .expect("a graph");
        let found = linked(&metadata, &resolve).expect("a list");
        let names: Vec<&str> = found.keys().map(|id| id.repr.as_str()).collect();
        assert_eq!(names, [ROOTS[0], ROOTS[1], "linked", "shown"]);
        let found: Vec<&Component> = found.values().collect();
        assert_eq!(found[2].licence(), "MIT OR Apache-2.0");
        assert!(found[0].package.source.is_none() && found[2].package.source.is_some());
    }
}
