//! A place where threads wait for each other, over and over: each time until all are there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Looks for the others before a thread sleeps: some 20 us. To fall asleep and to be woken take longer than most waits.
const LOOKS: u32 = 1 << 12;

/// See the module.
#[derive(Debug)]
pub(super) struct Meeting {
    threads: usize,
    here: AtomicUsize,
    /// Meetings that are over.
    over: AtomicU64,
    sleepers: Mutex<()>,
    ended: Condvar,
}

impl Meeting {
    pub(super) fn new(threads: usize) -> Meeting {
        Meeting {
            threads,
            here: AtomicUsize::new(0),
            over: AtomicU64::new(0),
            sleepers: Mutex::new(()),
            ended: Condvar::new(),
        }
    }

    /// Waits until all threads are here.
    pub(super) fn wait(&self) {
        let before = self.over.load(Ordering::SeqCst);
        if self.here.fetch_add(1, Ordering::SeqCst) + 1 == self.threads {
            self.here.store(0, Ordering::SeqCst);
            // With the lock held: nobody is between a last look and sleep.
            let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
            self.over.store(before + 1, Ordering::SeqCst);
            drop(sleepers);
            self.ended.notify_all();
            return;
        }
        let is_over = || self.over.load(Ordering::SeqCst) != before;
        for _ in 0..LOOKS {
            if is_over() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        while !is_over() {
            sleepers = self.ended.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No thread is a meeting ahead of another one, whether they come soon or late.
    #[test]
    fn threads_meet_over_and_over() {
        const THREADS: usize = 3;
        let meeting = Meeting::new(THREADS);
        let passed = [const { AtomicU64::new(0) }; THREADS];
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (meeting, passed) = (&meeting, &passed);
                scope.spawn(move || {
                    for round in 0..300 {
                        if round % 100 == number as u64 {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                        passed[number].store(round + 1, Ordering::SeqCst);
                        meeting.wait();
                        let least = passed.iter().map(|p| p.load(Ordering::SeqCst)).min();
                        assert!(least > Some(round), "all have come to round {round}");
                        meeting.wait();
                    }
                });
            }
        });
    }
}
