//! aws-ofi-nccl's own functional tests, in both its protocols. tests/c/host_cuda.c stands in for CUDA.

use super::kills::{self, Signs};
use super::{Form, launcher, place};
use crate::fabric::Provider;
use crate::layout::{Layout, empty};
use crate::process::Job;
use crate::programs::compile_with;
use crate::report::{Done, Report};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One of the plugin's protocols, as an installation of it can run it.
#[derive(Clone, Copy, Debug)]
struct Protocol {
    name: &'static str,
    /// Variable with the directory in which somebody installed it, with its functional tests.
    place: &'static str,
    missing: &'static str,
    /// The tests that have a meaning in this protocol, and their ranks.
    tests: &'static [(&'static str, u32)],
    /// It asks for a card on the PCI bus, and for `FI_HMEM`.
    needs_card: bool,
    /// A sender always has an operation that fails when the receiver dies.
    tells_of_death: bool,
}

const SENDRECV: Protocol = Protocol {
    name: "SENDRECV",
    place: "ERD_OFI_NCCL",
    missing: "ERD_OFI_NCCL names no aws-ofi-nccl",
    tests: &[
        ("nccl_connection", 2),
        (TRANSFER, 2),
        ("ring", 4),
        ("inflight_close", 2),
        ("reuse_listen_comm", 2),
    ],
    needs_card: false,
    tells_of_death: true,
};
/// A build of its own: as it is released, it registers a GPU's memory before anything else.
const RDMA: Protocol = Protocol {
    name: "RDMA",
    place: "ERD_OFI_NCCL_RDMA",
    missing: "ERD_OFI_NCCL_RDMA names no aws-ofi-nccl with its flush buffer in host memory",
    tests: &[
        ("nccl_connection", 2),
        (TRANSFER, 2),
        ("ring", 4),
        ("reuse_listen_comm", 2),
        ("grouped_recv", 2),
    ],
    needs_card: true,
    // It waits in its own memory for the receiver's word where to write.
    tells_of_death: false,
};
const TRANSFER: &str = "nccl_message_transfer";
/// Most time for one of them.
const LIMIT: Duration = Duration::from_secs(240);
/// Least bytes that erd's counters show after them, which move 2 GB.
const BYTES_MIN: u64 = 1 << 30;
/// Names by which the plugin and its tests ask for CUDA's runtime.
const CUDA_NAMES: [&str; 3] = ["libcudart.so", "libcudart.so.12", "libcudart.so.13"];

/// Rank 1 is killed while rank 0 sends to it. Its shell stays, so the launcher sees no dead process. Rank 0 waits for rank
/// 1 over MPI once it has told an error.
const KILLED: &str = r#"
cd "$1"
if [ "$PMI_RANK" = 0 ]; then
    exec stdbuf -oL "$0" > rank-0
fi
stdbuf -oL "$0" > rank-1 & echo $! > victim
sleep 600
"#;
/// What each rank writes for each size of its messages, of which there are seven. The rounds kill at one of the first
/// in turn, and soon: a sender that has sent all of them waits for the dead receiver in MPI alone.
const SENDING: &str = "Polling for completion";
const SIZES: u32 = 4;
const SPAN_US: u32 = 2_000;
const FAILED: &str = "rank 0 failed";

/// Adds its steps. The plugin forbids shared memory, so a provider with lanes has none.
pub fn steps(report: &mut Report, layout: &Layout, provider: &Provider) {
    if provider.has_lanes() {
        return;
    }
    for protocol in [SENDRECV, RDMA] {
        protocol.steps(report, layout, provider);
    }
}

impl Protocol {
    fn steps(self, report: &mut Report, layout: &Layout, provider: &Provider) {
        let card = if self.needs_card { card() } else { None };
        let missing = || match place(self.place) {
            None => Some(self.missing),
            Some(_) => {
                (self.needs_card && card.is_none()).then_some("no card on the PCI bus is up")
            }
        };
        let mut provider = provider.clone();
        if let Some(card) = &card {
            provider = provider.with("FI_ERD_IFACE", card);
            provider = provider.with("FI_ERD_PCI", "yes").with("FI_ERD_HMEM", "1");
        }
        for form in Form::all(&provider) {
            let name = format!("aws-ofi-nccl's tests, {}{}", self.name, form.traits());
            report.step_unless(&name, missing, |log| self.tests(layout, &form, log));
        }
        if self.tells_of_death {
            let name = format!("aws-ofi-nccl, {}, a rank killed{}", self.name, provider.traits());
            report.step_unless(&name, missing, |log| self.killed(layout, &provider, log));
        }
    }

    /// The job with the plugin, and with the stand-in for CUDA.
    fn give(self, layout: &Layout, job: Job, log: &Path) -> Result<Job> {
        let mut dirs: OsString = stand_in(layout, log)?.into();
        dirs.push(":");
        dirs.push(place(self.place).context(self.place)?.join("lib"));
        Ok(job.env("LD_LIBRARY_PATH", dirs).env("OFI_NCCL_PROTOCOL", self.name))
    }

    fn program(self, name: &str) -> Result<PathBuf> {
        Ok(place(self.place).context(self.place)?.join("bin").join(name))
    }

    fn tests(self, layout: &Layout, form: &Form, log: &Path) -> Result<Done> {
        let counters = form.provider.counters(log);
        for &(name, ranks) in self.tests {
            let job = launcher(layout, ranks)?.args([self.program(name)?]);
            let job = counters.give(self.give(layout, form.provider.give(job), log)?);
            let output = job.limit(LIMIT).run(log)?;
            let chosen = format!("Selected provider is {}", form.provider.name);
            ensure!(output.contains(&chosen), "{name}: erd is not the plugin's provider");
            let protocol = format!("Using transport protocol {}", self.name);
            ensure!(output.contains(&protocol), "{name}: another protocol than {}", self.name);
        }
        let remark = form.proof(&counters, BYTES_MIN)?;
        Done::many(self.tests.len(), format!("{} programs pass; {remark}", self.tests.len()))
    }

    fn killed(self, layout: &Layout, provider: &Provider, log: &Path) -> Result<Done> {
        let program = self.program(TRANSFER)?;
        kills::rounds(provider, log, |round| {
            let job = launcher(layout, 2)?.args(["sh", "-c", KILLED]).args([&program, round.dir]);
            let mut ranks = round.start(self.give(layout, job, log)?)?;
            let times = 1 + round.number % SIZES;
            let under_way = ("rank-1", SENDING, times as usize);
            let error = ("rank-0", FAILED);
            let signs = Signs { victim: "victim", under_way, span_us: SPAN_US, error };
            round.kill(&mut ranks, &signs)
        })
    }
}

/// The first interface of a card on the PCI bus that is up.
fn card() -> Option<String> {
    let names = fs::read_dir("/sys/class/net").ok()?.flatten().map(|entry| entry.path());
    let is_up = |dir: &PathBuf| {
        let path = fs::canonicalize(dir.join("device")).unwrap_or_default();
        let state = fs::read_to_string(dir.join("operstate")).unwrap_or_default();
        path.to_string_lossy().starts_with("/sys/devices/pci") && state.trim() == "up"
    };
    let mut up: Vec<PathBuf> = names.filter(is_up).collect();
    up.sort();
    Some(up.first()?.file_name()?.to_str()?.to_owned())
}

/// Compiles the stand-in; returns a directory that has it under each name.
fn stand_in(layout: &Layout, log: &Path) -> Result<PathBuf> {
    let flags = ["-shared", "-fPIC"].map(str::to_owned);
    let library = compile_with(layout, "tests/c/host_cuda", &flags, log)?;
    let dir = empty(layout.own.join("host-cuda"))?;
    for name in CUDA_NAMES {
        fs::copy(&library, dir.join(name)).with_context(|| format!("copying to {name}"))?;
    }
    Ok(dir)
}
