//! The send sockets of a domain.

use erd_types::Ecn;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use crate::Burst;
use erd_sys::unshared::Unshared;

use super::calls;
use super::errqueue::{self, NetError};
use super::sockopt::{self, Side};
use super::split::Cursor;
use super::{
    MAX_DATAGRAM_BYTES, MAX_PATHS, PortError, PortOptions, check_range, gso, ports, route,
};

/// Most messages of one system call.
const MESSAGES: usize = 32;

/// Most parts of one system call that splits a burst, so also the most parts of one such datagram.
const SPLIT_PARTS: usize = 128;

/// The MTU that every IPv6 link has.
const IPV6_MTU_MIN_BYTES: i32 = 1280;

/// Most repeated sends in a row because of an error that another destination left on the socket.
const PENDING_ERRORS: u32 = 8;

/// The progress of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct SendReport {
    /// Number of leading bursts sent whole.
    pub bursts: usize,
    /// Datagrams sent of the burst after them. Only where bursts do not go in one piece.
    pub segments: u32,
    /// Reason why the burst after them was not sent whole; `None` when all were.
    pub stop: Option<Stop>,
    /// True if [`TxSockets::drain_errors`] has errors to report.
    pub errors_pending: bool,
}

/// Reason why a burst was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The send buffer or a device queue is full: try again later.
    Blocked,
    /// The datagrams exceed the path's MTU. Skip the burst and cut smaller.
    TooBig {
        /// The path's MTU in bytes, IP header included; see [`super::max_payload_bytes`].
        mtu_bytes: u32,
    },
    /// No send to this destination is possible (`ENETUNREACH`, `EPERM` and similar). Skip the burst.
    Failed {
        /// The error of `sendmsg(2)`.
        errno: i32,
    },
}

/// A socket, or why it could not be opened.
type Opened = Result<Unshared<Socket>, PortError>;

/// A domain's send sockets, one source port and so one path each. Any number of threads may send.
#[derive(Debug)]
pub struct TxSockets {
    sockets: Box<[Unshared<Socket>]>,
    local_ip: IpAddr,
    /// Turned off for good once a device proves unable (`EIO`).
    gso: AtomicBool,
    gso_max_segments: u16,
    /// The sockets' own mark, which costs nothing per packet; `None` without ECN.
    default_ecn: Option<Ecn>,
    dscp: u8,
    /// For each socket another one with its port, whose datagrams may be fragmented. The first such datagram opens it,
    /// on a path with a small MTU.
    fragmenting: Box<[OnceLock<Opened>]>,
    options: PortOptions,
}

impl TxSockets {
    /// Opens `options.paths` sockets on `local_ip`.
    ///
    /// # Errors
    /// [`PortError::Option`] for a path count out of range, [`PortError::Bind`] if the address is
    /// not this host's, [`PortError::Socket`] if set-up fails otherwise.
    pub fn open(local_ip: IpAddr, options: &PortOptions) -> Result<Self, PortError> {
        check_range("paths", options.paths.into(), MAX_PATHS.into())?;
        let sockets: Result<Box<[Unshared<Socket>]>, PortError> =
            (0..options.paths).map(|_| open_socket(local_ip, options)).collect();
        let gso_max_segments = if options.gso { gso::max_segments() } else { 1 };
        Ok(Self {
            sockets: sockets?,
            local_ip,
            gso: AtomicBool::new(gso_max_segments > 1),
            gso_max_segments,
            default_ecn: options.ecn.then_some(Ecn::Ect0),
            dscp: options.dscp,
            fragmenting: (0..options.paths).map(|_| OnceLock::new()).collect(),
            options: options.clone(),
        })
    }

    /// For a wait set: an error condition means that [`TxSockets::drain_errors`] has something.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// The most datagrams that one send takes in one piece; 1 without GSO. Larger bursts, or those of more than 65507
    /// bytes, go datagram by datagram.
    #[must_use]
    pub fn gso_max_segments(&self) -> u16 {
        if self.gso.load(Ordering::Relaxed) { self.gso_max_segments } else { 1 }
    }

    /// Sends `bursts` in order until one cannot be sent. Never blocks.
    ///
    /// # Safety
    /// Each part of each `iov` is readable for its length during the call.
    pub unsafe fn send(&self, bursts: &[Burst<'_>]) -> SendReport {
        let mut report = SendReport::default();
        let mut failures = 0;
        let mut whole = true;
        while let Some(first) = bursts.get(report.bursts) {
            report.segments = report.segments.max(first.done_segments);
            let before = (report.bursts, report.segments);
            // SAFETY: the caller vouches for the parts.
            let result = unsafe {
                if whole && self.goes_whole(first) {
                    self.send_run(&bursts[report.bursts..], &mut report)
                } else {
                    self.send_split(first, &mut report)
                }
            };
            if before != (report.bursts, report.segments) {
                failures = 0;
                whole = true;
            }
            let Err(errno) = result else { continue };
            failures += 1;
            match self.judge(errno, first, whole, failures) {
                Verdict::Again => report.errors_pending |= errno != libc::EINTR,
                Verdict::Split => whole = false,
                Verdict::Stop(stop) => {
                    report.stop = Some(stop);
                    break;
                }
            }
        }
        report
    }

    /// Reports the network errors of earlier sends: `f(destination, error)`. Takes at most 64 per socket, and returns
    /// their number.
    pub fn drain_errors(&self, mut f: impl FnMut(SocketAddr, NetError)) -> usize {
        let fragmenting = self.fragmenting.iter().filter_map(|twin| twin.get()?.as_ref().ok());
        let sockets = self.sockets.iter().chain(fragmenting);
        sockets.map(|socket| errqueue::drain(socket.as_fd(), &mut f)).sum()
    }

    fn fd(&self, burst: &Burst<'_>) -> RawFd {
        let path = usize::from(burst.path) % self.sockets.len();
        let usual = &self.sockets[path];
        if !burst.may_fragment {
            return usual.as_raw_fd();
        }
        let open = || open_fragmenting(usual, &self.options);
        match self.fragmenting[path].get_or_init(open) {
            Ok(socket) => socket.as_raw_fd(),
            Err(error) => {
                tracing::debug!(%error, "no socket for fragments");
                usual.as_raw_fd()
            }
        }
    }

    fn goes_whole(&self, burst: &Burst<'_>) -> bool {
        let segments = burst.segments();
        // The kernel does not fragment the datagrams of a GSO send.
        let gso_segments = if burst.may_fragment { 1 } else { self.gso_max_segments() };
        let fits = burst.total_bytes as usize <= MAX_DATAGRAM_BYTES;
        segments == 1 || (burst.done_segments == 0 && fits && segments <= gso_segments.into())
    }

    /// Sends the leading bursts that share a socket and go in one piece, at most [`MESSAGES`].
    ///
    /// # Safety
    /// As [`TxSockets::send`].
    unsafe fn send_run(&self, bursts: &[Burst<'_>], report: &mut SendReport) -> Result<(), i32> {
        let (path, fragment) = (bursts[0].path, bursts[0].may_fragment);
        let mut messages = Messages::new();
        for burst in bursts.iter().take(MESSAGES) {
            let same = burst.path == path && burst.may_fragment == fragment;
            let joins = messages.count == 0 || (same && self.goes_whole(burst));
            if !joins {
                break;
            }
            debug_assert_eq!(
                burst.iov.iter().map(|part| part.iov_len).sum::<usize>(),
                burst.total_bytes as usize,
                "a burst's parts add up to its size"
            );
            let segment_bytes = (burst.segments() > 1).then_some(burst.segment_bytes as u16);
            messages.push(burst, burst.iov, self.mark(burst), segment_bytes);
        }
        // SAFETY: the caller vouches for the parts, which outlive the call.
        let sent = unsafe { messages.send(self.fd(&bursts[0])) }?;
        report.bursts += sent;
        report.segments = 0;
        Ok(())
    }

    /// Sends datagrams of one burst one by one, as many as fit one call.
    ///
    /// # Safety
    /// As [`TxSockets::send`].
    unsafe fn send_split(&self, burst: &Burst<'_>, report: &mut SendReport) -> Result<(), i32> {
        let mut parts = [const { MaybeUninit::uninit() }; SPLIT_PARTS];
        let mut free = &mut parts[..];
        let mut messages = Messages::new();
        let mut cursor = Cursor::new(burst, report.segments);
        while messages.count < MESSAGES {
            let Some((datagram, rest)) = cursor.next_datagram(free) else { break };
            messages.push(burst, datagram, self.mark(burst), None);
            free = rest;
        }
        assert!(messages.count > 0, "a datagram of a burst has at most {SPLIT_PARTS} parts");
        // SAFETY: the caller vouches for the parts; `parts` outlives the call.
        let sent = unsafe { messages.send(self.fd(burst)) }?;
        report.segments += sent as u32;
        assert!(report.segments <= burst.segments(), "a burst is not sent twice");
        if report.segments == burst.segments() {
            report.bursts += 1;
            report.segments = 0;
        }
        Ok(())
    }

    /// The traffic class of a burst that differs from the sockets' own.
    fn mark(&self, burst: &Burst<'_>) -> Option<u8> {
        let ecn = self.default_ecn.filter(|own| *own != burst.ecn).map(|_| burst.ecn)?;
        Some(ecn.in_class(self.dscp))
    }

    /// Judges a failed send of `burst`, the `failures`th in a row.
    ///
    /// With `IP_RECVERR` an ICMP error of one destination fails the next send on that socket, whatever its destination
    /// (`sock_error` in `net/core/sock.c`), which clears it. So an error counts for this burst only if it stays.
    fn judge(&self, errno: i32, burst: &Burst<'_>, whole: bool, failures: u32) -> Verdict {
        match errno {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Verdict::Stop(Stop::Blocked),
            libc::EIO if burst.segments() > 1 && self.gso.swap(false, Ordering::Relaxed) => {
                tracing::warn!("a device cannot checksum GSO sends (EIO): GSO is off from here on");
                Verdict::Split
            }
            // Older kernels return this when a segment exceeds the MTU; sent singly, it gives EMSGSIZE.
            libc::EINVAL if whole && burst.segments() > 1 => Verdict::Split,
            libc::EMSGSIZE if failures > 1 => Verdict::Stop(self.too_big(burst)),
            _ if failures <= PENDING_ERRORS => Verdict::Again,
            // No send of ours causes it: other destinations keep refusing.
            libc::ECONNREFUSED | libc::EINTR => Verdict::Stop(Stop::Blocked),
            errno => Verdict::Stop(Stop::Failed { errno }),
        }
    }

    fn too_big(&self, burst: &Burst<'_>) -> Stop {
        match route::path_mtu_bytes(self.local_ip, burst.dst.addr()) {
            Ok(mtu_bytes) => Stop::TooBig { mtu_bytes },
            Err(_) => Stop::Failed { errno: libc::EMSGSIZE },
        }
    }
}

enum Verdict {
    Again,
    Split,
    Stop(Stop),
}

/// A send socket whose datagrams go whole or not at all. The kernel reports a path's MTU from ICMP, but does not act on
/// it (`IP_PMTUDISC_PROBE`): anybody can forge such a message.
fn open_socket(local_ip: IpAddr, options: &PortOptions) -> Result<Unshared<Socket>, PortError> {
    let addr = SocketAddr::new(local_ip, 0);
    let socket = prepare_socket(addr, options, false)?;
    ports::bind(&socket, addr, options.ports)?;
    Ok(socket)
}

/// Another send socket with the port of `usual`, so on the same path, whose datagrams may be
/// fragmented.
fn open_fragmenting(usual: &Socket, options: &PortOptions) -> Result<Unshared<Socket>, PortError> {
    let fail = |call| move |source| PortError::Socket { call, source };
    let none = || io::Error::from(io::ErrorKind::InvalidData);
    let addr = usual.local_addr().map_err(fail("getsockname"))?;
    let addr = addr.as_socket().ok_or_else(none).map_err(fail("getsockname"))?;
    let socket = prepare_socket(addr, options, true)?;
    // Not before the first is bound: the kernel might have given two of our sockets one port.
    usual.set_reuse_port(true).map_err(fail("SO_REUSEPORT"))?;
    socket.set_reuse_port(true).map_err(fail("SO_REUSEPORT"))?;
    socket.bind(&addr.into()).map_err(|source| PortError::Bind { addr, source })?;
    Ok(socket)
}

fn prepare_socket(
    addr: SocketAddr,
    options: &PortOptions,
    fragments: bool,
) -> Result<Unshared<Socket>, PortError> {
    let fail = |call| move |source| PortError::Socket { call, source };
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))
        .map(Unshared::new)
        .map_err(fail("socket"))?;
    sockopt::set_buffer(&socket, options.send_buffer_bytes, Side::Send)?;
    let (level, discover, [whole, cut], errors, tos) = match addr {
        SocketAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            [libc::IP_PMTUDISC_PROBE, libc::IP_PMTUDISC_OMIT],
            libc::IP_RECVERR,
            libc::IP_TOS,
        ),
        SocketAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            [libc::IPV6_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_OMIT],
            libc::IPV6_RECVERR,
            libc::IPV6_TCLASS,
        ),
    };
    let set = |level, name, value, call| {
        sockopt::set_int(socket.as_raw_fd(), level, name, value).map_err(fail(call))
    };
    if addr.is_ipv6() {
        socket.set_only_v6(true).map_err(fail("IPV6_V6ONLY"))?;
        if fragments {
            // Routers do not fragment IPv6, so this host fragments to the size that every link carries.
            set(level, libc::IPV6_MTU, IPV6_MTU_MIN_BYTES, "IPV6_MTU")?;
        }
    }
    set(level, discover, if fragments { cut } else { whole }, "IP_MTU_DISCOVER")?;
    set(level, errors, 1, "IP_RECVERR")?;
    let ecn = if options.ecn { Ecn::Ect0 } else { Ecn::NotEct };
    let class = ecn.in_class(options.dscp);
    if class != 0 {
        set(level, tos, class.into(), "IP_TOS")?;
    }
    errqueue::refuse_packets(socket.as_fd()).map_err(fail("SO_ATTACH_FILTER"))?;
    Ok(socket)
}

/// Control messages of one send: the mark (an int) and the segment size (a u16), 24 bytes each.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 48]);

/// The kernel's side of one send call, on the stack; only the first `count` of each are written.
struct Messages {
    headers: [MaybeUninit<libc::mmsghdr>; MESSAGES],
    controls: [MaybeUninit<Control>; MESSAGES],
    count: usize,
}

impl Messages {
    fn new() -> Self {
        Self {
            headers: [const { MaybeUninit::uninit() }; MESSAGES],
            controls: [const { MaybeUninit::uninit() }; MESSAGES],
            count: 0,
        }
    }

    /// Adds a message. The memory it points to must outlive [`Messages::send`], and this value must not move from the
    /// first message on.
    fn push(
        &mut self,
        burst: &Burst<'_>,
        parts: &[libc::iovec],
        class: Option<u8>,
        segment_bytes: Option<u16>,
    ) {
        // SAFETY: a header is integers and pointers, for which zero is a valid value.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let message = &mut header.msg_hdr;
        (message.msg_name, message.msg_namelen) = burst.dst.name();
        message.msg_iov = parts.as_ptr().cast_mut();
        message.msg_iovlen = parts.len();
        if class.is_some() || segment_bytes.is_some() {
            let control = self.controls[self.count].write(Control([0; 48]));
            message.msg_control = (&raw mut *control).cast();
            message.msg_controllen = size_of::<Control>();
            let v6 = burst.dst.addr().is_ipv6();
            message.msg_controllen = write_control(message, v6, class, segment_bytes);
        }
        self.headers[self.count].write(header);
        self.count += 1;
    }

    /// Messages sent (at least one), or the error of the first.
    ///
    /// # Safety
    /// The memory that the messages point to is readable, and this value has not moved since the first push.
    unsafe fn send(&mut self, fd: RawFd) -> Result<usize, i32> {
        let headers: *mut libc::mmsghdr = self.headers.as_mut_ptr().cast();
        // SAFETY: the first `count` headers are written, and the caller vouches for the rest.
        let sent = unsafe {
            if self.count == 1 {
                calls::sendmsg(fd, &raw const (*headers).msg_hdr, libc::MSG_DONTWAIT).map(|_| 1)
            } else {
                calls::sendmmsg(fd, headers, self.count, libc::MSG_DONTWAIT)
            }
        };
        sent.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Writes the control messages into the header's buffer; returns the bytes used.
fn write_control(
    message: &libc::msghdr,
    v6: bool,
    class: Option<u8>,
    segment_bytes: Option<u16>,
) -> usize {
    let mut used = 0;
    // SAFETY: the buffer is zeroed and holds one int and one u16 message (see `Control`), so both
    // headers lie within it, and the data of each has room for its type.
    unsafe {
        let mut cmsg = libc::CMSG_FIRSTHDR(message);
        if let Some(class) = class {
            ((*cmsg).cmsg_level, (*cmsg).cmsg_type) = if v6 {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            } else {
                (libc::IPPROTO_IP, libc::IP_TOS)
            };
            (*cmsg).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
            libc::CMSG_DATA(cmsg).cast::<i32>().write_unaligned(class.into());
            used += libc::CMSG_SPACE(size_of::<i32>() as u32) as usize;
            cmsg = libc::CMSG_NXTHDR(message, cmsg);
        }
        if let Some(bytes) = segment_bytes {
            ((*cmsg).cmsg_level, (*cmsg).cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
            (*cmsg).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
            libc::CMSG_DATA(cmsg).cast::<u16>().write_unaligned(bytes);
            used += libc::CMSG_SPACE(size_of::<u16>() as u32) as usize;
        }
    }
    used
}
