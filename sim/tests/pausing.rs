//! Networks whose switches pause: nothing is lost however many send to one, and pauses spread.

use erd_sim::experiment::{Begin, Engines, Experiment, Observer, Results};
use erd_sim::fabric::Fabric;
use erd_sim::fabric::blueprint::{Blueprint, NodeId};
use erd_sim::fabric::clos::Clos;
use erd_sim::fabric::pfc::{Pfc, SwitchMemory, Threshold};
use erd_sim::ids::{HostId, LinkId};
use erd_sim::link::LinkConfig;
use erd_sim::schemes;
use erd_sim::time::{Picos, from_ns};
use erd_sim::work::{Flow, Work};
use std::rc::Rc;
use std::sync::Arc;

const LIMIT_PS: Picos = from_ns(1_000_000_000);
const DYNAMIC: Threshold = Threshold::Dynamic { alpha: 1.0 };

/// 16 hosts below 4 leaves and 2 spines; every link has 100 Gb/s.
fn tree() -> Blueprint {
    let link = LinkConfig {
        bytes_per_s: Some(12_500_000_000),
        buffer_bytes: 100_000,
        control_first: true,
        ..LinkConfig::delay(from_ns(500))
    };
    Clos::of(link, &[(4, 2), (4, 0)], 3).build().expect("a tree")
}

fn pausing(memory_bytes: u64, threshold: Threshold) -> Blueprint {
    let pfc = Pfc { memory: SwitchMemory::Bytes(memory_bytes), threshold };
    tree().with_pfc(pfc).expect("memory is enough")
}

/// Fifteen hosts send to the first one with a window that no queue holds.
fn incast(plan: Blueprint, threads: usize) -> Experiment {
    let mut work = Work::new(16);
    for from in 1..16 {
        work.message(HostId(from), HostId(0), 400_000);
    }
    // A receiver that shares its link out would leave nothing to pause for.
    let scheme = || {
        let mut spray = schemes::by_name("spray").expect("a scheme");
        spray.set("link_share", 0.0).expect("an option of every scheme");
        spray
    };
    let engines = Engines {
        scheme: Rc::new(scheme),
        paths: 16,
        rto_min_ns: 10_000_000,
        begin: Begin::Cold,
        ..Engines::named("spray").expect("a scheme")
    };
    Experiment { plan: Arc::new(plan), work, engines, seed: 9, threads }
}

fn run(experiment: Experiment) -> Results {
    experiment.run(LIMIT_PS).expect("everything arrives")
}

/// Sees how long each link was paused.
#[derive(Default)]
struct Pauses(Vec<u64>);

impl Observer for Pauses {
    fn begin(&mut self, _: &mut Fabric, _: &[Flow], _: Picos) {}

    fn run_until(&mut self, fabric: &mut Fabric, end: Picos) {
        fabric.run_until(end);
        let links = 0..fabric.plan().links().len() as u32;
        self.0 = links.map(|link| fabric.counters(LinkId(link)).paused_ps).collect();
    }
}

#[test]
fn nothing_is_lost_where_switches_pause() {
    let dropped = run(incast(tree(), 1)).links;
    assert!(dropped.drops > 0, "the incast is too much for a network that does not pause");
    let fixed = Threshold::Fixed { xoff_bytes: 60_000, xon_bytes: 50_000 };
    for threshold in [DYNAMIC, Threshold::Dynamic { alpha: 0.125 }, fixed] {
        let links = run(incast(pausing(600_000, threshold), 1)).links;
        assert_eq!((links.drops, links.lost), (0, 0), "{threshold:?}");
        assert!(links.pauses > 0 && links.paused_ps > 0, "{threshold:?}: {links:?}");
    }
}

/// The leaf of the receiver pauses the spines, those the other leaves, and those their hosts.
#[test]
fn pauses_spread_to_the_senders() {
    let plan = pausing(600_000, DYNAMIC);
    let (uplinks, receiver) = (plan.links_of(NodeId(15)), plan.links_of(NodeId(0)));
    let mut pauses = Pauses::default();
    incast(plan, 1).run_observed(LIMIT_PS, &[], &mut pauses).expect("everything arrives");
    assert!(pauses.0[uplinks.start as usize] > 0, "a host of another leaf was paused");
    assert_eq!(pauses.0[receiver.start as usize], 0, "the receiver only acknowledges");
}

#[test]
fn a_pausing_run_is_the_same_on_any_number_of_threads() {
    let results = [1, 2, 4].map(|threads| run(incast(pausing(600_000, DYNAMIC), threads)));
    assert!(results[0].links.pauses > 0);
    assert!(results[1..].iter().all(|other| *other == results[0]));
}

#[test]
fn memory_has_to_hold_the_headroom() {
    let pfc = Pfc { memory: SwitchMemory::Bytes(10_000), threshold: DYNAMIC };
    let error = tree().with_pfc(pfc).expect_err("too little").to_string();
    assert!(error.contains("needs more than") && error.contains("10000"), "{error}");
}
