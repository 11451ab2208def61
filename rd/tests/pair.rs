//! Two engines on a perfect wire: the boundary as a driver uses it, in its shortest form.

use erd_rd::cc::erd::ErdScheme;
use erd_rd::{
    Arrived, Config, Ecn, EndReason, Endpoint, Host, MsgRef, OpError, Part, PeerId, RecvToken,
    RxMeta, SendToken, TxBurst, Verdict, WorkRequest,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// A driver's memory: sends by token, receives posted in order, matched first come first served.
#[derive(Default)]
struct Memory {
    sends: BTreeMap<u64, Vec<u8>>,
    posted: VecDeque<u64>,
    buffers: BTreeMap<u64, Vec<u8>>,
    unexpected: VecDeque<(Arrived, Option<u64>)>,
    /// Held buffers whose message met a receive: held to posted.
    copies: BTreeMap<u64, u64>,
    next_held: u64,
    sent: Vec<(u64, Result<(), OpError>)>,
    received: Vec<(u64, Result<u64, OpError>)>,
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

struct Node {
    engine: Endpoint,
    memory: Memory,
    name: SocketAddr,
}

fn node(port: u16) -> Node {
    let name: SocketAddr = format!("10.0.0.1:{port}").parse().unwrap();
    let mut config = Config::new(name, 1, crc32c::crc32c_append);
    config.first_psn = Some(u32::MAX - 20);
    let engine = Endpoint::new(config, Box::new(ErdScheme::default()), u64::from(port)).unwrap();
    Node { engine, memory: Memory::default(), name }
}

/// Bytes of each datagram of a burst.
fn datagrams(burst: &TxBurst, memory: &Memory) -> Vec<Vec<u8>> {
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

/// Runs both nodes until nothing moves, at most `limit_ns` of virtual time.
fn run(nodes: &mut [Node; 2], now: &mut u64, limit_ns: u64) {
    let end = *now + limit_ns;
    let mut burst = TxBurst::new();
    while *now < end {
        let mut moved = false;
        for at in 0..2 {
            let me = &mut nodes[at];
            if me.engine.poll_transmit(*now, true, &mut me.memory, &mut burst) {
                moved = true;
                let packets = datagrams(&burst, &me.memory);
                let meta = RxMeta { ecn: Ecn::NotEct, hold_ns: 0, from: me.name };
                let to = burst.to;
                let other = nodes.iter_mut().find(|n| n.name == to).unwrap();
                for packet in packets {
                    other.engine.handle_packet(*now, &meta, &packet, &mut other.memory);
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

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31) ^ seed.wrapping_mul(0x9e37)) as u8).collect()
}

fn post_send(node: &mut Node, token: u64, to: SocketAddr, len: usize) {
    node.memory.sends.insert(token, pattern(token, len));
    let peer = node.engine.peer(0, to, &mut node.memory).unwrap();
    let wr = WorkRequest {
        peer,
        token: SendToken(token),
        len_bytes: len as u64,
        tag: Some(token),
        data: None,
        match_complete: false,
    };
    node.engine.send(0, wr).unwrap();
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    let mut nodes = [node(1), node(2)];
    let to = nodes[1].name;
    let sizes = [0, 1, 64, 1000, 1400, 1500, 5000, 16384, 16385, 100_000, 3_000_000, 7];
    for (i, &len) in sizes.iter().enumerate() {
        let token = i as u64 + 1;
        post_send(&mut nodes[0], token, to, len);
        nodes[1].memory.posted.push_back(token);
        nodes[1].memory.buffers.insert(token, vec![0xee; len]);
    }
    let mut now = 0;
    run(&mut nodes, &mut now, 2_000_000_000);
    assert_eq!(nodes[0].memory.sent.len(), sizes.len(), "{:?}", nodes[0].engine.stats());
    assert!(nodes[0].memory.sent.iter().all(|(_, outcome)| outcome.is_ok()));
    assert_eq!(nodes[1].memory.received.len(), sizes.len());
    for (i, &len) in sizes.iter().enumerate() {
        let token = i as u64 + 1;
        assert!(nodes[1].memory.received.contains(&(token, Ok(len as u64))), "size {len}");
        assert!(nodes[1].memory.buffers[&token] == pattern(token, len), "size {len}");
    }
    let stats = nodes[0].engine.stats();
    assert_eq!(stats.rtx_nack + stats.rtx_probe, 0);
}

#[test]
fn unexpected_messages_wait_for_accept_and_goodbye_ends_the_session() {
    let mut nodes = [node(1), node(2)];
    let to = nodes[1].name;
    post_send(&mut nodes[0], 1, to, 100);
    post_send(&mut nodes[0], 2, to, 50_000);
    let mut now = 0;
    run(&mut nodes, &mut now, 1_000_000_000);
    let unexpected: Vec<_> = nodes[1].memory.unexpected.drain(..).collect();
    assert_eq!(unexpected.len(), 2);
    assert_eq!(nodes[0].memory.sent, [(1, Ok(()))]);
    let eager: MsgRef = unexpected[0].0.msg;
    let held = unexpected[0].1.unwrap();
    assert!(nodes[1].memory.buffers[&held] == pattern(1, 100));
    let me = &mut nodes[1];
    me.engine.release(now, eager);
    me.memory.buffers.insert(7, vec![0; 50_000]);
    let late = unexpected[1].0.msg;
    assert!(me.engine.accept(now, late, RecvToken(7), 50_000, &mut me.memory));
    run(&mut nodes, &mut now, 1_000_000_000);
    assert_eq!(nodes[0].memory.sent, [(1, Ok(())), (2, Ok(()))]);
    assert!(nodes[1].memory.buffers[&7] == pattern(2, 50_000));
    let me = &mut nodes[0];
    me.engine.close(now, &mut me.memory);
    run(&mut nodes, &mut now, 1_000_000_000);
    assert!(nodes[0].engine.is_closed());
}
