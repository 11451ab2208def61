//! The command `erd` beside running programs.

use crate::fabric::{Core, Provider};
use crate::layout::Layout;
use crate::pingpong::PingPong;
use crate::process::Job;
use crate::report::{Done, Report};
use crate::setup;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a flow may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Adds the steps.
pub fn steps(report: &mut Report, layout: &Layout, core: &Core, provider: &Provider) {
    report.step("erd top beside a ping-pong", |log| {
        let erd = setup::build_tool(layout)?;
        let run = PingPong::new(&["-m", "tagged", "-S", "65536", "-I", "100000000"]);
        let _both = run.start(core, provider, log)?;
        let flows = flows_seen(&erd, log)?;
        let table = Job::new(&erd).args(["top", "--once"]).run(log)?;
        if table.matches("fi_pingpong  lo 127.0.0.1:").count() < 2 {
            bail!("the table lacks the endpoints:\n{table}");
        }
        let samples = Job::new(&erd).args(["top", "--prometheus"]).run(log)?;
        let sent = |line: &&str| {
            line.starts_with("erd_flow_sent_bytes_total{")
                && line.contains("command=\"fi_pingpong\"")
        };
        if samples.lines().filter(sent).count() < 2 {
            bail!("Prometheus' text lacks the flows:\n{samples}");
        }
        Done::many(
            flows,
            format!("{flows} flows seen, both ways, as table, JSON and Prometheus' text"),
        )
    });
    report.step("FI_ERD_MONITOR=0 hides a ping-pong", |log| {
        let erd = setup::build_tool(layout)?;
        let run = PingPong::new(&["-m", "tagged", "-S", "65536", "-I", "100000000"]);
        let hidden = provider.clone().with("FI_ERD_MONITOR", "0");
        let _both = run.start(core, &hidden, log)?;
        // Long enough for those that are not hidden.
        thread::sleep(Duration::from_secs(1));
        match pingpongs(&erd, log)?.len() {
            0 => Done::one("not seen"),
            seen => bail!("{seen} processes are seen"),
        }
    });
}

/// Processes called `fi_pingpong` that `erd top` sees.
fn pingpongs(erd: &Path, log: &Path) -> Result<Vec<Value>> {
    let seen = Job::new(erd).args(["top", "--once", "--json"]).run(log)?;
    let seen: Value = serde_json::from_str(&seen).context("erd top --json")?;
    let processes = seen["processes"].as_array().context("no processes")?.iter();
    Ok(processes.filter(|process| process["command"] == "fi_pingpong").cloned().collect())
}

/// Waits until both sides' flows carry data; how many there are.
fn flows_seen(erd: &Path, log: &Path) -> Result<usize> {
    let start = Instant::now();
    loop {
        let processes = pingpongs(erd, log)?;
        let endpoints = processes.iter().filter_map(|process| process["endpoints"].as_array());
        let flows =
            endpoints.flatten().filter_map(|endpoint| endpoint["flows"].as_array()).flatten();
        let busy = flows.filter(|flow| flow["sent_bytes"].as_u64() > Some(1 << 20)).count();
        if busy >= 2 {
            return Ok(busy);
        }
        if start.elapsed() > PATIENCE {
            bail!("{busy} of 2 flows are seen: {processes:?}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}
