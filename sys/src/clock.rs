//! The two clocks of the ports, read through the vDSO (`clock_gettime(2)`).

fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a writable timespec that outlives the call.
    let rc = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(rc, 0, "clock_gettime fails only for a clock that the kernel does not know");
    timespec_ns(&now)
}

/// A timespec as nanoseconds; a time before the epoch counts as 0.
#[must_use]
pub fn timespec_ns(time: &libc::timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Nanoseconds of `CLOCK_MONOTONIC`: the time that the engine and [`crate::wait`] count in.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970 of `CLOCK_REALTIME`: the clock of the kernel's receive stamps. It may be
/// set back, so it serves for short differences only.
#[must_use]
pub fn realtime_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME)
}
