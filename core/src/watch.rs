//! The set of endpoints that report to a queue or counter, and the wait object that its readers sleep on.
//!
//! Lock order: the list of endpoints comes first, then an endpoint's state. Nobody sleeps while
//! holding either.

use crate::error::Error;
use crate::held::{Call, Held, Known};
use crate::look::{Look, NEVER_NS};
use crate::polled::{self, Polled, address};
use crate::spin::{Seen, Spinner};
use crate::uses::Use;
use crate::wait_group::{Sleepable, WaitGroup};
use erd_sys::clock::monotonic_ns;
use erd_sys::wait::{Interest, WaitSet};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Way in which readers wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitKind {
    /// Not at all.
    Never,
    /// On an fd.
    Fd,
    /// By giving up the processor between looks.
    Yield,
}

/// Endpoints up to which every look polls each. One system call polls one of them, or all that tell when they are due.
const ASKED_MAX: usize = 4;
/// Most endpoints that one look lets progress because they are due.
const DUES_PER_LOOK: usize = 64;
/// Looks in vain before the first that reads the clock: a peer that answers at once spares that cost.
const LOOKS_BEFORE_CLOCK: u32 = 16;
/// From then on one look of so many reads it: reading it takes a third of a look at shared memory.
const LOOKS_PER_CLOCK: u32 = 8;
/// Time of looking in vain after which the thread yields between looks. Where processes outnumber processors, the
/// awaited peer may be waiting for this one.
const VAIN_NS: u64 = 40_000;
/// A yield that took at most this many times the shortest found no other thread that wants the processor: ...
const YIELD_SLACK: u64 = 4;
/// ... then looks go on for so many times its duration before the next yield. Otherwise one look follows each yield.
const YIELD_PAUSE: u64 = 8;

/// Wake-ups so far. A thread that goes to sleep passes the number that it had seen before its last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wakes(u64);

/// Threads asleep. The first of them, the leader, sleeps on the wait set, the others until it returns: of several on
/// one set, one could cancel the wake-up of another.
#[derive(Default)]
struct Sleepers {
    count: u32,
    led: bool,
    wakes: Wakes,
}

/// The endpoints that report to one queue or counter. Every look polls each of a few. When there are many, it polls
/// those that tell their due times only when due.
#[derive(Default)]
struct Members {
    /// By place; `None` for one that is free.
    places: Vec<Option<Arc<dyn Polled>>>,
    count: usize,
    /// Their memory addresses, to find whether an endpoint is among them.
    addresses: HashSet<usize>,
    /// Places of those that every look polls.
    asked: Vec<u32>,
    /// The due times that the others tell, once there are many.
    look: Option<Arc<Look>>,
}

impl Members {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Polled>> {
        self.places.iter().flatten()
    }

    fn asked(&self) -> impl Iterator<Item = &Arc<dyn Polled>> {
        self.asked.iter().filter_map(|place| self.at(*place))
    }

    /// True if each look lets the endpoint at this address progress when it has something to do.
    fn has(&self, address: usize) -> bool {
        self.addresses.contains(&address)
    }

    fn at(&self, place: u32) -> Option<&Arc<dyn Polled>> {
        self.places.get(place as usize)?.as_ref()
    }

    fn add(&mut self, endpoint: &Arc<dyn Polled>, set: Option<&WaitSet>) {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        if free.is_none() {
            self.places.push(None);
        }
        self.places[place] = Some(Arc::clone(endpoint));
        self.addresses.insert(address(Arc::as_ptr(endpoint)));
        self.count += 1;
        match (&self.look, set) {
            (Some(look), Some(set)) if endpoint.join_look(look, place as u32) => {
                listen(set, &**endpoint, Some(place as u32));
            }
            _ => {
                self.asked.push(place as u32);
                set.iter().for_each(|set| listen(set, &**endpoint, None));
            }
        }
    }

    fn remove(&mut self, endpoint: &dyn Polled, set: Option<&WaitSet>) {
        let is_it = |known: &Option<Arc<dyn Polled>>| {
            known.as_ref().is_some_and(|known| address(Arc::as_ptr(known)) == address(endpoint))
        };
        let Some(place) = self.places.iter().position(is_it) else { return };
        set.iter().for_each(|set| ignore(set, endpoint));
        self.look.iter().for_each(|look| endpoint.leave_look(look));
        self.asked.retain(|asked| *asked != place as u32);
        self.places[place] = None;
        self.addresses.remove(&address(endpoint));
        self.count -= 1;
    }

    /// Switches to a shared look, now that there are many.
    fn share_look(&mut self, set: &WaitSet) {
        let look = Arc::new(Look::default());
        for place in std::mem::take(&mut self.asked) {
            let Some(endpoint) = self.at(place) else { continue };
            if endpoint.join_look(&look, place) {
                ignore(set, &**endpoint);
                listen(set, &**endpoint, Some(place));
            } else {
                self.asked.push(place);
            }
        }
        self.look = Some(look);
    }

    /// Lets endpoints that have something to do progress. True if something had arrived.
    fn progress(&self, look: &Look, set: &WaitSet) -> bool {
        look.count();
        // Arrivals in this look make their acknowledgements due at a later one: until then the application can answer,
        // and its answer carries them.
        let now = monotonic_ns();
        let mut arrived = self.progress_asked();
        let arrivals = set.ready(|place| {
            arrived |= self.at(place).is_some_and(|endpoint| endpoint.progress());
        });
        if let Err(error) = arrivals {
            tracing::warn!(%error, "cannot look for arrivals");
        }
        for _ in 0..DUES_PER_LOOK {
            let Some(place) = look.pop_due(now) else { break };
            if self.at(place).is_some_and(|one| !one.progress_if_due(now)) {
                look.tell(place, now);
                break;
            }
        }
        // Work that counters have made due belongs to no endpoint.
        self.all().next().into_iter().for_each(|one| one.work());
        arrived
    }

    fn progress_asked(&self) -> bool {
        self.asked().fold(false, |arrived, endpoint| endpoint.progress() | arrived)
    }
}

/// See the module's text.
pub struct Watch {
    kind: WaitKind,
    /// Longest spin of a reader before it sleeps.
    spin_ns: u64,
    spinner: Spinner,
    /// The wait set (`fi_wait(3)`) that it belongs to.
    with: Option<(Arc<WaitGroup>, Use)>,
    /// Looks in vain since the last that found something.
    vain: AtomicU32,
    /// Time at which the next look in vain yields; 0 until looks have been in vain for a while.
    yield_due_ns: AtomicU64,
    /// Duration of the shortest yield.
    yield_least_ns: AtomicU64,
    members: RwLock<Members>,
    /// Endpoints of the domain that hold messages back, and what this watch has seen of them.
    held: Arc<Held>,
    known: Known,
    /// Made when first needed: a queue without sleepers costs no fds.
    set: OnceLock<WaitSet>,
    /// Threads that are about to sleep, or do. They say so before they look for the last time.
    sleeping: AtomicU32,
    /// Somebody may sleep on the fd, until a read finds something.
    fd_waited: AtomicBool,
    /// Held while the set's timer is set.
    timer: Mutex<()>,
    /// Comes after all other locks.
    sleepers: Mutex<Sleepers>,
    /// The leader has returned, or there was a wake-up.
    returned: Condvar,
}

impl Watch {
    /// For an object of the domain with this list. Its readers wait as `kind` says, and spin for at most `spin_ns`
    /// before they sleep.
    #[must_use]
    pub fn new(kind: WaitKind, spin_ns: u64, held: &Arc<Held>) -> Watch {
        Watch {
            kind,
            spin_ns,
            spinner: Spinner::default(),
            with: None,
            vain: AtomicU32::new(0),
            yield_due_ns: AtomicU64::new(0),
            yield_least_ns: AtomicU64::new(u64::MAX),
            members: RwLock::default(),
            held: Arc::clone(held),
            known: Known::default(),
            set: OnceLock::new(),
            sleeping: AtomicU32::new(0),
            fd_waited: AtomicBool::new(false),
            timer: Mutex::default(),
            sleepers: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// For an object whose readers sleep on a wait set.
    #[must_use]
    pub fn in_set(set: &Arc<WaitGroup>, spin_ns: u64, held: &Arc<Held>) -> Watch {
        let with = Some((Arc::clone(set), set.hold()));
        Watch { with, ..Watch::new(WaitKind::Fd, spin_ns, held) }
    }

    /// Way in which readers wait.
    #[must_use]
    pub fn kind(&self) -> WaitKind {
        self.kind
    }

    /// Adds `owner`, whose watch this is, to its wait set.
    ///
    /// # Errors
    /// Error of adding it.
    pub fn join_set<T: Sleepable + 'static>(&self, owner: &Arc<T>) -> Result<(), Error> {
        let Some((set, _)) = &self.with else { return Ok(()) };
        let fd = self.fd().map_err(|error| Error::of_system(&error, Error::Invalid))?;
        let owner = Arc::downgrade(owner);
        set.add(owner, fd, self.spin_ns)
    }

    /// Readers may sleep.
    #[must_use]
    pub fn can_sleep(&self) -> bool {
        self.kind != WaitKind::Never
    }

    /// From now on `endpoint` reports here. A second time changes nothing.
    pub fn add(&self, endpoint: &Arc<dyn Polled>) {
        let mut members = self.members.write();
        if members.has(address(Arc::as_ptr(endpoint))) {
            return;
        }
        members.add(endpoint, self.set.get());
        if members.count > ASKED_MAX && members.look.is_none() {
            match self.set_of(&members) {
                Ok(set) => members.share_look(set),
                Err(error) => tracing::info!(%error, "each look asks every endpoint"),
            }
        }
    }

    /// `endpoint` closes.
    pub fn remove(&self, endpoint: &dyn Polled) {
        self.members.write().remove(endpoint, self.set.get());
    }

    /// Lets every endpoint that has something to do progress, unless another thread works on it. True if something had
    /// arrived.
    pub fn progress(&self) -> bool {
        let members = self.members.read();
        let arrived = match (&members.look, self.set.get()) {
            (Some(look), Some(set)) => members.progress(look, set),
            _ => members.progress_asked(),
        };
        if members.count > 0 {
            self.held.free(Call::Read, &self.known, |endpoint| members.has(endpoint));
        }
        arrived
    }

    /// Offers the messages of every endpoint to the provider that has their receives.
    pub(crate) fn serve_owners(&self) {
        self.members.read().all().for_each(|endpoint| endpoint.serve_owner());
    }

    /// True if a bug has failed an endpoint that reports here, so it will report no more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        polled::any_has_failed() && self.members.read().all().any(|one| one.has_failed())
    }

    /// Records whether a reader that polls found something.
    pub fn looked(&self, found: bool) {
        // Threads that overwrite each other's count do no harm.
        let vain = if found { 0 } else { self.vain.load(Ordering::Relaxed).wrapping_add(1) };
        self.vain.store(vain, Ordering::Relaxed);
        if vain < LOOKS_BEFORE_CLOCK || !vain.is_multiple_of(LOOKS_PER_CLOCK) {
            return;
        }
        if vain == LOOKS_BEFORE_CLOCK {
            self.yield_due_ns.store(0, Ordering::Relaxed);
        }
        self.looked_long();
    }

    /// Yields when looks have been in vain for long.
    fn looked_long(&self) {
        let due_ns = self.yield_due_ns.load(Ordering::Relaxed);
        let now = monotonic_ns();
        if due_ns == 0 {
            self.yield_due_ns.store(now + VAIN_NS, Ordering::Relaxed);
        } else if now >= due_ns {
            std::thread::yield_now();
            let after = monotonic_ns();
            let least_ns = self.yield_least_ns.fetch_min(after - now, Ordering::Relaxed);
            self.yield_due_ns.store(after + pause_ns(after - now, least_ns), Ordering::Relaxed);
        }
    }

    /// Before a sleep: looks until `found`, while that pays. True if the caller need not sleep, also because `end_ns`
    /// is over.
    pub(crate) fn spin(&self, end_ns: Option<u64>, found: impl Fn() -> bool) -> bool {
        if self.kind != WaitKind::Fd {
            return false;
        }
        self.spinner.spin(self.spin_ns, end_ns, || {
            let arrived = self.progress();
            match arrived {
                _ if found() => Seen::Found,
                true => Seen::Arrived,
                false => Seen::Nothing,
            }
        })
    }

    /// Sleeps until something may have happened since [`Watch::clear`] returned `seen`, at the latest until `end_ns`.
    pub fn sleep(&self, seen: Wakes, end_ns: Option<u64>) {
        if self.kind == WaitKind::Yield {
            std::thread::yield_now();
            return;
        }
        let set = match self.set() {
            Ok(set) => set,
            Err(error) => {
                tracing::warn!(%error, "no wait object: polling instead");
                std::thread::sleep(Duration::from_millis(1));
                return;
            }
        };
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        if self.arm_timer() {
            self.sleep_on(set, seen, end_ns);
        }
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
    }

    fn sleep_on(&self, set: &WaitSet, seen: Wakes, end_ns: Option<u64>) {
        let left = end_ns.map(|end| Duration::from_nanos(end.saturating_sub(monotonic_ns())));
        let mut sleepers = self.sleepers.lock();
        if sleepers.wakes != seen {
            return;
        }
        sleepers.count += 1;
        if sleepers.led {
            match left {
                Some(left) => drop(self.returned.wait_for(&mut sleepers, left)),
                None => self.returned.wait(&mut sleepers),
            }
            sleepers.count -= 1;
            return;
        }
        sleepers.led = true;
        drop(sleepers);
        let woken = set.wait(left);
        let mut sleepers = self.sleepers.lock();
        (sleepers.led, sleepers.count) = (false, sleepers.count - 1);
        drop(sleepers);
        self.returned.notify_all();
        if let Err(error) = woken {
            tracing::warn!(%error, "cannot wait");
        }
    }

    /// True while a thread of the application sleeps here.
    #[must_use]
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.lock().count > 0
    }

    /// True if somebody sleeps here, is about to, or may sleep on the fd.
    #[must_use]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) > 0 || self.fd_waited.load(Ordering::Relaxed)
    }

    /// A read has found something: nobody sleeps on the fd who has not asked again.
    pub(crate) fn note_read(&self) {
        if self.fd_waited.load(Ordering::Relaxed) {
            self.fd_waited.store(false, Ordering::Relaxed);
        }
    }

    /// [`Watch::arm_timer`] for somebody who sleeps on the fd.
    pub(crate) fn arm_fd(&self) -> bool {
        self.fd_waited.store(true, Ordering::SeqCst);
        self.arm_timer()
    }

    /// Sets the timer to the first deadline of all endpoints. False if one is due already.
    fn arm_timer(&self) -> bool {
        let Ok(set) = self.set() else { return false };
        // After the caller has said that it is about to sleep.
        fence(Ordering::SeqCst);
        let members = self.members.read();
        let told_ns = members.look.as_ref().map(|look| look.next_ns()).filter(|at| *at != NEVER_NS);
        let asked = members.asked().filter_map(|endpoint| endpoint.deadline_ns());
        let first_ns = asked.chain(told_ns).min();
        drop(members);
        if first_ns.is_some_and(|at| at <= monotonic_ns()) {
            return false;
        }
        let _held = self.timer.lock();
        set.arm_timer(first_ns).is_ok()
    }

    /// Ends all present sleeps, or else the next one.
    pub fn wake(&self) {
        if let Some(set) = self.set.get() {
            let mut sleepers = self.sleepers.lock();
            sleepers.wakes = Wakes(sleepers.wakes.0.wrapping_add(1));
            drop(sleepers);
            self.returned.notify_all();
            set.signal();
        }
    }

    /// Clears earlier wake-ups, unless a sleeping thread may not have seen them, and makes sure that no later one is
    /// missed. Pass the result to [`Watch::sleep`].
    pub fn clear(&self) -> Wakes {
        if self.kind == WaitKind::Fd
            && let Ok(set) = self.set()
        {
            let sleepers = self.sleepers.lock();
            if !sleepers.led {
                set.clear();
            }
            return sleepers.wakes;
        }
        Wakes::default()
    }

    /// The fd that readers can sleep on.
    ///
    /// # Errors
    /// The system has no fd left.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.set().map(WaitSet::fd)
    }

    fn set(&self) -> io::Result<&WaitSet> {
        match self.set.get() {
            Some(set) => Ok(set),
            None => self.set_of(&self.members.write()),
        }
    }

    /// The epoll set of all members; the first call makes it. The caller holds the members' lock for writing,
    /// so no member is missing from the set.
    fn set_of(&self, members: &Members) -> io::Result<&WaitSet> {
        if let Some(set) = self.set.get() {
            return Ok(set);
        }
        let set = WaitSet::new()?;
        members.all().for_each(|endpoint| listen(&set, &**endpoint, None));
        Ok(self.set.get_or_init(|| set))
    }
}

/// Time of looks (ns) after a yield of `took_ns`, where the shortest before took `least_ns`.
fn pause_ns(took_ns: u64, least_ns: u64) -> u64 {
    if took_ns <= least_ns.saturating_mul(YIELD_SLACK) { YIELD_PAUSE * took_ns } else { 0 }
}

/// Adds the endpoint's fds to the set, which reports arrivals by its place if that is given.
fn listen(set: &WaitSet, endpoint: &dyn Polled, place: Option<u32>) {
    endpoint.each_fd(&mut |fd| {
        let added = match place {
            Some(place) => set.add_numbered(fd, place),
            None => set.add(fd, Interest::Readable),
        };
        if let Err(error) = added {
            tracing::warn!(%error, "cannot wait for a socket");
        }
    });
}

/// The opposite of [`listen`].
fn ignore(set: &WaitSet, endpoint: &dyn Polled) {
    endpoint.each_fd(&mut |fd| {
        if let Err(error) = set.remove(fd) {
            tracing::debug!(%error, "an fd was not in the wait set");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_the_processor_gets_it_at_each_look() {
        assert_eq!(pause_ns(300, u64::MAX), 8 * 300, "the first");
        assert_eq!(pause_ns(900, 300), 8 * 900, "nobody waited");
        assert_eq!(pause_ns(3_000_000, 300), 0, "somebody ran");
    }
}
