//! Every host of a group sends to every other one of it.

use super::error::{PatternError, check_bytes, check_count, check_time};
use super::job::Job;
use super::site::Groups;
use crate::ids::HostId;
use crate::time::Picos;
use crate::work::FlowId;
use serde::{Deserialize, Serialize};

/// Every host of a group sends to every other one of it. The host of rank r sends to rank r + 1 first, then to r + 2, and so
/// on, so that no receiver is everybody's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllToAll {
    /// Length of each message.
    pub message_bytes: u64,
    /// Messages that each host has outstanding at once: each begins when the one that is so many before it has been
    /// acknowledged. 1 sends one after another.
    pub window_messages: u32,
    /// Who belongs together.
    #[serde(default)]
    pub groups: Groups,
    /// Hosts start at random times within so long.
    #[serde(default)]
    pub start_spread_ns: u64,
}

impl AllToAll {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        check_bytes("message_bytes", self.message_bytes)?;
        check_count("window_messages", self.window_messages, u32::MAX, "1 is one after another")?;
        let spread = check_time("start_spread_ns", self.start_spread_ns)?;
        let groups = self.groups.place(job.site, &mut job.random)?;
        let ranks = groups[0].len() as u64;
        job.room(groups.len() as u64 * ranks * (ranks - 1), "group_hosts")?;
        for group in groups {
            for rank in 0..group.len() {
                let start = job.random.up_to(spread);
                self.send_all(job, &group, rank, start);
            }
        }
        Ok(())
    }

    fn send_all(&self, job: &mut Job, group: &[HostId], rank: usize, start: Picos) {
        let window = self.window_messages as usize;
        let from = group[rank];
        let mut sent: Vec<FlowId> = Vec::new();
        for distance in 1..group.len() {
            let to = group[(rank + distance) % group.len()];
            let flow = job.work.message(from, to, self.message_bytes);
            job.work.start_at(flow, start);
            if let Some(before) = sent.len().checked_sub(window) {
                let task = |flow: FlowId| job.work.flows()[flow.0 as usize].send;
                let (first, then) = (task(sent[before]), task(flow));
                job.work.after(from, first, then);
            }
            sent.push(flow);
        }
    }
}
