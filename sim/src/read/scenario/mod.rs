//! The simulator's own scenarios, in TOML: a network, work, engines, failures.
//!
//! ```toml
//! seed = 1
//! limit_ms = 50
//!
//! [links]                        # what all links are like
//! rate_gbps = 100
//! delay_ns = 500
//! queue = { bdp = 1 }            # or { bytes = 100000 }
//! red = { min = { bdp = 0.2 }, max = { bdp = 0.8 } }
//! control_first = true
//!
//! [topology.tree]                # or [topology.topo], [topology.graph]
//! tiers = [{ children = 4, links_up = 2 }, { children = 8, links = { rate_gbps = 200 } }]
//!
//! [[work]]
//! flows = [{ from = 0, to = 31, bytes = 2000000 }]
//! [[work]]
//! permutation = { bytes = 2000000 }
//!
//! [engines]
//! scheme = "nscc"
//! paths = 64
//!
//! [[failures]]
//! link = ["h0", "s0"]
//! at_us = 20
//! health = "dead"
//! ```
//!
//! Hosts of a tree are called `h0`, `h1`... and its switches `s0`, `s1`..., tier by tier from the hosts upwards. A graph
//! gives its nodes names. A BDP is the rate of the first host's link times the round trip of a lone full packet between the
//! first host and the last. Paths of files start at the scenario's directory.
//!
//! [`ScenarioFile::read`] checks the form, [`ScenarioFile::prepare`] builds everything and refuses what cannot be run.

mod common;
mod graph;
mod links;
mod network;
mod pfc;
mod work;

pub use graph::{Ends, GraphFile, GraphLink};
pub use links::{LinkFile, RedFile, Size};
pub use network::{TierFile, TopoFile, Topology, TreeFile};
pub use pfc::{MemoryFile, PfcFile};
pub use work::{FlowFile, GoalFile, HostName, MatrixFile, StartUnitName, WorkFile};

use super::ReadError;
use crate::experiment::{Begin, Engines, Failure};
use crate::fabric::blueprint::Blueprint;
use crate::fabric::clos::{Clos, Cut};
use crate::fabric::flowlet;
use crate::ids::LinkId;
use crate::link::Health;
use crate::patterns::HostLink;
use crate::schemes;
use crate::time::Picos;
use crate::transport::Protocol;
use crate::work::Work;
use common::{Source, time, yes};
use erd_rd::cc::options::OptionInfo;
use erd_rd::config::PATHS_MAX;
use network::Network;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use toml::Spanned;

/// Longest text of a scenario.
pub const SCENARIO_BYTES_MAX: usize = 1 << 26;
/// Most failures.
pub const FAILURES_MAX: usize = 1 << 16;
/// Most that a link is slowed.
const SLOWED_MAX: u32 = 1_000_000;

/// A scenario as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// All the randomness there is.
    #[serde(default = "one")]
    pub seed: u64,
    /// Most simulated time, in milliseconds.
    #[serde(default = "second")]
    pub limit_ms: Spanned<f64>,
    /// The network.
    pub topology: Topology,
    /// What its links are like, unless the topology says otherwise.
    #[serde(default)]
    pub links: LinkFile,
    /// How its switches choose between links.
    #[serde(default)]
    pub switches: SwitchFile,
    /// What the hosts do.
    pub work: Vec<Spanned<WorkFile>>,
    /// How they do it.
    pub engines: EngineFile,
    /// What breaks.
    #[serde(default)]
    pub failures: Vec<Spanned<FailureFile>>,
    /// Where errors lie.
    #[serde(skip)]
    source: Source,
}

/// The switches.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchFile {
    /// How they choose between links that lead to the same host.
    #[serde(default)]
    pub balancing: BalancingFile,
    /// The pause that ends a flowlet, in microseconds. Without it, it follows the rate of the first host's link.
    pub flowlet_gap_us: Option<Spanned<f64>>,
    /// They pause the senders at the other ends of their links instead of dropping. They do not, if nothing is said.
    pub pfc: Option<Spanned<PfcFile>>,
}

/// How switches choose between links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BalancingFile {
    /// By the packet's path number, as the topology says: a sender with one path has per-flow ECMP.
    #[default]
    Path,
    /// At random for each flowlet (LetFlow).
    Flowlet,
}

/// The hosts' engines.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineFile {
    /// Congestion control.
    pub scheme: Spanned<String>,
    /// Settings of it.
    #[serde(default)]
    pub settings: BTreeMap<String, Spanned<f32>>,
    /// Path numbers that they spray over.
    #[serde(default = "paths")]
    pub paths: Spanned<u16>,
    /// Shortest retransmission timeout, in microseconds.
    #[serde(default = "rto_min")]
    pub rto_min_us: Spanned<f64>,
    /// They are told the base round trip.
    #[serde(default = "yes")]
    pub base_known: bool,
    /// Sessions are open before the work begins, and messages granted.
    #[serde(default)]
    pub warm: bool,
    /// Besides, flows have sent before what their controllers learn from.
    #[serde(default = "not")]
    pub learned: Spanned<bool>,
}

/// A link that breaks or heals.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureFile {
    /// The nodes at its ends, by name.
    pub link: Ends,
    /// Which of parallel links, from 0; all without it.
    pub which: Option<u32>,
    /// In the other direction as well.
    #[serde(default = "yes")]
    pub both_ways: bool,
    /// When, in microseconds.
    pub at_us: f64,
    /// How the link does from then on.
    pub health: HealthFile,
}

/// How a link does.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HealthFile {
    /// As configured.
    Up,
    /// Loses everything.
    Dead,
    /// So many times slower.
    Slowed(u32),
    /// Loses this share of packets, 0 to 1.
    Lossy(f64),
}

/// A scenario that can be run.
pub struct Prepared {
    /// The network.
    pub plan: Arc<Blueprint>,
    /// What the hosts do.
    pub work: Work,
    /// The first host's link, which the bound takes for that of all.
    pub link: HostLink,
    /// Where a tree narrows, for the bound.
    pub cuts: Vec<Cut>,
    /// How they do it.
    pub engines: Engines,
    /// What breaks, in the order of time.
    pub failures: Vec<Failure>,
    /// All the randomness there is.
    pub seed: u64,
    /// Most simulated time.
    pub limit_ps: Picos,
}

fn one() -> u64 {
    1
}

fn paths() -> Spanned<u16> {
    Spanned::new(0..0, 64)
}

fn rto_min() -> Spanned<f64> {
    Spanned::new(0..0, 100.0)
}

fn not() -> Spanned<bool> {
    Spanned::new(0..0, false)
}

fn second() -> Spanned<f64> {
    Spanned::new(0..0, 1000.0)
}

impl ScenarioFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the line and what it should say: it is no TOML, or a key is unknown, missing or of the wrong type.
    pub fn read(file: &str, text: &str) -> Result<ScenarioFile, ReadError> {
        if text.len() > SCENARIO_BYTES_MAX {
            let what = format!("expected at most {SCENARIO_BYTES_MAX} bytes, found {}", text.len());
            return Err(ReadError::whole(file, what));
        }
        let source = Source::new(file, text);
        match toml::from_str::<ScenarioFile>(text) {
            Ok(read) => Ok(ScenarioFile { source, ..read }),
            Err(error) => {
                let what = error.message().trim_end().replace('\n', ", ");
                Err(match error.span() {
                    Some(span) => source.error_at(span.start, what),
                    None => ReadError::whole(file, what),
                })
            }
        }
    }

    /// Builds the network and the work. `dir` is where paths of files start.
    ///
    /// # Errors
    /// Names the line, and what cannot be run.
    pub fn prepare(&self, dir: &Path) -> Result<Prepared, ReadError> {
        let limit_ps = time(*self.limit_ms.get_ref(), 1e6).filter(|limit| *limit > 0);
        let Some(limit_ps) = limit_ps else {
            let what = "expected limit_ms of more than 0 and at most 1000000000";
            return Err(self.source.error(&self.limit_ms, what));
        };
        let network = self.topology.build(&self.source, &self.links, self.seed, dir)?;
        let (work, dead) = work::build(&self.source, &self.work, &network, dir, self.seed)?;
        let mut failures = self.failures(&network)?;
        let health = Health::Dead;
        failures.extend(dead.into_iter().map(|link| Failure { at: 0, link, health }));
        failures.sort_by_key(|failure| failure.at);
        let trims = network.plan.links().iter().any(|link| link.config.trimming);
        let engines = self.engines(trims)?;
        let link = network.site().link;
        let cuts = network.clos.as_ref().map_or_else(Vec::new, Clos::cuts);
        let mut plan = match self.switches.gap_ps(&self.source, link.bytes_per_s)? {
            None => network.plan,
            Some(gap_ps) => network.plan.with_flowlets(gap_ps),
        };
        if let Some(pfc) = &self.switches.pfc {
            plan = PfcFile::apply(pfc, &self.source, plan, network.bdp_bytes)?;
        }
        Ok(Prepared {
            plan: Arc::new(plan),
            work,
            link,
            cuts,
            engines,
            failures,
            seed: self.seed,
            limit_ps,
        })
    }

    fn engines(&self, trimming: bool) -> Result<Engines, ReadError> {
        let EngineFile { scheme, settings, paths, rto_min_us, base_known, warm, learned } =
            &self.engines;
        let begin = match (warm, learned.get_ref()) {
            (false, false) => Begin::Cold,
            (true, false) => Begin::Warm,
            (true, true) => Begin::Learned,
            (false, true) => {
                return Err(self.source.error(learned, "expected warm = true beside learned"));
            }
        };
        let name = scheme.get_ref().clone();
        let Some(mut changed) = schemes::by_name(&name) else {
            let names = [schemes::NAMES, schemes::BASELINES].concat().join(", ");
            return Err(self
                .source
                .error(scheme, format_args!("expected a scheme of {names}, found {name:?}")));
        };
        let mut values = Vec::new();
        for (setting, value) in settings {
            if let Err(error) = changed.set(setting, *value.get_ref()) {
                let options: Vec<_> = changed.options().iter().map(OptionInfo::to_string).collect();
                let what = format!(
                    "setting {setting} of {name}: {error}; expected one of {}",
                    options.join(", ")
                );
                return Err(self.source.error(value, what));
            }
            values.push((setting.clone(), *value.get_ref()));
        }
        if !(1..=PATHS_MAX).contains(paths.get_ref()) {
            let what = format_args!("expected paths from 1 to {}", PATHS_MAX);
            return Err(self.source.error(paths, what));
        }
        let rto_min_us = *rto_min_us.get_ref();
        if !(1.0..=60e6).contains(&rto_min_us) {
            let what = "expected rto_min_us from 1 to 60000000";
            return Err(self.source.error(&self.engines.rto_min_us, what));
        }
        let scheme = Rc::new(move || {
            let mut scheme = schemes::by_name(&name).expect("built once before");
            for (setting, value) in &values {
                scheme.set(setting, *value).expect("set once before");
            }
            scheme
        });
        let rto_min_ns = (rto_min_us * 1e3) as u64;
        Ok(Engines {
            protocol: Protocol::Erd,
            scheme,
            paths: *paths.get_ref(),
            rto_min_ns,
            base_known: *base_known,
            trimming,
            begin,
        })
    }

    fn failures(&self, network: &Network) -> Result<Vec<Failure>, ReadError> {
        let mut failures = Vec::new();
        if let Some(more) = self.failures.get(FAILURES_MAX) {
            return Err(self
                .source
                .error(more, format_args!("expected at most {FAILURES_MAX} failures")));
        }
        for entry in &self.failures {
            let failure = entry.get_ref();
            let error = |what: String| self.source.error(entry, what);
            let Some(at) = time(failure.at_us, 1e3) else {
                return Err(error("expected at_us from 0 to 1000000000000".to_owned()));
            };
            let health = failure.health.health().map_err(|what| error(what.to_owned()))?;
            let mut ends = [0, 0];
            for (end, name) in ends.iter_mut().zip(&failure.link.0) {
                let node = network.node(name);
                *end = node.ok_or_else(|| error(format!("expected a node, found {name:?}")))?;
            }
            let ways = if failure.both_ways { 2 } else { 1 };
            for [from, to] in [ends, [ends[1], ends[0]]].into_iter().take(ways) {
                let links = network.links_between(from, to);
                let picked: Vec<LinkId> = match failure.which {
                    None => links,
                    Some(which) => links.get(which as usize).copied().into_iter().collect(),
                };
                if picked.is_empty() {
                    return Err(error(format!(
                        "expected a link between {:?} and {:?}",
                        failure.link.0[0], failure.link.0[1]
                    )));
                }
                failures.extend(picked.into_iter().map(|link| Failure { at, link, health }));
            }
        }
        Ok(failures)
    }
}

impl SwitchFile {
    /// The pause that ends a flowlet, if switches balance by flowlets.
    fn gap_ps(&self, source: &Source, bytes_per_s: u64) -> Result<Option<Picos>, ReadError> {
        match (self.balancing, &self.flowlet_gap_us) {
            (BalancingFile::Path, None) => Ok(None),
            (BalancingFile::Path, Some(gap_us)) => {
                let what = "expected balancing = \"flowlet\" beside flowlet_gap_us";
                Err(source.error(gap_us, what))
            }
            (BalancingFile::Flowlet, None) => Ok(Some(flowlet::gap_ps(bytes_per_s))),
            (BalancingFile::Flowlet, Some(gap_us)) => match time(*gap_us.get_ref(), 1e3) {
                Some(gap_ps) => Ok(Some(gap_ps)),
                None => {
                    let what = "expected flowlet_gap_us from 0 to 1000000000000";
                    Err(source.error(gap_us, what))
                }
            },
        }
    }
}

impl HealthFile {
    fn health(self) -> Result<Health, &'static str> {
        match self {
            HealthFile::Up => Ok(Health::Up),
            HealthFile::Dead => Ok(Health::Dead),
            HealthFile::Slowed(times) if (1..=SLOWED_MAX).contains(&times) => {
                Ok(Health::Slowed { times })
            }
            HealthFile::Slowed(_) => Err("expected slowed from 1 to 1000000"),
            HealthFile::Lossy(share) if (0.0..=1.0).contains(&share) => Ok(Health::Lossy { share }),
            HealthFile::Lossy(_) => Err("expected lossy from 0 to 1"),
        }
    }
}

#[cfg(test)]
mod tests;
