//! Descriptors that a forked child does not share.
//!
//! A child of `fork` gets a copy of every descriptor, and close-on-exec does not help while the child runs no other
//! program. Such a copy keeps a socket's port or name taken, and a connection or a file's lock alive, after the process
//! that made it has ended. So a child puts an eventfd of no use in the place of each descriptor of an [`Unshared`] before
//! `fork` returns there. The numbers stay taken, because copies of the values that own them will close them.
//!
//! A child keeps its copy where another thread forks between the opening of a descriptor and [`Unshared::new`], or
//! within the drop of an `Unshared`.

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Descriptors from this number on are shared with children. Linux gives a process no more of them by default.
const FDS_MAX: usize = 1 << 20;

/// A bit for each descriptor that children do not share. No lock: a child could find it taken for ever.
static LISTED: [AtomicU64; FDS_MAX / 64] = [const { AtomicU64::new(0) }; FDS_MAX / 64];
/// The words from this one on are 0.
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Owns a descriptor that no forked child shares.
#[derive(Debug)]
pub struct Unshared<T: AsFd> {
    // Dropped first: once the descriptor is closed, its number may be another's.
    _listed: Listed,
    owner: T,
}

impl<T: AsFd> Unshared<T> {
    /// Takes the owner of a descriptor, as soon as that is open.
    #[must_use]
    pub fn new(owner: T) -> Unshared<T> {
        Unshared { _listed: Listed::new(owner.as_fd()), owner }
    }
}

impl<T: AsFd> Deref for Unshared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.owner
    }
}

impl<T: AsFd> AsFd for Unshared<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.owner.as_fd()
    }
}

/// The bit of a descriptor.
#[derive(Debug)]
struct Listed(RawFd);

impl Listed {
    fn new(fd: BorrowedFd<'_>) -> Listed {
        crate::process::at_fork(replace_listed);
        let fd = fd.as_raw_fd();
        if let Some((word, bit)) = place(fd) {
            WORDS.fetch_max(word + 1, Ordering::Relaxed);
            LISTED[word].fetch_or(bit, Ordering::Relaxed);
        }
        Listed(fd)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some((word, bit)) = place(self.0) {
            LISTED[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The word of a descriptor's bit, and the bit.
fn place(fd: RawFd) -> Option<(usize, u64)> {
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < FDS_MAX)?;
    Some((fd / 64, 1 << (fd % 64)))
}

/// In a forked child. The other threads are missing, so only calls that are safe in a signal handler are made.
fn replace_listed() {
    let mut stand_in = None;
    for (at, word) in LISTED[..WORDS.load(Ordering::Relaxed)].iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            let fd = (at * 64) as RawFd + bits.trailing_zeros() as RawFd;
            bits &= bits - 1;
            let stand_in = stand_in.get_or_insert_with(|| StandIn::open(fd));
            stand_in.replace(fd);
        }
    }
}

/// What takes the place of descriptors. Nobody reads or writes it.
struct StandIn {
    fd: RawFd,
    /// It has the number of a descriptor that it replaces.
    stays: bool,
}

impl StandIn {
    /// A new one. If the process has no descriptor left, it takes the place of `fd`. If the system has none left, the
    /// child keeps its copies.
    fn open(fd: RawFd) -> StandIn {
        // SAFETY: takes no pointers.
        let new = || unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let first = new();
        if first >= 0 {
            return StandIn { fd: first, stays: false };
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EMFILE) {
            return StandIn { fd: -1, stays: false };
        }
        // SAFETY: what was at this number is nobody's in this process.
        unsafe { libc::close(fd) };
        StandIn { fd: new(), stays: true }
    }

    fn replace(&self, fd: RawFd) {
        if self.fd >= 0 && self.fd != fd {
            // SAFETY: the stand-in is open; what was at this number is nobody's in this process.
            unsafe { libc::dup3(self.fd, fd, libc::O_CLOEXEC) };
        }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if !self.stays && self.fd >= 0 {
            // SAFETY: it is open, and this value's.
            unsafe { libc::close(self.fd) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{FromRawFd, OwnedFd};

    fn pipe() -> (OwnedFd, OwnedFd) {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which are new and this function's.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK), 0);
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        }
    }

    /// Forks a child that calls `f`, and answers whether that was true in it.
    fn in_child(f: impl Fn() -> bool) -> bool {
        // SAFETY: what the tests do in the child are system calls, and it leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = f();
            // SAFETY: ends the child without touching what it shares with the parent.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: waits for our child; the status outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status == 0
    }

    fn inode(fd: RawFd) -> Option<u64> {
        // SAFETY: all zeros are a valid stat.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the structure outlives the call.
        (unsafe { libc::fstat(fd, &raw mut stat) } == 0).then_some(stat.st_ino)
    }

    fn flags(fd: RawFd) -> i32 {
        // SAFETY: takes no pointers.
        unsafe { libc::fcntl(fd, libc::F_GETFD) }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_child_has_another_file_at_the_number_and_its_parent_keeps_its_own() {
        let ((_one, kept), (_other, shared)) = (pipe(), pipe());
        let kept = Unshared::new(kept);
        let (fd, shared) = (kept.as_raw_fd(), shared.as_raw_fd());
        let before = (inode(fd), inode(shared));
        assert!(in_child(|| {
            let (now, stays) = (inode(fd), inode(shared));
            now.is_some() && now != before.0 && stays == before.1 && flags(fd) == libc::FD_CLOEXEC
        }));
        assert_eq!((inode(fd), inode(shared)), before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_a_child_makes_itself_is_its_own_and_not_its_childs() {
        let (_one, kept) = pipe();
        let kept = Unshared::new(kept);
        assert!(in_child(|| {
            let new = Unshared::new(File::open("/dev/null").expect("a file"));
            let (own, old) = (inode(new.as_raw_fd()), inode(kept.as_raw_fd()));
            in_child(|| inode(new.as_raw_fd()) != own && inode(kept.as_raw_fd()) == old)
                && inode(new.as_raw_fd()) == own
        }));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_number_that_was_given_back_is_shared_again() {
        let (_one, kept) = pipe();
        let kept = Unshared::new(kept);
        let Unshared { _listed: listed, owner } = kept;
        drop(listed);
        let (fd, before) = (owner.as_raw_fd(), inode(owner.as_raw_fd()));
        assert!(in_child(|| inode(fd) == before));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_child_without_room_for_a_descriptor_shares_none_either() {
        assert!(in_child(|| {
            let (one, other) = pipe();
            let (one, other) = (Unshared::new(one), Unshared::new(other));
            let fds = [one.as_raw_fd(), other.as_raw_fd()];
            let before = fds.map(inode);
            // SAFETY: no pointers but the limit, which outlives the call.
            unsafe {
                let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                while libc::dup(2) >= 0 {}
            }
            in_child(|| {
                let now = fds.map(inode);
                now.iter().zip(before).all(|(now, before)| now.is_some() && *now != before)
            })
        }));
    }
}
