//! Random numbers that nobody can guess: `getrandom(2)`.

/// 64 random bits of the kernel.
///
/// # Panics
/// The kernel has no `getrandom(2)`: it is older than 3.17.
#[must_use]
pub fn u64() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: eight writable bytes. So short a read is never cut once the kernel's pool is up.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, 8, "getrandom fails only on kernels that lack it");
    u64::from_ne_bytes(bytes)
}
