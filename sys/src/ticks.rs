//! A clock that most often reads the processor's counter instead of asking the vDSO, which costs two to three times as much
//! (23 to 35 ns against 10).
//!
//! It is the same time as [`monotonic_ns`]. The counter only carries it on for a millisecond after a reading of that; so a
//! host that sleeps, a virtual machine that moves, or a clock that is slewed, puts it wrong for no longer than that, and
//! by no more than the rate has changed. It serves where the kernel itself takes its time from this counter.

use crate::clock::monotonic_ns;
use std::cell::Cell;
use std::sync::OnceLock;

/// Time for which the counter carries on from one reading of the kernel's clock.
const CARRY_NS: u64 = 1_000_000;
/// Least time over which the counter's rate is measured. Both readings together are right to some 50 ns, so the rate is
/// right to 5 parts in a million.
const MEASURE_NS: u64 = 10_000_000;
/// A reading of both clocks that took more than this was interrupted.
const READING_TICKS: u64 = 2_000;
/// Binary places of the rate.
const RATE_SHIFT: u32 = 32;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ticks: u64,
    ns: u64,
}

/// See the module. One thread at a time uses it.
#[derive(Debug)]
pub struct Ticks {
    /// The counter, if the kernel trusts it.
    read: Option<fn() -> u64>,
    /// Where the rate is measured from.
    first: Cell<Option<Moment>>,
    /// Where the counter carries on from, and for how many ticks.
    last: Cell<(Moment, u64)>,
    /// Nanoseconds of a tick, times 2 to the power of [`RATE_SHIFT`].
    rate: Cell<u64>,
    /// The latest time that was told.
    told_ns: Cell<u64>,
}

impl Default for Ticks {
    fn default() -> Ticks {
        Ticks::by(trusted())
    }
}

impl Ticks {
    fn by(read: Option<fn() -> u64>) -> Ticks {
        let nothing = (Moment { ticks: 0, ns: 0 }, 0);
        let (first, last) = (Cell::new(None), Cell::new(nothing));
        Ticks { read, first, last, rate: Cell::new(0), told_ns: Cell::new(0) }
    }

    /// The time of [`monotonic_ns`]. It never goes back.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        let Some(read) = self.read else { return monotonic_ns() };
        let (from, carry_ticks) = self.last.get();
        let passed = read().wrapping_sub(from.ticks);
        let now_ns = match passed < carry_ticks {
            true => from.ns + scaled(passed, self.rate.get()),
            false => self.ask(read),
        };
        let now_ns = now_ns.max(self.told_ns.get());
        self.told_ns.set(now_ns);
        now_ns
    }

    /// Asks the kernel, and lets the counter carry on from there once its rate is known.
    #[cold]
    fn ask(&self, read: fn() -> u64) -> u64 {
        let before = read();
        let ns = monotonic_ns();
        let took = read().wrapping_sub(before);
        // Half of it had passed when the kernel's clock was read.
        let now = Moment { ticks: before.wrapping_add(took / 2), ns };
        let mut carry_ticks = 0;
        if took <= READING_TICKS {
            match self.first.get() {
                None => self.first.set(Some(now)),
                Some(first) if ns - first.ns >= MEASURE_NS => {
                    carry_ticks = self.measure(first, now)
                }
                Some(_) => {}
            }
        }
        self.last.set((now, carry_ticks));
        ns
    }

    /// Measures the rate between two moments. Returns for how many ticks it counts; none if the counter has been set.
    fn measure(&self, first: Moment, now: Moment) -> u64 {
        let passed_ns = u128::from(now.ns - first.ns) << RATE_SHIFT;
        let ticks = now.ticks.wrapping_sub(first.ticks);
        let rate = passed_ns.checked_div(ticks.into()).unwrap_or_default() as u64;
        let before = self.rate.replace(rate);
        let carry_ticks = ((u128::from(CARRY_NS) << RATE_SHIFT) / u128::from(rate.max(1))) as u64;
        // It moves by a part in 4,096 at most, unless the counter or the clock was set.
        if before != 0 && before.abs_diff(rate) > before >> 12 {
            self.first.set(Some(now));
            self.rate.set(0);
            return 0;
        }
        carry_ticks
    }
}

fn scaled(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> RATE_SHIFT) as u64
}

/// The counter from which the kernel takes its time, if there is one.
fn trusted() -> Option<fn() -> u64> {
    static TRUSTED: OnceLock<Option<fn() -> u64>> = OnceLock::new();
    *TRUSTED.get_or_init(|| {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let is_used = std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc");
        counter().filter(|_| is_used && !cfg!(miri))
    })
}

#[cfg(target_arch = "x86_64")]
fn counter() -> Option<fn() -> u64> {
    fn read() -> u64 {
        // SAFETY: every x86_64 processor has the instruction, and the kernel lets programs use it: its own vDSO does.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    Some(read)
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> Option<fn() -> u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// What the two clocks may differ by.
    const SLACK_NS: u64 = 20_000;

    /// Compares with the kernel's clock, for some time.
    fn compare(ticks: &Ticks, span_ns: u64) {
        let end_ns = monotonic_ns() + span_ns;
        let (mut before, mut last_ns) = (0, 0);
        while before < end_ns {
            before = monotonic_ns();
            let now = ticks.now_ns();
            let after = monotonic_ns();
            assert!(now >= last_ns, "it went back from {last_ns} to {now}");
            assert!(before <= now + SLACK_NS && now <= after + SLACK_NS, "{before} {now} {after}");
            last_ns = now;
        }
    }

    #[test]
    fn it_is_the_kernels_time() {
        compare(&Ticks::default(), 4 * MEASURE_NS);
        compare(&Ticks::by(None), MEASURE_NS);
    }

    /// A counter of one tick for each nanosecond of the kernel's, and what a test adds.
    static ADDED: AtomicU64 = AtomicU64::new(0);

    fn moved() -> u64 {
        monotonic_ns().wrapping_add(ADDED.load(Ordering::Relaxed))
    }

    #[test]
    #[cfg_attr(miri, ignore = "to Miri each reading takes as long as one that was interrupted")]
    fn who_sets_the_counter_does_not_turn_time_back() {
        let ticks = Ticks::by(Some(moved));
        let mut last_ns = 0;
        for step in [0, 1 << 40, 1_u64.wrapping_neg() << 20, 500_000, 3 << 20] {
            ADDED.fetch_add(step, Ordering::Relaxed);
            let end_ns = monotonic_ns() + 3 * MEASURE_NS;
            while monotonic_ns() < end_ns {
                let now = ticks.now_ns();
                assert!(now >= last_ns);
                last_ns = now;
            }
            // A reading that was interrupted is followed by another one.
            let trusts = (0..1000).any(|_| ticks.now_ns() > 0 && ticks.last.get().1 > 0);
            assert!(trusts, "it trusts the counter again");
            // What is left of a step forward, which the counter told for a millisecond at most.
            compare_roughly(&ticks);
        }
    }

    fn compare_roughly(ticks: &Ticks) {
        let before = monotonic_ns();
        let now = ticks.now_ns();
        assert!(before <= now + SLACK_NS && now <= monotonic_ns() + SLACK_NS);
    }
}
