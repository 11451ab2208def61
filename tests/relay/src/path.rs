//! One direction of one path: the simulator's link, run by the clock on the wall.
//!
//! Everything happens at the time that the model computes, even when the relay looks late: a relay
//! that was not scheduled for a millisecond has lost no capacity, it only hands packets on late.

use erd_sim::ids::{HostId, Node};
use erd_sim::link::{Health, Link, LinkConfig, LinkCounters};
use erd_sim::packet::{PacketId, PacketPool};
use erd_sim::time::Picos;

/// See the module.
#[derive(Debug)]
pub struct Path {
    link: Link,
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
        let mut link = Link::new(config, Node::Host(HostId(0)), None, seed);
        let normal = if loss > 0.0 { Health::Lossy { share: loss } } else { Health::Up };
        link.set_health(0, normal, &mut PacketPool::default());
        Path {
            link,
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
        if self.link.enqueue(now, id, pool) && self.link.is_idle() {
            self.sent_at = self.link.start(now, pool);
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Picos> {
        self.sent_at.into_iter().chain(self.link.next_arrival()).min()
    }

    /// No packet is through before this. What happens meanwhile can be looked up later.
    pub fn wake_at(&self) -> Option<Picos> {
        let being_sent = self.sent_at.map(|at| at + self.propagation_ps);
        self.link.next_arrival().or(being_sent)
    }

    /// Lets happen what [`Path::next`] told; answers the packet that is through.
    pub fn step(&mut self, pool: &mut PacketPool) -> Option<PacketId> {
        let at = self.next()?;
        if self.sent_at == Some(at) {
            if let Some(id) = self.link.finish(pool) {
                self.link.launch(at, id);
            }
            self.sent_at = self.link.start(at, pool);
            return None;
        }
        let id = self.link.arrived(at)?;
        self.delivered += 1;
        self.delivered_bytes += u64::from(pool.get(id).wire_bytes());
        Some(id)
    }

    /// Loses everything from now on, or is well again.
    pub fn set_dead(&mut self, now: Picos, dead: bool, pool: &mut PacketPool) {
        self.link.set_health(now, if dead { Health::Dead } else { self.normal }, pool);
    }

    /// What it did since the last call.
    pub fn look(&mut self, now: Picos) -> Seen {
        self.link.settle_depth(now);
        let (before, after) = (self.before, self.link.counters());
        let seen = Seen {
            offered: after.offered - before.offered,
            delivered: std::mem::take(&mut self.delivered),
            delivered_bytes: std::mem::take(&mut self.delivered_bytes),
            drops: after.drops - before.drops,
            lost: after.lost - before.lost,
            marks: after.marks - before.marks,
            queue_bytes: self.link.depth().mean_units(),
        };
        self.before = after;
        self.link.reset_depth(now);
        seen
    }
}
