//! The order in which the data packets of each sender arrive.
//!
//! Packets have numbers in the order in which they leave for each host, repeats included. There is one numbering, whoever
//! looks at the order: the cost of reordering (below) and [`crate::series::watch`]. A packet is reordered if one with a
//! higher number has arrived before it (RFC 4737, section 3.3).

use crate::ids::HostId;
use crate::mutants::{Mutant, mutant};
use std::collections::HashMap;

/// Numbers the data packets of one part's hosts. It has an entry for each pair of hosts whose order anybody looks at.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// Number of the last packet that left, from 1.
    last: HashMap<(HostId, HostId), u32>,
}

impl Departures {
    /// Number of the last packet that has left for a host; 0 if none has.
    pub(super) fn last(&self, from: HostId, to: HostId) -> u32 {
        self.last.get(&(from, to)).copied().unwrap_or(0)
    }

    /// The number of a data packet that leaves.
    pub(super) fn number(&mut self, from: HostId, to: HostId) -> u32 {
        let last = self.last.entry((from, to)).or_default();
        *last += 1;
        *last
    }
}

/// What one host has got. It has an entry for each host that it hears from.
#[derive(Debug, Default)]
pub(super) struct ArrivalOrder {
    /// Highest number that has arrived from a host.
    highest: HashMap<HostId, u32>,
}

impl ArrivalOrder {
    /// A data packet arrives. Returns whether a later one has overtaken it.
    pub(super) fn arrives(&mut self, from: HostId, number: u32) -> bool {
        let sender = if mutant(Mutant::MixesUpSenders) { HostId(0) } else { from };
        let highest = self.highest.entry(sender).or_default();
        let overtaken = number < *highest;
        *highest = number.max(*highest);
        overtaken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_hosts_has_numbers_and_an_order_of_its_own() {
        let (me, a, b) = (HostId(0), HostId(1), HostId(2));
        let mut departures = Departures::default();
        let pairs = [(me, a), (me, a), (me, b), (b, a), (me, a)];
        assert_eq!(pairs.map(|(from, to)| departures.number(from, to)), [1, 2, 1, 1, 3]);
        let mut order = ArrivalOrder::default();
        let arrivals = [(a, 3), (b, 1), (a, 1), (a, 4), (a, 2), (b, 2)];
        let overtaken = arrivals.map(|(from, number)| order.arrives(from, number));
        assert_eq!(overtaken, [false, false, true, false, true, false]);
    }
}
