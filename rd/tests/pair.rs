//! Two engines on a perfect wire: the boundary as a driver uses it, in its shortest form.

mod wire;

use erd_rd::cc::fixed::ERD;
use erd_rd::cc::{AckPolicy, Controller, FlowParams, LossDetection, Scheme};
use erd_rd::wire::header::{FLAG_EAGER, Header, PacketKind, VERSION, seal};
use erd_rd::wire::put_name;
use erd_rd::wire::record::{Cts, MsgHeader, Record, emit_eager_header};
use erd_rd::{Config, DropReason, Ecn, MsgRef, OpError, PostError, RecvToken, RxMeta, TxBurst};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use wire::{
    FIRST_PSN, Node, datagrams, node, node_with, pattern, post_send, post_send_at, run, run_with,
};

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
    me.engine.release(eager);
    me.memory.buffers.insert(7, vec![0; 50_000]);
    let late = unexpected[1].0.msg;
    assert!(me.engine.accept(late, RecvToken(7), 50_000, &mut me.memory));
    run(&mut nodes, &mut now, 1_000_000_000);
    assert_eq!(nodes[0].memory.sent, [(1, Ok(())), (2, Ok(()))]);
    assert!(nodes[1].memory.buffers[&7] == pattern(2, 50_000));
    let me = &mut nodes[0];
    me.engine.close(now, &mut me.memory);
    run(&mut nodes, &mut now, 1_000_000_000);
    assert!(nodes[0].engine.is_closed());
}

/// Two nodes after one message from the first to the second, and the session ids by which the
/// first and the second are addressed.
fn acquainted() -> ([Node; 2], u64, [u64; 2]) {
    acquaint([node(1), node(2)])
}

fn acquaint(mut nodes: [Node; 2]) -> ([Node; 2], u64, [u64; 2]) {
    let to = nodes[1].name;
    post_send(&mut nodes[0], 1, to, 8);
    let (mut now, mut ids) = (0, [0; 2]);
    run_with(&mut nodes, &mut now, SECOND, |_, from, packet| {
        let h = Header::parse(packet).unwrap();
        if matches!(h.kind, PacketKind::Data | PacketKind::Ack) {
            ids[1 - from] = h.session;
        }
        true
    });
    assert_eq!(nodes[0].memory.sent, [(1, Ok(()))]);
    (nodes, now, ids)
}

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// A data packet with a right checksum. `headers` follow the common header, then `payload`.
fn forge(mut h: Header, headers: &[u8], payload: &[u8]) -> Vec<u8> {
    h.s_len = (payload.len() + if h.long { 0 } else { headers.len() }) as u16;
    let mut bytes = Vec::new();
    h.emit(&mut bytes);
    bytes.extend(headers);
    seal(&mut bytes, 0, crc32c::crc32c_append);
    bytes.extend(payload);
    bytes
}

fn take(node: &mut Node, now: u64, packet: &[u8]) {
    let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from: node.name };
    node.engine.handle_packet(now, &meta, packet, &mut node.memory);
}

/// A segment of an eager message that is `ahead` of its turn.
fn eager_segment(session: u64, nth: u32, ahead: u32, offset: u32, len_bytes: u64) -> Vec<u8> {
    let mut headers = Vec::new();
    let order = FIRST_PSN.wrapping_add(1 + ahead);
    let tag = Some(3);
    let msg = MsgHeader { order, op: 0, tag, data: None, match_notice: false, len_bytes };
    emit_eager_header(&mut headers, &msg);
    let psn = FIRST_PSN.wrapping_add(1 + nth);
    let h = Header { long: true, flags: FLAG_EAGER, psn, ..Header::new(PacketKind::Data, session) };
    forge(Header { s_offset: offset, ..h }, &headers, &[7; 100])
}

#[test]
fn one_poll_takes_all_that_a_small_message_needs() {
    let (mut nodes, now, _) = acquainted();
    let to = nodes[1].name;
    post_send_at(&mut nodes[0], now, 2, to, 64);
    assert!(nodes[0].engine.has_due());
    let mut burst = TxBurst::new();
    assert!(nodes[0].engine.poll_transmit(now, false, &mut nodes[0].memory, &mut burst));
    assert!(!nodes[0].engine.has_due(), "another poll would be in vain");
    assert!(!nodes[0].engine.poll_transmit(now, false, &mut nodes[0].memory, &mut burst));
}

#[test]
fn permission_for_an_eager_message_starts_nothing() {
    let (mut nodes, mut now, ids) = acquainted();
    let to = nodes[1].name;
    post_send_at(&mut nodes[0], now, 2, to, 64);
    let mut burst = TxBurst::new();
    assert!(nodes[0].engine.poll_transmit(now, true, &mut nodes[0].memory, &mut burst));
    let packet = datagrams(&burst, &nodes[0].memory).remove(0);
    let mut headers = vec![0, 1];
    // The operation's number is the first that is free, its order the second of the session.
    let order = FIRST_PSN.wrapping_add(1);
    let cts = Cts { order, op: 0, msg_id: 0x8000, base_bytes: 0, len_bytes: 64, total_bytes: 64 };
    Record::Cts(cts).emit(&mut headers);
    let h = Header { psn: FIRST_PSN, ..Header::new(PacketKind::Data, ids[0]) };
    take(&mut nodes[0], now, &forge(h, &headers, &[]));
    take(&mut nodes[1], now, &packet);
    run(&mut nodes, &mut now, SECOND);
    assert_eq!(nodes[0].memory.sent, [(1, Ok(())), (2, Ok(()))]);
    let sent_bytes = nodes[0].engine.stats().tx_payload_bytes;
    assert_eq!(sent_bytes, 8 + 64, "each byte goes out once");
}

#[test]
fn permission_comes_in_whole_links() {
    let (mut nodes, mut now, ids) = acquainted();
    let to = nodes[1].name;
    post_send_at(&mut nodes[0], now, 2, to, 1 << 20);
    let mut burst = TxBurst::new();
    assert!(nodes[0].engine.poll_transmit(now, true, &mut nodes[0].memory, &mut burst));
    let permit = |base_bytes: u64, len_bytes: u32| {
        let (order, op) = (FIRST_PSN.wrapping_add(1), 0);
        let cts = Cts { order, op, msg_id: 0x8000, base_bytes, len_bytes, total_bytes: 1 << 20 };
        let mut headers = vec![0, 1];
        Record::Cts(cts).emit(&mut headers);
        let h = Header { psn: FIRST_PSN, ..Header::new(PacketKind::Data, ids[0]) };
        forge(h, &headers, &[])
    };
    // Byte by byte, each would cost more memory than it takes on the wire.
    for at in 0..4 {
        take(&mut nodes[0], now, &permit(at, 1));
    }
    assert_eq!(nodes[0].engine.stats().drops_for(DropReason::Message), 4);
    take(&mut nodes[0], now, &permit(0, 1 << 20));
    assert_eq!(nodes[0].engine.stats().drops_for(DropReason::Message), 4);
    now += SECOND / 1000;
    assert!(nodes[0].engine.poll_transmit(now, true, &mut nodes[0].memory, &mut burst));
    assert!(burst.total_bytes > 1 << 10, "it sends what it was permitted");
}

#[test]
fn buffers_are_asked_for_within_the_credit_only() {
    let (mut nodes, now, ids) = acquainted();
    take(&mut nodes[1], now, &eager_segment(ids[1], 0, 1, 0, 1 << 31));
    assert_eq!(nodes[1].engine.stats().drops_for(DropReason::Credit), 1);
    let longest = nodes[1].memory.buffers.values().map(Vec::len).max();
    assert_eq!(longest, Some(8), "only the first message was held");
}

#[test]
fn answers_that_a_peer_does_not_take_do_not_pile_up() {
    let few = node_with(2, Box::new(ERD.scheme()), |c| c.unexpected_messages = 4);
    let (mut nodes, now, ids) = acquaint([node(1), few]);
    for nth in 1..=10 {
        nodes[1].memory.posted.push_back(u64::from(nth));
        nodes[1].memory.buffers.insert(u64::from(nth), vec![0; 8]);
        let mut headers = vec![0, 1];
        let order = FIRST_PSN.wrapping_add(nth);
        let (tag, data) = (Some(3), None);
        let msg = MsgHeader { order, op: nth, tag, data, match_notice: true, len_bytes: 0 };
        Record::Eager(msg).emit(&mut headers);
        let h = Header { psn: order, ..Header::new(PacketKind::Data, ids[1]) };
        take(&mut nodes[1], now, &forge(h, &headers, &[]));
    }
    // One message waits unexpected, three are matched and their notices wait to be sent.
    assert_eq!(nodes[1].memory.received.len(), 1 + 3);
    assert_eq!(nodes[1].engine.stats().drops_for(DropReason::Credit), 7);
}

#[test]
fn segments_of_a_message_agree_on_its_length() {
    let (mut nodes, now, ids) = acquainted();
    take(&mut nodes[1], now, &eager_segment(ids[1], 0, 0, 0, 200));
    take(&mut nodes[1], now, &eager_segment(ids[1], 1, 0, 100, 5000));
    assert_eq!(nodes[1].engine.stats().drops_for(DropReason::Message), 1);
    take(&mut nodes[1], now, &eager_segment(ids[1], 2, 0, 100, 200));
    assert_eq!(nodes[1].memory.received.last().unwrap().1, Ok(200));
}

#[test]
fn losses_after_a_pause_are_repaired_at_once() {
    // The send times of 32 bits are ambiguous after a pause of 2.2 to 4.3 s.
    for pause in [1, 3, 4, 6] {
        let (mut nodes, mut now, _) = acquainted();
        now += pause * SECOND;
        let to = nodes[1].name;
        post_send_at(&mut nodes[0], now, 2, to, 10_000);
        let mut losses = 3;
        run_with(&mut nodes, &mut now, 200 * MILLISECOND, |_, from, packet| {
            let data = Header::parse(packet).unwrap().kind == PacketKind::Data;
            let lost = from == 0 && data && losses > 0;
            losses -= u32::from(lost);
            !lost
        });
        assert_eq!(nodes[0].memory.sent, [(1, Ok(())), (2, Ok(()))], "after {pause} s");
    }
}

#[test]
fn one_call_runs_the_timers_of_all_peers() {
    let mut nodes = [node(1)];
    post_send(&mut nodes[0], 1, "10.0.0.9:1".parse().unwrap(), 8);
    let mut now = 0;
    run(&mut nodes, &mut now, 4_990 * MILLISECOND);
    now = 4_990 * MILLISECOND;
    let me = &mut nodes[0];
    post_send_at(me, now, 2, "10.0.0.9:2".parse().unwrap(), 8);
    let mut burst = TxBurst::new();
    while me.engine.poll_transmit(now, true, &mut me.memory, &mut burst) {}
    // The second peer's hello has been due for longer than the first peer's deadline.
    now += 60 * MILLISECOND;
    me.engine.handle_timeout(now, &mut me.memory);
    assert_eq!(me.memory.sent, [(1, Err(OpError::PeerTimeout))]);
}

#[test]
fn an_unanswered_keepalive_of_long_ago_kills_nobody() {
    let (mut nodes, mut now, _) = acquainted();
    let to = nodes[1].name;
    let peer = nodes[0].engine.peer(now, to, &mut nodes[0].memory).unwrap();
    nodes[0].engine.watch(peer, 1);
    // A quarter of the deadline later it asks once.
    let limit_ns = 1_260 * MILLISECOND - now;
    run_with(&mut nodes, &mut now, limit_ns, |_, _, _| false);
    assert_eq!(nodes[0].engine.stats().probes, 1);
    nodes[0].engine.watch(peer, -1);
    run_with(&mut nodes, &mut now, 20 * SECOND, |_, _, _| false);
    now += 20 * SECOND;
    post_send_at(&mut nodes[0], now, 2, to, 8);
    run_with(&mut nodes, &mut now, SECOND, |_, _, _| false);
    run(&mut nodes, &mut now, SECOND);
    assert_eq!(nodes[0].memory.sent, [(1, Ok(())), (2, Ok(()))]);
}

/// A suspended virtual machine, or a job that its scheduler stops and continues as a whole: while this side
/// stood still, so may all others.
#[test]
fn who_stood_still_holds_no_silence_of_that_time_against_a_peer() {
    let (mut nodes, mut now, _) = acquainted();
    let to = nodes[1].name;
    post_send_at(&mut nodes[0], now, 2, to, 8);
    // The peer is late by some probes, and then neither side runs for long.
    let (mut probes, until) = (0, now + 200 * MILLISECOND);
    run_with(&mut nodes, &mut now, 200 * MILLISECOND, |_, from, packet| {
        probes += u32::from(from == 0 && Header::parse(packet).unwrap().kind == PacketKind::Probe);
        false
    });
    assert!(probes >= 3, "{probes} probes");
    now = until + 10 * SECOND;
    run(&mut nodes, &mut now, SECOND);
    assert_eq!(nodes[0].memory.sent[1..], [(2, Ok(()))]);
}

#[test]
fn nor_does_who_asks_for_a_session() {
    let mut nodes = [node(1), node(2)];
    let (to, mut now) = (nodes[1].name, 0);
    post_send(&mut nodes[0], 1, to, 8);
    let mut hellos = 0;
    run_with(&mut nodes, &mut now, 500 * MILLISECOND, |_, _, _| {
        hellos += 1;
        false
    });
    assert!(hellos >= 3, "{hellos} hellos");
    now = 10 * SECOND;
    run(&mut nodes, &mut now, 2 * SECOND);
    assert_eq!(nodes[0].memory.sent, [(1, Ok(()))]);
}

#[test]
fn the_deadline_comes_though_every_timer_is_late() {
    let (mut nodes, mut now, _) = acquainted();
    let to = nodes[1].name;
    post_send_at(&mut nodes[0], now, 2, to, 8);
    let mut rounds = 0;
    while nodes[0].memory.sent.len() == 1 {
        run_with(&mut nodes, &mut now, 10_000, |_, _, _| false);
        now += 3 * SECOND;
        rounds += 1;
        assert!(rounds < 15, "its silence counts for a tenth of the deadline each time");
    }
    assert_eq!(nodes[0].memory.sent[1..], [(2, Err(OpError::PeerTimeout))]);
}

#[test]
fn a_hello_that_outlives_its_session_begins_none() {
    let mut nodes = [node(1), node(2)];
    let to = nodes[1].name;
    post_send(&mut nodes[0], 1, to, 8);
    let (mut now, mut hello) = (0, Vec::new());
    run_with(&mut nodes, &mut now, SECOND, |_, _, packet| {
        if Header::parse(packet).unwrap().kind == PacketKind::Hello {
            hello = packet.to_vec();
        }
        true
    });
    let me = &mut nodes[0];
    me.engine.close(now, &mut me.memory);
    run(&mut nodes, &mut now, SECOND);
    assert_eq!(nodes[1].engine.stats().sessions_opened, 1);
    take(&mut nodes[1], now, &hello);
    assert_eq!(nodes[1].engine.stats().sessions_opened, 1);
    assert_eq!(nodes[1].engine.stats().drops_for(DropReason::Cookie), 1, "stale, not unproven");
}

#[test]
fn a_full_table_forgets_who_left() {
    let small = node_with(2, Box::new(ERD.scheme()), |config| config.peers_max = 1);
    let mut nodes = [node(1), small, node(3)];
    let to = nodes[1].name;
    let mut now = 0;
    for (from, token) in [(0, 1), (2, 2)] {
        post_send_at(&mut nodes[from], now, token, to, 8);
        run(&mut nodes, &mut now, SECOND);
        let me = &mut nodes[from];
        assert_eq!(me.memory.sent, [(token, Ok(()))]);
        me.engine.close(now, &mut me.memory);
        run(&mut nodes, &mut now, SECOND);
    }
    assert_eq!(nodes[1].engine.peer_count(), 1);
}

#[test]
fn a_peer_let_go_makes_room_and_may_come_back() {
    const PEERS: u16 = 20;
    let small = node_with(1, Box::new(ERD.scheme()), |config| config.peers_max = 8);
    let mut nodes = vec![small];
    nodes.extend((2..2 + PEERS).map(node));
    let mut now = 0;
    for round in 0..2 {
        for at in 1..=usize::from(PEERS) {
            let (token, to) = ((round * 100 + at) as u64, nodes[at].name);
            post_send_at(&mut nodes[0], now, token, to, 8);
            run(&mut nodes, &mut now, 2 * SECOND);
            assert_eq!(nodes[0].memory.sent.pop(), Some((token, Ok(()))));
            // It answers within the same session, though the address is gone here.
            let back = nodes[0].name;
            let me = &mut nodes[0];
            let peer = me.engine.peer(now, to, &mut me.memory).unwrap();
            me.engine.let_go(peer);
            me.engine.let_go(peer);
            post_send_at(&mut nodes[at], now, token, back, 8);
            run(&mut nodes, &mut now, 2 * SECOND);
            assert_eq!(nodes[at].memory.sent.pop(), Some((token, Ok(()))));
            assert!(nodes[0].engine.peer_count() <= 8);
        }
    }
    for node in &nodes {
        assert_eq!(node.engine.stats().sessions_failed, 0, "{}", node.name);
    }
}

#[test]
fn a_peer_let_go_before_its_message_went_out_gets_it() {
    let small = node_with(1, Box::new(ERD.scheme()), |config| config.peers_max = 2);
    let mut nodes = vec![small, node(2), node(3), node(4)];
    let mut now = 0;
    let [waiting, kept, newcomer] = [1, 2, 3].map(|at| nodes[at].name);
    post_send_at(&mut nodes[0], now, 7, waiting, 8);
    let me = &mut nodes[0];
    me.engine.peer(now, kept, &mut me.memory).unwrap();
    let peer = me.engine.peer(now, waiting, &mut me.memory).unwrap();
    me.engine.let_go(peer);
    me.engine.let_go(peer);
    assert_eq!(me.engine.peer(now, newcomer, &mut me.memory), Err(PostError::TableFull));
    run(&mut nodes, &mut now, 2 * SECOND);
    assert_eq!(nodes[0].memory.sent, [(7, Ok(()))]);
}

#[test]
fn a_peer_that_is_kept_or_busy_stays() {
    let small = node_with(1, Box::new(ERD.scheme()), |config| config.peers_max = 2);
    let mut nodes = vec![small, node(2), node(3), node(4)];
    let mut now = 0;
    for at in [1, 2] {
        let to = nodes[at].name;
        post_send_at(&mut nodes[0], now, at as u64, to, 8);
        run(&mut nodes, &mut now, 2 * SECOND);
    }
    let full = nodes[3].name;
    let me = &mut nodes[0];
    assert_eq!(me.engine.peer(now, full, &mut me.memory), Err(PostError::TableFull));
    let first = nodes[1].name;
    let me = &mut nodes[0];
    let peer = me.engine.peer(now, first, &mut me.memory).unwrap();
    me.engine.let_go(peer);
    me.engine.let_go(peer);
    // A message from it waits for the application: the session must not go.
    let back = me.name;
    post_send_at(&mut nodes[1], now, 7, back, 1 << 20);
    run(&mut nodes, &mut now, 2 * SECOND);
    let me = &mut nodes[0];
    assert_eq!(me.engine.peer(now, full, &mut me.memory), Err(PostError::TableFull));
    assert_eq!(nodes[1].memory.sent, []);
}

#[test]
fn an_id_that_an_earlier_session_used_is_not_used_again() {
    begin_again(false);
}

#[test]
fn nor_is_it_where_the_peer_was_forgotten_since() {
    begin_again(true);
}

fn begin_again(forgets: bool) {
    let mut nodes = [node(1), node(2)];
    let names = [nodes[0].name, nodes[1].name];
    let mut now = 0;
    post_send_at(&mut nodes[0], now, 1, names[1], 8);
    post_send_at(&mut nodes[1], now, 2, names[0], 8);
    // The second takes the first's hello; the first hears of no welcome, and no more of it comes
    // through than what shows that the other lives.
    let (mut taken, mut late) = (0, Vec::new());
    run_with(&mut nodes, &mut now, 6 * SECOND, |_, from, packet| {
        let header = Header::parse(packet).unwrap();
        if from == 1 && header.kind == PacketKind::Data {
            late.push(packet.to_vec());
        }
        taken += usize::from(from == 0 && header.kind == PacketKind::Hello);
        match header.kind {
            PacketKind::Hello => from == 0 && taken <= 2,
            kind => kind != PacketKind::Welcome,
        }
    });
    assert_eq!(nodes[1].memory.sent, [(2, Err(OpError::PeerTimeout))]);
    assert_eq!(nodes[0].memory.sent, []);
    assert!(!late.is_empty());
    if forgets {
        let me = &mut nodes[1];
        let peer = me.engine.peer(now, names[0], &mut me.memory).unwrap();
        me.engine.forget(peer, &mut me.memory);
    }
    // The second begins again. What it sent before arrives at last, first of all.
    post_send_at(&mut nodes[1], now, 3, names[0], 16);
    let opened = |nodes: &[Node]| nodes[0].engine.stats().sessions_opened;
    for _ in 0..100 {
        let soon = now + 1_000;
        run_with(&mut nodes, &mut now, 1_000, |_, from, packet| {
            from == 0 || Header::parse(packet).unwrap().kind != PacketKind::Data
        });
        now = now.max(soon);
        if opened(&nodes) > 0 {
            late.iter().for_each(|packet| take(&mut nodes[0], now, packet));
        }
    }
    assert_eq!(opened(&nodes), 1);
    run(&mut nodes, &mut now, 6 * SECOND);
    let lengths: Vec<u64> =
        nodes[0].memory.unexpected.iter().map(|(arrived, _)| arrived.len_bytes).collect();
    assert_eq!(lengths, [16], "the message of the session before is gone");
    assert_eq!(nodes[0].memory.sent, [(1, Ok(()))]);
    assert_eq!(nodes[1].memory.sent[1..], [(3, Ok(()))]);
}

/// ERD's scheme, with a note of what its controllers are told.
struct Noting(Box<dyn Scheme>, Arc<Mutex<Vec<FlowParams>>>);

impl Scheme for Noting {
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
        self.1.lock().unwrap().push(*params);
        self.0.build(params, seed)
    }
}

#[test]
fn both_sides_know_the_round_trip_of_the_set_up() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut nodes = [1, 2].map(|port| {
        node_with(port, Box::new(Noting(Box::new(ERD.scheme()), notes.clone())), |_| ())
    });
    let to = nodes[1].name;
    let mut now = 5 * SECOND;
    post_send_at(&mut nodes[0], now, 1, to, 8);
    run(&mut nodes, &mut now, SECOND);
    let notes = notes.lock().unwrap();
    assert_eq!(notes.len(), 2);
    assert!(notes.iter().all(|params| params.first_rtt_ns > 0), "{notes:?}");
}

#[test]
fn congestion_control_begins_anew_on_demand() {
    let notes = Arc::new(Mutex::new(Vec::new()));
    let mut nodes = [1, 2].map(|port| {
        node_with(port, Box::new(Noting(Box::new(ERD.scheme()), notes.clone())), |_| ())
    });
    let to = nodes[1].name;
    let mut now = 5 * SECOND;
    nodes[0].engine.renew_control(now);
    assert!(notes.lock().unwrap().is_empty(), "there is no session");
    post_send_at(&mut nodes[0], now, 1, to, 8);
    run(&mut nodes, &mut now, SECOND);
    nodes[0].engine.renew_control(now);
    let known: Vec<FlowParams> = notes.lock().unwrap().clone();
    assert_eq!((known.len(), known[2].now), (3, now));
    post_send_at(&mut nodes[0], now, 2, to, 8);
    run(&mut nodes, &mut now, SECOND);
    assert_eq!(nodes[0].memory.sent, [(1, Ok(())), (2, Ok(()))]);
}

#[test]
fn settings_out_of_range_are_named() {
    let refused = |change: fn(&mut Config)| {
        let mut config = Config::new("10.0.0.1:1".parse().unwrap(), 1, crc32c::crc32c_append);
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert!(refused(|c| c.peers_max = 1 << 25).contains("peers_max"));
    assert!(refused(|c| c.unexpected_messages = 1 << 31).contains("unexpected_messages"));
    assert!(refused(|c| c.rto_min_ns = 0).contains("rto_min_ns"));
    assert!(refused(|c| c.peer_timeout_ns = u64::MAX).contains("peer_timeout_ns"));
}

/// A hello as an engine of another version may write it: what follows the session id is its own
/// affair, except the name at the end.
fn hello_of(version: u8, session: u64, name: SocketAddr) -> Vec<u8> {
    let mut hello = Vec::new();
    Header { s_len: 300, ..Header::new(PacketKind::Hello, 0) }.emit(&mut hello);
    hello[0] = version << 4 | PacketKind::Hello as u8;
    hello.extend([0xff; 4]);
    hello.extend(session.to_be_bytes());
    hello.resize(32 + 300 - 24, 0xee);
    put_name(&mut hello, name);
    seal(&mut hello, 0, crc32c::crc32c_append);
    hello
}

/// What an endpoint sends at a time, with the name that each burst goes to.
fn sent_by(node: &mut Node, now: u64) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut all, mut burst) = (Vec::new(), TxBurst::new());
    while node.engine.poll_transmit(now, true, &mut node.memory, &mut burst) {
        let to = burst.to;
        all.extend(datagrams(&burst, &node.memory).into_iter().map(|bytes| (to, bytes)));
    }
    all
}

fn hand(node: &mut Node, now: u64, from: SocketAddr, bytes: &[u8]) {
    let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from };
    node.engine.handle_packet(now, &meta, bytes, &mut node.memory);
}

#[test]
fn a_hello_of_another_version_is_told_ours() {
    let mut me = node(1);
    let other: SocketAddr = "10.0.0.1:77".parse().unwrap();
    hand(&mut me, 0, other, &hello_of(5, 0x1234, other));
    let answers = sent_by(&mut me, 0);
    assert_eq!(answers.len(), 1, "{answers:?}");
    let (to, answer) = &answers[0];
    let h = Header::parse(answer).unwrap();
    assert_eq!((*to, h.kind, h.session), (other, PacketKind::Version, 0x1234));
    assert_eq!(answer[32..], [VERSION, 5, 0, 0, 0, 0, 0, 0]);
    assert_eq!(me.engine.stats().drops_for(DropReason::Version), 1);
    // Nothing else of another version is answered, and nothing that is damaged.
    let mut data = hello_of(5, 0x1234, other);
    data[0] = 5 << 4;
    seal(&mut data, 0, crc32c::crc32c_append);
    hand(&mut me, 0, other, &data);
    let mut damaged = hello_of(5, 0x1234, other);
    damaged[100] ^= 1;
    hand(&mut me, 0, other, &damaged);
    assert!(sent_by(&mut me, 0).is_empty());
    assert_eq!(me.engine.peer_count(), 0);
}

/// The answer of a peer of version 5 to the hello that the endpoint sent.
fn refusal(hello: &[u8], refused: u8) -> Vec<u8> {
    let session = u64::from_be_bytes(hello[36..44].try_into().unwrap());
    let mut answer = Vec::new();
    Header { s_len: 8, ..Header::new(PacketKind::Version, session) }.emit(&mut answer);
    answer[0] = 5 << 4 | PacketKind::Version as u8;
    answer.extend([5, refused, 0, 0, 0, 0, 0, 0]);
    seal(&mut answer, 0, crc32c::crc32c_append);
    answer
}

#[test]
fn a_peer_of_another_version_fails_what_waits_within_a_round_trip() {
    let mut me = node(1);
    let other: SocketAddr = "10.0.0.1:77".parse().unwrap();
    post_send(&mut me, 1, other, 100);
    let hello = sent_by(&mut me, 0).remove(0).1;
    for wrong in [VERSION - 1, 5] {
        hand(&mut me, 1000, other, &refusal(&hello, wrong));
    }
    let mut guessed = refusal(&hello, VERSION);
    guessed[17] ^= 1;
    seal(&mut guessed, 0, crc32c::crc32c_append);
    hand(&mut me, 1000, other, &guessed);
    assert!(me.memory.sent.is_empty(), "only the answer to our hello counts");
    hand(&mut me, 1000, other, &refusal(&hello, VERSION));
    assert_eq!(me.memory.sent, [(1, Err(OpError::PeerVersion(5)))]);
    // A late one finds no hello under way.
    hand(&mut me, 2000, other, &refusal(&hello, VERSION));
    assert_eq!(me.memory.sent.len(), 1);
}

#[test]
fn a_session_that_stands_hears_of_no_other_version() {
    let (mut nodes, now, ids) = acquainted();
    for id in ids {
        let mut hello = vec![0; 36];
        hello.extend(id.to_be_bytes());
        let name = nodes[1].name;
        for node in &mut nodes {
            hand(node, now, name, &refusal(&hello, VERSION));
        }
    }
    assert!(nodes.iter().all(|node| node.engine.stats().sessions_failed == 0));
}
