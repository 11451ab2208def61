//! A key that takes the place of another while sessions go on (protocol.md §11.9).

use erd_rd::keys::{KeySet, Keys};
use erd_rd::units::{MILLISECOND, SECOND};
use erd_rd::wire::header::PacketKind;
use erd_rd::{DropReason, KeyIndex, OpError};
use erd_world::keyed::{drops, talk};
use erd_world::ledger::Rules;
use erd_world::net::Fate;
use erd_world::node::NextKey;
use erd_world::nonces::WatchedKeys;
use erd_world::script::{NO_FAILURE, PATIENCE_NS, world};
use erd_world::sim::{Action, World};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Time in which both keys are valid in these tests.
const OVERLAP_NS: u64 = 4 * SECOND;

/// Two keys of a job, one after the other.
fn two() -> [Arc<WatchedKeys>; 2] {
    [1, 2].map(|byte| Arc::new(WatchedKeys::new(byte, true, 12)))
}

fn set(key: &Arc<WatchedKeys>) -> KeySet {
    KeySet::one(Arc::clone(key) as Arc<dyn Keys>)
}

/// Nodes that have the first key, and may get the second.
fn nodes(count: u8, keys: &[Arc<WatchedKeys>; 2], rules: Rules) -> World {
    world(count, rules, |s| {
        s.config.keys = set(&keys[0]);
        let key = Arc::clone(&keys[1]) as Arc<dyn Keys>;
        s.next_key =
            Some(NextKey { at: KeyIndex(0), key, overlap_ns: OVERLAP_NS, keys: set(&keys[1]) });
    })
}

/// Checks that each node has had one session, which never failed.
fn judge_one_session(w: &mut World) {
    w.ledger.judge_end();
    for stats in w.all_stats() {
        assert_eq!((stats.sessions_opened, stats.sessions_failed), (1, 0), "{stats:?}");
    }
}

#[test]
fn a_session_goes_on_while_its_key_changes() {
    for late in [0, MILLISECOND, SECOND] {
        let keys = two();
        let mut w = nodes(2, &keys, Rules::default());
        talk(&mut w, &[100, 1 << 20]);
        w.act(Action::Renew(0));
        talk(&mut w, &[100, 1 << 20]);
        assert_eq!(keys[1].packets(), 0, "the other has not got it yet");
        w.run_for(late);
        w.act(Action::Renew(1));
        w.run_for(20 * MILLISECOND);
        let old = keys[0].packets();
        talk(&mut w, &[100, 1 << 20, 10]);
        assert_eq!(keys[0].packets(), old, "nothing is under the old key any more");
        assert!(keys[1].packets() > 1000 && keys[1].secrets() >= 2, "{keys:?}");
        w.run_for(2 * OVERLAP_NS);
        talk(&mut w, &[100, 1 << 20]);
        judge_one_session(&mut w);
    }
}

#[test]
fn sessions_without_traffic_change_by_themselves_and_fall_silent() {
    let keys = two();
    let mut w = nodes(2, &keys, Rules::default());
    talk(&mut w, &[100]);
    w.run_for(SECOND);
    w.act(Action::Renew(0));
    w.run_for(SECOND);
    w.act(Action::Renew(1));
    w.run_for(SECOND / 2);
    let before = w.net.counts.sent;
    w.run_for(2 * OVERLAP_NS);
    assert_eq!(w.net.counts.sent, before);
    talk(&mut w, &[100]);
    judge_one_session(&mut w);
}

#[test]
fn who_does_not_get_the_key_in_time_is_a_stranger() {
    let keys = two();
    let mut w = nodes(2, &keys, Rules { lies: true, timeouts: true, ..NO_FAILURE });
    talk(&mut w, &[100]);
    w.act(Action::Renew(0));
    w.run_for(OVERLAP_NS - SECOND);
    talk(&mut w, &[100]);
    assert_eq!(w.stats(0).sessions_failed, 0, "the old key is valid");
    w.run_for(2 * SECOND);
    assert_eq!(w.stats(0).sessions_failed, 1);
    w.want(1, 100);
    let send = w.post(0, 1, 100);
    w.settle(PATIENCE_NS);
    assert_eq!(w.outcome(send), Some(Err(OpError::KeysDiffer)));
}

#[test]
fn who_has_both_keys_talks_with_those_who_have_one() {
    let keys = two();
    let mut w = nodes(3, &keys, Rules { forged: true, ..NO_FAILURE });
    // One starts with the new key, one has the old.
    w.act(Action::Kill(1));
    w.act(Action::Renew(1));
    w.act(Action::Restart(1));
    w.act(Action::Renew(0));
    for (from, to) in [(0, 1), (2, 0), (0, 2), (1, 0)] {
        w.want(to, 100);
        let send = w.post(from, to, 100);
        w.run_for(200 * MILLISECOND);
        assert_eq!(w.outcome(send), Some(Ok(())), "{from} to {to}");
    }
    w.want(2, 100);
    let send = w.post(1, 2, 100);
    w.settle(PATIENCE_NS);
    assert_eq!(w.outcome(send), Some(Err(OpError::KeysDiffer)));
    assert!(drops(&w, DropReason::OtherKey) > 0);
}

#[test]
fn a_key_that_comes_while_a_session_is_set_up_does_not_end_that() {
    let keys = two();
    let mut w = nodes(2, &keys, Rules::default());
    let hellos = Rc::new(Cell::new(0));
    let seen = Rc::clone(&hellos);
    w.net.filter = Some(Box::new(move |_, h| {
        let is_second = h.kind == PacketKind::Hello && seen.replace(seen.get() + 1) == 1;
        if is_second { Fate::Drop } else { Fate::Pass }
    }));
    w.want(1, 100);
    let send = w.post(0, 1, 100);
    w.run_until(SECOND, |_| hellos.get() == 2);
    w.act(Action::Renew(0));
    w.run_for(SECOND);
    assert_eq!(w.outcome(send), Some(Ok(())), "the peer has the old key alone");
    w.act(Action::Renew(1));
    w.run_for(2 * OVERLAP_NS);
    talk(&mut w, &[100]);
    judge_one_session(&mut w);
}

#[test]
fn one_key_changes_at_a_time() {
    let keys = two();
    let mut w = nodes(1, &keys, NO_FAILURE);
    let third = || Arc::new(WatchedKeys::new(3, true, 12)) as Arc<dyn Keys>;
    let renew = |w: &mut World, key| {
        let now = w.now;
        w.nodes[0].endpoint.as_mut().expect("it lives").renew_key(now, KeyIndex(0), key, OVERLAP_NS)
    };
    assert!(renew(&mut w, Arc::clone(&keys[0]) as Arc<dyn Keys>), "it is there");
    w.act(Action::Renew(0));
    assert!(!renew(&mut w, third()), "two are valid");
    w.run_for(OVERLAP_NS + SECOND);
    assert!(renew(&mut w, third()));
}
