//! Secrets that stay with their process.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

/// A page has at least so many bytes.
const PAGE_BYTES: usize = 4096;

/// Bytes in a page of their own. A forked child sees zeros in their place, a core dump leaves them out, and they are not
/// swapped, as far as the kernel grants that. They are wiped when this is dropped.
pub struct SecretBytes<const N: usize>(NonNull<[u8; N]>);

// SAFETY: the page is this object's alone, and nobody writes to it but `new` and `drop`.
unsafe impl<const N: usize> Send for SecretBytes<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for SecretBytes<N> {}

impl<const N: usize> SecretBytes<N> {
    /// A copy of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8; N]) -> SecretBytes<N> {
        const { assert!(N <= PAGE_BYTES) };
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, of which the calls take the first page.
        let page = unsafe {
            let page = libc::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0);
            if page == libc::MAP_FAILED {
                handle_alloc_error(Layout::new::<[u8; PAGE_BYTES]>());
            }
            // A kernel that does not know one of these does without.
            libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK);
            libc::madvise(page, PAGE_BYTES, libc::MADV_DONTDUMP);
            libc::mlock(page, PAGE_BYTES);
            page
        };
        let at = NonNull::new(page.cast::<[u8; N]>()).expect("a mapping is not at 0");
        // SAFETY: the page has room for the bytes, and is aligned for them.
        unsafe { at.write(*bytes) };
        SecretBytes(at)
    }
}

impl<const N: usize> Deref for SecretBytes<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        // SAFETY: the page stays until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<const N: usize> fmt::Debug for SecretBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes")
    }
}

impl<const N: usize> Drop for SecretBytes<N> {
    fn drop(&mut self) {
        // SAFETY: the page is this object's alone; volatile, so that nobody leaves the write out.
        unsafe { self.0.write_volatile([0; N]) };
        compiler_fence(Ordering::SeqCst);
        // SAFETY: what `new` mapped.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_forked_child_has_no_copy() {
        let secret = SecretBytes::new(&[7; 32]);
        assert_eq!(*secret, [7; 32]);
        assert_eq!(format!("{secret:?}"), "SecretBytes");
        // SAFETY: the child only reads the page and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let wiped = *secret == [0; 32];
            // SAFETY: leaves without running the test harness's own clean-up.
            unsafe { libc::_exit(i32::from(!wiped)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child sees zeros");
        assert_eq!(*secret, [7; 32]);
    }
}
