//! Mercury's own tests. Its table of names has no erd, so erd takes the name `tcp` (docs/libfabric.md).

use super::{Form, place};
use crate::fabric::Provider;
use crate::process::{Job, last_lines};
use crate::report::{Done, Report};
use anyhow::{Context, Result, bail, ensure};
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

/// The server is killed once the client has begun to write. The client goes on to its next call after an error, so it
/// is killed too when it has told one.
const KILLED: &str = r#"
cd "$1" && rm -f port.cfg server client
"$0/hg_perf_server" --comm ofi --protocol tcp > server 2>&1 & server=$!
until grep -q "Waiting for client" server; do sleep 0.1; done
"$0/hg_bw_write" --comm ofi --protocol tcp --loop 1000000 \
    --buf_size_min 1048576 --buf_size_max 1048576 > client 2>&1 & client=$!
until grep -q "^# Size" client; do sleep 0.1; done
kill -KILL $server
until grep -q NA_HOSTUNREACH client; do sleep 0.1; done
kill -KILL $client
cat server client
"#;

/// Adds its steps.
pub fn steps(report: &mut Report, provider: &Provider) {
    let missing = || place(PLACE).is_none().then_some("ERD_MERCURY names no built Mercury");
    let provider = provider.clone().called(NAME);
    for form in Form::all(&provider) {
        let name = format!("Mercury's tests, called {NAME}{}", form.traits());
        report.step_unless(&name, missing, |log| tests(&form, log));
    }
    let name = format!("Mercury, a server killed, called {NAME}{}", provider.traits());
    report.step_unless(&name, missing, |log| killed(&provider, log));
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

fn killed(provider: &Provider, log: &Path) -> Result<Done> {
    let dir = crate::layout::empty(log.with_extension("dir"))?;
    let bin = place(PLACE).context(PLACE)?.join("bin");
    let job = Job::new("sh").args(["-c", KILLED]).args([&bin, &dir]);
    let ended = provider.give(job).limit(Duration::from_secs(60)).finish(log)?;
    ensure!(ended.status.is_some(), "the client did not tell an error within its time");
    let told = ended.output.lines().find(|line| line.contains("NA_HOSTUNREACH"));
    let Some(told) = told else {
        bail!("the client told no error:\n{}", last_lines(&ended.output, 15));
    };
    Done::one(told.trim())
}
