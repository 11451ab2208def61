//! Sends one long stream from one engine to another in virtual time, for counting what an acknowledgement costs:
//! `engine_cost SCHEME PATHS SPREAD_NS PACKETS`. The last path is so much slower than the first, and the others lie
//! between, so their packets arrive out of order. Run it under callgrind with `--toggle-collect=*FUNCTION*`, where
//! `FUNCTION` is one of the `counted_*` functions below: it counts while as many packets arrive as the last argument
//! says, after as many before. `cargo xtask cost` does so.

use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, Scheme, SentBurst, Timeout,
    View, schemes,
};
use erd_rd::wire::header::{Header, PacketKind};
use erd_rd::{
    Arrived, Config, Ecn, EndReason, Endpoint, Host, Nanos, OpError, Part, PeerId, RecvToken,
    RxMeta, SendToken, TxBurst, Verdict, WorkRequest,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::net::SocketAddr;

/// Bytes of a packet.
const PACKET_BYTES: u16 = 4096;
/// Time of a packet on the sender's link, in nanoseconds: 400 Gb/s.
const PACKET_NS: Nanos = 82;
/// Time that the fastest path takes, and each acknowledgement, in nanoseconds.
const WAY_NS: Nanos = 10_000;
/// Window of every flow: no spread asked for fills it, so the link alone limits the sender.
const WINDOW_BYTES: u64 = 16 << 20;

/// A scheme whose flows all have the same window, so that the delays of paths alone decide how far a packet overtakes
/// others.
struct Held(Box<dyn Scheme>);

/// One flow of it.
struct HeldFlow(Box<dyn Controller>);

impl Scheme for Held {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn ack_policy(&self) -> AckPolicy {
        self.0.ack_policy()
    }

    fn loss_detection(&self) -> LossDetection {
        self.0.loss_detection()
    }

    fn learns(&self) -> bool {
        self.0.learns()
    }

    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller> {
        Box::new(HeldFlow(self.0.build(params, seed)))
    }
}

impl Controller for HeldFlow {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.0.on_sent(sent);
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.0.on_ack(ack);
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.0.on_loss(loss);
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.0.on_timeout(timeout);
    }

    fn window_bytes(&self) -> u64 {
        WINDOW_BYTES
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        self.0.next_path(now)
    }

    fn may_move(&self) -> bool {
        self.0.may_move()
    }

    fn ecn(&self) -> Ecn {
        self.0.ecn()
    }

    fn view(&self) -> View {
        self.0.view()
    }
}

/// A driver without memory.
struct Nowhere;

impl Host for Nowhere {
    fn read(&mut self, _: SendToken, _: u64, out: &mut [u8]) {
        out.fill(0);
    }

    fn checksum(&mut self, _: SendToken, _: u64, _: u32, seed: u32) -> u32 {
        seed
    }

    fn sent(&mut self, _: SendToken, outcome: Result<(), OpError>) {
        panic!("the stream ended: {outcome:?}");
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        Verdict::Matched(RecvToken(1), msg.len_bytes)
    }

    fn hold(&mut self, _: PeerId, _: u64) -> Option<RecvToken> {
        None
    }

    fn place(&mut self, _: RecvToken, _: u64, _: &[u8]) {}

    fn received(&mut self, _: RecvToken, outcome: Result<u64, OpError>) {
        panic!("the stream ended: {outcome:?}");
    }

    fn session_ended(&mut self, _: PeerId, _: u32, reason: EndReason) {
        panic!("the session ended: {reason:?}");
    }

    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        PACKET_BYTES
    }
}

/// The sender takes an acknowledgement.
// The compiler makes one function of two that are alike.
#[inline(never)]
fn counted_ack(sender: &mut Endpoint, now: Nanos, meta: &RxMeta, packet: &[u8]) {
    sender.handle_packet(now, meta, packet, &mut Nowhere);
    black_box("an acknowledgement");
}

/// The receiver takes data.
#[inline(never)]
fn counted_data(receiver: &mut Endpoint, now: Nanos, meta: &RxMeta, packet: &[u8]) {
    receiver.handle_packet(now, meta, packet, &mut Nowhere);
}

/// The receiver writes an acknowledgement.
#[inline(never)]
fn counted_answer(receiver: &mut Endpoint, now: Nanos, burst: &mut TxBurst) -> bool {
    receiver.poll_transmit(now, true, &mut Nowhere, burst)
}

/// The places of both nodes.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A packet on its way: its arrival, how many departed before, the place of its receiver, and its bytes.
type Flying = (Nanos, u64, usize, Vec<u8>);

/// Both engines and what is between them.
struct World {
    engines: [Endpoint; 2],
    names: [SocketAddr; 2],
    flying: BinaryHeap<Reverse<Flying>>,
    departed: u64,
    way_ns: Vec<Nanos>,
    /// Time at which the sender's link is free.
    free_at: Nanos,
    burst: TxBurst,
    /// Data packets that arrived.
    arrived: u64,
    /// The first of those that are counted.
    counts_from: u64,
}

impl World {
    fn new(scheme: &str, paths: u16, spread_ns: Nanos, counts_from: u64) -> World {
        let names = [1, 2].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let engines = names.map(|name| {
            let mut config = Config::new(name, 1, crc32c::crc32c_append);
            (config.datagram_bytes, config.burst_bytes) = (PACKET_BYTES, PACKET_BYTES.into());
            (config.paths, config.first_psn) = (paths, Some(0));
            config.recv_buffer_bytes = 64 << 20;
            let scheme = Held(schemes::by_name(scheme).expect("a scheme's name"));
            Endpoint::new(config, Box::new(scheme), 1).expect("an endpoint")
        });
        let slower_ns = |path| spread_ns * u64::from(path) / u64::from(paths.max(2) - 1);
        World {
            engines,
            names,
            flying: BinaryHeap::new(),
            departed: 0,
            way_ns: (0..paths).map(|path| WAY_NS + slower_ns(path)).collect(),
            free_at: 0,
            burst: TxBurst::new(),
            arrived: 0,
            counts_from,
        }
    }

    fn post(&mut self) {
        let sender = &mut self.engines[SENDER];
        let peer = sender.peer(0, self.names[RECEIVER], &mut Nowhere).expect("a peer");
        let stream = WorkRequest {
            peer,
            token: SendToken(1),
            len_bytes: 1 << 40,
            tag: None,
            data: None,
            match_complete: false,
            awaited: false,
            delivery: false,
            fence: false,
        };
        sender.send(0, stream).expect("a stream");
    }

    /// Hands over the next packet, if it has arrived.
    fn take(&mut self, now: Nanos) -> bool {
        if self.flying.peek().is_none_or(|Reverse((at, ..))| *at > now) {
            return false;
        }
        let Some(Reverse((_, _, to, packet))) = self.flying.pop() else { return false };
        let from = self.names[1 - to];
        let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
        let kind = Header::parse(&packet).expect("a header").kind;
        let engine = &mut self.engines[to];
        let counts = self.arrived >= self.counts_from;
        match (to, kind) {
            (SENDER, PacketKind::Ack) if counts => counted_ack(engine, now, &meta, &packet),
            (RECEIVER, PacketKind::Data) if counts => counted_data(engine, now, &meta, &packet),
            _ => _ = engine.handle_packet(now, &meta, &packet, &mut Nowhere),
        }
        self.arrived += u64::from((to, kind) == (RECEIVER, PacketKind::Data));
        self.answer(now);
        true
    }

    /// Sends what the receiver has to say.
    fn answer(&mut self, now: Nanos) {
        let engine = &mut self.engines[RECEIVER];
        loop {
            let sent = match self.arrived >= self.counts_from {
                true => counted_answer(engine, now, &mut self.burst),
                false => engine.poll_transmit(now, true, &mut Nowhere, &mut self.burst),
            };
            if !sent {
                return;
            }
            let packet = bytes(&self.burst);
            self.flying.push(Reverse((now + WAY_NS, self.departed, SENDER, packet)));
            self.departed += 1;
        }
    }

    /// Sends the sender's next packet, if there is one.
    fn send(&mut self, now: Nanos) -> bool {
        let engine = &mut self.engines[SENDER];
        if !engine.poll_transmit(now, true, &mut Nowhere, &mut self.burst) {
            return false;
        }
        self.free_at = now + PACKET_NS;
        let at = now + self.way_ns[usize::from(self.burst.path)];
        self.flying.push(Reverse((at, self.departed, RECEIVER, bytes(&self.burst))));
        self.departed += 1;
        true
    }

    /// Runs until so many data packets have arrived.
    fn run(&mut self, packets: u64) {
        let mut now = 0;
        while self.arrived < packets {
            while self.take(now) {}
            for engine in &mut self.engines {
                if engine.poll_timeout().is_some_and(|at| at <= now) {
                    engine.handle_timeout(now, &mut Nowhere);
                }
            }
            self.answer(now);
            let sends = self.free_at <= now && self.send(now);
            let timers = self.engines.iter().filter_map(Endpoint::poll_timeout);
            let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
            let free = (sends || self.free_at > now).then_some(self.free_at);
            let next = timers.chain(arrival).chain(free).min().expect("something comes");
            now = next.max(now + 1);
        }
    }
}

/// The datagram of a burst of one.
fn bytes(burst: &TxBurst) -> Vec<u8> {
    let mut all = Vec::with_capacity(burst.total_bytes as usize);
    for part in &burst.parts {
        match *part {
            Part::Inline { start, len_bytes } => {
                all.extend(&burst.bytes[start as usize..(start + len_bytes) as usize]);
            }
            Part::Payload { len_bytes, .. } => all.resize(all.len() + len_bytes as usize, 0),
        }
    }
    assert_eq!(burst.datagrams, 1, "a packet at a time");
    all
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, scheme, paths, spread_ns, packets] = args.as_slice() else {
        panic!("usage: engine_cost SCHEME PATHS SPREAD_NS PACKETS");
    };
    let paths = paths.parse().expect("a number of paths");
    let spread_ns = spread_ns.parse().expect("a time in nanoseconds");
    let packets: u64 = packets.parse().expect("a number of packets");
    let mut world = World::new(scheme, paths, spread_ns, packets);
    world.post();
    world.run(2 * packets);
    let stats = world.engines[SENDER].stats();
    let repeated = stats.rtx_nack + stats.rtx_order + stats.rtx_probe;
    assert_eq!(repeated, 0, "nothing was lost, so the columns compare");
}
