//! Paths of the repository, its target directory, and the folders that xtask keeps there.

use crate::process::Job;
use anyhow::{Context, Result};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most time for a command of cargo.
const CARGO_LIMIT: Duration = Duration::from_secs(900);

/// Directories of the commands.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The repository's root.
    pub root: PathBuf,
    /// cargo's target directory.
    pub target: PathBuf,
    /// Directory that xtask keeps between runs: virtual environments, C programs, results.
    pub own: PathBuf,
    /// One file for each step of the latest run.
    pub logs: PathBuf,
}

impl Layout {
    /// The directories of the repository at `root`; makes xtask's own.
    ///
    /// # Errors
    /// If a directory cannot be made.
    pub fn of(root: PathBuf) -> Result<Layout> {
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => root.join(dir),
            None => root.join("target"),
        };
        let own = target.join("xtask");
        let logs = own.join("logs");
        fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
        Ok(Layout { root, target, own, logs })
    }

    /// A command of cargo's in the repository.
    #[must_use]
    pub fn cargo(&self, args: &[&str]) -> Job {
        Job::new("cargo").args(args).dir(&self.root).limit(CARGO_LIMIT)
    }

    /// The version text of the repository's compiler.
    ///
    /// # Errors
    /// If there is no compiler.
    pub fn rustc(&self, args: &[&str], log: &Path) -> Result<String> {
        Job::new("rustc").args(args).dir(&self.root).run(log)
    }

    /// Directory of the built provider, for `FI_PROVIDER_PATH`.
    #[must_use]
    pub fn provider_dir(&self) -> PathBuf {
        self.target.join("release")
    }

    /// The shared object itself.
    #[must_use]
    pub fn provider_file(&self) -> PathBuf {
        self.provider_dir().join("liberd_fi.so")
    }

    /// A virtual environment with one MPI in it.
    #[must_use]
    pub fn venv(&self, name: &str) -> PathBuf {
        self.own.join(format!("venv-{name}"))
    }

    /// Path as a user would type it in the repository's root.
    #[must_use]
    pub fn short<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

/// The directory `dir` with nothing in it.
///
/// # Errors
/// If its contents cannot be removed.
pub fn empty(dir: PathBuf) -> Result<PathBuf> {
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    Ok(dir)
}
