//! `fid_cntr`: completion counters (`fi_cntr(3)`).

use crate::domain::DomainInner;
use crate::object::{self, Class, Use, Users};
use crate::peer::owner::CntrOwner;
use crate::poll::Sleepable;
use crate::trigger::{Waiting, Work};
use crate::watch::Watch;
use erd_ffi::fi::{
    FI_CLASS_CNTR, FI_CNTR_EVENTS_BYTES, FI_CNTR_EVENTS_COMP, FI_EAGAIN, FI_EAVAIL, FI_EINVAL,
    FI_EOTHER, FI_ETIMEDOUT, FI_PEER, NOSYS_CNTR, NOSYS_FID, compat, fi_cntr_attr, fi_ops,
    fi_ops_cntr, fid, fid_cntr,
};
use erd_ffi::guard::guarded;
use erd_sys::clock::monotonic_ns;
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State of a counter.
pub struct CntrInner {
    /// Counts bytes, not completions.
    bytes: bool,
    value: AtomicU64,
    errors: AtomicU64,
    /// Both as the application saw them last: a later change must not be slept through.
    seen: [AtomicU64; 2],
    /// Both as the application read them last: until then a poll set tells of them.
    read: [AtomicU64; 2],
    /// A waiter wants to be told of the next change.
    armed: AtomicBool,
    /// What is done when the counter gets further.
    pub waiting: Waiting,
    work: Arc<Work>,
    /// Endpoints that count here, and what waiters sleep on.
    pub watch: Watch,
    /// Where all of it is counted, if that is another provider's counter, and what was so far.
    owner: Option<(CntrOwner, Mutex<(u64, u64)>)>,
    users: Users,
    _domain_use: Use,
}

// SAFETY: `fid_cntr` begins with its `fid`, and no other state has this class.
unsafe impl Class for CntrInner {
    type Abi = fid_cntr;
    const FCLASS: usize = FI_CLASS_CNTR;

    fn users(&self) -> &Users {
        &self.users
    }

    fn closing(self: &Arc<Self>) -> Result<(), c_int> {
        self.hand_over();
        self.waiting.clear();
        Ok(())
    }
}

impl Sleepable for CntrInner {
    fn may_sleep(&self) -> bool {
        CntrInner::may_sleep(self)
    }
}

impl CntrInner {
    /// Keeps the counter open until the answer is dropped.
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

    /// Makes due what waits for the counter to get where it is.
    pub fn fire(&self) {
        if self.waiting.is_needed() {
            let (value, errors) = self.values();
            self.waiting.fire(value.saturating_add(errors), &self.work);
        }
    }

    /// Whether what the counter makes due goes there.
    pub fn belongs_to(&self, work: &Work) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.work), work)
    }

    /// Increases the value.
    pub fn add(&self, by: u64) {
        self.change(&self.value, by);
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.put(&self.value, value);
    }

    fn put(&self, part: &AtomicU64, value: u64) {
        part.store(value, Ordering::SeqCst);
        self.tell();
        self.fire();
    }

    /// Does what the application's own change has made due.
    fn act(&self) -> c_int {
        self.work.run();
        0
    }

    /// Wakes a waiter. It armed before it looked, so one of both sees the other.
    fn tell(&self) {
        if self.armed.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst) {
            self.watch.wake();
        }
    }

    /// The application gets to know a part. Answers whether it knew it before.
    fn show(seen: &AtomicU64, part: u64) -> bool {
        seen.swap(part, Ordering::Relaxed) == part
    }

    /// The application reads a part.
    fn show_read(&self, part: usize, value: u64) {
        Self::show(&self.seen[part], value);
        self.read[part].store(value, Ordering::Relaxed);
    }

    /// `fi_trywait(3)`: true if nothing has changed since the application last looked, and
    /// whatever changes makes the fd readable.
    fn may_sleep(&self) -> bool {
        self.watch.progress();
        self.watch.clear();
        self.armed.store(true, Ordering::SeqCst);
        let (value, errors) = self.values();
        let known = Self::show(&self.seen[0], value) & Self::show(&self.seen[1], errors);
        known && self.watch.arm_timer()
    }

    /// True if it changed since the application last read it.
    pub(crate) fn has_news(&self) -> bool {
        self.watch.progress();
        let read = [0, 1].map(|part: usize| self.read[part].load(Ordering::Relaxed));
        self.values() != (read[0], read[1])
    }

    fn values(&self) -> (u64, u64) {
        (self.value.load(Ordering::SeqCst), self.errors.load(Ordering::SeqCst))
    }

    /// Counts at the owner, if there is one, what has not been. It calls, and no lock of an endpoint
    /// is held.
    pub(crate) fn hand_over(&self) {
        let Some((owner, told)) = &self.owner else { return };
        let now = self.values();
        let before = std::mem::replace(&mut *told.lock(), now);
        owner.count(now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
    }

    fn wait(&self, threshold: u64, timeout_ms: i32) -> c_int {
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
                return 0;
            }
            if errors != errors_before {
                return -FI_EAVAIL;
            }
            if self.watch.has_failed() {
                return -FI_EOTHER;
            }
            if end_ns.is_some_and(|end| monotonic_ns() >= end) {
                return -FI_ETIMEDOUT;
            }
            if self.watch.can_sleep() {
                self.watch.sleep(wakes, end_ns);
            } else {
                // Opened with FI_WAIT_NONE: libfabric's own tests wait on such a counter all the same.
                std::thread::yield_now();
            }
        }
    }
}

static FID_OPS: fi_ops =
    fi_ops { close: object::close::<CntrInner>, control: cntr_control, ..NOSYS_FID };

static CNTR_OPS: fi_ops_cntr = fi_ops_cntr {
    read: cntr_read,
    readerr: cntr_readerr,
    add: cntr_add,
    set: cntr_set,
    wait: cntr_wait,
    adderr: cntr_adderr,
    seterr: cntr_seterr,
    ..NOSYS_CNTR
};

/// The owner's counter is read, not this one.
static PEER_OPS: fi_ops_cntr = fi_ops_cntr { read: peer_read, ..NOSYS_CNTR };

/// The counter that stands behind one that is opened with `FI_PEER`.
///
/// # Safety
/// `context` is NULL or a `struct fi_peer_cntr_context`.
unsafe fn owner(domain: &DomainInner, bytes: bool, context: *mut c_void) -> Option<CntrOwner> {
    if !domain.takes_peers("fi_cntr_open") {
        return None;
    }
    if bytes {
        tracing::info!("fi_cntr_open: events: with FI_PEER, FI_CNTR_EVENTS_COMP alone");
        return None;
    }
    // SAFETY: the caller's promise.
    let owner = unsafe { CntrOwner::read(context) };
    if owner.is_none() {
        tracing::info!(
            "fi_cntr_open: with FI_PEER the context is a struct fi_peer_cntr_context, whose cntr \
             has owner_ops with inc and incerr"
        );
    }
    owner
}

/// `fi_cntr_open(3)`.
///
/// # Safety
/// `attr` and `cntr` are as the man page says, and `context` with `FI_PEER` as `fi_peer(3)` says.
pub unsafe fn open(
    domain: &Arc<DomainInner>,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || cntr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's attribute, read as far as its API version reaches.
    let attr = unsafe { compat::read(attr, domain.api_version()) };
    let bytes = match attr.events {
        FI_CNTR_EVENTS_COMP => false,
        FI_CNTR_EVENTS_BYTES => true,
        events => {
            tracing::info!(events, "fi_cntr_open: unknown kind of events");
            return -FI_EINVAL;
        }
    };
    if attr.flags & !FI_PEER != 0 {
        tracing::info!(attr.flags, "fi_cntr_open: flags may be FI_PEER");
        return -FI_EINVAL;
    }
    let owner = if attr.flags == FI_PEER {
        // SAFETY: the caller's promise.
        match unsafe { owner(domain, bytes, context) } {
            Some(owner) => Some((owner, Mutex::default())),
            None => return -FI_EINVAL,
        }
    } else {
        None
    };
    let (context, ops) =
        if owner.is_some() { (std::ptr::null_mut(), &PEER_OPS) } else { (context, &CNTR_OPS) };
    // SAFETY: the caller's attribute, whose wait set is open where one is meant.
    let watch = match unsafe { Watch::open(attr.wait_obj, attr.wait_set, domain.settings.spin_ns) }
    {
        Ok(watch) => watch,
        Err(errno) => return -errno,
    };
    let inner = Arc::new(CntrInner {
        bytes,
        value: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        seen: Default::default(),
        read: Default::default(),
        armed: AtomicBool::new(false),
        waiting: Waiting::default(),
        work: Arc::clone(&domain.work),
        watch,
        owner,
        users: Users::default(),
        _domain_use: domain.hold(),
    });
    if let Err(errno) = inner.watch.join_set(&inner) {
        return -errno;
    }
    let abi = fid_cntr { fid: object::base::<CntrInner>(context, &FID_OPS), ops };
    // SAFETY: the caller gave a place for the new object.
    unsafe { *cntr = object::publish(abi, inner) };
    0
}

/// `fi_trywait(3)` for a counter: 0 if it is safe to sleep on its fd until it changes.
///
/// # Safety
/// `any` is an open counter of this provider.
pub unsafe fn trywait(any: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    let Some(cntr) = (unsafe { object::from_fid::<CntrInner>(any) }) else {
        return -FI_EINVAL;
    };
    if !cntr.watch.can_sleep() {
        return -FI_EINVAL;
    }
    if cntr.may_sleep() { 0 } else { -FI_EAGAIN }
}

guarded! {
    /// The owner lets us progress.
    unsafe extern "C" fn peer_read(cntr: *mut fid_cntr) -> u64 {
        // SAFETY: the owner calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        cntr.watch.progress();
        cntr.watch.serve_owners();
        cntr.hand_over();
        0
    }

    unsafe extern "C" fn cntr_read(cntr: *mut fid_cntr) -> u64 {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        let before = cntr.values().0;
        cntr.watch.progress();
        let after = cntr.values().0;
        cntr.watch.looked(after != before);
        cntr.show_read(0, after);
        after
    }

    unsafe extern "C" fn cntr_readerr(cntr: *mut fid_cntr) -> u64 {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        cntr.watch.progress();
        let errors = cntr.values().1;
        cntr.show_read(1, errors);
        errors
    }

    unsafe extern "C" fn cntr_add(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        cntr.add(value);
        cntr.act()
    }

    unsafe extern "C" fn cntr_adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        cntr.change(&cntr.errors, value);
        cntr.act()
    }

    unsafe extern "C" fn cntr_set(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        cntr.set(value);
        cntr.act()
    }

    unsafe extern "C" fn cntr_seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        cntr.put(&cntr.errors, value);
        cntr.act()
    }

    unsafe extern "C" fn cntr_wait(
        cntr: *mut fid_cntr,
        threshold: u64,
        timeout_ms: c_int,
    ) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let cntr = unsafe { object::inner::<CntrInner>(cntr) };
        cntr.wait(threshold, timeout_ms)
    }

    unsafe extern "C" fn cntr_control(any: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        // SAFETY: libfabric calls with our open counter.
        let Some(cntr) = (unsafe { object::from_fid::<CntrInner>(any) }) else {
            return -FI_EINVAL;
        };
        // SAFETY: the argument is what fi_cntr(3) says for the command.
        unsafe { cntr.watch.control(command, arg) }
    }
}
