//! Messages that depend on nothing: permutations, many to one, one to many.

use super::error::{PatternError, check_bytes, check_count, check_time, one};
use super::job::Job;
use super::site::Reach;
use crate::ids::HostId;
use crate::time::Picos;
use serde::{Deserialize, Serialize};

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who sends it.
    pub from_host: u32,
    /// Who receives it.
    pub to_host: u32,
    /// Its length.
    pub message_bytes: u64,
    /// When it is sent.
    #[serde(default)]
    pub start_ns: u64,
}

impl Message {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        let hosts = job.site.hosts;
        for (parameter, host) in [("from_host", self.from_host), ("to_host", self.to_host)] {
            if host >= hosts {
                let valid = format!("must be below {hosts}, the number of hosts");
                return Err(PatternError::new(parameter, valid));
            }
        }
        if self.from_host == self.to_host {
            return Err(PatternError::new("to_host", "must be another host than `from_host`"));
        }
        check_bytes("message_bytes", self.message_bytes)?;
        let start = check_time("start_ns", self.start_ns)?;
        job.room(1, "parts")?;
        let (from, to) = (HostId(self.from_host), HostId(self.to_host));
        let flow = job.work.message(from, to, self.message_bytes);
        job.work.start_at(flow, start);
        Ok(())
    }
}

/// Every host sends to one other and receives from one other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permutation {
    /// Length of each message.
    pub message_bytes: u64,
    /// Length of the first host's messages, if it is another.
    #[serde(default)]
    pub first_message_bytes: Option<u64>,
    /// Independent permutations at once.
    #[serde(default = "one")]
    pub permutations: u32,
    /// How far messages have to go.
    #[serde(default)]
    pub reach: Reach,
    /// Messages start at random times within so long.
    #[serde(default)]
    pub start_spread_ns: u64,
}

impl Permutation {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        check_bytes("message_bytes", self.message_bytes)?;
        let first_bytes = self.first_message_bytes.unwrap_or(self.message_bytes);
        check_bytes("first_message_bytes", first_bytes)?;
        let spread = check_time("start_spread_ns", self.start_spread_ns)?;
        let hosts = job.site.hosts;
        let group_hosts = self.reach.group_hosts(job.site)?;
        check_count("permutations", self.permutations, hosts - 1, "the other hosts")?;
        job.room(u64::from(self.permutations) * u64::from(hosts), "permutations")?;
        for _ in 0..self.permutations {
            let receivers = job.random.scattered(hosts, group_hosts)?;
            for (from, to) in (0..hosts).zip(receivers) {
                let bytes = if from == 0 { first_bytes } else { self.message_bytes };
                job.send(HostId(from), HostId(to), bytes, spread);
            }
        }
        Ok(())
    }
}

/// Many hosts send to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incast {
    /// Length of each message.
    pub message_bytes: u64,
    /// Hosts that send to each receiver.
    pub senders: u32,
    /// Incasts at once. No host is in two of them.
    #[serde(default = "one")]
    pub incasts: u32,
    /// How far messages have to go.
    #[serde(default)]
    pub reach: Reach,
    /// Messages start at random times within so long.
    #[serde(default)]
    pub start_spread_ns: u64,
}

impl Incast {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        let star = Star {
            message_bytes: self.message_bytes,
            leaves: ("senders", self.senders),
            stars: ("incasts", self.incasts),
            reach: self.reach,
            start_spread_ns: self.start_spread_ns,
        };
        star.add(job, |job, centre, leaf, spread| {
            job.send(leaf, centre, self.message_bytes, spread);
        })
    }
}

/// One host sends to many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcast {
    /// Length of each message.
    pub message_bytes: u64,
    /// Hosts that each sender sends to, at the same time.
    pub receivers: u32,
    /// Outcasts at once. No host is in two of them.
    #[serde(default = "one")]
    pub outcasts: u32,
    /// How far messages have to go.
    #[serde(default)]
    pub reach: Reach,
    /// Messages start at random times within so long.
    #[serde(default)]
    pub start_spread_ns: u64,
}

impl Outcast {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        let star = Star {
            message_bytes: self.message_bytes,
            leaves: ("receivers", self.receivers),
            stars: ("outcasts", self.outcasts),
            reach: self.reach,
            start_spread_ns: self.start_spread_ns,
        };
        star.add(job, |job, centre, leaf, spread| {
            job.send(centre, leaf, self.message_bytes, spread);
        })
    }
}

/// One host and others that exchange messages with it.
struct Star {
    message_bytes: u64,
    /// How many others there are, and the parameter that says so.
    leaves: (&'static str, u32),
    /// The same for how many stars there are.
    stars: (&'static str, u32),
    reach: Reach,
    start_spread_ns: u64,
}

impl Star {
    fn add(
        &self,
        job: &mut Job,
        mut send: impl FnMut(&mut Job, HostId, HostId, Picos),
    ) -> Result<(), PatternError> {
        check_bytes("message_bytes", self.message_bytes)?;
        let spread = check_time("start_spread_ns", self.start_spread_ns)?;
        let hosts = job.site.hosts;
        let ((leaves_name, leaves), (stars_name, stars)) = (self.leaves, self.stars);
        check_count(leaves_name, leaves, hosts - 1, "the other hosts")?;
        let most = hosts / (leaves + 1);
        let why = format!("so that {} of {hosts} hosts are left for each", leaves + 1);
        check_count(stars_name, stars, most, &why)?;
        let group_hosts = self.reach.group_hosts(job.site)?;
        job.room(u64::from(stars) * u64::from(leaves), leaves_name)?;
        let mut free: Vec<u32> = (0..hosts).collect();
        job.random.shuffle(&mut free);
        for _ in 0..stars {
            let Some(centre) = free.pop() else { break };
            let (mut near, mut far) = (Vec::new(), Vec::new());
            for host in free.drain(..) {
                let side =
                    if host / group_hosts == centre / group_hosts { &mut near } else { &mut far };
                side.push(host);
            }
            if far.len() < leaves as usize {
                let left = far.len();
                let valid =
                    format!("must be at most {left} here: so many free hosts are within `reach`");
                return Err(PatternError::new(leaves_name, valid));
            }
            for leaf in far.drain(far.len() - leaves as usize..) {
                send(job, HostId(centre), HostId(leaf), spread);
            }
            free.append(&mut far);
            free.append(&mut near);
            job.random.shuffle(&mut free);
        }
        Ok(())
    }
}

/// Many hosts send to one, and all of them except the first send to others too: the first could take what those leave of
/// the receiver's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcastIncast {
    /// Length of each message.
    pub message_bytes: u64,
    /// Hosts that send to the one receiver.
    pub senders: u32,
    /// Messages of each sender except the first, with the one to the common receiver. The others go to a receiver each.
    pub messages_per_sender: u32,
    /// Messages start at random times within so long.
    #[serde(default)]
    pub start_spread_ns: u64,
}

impl OutcastIncast {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        check_bytes("message_bytes", self.message_bytes)?;
        let spread = check_time("start_spread_ns", self.start_spread_ns)?;
        let hosts = job.site.hosts;
        check_count("senders", self.senders, hosts - 1, "the other hosts")?;
        // The receiver and the senders leave so many hosts for the further messages.
        let left = hosts - 1 - self.senders;
        let most = if self.senders == 1 { u32::MAX } else { left / (self.senders - 1) + 1 };
        let why = format!("so that every further message has one of the {left} hosts left");
        check_count("messages_per_sender", self.messages_per_sender, most, &why)?;
        job.room(u64::from(hosts), "senders")?;
        let mut all: Vec<HostId> = (0..hosts).map(HostId).collect();
        job.random.shuffle(&mut all);
        let (receiver, rest) = (all[0], &all[1..]);
        let (senders, others) = rest.split_at(self.senders as usize);
        let mut others = others.iter();
        for (at, sender) in senders.iter().enumerate() {
            job.send(*sender, receiver, self.message_bytes, spread);
            let further = if at == 0 { 0 } else { self.messages_per_sender as usize - 1 };
            for other in others.by_ref().take(further) {
                job.send(*sender, *other, self.message_bytes, spread);
            }
        }
        Ok(())
    }
}
