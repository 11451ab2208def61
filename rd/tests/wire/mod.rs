//! Engines with a driver's memory, on a perfect wire.

use erd_rd::cc::Scheme;
use erd_rd::cc::fixed::ERD;
use erd_rd::{
    Arrived, Config, Ecn, EndReason, Endpoint, Host, OpError, Part, PeerId, RecvToken, RxMeta,
    SendToken, TxBurst, Verdict, WorkRequest,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A driver's memory: sends by token, receives posted in order, matched first come first served.
#[derive(Default)]
pub struct Memory {
    pub sends: BTreeMap<u64, Vec<u8>>,
    pub posted: VecDeque<u64>,
    pub buffers: BTreeMap<u64, Vec<u8>>,
    pub unexpected: VecDeque<(Arrived, Option<u64>)>,
    /// Held buffers whose message met a receive: held to posted.
    pub copies: BTreeMap<u64, u64>,
    pub next_held: u64,
    pub sent: Vec<(u64, Result<(), OpError>)>,
    pub received: Vec<(u64, Result<u64, OpError>)>,
}

impl Host for Memory {
    fn read(&mut self, op: SendToken, offset_bytes: u64, out: &mut [u8]) {
        let from = offset_bytes as usize;
        out.copy_from_slice(&self.sends[&op.0][from..from + out.len()]);
    }

    fn checksum(&mut self, op: SendToken, offset_bytes: u64, len_bytes: u32, seed: u32) -> u32 {
        let from = offset_bytes as usize;
        crc32c::crc32c_append(seed, &self.sends[&op.0][from..from + len_bytes as usize])
    }

    fn sent(&mut self, op: SendToken, outcome: Result<(), OpError>) {
        self.sent.push((op.0, outcome));
    }

    fn arrived(&mut self, msg: &Arrived) -> Verdict {
        if let Some(to) = self.posted.pop_front() {
            if let Some(held) = msg.held {
                self.copies.insert(held.0, to);
            }
            return Verdict::Matched(RecvToken(to), self.buffers[&to].len() as u64);
        }
        if msg.rendezvous {
            self.unexpected.push_back((*msg, None));
            return Verdict::Wait;
        }
        let to = self.hold(msg.msg.peer, msg.len_bytes).unwrap();
        self.unexpected.push_back((*msg, Some(to.0)));
        Verdict::Held(to)
    }

    fn hold(&mut self, _: PeerId, len_bytes: u64) -> Option<RecvToken> {
        self.next_held += 1;
        let token = self.next_held | 1 << 40;
        self.buffers.insert(token, vec![0; len_bytes as usize]);
        Some(RecvToken(token))
    }

    fn place(&mut self, to: RecvToken, offset_bytes: u64, bytes: &[u8]) {
        let from = offset_bytes as usize;
        self.buffers.get_mut(&to.0).unwrap()[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn received(&mut self, to: RecvToken, outcome: Result<u64, OpError>) {
        let Some(posted) = self.copies.remove(&to.0) else {
            self.received.push((to.0, outcome));
            return;
        };
        let bytes = self.buffers.remove(&to.0).unwrap();
        self.buffers.insert(posted, bytes);
        self.received.push((posted, outcome));
    }

    fn session_ended(&mut self, _: PeerId, _: u32, _: EndReason) {}

    fn datagram_limit_bytes(&mut self, _: SocketAddr) -> u16 {
        1472
    }
}

/// First PSN and send order of every node.
pub const FIRST_PSN: u32 = u32::MAX - 20;

pub struct Node {
    pub engine: Endpoint,
    pub memory: Memory,
    pub name: SocketAddr,
}

pub fn node(port: u16) -> Node {
    node_with(port, Box::new(ERD.scheme()), |_| ())
}

pub fn node_with(port: u16, scheme: Box<dyn Scheme>, change: impl FnOnce(&mut Config)) -> Node {
    let name: SocketAddr = format!("10.0.0.1:{port}").parse().unwrap();
    let mut config = Config::new(name, 1, crc32c::crc32c_append);
    config.first_psn = Some(FIRST_PSN);
    change(&mut config);
    let engine = Endpoint::new(config, scheme, u64::from(port)).unwrap();
    Node { engine, memory: Memory::default(), name }
}

/// Bytes of each datagram of a burst.
pub fn datagrams(burst: &TxBurst, memory: &Memory) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for part in &burst.parts {
        match *part {
            Part::Inline { start, len_bytes } => {
                all.extend(&burst.bytes[start as usize..(start + len_bytes) as usize]);
            }
            Part::Payload { op, offset_bytes, len_bytes } => {
                let from = offset_bytes as usize;
                all.extend(&memory.sends[&op.0][from..from + len_bytes as usize]);
            }
        }
    }
    assert_eq!(all.len(), burst.total_bytes as usize);
    all.chunks(burst.segment_bytes.max(1) as usize).map(<[u8]>::to_vec).collect()
}

/// Runs the nodes until nothing moves, at most `limit_ns` of virtual time.
pub fn run(nodes: &mut [Node], now: &mut u64, limit_ns: u64) {
    run_with(nodes, now, limit_ns, |_, _, _| true);
}

/// The same over a wire that asks `passes` with the time, the sender's place and the datagram.
pub fn run_with(
    nodes: &mut [Node],
    now: &mut u64,
    limit_ns: u64,
    mut passes: impl FnMut(u64, usize, &[u8]) -> bool,
) {
    let end = *now + limit_ns;
    let mut burst = TxBurst::new();
    while *now < end {
        let mut moved = false;
        for at in 0..nodes.len() {
            let me = &mut nodes[at];
            if me.engine.poll_transmit(*now, true, &mut me.memory, &mut burst) {
                moved = true;
                let packets = datagrams(&burst, &me.memory);
                let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from: me.name };
                let to = burst.to;
                let Some(other) = nodes.iter_mut().find(|n| n.name == to) else { continue };
                for packet in packets.iter().filter(|packet| passes(*now, at, packet)) {
                    other.engine.handle_packet(*now, &meta, packet, &mut other.memory);
                }
            }
        }
        *now += 1_000;
        for node in nodes.iter_mut() {
            if node.engine.poll_timeout().is_some_and(|at| at <= *now) {
                node.engine.handle_timeout(*now, &mut node.memory);
                moved = true;
            }
        }
        let next = nodes.iter().filter_map(|n| n.engine.poll_timeout()).min();
        if !moved {
            match next {
                Some(at) if at < end => *now = at.max(*now),
                _ => return,
            }
        }
    }
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ seed.wrapping_mul(0x9e37)) as u8).collect()
}

pub fn post_send(node: &mut Node, token: u64, to: SocketAddr, len: usize) {
    post_send_at(node, 0, token, to, len);
}

pub fn post_send_at(node: &mut Node, now: u64, token: u64, to: SocketAddr, len: usize) {
    node.memory.sends.insert(token, pattern(token, len));
    let peer = node.engine.peer(now, to, &mut node.memory).unwrap();
    let wr = WorkRequest {
        peer,
        token: SendToken(token),
        len_bytes: len as u64,
        tag: Some(token),
        data: None,
        match_complete: false,
        awaited: false,
        delivery: false,
        fence: false,
    };
    node.engine.send(now, wr).unwrap();
}
