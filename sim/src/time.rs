//! Virtual time. Packets take fractions of a nanosecond on fast links, so the simulator counts picoseconds; the engine
//! gets whole nanoseconds.

use erd_rd::Nanos;

/// Virtual time or a span of it, in picoseconds: 213 days fit.
pub type Picos = u64;

/// Picoseconds of a nanosecond.
pub const PS_PER_NS: Picos = 1_000;
/// Picoseconds of a second.
pub const PS_PER_S: Picos = 1_000_000_000_000;

/// Nanoseconds as picoseconds.
#[must_use]
pub const fn from_ns(ns: Nanos) -> Picos {
    ns * PS_PER_NS
}

/// Picoseconds as whole nanoseconds.
#[must_use]
pub const fn to_ns(ps: Picos) -> Nanos {
    ps / PS_PER_NS
}

/// How long `bytes` take at a rate.
#[must_use]
pub const fn serialization_ps(bytes: u32, bytes_per_s: u64) -> Picos {
    bytes as u64 * PS_PER_S / bytes_per_s
}
