//! Switches: the choice of the link on which a packet leaves.

use crate::ids::{HostId, LinkId};
use crate::packet::Packet;

/// How a packet's path number picks one of several links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// The path number modulo the number of links: every path has its own.
    Modulo,
    /// A hash of sender, receiver and path number (ECMP): some paths share a link.
    Hashed,
}

/// A switch. It has no queues of its own: those are its outgoing links'.
#[derive(Clone, Debug)]
pub struct Switch {
    spread: Spread,
    /// Links to choose from, by receiver.
    routes: Vec<Vec<LinkId>>,
}

impl Switch {
    /// A switch that knows no way.
    #[must_use]
    pub fn new(spread: Spread) -> Switch {
        Switch { spread, routes: Vec::new() }
    }

    /// Packets for `to` leave on one of `links`.
    ///
    /// # Panics
    /// Without any link.
    pub fn add_route(&mut self, to: HostId, links: &[LinkId]) {
        assert!(!links.is_empty(), "a route has at least one link");
        let index = to.0 as usize;
        if self.routes.len() <= index {
            self.routes.resize(index + 1, Vec::new());
        }
        self.routes[index] = links.to_vec();
    }

    /// The link for a packet.
    ///
    /// # Panics
    /// There is no route to its receiver.
    #[must_use]
    pub fn route(&self, packet: &Packet) -> LinkId {
        let links = &self.routes[packet.to.0 as usize];
        if let [only] = links[..] {
            return only;
        }
        let entropy = match self.spread {
            Spread::Modulo => u64::from(packet.path),
            Spread::Hashed => mixed(packet),
        };
        links[(entropy % links.len() as u64) as usize]
    }
}

/// A hash of what ECMP looks at (the last step of SplitMix64).
fn mixed(packet: &Packet) -> u64 {
    let hosts = u64::from(packet.from.0) << 40 | u64::from(packet.to.0) << 16;
    let mut x = (hosts | u64::from(packet.path)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
