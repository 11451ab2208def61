//! Peers on one host whose network namespaces differ (tests/netns/mtu.sh): they share memory if they have a directory to
//! meet in, and go over the network between the namespaces if they have none.

use crate::fabric::Provider;
use crate::netns;
use crate::process::Job;
use crate::programs::{Suite, compile};
use crate::report::{Done, Report};
use anyhow::{Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Bytes of a message.
const MESSAGE_BYTES: &str = "1048576";
/// Messages outstanding.
const OUTSTANDING: &str = "8";
/// Seconds of the stream.
const SECONDS: &str = "2";
/// MTU of the path between the namespaces.
const MTU: &str = "9000";

impl Suite<'_> {
    /// Adds the steps.
    pub fn apart_steps(&self, report: &mut Report) {
        report.step_unless("two network namespaces", netns::routers_missing, |log| {
            let provider = Provider::new(self.layout, &self.provider.name);
            let sums = Suite { provider: &provider, ..*self }.stream(log)?;
            let (lanes, packets) = (sums.get("lanes_opened"), sums.get("rx_data"));
            ensure!(lanes == 0 && packets > 0, "{lanes} lanes, {packets} packets of data");
            Done::one(format!("{packets} packets between them"))
        });
        let name = "two network namespaces that meet in a directory, shared memory";
        report.step_unless(name, netns::routers_missing, |log| {
            let dir = log.with_extension("meet");
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir(&dir)?;
            let provider = self.provider.clone().with("FI_ERD_LOCAL_DIR", &dir.to_string_lossy());
            let sums = Suite { provider: &provider, ..*self }.stream(log)?;
            let (packets, pulled) = (sums.get("rx_data"), sums.get("lane_pulled_bytes"));
            ensure!(packets == 0 && pulled > 0, "{packets} packets of data, {pulled} bytes read");
            // Nobody clears up after a process but itself.
            fs::remove_dir(&dir)?;
            Done::one(format!("{} MiB read where they were", pulled >> 20))
        });
    }

    /// A stream of checked messages from one namespace to the other; returns the counters of both sides.
    fn stream(&self, log: &Path) -> Result<crate::fabric::Sums> {
        let counters = self.provider.counters(log);
        let program = compile(self.layout, "tests/c/multipath")?;
        let mut job = Job::new(program).args(["-p", &self.provider.name, "-a", "a", "-b", "b"]);
        job = job.args(["-m", MESSAGE_BYTES, "-w", OUTSTANDING, "-t", SECONDS]);
        let script = self.layout.root.join("tests/netns/mtu.sh").into_os_string();
        let words: [OsString; 4] = [script, MTU.into(), "tell".into(), "--".into()];
        let job = netns::beside(job, words.into());
        let job = counters.give(self.provider.give(self.core.give(job)));
        job.env("FI_ERD_IFACE", "wire").limit(Duration::from_secs(60)).run(log)?;
        counters.read()
    }
}
