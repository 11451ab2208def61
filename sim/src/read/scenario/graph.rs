//! Networks by their nodes and links. Switches send packets over all shortest ways.

use super::common::Source;
use super::links::LinkFile;
use crate::fabric::blueprint::{
    Blueprint, LINKS_MAX, LinkPlan, NodeId, Routes, Spread, SwitchPlan, mixed,
};
use crate::read::{HOSTS_MAX, ReadError, shown};
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use toml::Spanned;

/// Most entries of all switches' tables: hosts times switches, and links times switches with hosts.
pub const ENTRIES_MAX: u64 = 1 << 26;
/// Most parallel links of one entry.
const COUNT_MAX: u32 = 1 << 10;

/// Nodes and links.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphFile {
    /// Names of hosts, which get the numbers from 0 on.
    pub hosts: Spanned<Vec<Spanned<String>>>,
    /// Names of switches.
    pub switches: Vec<Spanned<String>>,
    /// Links, each in both directions.
    pub links: Vec<Spanned<GraphLink>>,
    /// Switches choose by a hash, not by the path number alone.
    #[serde(default = "super::common::yes")]
    pub hashed: bool,
}

/// Links between two nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphLink {
    /// The nodes. A host has one link, to a switch.
    pub between: Ends,
    /// How many there are.
    #[serde(default = "one")]
    pub count: u32,
    /// What they are like, in both directions.
    #[serde(default)]
    pub link: LinkFile,
    /// What those from the first node to the second are like.
    #[serde(default)]
    pub there: LinkFile,
    /// What those from the second node to the first are like.
    #[serde(default)]
    pub back: LinkFile,
}

/// The names of the two nodes that a link joins.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Ends(pub [String; 2]);

impl TryFrom<Vec<String>> for Ends {
    type Error = String;

    fn try_from(names: Vec<String>) -> Result<Ends, String> {
        let names = <[String; 2]>::try_from(names);
        names
            .map(Ends)
            .map_err(|names| format!("expected the names of two nodes, found {}", names.len()))
    }
}

fn one() -> u32 {
    1
}

/// A switch's first link and number of links by host, and the links.
type Table = (Vec<(u32, u32)>, Vec<u32>);

/// A graph whose nodes exist and which is joined.
pub(super) struct Graph<'a> {
    file: &'a GraphFile,
    names: HashMap<&'a str, u32>,
    hosts: u32,
    /// Ends of each entry of links.
    ends: Vec<[u32; 2]>,
    /// For each switch the node that each of its links leads to, in their order.
    leads: Vec<Vec<u32>>,
    /// The switch of each host.
    switch_of: Vec<u32>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(file: &'a GraphFile, source: &Source) -> Result<Graph<'a>, ReadError> {
        let (hosts, switches) = (file.hosts.get_ref(), &file.switches);
        let too_large = hosts.len() as u64 * switches.len() as u64 > ENTRIES_MAX;
        if too_large || !(2..=HOSTS_MAX as usize).contains(&hosts.len()) {
            let what = format!(
                "expected 2 to {HOSTS_MAX} hosts, and at most {ENTRIES_MAX} hosts times switches"
            );
            return Err(source.error(&file.hosts, what));
        }
        let mut names = HashMap::new();
        for (at, name) in hosts.iter().chain(switches).enumerate() {
            if names.insert(name.get_ref().as_str(), at as u32).is_some() {
                let what =
                    format!("expected a name of its own, found {} again", shown(name.get_ref()));
                return Err(source.error(name, what));
            }
        }
        let leads = vec![Vec::new(); switches.len()];
        let hosts = hosts.len() as u32;
        let switch_of = vec![u32::MAX; hosts as usize];
        let mut graph = Graph { file, names, hosts, ends: Vec::new(), leads, switch_of };
        let mut count = 0;
        for entry in &file.links {
            count += 2 * u64::from(entry.get_ref().count);
            let joined = if count > LINKS_MAX.into() {
                Err(format!("expected at most {LINKS_MAX} links"))
            } else {
                graph.join(entry.get_ref())
            };
            joined.map_err(|what| source.error(entry, what))?;
        }
        let mut last = graph.switch_of.clone();
        last.sort_unstable();
        last.dedup();
        if count * last.len() as u64 > ENTRIES_MAX {
            let what = format!("expected at most {ENTRIES_MAX} links times switches with hosts");
            return Err(source.error(&file.hosts, what));
        }
        graph.check(source)?;
        Ok(graph)
    }

    fn join(&mut self, link: &GraphLink) -> Result<(), String> {
        let mut ends = [0, 0];
        for (end, name) in ends.iter_mut().zip(&link.between.0) {
            let node = self.names.get(name.as_str());
            *end = *node.ok_or_else(|| format!("expected a node, found {}", shown(name)))?;
        }
        if ends[0] == ends[1] {
            return Err("expected two nodes, found one twice".to_owned());
        }
        if !(1..=COUNT_MAX).contains(&link.count) {
            return Err(format!("expected count from 1 to {COUNT_MAX}"));
        }
        for [from, to] in [ends, [ends[1], ends[0]]] {
            match from.checked_sub(self.hosts) {
                Some(switch) => {
                    let leads = std::iter::repeat_n(to, link.count as usize);
                    self.leads[switch as usize].extend(leads);
                }
                None => {
                    let switch = &mut self.switch_of[from as usize];
                    if to < self.hosts || link.count > 1 || *switch != u32::MAX {
                        return Err("expected one link of each host, to a switch".to_owned());
                    }
                    *switch = to - self.hosts;
                }
            }
        }
        self.ends.push(ends);
        Ok(())
    }

    /// Each host has its link, and a way leads from each switch with hosts to all others of them.
    fn check(&self, source: &Source) -> Result<(), ReadError> {
        let distances = self.distances(self.switch_of[0]);
        for (host, switch) in self.switch_of.iter().enumerate() {
            let names = self.file.hosts.get_ref();
            let name = &names[host];
            let what = match distances.get(*switch as usize) {
                None => "expected one link of each host, to a switch, found none".to_owned(),
                Some(&u32::MAX) => format!("expected a way from {}", shown(names[0].get_ref())),
                Some(_) => continue,
            };
            return Err(source.error(name, format_args!("host {}: {what}", shown(name.get_ref()))));
        }
        Ok(())
    }

    /// Links from each switch to one of them; the largest number where no way leads. Hosts pass nothing on.
    fn distances(&self, to: u32) -> Vec<u32> {
        let mut distances = vec![u32::MAX; self.leads.len()];
        let Some(first) = distances.get_mut(to as usize) else { return distances };
        *first = 0;
        let mut reached = VecDeque::from([to]);
        while let Some(switch) = reached.pop_front() {
            let next = distances[switch as usize] + 1;
            for node in &self.leads[switch as usize] {
                let Some(neighbour) = node.checked_sub(self.hosts) else { continue };
                if distances[neighbour as usize] == u32::MAX {
                    distances[neighbour as usize] = next;
                    reached.push_back(neighbour);
                }
            }
        }
        distances
    }

    pub(super) fn names(&self) -> HashMap<String, u32> {
        self.names.iter().map(|(name, node)| ((*name).to_owned(), *node)).collect()
    }

    pub(super) fn build(
        &self,
        source: &Source,
        all: &LinkFile,
        seed: u64,
        bdp: Option<f64>,
    ) -> Result<Blueprint, ReadError> {
        let mut links = Vec::new();
        for (entry, ends) in self.file.links.iter().zip(&self.ends) {
            let GraphLink { count, link, there, back, .. } = entry.get_ref();
            for (way, [from, to]) in [(there, *ends), (back, [ends[1], ends[0]])] {
                let config = way.or(link).or(all).config(bdp);
                let config = config.map_err(|what| source.error(entry, what))?;
                let plan = LinkPlan { from: NodeId(from), to: NodeId(to), config };
                links.extend(std::iter::repeat_n(plan, *count as usize));
            }
        }
        Ok(Blueprint::new(self.hosts, self.switches(seed), links))
    }

    fn switches(&self, seed: u64) -> Vec<SwitchPlan> {
        let mut hosts_of: HashMap<u32, Vec<u32>> = HashMap::new();
        for (host, switch) in self.switch_of.iter().enumerate() {
            hosts_of.entry(*switch).or_default().push(host as u32);
        }
        let empty = (vec![(0, 0); self.hosts as usize], Vec::new());
        let mut tables: Vec<Table> = vec![empty; self.leads.len()];
        for (last, hosts) in &hosts_of {
            let distances = self.distances(*last);
            for (at, (by_host, links)) in tables.iter_mut().enumerate() {
                let leads = self.leads[at].iter().enumerate();
                let first = links.len() as u32;
                if at as u32 == *last {
                    for (link, node) in leads.filter(|(_, node)| **node < self.hosts) {
                        by_host[*node as usize] = (links.len() as u32, 1);
                        links.push(link as u32);
                    }
                    continue;
                }
                let nearer = leads.filter(|(_, node)| {
                    let neighbour = node.checked_sub(self.hosts);
                    let distance = neighbour.map_or(u32::MAX, |node| distances[node as usize]);
                    distance < distances[at]
                });
                links.extend(nearer.map(|(link, _)| link as u32));
                let count = links.len() as u32 - first;
                hosts.iter().for_each(|host| by_host[*host as usize] = (first, count));
            }
        }
        let plan = |(number, (by_host, links)): (usize, _)| {
            let salt = mixed(seed ^ (number as u64) << 32) as u32;
            let hashed = self.file.hashed;
            let spread = if hashed { Spread::Hashed { salt } } else { Spread::Modulo };
            SwitchPlan { spread, routes: Routes::Table { by_host, links } }
        };
        tables.into_iter().enumerate().map(plan).collect()
    }
}
