//! Network topologies.

use crate::fabric::Fabric;
use crate::fabric::blueprint::{Blueprint, LinkPlan, NodeId, Routes, Spread, SwitchPlan};
use crate::ids::{HostId, LinkId, name_of};
use crate::link::{Jitter, LinkConfig, Overtaking, Red};
use crate::packet::FRAME_BYTES;
use crate::time::{Picos, from_ns, serialization_ps};
use crate::transport::erd::ErdHost;
use crate::wire::CHECKSUM_BYTES;
use crate::work::Work;
use erd_rd::cc::Scheme;
use erd_rd::{Config, Endpoint, Nanos};
use std::ops::Range;
use std::sync::Arc;

/// Payload of a full segment, in bytes.
pub const PAYLOAD_BYTES: u32 = crate::wire::PAYLOAD_BYTES;
/// A full segment's datagram: the common header and the payload.
pub const DATAGRAM_BYTES: u32 = erd_rd::Expected::HEAD_BYTES as u32 + PAYLOAD_BYTES;
/// The same on a link.
pub const SEGMENT_WIRE_BYTES: u32 = DATAGRAM_BYTES + FRAME_BYTES;
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
    /// Packets out of order on every path.
    pub overtaking: Option<Overtaking>,
    /// Receive buffer of which the receiver's engine knows, in bytes. The simulated host itself drops nothing.
    pub recv_buffer_bytes: u32,
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
            red: self.red_bdp.map(|(min, max)| Red::linear(bytes(min), bytes(max))),
            trimming: self.trimming,
            jitter: self.jitter,
            overtaking: self.overtaking,
            depth_unit_bytes: Some(bytes(1.0)),
            ..LinkConfig::delay(0)
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

    /// The network, and its paths' links. Senders are the hosts from 0 on, the receiver is the last one.
    fn plan(&self) -> (Blueprint, Range<u32>) {
        let (receiver, hosts) = (self.senders, self.senders + 1);
        let (ingress, egress) = (NodeId(hosts), NodeId(hosts + 1));
        let mut links = vec![LinkPlan {
            from: NodeId(receiver),
            to: egress,
            config: LinkConfig::delay(self.backward_ps()),
        }];
        for sender in (0..self.senders).map(NodeId) {
            links.push(LinkPlan { from: sender, to: ingress, config: self.sender_link() });
            links.push(LinkPlan { from: egress, to: sender, config: LinkConfig::delay(0) });
        }
        for _ in 0..self.paths {
            links.push(LinkPlan { from: ingress, to: NodeId(receiver), config: self.path_link() });
        }
        let paths = (0, self.paths.into());
        let there = Routes::Table {
            by_host: vec![paths; hosts as usize],
            links: (0..self.paths.into()).collect(),
        };
        let back = Routes::Table {
            by_host: (0..hosts).map(|host| (host, 1)).collect(),
            links: (0..self.senders).collect(),
        };
        let switches = [there, back].map(|routes| SwitchPlan { spread: self.spread, routes });
        let plan = Blueprint::new(hosts, switches.to_vec(), links);
        let paths = plan.links_of(ingress);
        (plan, paths)
    }

    /// Builds it: the network, the paths, and the receiver; senders have the numbers from 0 on. `work` is for as many
    /// hosts.
    #[must_use]
    pub fn build(
        &self,
        scheme: &dyn Fn() -> Box<dyn Scheme>,
        work: Work,
    ) -> (Fabric, Vec<LinkId>, HostId) {
        let (plan, paths) = self.plan();
        let mut tasks = work.into_hosts().into_iter();
        let fabric = Fabric::new(Arc::new(plan), 1, self.seed, |id| {
            let tasks = tasks.next().expect("work for each host");
            ErdHost::new(id, self.endpoint(id, scheme()), tasks, None).into()
        });
        (fabric, paths.map(LinkId).collect(), HostId(self.senders))
    }

    fn endpoint(&self, host: HostId, scheme: Box<dyn Scheme>) -> Endpoint {
        // The simulated network changes no bytes, so checksums would find nothing.
        let mut config = Config::new(name_of(host), 1, |seed, _| seed);
        config.datagram_bytes = (DATAGRAM_BYTES + CHECKSUM_BYTES) as u16;
        config.burst_bytes = DATAGRAM_BYTES;
        config.paths = self.entropies;
        config.rto_min_ns = self.rto_min_ns;
        config.scan_min_ns = self.rto_min_ns;
        config.recv_buffer_bytes = self.recv_buffer_bytes;
        config.link_bytes_per_s = self.link_bytes_per_s;
        config.base_rtt_ns = if self.base_known { self.base_rtt_ns } else { 0 };
        config.trimming = self.trimming;
        let seed = self.seed ^ (u64::from(host.0) + 1) << 32;
        Endpoint::new(config, scheme, seed).expect("the settings are within their ranges")
    }
}
