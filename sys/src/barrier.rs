//! One barrier in two halves, of which the frequent one is free.
//!
//! What a thread stores before [`light`] and what another stores before [`heavy`] cannot both be
//! missed by the other's loads afterwards, as if each had made a sequentially consistent fence:
//! either the first thread sees the second's store, or the second sees the first's. The light half
//! costs no instruction where Linux runs a barrier on every processor of the process for the heavy
//! one (membarrier(2), private and expedited, from 4.14 on). Where it cannot, both halves are
//! fences.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` of `linux/membarrier.h`.
const PRIVATE_EXPEDITED: i64 = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED` of `linux/membarrier.h`.
const REGISTER_PRIVATE_EXPEDITED: i64 = 1 << 4;

/// The light half is no fence by itself: [`prepare`] has found that the kernel makes it one.
static LIGHT_IS_FREE: AtomicBool = AtomicBool::new(false);

fn membarrier(command: i64) -> bool {
    // SAFETY: the call takes numbers, and touches no memory of the process. Miri does not know it.
    !cfg!(miri) && unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Asks the kernel, the first time. A thread that calls [`light`] or [`heavy`] has called this
/// before.
pub fn prepare() {
    static ASKED: OnceLock<()> = OnceLock::new();
    ASKED.get_or_init(|| {
        LIGHT_IS_FREE.store(membarrier(REGISTER_PRIVATE_EXPEDITED), Ordering::Relaxed)
    });
}

/// The frequent half.
#[inline]
pub fn light() {
    if LIGHT_IS_FREE.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare half: some microseconds.
///
/// # Panics
/// If the kernel takes back what it granted, which no kernel does: the light halves of other
/// threads would not be fences.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if LIGHT_IS_FREE.load(Ordering::Relaxed) {
        // A forked child is registered again if its kernel asks for that.
        let done = membarrier(PRIVATE_EXPEDITED)
            || membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
        assert!(done, "membarrier(2) does not answer any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Dekker's handshake: without barriers, both threads read the other's word as it was.
    #[test]
    fn two_threads_do_not_both_miss_the_others_word() {
        /// Looks at the other's round after which a side lets the other run: two threads that share a
        /// processor would take a time slice for each round.
        const LOOKS: u32 = 1000;
        // On one processor no thread can miss what the other has stored, and each round is a switch.
        let several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let rounds = if several { 20_000 } else { 200 };
        static WORDS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
        static AT: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
        prepare();
        let side = |mine: usize, barrier: fn()| {
            let mut seen = Vec::with_capacity(rounds as usize);
            for round in 1..=rounds {
                AT[mine].store(round, Ordering::Release);
                let mut looks = 0;
                while AT[1 - mine].load(Ordering::Acquire) < round {
                    looks += 1;
                    match looks % LOOKS {
                        0 => std::thread::yield_now(),
                        _ => std::hint::spin_loop(),
                    }
                }
                WORDS[mine].store(round, Ordering::Relaxed);
                barrier();
                seen.push(WORDS[1 - mine].load(Ordering::Relaxed) >= round);
            }
            seen
        };
        let (light, heavy) = std::thread::scope(|scope| {
            let light = scope.spawn(|| side(0, light));
            (side(1, heavy), light.join().unwrap())
        });
        let missed = light.iter().zip(&heavy).filter(|(a, b)| !**a && !**b).count();
        assert_eq!(missed, 0, "of {rounds} rounds");
    }
}
