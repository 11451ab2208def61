//! A directory that is filled with the files of a package.

use super::Parts;
use crate::layout::Layout;
use crate::process::Job;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Directories with headers, documents and examples, each with its place under the prefix.
const TREES: &[(&str, &str)] = &[
    ("include", "include"),
    ("docs", "share/doc/erd"),
    ("examples", "share/doc/erd/examples"),
    ("docs/man", "share/man/man7"),
];
/// Single files, likewise.
const FILES: &[(&str, &str)] = &[
    ("README.md", "share/doc/erd/README.md"),
    ("LICENSE-MIT", "share/doc/erd/LICENSE-MIT"),
    ("LICENSE-APACHE", "share/doc/erd/LICENSE-APACHE"),
    ("packaging/debian/copyright", "share/doc/erd/copyright"),
];

/// A directory to be packed.
#[derive(Debug)]
pub struct Stage {
    root: PathBuf,
}

impl Stage {
    /// An empty one at `root`.
    ///
    /// # Errors
    /// What was there cannot be removed.
    pub fn new(root: PathBuf) -> Result<Stage> {
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
        }
        let stage = Stage { root };
        stage.make()?;
        Ok(stage)
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory `name` in it.
    #[must_use]
    pub fn below(&self, name: &str) -> Stage {
        Stage { root: self.root.join(name) }
    }

    /// Makes the directory where it is not there yet.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self) -> Result<()> {
        make_dir(&self.root)
    }

    /// Puts in everything that a prefix has, the provider below `libdir`.
    ///
    /// # Errors
    /// A file that cannot be copied.
    pub fn fill(&self, layout: &Layout, parts: &Parts, libdir: &str) -> Result<()> {
        self.copy(&parts.provider, &format!("{libdir}/libfabric/liberd_fi.so"))?;
        for (from, to) in TREES {
            self.copy_tree(&layout.root.join(from), to)?;
        }
        for (from, to) in FILES {
            self.copy(&layout.root.join(from), to)?;
        }
        if let Some(notices) = parts.components.rust_notices() {
            self.copy(notices, "share/doc/erd/rust-library-copyright.html")?;
        }
        let list = parts.components.cyclonedx(&parts.time);
        self.write("share/doc/erd/erd.cdx.json", list.as_bytes())?;
        let licences = parts.components.licences()?;
        self.write("share/doc/erd/third-party-licences.txt", licences.as_bytes())
    }

    /// Copies a file, readable by all.
    ///
    /// # Errors
    /// A file that cannot be copied.
    pub fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let bytes = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.write(to, &bytes)
    }

    /// Packs a file in place, which gets `.gz` at its end.
    ///
    /// # Errors
    /// What gzip says.
    pub fn compress(&self, file: &str, log: &Path) -> Result<()> {
        Job::new("gzip").args(["-9n"]).args([self.root.join(file)]).run(log).map(|_| ())
    }

    fn copy_tree(&self, from: &Path, to: &str) -> Result<()> {
        let entries = fs::read_dir(from).with_context(|| format!("reading {}", from.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Man pages have a place of their own.
            if entry.file_type()?.is_file() {
                self.copy(&entry.path(), &format!("{to}/{name}"))?;
            } else if entry.path().file_name() != Some(OsStr::new("man")) {
                self.copy_tree(&entry.path(), &format!("{to}/{name}"))?;
            }
        }
        Ok(())
    }

    fn write(&self, to: &str, bytes: &[u8]) -> Result<()> {
        let file = self.root.join(to);
        let parent = file.parent().context("a file has a directory")?;
        make_dir(parent)?;
        fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))?;
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        Ok(())
    }
}

/// Makes a directory and those above it, whatever the umask.
fn make_dir(dir: &Path) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_dir(parent)?;
    }
    fs::create_dir(dir).with_context(|| format!("making {}", dir.display()))?;
    fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    Ok(())
}
