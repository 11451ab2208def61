//! Panics, which are bugs of ours: they are caught where they must not go further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

#[cfg(not(panic = "unwind"))]
compile_error!("erd catches its own bugs: build with panic = \"unwind\"");

/// Runs `body`. If it panics, `tell` gets what the panic said, and then `on_panic` runs, of which a panic is
/// swallowed; `None` then.
pub fn caught<R>(
    body: impl FnOnce() -> R,
    tell: impl FnOnce(&str),
    on_panic: impl FnOnce(),
) -> Option<R> {
    // The closures may leave an object half changed; the hook marks it as failed, after which
    // nothing looks into it any more.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(payload) => {
            told(payload, tell, on_panic);
            None
        }
    }
}

/// [`caught`] that logs what the panic of `name` said, and answers the default value then.
pub fn run<R: Default>(name: &str, body: impl FnOnce() -> R, on_panic: impl FnOnce()) -> R {
    let tell = |text: &str| tracing::warn!("{name}: internal error: {text}");
    caught(body, tell, on_panic).unwrap_or_default()
}

/// Starts a thread whose panic is caught, logged and reported through `on_panic`.
///
/// The thread takes no signals: the application's handlers run on its own threads.
///
/// # Errors
///
/// What the operating system answers when it has no thread to give.
pub fn spawn<B, H>(name: &'static str, body: B, on_panic: H) -> std::io::Result<JoinHandle<()>>
where
    B: FnOnce() + Send + 'static,
    H: FnOnce() + Send + 'static,
{
    let old = block_signals();
    let thread = Builder::new().name(name.into()).spawn(move || run(name, body, on_panic));
    restore_signals(&old);
    thread
}

#[cold]
fn told(payload: Box<dyn Any + Send>, tell: impl FnOnce(&str), on_panic: impl FnOnce()) {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tell(text);
    if let Err(second) = catch_unwind(AssertUnwindSafe(on_panic)) {
        forget(second);
    }
    forget(payload);
}

/// Leaks a panic's payload unless it is plain text: its `Drop` is foreign code that could panic.
fn forget(payload: Box<dyn Any + Send>) {
    if !(payload.is::<&str>() || payload.is::<String>()) {
        std::mem::forget(payload);
    }
}

/// Blocks all signals for this thread and returns the mask there was. Miri has no signals, and none of these calls.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are ours; `sigfillset` initialises one, `pthread_sigmask` the other, and
    // with valid arguments neither can fail.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        if !cfg!(miri) {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        }
        old
    }
}

fn restore_signals(old: &libc::sigset_t) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: the set came from `block_signals`; nothing is to be written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_panicking_thread_ends_and_tells() {
        let told = Arc::new(AtomicU32::new(0));
        let hook = Arc::clone(&told);
        let thread = spawn(
            "erd-test",
            || panic!("a bug"),
            move || {
                hook.fetch_add(1, Ordering::Relaxed);
            },
        );
        assert!(thread.is_ok_and(|thread| thread.join().is_ok()));
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
