//! Which process this is, without a system call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// The process that made something, counted in forks since the library was loaded: a comparison
/// costs no system call, so every post, step and datagram can make it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

/// Forks that lie between the process that loaded the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// See [`at_fork`].
static HOOKS: [OnceLock<fn()>; 3] = [const { OnceLock::new() }; 3];

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    HOOKS.iter().filter_map(OnceLock::get).for_each(|hook| hook());
}

/// Each forked child calls `hook` before anything else. It may find any lock taken, by a thread that the child lacks.
///
/// # Panics
/// There are more hooks than this library has.
pub fn at_fork(hook: fn()) {
    let _ = Process::current();
    let is_set = |place: &OnceLock<fn()>| std::ptr::fn_addr_eq(*place.get_or_init(|| hook), hook);
    assert!(HOOKS.iter().any(is_set), "a place for each hook");
}

impl Process {
    /// The calling process.
    ///
    /// # Panics
    /// The first time, if there is no memory for a fork handler.
    #[must_use]
    pub fn current() -> Process {
        static WATCH_FORKS: Once = Once::new();
        WATCH_FORKS.call_once(|| {
            // SAFETY: the handler counts and calls the hook, and libc drops it when this library is unloaded.
            let rc = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            assert_eq!(rc, 0, "no memory for a fork handler");
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// As a number, which differs from that of a child.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The process of this [`Process::number`].
    #[must_use]
    pub fn numbered(number: u32) -> Process {
        Process(number)
    }

    /// False in a child that was forked after the thing was made.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}
