//! The view of an endpoint for observers outside the process ([`crate::monitor`]).
//!
//! Under the lock an observer only copies, a bounded number of entries at a time. It formats them afterwards, and comes
//! back for the rest.

use super::driver::Driver;
use super::{Endpoint, State, enable};
use crate::run::link::Carried;
use erd_rd::stats::Stats;
use erd_rd::{FlowView, PeerId};
use std::net::SocketAddr;

/// Peer-table entries read in one hold of the lock: some tens of microseconds.
const ENTRIES_PER_HOLD: usize = 128;

/// State of an endpoint.
#[derive(Clone, Debug)]
pub struct Head {
    /// Its name.
    pub name: SocketAddr,
    /// Its congestion control.
    pub scheme: &'static str,
    /// Peers that the engine has entries for, with or without a session.
    pub peers: usize,
    /// Receive buffer that the kernel granted, in its accounting.
    pub recv_buffer_bytes: usize,
    /// Counters of its engine.
    pub stats: Stats,
    /// Datagrams that the kernel dropped.
    pub kernel_drops: u64,
    /// Counters of its ports.
    pub carried: Carried,
}

/// The flow to one peer.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The name of the peer.
    pub peer: SocketAddr,
    /// "udp", "verbs" or "shm".
    pub carrier: &'static str,
    /// The engine's view of it.
    pub view: FlowView,
    /// KiB sent on each path since the flow was last idle.
    pub path_kib: Vec<u32>,
}

/// Part of an endpoint read so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// `None` before the first look, and for an endpoint that is not enabled (any more).
    pub head: Option<Head>,
    /// Its flows.
    pub flows: Vec<Flow>,
    /// The entry to look at next.
    next: usize,
}

impl Seen {
    /// Entries looked at so far, or `None` before the first look.
    pub fn progress(&self) -> Option<usize> {
        self.head.is_some().then_some(self.next)
    }
}

impl Endpoint {
    /// Reads the next part of the endpoint, at most `room` more flows. True if nothing is left. Reads nothing while
    /// another thread works on it.
    pub fn observe(&self, seen: &mut Seen, room: usize) -> bool {
        if !self.is_usable() {
            return true;
        }
        let Some(guard) = self.try_lock() else { return false };
        match &*guard {
            State::Enabled(driver) => driver.observe(seen, room),
            State::Setup(_) | State::Closed => true,
        }
    }
}

impl Driver {
    fn observe(&self, seen: &mut Seen, mut room: usize) -> bool {
        seen.head.get_or_insert_with(|| self.head());
        let end = self.engine.peer_places();
        let stop = end.min(seen.next + ENTRIES_PER_HOLD);
        while seen.next < stop && room > 0 {
            let peer = self.engine.peer_at(seen.next);
            seen.next += 1;
            if let Some(flow) = peer.and_then(|peer| self.flow_to(peer)) {
                seen.flows.push(flow);
                room -= 1;
            }
        }
        seen.next >= end || room == 0
    }

    fn head(&self) -> Head {
        Head {
            name: enable::name(&self.domain, self.socket()),
            scheme: self.scheme,
            peers: self.engine.peer_count(),
            recv_buffer_bytes: self.socket().granted_recv_bytes(),
            stats: *self.engine.stats(),
            kernel_drops: self.socket().kernel_drops(),
            carried: self.carriers.link.carried,
        }
    }

    /// `None` without a session.
    fn flow_to(&self, peer: PeerId) -> Option<Flow> {
        let (view, address) = (self.engine.flow(peer)?, self.engine.peer_address(peer)?);
        let carrier = if view.by_lane { "shm" } else { self.carriers.link.carrier(address) };
        Some(Flow {
            peer: address.name,
            carrier,
            view,
            path_kib: self.engine.path_kib(peer).collect(),
        })
    }
}
