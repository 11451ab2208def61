//! Which process this is, without a system call.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The process that made something, counted in forks since the library was loaded: a comparison
/// costs no system call, so every post, step and datagram can make it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

// Nothing here is a lock, not even one that is taken once: a child that was forked meanwhile would wait for ever.

/// Forks that lie between the process that loaded the library and this one, or more: the
/// handler may be there twice.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The handler is there.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// See [`at_fork`]. Each is a `fn()`, or NULL.
static HOOKS: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for hook in HOOKS.iter().map(|place| place.load(Ordering::Acquire)).filter(|at| !at.is_null()) {
        // SAFETY: `at_fork` has put a function of this type there.
        let hook = unsafe { std::mem::transmute::<*mut (), fn()>(hook) };
        hook();
    }
}

/// Each forked child calls `hook` before anything else, once or several times. It may find any lock taken, by a thread that
/// the child lacks.
///
/// # Panics
/// There are more hooks than this library has.
pub fn at_fork(hook: fn()) {
    let _ = Process::current();
    let hook = hook as *mut ();
    let is_set = |place: &AtomicPtr<()>| {
        let (free, order) = (std::ptr::null_mut(), Ordering::AcqRel);
        let before = place.compare_exchange(free, hook, order, Ordering::Acquire);
        before.is_ok() || before == Err(hook)
    };
    assert!(HOOKS.iter().any(is_set), "a place for each hook");
}

impl Process {
    /// The calling process.
    ///
    /// # Panics
    /// The first time, if there is no memory for a fork handler.
    #[must_use]
    pub fn current() -> Process {
        if !WATCHED.load(Ordering::Acquire) {
            // SAFETY: the handler counts and calls the hooks, and libc drops it when this library is unloaded.
            let rc = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
            assert_eq!(rc, 0, "no memory for a fork handler");
            WATCHED.store(true, Ordering::Release);
        }
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
