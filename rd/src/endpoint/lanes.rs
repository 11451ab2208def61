//! Lanes: shared memory to peers on this host (protocol.md §12).

use super::Endpoint;
use crate::host::{AtOnce, EndReason, Host, Lane, OpError, WorkRequest};
use crate::mutants::{Mutant, mutant};
use crate::peer::{Phase, Stand};
use crate::stats::DropReason;
use crate::units::{Nanos, PeerId};
use crate::wire::Malformed;
use crate::wire::entry::{Entry, Ids};
use core::net::SocketAddr;

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryFate {
    /// The peer's next entry may come.
    Taken,
    /// There is no memory for it now: the driver hands it in once more, before any other of this lane.
    Later,
    /// The same, because its session is not open here yet: its writer's greeting is on its way. If the writer is no more,
    /// that may be lost: then the driver gives up the lane after a time.
    Waits,
    /// Its session is over here: the driver gives up the lane, and does not count the entry as read. Its writer may end an
    /// operation with that.
    Over,
    /// It is not what an honest peer writes: the driver gives up the lane.
    Wrong,
}

/// The fate of an entry whose session is over.
fn over() -> EntryFate {
    match mutant(Mutant::CountsEntriesOfEndedSessions) {
        true => EntryFate::Taken,
        false => EntryFate::Over,
    }
}

impl Endpoint {
    /// Writes a message into the lane to its peer, if there is one with room, and nothing has to go before it. Most
    /// messages to peers on this host go this way. `None` if nothing was done: [`Endpoint::send`] queues it.
    pub fn write_now<H: Host>(
        &mut self,
        now: Nanos,
        wr: &WorkRequest,
        host: &mut H,
    ) -> Option<AtOnce> {
        self.check_post(wr.peer).ok()?;
        let peer = &mut self.peers[wr.peer.index as usize];
        let written = peer.write_now(&mut self.core, host, now, wr)?;
        if written == AtOnce::Unread {
            // It looks for how far the peer has read.
            self.schedule.ready(peer);
        }
        self.schedule.reschedule(&self.core, peer);
        Some(written)
    }

    /// Writes what is due to this peer into its lane, without a turn of all that are ready. False if it has none, or if
    /// datagrams are due.
    pub fn flush_lane<H: Host>(&mut self, now: Nanos, to: PeerId, host: &mut H) -> bool {
        if self.known(to).is_none_or(|peer| !peer.writes_only()) {
            return false;
        }
        let peer = &mut self.peers[to.index as usize];
        peer.transmit_lane(&mut self.core, host, now);
        if !peer.may_have_more(now) {
            self.schedule.rest(peer);
        }
        self.schedule.reschedule(&self.core, peer);
        true
    }

    /// Takes an entry of a lane. Entries of one lane come in the order in which they were written.
    pub fn handle_entry<H: Host>(
        &mut self,
        now: Nanos,
        lane: Lane,
        (kind, bytes): (u8, &[u8]),
        host: &mut H,
    ) -> EntryFate {
        let Some((ids, rest)) = Ids::read(bytes) else { return EntryFate::Wrong };
        self.core.now = now;
        let Ok(index) = self.session_peer(ids.reader) else {
            // It was written before its writer heard of the session's end.
            self.core.stats.drop_packet(DropReason::UnknownSession);
            return over();
        };
        let peer = &mut self.peers[index as usize];
        match peer.stand_of(lane, ids.writer) {
            Stand::Data => {}
            // The peer has our greeting, and its own is still on its way.
            Stand::Greeting { .. } if mutant(Mutant::DropsEntriesBeforeTheWelcome) => {
                return EntryFate::Taken;
            }
            Stand::Greeting { fresh } => {
                if fresh {
                    peer.miss_welcome(&self.core, now);
                    self.schedule.reschedule(&self.core, peer);
                }
                return EntryFate::Waits;
            }
            Stand::Nothing => {
                self.core.stats.drop_packet(DropReason::WrongState);
                return over();
            }
        }
        let entry = Entry::parse(kind, rest).map_err(|Malformed| DropReason::Malformed);
        let taken = entry.and_then(|entry| peer.on_entry(&mut self.core, host, now, &entry));
        // Most entries leave nothing to be said.
        if peer.may_have_more(now) {
            self.schedule.ready(peer);
        }
        self.schedule.reschedule(&self.core, peer);
        match taken {
            Ok(()) => EntryFate::Taken,
            Err(reason) => {
                self.core.stats.drop_packet(reason);
                match reason {
                    DropReason::NoBuffer => EntryFate::Later,
                    _ => EntryFate::Wrong,
                }
            }
        }
    }

    /// True if datagrams are to be expected besides those of strangers and of sessions that have a lane.
    #[must_use]
    pub fn is_on_network(&self) -> bool {
        self.core.on_network > 0
    }

    /// Whether the bytes of a message of this length leave with it, as far as is known. Over a lane those of a long one stay
    /// where they are until the peer reads them.
    #[must_use]
    pub fn sends_bytes(&self, peer: PeerId, len_bytes: u64) -> bool {
        self.known(peer).is_none_or(|peer| !peer.has_lane() || peer.goes_with_record(len_bytes))
    }

    /// Ends the lanes to peers that may read buffers of operations under way: the application is about to get these back.
    pub fn break_lanes<H: Host>(&self, host: &mut H) {
        self.peers.iter().for_each(|(_, peer)| peer.break_lane(host));
    }

    /// It is known how the peer of this name is reached, of which [`Host::reach`] was not sure; or it has read more of what
    /// was put.
    pub fn handle_reached(&mut self, name: SocketAddr) {
        for index in self.peers_of(name) {
            self.schedule.ready(&mut self.peers[index]);
        }
    }

    /// The lane is no more: the peer's process has ended, or its endpoint has `closed` the lane. Everything that it had
    /// written before has been handed in, and it has `read` so much, as [`Host::read_by_peer`] counts.
    pub fn handle_lane_down<H: Host>(
        &mut self,
        now: Nanos,
        lane: Lane,
        closed: bool,
        read: u64,
        host: &mut H,
    ) {
        let reason = match closed {
            true => EndReason::Goodbye,
            false => EndReason::Failed(OpError::PeerUnreachable),
        };
        for (_, peer) in &mut self.peers {
            if !peer.is_of_lane(lane) {
                continue;
            }
            match peer.session.phase() {
                Phase::Open if peer.has_lane() => {
                    peer.settle_up_to(&mut self.core, host, read);
                    peer.end(&mut self.core, host, reason);
                }
                Phase::Leaving => {
                    peer.end(&mut self.core, host, EndReason::Failed(OpError::Canceled));
                }
                Phase::Opening if mutant(Mutant::OffersALostLane) => {}
                Phase::Opening => peer.lose_offer(&mut self.core, now),
                Phase::Open | Phase::Idle => {}
            }
            self.schedule.ready(peer);
            self.schedule.reschedule(&self.core, peer);
        }
    }
}
