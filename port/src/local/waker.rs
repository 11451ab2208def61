//! Wakes the owner of a bell: a pipe, into which its peers write.
//!
//! Whoever shares a file with another process shares its flags: an eventfd, or the end of a pipe as it is handed over,
//! could be made to keep its writer waiting without end. So a peer opens the pipe again, and has flags of its own. It opens
//! it for reading, too: the kernel ends a process that writes into a pipe without a reader.

use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes that the owner takes back in one system call. Honest peers write one for each sleep.
const DRAIN_BYTES: usize = 512;
/// Most such calls in a row.
const DRAINS_MAX: usize = 16;

/// The owner's side.
#[derive(Debug)]
pub struct Sleep {
    own: OwnedFd,
    theirs: OwnedFd,
}

impl Sleep {
    /// A new pipe.
    ///
    /// # Errors
    /// There are no descriptors to be had.
    pub fn new() -> io::Result<Sleep> {
        let (own, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Sleep { own, theirs })
    }

    /// Readable once somebody has woken the owner, until [`Sleep::drain`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    /// What a peer gets.
    #[must_use]
    pub fn for_peers(&self) -> BorrowedFd<'_> {
        self.theirs.as_fd()
    }

    /// Wakes other threads of this process.
    ///
    /// # Errors
    /// The pipe cannot be opened again. Without that a write could be made to wait.
    pub fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.theirs.as_fd())
    }

    /// Takes back what has woken the owner.
    pub fn drain(&self) {
        for _ in 0..DRAINS_MAX {
            match rustix::io::read(&self.own, &mut [0; DRAIN_BYTES]) {
                Ok(DRAIN_BYTES) => {}
                // Most often nobody had to wake this side.
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// A peer's side.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// For what a peer has handed over.
    ///
    /// # Errors
    /// It is something else, or `/proc` is missing.
    pub fn new(handed: BorrowedFd<'_>) -> io::Result<Waker> {
        let path = format!("/proc/thread-self/fd/{}", handed.as_raw_fd());
        // No file has such a name. To ask the file itself could take as long as its file system wants.
        if !std::fs::read_link(&path)?.to_string_lossy().starts_with("pipe:[") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Waker(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Wakes the owner, if it sleeps.
    pub fn wake(&self) {
        if let Err(error) = rustix::io::write(&self.0, &[1]) {
            // A full pipe wakes as well.
            tracing::trace!(%error, "a local peer's pipe takes nothing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec};

    fn is_woken(sleep: &Sleep) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::from_borrowed_fd(sleep.fd(), PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&now)).expect("a poll") == 1
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn nobody_waits_to_wake_another() {
        let sleep = Sleep::new().expect("a pipe");
        let waker = sleep.waker().expect("opened again");
        rustix::io::ioctl_fionbio(sleep.for_peers(), false)
            .expect("blocking, as a peer may make it");
        assert!(!is_woken(&sleep));
        for _ in 0..100_000 {
            waker.wake();
        }
        assert!(is_woken(&sleep));
        for _ in 0..100 {
            sleep.drain();
        }
        assert!(!is_woken(&sleep));
        waker.wake();
        assert!(is_woken(&sleep));
        drop(sleep);
        // Nobody reads any more, and this process lives on.
        waker.wake();
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_could_hold_the_writer_up_is_not_taken() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let file = std::fs::File::open("/dev/zero").expect("a file");
        assert!(Waker::new(tcp.as_fd()).is_err() && Waker::new(file.as_fd()).is_err());
    }
}
