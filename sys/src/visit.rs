//! A socket where a process tells its state to whoever comes to look.
//!
//! It lies in the abstract namespace of Unix sockets (unix(7)): it needs no directory that could
//! be missing or not writable, and nothing of it is left when the process dies. Everybody in the
//! same network namespace can see its name and connect, so each side looks at the other's
//! credentials: a [`Listener`] talks to its own user and to root alone, and who [visits](visit)
//! learns whom it talks to.
//!
//! Who looks says nothing, so there is nothing to wait for: the answer is written at once, as far
//! as the kernel takes it, and the connection is closed.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use crate::unshared::Unshared;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// What the kernel is asked to hold of one answer, in bytes; it takes `net.core.wmem_max` at most.
const ANSWER_BYTES: usize = 4 << 20;
/// Visitors looked at by one [`Listener::accept`].
const LOOKS: usize = 8;

/// Readings of the kernel's table after which [`names`] has all that it will find.
const READINGS_WITHOUT_NEWS: usize = 3;
/// Most readings: somebody may make new names all the time.
const READINGS_MAX: usize = 16;

/// A process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number; 0 if it has none in the PID namespace of who asks.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// The socket to be visited at.
#[derive(Debug)]
pub struct Listener {
    socket: Unshared<UnixListener>,
}

/// Someone who wants to be told.
#[derive(Debug)]
pub struct Visitor {
    stream: Unshared<UnixStream>,
}

impl Listener {
    /// Listens under `name`.
    ///
    /// # Errors
    /// The name is taken or longer than 107 bytes, or there are no sockets to be had.
    pub fn open(name: &str) -> io::Result<Listener> {
        let socket =
            Unshared::new(UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?);
        socket.set_nonblocking(true)?;
        Ok(Listener { socket })
    }

    /// For a wait set: readable when someone is there.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next visitor that may be told; `None` when there is none. Others are turned away.
    ///
    /// # Errors
    /// What `accept(2)` reports: no descriptors, mostly. Whoever waits then waits on.
    pub fn accept(&self) -> io::Result<Option<Visitor>> {
        // SAFETY: the call has no arguments and cannot fail.
        let own = unsafe { libc::geteuid() };
        for _ in 0..LOOKS {
            let stream = match self.socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_passing(&error) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            };
            if credentials(stream.as_fd()).is_ok_and(|who| who.uid == own || who.uid == 0) {
                return Ok(Some(Visitor { stream: Unshared::new(stream) }));
            }
        }
        Ok(None)
    }
}

impl Visitor {
    /// Tells `bytes`, or as many of them as the kernel takes at once, and says goodbye. Answers how
    /// many that were. Never blocks.
    ///
    /// # Errors
    /// What `send(2)` reports: the visitor has left.
    pub fn tell(self, bytes: &[u8]) -> io::Result<usize> {
        let socket = SockRef::from(&*self.stream);
        // Less is enough for most.
        let _ = socket.set_send_buffer_size(ANSWER_BYTES);
        let mut told = 0;
        while told < bytes.len() {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            match socket.send_with_flags(&bytes[told..], flags) {
                Ok(0) => break,
                Ok(count) => told += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(told)
    }
}

/// Names of the listeners of this network namespace that begin with `prefix`. Whose they are is not
/// known before a visit, nor whether they are still there.
///
/// The kernel hands the table out in pieces, and leaves a socket out now and then if others end in between. So this reads
/// the table again until it finds no new name several times in a row. The number of readings is bounded.
///
/// # Errors
/// /proc is not mounted.
pub fn names(prefix: &str) -> io::Result<Vec<String>> {
    let (mut all, mut without_news) = (BTreeSet::new(), 0);
    for _ in 0..READINGS_MAX {
        let before = all.len();
        all.extend(listening(&std::fs::read_to_string("/proc/net/unix")?, prefix));
        without_news = if all.len() > before { 0 } else { without_news + 1 };
        if without_news == READINGS_WITHOUT_NEWS {
            break;
        }
    }
    Ok(all.into_iter().collect())
}

/// Out of the table in /proc/net/unix. Connections have their listener's name, too, but other flags.
fn listening(table: &str, prefix: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (flags, name) = (fields.next()?, fields.nth(3)?.strip_prefix('@')?);
        (flags == "00010000" && name.starts_with(prefix)).then(|| name.to_owned())
    };
    table.lines().filter_map(name).collect()
}

/// Connects to the listener of that name, and says whose it is. Does not wait for one whose visitors
/// stand in line.
///
/// # Errors
/// There is none, or none that listens.
pub fn visit(name: &str) -> io::Result<(UnixStream, Credentials)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.connect(&SockAddr::unix(format!("\0{name}"))?)?;
    socket.set_nonblocking(false)?;
    let stream = UnixStream::from(socket);
    let who = credentials(stream.as_fd())?;
    Ok((stream, who))
}

/// An error of one connection that is gone already, or of none.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
}

/// The process at the other end of a Unix socket's connection.
///
/// # Errors
/// It is no such socket.
pub fn credentials(stream: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = stream.as_raw_fd();
    // SAFETY: `who` has room for the stated size, and both outlive the call.
    let rc = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut bytes,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: u32::try_from(who.pid).unwrap_or(0), uid: who.uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_from_their_connections_and_from_others() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000062040210: 00000003 00000000 00000000 0001 03  1468\n\
            00000000c602c872: 00000002 00000000 00010000 0001 01 14691 @erd-a\n\
            00000000c602c873: 00000003 00000000 00000000 0001 03 14692 @erd-a\n\
            00000000c602c874: 00000002 00000000 00010000 0001 01 14693 /run/erd-b\n\
            00000000c602c875: 00000002 00000000 00010000 0001 01 14694 @other\n";
        assert_eq!(listening(table, "erd-"), ["erd-a"]);
    }
}
