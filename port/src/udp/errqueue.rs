//! The socket error queue: ICMP errors that came back for earlier sends (`IP_RECVERR` in `ip(7)`).

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::addr::RawAddr;
use super::calls;

/// Errors taken from one socket in one call.
const DRAIN_LIMIT: usize = 64;

/// A network error of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetError {
    /// No packet arrives there, or nobody listens.
    Unreachable(Unreachable),
    /// The path takes packets of at most this many bytes, IP header included.
    MtuChanged(u32),
    /// Any other ICMP error, as the kernel's errno.
    Other(i32),
}

/// The unreachable part of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The host is there, but no socket is bound to the port.
    Port,
    /// The host, or a filter in front of it.
    Host,
    /// Its network.
    Net,
}

/// Control messages of one error: the extended error, the offender's address, and slack.
#[repr(C, align(8))]
struct Control([u8; 256]);

/// Hands at most [`DRAIN_LIMIT`] errors to `f`; returns how many.
pub(super) fn drain(socket: BorrowedFd<'_>, f: &mut impl FnMut(SocketAddr, NetError)) -> usize {
    let mut told = 0;
    for _ in 0..DRAIN_LIMIT {
        let mut name = RawAddr::zeroed();
        let mut control = MaybeUninit::<Control>::uninit();
        // SAFETY: a header is integers and pointers, for which zero is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = (&raw mut name).cast();
        header.msg_namelen = RawAddr::BYTES;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header points to a name and a control buffer of the stated sizes, and to no
        // payload buffer: the copy of the packet that caused the error is of no use to us.
        if unsafe { calls::recvmsg(socket.as_raw_fd(), &raw mut header, flags) }.is_err() {
            break;
        }
        // SAFETY: the call succeeded, so the kernel wrote the control messages it counted.
        let error = unsafe { read_error(&header) };
        if let (Some(error), Some(dst)) = (error, name.decode(header.msg_namelen)) {
            f(dst, error);
            told += 1;
        }
    }
    told
}

/// # Safety
/// `header` was filled by a successful receive, and its control buffer is still there.
unsafe fn read_error(header: &libc::msghdr) -> Option<NetError> {
    // SAFETY: the caller vouches for the header.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: the macros give only headers that lie within the control buffer.
        let (cmsg, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
        let kind = (cmsg.cmsg_level, cmsg.cmsg_type);
        if kind == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        {
            // SAFETY: the data of this message starts with an extended error.
            return classify(&unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() });
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    None
}

/// Classifies an error; `None` for our own kernel's (`SO_EE_ORIGIN_LOCAL`), which the failed send has returned already.
fn classify(error: &libc::sock_extended_err) -> Option<NetError> {
    if ![libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin) {
        return None;
    }
    Some(match error.ee_errno as i32 {
        libc::ECONNREFUSED => NetError::Unreachable(Unreachable::Port),
        libc::EHOSTUNREACH | libc::EACCES => NetError::Unreachable(Unreachable::Host),
        libc::ENETUNREACH => NetError::Unreachable(Unreachable::Net),
        libc::EMSGSIZE => NetError::MtuChanged(error.ee_info),
        errno => NetError::Other(errno),
    })
}

/// Makes a send socket drop all packets sent to it, so that strangers cannot fill the buffer that the error queue
/// shares.
pub(super) fn refuse_packets(socket: BorrowedFd<'_>) -> io::Result<()> {
    // Classic BPF: keep 0 bytes of every packet.
    let mut code = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: code.as_mut_ptr() };
    let bytes = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let value = (&raw const program).cast();
    // SAFETY: the program and its one instruction outlive the call, which copies them.
    let rc = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        libc::setsockopt(socket.as_raw_fd(), level, name, value, bytes)
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
