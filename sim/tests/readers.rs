//! Files that are read and run: what starts when.

use erd_sim::critical::CriticalPath;
use erd_sim::experiment::{Begin, Engines, Experiment, Results};
use erd_sim::read::goal::Schedule;
use erd_sim::read::matrix::{Matrix, StartUnit};
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use erd_sim::read::topo::{QueueSettings, Topo};
use erd_sim::time::from_ns;
use erd_sim::work::Work;
use std::sync::Arc;

const TOPO: &str = "\
Nodes 8
Tiers 2
Podsize 8
Tier 0
Downlink_speed_Gbps 100
Radix_Down 2
Radix_Up 2
Downlink_Latency_ns 1000
Switch_Latency_ns 200
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
Downlink_Latency_ns 1000
";

fn run(work: Work) -> Results {
    let queues = QueueSettings {
        buffer_bytes: 200_000,
        red: None,
        red_to_hosts: false,
        trimming: false,
        control_first: true,
    };
    let clos = Topo::read("a.topo", TOPO).expect("valid").clos(&queues, 1);
    let engines =
        Engines { paths: 16, begin: Begin::Cold, ..Engines::named("nscc").expect("a scheme") };
    let plan = Arc::new(clos.build().expect("a tree"));
    let results = Experiment { plan, work, engines, seed: 1, threads: 2 }.run(1_000_000_000_000);
    results.expect("done in a second")
}

/// Triggers take no time, wherever the hosts are.
#[test]
fn triggers_start_messages_at_once() {
    let matrix = "\
Nodes 8
Connections 8
Triggers 4
0->7 id 1 start 3 size 100000 send_done_trigger 1 recv_done_trigger 2
3->4 id 2 trigger 1 size 5000 send_done_trigger 3
5->1 id 3 trigger 2 size 50000 send_done_trigger 3
2->6 id 4 trigger 3 size 100
0->3 id 5 start 0 size 300000 recv_done_trigger 4
1->3 id 6 start 0 size 1000 recv_done_trigger 4
4->2 id 7 trigger 4 size 100
6->0 id 8 trigger 4 size 100
trigger id 1 oneshot
trigger id 2 oneshot
trigger id 3 barrier count 2
trigger id 4 multishot
";
    let matrix = Matrix::read("a.cm", matrix, StartUnit::Micros).expect("valid");
    let results = run(matrix.work().expect("it comes to its end"));
    let flow = |id: usize| results.flows[id - 1];
    assert_eq!(flow(1).began, 3_000_000);
    assert_eq!(flow(2).began, flow(1).acknowledged);
    assert_eq!(flow(3).began, flow(1).arrived);
    assert_eq!(flow(4).began, flow(2).acknowledged.max(flow(3).acknowledged));
    // The longer message ends later: the first end starts one message, the last one the other.
    assert!(flow(6).arrived < flow(5).arrived);
    assert_eq!((flow(7).began, flow(8).began), (flow(6).arrived, flow(5).arrived));
}

/// A schedule runs to its end; computations of one processor follow each other, and a message without bytes counts.
#[test]
fn a_schedule_runs() {
    let goal = "\
num_ranks 2
rank 0 {
a: calc 1000
b: calc 2000
c: send 0b to 1
c requires b
d: recv 70000b from 1
e: calc 500
e irequires d
}
rank 1 {
a: recv 0b from 0
b: send 70000b to 0
b requires a
}
";
    let results = run(Schedule::read("a.goal", goal).expect("valid").work().expect("it ends"));
    let [there, back] = results.flows[..] else { panic!("two messages") };
    // e could begin at once, too, but after a and b.
    assert_eq!(there.began, 3_000_000);
    assert!(back.began >= there.arrived && back.arrived > back.began);
}

/// Who is done last, and why: computations of one processor, a message that is waited for, one that came before, an
/// acknowledgement.
#[test]
fn the_critical_path_tells_computing_from_the_network() {
    let goal = "\
num_ranks 3
rank 0 {
early: recv 10b from 2 tag 1
a: calc 1000
b: calc 2000
c: send 70000b to 1
c requires b
d: recv 50000b from 1
e: calc 500 cpu 1
e requires d
e requires early
f: send 10b to 2
f requires e
g: calc 100
g requires f
}
rank 1 {
a: recv 70000b from 0
b: calc 7000
b requires a
c: send 50000b to 0
c requires b
}
rank 2 {
send 10b to 0 tag 1
recv 10b from 0
calc 4000
}
";
    let results = run(Schedule::read("a.goal", goal).expect("valid").work().expect("it ends"));
    let CriticalPath { whole_ps, compute_ps, network_ps, idle_ps, messages, computations } =
        results.critical;
    // The third message is waited for until its sender knows that it has arrived.
    let [there, last, back] = [0, 1, 2].map(|at| results.flows[at]);
    assert_eq!((messages, computations), (3, 5), "{:?}", results.flows);
    assert_eq!(compute_ps, from_ns(1000 + 2000 + 7000 + 500 + 100));
    let network = [there, back].map(|flow| flow.completion_ps()).iter().sum::<u64>();
    assert_eq!((network_ps, idle_ps), (network + last.acknowledged - last.began, 0));
    assert_eq!(whole_ps, compute_ps + network_ps);
}

/// The scenarios that stand beside the code end, with the same results on two threads.
#[test]
fn the_scenarios_run() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let name = path.display().to_string();
        let results = [1, 2].map(|threads| {
            let file = ScenarioFile::read(&name, &text).expect("a scenario");
            let Prepared { plan, work, engines, failures, seed, limit_ps, .. } =
                file.prepare(&dir).expect("it can be run");
            let experiment = Experiment { plan, work, engines, seed, threads };
            experiment.run_with(limit_ps, &failures).expect("it ends")
        });
        assert_eq!(results[0], results[1], "{name}");
        seen += 1;
    }
    assert!(seen > 0, "there are scenarios");
}
