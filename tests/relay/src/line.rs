//! One direction of a path: a queue of the simulator, a transmitter, and a wire.

use erd_sim::hop::Hop;
use erd_sim::link::{Health, LinkConfig, WireEnd};
use erd_sim::packet::PacketPool;
use erd_sim::queue::{Offer, Queue};
use erd_sim::time::Picos;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub struct Line {
    config: LinkConfig,
    queue: Queue,
    sending: Option<Hop>,
    /// Packets on their way with their times of arrival, in order. The transmitter bounds it.
    wire: VecDeque<(Picos, Hop)>,
    end: WireEnd,
}

impl Line {
    /// A line on which nothing is under way.
    pub fn new(config: LinkConfig, seed: u64) -> Line {
        let (queue, end) = (Queue::new(&config, seed), WireEnd::new(&config));
        Line { config, queue, sending: None, wire: VecDeque::new(), end }
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    pub fn queue_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Nothing is being sent, so nothing waits.
    pub fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    /// Changes how it does, from the next packet on. A line that dies loses what waits.
    pub fn set_health(&mut self, now: Picos, health: Health, pool: &mut PacketPool) {
        self.queue.set_health(now, health, |hop| pool.give_back(hop.packet));
    }

    /// A packet has come. True if it waits now.
    pub fn offer(&mut self, now: Picos, hop: Hop, pool: &mut PacketPool) -> bool {
        self.queue.count(&hop);
        let lost = self.queue.loses() || self.queue.push(now, hop) == Offer::Lost;
        if lost {
            pool.give_back(hop.packet);
        }
        !lost
    }

    /// Begins to send the next packet; says when it is sent. `None` when nothing waits or a packet is being sent.
    pub fn start(&mut self, now: Picos) -> Option<Picos> {
        if self.sending.is_some() {
            return None;
        }
        let hop = self.queue.pop(now)?;
        self.sending = Some(hop);
        Some(now + self.config.sending_ps(hop.wire_bytes))
    }

    /// The packet being sent has left the transmitter: it is on the wire, unless the line died under it.
    pub fn finish(&mut self, now: Picos, pool: &mut PacketPool) {
        let Some(hop) = self.sending.take() else { return };
        if self.queue.health() == Health::Dead {
            self.queue.count_lost();
            pool.give_back(hop.packet);
            return;
        }
        let at = now + self.config.propagation_ps;
        let sending_ps = self.config.sending_ps(hop.wire_bytes);
        let at = self.end.seen_at(at, sending_ps, || self.queue.random());
        self.wire.push_back((at, hop));
    }

    /// Takes a packet that has arrived.
    pub fn arrived(&mut self, now: Picos) -> Option<Hop> {
        self.wire.pop_front_if(|(at, _)| *at <= now).map(|(_, hop)| hop)
    }

    /// When the next packet on the wire arrives.
    pub fn next_arrival(&self) -> Option<Picos> {
        self.wire.front().map(|(at, _)| *at)
    }
}
