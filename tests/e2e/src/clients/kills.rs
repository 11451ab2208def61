//! A process that is killed in the midst of its traffic, as often as the environment says. Each time the other one must
//! tell an error.

use crate::fabric::Provider;
use crate::layout::empty;
use crate::process::{Job, Running, append, last_lines};
use crate::report::Done;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Variable with the number of kills in each step.
const COUNT: &str = "ERD_KILLS";
/// Most kills in a step.
const COUNT_MAX: u32 = 1000;
/// erd's deadline, where nothing else tells it that the peer has ended.
const DEADLINE: (&str, &str) = ("FI_ERD_PEER_TIMEOUT_MS", "1000");
/// Most time until the traffic is under way, and most from the kill to the error.
const LIMIT: Duration = Duration::from_secs(60);
/// Most time for a round's programs altogether.
const ROUND_LIMIT: Duration = Duration::from_secs(180);
/// Time between two looks at what they wrote.
const POLL: Duration = Duration::from_millis(1);
/// The rounds kill at moments this far apart, and begin again after the step's span.
const MOMENTS_APART_US: u32 = 7_919;
/// The span of steps whose traffic never ends.
pub const LONG_US: u32 = 50_000;
/// What the map of a process has that shares erd's memory.
const LANE: &str = "memfd:erd";

/// What the programs of a round write, by names of files in its directory.
#[derive(Debug)]
pub struct Signs<'a> {
    /// The number of the process that dies.
    pub victim: &'a str,
    /// The text that this file has, this often, once the traffic is under way.
    pub under_way: (&'a str, &'a str, usize),
    /// Most time from there to the kill, in microseconds.
    pub span_us: u32,
    /// What the survivor's file says of the error.
    pub error: (&'a str, &'a str),
}

/// The survivor's error.
#[derive(Debug)]
pub struct Told {
    after: Duration,
    line: String,
}

/// One kill.
#[derive(Debug)]
pub struct Round<'a> {
    /// Counts from 0.
    pub number: u32,
    /// What its programs write.
    pub dir: &'a Path,
    /// The step's log.
    pub log: &'a Path,
    provider: &'a Provider,
}

/// Kills as often as the environment says; `round` runs the programs anew, and calls [`Round::kill`].
pub fn rounds(
    provider: &Provider,
    log: &Path,
    round: impl Fn(&Round<'_>) -> Result<Told>,
) -> Result<Done> {
    let count = count(std::env::var_os(COUNT).as_deref())?;
    let (mut told, mut failures) = (Vec::new(), Vec::new());
    for number in 0..count {
        let dir = empty(log.with_extension("dir"))?;
        let outcome = round(&Round { number, dir: &dir, log, provider });
        append(log, &format!("[kill {number}: {outcome:?}]\n"))?;
        match outcome {
            Ok(one) => told.push(one),
            Err(error) => failures.push(format!("kill {number}: {error:#}")),
        }
    }
    if let Some(first) = failures.first() {
        bail!("{} of {count} kills without an error: {first}", failures.len());
    }
    told.sort_by_key(|one| one.after);
    let last = told.last().context("nothing was killed")?;
    let middle = told[told.len() / 2].after.as_millis();
    let after = last.after.as_millis();
    let line = &last.line;
    Done::many(told.len(), format!("{count} killed; error after {middle} ms, most {after}: {line}"))
}

/// How often to kill.
fn count(text: Option<&OsStr>) -> Result<u32> {
    let Some(text) = text else { return Ok(1) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|count| (1..=COUNT_MAX).contains(count))
        .with_context(|| format!("{COUNT}={} is not from 1 to {COUNT_MAX}", text.display()))
}

impl Round<'_> {
    /// Starts the round's programs.
    pub fn start(&self, job: Job) -> Result<Running> {
        let job = self.provider.give(job).env(DEADLINE.0, DEADLINE.1);
        job.limit(ROUND_LIMIT).start(self.log)
    }

    /// Kills one of them once the traffic is under way, and waits for the other one's error.
    pub fn kill(&self, programs: &mut Running, signs: &Signs<'_>) -> Result<Told> {
        let (file, text, times) = signs.under_way;
        self.wait(programs, file, |written| written.matches(text).count() >= times)?;
        let moment = self.number * MOMENTS_APART_US % signs.span_us;
        thread::sleep(Duration::from_micros(moment.into()));
        let victim = self.victim(signs.victim)?;
        let start = Instant::now();
        kill_process(victim, Signal::KILL).context("nobody was there to kill")?;
        let (file, text) = signs.error;
        let written = self.wait(programs, file, |written| whole_line(written, text).is_some())?;
        let line = whole_line(&written, text).unwrap_or_default().trim().to_owned();
        Ok(Told { after: start.elapsed(), line })
    }

    /// The process to kill, which must share memory where the provider is to.
    fn victim(&self, file: &str) -> Result<Pid> {
        let text = fs::read_to_string(self.dir.join(file)).context("the victim's number")?;
        let number = text.trim().parse().ok().and_then(Pid::from_raw);
        let victim = number.with_context(|| format!("{text} is no process"))?;
        let map = fs::read_to_string(format!("/proc/{}/maps", victim.as_raw_nonzero()))?;
        let (shares, wanted) = (map.contains(LANE), self.provider.has_lanes());
        ensure!(shares == wanted, "shares memory by erd: {shares}, expected {wanted}");
        Ok(victim)
    }

    /// Waits until a file is as wanted; returns its text.
    fn wait(
        &self,
        programs: &mut Running,
        file: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let path: PathBuf = self.dir.join(file);
        let deadline = Instant::now() + LIMIT;
        loop {
            let have_ended = programs.has_ended()?;
            let written =
                String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            if is_there(&written) {
                return Ok(written);
            }
            if have_ended || Instant::now() >= deadline {
                let how = if have_ended { "ended" } else { "went on" };
                bail!("the programs {how}; {file} has only\n{}", last_lines(&written, 15));
            }
            thread::sleep(POLL);
        }
    }
}

/// The first line with `text` that has been written to its end.
fn whole_line<'a>(written: &'a str, text: &str) -> Option<&'a str> {
    let whole = &written[..written.rfind('\n')?];
    whole.lines().find(|line| line.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_number_of_kills() {
        let read = |text: &str| count(Some(OsStr::new(text)));
        assert_eq!(count(None).expect("one"), 1);
        assert_eq!(read("100").expect("a number"), 100);
        for wrong in ["", "0", "1001", "-1", "many"] {
            let error = read(wrong).expect_err(wrong).to_string();
            assert_eq!(error, format!("ERD_KILLS={wrong} is not from 1 to 1000"));
        }
    }

    #[test]
    fn a_line_counts_once_it_is_whole() {
        assert_eq!(whole_line("one\nan error", "error"), None);
        assert_eq!(whole_line("one\nan error: it\ntwo", "error"), Some("an error: it"));
    }
}
