//! Threads that make address handles, so that no sender waits for the network.
//!
//! The kernel resolves a peer's hardware address while it makes a handle. It waits up to a second for a host that does
//! not answer; libibverbs, in front of an older kernel, waits 3 s. `handles` decides what is to be made, here it
//! is made.
//!
//! There are two lanes with a thread each, which the first job starts. So a host that died delays how often handles are
//! renewed, but not the first handle to another host. A thread holds the lock only between its jobs.

use super::gid::Gid;
use erd_sys::process::Process;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a handle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Way {
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) flow_label: u32,
    pub(super) traffic_class: u8,
}

/// What a job is for; each has its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Nothing can be sent that way yet.
    New,
    /// A handle that is there grows old.
    Renewal,
}

const LANES: usize = 2;
/// Longest wait for the threads when the port closes.
const CLOSE_WAIT: Duration = Duration::from_millis(50);

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) way: Way,
    pub(super) lane: Lane,
}

/// What became of a job.
pub(super) type Made<H> = (Way, io::Result<H>);

struct State<H> {
    /// As many as `handles` has asked for and not taken yet, which it bounds.
    jobs: [VecDeque<Way>; LANES],
    busy: [bool; LANES],
    done: Vec<Made<H>>,
    /// Handles to destroy, which takes a system call each; `handles` bounds them.
    useless: Vec<H>,
    /// Those, and others that are just being destroyed.
    going: usize,
    threads: [Option<JoinHandle<()>>; LANES],
    stop: bool,
}

struct Shared<H> {
    state: Mutex<State<H>>,
    work: Condvar,
    answered: Condvar,
    /// Something is in `done`.
    has_done: AtomicBool,
    make: Box<dyn Fn(Way) -> io::Result<H> + Send + Sync>,
}

/// See the module's text.
pub(super) struct Maker<H: Send + 'static> {
    shared: Arc<Shared<H>>,
    process: Process,
}

impl<H: Send + 'static> fmt::Debug for Maker<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

impl<H: Send + 'static> Maker<H> {
    /// A maker that makes handles by `make`.
    pub(super) fn new(make: impl Fn(Way) -> io::Result<H> + Send + Sync + 'static) -> Maker<H> {
        let state = State {
            jobs: Default::default(),
            busy: [false; LANES],
            done: Vec::new(),
            useless: Vec::new(),
            going: 0,
            threads: [None, None],
            stop: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            answered: Condvar::new(),
            has_done: AtomicBool::new(false),
            make: Box::new(make),
        };
        Maker { shared: Arc::new(shared), process: Process::current() }
    }

    /// Has a handle made. True if nothing is before it, so the result may come soon ([`Maker::wait`]).
    pub(super) fn ask(&self, job: Job) -> bool {
        let mut state = self.shared.state.lock();
        let lane = job.lane as usize;
        let alone = !state.busy[lane] && state.jobs[lane].is_empty();
        match self.start(&mut state, lane) {
            Ok(()) => state.jobs[lane].push_back(job.way),
            Err(error) => {
                tracing::warn!(%error, "no thread for address handles");
                state.done.push((job.way, Err(error)));
                self.shared.has_done.store(true, Ordering::Release);
            }
        }
        self.shared.work.notify_all();
        alone
    }

    /// Has handles destroyed.
    pub(super) fn destroy(&self, useless: impl Iterator<Item = H>) {
        let mut useless = useless.peekable();
        if useless.peek().is_none() {
            return;
        }
        let mut state = self.shared.state.lock();
        let before = state.useless.len();
        state.useless.extend(useless);
        state.going += state.useless.len() - before;
        // Without a thread they stay until the port closes.
        let _ = self.start(&mut state, Lane::Renewal as usize);
        self.shared.work.notify_all();
    }

    /// Handles to destroy that are not destroyed yet.
    pub(super) fn going(&self) -> usize {
        self.shared.state.lock().going
    }

    fn start(&self, state: &mut MutexGuard<'_, State<H>>, lane: usize) -> io::Result<()> {
        if state.threads[lane].is_some() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let thread = erd_sys::guard::spawn("erd-handles", move || shared.run(lane), || ())?;
        state.threads[lane] = Some(thread);
        Ok(())
    }

    /// Takes what has been made.
    pub(super) fn take(&self) -> Vec<Made<H>> {
        // Most often there is nothing.
        if !self.shared.has_done.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut state = self.shared.state.lock();
        self.shared.has_done.store(false, Ordering::Release);
        std::mem::take(&mut state.done)
    }

    /// Waits until something has been made, for so long at most. True if something is there.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.shared.state.lock();
        while state.done.is_empty() {
            if self.shared.answered.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        !state.done.is_empty()
    }
}

impl<H: Send> Shared<H> {
    /// A thread's work.
    fn run(&self, lane: usize) {
        let mut state = self.state.lock();
        while !state.stop {
            let useless = std::mem::take(&mut state.useless);
            let gone = useless.len();
            let job = if gone == 0 { state.jobs[lane].pop_front() } else { None };
            if job.is_none() && gone == 0 {
                self.work.wait(&mut state);
                continue;
            }
            state.busy[lane] = true;
            let made = MutexGuard::unlocked(&mut state, || {
                drop(useless);
                job.map(|way| (way, (self.make)(way)))
            });
            state.busy[lane] = false;
            state.going -= gone;
            if let Some(made) = made {
                state.done.push(made);
                self.has_done.store(true, Ordering::Release);
            }
            self.answered.notify_all();
        }
    }
}

impl<H: Send + 'static> Drop for Maker<H> {
    /// Ends the threads. One that still waits for the network ends after this, and closes the device then.
    fn drop(&mut self) {
        // A forked child lacks the threads, one of which may have held the lock.
        if !self.process.is_current() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.stop = true;
        self.shared.work.notify_all();
        let until = Instant::now() + CLOSE_WAIT;
        while state.busy.contains(&true)
            && !self.shared.answered.wait_until(&mut state, until).timed_out()
        {}
        let busy = state.busy;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        for (thread, busy) in threads.into_iter().zip(busy) {
            if let Some(thread) = thread.filter(|_| !busy) {
                let _ = thread.join();
            }
        }
    }
}
