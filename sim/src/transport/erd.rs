//! The erd engine as a transport: one engine, the library's loop that runs it, and memory that only counts.

use super::agenda::{Agenda, SendRequest};
use super::memory::Memory;
use super::{Repeats, Transport, TransportStats};
use crate::header::{Header, StreamHeader};
use crate::ids::{HostId, name_of};
use crate::info_path::{InfoPathSettings, SimFrames};
use crate::packet::Packet;
use crate::port::{SimClock, SimPort, Simulated};
use crate::time::{Picos, from_ns, to_ns};
use crate::work::Task;
use erd_core::run::link::Link;
use erd_core::run::net_errors::NetErrors;
use erd_core::run::{Carriers, Driven, Parts};
use erd_rd::{Endpoint, Nanos, PeerId, SendToken, WorkRequest};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
pub struct ErdHost {
    endpoint: Endpoint,
    memory: Memory,
    carriers: Carriers<Simulated>,
    now: Picos,
    peers: HashMap<HostId, PeerId>,
    /// Datagrams that the uplink can take.
    uplink_room: usize,
}

impl Driven for ErdHost {
    type Outside = Simulated;
    type Memory = Memory;

    fn parts(&mut self) -> Parts<'_, Simulated, Memory> {
        let ErdHost { endpoint, memory, carriers, .. } = self;
        Parts { engine: endpoint, host: memory, carriers }
    }

    /// Does what is due of the tasks.
    #[inline]
    fn settle(&mut self) {
        for msg in self.memory.take_taken() {
            self.endpoint.release(msg);
        }
        if self.memory.agenda.is_due(self.now) {
            self.run_tasks(self.now);
        }
    }

    /// All that is due at this moment has been done: datagrams may leave.
    fn feed(&mut self) {
        self.carriers.port.room = self.uplink_room;
    }

    fn publish(&mut self) {}
}

impl ErdHost {
    /// The host of this number with an engine and its tasks; `endpoint` bears the name that [`name_of`] gives. It has an
    /// information path if there are settings of one.
    #[must_use]
    pub fn new(
        id: HostId,
        endpoint: Endpoint,
        tasks: Vec<Task>,
        info_path: Option<InfoPathSettings>,
    ) -> ErdHost {
        let net_errors = Arc::new(NetErrors::default());
        let inbox = net_errors.join(&Arc::default());
        let link = Link::new(None, name_of(id), false);
        let (port, clock) = (SimPort::default(), SimClock::default());
        let info_path = info_path.map(SimFrames::new);
        ErdHost {
            carriers: Carriers::new(port, info_path, link, clock, (net_errors, inbox)),
            endpoint,
            memory: Memory::new(Agenda::new(tasks)),
            now: 0,
            peers: HashMap::new(),
            uplink_room: 0,
        }
    }

    /// Its engine.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A packet of the information path arrives.
    #[inline(never)]
    fn receive_frame(&mut self, now: Picos, packet: &mut Packet, header: StreamHeader) {
        if let Some(path) = &mut self.carriers.info_path {
            path.receive(now, packet, header);
        }
    }

    /// Puts what leaves over the information path to the datagrams that leave.
    fn take_frames(&mut self) {
        let Carriers { info_path, port, .. } = &mut self.carriers;
        let Some(path) = info_path else { return };
        for packet in path.leaving.drain() {
            std::mem::swap(port.leaving.next(), packet);
        }
    }

    fn peer(&mut self, now_ns: Nanos, to: HostId) -> Option<PeerId> {
        if let Some(peer) = self.peers.get(&to) {
            return Some(*peer);
        }
        let peer = self.endpoint.peer(now_ns, name_of(to), &mut self.memory).ok()?;
        self.peers.insert(to, peer);
        Some(peer)
    }
}

impl Transport for ErdHost {
    fn agenda(&self) -> &Agenda {
        &self.memory.agenda
    }

    fn agenda_mut(&mut self) -> &mut Agenda {
        &mut self.memory.agenda
    }

    fn post(&mut self, now: Picos, message: &SendRequest) -> bool {
        let now_ns = to_ns(now);
        let Some(peer) = self.peer(now_ns, message.to) else { return false };
        let wr = WorkRequest {
            peer,
            token: SendToken(message.task.0.into()),
            len_bytes: message.bytes,
            tag: Some(message.flow.0.into()),
            data: None,
            match_complete: false,
            awaited: false,
            delivery: false,
            fence: false,
        };
        self.endpoint.send(now_ns, wr).is_ok()
    }

    fn begin(&mut self, now: Picos) {
        self.endpoint.renew_control(to_ns(now));
    }

    fn receive(&mut self, now: Picos, packet: &mut Packet) {
        match packet.header {
            Header::Stream(header) => self.receive_frame(now, packet, header),
            _ => std::mem::swap(self.carriers.port.arrivals.next(), packet),
        }
    }

    /// Runs one step of the library's loop.
    fn step(&mut self, now: Picos, room: usize) {
        self.now = now;
        self.uplink_room = room;
        self.carriers.clock.0 = to_ns(now);
        self.carriers.port.room = 0;
        if let Some(path) = &mut self.carriers.info_path {
            path.step(now);
        }
        if self.carriers.port.arrivals.is_empty() {
            self.settle();
        }
        self.progress();
        self.take_frames();
    }

    fn leaving(&mut self) -> &mut [Packet] {
        self.carriers.port.leaving.drain()
    }

    fn has_more(&self) -> bool {
        self.endpoint.has_ready() || !self.carriers.sender.is_empty()
    }

    fn next_wake(&self) -> Option<Picos> {
        let due = self.memory.agenda.next_due();
        let frames = self.carriers.info_path.as_ref().and_then(SimFrames::next_due);
        self.endpoint.poll_timeout().map(from_ns).into_iter().chain(due).chain(frames).min()
    }

    fn window_bytes(&self, to: HostId) -> Option<u64> {
        let peer = self.peers.get(&to)?;
        self.endpoint.flow(*peer).map(|flow| flow.window_bytes)
    }

    fn stats(&self) -> TransportStats {
        let stats = self.endpoint.stats();
        TransportStats {
            data_packets: stats.tx_data,
            repeats: Repeats {
                nack: stats.rtx_nack,
                probe: stats.rtx_probe,
                order: stats.rtx_order,
                trim: stats.rtx_trim,
                timeout: 0,
                spurious: stats.rtx_spurious,
            },
            frames: self.carriers.info_path.as_ref().map(SimFrames::counts).unwrap_or_default(),
        }
    }

    /// A rare call beside the loop's own ones.
    #[inline(never)]
    fn run_tasks(&mut self, now: Picos) {
        self.memory.agenda.turn(now);
        let mut waiting = self.memory.agenda.take_untaken();
        waiting.retain(|message| !self.post(now, message));
        self.memory.agenda.put_back(waiting);
    }
}
