//! A place where threads wait for each other, over and over: each time until all are there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

/// Most looks for the others before a thread sleeps: to fall asleep and to be woken take longer than most waits.
const LOOKS_MAX: u32 = 1 << 12;
/// Fewest looks where each thread has a processor. They are as many as this while others need the processors.
const LOOKS_MIN: u32 = 1 << 8;
/// In place of the meetings that are over: a thread will not come any more.
const BROKEN: u64 = u64::MAX;

/// Processors that this process may use. To count them takes files and system calls.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// See the module.
#[derive(Debug)]
pub(super) struct Meeting {
    threads: usize,
    /// Looks of a thread that has not waited yet. Where threads share a processor, a look would only keep the others from
    /// coming.
    looks: u32,
    here: AtomicUsize,
    /// Meetings that are over, or [`BROKEN`].
    over: AtomicU64,
    /// Threads that sleep.
    sleepers: Mutex<usize>,
    ended: Condvar,
}

/// A thread that comes to the meetings, and how often it looks for the others before it sleeps. If it panics, it takes
/// the others with it: they would wait for ever.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    meeting: &'a Meeting,
    looks: u32,
}

impl Meeting {
    pub(super) fn new(threads: usize) -> Meeting {
        Meeting {
            threads,
            looks: if *PROCESSORS < threads { 0 } else { LOOKS_MAX },
            here: AtomicUsize::new(0),
            over: AtomicU64::new(0),
            sleepers: Mutex::new(0),
            ended: Condvar::new(),
        }
    }

    /// One of the threads.
    pub(super) fn guest(&self) -> Guest<'_> {
        Guest { meeting: self, looks: self.looks }
    }

    /// Lets all go on that wait.
    fn end(&self, over: u64) {
        // With the lock held: nobody is between a last look and sleep.
        let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.over.store(over, Ordering::SeqCst);
        if *sleepers > 0 {
            self.ended.notify_all();
        }
    }

    fn sleep(&self, before: u64) {
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers += 1;
        while self.over.load(Ordering::SeqCst) == before {
            sleepers = self.ended.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
        *sleepers -= 1;
    }
}

impl Guest<'_> {
    /// Waits until all threads are here.
    ///
    /// # Panics
    /// Another thread has panicked.
    pub(super) fn wait(&mut self) {
        let meeting = self.meeting;
        let before = meeting.over.load(Ordering::SeqCst);
        if before != BROKEN {
            if meeting.here.fetch_add(1, Ordering::SeqCst) + 1 == meeting.threads {
                meeting.here.store(0, Ordering::SeqCst);
                return meeting.end(before + 1);
            }
            if !self.looks_for(before) {
                meeting.sleep(before);
            }
        }
        let over = meeting.over.load(Ordering::SeqCst);
        assert!(over != BROKEN, "another thread of this run has panicked");
    }

    /// Looks for the others for a while. False if they have not come.
    fn looks_for(&mut self, before: u64) -> bool {
        for _ in 0..self.looks {
            if self.meeting.over.load(Ordering::SeqCst) != before {
                self.looks = (self.looks * 2).min(LOOKS_MAX);
                return true;
            }
            std::hint::spin_loop();
        }
        self.looks = self.looks.min((self.looks / 2).max(LOOKS_MIN));
        false
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.meeting.end(BROKEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No thread is a meeting ahead of another one, whether they come soon or late.
    fn meet_over_and_over<const THREADS: usize>() {
        let meeting = Meeting::new(THREADS);
        let passed = [const { AtomicU64::new(0) }; THREADS];
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (meeting, passed) = (&meeting, &passed);
                scope.spawn(move || {
                    let mut guest = meeting.guest();
                    for round in 0..300 {
                        if round % 100 == number as u64 {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                        passed[number].store(round + 1, Ordering::SeqCst);
                        guest.wait();
                        let least = passed.iter().map(|p| p.load(Ordering::SeqCst)).min();
                        assert!(least > Some(round), "all have come to round {round}");
                        guest.wait();
                    }
                });
            }
        });
    }

    #[test]
    fn threads_that_have_a_processor_each_meet() {
        meet_over_and_over::<2>();
    }

    /// More threads than processors, which never look.
    #[test]
    fn threads_that_share_processors_meet() {
        const THREADS: usize = 40;
        meet_over_and_over::<THREADS>();
        let is_patient = Meeting::new(THREADS).guest().looks > 0;
        assert_eq!(is_patient, *PROCESSORS >= THREADS);
    }

    /// A thread that has met nobody while it looked looks fewer times from then on, though never fewer than [`LOOKS_MIN`]. One that
    /// meets the others looks longer again.
    #[test]
    fn patience_has_bounds() {
        let meeting = Meeting::new(2);
        let mut guest = Guest { meeting: &meeting, looks: LOOKS_MAX };
        for round in 0..20 {
            assert!(!guest.looks_for(0));
            assert_eq!(guest.looks, (LOOKS_MAX >> (round + 1)).max(LOOKS_MIN));
        }
        meeting.end(1);
        for round in 0..20 {
            assert!(guest.looks_for(0));
            assert_eq!(guest.looks, (LOOKS_MIN << (round + 1).min(10)).min(LOOKS_MAX));
        }
        // Where threads share a processor, none looks.
        let mut guest = Guest { meeting: &meeting, looks: 0 };
        assert!(!guest.looks_for(0) && guest.looks == 0);
    }

    /// A thread that panics leaves nobody who waits for it, awake or asleep.
    #[test]
    fn the_others_of_a_thread_that_panics_panic_too() {
        for looks in [0, u32::MAX] {
            let meeting = Meeting::new(3);
            let comes = |panics: bool| {
                let mut guest = Guest { meeting: &meeting, looks };
                assert!(!panics, "planted");
                guest.wait();
            };
            std::thread::scope(|scope| {
                let waiting = [(); 2].map(|()| scope.spawn(|| comes(false)));
                assert!(scope.spawn(|| comes(true)).join().is_err());
                assert!(waiting.into_iter().all(|thread| thread.join().is_err()));
            });
        }
    }
}
