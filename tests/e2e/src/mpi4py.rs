//! mpi4py's own test suite over the provider: tests that pass over tcp must pass here too.

use crate::fabric::Provider;
use crate::layout::{Layout, empty};
use crate::mpi::{KINDS, Kind, Mpi};
use crate::process::{Job, append};
use crate::report::{Done, Report};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The source distribution that has the tests; the version of tests/mpi/requirements-*.txt.
const SOURCE: &str = "mpi4py==4.1.2";
/// Time for one run of the suite.
const LIMIT: Duration = Duration::from_secs(1500);
/// Tests that start processes: they test the launcher, not the provider, and hang in containers.
const SKIPPED: &[&str] = &["test_spawn.", "test_dynproc."];
/// Tests that hang or crash with Open MPI 4.1 on any provider. All but the first wait for a
/// synchronous send that is received by `MPI_Mrecv`, which does not acknowledge it over libfabric
/// (seen over `tcp;ofi_rxm`, `udp;ofi_rxd` and `sockets`).
const SKIPPED_OMPI41: &[&str] = &[
    "testAlltoallwBottom",
    "testCancel",
    "testISSendAndRecv",
    "testManyISSendAndRecv",
    "testProbe",
    "testTestSomeSend",
    "testWaitSomeSend",
    "testSSendAndRecv",
    "test_util_pkl5.",
];

/// A test that sometimes fails with MPICH and 2 ranks: in 15 of 100 runs over `tcp`, and in 3 over erd,
/// or 22 on a busy machine. `MPI_Dist_graph_create` probes any source, and then receives from any source.
/// It may receive another message than it probed: a rank's message to itself goes through memory, the
/// other's over the network. With 2 ranks these messages differ in length. With 4 they do not, so the
/// test runs there. The failure of one rank can hang the other.
const SKIPPED_MPICH_2_RANKS: &str = "test_comm_topo.TestTopoWorld*.testDistgraphcomm$";

/// The modules with one-sided tests.
const ONE_SIDED: &[&str] = &["test_rma.", "test_rma_nb.", "test_win."];
/// Windows of shared memory, which no network has a part in: Open MPI's component for them is not
/// there when only the one that uses libfabric is allowed.
const SHARED: &str = "TestWinAllocateShared";

/// Selection of tests, and the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Everything, over messages with tags where the implementation has a choice.
    All,
    /// The one-sided tests, over libfabric's reads, writes and atomics.
    OneSided,
}

/// Adds a step for each implementation and number of ranks.
pub fn steps(report: &mut Report, layout: &Layout, provider: &Provider) {
    for kind in KINDS {
        for ranks in [2, 4] {
            let name =
                format!("mpi4py's tests, {}, {ranks} ranks{}", kind.name(), provider.traits());
            report.step(&name, |log| compare(layout, provider, (kind, ranks), Part::All, log));
        }
    }
    for ranks in [2, 4] {
        let kind = Kind::OpenMpi;
        let name = format!("mpi4py's one-sided tests, {}, btl/ofi, {ranks} ranks", kind.name());
        let name = format!("{name}{}", provider.traits());
        report.step(&name, |log| compare(layout, provider, (kind, ranks), Part::OneSided, log));
    }
}

/// By test id: whether it passed in every rank that ran it, without skipped tests.
pub type Outcomes = BTreeMap<String, bool>;

fn compare(
    layout: &Layout,
    provider: &Provider,
    (kind, ranks): (Kind, u32),
    part: Part,
    log: &Path,
) -> Result<Done> {
    // Open MPI cannot use the tcp provider's own reliable datagrams.
    let name = if kind == Kind::Mpich { "tcp" } else { "tcp;ofi_rxm" };
    let baseline = Provider::new(layout, name);
    let theirs = run(layout, &baseline, (kind, ranks), part, log)?;
    let ours = run(layout, provider, (kind, ranks), part, log)?;
    let passed = |outcomes: &Outcomes| outcomes.values().filter(|passed| **passed).count();
    let missing: Vec<&str> = theirs
        .iter()
        .filter(|(id, passed)| **passed && ours.get(*id) != Some(&true))
        .map(|(id, _)| id.as_str())
        .collect();
    if !missing.is_empty() {
        bail!("{} tests pass over {name} only:\n{}", missing.len(), missing.join("\n"));
    }
    let (ours, theirs) = (passed(&ours), passed(&theirs));
    Done::many(ours, format!("{ours} pass, {theirs} over {name}, which are all among them"))
}

fn skips(kind: Kind, ranks: u32) -> Vec<&'static str> {
    let own = match (kind, ranks) {
        (Kind::OpenMpi41, _) => SKIPPED_OMPI41,
        (Kind::Mpich, 2) => &[SKIPPED_MPICH_2_RANKS],
        _ => &[],
    };
    SKIPPED.iter().chain(own).copied().collect()
}

fn run(
    layout: &Layout,
    provider: &Provider,
    (kind, ranks): (Kind, u32),
    part: Part,
    log: &Path,
) -> Result<Outcomes> {
    let tests = source(layout, log)?.join("test");
    let results = if provider.is_erd() { "results" } else { "baseline" };
    let results = empty(log.with_extension(results))?;
    let program = layout.root.join("tests/mpi/mpi4py_suite.py");
    let mpi = Mpi::get(layout, kind)?;
    let mut job = mpi.job(provider, ranks, &program).args([&tests, &results]);
    if part == Part::OneSided {
        job = ONE_SIDED.iter().fold(job, |job, module| job.args(["--only", module]));
        job = job.args(["--skip", SHARED]);
        // The baseline goes over messages: no other provider here has what btl/ofi asks for.
        job = if provider.is_erd() { mpi.one_sided(job, provider) } else { job };
    }
    for skip in skips(kind, ranks) {
        job = job.args(["--skip", skip]);
    }
    let ended = job.limit(LIMIT).finish(log)?;
    if !ended.is_success() {
        append(log, "the run did not end well: what was under way counts as failed\n")?;
    }
    outcomes(&results)
}

/// Results that the ranks left in a directory.
///
/// # Errors
/// They left nothing that can be read.
pub fn outcomes(results: &Path) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for entry in fs::read_dir(results)? {
        read_rank(&fs::read_to_string(entry?.path())?, &mut outcomes);
    }
    Ok(outcomes)
}

/// Adds one rank's lines: a test passes if it ended well in every rank that started it.
fn read_rank(text: &str, outcomes: &mut Outcomes) {
    let mut mine: BTreeMap<&str, Option<bool>> = BTreeMap::new();
    for line in text.lines() {
        let Some((word, id)) = line.split_once(' ') else { continue };
        match word {
            "start" => mine.insert(id, Some(false)),
            "ok" => mine.insert(id, Some(true)),
            "skip" => mine.insert(id, None),
            _ => mine.insert(id, Some(false)),
        };
    }
    for (id, outcome) in mine {
        if let Some(passed) = outcome {
            *outcomes.entry(id.to_owned()).or_insert(true) &= passed;
        }
    }
}

/// Unpacks the source distribution, unless it is there; returns its directory.
///
/// # Errors
/// pip cannot fetch it.
pub fn source(layout: &Layout, log: &Path) -> Result<PathBuf> {
    let dir = layout.own.join("mpi4py-source");
    let unpacked = dir.join(SOURCE.replace("==", "-"));
    if unpacked.join("test").is_dir() {
        return Ok(unpacked);
    }
    fs::create_dir_all(&dir)?;
    let pip = layout.venv(Kind::Mpich.venv()).join("bin/pip");
    Job::new(pip)
        .args(["download", "--no-deps", "--no-binary", "mpi4py", SOURCE, "--dest"])
        .args([&dir])
        .limit(Duration::from_secs(300))
        .run(log)?;
    let archive = dir.join(format!("{}.tar.gz", SOURCE.replace("==", "-")));
    Job::new("tar").args(["-xzf"]).args([&archive]).args(["-C"]).args([&dir]).run(log)?;
    unpacked.join("test").is_dir().then_some(unpacked).context("the archive has no tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mpi_skips_its_own_tests() {
        let race = |kind, ranks| skips(kind, ranks).contains(&SKIPPED_MPICH_2_RANKS);
        assert!(race(Kind::Mpich, 2) && !race(Kind::Mpich, 4));
        assert!(!race(Kind::OpenMpi, 2) && !race(Kind::OpenMpi41, 2));
        assert!(skips(Kind::OpenMpi41, 2).contains(&SKIPPED_OMPI41[0]));
        assert!(SKIPPED.iter().all(|test| skips(Kind::Mpich, 2).contains(test)));
    }

    #[test]
    fn a_test_passes_if_it_ended_well_in_every_rank() {
        let mut outcomes = Outcomes::new();
        read_rank("start a\nok a\nstart b\nok b\nstart c\nskip c\nstart d\n", &mut outcomes);
        read_rank(
            "start a\nok a\nstart b\nfail b\nstart c\nskip c\nstart d\nok d\n",
            &mut outcomes,
        );
        let found: Vec<(&str, bool)> =
            outcomes.iter().map(|(id, passed)| (id.as_str(), *passed)).collect();
        assert_eq!(found, [("a", true), ("b", false), ("d", false)]);
    }
}
