use super::sizes::Sizes;
use super::*;
use std::collections::HashSet;

const STEPS: u32 = 1_000_000;

/// The table's quantiles in even steps.
fn quantiles(sizes: Sizes) -> impl Iterator<Item = u64> {
    (0..STEPS).map(move |step| sizes.quantile_bytes((f64::from(step) + 0.5) / f64::from(STEPS)))
}

/// Means in bytes, calculated from the published tables beside this program; HPCC's whole table of RPCs has 2,891.6.
#[test]
fn means_are_those_of_the_tables() {
    for (sizes, mean) in [
        (Sizes::WebSearch, 1_711_250.0),
        (Sizes::DataMining, 12_658_198.6),
        (Sizes::Rpc, 2_938.39),
        (Sizes::Hadoop, 120_420.75),
        (Sizes::Storage, 40_869.8),
    ] {
        assert!((sizes.mean_bytes() / mean - 1.0).abs() < 1e-5, "{sizes:?}");
        let drawn = quantiles(sizes).map(|bytes| bytes as f64).sum::<f64>() / f64::from(STEPS);
        assert!((drawn / mean - 1.0).abs() < 1e-3, "{sizes:?}: {drawn}");
        let wire = quantiles(sizes).map(|bytes| LINK.wire_bytes(bytes) as f64).sum::<f64>();
        let wire = wire / f64::from(STEPS) / sizes.mean_wire_bytes(&LINK);
        assert!((wire - 1.0).abs() < 1e-3, "{sizes:?}: {wire} of the mean on the wire");
        let table = sizes.table();
        assert_eq!((table[0], table[table.len() - 1].1), ((0, 0.0), 100.0));
        assert!(table.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{sizes:?}");
        assert_eq!(sizes.quantile_bytes(0.0), 1);
        assert_eq!(sizes.quantile_bytes(1.0), u64::from(table[table.len() - 1].0));
    }
}

/// Between two entries sizes are uniform: half of the way from 40 to 53 % is half of the way from 50,000 to 80,000 bytes.
#[test]
fn sizes_lie_between_the_entries() {
    assert_eq!(Sizes::WebSearch.quantile_bytes(0.40), 50_000);
    assert_eq!(Sizes::WebSearch.quantile_bytes(0.465), 65_000);
    assert_eq!(Sizes::Storage.quantile_bytes(0.2293 / 4.0), 1_000);
}

/// LAPS tells which share of the bytes the longest 5 % of flows have (section V). Its RPCs differ from HPCC's table: 90.7 %.
#[test]
fn the_longest_flows_have_the_bytes_that_laps_tells() {
    for (sizes, percent) in [
        (Sizes::WebSearch, 46.1),
        (Sizes::DataMining, 97.9),
        (Sizes::Rpc, 85.7),
        (Sizes::Hadoop, 81.8),
        (Sizes::Storage, 77.1),
    ] {
        let all: Vec<u64> = quantiles(sizes).collect();
        let longest: u64 = all[all.len() - all.len() / 20..].iter().sum();
        let share = 100.0 * longest as f64 / all.iter().sum::<u64>() as f64;
        assert!((share - percent).abs() < 1.5, "{sizes:?}: {share} %");
    }
}

/// Arrivals, sizes and the load come out within four deviations of what is asked.
#[test]
fn flows_come_at_the_load_that_is_asked() {
    const FLOWS: u32 = 40_000;
    let deviations = f64::from(FLOWS).sqrt().recip() * 4.0;
    for (sizes, direction, load) in [
        (Sizes::WebSearch, Direction::AllToAll, 0.8),
        (Sizes::DataMining, Direction::AllToAll, 0.5),
        (Sizes::Rpc, Direction::AllToOne, 1.0),
        (Sizes::Hadoop, Direction::OneToAll, 0.3),
        (Sizes::Storage, Direction::AllToAll, 0.6),
    ] {
        let (flows, reach) = (Some(FLOWS), Reach::OtherRack);
        let flows = Flows { sizes, load, flows, duration_ns: None, reach, direction };
        let work = Pattern::Flows(flows).work(&site(16), 4).expect("it fits");
        let bytes: f64 = work.flows().iter().map(|flow| LINK.wire_bytes(flow.bytes) as f64).sum();
        let end = work
            .flows()
            .iter()
            .map(|flow| work.tasks(flow.from)[flow.send.0 as usize].not_before)
            .max()
            .expect("some flows");
        let links = if direction == Direction::AllToAll { 16.0 } else { 1.0 };
        let mean = sizes.mean_wire_bytes(&LINK);
        let gap_s = end as f64 / 1e12 / f64::from(FLOWS);
        let asked_gap_s = mean / (load * links * LINK.bytes_per_s as f64);
        assert!((gap_s / asked_gap_s - 1.0).abs() < deviations, "{sizes:?} come every {gap_s} s");
        let square = quantiles(sizes).map(|b| (b as f64).powi(2)).sum::<f64>() / f64::from(STEPS);
        let spread = (square / mean.powi(2)).sqrt();
        let sampled = bytes / f64::from(FLOWS) / mean - 1.0;
        assert!(sampled.abs() < deviations * spread, "{sizes:?}: {sampled}");
        let offered = bytes / (end as f64 / 1e12) / links / LINK.bytes_per_s as f64;
        assert!((offered / load - 1.0).abs() < deviations * (1.0 + spread), "{sizes:?} {offered}");
        assert!(work.flows().iter().all(|flow| flow.from.0 / 4 != flow.to.0 / 4));
        let [senders, receivers] = [0, 1].map(|side| {
            let hosts = work.flows().iter().map(|flow| [flow.from, flow.to][side]);
            hosts.collect::<HashSet<_>>().len()
        });
        let expected = match direction {
            Direction::AllToAll => (16, 16),
            Direction::AllToOne => (12, 1),
            Direction::OneToAll => (1, 12),
        };
        assert_eq!((senders, receivers), expected);
    }
}

/// Flows begin within the time that is given, about as many as belong to it.
#[test]
fn flows_begin_within_their_time() {
    let text = r#"{"pattern":"flows","sizes":"rpc","load":0.5,"duration_ns":1000000}"#;
    let work = work(text, 8);
    let expected = 0.5 * 8.0 * 12.5e9 * 1e-3 / Sizes::Rpc.mean_wire_bytes(&LINK);
    let count = work.flows().len() as f64;
    assert!((count - expected).abs() < 4.0 * expected.sqrt(), "{count} of {expected}");
    let begins = |flow: &crate::work::Flow| work.tasks(flow.from)[flow.send.0 as usize].not_before;
    assert!(work.flows().iter().all(|flow| begins(flow) < 1_000_000_000));
}
