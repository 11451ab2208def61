//! Clients of libfabric with their own tests, as their projects release them (docs/clients.md). No package has them:
//! the environment names what somebody built.

mod kills;
mod mercury;
mod nccl;
mod openshmem;

use crate::cprograms::FAULTS;
use crate::fabric::{Counters, Provider};
use crate::layout::Layout;
use crate::process::Job;
use crate::report::Report;
use crate::setup::{self, named as place};
use anyhow::{Result, bail};

/// Adds the steps of all clients.
pub fn steps(report: &mut Report, layout: &Layout, provider: &Provider) {
    openshmem::steps(report, layout, provider);
    mercury::steps(report, provider);
    nccl::steps(report, layout, provider);
}

/// MPICH's launcher for `ranks` processes on this host. The clients' tests speak PMI with it.
fn launcher(layout: &Layout, ranks: u32) -> Result<Job> {
    let mpiexec = setup::venv(layout, "mpich")?.join("bin/mpiexec");
    Ok(Job::new(mpiexec).args(["-launcher", "fork", "-n", &ranks.to_string()]))
}

/// One form of a client's tests.
struct Form {
    provider: Provider,
    /// The port loses, doubles and delays arrivals.
    faults: bool,
}

impl Form {
    /// The forms of a provider. Nothing is lost in shared memory.
    fn all(provider: &Provider) -> Vec<Form> {
        let plain = Form { provider: provider.clone(), faults: false };
        if provider.has_lanes() {
            return vec![plain];
        }
        let faulty = Form { provider: provider.clone().with(FAULTS.0, FAULTS.1), faults: true };
        vec![plain, faulty]
    }

    /// What the names of steps say of it.
    fn traits(&self) -> String {
        let faults = if self.faults { ", faults" } else { "" };
        format!("{faults}{}", self.provider.traits())
    }

    /// Proof that erd carried `bytes` on the network, or had lanes, and that there were faults; a remark for the report.
    fn proof(&self, counters: &Counters, bytes: u64) -> Result<String> {
        // A lane's reader counts no bytes that it copies from the writer's own memory.
        let bytes = if self.provider.has_lanes() { 0 } else { bytes };
        let remark = counters.proof(bytes)?;
        if self.faults && counters.read()?.retransmissions() == 0 {
            bail!("no packet was sent again: there were no faults");
        }
        Ok(remark)
    }
}
