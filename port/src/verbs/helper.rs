//! A thread that takes work off the caller's hands, a piece at a time.
//!
//! The kernel plays Soft-RoCE's device within `ibv_post_send`, on the processor that calls: of the time
//! that a sender of long messages takes, nine tenths. A port of such a device may have one of these, which
//! posts half of each long burst while the caller posts the other (`docs/verbs.md`).

use erd_ffi::guard;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A piece of work.
pub(super) trait Work: Send + 'static {
    /// Does it.
    fn run(&mut self);
}

/// The thread was lost to a bug of ours, with its work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost;

/// The one piece that it takes.
enum Slot<W> {
    Empty,
    /// With the processor of who gave it.
    Given(W, usize),
    AtWork,
    Done(W),
    Lost,
}

impl<W> Slot<W> {
    /// Work that the thread is not at.
    fn take(&mut self) -> Result<Option<W>, Lost> {
        match std::mem::replace(self, Slot::Empty) {
            Slot::Given(work, _) | Slot::Done(work) => Ok(Some(work)),
            Slot::Empty => Ok(None),
            Slot::AtWork => {
                *self = Slot::AtWork;
                Ok(None)
            }
            Slot::Lost => {
                *self = Slot::Lost;
                Err(Lost)
            }
        }
    }
}

struct State<W> {
    slot: Slot<W>,
    stop: bool,
}

struct Shared<W> {
    state: Mutex<State<W>>,
    /// There is work, or it is to stop.
    given: Condvar,
    /// The work is done.
    done: Condvar,
}

/// See the module's text. Dropping it ends the thread; work that it has not begun is not done.
pub(super) struct Helper<W: Work> {
    shared: Arc<Shared<W>>,
    thread: Option<JoinHandle<()>>,
    /// It was given work that was not taken back.
    owes: bool,
}

impl<W: Work> Helper<W> {
    /// Starts the thread; `None` if it could only take the caller's own processor.
    ///
    /// # Errors
    /// The system has none to give.
    pub(super) fn start() -> std::io::Result<Option<Helper<W>>> {
        let allowed = sched_getaffinity(None)?;
        if allowed.count() < 2 {
            return Ok(None);
        }
        let state = Mutex::new(State { slot: Slot::Empty, stop: false });
        let (given, done) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state, given, done });
        let (theirs, ended) = (Arc::clone(&shared), Arc::clone(&shared));
        let on_panic = move || {
            ended.lock().slot = Slot::Lost;
            ended.done.notify_all();
        };
        let thread = Some(guard::spawn("erd-post", move || theirs.serve(allowed), on_panic)?);
        Ok(Some(Helper { shared, thread, owes: false }))
    }

    /// Gives it work. It owes none.
    pub(super) fn give(&mut self, work: W) {
        assert!(!std::mem::replace(&mut self.owes, true), "a piece at a time");
        let mut state = self.shared.lock();
        if !matches!(state.slot, Slot::Lost) {
            state.slot = Slot::Given(work, sched_getcpu());
        }
        drop(state);
        self.shared.given.notify_one();
    }

    /// Takes its work back if it is done, or not begun.
    pub(super) fn take_back(&mut self) -> Result<Option<W>, Lost> {
        if !self.owes {
            return Ok(None);
        }
        let mut state = self.shared.lock();
        let back = state.slot.take();
        self.owes = matches!(back, Ok(None));
        back
    }

    /// Likewise, but what it is at is waited for.
    pub(super) fn recall(&mut self) -> Result<Option<W>, Lost> {
        let mut state = self.shared.lock();
        while matches!(state.slot, Slot::AtWork) {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.owes = false;
        state.slot.take()
    }

    /// Lets go of a thread that a forked child does not have.
    pub(super) fn forget(mut self) {
        std::mem::forget(self.thread.take());
    }
}

impl<W> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Work> Shared<W> {
    fn serve(&self, allowed: CpuSet) {
        let mut state = self.lock();
        while !state.stop {
            if !matches!(state.slot, Slot::Given(..)) {
                state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let slot = std::mem::replace(&mut state.slot, Slot::AtWork);
            drop(state);
            let Slot::Given(mut work, giver) = slot else { unreachable!("it was looked at") };
            keep_off(giver, allowed);
            work.run();
            state = self.lock();
            state.slot = Slot::Done(work);
            self.done.notify_all();
        }
    }
}

/// Keeps this thread off a processor. Who is woken often finds itself on the processor of who woke it,
/// and there it would only take the other's time.
fn keep_off(processor: usize, allowed: CpuSet) {
    let mut others = allowed;
    others.unset(processor);
    if sched_getcpu() == processor
        && let Err(error) = sched_setaffinity(None, &others)
    {
        tracing::debug!(%error, processor, "the helper stays where it is");
    }
}

impl<W: Work> Drop for Helper<W> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.lock().stop = true;
        self.shared.given.notify_one();
        // A panic of it was caught and told.
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Tells its number when it is done; one with a gate says that it has begun, and waits for that.
    struct Numbered {
        number: usize,
        gate: Option<(Sender<()>, Receiver<()>)>,
        tell: Sender<usize>,
        done: bool,
    }

    impl Work for Numbered {
        fn run(&mut self) {
            if let Some((begun, gate)) = &self.gate {
                let _ = begun.send(());
                gate.recv().expect("a bug, for the test");
            }
            let _ = self.tell.send(self.number);
            self.done = true;
        }
    }

    struct Bench {
        helper: Helper<Numbered>,
        tell: Sender<usize>,
        told: Receiver<usize>,
    }

    /// `None` where there is one processor.
    fn bench() -> Option<Bench> {
        let (tell, told) = channel();
        let helper = Helper::start().expect("a thread");
        assert_eq!(helper.is_none(), sched_getaffinity(None).is_ok_and(|set| set.count() < 2));
        helper.map(|helper| Bench { helper, tell, told })
    }

    impl Bench {
        fn give(&mut self, number: usize) {
            let tell = self.tell.clone();
            self.helper.give(Numbered { number, gate: None, tell, done: false });
        }

        /// Work that has begun and ends when something is sent.
        fn give_gated(&mut self, number: usize) -> Sender<()> {
            let ((begun, wait), (open, gate)) = (channel(), channel());
            let (gate, tell) = (Some((begun, gate)), self.tell.clone());
            self.helper.give(Numbered { number, gate, tell, done: false });
            wait.recv().expect("it begins");
            open
        }

        fn told(&self) -> Vec<usize> {
            self.told.try_iter().collect()
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn work_comes_back_done_or_will_not_be() {
        let Some(mut bench) = bench() else { return };
        for number in 0..200 {
            bench.give(number);
            if number % 3 == 0 {
                assert_eq!(bench.told.recv(), Ok(number), "without being asked");
            }
            let back = bench.helper.recall().expect("no bug").expect("it was given");
            assert_eq!(back.number, number);
            let told = bench.told();
            assert_eq!(told, if back.done && number % 3 > 0 { vec![number] } else { vec![] });
            assert!(bench.helper.take_back().is_ok_and(|back| back.is_none()), "once");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn what_is_begun_is_waited_for_or_left() {
        let Some(mut bench) = bench() else { return };
        let open = bench.give_gated(100);
        assert!(bench.helper.take_back().is_ok_and(|back| back.is_none()), "it is at work");
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            open.send(()).expect("it is at work until then");
        });
        assert!(bench.helper.recall().is_ok_and(|back| back.is_some_and(|work| work.done)));
        assert_eq!(bench.told(), [100]);
        opener.join().expect("no panic");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn its_end_waits_for_what_it_is_at() {
        let Some(mut bench) = bench() else { return };
        let open = bench.give_gated(1);
        let Bench { helper, told, .. } = bench;
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            open.send(()).expect("it is at work until then");
        });
        drop(helper);
        assert_eq!(told.try_recv(), Ok(1));
        opener.join().expect("no panic");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes system calls that Miri does not know")]
    fn a_bug_is_told_and_nobody_waits_for_it() {
        let Some(mut bench) = bench() else { return };
        drop(bench.give_gated(1));
        assert!(bench.helper.recall().is_err());
        assert!(bench.told().is_empty());
        assert!(bench.helper.recall().is_err(), "for good");
    }
}
