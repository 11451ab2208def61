//! Compiling the C programs under tests/c and examples.

use crate::fabric::{Core, Provider};
use crate::layout::Layout;
use crate::process::Job;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The resources of steps. Each module of steps adds its own.
#[derive(Debug)]
pub struct Suite<'a> {
    /// Directories.
    pub layout: &'a Layout,
    /// The libfabric.
    pub core: &'a Core,
    /// The provider under test.
    pub provider: &'a Provider,
}

/// Compiles `source`, a path in the repository without its `.c`, against libfabric's headers; returns the program. It
/// finds the library when it runs.
///
/// # Errors
/// The compiler's message; warnings are errors.
pub fn compile(layout: &Layout, source: &str) -> Result<PathBuf> {
    let name = source.rsplit('/').next().unwrap_or(source);
    let log = layout.logs.join(format!("compile-{name}.log"));
    let include = format!("-I{}", layout.root.join("include").display());
    compile_with(layout, source, &[include, "-lfabric".to_owned(), "-lpthread".to_owned()], &log)
}

/// The same with flags that name headers and libraries.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    layout: &Layout,
    source: &str,
    flags: &[String],
    log: &Path,
) -> Result<PathBuf> {
    let dir = layout.own.join("bin");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let program = dir.join(source.rsplit('/').next().unwrap_or(source));
    Job::new("cc")
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .args([layout.root.join(format!("{source}.c"))])
        .args(["-o".as_ref(), program.as_os_str()])
        .args(flags)
        .run(log)?;
    Ok(program)
}
