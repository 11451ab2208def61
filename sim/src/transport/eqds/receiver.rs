//! A message at its receiver: what has come, and what to pull.

use crate::header::EqdsKind;
use crate::ids::HostId;

/// See the module. Pulls count packets.
#[derive(Debug)]
pub(super) struct EqdsReceiver {
    pub(super) from: HostId,
    /// The sender's number of the message.
    pub(super) message: u32,
    pub(super) flow: u32,
    packets: u32,
    /// A bit for each packet that has come; empty once all have.
    came: Vec<u64>,
    came_count: u32,
    /// All packets before this one have come.
    expected: u32,
    unacked: u32,
    /// Pulls that were sent, that the sender asked for, and that repeats need.
    pub(super) pulls: u32,
    pub(super) target: u32,
    pub(super) repeats: u32,
    /// It waits for a pull, with the others or before them.
    pub(super) is_active: bool,
    pub(super) is_urgent: bool,
}

impl EqdsReceiver {
    pub(super) fn new((from, message, flow): (HostId, u32, u32), packets: u32) -> EqdsReceiver {
        EqdsReceiver {
            from,
            message,
            flow,
            packets,
            came: vec![0; (packets as usize).div_ceil(64)],
            came_count: 0,
            expected: 0,
            unacked: 0,
            pulls: 0,
            target: 0,
            repeats: 0,
            is_active: false,
            is_urgent: false,
        }
    }

    /// A packet has come before.
    pub(super) fn has(&self, psn: u32) -> bool {
        psn < self.expected
            || self.came.get(psn as usize / 64).is_some_and(|word| word >> (psn % 64) & 1 != 0)
    }

    /// All have come.
    pub(super) fn is_whole(&self) -> bool {
        self.came_count == self.packets
    }

    /// Takes a packet in that has not come before; true if it is to be acknowledged now.
    pub(super) fn take(&mut self, psn: u32, is_marked: bool, ack_packets: u32) -> bool {
        if psn >= self.packets {
            return false;
        }
        let is_first = self.came_count == 0;
        self.came[psn as usize / 64] |= 1 << (psn % 64);
        self.came_count += 1;
        while self.expected < self.packets && self.has(self.expected) {
            self.expected += 1;
        }
        self.unacked += 1;
        let acks = is_first || is_marked || self.unacked >= ack_packets || self.is_whole();
        if self.is_whole() {
            self.came = Vec::new();
        }
        acks
    }

    /// The acknowledgement, with a bit for each of the 32 packets up to one.
    pub(super) fn ack(&mut self, psn: u32, marked: bool) -> EqdsKind {
        self.unacked = 0;
        let base = psn.saturating_sub(31).max(self.expected);
        let bits = (0..32).map(|bit| u32::from(self.has(base + bit)) << bit);
        EqdsKind::Ack { expected: self.expected, base, bits: bits.sum(), marked }
    }

    /// The acknowledgement of all that came in order, and of what came of the 32 packets after that.
    pub(super) fn ack_all(&mut self) -> EqdsKind {
        self.ack(self.expected + 31, false)
    }

    /// The sender asks for so many pulls in all, without those for repeats and with them. What it was promised before counts,
    /// whether it has come or not: a request that comes again changes nothing.
    pub(super) fn take_request(&mut self, target: u32, with_repeats: u32) {
        self.target = self.target.max(target);
        self.repeats += with_repeats.saturating_sub(self.target + self.repeats);
    }

    /// Pulls are wanted.
    pub(super) fn wants(&self) -> bool {
        self.target > self.pulls
    }

    /// Gives a pull: for a repeat, if there is one.
    pub(super) fn pull(&mut self) -> u32 {
        self.pulls += 1;
        // Credit for a repeat is not one for what the sender asked.
        if self.repeats > 0 {
            self.repeats -= 1;
            self.target += 1;
        }
        self.pulls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_tell_what_came_out_of_order() {
        let mut receiver = EqdsReceiver::new((HostId(0), 1, 2), 100);
        assert!(receiver.take(0, false, 4), "the first one at once");
        receiver.ack(0, false);
        let acks = [3, 1, 5].map(|psn| receiver.take(psn, false, 4));
        assert_eq!(acks, [false; 3]);
        assert!(receiver.take(6, false, 4));
        let bits = 0b11010;
        let ack = EqdsKind::Ack { expected: 2, base: 2, bits, marked: false };
        assert_eq!(receiver.ack(6, false), ack);
        assert!(receiver.take(7, true, 4), "a marked one at once");
    }

    /// Three packets are lost; one of the pulls has come when the sender asks again, and then one repeat is lost.
    #[test]
    fn a_request_that_comes_again_changes_nothing() {
        let mut receiver = EqdsReceiver::new((HostId(0), 1, 2), 100);
        receiver.take_request(4, 7);
        receiver.take_request(4, 7);
        assert_eq!((receiver.target, receiver.repeats), (4, 3));
        receiver.pull();
        receiver.take_request(4, 7);
        receiver.take_request(4, 8);
        assert_eq!((receiver.target, receiver.repeats), (5, 3));
        let pulls = std::iter::from_fn(|| receiver.wants().then(|| receiver.pull()));
        assert_eq!(pulls.last(), Some(8));
        assert_eq!((receiver.target, receiver.repeats), (8, 0));
    }

    /// A switch has trimmed a packet, and the sender asks for it, too.
    #[test]
    fn a_request_does_not_count_what_trimmed_packets_are_owed() {
        let mut receiver = EqdsReceiver::new((HostId(0), 1, 2), 100);
        receiver.repeats = 1;
        receiver.take_request(4, 5);
        assert_eq!((receiver.target, receiver.repeats), (4, 1));
    }

    #[test]
    fn repeats_are_pulled_beside_what_was_asked_for() {
        let mut receiver = EqdsReceiver::new((HostId(0), 1, 2), 100);
        (receiver.target, receiver.repeats) = (2, 1);
        let pulls: Vec<u32> =
            std::iter::from_fn(|| receiver.wants().then(|| receiver.pull())).collect();
        assert_eq!(pulls, [1, 2, 3]);
    }
}
