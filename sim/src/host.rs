//! A host: one engine, the library's loop that runs it, the flows that it sends, and memory that only counts.

use crate::ids::{HostId, LinkId, name_of};
use crate::packet::{Packet, ZEROS};
use crate::port::{SimClock, SimPort, Simulated};
use crate::time::Picos;
use erd_core::region::Pass;
use erd_core::run::link::Link;
use erd_core::run::net_errors::NetErrors;
use erd_core::run::pieces::Pieces;
use erd_core::run::{Carriers, Driven, Parts};
use erd_rd::{
    Arrived, EndReason, Endpoint, Expected, Host, Nanos, OpError, Part, PeerId, RecvToken,
    SendToken, TxBurst, Verdict, WorkRequest,
};
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;

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
pub struct Memory {
    /// Messages outstanding, by source.
    open: Vec<u32>,
    /// Payload bytes placed, by flow.
    placed_bytes: Vec<u64>,
    /// Operations that ended with an error.
    failures: u64,
    /// A flow may lack messages: one has ended, or the engine did not take one.
    hungry: bool,
}

impl Host for Memory {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }

    /// Checksums are off.
    fn checksum(&mut self, _: SendToken, _: u64, _: u32, seed: u32) -> u32 {
        seed
    }

    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>) {
        self.open[op.0 as usize] -= 1;
        self.hungry = true;
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

impl erd_core::run::Memory for Memory {
    fn place_of(&mut self, _: &Expected, _: &mut Option<Pass>) -> Option<NonNull<u8>> {
        None
    }

    fn gather(&self, burst: &TxBurst, pieces: &mut Pieces) -> Result<(), Option<SendToken>> {
        for part in &burst.parts {
            match *part {
                Part::Inline { start, len_bytes } => {
                    pieces.push_bytes(&burst.bytes[start as usize..][..len_bytes as usize]);
                }
                Part::Payload { len_bytes, .. } => pieces.push_bytes(&ZEROS[..len_bytes as usize]),
            }
        }
        Ok(())
    }

    /// No memory goes.
    fn take_gone(&mut self) -> Vec<SendToken> {
        Vec::new()
    }

    /// Nobody waits for completions.
    fn has_completions(&self) -> bool {
        false
    }
}

/// See the module.
pub struct SimHost {
    endpoint: Endpoint,
    memory: Memory,
    carriers: Carriers<Simulated>,
    now: Picos,
    sources: Vec<(Source, Option<PeerId>)>,
    /// When the next flow starts; [`Picos::MAX`] for none.
    next_start: Picos,
    /// The link that it sends on.
    uplink: LinkId,
    /// Datagrams that the uplink can take.
    pub(crate) uplink_room: usize,
    /// When the event that wakes it was entered for; [`Picos::MAX`] for none.
    pub(crate) wake_at: Picos,
    /// It is in the network's list of hosts that have something to do.
    pub(crate) pending: bool,
}

impl Driven for SimHost {
    type Outside = Simulated;
    type Memory = Memory;

    fn parts(&mut self) -> Parts<'_, Simulated, Memory> {
        let SimHost { endpoint, memory, carriers, .. } = self;
        Parts { engine: endpoint, host: memory, carriers }
    }

    /// Keeps all flows supplied.
    #[inline]
    fn settle(&mut self) {
        if self.memory.hungry || self.now >= self.next_start {
            self.supply_all();
        }
    }

    /// All that is due at this moment has been done: datagrams may leave.
    fn feed(&mut self) {
        self.carriers.port.room = self.uplink_room;
    }

    fn publish(&mut self) {}
}

impl SimHost {
    /// The host of this number with an engine; `endpoint` bears the name that [`name_of`] gives.
    #[must_use]
    pub fn new(id: HostId, endpoint: Endpoint, uplink: LinkId) -> SimHost {
        let net_errors = Arc::new(NetErrors::default());
        let inbox = net_errors.join(&Arc::default());
        let link = Link::new(None, name_of(id), false);
        let (port, clock) = (SimPort::default(), SimClock::default());
        SimHost {
            carriers: Carriers::new(port, None, link, clock, (net_errors, inbox)),
            endpoint,
            memory: Memory::default(),
            now: 0,
            sources: Vec::new(),
            next_start: Picos::MAX,
            uplink,
            uplink_room: 0,
            wake_at: Picos::MAX,
            pending: false,
        }
    }

    /// Adds a flow.
    pub fn add_source(&mut self, source: Source) {
        self.sources.push((source, None));
        self.next_start = self.next_start.min(source.start);
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

    /// Takes a packet from the network, whose buffers it may keep.
    pub(crate) fn receive(&mut self, packet: &mut Packet) {
        std::mem::swap(self.carriers.port.arrivals.next(), packet);
    }

    /// Runs one step of the library's loop. [`SimHost::leaving`] has the datagrams that leave.
    pub(crate) fn step(&mut self, now: Picos, now_ns: Nanos) {
        self.now = now;
        self.carriers.clock.0 = now_ns;
        self.carriers.port.room = 0;
        if self.carriers.port.arrivals.is_empty() {
            self.settle();
        }
        self.progress();
    }

    /// The datagrams that leave: whom each is for, its path, its mark and its bytes. The caller may take their buffers.
    pub(crate) fn leaving(&mut self) -> &mut [Packet] {
        self.carriers.port.leaving.drain()
    }

    /// Starts flows that are due, and keeps all supplied.
    #[inline(never)]
    fn supply_all(&mut self) {
        self.next_start = Picos::MAX;
        self.memory.hungry = false;
        for at in 0..self.sources.len() {
            let start = self.sources[at].0.start;
            if start <= self.now {
                self.memory.hungry |= !self.supply(self.carriers.clock.0, at);
            } else {
                self.next_start = self.next_start.min(start);
            }
        }
    }

    /// Posts the messages that a flow lacks; false if the engine does not take one now.
    fn supply(&mut self, now_ns: Nanos, at: usize) -> bool {
        let (source, known) = self.sources[at];
        let peer = match known {
            Some(peer) => peer,
            None => {
                let name = name_of(source.to);
                let Ok(peer) = self.endpoint.peer(now_ns, name, &mut self.memory) else {
                    return false;
                };
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
                delivery: false,
                fence: false,
            };
            if self.endpoint.send(now_ns, wr).is_err() {
                return false;
            }
            self.memory.open[at] += 1;
        }
        true
    }

    /// When it wants to be woken, at the earliest.
    pub(crate) fn next_wake_ns(&self) -> Option<Nanos> {
        self.endpoint.poll_timeout()
    }
}
