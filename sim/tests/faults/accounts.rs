//! Whether a network's counters agree with each other.

use erd_sim::experiment::{Failure, Results};
use erd_sim::fabric::Fabric;
use erd_sim::fabric::blueprint::NodeId;
use erd_sim::ids::LinkId;
use erd_sim::info_path::FrameCounts;
use erd_sim::link::{Health, LinkCounters};
use erd_sim::time::{Picos, from_ns};

/// Time between two looks whether a network is at rest.
const STEP_PS: Picos = from_ns(20_000);
/// Most looks. A link of 50 Mb/s, the slowest one, sends the longest queue within a tenth of them.
const STEPS_MAX: u32 = 25_000;

/// Counters of all links together.
pub fn all_links(fabric: &Fabric) -> LinkCounters {
    let mut all = LinkCounters::default();
    (0..fabric.plan().links().len() as u32).for_each(|at| all.add(&fabric.counters(LinkId(at))));
    all
}

/// Packets that came to the end of a link or are on their way there.
fn passed(counters: &LinkCounters) -> u64 {
    let LinkCounters { offered, drops, lost, corrupted, .. } = *counters;
    offered
        .checked_sub(drops + lost + corrupted)
        .unwrap_or_else(|| panic!("more is lost than was sent: {counters:?}"))
}

/// Each packet that left a host has arrived, was dropped, or is under way.
pub fn look(fabric: &Fabric) {
    let (plan, nodes) = (fabric.plan(), fabric.node_counters());
    let (mut sent, mut ended) = (0, nodes.no_route + nodes.ring_drops);
    for (at, link) in (0..).zip(plan.links()) {
        let counters = fabric.counters(LinkId(at));
        passed(&counters);
        assert!(counters.sent_bytes <= counters.offered_bytes, "{counters:?}");
        sent += if link.from.0 < plan.hosts() { counters.offered } else { 0 };
        ended += counters.drops + counters.lost + counters.corrupted;
    }
    let waits = (0..plan.links().len() as u32).any(|at| !fabric.queue(LinkId(at)).is_empty());
    assert!(waits || fabric.memory_bytes() == 0, "switches keep memory of packets that are gone");
    let under_way = fabric.packets_under_way() as u64;
    let engines = fabric.hosts().map(|host| Some(host.endpoint()?.stats()));
    let stats: Option<Vec<_>> = engines.collect();
    match stats {
        Some(stats) => {
            let taken: u64 = stats
                .iter()
                .map(|stats| stats.rx_data + stats.rx_control + stats.drops.iter().sum::<u64>())
                .sum();
            let frames = look_at_frames(fabric);
            // An engine counts frames that come out of streams, whatever packets brought them.
            let taken = taken + frames.packets - frames.delivered;
            assert_eq!(sent, taken + ended + under_way, "{taken} taken, {under_way} under way");
        }
        // The baselines count less.
        None => assert!(sent >= ended + under_way, "{sent} sent, {under_way} under way"),
    }
}

/// What comes out of the streams was sent, and what is acknowledged came out.
fn look_at_frames(fabric: &Fabric) -> FrameCounts {
    let mut all = FrameCounts::default();
    fabric.hosts().for_each(|host| all.add(host.stats().frames));
    let FrameCounts { frames, repeats, delivered, acknowledged, packets } = all;
    assert!(acknowledged <= delivered && delivered <= frames, "{all:?}");
    assert!(delivered <= packets && packets <= 2 * (frames + repeats), "{all:?}");
    all
}

/// After the work everything that is under way arrives or is lost. Then as many packets have left each switch as came to
/// it, and no link pauses.
pub fn look_at_rest(fabric: &mut Fabric) {
    let mut steps = 0;
    while fabric.packets_under_way() > 0 {
        steps += 1;
        assert!(steps < STEPS_MAX, "{} packets stay under way", fabric.packets_under_way());
        let next = fabric.next_at().expect("what is under way arrives some time");
        fabric.run_until(next.max(fabric.now() + STEP_PS));
    }
    let plan = fabric.plan();
    let mut through = vec![0_i64; plan.nodes() as usize];
    for (at, link) in (0..).zip(plan.links()) {
        let counters = fabric.counters(LinkId(at));
        through[link.to.0 as usize] += passed(&counters) as i64;
        through[link.from.0 as usize] -= counters.offered as i64;
        if counters.drops + counters.lost + counters.trims == 0 {
            assert_eq!(counters.sent_bytes, counters.offered_bytes, "all was sent: {counters:?}");
        }
    }
    let switches = &through[plan.hosts() as usize..];
    assert!(switches.iter().all(|kept| *kept >= 0), "switches made packets: {switches:?}");
    let kept: i64 = switches.iter().sum();
    assert_eq!(kept as u64, fabric.node_counters().no_route, "switches lost packets");
    for at in 0..plan.links().len() as u32 {
        let queue = fabric.queue(LinkId(at));
        assert!(queue.is_empty(), "a queue has packets that are not under way");
    }
    look(fabric);
    let paused = |fabric: &Fabric| all_links(fabric).paused_ps;
    let mut before = paused(fabric);
    for _ in 0..STEPS_MAX {
        fabric.run_until(fabric.now() + STEP_PS);
        let now = paused(fabric);
        if now == before {
            return;
        }
        before = now;
    }
    panic!("a link pauses for ever");
}

/// Switches that pause drop nothing, as long as links keep the rates that their headroom is for.
pub fn look_for_drops(fabric: &Fabric, failures: &[Failure]) {
    let is_slowed = |failure: &Failure| matches!(failure.health, Health::Slowed { .. });
    if fabric.plan().pfc().is_some() && !failures.iter().any(is_slowed) {
        assert_eq!(all_links(fabric).drops, 0, "dropped by switches that pause");
    }
}

/// What a run's results say of its counters.
pub fn look_at_results(fabric: &Fabric, results: &Results) {
    assert_eq!(results.links, all_links(fabric));
    assert_eq!(results.nodes, fabric.node_counters());
    assert_eq!(results.events, fabric.events());
    let plan = fabric.plan();
    let of_hosts = (0..plan.hosts()).map(|host| LinkId(plan.links_of(NodeId(host)).start));
    let sent: u64 = of_hosts.map(|link| fabric.counters(link).offered).sum();
    let repeats = results.repeats;
    let repeats = repeats.nack + repeats.probe + repeats.order + repeats.trim + repeats.timeout;
    assert!(results.data_packets + repeats <= sent, "{results:?} of {sent} packets");
}
