//! What breaks in a scenario: links that die, slow down, lose packets, change bits, or come and go.

use super::common::{Source, time, yes};
use super::graph::Ends;
use super::network::Network;
use crate::experiment::Failure;
use crate::fabric::blueprint::NodeId;
use crate::ids::LinkId;
use crate::link::Health;
use crate::read::{ReadError, shown};
use crate::time::Picos;
use serde::Deserialize;
use toml::Spanned;

/// Most failures.
pub const FAILURES_MAX: usize = 1 << 16;
/// Most changes of links that come of them.
pub const CHANGES_MAX: usize = 1 << 22;
/// Most that a link is slowed.
const SLOWED_MAX: u32 = 1_000_000;

/// Links that break or heal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureFile {
    /// The nodes at a link's ends, by name.
    pub link: Option<Ends>,
    /// In place of `link`: many of them.
    pub links: Option<ManyLinks>,
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

/// Many links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManyLinks {
    /// Every link.
    All,
    /// Those of hosts.
    Hosts,
    /// Those between switches.
    Switches,
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
    /// Changes this share of bits, 0 to 1.
    Corrupt(f64),
    /// Dies and comes back, again and again.
    Flaps(FlapsFile),
}

/// A link that comes and goes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlapsFile {
    /// For how long it is dead each time, in microseconds.
    pub down_us: f64,
    /// For how long it is up in between.
    pub up_us: f64,
    /// How often it dies.
    pub times: u32,
}

/// Changes of all links, in the order of the failures.
pub(super) fn build(
    source: &Source,
    entries: &[Spanned<FailureFile>],
    network: &Network,
) -> Result<Vec<Failure>, ReadError> {
    let mut failures = Vec::new();
    if let Some(more) = entries.get(FAILURES_MAX) {
        return Err(source.error(more, format_args!("expected at most {FAILURES_MAX} failures")));
    }
    for entry in entries {
        let failure = entry.get_ref();
        let changes = failure.changes();
        let added = changes.and_then(|changes| Ok((changes, failure.links(network)?)));
        let (changes, links) = added.map_err(|what| source.error(entry, what))?;
        if failures.len() + changes.len() * links.len() > CHANGES_MAX {
            let what = format_args!("expected at most {CHANGES_MAX} changes of links");
            return Err(source.error(entry, what));
        }
        for (at, health) in changes {
            failures.extend(links.iter().map(|link| Failure { at, link: *link, health }));
        }
    }
    Ok(failures)
}

impl FailureFile {
    fn links(&self, network: &Network) -> Result<Vec<LinkId>, String> {
        match (&self.link, self.links) {
            (Some(ends), None) => self.links_of(ends, network),
            (None, Some(many)) if self.which.is_none() && self.both_ways => {
                Ok(many.links(network).collect())
            }
            (None, Some(_)) => Err("expected neither which nor both_ways beside links".to_owned()),
            _ => Err("expected either link or links".to_owned()),
        }
    }

    fn links_of(&self, ends: &Ends, network: &Network) -> Result<Vec<LinkId>, String> {
        let mut nodes = [0, 0];
        for (node, name) in nodes.iter_mut().zip(&ends.0) {
            let found = network.node(name);
            *node = found.ok_or_else(|| format!("expected a node, found {}", shown(name)))?;
        }
        let ways = if self.both_ways { 2 } else { 1 };
        let mut picked = Vec::new();
        for [from, to] in [nodes, [nodes[1], nodes[0]]].into_iter().take(ways) {
            let links = network.links_between(from, to);
            match (self.which, links.len()) {
                (_, 0) => {
                    let [one, other] = &ends.0;
                    return Err(format!(
                        "expected a link between {} and {}",
                        shown(one),
                        shown(other)
                    ));
                }
                (None, _) => picked.extend(links),
                (Some(which), count) => picked
                    .push(*links.get(which as usize).ok_or_else(|| {
                    format!(
                        "expected which below {count}, the number of parallel links, found {which}"
                    )
                })?),
            }
        }
        Ok(picked)
    }

    /// The healths that the links have, one after another, and from when on.
    fn changes(&self) -> Result<Vec<(Picos, Health)>, String> {
        let Some(at) = time(self.at_us, 1e3) else {
            return Err("expected at_us from 0 to 1000000000000".to_owned());
        };
        let health = match self.health {
            HealthFile::Up => Health::Up,
            HealthFile::Dead => Health::Dead,
            HealthFile::Slowed(times) if (1..=SLOWED_MAX).contains(&times) => {
                Health::Slowed { times }
            }
            HealthFile::Slowed(_) => return Err("expected slowed from 1 to 1000000".to_owned()),
            HealthFile::Lossy(share) if (0.0..=1.0).contains(&share) => Health::Lossy { share },
            HealthFile::Lossy(_) => return Err("expected lossy from 0 to 1".to_owned()),
            HealthFile::Corrupt(bits) if (0.0..=1.0).contains(&bits) => Health::Corrupt { bits },
            HealthFile::Corrupt(_) => return Err("expected corrupt from 0 to 1".to_owned()),
            HealthFile::Flaps(flaps) => return flaps.changes(at),
        };
        Ok(vec![(at, health)])
    }
}

impl FlapsFile {
    fn changes(&self, at: Picos) -> Result<Vec<(Picos, Health)>, String> {
        let spans = [self.down_us, self.up_us].map(|us| time(us, 1e3).filter(|span| *span > 0));
        let [Some(down), Some(up)] = spans else {
            return Err("expected down_us and up_us above 0 and up to 1000000000000".to_owned());
        };
        let times = u64::from(self.times);
        let whole = time(times as f64 * (self.down_us + self.up_us), 1e3);
        if times == 0 || times as usize > CHANGES_MAX / 2 || whole.is_none() {
            let most = CHANGES_MAX / 2;
            return Err(format!(
                "expected times from 1 to {most}, and an end within 1000000000000 us"
            ));
        }
        let dies = (0..times).map(|time| at + time * (down + up));
        Ok(dies.flat_map(|dies| [(dies, Health::Dead), (dies + down, Health::Up)]).collect())
    }
}

impl ManyLinks {
    fn links(self, network: &Network) -> impl Iterator<Item = LinkId> {
        let plan = &network.plan;
        let is_host = |node: NodeId| node.0 < plan.hosts();
        let links = plan.links().iter().enumerate().filter(move |(_, link)| {
            let of_host = is_host(link.from) || is_host(link.to);
            match self {
                ManyLinks::All => true,
                ManyLinks::Hosts => of_host,
                ManyLinks::Switches => !of_host,
            }
        });
        links.map(|(number, _)| LinkId(number as u32))
    }
}

#[cfg(test)]
mod tests;
