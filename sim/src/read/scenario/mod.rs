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
//! [topology.tree]                # or topo, graph, dragonfly, rail
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
mod failures;
mod graph;
mod hosts;
mod info_path;
mod links;
mod names;
mod network;
mod pfc;
mod sprayed;
mod work;

pub use failures::{CHANGES_MAX, FAILURES_MAX, FailureFile, FlapsFile, HealthFile, ManyLinks};
pub use graph::{Ends, GraphFile, GraphLink};
pub use hosts::{DelayFile, HostsFile, ParetoFile};
pub use info_path::InfoPathFile;
pub use links::{LinkFile, RedFile, Size};
pub use network::{TierFile, TopoFile, Topology, TreeFile};
pub use pfc::{MemoryFile, PfcFile};
pub use sprayed::{DragonflyFile, RailFile};
pub use work::{FlowFile, GoalFile, HostName, MatrixFile, StartUnitName, WorkFile};

use super::ReadError;
use crate::experiment::{Begin, Engines, Failure};
use crate::fabric::blueprint::{Blueprint, Rerouting};
use crate::fabric::clos::{Clos, Cut};
use crate::fabric::flowlet;
use crate::info_path::InfoPathSettings;
use crate::link::Health;
use crate::patterns::HostLink;
use crate::scenario::SchemeMaker;
use crate::schemes;
use crate::time::Picos;
use crate::transport::{self, Protocol};
use crate::wire::Wire;
use crate::work::Work;
use common::{Source, time, yes};
use erd_rd::cc::options::OptionInfo;
use erd_rd::config::PATHS_MAX;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use toml::Spanned;

/// Longest text of a scenario.
pub const SCENARIO_BYTES_MAX: usize = 1 << 26;
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
    /// What packets cost on its links, and how long queues are where nothing is said.
    #[serde(default)]
    pub wire: Wire,
    /// What its links are like, unless the topology says otherwise.
    #[serde(default)]
    pub links: LinkFile,
    /// How its switches choose between links.
    #[serde(default)]
    pub switches: SwitchFile,
    /// What lies between its hosts' links and their engines: nothing, if nothing is said.
    pub hosts: Option<Spanned<HostsFile>>,
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
    /// They route around dead links: they do not, if nothing is said.
    pub rerouting: Option<Spanned<ReroutingFile>>,
}

/// When switches learn that a link died or came back.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReroutingFile {
    /// Until the switch where the link begins knows, in microseconds.
    pub detect_us: f64,
    /// Until all others have drawn their conclusions.
    pub converge_us: f64,
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
    /// A reliable stream beside the datagrams: none, if nothing is said.
    pub info_path: Option<Spanned<InfoPathFile>>,
}

/// A scenario that can be run.
pub struct Prepared {
    /// The network.
    pub plan: Arc<Blueprint>,
    /// What the hosts do.
    pub work: Work,
    /// Rate of the fastest of the hosts' links.
    pub fastest_bytes_per_s: u64,
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

impl Prepared {
    /// The fastest of the hosts' links with the packets of what its hosts speak. The bound takes it for the links of all.
    #[must_use]
    pub fn link(&self) -> HostLink {
        let (payload_bytes, overhead_bytes) = self.engines.protocol.packet_bytes(self.plan.wire());
        HostLink { bytes_per_s: self.fastest_bytes_per_s, payload_bytes, overhead_bytes }
    }
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
        let links = (&self.links, self.wire);
        let network = self.topology.build(&self.source, links, self.seed, dir)?;
        let (work, dead) = work::build(&self.source, &self.work, &network, dir, self.seed)?;
        let mut failures = failures::build(&self.source, &self.failures, &network)?;
        let health = Health::Dead;
        failures.extend(dead.into_iter().map(|link| Failure { at: 0, link, health }));
        failures.sort_by_key(|failure| failure.at);
        let trims = network.plan.links().iter().any(|link| link.config.trimming);
        let engines = self.engines(trims)?;
        let first_bytes_per_s = network.site().link.bytes_per_s;
        let fastest_bytes_per_s = network.fastest_bytes_per_s();
        let cuts = network.clos.as_ref().map_or_else(Vec::new, Clos::cuts);
        let plan = self.furnished(network.plan, network.bdp_bytes, first_bytes_per_s)?;
        Ok(Prepared {
            plan: Arc::new(plan),
            work,
            fastest_bytes_per_s,
            cuts,
            engines,
            failures,
            seed: self.seed,
            limit_ps,
        })
    }

    /// The network with what its switches and hosts do.
    fn furnished(
        &self,
        mut plan: Blueprint,
        bdp_bytes: f64,
        bytes_per_s: u64,
    ) -> Result<Blueprint, ReadError> {
        if let Some(gap_ps) = self.switches.gap_ps(&self.source, bytes_per_s)? {
            plan = plan.with_flowlets(gap_ps);
        }
        if let Some(pfc) = &self.switches.pfc {
            plan = PfcFile::apply(pfc, &self.source, plan, bdp_bytes)?;
        }
        if let Some(rerouting) = self.switches.rerouting(&self.source, &plan)? {
            plan = plan.with_rerouting(rerouting);
        }
        if let Some(hosts) = &self.hosts {
            plan = plan.with_receivers(HostsFile::receivers(hosts, &self.source)?);
        }
        Ok(plan)
    }

    fn engines(&self, trimming: bool) -> Result<Engines, ReadError> {
        let EngineFile { scheme, paths, rto_min_us, base_known, .. } = &self.engines;
        let begin = self.begin()?;
        let protocol = Protocol::by_name(scheme.get_ref()).unwrap_or_default();
        let info_path = self.info_path(&protocol)?;
        let (protocol, scheme) = self.scheme(protocol)?;
        if !(1..=PATHS_MAX).contains(paths.get_ref()) {
            let what = format_args!("expected paths from 1 to {}", PATHS_MAX);
            return Err(self.source.error(paths, what));
        }
        if !(1.0..=60e6).contains(rto_min_us.get_ref()) {
            let what = "expected rto_min_us from 1 to 60000000";
            return Err(self.source.error(rto_min_us, what));
        }
        Ok(Engines {
            protocol,
            scheme,
            paths: *paths.get_ref(),
            rto_min_ns: (rto_min_us.get_ref() * 1e3) as u64,
            base_known: *base_known,
            trimming,
            begin,
            info_path,
        })
    }

    /// What hosts know when the work begins.
    fn begin(&self) -> Result<Begin, ReadError> {
        let EngineFile { warm, learned, .. } = &self.engines;
        match (warm, learned.get_ref()) {
            (false, false) => Ok(Begin::Cold),
            (true, false) => Ok(Begin::Warm),
            (true, true) => Ok(Begin::Learned),
            (false, true) => Err(self.source.error(learned, "expected warm = true beside learned")),
        }
    }

    /// The information paths of hosts, which the engine alone may have.
    fn info_path(&self, protocol: &Protocol) -> Result<Option<InfoPathSettings>, ReadError> {
        match &self.engines.info_path {
            Some(entry) if *protocol != Protocol::Erd => {
                let name = self.engines.scheme.get_ref();
                let what = format_args!("expected no info_path: {name} has none");
                Err(self.source.error(entry, what))
            }
            Some(entry) => InfoPathFile::settings(entry, &self.source).map(Some),
            None => Ok(None),
        }
    }

    /// The protocol and the scheme, each with its settings.
    fn scheme(&self, mut protocol: Protocol) -> Result<(Protocol, SchemeMaker), ReadError> {
        let EngineFile { scheme, settings, .. } = &self.engines;
        let is_baseline = protocol != Protocol::Erd;
        // A baseline does not use the engine: any scheme will do.
        let name = if is_baseline { schemes::NAMES[0] } else { scheme.get_ref() }.to_owned();
        let Some(mut changed) = schemes::by_name(&name) else {
            let names = [schemes::NAMES, schemes::BASELINES, transport::BASELINES].concat();
            let names = names.join(", ");
            let what = format_args!("expected a scheme of {names}, found {name:?}");
            return Err(self.source.error(scheme, what));
        };
        let mut values = Vec::new();
        for (setting, value) in settings {
            if is_baseline {
                let set = protocol.set(setting, (*value.get_ref()).into());
                set.map_err(|error| self.source.error(value, error))?;
                continue;
            }
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
        let scheme = Rc::new(move || {
            let mut scheme = schemes::by_name(&name).expect("built once before");
            for (setting, value) in &values {
                scheme.set(setting, *value).expect("set once before");
            }
            scheme
        });
        Ok((protocol, scheme))
    }
}

impl SwitchFile {
    /// When switches learn of dead links, if they route around them.
    fn rerouting(&self, source: &Source, plan: &Blueprint) -> Result<Option<Rerouting>, ReadError> {
        let Some(entry) = &self.rerouting else { return Ok(None) };
        if plan.is_told() {
            let what =
                "expected no rerouting in a dragonfly or rail network: senders choose the way";
            return Err(source.error(entry, what));
        }
        let ReroutingFile { detect_us, converge_us } = entry.get_ref();
        match [*detect_us, *converge_us].map(|us| time(us, 1e3)) {
            [Some(near_ps), Some(far_ps)] if near_ps <= far_ps => {
                Ok(Some(Rerouting { near_ps, far_ps }))
            }
            _ => {
                let what = "expected detect_us from 0 to converge_us, and that up to 1000000000000";
                Err(source.error(entry, what))
            }
        }
    }

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

#[cfg(test)]
mod tests;
