//! Every pattern over a small network, from its beginning to its end: it ends, every message arrives, and nobody is faster
//! than the network allows.

use erd_sim::experiment::{Begin, Engines, Experiment, Results};
use erd_sim::fabric::blueprint::Blueprint;
use erd_sim::fabric::clos::Clos;
use erd_sim::fabric::least::LeastTimes;
use erd_sim::link::{LinkConfig, Red};
use erd_sim::packet::FRAME_BYTES;
use erd_sim::patterns::bound::Bound;
use erd_sim::patterns::{HostLink, Pattern, Site};
use erd_sim::time::{Picos, from_ns};
use erd_sim::topology::{DATAGRAM_BYTES, PAYLOAD_BYTES};
use std::sync::Arc;

const RATE: u64 = 12_500_000_000;

/// Racks of four hosts below two or three tiers of switches; 100 Gb/s and 500 ns each link.
fn tree(hosts: u32) -> (Blueprint, Site) {
    const BDP_BYTES: u64 = 60_000;
    let link = LinkConfig {
        bytes_per_s: Some(RATE),
        buffer_bytes: 4 * BDP_BYTES,
        red: Some(Red::linear(BDP_BYTES / 4, BDP_BYTES)),
        control_first: true,
        ..LinkConfig::delay(from_ns(500))
    };
    let tiers: &[(u32, u32)] = match hosts {
        16 => &[(4, 4), (2, 2), (2, 0)],
        _ => &[(4, 2), (hosts / 4, 0)],
    };
    let plan = Clos::of(link, tiers, 1).build().expect("a tree");
    let pod_hosts = if hosts == 16 { 8 } else { 4 };
    let overhead_bytes = DATAGRAM_BYTES - PAYLOAD_BYTES + FRAME_BYTES;
    let link = HostLink { bytes_per_s: RATE, payload_bytes: PAYLOAD_BYTES, overhead_bytes };
    (plan, Site { hosts, rack_hosts: 4, pod_hosts, link })
}

fn engines() -> Engines {
    Engines { paths: 16, begin: Begin::Cold, ..Engines::named("nscc").expect("a scheme") }
}

/// Runs a pattern. Returns how much longer than its bound the last message took.
fn run(json: &str, hosts: u32) -> f64 {
    let (plan, site) = tree(hosts);
    let pattern: Pattern = serde_json::from_str(json).expect("a pattern");
    let work = pattern.work(&site, 3).expect("it fits");
    let times = LeastTimes::new(&plan);
    let bound = Bound::of(&work, &site.link, |from, to, bytes| times.ps(from, to, bytes));
    let messages = work.flows().len();
    let experiment =
        Experiment { plan: Arc::new(plan), work, engines: engines(), seed: 3, threads: 1 };
    let results = experiment.run(from_ns(100_000_000)).expect("it ends");
    assert_eq!(results.flows.len(), messages);
    compare(&results, &bound, json);
    results.flows[messages - 1].completion_ps() as f64 / bound.flows_ps[messages - 1] as f64
}

fn compare(results: &Results, bound: &Bound, what: &str) {
    let mut sum = 0;
    for (flow, least) in results.flows.iter().zip(&bound.flows_ps) {
        assert!(flow.arrived != Picos::MAX, "{:?} of {what} has not arrived", flow.flow);
        let took = flow.completion_ps();
        assert!(took >= *least, "{:?} of {what} took {took} ps, not {least}", flow.flow);
        sum += took;
    }
    let mean = sum / results.flows.len() as u64;
    assert!(mean >= bound.mean_ps, "the mean of {what} is {mean} ps, not {}", bound.mean_ps);
    let last = results.flows.iter().map(|flow| flow.arrived).max().expect("some messages");
    assert!(last >= bound.whole_ps, "{what} took {last} ps, not {}", bound.whole_ps);
}

/// The bound is not so low that it says nothing: a lone message over an open session comes close to it.
#[test]
fn a_lone_message_comes_close_to_the_bound() {
    let times = |bytes| {
        let json = format!(
            r#"{{"pattern":"together","parts":[
                {{"pattern":"message","from_host":0,"to_host":15,"message_bytes":2000000}},
                {{"pattern":"message","from_host":0,"to_host":15,"message_bytes":{bytes},
                  "start_ns":1000000}}]}}"#
        );
        run(&json, 16)
    };
    let (short, long) = (times(1), times(1_000_000));
    assert!(short < 1.01 && long < 1.1, "{short} and {long} times the bound");
}

#[test]
fn permutations_and_incasts() {
    run(r#"{"pattern":"permutation","message_bytes":100000,"start_spread_ns":2000}"#, 8);
    run(r#"{"pattern":"permutation","message_bytes":100000,"reach":"other-pod"}"#, 16);
    run(r#"{"pattern":"permutation","message_bytes":100000,"reach":"other-half"}"#, 16);
    run(r#"{"pattern":"incast","message_bytes":50000,"senders":12,"reach":"other-rack"}"#, 16);
    run(r#"{"pattern":"incast","message_bytes":3000,"senders":3,"incasts":4}"#, 16);
    run(r#"{"pattern":"outcast","message_bytes":50000,"receivers":5}"#, 8);
    run(
        r#"{"pattern":"outcast-incast","message_bytes":60000,"senders":4,"messages_per_sender":3}"#,
        16,
    );
    run(
        r#"{"pattern":"together","parts":[
            {"pattern":"permutation","message_bytes":30000},
            {"pattern":"message","from_host":0,"to_host":7,"message_bytes":300000}]}"#,
        8,
    );
}

#[test]
fn all_to_alls() {
    run(r#"{"pattern":"all-to-all","message_bytes":20000,"window_messages":1}"#, 8);
    run(r#"{"pattern":"all-to-all","message_bytes":20000,"window_messages":4}"#, 8);
    run(
        r#"{"pattern":"all-to-all","message_bytes":20000,"window_messages":3,
            "groups":{"group_hosts":8,"placement":"random"}}"#,
        16,
    );
}

#[test]
fn collectives() {
    for (operation, algorithm) in [
        ("all-reduce", "ring"),
        ("reduce-scatter", "ring"),
        ("all-gather", "ring"),
        ("all-reduce", "halving-doubling"),
        ("reduce-scatter", "halving-doubling"),
        ("all-gather", "halving-doubling"),
        ("all-reduce", "double-tree"),
    ] {
        for (hosts, more) in [
            (8, r#""data_bytes":100000"#),
            (8, r#""data_bytes":100000,"chunk_bytes":9000,"reduce_ps_per_byte":3"#),
            (16, r#""data_bytes":50000,"groups":{"group_hosts":4,"placement":"interleaved"}"#),
        ] {
            let json = format!(
                r#"{{"pattern":"collective","operation":"{operation}","algorithm":"{algorithm}",{more}}}"#
            );
            run(&json, hosts);
        }
    }
    let odd = r#"{"pattern":"collective","operation":"all-reduce","algorithm":"halving-doubling",
        "data_bytes":50000,"groups":{"group_hosts":5,"placement":"rack-aware"}}"#;
    run(odd, 16);
}

#[test]
fn flows_by_distribution() {
    for sizes in ["rpc", "storage", "hadoop"] {
        let json = format!(
            r#"{{"pattern":"flows","sizes":"{sizes}","load":0.5,"flows":200,"reach":"other-rack"}}"#
        );
        run(&json, 16);
    }
    run(r#"{"pattern":"flows","sizes":"web-search","load":0.8,"flows":10}"#, 8);
    run(
        r#"{"pattern":"flows","sizes":"data-mining","load":0.9,"flows":30,"direction":"all-to-one"}"#,
        8,
    );
}
