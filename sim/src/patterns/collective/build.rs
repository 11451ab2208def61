//! Makes messages of a collective's transfers.

use super::program::{Grid, Transfer};
use crate::ids::HostId;
use crate::work::{TaskId, Work};
use std::collections::HashMap;
use std::ops::Range;

/// Between which ranks messages go, and of which kind they are.
type Lane = (u32, u32, u32);

/// How the messages of a collective follow each other.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// Messages of a lane that are outstanding at once.
    pub(super) outstanding_chunks: u32,
    pub(super) reduce_ps_per_byte: f64,
}

/// Makes the messages of one group.
pub(super) struct Builder<'a> {
    pace: Pace,
    grid: &'a Grid,
    hosts: &'a [HostId],
    work: &'a mut Work,
    /// For each rank and unit: the tasks after which it is there. Those are the rank's own tasks.
    there: Vec<Vec<TaskId>>,
    /// Sending tasks of each lane, in their order.
    lanes: HashMap<Lane, Vec<TaskId>>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        pace: Pace,
        grid: &'a Grid,
        hosts: &'a [HostId],
        work: &'a mut Work,
    ) -> Builder<'a> {
        let there = vec![Vec::new(); hosts.len() * grid.units as usize];
        Builder { pace, grid, hosts, work, there, lanes: HashMap::new() }
    }

    /// A transfer that comes after all those added before.
    pub(super) fn add(&mut self, transfer: &Transfer) {
        for units in self.grid.cut(transfer.units.clone()) {
            self.message(transfer, units);
        }
    }

    fn message(&mut self, transfer: &Transfer, units: Range<u32>) {
        let [from, to] = [transfer.from, transfer.to].map(|rank| self.hosts[rank as usize]);
        let bytes = self.grid.bytes(&units);
        let flow = self.work.message(from, to, bytes);
        let flow = self.work.flows()[flow.0 as usize];
        let mut needs: Vec<TaskId> = units
            .clone()
            .flat_map(|unit| &self.there[self.at(transfer.from, unit)])
            .copied()
            .collect();
        let lane = self.lanes.entry((transfer.from, transfer.to, transfer.lane)).or_default();
        if let Some(before) = lane.len().checked_sub(self.pace.outstanding_chunks as usize) {
            needs.push(lane[before]);
        }
        lane.push(flow.send);
        needs.sort_unstable();
        needs.dedup();
        for need in needs {
            self.work.after(from, need, flow.send);
        }
        let mut there = flow.receive;
        let reduce_ps = self.pace.reduce_ps_per_byte * bytes as f64;
        if transfer.reduces && reduce_ps > 0.0 {
            there = self.work.compute(to, reduce_ps as u64);
            self.work.after(to, flow.receive, there);
        }
        for unit in units {
            let at = self.at(transfer.to, unit);
            let tasks = &mut self.there[at];
            if !transfer.reduces {
                tasks.clear();
            }
            tasks.push(there);
        }
    }

    fn at(&self, rank: u32, unit: u32) -> usize {
        rank as usize * self.grid.units as usize + unit as usize
    }
}
