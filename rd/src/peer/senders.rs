//! How many peers send data here (protocol.md §4.4): these share the receive buffer.
//!
//! This module cuts time into rounds. A peer with a window of a packet or more sends at least one each round trip, and one with a
//! space sends one in about the time in which the link carries one of each. So a round of some such times hears all that send, unless
//! packets wait on their way. A round therefore goes on until nothing waits (for a while nothing came), until some packets came
//! for each sender that counted before, or for a longer time. From one round to the next the count at most halves, so a round that
//! heard too few does little harm. No timer has to find the peers that fall silent.

use crate::units::{MILLISECOND, Nanos, SECOND};

/// Round trips of a round: the longest among those of the senders, with their waits for processes.
const ROUND_TRIPS: Nanos = 3;
/// Limits of a round's length. A peer with a longer round trip is heard in some rounds only.
const ROUND_MIN_NS: Nanos = MILLISECOND / 50;
const ROUND_MAX_NS: Nanos = 100 * MILLISECOND;
/// Stands for a round trip that nobody measured.
const ROUND_TRIP_NS: Nanos = 3 * MILLISECOND;
/// A round lasts at least until the link could have carried so many packets of each sender: half to one and a half come in spaces.
const PACKETS_LEAST: u32 = 2;
/// Packets in a round for each sender that counted before, where packets come all the time.
const PACKETS_EACH: u32 = 4;
/// A round that is so much longer than its round trips ends in any case. For each such time without a packet the count halves
/// once more.
const PATIENCE_NS: Nanos = 10 * MILLISECOND;
/// The same for links on which so many packets of each take longer.
const PATIENCE_MOST_NS: Nanos = SECOND;

/// A round in which a peer was heard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Round(u32);

impl Round {
    /// Of a peer that was done in the last round that heard it.
    const DONE: Round = Round(u32::MAX);
}

/// A packet that comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Came {
    /// Its sender is known to have sent it, or a later one.
    pub late: bool,
    pub bytes: u32,
    /// The rate of the link that it came on; 0 if that is not known.
    pub link_bytes_per_s: u64,
}

impl Came {
    /// Time in which its link carries so many of its kind; 0 if the rate is not known.
    fn link_ns(&self, packets: u32) -> Nanos {
        let bytes = u64::from(packets).saturating_mul(self.bytes.into()).saturating_mul(SECOND);
        bytes.checked_div(self.link_bytes_per_s).unwrap_or(0).min(PATIENCE_MOST_NS)
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Senders {
    round: Round,
    began_at: Nanos,
    /// When the round has lasted for its round trips.
    ends_at: Nanos,
    /// Peers heard in this round, and those that counted when it began.
    heard: u32,
    before: u32,
    /// Peers that sent all they had in this round.
    done: u32,
    /// When the latest of those heard in this round came.
    newest_at: Nanos,
    /// Packets of this round.
    packets: u32,
    /// The longest round trip of those heard in this round.
    longest_ns: Nanos,
    /// When the last packet came.
    last_at: Nanos,
    /// For half a round trip in this round nothing came.
    had_gap: bool,
}

impl Senders {
    /// Notes a packet of a peer that was heard in the round `last` before. `round_trip_ns` is 0 if nobody measured it. Returns
    /// whether a round begins with it.
    pub(super) fn heard(
        &mut self,
        now: Nanos,
        last: &mut Round,
        round_trip_ns: Nanos,
        packet: Came,
    ) -> bool {
        let round_trip_ns = if round_trip_ns == 0 { ROUND_TRIP_NS } else { round_trip_ns };
        self.had_gap |= now >= self.last_at + self.longest_ns.max(round_trip_ns) / 2;
        let is_over = self.is_over(now, packet);
        if is_over {
            self.turn(now, round_trip_ns);
        }
        self.last_at = now;
        self.packets = self.packets.saturating_add(1);
        // What its sender's last packet overtook makes it no sender again.
        if *last != self.round && !(packet.late && *last == Round::DONE) {
            if *last == Round::DONE {
                self.done = self.done.saturating_sub(1);
            }
            *last = self.round;
            self.heard += 1;
            self.newest_at = now;
            self.longest_ns = self.longest_ns.max(round_trip_ns);
        }
        is_over
    }

    /// A peer heard in the round `last` has sent all that it had. It counts again with its next packet.
    pub(super) fn done(&mut self, last: &mut Round) {
        if *last == self.round {
            *last = Round::DONE;
            self.heard -= 1;
            self.done += 1;
        }
    }

    /// Those that counted when the round began, less those that are done.
    fn left(&self) -> u32 {
        self.before.saturating_sub(self.done)
    }

    fn is_over(&self, now: Nanos, packet: Came) -> bool {
        let senders = self.heard.max(self.left());
        if now < self.ends_at
            || now < self.began_at + packet.link_ns(senders.saturating_mul(PACKETS_LEAST))
        {
            return false;
        }
        let each = senders.saturating_mul(PACKETS_EACH);
        self.had_gap
            || self.packets >= each
            || now >= self.ends_at + PATIENCE_NS.max(packet.link_ns(each))
    }

    /// Begins a round, as long as the senders of the last one need, and the one that is heard first.
    fn turn(&mut self, now: Nanos, round_trip_ns: Nanos) {
        let longest_ns = self.longest_ns.max(round_trip_ns);
        let ends_at = now + (ROUND_TRIPS * longest_ns).clamp(ROUND_MIN_NS, ROUND_MAX_NS);
        // No peer was heard in round 0.
        let round = Round((self.round.0 + 1) % Round::DONE.0).max(Round(1));
        let before = self.heard.max(self.left() / 2) >> self.halvings(now);
        *self = Senders { round, began_at: now, ends_at, before, ..Senders::default() };
    }

    /// Times without a packet for which the count halves.
    fn halvings(&self, now: Nanos) -> u32 {
        let silent_ns = now.saturating_sub(self.ends_at.max(self.last_at));
        (silent_ns / PATIENCE_NS).min(31) as u32
    }

    /// Peers to expect: while more and more send, as many more may follow.
    pub(crate) fn expected(&self, now: Nanos) -> u32 {
        let is_growing = now < self.newest_at + self.longest_ns / 2;
        let newcomers = if is_growing { self.heard.saturating_sub(self.left()) } else { 0 };
        self.count(now).saturating_add(newcomers)
    }

    /// Peers that send.
    pub(crate) fn count(&self, now: Nanos) -> u32 {
        self.heard.max(self.left()) >> self.halvings(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: Nanos = 100_000;
    const NO_LINK: Came = Came { late: false, bytes: 0, link_bytes_per_s: 0 };

    /// Each of these peers sends a packet, one after the other within `span_ns`.
    fn hear(senders: &mut Senders, peers: &mut [Round], now: Nanos, span_ns: Nanos) {
        let count = peers.len() as Nanos;
        for (nth, last) in peers.iter_mut().enumerate() {
            senders.heard(now + nth as Nanos * span_ns / count, last, RTT_NS, NO_LINK);
        }
    }

    #[test]
    fn those_count_that_are_heard_each_round_trip_and_no_others_soon_after() {
        let (mut senders, mut peers) = (Senders::default(), [Round::default(); 64]);
        assert_eq!(senders.count(0), 0);
        // Packets of all come all the time.
        for now in (0..40).map(|nth| nth * RTT_NS) {
            hear(&mut senders, &mut peers, now, RTT_NS);
            assert_eq!(senders.count(now + RTT_NS), 64, "at {now}");
        }
        // One goes on, with a packet each round trip.
        let mut counts = [0; 40];
        for (nth, count) in (40..).zip(&mut counts) {
            senders.heard(nth * RTT_NS, &mut peers[0], RTT_NS, NO_LINK);
            *count = senders.count(nth * RTT_NS);
        }
        assert!(counts.is_sorted_by(|earlier, later| earlier >= later), "{counts:?}");
        let halvings = u64::from(64_u32.ilog2()) + 1;
        assert_eq!(counts[((ROUND_TRIPS + 1) * halvings) as usize], 1, "{counts:?}");
    }

    #[test]
    fn what_a_last_packet_overtook_makes_nobody_a_sender_again() {
        let (mut senders, mut peers) = (Senders::default(), [Round::default(); 8]);
        hear(&mut senders, &mut peers, 0, RTT_NS);
        senders.done(&mut peers[0]);
        let late = Came { late: true, ..NO_LINK };
        senders.heard(RTT_NS, &mut peers[0], RTT_NS, late);
        assert_eq!(senders.count(RTT_NS), 7);
        senders.heard(RTT_NS, &mut peers[1], RTT_NS, late);
        assert_eq!(senders.count(RTT_NS), 7, "it has more to send, and counts");
        senders.heard(RTT_NS, &mut peers[0], RTT_NS, NO_LINK);
        assert_eq!(senders.count(RTT_NS), 8, "it sends again");
    }

    /// A receiver that is slower than its senders: what it hears in a round is a small part of what waits.
    #[test]
    fn packets_that_wait_make_a_round_longer() {
        let (mut senders, mut peers) = (Senders::default(), [Round::default(); 200]);
        hear(&mut senders, &mut peers, 0, RTT_NS);
        for turn in 1..100 {
            // Bursts of 4 packets of each peer, 5 us a packet: a turn takes 40 round trips.
            for (nth, last) in peers.iter_mut().enumerate() {
                for packet in 0..4 {
                    let now = RTT_NS + 5_000 * (800 * turn + 4 * nth as Nanos + packet);
                    senders.heard(now, last, RTT_NS, NO_LINK);
                    assert!(senders.count(now) >= 100, "at {now}: {}", senders.count(now));
                }
            }
        }
    }

    #[test]
    fn a_pause_of_the_receiver_halves_the_count_at_most_for_each_ten_milliseconds() {
        let (mut senders, mut peers) = (Senders::default(), [Round::default(); 64]);
        for now in (0..40).map(|nth| nth * RTT_NS) {
            hear(&mut senders, &mut peers, now, RTT_NS);
        }
        let now = 40 * RTT_NS + PATIENCE_NS;
        senders.heard(now, &mut peers[0], RTT_NS, NO_LINK);
        assert!((32..=64).contains(&senders.count(now)), "{}", senders.count(now));
        assert_eq!(senders.count(now + 7 * PATIENCE_NS + ROUND_MAX_NS), 0, "nobody sends");
    }

    /// Where a packet takes longer than half a round trip, and each sender sends one in hundreds of them.
    #[test]
    fn senders_of_less_than_a_packet_a_round_trip_count_on_a_slow_link() {
        const RATE: u64 = 125_000_000;
        const BYTES: u32 = 1500;
        let packet_ns = u64::from(BYTES) * SECOND / RATE;
        let (mut senders, mut peers) = (Senders::default(), [Round::default(); 200]);
        for nth in 0..20 * 200 {
            let now = nth as Nanos * packet_ns;
            senders.heard(
                now,
                &mut peers[nth % 200],
                packet_ns,
                Came { late: false, bytes: BYTES, link_bytes_per_s: RATE },
            );
            assert!(nth < 200 || senders.count(now) >= 150, "at {now}: {}", senders.count(now));
        }
    }

    #[test]
    fn a_round_is_as_long_as_the_slowest_sender_needs() {
        let (mut senders, mut near, mut far) =
            (Senders::default(), Round::default(), Round::default());
        senders.heard(0, &mut far, 50 * RTT_NS, NO_LINK);
        for now in (1..400).map(|nth| nth * RTT_NS) {
            senders.heard(now, &mut near, RTT_NS, NO_LINK);
            if now % (50 * RTT_NS) == 0 {
                senders.heard(now, &mut far, 50 * RTT_NS, NO_LINK);
            }
            assert_eq!(senders.count(now), 2, "at {now}");
        }
    }
}
