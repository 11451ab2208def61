//! Unix sockets on which two processes of one user meet: each learns the other's user and process, and they hand each
//! other memory and descriptors (`docs/protocol.md` §12.2).

use super::claim::Claim;
use erd_sys::process::Process;
use erd_sys::unshared::Unshared;
use erd_sys::visit::{Credentials, credentials};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Most descriptors of a message.
pub const FDS_MAX: usize = 3;

/// Where an endpoint of this name is met: in the abstract names of the network namespace, or in a directory that
/// several namespaces share.
fn meeting_place(name: SocketAddr, dir: Option<&Path>) -> io::Result<Place> {
    let Some(dir) = dir else {
        // SAFETY: it takes nothing and cannot fail.
        let uid = unsafe { libc::geteuid() };
        let at = SocketAddrUnix::new_abstract_name(format!("erd-local-{uid}-{name}").as_bytes())?;
        return Ok(Place { at, _dir: None });
    };
    let file = file_of(name, dir);
    match SocketAddrUnix::new(&file) {
        Ok(at) => Ok(Place { at, _dir: None }),
        // The address of a socket has room for 108 bytes. A directory that is open has a short name, too.
        Err(Errno::NAMETOOLONG) => {
            let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let short = PathBuf::from(format!("/proc/thread-self/fd/{}", dir.as_raw_fd()));
            let at = SocketAddrUnix::new(file_of(name, &short))?;
            Ok(Place { at, _dir: Some(dir) })
        }
        Err(error) => Err(error.into()),
    }
}

/// Where an endpoint is met.
struct Place {
    at: SocketAddrUnix,
    /// The directory that the address names by its descriptor.
    _dir: Option<OwnedFd>,
}

fn file_of(name: SocketAddr, dir: &Path) -> PathBuf {
    dir.join(format!("erd-{}-{}", name.ip(), name.port()))
}

fn socket() -> io::Result<Unshared<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    Ok(Unshared::new(socket?))
}

/// Where others meet an endpoint.
#[derive(Debug)]
pub struct Listener {
    socket: Unshared<OwnedFd>,
    /// A file to remove in the end.
    file: Option<PathBuf>,
    /// The process that removes it: not a forked child of that one.
    owner: Process,
}

impl Listener {
    /// Listens for an endpoint of this name.
    ///
    /// # Errors
    /// Somebody else does so already, or there are no sockets to be had.
    pub fn open(name: SocketAddr, dir: Option<&Path>) -> io::Result<Listener> {
        let (socket, place) = (socket()?, meeting_place(name, dir)?);
        let file = dir.map(|dir| file_of(name, dir));
        match rustix::net::bind(&socket, &place.at) {
            // A file outlives its process.
            Err(Errno::ADDRINUSE) if file.is_some() && !is_listening(&place.at)? => {
                std::fs::remove_file(file.as_deref().unwrap_or(Path::new("")))?;
                rustix::net::bind(&socket, &place.at)?;
            }
            bound => bound?,
        }
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, file, owner: Process::current() })
    }

    /// Readable when somebody is there.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The next who wants to meet, if somebody does. Those of other users are turned away. The connection is one of
    /// `most` descriptors ([`Claim`]).
    ///
    /// # Errors
    /// There are no descriptors to be had, mostly.
    pub fn accept(&self, most: usize) -> io::Result<Option<Connection>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..BACKLOG {
            match rustix::net::accept_with(&self.socket, flags) {
                // Whoever finds no room learns so at once.
                Ok(socket) => {
                    let socket = Unshared::new(socket);
                    match Claim::take(1, most).and_then(|c| Connection::with(socket, c)) {
                        Ok(connection) => return Ok(Some(connection)),
                        Err(error) => tracing::debug!(%error, "somebody was turned away"),
                    }
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        if let Some(file) = &self.file
            && let Err(error) = std::fs::remove_file(file)
        {
            tracing::debug!(file = %file.display(), %error, "the endpoint's socket has gone already");
        }
    }
}

fn is_listening(at: &SocketAddrUnix) -> io::Result<bool> {
    Ok(!matches!(rustix::net::connect(&socket()?, at), Err(Errno::CONNREFUSED)))
}

/// A message, with the descriptors that came with it.
#[derive(Debug, Default)]
pub struct Received {
    /// Its length.
    pub bytes: usize,
    /// The descriptors.
    pub fds: Vec<OwnedFd>,
}

/// What a connection has to say.
#[derive(Debug)]
pub enum Said {
    /// Nothing yet.
    Nothing,
    /// A message.
    Message(Received),
    /// The other side has gone.
    Gone,
}

/// A connection to a process of the same user.
#[derive(Debug)]
pub struct Connection {
    socket: Unshared<OwnedFd>,
    who: Credentials,
    owner: Process,
    _claim: Claim,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A forked child may have a copy, which must not keep it open, and must not end it.
        if self.owner.is_current()
            && let Err(error) = rustix::net::shutdown(&self.socket, Shutdown::Both)
        {
            tracing::trace!(%error, "a connection had ended already");
        }
    }
}

impl Connection {
    /// Meets the endpoint of this name. `None` if nobody listens there, or nobody of this user. The connection is one of
    /// `most` descriptors ([`Claim`]).
    ///
    /// # Errors
    /// There are no sockets to be had, or too many wait to be met.
    pub fn open(
        name: SocketAddr,
        dir: Option<&Path>,
        most: usize,
    ) -> io::Result<Option<Connection>> {
        let claim = Claim::take(1, most)?;
        let (socket, place) = (socket()?, meeting_place(name, dir)?);
        match rustix::net::connect(&socket, &place.at) {
            Ok(()) => Ok(Connection::with(socket, claim).ok()),
            Err(Errno::CONNREFUSED | Errno::NOENT | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn with(socket: Unshared<OwnedFd>, claim: Claim) -> io::Result<Connection> {
        // SAFETY: it takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        let who = credentials(socket.as_fd())?;
        match who.uid == own && !crate::udp::owner::is_nobody(own) {
            true => {
                let owner = Process::current();
                Ok(Connection { socket, who, owner, _claim: claim })
            }
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// The process at the other end: the one that has connected, or the one that listens.
    #[must_use]
    pub fn who(&self) -> Credentials {
        self.who
    }

    /// Readable when the other side has said something, or has gone.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a message with at most [`FDS_MAX`] descriptors. Never waits: a connection takes the few that are sent on it.
    ///
    /// # Errors
    /// The other side has gone.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Receives a message into `bytes`. One that is longer, or has more descriptors, is as good as none: who sent it
    /// speaks another protocol, and counts as gone.
    #[must_use]
    pub fn receive(&self, bytes: &mut [u8]) -> Said {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let (flags, iov) = (RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT, IoSliceMut::new(bytes));
        let received = rustix::net::recvmsg(&self.socket, &mut [iov], &mut control, flags);
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        match received {
            Err(Errno::AGAIN | Errno::INTR) => Said::Nothing,
            Ok(message) if message.bytes > 0 && !message.flags.intersects(cut) => {
                let fds = control.drain().filter_map(|part| match part {
                    RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                    _ => None,
                });
                Said::Message(Received { bytes: message.bytes, fds: fds.flatten().collect() })
            }
            Ok(_) | Err(_) => Said::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    /// No limit of descriptors.
    const MOST: usize = usize::MAX;

    fn name(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 5, 9], port))
    }

    fn pair(port: u16, dir: Option<&Path>) -> (Listener, Connection, Connection) {
        let listener = Listener::open(name(port), dir).expect("a listener");
        let one = Connection::open(name(port), dir, MOST).expect("a socket").expect("it listens");
        let other = listener.accept(MOST).expect("a socket").expect("it came");
        (listener, one, other)
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn messages_bring_descriptors_and_ends_are_seen() {
        let (_listener, one, other) = pair(1, None);
        assert_eq!(one.who().pid, std::process::id());
        let mut bytes = [0; 16];
        assert!(matches!(other.receive(&mut bytes), Said::Nothing));
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        one.send(b"hello", &[writer.as_fd()]).expect("sent");
        drop(writer);
        let Said::Message(Received { bytes: 5, mut fds }) = other.receive(&mut bytes) else {
            panic!("a message")
        };
        assert_eq!((&bytes[..5], fds.len()), (&b"hello"[..], 1));
        let mut writer = std::io::PipeWriter::from(fds.remove(0));
        writer.write_all(b"through").expect("written");
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, "through");
        one.send(&[1; 17], &[]).expect("sent");
        assert!(matches!(other.receive(&mut bytes), Said::Gone), "nobody says so much");
        drop(one);
        assert!(matches!(other.receive(&mut bytes), Said::Gone));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn nobody_is_met_where_nobody_listens() {
        assert!(Connection::open(name(2), None, MOST).expect("a socket").is_none());
        let listener = Listener::open(name(2), None).expect("a listener");
        assert!(Listener::open(name(2), None).is_err(), "the name is taken");
        drop(listener);
        assert!(Connection::open(name(2), None, MOST).expect("a socket").is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_directory_is_a_meeting_place_and_nothing_stays_there() {
        for long in ["", &"x".repeat(100)] {
            let name = format!("erd-courier-{}{long}", std::process::id());
            meet_in(&std::env::temp_dir().join(name));
        }
    }

    fn meet_in(dir: &Path) {
        std::fs::create_dir(dir).expect("a directory");
        let (listener, one, other) = pair(3, Some(dir));
        assert!(
            Connection::open(name(3), None, MOST).expect("a socket").is_none(),
            "it is elsewhere"
        );
        // As after a crash: the socket has gone, its file has not.
        let file = listener.file.clone().expect("a file");
        std::fs::hard_link(&file, dir.join("left")).expect("a second name");
        drop((listener, one, other));
        assert!(!file.exists());
        std::fs::rename(dir.join("left"), &file).expect("a file that was left over");
        drop(pair(3, Some(dir)));
        std::fs::remove_dir(dir).expect("nothing stays");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn memory_can_be_handed_over() {
        let (_listener, one, other) = pair(4, None);
        let mut file = std::fs::File::from(
            rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd"),
        );
        file.write_all(b"bytes").expect("written");
        one.send(b"m", &[file.as_fd()]).expect("sent");
        let Said::Message(mut received) = other.receive(&mut [0; 1]) else { panic!("a message") };
        let mut same = std::fs::File::from(received.fds.remove(0));
        same.rewind().expect("its start");
        let mut text = String::new();
        same.read_to_string(&mut text).expect("read");
        assert_eq!(text, "bytes");
    }
}
