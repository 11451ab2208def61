//! Paths that carry less than the hosts' links: a stream of checked messages between two network
//! namespaces with two routers between them (tests/netns/mtu.sh), while the MTU there changes.

use crate::netns;
use crate::process::Job;
use crate::programs::{Suite, compile};
use crate::report::{Done, Report};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// MTU of the hosts' links, and of the path at its best.
const LINK_MTU: u32 = 9000;
/// MTUs of the path: below the protocol's smallest datagram in one packet (1260), just there, and
/// above. The short tier runs the first two.
const MTUS: [u32; 7] = [1200, 576, 1000, 1259, 1280, 1300, 1499];
const SHORT_MTUS: usize = 2;
const MESSAGE_BYTES: u64 = 1 << 20;
/// Outstanding whenever the path changes, and at the end, when they have to arrive.
const OUTSTANDING: u64 = 20;

impl Suite<'_> {
    /// Adds the steps.
    pub fn path_mtu_steps(&self, report: &mut Report, full: bool) {
        let mtus = if full { &MTUS[..] } else { &MTUS[..SHORT_MTUS] };
        for mtu in mtus {
            for (icmp, name) in [("tell", "with ICMP"), ("drop", "without ICMP")] {
                let name = format!("path MTU {mtu}, {name}");
                report.step_unless(&name, netns::routers_missing, |log| {
                    let small = self.run(log, *mtu, icmp, &[Change { at_s: 1, mtu: None }])?;
                    let changes = [
                        Change { at_s: 1, mtu: Some(*mtu) },
                        Change { at_s: 3, mtu: Some(LINK_MTU) },
                        Change { at_s: 5, mtu: Some(*mtu) },
                        Change { at_s: 6, mtu: None },
                    ];
                    let changing = self.run(log, LINK_MTU, icmp, &changes)?;
                    let remark = format!("{small}; changing under way: {changing}");
                    Done::many(2, remark)
                });
            }
        }
    }

    /// Streams over the path while it changes; returns the result.
    fn run(&self, log: &Path, mtu: u32, icmp: &str, changes: &[Change]) -> Result<String> {
        let counters = self.provider.counters(log);
        let program = compile(self.layout, "tests/c/multipath")?;
        let mut job = Job::new(program).args(["-p", &self.provider.name, "-a", "a", "-b", "b"]);
        job = job.args(["-m", &MESSAGE_BYTES.to_string(), "-w", &OUTSTANDING.to_string()]);
        for change in changes {
            job = job.args(["-t", &change.event()]);
        }
        let script = self.layout.root.join("tests/netns/mtu.sh").into_os_string();
        let words: Vec<OsString> = vec![script, mtu.to_string().into(), icmp.into(), "--".into()];
        let job = counters.give(self.provider.give(self.core.give(netns::beside(job, words))));
        let job = job.env("FI_ERD_IFACE", "wire").env("FI_ERD_MTU_GROWTH_S", "1");
        let output = job.limit(Duration::from_secs(90)).run(log)?;
        let sums = counters.read()?;
        let failed = sums.get("sessions_failed");
        ensure!(failed == 0, "{failed} sessions failed");
        ensure!(sums.get("size_probes") > 0, "no size was tried: is the path as it should be?");
        summary(&output)
    }
}

/// The path's MTU is another one from then on; `None` leaves it.
struct Change {
    at_s: u32,
    mtu: Option<u32>,
}

impl Change {
    fn event(&self) -> String {
        let set = |router: char, mtu: u32| format!("ip -n {router} link set path mtu {mtu}");
        let command = self
            .mtu
            .map_or("true".to_owned(), |mtu| format!("{} && {}", set('r', mtu), set('s', mtu)));
        format!("{}:{command}", self.at_s)
    }
}

/// Messages, and the longest time without one.
fn summary(output: &str) -> Result<String> {
    let lines = || output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let messages = lines().find_map(|line| line.get("messages")?.as_u64());
    let messages = messages.context("the stream did not end")?;
    ensure!(messages >= OUTSTANDING, "only {messages} messages");
    let waits = lines().filter_map(|line| line.get("longest_wait_ms")?.as_f64());
    Ok(format!("{messages} messages, {:.0} ms without one", waits.fold(0.0, f64::max)))
}
