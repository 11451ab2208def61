//! Pauses in a part of a network: packets that wait take memory of their switch, and pause frames go to senders.

use super::blueprint::NodeId;
use super::memory::{Admission, FRAME_BYTES, Frame};
use super::shard::{Shard, Transit, What};
use crate::hop::Hop;
use crate::packet::Packet;

impl Shard {
    /// Sends a packet on at a switch that pauses.
    pub(super) fn offer_pausing(&mut self, node: NodeId, port: usize, hop: Hop) {
        let queue = &self.waiting[port].queue;
        let waits = !self.ports[port].is_idle(self.now) && !queue.overtakes(&hop);
        if waits && !self.admit(node, port, &hop) {
            return;
        }
        if !self.offer(node, port, hop) && waits {
            self.release(node, port, &hop);
        }
    }

    /// Takes a packet that waits into its switch's memory; false if it is lost.
    fn admit(&mut self, node: NodeId, port: usize, hop: &Hop) -> bool {
        let memory = self.memory_of(node);
        match self.memories[memory].admit(hop.ingress, hop.wire_bytes) {
            Admission::Kept => {}
            Admission::Pauses => self.send_frame(node, hop.ingress, true),
            Admission::Lost => {
                let queue = &mut self.waiting[port].queue;
                queue.count(hop);
                queue.count_dropped();
                self.pool.give_back(hop.packet);
                return false;
            }
        }
        true
    }

    /// A packet leaves a queue. If it took memory of a switch, that is free again.
    pub(super) fn release(&mut self, node: NodeId, port: usize, hop: &Hop) {
        let is_switch = node.0 >= self.plan.hosts();
        if is_switch && !self.waiting[port].queue.overtakes(hop) {
            let memory = self.memory_of(node);
            if self.memories[memory].release(hop.ingress, hop.wire_bytes) {
                self.send_frame(node, hop.ingress, false);
            }
        }
    }

    fn memory_of(&self, switch: NodeId) -> usize {
        self.layout.host(switch) - self.hosts.len()
    }

    /// Sends a pause frame to the sender of what comes to a switch by a link.
    fn send_frame(&mut self, switch: NodeId, ingress: u16, begins: bool) {
        let memory = self.memory_of(switch);
        let Frame { link, reverse, sent_at } = self.memories[memory].frame(ingress);
        let port = self.layout.port(switch, reverse - self.plan.links_of(switch).start);
        let at = self.ports[port].frame_at(self.now, sent_at, FRAME_BYTES);
        let sender = self.plan.links()[link as usize].from;
        let of_sender = link - self.plan.links_of(sender).start;
        let what = What::Pause { link: of_sender, begins };
        let (key, shard) = (what.key(sender, link.into()), self.layout.shard(sender));
        if shard == self.number {
            self.calendar.push(at, key, what);
        } else {
            self.outbox[shard].push(Transit { at, key, what, packet: Packet::default() });
        }
    }

    /// A pause frame arrives for the sender of a link.
    pub(super) fn pause(&mut self, node: NodeId, link: u32, begins: bool) {
        let port = self.layout.port(node, link);
        self.ports[port].set_paused(&mut self.waiting[port], self.now, begins);
        if !begins {
            self.await_free(node, port);
        }
    }
}
