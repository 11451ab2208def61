//! Links: the arriving bytes of rendezvous messages, of writes and of reads (protocol.md §5.4).
//!
//! `Peer` announces messages, asks for the grants to send, and places the bytes. This part knows which bytes belong
//! where.

use super::coverage::{Coverage, Gaps, SpareGaps};
use super::tables;
use crate::host::{Host, RecvToken};
use crate::mutants::{Mutant, mutant};
use crate::peer::rare::Empty;
use crate::peer::record::{LINK_BYTES, ReadPart};
use crate::stats::DropReason;
use crate::wire::record::Cts;
use alloc::collections::VecDeque;
use slab::Slab;

/// Bit of a Msg_ID that names a link (protocol.md §5.4).
const LINK_ID: u16 = 0x8000;
/// Most links (Msg_IDs) live at a time (protocol.md §5.4).
const LINKS_MAX: usize = 1 << 15;
/// Links of one message live at a time.
const LINKS_PER_MESSAGE: u32 = 2;
/// Links searched for the next segment: earlier ones may be waiting for repetitions.
const LINKS_AHEAD: usize = 64;

/// Purpose of the bytes under a Msg_ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::peer) enum Purpose {
    Message,
    /// The peer writes to memory of ours.
    Write,
    /// We read memory of the peer's.
    Read,
}

/// A rendezvous message under way, or another large transfer.
#[derive(Clone, Copy, Debug)]
pub(in crate::peer) struct Incoming {
    pub to: RecvToken,
    pub order: u32,
    pub op: u32,
    pub len_bytes: u64,
    wanted_bytes: u64,
    granted_bytes: u64,
    got_bytes: u64,
    links: u32,
    pub purpose: Purpose,
}

impl Incoming {
    /// A new one, of which `wanted_bytes` will come.
    pub fn new(
        purpose: Purpose,
        to: RecvToken,
        (order, op): (u32, u32),
        len_bytes: u64,
        wanted_bytes: u64,
    ) -> Incoming {
        let (granted_bytes, got_bytes, links) = (0, 0, 0);
        Incoming {
            to,
            order,
            op,
            len_bytes,
            wanted_bytes,
            granted_bytes,
            got_bytes,
            links,
            purpose,
        }
    }

    /// Bytes that will come.
    pub fn wanted_bytes(&self) -> u64 {
        self.wanted_bytes
    }
}

/// One Msg_ID in use.
#[derive(Debug)]
pub(super) struct Link {
    incoming: u32,
    pub base_bytes: u64,
    pub len_bytes: u32,
    pub coverage: Coverage,
    /// Send order of the message, or of the request for this part of a read.
    pub order: u32,
    /// The target has told where its bytes are.
    pub lent: bool,
    /// They were read there, and the target is to confirm it.
    pub pulled: bool,
}

/// Meaning of the end of a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Closed {
    /// A part of a read ended: its entry, and whether no other part is under way.
    Read { entry: u32, op: u32, last: bool },
    /// All of its bytes are there.
    Whole(Incoming),
    /// More is to come.
    Part,
}

/// A segment that comes next unless packets are lost or reordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextSegment {
    pub to: RecvToken,
    pub msg_id: u16,
    pub s_offset: u32,
    pub len_bytes: u16,
    /// Its place in the message.
    pub offset_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Links {
    incoming: Slab<Incoming>,
    links: Slab<Link>,
    /// Links in the order of their grants, in which most of them fill: short ones overtake, and long ones take turns.
    granted: VecDeque<u16>,
    /// Payload of the latest segment that did not end its link.
    segment_bytes: u16,
    /// The slot of that link until it ends: then another one may have the slot.
    latest: Option<u16>,
    /// Messages that wait for a free link.
    waiting: VecDeque<u32>,
}

const NO_LINKS: Links = Links {
    incoming: Slab::new(),
    links: Slab::new(),
    granted: VecDeque::new(),
    segment_bytes: 0,
    latest: None,
    waiting: VecDeque::new(),
};

impl Default for Links {
    fn default() -> Links {
        NO_LINKS
    }
}

impl Empty for Links {
    const EMPTY: &'static Links = &NO_LINKS;
}

impl Links {
    /// Whether there is memory for one more message.
    ///
    /// # Errors
    /// If there is none.
    pub fn has_room<H: Host>(&self, host: &mut H) -> Result<(), DropReason> {
        tables::in_slab(host, &self.incoming)?;
        tables::in_slab(host, &self.links)
    }

    /// The same for a message that gets its link later.
    pub fn has_room_to_wait<H: Host>(&self, host: &mut H) -> Result<(), DropReason> {
        tables::in_slab(host, &self.incoming)
    }

    /// True if nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Buffers of messages and writes on their way, excluding reads.
    pub fn buffers(&self) -> impl Iterator<Item = RecvToken> {
        // A read ends as an operation.
        let incoming = self.incoming.iter().filter(|(_, i)| i.purpose != Purpose::Read);
        incoming.map(|(_, i)| i.to)
    }

    /// Begins a message, whose turn for links is after those before it.
    pub fn begin(&mut self, message: Incoming) {
        let index = self.incoming.insert(message) as u32;
        self.waiting.push_back(index);
    }

    /// Gives the next link to a message that waits for one; returns the grant for the peer.
    pub fn grant(&mut self) -> Option<Cts> {
        loop {
            let &index = self.waiting.front()?;
            let m = &mut self.incoming[index as usize];
            if m.granted_bytes >= m.wanted_bytes || m.links >= LINKS_PER_MESSAGE {
                self.waiting.pop_front();
                continue;
            }
            if self.links.len() >= LINKS_MAX {
                return None;
            }
            let base_bytes = m.granted_bytes;
            let len_bytes = (m.wanted_bytes - base_bytes).min(LINK_BYTES) as u32;
            let (order, op, total_bytes) = (m.order, m.op, m.wanted_bytes);
            let msg_id = self.open(index, base_bytes, len_bytes, order);
            return Some(Cts { order, op, msg_id, base_bytes, len_bytes, total_bytes });
        }
    }

    fn open(&mut self, incoming: u32, base_bytes: u64, len_bytes: u32, order: u32) -> u16 {
        let message = &mut self.incoming[incoming as usize];
        message.granted_bytes += u64::from(len_bytes);
        message.links += 1;
        let coverage = Coverage::default();
        let (lent, pulled) = (false, false);
        let link = Link { incoming, base_bytes, len_bytes, coverage, order, lent, pulled };
        let slot = self.links.insert(link) as u16;
        self.granted.push_back(slot);
        LINK_ID | slot
    }

    /// Opens a link for a part of a read, and with the first one its entry. `None` if all links
    /// are in use.
    pub fn open_read(
        &mut self,
        entry: Option<u32>,
        to: RecvToken,
        part: &ReadPart,
        len_bytes: u64,
    ) -> Option<(u32, u16)> {
        if self.links.len() >= LINKS_MAX {
            return None;
        }
        let name = (part.order, part.op);
        let read = || Incoming::new(Purpose::Read, to, name, len_bytes, len_bytes);
        let entry = entry.unwrap_or_else(|| self.incoming.insert(read()) as u32);
        let msg_id = self.open(entry, part.base_bytes, part.len_bytes as u32, part.order);
        Some((entry, msg_id))
    }

    /// The slot of a link's Msg_ID.
    pub fn slot(msg_id: u16) -> Option<usize> {
        (msg_id & LINK_ID != 0).then_some(usize::from(msg_id & !LINK_ID))
    }

    /// The same for an answer, whose Msg_ID may lack the link bit.
    pub fn slot_of_read(msg_id: u16) -> usize {
        usize::from(msg_id & !LINK_ID)
    }

    /// A link, and the message that it belongs to.
    pub fn get(&mut self, slot: usize) -> Option<(&mut Link, &Incoming)> {
        let link = self.links.get_mut(slot)?;
        let message = &self.incoming[link.incoming as usize];
        Some((link, message))
    }

    /// Learns the size of a segment that does not end its link.
    pub fn learn(&mut self, slot: usize, segment_bytes: u16) {
        (self.latest, self.segment_bytes) = (Some(slot as u16), segment_bytes);
    }

    /// Closes a link whose bytes are all there, or will not come.
    pub fn close(&mut self, slot: usize, gaps: &mut Gaps, spare: &mut SpareGaps) -> Closed {
        let link = self.links.remove(slot);
        link.coverage.end(gaps, spare);
        if let Some(at) = self.granted.iter().position(|s| usize::from(*s) == slot) {
            self.granted.remove(at);
        }
        self.latest = self.latest.filter(|latest| usize::from(*latest) != slot);
        let entry = link.incoming;
        let message = &mut self.incoming[entry as usize];
        message.links -= 1;
        message.got_bytes += u64::from(link.len_bytes);
        if message.purpose == Purpose::Read {
            return Closed::Read { entry, op: message.op, last: message.links == 0 };
        }
        if message.got_bytes == message.wanted_bytes {
            return Closed::Whole(self.incoming.remove(entry as usize));
        }
        if message.granted_bytes < message.wanted_bytes && message.links + 1 == LINKS_PER_MESSAGE {
            // With fewer links it is in the queue already.
            self.waiting.push_back(entry);
        }
        Closed::Part
    }

    /// Drops a read whose parts have all ended.
    pub fn forget_read(&mut self, entry: u32) {
        self.incoming.remove(entry as usize);
    }

    /// Number of links of reads.
    pub fn reads(&self) -> usize {
        let reads = self.incoming.iter().filter(|(_, i)| i.purpose == Purpose::Read);
        reads.map(|(_, i)| i.links as usize).sum()
    }

    /// Hands the next expected segments to `f`, in order, until it returns false.
    pub fn each_next_segment(&self, mut f: impl FnMut(NextSegment) -> bool) {
        // The sender most often stays with a link.
        let is_latest = |slot: &&u16| Some(**slot) == self.latest;
        let ahead = || self.granted.iter().take(LINKS_AHEAD);
        let latest = ahead().filter(is_latest);
        for &slot in latest.chain(ahead().filter(|slot| !is_latest(slot))) {
            let Some(link) = self.links.get(usize::from(slot)) else { return };
            let Some(message) = self.incoming.get(link.incoming as usize) else { return };
            let mut s_offset = link.coverage.fresh_bytes;
            while s_offset < link.len_bytes {
                let left = link.len_bytes - s_offset;
                let len_bytes = left.min(self.segment_bytes.into());
                let next = NextSegment {
                    to: message.to,
                    msg_id: LINK_ID | slot,
                    s_offset,
                    len_bytes: len_bytes as u16,
                    offset_bytes: link.base_bytes + u64::from(s_offset),
                };
                if len_bytes == 0 || !f(next) {
                    return;
                }
                s_offset += len_bytes;
            }
        }
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self) {
        assert!(self.links.len() <= LINKS_MAX, "a Msg_ID names no more");
        assert_eq!(self.granted.len(), self.links.len(), "each link was granted once");
        assert!(self.granted.iter().all(|slot| self.links.contains((*slot).into())), "and is live");
        for (index, message) in &self.incoming {
            let links = self.links.iter().filter(|(_, link)| link.incoming as usize == index);
            assert_eq!(links.count(), message.links as usize, "each message knows its links");
            assert!(message.granted_bytes <= message.wanted_bytes, "no more than is wanted");
        }
        let mut overfull = self.links.iter().filter(|(_, link)| {
            link.coverage.got_bytes > link.len_bytes && !mutant(Mutant::CountsDuplicateBytes)
        });
        assert!(overfull.next().is_none(), "a link has no more bytes than were granted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN_BYTES: u64 = 3 * LINK_BYTES + 7;

    fn message(len_bytes: u64) -> Incoming {
        Incoming::new(Purpose::Message, RecvToken(5), (1, 2), len_bytes, len_bytes)
    }

    #[test]
    fn a_long_message_has_two_links_at_a_time_until_it_is_whole() {
        let (mut links, mut gaps, mut spare) =
            (Links::default(), Gaps::default(), SpareGaps::default());
        links.begin(message(LEN_BYTES));
        let (mut open, mut granted_bytes) = (VecDeque::new(), 0);
        for round in 0..4 {
            while let Some(cts) = links.grant() {
                assert_eq!((cts.base_bytes, cts.total_bytes), (granted_bytes, LEN_BYTES));
                granted_bytes += u64::from(cts.len_bytes);
                open.push_back(Links::slot(cts.msg_id).expect("a link"));
            }
            links.check();
            assert_eq!(open.len(), if round < 3 { 2 } else { 1 });
            let slot = open.pop_front().expect("a link");
            let closed = links.close(slot, &mut gaps, &mut spare);
            assert_eq!(matches!(closed, Closed::Whole(_)), round == 3, "{closed:?}");
        }
        assert!(links.is_empty());
        links.check();
    }

    #[test]
    fn parts_of_a_read_share_one_entry_that_stays_until_it_is_forgotten() {
        let (mut links, mut gaps, mut spare) =
            (Links::default(), Gaps::default(), SpareGaps::default());
        let part = ReadPart { op: 4, order: 9, base_bytes: 0, len_bytes: 10, msg_id: 0 };
        let (entry, first) = links.open_read(None, RecvToken(1), &part, 20).expect("a link");
        let next = ReadPart { base_bytes: 10, order: 10, ..part };
        let (same, second) = links.open_read(Some(entry), RecvToken(1), &next, 20).expect("a link");
        assert!(same == entry && first != second && links.buffers().next().is_none());
        links.check();
        for (msg_id, is_last) in [(second, false), (first, true)] {
            let slot = Links::slot(msg_id).expect("a link");
            let closed = links.close(slot, &mut gaps, &mut spare);
            assert!(matches!(closed, Closed::Read { op: 4, last, .. } if last == is_last));
        }
        assert!(!links.is_empty());
        links.forget_read(entry);
        assert!(links.is_empty());
        links.check();
    }

    /// A slot is used again: the link that has it now is the last to fill.
    #[test]
    fn after_a_link_has_ended_the_oldest_one_is_expected() {
        let (mut links, mut gaps, mut spare) =
            (Links::default(), Gaps::default(), SpareGaps::default());
        let mut granted = alloc::vec::Vec::new();
        for _ in 0..3 {
            links.begin(message(250));
            granted.extend(links.grant().and_then(|cts| Links::slot(cts.msg_id)));
        }
        let first = |links: &Links| {
            let mut found = None;
            links.each_next_segment(|next| {
                found = Links::slot(next.msg_id);
                false
            });
            found
        };
        links.learn(granted[1], 100);
        assert_eq!(first(&links), Some(granted[1]), "the sender stays with it");
        links.close(granted[1], &mut gaps, &mut spare);
        links.begin(message(250));
        assert_eq!(links.grant().and_then(|cts| Links::slot(cts.msg_id)), Some(granted[1]));
        assert_eq!(first(&links), Some(granted[0]));
    }

    #[test]
    fn what_comes_next_follows_what_has_come() {
        let mut links = Links::default();
        links.begin(message(250));
        let slot = links.grant().and_then(|cts| Links::slot(cts.msg_id)).expect("a link");
        let next = |links: &Links| {
            let mut found = alloc::vec::Vec::new();
            links.each_next_segment(|next| {
                found.push((next.s_offset, next.len_bytes));
                true
            });
            found
        };
        assert_eq!(next(&links), [], "nobody knows how long segments are");
        let (link, _) = links.get(slot).expect("it is live");
        link.coverage.add(&mut Gaps::default(), &mut SpareGaps::default(), 0, 100).unwrap();
        links.learn(slot, 100);
        assert_eq!(next(&links), [(100, 100), (200, 50)]);
    }
}
