//! The scheduler of an endpoint: which peer sends next, and which peer's timer is next.

use crate::peer::{Core, Peer};
use crate::units::{Nanos, PeerId};
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;
use slab::Slab;

/// The table of peers. They are boxed, so that a growing table moves only pointers and takes no memory for absent
/// peers.
pub(super) type Peers = Slab<Box<Peer>>;

/// Most peers whose timers one call of [`crate::Endpoint::handle_timeout`] runs.
pub const TIMERS_PER_CALL: usize = 1024;

/// A ready list (every peer at most once) and a lazy timer heap: an entry that does not carry
/// its peer's `wake_at` is stale and skipped.
#[derive(Default)]
pub(super) struct Schedule {
    ready: VecDeque<PeerId>,
    /// Number of ready peers that have nothing to send.
    resting: usize,
    /// Peers whose small messages wait for a flush, so that posts to others need not look at
    /// them.
    waiting: VecDeque<PeerId>,
    heap: BinaryHeap<Reverse<(Nanos, u32)>>,
}

fn is_there(peers: &Peers, id: PeerId) -> bool {
    peers.get(id.index as usize).is_some_and(|peer| peer.id == id)
}

impl Schedule {
    pub(super) fn ready(&mut self, peer: &mut Peer) {
        if !core::mem::replace(&mut peer.ready, true) {
            self.ready.push_back(peer.id);
        }
        self.stir(peer);
    }

    /// Enters a peer that has sent and has no more to send: it keeps its turn, but is not worth a poll.
    pub(super) fn rest(&mut self, peer: &mut Peer) {
        self.ready(peer);
        peer.rests = true;
        self.resting += 1;
    }

    fn stir(&mut self, peer: &mut Peer) {
        self.resting -= usize::from(core::mem::take(&mut peer.rests));
    }

    /// Notes that a peer was taken from the ready list.
    pub(super) fn left(&mut self, peer: &mut Peer) {
        self.stir(peer);
        peer.ready = false;
    }

    /// Notes that a peer was removed from `peers`: another may get its place. Its entries stay and are skipped. They are
    /// removed when they outnumber the peers, so each costs a constant time.
    pub(super) fn forget(&mut self, gone: &mut Peer, peers: &Peers) {
        self.left(gone);
        if self.ready.len() + self.waiting.len() > 4 * peers.len() + 64 {
            self.ready.retain(|id| is_there(peers, *id));
            self.waiting.retain(|id| is_there(peers, *id));
        }
    }

    /// Number of peers that are ready without anything to send.
    pub(super) fn resting(&self) -> usize {
        self.resting
    }

    /// True if a ready peer may have something to send.
    pub(super) fn has_due(&self) -> bool {
        self.ready.len() > self.resting
    }

    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn has_ready(&self) -> bool {
        self.has_due() || !self.waiting.is_empty()
    }

    /// Takes the peer that has the next turn.
    pub(super) fn pop_ready<'a>(&mut self, peers: &'a mut Peers) -> Option<&'a mut Peer> {
        let id = core::iter::from_fn(|| self.ready.pop_front()).find(|id| is_there(peers, *id))?;
        let peer = &mut *peers[id.index as usize];
        self.left(peer);
        Some(peer)
    }

    /// Sets a peer aside until the next flush.
    pub(super) fn wait_for_flush(&mut self, peer: &mut Peer) {
        if !core::mem::replace(&mut peer.waits_for_flush, true) {
            self.waiting.push_back(peer.id);
        }
    }

    /// Makes the peers ready that wait for a flush.
    pub(super) fn flush(&mut self, peers: &mut Peers) {
        while let Some(id) = self.waiting.pop_front() {
            if let Some(peer) = peers.get_mut(id.index as usize).filter(|peer| peer.id == id) {
                peer.waits_for_flush = false;
                self.ready(peer);
            }
        }
    }

    /// Enters the peer's next wake-up if it comes before the one entered.
    pub(super) fn reschedule(&mut self, core: &Core, peer: &mut Peer) {
        self.enter(peer.next_wake(core), peer);
    }

    /// The same for a ready peer whose timers have just run: it must send what is still due, so it enters the heap
    /// again after that.
    pub(super) fn reschedule_after(&mut self, core: &Core, peer: &mut Peer, now: Nanos) {
        let at = peer.next_wake(core);
        if at > now {
            self.enter(at, peer);
        }
    }

    fn enter(&mut self, at: Nanos, peer: &mut Peer) {
        if at < peer.wake_at {
            peer.wake_at = at;
            self.heap.push(Reverse((at, peer.id.index)));
        }
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Enters the true time of each peer whose wake-up is due and would do nothing, as far as it is
    /// before one that would.
    pub(super) fn correct(&mut self, core: &Core, now: Nanos, peers: &mut Peers) {
        for _ in 0..TIMERS_PER_CALL {
            let Some(index) = self.pop_due(now, peers) else { return };
            let peer = &mut peers[index as usize];
            self.reschedule(core, peer);
            if peer.wake_at <= now {
                return;
            }
        }
    }

    /// Takes a peer whose wake-up is due.
    pub(super) fn pop_due(&mut self, now: Nanos, peers: &mut Peers) -> Option<u32> {
        while let Some(&Reverse((at, index))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if let Some(peer) = peers.get_mut(index as usize)
                && peer.wake_at == at
            {
                peer.wake_at = Nanos::MAX;
                return Some(index);
            }
        }
        None
    }

    /// Rebuilds the heap when stale entries outnumber the peers.
    pub(super) fn compact(&mut self, core: &Core, peers: &mut Peers) {
        if self.heap.len() <= 4 * peers.len() + 64 {
            return;
        }
        self.heap.clear();
        for (_, peer) in peers {
            peer.wake_at = Nanos::MAX;
            self.reschedule(core, peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PathSize;
    use crate::units::KeyIndex;

    fn peer(generation: u32) -> Peer {
        let name = "10.0.0.1:1".parse().expect("an address");
        let id = PeerId { index: 0, generation, key: KeyIndex(0) };
        Peer::new(id, name, PathSize::new(1472), 0)
    }

    /// A table with one peer, of this generation.
    fn table(generation: u32) -> Peers {
        let mut peers = Peers::new();
        peers.insert(Box::new(peer(generation)));
        peers
    }

    #[test]
    fn who_gets_the_place_of_another_has_one_turn() {
        let (mut gone, mut peers, mut schedule) = (peer(1), table(2), Schedule::default());
        schedule.rest(&mut gone);
        schedule.wait_for_flush(&mut gone);
        schedule.forget(&mut gone, &peers);
        schedule.flush(&mut peers);
        assert_eq!(schedule.ready_len(), 1, "the newcomer was not to be flushed");
        schedule.ready(&mut peers[0]);
        assert_eq!(schedule.pop_ready(&mut peers).map(|peer| peer.id.generation), Some(2));
        assert!(schedule.pop_ready(&mut peers).is_none());
        assert_eq!(schedule.resting(), 0);
    }

    #[test]
    fn entries_of_those_who_are_gone_are_bounded() {
        let (mut peers, mut schedule) = (table(0), Schedule::default());
        schedule.ready(&mut peers[0]);
        for generation in 1..1000 {
            let mut gone = peer(generation);
            schedule.ready(&mut gone);
            schedule.wait_for_flush(&mut gone);
            schedule.forget(&mut gone, &peers);
            assert!(schedule.ready.len() + schedule.waiting.len() <= 68);
        }
        assert_eq!(schedule.pop_ready(&mut peers).map(|peer| peer.id.generation), Some(0));
    }
}
