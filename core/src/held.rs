//! Messages that endpoints of a domain hold back, and the calls that send them.
//!
//! An endpoint holds small messages back while others are unacknowledged, so that they share datagrams. The next call
//! into the endpoint, or into a queue or counter of its own, sends them. A program may make no such call: it posts to
//! one endpoint and polls the queue of another. So this list has every endpoint that holds something back, and calls
//! into other endpoints and queues of the domain let it progress.
//!
//! A call sends at once what its own thread has posted since the queue was last read. Other threads most likely come
//! back to their endpoints: a call sends what they hold after 50 us. So does a call that posts: if it sent at once,
//! posts to several endpoints in turn would keep each from filling its datagrams.
//!
//! With a thousand endpoints the list is long and the calls are many. So a call looks only at the endpoints that have
//! come since the last call, and at those that are due. It touches no endpoint before it takes it from the list.
//!
//! Lock order: a thread takes an endpoint's state before the list. A call that frees holds the list's lock
//! only while it takes entries out or puts them back.

use crate::look::NEVER_NS;
use crate::polled::{Polled, address};
use erd_sys::clock::monotonic_ns;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most endpoints in the list of a domain, not counting those that calls under way put back. The helper thread serves
/// those that find no room.
const HOLDERS_MAX: usize = 64;
/// Most endpoints that one call lets progress.
const FREED_PER_CALL: usize = 4;
/// Time for which an endpoint is left to its own thread, and to its own calls while the thread posts elsewhere.
const PATIENCE_NS: u64 = 50_000;

/// An endpoint that held something back when it was last called.
struct Holder {
    endpoint: Weak<dyn Polled>,
    /// The thread that called it.
    thread: usize,
    /// Number of arrivals up to and including it.
    coming: u64,
    /// Time from which calls other than this thread's reads may let it progress.
    due_ns: u64,
}

/// The endpoints of one domain that hold something back.
pub struct Held {
    /// Ordered by arrival, and so by their times. Each endpoint at most once.
    list: Mutex<VecDeque<Holder>>,
    /// Counts the endpoints that have come into the list. Written under its lock.
    comings: AtomicU64,
    /// Time at which the first is due; [`NEVER_NS`] while there is none. Written under the list's lock.
    due_ns: AtomicU64,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            list: Mutex::default(),
            comings: AtomicU64::new(0),
            due_ns: AtomicU64::new(NEVER_NS),
        }
    }
}

/// What a queue, counter or endpoint has seen of the list.
pub struct Known {
    /// Arrivals that it has seen.
    comings: AtomicU64,
    /// Time at which the first of them is due that its own calls do not serve.
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
    /// Enters `endpoint`, which holds something back. False if there is no room for it. The caller holds its lock.
    #[must_use]
    pub fn list(&self, endpoint: Weak<dyn Polled>) -> bool {
        let mut list = self.list.lock();
        let room = list.len() < HOLDERS_MAX;
        if room {
            self.append(&mut list, endpoint, this_thread());
        }
        room
    }

    fn append(&self, list: &mut VecDeque<Holder>, endpoint: Weak<dyn Polled>, thread: usize) {
        let coming = self.comings.load(Ordering::Relaxed) + 1;
        list.push_back(Holder { endpoint, thread, coming, due_ns: monotonic_ns() + PATIENCE_NS });
        self.note(list);
        self.comings.store(coming, Ordering::Relaxed);
    }

    /// Updates the atomics from the locked list.
    fn note(&self, list: &VecDeque<Holder>) {
        self.due_ns.store(list.front().map_or(NEVER_NS, |first| first.due_ns), Ordering::Relaxed);
    }

    /// Lets endpoints that hold something back progress. `is_own` is true for the address of an endpoint that the
    /// caller, who has `known`, serves anyway. The caller holds no endpoint's lock.
    #[inline]
    pub fn free(&self, call: Call, known: &Known, is_own: impl Fn(usize) -> bool) {
        let came = self.comings.load(Ordering::Relaxed) != known.comings.load(Ordering::Relaxed);
        let due_ns = match (came, call) {
            (true, Call::Read) => 0,
            // No newcomer is due before the first of all.
            (true, Call::Post) => self.due_ns.load(Ordering::Relaxed),
            (false, _) => known.due_ns.load(Ordering::Relaxed),
        };
        if due_ns == 0 || (due_ns != NEVER_NS && due_ns <= monotonic_ns()) {
            self.free_some(call, known, is_own);
        }
    }

    #[cold]
    fn free_some(&self, call: Call, known: &Known, is_own: impl Fn(usize) -> bool) {
        for holder in self.take(call, known, is_own).into_iter().flatten() {
            let Some(endpoint) = holder.endpoint.upgrade() else { continue };
            if !endpoint.let_out() {
                // Another thread is there.
                self.append(&mut self.list.lock(), holder.endpoint, holder.thread);
            }
        }
    }

    /// Takes out the endpoints that the call lets progress, and updates `known`.
    fn take(
        &self,
        call: Call,
        known: &Known,
        is_own: impl Fn(usize) -> bool,
    ) -> [Option<Holder>; FREED_PER_CALL] {
        let thread = this_thread();
        let (mut taken, mut count) = ([const { None }; FREED_PER_CALL], 0);
        let mut list = self.list.lock();
        let now = monotonic_ns();
        let mut seen = self.comings.load(Ordering::Relaxed);
        let (seen_before, mut next_ns) =
            (known.comings.load(Ordering::Relaxed), known.due_ns.load(Ordering::Relaxed));
        let all = next_ns <= now || call == Call::Post;
        let mut at = if all { 0 } else { list.partition_point(|one| one.coming <= seen_before) };
        next_ns = if all { NEVER_NS } else { next_ns };
        while let Some(holder) = list.get(at) {
            let at_once =
                call == Call::Read && holder.thread == thread && holder.coming > seen_before;
            if is_own(address(holder.endpoint.as_ptr())) {
                at += 1;
            } else if !at_once && holder.due_ns > now {
                next_ns = next_ns.min(holder.due_ns);
                at += 1;
            } else if count == FREED_PER_CALL {
                // The next call goes on here.
                next_ns = now;
                seen = seen.min(holder.coming.max(seen_before + 1) - 1);
                break;
            } else {
                taken[count] = list.remove(at);
                count += 1;
            }
        }
        self.note(&list);
        known.comings.store(seen, Ordering::Relaxed);
        known.due_ns.store(next_ns, Ordering::Relaxed);
        taken
    }
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
