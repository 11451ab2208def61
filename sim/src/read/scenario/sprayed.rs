//! Networks of a scenario whose senders choose the way by the path number: dragonflies and rails.

use super::common::Source;
use super::links::LinkFile;
use super::names::Names;
use crate::fabric::blueprint::{Blueprint, Spread, mixed};
use crate::fabric::dragonfly::Dragonfly;
use crate::fabric::rail::Rail;
use crate::fabric::shape::ShapeError;
use crate::link::LinkConfig;
use crate::read::{HOSTS_MAX, ReadError};
use serde::Deserialize;
use toml::Spanned;

/// A dragonfly.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DragonflyFile {
    /// Groups of switches.
    pub groups: Spanned<u32>,
    /// Switches of each group.
    pub switches: Spanned<u32>,
    /// Hosts of each switch.
    pub hosts: Spanned<u32>,
    /// Links of each switch to other groups.
    pub global_links: Spanned<u32>,
    /// Ways are chosen by a hash, as ECMP would, not by the path number alone.
    #[serde(default)]
    pub hashed: bool,
    /// Links of hosts.
    #[serde(default)]
    pub host: LinkFile,
    /// Links within a group.
    #[serde(default)]
    pub local: LinkFile,
    /// Links between groups.
    #[serde(default)]
    pub global: LinkFile,
}

/// A rail network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RailFile {
    /// Servers.
    pub servers: Spanned<u32>,
    /// GPUs of each server, which are the hosts; there are as many rails.
    pub gpus: Spanned<u32>,
    /// Rails are chosen by a hash, as ECMP would, not by the path number alone.
    #[serde(default)]
    pub hashed: bool,
    /// Links between a GPU and the switch in front of it.
    #[serde(default)]
    pub host: LinkFile,
    /// Links between GPUs and the switch of their server.
    #[serde(default)]
    pub nvlink: LinkFile,
    /// Links between GPUs and the switch of their rail.
    #[serde(default)]
    pub rail: LinkFile,
}

/// The same at all switches, so that they agree on the way.
fn spread(hashed: bool, seed: u64) -> Spread {
    if hashed { Spread::Hashed { salt: mixed(seed) as u32 } } else { Spread::Modulo }
}

/// A kind of links, and the line that says what they are like.
fn config(
    source: &Source,
    at: &Spanned<u32>,
    (kind, own): (&str, &LinkFile),
    all: &LinkFile,
    bdp: Option<f64>,
) -> Result<LinkConfig, ReadError> {
    let config = own.or(all).config(bdp);
    config.map_err(|what| source.error(at, format_args!("{kind} links: {what}")))
}

/// A network of a size that a scenario may have. An error lies at the key that it names, or at the first.
fn sized(
    source: &Source,
    keys: &[(&str, &Spanned<u32>)],
    built: Result<Blueprint, ShapeError>,
) -> Result<Blueprint, ReadError> {
    let wrong = built.as_ref().err().map(ShapeError::key);
    let (_, at) = keys.iter().find(|(key, _)| Some(*key) == wrong).unwrap_or(&keys[0]);
    let plan =
        built.map_err(|what| source.error(at, format_args!("expected a network: {what}")))?;
    if !(2..=HOSTS_MAX).contains(&plan.hosts()) {
        let what = format_args!("expected 2 to {HOSTS_MAX} hosts, found {}", plan.hosts());
        return Err(source.error(at, what));
    }
    Ok(plan)
}

impl DragonflyFile {
    pub(super) fn build(
        &self,
        source: &Source,
        all: &LinkFile,
        seed: u64,
        bdp: Option<f64>,
    ) -> Result<Blueprint, ReadError> {
        let config = |kind, own| config(source, &self.groups, (kind, own), all, bdp);
        let dragonfly = Dragonfly {
            groups: *self.groups.get_ref(),
            switches: *self.switches.get_ref(),
            hosts: *self.hosts.get_ref(),
            global_links: *self.global_links.get_ref(),
            spread: spread(self.hashed, seed),
            host: config("host", &self.host)?,
            local: config("local", &self.local)?,
            global: config("global", &self.global)?,
        };
        let keys = [
            ("groups", &self.groups),
            ("switches", &self.switches),
            ("hosts", &self.hosts),
            ("global_links", &self.global_links),
        ];
        sized(source, &keys, dragonfly.build())
    }
}

impl RailFile {
    pub(super) fn build(
        &self,
        source: &Source,
        all: &LinkFile,
        seed: u64,
        bdp: Option<f64>,
    ) -> Result<Blueprint, ReadError> {
        let config = |kind, own| config(source, &self.servers, (kind, own), all, bdp);
        let rail = Rail {
            servers: *self.servers.get_ref(),
            gpus: *self.gpus.get_ref(),
            spread: spread(self.hashed, seed),
            host: config("host", &self.host)?,
            nvlink: config("nvlink", &self.nvlink)?,
            rail: config("rail", &self.rail)?,
        };
        sized(source, &[("servers", &self.servers), ("gpus", &self.gpus)], rail.build())
    }

    /// `h0` for hosts, `g0` for the switches in front of them, `n0` for those of servers, `r0` for those of rails.
    pub(super) fn names(&self) -> Names {
        let (servers, gpus) = (*self.servers.get_ref(), *self.gpus.get_ref());
        let hosts = servers.saturating_mul(gpus);
        let mut first = 0_u32;
        let kinds = [('h', hosts), ('g', hosts), ('n', servers), ('r', gpus)];
        let kinds = kinds.map(|(kind, count)| {
            let kind = (kind, first, count);
            first = first.saturating_add(count);
            kind
        });
        Names::Kinds(kinds.to_vec())
    }
}

#[cfg(test)]
mod tests;
