//! Work of a scenario: matrices, schedules, lists of messages, patterns.

use super::common::{Source, time};
use super::network::Network;
use crate::fabric::blueprint::mixed;
use crate::ids::{HostId, LinkId};
use crate::patterns::Pattern;
use crate::read::goal::Schedule;
use crate::read::matrix::{Matrix, StartUnit};
use crate::read::{MESSAGE_BYTES_MAX, MESSAGES_MAX, ReadError, shown, text_of};
use crate::work::Work;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Some of the work. All of it happens at the same time.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkFile {
    /// htsim's connection matrix.
    Matrix(MatrixFile),
    /// A GOAL schedule.
    Goal(GoalFile),
    /// Messages one by one.
    Flows(Vec<Spanned<FlowFile>>),
    /// A pattern by name and parameters.
    Pattern(Pattern),
}

/// A `.cm` file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixFile {
    /// Where it is.
    pub path: PathBuf,
    /// What its start times count.
    #[serde(default)]
    pub start_unit: StartUnitName,
}

/// What start times of a `.cm` file count.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartUnitName {
    /// Microseconds, as uet-htsim has it.
    #[default]
    Us,
    /// Picoseconds, as its generators have it.
    Ps,
}

/// A `.goal` file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalFile {
    /// Where it is.
    pub path: PathBuf,
}

/// A message.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFile {
    /// Who sends it.
    pub from: HostName,
    /// Who receives it.
    pub to: HostName,
    /// Its length.
    pub bytes: u64,
    /// When it starts, in microseconds.
    #[serde(default)]
    pub start_us: f64,
    /// The message of this list, from 0, that has to arrive at its sender before.
    pub after: Option<usize>,
}

/// A host.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a host's number or name")]
pub enum HostName {
    /// By its number.
    Number(u32),
    /// By its name.
    Name(String),
}

/// The work of all hosts, and links that are dead from the start.
pub(super) fn build(
    source: &Source,
    entries: &[Spanned<WorkFile>],
    network: &Network,
    dir: &Path,
    seed: u64,
) -> Result<(Work, Vec<LinkId>), ReadError> {
    let mut work = Work::new(network.plan.hosts());
    let mut dead = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match entry.get_ref() {
            WorkFile::Matrix(matrix) => {
                let path = dir.join(&matrix.path);
                let unit = match matrix.start_unit {
                    StartUnitName::Us => StartUnit::Micros,
                    StartUnitName::Ps => StartUnit::Picos,
                };
                let name = path.display().to_string();
                let matrix = Matrix::read(&name, &text_of(&path)?, unit)?;
                matrix.add_to(&mut work)?;
                if !matrix.failures.is_empty() {
                    let Some(clos) = &network.clos else {
                        let what = "expected a tree for a matrix with failures";
                        return Err(source.error(entry, what));
                    };
                    dead.extend(matrix.failed_links(clos, &network.plan)?.concat());
                }
            }
            WorkFile::Goal(goal) => {
                let path = dir.join(&goal.path);
                let name = path.display().to_string();
                Schedule::read(&name, &text_of(&path)?)?.add_to(&mut work)?;
            }
            WorkFile::Flows(flows) => add_flows(source, network, flows, &mut work)?,
            WorkFile::Pattern(pattern) => {
                // Each entry has random numbers of its own.
                let seed = mixed(seed ^ (at as u64) << 32);
                let added = pattern.add_to(&mut work, &network.site(), seed);
                added.map_err(|what| source.error(entry, what))?;
            }
        }
        if work.flows().len() > MESSAGES_MAX {
            let what = format_args!("expected at most {MESSAGES_MAX} messages");
            return Err(source.error(entry, what));
        }
    }
    if work.circle().is_some() {
        let what = "expected messages that can start, but some wait for each other";
        return Err(ReadError::whole(&source.file, what));
    }
    Ok((work, dead))
}

fn add_flows(
    source: &Source,
    network: &Network,
    flows: &[Spanned<FlowFile>],
    work: &mut Work,
) -> Result<(), ReadError> {
    let first = work.flows().len();
    for (at, entry) in flows.iter().enumerate() {
        let error = |what: String| source.error(entry, what);
        let FlowFile { from, to, bytes, start_us, after } = entry.get_ref();
        let host = |name: &HostName| host(network, name).map_err(error);
        let (from, to) = (host(from)?, host(to)?);
        if from == to {
            return Err(error(format!("expected two hosts, but {} sends to itself", from.0)));
        }
        if *bytes > MESSAGE_BYTES_MAX {
            return Err(error(format!("expected bytes up to {MESSAGE_BYTES_MAX}, found {bytes}")));
        }
        let Some(start) = time(*start_us, 1e3) else {
            return Err(error("expected start_us from 0 to 1000000000000".to_owned()));
        };
        let flow = work.message(from, to, *bytes);
        work.start_at(flow, start);
        let Some(after) = *after else { continue };
        // Only what comes before it in the list exists yet, and so nothing waits for itself.
        let before = (after < at).then(|| work.flows()[first + after]);
        match before {
            Some(before) if before.to == from => {
                work.after(from, before.receive, work.flows()[flow.0 as usize].send);
            }
            Some(_) => {
                let what = format!(
                    "expected after with a message to {}, found one to another host",
                    from.0
                );
                return Err(error(what));
            }
            None => {
                return Err(error(format!("expected after below {at}, the place of this message")));
            }
        }
    }
    Ok(())
}

fn host(network: &Network, name: &HostName) -> Result<HostId, String> {
    let hosts = network.plan.hosts();
    let (found, shown) = match name {
        HostName::Number(number) => (Some(*number), number.to_string()),
        HostName::Name(name) => (network.node(name), shown(name)),
    };
    let found = found.filter(|found| *found < hosts);
    found.map(HostId).ok_or_else(|| {
        format!("expected a host from 0 to {} or its name, found {shown}", hosts - 1)
    })
}
