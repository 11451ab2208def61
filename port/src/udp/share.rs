//! Shared payloads: the peer reads a datagram's payload in place, with no copy at the sender.
//!
//! Between processes of one host a datagram's payload can stay in place: spliced through a pipe, the sender's pages
//! themselves wait in the peer's socket, and its `recvmsg(2)` makes the only copy. So the peer gets the memory's
//! contents at the time of its read, not of the send. The peer has read the payload of an operation that succeeded.
//! When one fails, the application gets its memory back while datagrams from it may still wait. The peer must not
//! accept these.
//!
//! So a seal of two equal halves follows the payload (`docs/protocol.md` §2.3), spliced like it. [`Shares::recall`]
//! breaks the seal for good, and goes on to another one. The kernel copies a datagram from front to back, so the bytes
//! before a whole seal were read before it was broken.
//!
//! This relies on three things. A process's stores become visible in order, and the kernel loads in order: true on
//! `x86_64`; elsewhere nothing is shared. Seals are in shared memory: after a fork, a write to a private page would
//! move the writer to a copy of it. And the reader of the socket sees the memory as long as the datagram waits there,
//! so nothing is shared with another user's process ([`Shares::reaches`]).

use erd_types::Ecn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Protocol, Socket, Type};

use super::Dst;
use super::errqueue;
use super::owner;
use super::sockopt::{self, Side};
use erd_sys::process::Process;

/// Bytes of a seal.
const SEAL_BYTES: usize = size_of::<Seal>();
/// Pages of a pipe: those of the longest payload, and the seal's.
const PIPE_PAGES: usize = 32;
/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
/// Longest shared payload. A socket buffer holds 17 pieces (`MAX_SKB_FRAGS`): the head, these 14 pages, in 15 pieces if
/// they do not begin with one, and the seal.
pub const SHARED_MAX_BYTES: u16 = (14 * PAGE_BYTES) as u16;
/// Shortest shared payload: up to 32 KiB three system calls cost more than a copy.
pub const SHARED_MIN_BYTES: u16 = (32 << 10) + 1;
/// Segment size for such a datagram: more bytes than it has, and less than the MTU of loopback.
const SEGMENT_BYTES: i32 = 60_000;
/// Most pieces of one payload.
const PARTS: usize = 16;
/// Most signals in a row after which a call is repeated.
const SIGNALS_MAX: usize = 8;
/// Failures in a row after which sharing stops.
const FAILURES_MAX: u32 = 4;

/// A domain's means of sharing: its seal, and the channel of its datagrams.
#[derive(Debug)]
pub struct Shares {
    local_ip: IpAddr,
    ecn: bool,
    send_buffer_bytes: usize,
    /// Process that made it. A forked child has the same socket and pipe, which two processes cannot use, and the
    /// same seals, which it must not break.
    owner: Process,
    /// On contention, the sender copies.
    way: Mutex<Way>,
    /// Counts up to [`FAILURES_MAX`].
    failures: AtomicU32,
}

impl Shares {
    /// `None` where memory is not read in order, or is not available.
    #[must_use]
    pub fn new(local_ip: IpAddr, ecn: bool, send_buffer_bytes: usize) -> Option<Shares> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        Some(Shares {
            local_ip,
            ecn,
            send_buffer_bytes,
            owner: Process::current(),
            way: Mutex::new(Way { channel: None, page: Page::map(), used: 0 }),
            failures: AtomicU32::new(0),
        })
    }

    /// Whether the socket at `name` is one of this host and of the same user.
    #[must_use]
    pub fn reaches(&self, name: SocketAddr) -> bool {
        // SAFETY: it takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        self.works() && !owner::is_nobody(own) && owner::of_udp(name) == Some(own)
    }

    /// True if sealed datagrams go without a copy: this is the owner process, and splicing has not failed.
    #[must_use]
    pub fn works(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < FAILURES_MAX && self.owner.is_current()
    }

    /// Invalidates all payloads that wait in peers' sockets. The engine sends those that are still owed again, like any
    /// loss.
    pub fn recall(&self) {
        if !self.owner.is_current() {
            return;
        }
        self.way.lock().unwrap_or_else(PoisonError::into_inner).recall();
    }

    /// Sends a sealed datagram: a head, the payload, and a seal, which replaces the last of the parts. Returns the
    /// payload's length, or `None` if the caller must send it another way.
    ///
    /// # Safety
    /// Each part is readable during the call. Before any part of the payload is used for
    /// anything else, the peer has read it, or [`Shares::recall`] was called.
    pub(super) unsafe fn send(&self, dst: &Dst, parts: &[libc::iovec]) -> Option<Result<u64, i32>> {
        let [head, payload @ .., seal] = parts else { return None };
        let bytes: usize = payload.iter().map(|part| part.iov_len).sum();
        let fits = bytes <= usize::from(SHARED_MAX_BYTES)
            && bytes >= usize::from(SHARED_MIN_BYTES)
            && pages(payload) <= usize::from(SHARED_MAX_BYTES) / PAGE_BYTES + 1
            && payload.len() <= PARTS
            && seal.iov_len == SEAL_BYTES;
        if !fits || !self.works() {
            return None;
        }
        let mut way = self.way.try_lock().ok()?;
        if way.channel.is_none() {
            way.channel = self.open();
        }
        // SAFETY: the caller's promise. The seal is in place while `way` is locked.
        let sent = unsafe { way.channel.as_ref()?.send(dst, head, payload, way.seal()?) };
        match sent {
            Ok(()) => {
                self.failures.store(0, Ordering::Relaxed);
                Some(Ok(bytes as u64))
            }
            Err(Failure::Full) => Some(Err(libc::EAGAIN)),
            Err(Failure::Broken(error)) => {
                // Half a datagram may remain in the pipe and in the socket.
                way.channel = None;
                self.failed(&error);
                None
            }
        }
    }

    fn open(&self) -> Option<Channel> {
        Channel::open(self.local_ip, self.ecn, self.send_buffer_bytes)
            .inspect_err(|error| self.failed(error))
            .ok()
    }

    fn failed(&self, error: &io::Error) {
        // Memory that cannot be spliced (a device's) says nothing about the next.
        if error.raw_os_error() == Some(libc::EFAULT) {
            return;
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES_MAX {
            tracing::info!(%error, "payloads are copied for peers of this host: splicing fails");
        }
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        self.recall();
    }
}

/// Number of pages of the parts; a page counts for every part in it.
fn pages(parts: &[libc::iovec]) -> usize {
    let of_part = |part: &libc::iovec| {
        let start = part.iov_base.addr() % PAGE_BYTES;
        (start + part.iov_len).div_ceil(PAGE_BYTES)
    };
    parts.iter().map(of_part).sum()
}

/// Two halves: whole while they are equal, as in new memory.
#[repr(C)]
struct Seal([AtomicU32; 2]);

/// Seals of a page.
const SEALS: usize = PAGE_BYTES / SEAL_BYTES;

/// The mutable part of [`Shares`].
#[derive(Debug)]
struct Way {
    /// `None` until the first datagram, and after a failure.
    channel: Option<Channel>,
    /// `None` where there is no memory: nothing is shared.
    page: Option<Page>,
    /// Number of broken seals of the page.
    used: usize,
}

impl Way {
    /// The current seal.
    fn seal(&self) -> Option<&Seal> {
        self.page.as_ref().map(|page| &page.seals()[self.used])
    }

    fn recall(&mut self) {
        let Some(seal) = self.seal() else { return };
        // A full barrier: no later store becomes visible before it.
        seal.0[0].swap(!seal.0[1].load(Ordering::Relaxed), Ordering::SeqCst);
        self.used += 1;
        if self.used == SEALS {
            // A late reader of a used-up page finds its seals broken for ever.
            (self.page, self.used) = (Page::map(), 0);
        }
    }
}

/// A page of seals, which stays shared when the process forks.
#[derive(Debug)]
struct Page(NonNull<[Seal; SEALS]>);

// SAFETY: seals are atomic, and mapped until this is dropped.
unsafe impl Send for Page {}

impl Page {
    fn map() -> Option<Page> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches no memory that is in use.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, kind, -1, 0) };
        if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast()).map(Page) }
    }

    fn seals(&self) -> &[Seal; SEALS] {
        // SAFETY: mapped, zeroed at first, and only reached atomically in this process.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `Page::map`, and nothing points to it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}

enum Failure {
    /// The socket is full; it holds no part of the datagram.
    Full,
    Broken(io::Error),
}

/// A socket of its own, since several calls build up a datagram in it, and a pipe.
#[derive(Debug)]
struct Channel {
    socket: Socket,
    read: OwnedFd,
    write: OwnedFd,
}

impl Channel {
    fn open(local_ip: IpAddr, ecn: bool, send_buffer_bytes: usize) -> io::Result<Channel> {
        let addr = SocketAddr::new(local_ip, 0);
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        sockopt::set_buffer(&socket, send_buffer_bytes, Side::Send).map_err(io::Error::other)?;
        let (level, tos) = match local_ip {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        if ecn {
            sockopt::set_int(socket.as_raw_fd(), level, tos, Ecn::Ect0 as i32)?;
        }
        // Both sides would checksum a datagram built up in pieces, unless it could become several (`__ip_append_data`
        // in `net/ipv4/ip_output.c`). It stays one.
        sockopt::set_int(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, SEGMENT_BYTES)?;
        socket.bind(&addr.into())?;
        // Nobody must answer here.
        errqueue::refuse_packets(socket.as_fd())?;
        let mut ends = [0; 2];
        // SAFETY: there is room for two descriptors.
        let rc = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        check(rc.into())?;
        // SAFETY: just opened, and nobody else's.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let bytes = (PIPE_PAGES * PAGE_BYTES) as libc::c_int;
        // SAFETY: it takes a number.
        let size = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
        check(i64::from(size))?;
        Ok(Channel { socket, read, write })
    }

    /// Builds a datagram up in the socket: the head is copied and waits there, the payload and the seal
    /// come through the pipe and complete it.
    ///
    /// # Safety
    /// As [`Shares::send`].
    unsafe fn send(
        &self,
        dst: &Dst,
        head: &libc::iovec,
        payload: &[libc::iovec],
        seal: &Seal,
    ) -> Result<(), Failure> {
        let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS + 1];
        pieces[..payload.len()].copy_from_slice(payload);
        let seal_at = std::ptr::from_ref(seal).cast_mut().cast();
        pieces[payload.len()] = libc::iovec { iov_base: seal_at, iov_len: SEAL_BYTES };
        let pieces = &pieces[..=payload.len()];
        let bytes: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        // SAFETY: a header is integers and pointers, for which zero is a valid value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_name, message.msg_namelen) = dst.name();
        (message.msg_iov, message.msg_iovlen) = (std::ptr::from_ref(head).cast_mut(), 1);
        let (socket, flags) = (self.socket.as_raw_fd(), libc::SPLICE_F_NONBLOCK);
        let (read, write) = (self.read.as_raw_fd(), self.write.as_raw_fd());
        let more = libc::MSG_MORE | libc::MSG_DONTWAIT;
        // SAFETY: the caller vouches for the head; the message lives through the call.
        let began = check(unsafe { libc::sendmsg(socket, &raw const message, more) } as i64);
        if let Err(error) = began {
            return Err(match error.raw_os_error() {
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Failure::Full,
                _ => Failure::Broken(error),
            });
        }
        // SAFETY: the caller vouches for the payload; the seal is there while it is borrowed.
        whole(bytes, || unsafe { libc::vmsplice(write, pieces.as_ptr(), pieces.len(), flags) })?;
        // SAFETY: descriptors of this value, and no offsets.
        whole(bytes, || unsafe { splice(read, socket, bytes, flags) })
    }
}

/// # Safety
/// As `splice(2)`.
unsafe fn splice(from: RawFd, to: RawFd, bytes: usize, flags: libc::c_uint) -> isize {
    let none = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { libc::splice(from, none, to, none, bytes, flags) }
}

fn check(rc: i64) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a call that must move `bytes`, again if a signal came before it moved any.
fn whole(bytes: usize, call: impl Fn() -> isize) -> Result<(), Failure> {
    let again = || match call() {
        -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => None,
        rc => Some(rc),
    };
    let rc = (0..SIGNALS_MAX).find_map(|_| again()).unwrap_or(-1);
    check(rc as i64).map_err(Failure::Broken)?;
    if rc as usize == bytes {
        return Ok(());
    }
    Err(Failure::Broken(io::Error::other(format!("{rc} bytes went, of {bytes}"))))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::udp::{PortOptions, RxSocket};

    const LOCAL: &str = "127.0.0.1:0";

    struct Peer(RxSocket);

    impl Peer {
        fn new() -> Peer {
            let addr = LOCAL.parse().expect("an address");
            Peer(RxSocket::bind(addr, &PortOptions::default()).expect("a socket"))
        }

        fn next(&mut self) -> Vec<u8> {
            let mut taken = Vec::new();
            self.0.recv(1, |datagram| taken.extend_from_slice(datagram.data)).expect("an arrival");
            taken
        }
    }

    fn shares() -> Shares {
        Shares::new("127.0.0.1".parse().expect("an address"), true, 1 << 20).expect("x86_64")
    }

    /// Sends `head`, `payload` and a seal to `peer`.
    fn send(shares: &Shares, peer: &Peer, head: &[u8], payload: &[u8]) {
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let dst = Dst::from(peer.0.local_addr());
        let parts = [part(head), part(payload), part(&[0; SEAL_BYTES])];
        // SAFETY: slices that the tests keep until they recall them.
        let sent = unsafe { shares.send(&dst, &parts) };
        assert_eq!(sent, Some(Ok(payload.len() as u64)));
    }

    fn holds(datagram: &[u8]) -> bool {
        let seal = &datagram[datagram.len() - SEAL_BYTES..];
        seal[..SEAL_BYTES / 2] == seal[SEAL_BYTES / 2..]
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_payload_is_read_where_it_lies_until_it_is_recalled() {
        let (shares, mut peer) = (shares(), Peer::new());
        let mut payload = vec![7_u8; 57_344 + 100];
        send(&shares, &peer, b"first", &payload[100..]);
        let whole = peer.next();
        assert_eq!(whole.len(), 5 + 57_344 + SEAL_BYTES);
        assert!(whole.starts_with(b"first") && whole[5..][..57_344].iter().all(|byte| *byte == 7));
        assert!(holds(&whole));
        send(&shares, &peer, b"second", &payload[100..]);
        shares.recall();
        payload.fill(8);
        let recalled = peer.next();
        assert!(recalled.starts_with(b"second") && !holds(&recalled));
        assert_eq!(recalled[6], 8, "it was not copied when it was sent");
        send(&shares, &peer, b"third", &payload[100..]);
        assert!(holds(&peer.next()), "what is sent afterwards holds");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn seals_do_not_run_out() {
        let (shares, mut peer) = (shares(), Peer::new());
        let payload = vec![1_u8; 40_000];
        for _ in 0..SEALS {
            send(&shares, &peer, b"recalled", &payload);
            shares.recall();
            assert!(!holds(&peer.next()));
        }
        send(&shares, &peer, b"whole", &payload);
        assert!(holds(&peer.next()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_page_that_is_gone_holds_no_seal() {
        let (shares, mut peer) = (shares(), Peer::new());
        let payload = vec![1_u8; 40_000];
        send(&shares, &peer, b"head", &payload);
        drop(shares);
        assert!(!holds(&peer.next()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_child_does_not_keep_a_seal_whole() {
        let (shares, mut peer) = (shares(), Peer::new());
        let payload = vec![1_u8; 40_000];
        // SAFETY: the child only waits for its end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: it waits.
                unsafe { libc::pause() };
            }
        }
        send(&shares, &peer, b"head", &payload);
        shares.recall();
        let held = holds(&peer.next());
        // SAFETY: our child, which is waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(!held);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_child_neither_sends_nor_recalls() {
        let (shares, mut peer) = (shares(), Peer::new());
        let payload = vec![1_u8; 40_000];
        send(&shares, &peer, b"head", &payload);
        // SAFETY: the child makes system calls alone.
        let child = unsafe { libc::fork() };
        if child == 0 {
            shares.recall();
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(shares.works().into()) };
        }
        let mut status = -1;
        // SAFETY: our child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "it shares nothing");
        assert!(holds(&peer.next()), "the seal is not the child's to break");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_does_not_fit_is_left_to_others() {
        let (shares, peer) = (shares(), Peer::new());
        let dst = Dst::from(peer.0.local_addr());
        let bytes = vec![0_u8; 65_000];
        let part =
            |len: usize| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len };
        for lens in [&[32, 57_345, 8][..], &[32, 1000, 8], &[32, 40_000, 7], &[32, 40_000], &[32]] {
            let parts: Vec<libc::iovec> = lens.iter().map(|len| part(*len)).collect();
            // SAFETY: slices of `bytes`.
            assert_eq!(unsafe { shares.send(&dst, &parts) }, None, "{lens:?}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn the_same_users_sockets_are_reached() {
        let (shares, peer) = (shares(), Peer::new());
        let name = peer.0.local_addr();
        assert!(shares.reaches(name));
        drop(peer);
        assert!(!shares.reaches(name), "there is no such socket any more");
        assert!(!shares.reaches("192.0.2.1:7".parse().expect("an address")));
    }
}
