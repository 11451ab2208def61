//! An operation under way, which the thread that posted it waits for and another completes.

use crate::ep::tests::node::EP_CONTEXT;
use erd_ffi::fi::{FI_EAGAIN, fi_cq_err_entry, fi_cq_tagged_entry};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// After this long a thing that does not come stands still. A sanitizer in an emulated machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between looks.
const PAUSE: Duration = Duration::from_micros(50);

const PENDING: i64 = 0;
const DONE: i64 = 1;

/// See the module's text; its address is the operation's context.
#[derive(Default)]
pub struct Op {
    /// [`PENDING`], [`DONE`], or a negative error number.
    state: AtomicI64,
    len: AtomicUsize,
}

impl Op {
    pub fn new() -> Arc<Op> {
        Arc::default()
    }

    pub fn context(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// A completion was read. The operation may be gone as soon as its state is set.
    pub fn done(entry: &fi_cq_tagged_entry) {
        let op: *const Op = entry.op_context.cast();
        // SAFETY: every operation of these tests has an `Op` as its context, which is kept.
        unsafe {
            (*op).len.store(entry.len, Ordering::Relaxed);
            let before = (*op).state.swap(DONE, Ordering::Release);
            assert_eq!(before, PENDING, "two completions of one operation");
        }
    }

    /// An error was read.
    pub fn failed(entry: &fi_cq_err_entry) {
        if entry.op_context as usize == EP_CONTEXT {
            // Of one that was complete when it was copied.
            return;
        }
        let op: *const Op = entry.op_context.cast();
        // SAFETY: as above.
        let before = unsafe { (*op).state.swap(-i64::from(entry.err), Ordering::Release) };
        assert_eq!(before, PENDING, "two completions of one operation");
    }

    /// Its length, or its error, once it has ended.
    pub fn ended(&self, what: &str) -> Result<usize, c_int> {
        let begun = Instant::now();
        loop {
            match self.state.load(Ordering::Acquire) {
                PENDING => stands_still_since(begun, what),
                DONE => return Ok(self.len.load(Ordering::Relaxed)),
                error => return Err(-error as c_int),
            }
            thread::sleep(PAUSE);
        }
    }

    /// Its length; it may not fail.
    pub fn succeeded(&self, what: &str) -> usize {
        self.ended(what).unwrap_or_else(|error| fail(&format!("{what} ended with {error}")))
    }
}

/// Makes a call until its queue has room.
pub fn retried(what: &str, call: impl Fn() -> isize) {
    let begun = Instant::now();
    loop {
        match call() {
            0 => return,
            rc => assert_eq!(rc, -(FI_EAGAIN as isize), "{what}"),
        }
        stands_still_since(begun, what);
        thread::sleep(PAUSE);
    }
}

fn stands_still_since(begun: Instant, what: &str) {
    if begun.elapsed() > PATIENCE {
        fail(&format!("{what} stands still"));
    }
}

/// Ends the process: to unwind would free what the provider still writes to, of which a sanitizer would
/// tell in place of this.
fn fail(text: &str) -> ! {
    eprintln!("FAILED: {text}");
    // SAFETY: nothing is done that could go wrong.
    unsafe { libc::_exit(1) }
}
