//! The C programs under tests/c: bad input, dead peers, computing peers, many peers, NCCL's calls.

use crate::fabric::WHEEL;
use crate::netns;
use crate::process::Job;
use crate::programs::{Suite, compile};
use crate::report::{Done, Report};
use crate::setup;
use anyhow::{Context, Result, bail, ensure};
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

/// Bytes that erd's counters show after the messages of tests/c/linked.c: 3 MiB and the shorter ones of one
/// peer. The other's are 48 MiB more.
const LINKED_BYTES: std::ops::Range<u64> = 3 << 20..4 << 20;

/// Least bytes that erd's counters show after the messages of tests/c/nccl_sendrecv.c.
const NCCL_BYTES_MIN: u64 = 128 << 20;

const MESSAGES: &str = "tests/c/messages";
const MEMORY: &str = "tests/c/memory";
const CONGESTION: &str = "tests/c/congestion";
const PEER: &str = "tests/c/peer";
/// The case there of a message under way.
const HALF_THERE: &str = "closed_while_receiving";
const ENGINES: &str = "tests/c/engines";
/// Least bytes that erd's counters show after the cases of one name there.
const ENGINE_BYTES_MIN: u64 = 2 << 20;
const NCCL_SENDRECV: &str = "tests/c/nccl_sendrecv";
const NCCL_RDMA: &str = "tests/c/nccl_rdma";
const EARLY: &str = "tests/c/early";
const TWO_CORES: &str = "tests/c/two_cores";
/// Tells where the system's libfabric is.
const SYSTEM_LIBRARY: &str = "ldconfig -p | sed -n 's/.*libfabric.so.1 .* => //p' | head -n 1";
/// The ports that a firewall lets through.
const RULED_PORTS: &str = "20000-20199";
/// Most resident bytes of a peer on this host that has sent little.
const LOCAL_PEER_BYTES: &str = "24576";
const PAUSED_PEER: &str = "tests/c/paused_peer";
const STOPPED_COPY: &str = "tests/c/stopped_copy";
const FORKS_UNDER_LOAD: &str = "tests/c/forks_under_load";
const FORKED_CHILDREN: &str = "tests/c/forked_children";
const MANY_PEERS: &str = "tests/c/many_peers";
const CROWD: &str = "tests/c/bench_crowd";
/// Most bytes of an endpoint's memory for each of [`CROWD_PEERS`] quiet peers: 1.6 KiB, and what the allocator's caches make of it.
const CROWD_BYTES_MAX: &str = "1700";
/// Peers of the two points: memory and sockets do not depend on them.
const CROWD_PEERS: &str = "16,16384";
const COMPUTING: &str = "tests/c/computing_peer";
const BAD_INPUT: &str = "tests/c/bad_input";

/// The case of tests/c/bad_input.c that is not made with a key: erd then reads what it sends itself, so a bad address
/// ends the process (docs/troubleshooting.md).
const UNREADABLE: &str = "unreadable_send";
/// The case there whose datagrams are no erd's.
const HOSTILE: &str = "hostile_datagrams";

impl Suite<'_> {
    fn job(&self, source: &str, args: &[&str]) -> Result<Job> {
        let program = compile(self.layout, source)?;
        let job = Job::new(program).args(["-p", &self.provider.name]).args(args);
        Ok(self.provider.give(self.core.give(job)).limit(Duration::from_secs(400)))
    }

    /// Runs cases; each must report that it passed. With a key it also checks their datagrams.
    fn cases(&self, job: Job, log: &Path) -> Result<Done> {
        self.judge(self.provider.alone(job), log)
    }

    /// The same in the namespace that `place` makes.
    fn cases_in(&self, place: impl FnOnce(Job) -> Job, job: Job, log: &Path) -> Result<Done> {
        self.judge(place(self.provider.watch(job)), log)
    }

    fn judge(&self, job: Job, log: &Path) -> Result<Done> {
        let ended = job.finish(log)?;
        let failed: Vec<&str> =
            ended.output.lines().filter(|line| line.starts_with("FAILED")).collect();
        if !failed.is_empty() {
            bail!("{}", failed.join("\n"));
        }
        let output = ended.success()?;
        let passed: Vec<&str> =
            output.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
        let wire = self.provider.check_wire(&output)?;
        let remark = output.lines().filter(|line| line.starts_with("  ")).map(str::trim);
        let remark: Vec<&str> = remark.chain(wire.as_deref()).collect();
        Done::many(passed.len(), format!("{} cases. {}", passed.len(), remark.join("; ")))
    }

    /// Adds a step, which is skipped if a key is to be seen and cannot be. Its name tells the key.
    fn add(&self, report: &mut Report, name: &str, work: impl FnOnce(&Path) -> Result<Done>) {
        self.add_unless(report, name, || None, work);
    }

    fn add_unless(
        &self,
        report: &mut Report,
        name: &str,
        missing: fn() -> Option<&'static str>,
        work: impl FnOnce(&Path) -> Result<Done>,
    ) {
        let name = format!("{name}{}", self.provider.traits());
        report.step_unless(&name, || missing().or_else(|| self.provider.watch_missing()), work);
    }

    /// Adds a step that runs the cases of the program `source`.
    fn program_step(&self, report: &mut Report, name: &str, source: &str) {
        self.add(report, name, |log| {
            let counters = self.provider.counters(log);
            let done = self.cases(counters.give(self.job(source, &[])?), log)?;
            if self.provider.has_lanes() {
                counters.proof(0)?;
            }
            Ok(done)
        });
    }

    /// Adds the steps that need no network of their own.
    pub fn steps(&self, report: &mut Report) {
        let on = &self.core.name;
        self.call_steps(report);
        self.program_step(report, &format!("congestion control by domain, {on}"), CONGESTION);
        // The older libfabric has no such queues: nothing is sent, and no key is seen.
        if self.core.name == WHEEL || !self.provider.is_keyed() {
            self.program_step(report, &format!("queues of another provider, {on}"), PEER);
        }
        for (name, source) in [("every call", MESSAGES), ("RMA and atomics", MEMORY)] {
            let name = format!("{name}, faults below the engine, {on}");
            self.add(report, &name, |log| self.with_faults(log, source));
        }
        self.nccl_steps(report);
        if self.core.name == WHEEL {
            let name = format!("linked with shared memory by lnx, {on}");
            self.add_unless(report, &name, netns::missing, |log| self.linked(log));
            let name = format!("NCCL's calls, RDMA, faults below the engine, {on}");
            self.add(report, &name, |log| self.with_faults(log, NCCL_RDMA));
        }
        self.add(report, &format!("bad input, {on}"), |log| self.bad_input(log));
        let name = format!("every size with data checking, {on}");
        self.add(report, &name, |log| self.checked_sizes(log));
        self.add(report, &format!("example ping-pong, {on}"), |log| {
            let program = compile(self.layout, "examples/pingpong")?;
            let job = Job::new(program).args([&self.provider.name]);
            let job = self.provider.alone(self.provider.give(self.core.give(job)));
            let output = job.run(log)?;
            self.provider.check_wire(&output)?;
            let result = output.lines().find(|line| line.contains(" rounds of "));
            Done::one(result.context("the example printed no result")?)
        });
    }

    /// Adds the steps that run over shared memory as well as over the network.
    pub fn lane_steps(&self, report: &mut Report) {
        self.call_steps(report);
        self.add(report, "peers killed, stopped, restarted", |log| self.peer_deaths(log));
        self.program_step(report, "stopped peers, with paused deadlines", PAUSED_PEER);
        self.program_step(report, "processes stopped in the midst of a copy", STOPPED_COPY);
        self.program_step(report, "forks under load", FORKS_UNDER_LOAD);
        // What was written before is with a process that is killed afterwards. NCCL's plugin forbids shared memory.
        self.add(report, "messages complete when copied, then a process ends", |log| {
            let cases = ["exits_at_once", "exits_though_nobody_answers"];
            self.cases(self.job(EARLY, &cases)?, log)
        });
        let on = &self.core.name;
        // A message that the peer reads where it is has no time to be half there.
        self.add(report, &format!("queues of another provider, {on}"), |log| {
            let listed = self.job(PEER, &["-l"])?.run(log)?;
            let cases: Vec<&str> = listed.lines().filter(|case| *case != HALF_THERE).collect();
            self.cases(self.job(PEER, &cases)?, log)
        });
        self.program_step(report, "computing peer", COMPUTING);
        self.add(report, "sockets and memory, 1 to 256 peers", |log| {
            let job = self.job(MANY_PEERS, &[])?.env("ERD_PEER_BYTES", LOCAL_PEER_BYTES);
            self.cases(job, log)
        });
        let name = format!("every size with data checking, {on}");
        self.add(report, &name, |log| self.checked_sizes(log));
    }

    /// Adds the steps of all calls.
    pub fn call_steps(&self, report: &mut Report) {
        let on = &self.core.name;
        self.program_step(report, &format!("forked children, {on}"), FORKED_CHILDREN);
        self.program_step(report, &format!("every call, {on}"), MESSAGES);
        self.program_step(report, &format!("RMA and atomics, {on}"), MEMORY);
    }

    /// Adds the steps of NCCL's calls.
    pub fn nccl_steps(&self, report: &mut Report) {
        let on = &self.core.name;
        self.add(report, &format!("NCCL's calls, SENDRECV, {on}"), |log| {
            let counters = self.provider.counters(log);
            let job = counters.give(self.job(NCCL_SENDRECV, &[])?);
            match self.cases(job, log)? {
                Done::Passed(cases, _) => Ok(Done::Passed(cases, counters.proof(NCCL_BYTES_MIN)?)),
                skipped => Ok(skipped),
            }
        });
        if self.core.name == WHEEL {
            self.program_step(report, &format!("NCCL's calls, RDMA, {on}"), NCCL_RDMA);
        }
    }

    /// Adds the steps of engines that know other names: the cases of each name end with it. They ask for an API that the
    /// system's libfabric may lack.
    pub fn engine_steps(&self, report: &mut Report) {
        for name in ["efa", "tcp"] {
            let provider = self.provider.clone().called(name);
            let suite = Suite { provider: &provider, ..*self };
            let step = format!("engines that know {name}, {}", self.core.name);
            suite.add(report, &step, |log| {
                let counters = provider.counters(log);
                let listed = suite.job(ENGINES, &["-l"])?.run(log)?;
                let cases: Vec<&str> = listed.lines().filter(|case| case.ends_with(name)).collect();
                // Beside all other providers.
                let job = suite.job(ENGINES, &cases)?.under(["env", "-u", "FI_PROVIDER"]);
                let done = suite.cases(counters.give(job), log)?;
                counters.proof(ENGINE_BYTES_MIN)?;
                Ok(done)
            });
        }
    }

    /// Adds the steps of processes that end.
    pub fn ending_steps(&self, report: &mut Report) {
        self.program_step(report, "stopped peers, with paused deadlines", PAUSED_PEER);
        self.add(report, "peers killed, stopped, restarted", |log| self.peer_deaths(log));
        let name = "messages complete when copied, then a process ends";
        self.program_step(report, name, EARLY);
    }

    fn peer_deaths(&self, log: &Path) -> Result<Done> {
        let cases = ["killed", "stopped", "restarted"];
        self.cases(self.job("tests/c/peer_death", &cases)?, log)
    }

    /// Adds the step of two libfabrics in one process: the system's, and the wheel's.
    fn cores_step(&self, report: &mut Report) {
        self.add(report, "two libfabrics in one process", |log| {
            let wheel = self.core.library_dir.as_ref().context("it is the wheel's step")?;
            let system = Job::new("sh").args(["-c", SYSTEM_LIBRARY]).run(log)?;
            let both = format!("{}:{}", system.trim(), wheel.join("libfabric.so.1").display());
            let job = self.job(TWO_CORES, &[])?.env("TWO_CORES", both).env("LD_LIBRARY_PATH", "");
            self.cases(job, log)
        });
    }

    /// Adds the step of a network that lets one class and one range of ports through.
    fn rules_step(&self, report: &mut Report) {
        let name = "RMA and atomics, through a firewall, one class";
        self.add_unless(report, name, netns::loss_missing, |log| {
            let provider = self.provider.clone().with("FI_ERD_UDP_PORTS", RULED_PORTS);
            let provider = provider.with("FI_ERD_DSCP", "46");
            let suite = Suite { provider: &provider, ..*self };
            let counters = provider.counters(log);
            let job = counters.give(suite.job(MEMORY, &[])?);
            let done = suite.cases_in(|job| netns::restricted(job, RULED_PORTS), job, log)?;
            counters.proof(1 << 20)?;
            Ok(done)
        });
    }

    /// Adds the steps of peers that die or compute.
    pub fn peer_steps(&self, report: &mut Report) {
        self.ending_steps(report);
        self.add_unless(report, "peer cut off", netns::missing, |log| {
            self.cases_in(netns::private, self.job("tests/c/peer_death", &["cut_off"])?, log)
        });
        self.program_step(report, "computing peer", COMPUTING);
        self.add_unless(report, "computing peer, 5 % loss", netns::loss_missing, |log| {
            self.lossy(log, COMPUTING)
        });
        self.add_unless(report, "NCCL's calls, SENDRECV, 5 % loss", netns::loss_missing, |log| {
            self.lossy(log, NCCL_SENDRECV)
        });
        self.program_step(report, "sockets and memory, 1 to 256 peers", MANY_PEERS);
        self.crowd_step(report);
        self.rules_step(report);
        self.cores_step(report);
    }

    /// Adds the step of thousands of peers in turn. They have no key.
    fn crowd_step(&self, report: &mut Report) {
        if self.provider.is_keyed() {
            return;
        }
        self.add(report, "sockets and memory, 16,384 peers", |log| {
            let crowd = setup::build_crowd(self.layout)?;
            let job = self
                .job(CROWD, &["-n", CROWD_PEERS, "-b", CROWD_BYTES_MAX])?
                .args(["-r".as_ref(), crowd.as_os_str()]);
            self.cases(job, log)
        });
    }

    /// Checks that the counters show the hostile datagrams of these cases as dropped.
    fn bad_input(&self, log: &Path) -> Result<Done> {
        let counters = self.provider.counters(log);
        let done = if self.provider.is_keyed() {
            let listed = self.job(BAD_INPUT, &["-l"])?.run(log)?;
            let others = listed.lines().filter(|case| ![UNREADABLE, HOSTILE].contains(case));
            let others: Vec<&str> = others.collect();
            let done = self.cases(self.job(BAD_INPUT, &others)?, log)?;
            // Some of its datagrams tell the version without a key.
            counters.give(self.job(BAD_INPUT, &[HOSTILE])?).run(log)?;
            done
        } else {
            self.cases(counters.give(self.job(BAD_INPUT, &[])?), log)?
        };
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
        let doubled = sums.get("drops.duplicate") + sums.get("drops.replayed");
        let resent = sums.retransmissions();
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
        let done = self.cases_in(netns::private, job, log)?;
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
        let output = netns::lossy(self.provider.watch(job), LOST_OF_10000).run(log)?;
        self.provider.check_wire(&output)?;
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
        let output = self.provider.alone(counters.give(job)).run(log)?;
        self.provider.check_wire(&output)?;
        let points = output.matches("\"lo_bytes\"").count();
        Done::many(points, format!("{points} points; {}", counters.proof(64 << 20)?))
    }
}

/// The count in a line such as `... counter packets 17 bytes 5000 drop`.
fn dropped_packets(line: &str) -> Option<u64> {
    let line = line.trim_end().strip_suffix(" drop")?;
    let (_, rest) = line.split_once("counter packets ")?;
    rest.split(' ').next()?.parse().ok()
}
