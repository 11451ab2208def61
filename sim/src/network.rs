//! Hosts, links and switches joined, and the loop that runs them.

use crate::events::{Event, EventQueue};
use crate::host::SimHost;
use crate::ids::{HostId, LinkId, Node, SwitchId};
use crate::link::{Health, Link};
use crate::packet::{PacketId, PacketPool};
use crate::switch::Switch;
use crate::time::{PS_PER_NS, Picos, from_ns, to_ns};

/// Packets of one link that a host takes before it may answer, as a driver's receive batch.
const ARRIVALS_PER_POLL: usize = 32;

/// See the module.
#[derive(Default)]
pub struct Network {
    now: Picos,
    events: EventQueue,
    links: Vec<Link>,
    switches: Vec<Switch>,
    hosts: Vec<SimHost>,
    pool: PacketPool,
    /// Packets that leave the host at hand.
    leaving: Vec<PacketId>,
    /// Hosts that something happened to; each at most once.
    pending: Vec<HostId>,
}

impl Network {
    /// Adds a link.
    pub fn add_link(&mut self, link: Link) -> LinkId {
        self.links.push(link);
        LinkId(self.links.len() as u32 - 1)
    }

    /// Adds a switch.
    pub fn add_switch(&mut self, switch: Switch) -> SwitchId {
        self.switches.push(switch);
        SwitchId(self.switches.len() as u32 - 1)
    }

    /// Adds a host. The engine's name must be [`crate::ids::name_of`] its number.
    pub fn add_host(&mut self, host: SimHost) -> HostId {
        self.hosts.push(host);
        HostId(self.hosts.len() as u32 - 1)
    }

    /// Wakes a host at a time, such as the start of one of its flows.
    pub fn wake(&mut self, host: HostId, at: Picos) {
        let entry = &mut self.hosts[host.0 as usize];
        if at < entry.wake_at {
            entry.wake_at = at;
            self.events.push(at, Event::HostWake(host));
        }
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.now
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events.entered()
    }

    /// Packets under way.
    #[must_use]
    pub fn packets_under_way(&self) -> usize {
        self.pool.in_use()
    }

    /// A link.
    #[must_use]
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.0 as usize]
    }

    /// A link, to be measured.
    pub fn link_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.0 as usize]
    }

    /// A host.
    #[must_use]
    pub fn host(&self, id: HostId) -> &SimHost {
        &self.hosts[id.0 as usize]
    }

    /// A host, to be given flows.
    pub fn host_mut(&mut self, id: HostId) -> &mut SimHost {
        &mut self.hosts[id.0 as usize]
    }

    /// A switch, to be given routes.
    pub fn switch_mut(&mut self, id: SwitchId) -> &mut Switch {
        &mut self.switches[id.0 as usize]
    }

    /// Breaks or heals a link.
    pub fn set_health(&mut self, id: LinkId, health: Health) {
        self.links[id.0 as usize].set_health(self.now, health, &mut self.pool);
    }

    /// Runs everything that happens up to `end`, which is the time afterwards.
    pub fn run_until(&mut self, end: Picos) {
        while let Some((at, event)) = self.events.pop_until(end) {
            debug_assert!(at >= self.now, "time goes forward");
            self.now = at;
            match event {
                Event::LinkSent(link) => self.link_sent(link),
                Event::LinkArrival(link) => self.link_arrival(link),
                Event::HostWake(host) => self.host_wake(host),
            }
            while let Some(host) = self.pending.pop() {
                self.hosts[host.0 as usize].pending = false;
                self.run_host(host);
            }
        }
        self.now = end;
    }

    fn link_sent(&mut self, id: LinkId) {
        let sent = self.links[id.0 as usize].finish(&mut self.pool);
        self.start_link(id);
        let link = &self.links[id.0 as usize];
        if let Some(feeder) = link.feeder().filter(|_| link.is_idle()) {
            self.mark_pending(feeder);
        }
        if let Some(packet) = sent {
            self.launch(id, packet);
        }
    }

    fn start_link(&mut self, id: LinkId) {
        if let Some(at) = self.links[id.0 as usize].start(self.now, &mut self.pool) {
            self.events.push(at, Event::LinkSent(id));
        }
    }

    /// Puts a packet on a link's wire, or hands it on where that takes no time.
    fn launch(&mut self, id: LinkId, packet: PacketId) {
        let link = &mut self.links[id.0 as usize];
        if link.is_instant() {
            let to = link.to();
            self.arrive(to, packet);
        } else if let Some(at) = link.launch(self.now, packet) {
            self.events.push(at, Event::LinkArrival(id));
        }
    }

    fn link_arrival(&mut self, id: LinkId) {
        for _ in 0..ARRIVALS_PER_POLL {
            let link = &mut self.links[id.0 as usize];
            let Some(packet) = link.arrived(self.now) else { break };
            let to = link.to();
            self.arrive(to, packet);
        }
        if let Some(at) = self.links[id.0 as usize].next_arrival() {
            self.events.push(at, Event::LinkArrival(id));
        }
    }

    /// A packet is at the end of a link.
    fn arrive(&mut self, node: Node, packet: PacketId) {
        match node {
            Node::Host(id) => {
                let host = &mut self.hosts[id.0 as usize];
                host.receive(self.pool.get_mut(packet));
                self.pool.give_back(packet);
                self.mark_pending(id);
            }
            Node::Switch(id) => {
                let link = self.switches[id.0 as usize].route(self.pool.get(packet));
                self.enqueue(link, packet);
            }
        }
    }

    fn enqueue(&mut self, id: LinkId, packet: PacketId) {
        let link = &mut self.links[id.0 as usize];
        if link.only_delays() {
            self.launch(id, packet);
        } else if link.enqueue(self.now, packet, &mut self.pool) {
            self.start_link(id);
        }
    }

    fn mark_pending(&mut self, id: HostId) {
        if !std::mem::replace(&mut self.hosts[id.0 as usize].pending, true) {
            self.pending.push(id);
        }
    }

    fn host_wake(&mut self, id: HostId) {
        let host = &mut self.hosts[id.0 as usize];
        // An event that an earlier wake-up has overtaken is stale.
        if host.wake_at == self.now {
            host.wake_at = Picos::MAX;
            self.mark_pending(id);
        }
    }

    /// Lets a host do what is due: timers, and sending while its link is idle.
    fn run_host(&mut self, id: HostId) {
        loop {
            let host = &mut self.hosts[id.0 as usize];
            let uplink = host.uplink();
            host.uplink_room = self.links[uplink.0 as usize].room();
            host.step(self.now, to_ns(self.now));
            let Network { pool, leaving, .. } = self;
            for packet in host.leaving() {
                let taken = pool.take(id, packet.to);
                pool.get_mut(taken).exchange(packet);
                leaving.push(taken);
            }
            if self.leaving.is_empty() {
                break;
            }
            for at in 0..self.leaving.len() {
                self.enqueue(uplink, self.leaving[at]);
            }
            self.leaving.clear();
            if !self.links[uplink.0 as usize].is_idle() {
                break;
            }
        }
        if let Some(at) = self.hosts[id.0 as usize].next_wake_ns() {
            // What is due but could not go waits for the link, which wakes the host.
            self.wake(id, from_ns(at).max(self.now + PS_PER_NS));
        }
    }
}
