//! ERD's information path: control packets over one lazily opened TCP connection per peer.
//!
//! A frame is a length (u16, big endian, 1 to [`MAX_FRAME_BYTES`]) and a datagram of that length. Frames travel on the
//! sender's own connection only, so each pair of peers has one per direction, and the two sides need not agree on who
//! connects. Nothing here is reliable in the protocol's sense: the protocol sends frames again that a lost connection
//! took with it.

#[cfg(test)]
mod bounds;

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use erd_types::Ecn;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::FramePort;
use erd_sys::clock::monotonic_ns;
use erd_sys::process::Process;
use erd_sys::unshared::Unshared;

/// The largest frame. A longer control packet goes over UDP.
pub const MAX_FRAME_BYTES: usize = 16 << 10;

/// Bytes of frames that wait for a connection to open or to drain.
pub const QUEUE_BYTES: usize = 64 << 10;

/// Connections that peers may open to us, and that we open, each. All paths of the process together take at most a part
/// of its file descriptors, [`FDS_SHARE`].
pub const MAX_CONNECTIONS: usize = 4096;

/// Connections take at most this part of the file descriptors that the process may open: the rest is the
/// application's.
pub const FDS_SHARE: usize = 4;

/// Connections that have proven no session take at most this part of the places, for each address of theirs: one
/// stranger keeps nobody else out.
pub const ADDRESS_SHARE: usize = 8;

/// Time within which a connection must prove a session, or be closed.
pub const PROOF_NS: u64 = 1_000_000_000;

/// A connection without a frame for this long is closed; its peer opens another when needed.
pub const IDLE_NS: u64 = 60_000_000_000;

/// A connection without a frame for this long gives its place to a new one when there are too many.
const SPARE_NS: u64 = 1_000_000_000;

/// Time between two looks for connections to close.
const SWEEP_NS: u64 = 250_000_000;

/// Connections of all paths of this process.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// Most bytes held of one connection while reading: one read and the rest of an earlier one.
const READ_BYTES: usize = 128 << 10;

const LENGTH_BYTES: usize = 2;

/// Ready connections served by one [`InfoPath::recv`].
const EVENTS: usize = 32;

/// Connections taken from the listener by one [`InfoPath::recv`].
const ACCEPTS: usize = 16;

/// Pause for a peer after its connection fails, and for the listener when the process is out of fds.
const PAUSE_NS: u64 = 500_000_000;

const TOKEN_LISTENER: u64 = u64::MAX;

/// Connections that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoPathDrops {
    /// The peer sent a length of 0 or above [`MAX_FRAME_BYTES`], or sent on our own connection.
    pub malformed: u64,
    /// The peer's connection came on top of [`MAX_CONNECTIONS`], of the process's descriptors, or of what its address
    /// may have.
    pub refused: u64,
    /// The peer's connection proved no session within [`PROOF_NS`].
    pub unproven: u64,
}

/// A connection's share of the process's file descriptors.
#[derive(Debug)]
struct Permit;

impl Permit {
    fn new(most: usize) -> Option<Permit> {
        let more = |open: usize| (open < most).then_some(open + 1);
        OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connections that the process may have, by its limit on file descriptors.
fn most_connections() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if rc != 0 {
        return MAX_CONNECTIONS;
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) / FDS_SHARE
}

/// All information-path connections of an endpoint.
#[derive(Debug)]
pub struct InfoPath {
    epoll: OwnedFd,
    listener: Option<Unshared<Socket>>,
    dscp: u8,
    listener_paused_until_ns: Option<u64>,
    /// By epoll token; a closed connection's place is taken again.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    peers: HashMap<SocketAddr, Peer>,
    accepted: usize,
    /// Number of connections that have proven no session, by their address.
    unproven: HashMap<IpAddr, usize>,
    swept_ns: u64,
    read_buffer: Box<[u8]>,
    drops: InfoPathDrops,
    process: Process,
}

#[derive(Debug)]
enum Peer {
    Open { index: usize },
    Failed { retry_at_ns: u64 },
}

#[derive(Debug)]
struct Connection {
    socket: Unshared<Socket>,
    remote: SocketAddr,
    role: Role,
    /// Time of the last frame over it, or else of its opening.
    used_ns: u64,
    _permit: Permit,
}

#[derive(Debug)]
enum Role {
    /// Opened by the peer, which sends on it.
    Inbound { partial: Vec<u8>, proven: bool },
    /// Opened by us, for our frames.
    Outbound { connecting: bool, queue: Vec<u8> },
}

impl FramePort for InfoPath {
    fn send(&mut self, to: SocketAddr, bytes: &[u8]) -> bool {
        InfoPath::send(self, to, bytes)
    }

    fn recv(&mut self, f: impl FnMut(&[u8], SocketAddr) -> bool) -> io::Result<usize> {
        InfoPath::recv(self, f)
    }

    fn next_ns(&self) -> Option<u64> {
        InfoPath::next_ns(self)
    }

    fn each_fd(&self, f: &mut dyn FnMut(BorrowedFd<'_>)) {
        f(self.fd());
    }
}

impl InfoPath {
    /// With a `listen` address, takes connections there: the endpoint's own IP and port number.
    ///
    /// # Errors
    /// If the address is taken, or the process is out of fds.
    pub fn new(listen: Option<SocketAddr>) -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new fd that nothing else owns.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let listener = listen.map(open_listener).transpose()?;
        let path = Self {
            epoll,
            listener,
            dscp: 0,
            listener_paused_until_ns: None,
            connections: Vec::new(),
            free: Vec::new(),
            peers: HashMap::new(),
            accepted: 0,
            unproven: HashMap::new(),
            swept_ns: monotonic_ns(),
            read_buffer: vec![0; READ_BYTES].into_boxed_slice(),
            drops: InfoPathDrops::default(),
            process: Process::current(),
        };
        if let Some(listener) = &path.listener {
            path.watch(libc::EPOLL_CTL_ADD, listener, libc::EPOLLIN, TOKEN_LISTENER)?;
        }
        Ok(path)
    }

    /// For a wait set: readable when [`InfoPath::recv`] has work.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The listener's address.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()?.as_socket()
    }

    /// Connections dropped so far.
    #[must_use]
    pub fn drops(&self) -> InfoPathDrops {
        self.drops
    }

    /// Sends `bytes` to the peer that listens at `dst`, opening the connection if there is none.
    /// True means taken, not delivered; false means that the caller should use UDP: an empty or too
    /// long packet, a full queue, or a peer that cannot be reached.
    pub fn send(&mut self, dst: SocketAddr, bytes: &[u8]) -> bool {
        if self.is_foreign() || bytes.is_empty() || bytes.len() > MAX_FRAME_BYTES {
            return false;
        }
        let index = match self.peers.get(&dst) {
            Some(Peer::Open { index }) => *index,
            Some(Peer::Failed { retry_at_ns }) if monotonic_ns() < *retry_at_ns => return false,
            _ => match self.connect(dst) {
                Ok(index) => index,
                Err(error) => {
                    tracing::debug!(%dst, %error, "no information path");
                    self.mark_failed(dst);
                    return false;
                }
            },
        };
        let Some(connection) = self.connections[index].as_mut() else {
            unreachable!("an open peer has a connection")
        };
        connection.used_ns = monotonic_ns();
        match connection.push_frame(bytes) {
            Ok(Pushed::Sent) => true,
            Ok(Pushed::Full) => false,
            Ok(Pushed::Queued) => self.rewatch(index, libc::EPOLLIN | libc::EPOLLOUT),
            Err(_) => {
                self.fail(index);
                false
            }
        }
    }

    /// Accepts, connects, flushes and reads what is ready, and hands each frame to `f` with the address of the
    /// connection that brought it (whose port is not the peer's name). `f` returns whether the frame was a peer's. A
    /// connection that brings none within [`PROOF_NS`] is closed, and any that is idle for [`IDLE_NS`]. Returns the
    /// number of frames. Work is bounded: 32 connections, 16 accepts and one read of 112 KiB each, and 4 times a second
    /// a look at all connections.
    ///
    /// # Errors
    /// Error of `epoll_wait(2)`, other than an interruption.
    pub fn recv(&mut self, mut f: impl FnMut(&[u8], SocketAddr) -> bool) -> io::Result<usize> {
        if self.is_foreign() {
            return Ok(0);
        }
        let now_ns = monotonic_ns();
        if self.listener_paused_until_ns.is_some_and(|until| now_ns >= until) {
            self.pause_listener(None);
        }
        if now_ns >= self.swept_ns + SWEEP_NS {
            self.sweep(now_ns);
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let (fd, room) = (self.epoll.as_raw_fd(), EVENTS as i32);
        // SAFETY: `events` has room for the stated number and outlives the call.
        let ready = unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), room, 0) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return if interrupted { Ok(0) } else { Err(error) };
        }
        let mut frames = 0;
        for event in &events[..ready as usize] {
            let (token, flags) = (event.u64, event.events as i32);
            if token == TOKEN_LISTENER {
                self.accept();
                continue;
            }
            // An earlier event of this round may have closed the connection. If another has taken
            // its place, the event finds nothing to do there.
            let index = token as usize;
            match self.connections[index].as_ref().map(|connection| &connection.role) {
                Some(Role::Inbound { .. }) => frames += self.read(index, &mut f),
                Some(Role::Outbound { .. }) => self.serve_outbound(index, flags),
                None => {}
            }
        }
        Ok(frames)
    }

    /// Time at which [`InfoPath::recv`] has something to close.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        (!self.unproven.is_empty()).then_some(self.swept_ns + SWEEP_NS)
    }

    /// Closes connections that prove nothing and those that nobody uses.
    fn sweep(&mut self, now_ns: u64) {
        self.swept_ns = now_ns;
        for index in 0..self.connections.len() {
            let Some(connection) = &self.connections[index] else { continue };
            let quiet_ns = now_ns.saturating_sub(connection.used_ns);
            match connection.role {
                Role::Inbound { proven: false, .. } if quiet_ns >= PROOF_NS => {
                    self.drops.unproven += 1;
                    self.close(index);
                }
                Role::Inbound { .. } if quiet_ns >= IDLE_NS => self.close(index),
                Role::Outbound { .. } if quiet_ns >= IDLE_NS => {
                    let remote = connection.remote;
                    self.close_peer(remote);
                }
                _ => {}
            }
        }
    }

    /// A place for one more connection: that of the least recently used one, if need be.
    fn permit(&mut self, now_ns: u64) -> Option<Permit> {
        let most = most_connections();
        if self.accepted < MAX_CONNECTIONS
            && let Some(permit) = Permit::new(most)
        {
            return Some(permit);
        }
        let inbound = self.connections.iter().enumerate().filter_map(|(index, connection)| {
            let connection = connection.as_ref()?;
            let is_inbound = matches!(connection.role, Role::Inbound { .. });
            is_inbound.then_some((connection.used_ns, index))
        });
        let (used_ns, index) = inbound.min()?;
        if now_ns.saturating_sub(used_ns) < SPARE_NS {
            return None;
        }
        self.close(index);
        Permit::new(most)
    }

    /// Closes our connection to a peer and forgets its failures.
    pub fn close_peer(&mut self, dst: SocketAddr) {
        if let Some(Peer::Open { index }) = self.peers.remove(&dst)
            && !self.is_foreign()
        {
            self.close(index);
        }
    }

    fn is_foreign(&self) -> bool {
        !self.process.is_current()
    }

    /// Sends as this class (DSCP, 0 to 63).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn in_class(mut self, dscp: u8) -> io::Result<Self> {
        self.dscp = dscp;
        // Connections that a listener accepts are of its class.
        if let Some(listener) = &self.listener {
            set_class(listener, listener.local_addr()?.is_ipv6(), dscp)?;
        }
        Ok(self)
    }

    fn connect(&mut self, dst: SocketAddr) -> io::Result<usize> {
        if self.peers.len() >= MAX_CONNECTIONS {
            let now_ns = monotonic_ns();
            self.peers.retain(|_, peer| match peer {
                Peer::Open { .. } => true,
                Peer::Failed { retry_at_ns } => now_ns < *retry_at_ns,
            });
        }
        if self.peers.len() >= MAX_CONNECTIONS && !self.peers.contains_key(&dst) {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let _permit = Permit::new(most_connections()).ok_or(io::ErrorKind::QuotaExceeded)?;
        let socket = Socket::new(Domain::for_address(dst), Type::STREAM, Some(Protocol::TCP))?;
        let socket = Unshared::new(socket);
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        set_class(&socket, dst.is_ipv6(), self.dscp)?;
        if let Err(error) = socket.connect(&SockAddr::from(dst))
            && error.raw_os_error() != Some(libc::EINPROGRESS)
        {
            return Err(error);
        }
        let role = Role::Outbound { connecting: true, queue: Vec::new() };
        let used_ns = monotonic_ns();
        let index = self.insert(Connection { socket, remote: dst, role, used_ns, _permit })?;
        self.peers.insert(dst, Peer::Open { index });
        Ok(index)
    }

    fn insert(&mut self, connection: Connection) -> io::Result<usize> {
        let index = self.free.pop().unwrap_or(self.connections.len());
        let events = match connection.role {
            Role::Inbound { .. } => libc::EPOLLIN,
            Role::Outbound { .. } => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let added = self.watch(libc::EPOLL_CTL_ADD, &connection.socket, events, index as u64);
        if index == self.connections.len() {
            self.connections.push(None);
        }
        if let Err(error) = added {
            self.free.push(index);
            return Err(error);
        }
        self.connections[index] = Some(connection);
        Ok(index)
    }

    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections[index].take() else { return };
        if let Role::Inbound { proven, .. } = connection.role {
            self.accepted -= 1;
            if !proven {
                forget_unproven(&mut self.unproven, connection.remote);
            }
        }
        // Closing the last reference takes the socket out of the epoll set.
        drop(connection);
        self.free.push(index);
    }

    /// Closes our connection to a peer, and leaves it alone for a while.
    fn fail(&mut self, index: usize) {
        if let Some(connection) = &self.connections[index] {
            let dst = connection.remote;
            self.close(index);
            self.mark_failed(dst);
        }
    }

    fn mark_failed(&mut self, dst: SocketAddr) {
        if self.peers.len() < MAX_CONNECTIONS || self.peers.contains_key(&dst) {
            let retry_at_ns = monotonic_ns() + PAUSE_NS;
            self.peers.insert(dst, Peer::Failed { retry_at_ns });
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else { return };
            let (socket, remote) = match listener.accept() {
                Ok((socket, remote)) => (Unshared::new(socket), remote),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    let fd_shortage = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
                    if fd_shortage.contains(&errno) {
                        // The listener stays readable; without a pause it would spin.
                        self.pause_listener(Some(monotonic_ns() + PAUSE_NS));
                    }
                    return;
                }
            };
            let used_ns = monotonic_ns();
            let Some(remote) = remote.as_socket() else { continue };
            let permit = self.may_accept(remote).then(|| self.permit(used_ns)).flatten();
            let Some(_permit) = permit else {
                self.drops.refused += 1;
                continue;
            };
            if socket.set_nonblocking(true).is_err() || socket.set_keepalive(true).is_err() {
                continue;
            }
            let role = Role::Inbound { partial: Vec::new(), proven: false };
            if self.insert(Connection { socket, remote, role, used_ns, _permit }).is_ok() {
                self.accepted += 1;
                *self.unproven.entry(network(remote)).or_default() += 1;
            }
        }
    }

    /// Whether a peer of this address may open one more connection without a proof.
    fn may_accept(&self, remote: SocketAddr) -> bool {
        let share = most_connections().min(MAX_CONNECTIONS) / ADDRESS_SHARE;
        self.unproven.get(&network(remote)).is_none_or(|unproven| *unproven < share.max(1))
    }

    fn pause_listener(&mut self, until_ns: Option<u64>) {
        let events = if until_ns.is_some() { 0 } else { libc::EPOLLIN };
        if let Some(listener) = &self.listener
            && self.watch(libc::EPOLL_CTL_MOD, listener, events, TOKEN_LISTENER).is_ok()
        {
            self.listener_paused_until_ns = until_ns;
        }
    }

    fn read(&mut self, index: usize, f: &mut impl FnMut(&[u8], SocketAddr) -> bool) -> usize {
        let Some(connection) = &mut self.connections[index] else { return 0 };
        let Connection { socket, remote, role, used_ns, .. } = connection;
        let Role::Inbound { partial, proven } = role else { return 0 };
        let held = partial.len();
        self.read_buffer[..held].copy_from_slice(partial);
        let end = match (&**socket).read(&mut self.read_buffer[held..]) {
            Ok(0) => None,
            Ok(bytes) => Some(held + bytes),
            Err(error) if is_transient(&error) => return 0,
            Err(_) => None,
        };
        let Some(end) = end else {
            self.close(index);
            return 0;
        };
        let mut frames = 0;
        let mut rest = &self.read_buffer[..end];
        loop {
            match next_frame(rest) {
                Framed::Frame(frame, after) => {
                    if f(frame, *remote) {
                        if !core::mem::replace(proven, true) {
                            forget_unproven(&mut self.unproven, *remote);
                        }
                        *used_ns = monotonic_ns();
                    }
                    frames += 1;
                    rest = after;
                }
                Framed::Partial => break,
                Framed::Malformed => {
                    self.drops.malformed += 1;
                    self.close(index);
                    return frames;
                }
            }
        }
        // Less than one frame is left over.
        partial.clear();
        partial.extend_from_slice(rest);
        frames
    }

    fn serve_outbound(&mut self, index: usize, flags: i32) {
        let Some(connection) = &mut self.connections[index] else { return };
        let mut idle = false;
        let mut alive = true;
        if flags & (libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) != 0 {
            match connection.flush() {
                Ok(done) => idle = done,
                Err(_) => alive = false,
            }
        }
        if alive && flags & libc::EPOLLIN != 0 {
            // The peer never sends here: it has closed, or does not speak the protocol.
            match (&*connection.socket).read(&mut self.read_buffer[..1]) {
                Err(error) if is_transient(&error) => {}
                Ok(1) => {
                    self.drops.malformed += 1;
                    alive = false;
                }
                _ => alive = false,
            }
        }
        if !alive {
            self.fail(index);
        } else if idle {
            self.rewatch(index, libc::EPOLLIN);
        }
    }

    fn watch(&self, op: i32, socket: &Socket, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        let (epoll, fd) = (self.epoll.as_raw_fd(), socket.as_raw_fd());
        // SAFETY: `event` outlives the call, and both fds are open.
        let rc = unsafe { libc::epoll_ctl(epoll, op, fd, &raw mut event) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Changes the events watched for on a connection; fails it if that does not work.
    fn rewatch(&mut self, index: usize, events: i32) -> bool {
        let Some(connection) = &self.connections[index] else { return false };
        let done = self.watch(libc::EPOLL_CTL_MOD, &connection.socket, events, index as u64);
        if done.is_err() {
            self.fail(index);
        }
        done.is_ok()
    }
}

/// The network of an address: an owner of one IPv6 address has all of its /64.
fn network(remote: SocketAddr) -> IpAddr {
    match remote.ip().to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

/// A connection of this address has proven a session, or is closed.
fn forget_unproven(unproven: &mut HashMap<IpAddr, usize>, remote: SocketAddr) {
    if let Some(count) = unproven.get_mut(&network(remote)) {
        *count -= 1;
        if *count == 0 {
            unproven.remove(&network(remote));
        }
    }
}

enum Pushed {
    Sent,
    Queued,
    Full,
}

impl Connection {
    fn push_frame(&mut self, bytes: &[u8]) -> io::Result<Pushed> {
        let Role::Outbound { connecting, queue } = &mut self.role else {
            unreachable!("frames are sent on our own connections")
        };
        let length = (bytes.len() as u16).to_be_bytes();
        let mut sent = 0;
        if queue.is_empty() && !*connecting {
            sent = write_some(&self.socket, &[&length, bytes])?;
            if sent == LENGTH_BYTES + bytes.len() {
                return Ok(Pushed::Sent);
            }
        } else if queue.len() + LENGTH_BYTES + bytes.len() > QUEUE_BYTES {
            return Ok(Pushed::Full);
        }
        queue.extend_from_slice(&length[sent.min(LENGTH_BYTES)..]);
        queue.extend_from_slice(&bytes[sent.saturating_sub(LENGTH_BYTES)..]);
        Ok(Pushed::Queued)
    }

    /// Finishes connecting and writes the queue; returns whether nothing is left.
    fn flush(&mut self) -> io::Result<bool> {
        let Role::Outbound { connecting, queue } = &mut self.role else { return Ok(true) };
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        *connecting = false;
        let sent = write_some(&self.socket, &[queue])?;
        queue.drain(..sent);
        Ok(queue.is_empty())
    }
}

/// Writes as much as the socket takes now. Raises no SIGPIPE.
fn write_some(socket: &Socket, parts: &[&[u8]]) -> io::Result<usize> {
    let mut slices = [io::IoSlice::new(&[]); 2];
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = io::IoSlice::new(part);
    }
    match socket.send_vectored_with_flags(&slices[..parts.len()], libc::MSG_NOSIGNAL) {
        Err(error) if is_transient(&error) => Ok(0),
        result => result,
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

enum Framed<'a> {
    /// The first frame, and the bytes after it.
    Frame(&'a [u8], &'a [u8]),
    /// The first frame is not all there yet.
    Partial,
    Malformed,
}

fn next_frame(bytes: &[u8]) -> Framed<'_> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Framed::Partial;
    };
    let length = usize::from(u16::from_be_bytes(*length));
    if length == 0 || length > MAX_FRAME_BYTES {
        return Framed::Malformed;
    }
    match rest.split_at_checked(length) {
        Some((frame, after)) => Framed::Frame(frame, after),
        None => Framed::Partial,
    }
}

fn set_class(socket: &Socket, v6: bool, dscp: u8) -> io::Result<()> {
    let class = Ecn::NotEct.in_class(dscp);
    match v6 {
        true => sockopt::set_ipv6_tclass(socket, class.into())?,
        false => sockopt::set_ip_tos(socket, class)?,
    }
    Ok(())
}

fn open_listener(addr: SocketAddr) -> io::Result<Unshared<Socket>> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    let socket = Unshared::new(socket);
    socket.set_nonblocking(true)?;
    // A restarted endpoint takes its old port again while old connections time out.
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(1024)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_queue_that_goes_out_in_pieces_stays_in_order() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let remote = listener.local_addr().unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        // Smaller than the queue, or a flush would write all of it.
        socket.set_send_buffer_size(4096).unwrap();
        socket.connect(&remote.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let bytes: Vec<u8> = (0..4 * QUEUE_BYTES).map(|index| (index % 251) as u8).collect();
        let role = Role::Outbound { connecting: false, queue: bytes.clone() };
        let _permit = Permit::new(usize::MAX).unwrap();
        let socket = Unshared::new(socket);
        let mut connection = Connection { socket, remote, role, used_ns: 0, _permit };
        let (mut got, mut piece) = (Vec::new(), [0; 1000]);
        let deadline_ns = monotonic_ns() + 10_000_000_000;
        assert!(!connection.flush().unwrap(), "the queue exceeds the send buffer");
        while got.len() < bytes.len() {
            assert!(monotonic_ns() < deadline_ns, "{} of {} bytes came", got.len(), bytes.len());
            connection.flush().unwrap();
            if let Ok(count) = stream.read(&mut piece) {
                got.extend_from_slice(&piece[..count]);
            }
        }
        assert!(got == bytes && connection.flush().unwrap());
    }
}
