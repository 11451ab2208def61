//! A place where threads wait for each other, over and over: each time until all are there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Most looks for the others before a thread sleeps, some 20 us: to fall asleep and to be woken take longer than most
/// waits.
const LOOKS_MAX: u32 = 1 << 12;
/// Fewest looks where each thread has a processor. They are as many as this while others need the processors.
const LOOKS_MIN: u32 = 1 << 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Meeting {
    threads: usize,
    /// Looks of a thread that has not waited yet. Where threads share a processor, a look would only keep the others from
    /// coming.
    looks: u32,
    here: AtomicUsize,
    /// Meetings that are over.
    over: AtomicU64,
    /// Threads that sleep.
    sleepers: Mutex<usize>,
    ended: Condvar,
}

/// How often a thread looks for the others before it sleeps.
#[derive(Debug)]
pub(super) struct Patience(u32);

impl Meeting {
    pub(super) fn new(threads: usize) -> Meeting {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Meeting {
            threads,
            looks: if processors < threads { 0 } else { LOOKS_MAX },
            here: AtomicUsize::new(0),
            over: AtomicU64::new(0),
            sleepers: Mutex::new(0),
            ended: Condvar::new(),
        }
    }

    /// What a thread brings along.
    pub(super) fn patience(&self) -> Patience {
        Patience(self.looks)
    }

    /// Waits until all threads are here.
    pub(super) fn wait(&self, patience: &mut Patience) {
        let before = self.over.load(Ordering::SeqCst);
        if self.here.fetch_add(1, Ordering::SeqCst) + 1 == self.threads {
            self.here.store(0, Ordering::SeqCst);
            // With the lock held: nobody is between a last look and sleep.
            let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
            self.over.store(before + 1, Ordering::SeqCst);
            if *sleepers > 0 {
                self.ended.notify_all();
            }
            return;
        }
        let is_over = || self.over.load(Ordering::SeqCst) != before;
        for _ in 0..patience.0 {
            if is_over() {
                patience.0 = (patience.0 * 2).min(LOOKS_MAX);
                return;
            }
            std::hint::spin_loop();
        }
        patience.0 = patience.0.min((patience.0 / 2).max(LOOKS_MIN));
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers += 1;
        while !is_over() {
            sleepers = self.ended.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
        }
        *sleepers -= 1;
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
                    let mut patience = meeting.patience();
                    for round in 0..300 {
                        if round % 100 == number as u64 {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                        passed[number].store(round + 1, Ordering::SeqCst);
                        meeting.wait(&mut patience);
                        let least = passed.iter().map(|p| p.load(Ordering::SeqCst)).min();
                        assert!(least > Some(round), "all have come to round {round}");
                        meeting.wait(&mut patience);
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
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let is_patient = Meeting::new(THREADS).patience().0 > 0;
        assert_eq!(is_patient, processors >= THREADS);
    }

    /// A thread that has met nobody while it looked looks fewer times from then on, though never fewer than [`LOOKS_MIN`].
    #[test]
    fn patience_has_bounds() {
        let meeting = Meeting::new(2);
        let mut looks = Patience(LOOKS_MAX);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    meeting.wait(&mut Patience(0));
                }
            });
            for _ in 0..20 {
                meeting.wait(&mut looks);
                assert!((LOOKS_MIN..=LOOKS_MAX).contains(&looks.0), "{looks:?}");
            }
        });
    }
}
