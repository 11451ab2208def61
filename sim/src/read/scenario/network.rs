//! Networks of a scenario: a tree, a dragonfly, rails, a `.topo` file or a graph.

use super::common::{Source, delay};
use super::graph::{Graph, GraphFile};
use super::links::LinkFile;
use super::names::Names;
use super::sprayed::{DragonflyFile, RailFile};
use crate::experiment::longest_rtt_ns;
use crate::fabric::blueprint::{Blueprint, NodeId};
use crate::fabric::clos::{Clos, Tier};
use crate::ids::LinkId;
use crate::patterns::{HostLink, Site};
use crate::read::topo::{QueueSettings, Topo};
use crate::read::{HOSTS_MAX, ReadError, text_of};
use crate::wire::Wire;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Most tiers.
const TIERS_MAX: usize = 8;

/// The network.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Topology {
    /// By tiers.
    Tree(TreeFile),
    /// As a `.topo` file says.
    Topo(TopoFile),
    /// By its nodes and links.
    Graph(GraphFile),
    /// Groups of switches, all joined.
    Dragonfly(DragonflyFile),
    /// Servers whose GPUs are joined twice.
    Rail(RailFile),
}

/// A tree by tiers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeFile {
    /// From the hosts upwards.
    pub tiers: Vec<Spanned<TierFile>>,
    /// Switches choose by a hash, not by the path number alone.
    #[serde(default = "super::common::yes")]
    pub hashed: bool,
}

/// A tier of a tree.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierFile {
    /// Hosts or groups of switches below each switch.
    pub children: u32,
    /// Parallel links to each child.
    #[serde(default = "one")]
    pub links_per_child: u32,
    /// Links upwards of each switch; none at the top.
    #[serde(default)]
    pub links_up: u32,
    /// Time that a packet spends in a switch before its queue.
    #[serde(default)]
    pub switch_ns: f64,
    /// Links to what is below and from there.
    #[serde(default)]
    pub links: LinkFile,
    /// Of those, the ones downwards.
    #[serde(default)]
    pub down: LinkFile,
    /// Of those, the ones upwards.
    #[serde(default)]
    pub up: LinkFile,
}

/// A `.topo` file. Rates and delays are in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopoFile {
    /// Where it is.
    pub path: Spanned<PathBuf>,
    /// Links to hosts mark too.
    #[serde(default = "super::common::yes")]
    pub red_to_hosts: bool,
}

fn one() -> u32 {
    1
}

/// Builds a network whose links are like this; queues are empty without a BDP.
type Build<'a> = dyn Fn(&LinkFile, Option<f64>) -> Result<Built, ReadError> + 'a;

/// A network, and the tree that it is, if it is one.
type Built = (Blueprint, Option<Clos>);

/// A network with the names of its nodes.
pub(super) struct Network {
    pub(super) plan: Blueprint,
    /// The tree that it is, if it is one.
    pub(super) clos: Option<Clos>,
    /// Bandwidth-delay product.
    pub(super) bdp_bytes: f64,
    names: Names,
    /// Hosts of one rack, if the network has racks.
    rack_hosts: Option<u32>,
}

impl Network {
    /// A node by its name.
    pub(super) fn node(&self, name: &str) -> Option<u32> {
        self.names.node(name)
    }

    /// What patterns know of it. The first host's link stands for those of all; a graph has no racks.
    pub(super) fn site(&self) -> Site {
        let hosts = self.plan.hosts();
        let uplink = &self.plan.links()[self.plan.links_of(NodeId(0)).start as usize].config;
        let tiers = self.clos.as_ref().map_or(&[][..], |clos| &clos.tiers);
        let wire = self.plan.wire();
        let link = HostLink {
            bytes_per_s: uplink.bytes_per_s.unwrap_or(0),
            payload_bytes: wire.payload_bytes(),
            overhead_bytes: wire.full_bytes() - wire.payload_bytes(),
        };
        Site {
            hosts,
            rack_hosts: self.rack_hosts.unwrap_or(tiers.first().map_or(1, |tier| tier.children)),
            pod_hosts: tiers.last().map_or(1, |tier| hosts / tier.children),
            link,
        }
    }

    /// Rate of the fastest link to or from a host.
    pub(super) fn fastest_bytes_per_s(&self) -> u64 {
        let is_host = |node: NodeId| node.0 < self.plan.hosts();
        let of_hosts =
            self.plan.links().iter().filter(|link| is_host(link.from) || is_host(link.to));
        let rates = of_hosts.filter_map(|link| link.config.bytes_per_s);
        rates.max().unwrap_or(0)
    }

    /// The links from one node to another.
    pub(super) fn links_between(&self, from: u32, to: u32) -> Vec<LinkId> {
        let leads = |link: &u32| self.plan.links()[*link as usize].to == NodeId(to);
        self.plan.links_of(NodeId(from)).filter(leads).map(LinkId).collect()
    }
}

impl Topology {
    pub(super) fn build(
        &self,
        source: &Source,
        (links, wire): (&LinkFile, Wire),
        seed: u64,
        dir: &Path,
    ) -> Result<Network, ReadError> {
        let mut rack_hosts = None;
        let mut names = None;
        let build: Box<Build<'_>> = match self {
            Topology::Tree(tree) => Box::new(|links, bdp| tree.build(source, links, seed, bdp)),
            Topology::Topo(file) => {
                let topo = file.read(source, links, dir)?;
                Box::new(move |links: &LinkFile, bdp| file.build(&topo, source, links, seed, bdp))
            }
            Topology::Graph(file) => {
                let graph = Graph::new(file, source)?;
                names = Some(Names::Table(graph.names()));
                Box::new(move |links, bdp| Ok((graph.build(source, links, seed, bdp)?, None)))
            }
            Topology::Dragonfly(file) => {
                rack_hosts = Some(*file.hosts.get_ref());
                Box::new(|links, bdp| Ok((file.build(source, links, seed, bdp)?, None)))
            }
            Topology::Rail(file) => {
                rack_hosts = Some(*file.gpus.get_ref());
                names = Some(file.names());
                Box::new(|links, bdp| Ok((file.build(source, links, seed, bdp)?, None)))
            }
        };
        // Delays alone give the BDP, that gives the queues.
        let bdp_bytes = bdp_bytes(&build(links, None)?.0.with_wire(wire));
        let links = links.or(&wire.links(bdp_bytes));
        let (plan, clos) = build(&links, Some(bdp_bytes))?;
        let plan = plan.with_wire(wire);
        let names = names.unwrap_or_else(|| Names::numbers(&plan));
        Ok(Network { plan, clos, bdp_bytes, names, rack_hosts })
    }
}

/// Rate of the first host's link times the round trip between the first host and the last.
fn bdp_bytes(plan: &Blueprint) -> f64 {
    let uplink = &plan.links()[plan.links_of(NodeId(0)).start as usize].config;
    uplink.bytes_per_s.unwrap_or(0) as f64 * longest_rtt_ns(plan) as f64 / 1e9
}

impl TreeFile {
    fn build(
        &self,
        source: &Source,
        links: &LinkFile,
        seed: u64,
        bdp: Option<f64>,
    ) -> Result<Built, ReadError> {
        let mut tiers = Vec::new();
        for (at, entry) in self.tiers.iter().enumerate() {
            if at == TIERS_MAX {
                return Err(source.error(entry, format_args!("expected at most {TIERS_MAX} tiers")));
            }
            let below = at.checked_sub(1).map(|below| self.tiers[below].get_ref());
            let tier = entry.get_ref().tier(links, below, bdp);
            tiers.push(tier.map_err(|what| source.error(entry, what))?);
        }
        let clos = Clos { tiers, hashed: self.hashed, seed };
        let first = self.tiers.first().map_or(0, |tier| tier.span().start);
        if clos.hosts() < 2 || clos.hosts() > HOSTS_MAX.into() {
            let what = format!("expected a tree of 2 to {HOSTS_MAX} hosts, found {}", clos.hosts());
            return Err(source.error_at(first, what));
        }
        let plan = clos.build().map_err(|error| source.error_at(first, error))?;
        Ok((plan, Some(clos)))
    }
}

impl TierFile {
    fn tier(
        &self,
        links: &LinkFile,
        below: Option<&TierFile>,
        bdp: Option<f64>,
    ) -> Result<Tier, String> {
        let config = |way: &LinkFile, switch_ns: f64| {
            let mut config = way.or(&self.links).or(links).config(bdp)?;
            let switch_ps = delay(switch_ns);
            config.propagation_ps +=
                switch_ps.ok_or("expected switch_ns from 0 to 1000000000".to_owned())?;
            Ok::<_, String>(config)
        };
        Ok(Tier {
            children: self.children,
            links_per_child: self.links_per_child,
            links_up: self.links_up,
            down: config(&self.down, below.map_or(0.0, |below| below.switch_ns))?,
            up: config(&self.up, self.switch_ns)?,
        })
    }
}

impl TopoFile {
    fn read(&self, source: &Source, links: &LinkFile, dir: &Path) -> Result<Topo, ReadError> {
        if links.rate_gbps.is_some() || links.delay_ns.is_some() {
            let what =
                "expected neither rate_gbps nor delay_ns in [links], as the .topo file has them";
            return Err(source.error(&self.path, what));
        }
        let path = dir.join(self.path.get_ref());
        let topo = Topo::read(&path.display().to_string(), &text_of(&path)?)?;
        if topo.nodes < 2 {
            return Err(source.error(&self.path, "expected a tree of 2 hosts or more"));
        }
        Ok(topo)
    }

    fn build(
        &self,
        topo: &Topo,
        source: &Source,
        links: &LinkFile,
        seed: u64,
        bdp: Option<f64>,
    ) -> Result<Built, ReadError> {
        let error = |what: String| source.error(&self.path, what);
        let queues = links.queues(bdp).map_err(error)?;
        let settings = QueueSettings {
            buffer_bytes: queues.buffer_bytes,
            red: queues.red,
            red_to_hosts: self.red_to_hosts,
            trimming: queues.trimming,
            control_first: queues.control_first,
        };
        let clos = topo.clos(&settings, seed);
        let plan = clos.build().map_err(|what| error(what.to_string()))?;
        Ok((plan, Some(clos)))
    }
}
