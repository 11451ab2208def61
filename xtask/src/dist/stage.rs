//! A staging directory for the files of a package.

use super::components::{Components, VERSION};
use anyhow::{Context, Result, bail};
use erd_e2e::layout::{Layout, empty};
use erd_e2e::process::Job;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared object: libfabric's provider, and what programs link.
pub const LIBRARY: &str = "liberd.so.1";
/// Directories with headers, documents and examples, each with its place under the prefix.
const TREES: &[(&str, &str)] = &[
    ("include", "include"),
    ("docs", "share/doc/erd"),
    ("examples", "share/doc/erd/examples"),
    ("wireshark", "share/doc/erd/wireshark"),
];
/// Single files, likewise.
const FILES: &[(&str, &str)] = &[
    ("README.md", "share/doc/erd/README.md"),
    ("CHANGELOG.md", "share/doc/erd/CHANGELOG.md"),
    ("CONTRIBUTING.md", "share/doc/erd/CONTRIBUTING.md"),
    ("SECURITY.md", "share/doc/erd/SECURITY.md"),
    ("LICENSE-MIT", "share/doc/erd/LICENSE-MIT"),
    ("LICENSE-APACHE", "share/doc/erd/LICENSE-APACHE"),
    ("packaging/debian/copyright", "share/doc/erd/copyright"),
];

/// Inputs of the packages.
#[derive(Debug)]
pub struct Parts {
    /// Time of the source, in seconds since 1970: that of every file in the packages.
    pub epoch: String,
    /// The shared object, stripped and without a path of this machine.
    pub library: PathBuf,
    /// The command `erd`, likewise.
    pub tool: PathBuf,
    /// The components linked into both.
    pub components: Components,
    /// `epoch` for people.
    pub time: String,
}

/// A directory to be packed.
#[derive(Debug)]
pub struct Stage {
    root: PathBuf,
}

impl Stage {
    /// An empty one at `root`.
    ///
    /// # Errors
    /// If its contents cannot be removed.
    pub fn new(root: PathBuf) -> Result<Stage> {
        Ok(Stage { root: empty(root)? })
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

    /// Puts in everything that a prefix has, libraries below `libdir`. `prefix` is what pkg-config
    /// calls it.
    ///
    /// # Errors
    /// A file that cannot be copied.
    pub fn fill(
        &self,
        layout: &Layout,
        parts: &Parts,
        (prefix, libdir): (&str, &str),
    ) -> Result<()> {
        self.copy(&parts.library, &format!("{libdir}/{LIBRARY}"))?;
        self.copy(&parts.tool, "bin/erd")?;
        fs::set_permissions(self.root.join("bin/erd"), Permissions::from_mode(0o755))?;
        self.link(LIBRARY, &format!("{libdir}/liberd.so"))?;
        self.link(&format!("../{LIBRARY}"), &format!("{libdir}/libfabric/liberd_fi.so"))?;
        let module = fs::read_to_string(layout.root.join("packaging/erd.pc"))?
            .replace("@prefix@", prefix)
            .replace("@libdir@", &format!("${{prefix}}/{libdir}"))
            .replace("@version@", VERSION);
        self.write(&format!("{libdir}/pkgconfig/erd.pc"), module.as_bytes())?;
        for (from, to) in TREES {
            for file in tracked(layout, from)? {
                // Man pages have a place of their own.
                if !file.starts_with("man/") {
                    let source = layout.root.join(from).join(&file);
                    self.copy(&source, &format!("{to}/{file}"))?;
                }
            }
        }
        for (from, to) in FILES {
            let text = fs::read_to_string(layout.root.join(from)).context(*from)?;
            // The documents lie beside these files there.
            self.write(to, text.replace("](docs/", "](").as_bytes())?;
        }
        if let Some(notices) = parts.components.rust_notices() {
            self.copy(notices, "share/doc/erd/rust-library-copyright.html")?;
        }
        let list = parts.components.cyclonedx(&parts.time);
        self.write("share/doc/erd/erd.cdx.json", list.as_bytes())?;
        let licences = parts.components.licences()?;
        self.write("share/doc/erd/third-party-licences.txt", licences.as_bytes())
    }

    /// Puts in the man pages, packed or not, with a link for each further name of a page.
    ///
    /// # Errors
    /// A page without a NAME section, a file that cannot be copied.
    pub fn manual(&self, layout: &Layout, packed: Option<&Path>) -> Result<()> {
        for page in pages(layout)? {
            let text = fs::read_to_string(&page)?;
            let file = page.file_name().unwrap_or_default().to_string_lossy();
            let section = page.extension().unwrap_or_default().to_string_lossy();
            let (place, mut end) = (format!("share/man/man{section}"), String::new());
            self.copy(&page, &format!("{place}/{file}"))?;
            if let Some(log) = packed {
                self.compress(&format!("{place}/{file}"), log)?;
                end.push_str(".gz");
            }
            for name in names(&text).with_context(|| format!("{file} names nothing"))? {
                let link = format!("{name}.{section}");
                if link != file {
                    self.link(&format!("{file}{end}"), &format!("{place}/{link}{end}"))?;
                }
            }
        }
        Ok(())
    }

    fn link(&self, target: &str, at: &str) -> Result<()> {
        let file = self.root.join(at);
        make_dir(file.parent().context("a link has a directory")?)?;
        symlink(target, &file).with_context(|| format!("making {}", file.display()))
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
    /// gzip's error.
    pub fn compress(&self, file: &str, log: &Path) -> Result<()> {
        Job::new("gzip").args(["-9n"]).args([self.root.join(file)]).run(log).map(|_| ())
    }

    /// Writes a file, readable by all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, to: &str, bytes: &[u8]) -> Result<()> {
        let file = self.root.join(to);
        let parent = file.parent().context("a file has a directory")?;
        make_dir(parent)?;
        fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))?;
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        Ok(())
    }
}

/// The files below a directory of the repository that belong to it, by their paths from there: files of an editor or a
/// build are no part of a package.
fn tracked(layout: &Layout, dir: &str) -> Result<Vec<String>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z"]).current_dir(layout.root.join(dir));
    let files = list.output().context("git ls-files")?;
    if !files.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&files.stderr).trim());
    }
    let names = String::from_utf8(files.stdout).context("a file's name is not UTF-8")?;
    let files: Vec<String> = names.split_terminator('\0').map(str::to_owned).collect();
    if files.is_empty() {
        bail!("git knows no file in {dir}");
    }
    Ok(files)
}

/// The subject of a man page.
fn names(page: &str) -> Option<Vec<&str>> {
    let (_, section) = page.split_once("\n.SH NAME\n")?;
    let (names, _) = section.split_once(" \\- ")?;
    Some(names.split(", ").collect())
}

/// The man pages of the repository.
///
/// # Errors
/// A directory that cannot be read.
pub fn pages(layout: &Layout) -> Result<Vec<PathBuf>> {
    let dir = layout.root.join("docs/man");
    Ok(tracked(layout, "docs/man")?.iter().map(|file| dir.join(file)).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_what_it_describes() {
        let page = ".TH A 3\n.SH NAME\na, b_c \\- letters - of a kind\n.SH SYNOPSIS\nd \\- e\n";
        assert_eq!(names(page), Some(vec!["a", "b_c"]));
        assert_eq!(names(".TH A 3\n"), None);
    }
}
