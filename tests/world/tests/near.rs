//! Peers on this host beside others, at one endpoint.

use erd_rd::cc::AckPolicy;
use erd_rd::units::Ecn;
use erd_rd::wire::header::PacketKind;
use erd_world::ledger::Rules;
use erd_world::neighbours;
use erd_world::net::Fate;
use erd_world::node::{NearSetup, Setup};
use erd_world::script::{ANY_FAILURE, NO_FAILURE, PATIENCE_NS, world};
use erd_world::sim::{Action, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const FAR_BYTES: u16 = 1472;
const NEAR_BYTES: u16 = 65_507;
const FAR_PATHS: u16 = 4;
const MESSAGE_BYTES: u64 = 1 << 20;

/// Nodes 0 and 1.
const ONE_HOST: u64 = 0b11;

/// Nodes 0 and 1 have terms of their own for peers on their host.
fn neighbours(rules: Rules) -> World {
    let mut node = 0;
    world(3, rules, |setup| {
        setup.config.paths = FAR_PATHS;
        setup.config.burst_bytes = u32::from(FAR_BYTES);
        if node < 2 {
            let scheme = setup.scheme;
            let (datagram_bytes, paths) = (NEAR_BYTES, 1);
            setup.near = Some(NearSetup { datagram_bytes, paths, scheme });
            (setup.limits.near, setup.limits.near_limit_bytes) = (ONE_HOST, NEAR_BYTES);
            setup.scheme.policy = AckPolicy::PerPacket;
        }
        node += 1;
    })
}

/// What was sent from one node to another.
#[derive(Default)]
struct Seen {
    largest: usize,
    paths: BTreeSet<u8>,
    marked: usize,
    unmarked: usize,
}

type All = Rc<RefCell<BTreeMap<(usize, usize), Seen>>>;

fn watch(w: &mut World) -> All {
    let all = All::default();
    let seen = Rc::clone(&all);
    w.net.filter = Some(Box::new(move |datagram, h| {
        if h.kind == PacketKind::Data {
            let mut seen = seen.borrow_mut();
            let of = seen.entry((datagram.from, datagram.to)).or_default();
            of.largest = of.largest.max(datagram.bytes.len());
            of.paths.insert(h.path);
            *(if datagram.ecn == Ecn::NotEct { &mut of.unmarked } else { &mut of.marked }) += 1;
        }
        Fate::Pass
    }));
    all
}

/// Each node sends to each other one, all at the same time.
fn exchange(w: &mut World) {
    let mut messages = Vec::new();
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            messages.push((w.want(to, MESSAGE_BYTES), w.post(from, to, MESSAGE_BYTES)));
        }
    }
    w.settle(PATIENCE_NS);
    for (recv, send) in messages {
        assert_eq!(w.outcome(send), Some(Ok(())));
        assert_eq!(w.result(recv), Some(Ok(MESSAGE_BYTES)));
    }
}

fn assert_near(seen: &Seen) {
    assert!(seen.largest > 60_000, "{} bytes", seen.largest);
    assert_eq!(seen.paths, [0].into());
    assert_eq!(seen.unmarked, 0, "the mark that costs the driver least");
}

fn assert_far(seen: &Seen) {
    assert!(seen.largest <= usize::from(FAR_BYTES), "{} bytes", seen.largest);
    assert_eq!(seen.paths.len(), usize::from(FAR_PATHS));
    assert_eq!(seen.marked, 0, "the scheme's mark");
}

#[test]
fn each_peer_has_the_datagrams_and_paths_of_where_it_is() {
    let mut w = neighbours(NO_FAILURE);
    let all = watch(&mut w);
    exchange(&mut w);
    for (way, seen) in &*all.borrow() {
        if matches!(way, (0, 1) | (1, 0)) { assert_near(seen) } else { assert_far(seen) }
    }
}

/// Each side decides for itself: one that thinks the other far takes and sends what suits that.
#[test]
fn who_is_near_need_not_be_agreed() {
    let mut w = neighbours(NO_FAILURE);
    let far = |setup: &mut Setup| setup.limits.near = 0;
    far(&mut w.nodes[1].setup);
    w.nodes[1].app.limits.near = 0;
    let all = watch(&mut w);
    exchange(&mut w);
    let all = all.borrow();
    assert_far(&all[&(1, 0)]);
    assert!(all[&(0, 1)].largest <= usize::from(FAR_BYTES), "what the other takes");
    assert_eq!(all[&(0, 1)].paths, [0].into(), "each side has its own paths");
}

/// An address may be another host's by the time of the next session.
#[test]
fn where_a_peer_is_counts_anew_for_each_session() {
    let mut w = neighbours(ANY_FAILURE);
    exchange(&mut w);
    w.act(Action::Kill(1));
    for node in &mut w.nodes {
        node.setup.limits.near = 0;
        node.app.limits.near = 0;
    }
    w.act(Action::Restart(1));
    // The others find out that their sessions are over.
    w.post(0, 1, 8);
    w.post(2, 1, 8);
    w.settle(PATIENCE_NS);
    let all = watch(&mut w);
    exchange(&mut w);
    all.borrow().values().for_each(assert_far);
}

#[test]
fn an_entry_of_another_session_with_the_readers_id_is_not_taken() {
    neighbours::entries_of_another_session();
}

#[test]
fn a_lane_tells_new_limits() {
    neighbours::more_messages_than_may_wait();
}

#[test]
fn a_send_that_was_read_before_the_end_is_no_failure() {
    neighbours::what_was_read_before_the_end();
}

#[test]
fn late_word_of_a_withdrawn_answer_is_about_nothing_else() {
    neighbours::late_word_of_a_withdrawn_answer();
}
