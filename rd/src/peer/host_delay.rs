//! Extra window for packets that have left the network but wait at a host (protocol.md §4.4).
//!
//! A controller's window is about the network, and so are its round trips: they leave out the time that packets wait at
//! the receiver and acknowledgements here. The unacknowledged bytes include those packets. Where links are fast and
//! processes take turns, they are most of it, and a window that counted them would starve the flow.

use crate::units::{MILLISECOND, Nanos};

/// Bytes up to which time at hosts may stretch a window: the window of best effort, which keeps
/// hosts busy.
const STRETCH_MAX_BYTES: u64 = 512 << 10;
/// Weight of a sample: one part in so many.
const GAIN: Nanos = 16;
/// A longer wait was a pause, after which the next will be short again.
const LONGEST_MAX_NS: Nanos = 50 * MILLISECOND;
/// Time at hosts below this part (1/n) of the round trip does not count.
const DEADBAND: Nanos = 4;

/// See the module. `window_bytes` is the controller's window, `rtt_ns` the round trip without hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostDelay {
    /// Time that packets and their acknowledgements lately waited for a process.
    lag_ns: Nanos,
    /// The longest recent one of these times.
    longest_ns: Nanos,
    /// Time at which the network would be empty, draining a window each round trip.
    drained_at: Nanos,
    /// Time at which it takes the next burst; 0 for now.
    pub opens_at: Nanos,
}

impl HostDelay {
    /// Takes a sample: a packet and its acknowledgement waited for `lag_ns` in all.
    pub(super) fn sample(&mut self, lag_ns: Nanos) {
        self.lag_ns = ((GAIN - 1) * self.lag_ns + lag_ns) / GAIN;
        let lag_ns = lag_ns.min(LONGEST_MAX_NS);
        self.longest_ns = lag_ns.max(self.longest_ns - self.longest_ns / GAIN);
    }

    /// The longest recent wait (ns) of a packet and its acknowledgement for a process.
    pub(super) fn longest_ns(&self) -> Nanos {
        self.longest_ns
    }

    /// Bytes that the network and the hosts hold together.
    pub(super) fn stretched_bytes(&self, window_bytes: u64, rtt_ns: Nanos) -> u64 {
        let lag_ns = self.lag_ns.saturating_sub(rtt_ns / DEADBAND);
        if lag_ns == 0 || window_bytes >= STRETCH_MAX_BYTES {
            return window_bytes;
        }
        let waiting = window_bytes.saturating_mul(lag_ns) / rtt_ns.max(1);
        window_bytes.saturating_add(waiting).min(STRETCH_MAX_BYTES)
    }

    /// Most unacknowledged bytes at `now`, while `in_flight_bytes` are: a window, plus the bytes that must have left
    /// the network.
    pub(super) fn limit_bytes(
        &self,
        now: Nanos,
        in_flight_bytes: u64,
        window_bytes: u64,
        rtt_ns: Nanos,
    ) -> u64 {
        let most = self.stretched_bytes(window_bytes, rtt_ns);
        if most == window_bytes {
            return window_bytes;
        }
        let ahead_ns = self.drained_at.saturating_sub(now);
        let in_network = window_bytes.saturating_mul(ahead_ns) / rtt_ns.max(1);
        (in_flight_bytes + window_bytes).saturating_sub(in_network).min(most).max(window_bytes)
    }

    /// Notes a sent burst of `bytes`.
    pub(super) fn sent(&mut self, now: Nanos, bytes: u64, window_bytes: u64, rtt_ns: Nanos) {
        if window_bytes >= STRETCH_MAX_BYTES {
            self.opens_at = 0;
            return;
        }
        let takes_ns = bytes.saturating_mul(rtt_ns) / window_bytes.max(1);
        self.drained_at = self.drained_at.max(now).saturating_add(takes_ns.min(rtt_ns));
        let is_stretched = self.stretched_bytes(window_bytes, rtt_ns) > window_bytes;
        // At that time it takes a quarter of a window.
        let opens_at = self.drained_at.saturating_sub(rtt_ns / 4 * 3);
        self.opens_at = if is_stretched { opens_at.max(now + 1) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 20_000;
    const RTT: Nanos = 10_000;

    fn slow(lag_ns: Nanos) -> HostDelay {
        let mut hosts = HostDelay::default();
        for _ in 0..200 {
            hosts.sample(lag_ns);
        }
        hosts
    }

    #[test]
    fn quick_hosts_leave_the_window_as_it_is() {
        let mut hosts = slow(RTT / DEADBAND);
        hosts.sent(0, WINDOW, WINDOW, RTT);
        assert_eq!(hosts.limit_bytes(RTT, WINDOW, WINDOW, RTT), WINDOW);
        assert_eq!(hosts.opens_at, 0);
    }

    #[test]
    fn slow_hosts_hold_as_much_as_passes_while_they_wait() {
        let hosts = slow(40_400);
        let stretched = hosts.stretched_bytes(WINDOW, RTT);
        assert!((90_000..100_000).contains(&stretched), "{stretched}");
        assert_eq!(slow(1 << 40).stretched_bytes(WINDOW, RTT), STRETCH_MAX_BYTES);
        assert_eq!(slow(1 << 40).stretched_bytes(1 << 30, RTT), 1 << 30);
    }

    #[test]
    fn the_network_holds_no_more_than_a_window() {
        let mut hosts = slow(1_000_000);
        hosts.sent(0, WINDOW, WINDOW, RTT);
        assert_eq!(hosts.limit_bytes(0, WINDOW, WINDOW, RTT), WINDOW);
        // Half a round trip later half of it must have left.
        assert_eq!(hosts.limit_bytes(RTT / 2, WINDOW, WINDOW, RTT), WINDOW * 3 / 2);
        assert_eq!(hosts.limit_bytes(RTT, WINDOW, WINDOW, RTT), 2 * WINDOW);
        assert_eq!(hosts.opens_at, RTT / 4);
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        let mut hosts = slow(u64::MAX >> 8);
        for (window, rtt) in [(0, 0), (1, 0), (0, 1), (u64::MAX >> 1, u64::MAX >> 1)] {
            hosts.sent(5, 1 << 32, window, rtt);
            assert!(hosts.limit_bytes(5, 0, window, rtt) >= window);
        }
    }
}
