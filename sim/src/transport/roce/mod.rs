//! RoCEv2 as a transport: reliable connections that go back to the first packet that is missing, with DCQCN. A message is
//! split over the queue pairs between two hosts in equal parts. docs/baselines.md describes it.

mod dcqcn;
mod receiver;
mod sender;
mod settings;

pub use settings::RoceSettings;
pub(super) use settings::SETTINGS;

use super::agenda::{Agenda, SendRequest};
use super::{Transport, TransportStats};
use crate::fabric::blueprint::mixed;
use crate::header::{Header, RoceHeader, RoceKind};
use crate::ids::HostId;
use crate::mutants::{Mutant, mutant};
use crate::packet::{FRAME_BYTES, Packet, PacketList};
use crate::time::{Picos, serialization_ps};
use crate::wire::PAYLOAD_BYTES;
use crate::work::{FlowId, Task, TaskId};
use erd_rd::Ecn;
use receiver::QpReceiver;
use sender::{Part, QpSender, RoceOutgoing, RoceRepeat};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// A message that is being sent.
#[derive(Clone, Copy, Debug)]
struct Underway {
    task: TaskId,
    /// Parts that are not acknowledged.
    parts: u16,
}

/// Queue pairs by the time when something is due, at most one entry of each.
type Timers = BinaryHeap<Reverse<(Picos, u32)>>;

/// See the module.
pub struct RoceHost {
    id: HostId,
    settings: RoceSettings,
    /// Rate of the host's link.
    bytes_per_s: u64,
    seed: u64,
    agenda: Agenda,
    /// Sending queue pairs; those to one host follow each other.
    senders: Vec<QpSender>,
    first_sender: HashMap<HostId, u32>,
    /// Receiving queue pairs; those from one host follow each other.
    receivers: Vec<QpReceiver>,
    first_receiver: HashMap<HostId, u32>,
    /// Messages under way, and free places among them.
    messages: Vec<Underway>,
    free: Vec<u32>,
    /// Parts of messages that have arrived, for those that have not arrived whole.
    arrived: HashMap<FlowId, u16>,
    /// Queue pairs that may send now, one packet each in turn.
    ready: VecDeque<u32>,
    /// Queue pairs that their rate lets send later.
    paced: Timers,
    /// Queue pairs that wait for an acknowledgement.
    timed: Timers,
    leaving: PacketList,
    stats: TransportStats,
}

impl RoceHost {
    /// The host of this number with its tasks, on a link of this rate.
    #[must_use]
    pub fn new(
        id: HostId,
        settings: RoceSettings,
        bytes_per_s: u64,
        seed: u64,
        tasks: Vec<Task>,
    ) -> RoceHost {
        RoceHost {
            id,
            settings,
            bytes_per_s,
            seed,
            agenda: Agenda::new(tasks),
            senders: Vec::new(),
            first_sender: HashMap::new(),
            receivers: Vec::new(),
            first_receiver: HashMap::new(),
            messages: Vec::new(),
            free: Vec::new(),
            arrived: HashMap::new(),
            ready: VecDeque::new(),
            paced: Timers::new(),
            timed: Timers::new(),
            leaving: PacketList::default(),
            stats: TransportStats::default(),
        }
    }

    /// The first of the queue pairs to a host. Each has a path of its own.
    fn senders_to(&mut self, to: HostId) -> u32 {
        if let Some(first) = self.first_sender.get(&to) {
            return *first;
        }
        let first = self.senders.len() as u32;
        let pair = mixed(self.seed ^ u64::from(self.id.0) << 32 ^ u64::from(to.0));
        for qp in 0..self.settings.qps {
            let path = mixed(pair ^ u64::from(qp)) as u16;
            self.senders.push(QpSender::new(to, qp, path));
        }
        self.first_sender.insert(to, first);
        first
    }

    /// A queue pair with something to send takes its turn, now or when its rate lets it.
    fn schedule(&mut self, now: Picos, at: u32) {
        let sender = &mut self.senders[at as usize];
        if sender.is_scheduled || !sender.has_more() {
            return;
        }
        sender.is_scheduled = true;
        if sender.free_at <= now {
            self.ready.push_back(at);
        } else {
            self.paced.push(Reverse((sender.free_at, at)));
        }
    }

    /// Something is to be acknowledged, or something was: the time without progress begins again.
    fn time(&mut self, now: Picos, at: u32) {
        let sender = &mut self.senders[at as usize];
        sender.rto_at = now + self.settings.rto_ps;
        if !sender.is_timed {
            sender.is_timed = true;
            self.timed.push(Reverse((sender.rto_at, at)));
        }
    }

    fn run_timers(&mut self, now: Picos) {
        while let Some(Reverse((_, at))) = self.timed.peek().filter(|next| next.0.0 <= now) {
            let at = *at;
            self.timed.pop();
            let sender = &mut self.senders[at as usize];
            sender.is_timed = false;
            if !sender.is_waiting() {
                continue;
            }
            if sender.rto_at > now {
                sender.is_timed = true;
                self.timed.push(Reverse((sender.rto_at, at)));
                continue;
            }
            sender.go_back(RoceRepeat::Timeout);
            self.time(now, at);
            self.schedule(now, at);
        }
        while let Some(Reverse((_, at))) = self.paced.peek().filter(|next| next.0.0 <= now) {
            let at = *at;
            self.paced.pop();
            if !mutant(Mutant::LosesPacedTurns) {
                self.ready.push_back(at);
            }
        }
    }

    /// Sends the next packet of a queue pair; false if there is none.
    fn send(&mut self, now: Picos, at: u32) -> bool {
        let sender = &mut self.senders[at as usize];
        sender.is_scheduled = false;
        let is_first = !sender.is_waiting();
        let Some(RoceOutgoing { header, payload_bytes, repeats }) = sender.next() else {
            return false;
        };
        match repeats {
            None => self.stats.data_packets += 1,
            Some(RoceRepeat::Nak) => self.stats.repeats.nack += 1,
            Some(RoceRepeat::Timeout) => self.stats.repeats.timeout += 1,
        }
        let header = Header::Roce(header);
        let bytes = FRAME_BYTES + header.wire_bytes() + payload_bytes;
        sender.pace(now, bytes, serialization_ps(bytes, self.bytes_per_s), &self.settings);
        let packet = self.leaving.next();
        packet.head.clear();
        (packet.to, packet.path, packet.ecn) = (sender.to, sender.path, Ecn::Ect0);
        (packet.payload_bytes, packet.header) = (payload_bytes, header);
        if is_first {
            self.time(now, at);
        }
        self.schedule(now, at);
        true
    }

    fn answer(&mut self, to: HostId, path: u16, header: RoceHeader) {
        let packet = self.leaving.next();
        packet.head.clear();
        (packet.to, packet.path, packet.ecn) = (to, path, Ecn::NotEct);
        (packet.payload_bytes, packet.header) = (0, Header::Roce(header));
    }

    /// Data comes.
    fn take_data(&mut self, now: Picos, packet: &Packet, header: &RoceHeader, part: (FlowId, u16)) {
        let RoceHeader { qp, psn, kind } = *header;
        let first = *self.first_receiver.entry(packet.from).or_insert_with(|| {
            let first = self.receivers.len() as u32;
            self.receivers.resize(
                self.receivers.len() + usize::from(self.settings.qps),
                QpReceiver::default(),
            );
            first
        });
        let receiver = &mut self.receivers[first as usize + usize::from(qp)];
        let last = matches!(kind, RoceKind::Data { last: true, .. });
        let fate = (packet.trimmed, packet.ecn == Ecn::Ce);
        let taken = receiver.take(now, (psn, last), fate, &self.settings);
        let psn = receiver.expected_psn;
        // Answers take the way that the data came: one path number a queue pair.
        for kind in taken.answer.into_iter().chain(taken.notifies.then_some(RoceKind::Cnp)) {
            self.answer(packet.from, packet.path, RoceHeader { qp, psn, kind });
        }
        if !taken.is_placed {
            return;
        }
        let (flow, parts) = part;
        match self.agenda.receiver_of(flow) {
            Some(task) => {
                self.agenda.placed(task, packet.payload_bytes.into());
                if last && self.is_whole(flow, parts) {
                    self.agenda.received(task);
                }
            }
            None => self.agenda.failed(),
        }
    }

    /// Another part of a message has arrived; true if it was the last one.
    fn is_whole(&mut self, flow: FlowId, parts: u16) -> bool {
        let arrived = self.arrived.entry(flow).or_insert(0);
        *arrived += 1;
        let is_whole = *arrived == parts;
        if is_whole {
            self.arrived.remove(&flow);
        }
        is_whole
    }

    /// An answer comes.
    fn take_answer(&mut self, now: Picos, from: HostId, header: &RoceHeader) {
        let Some(first) = self.first_sender.get(&from) else { return };
        let at = first + u32::from(header.qp);
        let sender = &mut self.senders[at as usize];
        if header.kind == RoceKind::Cnp {
            return sender.dcqcn.notified(now, &self.settings);
        }
        let RoceHost { messages, free, agenda, .. } = self;
        let is_news = sender.acked(header.psn, |part| {
            let message = &mut messages[part.message as usize];
            message.parts -= 1;
            if message.parts == 0 {
                agenda.sent(message.task);
                free.push(part.message);
            }
        });
        if header.kind == RoceKind::Nak {
            sender.go_back(RoceRepeat::Nak);
        }
        if is_news {
            self.time(now, at);
        }
        self.schedule(now, at);
    }
}

impl Transport for RoceHost {
    fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    fn agenda_mut(&mut self) -> &mut Agenda {
        &mut self.agenda
    }

    fn post(&mut self, now: Picos, message: &SendRequest) -> bool {
        let first = self.senders_to(message.to);
        let packets = message.bytes.div_ceil(PAYLOAD_BYTES.into()).max(1);
        let parts = packets.min(self.settings.qps.into()) as u16;
        let underway = Underway { task: message.task, parts };
        let number = self.free.pop().unwrap_or(self.messages.len() as u32);
        match self.messages.get_mut(number as usize) {
            Some(place) => *place = underway,
            None => self.messages.push(underway),
        }
        let mut sent_packets = 0;
        for qp in 0..parts {
            // Whole packets, as equal as they can be.
            let end = packets * u64::from(qp + 1) / u64::from(parts);
            let payload = u64::from(PAYLOAD_BYTES);
            let bytes = (end * payload).min(message.bytes) - sent_packets * payload;
            sent_packets = end;
            let at = first + u32::from(qp);
            let part = Part::new(number, message.flow.0, parts, bytes);
            self.senders[at as usize].post(part);
            self.schedule(now, at);
        }
        true
    }

    fn receive(&mut self, now: Picos, packet: &mut Packet) {
        let Header::Roce(header) = packet.header else { return };
        match header.kind {
            RoceKind::Data { flow, parts, .. } => {
                self.take_data(now, packet, &header, (FlowId(flow), parts));
            }
            _ => self.take_answer(now, packet.from, &header),
        }
    }

    /// Answers leave at once, since they go before data in a NIC; data as the link takes it.
    fn step(&mut self, now: Picos, room: usize) {
        if self.agenda.is_due(now) {
            self.run_tasks(now);
        }
        self.run_timers(now);
        let mut sent = 0;
        while sent < room {
            let Some(at) = self.ready.pop_front() else { break };
            sent += usize::from(self.send(now, at));
        }
    }

    fn leaving(&mut self) -> &mut [Packet] {
        self.leaving.drain()
    }

    fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    fn next_wake(&self) -> Option<Picos> {
        let timers = [&self.paced, &self.timed].into_iter();
        let timers = timers.filter_map(|timers| timers.peek().map(|next| next.0.0));
        timers.chain(self.agenda.next_due()).min()
    }

    /// There is no window.
    fn window_bytes(&self, _: HostId) -> Option<u64> {
        None
    }

    fn stats(&self) -> TransportStats {
        self.stats
    }
}
