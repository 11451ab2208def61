//! What a network looks like: hosts, switches with their routes, and the links between them.

use super::dragonfly_switch::DragonflySwitch;
use super::pfc::Pfc;
use super::rail_switch::RailSwitch;
use super::receiver::Receivers;
use crate::hop::Hop;
use crate::ids::{HostId, LinkId, SwitchId};
use crate::link::LinkConfig;
use crate::packet::LEAST_WIRE_BYTES;
use crate::time::Picos;
use crate::wire::Wire;

/// Most hosts and switches together: a node's number has so many bits in an event's key.
pub const NODES_MAX: u32 = 1 << 24;

/// Most links, each direction counted: a link's number has so many bits in what orders arrivals.
pub const LINKS_MAX: u32 = 1 << 24;

/// A node: hosts have the numbers from 0 on, switches those after them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// How a packet's path number picks one of several links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// The path number modulo the number of links: every path has its own.
    Modulo,
    /// A hash of sender, receiver and path number (ECMP): some paths share a link. Each switch has a salt of its own.
    Hashed {
        /// What makes this switch differ from the others.
        salt: u32,
    },
}

impl Spread {
    /// Which of `links` links a packet takes.
    #[must_use]
    pub fn pick(self, links: u32, hop: &Hop) -> u32 {
        match self {
            _ if links == 1 => 0,
            Spread::Modulo => u32::from(hop.path) % links,
            Spread::Hashed { salt } => {
                let hash = mixed(u64::from(salt) << 16 ^ mixed(flow_of(hop)));
                (((hash >> 32) * u64::from(links)) >> 32) as u32
            }
        }
    }
}

/// What ECMP looks at.
pub(super) fn flow_of(hop: &Hop) -> u64 {
    u64::from(hop.from.0) << 40 ^ u64::from(hop.to.0) << 16 ^ u64::from(hop.path)
}

/// A hash: the last step of SplitMix64.
#[must_use]
pub fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Which of a switch's links lead to a host. They are counted from the switch's first one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Routes {
    /// A switch of a tree: hosts below it by arithmetic, all others upwards. Its links down come first, those of one child
    /// together.
    Tree {
        /// The first host below.
        first_host: u32,
        /// Hosts below.
        hosts: u32,
        /// Hosts below each child.
        hosts_per_child: u32,
        /// Links to each child.
        links_per_child: u32,
        /// Links upwards.
        links_up: u32,
    },
    /// Links by host: any graph.
    Table {
        /// First link and number of links of each host, in `links`.
        by_host: Vec<(u32, u32)>,
        /// Links of the switch. Hosts that are reached alike share them.
        links: Vec<u32>,
    },
    /// A switch of a dragonfly: the packet's path number says the way.
    Dragonfly(DragonflySwitch),
    /// A switch of a rail network: the packet's path number says the rail.
    Rail(RailSwitch),
}

impl Routes {
    /// A host nearby, if only some hosts are.
    pub(super) fn near_host(&self, all_hosts: u32) -> Option<u32> {
        match self {
            Routes::Tree { first_host, hosts, .. } => {
                (*hosts < all_hosts).then_some(first_host + hosts / 2)
            }
            Routes::Table { .. } => None,
            Routes::Dragonfly(switch) => Some(switch.first_host()),
            Routes::Rail(switch) => switch.near_host(),
        }
    }
}

/// A switch. It has no queues of its own: those are its outgoing links'.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchPlan {
    /// How it chooses between links.
    pub spread: Spread,
    /// Which links lead where.
    pub routes: Routes,
}

impl SwitchPlan {
    /// The link for a packet, counted from the switch's first one.
    ///
    /// # Panics
    /// No link leads to its receiver.
    #[must_use]
    pub fn route(&self, hop: &Hop) -> u32 {
        self.route_by(hop, |links| self.spread.pick(links, hop))
    }

    /// The same, where `pick` chooses among so many links or ways.
    ///
    /// # Panics
    /// No link leads to its receiver.
    pub(super) fn route_by(&self, hop: &Hop, pick: impl FnOnce(u32) -> u32) -> u32 {
        match &self.routes {
            Routes::Tree { .. } => {
                let (first, count) = self.span(hop.to);
                first + pick(count)
            }
            Routes::Table { links, .. } => {
                let (first, count) = self.span(hop.to);
                links[(first + pick(count)) as usize]
            }
            Routes::Dragonfly(switch) => switch.link(hop, pick),
            Routes::Rail(switch) => switch.link(hop, pick),
        }
    }

    /// The first of the links that lead to a host, and how many there are; in a table, their places there.
    #[inline]
    fn span(&self, to: HostId) -> (u32, u32) {
        match &self.routes {
            Routes::Tree { first_host, hosts, hosts_per_child, links_per_child, links_up } => {
                let below = to.0.wrapping_sub(*first_host);
                if below < *hosts {
                    (below / hosts_per_child * links_per_child, *links_per_child)
                } else {
                    (hosts / hosts_per_child * links_per_child, *links_up)
                }
            }
            Routes::Table { by_host, .. } => by_host[to.0 as usize],
            Routes::Dragonfly(_) | Routes::Rail(_) => (0, 0),
        }
    }

    /// The links that lead to a host, counted from the switch's first one; none where senders choose the way.
    pub(super) fn group(&self, to: HostId) -> impl Iterator<Item = u32> + Clone {
        let (first, count) = self.span(to);
        let table = if let Routes::Table { links, .. } = &self.routes { Some(links) } else { None };
        (first..first + count).map(move |at| table.map_or(at, |links| links[at as usize]))
    }

    /// Whether senders choose the way.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.routes, Routes::Dragonfly(_) | Routes::Rail(_))
    }

    /// From how many ways this switch chooses where it chooses in place of the sender: it is the first on the way.
    pub(super) fn choices(&self, hop: &Hop) -> Option<u32> {
        match &self.routes {
            Routes::Dragonfly(switch) => {
                switch.has(hop.from.0).then(|| switch.choices(hop.from.0, hop.to.0))
            }
            Routes::Rail(switch) => {
                switch.has(hop.from.0).then(|| switch.choices(hop.from.0, hop.to.0))
            }
            _ => None,
        }
    }
}

/// When switches learn that a link died or came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rerouting {
    /// Until the switch where the link begins knows.
    pub near_ps: Picos,
    /// Until all other switches have drawn their conclusions. It is no less.
    pub far_ps: Picos,
}

/// One direction of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkPlan {
    /// Where it begins.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// What it is like.
    pub config: LinkConfig,
}

impl LinkPlan {
    /// The least time that anything takes on it.
    #[must_use]
    pub fn least_ps(&self) -> Picos {
        self.config.propagation_ps + self.config.sending_ps(LEAST_WIRE_BYTES)
    }
}

/// See the module.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Blueprint {
    hosts: u32,
    switches: Vec<SwitchPlan>,
    links: Vec<LinkPlan>,
    /// The first link of each node, and one more: the number of links.
    first_links: Vec<u32>,
    flowlet_gap_ps: Option<Picos>,
    /// How switches pause, if they do.
    pfc: Option<Pfc>,
    rerouting: Option<Rerouting>,
    receivers: Option<Receivers>,
    wire: Wire,
}

impl Blueprint {
    /// Puts a network together. Of the links of one node the order stays.
    ///
    /// # Panics
    /// A link begins or ends nowhere, a host has not exactly one link, or there are more than [`NODES_MAX`] nodes.
    #[must_use]
    pub fn new(hosts: u32, switches: Vec<SwitchPlan>, mut links: Vec<LinkPlan>) -> Blueprint {
        let nodes = hosts + switches.len() as u32;
        assert!(nodes <= NODES_MAX, "at most {NODES_MAX} hosts and switches");
        assert!(
            links.iter().all(|link| link.from.0 < nodes && link.to.0 < nodes),
            "a link's ends exist"
        );
        links.sort_by_key(|link| link.from);
        let mut first_links = vec![0; nodes as usize + 1];
        for link in &links {
            first_links[link.from.0 as usize + 1] += 1;
        }
        assert!(
            first_links[1..=hosts as usize].iter().all(|count| *count == 1),
            "a host has one link"
        );
        for node in 0..nodes as usize {
            first_links[node + 1] += first_links[node];
        }
        Blueprint { hosts, switches, links, first_links, ..Blueprint::default() }
    }

    /// Its switches pause, and queues hold what a switch's memory holds.
    pub(super) fn set_pfc(&mut self, pfc: Pfc) {
        self.links.iter_mut().for_each(|link| link.config.buffer_bytes = u64::MAX);
        self.pfc = Some(pfc);
    }

    /// How switches pause, if they do.
    #[must_use]
    pub fn pfc(&self) -> Option<&Pfc> {
        self.pfc.as_ref()
    }

    /// Lets switches choose a random link for each flowlet, in place of what their [`Spread`] says. A flowlet ends with a
    /// pause above the gap.
    #[must_use]
    pub fn with_flowlets(self, gap_ps: Picos) -> Blueprint {
        Blueprint { flowlet_gap_ps: Some(gap_ps), ..self }
    }

    /// The pause that ends a flowlet, if switches balance by flowlets.
    #[must_use]
    pub fn flowlet_gap_ps(&self) -> Option<Picos> {
        self.flowlet_gap_ps
    }

    /// Lets switches route around dead links, except where senders choose the way.
    #[must_use]
    pub fn with_rerouting(self, rerouting: Rerouting) -> Blueprint {
        Blueprint { rerouting: Some(rerouting), ..self }
    }

    /// When switches learn of dead links, if they route around them.
    #[must_use]
    pub fn rerouting(&self) -> Option<Rerouting> {
        self.rerouting.filter(|_| !self.is_told())
    }

    /// Gives hosts rings, delays and rates. Without them, engines see packets at once.
    #[must_use]
    pub fn with_receivers(self, receivers: Receivers) -> Blueprint {
        Blueprint { receivers: Some(receivers), ..self }
    }

    /// What lies between the hosts' links and their engines, if anything does.
    #[must_use]
    pub fn receivers(&self) -> Option<Receivers> {
        self.receivers
    }

    /// Whether senders choose the way.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.switches.first().is_some_and(SwitchPlan::is_told)
    }

    /// Sets what packets cost on its links, and which packet a full queue trims: as over Ethernet, unless told.
    #[must_use]
    pub fn with_wire(mut self, wire: Wire) -> Blueprint {
        self.change_links(|link| link.trims_last = wire == Wire::Htsim);
        Blueprint { wire, ..self }
    }

    /// What packets cost on its links.
    #[must_use]
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// How many hosts there are.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// How many hosts and switches there are.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.hosts + self.switches.len() as u32
    }

    /// The node of a switch.
    #[must_use]
    pub fn node_of(&self, switch: SwitchId) -> NodeId {
        NodeId(self.hosts + switch.0)
    }

    /// The switches.
    #[must_use]
    pub fn switches(&self) -> &[SwitchPlan] {
        &self.switches
    }

    /// The links, by where they begin.
    #[must_use]
    pub fn links(&self) -> &[LinkPlan] {
        &self.links
    }

    /// A node acts on another one no sooner than after this time.
    #[must_use]
    pub fn apart_ps(&self) -> Picos {
        self.links.iter().map(LinkPlan::least_ps).min().unwrap_or(Picos::MAX)
    }

    /// Changes what links are like.
    pub fn change_links(&mut self, mut change: impl FnMut(&mut LinkConfig)) {
        self.links.iter_mut().for_each(|link| change(&mut link.config));
    }

    /// The links that begin at a node, as a range of link numbers.
    #[must_use]
    pub fn links_of(&self, node: NodeId) -> std::ops::Range<u32> {
        self.first_links[node.0 as usize]..self.first_links[node.0 as usize + 1]
    }

    /// The links that a packet takes, in order. With flowlets, it is one of the ways that the packet can take.
    ///
    /// # Panics
    /// It goes round for ever.
    #[must_use]
    pub fn way(&self, hop: &Hop) -> Vec<LinkId> {
        self.way_by(hop, SwitchPlan::route)
    }

    fn way_by(&self, hop: &Hop, route: impl Fn(&SwitchPlan, &Hop) -> u32) -> Vec<LinkId> {
        let mut way = Vec::new();
        let mut node = NodeId(hop.from.0);
        while node.0 != hop.to.0 {
            let first = self.links_of(node).start;
            let link = first + self.switch_at(node).map_or(0, |switch| route(switch, hop));
            way.push(LinkId(link));
            assert!(way.len() <= self.switches.len() + 1, "a packet of {:?} goes round", hop.from);
            node = self.links[link as usize].to;
        }
        way
    }

    /// The switch at a node; `None` at a host.
    fn switch_at(&self, node: NodeId) -> Option<&SwitchPlan> {
        node.0.checked_sub(self.hosts).map(|switch| &self.switches[switch as usize])
    }

    /// The links of one of the ways that a sender can choose from.
    ///
    /// # Panics
    /// There are fewer, or it goes round for ever.
    #[must_use]
    pub fn chosen_way(&self, from: HostId, to: HostId, choice: u32) -> Vec<LinkId> {
        assert!(choice < self.choices(from, to), "one of the ways is chosen");
        self.told_way(&Hop::probe(from, to, 0), choice)
    }

    /// The same, without a look at how many there are. Where switches choose, they do.
    fn told_way(&self, hop: &Hop, choice: u32) -> Vec<LinkId> {
        self.way_by(hop, |switch, hop| match switch.is_told() {
            true => switch.route_by(hop, |_| choice),
            false => switch.route(hop),
        })
    }

    /// How many ways a sender can choose from by the path number; 1 where switches choose. The straight ways come first.
    #[must_use]
    pub fn choices(&self, from: HostId, to: HostId) -> u32 {
        let uplink = &self.links[self.links_of(NodeId(from.0)).start as usize];
        let first = self.switch_at(uplink.to);
        first.and_then(|switch| switch.choices(&Hop::probe(from, to, 0))).unwrap_or(1)
    }

    /// Time that a packet of so many bytes takes between two hosts when nothing waits, in ps: by the straight way where
    /// senders choose, by any of those of the same length where switches do.
    #[must_use]
    pub fn lone_ps(&self, from: HostId, to: HostId, wire_bytes: u32) -> Picos {
        let way = self.told_way(&Hop::probe(from, to, wire_bytes), 0);
        let links = way.into_iter().map(|link| &self.links[link.0 as usize].config);
        links.map(|link| link.sending_ps(wire_bytes) + link.propagation_ps).sum()
    }
}
