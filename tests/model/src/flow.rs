//! One direction of a session: PSNs, acknowledgements and repair (protocol.md §4, §6, §7). PSNs count from the first one,
//! so wrap-around plays no part here.

use std::collections::BTreeSet;

/// A set of PSNs: all below the lowest missing one, and some above.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PsnSet {
    /// The lowest PSN that is not in it.
    pub lowest_missing: u32,
    /// Those above.
    pub above: BTreeSet<u32>,
}

impl PsnSet {
    /// True if `psn` is in it.
    #[must_use]
    pub fn has(&self, psn: u32) -> bool {
        psn < self.lowest_missing || self.above.contains(&psn)
    }

    /// Adds a PSN. False if it was there.
    pub fn add(&mut self, psn: u32) -> bool {
        if self.has(psn) {
            return false;
        }
        self.above.insert(psn);
        while self.above.remove(&self.lowest_missing) {
            self.lowest_missing += 1;
        }
        true
    }

    /// Adds everything below `end`.
    pub fn add_below(&mut self, end: u32) {
        if end > self.lowest_missing {
            self.lowest_missing = end;
            self.above = self.above.split_off(&end);
            while self.above.remove(&self.lowest_missing) {
                self.lowest_missing += 1;
            }
        }
    }

    /// One above the greatest PSN in it.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.above.last().map_or(self.lowest_missing, |last| last + 1)
    }

    /// True if everything in `other` is in it.
    #[must_use]
    pub fn covers(&self, other: &PsnSet) -> bool {
        (self.lowest_missing..other.lowest_missing).all(|psn| self.has(psn))
            && other.above.iter().all(|psn| self.has(*psn))
    }
}

/// What an acknowledgement says (§6.2).
pub type AckState = PsnSet;

/// The sending side.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sender {
    /// Packets sent, each under its own PSN.
    pub sent: u32,
    /// Those that the peer has.
    pub acked: PsnSet,
    /// Those that the peer has shown to be lost, and that were not repeated since (§7).
    pub lost: BTreeSet<u32>,
}

impl Sender {
    /// Sends a packet for the first time (§4.1). False if this is not the next PSN.
    pub fn send(&mut self, psn: u32) -> bool {
        let is_next = psn == self.sent;
        self.sent += u32::from(is_next);
        is_next
    }

    /// Repeats a packet (§4.3, §7): one that was shown to be lost since it was last sent. False if it may not.
    pub fn repeat(&mut self, psn: u32) -> bool {
        self.lost.remove(&psn)
    }

    /// Takes an acknowledgement. False if its numbers are not possible (§8): then it changes nothing.
    pub fn acknowledge(&mut self, state: &AckState) -> bool {
        if state.end() > self.sent {
            return false;
        }
        self.acked.add_below(state.lowest_missing);
        for psn in &state.above {
            self.acked.add(*psn);
        }
        let acked = &self.acked;
        self.lost.retain(|psn| !acked.has(*psn));
        true
    }

    /// Takes a sign that a packet was lost.
    pub fn lose(&mut self, psn: u32) {
        if psn < self.sent && !self.acked.has(psn) {
            self.lost.insert(psn);
        }
    }

    /// True if the peer owes acknowledgements.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.acked.lowest_missing < self.sent
    }
}

/// The receiving side.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Receiver {
    /// Packets that took effect (§4.2).
    pub got: PsnSet,
}

impl Receiver {
    /// Takes a packet. False if it is a duplicate.
    pub fn take(&mut self, psn: u32) -> bool {
        self.got.add(psn)
    }

    /// True if an acknowledgement may say this: only what arrived.
    #[must_use]
    pub fn may_say(&self, state: &AckState) -> bool {
        self.got.covers(state)
    }
}
