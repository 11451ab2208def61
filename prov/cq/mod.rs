//! `fid_cq`: completion queues (`fi_cq(3)`).
//!
//! Lock order, for everything that completes: [`Watch`]'s list of endpoints, then an endpoint's
//! state, then one queue. A reader holds no lock while it sleeps.

mod calls;
mod peer;
pub mod queue;

pub use calls::{open, trywait};

use crate::domain::DomainInner;
use crate::object::{Class, Use, Users};
use crate::peer::owner::CqOwner;
use crate::poll::Sleepable;
use crate::watch::{Wakes, Watch};
use erd_ffi::fi::{FI_CLASS_CQ, FI_WAIT_FD, fi_addr_t, fid_cq};
use erd_sys::clock::monotonic_ns;
use parking_lot::Mutex;
use queue::{Account, AccountId, Entry, Format, Nothing, Queue};
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Reads with entries at hand between two looks at the network.
const READS_PER_PROGRESS: u32 = 32;

/// State of a completion queue.
pub struct CqInner {
    format: Format,
    api_version: u32,
    /// Reads wait for the number of entries that `cond` says.
    threshold: bool,
    queue: Mutex<Queue>,
    /// Entries in the queue, written under its lock: who finds none need not take that.
    unread: AtomicUsize,
    /// Endpoints that complete here, and what readers sleep on.
    pub watch: Watch,
    signaled: AtomicBool,
    reads: AtomicU32,
    /// Where the entries go, if that is another provider's queue.
    owner: Option<CqOwner>,
    /// Held while the owner is given entries, so that it gets them in order.
    handing: Mutex<()>,
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_cq` begins with its `fid`, and no other state has this class.
unsafe impl Class for CqInner {
    type Abi = fid_cq;
    const FCLASS: usize = FI_CLASS_CQ;

    fn users(&self) -> &Users {
        &self.users
    }
}

/// Where the application wants its completions.
#[derive(Clone, Copy)]
struct Target {
    buf: *mut c_void,
    count: usize,
    sources: *mut fi_addr_t,
}

impl Sleepable for CqInner {
    fn may_sleep(&self) -> bool {
        CqInner::may_sleep(self)
    }
}

impl CqInner {
    fn new(domain: &DomainInner, format: Format, threshold: bool, watch: Watch) -> Arc<CqInner> {
        Arc::new(CqInner::with(domain, (format, threshold), watch, None))
    }

    fn with(
        domain: &DomainInner,
        (format, threshold): (Format, bool),
        watch: Watch,
        owner: Option<CqOwner>,
    ) -> CqInner {
        CqInner {
            format,
            api_version: domain.api_version(),
            threshold,
            queue: Mutex::default(),
            unread: AtomicUsize::new(0),
            watch,
            signaled: AtomicBool::new(false),
            reads: AtomicU32::new(0),
            owner,
            handing: Mutex::new(()),
            users: Users::default(),
            _domain_use: domain.hold(),
        }
    }

    /// A queue whose readers are in Rust ([`CqInner::poll`]) and may sleep.
    ///
    /// # Errors
    /// A positive error number.
    pub(crate) fn for_polling(domain: &DomainInner) -> Result<Arc<CqInner>, c_int> {
        Ok(CqInner::new(
            domain,
            Format::Tagged,
            false,
            Watch::new(FI_WAIT_FD, domain.settings.spin_ns)?,
        ))
    }

    /// Hands up to `count` entries to `f`, good and bad in their order, after progress if none is
    /// there; how many.
    pub(crate) fn poll(&self, count: usize, mut f: impl FnMut(&Entry)) -> usize {
        let mut take = || {
            if self.unread.load(Ordering::Acquire) == 0 {
                return 0;
            }
            let mut queue = self.queue.lock();
            let taken = queue.take(count, &mut f);
            self.note(&queue);
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
    pub(crate) fn wait(&self, timeout_ms: i32) -> bool {
        let nowhere = Target { buf: std::ptr::null_mut(), count: 0, sources: std::ptr::null_mut() };
        // SAFETY: nothing is written, as there is room for no entry.
        let _ = unsafe { self.read_or_sleep(nowhere, 1, timeout_ms) };
        self.has(1)
    }

    /// Keeps the queue open until the answer is dropped.
    #[must_use]
    pub fn hold(&self) -> Use {
        self.users.add()
    }

    /// A new account for one direction of an endpoint.
    #[must_use]
    pub fn open_account(&self) -> (AccountId, Account) {
        self.queue.lock().open_account()
    }

    /// Adds completions, and wakes whoever waits for them.
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

    /// What the locked queue has in it now.
    fn note(&self, queue: &Queue) {
        self.unread.store(queue.unread(), Ordering::Release);
    }

    /// # Safety
    /// As [`Queue::read`].
    unsafe fn take(&self, to: Target) -> Result<usize, Nothing> {
        if self.unread.load(Ordering::Acquire) == 0 {
            return Err(Nothing::Empty);
        }
        let mut queue = self.queue.lock();
        // SAFETY: the caller vouches for the room.
        let taken = unsafe { queue.read(self.format, to.buf, to.count, to.sources) };
        self.note(&queue);
        taken
    }

    /// Reads, after progress if nothing is there.
    ///
    /// # Safety
    /// As [`Queue::read`].
    unsafe fn read(&self, to: Target) -> Result<usize, Nothing> {
        // SAFETY: the caller vouches for the room.
        let first = unsafe { self.take(to) };
        if first.is_err() {
            // Before an error, too: who peeks in vain reads only errors.
            self.watch.progress();
        }
        if first == Err(Nothing::Empty) {
            // SAFETY: as above.
            let second = unsafe { self.take(to) };
            self.watch.looked(second != Err(Nothing::Empty));
            return second;
        }
        // Who always finds entries must still answer its peers.
        if self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(READS_PER_PROGRESS) {
            self.watch.progress();
        }
        first
    }

    /// Reads, and sleeps until `wanted` entries are there, `timeout_ms` is over (never if
    /// negative) or [`CqInner::signal`] is called.
    ///
    /// # Safety
    /// As [`Queue::read`].
    unsafe fn read_or_sleep(
        &self,
        to: Target,
        wanted: usize,
        timeout_ms: i32,
    ) -> Result<usize, Nothing> {
        let end_ns = u64::try_from(timeout_ms).ok().map(|ms| monotonic_ns() + ms * 1_000_000);
        loop {
            // Before an error, too: see [`CqInner::read`].
            if !self.has(wanted) || self.queue.lock().error_is_first() {
                self.watch.progress();
            }
            let over = end_ns.is_some_and(|end| monotonic_ns() >= end);
            let over = over || self.watch.has_failed();
            if over || self.signaled.swap(false, Ordering::AcqRel) || self.has(wanted) {
                // SAFETY: the caller vouches for the room.
                return unsafe { self.take(to) };
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

    /// The same without the lock as long as nothing is there; or a signal came.
    fn may_have(&self, wanted: usize) -> bool {
        let unread = self.unread.load(Ordering::Acquire);
        unread >= wanted
            || self.signaled.load(Ordering::Acquire)
            || (unread > 0 && self.has(wanted))
    }

    /// Asks for a wake-up by the next entry. `None` if it came already.
    fn arm(&self, wanted: usize) -> Option<Wakes> {
        // What was signaled before must not end the sleep; what comes from here on must.
        let wakes = self.watch.clear();
        let mut queue = self.queue.lock();
        let enough = queue.unread() >= wanted || queue.error_is_first();
        if enough || self.signaled.load(Ordering::Acquire) {
            // Another thread may have armed the queue: that stays.
            return None;
        }
        queue.armed = true;
        Some(wakes)
    }

    /// True if the next read finds something.
    pub(crate) fn has_news(&self) -> bool {
        self.watch.progress();
        self.has(1)
    }

    /// `fi_trywait(3)`: true if nothing is there, and whatever comes makes the fd readable.
    pub(crate) fn may_sleep(&self) -> bool {
        self.watch.progress();
        if self.has(1) {
            return false;
        }
        let armed = self.arm(1).is_some();
        // A signal ends one sleep: this one does not begin.
        let signaled = self.signaled.swap(false, Ordering::AcqRel);
        armed && !signaled && self.watch.arm_timer()
    }

    /// Ends a sleep, the present one or else the next.
    pub(crate) fn signal(&self) {
        self.signaled.store(true, Ordering::Release);
        self.watch.wake();
    }
}
