use super::*;
use crate::read::fuzz;
use crate::work::Op;

/// A chain at one host, one over hosts, a barrier and a pipeline of two.
const MATRIX: &str = "\
# six hosts
Nodes 6
Connections 9
Triggers 5
Failures 1

0->1 id 1 start 0 size 1000 send_done_trigger 1
0->2 id 2 trigger 1 size 2000 recv_done_trigger 2
2->3 id 3 trigger 2 size 3000 prio 7
3->4 id 4 start 2.5 size 10 send_done_trigger 3
4->5 id 5 start 4 size 10 send_done_trigger 3
5->0 id 6 trigger 3 size 10 recv_done_trigger 4
1->0 id 7 start 0 size 10 recv_done_trigger 5
1->0 id 8 start 0 size 10 recv_done_trigger 5
0->3 id 9 trigger 5 size 10
trigger id 1 oneshot
trigger id 2 oneshot
trigger id 3 barrier count 2
trigger id 4 multishot
trigger id 5 multishot
failure switch_type AGG switch_id 3 link_id 1
";

fn read(text: &str) -> Result<Matrix, String> {
    Matrix::read("a.cm", text, StartUnit::Micros).map_err(|error| error.to_string())
}

fn work(text: &str) -> Result<Work, String> {
    read(text)?.work().map_err(|error| error.to_string())
}

#[test]
fn messages_start_as_the_file_says() {
    let matrix = read(MATRIX).expect("valid");
    let work = matrix.work().expect("it comes to its end");
    assert_eq!((work.hosts(), work.flows().len()), (6, 9));
    let send = |at: usize| {
        let flow = work.flows()[at];
        &work.tasks(flow.from)[flow.send.0 as usize]
    };
    assert_eq!(send(3).not_before, 2_500_000);
    assert_eq!(send(2).op, Op::Send { flow: FlowId(2), to: HostId(3), bytes: 3000 });
    // What is local to a host became a dependency: of the first message on its sender, of the second on its receiver.
    let then = |host: u32, task: crate::work::TaskId| {
        work.tasks(HostId(host))[task.0 as usize].then.clone()
    };
    assert_eq!(then(0, work.flows()[0].send), [work.flows()[1].send]);
    assert_eq!(then(2, work.flows()[1].receive), [work.flows()[2].send]);
    // The barrier and the pipeline are triggers; what nothing waits for joins nothing.
    let triggers: Vec<_> = work.triggers().iter().map(|trigger| trigger.shots).collect();
    assert_eq!(triggers, [Shots::All(2), Shots::OneEach]);
    assert_eq!(work.triggers()[0].targets, [(HostId(5), work.flows()[5].send)]);
    assert_eq!(work.triggers()[1].targets, [(HostId(0), work.flows()[8].send)]);
    assert_eq!(send(3).fires, send(4).fires);
}

#[test]
fn start_times_have_the_unit_that_the_caller_says() {
    let text = "Nodes 2\nConnections 1\n0->1 start 7 size 1\n";
    for (unit, at) in [(StartUnit::Micros, 7_000_000), (StartUnit::Picos, 7)] {
        let matrix = Matrix::read("a.cm", text, unit).expect("valid");
        assert_eq!(matrix.connections[0].start, Beginning::At(at));
    }
}

/// Messages of one connection share its number; the number of a message may be left out.
#[test]
fn messages_may_share_a_connection() {
    let text = "Nodes 2\nConnections 3\n0->1 id 1 msg start 0 size 5\n0->1 id 1 msg 2 start 0 size 5\n0->1 id 1 start 0 size 5\n";
    assert_eq!(work(text).expect("valid").flows().len(), 3);
}

#[test]
fn failed_links_are_found_in_the_tree() {
    let link = crate::link::LinkConfig::delay(1);
    let tier = |children, links_per_child, links_up| crate::fabric::clos::Tier {
        children,
        links_per_child,
        links_up,
        down: link,
        up: link,
    };
    // Three pods of 2 hosts: in each 2 leaves and 2 switches above with 2 bundles of 2 links up.
    let tiers = vec![tier(1, 1, 2), tier(2, 1, 4), tier(3, 2, 0)];
    let clos = Clos { tiers, hashed: true, seed: 1 };
    let plan = clos.build().expect("a tree");
    let text = MATRIX.replace("switch_id 3", "switch_id 5");
    let links = read(&text).expect("valid").failed_links(&clos, &plan).expect("there");
    let [[up, back]] = links[..] else { panic!("one link") };
    let [up, back] = [up, back].map(|link| &plan.links()[link.0 as usize]);
    // After 6 hosts and 6 leaves, the last switch of tier 1; its bundles lead to the last two of 4 at the top.
    assert_eq!((up.from, up.to), (NodeId(6 + 6 + 5), NodeId(6 + 6 + 6 + 3)));
    assert_eq!((back.from, back.to), (up.to, up.from));
    let text = MATRIX.replace("switch_id 3", "switch_id 6");
    let refused = read(&text).expect("valid").failed_links(&clos, &plan).map_err(|e| e.to_string());
    let expected = "a.cm:21: expected a switch_id below 6 and a link_id below 2";
    assert_eq!(refused, Err(expected.to_owned()));
}

/// Mistakes that are made in a valid file: what is replaced, by what, and what the error says.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("Nodes 6", "Nodes 0", "a.cm:2: expected Nodes from 1 to 1048576, found \"0\""),
    ("Nodes 6", "Nodes 6 6", "a.cm:2: expected the line's end, found \"6\""),
    ("Nodes 6", "", "a.cm:7: expected Nodes in the header, before the first message"),
    (
        "Nodes 6",
        "Hosts 6",
        "a.cm:2: expected Nodes, Connections, Triggers, Failures, SRC->DST, trigger or failure, found \"Hosts\"",
    ),
    (
        "Connections 9",
        "Connections 8",
        "a.cm:3: expected Connections 9, as many as follow, found 8",
    ),
    ("Connections 9", "", "a.cm: expected Connections 9 in the header"),
    ("Triggers 5", "Triggers 5\nTriggers 5", "a.cm:5: Triggers is there twice, first in line 4"),
    ("Failures 1", "", "a.cm: expected Failures 1 in the header"),
    ("5->0", "6->0", "a.cm:12: expected a host from 0 to 5, found \"6\""),
    ("5->0", "0->0", "a.cm:12: expected two hosts, but 0 sends to itself"),
    ("5->0", "5-0", "a.cm:12: expected SRC->DST, trigger or failure, found \"5-0\""),
    ("id 6", "id 0", "a.cm:12: expected id from 1 to 4294967295, found \"0\""),
    (
        "id 6",
        "id 5",
        "a.cm:12: expected an id of its own, but line 11 has id 5 too, for other hosts",
    ),
    ("id 6 ", "", "a.cm:12: expected id N in a line with a trigger"),
    ("start 4", "start -4", "a.cm:11: expected microseconds from 0 to 1000000000000, found \"-4\""),
    (
        "start 4",
        "start nan",
        "a.cm:11: expected microseconds from 0 to 1000000000000, found \"nan\"",
    ),
    ("start 4", "", "a.cm:11: expected either start T or trigger N"),
    ("start 4", "start 4 trigger 1", "a.cm:11: expected either start T or trigger N"),
    ("start 4", "start 4 start 4", "a.cm:11: expected start once, found it again"),
    (
        "start 4",
        "starts 4",
        "a.cm:11: expected id, start, trigger, size, send_done_trigger, recv_done_trigger, prio or msg, found \"starts\"",
    ),
    ("size 3000", "", "a.cm:9: expected size BYTES"),
    ("size 3000", "size 0", "a.cm:9: expected size from 1 to 1099511627776, found \"0\""),
    (
        "oneshot",
        "once",
        "a.cm:16: expected id, oneshot, multishot, barrier or count, found \"once\"",
    ),
    ("oneshot", "", "a.cm:16: expected oneshot, multishot or barrier"),
    (
        "oneshot",
        "oneshot barrier",
        "a.cm:16: expected one number and one kind, found another: barrier",
    ),
    ("count 2", "", "a.cm:18: expected count N after barrier"),
    ("count 2", "count 3", "a.cm:18: expected 3 messages that activate trigger 3, found 2"),
    ("trigger id 2", "trigger", "a.cm:17: expected id N"),
    ("trigger id 2", "trigger id 1", "a.cm:17: trigger 1 is there twice, first in line 16"),
    ("trigger id 2", "trigger id 8", "a.cm:8: expected a line for trigger 2, but there is none"),
    ("send_done_trigger 1", "", "a.cm:16: expected 1 messages that activate trigger 1, found 0"),
    (
        "send_done_trigger 1",
        "send_done_trigger 2",
        "a.cm:16: expected 1 messages that activate trigger 1, found 0",
    ),
    (
        "AGG",
        "TOR",
        "a.cm:21: expected switch_type AGG, since only links above tier 1 can fail, found \"TOR\"",
    ),
    ("link_id 1", "", "a.cm:21: expected switch_id N and link_id N"),
    ("link_id 1", "link 1", "a.cm:21: expected switch_type, switch_id or link_id, found \"link\""),
];

#[test]
fn mistakes_name_the_line_and_what_is_expected() {
    for (from, to, expected) in MISTAKES {
        assert!(MATRIX.contains(from));
        let text = MATRIX.replacen(from, to, 1);
        assert_eq!(work(&text).err(), Some((*expected).to_owned()), "{from:?} became {to:?}");
    }
    assert_eq!(read(""), Err("a.cm: expected Connections 0 in the header".to_owned()));
    assert_eq!(read("Connections 0"), Err("a.cm: expected Nodes in the header".to_owned()));
}

#[test]
fn messages_that_wait_for_each_other_are_refused() {
    let text = "\
Nodes 3
Connections 2
Triggers 2
0->1 id 1 trigger 2 size 5 recv_done_trigger 1
2->0 id 2 trigger 1 size 5 send_done_trigger 2
trigger id 1 oneshot
trigger id 2 oneshot
";
    let expected = "a.cm:4: expected messages that can start, but this one waits for itself by way of its trigger";
    assert_eq!(work(text).err(), Some(expected.to_owned()));
    let mut small = Work::new(2);
    let added = read(MATRIX).expect("valid").add_to(&mut small).map_err(|error| error.to_string());
    assert_eq!(added, Err("a.cm: expected at most 2 Nodes, as many as hosts, found 6".to_owned()));
}

/// Whatever a text says, it is refused or can be built.
#[test]
fn no_text_breaks_the_reader() {
    fuzz::try_texts(MATRIX, |text| {
        let _ = work(text);
    });
}
