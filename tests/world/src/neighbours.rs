//! Scripts of two nodes of one host, whose data goes through a lane (protocol.md §12). Tests run them, and the hunt for
//! mutants does.

use super::lanes::LaneHabits;
use super::ledger::Rules;
use super::memory::{Plan, What, Wrong};
use super::net::Fate;
use super::node::Setup;
use super::script::{ANY_FAILURE, NO_FAILURE, PATIENCE_NS, world};
use super::sim::{Action, World};
use erd_rd::OpError;
use erd_rd::units::{MICROSECOND, MILLISECOND, SECOND};
use erd_rd::wire::header::PacketKind;
use std::cell::Cell;
use std::rc::Rc;

/// Nodes 0 and 1.
const ONE_HOST: u64 = 0b11;

fn pair(rules: Rules, mut change: impl FnMut(&mut Setup)) -> World {
    world(2, rules, |setup| {
        (setup.limits.near, setup.limits.near_limit_bytes) = (ONE_HOST, u16::MAX);
        setup.lanes = Some(LaneHabits::default());
        change(setup);
    })
}

/// A node sends more messages than may wait at its peer, whose application takes them all.
///
/// # Panics
/// If the sender must ask for the limits that let it go on.
pub fn more_messages_than_may_wait() {
    let mut w = pair(NO_FAILURE, |setup| setup.config.unexpected_messages = 2);
    let messages: Vec<_> = (0..40).map(|_| (w.want(1, 64), w.post(0, 1, 64))).collect();
    w.settle(PATIENCE_NS);
    for (recv, send) in messages {
        assert_eq!((w.result(recv), w.outcome(send)), (Some(Ok(64)), Some(Ok(()))));
    }
    assert_eq!(w.stats(0).probes, 0, "the sender has heard of new limits without asking");
}

/// Node 0 begins a second set-up, and node 1 takes a hello of its first one, which comes late. What node 0 has written into
/// the lane since is of a session that node 1 is not in.
///
/// # Panics
/// If node 1 takes it.
pub fn entries_of_another_session() {
    let mut w = pair(ANY_FAILURE, |setup| setup.config.first_psn = None);
    let late_ns = w.nodes[0].setup.config.peer_timeout_ns + 200 * MILLISECOND;
    let begun_again = Rc::new(Cell::new(false));
    let (again, hellos) = (Rc::clone(&begun_again), Cell::new(0));
    w.net.filter = Some(Box::new(move |datagram, h| match (datagram.from, h.kind) {
        (0, PacketKind::Hello) if !again.get() => {
            hellos.set(hellos.get() + 1);
            // The first one asks for a challenge.
            if hellos.get() == 1 { Fate::Pass } else { Fate::Delay(late_ns) }
        }
        (0, PacketKind::Hello | PacketKind::Welcome) => Fate::Drop,
        _ => Fate::Pass,
    }));
    let first = w.post(0, 1, 64);
    w.settle(PATIENCE_NS);
    assert_eq!(w.outcome(first), Some(Err(OpError::PeerTimeout)));
    begun_again.set(true);
    w.drain(0);
    let received = w.want(1, 64);
    w.post(0, 1, 64);
    w.post(1, 0, 64);
    w.run_for(late_ns);
    let taken = |w: &World, node| (w.stats(node).sessions_opened, w.stats(node).lane_rx_entries);
    assert_eq!([taken(&w, 0), taken(&w, 1)], [(1, 0), (1, 0)], "each in a session of its own");
    assert_eq!(w.stats(0).lane_tx_entries, 1, "and it has written");
    w.net.filter = None;
    w.settle(PATIENCE_NS);
    assert_eq!(w.result(received), None, "it still waits");
    w.post(0, 1, 64);
    w.settle(PATIENCE_NS);
    assert_eq!(w.result(received), Some(Ok(64)), "they find together again");
}

/// A node withdraws the answer to a read just when its peer sends word of what it did with it. The node's next message takes
/// the answer's place before that word comes.
///
/// # Panics
/// If that word ends the lane, or if it never comes.
pub fn late_word_of_a_withdrawn_answer() {
    let mut w = pair(NO_FAILURE, |setup| {
        setup.limits.withdrawal = 1.0;
        setup.lanes = Some(LaneHabits { delay_ns: MILLISECOND, ..LaneHabits::default() });
    });
    let (what, wrong) = (What::Read, Wrong::No);
    let (fence, data) = (false, false);
    w.rma(0, &Plan { to: 1, what, len_bytes: 64 << 10, at: 0, stretches: 1, wrong, fence, data });
    let owes = |w: &World| w.nodes[1].endpoint.as_ref().unwrap().owes_answers();
    assert!(w.run_until(SECOND, owes), "the read was met");
    let when = |w: &mut World, calls| w.nodes[1].app.leaving.iter_mut().for_each(|at| at.0 = calls);
    when(&mut w, u64::MAX);
    assert!(w.run_until(SECOND, |w| w.stats(0).lane_rx_entries > 0), "its reader knows the place");
    w.run_for(MICROSECOND);
    when(&mut w, 1);
    // A call, after which it is withdrawn.
    w.want(1, 1);
    w.run_for(MICROSECOND);
    assert!(w.nodes[1].app.leaving.is_empty(), "it was withdrawn");
    assert_eq!(w.stats(1).lane_rx_entries, 1, "before its reader's word came");
    let received = w.want(0, 64);
    let sent = w.post(1, 0, 64);
    w.settle(PATIENCE_NS);
    assert_eq!((w.result(received), w.outcome(sent)), (Some(Ok(64)), Some(Ok(()))));
    assert!(w.ledger.memory.asked[0].ended.is_some_and(|ended| ended.is_err()), "the read");
    assert_eq!(w.stats(1).sessions_opened, 1);
}

/// Node 1 reads a message, and then says goodbye or dies. Node 0 hears of the end before it has looked how far node 1 has
/// read.
///
/// # Panics
/// If its send fails: node 1 had the message.
pub fn what_was_read_before_the_end() {
    for dies in [false, true] {
        let mut w = pair(ANY_FAILURE, |setup| {
            setup.lanes = Some(LaneHabits { delay_ns: MILLISECOND, ..LaneHabits::default() });
        });
        let received = w.want(1, 64);
        let first = w.post(0, 1, 64);
        w.settle(PATIENCE_NS);
        assert_eq!((w.result(received), w.outcome(first)), (Some(Ok(64)), Some(Ok(()))));
        let received = w.want(1, 64);
        let read = w.post(0, 1, 64);
        assert!(w.run_until(SECOND, |w| w.result(received).is_some()), "it has come");
        assert_eq!((w.result(received), w.outcome(read)), (Some(Ok(64)), None));
        match dies {
            true => w.act(Action::Kill(1)),
            false => w.close(1),
        }
        w.settle(PATIENCE_NS);
        assert_eq!(w.outcome(read), Some(Ok(())), "node 1 dies: {dies}");
    }
}
