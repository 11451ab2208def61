//! Reads /proc and /sys, below a root that tests put elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of a host.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// This host.
    #[must_use]
    pub fn new() -> System {
        System { root: PathBuf::from("/") }
    }

    /// A host whose files are below `root`.
    #[cfg(test)]
    #[must_use]
    pub fn below(root: &Path) -> System {
        System { root: root.to_owned() }
    }

    /// A host with these files and no others, in a new directory.
    #[cfg(test)]
    #[must_use]
    pub fn planted(files: &[(&str, &str)]) -> System {
        use std::sync::atomic::{AtomicU32, Ordering};
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("erd-{}-{number}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
        System::below(&root)
    }

    /// Path of a file that has this absolute path on the host.
    #[must_use]
    pub fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        let file = file.as_ref();
        self.root.join(file.strip_prefix("/").unwrap_or(file))
    }

    /// A file's text without white space around it; `None` if it is not there or not readable.
    #[must_use]
    pub fn read(&self, file: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.path(file)).ok().map(|text| text.trim().to_owned())
    }

    /// The numbers in a file.
    #[must_use]
    pub fn numbers(&self, file: impl AsRef<Path>) -> Option<Vec<u64>> {
        self.read(file)?.split_whitespace().map(|word| word.parse().ok()).collect()
    }

    /// The one number in a file.
    #[must_use]
    pub fn number(&self, file: impl AsRef<Path>) -> Option<u64> {
        match self.numbers(file)?.as_slice() {
            [number] => Some(*number),
            _ => None,
        }
    }

    /// Names in a directory, sorted; none if it is not there.
    #[must_use]
    pub fn names(&self, dir: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// This host's name, and its kernel's version.
#[must_use]
pub fn host() -> (String, String) {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    (text(uname.nodename()), text(uname.release()))
}
