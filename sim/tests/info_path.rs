//! Information paths: streams that carry acknowledgements beside the datagrams, over links that lose packets.

use erd_sim::experiment::{Engines, Experiment, Failure, Results};
use erd_sim::fabric::blueprint::Blueprint;
use erd_sim::fabric::clos::Clos;
use erd_sim::ids::{HostId, LinkId};
use erd_sim::info_path::{Carries, FrameCounts, InfoPathSettings, RTO_MIN_PS};
use erd_sim::link::{Health, LinkConfig};
use erd_sim::time::{Picos, from_ns};
use erd_sim::work::Work;
use std::sync::Arc;

const LIMIT_PS: Picos = from_ns(4_000_000_000);
const HOSTS: u32 = 16;

fn tree() -> Blueprint {
    let link = LinkConfig {
        bytes_per_s: Some(12_500_000_000),
        buffer_bytes: 300_000,
        control_first: true,
        ..LinkConfig::delay(from_ns(500))
    };
    Clos::of(link, &[(4, 2), (4, 0)], 3).build().expect("a tree")
}

/// Every host sends to the one half-way round, and all links lose a share of the packets.
fn run(info_path: Option<InfoPathSettings>, lost: f64, threads: usize) -> Results {
    let mut work = Work::new(HOSTS);
    for from in 0..HOSTS {
        work.message(HostId(from), HostId((from + HOSTS / 2) % HOSTS), 400_000);
    }
    let engines = Engines { paths: 4, info_path, ..Engines::named("erd").expect("a scheme") };
    let plan = tree();
    let failures: Vec<Failure> = (0..plan.links().len() as u32)
        .filter(|_| lost > 0.0)
        .map(|link| Failure { at: 0, link: LinkId(link), health: Health::Lossy { share: lost } })
        .collect();
    Experiment { plan: Arc::new(plan), work, engines, seed: 9, threads }
        .run_with(LIMIT_PS, &failures)
        .expect("everything is done in time")
}

fn carrying(carries: Carries) -> Option<InfoPathSettings> {
    Some(InfoPathSettings { carries, rto_min_ps: from_ns(1_000_000) })
}

#[test]
fn acknowledgements_take_the_streams_and_those_of_losses_alone_are_fewer() {
    let frames = |info_path, lost| run(info_path, lost, 1).frames.frames;
    assert_eq!(frames(None, 0.01), 0);
    assert_eq!(frames(carrying(Carries::Nacks), 0.0), 0, "nothing is lost");
    let losses = frames(carrying(Carries::Nacks), 0.01);
    let all = frames(carrying(Carries::Acks), 0.01);
    assert!(losses > 0 && all > 4 * losses, "{losses} of {all}");
}

#[test]
fn a_run_over_streams_that_lose_frames_is_the_same_on_any_number_of_threads() {
    let results = [1, 2, 4].map(|threads| run(carrying(Carries::Acks), 0.02, threads));
    assert!(results[0].frames.repeats > 0);
    assert!(results[1..].iter().all(|other| *other == results[0]));
}

/// Nothing comes out of a stream before a frame that was lost. The engine's probes show that, and acknowledgements go on as
/// datagrams (protocol.md 4.5). So nobody waits for a timeout that is much longer than all the work.
#[test]
fn acknowledgements_leave_a_stream_that_waits_for_its_timeout() {
    let path = InfoPathSettings { carries: Carries::Acks, rto_min_ps: RTO_MIN_PS };
    let results = run(Some(path), 0.02, 1);
    let FrameCounts { frames, delivered, .. } = results.frames;
    assert!(delivered < frames, "a stream waits: {delivered} of {frames}");
    let waited = results.flows.iter().map(|flow| flow.acknowledged - flow.arrived).max();
    assert!(waited < Some(RTO_MIN_PS), "{waited:?} ps");
}
