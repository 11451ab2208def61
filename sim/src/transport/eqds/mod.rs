//! EQDS as a transport: the receiver pulls packets at the rate of its link, switches trim, and packets are spread over all
//! paths. docs/baselines.md describes it.

mod paths;
mod receiver;
mod sender;
mod settings;

pub use settings::EqdsSettings;
pub(super) use settings::SETTINGS;

use super::agenda::{Agenda, SendRequest};
use super::{Transport, TransportStats};
use crate::fabric::blueprint::mixed;
use crate::header::{EqdsHeader, EqdsKind, Header};
use crate::ids::HostId;
use crate::mutants::{Mutant, mutant};
use crate::packet::{FRAME_BYTES, Packet, PacketList};
use crate::time::{Picos, serialization_ps};
use crate::wire::PAYLOAD_BYTES;
use crate::work::{FlowId, Task};
use erd_rd::Ecn;
use paths::Paths;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use receiver::EqdsReceiver;
use sender::{EqdsRepeat, EqdsSender};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Timeouts after which a sender asks again that has nothing under way and no credit: pulls may be lost.
const IDLE_RTOS: u64 = 10;

/// See the module.
pub struct EqdsHost {
    settings: EqdsSettings,
    /// The first window, in packets.
    window: u32,
    /// Time between two pulls.
    pull_ps: Picos,
    rng: Pcg32,
    agenda: Agenda,
    /// Messages that have not arrived, by the number that they got when they were posted.
    senders: HashMap<u32, EqdsSender>,
    posted: u32,
    /// Messages that come or came; those that came hold no list of packets.
    receivers: Vec<EqdsReceiver>,
    receiver_of: HashMap<(HostId, u32), u32>,
    /// Messages that may send now, one packet each in turn.
    ready: VecDeque<u32>,
    /// When each message was told to look for losses; one entry each.
    timed: BinaryHeap<Reverse<(Picos, u32)>>,
    /// Messages to pull, one packet each in turn: for repeats, and after those the others.
    urgent: VecDeque<u32>,
    active: VecDeque<u32>,
    next_pull_at: Picos,
    leaving: PacketList,
    stats: TransportStats,
}

/// The bandwidth-delay product in packets.
fn window(settings: &EqdsSettings, bytes_per_s: u64, rtt_ns: u64) -> u32 {
    let bdp_bytes = bytes_per_s as f64 * rtt_ns as f64 / 1e9;
    (settings.window_bdp * bdp_bytes / f64::from(PAYLOAD_BYTES)).ceil().max(1.0) as u32
}

impl EqdsHost {
    /// The host of this number with its tasks, on a link of this rate in a network with this base round trip.
    #[must_use]
    pub fn new(
        id: HostId,
        settings: EqdsSettings,
        (bytes_per_s, rtt_ns): (u64, u64),
        seed: u64,
        tasks: Vec<Task>,
    ) -> EqdsHost {
        let packet_ps = serialization_ps(data_bytes(PAYLOAD_BYTES), bytes_per_s.max(1));
        EqdsHost {
            window: window(&settings, bytes_per_s, rtt_ns),
            pull_ps: (packet_ps as f64 / settings.pull_rate) as Picos,
            settings,
            rng: Pcg32::seed_from_u64(mixed(seed ^ u64::from(id.0) << 32)),
            agenda: Agenda::new(tasks),
            senders: HashMap::new(),
            posted: 0,
            receivers: Vec::new(),
            receiver_of: HashMap::new(),
            ready: VecDeque::new(),
            timed: BinaryHeap::new(),
            urgent: VecDeque::new(),
            active: VecDeque::new(),
            next_pull_at: 0,
            leaving: PacketList::default(),
            stats: TransportStats::default(),
        }
    }

    /// A message that has something to send takes its turn.
    fn schedule(&mut self, number: u32) {
        let Some(sender) = self.senders.get_mut(&number) else { return };
        if !sender.is_scheduled && sender.has_more() {
            sender.is_scheduled = true;
            self.ready.push_back(number);
        }
    }

    /// Sends the next packet of a message; false if there is none.
    fn send(&mut self, now: Picos, number: u32) -> bool {
        let Some(sender) = self.senders.get_mut(&number) else { return false };
        sender.is_scheduled = false;
        let Some(outgoing) = sender.next() else { return false };
        match outgoing.repeats {
            None => self.stats.data_packets += 1,
            Some(EqdsRepeat::Trim) => self.stats.repeats.trim += 1,
            Some(EqdsRepeat::Timeout) => self.stats.repeats.timeout += 1,
        }
        sender.rto_at = now + self.settings.rto_ps;
        let kind = EqdsKind::Data {
            psn: outgoing.psn,
            flow: sender.flow,
            packets: sender.packets(),
            target: sender.ask(),
        };
        let packet = self.leaving.next();
        packet.head.clear();
        (packet.to, packet.ecn) = (sender.to, Ecn::Ect0);
        packet.path = sender.paths.next(&mut self.rng);
        packet.payload_bytes = outgoing.payload_bytes;
        packet.header = Header::Eqds(EqdsHeader { message: number, kind });
        self.schedule(number);
        true
    }

    /// Sends a packet without payload.
    fn tell(&mut self, to: HostId, path: u16, message: u32, kind: EqdsKind) {
        let packet = self.leaving.next();
        packet.head.clear();
        (packet.to, packet.path, packet.ecn) = (to, path, Ecn::NotEct);
        packet.payload_bytes = 0;
        packet.header = Header::Eqds(EqdsHeader { message, kind });
    }

    fn random_path(&mut self) -> u16 {
        self.rng.next_u32() as u16 % self.settings.paths
    }

    /// Asks the receiver for pulls with a packet of its own, for repeats too after a timeout.
    fn request(&mut self, number: u32, is_timeout: bool) {
        let Some(sender) = self.senders.get_mut(&number) else { return };
        let (to, target) = (sender.to, sender.ask());
        let with_repeats = if is_timeout { sender.ask_with_repeats() } else { target };
        let (flow, packets) = (sender.flow, sender.packets());
        // If requests and data shared one order, each request could take a good path, and the packet that follows a dead one.
        let path = self.random_path();
        self.tell(to, path, number, EqdsKind::Request { flow, packets, target, with_repeats });
    }

    /// The receiver has spoken of a message: the first window is over.
    fn heard(&mut self, number: u32) {
        if self.senders.get_mut(&number).is_some_and(EqdsSender::stop_speculating) {
            self.request(number, false);
        }
        self.schedule(number);
    }

    fn run_timers(&mut self, now: Picos) {
        while let Some(Reverse((_, number))) = self.timed.peek().filter(|next| next.0.0 <= now) {
            let number = *number;
            self.timed.pop();
            let Some(sender) = self.senders.get_mut(&number) else { continue };
            if sender.rto_at <= now {
                let (is_waiting, has_more) = (sender.is_waiting(), sender.has_more());
                sender.time_out();
                sender.speculate_no_more();
                let rtos = if is_waiting { 1 } else { IDLE_RTOS };
                sender.rto_at = now + self.settings.rto_ps * rtos;
                if is_waiting || !has_more {
                    self.request(number, is_waiting || !mutant(Mutant::AsksOnce));
                }
                self.schedule(number);
            }
            let rto_at = self.senders.get(&number).map_or(now, |sender| sender.rto_at);
            self.timed.push(Reverse((rto_at.max(now + 1), number)));
        }
    }

    /// Sends the pulls that are due.
    fn run_pulls(&mut self, now: Picos) {
        while self.next_pull_at <= now {
            let Some(at) = self.next_to_pull() else { break };
            let receiver = &mut self.receivers[at as usize];
            let (from, message) = (receiver.from, receiver.message);
            let pulls = receiver.pull();
            self.await_pull(at);
            let path = self.random_path();
            self.tell(from, path, message, EqdsKind::Pull { pulls });
            self.next_pull_at = now + self.pull_ps;
        }
    }

    /// The message whose turn it is.
    fn next_to_pull(&mut self) -> Option<u32> {
        loop {
            let urgent = self.urgent.pop_front();
            let at = urgent.or_else(|| self.active.pop_front())?;
            let receiver = &mut self.receivers[at as usize];
            let place =
                if urgent.is_some() { &mut receiver.is_urgent } else { &mut receiver.is_active };
            *place = false;
            if !receiver.is_whole() && (receiver.wants() || receiver.repeats > 0) {
                return Some(at);
            }
        }
    }

    /// A message waits for its next pull, if it wants one.
    fn await_pull(&mut self, at: u32) {
        let receiver = &mut self.receivers[at as usize];
        if receiver.is_whole() {
            return;
        }
        if receiver.repeats > 0 && !receiver.is_urgent {
            receiver.is_urgent = true;
            self.urgent.push_back(at);
        }
        if receiver.wants() && !receiver.is_active {
            receiver.is_active = true;
            self.active.push_back(at);
        }
    }

    /// The place of a message that comes.
    fn receiver(&mut self, key: (HostId, u32), (flow, packets): (u32, u32)) -> u32 {
        *self.receiver_of.entry(key).or_insert_with(|| {
            self.receivers.push(EqdsReceiver::new((key.0, key.1, flow), packets));
            self.receivers.len() as u32 - 1
        })
    }

    /// Data comes, or what a switch left of it.
    fn take_data(&mut self, packet: &Packet, at: u32, message: u32, (psn, target): (u32, u32)) {
        let receiver = &mut self.receivers[at as usize];
        receiver.target = receiver.target.max(target);
        let (from, path, marked) = (packet.from, packet.path, packet.ecn == Ecn::Ce);
        if receiver.has(psn) {
            self.stats.repeats.spurious += u64::from(!packet.trimmed);
            let ack = receiver.ack(psn, marked);
            return self.tell(from, path, message, ack);
        }
        if packet.trimmed && !mutant(Mutant::TakesTrimmedForWhole) {
            receiver.repeats += 1;
            self.tell(from, path, message, EqdsKind::Nack { psn });
            return self.await_pull(at);
        }
        let acks = receiver.take(psn, marked, self.settings.ack_packets);
        let (flow, is_whole) = (FlowId(receiver.flow), receiver.is_whole());
        if acks {
            let ack = receiver.ack(psn, marked);
            self.tell(from, path, message, ack);
        }
        match self.agenda.receiver_of(flow) {
            Some(task) => {
                self.agenda.placed(task, packet.payload_bytes.into());
                if is_whole {
                    self.agenda.received(task);
                }
            }
            None => self.agenda.failed(),
        }
        self.await_pull(at);
    }

    /// A sender asks for pulls. What it has not got of them may be lost.
    fn take_request(
        &mut self,
        now: Picos,
        from: HostId,
        at: u32,
        (target, with_repeats): (u32, u32),
    ) {
        let receiver = &mut self.receivers[at as usize];
        receiver.take_request(target, with_repeats);
        let (message, pulls, is_whole) = (receiver.message, receiver.pulls, receiver.is_whole());
        // What the sender takes for lost may have come, and the acknowledgements of it may be lost.
        if is_whole || with_repeats > target {
            let ack = receiver.ack_all();
            let path = self.random_path();
            self.tell(from, path, message, ack);
        }
        if !is_whole {
            let path = self.random_path();
            self.tell(from, path, message, EqdsKind::Pull { pulls });
        }
        self.await_pull(at);
        self.run_pulls(now);
    }

    /// What the receiver says of a message.
    fn take_answer(&mut self, now: Picos, path: u16, number: u32, kind: &EqdsKind) {
        let Some(sender) = self.senders.get_mut(&number) else { return };
        let is_news = match *kind {
            EqdsKind::Ack { expected, base, bits, marked } => {
                if marked {
                    sender.paths.avoid(path);
                }
                let mut is_news = sender.arrived_before(expected);
                for bit in (0..32).filter(|bit| bits >> bit & 1 != 0) {
                    let off = u32::from(mutant(Mutant::ReadsBitsOneOff));
                    is_news |= sender.arrived(base + bit + off);
                }
                is_news
            }
            EqdsKind::Nack { psn } => {
                sender.paths.avoid(path);
                sender.trimmed(psn);
                true
            }
            EqdsKind::Pull { pulls } => sender.pulled(pulls),
            EqdsKind::Data { .. } | EqdsKind::Request { .. } => false,
        };
        if is_news {
            sender.rto_at = now + self.settings.rto_ps;
        }
        if sender.is_done() {
            self.agenda.sent(sender.task);
            self.senders.remove(&number);
            return;
        }
        self.heard(number);
    }
}

/// Bytes of a data packet on a link.
fn data_bytes(payload_bytes: u32) -> u32 {
    FRAME_BYTES + EqdsHeader::WIRE_BYTES + payload_bytes
}

impl Transport for EqdsHost {
    fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    fn agenda_mut(&mut self) -> &mut Agenda {
        &mut self.agenda
    }

    fn post(&mut self, now: Picos, message: &SendRequest) -> bool {
        let number = self.posted;
        self.posted += 1;
        let paths = Paths::new(self.settings.paths, &mut self.rng);
        let what = (message.to, message.task, message.flow.0);
        let mut sender = EqdsSender::new(what, message.bytes, self.window, paths);
        sender.rto_at = now + self.settings.rto_ps;
        self.timed.push(Reverse((sender.rto_at, number)));
        self.senders.insert(number, sender);
        self.schedule(number);
        true
    }

    fn receive(&mut self, now: Picos, packet: &mut Packet) {
        let Header::Eqds(EqdsHeader { message, kind }) = packet.header else { return };
        let key = (packet.from, message);
        match kind {
            EqdsKind::Data { psn, flow, packets, target } => {
                let at = self.receiver(key, (flow, packets));
                self.take_data(packet, at, message, (psn, target));
            }
            EqdsKind::Request { flow, packets, target, with_repeats } => {
                let at = self.receiver(key, (flow, packets));
                self.take_request(now, packet.from, at, (target, with_repeats));
            }
            _ => self.take_answer(now, packet.path, message, &kind),
        }
    }

    /// Packets without payload leave at once, since they go before data; data as the link takes it.
    fn step(&mut self, now: Picos, room: usize) {
        if self.agenda.is_due(now) {
            self.run_tasks(now);
        }
        self.run_timers(now);
        self.run_pulls(now);
        let mut sent = 0;
        while sent < room {
            let Some(number) = self.ready.pop_front() else { break };
            sent += usize::from(self.send(now, number));
        }
    }

    fn leaving(&mut self) -> &mut [Packet] {
        self.leaving.drain()
    }

    fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    fn next_wake(&self) -> Option<Picos> {
        let pulls = !(self.urgent.is_empty() && self.active.is_empty());
        let timed = self.timed.peek().map(|next| next.0.0);
        let pull = pulls.then_some(self.next_pull_at);
        timed.into_iter().chain(pull).chain(self.agenda.next_due()).min()
    }

    /// The receiver decides what may be in flight.
    fn window_bytes(&self, _: HostId) -> Option<u64> {
        None
    }

    fn stats(&self) -> TransportStats {
        self.stats
    }
}
