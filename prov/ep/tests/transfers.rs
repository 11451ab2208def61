//! Bytes arrive whole and in order, whatever their number and whichever side is first.

use super::node::{Node, Options, Pair, ok};
use erd_ffi::fi::*;

/// Around the eager limit, the datagram and the window.
const SIZES: [usize; 9] = [0, 1, 255, 257, 1024, 16_384, 16_385, 70_000, 1_200_000];

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

#[test]
fn expected_and_unexpected_messages_arrive_whole() {
    let pair = Pair::new(Options::default());
    for (at, len) in SIZES.into_iter().enumerate() {
        let sent = pattern(len, at);
        for posted_first in [true, false] {
            let mut got = vec![0xee; len + 3];
            if posted_first {
                ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 2));
            }
            ok("send", pair.a.send(&sent, pair.a_to_b, 1));
            if !posted_first {
                // Eager messages are on their way to a held buffer; long ones wait.
                (0..50).for_each(|_| [&pair.a, &pair.b].iter().for_each(|node| node.poke()));
                ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 2));
            }
            let done = pair.b.next(&[&pair.a]).expect("received");
            assert_eq!((done.context, done.flags, done.len), (2, FI_MSG | FI_RECV, len));
            assert_eq!(&got[..len], &sent[..], "{len} bytes");
            assert_eq!(&got[len..], [0xee; 3], "nothing beyond the message");
            let done = pair.a.next(&[&pair.b]).expect("sent");
            assert_eq!((done.context, done.flags), (1, FI_MSG | FI_SEND));
        }
    }
}

#[test]
fn messages_of_one_peer_match_in_the_order_sent() {
    let pair = Pair::new(Options { rx_size: 4096, tx_size: 4096, ..Options::default() });
    // Short and long in turn: a long one must not be overtaken.
    let messages: Vec<Vec<u8>> =
        (0..200).map(|at| pattern(if at % 7 == 3 { 40_000 } else { 8 }, at)).collect();
    for (at, message) in messages.iter().enumerate() {
        ok("tsend", pair.a.tsend(message, pair.a_to_b, at as u64, at));
    }
    let mut got = vec![0; 40_000];
    for (at, message) in messages.iter().enumerate() {
        ok("trecv", pair.b.trecv(&mut got, 0, u64::MAX, at));
        let done = pair.b.next(&[&pair.a]).expect("received");
        assert_eq!((done.tag, done.len), (at as u64, message.len()));
        assert_eq!(&got[..message.len()], &message[..]);
    }
    let mut sent: Vec<usize> =
        messages.iter().map(|_| pair.a.next(&[&pair.b]).expect("sent").context).collect();
    sent.sort_unstable();
    assert!(sent.into_iter().eq(0..messages.len()), "each send completes once");
}

#[test]
fn many_in_flight_both_ways() {
    let pair = Pair::new(Options { rx_size: 1024, tx_size: 1024, ..Options::default() });
    let sent: Vec<Vec<u8>> = (0..300).map(|at| pattern(at * 61 % 9000, at)).collect();
    let mut got_a = vec![vec![0; 9000]; sent.len()];
    let mut got_b = got_a.clone();
    for (at, message) in sent.iter().enumerate() {
        ok("recv", pair.a.trecv(&mut got_a[at], at as u64, 0, 1000 + at));
        ok("recv", pair.b.trecv(&mut got_b[at], at as u64, 0, 1000 + at));
        ok("send", pair.a.tsend(message, pair.a_to_b, at as u64, at));
        ok("send", pair.b.tsend(message, pair.b_to_a, at as u64, at));
    }
    for (node, other, got) in [(&pair.a, &pair.b, &got_a), (&pair.b, &pair.a, &got_b)] {
        for _ in 0..2 * sent.len() {
            let done = node.next(&[other]).expect("done");
            if let Some(at) = done.context.checked_sub(1000) {
                assert_eq!((done.tag, done.len), (at as u64, sent[at].len()));
                assert_eq!(&got[at][..done.len], &sent[at][..]);
            }
        }
    }
}

#[test]
fn pieces_are_gathered_and_data_travels() {
    let pair = Pair::new(Options::default());
    let parts: Vec<Vec<u8>> = (0..8).map(|at| pattern(at * 700, at)).collect();
    let refs: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let whole = parts.concat();
    let mut got = vec![0; whole.len()];
    ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 2));
    ok("sendmsg", pair.a.sendmsg(&refs, pair.a_to_b, 1, FI_REMOTE_CQ_DATA));
    let done = pair.b.next(&[&pair.a]).expect("received");
    assert_eq!((done.flags, done.data), (FI_MSG | FI_RECV | FI_REMOTE_CQ_DATA, 0xdada));
    assert_eq!((done.len, got), (whole.len(), whole));
    let nine = [&b"x"[..]; 9];
    assert_eq!(pair.a.sendmsg(&nine, pair.a_to_b, 1, 0), -(FI_EINVAL as isize));
}

#[test]
fn a_node_can_talk_to_itself() {
    let node = Node::new(Options::default());
    let own = node.knows(&node);
    for len in [5, 100_000] {
        let (sent, mut got) = (pattern(len, 1), vec![0; len]);
        ok("send", node.send(&sent, own, 1));
        ok("recv", node.recv(&mut got, own, 2));
        let mut contexts = [0; 2].map(|_| node.next(&[]).expect("done").context);
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 2]);
        assert_eq!(got, sent);
    }
}

#[test]
fn what_was_injected_arrives_though_the_endpoint_closes_at_once() {
    let Pair { mut a, b, a_to_b, .. } = Pair::new(Options::default());
    let mut got = vec![[0_u8; 64]; 40];
    for (at, buffer) in got.iter_mut().enumerate() {
        ok("recv", b.recv(buffer, FI_ADDR_UNSPEC, at));
    }
    for at in 0..got.len() {
        let mut scratch = [at as u8; 64];
        ok("inject", a.inject(&scratch, a_to_b));
        scratch.fill(0xff);
    }
    // Nobody reads at `b` while `a` closes: the helper thread answers for it.
    a.close_ep();
    for (at, buffer) in got.iter().enumerate() {
        let done = b.next(&[]).expect("received");
        assert_eq!((done.context, done.len), (at, 64));
        assert_eq!(buffer, &[at as u8; 64]);
    }
}
