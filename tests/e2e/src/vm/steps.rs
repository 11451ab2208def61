//! Steps of `cargo xtask test` in the virtual machine: the provider between two Soft-RoCE devices. One boot runs
//! `tests/vm/verbs.sh`; each step then judges the results of one of its cases. The short tier leaves out mpi4py's
//! tests, and MPI over networks that lose or delay packets.

use super::{Machine, PACKAGES, Ran, nics};
use crate::fabric::Counters;
use crate::layout::Layout;
use crate::mpi::Kind;
use crate::mpi4py;
use crate::process::{Job, last_lines};
use crate::programs::compile;
use crate::report::{Done, Report};
use crate::sanitizers::{self, Sanitizer};
use crate::setup;
use anyhow::{Context, Result, bail, ensure};
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most time for the boot and the cases of the short tier, and for those of the full one.
const LIMIT: Duration = Duration::from_secs(900);
const FULL_LIMIT: Duration = Duration::from_secs(5000);
/// Tests of mpi4py that each run of its suite has: 23 point to point, 10 collective.
const SUITE_TESTS: usize = 33;
/// C programs that the script runs.
const PROGRAMS: &[&str] = &[
    "tests/c/messages",
    "tests/c/memory",
    "tests/c/registered",
    "tests/c/nccl_sendrecv",
    "tests/c/many_peers",
    "tests/c/peer_death",
    "tests/c/nics",
];

/// A shell's exit statuses for SIGILL, SIGABRT, SIGBUS and SIGSEGV.
const CRASHES: [&str; 4] = ["132", "134", "135", "139"];

/// Carrier of a case's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Verbs,
    Udp,
}

/// One case of the script.
struct Case {
    name: &'static str,
    shown: &'static str,
    /// Payload that both sides received, or sent, together at least.
    bytes: u64,
    carrier: Carrier,
    /// True if packets were lost, so that some must have been sent again.
    lossy: bool,
    /// Errors are as good as success; a crash is not.
    may_fail: bool,
    /// It is a run of mpi4py's tests.
    suite: bool,
    /// Bytes that verbs sent without copying them, at least.
    uncopied_bytes: u64,
    /// All bytes of verbs except headers go without a copy: of 28 messages not one is copied.
    all_uncopied: bool,
    /// Both sides have a job's key: nothing goes without a copy, and nothing is taken for forged.
    keyed: bool,
}

/// Headers are one part at most in so many of what verbs sends; a message of the cases is more.
const HEADERS_PART: u64 = 32;

const fn case(name: &'static str, shown: &'static str, bytes: u64) -> Case {
    let carrier = Carrier::Verbs;
    let (lossy, may_fail, suite, keyed) = (false, false, false, false);
    let (uncopied_bytes, all_uncopied) = (0, false);
    Case {
        name,
        shown,
        bytes,
        carrier,
        lossy,
        may_fail,
        suite,
        uncopied_bytes,
        all_uncopied,
        keyed,
    }
}

const CASES: &[Case] = &[
    case("small", "fi_pingpong, 64 B", 2 * 1000 * 64),
    case("middle", "fi_pingpong, 4 KiB", 2 * 100 * (4 << 10)),
    case("memory", "requests to memory", 1),
    case("large", "fi_pingpong, 256 KiB", 2 * 8 * (256 << 10)),
    Case {
        carrier: Carrier::Udp,
        ..case("mixed", "fi_pingpong with a peer that has UDP alone", 2 * 8 * (64 << 10))
    },
    Case {
        uncopied_bytes: 2 * 8 * (256 << 10),
        all_uncopied: true,
        ..case("uncopied", "fi_pingpong, 256 KiB without a copy", 2 * 14 * (256 << 10))
    },
    Case {
        uncopied_bytes: 4 << 20,
        ..case("registered", "memory that is sent without a copy", 4 << 20)
    },
    Case { uncopied_bytes: 16 << 20, ..case("nccl", "NCCL's calls, without a copy", 32 << 20) },
    Case {
        uncopied_bytes: 2 * 8 * (256 << 10),
        all_uncopied: true,
        lossy: true,
        ..case("uncopied_loss1", "fi_pingpong without a copy, 1 % loss", 2 * 10 * (256 << 10))
    },
    Case { keyed: true, ..case("keyed", "fi_pingpong, 256 KiB with a key", 2 * 10 * (256 << 10)) },
    Case { keyed: true, ..case("keyed_memory", "requests to memory, with a key", 1) },
    Case {
        keyed: true,
        ..case("keyed_registered", "registered memory, endpoints with keys of their own", 4 << 20)
    },
    Case { lossy: true, ..case("loss1", "fi_pingpong, 1 % loss", 2 * 20 * (64 << 10)) },
    Case {
        keyed: true,
        lossy: true,
        ..case("keyed_loss1", "fi_pingpong with a key, 1 % loss", 2 * 20 * (64 << 10))
    },
    case("jitter", "fi_pingpong, 5 ms jitter", 2 * 20 * (64 << 10)),
    Case {
        lossy: true,
        ..case("both", "fi_pingpong, 5 ms jitter and 1 % loss", 2 * 20 * (64 << 10))
    },
    case("messages", "messages of all kinds", 1 << 20),
    case("peers", "queue pairs, sockets and memory, 1 to 256 peers", 32 << 20),
    case("death", "peers that die and come back", 1),
    case("mpi", "MPICH 5 (wheel), 4 ranks", 1 << 10),
    Case { may_fail: true, ..case("down", "fi_pingpong, the link goes down", 64 << 10) },
    // Half of the traffic: it begins by UDP.
    case("again", "fi_pingpong, the link is up again", 64 * (64 << 10)),
];

const fn mpi(name: &'static str, shown: &'static str, lossy: bool) -> Case {
    Case { lossy, ..case(name, shown, 1 << 20) }
}

const fn suite(name: &'static str, shown: &'static str, lossy: bool) -> Case {
    Case { suite: true, lossy, ..case(name, shown, 1 << 10) }
}

/// Those that only the full tier has.
const FULL_CASES: &[Case] = &[
    case("stress", "many threads at once", 1 << 20),
    Case { lossy: true, ..case("stress_loss1", "many threads at once, 1 % loss", 1 << 20) },
    mpi("mpi_loss1", "MPICH 5 (wheel), 4 ranks, 1 % loss", true),
    mpi("mpi_jitter", "MPICH 5 (wheel), 4 ranks, 5 ms jitter", false),
    mpi("mpi_both", "MPICH 5 (wheel), 4 ranks, 5 ms jitter and 1 % loss", true),
    suite("suite", "mpi4py's tests of objects, 4 ranks", false),
    suite("suite_loss1", "mpi4py's tests of objects, 4 ranks, 1 % loss", true),
    suite("suite_jitter", "mpi4py's tests of objects, 4 ranks, 5 ms jitter", false),
    suite("suite_both", "mpi4py's tests of objects, 4 ranks, 5 ms jitter and 1 % loss", true),
];

/// Tests that the queue pairs have; see port/src/verbs/device_tests.rs.
const DEVICE_TESTS: usize = 15;

/// Adds the steps.
pub fn steps(report: &mut Report, layout: &Layout, full: bool) {
    let text = |error: anyhow::Error| format!("{error:#}");
    let machine: OnceCell<Result<Machine, String>> = OnceCell::new();
    let found = || machine.get_or_init(|| machine_for(layout).map_err(text));
    let ran: OnceCell<Result<Ran, String>> = OnceCell::new();
    let get = |machine: &Machine, log: &Path| {
        let ran = ran.get_or_init(|| boot(layout, machine, full, log).map_err(text));
        ran.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    };
    let cases = CASES.iter().chain(if full { FULL_CASES } else { &[] });
    for case in cases {
        report.step(&format!("Soft-RoCE: {}", case.shown), |log| match found() {
            Ok(machine) => judge(case, get(machine, log)?),
            Err(why) => Ok(Done::Skipped(why.clone())),
        });
    }
    report.step("Soft-RoCE: queue pairs", |log| match found() {
        Ok(machine) => device_tests(get(machine, log)?),
        Err(why) => Ok(Done::Skipped(why.clone())),
    });
    report.step("Soft-RoCE: a node of eight NICs, a VLAN and a bond", |log| match found() {
        Ok(machine) => nics::judge(get(machine, log)?),
        Err(why) => Ok(Done::Skipped(why.clone())),
    });
    report.step("Soft-RoCE: captured packets", |log| match found() {
        Ok(machine) => captured(layout, get(machine, log)?, log),
        Err(why) => Ok(Done::Skipped(why.clone())),
    });
}

/// The needs of a machine that a host may lack.
fn machine_for(layout: &Layout) -> Result<Machine> {
    let why = "there can be no virtual machine here";
    setup::packages(layout, PACKAGES).context(why)?;
    Machine::prepare(layout).context(why)
}

fn boot(layout: &Layout, machine: &Machine, full: bool, log: &Path) -> Result<Ran> {
    let programs = PROGRAMS.iter().map(|source| compile(layout, source));
    let programs: Vec<_> = programs.collect::<Result<_>>()?;
    let dir = programs.first().and_then(|program| program.parent()).context("no programs")?;
    let suite = if full { mpi4py::source(layout, log)?.join("test") } else { PathBuf::new() };
    let (device_tests, library_tests) = test_programs(layout, full, log)?;
    let script = format!(
        "export PROVIDERS={} ERD={} PROGRAMS={} MPICH={} SUITE={} DEVICE_TESTS={} LIBRARY_TESTS={} STRESS={}\n\
         . tests/vm/verbs.sh\n. tests/vm/nics.sh\n",
        layout.provider_dir().display(),
        setup::build_tool(layout)?.display(),
        dir.display(),
        setup::venv(layout, Kind::Mpich.venv())?.display(),
        suite.display(),
        device_tests.display(),
        library_tests.display(),
        sanitizers::STRESS,
    );
    let ran = machine.run(&script, if full { FULL_LIMIT } else { LIMIT }, log)?;
    ensure!(ran.status == 0, "the script ended with {}:\n{}", ran.status, ran.output);
    Ok(ran)
}

/// The programs with the tests of the ports and of the library; for the full tier they are built with
/// AddressSanitizer.
fn test_programs(layout: &Layout, full: bool, log: &Path) -> Result<(PathBuf, PathBuf)> {
    let found = if full && sanitizers::missing().is_none() {
        Sanitizer::Address.tests(layout, log)?
    } else {
        sanitizers::unit_tests(layout, &sanitizers::PACKAGES, log)?
    };
    let of = |package| sanitizers::of_package(&found, package).map(PathBuf::from);
    Ok((of(sanitizers::PORT)?, of(sanitizers::LIBRARY)?))
}

fn device_tests(ran: &Ran) -> Result<Done> {
    let (status, output) = (read(ran, "queues.status")?, read(ran, "queues.output")?);
    let passed = format!("test result: ok. {DEVICE_TESTS} passed");
    let script = read(ran, "script")?;
    let how = if script.contains("/asan/") { "AddressSanitizer" } else { "no sanitizer" };
    if status.trim() != "0 0" || !output.contains(&passed) {
        bail!("exit statuses {}\n{}", status.trim(), last_lines(&output, 60));
    }
    Done::many(DEVICE_TESTS, format!("{DEVICE_TESTS} pass, {how}"))
}

fn read(ran: &Ran, name: &str) -> Result<String> {
    fs::read_to_string(ran.out.join(name)).with_context(|| format!("the script left no {name}"))
}

fn judge(case: &Case, ran: &Ran) -> Result<Done> {
    let status = read(ran, &format!("{}.status", case.name))?;
    let output = read(ran, &format!("{}.output", case.name))?;
    let crashed = status.split_whitespace().any(|status| CRASHES.contains(&status));
    if crashed || (status.trim() != "0 0" && !case.may_fail) {
        bail!("exit statuses {}\n{}", status.trim(), last_lines(&output, 30));
    }
    let counters = Counters::at(ran.out.join(format!("{}.stats", case.name)));
    let sums = counters.read()?;
    let remark = sums.remark();
    // A killed process writes no counters, so either direction counts.
    let most = |names: [&str; 2]| names.map(|name| sums.get(name)).into_iter().max().unwrap_or(0);
    let carried = most(["rx_payload_bytes", "tx_payload_bytes"]);
    let by_verbs = most(["verbs_rx_bytes", "verbs_tx_bytes"]);
    ensure!(carried >= case.bytes, "erd carried {carried} bytes, of {} at least", case.bytes);
    match case.carrier {
        Carrier::Verbs => ensure!(
            by_verbs >= case.bytes / 2,
            "verbs carried {by_verbs} bytes only, of {} at least: {remark}",
            case.bytes
        ),
        Carrier::Udp => ensure!(by_verbs == 0, "verbs carried {by_verbs} bytes to a peer without"),
    }
    let uncopied = sums.get("verbs_tx_uncopied_bytes");
    ensure!(
        uncopied >= case.uncopied_bytes,
        "{uncopied} bytes were not copied, of {} at least",
        case.uncopied_bytes
    );
    let sent = sums.get("verbs_tx_bytes");
    ensure!(
        !case.all_uncopied || sent.saturating_sub(uncopied) <= sent / HEADERS_PART,
        "{uncopied} of {sent} bytes were not copied, and not all but the headers"
    );
    if case.keyed {
        ensure!(uncopied == 0, "a device sent {uncopied} bytes that were not copied, with a key");
        for name in ["port_forged", "port_other_key", "drops.forged", "drops.other_key"] {
            ensure!(sums.get(name) == 0, "{} packets of the peer's are {name}", sums.get(name));
        }
    }
    if case.lossy {
        ensure!(sums.retransmissions() > 0, "nothing was lost: {remark}");
    }
    let told = output.lines().filter(|line| line.starts_with("  ")).map(str::trim);
    let told: Vec<&str> = told.chain([remark.as_str()]).collect();
    let told = format!("{}; verbs: {by_verbs} B", told.join("; "));
    if case.suite { suite_passed(case, ran, &told) } else { Done::one(told) }
}

/// Every test of the suite's run passed in every rank.
fn suite_passed(case: &Case, ran: &Ran, told: &str) -> Result<Done> {
    let outcomes = mpi4py::outcomes(&ran.out.join(format!("{}.results", case.name)))?;
    let failed: Vec<&String> =
        outcomes.iter().filter(|(_, passed)| !**passed).map(|(id, _)| id).collect();
    ensure!(failed.is_empty(), "{} tests failed: {failed:?}", failed.len());
    ensure!(outcomes.len() >= SUITE_TESTS, "{} tests ran, of {SUITE_TESTS}", outcomes.len());
    Done::many(outcomes.len(), format!("{} pass; {told}", outcomes.len()))
}

/// With a key all port datagrams have proofs, and what verbs carries has a counter.
fn keyed_captured(tshark: &dyn Fn(&str) -> Result<Vec<String>>) -> Result<()> {
    for kind in 1..=4 {
        let found = tshark(&format!("erd.port.kind == {kind} && erd.key_id && erd.proof"))?;
        ensure!(!found.is_empty(), "no port datagram of kind {kind} with a proof");
    }
    let bare = tshark("erd.port.kind && !erd.proof || udp.port == 4791 && erd && !erd.proof")?;
    ensure!(bare.is_empty(), "{} packets have no proof: {}", bare.len(), bare.join(" "));
    ensure!(!tshark("udp.port == 4791 && erd.counter")?.is_empty(), "no session over verbs");
    Ok(())
}

/// The packets are RoCE v2 UD packets that hold erd's, as the dissector reads them: among those on
/// port 4791 are long messages' segments and acknowledgements, and nothing that is malformed.
fn captured(layout: &Layout, ran: &Ran, log: &Path) -> Result<Done> {
    let script = format!("lua_script:{}", layout.root.join("wireshark/erd.lua").display());
    let read = |file: &str, filter: &str| -> Result<Vec<String>> {
        let file = ran.out.join(file);
        let output = Job::new("tshark")
            .args(["-r".as_ref(), file.as_os_str()])
            // The ports are any: a protocol that owns one would take erd's packets.
            .args(["-o", "udp.try_heuristic_first:TRUE"])
            .args(["-X", &script, "-Y", filter, "-T", "fields", "-E", "separator=,"])
            .args(["-e", "erd.kind", "-e", "infiniband.bth.opcode", "-e", "erd.port.kind"])
            .run(log)?;
        Ok(output.lines().filter(|line| line.contains(',')).map(str::to_owned).collect())
    };
    let tshark = |filter: &str| read("capture.pcap", filter);
    let bad = "_ws.malformed || erd.malformed || (udp.port == 4791 && !erd)";
    let bad = [tshark(bad)?, read("memory.pcap", bad)?, read("keyed.pcap", bad)?].concat();
    ensure!(bad.is_empty(), "{} packets are not read: {}", bad.len(), bad.join(" "));
    keyed_captured(&|filter| read("keyed.pcap", filter))?;
    let over_verbs = tshark("udp.port == 4791 && erd")?;
    let is_ud = |line: &&String| line.split(',').nth(1) == Some("101");
    ensure!(over_verbs.iter().all(|line| is_ud(&line)), "not all are UD sends with immediate data");
    let over_udp = tshark("erd && !infiniband")?;
    ensure!(!tshark("erd.flags.ack == 1")?.is_empty(), "nothing rides on a segment");
    for record in 6..=11 {
        let found = read("memory.pcap", &format!("erd.record == {record}"))?;
        ensure!(!found.is_empty(), "no record of kind {record} in the capture of requests");
    }
    for (what, lines, wanted) in [
        ("data over verbs", &over_verbs, "0,101,"),
        ("checks over verbs", &over_verbs, ",101,3"),
        ("hellos over UDP", &over_udp, "3,,"),
        ("questions over UDP", &over_udp, ",,1"),
    ] {
        ensure!(lines.iter().any(|line| line == wanted), "no {what} ({wanted}) among {lines:?}");
    }
    Done::many(
        over_verbs.len() + over_udp.len(),
        format!("{} packets over verbs, {} over UDP", over_verbs.len(), over_udp.len()),
    )
}
