//! The packets in flight: what the peer has not acknowledged, what each packet carried, and which of them must be
//! repeated (protocol.md §4, §7.1).
//!
//! `Peer` writes the packets and tells this part which went out, which arrived and which are lost. The part knows no
//! controller, no operation and no clock but the send times that it is given. Its invariants are in [`Flight::check`].

use super::path_order::PathOrder;
use super::rare::Queue;
use super::record::TxRecord;
use crate::bitmap::{BITS_MAX, Bitmap};
use crate::mutants::{Mutant, mutant};
use crate::units::{Nanos, Psn};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;

/// Contents of a packet, to build it again.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Bundle { first: u64, count: u16 },
    Segment { op: u32, msg_id: u16, s_offset: u32, offset_bytes: u64, len: u16, eager: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    InFlight,
    /// In the retry queue.
    Lost,
    Acked,
}

/// The send cache's entry for one PSN.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentPacket {
    pub sent_at: Nanos,
    pub bytes: u32,
    pub path: u16,
    pub attempt: u8,
    fate: Fate,
    pub content: Content,
}

impl SentPacket {
    /// True if it is neither acknowledged nor lost.
    pub fn is_in_flight(&self) -> bool {
        self.fate == Fate::InFlight
    }

    /// The peer has it.
    pub fn is_acked(&self) -> bool {
        self.fate == Fate::Acked
    }
}

/// See the module. Holds only numbers while nothing is outstanding.
#[derive(Debug, Default)]
pub(super) struct Flight {
    first_psn: Psn,
    next_psn: Psn,
    una: Psn,
    /// Most entries of `sent`, from the peer's greeting.
    psn_window: u32,
    /// The send cache: entry `i` is PSN `una + i`. At most `psn_window` entries.
    sent: VecDeque<SentPacket>,
    /// Its entries that are acknowledged, to compare with a SACK word by word. 2 KiB at most. Those below `told` are not
    /// entered: the next [`Flight::pop_acked`] drops them, so packets that arrive in order need no bitmap.
    known: Bitmap,
    told: Psn,
    /// Its packets in flight, by path, where the scheme asks for their order.
    order: Option<Box<PathOrder>>,
    /// Records of the bundles in the send cache; `records_base` numbers the first.
    records: Queue<TxRecord>,
    records_base: u64,
    /// PSNs to repeat, before anything new. May hold entries acknowledged meanwhile.
    retry: Queue<Psn>,
    bytes: u64,
    packets: u32,
    bundles: u32,
    /// Number of newly acknowledged packets not yet reported to the controller.
    acked_packets: u32,
    /// One past the highest acknowledged packet.
    acked_end: Psn,
    /// Packets below it were judged by the order of acknowledgements.
    judged: Psn,
    /// Packets from there up to here may have been overtaken on their paths.
    suspects_end: Psn,
}

impl Flight {
    /// The flight of a new session.
    pub fn new(first_psn: Psn) -> Flight {
        Flight {
            first_psn,
            next_psn: first_psn,
            una: first_psn,
            acked_end: first_psn,
            judged: first_psn,
            suspects_end: first_psn,
            told: first_psn,
            ..Flight::default()
        }
    }

    /// Sets how many packets the peer takes from the lowest unacknowledged one on.
    pub fn open(&mut self, psn_window: u32) {
        self.psn_window = psn_window;
    }

    /// Keeps the order of the packets on each path, for [`Flight::first_on`]. Nothing was sent yet.
    pub fn keep_order(&mut self) {
        self.order = Some(Box::default());
    }

    /// True if [`Flight::keep_order`] was called.
    pub fn keeps_order(&self) -> bool {
        self.order.is_some()
    }

    /// The first PSN of the session.
    pub fn first_psn(&self) -> Psn {
        self.first_psn
    }

    /// The number of the next new packet.
    pub fn next_psn(&self) -> Psn {
        self.next_psn
    }

    /// The lowest number that is not acknowledged.
    pub fn una(&self) -> Psn {
        self.una
    }

    /// Bytes in flight: sent, and neither acknowledged nor lost.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Packets in flight.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Bundles among them.
    pub fn bundles(&self) -> u32 {
        self.bundles
    }

    /// True if nothing is unacknowledged.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Packets that the peer takes from the lowest unacknowledged one on.
    pub fn psn_window(&self) -> u32 {
        self.psn_window
    }

    /// True if the peer takes one more new packet.
    pub fn has_room(&self) -> bool {
        (self.next_psn.since(self.una) as u32) < self.psn_window
    }

    /// True if it takes no other after that.
    pub fn is_filled_by_next(&self) -> bool {
        (self.next_psn.since(self.una) as u32) + 1 >= self.psn_window
    }

    /// Send time of the newest packet.
    pub fn newest_sent_at(&self) -> Option<Nanos> {
        self.sent.back().map(|last| last.sent_at)
    }

    /// Adds a record to the bundle under construction.
    pub fn push_record(&mut self, record: TxRecord) {
        self.records.push_back(record);
    }

    /// The first record that is in no packet, in a session whose data goes by a lane.
    pub fn first_record(&self) -> Option<TxRecord> {
        self.records.front().copied()
    }

    /// Takes out the record that [`Flight::first_record`] found.
    pub fn drop_first_record(&mut self) {
        self.records.pop_front();
        self.records_base += 1;
    }

    /// The number of the next record.
    pub fn next_record(&self) -> u64 {
        self.records_base + self.records.len() as u64
    }

    /// The records of a bundle.
    pub fn records(
        &self,
        first: u64,
        count: u16,
    ) -> impl ExactSizeIterator<Item = &TxRecord> + Clone + use<'_> {
        let from = (first - self.records_base) as usize;
        self.records.range(from..from + usize::from(count))
    }

    /// The record of this number, whose bundle is still in the send cache.
    pub fn record(&self, number: u64) -> TxRecord {
        self.records[(number - self.records_base) as usize]
    }

    /// Adds a sent packet, with the number [`Flight::next_psn`].
    pub fn push(&mut self, sent_at: Nanos, bytes: u32, path: u16, content: Content) {
        self.next_psn = self.next_psn.plus(1);
        let sent = SentPacket { sent_at, bytes, path, attempt: 0, fate: Fate::InFlight, content };
        self.sent.push_back(sent);
        self.enter(self.sent.len() - 1);
    }

    /// The next packet to repeat, and its distance from the lowest unacknowledged one.
    pub fn next_retry(&mut self) -> Option<(usize, SentPacket)> {
        while let Some(psn) = self.retry.front() {
            let place = usize::try_from(psn.since(self.una)).ok();
            let lost = place.and_then(|at| Some((at, *self.sent.get(at)?)));
            match lost.filter(|(_, sent)| sent.fate == Fate::Lost) {
                Some(found) => return Some(found),
                None => self.retry.pop_front(),
            };
        }
        None
    }

    /// Takes the packet of [`Flight::next_retry`] out of the queue.
    pub fn take_retry(&mut self) {
        self.retry.pop_front();
    }

    /// True if a packet must be repeated.
    pub fn has_retries(&self) -> bool {
        !self.retry.is_empty()
    }

    /// Notes that the packet at this place was sent again.
    pub fn repeated(&mut self, place: usize, now: Nanos, bytes: u32, path: u16) {
        let sent = &mut self.sent[place];
        (sent.sent_at, sent.path, sent.attempt) = (now, path, sent.attempt.saturating_add(1));
        (sent.bytes, sent.fate) = (bytes, Fate::InFlight);
        self.enter(place);
    }

    /// The packet at this place; `None` beyond the last.
    pub fn get(&self, place: usize) -> Option<&SentPacket> {
        self.sent.get(place)
    }

    /// Packets from the lowest unacknowledged one to the last one sent.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether a peer may acknowledge all below `cum` and name all below `high` now: both were sent, and not too long
    /// ago.
    pub fn may_be_acked(&self, cum: Psn, high: Psn) -> bool {
        let ignores_wrap = mutant(Mutant::IgnoresThePsnWrap);
        let beyond = match ignores_wrap {
            true => cum.0 > self.next_psn.0,
            false => cum.since(self.next_psn) > 0,
        };
        // Half of all numbers lie behind. A packet delayed for so long has no news.
        let behind =
            cum.since(self.una) < -(BITS_MAX as i32) && !mutant(Mutant::RaisesLimitsOnAStaleAck);
        let overlong = high.since(cum) < 0 || high.since(self.next_psn) > 0;
        !(beyond || behind || (overlong && !ignores_wrap))
    }

    /// The place of the packet in flight that was sent first on a path; none unless [`Flight::keep_order`] was called.
    pub fn first_on(&self, path: u16) -> Option<usize> {
        self.order.as_ref()?.first(path, self.una)
    }

    /// The place of the packet in flight that was sent next on the path of the one at this place.
    pub fn next_on_path(&self, place: usize) -> Option<usize> {
        self.order.as_ref()?.next(self.una.plus(place as u32), self.una)
    }

    /// The packets that are known to have been received, by their place.
    pub fn known(&self) -> &Bitmap {
        &self.known
    }

    /// Begins an acknowledgement, by which all packets below `cum` were received.
    pub fn begin_ack(&mut self, cum: Psn) {
        self.told = cum;
    }

    /// Marks the packet at this place as received. Returns it if that is new.
    pub fn acked(&mut self, place: usize) -> Option<SentPacket> {
        let entry = self.sent.get_mut(place).filter(|entry| !entry.is_acked())?;
        let sent = *entry;
        entry.fate = Fate::Acked;
        if self.una.plus(place as u32).since(self.told) >= 0 {
            self.known.set(place as u32);
        }
        if sent.is_in_flight() {
            self.leave(&sent);
            self.leave_order(place, sent.path);
        }
        self.acked_packets += 1;
        let after = self.una.plus(place as u32 + 1);
        if after.since(self.acked_end) > 0 {
            self.acked_end = after;
        }
        Some(sent)
    }

    /// Marks the packet at this place as lost, if it is in flight and was sent no later than `seen_until`. Returns it
    /// if so.
    pub fn lost(&mut self, place: usize, seen_until: Nanos) -> Option<SentPacket> {
        let entry = self.sent.get_mut(place)?;
        if entry.fate != Fate::InFlight || entry.sent_at > seen_until {
            return None;
        }
        entry.fate = Fate::Lost;
        let sent = *entry;
        if !mutant(Mutant::KeepsLostPacketsInFlight) {
            self.leave(&sent);
        }
        self.leave_order(place, sent.path);
        self.retry.push_back(self.una.plus(place as u32));
        Some(sent)
    }

    fn enter(&mut self, place: usize) {
        let SentPacket { bytes, path, content, .. } = self.sent[place];
        if let Some(order) = &mut self.order {
            order.enter(self.una.plus(place as u32), path, (self.una, self.sent.len()));
        }
        self.bytes += u64::from(bytes);
        self.packets += 1;
        self.bundles += u32::from(matches!(content, Content::Bundle { .. }));
    }

    #[inline]
    fn leave_order(&mut self, place: usize, path: u16) {
        if let Some(order) = &mut self.order {
            order.leave(self.una.plus(place as u32), path);
        }
    }

    fn leave(&mut self, sent: &SentPacket) {
        self.bytes -= u64::from(sent.bytes);
        self.packets -= 1;
        self.bundles -= u32::from(matches!(sent.content, Content::Bundle { .. }));
    }

    /// Puts the lowest unacknowledged packet first among those to repeat, if it is lost. It alone may go whatever the
    /// window, and until it arrives the peer may have no memory for the others.
    pub fn put_lowest_first(&mut self) {
        let is_lost = self.sent.front().is_some_and(|lowest| lowest.fate == Fate::Lost);
        if is_lost && let Some(at) = self.retry.iter().position(|psn| *psn == self.una) {
            self.retry.remove(at);
            self.retry.push_front(self.una);
        }
    }

    /// Drops the acknowledged packets at the low end.
    #[inline]
    pub fn pop_acked(&mut self) {
        let before = self.una;
        while let Some(front) = self.sent.pop_front_if(|front| front.fate == Fate::Acked) {
            if let Content::Bundle { count, .. } = front.content {
                self.records.drain(..usize::from(count));
                self.records_base += u64::from(count);
            }
            self.una = self.una.plus(1);
        }
        let popped = self.una.since(before) as u32;
        if popped == 0 {
            return;
        }
        if self.known.ones() > 0 {
            self.known.advance(popped);
        }
        // A mark that stayed behind would seem to be ahead after 2^31 packets.
        for mark in [&mut self.judged, &mut self.suspects_end] {
            if mark.since(self.una) < 0 {
                *mark = self.una;
            }
        }
    }

    /// Returns the number of packets newly acknowledged since the last call.
    pub fn take_acked_packets(&mut self) -> u32 {
        core::mem::take(&mut self.acked_packets)
    }

    /// Number of places up to the highest acknowledged packet.
    pub fn acked_places(&self) -> usize {
        self.acked_end.since(self.una).max(0) as usize
    }

    /// The first place not yet passed to [`Flight::judged`].
    pub fn unjudged_place(&self) -> usize {
        self.judged.since(self.una).max(0) as usize
    }

    /// Notes that the packets before this place were judged by the order of acknowledgements.
    pub fn judged(&mut self, end: usize) {
        self.judged = self.una.plus(end as u32);
    }

    /// Notes that packets before this place may have been overtaken on their paths: they are to be judged when a higher one
    /// is acknowledged.
    pub fn suspect(&mut self, end: usize) {
        self.suspects_end = self.una.plus(end.max(self.suspected_places()) as u32);
    }

    /// The places of those among them that are to be judged now.
    pub fn suspects(&self) -> Range<usize> {
        self.unjudged_place()..self.suspected_places().min(self.acked_places())
    }

    fn suspected_places(&self) -> usize {
        self.suspects_end.since(self.una).max(0) as usize
    }

    /// True if an answer or a notice is unacknowledged.
    pub fn has_endings(&self) -> bool {
        self.records.iter().any(TxRecord::ends)
    }

    /// Frees heap memory. Call it only while nothing is outstanding.
    pub fn reclaim(&mut self) {
        debug_assert!(self.sent.is_empty(), "what is in flight may have to be repeated");
        self.sent = VecDeque::new();
        self.known.shrink();
        if let Some(order) = &mut self.order {
            order.reclaim();
        }
        self.records_base += self.records.len() as u64;
        self.records.forget();
        self.retry.forget();
    }

    /// Reserves room for so many packets and records.
    #[cfg(test)]
    pub fn reserve(&mut self, count: usize) {
        self.sent.reserve(count);
        self.records.reserve(count);
    }

    /// Number of packets and of records that have room.
    #[cfg(test)]
    pub fn reserved(&self) -> (usize, usize) {
        (self.sent.capacity(), self.records.capacity())
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        let is_bundle = |sent: &&SentPacket| matches!(sent.content, Content::Bundle { .. });
        let flying = || self.sent.iter().filter(|sent| sent.fate == Fate::InFlight);
        if !mutant(Mutant::KeepsLostPacketsInFlight) {
            let bytes: u64 = flying().map(|sent| u64::from(sent.bytes)).sum();
            assert_eq!(self.bytes, bytes, "bytes in flight are those of the packets in flight");
            assert_eq!(self.packets as usize, flying().count(), "packets in flight");
            assert_eq!(self.bundles as usize, flying().filter(is_bundle).count(), "bundles");
        }
        assert_eq!(self.una.plus(self.sent.len() as u32), self.next_psn, "each PSN has an entry");
        assert!(self.sent.len() <= self.psn_window as usize, "the peer takes no more");
        let records = self.sent.iter().filter_map(|sent| match sent.content {
            Content::Bundle { count, .. } => Some(usize::from(count)),
            Content::Segment { .. } => None,
        });
        // Records on their way to a lane are in none.
        let bundled: usize = records.sum();
        assert!(
            self.records.len() == bundled || (bundled == 0 && self.next_psn == self.first_psn),
            "each record is in one bundle"
        );
        let is_queued = |(place, _): (usize, &SentPacket)| {
            self.retry.contains(&self.una.plus(place as u32))
                || mutant(Mutant::DropsRetransmissionsAtAClosedWindow)
        };
        let mut lost = self.sent.iter().enumerate().filter(|(_, sent)| sent.fate == Fate::Lost);
        assert!(lost.all(is_queued), "what is lost is to be repeated");
        let marks = [self.acked_end, self.judged, self.suspects_end];
        assert!(marks.iter().all(|mark| mark.since(self.una) >= 0), "no mark stays behind");
        self.check_known();
        self.check_order();
    }

    fn check_known(&self) {
        if mutant(Mutant::ClearsTheBitmapOnGrowth) {
            return;
        }
        let mut acked = self.sent.iter().enumerate().filter(|(_, sent)| sent.is_acked());
        assert_eq!(self.known.ones() as usize, acked.clone().count(), "the bitmap has no others");
        assert!(acked.all(|(place, _)| self.known.get(place as u32)), "what is acknowledged");
    }

    fn check_order(&self) {
        let Some(order) = &self.order else { return };
        order.check(self.una, self.sent.len());
        let mut listed = 0;
        for path in 0..order.paths() {
            let (mut at, mut newest) = (self.first_on(path), 0);
            while let Some(place) = at {
                let sent = &self.sent[place];
                assert!(sent.is_in_flight() && sent.path == path, "a list has its path's packets");
                assert!(sent.sent_at >= newest, "the order is that of sending");
                (newest, listed, at) = (sent.sent_at, listed + 1, self.next_on_path(place));
            }
        }
        let flying = self.sent.iter().filter(|sent| sent.is_in_flight()).count();
        assert_eq!(listed, flying, "each packet in flight is in a list");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three bundles of one record and 100 bytes, sent at 1, 2 and 3, from this PSN on.
    fn three(first: Psn) -> Flight {
        let mut flight = Flight::new(first);
        flight.open(8);
        for sent_at in 1..=3 {
            let content = Content::Bundle { first: flight.next_record(), count: 1 };
            flight.push_record(TxRecord::Eager(sent_at as u32));
            flight.push(sent_at, 100, 0, content);
            flight.check();
        }
        flight
    }

    #[test]
    fn the_lowest_lost_packet_is_repeated_before_others() {
        let mut flight = three(Psn(7));
        for place in [2, 1, 0] {
            assert!(flight.lost(place, 3).is_some());
        }
        flight.put_lowest_first();
        assert!(flight.retry.iter().copied().eq([Psn(7), Psn(9), Psn(8)]));
        flight.retry.swap(0, 1);
        flight.sent[0].fate = Fate::InFlight;
        flight.put_lowest_first();
        assert_eq!(flight.retry[0], Psn(9), "only what is lost is repeated");
    }

    #[test]
    fn what_is_lost_leaves_the_flight_until_it_is_repeated() {
        let mut flight = three(Psn(u32::MAX));
        assert!(flight.lost(1, 1).is_none(), "it went out after what the peer has seen");
        assert!(flight.lost(1, 2).is_some() && flight.lost(1, 2).is_none(), "once");
        flight.check();
        assert_eq!((flight.bytes(), flight.packets(), flight.bundles()), (200, 2, 2));
        let (place, sent) = flight.next_retry().expect("a lost packet");
        assert_eq!((place, sent.attempt), (1, 0));
        flight.take_retry();
        flight.repeated(place, 9, 120, 3);
        flight.check();
        assert_eq!((flight.bytes(), flight.packets(), flight.bundles()), (320, 3, 3));
        assert_eq!(flight.get(1).map(|sent| (sent.attempt, sent.path)), Some((1, 3)));
    }

    #[test]
    fn what_is_acknowledged_is_forgotten_from_the_lowest_on() {
        let mut flight = three(Psn(u32::MAX));
        assert!(flight.lost(0, 1).is_some());
        assert_eq!(flight.acked(1).map(|sent| sent.bytes), Some(100));
        assert!(flight.acked(1).is_none() && flight.acked(3).is_none());
        flight.pop_acked();
        assert_eq!((flight.una(), flight.len(), flight.acked_places()), (Psn(u32::MAX), 3, 2));
        assert!(flight.acked(0).is_some(), "it was late, not lost");
        flight.pop_acked();
        flight.check();
        assert_eq!((flight.una(), flight.len(), flight.next_record()), (Psn(1), 1, 3));
        assert!(flight.next_retry().is_none(), "nothing is left to repeat");
        assert_eq!(flight.take_acked_packets(), 2);
    }

    #[test]
    fn the_bitmap_has_what_an_acknowledgement_names_beyond_its_lowest_missing_packet() {
        let mut flight = three(Psn(u32::MAX - 3));
        for sent_at in 4..=8 {
            flight.push(sent_at, 100, 0, Content::Bundle { first: 3, count: 0 });
        }
        flight.begin_ack(Psn(u32::MAX - 1));
        for place in [0, 1, 3, 5] {
            assert!(flight.acked(place).is_some());
        }
        flight.pop_acked();
        flight.check();
        assert_eq!(flight.known().word(0), 0b1010);
        // An older one, whose lowest missing packet has come.
        flight.begin_ack(Psn(u32::MAX - 3));
        assert!(flight.acked(0).is_some() && flight.acked(2).is_some());
        flight.pop_acked();
        flight.check();
        assert_eq!((flight.una(), flight.known().ones()), (Psn(2), 0));
    }

    #[test]
    fn only_what_was_sent_may_be_acknowledged() {
        let flight = three(Psn(u32::MAX));
        assert!(flight.may_be_acked(Psn(1), Psn(2)) && flight.may_be_acked(Psn(2), Psn(2)));
        assert!(!flight.may_be_acked(Psn(3), Psn(3)), "it was not sent");
        assert!(!flight.may_be_acked(Psn(1), Psn(3)) && !flight.may_be_acked(Psn(1), Psn(0)));
        let far = Psn(u32::MAX - 1 - BITS_MAX);
        assert!(!flight.may_be_acked(far, Psn(2)) && flight.may_be_acked(far.plus(1), Psn(2)));
    }

    #[test]
    fn the_peer_bounds_the_number_of_packets() {
        let mut flight = three(Psn(0));
        flight.open(3);
        assert!(!flight.has_room());
        flight.acked(1);
        flight.pop_acked();
        assert!(!flight.has_room(), "the lowest one holds the others");
        flight.acked(0);
        flight.pop_acked();
        assert!(flight.has_room());
    }
}
