//! Network topologies.

use crate::host::SimHost;
use crate::ids::name_of;
use crate::ids::{HostId, LinkId, Node};
use crate::link::{Jitter, Link, LinkConfig, Red};
use crate::network::Network;
use crate::packet::FRAME_BYTES;
use crate::switch::{Spread, Switch};
use crate::time::{Picos, from_ns, serialization_ps};
use erd_rd::cc::Scheme;
use erd_rd::{Config, Endpoint, Nanos};

/// Payload of a full segment, in bytes.
pub const PAYLOAD_BYTES: u32 = 4096;
/// A full segment's datagram: the common header and the payload.
pub const DATAGRAM_BYTES: u32 = erd_rd::Expected::HEAD_BYTES as u32 + PAYLOAD_BYTES;
/// The same on a link.
pub const SEGMENT_WIRE_BYTES: u32 = DATAGRAM_BYTES + FRAME_BYTES;
/// What the engine keeps free in a datagram for a payload checksum.
const CHECKSUM_BYTES: u32 = 4;
/// Links of senders are this much faster than the bottleneck, so that queues build up there.
const SENDER_LINK_TIMES: u64 = 4;

/// Several senders, several parallel paths with a queue each, one receiver. Acknowledgements come
/// back over a link that only delays.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bottleneck {
    /// Hosts that send.
    pub senders: u32,
    /// Paths, which share the rate evenly.
    pub paths: u16,
    /// Path numbers (entropies) that the engines spray over.
    pub entropies: u16,
    /// How path numbers pick paths.
    pub spread: Spread,
    /// Rate of all paths together.
    pub link_bytes_per_s: u64,
    /// Round trip of a lone full segment, all times to send it included.
    pub base_rtt_ns: Nanos,
    /// Hosts are told the base round trip, as the papers have it.
    pub base_known: bool,
    /// Buffers of all paths together, in units of the BDP.
    pub buffer_bdp: f64,
    /// Where marking begins and where it reaches certainty, in units of the BDP; none without ECN.
    pub red_bdp: Option<(f64, f64)>,
    /// Full queues cut payloads off.
    pub trimming: bool,
    /// Noise at the end of every path.
    pub jitter: Option<Jitter>,
    /// Shortest retransmission timeout and scan spacing of the engines.
    pub rto_min_ns: Nanos,
    /// All the randomness there is.
    pub seed: u64,
}

impl Bottleneck {
    /// Bandwidth-delay product in bytes on the wire.
    #[must_use]
    pub fn bdp_bytes(&self) -> f64 {
        self.link_bytes_per_s as f64 * self.base_rtt_ns as f64 / 1e9
    }

    /// Rate of one path.
    #[must_use]
    pub fn path_bytes_per_s(&self) -> u64 {
        self.link_bytes_per_s / u64::from(self.paths)
    }

    /// Share of the rate that payload can have.
    #[must_use]
    pub fn payload_bytes_per_s(&self) -> f64 {
        let share = f64::from(PAYLOAD_BYTES) / f64::from(SEGMENT_WIRE_BYTES);
        self.link_bytes_per_s as f64 * share
    }

    fn sender_link(&self) -> LinkConfig {
        LinkConfig {
            bytes_per_s: Some(self.link_bytes_per_s * SENDER_LINK_TIMES),
            ..LinkConfig::delay(0)
        }
    }

    fn path_link(&self) -> LinkConfig {
        let share = self.bdp_bytes() / f64::from(self.paths);
        let bytes = |bdp: f64| (bdp * share) as u64;
        LinkConfig {
            bytes_per_s: Some(self.path_bytes_per_s()),
            propagation_ps: self.forward_ps(),
            buffer_bytes: bytes(self.buffer_bdp),
            red: self
                .red_bdp
                .map(|(min, max)| Red { min_bytes: bytes(min), max_bytes: bytes(max) }),
            trimming: self.trimming,
            jitter: self.jitter,
            depth_unit_bytes: bytes(1.0),
        }
    }

    fn backward_ps(&self) -> Picos {
        from_ns(self.base_rtt_ns) / 2
    }

    /// What the times to send a segment leave of the way there.
    fn forward_ps(&self) -> Picos {
        let link = self.link_bytes_per_s * SENDER_LINK_TIMES;
        let sending = serialization_ps(SEGMENT_WIRE_BYTES, link)
            + serialization_ps(SEGMENT_WIRE_BYTES, self.path_bytes_per_s());
        (from_ns(self.base_rtt_ns) - self.backward_ps()).saturating_sub(sending)
    }

    /// Builds it: the network, the paths, and the receiver; senders have the numbers from 0 on.
    #[must_use]
    pub fn build(&self, scheme: &dyn Fn() -> Box<dyn Scheme>) -> (Network, Vec<LinkId>, HostId) {
        let mut network = Network::default();
        let receiver = HostId(self.senders);
        let seeds = |n: u32| self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(n.into());
        let ingress = network.add_switch(Switch::new(self.spread));
        let egress = network.add_switch(Switch::new(self.spread));
        let path = self.path_link();
        let paths: Vec<LinkId> = (0..u32::from(self.paths))
            .map(|n| network.add_link(Link::new(path, Node::Host(receiver), None, seeds(n))))
            .collect();
        network.switch_mut(ingress).add_route(receiver, &paths);
        for n in 0..self.senders {
            let id = HostId(n);
            let up = Link::new(self.sender_link(), Node::Switch(ingress), Some(id), 0);
            let up = network.add_link(up);
            network.add_host(SimHost::new(id, self.endpoint(id, scheme()), up));
            let down = Link::new(LinkConfig::delay(0), Node::Host(id), None, 0);
            let down = network.add_link(down);
            network.switch_mut(egress).add_route(id, &[down]);
        }
        let back = LinkConfig::delay(self.backward_ps());
        let up = network.add_link(Link::new(back, Node::Switch(egress), Some(receiver), 0));
        network.add_host(SimHost::new(receiver, self.endpoint(receiver, scheme()), up));
        (network, paths, receiver)
    }

    fn endpoint(&self, host: HostId, scheme: Box<dyn Scheme>) -> Endpoint {
        // The simulated network changes no bytes, so checksums would find nothing.
        let mut config = Config::new(name_of(host), 1, |seed, _| seed);
        config.datagram_bytes = (DATAGRAM_BYTES + CHECKSUM_BYTES) as u16;
        config.burst_bytes = DATAGRAM_BYTES;
        config.paths = self.entropies;
        config.rto_min_ns = self.rto_min_ns;
        config.scan_min_ns = self.rto_min_ns;
        // No receiver's buffer is ever the bottleneck.
        config.recv_buffer_bytes = u32::MAX;
        config.link_bytes_per_s = self.link_bytes_per_s;
        config.base_rtt_ns = if self.base_known { self.base_rtt_ns } else { 0 };
        config.trimming = self.trimming;
        let seed = self.seed ^ (u64::from(host.0) + 1) << 32;
        Endpoint::new(config, scheme, seed).expect("the settings are within their ranges")
    }
}
