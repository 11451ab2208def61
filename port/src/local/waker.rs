//! Wakes the owner of a bell: one pair of datagram sockets, whose other end all its peers have.
//!
//! It is no eventfd. A peer could make the write to one wait, for ever: it may change the file's flags and its counter.
//! Nothing makes the sender of a datagram wait that says it does not want to.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Datagrams that the owner takes back at once. The kernel holds few more.
const DRAINS: usize = 16;

/// The owner's side.
#[derive(Debug)]
pub struct Sleep {
    own: OwnedFd,
    theirs: OwnedFd,
}

impl Sleep {
    /// A new pair.
    ///
    /// # Errors
    /// There are no descriptors to be had.
    pub fn new() -> io::Result<Sleep> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (unix, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
        let (own, theirs) = rustix::net::socketpair(unix, kind, flags, None)?;
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
    pub fn wake(&self) {
        wake(self.theirs.as_fd());
    }

    /// Takes back what has woken the owner.
    pub fn drain(&self) {
        for _ in 0..DRAINS {
            if rustix::net::recv(&self.own, &mut [0; 8], RecvFlags::DONTWAIT).is_err() {
                return;
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
    /// It is something else.
    pub fn new(fd: OwnedFd) -> io::Result<Waker> {
        let domain = rustix::net::sockopt::socket_domain(&fd)?;
        let kind = rustix::net::sockopt::socket_type(&fd)?;
        match domain == AddressFamily::UNIX && kind == SocketType::DGRAM {
            true => Ok(Waker(fd)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Wakes the owner, if it sleeps.
    pub fn wake(&self) {
        wake(self.0.as_fd());
    }
}

fn wake(fd: BorrowedFd<'_>) {
    match rustix::net::send(fd, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // A full queue wakes as well.
        Ok(_) | Err(Errno::AGAIN) => {}
        Err(error) => tracing::trace!(%error, "a local peer cannot be woken"),
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
        let sleep = Sleep::new().expect("sockets");
        let waker = Waker::new(sleep.for_peers().try_clone_to_owned().expect("a copy"));
        let waker = waker.expect("it is one");
        rustix::io::ioctl_fionbio(sleep.for_peers(), false)
            .expect("blocking, as a peer may make it");
        assert!(!is_woken(&sleep));
        for _ in 0..10_000 {
            waker.wake();
        }
        assert!(is_woken(&sleep));
        for _ in 0..100 {
            sleep.drain();
        }
        assert!(!is_woken(&sleep));
        sleep.wake();
        assert!(is_woken(&sleep));
        drop(sleep);
        waker.wake();
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_could_hold_the_sender_up_is_not_taken() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        assert!(Waker::new(reader.into()).is_err() && Waker::new(writer.into()).is_err());
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        assert!(Waker::new(tcp.into()).is_err());
    }
}
