//! The C programs under tests/c: bad input, dead peers, computing peers, many peers, NCCL's calls.

use crate::fabric::WHEEL;
use crate::netns;
use crate::process::Job;
use crate::programs::{Suite, compile};
use crate::report::{Done, Report};
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::time::Duration;

/// Lost packets per 10,000 where a test runs over a lossy network.
const LOST_OF_10000: u32 = 500;
/// Least retransmissions that show that packets were lost at all.
const RETRANSMISSIONS_MIN: u64 = 5;

/// Faults below the engine for steps that ask for them.
pub const FAULTS: (&str, &str) = ("FI_ERD_TEST_FAULTS", "loss=0.01,dup=0.01,reorder=0.1,seed=1");

/// Least drops that the counters show after the hostile datagrams of tests/c/bad_input.c, which are
/// 4000; some are lost in full socket buffers.
const DROPS_MIN: u64 = 2000;

/// Least bytes without a copy of the 65 MiB of messages in tests/c/shared.c and of its four answers: at most 6 MiB are
/// in datagrams too short to share.
const UNCOPIED_BYTES_MIN: u64 = 60 << 20;
/// Datagrams that wait in a socket when their memory goes: 7 in each of four rounds of that program.
const RECALLED_MIN: u64 = 8;

/// Bytes that erd's counters show after the messages of tests/c/linked.c: 3 MiB and the shorter ones of one
/// peer. The other's are 48 MiB more.
const LINKED_BYTES: std::ops::Range<u64> = 3 << 20..4 << 20;

/// Least bytes that erd's counters show after the messages of tests/c/nccl_sendrecv.c.
const NCCL_BYTES_MIN: u64 = 128 << 20;

impl Suite<'_> {
    fn job(&self, source: &str, args: &[&str]) -> Result<Job> {
        let program = compile(self.layout, source)?;
        let job = Job::new(program).args(["-p", &self.provider.name]).args(args);
        Ok(self.provider.give(self.core.give(job)).limit(Duration::from_secs(400)))
    }

    /// Runs cases; each must report that it passed.
    fn cases(&self, job: Job, log: &Path) -> Result<Done> {
        let ended = job.finish(log)?;
        let failed: Vec<&str> =
            ended.output.lines().filter(|line| line.starts_with("FAILED")).collect();
        if !failed.is_empty() {
            bail!("{}", failed.join("\n"));
        }
        let output = ended.success()?;
        let passed: Vec<&str> =
            output.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
        let remark = output.lines().filter(|line| line.starts_with("  ")).map(str::trim);
        let remark: Vec<&str> = remark.collect();
        Done::many(passed.len(), format!("{} cases. {}", passed.len(), remark.join("; ")))
    }

    /// Adds the steps that need no network of their own.
    pub fn steps(&self, report: &mut Report) {
        let on = &self.core.name;
        report.step(&format!("every call, {on}"), |log| {
            self.cases(self.job("tests/c/messages", &[])?, log)
        });
        report.step(&format!("RMA and atomics, {on}"), |log| {
            self.cases(self.job("tests/c/memory", &[])?, log)
        });
        report.step(&format!("congestion control by domain, {on}"), |log| {
            self.cases(self.job("tests/c/congestion", &[])?, log)
        });
        report.step(&format!("queues of another provider, {on}"), |log| {
            self.cases(self.job("tests/c/peer", &[])?, log)
        });
        for (name, source) in
            [("every call", "tests/c/messages"), ("RMA and atomics", "tests/c/memory")]
        {
            report.step(&format!("{name}, faults below the engine, {on}"), |log| {
                self.with_faults(log, source)
            });
        }
        report.step(&format!("NCCL's calls, SENDRECV, {on}"), |log| {
            let counters = self.provider.counters(log);
            let job = counters.give(self.job("tests/c/nccl_sendrecv", &[])?);
            match self.cases(job, log)? {
                Done::Passed(cases, _) => Ok(Done::Passed(cases, counters.proof(NCCL_BYTES_MIN)?)),
                skipped => Ok(skipped),
            }
        });
        if self.core.name == WHEEL {
            let name = format!("linked with shared memory by lnx, {on}");
            report.step_unless(&name, netns::missing, |log| self.linked(log));
            report.step(&format!("NCCL's calls, RDMA, {on}"), |log| {
                self.cases(self.job("tests/c/nccl_rdma", &[])?, log)
            });
            report.step(&format!("NCCL's calls, RDMA, faults below the engine, {on}"), |log| {
                self.with_faults(log, "tests/c/nccl_rdma")
            });
        }
        report.step(&format!("bad input, {on}"), |log| self.bad_input(log));
        report.step(&format!("every size with data checking, {on}"), |log| self.checked_sizes(log));
        report.step(&format!("example ping-pong, {on}"), |log| {
            let program = compile(self.layout, "examples/pingpong")?;
            let job = Job::new(program).args([&self.provider.name]);
            let output = self.provider.give(self.core.give(job)).run(log)?;
            Done::one(output.lines().last().unwrap_or_default())
        });
    }

    /// Adds the steps of peers that die or compute.
    pub fn peer_steps(&self, report: &mut Report) {
        report.step("peers killed, stopped, restarted", |log| {
            self.cases(self.job("tests/c/peer_death", &["killed", "stopped", "restarted"])?, log)
        });
        report.step("messages complete when copied, then a process ends", |log| {
            self.cases(self.job("tests/c/early", &[])?, log)
        });
        report.step_unless("peer cut off", netns::missing, |log| {
            let job = self.job("tests/c/peer_death", &["cut_off"])?;
            self.cases(netns::private(job), log)
        });
        report.step("computing peer", |log| {
            self.cases(self.job("tests/c/computing_peer", &[])?, log)
        });
        report.step_unless("computing peer, 5 % loss", netns::loss_missing, |log| {
            self.lossy(log, "tests/c/computing_peer")
        });
        if cfg!(target_arch = "x86_64") {
            report.step("payloads read where they lie", |log| self.shared(log, |job| job));
            let name = "payloads read where they lie, at a card's address";
            report.step_unless(name, netns::missing, |log| {
                self.shared(log, |job| {
                    let job = job.env("CARD_ADDRESS", netns::CARD_ADDRESS);
                    netns::carded(job.env("FI_ERD_IFACE", "card"))
                })
            });
        }
        report.step_unless("NCCL's calls, SENDRECV, 5 % loss", netns::loss_missing, |log| {
            self.lossy(log, "tests/c/nccl_sendrecv")
        });
        report.step("sockets and memory, 1 to 256 peers", |log| {
            self.cases(self.job("tests/c/many_peers", &[])?, log)
        });
    }

    /// Checks that payloads went without a copy, and that some were recalled before they were read.
    fn shared(&self, log: &Path, place: impl FnOnce(Job) -> Job) -> Result<Done> {
        let counters = self.provider.counters(log);
        let job = counters.give(self.job("tests/c/shared", &[])?);
        let done = self.cases(place(job), log)?;
        let sums = counters.read()?;
        let (uncopied, recalled) = (sums.get("udp_tx_uncopied_bytes"), sums.get("drops.recalled"));
        ensure!(uncopied >= UNCOPIED_BYTES_MIN, "{uncopied} bytes were not copied");
        ensure!(recalled >= RECALLED_MIN, "{recalled} datagrams were recalled");
        Ok(done)
    }

    /// Checks that the counters show the hostile datagrams of these cases as dropped.
    fn bad_input(&self, log: &Path) -> Result<Done> {
        let counters = self.provider.counters(log);
        let done = self.cases(counters.give(self.job("tests/c/bad_input", &[])?), log)?;
        let drops = counters.read()?.below("drops");
        ensure!(drops >= DROPS_MIN, "{drops} datagrams were counted as dropped, not {DROPS_MIN}");
        Ok(done)
    }

    /// Over a port that loses, doubles and delays arrivals. The counters must show that it did.
    fn with_faults(&self, log: &Path, source: &str) -> Result<Done> {
        let provider = self.provider.clone().with(FAULTS.0, FAULTS.1);
        let suite = Suite { provider: &provider, ..*self };
        let counters = provider.counters(log);
        let done = suite.cases(counters.give(suite.job(source, &[])?), log)?;
        let sums = counters.read()?;
        let (resent, doubled) = (sums.retransmissions(), sums.get("drops.duplicate"));
        if resent == 0 || doubled == 0 {
            bail!("{resent} packets were sent again, {doubled} came twice: there were no faults");
        }
        Ok(done)
    }

    /// Two processes send to a third, one through shared memory and one through erd, whose counters
    /// must show its messages and not the other's.
    fn linked(&self, log: &Path) -> Result<Done> {
        let counters = self.provider.counters(log);
        let job = counters.give(self.job("tests/c/linked", &[])?);
        let done = self.cases(netns::private(job), log)?;
        let carried = counters.read()?.get("rx_payload_bytes");
        if !LINKED_BYTES.contains(&carried) {
            bail!(
                "erd carried {carried} bytes, not {LINKED_BYTES:?}: the processes' ways are mixed up"
            );
        }
        Ok(done)
    }

    fn lossy(&self, log: &Path, source: &str) -> Result<Done> {
        let counters = self.provider.counters(log);
        let job = counters.give(self.job(source, &[])?);
        let output = netns::lossy(job, LOST_OF_10000).run(log)?;
        let dropped = output.lines().find_map(dropped_packets).unwrap_or(0);
        let sums = counters.read()?;
        if sums.retransmissions() < RETRANSMISSIONS_MIN || dropped == 0 {
            bail!("{dropped} packets were dropped and {} sent again", sums.retransmissions());
        }
        Done::one(format!("{dropped} packets dropped on the way; {}", sums.remark()))
    }

    /// The benchmark program as a test: every byte of every message is compared.
    fn checked_sizes(&self, log: &Path) -> Result<Done> {
        let counters = self.provider.counters(log);
        let sizes = "0,1,7,64,1024,1025,8192,16384,16385,65536,262145,1048576,4194304";
        let job = self.job("tests/c/bench", &["-a", "127.0.0.1", "-k", "-m", "30", "-l", "60"])?;
        let job = job.args(["-w", "16", "-t", "latency,exchange,bandwidth,rate", "-s", sizes]);
        let output = counters.give(job).run(log)?;
        let points = output.matches("\"lo_bytes\"").count();
        Done::many(points, format!("{points} points; {}", counters.proof(64 << 20)?))
    }
}

/// The count in a line such as `... counter packets 17 bytes 5000 drop`.
fn dropped_packets(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("counter packets ")?;
    rest.split(' ').next()?.parse().ok()
}
