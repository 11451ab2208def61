//! The round trip to a peer, and the silence after which to probe.

use crate::config::Config;
use crate::units::{MILLISECOND, Nanos};

/// Least probes or hellos within the deadline, so that bad luck alone does not count as death.
pub(super) const PROBES_PER_DEADLINE: Nanos = 10;

/// The longest time between two probes, or two hellos.
pub(super) fn longest_spacing_ns(cfg: &Config) -> Nanos {
    cfg.peer_timeout_ns / PROBES_PER_DEADLINE
}

/// Shortest silence before the question about the last packets: a quiet host lets a process wait for hardly more.
const TAIL_MIN_NS: Nanos = MILLISECOND;
/// A smaller deviation counts for one part in so many.
const SHRINK: Nanos = 64;

/// Round-trip estimate (RFC 6298 arithmetic, without the receiver's hold time), except that the deviation shrinks
/// slowly. One poll of a socket may bring hundreds of samples that hardly differ. At the RFC's pace they would erase
/// the variation between polls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    pub smoothed_ns: Nanos,
    pub variance_ns: Nanos,
}

impl Rtt {
    pub(super) fn sample(&mut self, rtt_ns: Nanos) {
        if self.smoothed_ns == 0 {
            self.smoothed_ns = rtt_ns.max(1);
            self.variance_ns = rtt_ns / 2;
            return;
        }
        let error = self.smoothed_ns.abs_diff(rtt_ns);
        let gain = if error > self.variance_ns { 4 } else { SHRINK };
        self.variance_ns = ((gain - 1) * self.variance_ns + error) / gain;
        self.smoothed_ns = ((7 * self.smoothed_ns + rtt_ns) / 8).max(1);
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
        2 * (self.smoothed_ns + lag_ns) + 4 * self.variance_ns
    }
}
