mod bound;
mod collective;
mod flows;
mod messages;

use super::*;
use crate::ids::HostId;
use crate::time::Picos;

/// Links of 100 Gb/s, packets of 4,096 bytes of payload.
const LINK: HostLink =
    HostLink { bytes_per_s: 12_500_000_000, payload_bytes: 4096, overhead_bytes: 100 };

/// Racks of 4 hosts, two of them below each child of the top.
fn site(hosts: u32) -> Site {
    Site { hosts, rack_hosts: 4, pod_hosts: 8, link: LINK }
}

fn pattern(json: &str) -> Pattern {
    serde_json::from_str(json).expect("a pattern")
}

fn work(json: &str, hosts: u32) -> Work {
    pattern(json).work(&site(hosts), 1).expect("it fits")
}

fn refused(json: &str, hosts: u32) -> String {
    pattern(json).work(&site(hosts), 1).expect_err("it does not fit").to_string()
}

/// Bytes that each host sends, and that each receives.
fn bytes_of(work: &Work) -> [Vec<u64>; 2] {
    let mut bytes = [0, 1].map(|_| vec![0; work.hosts() as usize]);
    for flow in work.flows() {
        bytes[0][flow.from.0 as usize] += flow.bytes;
        bytes[1][flow.to.0 as usize] += flow.bytes;
    }
    bytes
}

/// Whoever mistypes a parameter hears of it, and a pattern comes back as it was written.
#[test]
fn patterns_are_read_and_written() {
    let text = r#"{"pattern":"together","parts":[
        {"pattern":"permutation","message_bytes":2097152,"reach":"other-half"},
        {"pattern":"message","from_host":0,"to_host":5,"message_bytes":67108864,"start_ns":9}]}"#;
    let both = pattern(text);
    let written = serde_json::to_string(&both).expect("it can be written");
    assert_eq!(pattern(&written), both);
    let mistyped = serde_json::from_str::<Pattern>(
        r#"{"pattern":"incast","message_bytes":1,"senders":2,"recievers":1}"#,
    );
    let error = mistyped.expect_err("no such parameter").to_string();
    assert!(error.contains("unknown field `recievers`"), "{error}");
    let work = both.work(&site(16), 1).expect("it fits");
    assert_eq!(work.flows().len(), 17);
    let last = work.flows()[16];
    assert_eq!((last.from, last.to, last.bytes), (HostId(0), HostId(5), 67_108_864));
    assert_eq!(work.tasks(last.from)[last.send.0 as usize].not_before, 9_000);
}

/// One seed gives one work, another seed another one; a part does not change when one before it takes more numbers.
#[test]
fn work_follows_from_the_seed() {
    let text = r#"{"pattern":"together","parts":[
        {"pattern":"incast","message_bytes":10,"senders":SENDERS,"start_spread_ns":1000},
        {"pattern":"permutation","message_bytes":20}]}"#;
    let make = |senders: &str, seed| {
        let work = pattern(&text.replace("SENDERS", senders)).work(&site(16), seed);
        work.expect("it fits").flows().iter().map(|f| (f.from, f.to)).collect::<Vec<_>>()
    };
    assert_eq!(make("3", 5), make("3", 5));
    assert_ne!(make("3", 5), make("3", 6));
    assert_eq!(make("3", 5)[3..], make("9", 5)[9..]);
}

/// An error names the parameter and what is valid.
#[test]
fn what_does_not_fit_is_refused() {
    for (json, error) in [
        (
            r#"{"pattern":"permutation","message_bytes":0}"#,
            "`message_bytes` must be from 1 to 2^48",
        ),
        (
            r#"{"pattern":"permutation","message_bytes":1,"permutations":16}"#,
            "`permutations` must be from 1 to 15, the other hosts",
        ),
        (
            r#"{"pattern":"incast","message_bytes":1,"senders":16}"#,
            "`senders` must be from 1 to 15, the other hosts",
        ),
        (
            r#"{"pattern":"incast","message_bytes":1,"senders":13,"reach":"other-rack"}"#,
            "`senders` must be at most 12 here: so many free hosts are within `reach`",
        ),
        (
            r#"{"pattern":"outcast","message_bytes":1,"receivers":7,"outcasts":3}"#,
            "`outcasts` must be from 1 to 2, so that 8 of 16 hosts are left for each",
        ),
        (
            r#"{"pattern":"outcast-incast","message_bytes":1,"senders":8,"messages_per_sender":3}"#,
            "`messages_per_sender` must be from 1 to 2, so that every further message has one of the 7 hosts left",
        ),
        (
            r#"{"pattern":"all-to-all","message_bytes":1,"window_messages":0}"#,
            "`window_messages` must be from 1 to 4294967295, 1 is one after another",
        ),
        (
            r#"{"pattern":"all-to-all","message_bytes":1,"window_messages":1,"groups":{"group_hosts":5,"groups":4}}"#,
            "`groups` must be from 1 to 3: 16 hosts of 5 each",
        ),
        (
            r#"{"pattern":"collective","operation":"all-gather","algorithm":"double-tree","data_bytes":1}"#,
            "`algorithm` double-tree does an all-reduce only: use ring",
        ),
        (
            r#"{"pattern":"collective","operation":"all-reduce","algorithm":"ring","data_bytes":15}"#,
            "`data_bytes` must be at least 16: a byte for each piece",
        ),
        (
            r#"{"pattern":"collective","operation":"all-reduce","algorithm":"ring","data_bytes":10000000,"chunk_bytes":2}"#,
            "`chunk_bytes` must be at least 10",
        ),
        (
            r#"{"pattern":"flows","sizes":"rpc","load":0.5}"#,
            "`flows` or `duration_ns` must be given, and not both",
        ),
        (
            r#"{"pattern":"flows","sizes":"rpc","load":0,"flows":1}"#,
            "`load` must be above 0 and at most 10: 1 is all",
        ),
        (
            r#"{"pattern":"message","from_host":3,"to_host":16,"message_bytes":1}"#,
            "`to_host` must be below 16, the number of hosts",
        ),
    ] {
        assert_eq!(refused(json, 16), error);
    }
    let odd = r#"{"pattern":"permutation","message_bytes":1,"reach":"other-half"}"#;
    let error = "`reach` needs an even number of hosts, each of at most half of all 9 hosts";
    assert_eq!(refused(odd, 9), error);
}
