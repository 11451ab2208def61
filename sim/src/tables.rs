//! The tables under `sim/tables`, with the results of each scheme. A test compares them with the simulator, so a change
//! of a controller shows as a difference.

use crate::link::{Health, Jitter, Overtaking};
use crate::scenario::{Outcome, Scenario, Start};
use crate::schemes;
use crate::time::from_ns;
use crate::trial::{PathTrial, RevivalTrial};
use erd_rd::Nanos;
use std::fmt::Write;
use std::rc::Rc;

/// Seed of every run.
const SEED: u64 = 1;
/// Flow counts of the bottleneck tables.
const FLOWS: [u32; 4] = [1, 2, 8, 32];
/// Flows of a trial with broken paths.
const TRIAL_FLOWS: u32 = 8;
/// Base round trips that a fault lasts, and that its healing is watched.
const FAULT_RTTS: u64 = 200;
/// How long all paths are dead, in RTO.
const DEAD_RTOS: u64 = 10;
/// The path that breaks, or that heals first. Control packets travel on path 0.
const PATH: usize = 3;
/// Base round trips of a measurement with noise: spikes are rare.
const JITTER_RTTS: u64 = 5_000;
/// Messages that the lone flow has outstanding with noise. One is complete when the last of its
/// paths has been polled, so that 8 of them would keep less than the window in flight.
const JITTER_OUTSTANDING: u32 = 32;
/// Packets of its path that overtake a late one, at most.
const LATE_PLACES: u32 = 16;
/// Senders of an incast, and links of its receiver.
const INCAST: [u32; 3] = [32, 256, 1024];
const INCAST_LINKS: [u16; 2] = [1, 8];
/// Base round trips after which an incast is measured: two for the sessions, one for the grants, one for the first packets.
const INCAST_WARM_RTTS: u64 = 8;
/// Base round trips of its measurement: 1,024 senders then send 279 packets each.
const INCAST_RTTS: u64 = 2_000;
/// Hosts of an exchange that send.
const EXCHANGING: u32 = 255;
/// Rate of the links of a first contact, their number, and the lengths of its messages.
const FIRST_BYTES_PER_S: u64 = 12_500_000_000;
const FIRST_LINKS: [u16; 2] = [1, 8];
const FIRST_KIB: [u64; 4] = [4, 64, 2 << 10, 16 << 10];
/// Numbers of flows that begin one after the other.
const LATE_FLOWS: [u32; 3] = [2, 8, 32];
/// Schemes that do not react to congestion. Where their packets are trimmed for ever, each slot of
/// the bottleneck costs dozens of packets, and nothing changes after the first round trips.
const FIXED: [&str; 3] = ["erd", "single", "spray"];
/// Base round trips of their warm-up and of their measurement in that case.
const FIXED_RTTS: u64 = 100;
/// Shortest timeout with noise: above the spikes.
const JITTER_RTO_NS: Nanos = 500_000;

/// A table.
pub struct Table {
    /// Name, and that of its file.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    head: &'static str,
    rows: fn(&str, &mut String),
}

const FLOWS_HEAD: &str = "scheme   flows start   util%   jain least  queue   p99    drops    trims    \
                          marks rtx_nack rtx_probe spurious";

/// All tables.
pub const TABLES: [Table; 10] = [
    Table {
        name: "ecn",
        about: "Flows over 8 paths, 400 Gb/s, 12 us, RED 0.2 to 0.8 BDP, buffer 5 BDP.",
        head: FLOWS_HEAD,
        rows: |scheme, out| bottleneck(scheme, out, |_| ()),
    },
    Table {
        name: "noecn",
        about: "The same without any ECN.",
        head: FLOWS_HEAD,
        rows: |scheme, out| bottleneck(scheme, out, |s| s.net.red_bdp = None),
    },
    Table {
        name: "trimming",
        about: "The same with ECN and trimming, buffer 1 BDP. erd, single and spray do not react: warmed up and\n\
                measured for 100 base round trips instead of 500.",
        head: FLOWS_HEAD,
        rows: |scheme, out| {
            let change = if FIXED.contains(&scheme) { trim_briefly } else { trim };
            bottleneck(scheme, out, change);
        },
    },
    Table {
        name: "jitter",
        about: "A lone flow, noise of the given mean and spikes of 200 us at every path's end; RTO 500 us.",
        head: "scheme   mean_us ecn   util%   jain least  queue   p99    drops rtx_nack rtx_probe spurious",
        rows: jitter,
    },
    Table {
        name: "overtaking",
        about: "One flow and eight, of whose packets some are late within their path by up to 16 packets' time.\n\
                spurious: repeats that were not needed, of all packets.",
        head: "scheme   flows late%   util%   jain least  queue   p99    drops rtx_nack rtx_probe spurious%",
        rows: overtaking,
    },
    Table {
        name: "incast",
        about: "Many hosts begin a stream to one at the same time; it has one link of 400 Gb/s, or eight that share the rate;\n\
                12 us, no ECN, buffer 5 BDP.\n\
                early%: packets dropped in the first 8 base round trips, of those offered; drop%: in the 2,000 after\n\
                these, in which all else is measured.",
        head: "scheme   flows links  early%   util%   jain least  queue   p99    drops   drop%",
        rows: incast,
    },
    Table {
        name: "exchange",
        about: "255 hosts send 64 KiB each to one. When all is there, one of them begins a stream.\n\
                rtts: base round trips until it has 95 % of the link, by the receive buffer that the engine knows.\n\
                erd, single and spray have less than a BDP in flight.",
        head: "scheme   buffer rtts",
        rows: exchange,
    },
    Table {
        name: "first",
        about: "One message to a host with whom no session stands, over one link of 100 Gb/s or eight that share the rate; 12 us.\n\
                known: the base round trip is. us: until it is complete. times: of the base round trip and the time to send it.",
        head: "scheme   links known    KiB       us times",
        rows: first_contact,
    },
    Table {
        name: "late",
        about: "Flows that begin one after the other, as in the table with ECN, with unknown base round trips. The receiver shares\n\
                its link among them, or does not, as where flows of several receivers meet in the network.",
        head: "scheme   flows share ecn   util%   jain least  queue   p99    drops",
        rows: late,
    },
    Table {
        name: "faults",
        about: "8 flows; one path of 8 breaks and heals. Times in RTO of 100 us. left: until it \
                carries less\nthan 5 % of the bytes; back: until it carries half an even share; \
                util%: of the 7 others.\nrevived: until data moves after all were dead for 10 RTO.",
        head: "scheme   ecn   fault     left    back   util% failures",
        rows: faults,
    },
];

impl Table {
    /// The table's text, for some schemes.
    #[must_use]
    pub fn text(&self, schemes: &[&str]) -> String {
        let mut out = format!("{}\n\n{}\n", self.about, self.head);
        for scheme in schemes {
            (self.rows)(scheme, &mut out);
        }
        out
    }

    /// A table by its name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Table> {
        TABLES.iter().find(|table| table.name == name)
    }
}

/// A scenario of a scheme by name.
///
/// # Panics
/// There is no such scheme.
#[must_use]
pub fn scenario(scheme: &str, flows: u32) -> Scenario {
    let name = scheme.to_owned();
    let make = move || schemes::by_name(&name).expect("a scheme of the registry");
    Scenario::new(Rc::new(make), flows, SEED)
}

fn bottleneck(scheme: &str, out: &mut String, change: fn(&mut Scenario)) {
    for start in [Start::Simultaneous, Start::Staggered] {
        for flows in FLOWS {
            let mut scenario = scenario(scheme, flows);
            scenario.start = start;
            change(&mut scenario);
            let o = scenario.run();
            let start = if start == Start::Staggered { "stag" } else { "simul" };
            write!(out, "{scheme:<8} {flows:>5} {start:<5}").expect(FITS);
            reached(out, &o);
            let Outcome { trims, marks, rtx_nack, rtx_probe, rtx_spurious, .. } = o;
            write!(out, " {trims:>8} {marks:>8}").expect(FITS);
            writeln!(out, " {rtx_nack:>8} {rtx_probe:>9} {rtx_spurious:>8}").expect(FITS);
        }
    }
}

fn trim(scenario: &mut Scenario) {
    (scenario.net.trimming, scenario.net.buffer_bdp) = (true, 1.0);
}

fn trim_briefly(scenario: &mut Scenario) {
    trim(scenario);
    (scenario.warmup_rtts, scenario.measured_rtts) = (FIXED_RTTS, FIXED_RTTS);
}

const FITS: &str = "a string takes everything";

fn reached(out: &mut String, o: &Outcome) {
    let Outcome {
        utilisation, jain, least, queue_mean_bdp, queue_p99_bdp, drops, failures, ..
    } = o;
    assert_eq!(*failures, 0, "no operation fails");
    let percent = 100.0 * utilisation;
    write!(out, " {percent:>7.1} {jain:>6.3} {least:>5.2} {queue_mean_bdp:>6.2}").expect(FITS);
    write!(out, " {queue_p99_bdp:>5.2} {drops:>8}").expect(FITS);
}

/// Noise with a mean; one poll in a thousand comes 200 us late.
#[must_use]
pub fn noise(mean_ns: Nanos) -> Jitter {
    Jitter { mean_ps: from_ns(mean_ns), spike_ps: from_ns(200_000), spikes_ppm: 1_000 }
}

/// Hosts whose polls are late by so many us on average, watched for as long as that asks for.
pub fn make_noisy(scenario: &mut Scenario, mean_us: Nanos) {
    scenario.net.jitter = Some(noise(mean_us * 1_000));
    scenario.net.rto_min_ns = JITTER_RTO_NS;
    (scenario.outstanding, scenario.measured_rtts) = (JITTER_OUTSTANDING, JITTER_RTTS);
}

fn jitter(scheme: &str, out: &mut String) {
    for mean_us in [13, 35] {
        for ecn in [true, false] {
            let mut scenario = scenario(scheme, 1);
            make_noisy(&mut scenario, mean_us);
            scenario.net.red_bdp = scenario.net.red_bdp.filter(|_| ecn);
            let o = scenario.run();
            write!(out, "{scheme:<8} {mean_us:>7} {:<3}", yes(ecn)).expect(FITS);
            reached(out, &o);
            let Outcome { rtx_nack, rtx_probe, rtx_spurious, .. } = o;
            writeln!(out, " {rtx_nack:>8} {rtx_probe:>9} {rtx_spurious:>8}").expect(FITS);
        }
    }
}

fn overtaking(scheme: &str, out: &mut String) {
    for flows in [1, TRIAL_FLOWS] {
        for percent in [0, 1, 10] {
            let mut scenario = scenario(scheme, flows);
            let late = Overtaking { share_ppm: percent * 10_000, places: LATE_PLACES };
            scenario.net.overtaking = Some(late);
            let o = scenario.run();
            write!(out, "{scheme:<8} {flows:>5} {percent:>5}").expect(FITS);
            reached(out, &o);
            let Outcome { rtx_nack, rtx_probe, rtx_spurious, packets, .. } = o;
            let spurious = 100.0 * rtx_spurious as f64 / packets.max(1) as f64;
            writeln!(out, " {rtx_nack:>8} {rtx_probe:>9} {spurious:>9.2}").expect(FITS);
        }
    }
}

fn incast(scheme: &str, out: &mut String) {
    for (links, senders) in INCAST_LINKS.into_iter().flat_map(|links| INCAST.map(|n| (links, n))) {
        let mut scenario = scenario(scheme, senders);
        (scenario.net.paths, scenario.net.red_bdp) = (links, None);
        (scenario.warmup_rtts, scenario.measured_rtts) = (0, INCAST_WARM_RTTS);
        let early = scenario.run();
        (scenario.warmup_rtts, scenario.measured_rtts) = (INCAST_WARM_RTTS, INCAST_RTTS);
        let o = scenario.run();
        let percent = |o: &Outcome| 100.0 * o.drops as f64 / o.packets.max(1) as f64;
        write!(out, "{scheme:<8} {senders:>5} {links:>5} {:>7.2}", percent(&early)).expect(FITS);
        reached(out, &o);
        writeln!(out, " {:>7.2}", percent(&o)).expect(FITS);
    }
}

fn exchange(scheme: &str, out: &mut String) {
    if FIXED.contains(&scheme) {
        return;
    }
    for (buffer, bytes) in [("4 MiB", 4 << 20), ("any", u32::MAX)] {
        let mut scenario = scenario(scheme, EXCHANGING);
        scenario.net.recv_buffer_bytes = bytes;
        let rtts = scenario.stream_after_exchange();
        let rtts = rtts.map_or("never".to_owned(), |rtts| rtts.to_string());
        writeln!(out, "{scheme:<8} {buffer:>6} {rtts:>4}").expect(FITS);
    }
}

fn first_contact(scheme: &str, out: &mut String) {
    for (links, known) in FIRST_LINKS.into_iter().flat_map(|links| [(links, true), (links, false)])
    {
        for kib in FIRST_KIB {
            let mut scenario = scenario(scheme, 1);
            (scenario.net.link_bytes_per_s, scenario.net.paths) = (FIRST_BYTES_PER_S, links);
            scenario.net.base_known = known;
            let taken_us = scenario.one_message_us(kib << 10);
            let sending_us = (kib << 10) as f64 / scenario.net.payload_bytes_per_s() * 1e6;
            let times = taken_us / (sending_us + scenario.net.base_rtt_ns as f64 / 1e3);
            let known = yes(known);
            write!(out, "{scheme:<8} {links:>5} {known:<5} {kib:>6}").expect(FITS);
            writeln!(out, " {taken_us:>8.1} {times:>5.2}").expect(FITS);
        }
    }
}

fn late(scheme: &str, out: &mut String) {
    if FIXED.contains(&scheme) {
        return;
    }
    for (share, ecn) in [(true, true), (true, false), (false, true), (false, false)] {
        for flows in LATE_FLOWS {
            let mut scenario = scenario(scheme, flows);
            (scenario.start, scenario.net.base_known) = (Start::Staggered, false);
            scenario.net.red_bdp = scenario.net.red_bdp.filter(|_| ecn);
            if !share {
                scenario.share_no_link();
            }
            let o = scenario.run();
            write!(out, "{scheme:<8} {flows:>5} {:<5} {:<3}", yes(share), yes(ecn)).expect(FITS);
            reached(out, &o);
            out.push('\n');
        }
    }
}

fn yes(ecn: bool) -> &'static str {
    if ecn { "yes" } else { "no" }
}

fn faults(scheme: &str, out: &mut String) {
    let faults = [
        ("slowed", Health::Slowed { times: 8 }),
        ("lossy", Health::Lossy { share: 0.05 }),
        ("dead", Health::Dead),
    ];
    let time = |rtos: Option<f64>| rtos.map_or("never".to_owned(), |t| format!("{t:.1}"));
    // What never left cannot come back.
    let after = |left: Option<f64>, back| left.map_or("-".to_owned(), |_| time(back));
    for ecn in [true, false] {
        let mut scenario = scenario(scheme, TRIAL_FLOWS);
        scenario.net.red_bdp = scenario.net.red_bdp.filter(|_| ecn);
        for (name, fault) in faults {
            let scenario = scenario.clone();
            let o = PathTrial { scenario, path: PATH, fault, held_rtts: FAULT_RTTS }.run();
            let (left, back) = (time(o.left_rtos), after(o.left_rtos, o.back_rtos));
            let (util, failures) = (100.0 * o.utilisation, o.failures);
            write!(out, "{scheme:<8} {:<5} {name:<8}", yes(ecn)).expect(FITS);
            writeln!(out, " {left:>5} {back:>7} {util:>7.1} {failures:>8}").expect(FITS);
        }
        for path in [0, PATH] {
            let trial = RevivalTrial { scenario: scenario.clone(), path, dead_rtos: DEAD_RTOS };
            let revived = time(trial.run());
            let ecn = yes(ecn);
            writeln!(out, "{scheme:<8} {ecn:<5} all dead, path {path} heals, revived: {revived}")
                .expect(FITS);
        }
    }
}
