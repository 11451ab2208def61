//! Flows that arrive at random.

use super::error::{PatternError, START_MAX_NS, check_time};
use super::job::Job;
use super::site::Reach;
use super::sizes::Sizes;
use crate::ids::HostId;
use crate::time::{PS_PER_S, Picos, from_ns};
use serde::{Deserialize, Serialize};

/// Who sends to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Anyone to anyone.
    #[default]
    AllToAll,
    /// Anyone to the first host.
    AllToOne,
    /// The first host to anyone.
    OneToAll,
}

/// Flows arrive at random (a Poisson process), with sizes from a distribution.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Their sizes.
    pub sizes: Sizes,
    /// Share of the rate of the hosts' links that the flows take in the mean, headers included: of all hosts' links, or of
    /// the one host's if one sends or receives everything.
    pub load: f64,
    /// How many flows there are. Either this or `duration_ns` is given.
    #[serde(default)]
    pub flows: Option<u32>,
    /// For how long flows begin.
    #[serde(default)]
    pub duration_ns: Option<u64>,
    /// How far they go.
    #[serde(default)]
    pub reach: Reach,
    /// Who sends to whom.
    #[serde(default)]
    pub direction: Direction,
}

impl Flows {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        let (flows, duration) = self.extent(job)?;
        let group_hosts = self.reach.group_hosts(job.site)?;
        let mean_gap_ps = self.mean_gap_ps(job);
        let mut at = 0.0;
        let before = job.work.flows().len();
        while ((job.work.flows().len() - before) as u64) < flows {
            at += job.random.exponential() * mean_gap_ps;
            if at >= duration as f64 {
                break;
            }
            job.room(1, "duration_ns")?;
            let (from, to) = self.pair(job, group_hosts);
            let bytes = self.sizes.quantile_bytes(job.random.unit());
            let flow = job.work.message(from, to, bytes);
            job.work.start_at(flow, at as Picos);
        }
        if self.duration_ns.is_none() && ((job.work.flows().len() - before) as u64) < flows {
            return Err(PatternError::new("load", "must be higher: the flows would take 11 days"));
        }
        Ok(())
    }

    /// At most so many flows, for at most so long.
    fn extent(&self, job: &Job) -> Result<(u64, Picos), PatternError> {
        if !(self.load > 0.0 && self.load <= 10.0) {
            return Err(PatternError::new("load", "must be above 0 and at most 10: 1 is all"));
        }
        match (self.flows, self.duration_ns) {
            (Some(0), None) => Err(PatternError::new("flows", "must be at least 1")),
            (Some(flows), None) => {
                job.room(flows.into(), "flows")?;
                Ok((flows.into(), from_ns(START_MAX_NS)))
            }
            (None, Some(0)) => Err(PatternError::new("duration_ns", "must be at least 1")),
            (None, Some(ns)) => Ok((u64::MAX, check_time("duration_ns", ns)?)),
            _ => Err(PatternError::new("flows", "or `duration_ns` must be given, and not both")),
        }
    }

    /// Mean time between two flows.
    fn mean_gap_ps(&self, job: &Job) -> f64 {
        let links = if self.direction == Direction::AllToAll { job.site.hosts } else { 1 };
        let wire_bytes = self.sizes.mean_wire_bytes(&job.site.link);
        let rate = self.load * f64::from(links) * job.site.link.bytes_per_s as f64;
        wire_bytes / rate * PS_PER_S as f64
    }

    /// A sender and a receiver out of all pairs that are far enough apart.
    fn pair(&self, job: &mut Job, group_hosts: u32) -> (HostId, HostId) {
        let hosts = u64::from(job.site.hosts);
        let one = match self.direction {
            Direction::AllToAll => job.random.below(hosts) as u32,
            Direction::AllToOne | Direction::OneToAll => 0,
        };
        // At least half of all hosts are in other groups.
        let other = loop {
            let other = job.random.below(hosts) as u32;
            if other / group_hosts != one / group_hosts {
                break other;
            }
        };
        match self.direction {
            Direction::AllToOne => (HostId(other), HostId(one)),
            Direction::AllToAll | Direction::OneToAll => (HostId(one), HostId(other)),
        }
    }
}
