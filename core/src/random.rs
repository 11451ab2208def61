//! Random numbers that nobody can guess: `getrandom(2)`.

use erd_port::local::offer::ProcessId;
use erd_sys::process::Process;
use parking_lot::Mutex;

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

/// The id of this process, for those that share memory with it. A forked child has another.
#[must_use]
pub fn process_id() -> ProcessId {
    static ID: Mutex<Option<(Process, ProcessId)>> = Mutex::new(None);
    let mut id = ID.lock();
    let (_, id) = match &*id {
        Some((owner, known)) if owner.is_current() => (*owner, *known),
        _ => {
            let bits = u128::from(u64()) << 64 | u128::from(u64());
            *id.insert((Process::current(), ProcessId(bits.to_ne_bytes())))
        }
    };
    id
}
