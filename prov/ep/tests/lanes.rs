//! Sessions whose data goes through shared memory (protocol.md §12). Here both processes are this one; the programs of
//! `tests/e2e` have two.

use super::memory::with_driver;
use super::node::{Node, Options, Pair, ctx, ok, set_shared_memory};
use erd_ffi::fi::*;
use erd_rd::stats::Stats;
use std::ffi::c_int;
use std::ptr::null_mut;

const AGAIN: isize = -(FI_EAGAIN as isize);
/// Around the longest message that goes with its record, an entry, a ring and what is read in one step.
const SIZES: [usize; 9] = [0, 1, 8_000, 8_300, 16_384, 70_000, 300_000, 4_194_304, 9_000_000];

fn stats(node: &Node) -> Stats {
    with_driver(node, |driver| *driver.engine.stats())
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 37 + at / 241 + seed) as u8).collect()
}

/// Sends a message from one node to the other, and judges its bytes.
fn exchange((from, to): (&Node, &Node), dest: fi_addr_t, len: usize) {
    let (sent, mut got) = (pattern(len, len), vec![0; len]);
    ok("recv", to.recv(&mut got, FI_ADDR_UNSPEC, 2));
    ok("send", from.send(&sent, dest, 1));
    assert_eq!(to.next(&[from]).expect("received").len, len);
    assert_eq!(from.next(&[to]).expect("sent").context, 1);
    assert!(got == sent, "{len} bytes");
}

#[test]
fn messages_go_through_memory_and_long_ones_are_read_where_they_are() {
    let pair = Pair::new(Options::default());
    let b_to_a = pair.b.knows(&pair.a);
    for len in SIZES {
        exchange((&pair.a, &pair.b), pair.a_to_b, len);
        exchange((&pair.b, &pair.a), b_to_a, len);
    }
    for node in [&pair.a, &pair.b] {
        let stats = stats(node);
        assert_eq!((stats.lanes_opened, stats.sessions_opened), (1, 1));
        assert_eq!((stats.tx_data, stats.rx_data), (0, 0), "no data over the network");
        assert!(stats.lane_tx_entries > 9 && stats.lane_rx_entries > 9);
        let long: usize = SIZES.iter().filter(|len| **len > 8_192).sum();
        assert_eq!(stats.lane_pulled_bytes, long as u64);
    }
}

#[test]
fn with_delivery_complete_a_send_ends_when_the_peer_has_it() {
    let pair = Pair::new(Options::default());
    exchange((&pair.a, &pair.b), pair.a_to_b, 8);
    for len in [8, 100_000] {
        let (sent, mut got) = (vec![3; len], vec![0; len]);
        ok("recv", pair.b.recv(&mut got, FI_ADDR_UNSPEC, 4));
        with_driver(&pair.b, |_| {
            let rc = pair.a.sendmsg(&[&sent], pair.a_to_b, 3, FI_DELIVERY_COMPLETE);
            ok("sendmsg", rc);
            assert_eq!(pair.a.read(1), Err(AGAIN), "nobody has read it");
        });
        assert_eq!(pair.b.next(&[&pair.a]).expect("received").context, 4);
        assert_eq!(pair.a.next(&[&pair.b]).expect("sent").context, 3);
    }
}

#[test]
fn an_endpoint_that_may_not_share_memory_is_reached_over_the_network() {
    let (hub, apart) = (Node::new(Options::default()), Node::new(Options::APART));
    let near = Node::new(Options::default());
    for node in [&apart, &near] {
        exchange((&hub, node), hub.knows(node), 5_000);
    }
    let all = [&hub, &near, &apart].map(stats);
    assert_eq!(all.map(|stats| stats.lanes_opened), [1, 1, 0]);
    assert!(all[2].rx_data > 0 && all[1].rx_data == 0);
}

/// The option's value, and the answer to a change.
fn option(node: &Node, len: usize) -> (c_int, bool, usize) {
    let (mut value, mut room, ep) = (false, len, node.ep);
    // SAFETY: the endpoint is open, and the places are local.
    let rc = unsafe {
        let getopt = (*(*ep).ops).getopt;
        let name = FI_OPT_SHARED_MEMORY_PERMITTED;
        getopt(ep.cast(), FI_OPT_ENDPOINT, name, (&raw mut value).cast(), &raw mut room)
    };
    (rc, value, room)
}

#[test]
fn whether_memory_may_be_shared_is_settled_before_the_endpoint_is_enabled() {
    let node = Node::disabled(Options::default());
    assert_eq!(option(&node, 1), (0, true, 1));
    assert_eq!(option(&node, 0), (-FI_ETOOSMALL, false, 0));
    ok("setopt", set_shared_memory(node.ep, false));
    assert_eq!(option(&node, 8), (0, false, 1));
    ok("setopt", set_shared_memory(node.ep, true));
    let enabled = Node::new(Options::APART);
    assert_eq!(set_shared_memory(enabled.ep, true), -(FI_EOPBADSTATE as isize));
    assert_eq!(option(&enabled, 1), (0, false, 1));
}

#[test]
fn peers_reach_memory_by_lanes_as_well() {
    let (a, b) = (Node::new(Options::default()), Node::new(Options::default()));
    let to = a.knows(&b);
    b.knows(&a);
    let mut memory = vec![0_u8; 1 << 20];
    let (access, mut mr) = (FI_REMOTE_READ | FI_REMOTE_WRITE, null_mut());
    // SAFETY: the domain is open, and the memory stays until the region is closed.
    let rc = unsafe {
        let (domain, buf) = (b.domain(), memory.as_mut_ptr().cast());
        let reg = (*(*domain).mr).reg;
        reg(domain.cast(), buf, 1 << 20, access, 0, 77, 0, &raw mut mr, null_mut())
    };
    assert_eq!(rc, 0);
    // SAFETY: the endpoint is open.
    let rma = unsafe { &*(*a.ep).rma };
    for len in [8, 9_000, 1 << 20] {
        let (own, mut got) = (pattern(len, 5), vec![0_u8; len]);
        // SAFETY: the endpoint is open, and the buffers stay until the operations have ended.
        unsafe {
            let none = null_mut();
            ok("write", (rma.write)(a.ep, own.as_ptr().cast(), len, none, to, 0, 77, ctx(1)));
            assert_eq!(a.next(&[&b]).expect("written").context, 1);
            ok("read", (rma.read)(a.ep, got.as_mut_ptr().cast(), len, none, to, 0, 77, ctx(2)));
            assert_eq!(a.next(&[&b]).expect("read").context, 2);
        }
        assert!(got == own, "{len} bytes");
    }
    assert_eq!((stats(&a).lanes_opened, stats(&a).tx_data), (1, 0));
    // Long ones are read where they are, by the side that they go to.
    let long = 9_000 + (1 << 20);
    assert_eq!([&a, &b].map(|node| stats(node).lane_pulled_bytes), [long, long]);
    b.close(mr.cast());
    assert!(memory == pattern(1 << 20, 5));
}

#[test]
fn the_end_of_a_local_peer_ends_what_it_owes_at_once() {
    let mut pair = Pair::new(Options::default());
    exchange((&pair.a, &pair.b), pair.a_to_b, 8);
    let sent = vec![3; 100_000];
    ok("send", pair.a.send(&sent, pair.a_to_b, 3));
    assert_eq!(pair.a.read(1), Err(AGAIN), "no receive has met it");
    pair.b.close_ep();
    let bad = pair.a.next(&[]).expect_err("nobody reads it any more");
    assert_eq!(bad.context, 3);
}
