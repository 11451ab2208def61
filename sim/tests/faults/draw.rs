//! What a seed stands for: a scenario file. `erd-sim scenario` runs the text as well, and so do the tests of what the seeds
//! found.

use super::breaks::{BEGIN_US, failures};
use super::dice::Dice;
use super::due::{Due, Expected, due};
use super::networks::{Kind, network};
use erd_rd::cc::schemes::{NAMES, profiles};
use erd_sim::read::scenario::{Prepared, ScenarioFile};
use erd_sim::schemes::BASELINES;
use std::fmt::{self, Write};
use std::path::Path;

/// A scenario file. Its `Debug` form is the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Drawn(pub String);

impl fmt::Debug for Drawn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Drawn {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Drawn {
        let mut dice = Dice::new(seed);
        let speech =
            dice.pick(&[Speech::Erd, Speech::Erd, Speech::Erd, Speech::Roce, Speech::Eqds]);
        let mut text = format!("seed = {seed}\n");
        if speech == Speech::Erd && dice.chance(0.1) {
            text += "wire = \"htsim\"\n";
        }
        let links = links(&mut dice, speech);
        let network = network(&mut dice, links.rate_gbps);
        text += &links.text;
        text += &network.text;
        text += &switches(&mut dice, speech, network.kind, &links);
        text += &hosts(&mut dice, links.rate_gbps);
        text += &match speech {
            Speech::Erd => self::engines(&mut dice),
            Speech::Roce => roce(&mut dice),
            Speech::Eqds => eqds(&mut dice),
        };
        text += &work(&mut dice, network.hosts);
        let Prepared { plan, .. } = Drawn(text.clone()).prepare();
        let failures = failures(&mut dice, &plan, &network);
        text += &failures.text;
        let limit_ms = failures.limit_ms.min(most_ms(&Drawn(text.clone()).prepare()));
        Drawn(format!("limit_ms = {limit_ms}\n{text}"))
    }

    /// The same with hosts that take packets out of order as fast as others; `None` if these do.
    pub fn with_free_reordering(&self) -> Option<Drawn> {
        self.without("reorder_ns = ")
    }

    /// The same without information paths; `None` if there are none.
    pub fn without_info_path(&self) -> Option<Drawn> {
        self.without("info_path = ")
    }

    /// The file without the line that begins like this.
    fn without(&self, begin: &str) -> Option<Drawn> {
        let is_kept = |line: &&str| !line.starts_with(begin);
        let kept: String = self.0.split_inclusive('\n').filter(is_kept).collect();
        (kept.len() < self.0.len()).then_some(Drawn(kept))
    }

    /// Reads the file.
    pub fn prepare(&self) -> Prepared {
        let file = ScenarioFile::read("seed.toml", &self.0);
        let prepared = file.and_then(|file| file.prepare(Path::new("")));
        prepared.unwrap_or_else(|error| panic!("{error} in\n{}", self.0))
    }
}

/// Bytes that all hosts together send at most where they may go on for ever and nothing has to arrive. A run then has some
/// million events.
const WAITING_BYTES_MAX: u64 = 1 << 29;
/// Such a run is no shorter: links have failed by then.
const WAITING_MS_MIN: u64 = 5;

/// How long a run may take.
fn most_ms(Prepared { plan, work, engines, failures, .. }: &Prepared) -> u64 {
    let expected = due(plan, work.flows(), engines, failures);
    if !matches!(expected, Expected { due: Due::Fails | Due::Either, may_send_on: true, .. }) {
        return u64::MAX;
    }
    let of_hosts = plan.links().iter().filter(|link| link.from.0 < plan.hosts());
    let sent: u64 = of_hosts.filter_map(|link| link.config.bytes_per_s).sum();
    WAITING_MS_MIN.max(WAITING_BYTES_MAX * 1_000 / sent)
}

/// What hosts speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speech {
    Erd,
    Roce,
    Eqds,
}

/// What all links are like.
struct Links {
    text: String,
    rate_gbps: f64,
    trimming: bool,
}

fn links(dice: &mut Dice, speech: Speech) -> Links {
    let rate_gbps = dice.pick(&[10.0, 40.0, 100.0, 400.0]);
    let queue = dice.spread(9_000.0, 300_000.0) as u64;
    let delay = dice.spread(50.0, 5_000.0);
    let mut text = format!("[links]\nrate_gbps = {rate_gbps}\ndelay_ns = {delay:.3}\n");
    let _ = writeln!(text, "queue = {{ bytes = {queue} }}");
    // Where nothing is marked nothing slows RoCEv2 down. Packets of several senders in step can then be lost for ever.
    if speech == Speech::Roce || dice.chance(0.7) {
        let (min, max) = (queue / dice.between(4, 20), queue - queue / dice.between(5, 20));
        let most = dice.pick(&[0.1, 1.0, 1.0]);
        let _ = writeln!(
            text,
            "red = {{ min = {{ bytes = {min} }}, max = {{ bytes = {max} }}, most = {most} }}"
        );
    }
    // EQDS lives by it.
    let trimming = dice.chance(if speech == Speech::Eqds { 0.8 } else { 0.3 });
    let control_first = dice.chance(0.5);
    let _ = writeln!(text, "trimming = {trimming}\ncontrol_first = {control_first}");
    Links { text, rate_gbps, trimming }
}

/// Switches that balance by flowlets, pause senders, or route around dead links.
fn switches(dice: &mut Dice, speech: Speech, kind: Kind, links: &Links) -> String {
    let mut text = "[switches]\n".to_owned();
    if dice.chance(0.1) {
        let gap = dice.spread(0.5, 100.0);
        let _ = writeln!(text, "balancing = \"flowlet\"\nflowlet_gap_us = {gap:.3}");
    }
    // Pauses can hold each other up for ever where links form rings, as in any such network, so that only trees have them.
    let can_pause = kind == Kind::Tree && !links.trimming;
    if can_pause && dice.chance(if speech == Speech::Roce { 0.7 } else { 0.15 }) {
        let xoff = dice.between(10_000, 60_000);
        let xon = xoff - dice.between(1_000, 9_000);
        let pfc = dice.pick(&[
            "alpha = 0.005".to_owned(),
            "alpha = 0.05".to_owned(),
            format!("xoff = {{ bytes = {xoff} }}, xon = {{ bytes = {xon} }}"),
        ]);
        let _ = writeln!(text, "pfc = {{ memory = {{ us = 400 }}, {pfc} }}");
    }
    if !kind.is_told() && dice.chance(0.25) {
        let detect = dice.spread(1.0, 1_000.0);
        let converge = detect + dice.spread(1.0, 10_000.0);
        let _ = writeln!(
            text,
            "rerouting = {{ detect_us = {detect:.3}, converge_us = {converge:.3} }}"
        );
    }
    text
}

/// What lies between hosts' links and engines.
fn hosts(dice: &mut Dice, rate_gbps: f64) -> String {
    if dice.chance(0.7) {
        return String::new();
    }
    let mut text = "[hosts]\n".to_owned();
    if dice.chance(0.5) {
        let _ = writeln!(text, "reorder_ns = {:.3}", dice.spread(1.0, 3_000.0));
    }
    match dice.between(0, 2) {
        0 => {
            let _ = writeln!(text, "ring_packets = {}", dice.spread(4.0, 300.0) as u32);
        }
        1 => {
            let _ = writeln!(text, "ring_bytes = {}", dice.spread(9_000.0, 500_000.0) as u32);
        }
        _ => {}
    }
    let delay = dice.spread(10.0, 20_000.0);
    text += &match dice.between(0, 4) {
        0 => String::new(),
        1 => format!("delay = {{ constant_ns = {delay:.3} }}\n"),
        2 => format!("delay = {{ uniform_ns = [{:.3}, {delay:.3}] }}\n", delay * dice.unit()),
        3 => format!("delay = {{ exponential_ns = {delay:.3} }}\n"),
        _ => {
            let shape = 1.0 + dice.unit();
            format!(
                "delay = {{ pareto_ns = {{ min = {delay:.3}, shape = {shape:.2}, max = 1000000 }} }}\n"
            )
        }
    };
    if dice.chance(0.5) {
        let _ = writeln!(text, "packet_ns = {:.3}", dice.spread(1.0, 2_000.0));
    }
    if dice.chance(0.5) {
        let _ = writeln!(text, "rate_gbps = {}", rate_gbps * dice.pick(&[0.5, 1.0, 2.0]));
    }
    text
}

/// RoCEv2 with settings.
fn roce(dice: &mut Dice) -> String {
    let (qps, acks) = (dice.pick(&[1, 1, 2, 4, 16]), dice.pick(&[1, 4, 16]));
    let (rto, timer) = (dice.pick(&[500, 1_000, 5_000]), dice.pick(&[5, 55, 500]));
    let (cnp, counter) = (dice.pick(&[0, 4, 50]), dice.pick(&[100, 10_000]));
    format!(
        "[engines]\nscheme = \"roce\"\nsettings = {{ qps = {qps}, ack_packets = {acks}, rto_us = {rto}, \
         timer_us = {timer}, cnp_us = {cnp}, byte_counter_kb = {counter} }}\n"
    )
}

/// EQDS with settings.
fn eqds(dice: &mut Dice) -> String {
    let (paths, acks) = (dice.pick(&[1, 2, 8, 64, 256]), dice.pick(&[1, 4, 32]));
    let (rto, window) = (dice.pick(&[50, 100, 1_000]), dice.spread(0.05, 4.0));
    let rate = dice.pick(&[0.5, 0.99, 1.0]);
    format!(
        "[engines]\nscheme = \"eqds\"\nsettings = {{ paths = {paths}, ack_packets = {acks}, rto_us = {rto}, \
         window_bdp = {window:.3}, pull_rate = {rate} }}\n"
    )
}

fn engines(dice: &mut Dice) -> String {
    let name = dice.pick(&[NAMES, BASELINES].concat());
    let mut name = match profiles(name) {
        [] => name.to_owned(),
        profiles => format!("{name}:{}", dice.pick(profiles)),
    };
    if dice.chance(0.1) {
        name += "+oblivious";
    }
    let paths = dice.pick(&[1, 2, 4, 8, 16, 64, 256]);
    let rto = dice.pick(&[20, 50, 100, 1_000]);
    let (base_known, warm) = (dice.chance(0.7), dice.chance(0.4));
    let learned = warm && dice.chance(0.2);
    let info_path = if dice.chance(0.2) { info_path(dice) } else { String::new() };
    format!(
        "[engines]\nscheme = \"{name}\"\npaths = {paths}\nrto_min_us = {rto}\nbase_known = {base_known}\nwarm = {warm}\n\
         learned = {learned}\n{info_path}"
    )
}

/// Streams that carry acknowledgements.
fn info_path(dice: &mut Dice) -> String {
    let carries = dice.pick(&["acks", "nacks"]);
    let timeout = match dice.between(0, 2) {
        0 => String::new(),
        _ => format!(", rto_min_us = {:.3}", dice.spread(5.0, 200_000.0)),
    };
    format!("info_path = {{ carries = \"{carries}\"{timeout} }}\n")
}

/// The length of a message.
fn bytes(dice: &mut Dice) -> u64 {
    let most = dice.pick(&[1.0, 5_000.0, 60_000.0, 300_000.0, 300_000.0]);
    if dice.chance(0.4) { dice.between(1, most as u64) } else { dice.spread(1.0, most) as u64 }
}

fn work(dice: &mut Dice, hosts: u64) -> String {
    let mut text = String::new();
    for _ in 0..dice.between(1, 2) {
        text += "[[work]]\n";
        if dice.chance(0.5) {
            text += &flows(dice, hosts);
        } else {
            text += &pattern(dice, hosts);
        }
    }
    text
}

/// Messages at random, some of which wait for others.
fn flows(dice: &mut Dice, hosts: u64) -> String {
    let mut text = "flows = [\n".to_owned();
    let mut ends: Vec<(u64, u64)> = Vec::new();
    for at in 0..dice.between(1, 12) {
        let (mut from, len) = (dice.between(0, hosts - 1), bytes(dice));
        let mut after = String::new();
        if at > 0 && dice.chance(0.4) {
            let first = dice.index(ends.len());
            from = ends[first].1;
            after = format!(", after = {first}");
        }
        let to = (from + dice.between(1, hosts - 1)) % hosts;
        let start = if dice.chance(0.5) { 0.0 } else { dice.unit() * BEGIN_US };
        let _ = writeln!(
            text,
            "  {{ from = {from}, to = {to}, bytes = {len}, start_us = {start:.3}{after} }},"
        );
        ends.push((from, to));
    }
    text + "]\n"
}

fn pattern(dice: &mut Dice, hosts: u64) -> String {
    let (len, most) = (bytes(dice), hosts - 1);
    let start = dice.pick(&[0, 1_000, 100_000]);
    match dice.between(0, 3) {
        0 => format!(
            "pattern = {{ pattern = \"permutation\", message_bytes = {len}, start_spread_ns = {start} }}\n"
        ),
        1 => format!(
            "pattern = {{ pattern = \"incast\", message_bytes = {len}, senders = {}, start_spread_ns = {start} }}\n",
            dice.between(1, most)
        ),
        2 => format!(
            "pattern = {{ pattern = \"all-to-all\", message_bytes = {}, window_messages = {}, start_spread_ns = {start} }}\n",
            len / most + 1,
            dice.between(1, most)
        ),
        _ => {
            // The other algorithms reduce and gather for some numbers of hosts alone.
            let (operation, algorithm) = dice.pick(&[
                ("all-reduce", "ring"),
                ("all-reduce", "halving-doubling"),
                ("all-reduce", "double-tree"),
                ("reduce-scatter", "ring"),
                ("all-gather", "ring"),
            ]);
            let (len, reduce) = (len.max(hosts), dice.pick(&[0.0, 10.0, 1_000.0]));
            format!(
                "pattern = {{ pattern = \"collective\", operation = \"{operation}\", algorithm = \"{algorithm}\", data_bytes = {len}, reduce_ps_per_byte = {reduce} }}\n"
            )
        }
    }
}
