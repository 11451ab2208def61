//! The file that pauses the deadlines of peers (`FI_ERD_PAUSE_FILE`).
//!
//! Somebody makes the file before they stop a process with a debugger, freeze a container or move a virtual machine.
//! Nobody reads the file, or watches it: the engine asks when a peer has been silent for a tenth of its deadline.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file of the setting's text, if there is to be one.
#[must_use]
pub fn file(text: &str) -> Option<PathBuf> {
    match text {
        "" | "none" => None,
        "auto" => Some(format!("/dev/shm/erd-pause-{}", user()).into()),
        path => Some(path.into()),
    }
}

fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// An endpoint's view of the file.
#[derive(Debug)]
pub struct Pause {
    file: Option<PathBuf>,
    /// The file was there at the last look.
    was_there: bool,
}

impl Pause {
    /// Of the file that [`file()`] gave.
    #[must_use]
    pub fn new(file: Option<PathBuf>) -> Pause {
        Pause { file, was_there: false }
    }

    /// Looks whether the file is there. The first look that finds it warns: peers that are dead stay undetected.
    pub fn is_on(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        let is_there = is_ours(file);
        if is_there && !self.was_there {
            let file = file.display();
            tracing::warn!("a peer is silent, and is waited for as long as {file} exists");
        }
        self.was_there = is_there;
        is_there
    }
}

/// Another user could make the file in a directory of all users: also as a link, of one kind or the other, to a file of
/// ours.
fn is_ours(file: &Path) -> bool {
    let is_ours =
        |meta: std::fs::Metadata| meta.nlink() == 1 && (meta.uid() == user() || meta.uid() == 0);
    std::fs::symlink_metadata(file).is_ok_and(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_looked_at_each_time_and_must_be_the_users() {
        let path = std::env::temp_dir().join(format!("erd-pause-test-{}", std::process::id()));
        let mut pause = Pause::new(file(path.to_str().expect("text")));
        assert!(!pause.is_on());
        std::fs::write(&path, "").expect("a file");
        assert!(pause.is_on() && pause.is_on());
        // Only root can give a file away.
        if user() == 0 {
            std::os::unix::fs::chown(&path, Some(1), None).expect("root may");
            assert!(!pause.is_on(), "it is another user's");
            let link = path.with_extension("link");
            std::os::unix::fs::symlink("/etc/passwd", &link).expect("a link");
            std::os::unix::fs::lchown(&link, Some(1), None).expect("root may");
            let mut linked = Pause::new(file(link.to_str().expect("text")));
            assert!(!linked.is_on(), "another user's link to a file of root");
            std::os::unix::fs::lchown(&link, Some(0), None).expect("root may");
            assert!(linked.is_on(), "the user's own link");
            std::fs::remove_file(&link).expect("removed");
            std::os::unix::fs::chown(&path, Some(0), None).expect("root may");
            std::fs::hard_link(&path, &link).expect("a link");
            assert!(!linked.is_on() && !pause.is_on(), "anyone could have made the other name");
            std::fs::remove_file(&link).expect("removed");
            assert!(pause.is_on());
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(!pause.is_on());
    }

    #[test]
    fn nothing_pauses_where_there_is_to_be_no_file() {
        assert_eq!((file("none"), file("")), (None, None));
        assert!(!Pause::new(None).is_on());
        let auto = file("auto").expect("a file");
        assert!(auto.ends_with(format!("erd-pause-{}", user())), "{}", auto.display());
    }
}
