//! Collectives: the hosts of a group combine or collect their data.
//!
//! An algorithm is a program: transfers of units of the data, in an order in which one host after the other could do them
//! (`program::Transfer`). `build::Builder` makes messages of it, and finds from the units what each message has to wait for.

mod build;
mod halving;
pub(in crate::patterns) mod program;
mod ring;
mod tree;

use super::error::{PatternError, check_bytes, check_count};
use super::job::Job;
use super::site::Groups;
use build::{Builder, Pace};
use program::{Emit, Grid};
use serde::{Deserialize, Serialize};

/// Most picoseconds a byte that reducing takes: 1 MB/s.
const REDUCE_MAX_PS_PER_BYTE: f64 = 1e6;
/// Most units of a collective's data.
const UNITS_MAX: u32 = 1 << 20;

/// What a collective leaves in the hosts' memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Everyone has the sum of everyone's data.
    AllReduce,
    /// Everyone has a piece of the sum of everyone's data.
    ReduceScatter,
    /// Everyone has everyone's piece.
    AllGather,
}

/// How it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Pieces go round: n - 1 steps to reduce, n - 1 to gather.
    Ring,
    /// Halves are exchanged with hosts further and further away, then the results back (Thakur, Rabenseifner and Gropp,
    /// "Optimization of collective communication operations in MPICH", 2005). Where the number of hosts is no power of two,
    /// some send all their data to a neighbour before, and get the result after.
    HalvingDoubling,
    /// Two trees reduce and broadcast a half of the data each. A rank with children in one tree is a leaf of the other (Sanders, Speck
    /// and Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; NCCL since 2.4).
    DoubleTree,
}

/// The hosts of a group combine or collect their data.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collective {
    /// What is done.
    pub operation: Operation,
    /// How.
    pub algorithm: Algorithm,
    /// What every host has after an all-reduce or all-gather, and before a reduce-scatter.
    pub data_bytes: u64,
    /// Longest message, as far as whole units of the data fit. Shorter messages let the steps overlap. One message a step if
    /// none is given.
    #[serde(default)]
    pub chunk_bytes: Option<u64>,
    /// Messages of one step to one host that are outstanding at once: each begins when the one that is so many before it has
    /// been acknowledged.
    #[serde(default = "eight")]
    pub outstanding_chunks: u32,
    /// How long a host computes after it has received a byte that it adds to its own. Different messages are added at the
    /// same time.
    #[serde(default)]
    pub reduce_ps_per_byte: f64,
    /// Who belongs together.
    #[serde(default)]
    pub groups: Groups,
}

fn eight() -> u32 {
    8
}

impl Collective {
    pub(super) fn add(&self, job: &mut Job) -> Result<(), PatternError> {
        check_bytes("data_bytes", self.data_bytes)?;
        check_count(
            "outstanding_chunks",
            self.outstanding_chunks,
            u32::MAX,
            "a number of messages",
        )?;
        if self.chunk_bytes == Some(0) {
            return Err(PatternError::new("chunk_bytes", "must be at least 1"));
        }
        if !(0.0..=REDUCE_MAX_PS_PER_BYTE).contains(&self.reduce_ps_per_byte) {
            let valid = format!("must be from 0 to {REDUCE_MAX_PS_PER_BYTE}");
            return Err(PatternError::new("reduce_ps_per_byte", valid));
        }
        let groups = self.groups.place(job.site, &mut job.random)?;
        let ranks = groups[0].len() as u32;
        let grid = self.grid(ranks)?;
        let mut messages = 0_u64;
        self.program(ranks, &grid, &mut |transfer| {
            messages += u64::from(grid.messages(&transfer.units));
        });
        job.room(messages * groups.len() as u64, "data_bytes, chunk_bytes or group_hosts")?;
        let Collective { outstanding_chunks, reduce_ps_per_byte, .. } = *self;
        let pace = Pace { outstanding_chunks, reduce_ps_per_byte };
        for group in groups {
            let mut builder = Builder::new(pace, &grid, &group, job.work);
            self.program(ranks, &grid, &mut |transfer| builder.add(&transfer));
        }
        Ok(())
    }

    /// How the data is divided: into pieces, one for each step of a rank, and each piece into so many units that a unit is no
    /// longer than a chunk.
    pub(in crate::patterns) fn grid(&self, ranks: u32) -> Result<Grid, PatternError> {
        let pieces = match self.algorithm {
            Algorithm::Ring => ranks,
            Algorithm::HalvingDoubling => 1 << ranks.ilog2(),
            Algorithm::DoubleTree => 2,
        };
        self.check_algorithm(ranks)?;
        if self.data_bytes < pieces.into() {
            let valid = format!("must be at least {pieces}: a byte for each piece");
            return Err(PatternError::new("data_bytes", valid));
        }
        let piece_bytes = self.data_bytes.div_ceil(pieces.into());
        let chunk_bytes = self.chunk_bytes.unwrap_or(u64::MAX).max(1);
        // No unit is empty.
        let per_piece = piece_bytes.div_ceil(chunk_bytes).min(self.data_bytes / u64::from(pieces));
        let units = per_piece.saturating_mul(pieces.into());
        if units > u64::from(UNITS_MAX) {
            let least = self.data_bytes / u64::from(UNITS_MAX) + 1;
            return Err(PatternError::new("chunk_bytes", format!("must be at least {least}")));
        }
        Ok(Grid {
            data_bytes: self.data_bytes,
            units: units as u32,
            pieces,
            chunk_bytes: self.chunk_bytes,
        })
    }

    fn check_algorithm(&self, ranks: u32) -> Result<(), PatternError> {
        let valid = match (self.algorithm, self.operation) {
            (_, Operation::AllReduce) | (Algorithm::Ring, _) => return Ok(()),
            (Algorithm::DoubleTree, _) => "double-tree does an all-reduce only: use ring",
            (Algorithm::HalvingDoubling, _) if ranks.is_power_of_two() => return Ok(()),
            (Algorithm::HalvingDoubling, _) => {
                "halving-doubling does this only where `group_hosts` is a power of two: use ring"
            }
        };
        Err(PatternError::new("algorithm", valid))
    }

    /// The transfers, in an order in which they could be done one after another.
    pub(in crate::patterns) fn program(&self, ranks: u32, grid: &Grid, emit: &mut impl Emit) {
        let (reduces, gathers) = match self.operation {
            Operation::AllReduce => (true, true),
            Operation::ReduceScatter => (true, false),
            Operation::AllGather => (false, true),
        };
        match self.algorithm {
            Algorithm::Ring => {
                if reduces {
                    ring::reduce_scatter(ranks, grid, emit);
                }
                if gathers {
                    ring::all_gather(ranks, grid, emit);
                }
            }
            Algorithm::HalvingDoubling => halving::program(ranks, grid, (reduces, gathers), emit),
            Algorithm::DoubleTree => tree::all_reduce(ranks, grid, emit),
        }
    }
}
