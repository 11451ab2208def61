use super::*;
use crate::read::fuzz;
use crate::time::PS_PER_NS;
use crate::work::Op;

const SCHEDULE: &str = "\
// two ranks that talk, one that computes
num_ranks 3

rank 0 { /* begins
            here */
  l1: calc 1500 cpu 1
  l2: send 1024b to 1 tag 5 cpu 0 nic 0
  l2 requires l1
  recv 4b from 1
}

rank 1 {
l1: recv 1024b from 0 tag 5
l2: calc 100; l3: calc 200
l2 irequires l1; l3 requires l2
l4: send 4b to 0 nic 1
l4 requires l1
}
rank 2 { calc 7 }
";

fn work(text: &str) -> Result<Work, String> {
    Schedule::read("a.goal", text)
        .and_then(|schedule| schedule.work())
        .map_err(|error| error.to_string())
}

#[test]
fn a_schedule_becomes_tasks_that_wait_for_each_other() {
    let work = work(SCHEDULE).expect("valid");
    let [there, back] = work.flows() else { panic!("two messages") };
    assert_eq!((there.from, there.to, there.bytes), (HostId(0), HostId(1), 1024));
    assert_eq!((back.from, back.to, back.bytes), (HostId(1), HostId(0), 4));
    let ops = |host| work.tasks(HostId(host)).iter().map(|task| task.op).collect::<Vec<_>>();
    assert_eq!(ops(0)[0], Op::Compute { time_ps: 1500 * PS_PER_NS, cpu: Some(1) });
    assert_eq!(ops(2), [Op::Compute { time_ps: 7 * PS_PER_NS, cpu: Some(0) }]);
    assert_eq!(work.tasks(HostId(0))[0].then, [there.send]);
    // What begins with a receive waits for a gate, and so does the receive.
    let tasks = work.tasks(HostId(1));
    let gate = tasks.last().expect("a gate");
    assert_eq!(gate.op, Op::Compute { time_ps: 0, cpu: None });
    let calc = TaskId(
        tasks
            .iter()
            .position(|task| task.op == Op::Compute { time_ps: 100_000, cpu: Some(0) })
            .expect("there") as u32,
    );
    assert_eq!((gate.needs, &gate.then[..]), (0, &[there.receive, calc][..]));
    assert_eq!(tasks[there.receive.0 as usize].then, [back.send]);
}

/// Sends and receives with the same tag meet in their order, those with others do not stand in the way.
#[test]
fn messages_meet_in_order() {
    let text = "num_ranks 2\nrank 1 {\nrecv 9b from 0 tag 2\nrecv 7b from 0 tag 1\nrecv 8b from 0 tag 2\n}\nrank 0 {\nsend 7b to 1 tag 1\nsend 9b to 1 tag 2\nsend 8b to 1 tag 2\n}\n";
    let work = work(text).expect("valid");
    let met: Vec<_> = work.flows().iter().map(|flow| (flow.bytes, flow.receive.0)).collect();
    assert_eq!(met, [(7, 0), (9, 1), (8, 2)]);
    assert_eq!(
        self::work(&text.replace("recv 9b", "recv 8b")).err().as_deref(),
        Some("a.goal:3: expected room for the 9 bytes that line 9 sends, found 8")
    );
}

/// Mistakes that are made in a valid file: what is replaced, by what, and what the error says.
const MISTAKES: &[(&str, &str, &str)] = &[
    ("num_ranks 3", "ranks 3", "a.goal:2: expected num_ranks, found \"ranks\""),
    (
        "num_ranks 3",
        "num_ranks",
        "a.goal:2: expected the number of ranks from 1 to 1048576 at the item's end",
    ),
    (
        "num_ranks 3",
        "num_ranks 4",
        "a.goal:20: expected a block for each of 4 ranks, found none for rank 3",
    ),
    ("num_ranks 3", "num_ranks 2", "a.goal:19: expected a rank from 0 to 1, found \"2\""),
    ("rank 2 {", "rank 1 {", "a.goal:19: rank 1 is there twice, first in line 12"),
    ("rank 2 {", "ranks 2 {", "a.goal:19: expected rank, found \"ranks\""),
    ("rank 2 {", "rank 2 (", "a.goal:19: expected {, found '('"),
    ("{ calc 7 }", "{ calc 7", "a.goal:20: expected an operation, a label or } at the file's end"),
    ("{ calc 7 }", "{ calc 7 8 }", "a.goal:19: expected the item's end, found \"8\""),
    (
        "{ calc 7 }",
        "{ calc -7 }",
        "a.goal:19: expected nanoseconds from 0 to 1000000000000000, found \"-7\"",
    ),
    ("{ calc 7 }", "{ calc 7 cpu 256 }", "a.goal:19: expected a cpu from 0 to 255, found \"256\""),
    (
        "{ calc 7 }",
        "{ wait 7 }",
        "a.goal:19: expected :, requires or irequires after a label, found \"7\"",
    ),
    ("{ calc 7 }", "{ l1: wait }", "a.goal:19: expected send, recv or calc, found \"wait\""),
    ("{ calc 7 }", "{ /* }", "a.goal:19: expected */ after /*"),
    ("send 1024b", "send 1024", "a.goal:7: expected b after the length, found \"to\""),
    ("to 1", "from 1", "a.goal:7: expected to, found \"from\""),
    ("to 1", "to 0", "a.goal:7: expected another rank, but rank 0 sends to itself"),
    ("to 1", "to 3", "a.goal:7: expected a rank from 0 to 2, found \"3\""),
    ("to 1 tag 5", "to 1 tag x", "a.goal:7: expected a tag from 0 to 4294967295, found \"x\""),
    (
        "to 1 tag 5",
        "to 1 tag 6",
        "a.goal:13: expected a send of rank 0 to 1 with tag 5 for this receive",
    ),
    (
        "recv 4b from 1",
        "",
        "a.goal:16: expected a receive of rank 0 from 1 with tag 0 for this send",
    ),
    (
        "recv 4b from 1",
        "recv 4b from -1",
        "a.goal:9: expected a rank: a receive from any rank cannot be matched before the run",
    ),
    (
        "recv 4b from 1",
        "recv 4b from 1 tag -1",
        "a.goal:9: expected a tag: a receive with any tag cannot be matched before the run",
    ),
    (
        "recv 4b from 1",
        "recv 3b from 1",
        "a.goal:9: expected room for the 4 bytes that line 16 sends, found 3",
    ),
    ("l2 requires l1", "l2 requires l9", "a.goal:8: expected a label of this rank, found \"l9\""),
    (
        "l2 requires l1",
        "l2 requires l2",
        "a.goal:8: expected two labels, but this operation waits for itself",
    ),
    ("l2 requires l1", "l2 requires 1", "a.goal:8: expected a label, found \"1\""),
    ("l2: send", "l1: send", "a.goal:7: label \"l1\" is there twice, first in line 6"),
    (
        "l3 requires l2",
        "l3 requires l2; l2 requires l3",
        "a.goal:14: expected operations that can be done, but this one and others wait for each other",
    ),
    (
        "l3 requires l2",
        "l3 requires l2; l1 irequires l3",
        "a.goal:13: expected operations that can be done, but this one and others wait for each other",
    ),
];

#[test]
fn mistakes_name_the_line_and_what_is_expected() {
    for (from, to, expected) in MISTAKES {
        assert!(SCHEDULE.contains(from));
        let text = SCHEDULE.replacen(from, to, 1);
        assert_eq!(work(&text).err(), Some((*expected).to_owned()), "{from:?} became {to:?}");
    }
    assert_eq!(work("").err().as_deref(), Some("a.goal:1: expected num_ranks at the file's end"));
}

/// Each rank receives before it sends.
#[test]
fn ranks_that_wait_for_each_other_are_refused() {
    let text = "num_ranks 2\nrank 0 {\na: recv 1b from 1\nb: send 1b to 1\nb requires a\n}\nrank 1 {\na: recv 1b from 0\nb: send 1b to 0\nb requires a\n}\n";
    let expected = "a.goal:4: expected operations that can be done, but this one and others wait for each other";
    assert_eq!(work(text).err().as_deref(), Some(expected));
    assert!(work(&text.replacen("b requires a", "b irequires a", 1)).is_ok());
    let mut small = Work::new(1);
    let added = Schedule::read("a.goal", SCHEDULE).expect("valid").add_to(&mut small);
    let expected = "a.goal: expected at most 1 ranks, as many as hosts, found 3";
    assert_eq!(added.map_err(|error| error.to_string()), Err(expected.to_owned()));
}

/// Whatever a text says, it is refused or can be built.
#[test]
fn no_text_breaks_the_reader() {
    fuzz::try_texts(SCHEDULE, |text| {
        let _ = work(text);
    });
}
