//! Messages that endpoints of a domain hold back, and who lets them out.
//!
//! An endpoint holds small messages back while others are unacknowledged, so that they share datagrams.
//! The next call into the endpoint, or into a queue or counter of its own, lets them out. A program may
//! make no such call: it posts to one endpoint and polls the queue of another. So an endpoint that holds
//! something is listed here, and calls into other endpoints and queues of the domain let it progress.
//!
//! A call frees at once what its own thread has posted. Other threads most likely come back to their
//! endpoints: a call frees what they hold after 50 us. So does one that posts, since posts to
//! several endpoints in turn would keep each of these from filling its datagrams.
//!
//! Lock order: a thread takes an endpoint's state before the list. A call that frees holds the list's lock
//! only while it takes an entry out or puts it back.

use crate::ep::EpInner;
use crate::look::NEVER_NS;
use erd_ffi::clock::monotonic_ns;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most endpoints in the list of a domain. The helper thread looks after those that find no room.
const HOLDERS_MAX: usize = 64;
/// Most endpoints that one call lets progress.
const FREED_PER_CALL: usize = 4;
/// How long an endpoint is left to its own thread, and to its own calls while the thread posts elsewhere.
const PATIENCE_NS: u64 = 50_000;

/// An endpoint that held something back when it was last called.
struct Holder {
    endpoint: Weak<EpInner>,
    /// The thread that called it.
    thread: usize,
    /// When others than this thread's reads may let it progress.
    due_ns: u64,
}

/// The endpoints of one domain that hold something back.
#[derive(Default)]
pub struct Held {
    /// Each endpoint at most once.
    list: Mutex<VecDeque<Holder>>,
    /// Grows with each endpoint that comes into the list.
    comings: AtomicU64,
}

/// What a queue, counter or endpoint knows of the list: while nobody has come since, and nobody in it is
/// due, a call need not look at it.
pub struct Known {
    comings: AtomicU64,
    due_ns: AtomicU64,
}

impl Default for Known {
    fn default() -> Known {
        Known { comings: AtomicU64::new(0), due_ns: AtomicU64::new(NEVER_NS) }
    }
}

/// The call that frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// It reads a queue or counter.
    Read,
    /// It posts to an endpoint.
    Post,
}

impl Held {
    /// `endpoint` holds something back. False if there is no room for it. Called with its lock held.
    #[must_use]
    pub fn list(&self, endpoint: Weak<EpInner>) -> bool {
        let due_ns = monotonic_ns() + PATIENCE_NS;
        let holder = Holder { endpoint, thread: this_thread(), due_ns };
        let mut list = self.list.lock();
        let room = list.len() < HOLDERS_MAX;
        if room {
            list.push_back(holder);
            self.comings.fetch_add(1, Ordering::Relaxed);
        }
        room
    }

    /// Lets endpoints progress that hold something back. `is_own` tells of an endpoint whether the caller,
    /// who knows `known`, lets it progress anyway. The caller holds no endpoint's lock.
    #[inline]
    pub fn free(&self, call: Call, known: &Known, is_own: impl Fn(&EpInner) -> bool) {
        if self.comings.load(Ordering::Relaxed) == known.comings.load(Ordering::Relaxed) {
            let due_ns = known.due_ns.load(Ordering::Relaxed);
            if due_ns == NEVER_NS || monotonic_ns() < due_ns {
                return;
            }
        }
        self.free_some(call, known, is_own);
    }

    #[cold]
    fn free_some(&self, call: Call, known: &Known, is_own: impl Fn(&EpInner) -> bool) {
        // Before the list: who comes meanwhile is looked at next time.
        known.comings.store(self.comings.load(Ordering::Relaxed), Ordering::Relaxed);
        let (now, thread) = (monotonic_ns(), this_thread());
        let (mut next_ns, mut freed) = (NEVER_NS, 0);
        let listed = self.list.lock().len();
        for _ in 0..listed {
            let Some(mut holder) = self.list.lock().pop_front() else { break };
            let Some(endpoint) = holder.endpoint.upgrade() else { continue };
            if !is_own(&endpoint) {
                let at_once = call == Call::Read && holder.thread == thread;
                if freed < FREED_PER_CALL && (at_once || holder.due_ns <= now) {
                    freed += 1;
                    if endpoint.let_out() {
                        continue;
                    }
                    // Its own thread is there.
                    holder.due_ns = now + PATIENCE_NS;
                }
                next_ns = next_ns.min(if at_once { now } else { holder.due_ns });
            }
            self.list.lock().push_back(holder);
        }
        known.due_ns.store(next_ns, Ordering::Relaxed);
    }
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
