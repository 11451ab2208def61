//! What the seeds found, as small as it gets.

use super::draw::Drawn;
use super::judge::{self, How};

/// Two leaves with two hosts each, and two spines. Paths with even numbers take the first spine.
const TWO_SPINES: &str = "\
seed = 1
limit_ms = 20000
links = { rate_gbps = 100, delay_ns = 500 }
[topology.tree]
hashed = false
tiers = [{ children = 2, links_up = 2 }, { children = 2 }]
";

fn run(rest: &str) {
    run_so(rest, How::PLAIN);
}

fn run_so(rest: &str, how: How) {
    let drawn = Drawn(format!("{rest}{TWO_SPINES}"));
    judge::run(&drawn, how).1.unwrap_or_else(|error| panic!("{error}"));
}

/// Answers to a hello all went out on the first path, so no session began if that one was dead on the way back.
#[test]
fn a_session_begins_though_the_first_path_back_is_dead() {
    run("\
work = [{ flows = [{ from = 0, to = 2, bytes = 100 }] }]
engines = { scheme = \"nscc\", paths = 2 }
failures = [{ link = [\"s2\", \"s0\"], both_ways = false, at_us = 0, health = \"dead\" }]
");
}

/// Welcomes and probes took turns over the paths together. In step, the welcomes went out on the dead path alone, and the
/// probes, which arrived, kept both sides alive: for ever.
#[test]
fn welcomes_and_probes_in_step_do_not_miss_the_path_that_works() {
    run("\
work = [{ flows = [
  { from = 3, to = 0, bytes = 1421 },
  { from = 2, to = 0, bytes = 1421 },
  { from = 0, to = 2, bytes = 100, start_us = 23.597 },
] }]
engines = { scheme = \"nscc\", paths = 2 }
failures = [{ link = [\"s0\", \"s2\"], both_ways = false, at_us = 0, health = \"dead\" }]
");
}

/// Acknowledgements took the path of what they acknowledge. Data goes out on one path and back on the other here, so none
/// arrived. Each side heard the other's data, and waited for ever.
#[test]
fn acknowledgements_take_a_path_that_works() {
    run("\
work = [{ flows = [{ from = 0, to = 2, bytes = 100 }, { from = 2, to = 0, bytes = 100 }] }]
engines = { scheme = \"nscc\", paths = 2 }
failures = [
  { link = [\"s0\", \"s2\"], both_ways = false, at_us = 0, health = \"dead\" },
  { link = [\"s1\", \"s3\"], both_ways = false, at_us = 0, health = \"dead\" },
]
");
}

/// A link that was dead from the beginning carried what was sent at that very moment.
#[test]
fn a_link_that_dies_at_a_time_carries_nothing_of_that_time() {
    let drawn = Drawn(format!(
        "\
work = [{{ flows = [{{ from = 0, to = 2, bytes = 100 }}] }}]
engines = {{ scheme = \"nscc\", warm = true }}
failures = [{{ link = [\"h0\", \"s0\"], both_ways = false, at_us = 0, health = \"dead\" }}]
{TWO_SPINES}"
    ));
    assert!(judge::run(&drawn, How::PLAIN).1.is_err());
}

/// On a link that loses nine packets of ten, an engine looks for the size that passes. Its bursts then had several
/// datagrams, and the simulated port stopped the program.
#[test]
fn bursts_of_short_datagrams_are_sent() {
    let drawn = Drawn(
        "\
seed = 21321
limit_ms = 20000
links = { rate_gbps = 10, delay_ns = 208.25 }
engines = { scheme = \"plb\", rto_min_us = 1000 }
failures = [
  { link = [\"s0\", \"h1\"], at_us = 0, health = \"dead\" },
  { link = [\"h0\", \"s0\"], both_ways = false, at_us = 191.074, health = { lossy = 0.9077 } },
]
[[work]]
pattern = { pattern = \"permutation\", message_bytes = 3, start_spread_ns = 100000 }
[[work]]
flows = [
  { from = 2, to = 0, bytes = 7, start_us = 19.485 },
  { from = 0, to = 2, bytes = 168132, start_us = 259.565 },
]
[topology.tree]
tiers = [{ children = 3 }]
"
        .to_owned(),
    );
    // The dead link cuts a host off, so that the run ends with an error.
    assert!(judge::run(&drawn, How::PLAIN).1.is_err());
}

/// A sender of EQDS asked once for the pulls that lost packets need. If that request was lost, it waited for ever.
#[test]
fn a_sender_of_eqds_asks_again_for_what_is_lost() {
    run("\
work = [{ pattern = { pattern = \"permutation\", message_bytes = 100000 } }]
engines = { scheme = \"eqds\" }
failures = [
  { links = \"hosts\", at_us = 0, health = { lossy = 0.4 } },
  { links = \"hosts\", at_us = 5000, health = \"up\" },
]
");
}

/// Requests took path numbers in turn with data. Where half the paths were dead, each request that arrived brought credit for a
/// packet on a dead one, until the round of all paths ended.
#[test]
fn requests_of_eqds_and_its_data_do_not_take_good_and_dead_paths_in_step() {
    let flows = ["{ from = 0, to = 2, bytes = 100 }, { from = 1, to = 3, bytes = 100 }"; 8];
    run(&format!(
        "\
work = [{{ flows = [{}] }}]
engines = {{ scheme = \"eqds\", settings = {{ rto_us = 200000 }} }}
failures = [{{ link = [\"s0\", \"s2\"], both_ways = false, at_us = 0, health = \"dead\" }}]
",
        flows.join(", ")
    ));
}

/// Pulls filled the rings of senders of EQDS, so that acknowledgements were lost. The senders repeated what had arrived for
/// ever: the receiver answered their requests with more pulls alone.
#[test]
fn a_sender_of_eqds_learns_what_has_arrived_though_its_ring_is_short() {
    let drawn = Drawn(
        "\
seed = 3660
limit_ms = 20000
links = { rate_gbps = 400, delay_ns = 1226.970, trimming = true, control_first = true }
hosts = { ring_packets = 7, delay = { constant_ns = 10228.380 }, packet_ns = 525.952 }
engines = { scheme = \"eqds\", settings = { paths = 1, ack_packets = 1, window_bdp = 0.36, pull_rate = 1 } }
[[work]]
pattern = { pattern = \"collective\", operation = \"all-reduce\", algorithm = \"double-tree\", data_bytes = 275045 }
[topology.tree]
tiers = [{ children = 3, links_up = 1 }, { children = 2, links = { rate_gbps = 800 } }]
"
        .to_owned(),
    );
    judge::run(&drawn, How::PLAIN).1.unwrap_or_else(|error| panic!("{error}"));
}

/// Samples left out what hosts sent in the instant in which the work began.
#[test]
fn samples_have_what_is_sent_as_the_work_begins() {
    let work = "\
work = [{ flows = [{ from = 0, to = 2, bytes = 10000 }] }]
engines = { scheme = \"nscc\", warm = true }
";
    run_so(work, How { sampled: true, ..How::PLAIN });
}

/// A flow that keeps to its path waited for ever once that was dead: its probes took all paths, and were answered. So did one
/// whose receiver asked for missing packets again and again.
#[test]
fn flows_that_keep_to_a_dead_path_end() {
    let there = "{ from = 0, to = 2, bytes = 1000000 }, { from = 1, to = 3, bytes = 1000000 }";
    let both_ways = format!("{there}, {{ from = 2, to = 0, bytes = 1000000 }}");
    for (flows, at_us) in [(there, 0), (&both_ways, 30)] {
        let flows = format!(
            "\
work = [{{ flows = [{flows}] }}]
engines = {{ scheme = \"single\", paths = 2, warm = true }}
failures = [{{ link = [\"s0\", \"s2\"], both_ways = false, at_us = {at_us}, health = \"dead\" }}]
"
        );
        // Of ten seeds some have a flow on the dead path. The judge asserts that it does not wait.
        let fail = |seed: &u64| {
            let text =
                format!("{flows}{TWO_SPINES}").replace("seed = 1\n", &format!("seed = {seed}\n"));
            judge::run(&Drawn(text), How::PLAIN).1.is_err()
        };
        let failed = (1..=10).filter(fail).count();
        assert!((1..10).contains(&failed), "{failed}: {flows}");
    }
}

/// The meters of queues began a picosecond after links that fail with the work.
#[test]
fn links_fail_as_sampled_work_begins() {
    let work = "\
work = [{ flows = [{ from = 0, to = 2, bytes = 10000 }] }]
engines = { scheme = \"nscc\", warm = true }
failures = [{ link = [\"s0\", \"s2\"], at_us = 0, health = \"dead\" }]
";
    run_so(work, How { sampled: true, ..How::PLAIN });
}
