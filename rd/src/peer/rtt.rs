//! The round trip to a peer, and the silence after which to probe.

use crate::config::Config;
use crate::units::{MICROSECOND, Nanos};

/// Least probes or hellos within the deadline, so that bad luck alone does not count as death.
pub(super) const PROBES_PER_DEADLINE: Nanos = 10;

/// The longest time between two probes, or two hellos.
pub(super) fn longest_spacing_ns(cfg: &Config) -> Nanos {
    cfg.peer_timeout_ns / PROBES_PER_DEADLINE
}

/// Shortest silence before the question about the last packets: processes that poll rarely wait longer, and where they do the
/// measured time counts.
const TAIL_MIN_NS: Nanos = 100 * MICROSECOND;
/// Each sample makes the shortest round trip longer by one part in so many.
const AGEING: u32 = 1024;
/// Round trips without a queue from which on a queue counts as long.
const QUEUED_RTTS: u32 = 4;
/// Most times that a queue makes a time between packets longer.
const QUEUED_MOST: Nanos = 4;
/// A smaller deviation counts for one part in so many.
const SHRINK: Nanos = 64;

/// Round-trip estimate (RFC 6298 arithmetic, without the receiver's hold time), except that the deviation shrinks
/// slowly. One poll of a socket may bring hundreds of samples that hardly differ. At the RFC's pace they would erase
/// the variation between polls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    smoothed_ns: u32,
    variance_ns: u32,
    /// The shortest and the latest sample.
    least_ns: u32,
    latest_ns: u32,
}

impl Rtt {
    /// Takes a sample of less than 2^31 ns.
    pub(super) fn sample(&mut self, rtt_ns: Nanos) {
        let sample_ns = rtt_ns.max(1) as u32;
        self.latest_ns = sample_ns;
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.variance_ns) = (sample_ns, sample_ns / 2);
            self.least_ns = sample_ns;
            return;
        }
        // It ages, as routes change.
        self.least_ns = (self.least_ns + self.least_ns / AGEING).min(sample_ns);
        let (smoothed_ns, variance_ns) = (self.smoothed_ns(), self.variance_ns());
        let error_ns = smoothed_ns.abs_diff(rtt_ns);
        let gain = if error_ns > variance_ns { 4 } else { SHRINK };
        self.variance_ns = (((gain - 1) * variance_ns + error_ns) / gain) as u32;
        self.smoothed_ns = ((7 * smoothed_ns + rtt_ns) / 8).max(1) as u32;
    }

    /// The smoothed round trip (ns); 0 before the first sample.
    pub(super) fn smoothed_ns(&self) -> Nanos {
        self.smoothed_ns.into()
    }

    /// The smoothed round trip and the shortest one (ns).
    pub(super) fn range_ns(&self) -> (Nanos, Nanos) {
        (self.smoothed_ns.into(), self.least_ns.into())
    }

    /// Its mean deviation (ns).
    pub(super) fn variance_ns(&self) -> Nanos {
        self.variance_ns.into()
    }

    /// The latest round trip is more than [`QUEUED_RTTS`] times the shortest one.
    pub(super) fn is_queued(&self) -> bool {
        self.latest_ns > self.least_ns.saturating_mul(QUEUED_RTTS)
    }

    /// A time that grows with the latest round trip: the same up to [`QUEUED_RTTS`] times the shortest
    /// one, at most [`QUEUED_MOST`] times as long.
    pub(super) fn stretched_ns(&self, space_ns: Nanos) -> Nanos {
        let unqueued_ns = Nanos::from(QUEUED_RTTS) * Nanos::from(self.least_ns.max(1));
        let queued_ns = Nanos::from(self.latest_ns).clamp(unqueued_ns, QUEUED_MOST * unqueued_ns);
        space_ns * queued_ns / unqueued_ns
    }

    /// Silence (ns) after which to probe, where packets and their acknowledgements may wait for processes for `lag_ns`.
    pub(super) fn probe_timeout_ns(&self, cfg: &Config, lag_ns: Nanos) -> Nanos {
        self.silence_ns(lag_ns).min(longest_spacing_ns(cfg)).max(cfg.rto_min_ns)
    }

    /// Silence (ns) after which to ask for the last packets sent; `None` if probes come as soon.
    pub(super) fn tail_timeout_ns(&self, cfg: &Config, lag_ns: Nanos) -> Option<Nanos> {
        let silence_ns = self.silence_ns(lag_ns).max(TAIL_MIN_NS);
        let is_sooner = silence_ns < cfg.rto_min_ns.min(longest_spacing_ns(cfg));
        (self.smoothed_ns > 0 && is_sooner).then_some(silence_ns)
    }

    fn silence_ns(&self, lag_ns: Nanos) -> Nanos {
        2 * (self.smoothed_ns() + lag_ns) + 4 * self.variance_ns()
    }
}
