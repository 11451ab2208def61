//! The files of jobs' keys (`FI_ERD_KEY_FILE`), whose keys may change while processes run (protocol.md §11.9).
//!
//! A process has one [`KeyFile`] for each path, and one thread that looks at all of them. It is no other thread's work: a
//! file system may take long, or hang.

use erd_crypto::{BadKeyFile, JobKey};
use erd_sys::process::Process;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Time in which a key and the one before it are both valid.
pub const OVERLAP: Duration = Duration::from_secs(600);
/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait for the thread to end when the provider is unloaded.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct KeyFile {
    /// `None` for an inherited descriptor, which may be closed by now, and be another file.
    path: Option<PathBuf>,
    state: Mutex<State>,
    /// Number of the newest key; each key has the number after the one before.
    version: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// The file as it was when a key was read from it.
    read: Option<Stamp>,
    /// What was wrong with it last.
    error: String,
    newest: JobKey,
    /// The key before, and the time of the change.
    before: Option<(JobKey, Instant)>,
}

/// The keys of a file.
pub(crate) struct Read {
    /// Number of the newest key.
    pub version: u64,
    /// The newest key.
    pub newest: JobKey,
    /// The key before, and how much longer it is valid.
    pub before: Option<(JobKey, Duration)>,
}

/// What differs once a file was written, replaced or opened to others.
#[derive(PartialEq, Eq, Debug)]
struct Stamp([i64; 8]);

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        let file = path.symlink_metadata().ok()?;
        let (device, inode) = (file.dev() as i64, file.ino() as i64);
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        let (size, mode) = (file.size() as i64, file.mode().into());
        Some(Stamp([device, inode, size, mode, times[0], times[1], times[2], times[3]]))
    }
}

impl PartialEq for KeyFile {
    fn eq(&self, other: &KeyFile) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for KeyFile {}

impl KeyFile {
    fn new(path: Option<PathBuf>, key: JobKey) -> KeyFile {
        // Read again at the first look: it may have changed since the key was read.
        let state = State { read: None, error: String::new(), newest: key, before: None };
        KeyFile { path, state: Mutex::new(state), version: AtomicU64::new(1) }
    }

    /// The process's object for the file at `path`, which is read now.
    ///
    /// # Errors
    /// The file gives no key.
    pub(crate) fn open(path: &Path) -> Result<Arc<KeyFile>, BadKeyFile> {
        let key = JobKey::read(path)?;
        if erd_crypto::job::is_inherited(path) {
            return Ok(Arc::new(KeyFile::new(None, key)));
        }
        // The process may change its directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut state = Watch::take().state.lock();
        let mut known = state.files.iter().filter_map(Weak::upgrade);
        if let Some(file) = known.find(|file| file.path.as_ref() == Some(&path)) {
            file.take(key);
            return Ok(file);
        }
        drop(known);
        state.files.retain(|file| file.strong_count() > 0);
        let file = Arc::new(KeyFile::new(Some(path), key));
        state.files.push(Arc::downgrade(&file));
        Ok(file)
    }

    /// Number of the newest key.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Its keys.
    pub(crate) fn keys(&self) -> Read {
        let state = self.state.lock();
        let left = |at: &Instant| OVERLAP.checked_sub(at.elapsed());
        let before = state.before.as_ref().and_then(|(key, at)| Some((key.clone(), left(at)?)));
        Read { version: self.version(), newest: state.newest.clone(), before }
    }

    /// Takes what was read from the file. True if it is another key.
    fn take(&self, key: JobKey) -> bool {
        let mut state = self.state.lock();
        if key == state.newest {
            return false;
        }
        let before = std::mem::replace(&mut state.newest, key);
        state.before = Some((before, Instant::now()));
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// Reads the file if it was written since, and forgets a key that is not valid any more. A file that cannot be used
    /// changes nothing; each reason is told once.
    fn look(&self) {
        let mut state = self.state.lock();
        state.before.take_if(|(_, at)| at.elapsed() >= OVERLAP);
        let Some(path) = &self.path else { return };
        let stamp = Stamp::of(path);
        if stamp.is_none() || state.read == stamp {
            return;
        }
        drop(state);
        let read = JobKey::read(path);
        // Somebody may be writing to it.
        if Stamp::of(path) != stamp {
            return;
        }
        match read {
            Ok(key) => {
                if self.take(key) {
                    tracing::info!(?path, "the job's key has changed");
                }
                let mut state = self.state.lock();
                (state.read, state.error) = (stamp, String::new());
            }
            Err(error) => {
                let (text, mut state) = (error.to_string(), self.state.lock());
                if text != state.error {
                    tracing::warn!(%error, "FI_ERD_KEY_FILE: the key before stays in use");
                    state.error = text;
                }
            }
        }
    }
}

/// The files of a process, and the thread that looks at them. A forked child has its own: it lacks its parent's thread,
/// which may have held the lock.
struct Watch {
    process: Process,
    state: Mutex<Watched>,
    changed: Condvar,
    /// That of a forked child, and so on down the line of children.
    child: OnceLock<Box<Watch>>,
}

#[derive(Default)]
struct Watched {
    files: Vec<Weak<KeyFile>>,
    has_thread: bool,
    stop: bool,
}

static FIRST: OnceLock<Watch> = OnceLock::new();

impl Watch {
    fn new() -> Watch {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Watch { process: Process::current(), state, changed, child: OnceLock::new() }
    }

    /// This process's, made if need be.
    fn take() -> &'static Watch {
        let mut watch = FIRST.get_or_init(Watch::new);
        while !watch.process.is_current() {
            watch = watch.child.get_or_init(|| Box::new(Watch::new()));
        }
        watch
    }

    /// The thread's work, until no file is left or the provider is unloaded.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            state.files.retain(|file| file.strong_count() > 0);
            if state.stop || state.files.is_empty() {
                state.has_thread = false;
                self.changed.notify_all();
                return;
            }
            let files: Vec<_> = state.files.iter().filter_map(Weak::upgrade).collect();
            MutexGuard::unlocked(&mut state, || files.iter().for_each(|file| file.look()));
            if !state.stop {
                self.changed.wait_for(&mut state, LOOK);
            }
        }
    }

    /// After a bug in the thread.
    fn ended(&self) {
        self.state.lock().has_thread = false;
        self.changed.notify_all();
    }
}

/// Sees to it that the files are looked at from now on.
pub(crate) fn watch() {
    let watch = Watch::take();
    let mut state = watch.state.lock();
    if state.has_thread {
        return;
    }
    match erd_sys::guard::spawn("erd-keys", || watch.run(), || watch.ended()) {
        Ok(_) => (state.has_thread, state.stop) = (true, false),
        Err(error) => tracing::warn!(%error, "nobody looks whether FI_ERD_KEY_FILE changes"),
    }
}

/// Ends the thread, and waits for it for a bounded time: its code may be unloaded after this.
pub(crate) fn shutdown() {
    let watch = Watch::take();
    let mut state = watch.state.lock();
    state.stop = true;
    watch.changed.notify_all();
    while state.has_thread {
        if watch.changed.wait_for(&mut state, SHUTDOWN_WAIT).timed_out() {
            tracing::warn!("the thread that looks at FI_ERD_KEY_FILE does not end");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn put(path: &Path, key: &JobKey, mode: u32) {
        let new = path.with_extension("new");
        std::fs::write(&new, key.text().as_bytes()).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(&new, path).unwrap();
    }

    fn newest(file: &KeyFile) -> (u64, JobKey) {
        let Read { version, newest, .. } = file.keys();
        (version, newest)
    }

    #[test]
    fn a_file_that_changes_gives_another_key_once_and_a_bad_one_none() {
        let dir = std::env::temp_dir().join(format!("erd-key-file-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, keys) = (dir.join("key"), [1, 2, 3].map(|byte| JobKey::new(&[byte; 32])));
        put(&path, &keys[0], 0o600);
        let file = KeyFile::open(&path).unwrap();
        file.look();
        assert_eq!(newest(&file), (1, keys[0].clone()));
        put(&path, &keys[1], 0o644);
        file.look();
        assert_eq!(newest(&file), (1, keys[0].clone()), "others can read it");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        (0..2).for_each(|_| file.look());
        assert_eq!(newest(&file), (2, keys[1].clone()));
        let before = file.keys().before.expect("it is valid");
        assert!(before.0 == keys[0] && before.1 <= OVERLAP);
        std::fs::write(&path, "half of it").unwrap();
        file.look();
        std::fs::remove_file(&path).unwrap();
        file.look();
        assert_eq!(newest(&file), (2, keys[1].clone()));
        put(&path, &keys[2], 0o400);
        let again = KeyFile::open(&path).unwrap();
        assert!(Arc::ptr_eq(&again, &file), "a process has one");
        assert_eq!(newest(&file), (3, keys[2].clone()));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
