//! A host: one engine, the flows that it sends, and memory that only counts.

use crate::ids::{HostId, LinkId};
use crate::packet::Packet;
use crate::time::Picos;
use erd_rd::{
    Arrived, EndReason, Endpoint, Host, Nanos, OpError, Part, PeerId, RecvToken, RxMeta, SendToken,
    TxBurst, Verdict, WorkRequest,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Bytes of a segment before its payload.
const SEGMENT_HEAD_BYTES: usize = erd_rd::Expected::HEAD_BYTES;
/// What every payload consists of.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// The UDP port of every host.
const PORT: u16 = 4791;

/// The name of a host: its number is the address.
#[must_use]
pub fn name_of(host: HostId) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(host.0)), PORT)
}

/// The host of a name that [`name_of`] gave.
#[must_use]
pub fn host_of(name: SocketAddr) -> Option<HostId> {
    match name.ip() {
        IpAddr::V4(ip) => Some(HostId(ip.to_bits())),
        IpAddr::V6(_) => None,
    }
}

/// An endless flow of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// To whom.
    pub to: HostId,
    /// Number of the flow in the whole network; it travels as the messages' tag.
    pub flow: u32,
    /// Length of each message in bytes.
    pub message_bytes: u64,
    /// Messages that are outstanding all the time.
    pub outstanding: u32,
    /// When it begins.
    pub start: Picos,
}

/// Memory of a host: payload is counted by flow and not kept.
#[derive(Debug, Default)]
struct Memory {
    /// Messages outstanding, by source.
    open: Vec<u32>,
    /// Payload bytes placed, by flow.
    placed_bytes: Vec<u64>,
    /// Operations that ended with an error.
    failures: u64,
}

impl Host for Memory {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }

    fn checksum(&mut self, _: SendToken, _: u64, len_bytes: u32, seed: u32) -> u32 {
        crc32c::crc32c_append(seed, &ZEROS[..len_bytes as usize])
    }

    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>) {
        self.open[op.0 as usize] -= 1;
        self.failures += u64::from(outcome.is_err());
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        Verdict::Matched(RecvToken(msg.tag.unwrap_or(0)), msg.len_bytes)
    }

    fn hold(&mut self, _: PeerId, _: u64) -> Option<RecvToken> {
        None
    }

    fn place(&mut self, to: RecvToken, _: u64, bytes: &[u8]) {
        let flow = to.0 as usize;
        if self.placed_bytes.len() <= flow {
            self.placed_bytes.resize(flow + 1, 0);
        }
        self.placed_bytes[flow] += bytes.len() as u64;
    }

    fn received(&mut self, _: RecvToken, outcome: Result<u64, OpError>) {
        self.failures += u64::from(outcome.is_err());
    }

    fn session_ended(&mut self, _: PeerId, _: u32, _: EndReason) {}

    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        u16::MAX
    }
}

/// See the module.
pub struct SimHost {
    endpoint: Endpoint,
    memory: Memory,
    sources: Vec<(Source, Option<PeerId>)>,
    /// The link that it sends on.
    uplink: LinkId,
    burst: TxBurst,
    /// When the event that wakes it was entered for; [`Picos::MAX`] for none.
    pub(crate) wake_at: Picos,
    /// It is in the network's list of hosts that have something to do.
    pub(crate) pending: bool,
}

impl SimHost {
    /// A host with an engine; `endpoint` bears the name that [`name_of`] gives.
    #[must_use]
    pub fn new(endpoint: Endpoint, uplink: LinkId) -> SimHost {
        SimHost {
            endpoint,
            memory: Memory::default(),
            sources: Vec::new(),
            uplink,
            burst: TxBurst::new(),
            wake_at: Picos::MAX,
            pending: false,
        }
    }

    /// Adds a flow.
    pub fn add_source(&mut self, source: Source) {
        self.sources.push((source, None));
        self.memory.open.push(0);
    }

    /// The link that it sends on.
    #[must_use]
    pub fn uplink(&self) -> LinkId {
        self.uplink
    }

    /// Its engine.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Payload bytes of a flow that were placed here.
    #[must_use]
    pub fn placed_bytes(&self, flow: u32) -> u64 {
        self.memory.placed_bytes.get(flow as usize).copied().unwrap_or(0)
    }

    /// Operations that ended with an error.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.memory.failures
    }

    /// Takes a packet from the network.
    pub(crate) fn receive(&mut self, now_ns: Nanos, packet: &Packet) {
        let meta = rx_meta(packet);
        if packet.payload_bytes > 0 {
            let payload = &ZEROS[..packet.payload_bytes as usize];
            let (engine, memory) = (&mut self.endpoint, &mut self.memory);
            engine.handle_expected(now_ns, &meta, &packet.head, payload, memory);
        } else {
            self.endpoint.handle_packet(now_ns, &meta, &packet.head, &mut self.memory);
        }
    }

    /// Starts flows that are due, keeps all supplied, and runs timers that are due.
    pub(crate) fn progress(&mut self, now: Picos, now_ns: Nanos) {
        for at in 0..self.sources.len() {
            if self.sources[at].0.start <= now {
                self.supply(now_ns, at);
            }
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now_ns) {
            self.endpoint.handle_timeout(now_ns, &mut self.memory);
        }
    }

    fn supply(&mut self, now_ns: Nanos, at: usize) {
        let (source, known) = self.sources[at];
        let peer = match known {
            Some(peer) => peer,
            None => {
                let name = name_of(source.to);
                let Ok(peer) = self.endpoint.peer(now_ns, name, &mut self.memory) else { return };
                self.sources[at].1 = Some(peer);
                peer
            }
        };
        while self.memory.open[at] < source.outstanding {
            let wr = WorkRequest {
                peer,
                token: SendToken(at as u64),
                len_bytes: source.message_bytes,
                tag: Some(source.flow.into()),
                data: None,
                match_complete: false,
                awaited: false,
                fence: false,
            };
            if self.endpoint.send(now_ns, wr).is_err() {
                return;
            }
            self.memory.open[at] += 1;
        }
    }

    /// Asks the engine for the next datagram. Its receiver, or `None` when nothing is due.
    pub(crate) fn next_datagram(&mut self, now_ns: Nanos) -> Option<HostId> {
        let due = self.endpoint.poll_transmit(now_ns, true, &mut self.memory, &mut self.burst);
        if !due {
            return None;
        }
        assert_eq!(self.burst.datagrams, 1, "the burst limit is one datagram");
        host_of(self.burst.to)
    }

    /// Writes the datagram that [`SimHost::next_datagram`] announced.
    pub(crate) fn write(&self, packet: &mut Packet) {
        let burst = &self.burst;
        (packet.path, packet.ecn) = (burst.path, burst.ecn);
        if let [Part::Inline { start, len_bytes }, Part::Payload { len_bytes: payload, .. }] =
            burst.parts[..]
            && len_bytes as usize == SEGMENT_HEAD_BYTES
        {
            let start = start as usize;
            packet.head.extend_from_slice(&burst.bytes[start..start + SEGMENT_HEAD_BYTES]);
            packet.payload_bytes = payload;
            return;
        }
        for part in &burst.parts {
            match *part {
                Part::Inline { start, len_bytes } => {
                    let (from, to) = (start as usize, (start + len_bytes) as usize);
                    packet.head.extend_from_slice(&burst.bytes[from..to]);
                }
                Part::Payload { len_bytes, .. } => {
                    packet.head.extend_from_slice(&ZEROS[..len_bytes as usize]);
                }
            }
        }
    }

    /// When it wants to be woken, at the earliest.
    pub(crate) fn next_wake_ns(&self) -> Option<Nanos> {
        self.endpoint.poll_timeout()
    }
}

/// What a port tells of a packet.
fn rx_meta(packet: &Packet) -> RxMeta {
    RxMeta { ecn: packet.ecn, trimmed: packet.trimmed, hold_ns: 0, from: name_of(packet.from) }
}
