//! Words of memory that processes share under a name.
//!
//! Who has them open holds a shared lock on their file, which the kernel ends with the process. So
//! the last one removes the name, and a name that nobody holds is left over from a crash and is
//! made again. A forked child does not hold the lock: it may read and write the words of its parent, but not lock them.

use crate::process::Process;
use crate::unshared::Unshared;
use libc::c_int;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Times that opening starts again, because another process opened or closed the same name.
const TRIES: u32 = 1000;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_millis(1);
/// The first word, once the others are there.
const READY: u64 = u64::from_be_bytes(*b"erdwords");

/// See the module's text.
pub struct SharedWords {
    file: Unshared<File>,
    name: CString,
    base: NonNull<AtomicU64>,
    count: usize,
    /// Memory of a fork is not this process's to remove.
    process: Process,
}

// SAFETY: the mapping belongs to this value, and its words are atomic.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

/// Ends when it is dropped.
pub struct WordsLock<'a>(&'a SharedWords);

impl SharedWords {
    /// The words called `name`. If there are none, they are made, `count` of them and 0, where
    /// `create` is set.
    ///
    /// # Errors
    /// What the system says; `NotFound` without `create`.
    pub fn open(name: &str, count: usize, create: bool) -> io::Result<SharedWords> {
        let valid = !name.is_empty() && name.len() < 200 && !name.contains('/');
        if !valid {
            return Err(ErrorKind::InvalidInput.into());
        }
        let name = CString::new(format!("/{name}"))?;
        for _ in 0..TRIES {
            if let Some(words) = SharedWords::try_open(&name, count, create)? {
                return Ok(words);
            }
            std::thread::sleep(PAUSE);
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// `None` to try again.
    fn try_open(name: &CString, count: usize, create: bool) -> io::Result<Option<SharedWords>> {
        match shm_open(name, 0) {
            Ok(file) => SharedWords::join(file, name),
            Err(error) if error.kind() == ErrorKind::NotFound && create => {
                match shm_open(name, libc::O_CREAT | libc::O_EXCL) {
                    Ok(file) => SharedWords::make(file, name, count),
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn make(file: Unshared<File>, name: &CString, count: usize) -> io::Result<Option<SharedWords>> {
        flock(&file, libc::LOCK_SH)?;
        if file.metadata()?.nlink() == 0 {
            // Another process took it for left over.
            return Ok(None);
        }
        file.set_len(((count + 1) * size_of::<u64>()) as u64)?;
        let words = SharedWords::map(file, name, count)?;
        words.raw(0).store(READY, Ordering::Release);
        Ok(Some(words))
    }

    fn join(file: Unshared<File>, name: &CString) -> io::Result<Option<SharedWords>> {
        // SAFETY: the call takes nothing and cannot fail.
        if file.metadata()?.uid() != unsafe { libc::geteuid() } {
            // Whose it is could write what he likes, or make it shorter under our hands.
            return Err(ErrorKind::PermissionDenied.into());
        }
        if flock(&file, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
            // Nobody has it.
            remove(&file, name);
            return Ok(None);
        }
        flock(&file, libc::LOCK_SH)?;
        let meta = file.metadata()?;
        let count = meta.len() as usize / size_of::<u64>();
        if meta.nlink() == 0 || count < 2 {
            return Ok(None);
        }
        let words = SharedWords::map(file, name, count - 1)?;
        let ready = words.raw(0).load(Ordering::Acquire) == READY;
        Ok(ready.then_some(words))
    }

    fn map(file: Unshared<File>, name: &CString, count: usize) -> io::Result<SharedWords> {
        let bytes = (count + 1) * size_of::<u64>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other. The file is
        // as long, and never gets shorter.
        let base = unsafe {
            let fd = file.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
        let (name, process) = (name.clone(), Process::current());
        Ok(SharedWords { file, name, base, count, process })
    }

    fn raw(&self, at: usize) -> &AtomicU64 {
        assert!(at <= self.count, "word {at} of {}", self.count);
        // SAFETY: within the mapping, which lives as long as this value; nobody accesses it but by
        // atomic words.
        unsafe { &*self.base.as_ptr().add(at) }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// One of them.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        self.raw(at + 1)
    }

    /// Keeps other processes from holding this lock. Threads of one process must see to that
    /// themselves.
    ///
    /// # Errors
    /// What the system says; `PermissionDenied` in a forked child of the process that opened the words.
    pub fn lock(&self) -> io::Result<WordsLock<'_>> {
        if !self.process.is_current() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.set_lock(libc::F_WRLCK)?;
        Ok(WordsLock(self))
    }

    fn set_lock(&self, kind: c_int) -> io::Result<()> {
        let range = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: an open file and a lock's description.
        let rc =
            unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const range) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for WordsLock<'_> {
    fn drop(&mut self) {
        // The lock ends with the file at the latest.
        let _ = self.0.set_lock(libc::F_UNLCK);
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        if self.process.is_current() && flock(&self.file, libc::LOCK_EX | libc::LOCK_NB).is_ok() {
            remove(&self.file, &self.name);
        }
        let bytes = (self.count + 1) * size_of::<u64>();
        // SAFETY: the mapping is this value's, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
    }
}

fn shm_open(name: &CString, flags: c_int) -> io::Result<Unshared<File>> {
    // SAFETY: a C string; the file descriptor is new and this function's.
    unsafe {
        let fd = libc::shm_open(name.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | flags, 0o600);
        if fd < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(Unshared::new(File::from_raw_fd(fd)))
        }
    }
}

fn flock(file: &File, operation: c_int) -> io::Result<()> {
    // SAFETY: an open file.
    let rc = unsafe { libc::flock(file.as_raw_fd(), operation) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Removes the name of a file that is locked for this process alone, unless somebody did so before
/// the lock was had: then the name may be another file's by now.
fn remove(file: &File, name: &CString) {
    if file.metadata().is_ok_and(|meta| meta.nlink() > 0) {
        // SAFETY: a C string.
        unsafe { libc::shm_unlink(name.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn words_are_shared_until_the_last_user_goes() {
        let name = format!("erd-test-words-{}", std::process::id());
        let missing = SharedWords::open(&name, 4, false).err().map(|error| error.kind());
        assert_eq!(missing, Some(ErrorKind::NotFound));
        let one = SharedWords::open(&name, 4, true).expect("made");
        one.word(3).store(7, Ordering::Relaxed);
        let other = SharedWords::open(&name, 9, false).expect("joined");
        assert_eq!((other.count(), other.word(3).load(Ordering::Relaxed)), (4, 7));
        drop(one);
        let third = SharedWords::open(&name, 9, true).expect("still there");
        assert_eq!(third.word(3).load(Ordering::Relaxed), 7);
        drop((other, third));
        assert!(SharedWords::open(&name, 4, false).is_err(), "the last one removed it");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_a_crash_left_over_is_made_anew() {
        let name = format!("erd-test-left-{}", std::process::id());
        let c_name = CString::new(format!("/{name}")).expect("a name");
        drop(shm_open(&c_name, libc::O_CREAT).expect("left over"));
        let words = SharedWords::open(&name, 4, true).expect("made again");
        assert_eq!((words.count(), words.word(0).load(Ordering::Relaxed)), (4, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_child_that_outlives_its_parent_does_not_hold_the_name() {
        let name = format!("erd-test-forked-{}", std::process::id());
        let end_of = |pid| {
            let mut status = -1;
            // SAFETY: waits for our child; the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            status
        };
        // SAFETY: the child opens words, forks, and leaves by _exit, as its own child does.
        let parent = unsafe { libc::fork() };
        if parent == 0 {
            let words = SharedWords::open(&name, 4, true);
            // SAFETY: as above.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    // Who reads what the test prints must not wait for its end.
                    let _ = (libc::close(1), libc::close(2));
                    let refused = words.is_ok_and(|words| words.lock().is_err());
                    libc::_exit(libc::sleep(if refused { 60 } else { 0 }) as i32);
                }
                let began = libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG);
                libc::_exit(i32::from(began != 0));
            }
        }
        assert_eq!(end_of(parent), 0);
        // The child gives it up before fork returns there, which may be later than in its parent.
        let end = Instant::now() + Duration::from_secs(20);
        while SharedWords::open(&name, 4, false).is_ok() {
            assert!(Instant::now() < end, "it was left over");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn who_comes_late_does_not_remove_the_name_of_others() {
        let name = format!("erd-test-late-{}", std::process::id());
        let c_name = CString::new(format!("/{name}")).expect("a name");
        let stale = shm_open(&c_name, libc::O_CREAT).expect("left over");
        remove(&stale, &c_name);
        let words = SharedWords::open(&name, 4, true).expect("made again");
        assert!(SharedWords::join(stale, &c_name).expect("a file of ours").is_none());
        let other = SharedWords::open(&name, 4, false).expect("the name is still there");
        words.word(0).store(7, Ordering::Relaxed);
        assert_eq!(other.word(0).load(Ordering::Relaxed), 7);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_file_of_another_user_is_not_believed() {
        // SAFETY: the call takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            // Only root can give a file away.
            return;
        }
        let name = format!("erd-test-owner-{}", std::process::id());
        let words = SharedWords::open(&name, 4, true).expect("made");
        std::os::unix::fs::fchown(&*words.file, Some(1), None).expect("root may");
        let refused = SharedWords::open(&name, 4, true).err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::PermissionDenied));
    }
}
