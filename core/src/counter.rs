//! Completion counters.

use crate::domain::Domain;
use crate::error::Error;
use crate::foreign::CounterOwner;
use crate::region::AccessCounter;
use crate::trigger::{Action, Trigger, Waiting, Work};
use crate::uses::{Use, Users};
use crate::wait_group::Sleepable;
use crate::watch::Watch;
use erd_sys::clock::monotonic_ns;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State of a counter.
pub struct Counter {
    /// Counts bytes, not completions.
    bytes: bool,
    value: AtomicU64,
    errors: AtomicU64,
    /// Both as the application saw them last: no sleep may miss a later change.
    seen: [AtomicU64; 2],
    /// Both as the application read them last: a poll set reports the counter until they are read.
    read: [AtomicU64; 2],
    /// A waiter must be woken at the next change.
    armed: AtomicBool,
    /// Actions that are due when the counter gets further.
    waiting: Waiting,
    work: Arc<Work>,
    /// Endpoints that count here, and the wait object of the waiters.
    pub watch: Arc<Watch>,
    /// The other library's counter that counts all of it, if there is one.
    owner: Option<Owner>,
    users: Users,
    _domain_use: Use,
}

impl Sleepable for Counter {
    fn may_sleep(&self) -> bool {
        Counter::may_sleep(self)
    }
}

/// Another library's counter, and the completions and failures that it has counted so far.
struct Owner {
    counter: Box<dyn CounterOwner>,
    told: Mutex<(u64, u64)>,
}

/// Outcome of a wait for a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The counter has reached the threshold.
    Reached,
    /// An operation failed meanwhile.
    Errors,
    /// A bug has failed an endpoint that counts here.
    Failed,
    /// The time is over.
    TimedOut,
}

impl Trigger for Counter {
    fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    fn fire(&self) {
        if self.waiting.is_needed() {
            let (value, errors) = self.values();
            self.waiting.fire(value.saturating_add(errors), &self.work);
        }
    }

    fn add(&self, by: u64) {
        self.change(&self.value, by);
    }

    fn set(&self, value: u64) {
        self.put(&self.value, value);
    }
}

impl AccessCounter for Counter {
    fn accessed(&self, len_bytes: u64) {
        self.completed(len_bytes);
    }
}

impl Counter {
    /// A counter of completions, or of `bytes`; `owner`, if given, counts all of it.
    ///
    /// # Errors
    /// Error of joining its wait set.
    pub fn new(
        domain: &Domain,
        bytes: bool,
        watch: Watch,
        owner: Option<Box<dyn CounterOwner>>,
    ) -> Result<Arc<Counter>, Error> {
        let inner = Arc::new(Counter {
            bytes,
            value: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            seen: Default::default(),
            read: Default::default(),
            armed: AtomicBool::new(false),
            waiting: Waiting::default(),
            work: Arc::clone(&domain.work),
            watch: Arc::new(watch),
            owner: owner.map(|counter| Owner { counter, told: Mutex::default() }),
            users: Users::default(),
            _domain_use: domain.hold(),
        });
        inner.watch.join_set(&inner)?;
        Ok(inner)
    }

    /// Lets `action` wait until the sum of the values reaches `threshold`, and does it at once if it has. `id` cancels
    /// it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the counter is another domain's, [`Error::Again`] if too many wait already.
    pub fn defer(
        self: &Arc<Self>,
        domain: &Domain,
        threshold: u64,
        action: Action,
        id: usize,
    ) -> Result<(), Error> {
        if !Arc::ptr_eq(&self.work, &domain.work) {
            // Calls that let that domain progress do not know this one's endpoints.
            tracing::info!("the triggering counter must be of the endpoint's domain");
            return Err(Error::Invalid);
        }
        // A thread that waits for the counter lets the endpoints that move it progress.
        domain.watch_region(&self.watch);
        let cntr: Arc<dyn Trigger> = Arc::clone(self) as _;
        domain.work.queue(&cntr, threshold, action, id)
    }

    /// Objects that need the counter.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Reports all counts to the owner, and drops the operations that wait.
    pub fn close(&self) {
        self.hand_over();
        self.waiting.clear();
    }

    /// Keeps the counter open until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// An operation of `len_bytes` completed.
    pub fn completed(&self, len_bytes: u64) {
        self.change(&self.value, if self.bytes { len_bytes } else { 1 });
    }

    /// An operation failed.
    pub fn failed(&self) {
        self.change(&self.errors, 1);
    }

    fn change(&self, part: &AtomicU64, by: u64) {
        part.fetch_add(by, Ordering::SeqCst);
        self.tell();
        self.fire();
    }

    /// Increases the number of failures.
    pub fn add_errors(&self, by: u64) {
        self.change(&self.errors, by);
    }

    /// Sets the number of failures.
    pub fn set_errors(&self, value: u64) {
        self.put(&self.errors, value);
    }

    fn put(&self, part: &AtomicU64, value: u64) {
        part.store(value, Ordering::SeqCst);
        self.tell();
        self.fire();
    }

    /// Does the actions that the application's own change has made due.
    pub fn act(&self) {
        self.work.run();
    }

    /// Wakes a waiter. It armed before it looked, so one of the two sees the other.
    fn tell(&self) {
        if self.armed.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst) {
            self.watch.wake();
        }
    }

    /// Shows a part to the application. True if the application knew it before.
    fn show(seen: &AtomicU64, part: u64) -> bool {
        seen.swap(part, Ordering::Relaxed) == part
    }

    /// The value (completions or bytes), after progress.
    #[must_use]
    pub fn read_value(&self) -> u64 {
        let before = self.values().0;
        self.watch.progress();
        let after = self.values().0;
        self.watch.looked(after != before);
        self.show_read(0, after);
        after
    }

    /// The number of failures, after progress.
    #[must_use]
    pub fn read_errors(&self) -> u64 {
        self.watch.progress();
        let errors = self.values().1;
        self.show_read(1, errors);
        errors
    }

    /// Lets endpoints progress, and hands their counts to the owner.
    pub fn serve(&self) {
        self.watch.progress();
        self.watch.serve_owners();
        self.hand_over();
    }

    /// The application reads a part.
    fn show_read(&self, part: usize, value: u64) {
        if !Self::show(&self.seen[part], value) {
            self.watch.note_read();
        }
        self.read[part].store(value, Ordering::Relaxed);
    }

    /// `fi_trywait(3)`: true if nothing has changed since the application last looked; any later change makes the fd
    /// readable.
    pub fn may_sleep(&self) -> bool {
        self.watch.progress();
        self.watch.clear();
        self.armed.store(true, Ordering::SeqCst);
        let (value, errors) = self.values();
        let known = Self::show(&self.seen[0], value) & Self::show(&self.seen[1], errors);
        known && self.watch.arm_fd()
    }

    /// True if it changed since the application last read it.
    pub fn has_news(&self) -> bool {
        self.watch.progress();
        let read = [0, 1].map(|part: usize| self.read[part].load(Ordering::Relaxed));
        self.values() != (read[0], read[1])
    }

    fn values(&self) -> (u64, u64) {
        (self.value.load(Ordering::SeqCst), self.errors.load(Ordering::SeqCst))
    }

    /// Hands the owner, if there is one, the counts that it has not got. Call it on the owner's own call, without an
    /// endpoint's lock.
    pub(crate) fn hand_over(&self) {
        let Some(Owner { counter, told }) = &self.owner else { return };
        let now = self.values();
        let before = std::mem::replace(&mut *told.lock(), now);
        counter.count(now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
    }

    /// Waits until the value reaches `threshold` or a failure comes, for at most `timeout_ms`, or for ever if that is
    /// negative.
    #[must_use]
    pub fn wait(&self, threshold: u64, timeout_ms: i32) -> Waited {
        let end_ns = u64::try_from(timeout_ms).ok().map(|ms| monotonic_ns() + ms * 1_000_000);
        let errors_before = self.values().1;
        loop {
            self.watch.progress();
            let found = || {
                let (value, errors) = self.values();
                value >= threshold || errors != errors_before
            };
            if !found() {
                self.watch.spin(end_ns, found);
            }
            let wakes = self.watch.clear();
            self.armed.store(true, Ordering::SeqCst);
            let (value, errors) = self.values();
            if value >= threshold {
                self.show_read(0, value);
                return Waited::Reached;
            }
            if errors != errors_before {
                return Waited::Errors;
            }
            if self.watch.has_failed() {
                return Waited::Failed;
            }
            if end_ns.is_some_and(|end| monotonic_ns() >= end) {
                return Waited::TimedOut;
            }
            if self.watch.can_sleep() {
                self.watch.sleep(wakes, end_ns);
            } else {
                // Its wait kind allows no sleep, but libfabric's own tests wait on such a counter.
                std::thread::yield_now();
            }
        }
    }
}
