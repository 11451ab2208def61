//! The order in which the data packets of each sender arrive.
//!
//! A sender numbers the packets that leave for each host, repeats included. A packet is reordered if one with a higher number
//! has arrived before it (RFC 4737, section 3.3).

use crate::ids::HostId;
use crate::mutants::{Mutant, mutant};
use std::collections::HashMap;

/// One host's, with an entry for each host that it sends to or hears from.
#[derive(Debug, Default)]
pub(super) struct ArrivalOrder {
    /// Number of the last packet that left for a host, from 1.
    left: HashMap<HostId, u32>,
    /// Highest number that has arrived from a host.
    highest: HashMap<HostId, u32>,
}

impl ArrivalOrder {
    /// A data packet leaves. Returns its number.
    pub(super) fn leaves(&mut self, to: HostId) -> u32 {
        let last = self.left.entry(to).or_default();
        *last += 1;
        *last
    }

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
        let (a, b) = (HostId(1), HostId(2));
        let mut order = ArrivalOrder::default();
        assert_eq!([a, a, b, a].map(|to| order.leaves(to)), [1, 2, 1, 3]);
        let arrivals = [(a, 3), (b, 1), (a, 1), (a, 4), (a, 2), (b, 2)];
        let overtaken = arrivals.map(|(from, number)| order.arrives(from, number));
        assert_eq!(overtaken, [false, false, true, false, true, false]);
    }
}
