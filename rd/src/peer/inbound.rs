//! What all senders together may have on the way to this endpoint (protocol.md §4.4): a receiver's link that many share.
//!
//! A controller's window ends at one packet, and a flow that begins knows nothing of the others. So many senders fill the queue
//! before the receiver's link whatever their controllers do. The receiver knows how many there are. It tells each an even share of
//! what the link carries in a round trip and of a little queue, if need be less than a packet.
//!
//! Even shares waste what their owners don't use. The gain takes care of that: while the link has room though senders say that
//! their share holds them back, it grows. While the link is full, or nobody is held back, it falls.

use super::senders::{Came, Round, Senders};
use crate::units::{Nanos, SECOND};
use crate::wire::window::{DATAGRAM_COST_BYTES, Window};

/// How the gain grows from round to round at most, and how it falls.
const GROW_MOST: f32 = 1.5;
const MANY_GROW_MOST: f32 = 17.0 / 16.0;
const SHRINK: f32 = 0.75;
/// A link is full that carries this much of its rate: the rest is headers of layers below, and gaps.
const FULL: f64 = 0.94;
/// Packets of a round whose rate counts: fewer may come in one burst.
const PACKETS_LEAST: u32 = 64;
/// Shortest time of such a round, in ns: what waited for the process comes faster than the link carries.
const SPAN_LEAST_NS: f64 = 20_000.0;
/// Most times that a link is faster than it is known to be, and the part of the fastest rate that each round forgets.
const FASTER_MOST: u64 = 2;
const FORGOTTEN: u64 = 64;
/// Senders are held back if at least one byte in so many is theirs.
const HELD_PARTS: u64 = 16;
/// Round trips count up to so many times the shortest that was heard: the set-up's may have waited for a process.
const LONGER_MOST: Nanos = 4;
/// Shares of less than so many packets are told as a time between packets: a window counts whole ones.
const SPACED_BELOW_PACKETS: f64 = 2.0;
/// Packets that come at given times fill so much of the link, with the headers of layers below (Ethernet, IPv4, UDP).
const SPACED_FILL: f64 = 0.98;
const LOWER_BYTES: f64 = 66.0;

/// The link on which peers send to this endpoint.
pub(crate) struct SharedLink {
    /// Its rate as far as it is known; 0 if it is not.
    pub bytes_per_s: u64,
    /// See [`crate::cc::Scheme::link_share_bdps`].
    pub least_bdps: f32,
}

/// A data packet that arrived.
pub(super) struct Arrival {
    /// When it is read, and when it came.
    pub now: Nanos,
    pub arrived: Nanos,
    pub bytes: u32,
    /// Its sender has more, and this receiver's window holds it back.
    pub held: bool,
    /// Its sender is known to have sent it, or a later one.
    pub late: bool,
    /// The smoothed round trip to its sender, with its waits for processes; 0 if nobody measured it.
    pub whole_rtt_ns: Nanos,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    senders: Senders,
    /// Of this round: when its first packet arrived, packets, bytes with the headers of layers below, and those of senders that
    /// were held back.
    began_at: Nanos,
    packets: u32,
    bytes: u64,
    held_bytes: u64,
    /// Bandwidth-delay products that may be on the way. 0 stands for the least.
    gain: f32,
    /// The shortest round trips (ns) of those heard in this round, and in the one before; 0 if none is known.
    shortest_ns: Nanos,
    shortest_before_ns: Nanos,
    /// The fastest of the latest rounds, in bytes per second: the link is at least as fast.
    fastest_bytes_per_s: u64,
}

impl Inbound {
    /// Notes a packet of a peer that was heard in the round `last` before.
    pub(super) fn heard(&mut self, packet: &Arrival, last: &mut Round, link: &SharedLink) {
        let came =
            Came { late: packet.late, bytes: packet.bytes, link_bytes_per_s: link.bytes_per_s };
        if self.senders.heard(packet.now, last, packet.whole_rtt_ns, came) {
            self.turn(packet, link);
        }
        if packet.held && self.held_bytes == 0 {
            // What came before had no share to go by.
            (self.began_at, self.packets, self.bytes) = (packet.arrived, 0, 0);
        }
        self.packets = self.packets.saturating_add(1);
        self.shortest_ns = shorter(self.shortest_ns, packet.whole_rtt_ns);
        let bytes = u64::from(packet.bytes) + LOWER_BYTES as u64;
        self.bytes += bytes;
        self.held_bytes += if packet.held { bytes } else { 0 };
    }

    /// The same for a peer on this host, whose packets take no link.
    pub(super) fn heard_near(&mut self, packet: &Arrival, last: &mut Round) {
        let came = Came { late: packet.late, ..Came::default() };
        self.senders.heard(packet.now, last, packet.whole_rtt_ns, came);
    }

    /// Notes that a peer heard in the round `last` has nothing more on the way.
    pub(super) fn done(&mut self, last: &mut Round) {
        self.senders.done(last);
    }

    /// Judges the round that ends with the arrival of the next one's first packet.
    fn turn(&mut self, packet: &Arrival, link: &SharedLink) {
        let span_ns = packet.arrived.saturating_sub(self.began_at).max(1) as f64;
        let rate = self.bytes as f64 / span_ns * SECOND as f64;
        self.fastest_bytes_per_s -= self.fastest_bytes_per_s / FORGOTTEN;
        if self.packets >= PACKETS_LEAST && span_ns >= SPAN_LEAST_NS {
            let rate = (rate as u64).min(link.bytes_per_s.saturating_mul(FASTER_MOST));
            self.fastest_bytes_per_s = self.fastest_bytes_per_s.max(rate);
        }
        let capacity = link.bytes_per_s.max(self.fastest_bytes_per_s) as f64;
        let is_held = HELD_PARTS * self.held_bytes > self.bytes;
        let has_room = is_held && rate < FULL * capacity;
        let gain = self.gain.max(link.least_bdps);
        // What is on the way carries in proportion, until the link is full.
        let change = if has_room { (FULL * capacity / rate) as f32 } else { SHRINK };
        // So many hold one another back by their number alone: packets that wait in a queue count as room for a while.
        let per_rtt = f64::from(self.packets) / span_ns * packet.whole_rtt_ns as f64;
        let are_many = per_rtt < SPACED_BELOW_PACKETS * f64::from(self.senders(packet.now));
        let gain = gain * change.min(if are_many { MANY_GROW_MOST } else { GROW_MOST });
        // With more a lone sender of many would still have no more than the least.
        let most = link.least_bdps * self.senders(packet.now).max(1) as f32;
        self.gain = gain.min(most).max(link.least_bdps);
        (self.shortest_before_ns, self.shortest_ns) = (self.shortest_ns, 0);
        (self.began_at, self.packets) = (packet.arrived, 0);
        (self.bytes, self.held_bytes) = (0, 0);
    }

    /// Peers that send.
    pub(crate) fn senders(&self, now: Nanos) -> u32 {
        self.senders.count(now)
    }

    /// The share of one of several senders, `rtt_ns` from here, with datagrams of `datagram_bytes`; `None` for a lone sender, or
    /// if the link or the round trip is not known.
    pub(crate) fn share(
        &self,
        now: Nanos,
        link: &SharedLink,
        rtt_ns: Nanos,
        datagram_bytes: u16,
    ) -> Option<Window> {
        if self.senders(now) < 2 || link.bytes_per_s == 0 || rtt_ns == 0 || link.least_bdps <= 0.0 {
            return None;
        }
        let rtt_ns = match shorter(self.shortest_ns, self.shortest_before_ns) {
            0 => rtt_ns,
            shortest_ns => rtt_ns.min(LONGER_MOST * shortest_ns),
        };
        let gain = f64::from(self.gain.max(link.least_bdps));
        let rate = link.bytes_per_s.max(self.fastest_bytes_per_s) as f64 / SECOND as f64;
        let rate = rate / f64::from(self.senders.expected(now));
        let datagram_bytes = f64::from(datagram_bytes);
        let share = gain * rate * rtt_ns as f64;
        if share >= SPACED_BELOW_PACKETS * datagram_bytes {
            let cost = share * DATAGRAM_COST_BYTES as f64 / datagram_bytes;
            return Some(Window::of_bytes((share + cost) as u64));
        }
        let rate = SPACED_FILL * rate * gain / f64::from(link.least_bdps);
        Some(Window::of_space(((datagram_bytes + LOWER_BYTES) / rate) as u64))
    }
}

/// The shorter of two round trips, of which 0 is none.
fn shorter(one_ns: Nanos, other_ns: Nanos) -> Nanos {
    if one_ns == 0 || other_ns == 0 { one_ns.max(other_ns) } else { one_ns.min(other_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: Nanos = 12_000;
    const DATAGRAM_BYTES: u16 = 4096;
    const LINK: SharedLink = SharedLink { bytes_per_s: 50_000_000_000, least_bdps: 1.5 };
    const BDP_BYTES: f64 = 600_000.0;

    /// So many senders fill a share of the link for some rounds, and are held back or not. Returns what is told to each.
    fn after(senders: usize, filled: f64, held: bool) -> Option<Window> {
        let (mut inbound, mut peers) = (Inbound::default(), alloc::vec![Round::default(); senders]);
        let packet_ns = f64::from(DATAGRAM_BYTES) / (50.0 * filled);
        let mut now = 0;
        for nth in 0..40 * senders.max(200) {
            now = (nth as f64 * packet_ns) as Nanos;
            let bytes = u32::from(DATAGRAM_BYTES);
            let packet =
                Arrival { now, arrived: now, bytes, held, late: false, whole_rtt_ns: RTT_NS };
            inbound.heard(&packet, &mut peers[nth % senders], &LINK);
        }
        inbound.share(now, &LINK, RTT_NS, DATAGRAM_BYTES)
    }

    #[test]
    fn several_senders_share_a_full_link_evenly() {
        assert_eq!(after(1, 0.98, true), None, "a lone sender has it all");
        for senders in [2, 5, 30] {
            let bytes = f64::from(after(senders, 0.98, true).unwrap().bytes().unwrap());
            let expected = 1.5 * BDP_BYTES / senders as f64 * (1.0 + 1024.0 / 4096.0);
            assert!((bytes / expected - 1.0).abs() < 0.01, "{senders}: {bytes}, not {expected}");
        }
        for senders in [120, 1000] {
            let space_ns = after(senders, 0.98, true).unwrap().space_ns() as f64;
            let expected = senders as f64 * (4096.0 + LOWER_BYTES) / 50.0 / SPACED_FILL;
            let ratio = space_ns / expected;
            assert!((ratio - 1.0).abs() < 0.01, "{senders}: {space_ns} ns, not {expected}");
        }
    }

    #[test]
    fn shares_grow_while_the_link_has_room_for_those_held_back() {
        let share = |filled, held| after(4, filled, held).unwrap().bytes().unwrap();
        assert!(share(0.5, true) > 3 * share(0.98, true));
        assert_eq!(share(0.5, false), share(0.98, true), "nobody is held back");
    }

    #[test]
    fn nothing_is_shared_that_is_not_known() {
        let (mut inbound, mut peers) = (Inbound::default(), [Round::default(); 2]);
        for peer in &mut peers {
            let packet = Arrival {
                now: 0,
                arrived: 0,
                bytes: 100,
                held: true,
                late: false,
                whole_rtt_ns: RTT_NS,
            };
            inbound.heard(&packet, peer, &LINK);
        }
        let share = |link: &SharedLink, rtt_ns| inbound.share(0, link, rtt_ns, DATAGRAM_BYTES);
        assert!(share(&LINK, RTT_NS).is_some());
        assert_eq!(share(&LINK, 0), None, "no round trip");
        assert_eq!(share(&SharedLink { bytes_per_s: 0, ..LINK }, RTT_NS), None, "no rate");
        assert_eq!(share(&SharedLink { least_bdps: 0.0, ..LINK }, RTT_NS), None, "turned off");
    }

    #[test]
    fn those_that_have_sent_all_they_had_no_longer_count() {
        let (mut inbound, mut peers) = (Inbound::default(), [Round::default(); 8]);
        let hear = |inbound: &mut Inbound, peer: &mut Round, now| {
            let packet = Arrival {
                now,
                arrived: now,
                bytes: 4096,
                held: true,
                late: false,
                whole_rtt_ns: RTT_NS,
            };
            inbound.heard(&packet, peer, &LINK);
        };
        for nth in 0..8000 {
            hear(&mut inbound, &mut peers[nth % 8], 80 * nth as Nanos);
        }
        let now = 80 * 8000;
        peers[2..].iter_mut().for_each(|peer| {
            hear(&mut inbound, peer, now);
            inbound.done(peer);
        });
        assert_eq!(inbound.senders(now), 2);
        hear(&mut inbound, &mut peers[5], now);
        assert_eq!(inbound.senders(now), 3, "it has more");
    }
}
