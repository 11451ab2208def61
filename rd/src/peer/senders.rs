//! How many peers send data here (protocol.md §4.4): these share the receive buffer.
//!
//! Time is cut into rounds. Who is allowed a packet or more sends at least one each round trip, so a round of some round
//! trips hears all that send. Those heard in this round or in the last one count, whichever are more. So a peer that has
//! stopped counts until the second round is over, and no timer has to find it.

use crate::units::{MILLISECOND, Nanos};

/// Round trips of a round: the longest among those of the senders, with their waits for processes.
const ROUND_TRIPS: Nanos = 3;
/// Shortest and longest round.
const ROUND_MIN_NS: Nanos = MILLISECOND / 50;
const ROUND_MAX_NS: Nanos = 500 * MILLISECOND;
/// Stands for a round trip that nobody measured, as this side sends nothing.
const ROUND_TRIP_NS: Nanos = 3 * MILLISECOND;

/// A round in which a peer was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Round(u32);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Senders {
    round: Round,
    ends_at: Nanos,
    length_ns: Nanos,
    /// Peers heard in this round, and in the last one.
    heard: u32,
    before: u32,
    /// The longest round trip of those heard in this round.
    longest_ns: Nanos,
}

impl Senders {
    /// Notes data of a peer that was heard in the round `last` before. `round_trip_ns` is 0 if nobody measured it.
    pub(super) fn heard(&mut self, now: Nanos, last: &mut Round, round_trip_ns: Nanos) {
        let is_over = now >= self.ends_at;
        if *last == self.round && !is_over {
            return;
        }
        let round_trip_ns = if round_trip_ns == 0 { ROUND_TRIP_NS } else { round_trip_ns };
        self.longest_ns = self.longest_ns.max(round_trip_ns);
        if is_over {
            self.turn(now);
            self.longest_ns = round_trip_ns;
        }
        *last = self.round;
        self.heard += 1;
    }

    /// Begins a round, as long as the senders of the last one need, and the one that is heard first.
    fn turn(&mut self, now: Nanos) {
        self.before = if now < self.ends_at + self.length_ns { self.heard } else { 0 };
        self.length_ns = (ROUND_TRIPS * self.longest_ns).clamp(ROUND_MIN_NS, ROUND_MAX_NS);
        self.ends_at = now + self.length_ns;
        // No peer was heard in round 0.
        self.round = Round(self.round.0.checked_add(1).unwrap_or(1));
        self.heard = 0;
    }

    /// Peers that send.
    pub(crate) fn count(&self, now: Nanos) -> u32 {
        match now {
            _ if now < self.ends_at => self.heard.max(self.before),
            _ if now < self.ends_at + self.length_ns => self.heard,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: Nanos = 100_000;

    /// All of these peers are heard at `now`.
    fn hear(senders: &mut Senders, peers: &mut [Round], now: Nanos) {
        peers.iter_mut().for_each(|last| senders.heard(now, last, RTT_NS));
    }

    #[test]
    fn those_count_that_are_heard_each_round_trip_and_no_others_soon_after() {
        let (mut senders, mut peers) = (Senders::default(), [Round::default(); 100]);
        assert_eq!(senders.count(0), 0);
        for now in (0..20).map(|nth| nth * RTT_NS) {
            hear(&mut senders, &mut peers, now);
            assert_eq!(senders.count(now), 100);
            assert_eq!(senders.count(now + RTT_NS), 100, "between two packets");
        }
        let (stopped_at, rounds_ns) = (20 * RTT_NS, 2 * ROUND_TRIPS * RTT_NS);
        for now in (0..20).map(|nth| stopped_at + nth * RTT_NS) {
            hear(&mut senders, &mut peers[..1], now);
            let count = senders.count(now);
            assert!(count == 100 || now > stopped_at);
            assert!(count == 1 || now <= stopped_at + rounds_ns, "{count} at {now}");
        }
        assert_eq!(senders.count(60 * RTT_NS), 0, "nobody sends");
    }

    #[test]
    fn a_round_is_as_long_as_the_slowest_sender_needs() {
        let (mut senders, mut near, mut far) =
            (Senders::default(), Round::default(), Round::default());
        // The first round knows no round trip yet.
        senders.heard(0, &mut far, 50 * RTT_NS);
        for now in (1..400).map(|nth| nth * RTT_NS) {
            senders.heard(now, &mut near, RTT_NS);
            if now % (50 * RTT_NS) == 0 {
                senders.heard(now, &mut far, 50 * RTT_NS);
            }
            assert!(senders.count(now) == 2 || now < 51 * RTT_NS, "at {now}");
        }
        // Who was never measured gets time.
        let mut unknown = Round::default();
        senders.heard(500 * RTT_NS, &mut unknown, 0);
        senders.heard(700 * RTT_NS, &mut unknown, 0);
        assert_eq!(senders.count(700 * RTT_NS + ROUND_TRIP_NS), 1);
    }
}
