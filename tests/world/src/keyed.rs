//! Worlds of a job with a key, and attacks on them that need more than random runs (protocol.md §11).

use super::ledger::Rules;
use super::net::Fate;
use super::nonces::WatchedKeys;
use super::script::{PATIENCE_NS, world};
use super::sim::World;
use erd_rd::DropReason;
use erd_rd::units::{MICROSECOND, MILLISECOND};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// Two nodes of a job with a key, whose operations must not fail.
pub fn pair(hides: bool, phase_bits: u32) -> (World, Arc<WatchedKeys>) {
    let keys = Arc::new(WatchedKeys::new(1, hides, phase_bits));
    let w = world(2, Rules::default(), |s| s.config.keys = Some(keys.clone()));
    (w, keys)
}

/// Packets that all nodes dropped for a reason.
pub fn drops(w: &World, reason: DropReason) -> u64 {
    w.all_stats().iter().map(|stats| stats.drops[reason as usize]).sum()
}

fn all_drops(w: &World) -> u64 {
    w.all_stats().iter().flat_map(|stats| stats.drops).sum()
}

/// Sends messages of these lengths both ways between the first two nodes, and waits for them.
pub fn talk(w: &mut World, lengths: &[u64]) {
    for &len_bytes in lengths {
        for (from, to) in [(0, 1), (1, 0)] {
            w.want(to, len_bytes);
            w.post(from, to, len_bytes);
        }
    }
    w.settle(PATIENCE_NS);
}

/// Each datagram of a session comes again, later.
///
/// # Panics
/// If one is taken twice.
pub fn replays() {
    let (mut w, _) = pair(true, 22);
    talk(&mut w, &[100]);
    w.run_for(10 * MILLISECOND);
    let copies = Rc::new(Cell::new(0));
    let made = Rc::clone(&copies);
    w.net.filter = Some(Box::new(move |_, _| {
        made.set(made.get() + 1);
        Fate::Twice(3 * MILLISECOND)
    }));
    talk(&mut w, &[100, 1 << 20]);
    w.net.filter = None;
    w.run_for(30 * MILLISECOND);
    w.ledger.judge_end();
    assert!(copies.get() > 1000);
    assert_eq!(drops(&w, DropReason::Replayed), copies.get());
}

/// Forged, changed, replayed, reflected, redirected and spliced packets of a session, `count` in all and many more than
/// honest ones.
///
/// # Panics
/// If one is not dropped and counted, or anything else changes.
pub fn forgeries(hides: bool, count: u64) {
    let keys = Arc::new(WatchedKeys::new(1, hides, 22));
    let mut w = world(3, Rules::default(), |s| s.config.keys = Some(keys.clone()));
    talk(&mut w, &[100]);
    w.run_for(10 * MILLISECOND);
    // It sees what comes from here on, and adds nothing of its own accord.
    w.net.faults.hostile = f64::MIN_POSITIVE;
    let before = all_drops(&w);
    for round in 0..count {
        if round % 1000 == 0 {
            talk(&mut w, &[round % 3000, 20_000]);
        }
        let forged = w.net.forge().expect("it has seen packets");
        w.inject(forged);
        if round % 32 == 0 {
            w.run_for(100 * MICROSECOND);
        }
    }
    w.run_for(700 * MILLISECOND);
    talk(&mut w, &[100]);
    w.ledger.judge_end();
    assert_eq!((w.net.counts.forged, w.socket_drops), (count, 0));
    assert_eq!(all_drops(&w) - before, count, "each was dropped, and nothing else");
    for (node, sessions) in [(0, 1), (1, 1), (2, 0)] {
        let stats = w.stats(node);
        assert_eq!((stats.sessions_opened, stats.sessions_failed), (sessions, 0), "{stats:?}");
    }
}
