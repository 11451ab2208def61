//! Mercury's own tests. Its table of names has no erd, so erd takes the name `tcp` (docs/libfabric.md).

use super::kills::{self, Signs};
use super::{Form, place};
use crate::fabric::Provider;
use crate::process::Job;
use crate::report::{Done, Report};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

/// Variable with the directory in which somebody built it, with `NA_OFI_TESTING_PROTOCOL=tcp`.
const PLACE: &str = "ERD_MERCURY";
/// The name that its table has.
const NAME: &str = "tcp";
/// Most time for its tests, and for one of them.
const LIMIT: Duration = Duration::from_secs(900);
const TEST_SECONDS: &str = "120";
/// Least bytes that erd's counters show after its tests, which move 13 MB.
const BYTES_MIN: u64 = 8 << 20;
/// Its test driver takes each "error" in a server's output for a failure. Without huge pages the server complains
/// in a part of its log that this value leaves out.
const LOG_PARTS: (&str, &str) = ("HG_LOG_SUBSYS", "hg_all,~hg_util");

/// A server that reads from a client's memory, for several of its calls at a time.
const PAIR: &str = r#"
cd "$1"
"$0/hg_perf_server" --comm ofi --protocol tcp > server 2>&1 & echo $! > server-number
until grep -q "Waiting for client" server; do sleep 0.02; done
"$0/hg_bw_write" --comm ofi --protocol tcp --loop 1000000 --handle 8 \
    --buf_size_min 1048576 --buf_size_max 1048576 > client 2>&1 & echo $! > client-number
wait
"#;
/// Another client of the same server.
const NEXT: &str = r#"
cd "$1" && exec "$0/hg_rate" --comm ofi --protocol tcp --loop 100 \
    --buf_size_min 8 --buf_size_max 8
"#;
const SERVER: &str = "server";
const CLIENT: &str = "client";
/// What Mercury says of a dead peer.
const FAILED: &str = "NA_HOSTUNREACH";

/// Adds its steps.
pub fn steps(report: &mut Report, provider: &Provider) {
    let missing = || place(PLACE).is_none().then_some("ERD_MERCURY names no built Mercury");
    let provider = provider.clone().called(NAME);
    for form in Form::all(&provider) {
        let name = format!("Mercury's tests, called {NAME}{}", form.traits());
        report.step_unless(&name, missing, |log| tests(&form, log));
    }
    for victim in [SERVER, CLIENT] {
        let name = format!("Mercury, a {victim} killed, called {NAME}{}", provider.traits());
        report.step_unless(&name, missing, |log| killed(&provider, victim, log));
    }
}

fn tests(form: &Form, log: &Path) -> Result<Done> {
    let counters = form.provider.counters(log);
    let wanted = format!("_ofi_{NAME}");
    let job = Job::new("ctest").args(["--output-on-failure", "--timeout", TEST_SECONDS]);
    let job = job.args(["--tests-regex", &wanted]).dir(place(PLACE).context(PLACE)?);
    let job = form.provider.give(job).env(LOG_PARTS.0, LOG_PARTS.1).limit(LIMIT);
    let output = counters.give(job).run(log)?;
    let is_pass = |line: &&str| line.contains(&wanted) && line.contains(" Passed ");
    let passed = output.lines().filter(is_pass).count();
    Done::many(passed, format!("{passed} tests pass; {}", form.proof(&counters, BYTES_MIN)?))
}

/// Kills the `victim`. The client goes on to its next call after an error, and the server serves another client.
fn killed(provider: &Provider, victim: &str, log: &Path) -> Result<Done> {
    let bin = place(PLACE).context(PLACE)?.join("bin");
    let survivor = if victim == SERVER { CLIENT } else { SERVER };
    kills::rounds(provider, log, |round| {
        let mut pair = round.start(Job::new("sh").args(["-c", PAIR]).args([&bin, round.dir]))?;
        let under_way = (CLIENT, "# Size", 1);
        let number = format!("{victim}-number");
        let error = (survivor, FAILED);
        let signs = Signs { victim: &number, under_way, span_us: kills::LONG_US, error };
        let told = round.kill(&mut pair, &signs)?;
        if victim == CLIENT {
            let next = Job::new("sh").args(["-c", NEXT]).args([&bin, round.dir]);
            round.start(next)?.finish(log)?.success().context("the next client")?;
        }
        Ok(told)
    })
}
