//! Completion queues.
//!
//! Lock order, for everything that completes: [`Watch`]'s list of endpoints, then an endpoint's
//! state, then one queue. A reader holds no lock while it sleeps.

pub mod queue;

use crate::domain::Domain;
use crate::foreign::QueueOwner;
use crate::uses::{Use, Users};
use crate::wait_group::Sleepable;
use crate::watch::{WaitKind, Wakes, Watch};
use erd_sys::clock::monotonic_ns;
use parking_lot::Mutex;
use queue::{Account, AccountId, Entry, Nothing, Queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Reads that find entries, between two looks at the network.
const READS_PER_PROGRESS: u32 = 32;

/// State of a completion queue.
pub struct CompletionQueue {
    queue: Mutex<Queue>,
    /// Entries in the queue, written under its lock: a reader that finds 0 need not take the lock.
    unread: AtomicUsize,
    /// Endpoints that complete here, and the wait object of readers.
    pub watch: Watch,
    signaled: AtomicBool,
    reads: AtomicU32,
    /// The other provider's queue that gets the entries, if there is one.
    owner: Option<Box<dyn QueueOwner>>,
    /// Held while handing the owner entries, so that it gets them in order.
    handing: Mutex<()>,
    users: Users,
    _domain_use: Use,
}

impl Sleepable for CompletionQueue {
    fn may_sleep(&self) -> bool {
        CompletionQueue::may_sleep(self)
    }
}

impl CompletionQueue {
    /// A queue, whose entries go to `owner` if that is given.
    #[must_use]
    pub fn new(
        domain: &Domain,
        watch: Watch,
        owner: Option<Box<dyn QueueOwner>>,
    ) -> Arc<CompletionQueue> {
        Arc::new(CompletionQueue {
            queue: Mutex::default(),
            unread: AtomicUsize::new(0),
            watch,
            signaled: AtomicBool::new(false),
            reads: AtomicU32::new(0),
            owner,
            handing: Mutex::new(()),
            users: Users::default(),
            _domain_use: domain.hold(),
        })
    }

    /// A queue whose readers may sleep.
    #[must_use]
    pub fn for_polling(domain: &Domain) -> Arc<CompletionQueue> {
        CompletionQueue::new(
            domain,
            Watch::new(WaitKind::Fd, domain.settings.spin_ns, &domain.held),
            None,
        )
    }

    /// Objects that need the queue.
    #[must_use]
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// Hands up to `count` entries to `f`, good and bad in their order, after progress if none is there. Returns how
    /// many.
    pub fn poll(&self, count: usize, mut f: impl FnMut(&Entry)) -> usize {
        let mut take = || {
            if self.unread.load(Ordering::Acquire) == 0 {
                return 0;
            }
            let mut queue = self.queue.lock();
            let taken = queue.take(count, &mut f);
            self.note(&queue);
            self.watch.note_read();
            taken
        };
        let first = take();
        if first == 0 && count > 0 {
            self.watch.progress();
            let second = take();
            self.watch.looked(second > 0);
            return second;
        }
        if self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(READS_PER_PROGRESS) {
            self.watch.progress();
        }
        first
    }

    /// Sleeps until an entry is there, for `timeout_ms` at most, or for ever if that is negative;
    /// false if none came.
    pub fn wait(&self, timeout_ms: i32) -> bool {
        // No entry is read, so the result says nothing.
        let _ = self.read_or_sleep(0, 1, timeout_ms, |_, _| ());
        self.has(1)
    }

    /// Keeps the queue open until the result is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// A new account for one direction of an endpoint.
    #[must_use]
    pub(crate) fn open_account(&self) -> (AccountId, Account) {
        self.queue.lock().open_account()
    }

    /// Adds completions, and wakes those that wait for them.
    pub fn push(&self, entries: impl Iterator<Item = Entry>) {
        let mut queue = self.queue.lock();
        let before = queue.unread();
        entries.for_each(|entry| queue.push(entry));
        self.note(&queue);
        let wake = queue.unread() > before && std::mem::take(&mut queue.armed);
        drop(queue);
        if wake {
            self.watch.wake();
        }
    }

    /// Updates the atomics from the locked queue.
    fn note(&self, queue: &Queue) {
        self.unread.store(queue.unread(), Ordering::Release);
    }

    fn take(&self, count: usize, sink: &mut impl FnMut(usize, &Entry)) -> Result<usize, Nothing> {
        if self.unread.load(Ordering::Acquire) == 0 {
            return Err(Nothing::Empty);
        }
        let mut queue = self.queue.lock();
        let taken = queue.read(count, sink);
        self.note(&queue);
        self.watch.note_read();
        taken
    }

    /// Hands up to `count` good entries to `sink`, each with its place, after progress if none is there. Returns how
    /// many.
    ///
    /// # Errors
    /// [`Nothing`] if none is there, or an error is first.
    pub fn read(
        &self,
        count: usize,
        mut sink: impl FnMut(usize, &Entry),
    ) -> Result<usize, Nothing> {
        let first = self.take(count, &mut sink);
        if first.is_err() {
            // Before an error, too: an application whose peeks find nothing reads only errors.
            self.watch.progress();
        }
        if first == Err(Nothing::Empty) {
            let second = self.take(count, &mut sink);
            self.watch.looked(second != Err(Nothing::Empty));
            return second;
        }
        // A reader that always finds entries must still answer its peers.
        if self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(READS_PER_PROGRESS) {
            self.watch.progress();
        }
        first
    }

    /// Takes the error that is first, if one is.
    #[must_use]
    pub fn read_error(&self) -> Option<Entry> {
        let mut queue = self.queue.lock();
        let taken = queue.read_error();
        self.note(&queue);
        taken
    }

    /// [`CompletionQueue::read`] that sleeps until `wanted` entries are there, `timeout_ms` is over (never if
    /// negative) or [`CompletionQueue::signal`] is called.
    ///
    /// # Errors
    /// As for [`CompletionQueue::read`].
    pub fn read_or_sleep(
        &self,
        count: usize,
        wanted: usize,
        timeout_ms: i32,
        mut sink: impl FnMut(usize, &Entry),
    ) -> Result<usize, Nothing> {
        let end_ns = u64::try_from(timeout_ms).ok().map(|ms| monotonic_ns() + ms * 1_000_000);
        loop {
            // Before an error, too: see [`CompletionQueue::read`].
            if !self.has(wanted) || self.queue.lock().error_is_first() {
                self.watch.progress();
            }
            let over = end_ns.is_some_and(|end| monotonic_ns() >= end);
            let over = over || self.watch.has_failed();
            if over || self.signaled.swap(false, Ordering::AcqRel) || self.has(wanted) {
                return self.take(count, &mut sink);
            }
            if self.watch.spin(end_ns, || self.may_have(wanted)) {
                continue;
            }
            if let Some(wakes) = self.arm(wanted) {
                self.watch.sleep(wakes, end_ns);
            }
        }
    }

    /// True if the next read should not sleep: enough is there, or an error is.
    fn has(&self, wanted: usize) -> bool {
        let queue = self.queue.lock();
        queue.unread() >= wanted || queue.error_is_first()
    }

    /// The same, also true after a signal; it takes no lock as long as nothing is there.
    fn may_have(&self, wanted: usize) -> bool {
        let unread = self.unread.load(Ordering::Acquire);
        unread >= wanted
            || self.signaled.load(Ordering::Acquire)
            || (unread > 0 && self.has(wanted))
    }

    /// Arms a wake-up by the next entry. `None` if it came already.
    fn arm(&self, wanted: usize) -> Option<Wakes> {
        // An earlier signal must not end the sleep; one that comes from here on must.
        let wakes = self.watch.clear();
        let mut queue = self.queue.lock();
        let enough = queue.unread() >= wanted || queue.error_is_first();
        if enough || self.signaled.load(Ordering::Acquire) {
            // The queue stays armed: another thread may have armed it.
            return None;
        }
        queue.armed = true;
        Some(wakes)
    }

    /// True if the next read finds something.
    pub fn has_news(&self) -> bool {
        self.watch.progress();
        self.has(1)
    }

    /// `fi_trywait(3)`: true if nothing is there, and any entry makes the fd readable.
    pub fn may_sleep(&self) -> bool {
        self.watch.progress();
        if self.has(1) {
            return false;
        }
        let armed = self.arm(1).is_some();
        // A signal ends one sleep: this one does not begin.
        let signaled = self.signaled.swap(false, Ordering::AcqRel);
        armed && !signaled && self.watch.arm_fd()
    }

    /// Lets endpoints progress, and hands their entries to the owner.
    pub fn serve(&self) {
        self.watch.progress();
        self.watch.serve_owners();
        self.hand_over();
    }

    /// Ends the present sleep, or else the next.
    pub fn signal(&self) {
        self.signaled.store(true, Ordering::Release);
        self.watch.wake();
    }

    /// Whether entries go to another provider's queue.
    pub(crate) fn has_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// Hands the owner, if there is one, the entries that are there. Call it on the owner's own call, without an
    /// endpoint's lock.
    pub(crate) fn hand_over(&self) {
        let Some(owner) = &self.owner else { return };
        // The thread that holds it hands over all entries.
        let Some(_handing) = self.handing.try_lock() else { return };
        let mut queue = self.queue.lock();
        while let Some(entry) = queue.lend() {
            self.note(&queue);
            drop(queue);
            let written = owner.write(&entry);
            queue = self.queue.lock();
            if !written {
                queue.put_back(entry);
                self.note(&queue);
                return;
            }
            queue.written(&entry);
        }
    }
}
