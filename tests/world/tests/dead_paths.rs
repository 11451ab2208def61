//! Two nodes between which no path works both ways, or whose acknowledgements are lost (protocol.md §4.5, §7.3).

use erd_rd::cc::AckPolicy;
use erd_rd::units::MILLISECOND;
use erd_rd::wire::header::PacketKind;
use erd_world::dead_paths::{self, Ways, crossed};
use erd_world::net::Fate;
use erd_world::node::Setup;
use erd_world::script::PATIENCE_NS;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn messages_cross_on_paths_that_work_in_one_direction_each() {
    dead_paths::crossed_pair();
}

#[test]
fn acknowledgements_that_never_come_end_an_operation_though_the_peer_is_heard() {
    dead_paths::unacknowledged();
}

#[test]
fn a_peer_that_acknowledges_may_refuse_a_packet_for_long() {
    dead_paths::acknowledged_without_progress();
}

#[test]
fn a_peer_that_is_heard_again_has_time_to_acknowledge() {
    dead_paths::heard_again();
}

/// Both nodes send messages of these lengths after all other paths have died, and all of them arrive.
fn exchange(paths: u16, ways: Ways, lens: &[u64], change: impl FnMut(&mut Setup)) {
    let all = Rc::new(Cell::new(Ways { there: u16::MAX, back: u16::MAX }));
    let mut w = crossed(paths, &all, change);
    w.want(1, 100);
    w.post(0, 1, 100);
    w.settle(PATIENCE_NS);
    all.set(ways);
    for (from, to) in [(0, 1), (1, 0)] {
        for len in lens {
            w.want(to, *len);
            w.post(from, to, *len);
        }
    }
    w.settle(PATIENCE_NS);
    assert!(w.ledger.sends.iter().all(|send| send.ended.is_some_and(|(_, end)| end.is_ok())));
}

#[test]
fn any_path_there_and_any_other_back_are_enough() {
    for paths in [2, 3, 4, 8, 16] {
        for (there, back) in (0..paths).flat_map(|there| (0..paths).map(move |back| (there, back)))
        {
            let ways = Ways { there: 1 << there, back: 1 << back };
            for policy in [AckPolicy::NackOnly, AckPolicy::PerPacket] {
                exchange(paths, ways, &[100, 20_000], |s| s.scheme.policy = policy);
            }
        }
    }
}

/// The paths that work there do not work back.
#[test]
fn several_paths_each_way_are_enough() {
    for seed in 1..200u32 {
        let there = (seed.wrapping_mul(0x9e37_79b9) >> 16) as u16;
        for (paths, mask) in [(4, 0xf), (8, 0xff), (16, 0xffff)] {
            let ways = Ways { there: there & mask, back: !there & mask };
            if ways.there != 0 && ways.back != 0 {
                exchange(paths, ways, &[100, 200_000], |_| {});
            }
        }
    }
}

/// A probe finds a path on which acknowledgements arrive. From then on no packet needs one.
#[test]
fn acknowledgements_stay_on_paths_on_which_they_arrive() {
    let ways = Rc::new(Cell::new(Ways { there: 0b0011, back: 0b1100 }));
    let mut w = crossed(4, &ways, |s| s.scheme.policy = AckPolicy::PerPacket);
    let mut transfer = |len: u64| {
        let probes = w.stats(0).probes;
        w.want(1, len);
        w.post(0, 1, len);
        w.settle(PATIENCE_NS);
        w.stats(0).probes - probes
    };
    assert!(transfer(1 << 20) > 0);
    let few = transfer(16 << 20);
    assert!(few <= 4, "{few} probes");
}

/// When all paths work again, acknowledgements take all of them again.
#[test]
fn acknowledgements_return_to_healed_paths() {
    let ways = Rc::new(Cell::new(Ways { there: 0b01, back: 0b10 }));
    let mut w = crossed(2, &ways, |s| {
        s.scheme.policy = AckPolicy::PerPacket;
        s.config.burst_bytes = u32::from(s.config.datagram_bytes);
    });
    w.want(1, 100);
    w.post(0, 1, 100);
    w.settle(PATIENCE_NS);
    let sent_on = Rc::new(RefCell::new([0u64; 2]));
    let counts = Rc::clone(&sent_on);
    w.net.filter = Some(Box::new(move |datagram, h| {
        if datagram.from == 1 && h.kind == PacketKind::Ack {
            counts.borrow_mut()[usize::from(datagram.path)] += 1;
        }
        Fate::Pass
    }));
    w.run_for(2 * w.nodes[1].setup.config.peer_timeout_ns);
    for _ in 0..10 {
        w.want(1, 4 << 20);
        w.post(0, 1, 4 << 20);
        w.settle(PATIENCE_NS);
        w.run_for(50 * MILLISECOND);
    }
    let counts = *sent_on.borrow();
    assert!(counts.iter().all(|count| *count > counts.iter().sum::<u64>() / 4), "{counts:?}");
}
