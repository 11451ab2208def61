//! libfabric's own programs: `fi_info` and `fi_pingpong`.

use crate::fabric::{Core, Counters, Provider};
use crate::layout::Layout;
use crate::process::{Job, Running};
use crate::report::{Done, Report};
use crate::valgrind;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Single sizes that are tried beside `-S all`, which has powers of two and their neighbours.
const SIZES: &[&str] = &["0", "1", "3", "1023", "16385", "1000003", "8388608"];
/// How long a server may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

/// One ping-pong run.
#[derive(Clone, Debug)]
pub struct PingPong<'a> {
    /// Arguments of both sides.
    pub args: Vec<&'a str>,
    /// Loopback address, which tells the family.
    pub address: &'a str,
    /// TCP port of its control connection.
    pub port: u16,
    /// The provider of both sides.
    pub under: Vec<String>,
    /// Time for the whole run.
    pub limit: Duration,
}

impl<'a> PingPong<'a> {
    /// A run over IPv4 with data checking.
    #[must_use]
    pub fn new(args: &[&'a str]) -> PingPong<'a> {
        let mut all = vec!["-e", "rdm", "-c"];
        all.extend(args);
        PingPong {
            args: all,
            address: "127.0.0.1",
            port: free_port(),
            under: Vec::new(),
            limit: Duration::from_secs(120),
        }
    }

    /// Runs both sides; returns the client's output.
    ///
    /// # Errors
    /// Either side's failure.
    pub fn run(
        &self,
        core: &Core,
        provider: &Provider,
        counters: &Counters,
        log: &Path,
    ) -> Result<String> {
        let [server, client] = self.jobs(core, [provider, provider], counters);
        let mut server = server.start(log)?;
        wait_for_listener(self.port, || server.has_ended())?;
        let client = client.finish(log)?;
        let server = server.finish(log)?.success();
        let written = client.success().context("the client")?;
        server.context("the server")?;
        Ok(written)
    }

    /// Starts both sides, which end at the latest when the result is dropped.
    ///
    /// # Errors
    /// A side that does not start.
    pub fn start(&self, core: &Core, provider: &Provider, log: &Path) -> Result<[Running; 2]> {
        let [server, client] = self.jobs(core, [provider, provider], &provider.counters(log));
        let mut server = server.start(log)?;
        wait_for_listener(self.port, || server.has_ended())?;
        Ok([server, client.start(log)?])
    }

    /// Runs both sides, of which the client must fail; returns the client's output. The server may wait for ever for
    /// such a client, so it is ended.
    ///
    /// # Errors
    /// The client's success.
    pub fn refused(&self, core: &Core, providers: [&Provider; 2], log: &Path) -> Result<String> {
        let [server, client] = self.jobs(core, providers, &providers[1].counters(log));
        let mut server = server.start(log)?;
        wait_for_listener(self.port, || server.has_ended())?;
        let client = client.finish(log)?;
        ensure!(client.status.is_some(), "the client did not end: {}", client.shown);
        ensure!(!client.is_success(), "the client succeeded: {}", client.shown);
        Ok(client.output)
    }

    /// The server and the client.
    fn jobs(&self, core: &Core, providers: [&Provider; 2], counters: &Counters) -> [Job; 2] {
        let port = self.port.to_string();
        let job = |provider: &Provider, port_option: &str| {
            let job = Job::new("fi_pingpong").args(["-p", &provider.name]).args(&self.args);
            let job = job.args([port_option, &port]).under(&self.under).limit(self.limit);
            counters.give(provider.give(core.give(job)))
        };
        [job(providers[0], "-B"), job(providers[1], "-P").args([self.address])]
    }
}

/// A TCP port that nobody uses just now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0));
    listener.and_then(|listener| listener.local_addr()).map_or(47_592, |address| address.port())
}

/// Waits until something listens at `port`, without connecting to it.
fn wait_for_listener(port: u16, mut has_ended: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_listening(port) {
        if has_ended()? || start.elapsed() > LISTEN_LIMIT {
            bail!("the server does not listen at its control port {port}");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_listening(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table).is_ok_and(|table| {
            table.lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().unwrap_or_default();
                local.ends_with(&suffix) && words.nth(1) == Some("0A")
            })
        })
    })
}

/// Adds the steps for one libfabric.
pub fn steps(report: &mut Report, core: &Core, provider: &Provider) {
    let on = format!("{}{}", core.name, provider.traits());
    report.step(&format!("fi_info, {on}"), |log| {
        let job = Job::new("fi_info").args(["-p", &provider.name, "-t", "FI_EP_RDM"]);
        let output = provider.give(core.give(job)).run(log)?;
        let shown = output.matches(&format!("provider: {}", provider.name)).count();
        Done::many(shown, format!("{shown} interfaces"))
    });
    for mode in ["msg", "tagged"] {
        report.step(&format!("fi_pingpong {mode}, all sizes, {on}"), |log| {
            let run = PingPong::new(&["-m", mode, "-S", "all", "-I", "20"]);
            checked(&run, core, provider, log)
        });
    }
    report.step(&format!("fi_pingpong single sizes, {on}"), |log| {
        let counters = provider.counters(log);
        for size in SIZES {
            let run = PingPong::new(&["-m", "tagged", "-S", size, "-I", "20"]);
            rows(&run.run(core, provider, &counters, log)?)?;
        }
        Done::many(SIZES.len(), counters.proof(20 * 8_388_608)?)
    });
    report.step(&format!("fi_pingpong IPv6, {on}"), |log| {
        let mut run = PingPong::new(&["-6", "-S", "all", "-I", "20"]);
        run.address = "::1";
        checked(&run, core, provider, log)
    });
}

/// A step under the name of a provider that libfabric has itself, and hides.
pub fn name_step(report: &mut Report, core: &Core, provider: &Provider) {
    report.step(&format!("fi_pingpong, FI_ERD_PROV_NAME=tcp, {}", core.name), |log| {
        all_sizes(core, &provider.clone().called("tcp"), log)
    });
}

/// The names of the congestion control schemes, from the table of settings, which a test
/// holds against the provider's.
///
/// # Errors
/// The table has no such row.
pub fn schemes(layout: &Layout) -> Result<Vec<String>> {
    let table = fs::read_to_string(layout.root.join("docs/settings.md"))?;
    let row = table.lines().find(|line| line.starts_with("| `FI_ERD_CC` |"));
    let names = row.and_then(|row| row.split(" | ").nth(2)).context("no row of FI_ERD_CC")?;
    Ok(names.split(", ").filter(|name| *name != "auto").map(str::to_owned).collect())
}

/// A step for each congestion control scheme.
pub fn scheme_steps(report: &mut Report, layout: &Layout, core: &Core, provider: &Provider) {
    for name in schemes(layout).unwrap_or_default() {
        report.step(&format!("fi_pingpong, FI_ERD_CC={name}, {}", core.name), |log| {
            let provider = provider.clone().with("FI_ERD_CC", &name).with("FI_ERD_PATHS", "4");
            let run = PingPong::new(&["-m", "tagged", "-S", "all", "-I", "5"]);
            checked(&run, core, &provider, log)
        });
    }
}

/// Steps under memcheck.
pub fn memcheck_steps(report: &mut Report, core: &Core, provider: &Provider) {
    let on = &core.name;
    report.step(&format!("fi_info under valgrind, {on}"), |log| {
        let job = Job::new("fi_info").args(["-p", &provider.name]).under(valgrind::command(log));
        provider.give(core.give(job)).limit(valgrind::LIMIT).run(log)?;
        valgrind::verdict(log, 1)
    });
    report.step(&format!("fi_pingpong under valgrind, {on}"), |log| {
        let mut run = PingPong::new(&["-m", "tagged", "-S", "all", "-I", "5"]);
        run.under = valgrind::command(log);
        run.limit = valgrind::LIMIT;
        rows(&run.run(core, provider, &provider.counters(log), log)?)?;
        valgrind::verdict(log, 2)
    });
}

/// All sizes with tags.
///
/// # Errors
/// Either side's failure, bytes that erd did not carry.
pub fn all_sizes(core: &Core, provider: &Provider, log: &Path) -> Result<Done> {
    let run = PingPong::new(&["-m", "tagged", "-S", "all", "-I", "20"]);
    checked(&run, core, provider, log)
}

fn checked(run: &PingPong<'_>, core: &Core, provider: &Provider, log: &Path) -> Result<Done> {
    let counters = provider.counters(log);
    let sizes = rows(&run.run(core, provider, &counters, log)?)?;
    Done::many(
        sizes.len(),
        format!("{} sizes; {}", sizes.len(), counters.proof(total_bytes(&sizes))?),
    )
}

/// Size and iterations of each row of the client's table.
///
/// # Errors
/// It has no rows.
pub fn rows(output: &str) -> Result<Vec<(u64, u64)>> {
    let rows: Vec<(u64, u64)> = output.lines().filter_map(row).collect();
    if rows.is_empty() {
        bail!("fi_pingpong printed no results");
    }
    Ok(rows)
}

fn row(line: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() != 8 {
        return None;
    }
    Some((shortened(words[0])?, shortened(words[1])?))
}

/// A number as fi_pingpong writes it: `64`, `4k`, `1m`.
fn shortened(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match &word[digits.len()..] {
        "" => Some(number),
        "k" => Some(number << 10),
        "m" => Some(number << 20),
        "g" => Some(number << 30),
        _ => None,
    }
}

/// Bytes that both sides received together, at least.
fn total_bytes(sizes: &[(u64, u64)]) -> u64 {
    sizes.iter().map(|(bytes, iterations)| 2 * bytes * iterations).sum()
}
