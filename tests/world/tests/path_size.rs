//! Paths that carry less than the hosts' links, or less than before (protocol.md §4.6).

use erd_rd::units::{MILLISECOND, SECOND};
use erd_rd::wire::header::PacketKind;
use erd_rd::{Nanos, OpError};
use erd_world::ledger::Rules;
use erd_world::net::{Carries, Fate};
use erd_world::script::{NO_FAILURE, PATIENCE_NS, world};
use erd_world::sim::{Action, World};
use std::cell::Cell;
use std::rc::Rc;

/// Jumbo frames.
const LINK_BYTES: u16 = 8972;
const MESSAGE_BYTES: u64 = 1 << 20;
/// A path that stops passing datagrams has to carry messages again within this time.
const RECOVERY_NS: Nanos = 2 * SECOND;

/// Two hosts on links with jumbo frames, which look again after this time whether more passes.
fn jumbo(growth_ns: Nanos) -> World {
    world(2, NO_FAILURE, |s| {
        (s.config.datagram_bytes, s.config.growth_ns) = (LINK_BYTES, growth_ns)
    })
}

fn carries(limit_bytes: usize, tells: bool) -> Carries {
    Carries { limit_bytes, tells, no_fragments: false }
}

/// Sends messages both ways, and says how long they took.
fn exchange(w: &mut World, count: u64) -> Nanos {
    let begun = w.now;
    let pairs = [(0, 1), (1, 0)];
    let mut messages = Vec::new();
    for (from, to) in (0..count).flat_map(|_| pairs) {
        messages.push((w.want(to, MESSAGE_BYTES), w.post(from, to, MESSAGE_BYTES)));
    }
    w.settle(PATIENCE_NS);
    for (recv, send) in messages {
        assert_eq!(w.outcome(send), Some(Ok(())));
        assert_eq!(w.result(recv), Some(Ok(MESSAGE_BYTES)));
    }
    w.now - begun
}

/// The largest data packet of what is sent from now on.
fn watch_sizes(w: &mut World) -> Rc<Cell<usize>> {
    let largest = Rc::new(Cell::new(0));
    let seen = Rc::clone(&largest);
    w.net.filter = Some(Box::new(move |datagram, h| {
        if h.kind == PacketKind::Data && h.attempt == 0 {
            seen.set(seen.get().max(datagram.bytes.len()));
        }
        Fate::Pass
    }));
    largest
}

#[test]
fn a_path_below_the_smallest_datagram_carries_long_messages() {
    for limit_bytes in [548, 972, 1172, 1231, 1232, 1252, 1272, 1471] {
        for tells in [false, true] {
            let mut w = jumbo(600 * SECOND);
            w.net.carries = carries(limit_bytes, tells);
            let took_ns = exchange(&mut w, 20);
            assert!(took_ns < RECOVERY_NS, "{limit_bytes} bytes: {} ms", took_ns / MILLISECOND);
        }
    }
}

#[test]
fn a_path_that_shrinks_is_found_out_with_and_without_icmp() {
    for limit_bytes in [548, 1231, 1232, 1472, 8000] {
        for tells in [false, true] {
            let mut w = jumbo(600 * SECOND);
            exchange(&mut w, 1);
            for _ in 0..20 {
                w.want(1, MESSAGE_BYTES);
                w.post(0, 1, MESSAGE_BYTES);
            }
            w.run_for(MILLISECOND);
            w.net.carries = carries(limit_bytes, tells);
            let shrank = w.now;
            w.settle(PATIENCE_NS);
            let took_ns = w.now - shrank;
            assert!(took_ns < RECOVERY_NS, "{limit_bytes} bytes: {} ms", took_ns / MILLISECOND);
            // What passes is used, as nearly as a search finds it, once both sides have looked.
            exchange(&mut w, 1);
            w.run_for(6 * SECOND);
            let largest = watch_sizes(&mut w);
            exchange(&mut w, 1);
            let least = if limit_bytes < 1232 { 1200 } else { limit_bytes - 32 };
            let most = limit_bytes.max(1232);
            assert!((least..=most).contains(&largest.get()), "{limit_bytes}: {largest:?}");
        }
    }
}

#[test]
fn a_path_that_grows_is_used_after_a_while() {
    let mut w = jumbo(10 * SECOND);
    w.net.carries = carries(1472, false);
    exchange(&mut w, 1);
    w.net.carries = Carries::default();
    let largest = watch_sizes(&mut w);
    exchange(&mut w, 1);
    assert!(largest.get() <= 1472, "{largest:?}: it is not time to look");
    w.run_for(11 * SECOND);
    exchange(&mut w, 1);
    largest.set(0);
    exchange(&mut w, 1);
    assert!(largest.get() > usize::from(LINK_BYTES) - 64, "{largest:?}");
}

/// What the kernel said first is where a session starts. It may have been an ICMP message's lie.
#[test]
fn the_kernels_word_is_tried() {
    let mut w = jumbo(600 * SECOND);
    for node in &mut w.nodes {
        node.app.limits.datagram_limit_bytes = 524;
    }
    exchange(&mut w, 1);
    let largest = watch_sizes(&mut w);
    exchange(&mut w, 1);
    assert!(largest.get() > usize::from(LINK_BYTES) - 64, "{largest:?}");
}

#[test]
fn forged_icmp_changes_nothing() {
    let mut w = jumbo(600 * SECOND);
    exchange(&mut w, 1);
    let largest = watch_sizes(&mut w);
    let name = w.nodes[1].name;
    for told_bytes in [40, 548, 1232, 1472, 40] {
        let now = w.now;
        w.nodes[0].endpoint.as_mut().unwrap().handle_path_told(now, name, told_bytes);
        largest.set(0);
        exchange(&mut w, 4);
        assert!(largest.get() > usize::from(LINK_BYTES) - 64, "told {told_bytes}: {largest:?}");
    }
    assert!(w.stats(0).size_probes < 10, "{}", w.stats(0).size_probes);
}

#[test]
fn random_losses_are_no_small_path() {
    let mut w = jumbo(600 * SECOND);
    w.net.faults.loss = 0.05;
    exchange(&mut w, 50);
    let stats = w.stats(0);
    let data = stats.tx_data + stats.rtx_nack + stats.rtx_probe;
    assert!(stats.size_probes * 100 < data, "{} for {data} packets", stats.size_probes);
    w.net.faults.loss = 0.0;
    let largest = watch_sizes(&mut w);
    exchange(&mut w, 1);
    assert!(largest.get() > usize::from(LINK_BYTES) - 64, "{largest:?}");
}

/// Small messages and the answers to probes pass, so only the size can tell.
#[test]
fn where_nothing_large_passes_operations_fail() {
    let rules = Rules { blocked: true, ..NO_FAILURE };
    let mut w = world(2, rules, |_| {});
    w.net.carries = Carries { limit_bytes: 548, no_fragments: true, tells: false };
    let small = w.post(0, 1, 64);
    w.want(1, MESSAGE_BYTES);
    w.want(1, MESSAGE_BYTES);
    w.run_for(SECOND);
    assert_eq!(w.outcome(small), Some(Ok(())));
    let large = w.post(0, 1, MESSAGE_BYTES);
    w.run_for(5 * SECOND);
    assert_eq!(w.outcome(large), Some(Err(OpError::PathBlocked)));
}

/// Nothing large passes for a while, and for most of it this side stands still.
#[test]
fn time_in_which_this_side_stood_still_blocks_no_path() {
    let mut w = world(2, NO_FAILURE, |_| {});
    w.net.carries = carries(548, false);
    exchange(&mut w, 1);
    let timeout_ns = w.nodes[0].setup.config.peer_timeout_ns;
    let begin = w.now;
    w.net.carries.no_fragments = true;
    w.want(1, MESSAGE_BYTES);
    let send = w.post(0, 1, MESSAGE_BYTES);
    w.run_for(timeout_ns * 3 / 10);
    let probes = w.stats(0).size_probes;
    w.act(Action::Stall(0, begin + timeout_ns * 11 / 10));
    w.run_for(timeout_ns * 13 / 10);
    assert!(w.stats(0).size_probes > probes + 32, "a trial goes on");
    w.net.carries.no_fragments = false;
    w.settle(PATIENCE_NS);
    assert_eq!(w.outcome(send), Some(Ok(())));
}
