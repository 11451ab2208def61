//! Running programs under valgrind's memcheck, and judging the reports on our code.

use crate::report::Done;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most time for a run: memcheck is some 30 times slower.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The wrapper for a step's programs; each process writes a file of its own beside the step's log.
#[must_use]
pub fn command(log: &Path) -> Vec<String> {
    for (file, _) in files(log).unwrap_or_default() {
        let _ = fs::remove_file(file);
    }
    let file = format!("{}.%p.valgrind", log.with_extension("").display());
    [
        "valgrind",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "--show-leak-kinds=definite",
        "--num-callers=40",
        "--keep-debuginfo=yes",
        "--fair-sched=yes",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([format!("--log-file={file}")])
    .collect()
}

/// Passes when `processes` processes were checked and no error has a frame of ours.
///
/// # Errors
/// The first error with such a frame, or missing files.
pub fn verdict(log: &Path, processes: usize) -> Result<Done> {
    let files = files(log)?;
    if files.len() < processes {
        bail!("valgrind checked {} of {processes} processes", files.len());
    }
    for (file, text) in &files {
        if !text.contains("ERROR SUMMARY:") {
            bail!("{} ends before valgrind's summary", file.display());
        }
        if let Some(error) = blocks(text).into_iter().find(|block| is_ours(block)) {
            bail!("{}:\n{error}", file.display());
        }
    }
    Done::many(processes, format!("{processes} processes, no error in our code"))
}

/// The reports of one file: runs of lines between lines that only have valgrind's prefix.
fn blocks(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        let body = line.split_once("== ").map_or("", |(_, body)| body);
        if body.trim().is_empty() {
            blocks.push(String::new());
        } else if let Some(block) = blocks.last_mut() {
            block.push_str(body);
            block.push('\n');
        }
    }
    blocks
}

/// Whether a report names a frame of our shared object: by its name, or by a Rust source file.
fn is_ours(block: &str) -> bool {
    let frames = || block.lines().filter(|line| line.trim_start().starts_with(['a', 'b']));
    frames().any(|line| line.contains("liberd_fi.so") || line.contains(".rs:"))
}

fn files(log: &Path) -> Result<Vec<(PathBuf, String)>> {
    let stem =
        log.file_stem().context("a log without a name")?.to_string_lossy().into_owned() + ".";
    let dir = log.parent().context("a log without a directory")?;
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&stem) && name.ends_with(".valgrind") {
            found.push((entry.path(), fs::read_to_string(entry.path())?));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_frames_are_told_from_others() {
        let text = "==12== Invalid read of size 4\n==12==    at 0x1: foreign (foreign.c:3)\n==12== \n\
                    ==12== 8 bytes are definitely lost\n==12==    at 0x2: malloc (vg_replace.c:1)\n\
                    ==12==    by 0x3: erd::domain::open (domain.rs:77)\n==12== \n==12== ERROR SUMMARY: 2\n";
        let ours: Vec<String> = blocks(text).into_iter().filter(|block| is_ours(block)).collect();
        assert_eq!(ours.len(), 1, "{ours:#?}");
        assert!(ours[0].starts_with("8 bytes are definitely lost"));
    }
}
