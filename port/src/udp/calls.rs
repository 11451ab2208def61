//! The system calls of the UDP data path, without libc's wrappers.
//!
//! The wrappers are cancellation points (`pthreads(7)`): they allow and forbid the thread's cancellation around each call, which
//! takes two atomic operations, and a thread that is cancelled in one would keep its endpoint's lock for good. Rarer calls
//! (the information path's `epoll_wait`, the signals of verbs) still are.

use std::io;
use std::os::fd::RawFd;

/// `recvmmsg(2)` without a timeout; returns the number of messages.
///
/// # Safety
/// The first `count` headers at `headers` are valid for reads and writes, and point to names, parts and control buffers of
/// the sizes that they state.
pub(super) unsafe fn recvmmsg(
    fd: RawFd,
    headers: *mut libc::mmsghdr,
    count: usize,
    flags: i32,
) -> io::Result<usize> {
    let timeout: *mut libc::timespec = std::ptr::null_mut();
    // SAFETY: the caller vouches for the headers, and the other arguments are those of the call.
    let rc = unsafe { libc::syscall(libc::SYS_recvmmsg, fd, headers, count, flags, timeout) };
    returned(rc)
}

/// `recv(2)`; returns the number of bytes.
///
/// # Safety
/// `bytes` bytes at `to` are valid for writes.
pub(super) unsafe fn recv(fd: RawFd, to: *mut u8, bytes: usize, flags: i32) -> io::Result<usize> {
    let (name, name_bytes): (*mut libc::sockaddr, *mut libc::socklen_t) =
        (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the caller vouches for the memory, and `recvfrom(2)` without a place for the name is the call.
    returned(unsafe { libc::syscall(libc::SYS_recvfrom, fd, to, bytes, flags, name, name_bytes) })
}

/// `recvmsg(2)`; returns the number of bytes.
///
/// # Safety
/// `header` is valid for reads and writes, and points to a name, parts and a control buffer of the sizes that it states.
pub(super) unsafe fn recvmsg(
    fd: RawFd,
    header: *mut libc::msghdr,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: the caller vouches for the header, and the other arguments are those of the call.
    returned(unsafe { libc::syscall(libc::SYS_recvmsg, fd, header, flags) })
}

/// `sendmsg(2)`; returns the number of bytes.
///
/// # Safety
/// `header` is valid for reads, and points to a name, parts and control messages of the sizes that it states.
pub(super) unsafe fn sendmsg(
    fd: RawFd,
    header: *const libc::msghdr,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: the caller vouches for the header, and the other arguments are those of the call.
    returned(unsafe { libc::syscall(libc::SYS_sendmsg, fd, header, flags) })
}

/// `sendmmsg(2)`; returns the number of messages.
///
/// # Safety
/// The first `count` headers at `headers` are valid for reads and writes, and point to names, parts and control messages of
/// the sizes that they state.
pub(super) unsafe fn sendmmsg(
    fd: RawFd,
    headers: *mut libc::mmsghdr,
    count: usize,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: the caller vouches for the headers, and the other arguments are those of the call.
    returned(unsafe { libc::syscall(libc::SYS_sendmmsg, fd, headers, count, flags) })
}

fn returned(rc: libc::c_long) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}
