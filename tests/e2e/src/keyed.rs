//! Steps with a job's key: programs that pass without one must pass with one, and the key must be used. What crosses
//! the network shows that ([`crate::wire`]); of `fi_pingpong`, which has a process of its own for each side, the
//! refusal of other keys does.

use crate::fabric::{Core, Provider};
use crate::layout::Layout;
use crate::mpi::{self, Kind};
use crate::pingpong::{self, PingPong};
use crate::process::Job;
use crate::programs::Suite;
use crate::report::{Done, Report};
use crate::wire::Protection;
use crate::{fabtests, setup};
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For how long the ranks fight for each other's memory.
const HAMMER_SECONDS: &str = "15";
const SHORT_HAMMER_SECONDS: &str = "3";
/// Most time for a client whose peer has another key, or none.
const REFUSAL_LIMIT: Duration = Duration::from_secs(30);

/// Providers without a key and with different ones.
#[derive(Debug)]
struct Keys<'a> {
    layout: &'a Layout,
    keyless: &'a Provider,
    encrypt: Provider,
    auth: Provider,
    other: Provider,
}

/// Adds the steps; `cores` are the system's libfabric and the wheel's.
///
/// # Errors
/// A key that cannot be written.
pub fn steps(
    report: &mut Report,
    layout: &Layout,
    cores: [&Core; 2],
    provider: &Provider,
    full: bool,
) -> Result<()> {
    let (key, other) = (setup::job_key(layout, "job.key")?, setup::job_key(layout, "other.key")?);
    let with = |key: &Path, protection| provider.clone().keyed(key, protection);
    let keys = Keys {
        layout,
        keyless: provider,
        encrypt: with(&key, Protection::Encrypt),
        auth: with(&key, Protection::Auth),
        other: with(&other, Protection::Encrypt),
    };
    for core in if full { &cores[..] } else { &cores[1..] } {
        keys.pingpong_steps(report, core);
    }
    let [system, wheel] = cores.map(|core| Suite { layout, core, provider: &keys.encrypt });
    if full {
        system.steps(report);
        wheel.steps(report);
        wheel.peer_steps(report);
        Suite { provider: &keys.auth, ..wheel }.call_steps(report);
        fabtests::step(report, layout, &keys.encrypt);
    } else {
        wheel.call_steps(report);
        wheel.nccl_steps(report);
        wheel.ending_steps(report);
    }
    keys.mpi_steps(report, full);
    Ok(())
}

impl Keys<'_> {
    fn pingpong_steps(&self, report: &mut Report, core: &Core) {
        let on = &core.name;
        for provider in [&self.encrypt, &self.auth] {
            let name = format!("fi_pingpong tagged, all sizes, {on}{}", provider.traits());
            report.step(&name, |log| pingpong::all_sizes(core, provider, log));
        }
        report.step(&format!("fi_pingpong, a key of erd keygen, {on}"), |log| {
            let provider = self.keyless.clone().keyed(&self.keygen(log)?, Protection::Encrypt);
            pingpong::all_sizes(core, &provider, log)
        });
        // A send of 64 bytes would count as done before the peer is known.
        let run =
            PingPong { limit: REFUSAL_LIMIT, ..PingPong::new(&["-m", "tagged", "-S", "65536"]) };
        for (name, sides, reason) in [
            ("a key, the server has another", [&self.other, &self.encrypt], "the keys differ"),
            ("a key, the server has none", [self.keyless, &self.encrypt], "the peer has no key"),
            ("a key of the server alone", [&self.encrypt, self.keyless], "the peer has a key"),
        ] {
            report.step(&format!("fi_pingpong, {name}, {on}"), |log| {
                let sides = sides.map(|side| side.clone().with("FI_ERD_PEER_TIMEOUT_MS", "1000"));
                let said = run.refused(core, [&sides[0], &sides[1]], log)?;
                ensure!(said.contains(reason), "the client does not say \"{reason}\":\n{said}");
                Done::one(format!("the client fails: {reason}"))
            });
        }
    }

    /// A key that the command makes.
    fn keygen(&self, log: &Path) -> Result<PathBuf> {
        let path = self.layout.own.join("keygen.key");
        if path.exists() {
            fs::remove_file(&path)?;
        }
        Job::new(setup::build_tool(self.layout)?).args(["keygen"]).args([&path]).run(log)?;
        Ok(path)
    }

    fn mpi_steps(&self, report: &mut Report, full: bool) {
        let (layout, encrypt) = (self.layout, &self.encrypt);
        if full {
            for (kind, hammer) in [
                (Kind::Mpich, Some(HAMMER_SECONDS)),
                (Kind::OpenMpi, Some(HAMMER_SECONDS)),
                (Kind::OpenMpi41, None),
            ] {
                mpi::more_steps(report, layout, encrypt, kind, &[2, 4], hammer);
            }
        } else {
            let seconds = Some(SHORT_HAMMER_SECONDS);
            mpi::more_steps(report, layout, encrypt, Kind::Mpich, &[2], seconds);
            mpi::more_steps(report, layout, encrypt, Kind::OpenMpi, &[2], None);
        }
        mpi::more_steps(report, layout, &self.auth, Kind::Mpich, &[2], None);
    }
}
