//! Asks for memory before it is needed. A large network does not fit into the caches, and what an event touches is known
//! some events ahead.

/// Length of a cache line in bytes.
const LINE_BYTES: usize = 64;

/// Asks for the first `lines` cache lines of a value.
#[inline]
pub fn prefetch<T>(value: &T, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines.min(size_of::<T>().div_ceil(LINE_BYTES)) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::from_ref(value).cast::<i8>().wrapping_add(line * LINE_BYTES);
        // SAFETY: a prefetch is a hint. It neither reads nor faults, whatever the address.
        unsafe { _mm_prefetch(at, _MM_HINT_T0) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, lines);
}
