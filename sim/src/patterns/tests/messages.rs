use super::*;
use std::collections::HashSet;

/// Everybody sends and receives once, and far enough, on any number of hosts.
#[test]
fn permutations_reach_as_far_as_they_should() {
    for (hosts, reach, group) in [
        (2, "anywhere", 1),
        (3, "anywhere", 1),
        (16, "anywhere", 1),
        (16, "other-rack", 4),
        (18, "other-rack", 4),
        (16, "other-pod", 8),
        (24, "other-pod", 8),
        (22, "other-half", 11),
    ] {
        let text = format!(
            r#"{{"pattern":"permutation","message_bytes":7,"reach":"{reach}","start_spread_ns":5}}"#
        );
        for seed in 0..50 {
            let work = pattern(&text).work(&site(hosts), seed).expect("it fits");
            assert_eq!(bytes_of(&work), [(); 2].map(|()| vec![7; hosts as usize]));
            for flow in work.flows() {
                assert_ne!(flow.from.0 / group, flow.to.0 / group, "{hosts} hosts, {reach}");
                let task = &work.tasks(flow.from)[flow.send.0 as usize];
                assert!(task.not_before <= 5_000 && task.needs == 0);
            }
        }
    }
}

/// Who sends to whom is about as likely for all pairs: each of 5 * 4 gets its share of 2,000 within five deviations.
#[test]
fn permutations_prefer_nobody() {
    let text = r#"{"pattern":"permutation","message_bytes":1}"#;
    let mut pairs = [[0; 5]; 5];
    for seed in 0..2_000 {
        for flow in pattern(text).work(&site(5), seed).expect("it fits").flows() {
            pairs[flow.from.0 as usize][flow.to.0 as usize] += 1;
        }
    }
    for (from, to) in (0..5).flat_map(|from| (0..5).map(move |to| (from, to))) {
        let count: i32 = pairs[from][to];
        // The repair of hosts that would send to themselves skews a little.
        assert!(if from == to { count == 0 } else { (count - 500).abs() < 100 }, "{pairs:?}");
    }
}

#[test]
fn incasts_and_outcasts_share_no_hosts() {
    for (text, to_one) in [
        (
            r#"{"pattern":"incast","message_bytes":9,"senders":3,"incasts":4,"start_spread_ns":50}"#,
            true,
        ),
        (r#"{"pattern":"outcast","message_bytes":9,"receivers":3,"outcasts":4}"#, false),
    ] {
        let [sent, received] = bytes_of(&work(text, 16));
        let (centres, leaves) = if to_one { (received, sent) } else { (sent, received) };
        assert_eq!(centres.iter().filter(|bytes| **bytes == 27).count(), 4);
        assert_eq!(leaves.iter().filter(|bytes| **bytes == 9).count(), 12);
        assert!(centres.iter().zip(&leaves).all(|(centre, leaf)| (*centre == 0) != (*leaf == 0)));
    }
    let spread =
        work(r#"{"pattern":"incast","message_bytes":9,"senders":15,"start_spread_ns":50}"#, 16);
    let starts: HashSet<Picos> =
        spread.flows().iter().map(|f| spread.tasks(f.from)[f.send.0 as usize].not_before).collect();
    assert!(starts.len() > 10 && starts.iter().all(|at| *at <= 50_000), "{starts:?}");
    let far =
        work(r#"{"pattern":"incast","message_bytes":9,"senders":12,"reach":"other-rack"}"#, 16);
    assert!(far.flows().iter().all(|flow| flow.from.0 / 4 != flow.to.0 / 4));
}

/// All but the first of those who send to the one also send to others, each of whom receives once.
#[test]
fn an_outcast_incast_has_both() {
    let text =
        r#"{"pattern":"outcast-incast","message_bytes":1,"senders":4,"messages_per_sender":3}"#;
    let [mut sent, mut received] = bytes_of(&work(text, 16));
    sent.sort_unstable();
    received.sort_unstable();
    assert_eq!(sent[11..], [0, 1, 3, 3, 3]);
    assert_eq!(received[8..], [0, 1, 1, 1, 1, 1, 1, 4]);
}

/// No host has more messages outstanding than its window, and everyone gets one of everyone in its group.
#[test]
fn an_all_to_all_keeps_its_window() {
    for (window, hosts, group, groups) in
        [(1, 8, 8, 1), (3, 8, 8, 1), (100, 8, 8, 1), (2, 12, 5, 2)]
    {
        let text = format!(
            r#"{{"pattern":"all-to-all","message_bytes":10,"window_messages":{window},
                "groups":{{"group_hosts":{group},"placement":"interleaved"}}}}"#
        );
        let work = work(&text, hosts);
        assert_eq!(work.circle(), None);
        let pairs: HashSet<_> = work.flows().iter().map(|flow| (flow.from, flow.to)).collect();
        assert_eq!((pairs.len(), work.flows().len()), (groups * group * (group - 1), pairs.len()));
        for host in (0..hosts).map(HostId) {
            let tasks = work.tasks(host);
            let free = tasks.iter().filter(|task| is_send(task) && task.needs == 0).count();
            let sends = tasks.iter().filter(|task| is_send(task)).count();
            assert_eq!(free, window.min(sends), "what begins at once");
            assert!(tasks.iter().all(|task| task.then.len() <= 1), "one ends, one begins");
        }
        // The first receivers differ.
        let mut first: Vec<HostId> =
            work.flows().iter().step_by(group - 1).map(|flow| flow.to).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), groups * group);
    }
}

fn is_send(task: &crate::work::Task) -> bool {
    matches!(task.op, crate::work::Op::Send { .. })
}

#[test]
fn groups_are_placed_as_asked() {
    let place = |text: &str| {
        let groups: Groups = serde_json::from_str(text).expect("groups");
        let groups = groups.place(&site(16), &mut Random::new(3, 3)).expect("they fit");
        groups.iter().map(|g| g.iter().map(|host| host.0).collect()).collect::<Vec<Vec<u32>>>()
    };
    assert_eq!(place("{}"), [(0..16).collect::<Vec<_>>()]);
    assert_eq!(place(r#"{"group_hosts":3,"groups":2}"#), [[0, 1, 2], [3, 4, 5]]);
    let far = place(r#"{"group_hosts":4,"groups":2,"placement":"interleaved"}"#);
    assert_eq!(far, [[0, 4, 8, 12], [1, 5, 9, 13]]);
    let random = place(r#"{"group_hosts":5,"placement":"random"}"#);
    let mut aware = place(r#"{"group_hosts":5,"placement":"rack-aware"}"#);
    assert!(aware.iter().all(|group| group.is_sorted()) && random != aware);
    let mut sorted = random.clone();
    sorted.iter_mut().for_each(|group| group.sort_unstable());
    assert_eq!(sorted, aware, "the same hosts");
    aware.iter_mut().flatten().for_each(|host| *host += 1);
    let all: HashSet<u32> = aware.concat().into_iter().collect();
    assert_eq!(all.len(), 15, "no host is in two groups");
}

#[test]
fn the_first_host_of_a_permutation_may_send_more() {
    let text = r#"{"pattern":"permutation","message_bytes":1000,"first_message_bytes":5000}"#;
    let [sent, received] = bytes_of(&work(text, 8));
    assert_eq!(sent, [5000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]);
    assert_eq!(received.iter().filter(|bytes| **bytes == 5000).count(), 1);
    let text = r#"{"pattern":"permutation","message_bytes":1000,"first_message_bytes":0}"#;
    assert!(refused(text, 8).contains("first_message_bytes"));
}
