//! Memory of other processes of the same user, where the kernel lets this one read it (`process_vm_readv(2)`).

use libc::iovec;
use std::io;

/// Copies `len` bytes out of the memory of process `pid`: from the pieces `from`, into the pieces `to`, each list as one
/// run of bytes.
///
/// # Safety
/// Every piece of `to` may be written, up to `len` bytes in all.
///
/// # Errors
/// The kernel does not let this process read there (`EPERM`, `ENOSYS`), the process is gone (`ESRCH`), or memory on
/// either side is missing (`EFAULT`). Then a part may have been copied.
pub unsafe fn read(pid: u32, from: &mut [iovec], to: &mut [iovec], len: usize) -> io::Result<()> {
    let (mut from, mut to, mut left) = (from, to, len);
    while left > 0 {
        // SAFETY: the kernel reads both lists, and writes to the caller's pieces alone.
        let copied = unsafe {
            libc::process_vm_readv(
                pid as libc::pid_t,
                to.as_ptr(),
                to.len() as libc::c_ulong,
                from.as_ptr(),
                from.len() as libc::c_ulong,
                0,
            )
        };
        let copied = usize::try_from(copied).map_err(|_| io::Error::last_os_error())?;
        if copied == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left = left.saturating_sub(copied);
        from = skip(from, copied);
        to = skip(to, copied);
    }
    Ok(())
}

/// The pieces without their first `bytes`.
fn skip(mut pieces: &mut [iovec], mut bytes: usize) -> &mut [iovec] {
    while let Some(first) = pieces.first_mut() {
        if bytes < first.iov_len {
            first.iov_base = first.iov_base.wrapping_byte_add(bytes);
            first.iov_len -= bytes;
            break;
        }
        bytes -= first.iov_len;
        pieces = &mut pieces[1..];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &[u8]) -> iovec {
        iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn pieces_are_one_run_of_bytes() {
        let (one, other) = ([1_u8, 2, 3], [4_u8, 5, 6, 7]);
        let (mut to, mut rest) = ([0_u8; 5], [0_u8; 2]);
        let mut pieces = [piece(&one), piece(&other)];
        let mut places = [
            iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() },
            iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() },
        ];
        // SAFETY: two live arrays.
        unsafe { read(std::process::id(), &mut pieces, &mut places, 7) }.expect("own memory");
        assert_eq!((to, rest), ([1, 2, 3, 4, 5], [6, 7]));
        let mut missing = [iovec { iov_base: std::ptr::without_provenance_mut(8), iov_len: 1 }];
        let mut place = [iovec { iov_base: to.as_mut_ptr().cast(), iov_len: 1 }];
        // SAFETY: a live array.
        let error = unsafe { read(std::process::id(), &mut missing, &mut place, 1) };
        assert_eq!(error.map_err(|error| error.raw_os_error()), Err(Some(libc::EFAULT)));
    }

    #[test]
    fn what_was_copied_is_skipped() {
        let bytes = [0_u8; 10];
        let mut pieces = [piece(&bytes[..4]), piece(&bytes[4..])];
        let left = skip(&mut pieces, 5);
        assert_eq!((left.len(), left[0].iov_len), (1, 5));
        assert!(skip(left, 5).is_empty());
    }
}
