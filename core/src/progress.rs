//! The helper thread: progress while the application computes.
//!
//! A process has one such thread while it has endpoints. Every few milliseconds it looks which endpoints were called.
//! If one was not called for a while, the thread drives it: it takes the endpoint's lock if that is free, progresses,
//! then sleeps on the endpoint's sockets and next deadline, so it answers peers at once. As soon as the application
//! calls again, the thread backs off.
//!
//! When the process exits normally, the thread still sends what endpoints have promised, within two seconds.
//!
//! It also serves observers outside the process ([`crate::monitor`]), and lets endpoints go over to a new key of the job
//! ([`crate::key_file`]).
//!
//! Lock order: the lock of the helper's `Seat` comes before all others.

use crate::endpoint::Endpoint;
use crate::monitor::{self, Monitor};
use crate::patience::Patience;
use crate::polled::Polled;
use erd_sys::clock::monotonic_ns;
use erd_sys::process::Process;
use erd_sys::visit::Visitor;
use erd_sys::wait::{Interest, WaitSet};
use parking_lot::{Condvar, Mutex};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest sleep between two looks, where all endpoints are patient.
const LOOK_MAX_NS: u64 = 1_000_000_000;
/// Longest wait for the thread to end when the provider is unloaded.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);

/// Longest delay of the process's exit by unacknowledged data, over all endpoints.
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// The seat of the first process that needs a thread.
static SEAT: OnceLock<Seat> = OnceLock::new();

/// The thread's place in a process. A forked child has its own seat: it lacks its parent's thread, which may have held
/// the lock.
struct Seat {
    process: Process,
    helper: Mutex<Option<Helper>>,
    stopped: Condvar,
    /// The seat of a forked child, and so on down the line of children.
    child: OnceLock<Box<Seat>>,
}

impl Seat {
    fn new() -> Seat {
        let (helper, stopped) = (Mutex::new(None), Condvar::new());
        Seat { process: Process::current(), helper, stopped, child: OnceLock::new() }
    }

    /// This process's seat, made if need be.
    fn take() -> &'static Seat {
        let mut seat = SEAT.get_or_init(Seat::new);
        while !seat.process.is_current() {
            seat = seat.child.get_or_init(|| Box::new(Seat::new()));
        }
        seat
    }

    /// This process's seat, if it has one.
    fn get() -> Option<&'static Seat> {
        let mut seat = SEAT.get()?;
        while !seat.process.is_current() {
            seat = seat.child.get()?;
        }
        Some(seat)
    }
}

/// The thread's state. Others only add and remove endpoints.
struct Helper {
    thread: JoinHandle<()>,
    set: Arc<WaitSet>,
    watched: Vec<Watched>,
    /// Exists while there is an endpoint that observers may see.
    monitor: Option<Monitor>,
    /// The thread must end.
    stop: bool,
    /// The thread has ended, or is about to.
    stopped: bool,
}

/// An endpoint, and when the application last called it.
struct Watched {
    endpoint: Arc<Endpoint>,
    calls: u64,
    /// Time at which the thread steps in if there are no more calls.
    due_ns: u64,
    patience: Patience,
    /// Its fds while the thread sleeps on them.
    driven: Fds,
}

/// An endpoint's fds, of which there are three at most.
type Fds = Vec<RawFd>;

/// In a forked child: the copies of its parent's endpoints forget the keys of their sessions.
fn forget_keys() {
    let Some(mut seat) = SEAT.get() else { return };
    while let Some(child) = seat.child.get() {
        seat = child;
    }
    let forget = || {
        let slot = seat.helper.try_lock();
        let watched = slot.iter().flat_map(|slot| slot.iter()).flat_map(|helper| &helper.watched);
        watched.for_each(|watched| watched.endpoint.forget_keys());
    };
    erd_sys::guard::run("erd-fork", forget, || ());
}

/// Puts `endpoint` under the thread's care. Starts the thread if there is none.
pub fn register(endpoint: &Arc<Endpoint>) {
    erd_sys::process::at_fork(forget_keys);
    if let Err(error) = erd_sys::at_exit::register(flush_all) {
        tracing::warn!(%error, "what is under way when the process ends may be lost");
    }
    let seat = Seat::take();
    let mut slot = seat.helper.lock();
    if slot.as_ref().is_none_or(|helper| helper.stopped) {
        *slot = start(seat, endpoint.domain.settings.progress_cpus);
    }
    if let Some(helper) = &mut *slot {
        helper.watched.push(Watched {
            endpoint: Arc::clone(endpoint),
            calls: endpoint.calls(),
            due_ns: monotonic_ns() + endpoint.patience_ns(),
            patience: Patience::default(),
            driven: Fds::new(),
        });
        helper.open_monitor();
        helper.set.signal();
    }
}

/// `endpoint` closes.
pub fn unregister(endpoint: &Arc<Endpoint>) {
    let Some(seat) = Seat::get() else { return };
    if let Some(helper) = &mut *seat.helper.lock() {
        let set = Arc::clone(&helper.set);
        helper.watched.retain_mut(|watched| {
            let other = !Arc::ptr_eq(&watched.endpoint, endpoint);
            if !other {
                watched.back_off(&set);
            }
            other
        });
        if !helper.watched.iter().any(Watched::may_be_seen) {
            helper.close_monitor();
        }
    }
}

/// At the exit of the process: sends what programs assume sent. Other threads may still be in a call, and hold any
/// lock.
fn flush_all() {
    let end = Instant::now() + EXIT_WAIT;
    let Some(slot) = Seat::get().and_then(|seat| seat.helper.try_lock_until(end)) else { return };
    let watched = slot.iter().flat_map(|helper| &helper.watched);
    let endpoints: Vec<_> = watched.map(|watched| Arc::clone(&watched.endpoint)).collect();
    drop(slot);
    for endpoint in endpoints {
        endpoint.flush_until(end);
    }
}

/// Ends the thread, and waits for it for a bounded time: its code may be unloaded after this.
pub fn shutdown() {
    crate::key_file::shutdown();
    let Some(seat) = Seat::get() else { return };
    let mut slot = seat.helper.lock();
    while let Some(helper) = &mut *slot
        && !helper.stopped
    {
        helper.stop = true;
        helper.set.signal();
        if seat.stopped.wait_for(&mut slot, SHUTDOWN_WAIT).timed_out() {
            tracing::warn!("the helper thread does not end");
            return;
        }
    }
    let last = slot.take();
    drop(slot);
    // It has nothing left to do, so this does not wait. A panic of it was reported.
    if last.is_some_and(|helper| helper.thread.join().is_err()) {
        tracing::warn!("the helper thread ended by a panic");
    }
}

/// The thread's state, once it runs. Without it only calls of the application progress.
fn start(seat: &'static Seat, processors: Option<CpuSet>) -> Option<Helper> {
    let set = match WaitSet::new() {
        Ok(set) => Arc::new(set),
        Err(error) => {
            tracing::warn!(%error, "no wait set for the helper thread");
            return None;
        }
    };
    let theirs = Arc::clone(&set);
    let ended = move || {
        if let Some(helper) = &mut *seat.helper.lock() {
            helper.stopped = true;
        }
        seat.stopped.notify_all();
    };
    let body = move || {
        if let Some(processors) = processors
            && let Err(error) = sched_setaffinity(None, &processors)
        {
            tracing::warn!(%error, "FI_ERD_PROGRESS_CPUS: the helper thread cannot run there");
        }
        run(seat, &theirs);
        ended();
    };
    match erd_sys::guard::spawn("erd-progress", body, ended) {
        Ok(thread) => {
            let (watched, monitor) = (Vec::new(), None);
            Some(Helper { thread, set, watched, monitor, stop: false, stopped: false })
        }
        Err(error) => {
            tracing::warn!(%error, "cannot start the helper thread");
            None
        }
    }
}

fn run(seat: &Seat, set: &WaitSet) {
    loop {
        let deadline_ns = match &mut *seat.helper.lock() {
            Some(helper) if !helper.stop => helper.look(monotonic_ns()),
            _ => return,
        };
        if set.arm_timer(Some(deadline_ns)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        match set.wait(None) {
            Ok(woken) if woken.visitor => tell_visitors(seat),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the helper thread cannot wait");
                return;
            }
        }
        set.clear();
    }
}

/// A bug in here must not take the thread from the endpoints.
fn tell_visitors(seat: &Seat) {
    let tell = || {
        let told = seat.helper.lock().as_mut().and_then(Helper::receive_visitors);
        // The kernel takes what it can. The lock is free meanwhile.
        if let Some((visitors, snapshot)) = told {
            monitor::tell(visitors, &snapshot);
        }
    };
    erd_sys::guard::run("erd-monitor", tell, || ());
}

impl Helper {
    fn open_monitor(&mut self) {
        if self.monitor.is_some() || !self.watched.iter().any(Watched::may_be_seen) {
            return;
        }
        let Some(monitor) = Monitor::open() else { return };
        match self.set.add_listener(monitor.fd()) {
            Ok(()) => self.monitor = Some(monitor),
            Err(error) => tracing::debug!(%error, "nobody can look in: no wait for it"),
        }
    }

    fn close_monitor(&mut self) {
        if let Some(monitor) = self.monitor.take()
            && let Err(error) = self.set.remove(monitor.fd())
        {
            tracing::debug!(%error, "the monitor was not in the helper's set");
        }
    }

    /// The connected observers, and their snapshot.
    fn receive_visitors(&mut self) -> Option<(Vec<Visitor>, String)> {
        let Some(visitors) = self.monitor.as_ref()?.visitors() else {
            self.close_monitor();
            return None;
        };
        let endpoints = self.watched.iter().map(|watched| &*watched.endpoint);
        (!visitors.is_empty()).then(|| (visitors, monitor::snapshot(endpoints)))
    }

    /// Looks at every endpoint, and drives those that the application leaves alone. Returns the time (ns) of the next
    /// look.
    fn look(&mut self, now: u64) -> u64 {
        let mut next_ns = now + LOOK_MAX_NS;
        let set = &self.set;
        for watched in &mut self.watched {
            // A bug caught in one endpoint must not take the thread from the others; the result is 0 then.
            let at_ns = erd_sys::guard::run("erd-progress", || watched.look(now, set), || ());
            next_ns = if at_ns == 0 { next_ns } else { next_ns.min(at_ns) };
        }
        next_ns
    }
}

impl Watched {
    fn may_be_seen(&self) -> bool {
        self.endpoint.domain.settings.monitor
    }

    fn look(&mut self, now: u64, set: &WaitSet) -> u64 {
        if self.endpoint.has_failed() {
            // Nobody reads this endpoint's arrivals any more.
            self.back_off(set);
            return now + LOOK_MAX_NS;
        }
        self.endpoint.renew_key();
        let patience_ns = self.endpoint.patience_ns();
        let calls = self.endpoint.calls();
        if calls != self.calls {
            self.calls = calls;
            self.due_ns = now + self.patience_after_a_call(patience_ns);
            self.back_off(set);
            return self.due_ns;
        }
        if now < self.due_ns {
            return self.due_ns;
        }
        let mut fds = Fds::new();
        let Some(step) = self.endpoint.attend(&mut |fd| fds.push(fd.as_raw_fd())) else {
            // A long call is under way, or its thread waits for a processor.
            self.due_ns = now + patience_ns;
            self.back_off(set);
            return self.due_ns;
        };
        if step.arrived {
            self.patience.found();
        }
        // A thread that sleeps on the sockets wakes as soon as this one.
        if self.endpoint.has_sleepers() {
            self.back_off(set);
        } else if self.driven.is_empty() {
            self.take_over(set, fds);
        }
        // 0 would mean a panic.
        step.deadline_ns.map_or(now + patience_ns, |at| at.min(now + patience_ns)).max(1)
    }

    fn patience_after_a_call(&mut self, full_ns: u64) -> u64 {
        match self.endpoint.domain.auto_progress {
            true => self.patience.called(full_ns),
            false => full_ns,
        }
    }

    fn take_over(&mut self, set: &WaitSet, fds: Fds) {
        self.driven = fds;
        for fd in &self.driven {
            // SAFETY: an endpoint keeps its fds until it closes, and is taken from here before that.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            if let Err(error) = set.add(fd, Interest::Readable) {
                tracing::debug!(%error, "cannot wait for a socket");
            }
        }
    }

    fn back_off(&mut self, set: &WaitSet) {
        for fd in self.driven.drain(..) {
            // SAFETY: as above.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            if let Err(error) = set.remove(fd) {
                tracing::debug!(%error, "an fd was not in the helper's set");
            }
        }
    }
}
