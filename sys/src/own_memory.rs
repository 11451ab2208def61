//! Memory of this process that may be missing, or may not be written: reached by system calls, which
//! answer with an error where a plain access would end the process.

use libc::{c_void, iovec};
use std::io;
use std::sync::OnceLock;

/// Whether the kernel offers [`read()`] and [`write()`]. If it does not, a warning says so once.
pub fn is_offered() -> bool {
    static OFFERED: OnceLock<bool> = OnceLock::new();
    *OFFERED.get_or_init(|| {
        let (known, mut copy) = ([0xa5_u8; 1], [0_u8; 1]);
        let offered = read(known.as_ptr().addr(), &mut copy) && copy == known;
        if !offered {
            let error = io::Error::last_os_error();
            tracing::warn!(
                %error,
                "the kernel forbids process_vm_readv: a peer that names memory which is not mapped, \
                 in a region of the whole address space, ends this process"
            );
        }
        offered
    })
}

/// The calling thread stands for its process: unlike the first thread, it has not ended.
fn this_process() -> libc::pid_t {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// Copies memory from `address` on into `out`; false if not all of it is there.
#[must_use]
pub fn read(address: usize, out: &mut [u8]) -> bool {
    let to = iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let from = iovec { iov_base: address as *mut c_void, iov_len: out.len() };
    // SAFETY: the kernel writes to `out` alone, and answers EFAULT where nothing can be read.
    let copied = unsafe { libc::process_vm_readv(this_process(), &to, 1, &from, 1, 0) };
    copied == out.len() as isize
}

/// Copies `bytes` into memory from `address` on; false if not all of it can be written, and then a
/// part of it may have been.
///
/// # Safety
/// What is mapped of this memory may be written by others than its owner.
#[must_use]
pub unsafe fn write(address: usize, bytes: &[u8]) -> bool {
    let from = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let to = iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: the kernel answers EFAULT where nothing can be written; the rest is the caller's
    // promise.
    let copied = unsafe { libc::process_vm_writev(this_process(), &from, 1, &to, 1, 0) };
    copied == bytes.len() as isize
}

/// Whether the kernel would give this process so many bytes more: its limits may forbid it.
#[must_use]
pub fn has_room(bytes: usize) -> bool {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, where nothing is.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes.max(1), access, kind, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping that was just made, which nobody else knows of.
    let _ = unsafe { libc::munmap(mapped, bytes.max(1)) };
    true
}

/// The most memory that this process may map, in bytes; `None` without a limit.
#[must_use]
pub fn limit_bytes() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

/// Whether the first and the last of `len` bytes from `address` on can be read.
#[must_use]
pub fn has_ends(address: usize, len: usize) -> bool {
    let Some(last) = len.checked_sub(1).and_then(|more| address.checked_add(more)) else {
        return len == 0;
    };
    let mut out = [0_u8; 2];
    let to = iovec { iov_base: out.as_mut_ptr().cast(), iov_len: 2 };
    let from = [address, last].map(|at| iovec { iov_base: at as *mut c_void, iov_len: 1 });
    // SAFETY: as in `read`.
    let copied = unsafe { libc::process_vm_readv(this_process(), &to, 1, from.as_ptr(), 2, 0) };
    copied == 2
}

/// Whether the `len` bytes from `address` on, of few pages, can be written. Where the kernel cannot
/// tell (before Linux 5.14), whether their ends can be read.
#[must_use]
pub fn is_writable(address: usize, len: usize) -> bool {
    static TELLS: OnceLock<bool> = OnceLock::new();
    let tells = TELLS.get_or_init(|| {
        let mut known = 0_u8;
        populate((&raw mut known).addr(), 1)
    });
    if *tells { populate(address, len) } else { has_ends(address, len) }
}

/// Makes the pages of memory present for writing, which leaves their contents.
fn populate(address: usize, len: usize) -> bool {
    // SAFETY: the call takes a constant.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = address & !(page_bytes - 1);
    let Some(end) = address.checked_add(len) else { return false };
    // SAFETY: nothing is changed but which pages are present; the kernel answers with an error
    // where there are none that may be written.
    let rc = unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_POPULATE_WRITE) };
    rc == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four pages, of which the second has gone and the third is constant.
    fn pages() -> (usize, usize) {
        // SAFETY: a new mapping, of which nobody else knows.
        unsafe {
            let page_bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let (rights, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), 4 * page_bytes, rights, kind, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::munmap(at.byte_add(page_bytes), page_bytes), 0);
            let third = at.byte_add(2 * page_bytes);
            assert_eq!(libc::mprotect(third, page_bytes, libc::PROT_READ), 0);
            (at.addr(), page_bytes)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_is_missing_or_constant_is_told() {
        assert!(is_offered(), "this test needs process_vm_readv");
        let (at, page) = pages();
        let mut out = [1_u8; 8];
        assert!(read(at, &mut out));
        assert_eq!(out, [0; 8]);
        assert!(!read(at + page, &mut out) && !read(at + page - 4, &mut out));
        assert!(!read(16, &mut out) && !read(usize::MAX - 3, &mut out));
        // SAFETY: the test's own pages.
        unsafe {
            assert!(write(at + 8, &[7; 8]));
            assert!(!write(at + page, &[7; 8]) && !write(at + 2 * page, &[7; 8]));
        }
        assert!(read(at + 8, &mut out));
        assert_eq!(out, [7; 8]);
        assert!(has_ends(at, 4 * page) && has_ends(at, 0) && has_ends(16, 0));
        assert!(!has_ends(at, page + 1) && !has_ends(at + page, page + 1));
        assert!(!has_ends(usize::MAX, 2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn places_are_told_from_constants_and_left_as_they_are() {
        let (at, page) = pages();
        // SAFETY: the test's own page.
        assert!(unsafe { write(at, &[9; 8]) });
        assert!(is_writable(at, 8));
        assert!(!is_writable(at + page, 8) && !is_writable(at + page - 4, 8));
        assert!(!is_writable(usize::MAX - 3, 8));
        let mut out = [0; 8];
        assert!(read(at, &mut out));
        assert_eq!(out, [9; 8]);
    }
}
