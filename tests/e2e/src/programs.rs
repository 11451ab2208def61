//! Compiling the C programs under tests/c and examples.

use crate::fabric::{Core, Provider};
use crate::layout::Layout;
use crate::process::Job;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// What steps run on. Each module of steps adds its own.
#[derive(Debug)]
pub struct Suite<'a> {
    /// Directories.
    pub layout: &'a Layout,
    /// The libfabric.
    pub core: &'a Core,
    /// The provider under test.
    pub provider: &'a Provider,
}

/// Compiles `source`, a path in the repository without its `.c`, against the headers of `core`, or
/// the system's where it has none; answers the program. The library is taken when it runs.
///
/// # Errors
/// What the compiler says; warnings are errors.
pub fn compile(layout: &Layout, source: &str, core: &Core) -> Result<PathBuf> {
    let own_headers = core.include_dir.is_some();
    let dir = layout.own.join(if own_headers { "bin-other" } else { "bin" });
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let name = source.rsplit('/').next().unwrap_or(source);
    let program = dir.join(name);
    let mut job = Job::new("cc")
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .limit(Duration::from_secs(120));
    if let (Some(include), Some(library)) = (&core.include_dir, &core.library_dir) {
        job = job.args(["-I".as_ref(), include.as_os_str(), "-L".as_ref(), library.as_os_str()]);
    }
    job = job.args(["-I".as_ref(), layout.root.join("include").as_os_str()]);
    job = job
        .args([layout.root.join(format!("{source}.c"))])
        .args(["-o".as_ref(), program.as_os_str()]);
    job.args(["-lfabric", "-lpthread"]).run(&layout.logs.join(format!("compile-{name}.log")))?;
    Ok(program)
}
