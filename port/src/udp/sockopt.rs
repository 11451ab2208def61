//! Socket options, with fallbacks where the kernel lacks them.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use socket2::Socket;

use super::PortError;

/// Sets an integer option.
pub(super) fn set_int(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is an int of the stated size that outlives the call.
    let rc = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), bytes) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an integer option.
pub(super) fn int(fd: RawFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` has room for the stated size, and both outlive the call.
    let rc = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut bytes) };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Turns an option on if it is wanted and the kernel has it; returns whether it is on.
pub(super) fn try_on(socket: &Socket, wanted: bool, level: i32, name: i32, what: &str) -> bool {
    if !wanted {
        return false;
    }
    match set_int(socket.as_raw_fd(), level, name, 1) {
        Ok(()) => true,
        Err(error) => {
            tracing::info!(option = what, %error, "no such socket option, going without");
            false
        }
    }
}

/// Sizes a socket buffer: past the system's limit if we may, up to it otherwise. Returns what the
/// kernel granted, in its own accounting.
pub(super) fn set_buffer(socket: &Socket, bytes: usize, side: Side) -> Result<usize, PortError> {
    // The kernel doubles the value in an int.
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2);
    let (force, plain, call) = match side {
        Side::Recv => (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, "SO_RCVBUF"),
        Side::Send => (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, "SO_SNDBUF"),
    };
    let fd = socket.as_raw_fd();
    set_int(fd, libc::SOL_SOCKET, force, wanted)
        .or_else(|_| set_int(fd, libc::SOL_SOCKET, plain, wanted))
        .map_err(|source| PortError::Socket { call, source })?;
    let granted =
        int(fd, libc::SOL_SOCKET, plain).map_err(|source| PortError::Socket { call, source })?;
    let granted = usize::try_from(granted).unwrap_or(0);
    if granted < wanted as usize {
        tracing::info!(option = call, wanted, granted, "the system limits a socket buffer");
    }
    Ok(granted)
}

/// Buffer that [`set_buffer`] sizes.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Recv,
    Send,
}
