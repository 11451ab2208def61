//! Engines for key-value caches over the provider, under the name `efa` and from their wheels: Mooncake's transfer
//! engine and store, and NIXL. `tests/kv` has the programs.

use crate::cprograms::FAULTS;
use crate::fabric::{Core, Provider};
use crate::layout::Layout;
use crate::process::{Job, last_lines};
use crate::report::{Done, Report};
use crate::setup;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variable with the directory of a libfabric.so.1 of version 2.6 or later: NIXL's wheel is linked with its
/// symbols, and no package has it.
const LIBRARY: &str = "ERD_LIBFABRIC";
/// What the names of steps say of faults.
const FAULTY: &str = ", faults";
/// Most time for one pair.
const LIMIT: Duration = Duration::from_secs(180);

/// An engine, by its program in tests/kv.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Mooncake,
    Store,
    Nixl,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Mooncake => "Mooncake",
            Engine::Store => "Mooncake's store",
            Engine::Nixl => "NIXL",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Engine::Mooncake => "tests/kv/mooncake_pair.py",
            Engine::Store => "tests/kv/mooncake_store.py",
            Engine::Nixl => "tests/kv/nixl_pair.py",
        }
    }

    /// Why it cannot run here.
    fn missing(self) -> Option<&'static str> {
        (self == Engine::Nixl && library().is_none())
            .then_some("ERD_LIBFABRIC names no directory of libfabric 2.6 or later")
    }
}

fn library() -> Option<PathBuf> {
    setup::named(LIBRARY)
}

/// Adds the steps of all engines; `core` is libfabric 2.0 or later.
pub fn steps(report: &mut Report, layout: &Layout, core: &Core, provider: &Provider) {
    let provider = provider.clone().called("efa");
    let near = provider.clone().with("FI_ERD_LOCAL", "auto").by_lanes();
    let faulty = provider.clone().with(FAULTS.0, FAULTS.1);
    for engine in [Engine::Mooncake, Engine::Store, Engine::Nixl] {
        for (provider, how) in [(&provider, ""), (&near, ", shared memory"), (&faulty, FAULTY)] {
            let run = Run { layout, core, provider, engine, faults: how == FAULTY };
            report.step_unless(
                &format!("{}{how}", engine.name()),
                || engine.missing(),
                |log| run.moves(log),
            );
            if engine != Engine::Store {
                report.step_unless(
                    &format!("{}, its peer dies{how}", engine.name()),
                    || engine.missing(),
                    |log| run.dies(log),
                );
            }
        }
    }
}

/// One engine over one provider.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    layout: &'a Layout,
    core: &'a Core,
    provider: &'a Provider,
    engine: Engine,
    /// The provider loses packets.
    faults: bool,
}

impl Run<'_> {
    /// Every byte is compared, and erd must have carried as many.
    fn moves(&self, log: &Path) -> Result<Done> {
        let counters = self.provider.counters(log);
        let job = counters.give(self.job(log)?.args(["--most", "16777216"]));
        let line = passed(&job.limit(LIMIT).run(log)?)?;
        let moved = bytes(&line)?;
        // A peer copies long transfers straight from this side's memory, which counts apart.
        let sums = counters.read()?;
        if self.faults && sums.retransmissions() == 0 {
            bail!("no packet was sent again: there were no faults");
        }
        let pulled = sums.get("lane_pulled_bytes");
        let proof = counters.proof(moved.saturating_sub(pulled))?;
        Done::one(format!("{line}; {proof}"))
    }

    /// Transfers to a peer that was killed must fail, and the engine must survive that.
    fn dies(&self, log: &Path) -> Result<Done> {
        Done::one(passed(&self.job(log)?.args(["--kill"]).limit(LIMIT).run(log)?)?)
    }

    fn job(&self, log: &Path) -> Result<Job> {
        let python = venv(self.layout)?.join("bin/python");
        let job = Job::new(python).args([self.layout.root.join(self.engine.program())]);
        let job = self.core.give(self.provider.give(job)).env("PYTHONDONTWRITEBYTECODE", "1");
        match self.engine {
            Engine::Nixl => self.with_stand_ins(job, log),
            Engine::Mooncake => Ok(self.with_topology(job)?.env("LD_PRELOAD", self.devices(log)?)),
            Engine::Store => self.with_topology(job),
        }
    }

    /// NIXL's libfabric, and what stands in for CUDA's libraries.
    fn with_stand_ins(&self, job: Job, log: &Path) -> Result<Job> {
        let mut dirs = library().context(LIBRARY)?.into_os_string();
        for name in ["libcuda.so.1", "libcudart.so.12"] {
            let soname = format!("-Wl,-soname,{name}");
            self.shared("cc", "cuda.c", name, &[&soname, "-Wl,--default-symver"], log)?;
        }
        dirs.push(":");
        dirs.push(self.dir());
        Ok(job.env("LD_LIBRARY_PATH", dirs))
    }

    /// Names the device, which is loopback, to Mooncake.
    fn with_topology(&self, job: Job) -> Result<Job> {
        let file = self.dir().join("topology.json");
        fs::create_dir_all(self.dir())?;
        fs::write(&file, r#"{"cpu:0": [["lo"], []]}"#)?;
        Ok(job.env("MC_CUSTOM_TOPO_JSON", file).env("MC_LOG_LEVEL", "WARNING"))
    }

    fn devices(&self, log: &Path) -> Result<PathBuf> {
        self.shared("c++", "devices.cpp", "devices.so", &[], log)
    }

    fn dir(&self) -> PathBuf {
        self.layout.own.join("kv")
    }

    /// Compiles a source of tests/kv as a shared object; returns that.
    fn shared(
        &self,
        compiler: &str,
        source: &str,
        name: &str,
        flags: &[&str],
        log: &Path,
    ) -> Result<PathBuf> {
        fs::create_dir_all(self.dir())?;
        let object = self.dir().join(name);
        Job::new(compiler)
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .args([self.layout.root.join("tests/kv").join(source)])
            .args(["-o".as_ref(), object.as_os_str()])
            .args(flags)
            .run(log)?;
        Ok(object)
    }
}

/// The engines' environment, made if need be.
fn venv(layout: &Layout) -> Result<PathBuf> {
    setup::venv_of(layout, "kv", "tests/kv/requirements.txt", &["--no-deps"])
}

fn passed(output: &str) -> Result<String> {
    let line = output.lines().find(|line| line.starts_with("kv ") && line.contains(" passed: "));
    Ok(line.with_context(|| last_lines(output, 15))?.to_owned())
}

/// Bytes that a program reports as moved.
fn bytes(line: &str) -> Result<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = words.iter().position(|word| *word == "bytes");
    let number =
        place.and_then(|place| words.get(place.checked_sub(1)?)).context("no bytes named")?;
    number.parse().with_context(|| format!("the program said: {line}"))
}
