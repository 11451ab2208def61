//! The packets in flight on each path, in the order in which they were sent, for controllers that judge losses by it
//! (protocol.md §7.1).
//!
//! [`Flight`](super::flight::Flight) owns it, and says which packets enter and leave. A packet that a later one overtook
//! is found at the front of its path's list, so an acknowledgement looks at the packets of no other path, and at none
//! that was sent later. It takes 4 bytes for each path, and 4 for each packet of the longest send cache since the flow was
//! idle, rounded up to a power of two: 65 KiB at most.

use crate::bitmap::BITS_MAX;
use crate::units::Psn;
use alloc::vec::Vec;

/// A packet's number modulo [`BITS_MAX`]: the send cache holds no two of the same.
type Slot = u16;

/// No packet.
const NONE: Slot = Slot::MAX;
/// Least number of links in use.
const LINKS_MIN: usize = 64;

const _: () = assert!(BITS_MAX.is_power_of_two() && BITS_MAX <= NONE as u32);

/// The neighbours of a packet in its list, or the ends of a list: `after` is its first packet, `before` its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Link {
    before: Slot,
    after: Slot,
}

const ALONE: Link = Link { before: NONE, after: NONE };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PathOrder {
    /// A ring with an entry for each packet of the send cache, by its slot.
    links: Vec<Link>,
    /// The ends of each list, by path: as many as paths were used.
    ends: Vec<Link>,
}

impl PathOrder {
    /// Puts a packet last in the list of this path: it was sent now. The send cache has `len` packets from `una` on, this
    /// one included.
    pub fn enter(&mut self, psn: Psn, path: u16, (una, len): (Psn, usize)) {
        let path = usize::from(path);
        if self.ends.len() <= path {
            self.ends.resize(path + 1, ALONE);
        }
        if self.links.len() < len {
            self.grow(una, len);
        }
        let slot = slot(psn);
        let last = core::mem::replace(&mut self.ends[path].before, slot);
        match last {
            NONE => self.ends[path].after = slot,
            _ => self.link(last).after = slot,
        }
        *self.link(slot) = Link { before: last, after: NONE };
    }

    /// Takes a packet out of the list of its path.
    pub fn leave(&mut self, psn: Psn, path: u16) {
        let Link { before, after } = *self.link(slot(psn));
        let path = usize::from(path);
        match before {
            NONE => self.ends[path].after = after,
            _ => self.link(before).after = after,
        }
        match after {
            NONE => self.ends[path].before = before,
            _ => self.link(after).before = before,
        }
    }

    /// The packet that was sent first on this path, as its distance from `una`.
    pub fn first(&self, path: u16, una: Psn) -> Option<usize> {
        self.ends.get(usize::from(path)).and_then(|ends| place(ends.after, una))
    }

    /// The packet that was sent next on the same path.
    pub fn next(&self, psn: Psn, una: Psn) -> Option<usize> {
        place(self.links[self.index(slot(psn))].after, una)
    }

    /// Frees heap memory. Call it only while there are no packets.
    pub fn reclaim(&mut self) {
        *self = PathOrder::default();
    }

    fn grow(&mut self, una: Psn, len: usize) {
        let mut links = alloc::vec![ALONE; len.next_power_of_two().max(LINKS_MIN)];
        let mask = links.len() - 1;
        for n in 0..self.links.len() {
            let slot = slot(una.plus(n as u32));
            links[usize::from(slot) & mask] = *self.link(slot);
        }
        self.links = links;
    }

    fn index(&self, slot: Slot) -> usize {
        usize::from(slot) & (self.links.len() - 1)
    }

    fn link(&mut self, slot: Slot) -> &mut Link {
        let index = self.index(slot);
        &mut self.links[index]
    }

    /// Number of lists.
    pub fn paths(&self) -> u16 {
        self.ends.len() as u16
    }

    /// Checks the invariants between two calls of the endpoint. The send cache has `len` packets from `una` on.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, una: Psn, len: usize) {
        assert!(
            self.links.len() >= len && self.links.len() <= BITS_MAX as usize,
            "a link for each"
        );
        for path in 0..self.paths() {
            let (mut at, mut last) = (self.first(path, una), NONE);
            for nth in 0.. {
                let Some(place) = at else { break };
                assert!(place < len && nth < len, "the list of path {path} ends");
                let psn = una.plus(place as u32);
                let before = self.links[self.index(slot(psn))].before;
                assert_eq!(before, last, "lists are the same in both directions");
                (last, at) = (slot(psn), self.next(psn, una));
            }
            assert_eq!(self.ends[usize::from(path)].before, last, "the end of path {path}");
        }
    }
}

fn slot(psn: Psn) -> Slot {
    (psn.0 % BITS_MAX) as Slot
}

fn place(slot: Slot, una: Psn) -> Option<usize> {
    (slot != NONE).then(|| (u32::from(slot).wrapping_sub(una.0) % BITS_MAX) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::{each_sequence, is_large};
    use crate::peer::flight::{Content, Flight};
    use alloc::vec::Vec;

    const CONTENT: Content = Content::Bundle { first: 0, count: 0 };

    #[derive(Clone, Copy, Debug)]
    enum Call {
        /// A new packet on this path.
        Send(u16),
        /// The lost packet whose turn it is, on this path.
        Repeat(u16),
        Acked(usize),
        Lost(usize),
        Pop,
    }

    const CALLS: [Call; 10] = [
        Call::Send(0),
        Call::Send(1),
        Call::Repeat(0),
        Call::Repeat(1),
        Call::Acked(0),
        Call::Acked(1),
        Call::Acked(2),
        Call::Lost(0),
        Call::Lost(1),
        Call::Pop,
    ];

    fn call(flight: &mut Flight, now: u64, call: Call) {
        match call {
            Call::Send(path) => flight.push(now, 100, path, CONTENT),
            Call::Repeat(path) => {
                if let Some((place, _)) = flight.next_retry() {
                    flight.take_retry();
                    flight.repeated(place, now, 100, path);
                }
            }
            Call::Acked(place) => _ = flight.acked(place),
            Call::Lost(place) => _ = flight.lost(place, now),
            Call::Pop => flight.pop_acked(),
        }
    }

    /// The packets in flight on a path, by the time at which they were sent.
    fn expected(flight: &Flight, path: u16) -> Vec<usize> {
        let all = (0..flight.len()).filter_map(|place| Some((flight.get(place)?, place)));
        let flying = all.filter(|(sent, _)| sent.is_in_flight() && sent.path == path);
        let mut by_time: Vec<_> = flying.map(|(sent, place)| (sent.sent_at, place)).collect();
        by_time.sort_unstable();
        by_time.into_iter().map(|(_, place)| place).collect()
    }

    fn listed(flight: &Flight, path: u16) -> Vec<usize> {
        core::iter::successors(flight.first_on(path), |at| flight.next_on_path(*at)).collect()
    }

    fn begun(first_psn: u32) -> Flight {
        let mut flight = Flight::new(Psn(first_psn));
        flight.open(BITS_MAX);
        flight.keep_order();
        (1..=3).for_each(|now| flight.push(now, 100, (now % 2) as u16, CONTENT));
        flight
    }

    #[test]
    fn each_list_has_the_packets_in_flight_on_its_path_in_the_order_of_sending() {
        let depth = if is_large() { 6 } else { 4 };
        for first_psn in [0, BITS_MAX - 2, u32::MAX - 1] {
            each_sequence(&CALLS, depth, |calls| {
                let mut flight = begun(first_psn);
                for (nth, one) in calls.iter().enumerate() {
                    call(&mut flight, nth as u64 + 4, *one);
                }
                for path in [0, 1, 2] {
                    assert_eq!(listed(&flight, path), expected(&flight, path), "{calls:?}");
                }
                flight.pop_acked();
                flight.check();
            });
        }
    }

    #[test]
    fn lists_stay_when_their_links_need_more_memory() {
        for first_psn in [0, BITS_MAX - 70, u32::MAX - 100] {
            let mut flight = begun(first_psn);
            for now in (4..2000).step_by(2) {
                flight.push(now, 100, (now * now % 7) as u16, CONTENT);
                match now / 2 % 5 {
                    0 => _ = flight.acked(flight.len() / 2),
                    1 => _ = flight.lost(flight.len() / 3, now),
                    2 => call(&mut flight, now + 1, Call::Repeat((now % 3) as u16)),
                    _ => _ = flight.acked(0),
                }
                flight.pop_acked();
                flight.check();
                for path in 0..8 {
                    assert_eq!(listed(&flight, path), expected(&flight, path), "at {now}");
                }
            }
            assert!(flight.len() > 4 * LINKS_MIN, "its links grew {} packets", flight.len());
        }
    }
}
