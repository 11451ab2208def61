//! What is done when the process ends by itself: `exit(3)`, or a return from `main`. `_exit(2)` and
//! signals skip it.

use crate::guard;
use std::io;
use std::sync::OnceLock;

static AT_EXIT: OnceLock<fn()> = OnceLock::new();

/// From now on the end of the process begins with `f`. Only the first call counts.
///
/// # Errors
/// There is no memory to note it.
pub fn register(f: fn()) -> io::Result<()> {
    if AT_EXIT.set(f).is_err() {
        return Ok(());
    }
    // SAFETY: the handler lets no panic out, and libc calls it at the latest before this library is
    // unloaded.
    match unsafe { libc::atexit(run) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
    }
}

extern "C" fn run() {
    if let Some(f) = AT_EXIT.get() {
        guard::run("erd-exit", f, || ());
    }
}
