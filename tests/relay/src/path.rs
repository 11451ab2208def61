//! One direction of one path: the simulator's link, run by the clock on the wall.
//!
//! Everything happens at the time that the model computes, even when the relay looks late: a relay
//! that was not scheduled for a millisecond has lost no capacity, it only hands packets on late.

use crate::line::Line;
use erd_sim::hop::Hop;
use erd_sim::link::{Health, LinkConfig, LinkCounters};
use erd_sim::meter::DepthMeter;
use erd_sim::packet::{PacketId, PacketPool};
use erd_sim::time::Picos;
use erd_sim::wire::Wire;

/// See the module.
#[derive(Debug)]
pub struct Path {
    line: Line,
    /// When the packet being sent leaves the transmitter.
    sent_at: Option<Picos>,
    propagation_ps: Picos,
    normal: Health,
    delivered: u64,
    delivered_bytes: u64,
    before: LinkCounters,
}

/// What a path did since the last look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// Packets offered.
    pub offered: u64,
    /// Packets handed on.
    pub delivered: u64,
    /// Their bytes on the link.
    pub delivered_bytes: u64,
    /// Packets dropped because the queue was full.
    pub drops: u64,
    /// Packets lost as a lossy or dead path loses them.
    pub lost: u64,
    /// Packets marked.
    pub marks: u64,
    /// Mean depth of the queue, in bytes.
    pub queue_bytes: f64,
}

impl Path {
    /// An idle path that loses a share of the packets when it is well.
    pub fn new(config: LinkConfig, loss: f64, seed: u64) -> Path {
        let mut line = Line::new(config, seed);
        let normal = if loss > 0.0 { Health::Lossy { share: loss } } else { Health::Up };
        line.set_health(0, normal, &mut PacketPool::default());
        Path {
            line,
            sent_at: None,
            propagation_ps: config.propagation_ps,
            normal,
            delivered: 0,
            delivered_bytes: 0,
            before: LinkCounters::default(),
        }
    }

    /// A packet has come.
    pub fn offer(&mut self, now: Picos, id: PacketId, pool: &mut PacketPool) {
        let hop = Hop::of(id, pool.get(id), Wire::Ethernet);
        if self.line.offer(now, hop, pool) && self.line.is_idle() {
            self.sent_at = self.line.start(now);
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Picos> {
        self.sent_at.into_iter().chain(self.line.next_arrival()).min()
    }

    /// No packet is through before this. What happens meanwhile can be looked up later.
    pub fn wake_at(&self) -> Option<Picos> {
        let being_sent = self.sent_at.map(|at| at + self.propagation_ps);
        self.line.next_arrival().or(being_sent)
    }

    /// Lets happen what [`Path::next`] told; answers the packet that is through.
    pub fn step(&mut self, pool: &mut PacketPool) -> Option<PacketId> {
        let at = self.next()?;
        if self.sent_at == Some(at) {
            self.line.finish(at, pool);
            self.sent_at = self.line.start(at);
            return None;
        }
        let hop = self.line.arrived(at)?;
        self.delivered += 1;
        self.delivered_bytes += u64::from(hop.wire_bytes);
        hop.tell(pool.get_mut(hop.packet));
        Some(hop.packet)
    }

    /// Loses everything from now on, or is well again.
    pub fn set_dead(&mut self, now: Picos, dead: bool, pool: &mut PacketPool) {
        self.line.set_health(now, if dead { Health::Dead } else { self.normal }, pool);
    }

    /// What it did since the last call.
    pub fn look(&mut self, now: Picos) -> Seen {
        self.line.queue_mut().settle_depth(now);
        let (before, after) = (self.before, self.line.queue().counters());
        let seen = Seen {
            offered: after.offered - before.offered,
            delivered: std::mem::take(&mut self.delivered),
            delivered_bytes: std::mem::take(&mut self.delivered_bytes),
            drops: after.drops - before.drops,
            lost: after.lost - before.lost,
            marks: after.marks - before.marks,
            queue_bytes: self.line.queue().depth().map_or(0.0, DepthMeter::mean_units),
        };
        self.before = after;
        self.line.queue_mut().reset_depth(now);
        seen
    }
}
