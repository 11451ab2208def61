//! Scripts of two nodes whose paths work in one direction only, or whose acknowledgements are lost (protocol.md §4.5, §7.3).
//! Tests run them, and the hunt for mutants does.

use super::ledger::Rules;
use super::net::Fate;
use super::node::Setup;
use super::script::{ANY_FAILURE, NO_FAILURE, PATIENCE_NS, world};
use super::sim::{Action, World};
use erd_rd::OpError;
use erd_rd::units::{MILLISECOND, SECOND};
use erd_rd::wire::header::PacketKind;
use std::cell::Cell;
use std::rc::Rc;

/// The paths that work, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ways {
    /// From node 0 to node 1.
    pub there: u16,
    /// From node 1 to node 0.
    pub back: u16,
}

/// A world of two nodes with so many paths, of which only these work.
pub fn crossed(paths: u16, ways: &Rc<Cell<Ways>>, mut change: impl FnMut(&mut Setup)) -> World {
    let mut w = world(2, NO_FAILURE, |setup| {
        setup.config.paths = paths;
        change(setup);
    });
    let ways = Rc::clone(ways);
    w.net.filter = Some(Box::new(move |datagram, _| {
        let Ways { there, back } = ways.get();
        let works = if datagram.from == 0 { there } else { back };
        if works >> datagram.path & 1 == 1 { Fate::Pass } else { Fate::Drop }
    }));
    w
}

/// Each of two nodes sends on a path on which the other can't.
///
/// # Panics
/// If a message does not arrive, or its sender does not hear of it.
pub fn crossed_pair() {
    let ways = Rc::new(Cell::new(Ways { there: 0b01, back: 0b10 }));
    let mut w = crossed(2, &ways, |_| {});
    let recvs = [w.want(0, 100), w.want(1, 100)];
    let sends = [w.post(0, 1, 100), w.post(1, 0, 100)];
    w.settle(PATIENCE_NS);
    assert_eq!(sends.map(|send| w.outcome(send)), [Some(Ok(())); 2]);
    assert_eq!(recvs.map(|recv| w.result(recv)), [Some(Ok(100)); 2]);
}

fn heard_pair(rules: Rules) -> World {
    let mut w = world(2, rules, |_| {});
    w.want(1, 64);
    w.post(0, 1, 64);
    w.settle(PATIENCE_NS);
    w
}

/// All acknowledgements of node 1 are lost, though node 0 hears from it all the time.
///
/// # Panics
/// If node 0 waits longer than two deadlines.
pub fn unacknowledged() {
    let mut w = heard_pair(ANY_FAILURE);
    w.lose(u32::MAX, |from, h| from == 1 && h.kind == PacketKind::Ack);
    w.want(1, 64);
    let send = w.post(0, 1, 64);
    let (posted_at, timeout_ns) = (w.now, w.nodes[0].setup.config.peer_timeout_ns);
    while w.outcome(send).is_none() && w.now < posted_at + 3 * timeout_ns {
        w.want(0, 64);
        w.post(1, 0, 64);
        w.run_for(20 * MILLISECOND);
    }
    let (at, outcome) = w.ledger.sends[send].ended.expect("node 0 gives up");
    assert_eq!(outcome, Err(OpError::PeerTimeout));
    assert!(at >= posted_at + timeout_ns, "node 1 was heard");
    assert!(at <= posted_at + timeout_ns * 9 / 4, "{} ms", (at - posted_at) / MILLISECOND);
}

/// Node 1 gets no data for many deadlines, but says so: its acknowledgements arrive.
///
/// # Panics
/// If node 0 gives up.
pub fn acknowledged_without_progress() {
    let mut w = heard_pair(NO_FAILURE);
    let recv = w.want(1, 64);
    w.lose(u32::MAX, |from, h| from == 0 && h.kind == PacketKind::Data);
    let send = w.post(0, 1, 64);
    w.run_for(8 * w.nodes[0].setup.config.peer_timeout_ns);
    assert_eq!(w.outcome(send), None);
    w.net.filter = None;
    w.settle(PATIENCE_NS);
    assert_eq!((w.outcome(send), w.result(recv)), (Some(Ok(())), Some(Ok(64))));
}

/// Node 1 can't be heard for most of a deadline. Then its data arrives before its acknowledgements do.
///
/// # Panics
/// If node 0 takes the silence for acknowledgements that are due.
pub fn heard_again() {
    let mut w = heard_pair(NO_FAILURE);
    let (timeout_ns, begin) = (w.nodes[0].setup.config.peer_timeout_ns, w.now);
    let recvs = [w.want(0, 64), w.want(1, 64)];
    w.act(Action::Cut(1, begin + timeout_ns * 4 / 5));
    let sends = [w.post(0, 1, 64), w.post(1, 0, 64)];
    w.lose(u32::MAX, |from, h| from == 1 && h.kind == PacketKind::Ack);
    w.run_for(timeout_ns * 3 / 2);
    assert_eq!((w.result(recvs[0]), w.outcome(sends[0])), (Some(Ok(64)), None));
    w.net.filter = None;
    w.settle(PATIENCE_NS);
    assert_eq!(sends.map(|send| w.outcome(send)), [Some(Ok(())); 2]);
    assert!(w.now < begin + 10 * SECOND);
}
