//! The command `erd` beside running programs.

use crate::fabric::{Core, Provider};
use crate::layout::Layout;
use crate::pingpong::PingPong;
use crate::process::{Job, Running};
use crate::report::{Done, Report};
use crate::setup;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time until a flow must be visible.
const PATIENCE: Duration = Duration::from_secs(20);

/// Adds the steps.
pub fn steps(report: &mut Report, layout: &Layout, core: &Core, provider: &Provider) {
    report.step("erd top beside a ping-pong", |log| {
        let erd = setup::build_tool(layout)?;
        let run = PingPong::new(&["-m", "tagged", "-S", "65536", "-I", "100000000"]);
        let both = run.start(core, provider, log)?;
        let flows = until(|| busy_flows(&erd, &both, log))?;
        until(|| {
            let table = Job::new(&erd).args(["top", "--once"]).run(log)?;
            let has = |pid: &u32| table.lines().any(|line| is_endpoint_of(line, *pid));
            ensure!(pids(&both).iter().all(has), "the table lacks the endpoints:\n{table}");
            Ok(())
        })?;
        until(|| {
            let samples = Job::new(&erd).args(["top", "--prometheus"]).run(log)?;
            let has = |pid: &u32| samples.lines().any(|line| is_sample_of(line, *pid));
            let all = pids(&both).iter().all(has);
            ensure!(all, "Prometheus' text lacks the flows:\n{samples}");
            Ok(())
        })?;
        Done::many(
            flows,
            format!("{flows} flows seen, both ways, as table, JSON and Prometheus' text"),
        )
    });
    report.step("FI_ERD_MONITOR=0 hides a ping-pong", |log| {
        let erd = setup::build_tool(layout)?;
        let run = PingPong::new(&["-m", "tagged", "-S", "65536", "-I", "100000000"]);
        let hidden = provider.clone().with("FI_ERD_MONITOR", "0");
        let both = run.start(core, &hidden, log)?;
        // Long enough for those that are not hidden.
        thread::sleep(Duration::from_secs(1));
        match seen(&erd, &both, log)?.len() {
            0 => Done::one("not seen"),
            seen => bail!("{seen} processes are seen"),
        }
    });
}

/// Asks again for some time: a look may miss an endpoint that is at work all the while.
fn until<R>(mut ask: impl FnMut() -> Result<R>) -> Result<R> {
    let start = Instant::now();
    loop {
        match ask() {
            Err(_) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(100)),
            answer => return answer,
        }
    }
}

/// The two processes of a ping-pong, and no others that may run on this machine.
fn pids(both: &[Running; 2]) -> [u32; 2] {
    [both[0].pid(), both[1].pid()]
}

fn is_endpoint_of(line: &str, pid: u32) -> bool {
    line.starts_with(&format!("{pid} ")) && line.contains("fi_pingpong  lo 127.0.0.1:")
}

fn is_sample_of(line: &str, pid: u32) -> bool {
    line.starts_with("erd_flow_sent_bytes_total{") && line.contains(&format!("pid=\"{pid}\""))
}

/// Those of both that `erd top` sees.
fn seen(erd: &Path, both: &[Running; 2], log: &Path) -> Result<Vec<Value>> {
    let seen = Job::new(erd).args(["top", "--once", "--json"]).run(log)?;
    let seen: Value = serde_json::from_str(&seen).context("erd top --json")?;
    let processes = seen["processes"].as_array().context("no processes")?.iter();
    let is_ours = |pid: u64| pids(both).iter().any(|known| u64::from(*known) == pid);
    let ours = processes.filter(|process| process["pid"].as_u64().is_some_and(is_ours));
    Ok(ours.cloned().collect())
}

/// How many of both sides' flows carry data; an error unless both do.
fn busy_flows(erd: &Path, both: &[Running; 2], log: &Path) -> Result<usize> {
    let processes = seen(erd, both, log)?;
    let endpoints = processes.iter().filter_map(|process| process["endpoints"].as_array());
    let flows = endpoints.flatten().filter_map(|endpoint| endpoint["flows"].as_array()).flatten();
    let busy = flows.filter(|flow| flow["sent_bytes"].as_u64() > Some(1 << 20)).count();
    ensure!(busy >= 2, "{busy} of 2 flows are seen: {processes:?}");
    Ok(busy)
}
