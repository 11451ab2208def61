//! Programs: transfers of units of the data.

use std::ops::Range;

/// How the data is divided into units.
pub(in crate::patterns) struct Grid {
    pub(in crate::patterns) data_bytes: u64,
    pub(in crate::patterns) units: u32,
    /// Pieces of units, all of the same number.
    pub(in crate::patterns) pieces: u32,
    pub(in crate::patterns) chunk_bytes: Option<u64>,
}

impl Grid {
    /// Length of a range of units. Their sizes differ by one byte at most.
    pub(in crate::patterns) fn bytes(&self, units: &Range<u32>) -> u64 {
        let at = |unit: u32| {
            (u128::from(self.data_bytes) * u128::from(unit) / u128::from(self.units)) as u64
        };
        at(units.end) - at(units.start)
    }

    /// The units of some pieces that follow each other.
    pub(super) fn pieces(&self, pieces: Range<u32>) -> Range<u32> {
        let each = self.units / self.pieces;
        pieces.start * each..pieces.end * each
    }

    /// Units of a message.
    fn units_per_message(&self) -> u32 {
        let unit_bytes = self.data_bytes.div_ceil(self.units.into());
        let units = self.chunk_bytes.unwrap_or(u64::MAX) / unit_bytes;
        units.clamp(1, self.units.into()) as u32
    }

    /// Messages that a range of units takes.
    pub(super) fn messages(&self, units: &Range<u32>) -> u32 {
        (units.end - units.start).div_ceil(self.units_per_message())
    }

    /// The messages that a range of units takes.
    pub(in crate::patterns) fn cut(&self, units: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let each = self.units_per_message();
        let starts = units.clone().step_by(each as usize);
        starts.map(move |start| start..start.saturating_add(each).min(units.end))
    }
}

/// Units of the data go from one rank to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::patterns) struct Transfer {
    pub(in crate::patterns) from: u32,
    pub(in crate::patterns) to: u32,
    pub(in crate::patterns) units: Range<u32>,
    /// The receiver adds them to what it has; otherwise they take its place.
    pub(in crate::patterns) reduces: bool,
    /// Messages of one kind between two hosts: a given number of them is outstanding.
    pub(in crate::patterns) lane: u32,
}

/// Takes the transfers of a program, in their order.
pub(in crate::patterns) trait Emit: FnMut(Transfer) {}
impl<F: FnMut(Transfer)> Emit for F {}
