use super::*;
use crate::fabric::clos::Cut;
use crate::patterns::bound::Bound;

/// A packet takes 1 us besides the time on its sender's link.
fn bound(work: &Work) -> Bound {
    Bound::of(work, &LINK, |_, _, wire_bytes| LINK.packet_ps(wire_bytes) + 1_000_000)
}

/// 1,000 bytes and 100 of headers take 88 ns; the longest packet, of 4,196 bytes, 335.68 ns.
#[test]
fn a_lone_message_is_sent_and_travels() {
    let mut work = Work::new(2);
    work.message(HostId(0), HostId(1), 2 * 4096 + 1000);
    let alone = 2 * 335_680 + 88_000 + 1_000_000;
    let expected = Bound { flows_ps: vec![alone], mean_ps: alone, whole_ps: alone };
    assert_eq!(bound(&work), expected);
}

/// Three equal messages to one host end one after another, whoever sends them; so do three from one host.
#[test]
fn messages_of_one_host_share_its_link() {
    for to_one in [true, false] {
        let mut work = Work::new(4);
        for other in (1..4).map(HostId) {
            let (from, to) = if to_one { (other, HostId(0)) } else { (HostId(0), other) };
            work.message(from, to, 1_000);
        }
        let bound = bound(&work);
        assert_eq!(bound.flows_ps, [1_088_000; 3]);
        assert_eq!(bound.mean_ps, 1_000_000 + (88_000 + 2 * 88_000 + 3 * 88_000) / 3);
        assert_eq!(bound.whole_ps, 1_000_000 + 3 * 88_000);
    }
}

/// A short message that comes while a long one is sent goes first; what begins later waits for nobody.
#[test]
fn the_shortest_message_goes_first() {
    let mut work = Work::new(4);
    work.message(HostId(1), HostId(0), 10 * 4096);
    let short = work.message(HostId(2), HostId(0), 1_000);
    work.start_at(short, 500_000);
    let late = work.message(HostId(3), HostId(0), 1_000);
    work.start_at(late, 90_000_000);
    let long = 3_356_800;
    let bound = bound(&work);
    assert_eq!(bound.mean_ps, (long + 88_000 + 1_000_000 + 2 * 1_088_000) / 3);
    assert_eq!(bound.whole_ps, 91_088_000);
}

/// What depends on each other takes the sum, with what is computed between.
#[test]
fn a_chain_takes_the_sum() {
    let mut work = Work::new(3);
    let first = work.message(HostId(0), HostId(1), 1_000);
    let then = work.message(HostId(1), HostId(2), 1_000);
    let [first, then] = [first, then].map(|flow| work.flows()[flow.0 as usize]);
    let think = work.compute(HostId(1), 7_000);
    work.after(HostId(1), first.receive, think);
    work.after(HostId(1), think, then.send);
    // What the last host computes after that lets no message wait.
    let end = work.compute(HostId(2), 9_000);
    work.after(HostId(2), then.receive, end);
    let bound = bound(&work);
    assert_eq!(bound.whole_ps, 2 * 1_088_000 + 7_000);
    assert_eq!(bound.mean_ps, 1_088_000);
}

/// The bandwidth term of a ring is 2 (n - 1) / n of the data, its latency term 2 (n - 1) steps.
#[test]
fn a_ring_takes_its_steps() {
    let text = r#"{"pattern":"collective","operation":"all-reduce","algorithm":"ring",
        "data_bytes":16384,"reduce_ps_per_byte":2}"#;
    let bound = bound(&work(text, 4));
    assert_eq!(bound.whole_ps, 6 * (335_680 + 1_000_000) + 3 * 2 * 4096);
    assert_eq!(bound.mean_ps, 335_680 + 1_000_000);
}

/// Four hosts send to four others over a cut of the rate of one link: they end one after another there, and the last of
/// them takes as long as all. What stays on one side takes its own time.
#[test]
fn messages_share_the_links_where_a_tree_narrows() {
    let mut work = Work::new(8);
    for from in (0..4).map(HostId) {
        work.message(from, HostId(from.0 + 4), 10 * 4096);
    }
    let cuts = |arriving_links: u64| Cut {
        hosts: 4,
        leaving_bytes_per_s: 4 * LINK.bytes_per_s,
        arriving_bytes_per_s: arriving_links * LINK.bytes_per_s,
    };
    let bound = |work: &Work, cut: Cut| {
        let lone = |_, _, wire_bytes| LINK.packet_ps(wire_bytes) + 1_000_000;
        Bound::within(work, &LINK, &[cut], lone)
    };
    let alone = 10 * 335_680 + 1_000_000;
    assert_eq!(bound(&work, cuts(4)).mean_ps, alone);
    let narrow = bound(&work, cuts(1));
    assert_eq!(narrow.mean_ps, (1 + 2 + 3 + 4) * 10 * 335_680 / 4);
    assert_eq!(narrow.whole_ps, 4 * 10 * 335_680);
    work.message(HostId(0), HostId(1), 4096);
    let with_near = bound(&work, cuts(1));
    assert_eq!(with_near.mean_ps, ((1 + 2 + 3 + 4) * 10 * 335_680 + 1_335_680) / 5);
}
