//! Places of the peer table: allocation and eviction (protocol.md §3.5).

use super::Endpoint;
use super::room::{address, names};
use crate::host::Host;
use crate::mutants::{Mutant, mutant};
use crate::peer::{PathSize, Peer, Phase, tables};
use crate::stats::DropReason;
use crate::units::{Nanos, PeerAddress, PeerId};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Entries of a full peer table that one newcomer searches for one to evict.
const EVICTION_LOOKS: usize = 64;
/// Most sessions that one newcomer ends.
const EVICTION_LEAVES: u32 = 4;
/// The endpoint makes room when less than this part (1/n) of the peer table is free.
const ROOM_SHARE: u32 = 8;
/// The newcomers of one address take at most this part (1/n) of the peer table,
const QUOTA_SHARE: u32 = 8;
/// or this many places of a small one.
const QUOTA_MIN: u32 = 64;

/// Approximate bytes of a peer beside its place in the table.
const NEWCOMER_BYTES: usize = 16 << 10;

impl Endpoint {
    /// Whether there is memory for a peer of this address, if it is new.
    pub(super) fn has_room_for<H: Host>(&self, address: PeerAddress, host: &mut H) -> bool {
        self.names.contains_key(&address)
            || (tables::in_slab(host, &self.peers).is_ok() && host.has_room(NEWCOMER_BYTES))
    }

    /// The entry of a peer, for the driver.
    pub(super) fn peer_index<H: Host>(
        &mut self,
        now: Nanos,
        address: PeerAddress,
        host: &mut H,
    ) -> Option<u32> {
        if let Some(&index) = self.names.get(&address) {
            return Some(index);
        }
        let PeerAddress { name, key } = address;
        let most = self.core.cfg.peers_max;
        let known = self.peers.len() as u32;
        if known >= most - most / ROOM_SHARE {
            self.make_room(now, host);
        }
        if self.peers.len() as u32 >= most {
            return None;
        }
        let entry = self.peers.vacant_entry();
        let index = entry.key() as u32;
        self.generation = self.generation.wrapping_add(1);
        let id = PeerId { index, generation: self.generation, key };
        let size = PathSize::new(host.datagram_limit_bytes(name));
        // Packets with that id may still be under way: the peer must not take them for this session's.
        let gave_up = self.room.recall(address).unwrap_or(0);
        entry.insert(Box::new(Peer::new(id, name, size, gave_up)));
        self.names.insert(address, index);
        self.room.came(name);
        Some(index)
    }

    /// The entry of a peer that sent a hello.
    ///
    /// # Errors
    /// [`DropReason::Quota`], [`DropReason::TableFull`].
    pub(super) fn newcomer_index<H: Host>(
        &mut self,
        now: Nanos,
        address: PeerAddress,
        host: &mut H,
    ) -> Result<u32, DropReason> {
        let name = address.name;
        let quota = (self.core.cfg.peers_max / QUOTA_SHARE).max(QUOTA_MIN);
        if !self.names.contains_key(&address)
            && self.room.newcomers_of(name) >= quota
            && !mutant(Mutant::SkipsTheNewcomerQuota)
        {
            self.make_room_beside(now, address, host);
            if self.room.newcomers_of(name) >= quota {
                return Err(DropReason::Quota);
            }
        }
        self.peer_index(now, address, host).ok_or(DropReason::TableFull)
    }

    /// Makes room in a nearly full table. Looks at a bounded number of entries; the next call looks at others.
    fn make_room<H: Host>(&mut self, now: Nanos, host: &mut H) {
        let most = self.core.cfg.peers_max;
        let looks = EVICTION_LOOKS.min(most as usize) as u32;
        let places: Vec<u32> = self.room.next_looks(looks, most).collect();
        self.free_some(now, &places, host);
    }

    /// Makes room among the newcomers of an address that has its quota, from the given one on.
    fn make_room_beside<H: Host>(&mut self, now: Nanos, from: PeerAddress, host: &mut H) {
        let [first, last] = names(address(from.name)).map(PeerAddress::all_of);
        let (first, last) = (*first.start(), *last.end());
        let (after, before) = (self.names.range(from..=last), self.names.range(first..from));
        let places = after.chain(before).map(|(_, index)| *index).take(EVICTION_LOOKS);
        let places: Vec<u32> = places.collect();
        self.free_some(now, &places, host);
    }

    /// Frees some of these places, unless the driver keeps them. It drops entries without a session. It leaves
    /// sessions, whose entries go later: first those that hold only data that nobody here may ever want, then quiet
    /// ones.
    fn free_some<H: Host>(&mut self, now: Nanos, places: &[u32], host: &mut H) {
        let mut leaves = 0;
        for hoarders in [true, false] {
            for place in places {
                let index = *place as usize;
                let Some(peer) = self.peers.get_mut(index).filter(|p| p.kept == 0) else {
                    continue;
                };
                if peer.session.phase() == Phase::Idle && peer.queued() == 0 {
                    let mut gone = self.peers.remove(index);
                    self.room.left(gone.name);
                    self.lost(&mut gone);
                    continue;
                }
                let may_go = match hoarders {
                    true => peer.hoards(&self.core, now),
                    false => peer.is_quiet(),
                };
                if may_go && leaves < EVICTION_LEAVES {
                    leaves += 1;
                    peer.leave(&mut self.core, host, now);
                    self.schedule.ready(peer);
                    self.schedule.reschedule(&self.core, peer);
                }
            }
            if leaves > 0 {
                return;
            }
        }
    }

    /// Cleans up after a peer that has lost its place.
    pub(super) fn lost(&mut self, gone: &mut Peer) {
        self.schedule.forget(gone, &self.peers);
        self.names.remove(&gone.address());
        let gave_up = gone.session.gave_up();
        if gave_up != 0 {
            self.room.forget(gone.address(), gave_up);
        }
    }
}
