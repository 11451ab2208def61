//! Counts the lines of production code: Rust without tests, comments and blank lines. It counts single items for tests
//! outside of test modules.

use anyhow::{Context, Result, ensure};
use erd_e2e::layout::Layout;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders with no production code: `tests` has crates that test alone, and `xtask` has the project's own
/// commands.
const WITHOUT: [&str; 5] = ["examples", "fuzz", "rd/examples", "tests", "xtask"];

/// Prints the lines of each folder at the root, and their sum.
///
/// # Errors
/// The tree is not a git checkout, or a file cannot be read.
pub fn run(layout: &Layout) -> Result<()> {
    let sums = count(&layout.root)?;
    for (folder, lines) in &sums {
        println!("{lines:>7}  {folder}");
    }
    println!("{:>7}  in all", sums.values().sum::<usize>());
    Ok(())
}

fn count(root: &Path) -> Result<BTreeMap<String, usize>> {
    let listed = Command::new("git").arg("-C").arg(root).args(["ls-files", "*.rs"]).output()?;
    ensure!(listed.status.success(), "git: {}", String::from_utf8_lossy(&listed.stderr).trim());
    let listed = String::from_utf8(listed.stdout).context("git names a file that is not UTF-8")?;
    let is_production = |path: &&str| {
        let in_tests = path.contains("/tests/") || path.contains("/benches/");
        !in_tests && !WITHOUT.iter().any(|dir| path.starts_with(&format!("{dir}/")))
    };
    let mut files = Vec::new();
    for path in listed.lines().filter(is_production) {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        files.push((PathBuf::from(path), text));
    }
    let tests: BTreeSet<PathBuf> =
        files.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let mut sums = BTreeMap::new();
    for (path, text) in &files {
        if !tests.contains(path) {
            let folder = path.iter().next().unwrap_or_default().to_string_lossy().into_owned();
            *sums.entry(folder).or_default() += code_lines(text);
        }
    }
    Ok(sums)
}

/// The files of modules that a file declares for tests alone.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let dir = path.parent().unwrap_or(Path::new(""));
    let stem = path.file_stem().unwrap_or_default();
    // The children of mod.rs, lib.rs and main.rs lie beside it, others' in a folder of its name.
    let beside = ["mod", "lib", "main"].iter().any(|name| stem == *name);
    let dir = if beside { dir.to_owned() } else { dir.join(stem) };
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]");
    let names = declared.filter_map(|pair| module_name(pair[1]));
    names.flat_map(|name| [dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")]).collect()
}

/// The name in `mod name;`.
fn module_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    line.strip_prefix("mod ")?.strip_suffix(';')
}

/// Lines that are code, up to and after a module of tests.
fn code_lines(text: &str) -> usize {
    let (mut count, mut in_tests) = (0, false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let begins = line == "#[cfg(test)]";
        in_tests |= begins
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        let shown = line.trim_start();
        if !in_tests && !shown.is_empty() && !shown.starts_with("//") {
            count += 1;
        }
        in_tests &= line != "}";
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_are_left_out() {
        let text = "//! Text.\n\nuse a;\n\n/// More.\nfn f() {\n    // why\n    g();\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn h() {\n    }\n}\n\nconst LAST: u8 = 1;\n";
        assert_eq!(code_lines(text), 5);
    }

    #[test]
    fn modules_of_tests_are_files_of_tests() {
        let text = "mod real;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod inline {\n}\n";
        let found = |path: &str| test_modules(Path::new(path), text);
        assert_eq!(found("a/mod.rs"), ["a/tests.rs", "a/tests/mod.rs"].map(PathBuf::from));
        assert_eq!(found("a/b.rs"), ["a/b/tests.rs", "a/b/tests/mod.rs"].map(PathBuf::from));
    }
}
