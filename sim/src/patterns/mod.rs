//! What hosts do, by name and parameters: each pattern becomes [`Work`]. One seed gives one work.
//!
//! [`bound`] says how fast a network could do it at best.

mod all_to_all;
pub mod bound;
pub mod collective;
mod error;
mod flows;
mod job;
mod messages;
mod random;
mod site;
pub mod sizes;

#[cfg(test)]
mod tests;

pub use all_to_all::AllToAll;
pub use collective::{Algorithm, Collective, Operation};
pub use error::{PatternError, START_MAX_NS};
pub use flows::{Direction, Flows};
pub use job::MESSAGES_MAX;
pub use messages::{Incast, Message, Outcast, OutcastIncast, Permutation};
pub use site::{Groups, HostLink, Placement, Reach, Site};

use crate::work::Work;
use job::Job;
use random::Random;
use serde::{Deserialize, Serialize};

/// What hosts do.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum Pattern {
    /// One message.
    Message(Message),
    /// Every host sends to one other and receives from one other.
    Permutation(Permutation),
    /// Many hosts send to one.
    Incast(Incast),
    /// One host sends to many.
    Outcast(Outcast),
    /// Many hosts send to one, and most of them to others too.
    OutcastIncast(OutcastIncast),
    /// Every host of a group sends to every other one of it.
    AllToAll(AllToAll),
    /// The hosts of a group combine or collect their data.
    Collective(Collective),
    /// Flows arrive at random, with sizes from a distribution.
    Flows(Flows),
    /// Several patterns at once.
    Together(Together),
}

/// Several patterns at once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    /// Each of them has random numbers of its own.
    pub parts: Vec<Pattern>,
}

impl Pattern {
    /// The work of all hosts.
    ///
    /// # Errors
    /// The error names the parameter that does not fit, and what would be valid.
    pub fn work(&self, site: &Site, seed: u64) -> Result<Work, PatternError> {
        let mut work = Work::new(site.hosts);
        self.add_to(&mut work, site, seed)?;
        Ok(work)
    }

    /// Adds it to the work of as many hosts.
    pub(crate) fn add_to(
        &self,
        work: &mut Work,
        site: &Site,
        seed: u64,
    ) -> Result<(), PatternError> {
        site.check()?;
        self.add(work, site, seed, &mut 0)
    }

    fn add(
        &self,
        work: &mut Work,
        site: &Site,
        seed: u64,
        parts: &mut u64,
    ) -> Result<(), PatternError> {
        *parts += 1;
        let mut job = Job { work, site, random: Random::new(seed, *parts) };
        match self {
            Pattern::Message(message) => message.add(&mut job),
            Pattern::Permutation(permutation) => permutation.add(&mut job),
            Pattern::Incast(incast) => incast.add(&mut job),
            Pattern::Outcast(outcast) => outcast.add(&mut job),
            Pattern::OutcastIncast(both) => both.add(&mut job),
            Pattern::AllToAll(all_to_all) => all_to_all.add(&mut job),
            Pattern::Collective(collective) => collective.add(&mut job),
            Pattern::Flows(flows) => flows.add(&mut job),
            Pattern::Together(Together { parts: all }) => {
                all.iter().try_for_each(|part| part.add(work, site, seed, parts))
            }
        }
    }
}
