//! Runs scenarios on several threads, each once. A file can keep what has been run, so that a command that was interrupted
//! after hours goes on where it was.

use super::watcher::{WatchedPairs, Watcher};
use crate::compare::bound_of;
use crate::experiment::Experiment;
use crate::read::scenario::{Prepared, ScenarioFile};
use crate::summary::Summary;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// What a run gave.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRun {
    /// Hosts of the network.
    pub hosts: u32,
    /// Completion times.
    pub least_us: f64,
    /// The same.
    pub mean_us: f64,
    /// The same.
    pub p99_us: f64,
    /// The same.
    pub max_us: f64,
    /// Time until all have arrived.
    pub whole_us: f64,
    /// Least mean completion time that the network allows.
    pub bound_mean_us: f64,
    /// Least time until all have arrived that it allows.
    pub bound_whole_us: f64,
    /// Payload over the time until all have arrived.
    pub goodput_gbps: f64,
    /// Data packets, without repeats.
    pub data_packets: u64,
    /// Repeats of them.
    pub repeats: u64,
    /// Of these, those that were not needed.
    pub repeats_spurious: u64,
    /// Payloads cut off.
    pub trims: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Repeats after time without progress. They are among the repeats.
    pub timeouts: u64,
    /// Packets marked.
    pub marks: u64,
    /// How often a link had to pause.
    pub pauses: u64,
    /// What was counted of some pairs of hosts.
    pub pairs: WatchedPairs,
}

/// The results of all scenarios that have been run, by their text. One that could not be run has what was wrong.
#[derive(Default)]
pub struct Runs {
    done: BTreeMap<String, Result<ClaimRun, String>>,
    /// Each further result goes to its end.
    kept: Option<File>,
    /// Hash of this program: another one may give other results.
    program: u64,
}

/// A line of the file that keeps results.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    program: u64,
    text: String,
    run: Result<ClaimRun, String>,
}

impl Runs {
    /// Goes on with what this same program left in a file, and keeps there what it runs.
    ///
    /// # Errors
    /// The file cannot be read or written, or is something else.
    pub fn kept_in(file: &Path) -> anyhow::Result<Runs> {
        let name = || file.display().to_string();
        let program = fnv(&fs::read(env::current_exe()?)?);
        let (mut done, mut ours) = (BTreeMap::new(), String::new());
        let text = if file.exists() {
            fs::read_to_string(file).with_context(name)?
        } else {
            String::new()
        };
        for (at, line) in text.lines().enumerate() {
            let kept: Kept = serde_json::from_str(line)
                .with_context(|| format!("{}:{}: expected a kept run", name(), at + 1))?;
            if kept.program == program {
                done.insert(kept.text, kept.run);
                ours.extend([line, "\n"]);
            }
        }
        // Those of another program are of no use any more.
        fs::write(file, ours).with_context(name)?;
        let kept = OpenOptions::new().append(true).open(file).with_context(name)?;
        Ok(Runs { done, kept: Some(kept), program })
    }

    /// Runs those that have not been run yet, on so many threads. `note` hears of each.
    ///
    /// # Errors
    /// A result cannot be kept.
    pub fn add(
        &mut self,
        texts: &[String],
        jobs: usize,
        mut note: impl FnMut(usize, usize),
    ) -> anyhow::Result<()> {
        let mut open: Vec<&String> =
            texts.iter().filter(|text| !self.done.contains_key(*text)).collect();
        open.sort();
        open.dedup();
        let next = AtomicUsize::new(0);
        let (told, heard) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..jobs.min(open.len()) {
                let (told, next, open) = (told.clone(), &next, &open);
                scope.spawn(move || {
                    while let Some(text) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let run = run(text).map_err(|error| format!("{error:#}"));
                        // Nobody listens any more once a result could not be kept.
                        if told.send(((*text).clone(), run)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(told);
            for (at, (text, run)) in heard.iter().enumerate() {
                if let Some(file) = &mut self.kept {
                    let kept = Kept { program: self.program, text: text.clone(), run: run.clone() };
                    writeln!(file, "{}", serde_json::to_string(&kept)?)?;
                }
                self.done.insert(text, run);
                note(at + 1, open.len());
            }
            Ok(())
        })
    }

    /// One of them.
    ///
    /// # Panics
    /// It was not asked for.
    pub fn get(&self, text: &str) -> &Result<ClaimRun, String> {
        &self.done[text]
    }
}

/// Builds a scenario.
///
/// # Errors
/// It cannot be run.
pub fn prepare(text: &str) -> anyhow::Result<Prepared> {
    Ok(ScenarioFile::read("scenario", text)?.prepare(Path::new(""))?)
}

/// FNV-1a.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn run(text: &str) -> anyhow::Result<ClaimRun> {
    let prepared = prepare(text)?;
    let bound = bound_of(&prepared);
    let Prepared { plan, work, engines, failures, seed, limit_ps, .. } = prepared;
    let experiment = Experiment { plan: plan.clone(), work, engines, seed, threads: 1 };
    let mut watcher = Watcher::default();
    let (results, fabric) = experiment.run_observed(limit_ps, &failures, &mut watcher)?;
    let summary = Summary::of(&results, &bound);
    let times = summary.completion_us.ok_or_else(|| anyhow::anyhow!("there are no messages"))?;
    let repeats = summary.repeats;
    Ok(ClaimRun {
        hosts: plan.hosts(),
        least_us: short(times.min),
        mean_us: short(times.mean),
        p99_us: short(times.p99),
        max_us: short(times.max),
        whole_us: short(summary.whole_us),
        bound_mean_us: short(summary.bound_mean_us),
        bound_whole_us: short(summary.bound_whole_us),
        goodput_gbps: short(summary.goodput_bytes_per_s * 8e-9),
        data_packets: summary.data_packets,
        repeats: repeats.all(),
        repeats_spurious: repeats.spurious,
        trims: summary.links.trims,
        drops: summary.links.drops,
        timeouts: repeats.timeout,
        marks: summary.links.marks,
        pauses: summary.links.pauses,
        pairs: watcher.finish(&fabric),
    })
}

/// With six decimals of a microsecond, which are its picoseconds.
fn short(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
