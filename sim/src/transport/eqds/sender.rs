//! A message at its sender: packets leave on credit. The first window is credit that nobody gave.

use super::paths::Paths;
use crate::ids::HostId;
use crate::time::Picos;
use crate::wire::PAYLOAD_BYTES;
use crate::work::TaskId;
use std::collections::VecDeque;

/// How far a packet has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It was never sent.
    Unsent,
    /// It is under way, or lost.
    Sent,
    /// It waits to be sent again.
    Lost,
    /// It has arrived.
    Arrived,
}

/// Why packets are sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EqdsRepeat {
    /// A switch has cut the payload off.
    Trim,
    /// No progress.
    Timeout,
}

/// A packet to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EqdsOutgoing {
    pub(super) psn: u32,
    pub(super) payload_bytes: u32,
    /// Why it is sent again, if it was sent before.
    pub(super) repeats: Option<EqdsRepeat>,
}

/// See the module. Credit counts packets.
#[derive(Debug)]
pub(super) struct EqdsSender {
    pub(super) to: HostId,
    pub(super) task: TaskId,
    pub(super) flow: u32,
    bytes: u64,
    states: Vec<State>,
    /// The first packet that was never sent.
    fresh_psn: u32,
    /// All packets before this one have arrived.
    known_psn: u32,
    /// Packets to send again; at most each once.
    lost: VecDeque<(u32, EqdsRepeat)>,
    /// Packets that have not arrived, and those of them that are under way or lost without a word.
    open: u32,
    outstanding: u32,
    /// Credit that the receiver gave, and what is left of the first window while it counts.
    credit: u32,
    speculative: u32,
    /// Pulls that have come, and the pulls that the receiver was asked for.
    pulled: u32,
    target: u32,
    window: u32,
    pub(super) paths: Paths,
    /// It waits for its turn.
    pub(super) is_scheduled: bool,
    /// Without progress until then, something is lost.
    pub(super) rto_at: Picos,
}

impl EqdsSender {
    pub(super) fn new(
        (to, task, flow): (HostId, TaskId, u32),
        bytes: u64,
        window: u32,
        paths: Paths,
    ) -> EqdsSender {
        // An empty message takes a packet, too.
        let packets = bytes.div_ceil(PAYLOAD_BYTES.into()).max(1) as u32;
        EqdsSender {
            to,
            task,
            flow,
            bytes,
            states: vec![State::Unsent; packets as usize],
            fresh_psn: 0,
            known_psn: 0,
            lost: VecDeque::new(),
            open: packets,
            outstanding: 0,
            credit: 0,
            speculative: window,
            pulled: 0,
            target: 0,
            window,
            paths,
            is_scheduled: false,
            rto_at: 0,
        }
    }

    pub(super) fn packets(&self) -> u32 {
        self.states.len() as u32
    }

    fn unsent(&self) -> u32 {
        self.packets() - self.fresh_psn
    }

    /// Everything has arrived.
    pub(super) fn is_done(&self) -> bool {
        self.open == 0
    }

    /// It may send a packet, and has one.
    pub(super) fn has_more(&self) -> bool {
        let repeats = !self.lost.is_empty() && self.credit > 0;
        repeats || self.unsent() > 0 && self.credit + self.speculative > 0
    }

    /// Packets are under way, or lost without a word.
    pub(super) fn is_waiting(&self) -> bool {
        self.outstanding > 0
    }

    /// The pulls that the receiver is asked for, in all: what is neither sent nor has credit, up to a window.
    pub(super) fn ask(&mut self) -> u32 {
        let wanted = self.unsent().saturating_sub(self.credit + self.speculative);
        self.target = self.target.max(self.pulled + wanted.min(self.window));
        self.target
    }

    /// The pulls that the receiver is asked for, in all, with those for packets to send again that have no credit. Asked twice,
    /// it says the same.
    pub(super) fn ask_with_repeats(&mut self) -> u32 {
        self.ask() + (self.lost.len() as u32).saturating_sub(self.credit)
    }

    /// The next packet. What is sent again goes first, and only on the receiver's credit.
    pub(super) fn next(&mut self) -> Option<EqdsOutgoing> {
        let (psn, repeats) = if self.credit > 0 {
            self.credit -= 1;
            match self.lost.pop_front() {
                Some((psn, cause)) => (psn, Some(cause)),
                None => (self.fresh()?, None),
            }
        } else if self.speculative > 0 {
            self.speculative -= 1;
            (self.fresh()?, None)
        } else {
            return None;
        };
        self.states[psn as usize] = State::Sent;
        self.outstanding += 1;
        let offset = u64::from(psn) * u64::from(PAYLOAD_BYTES);
        let payload_bytes = (self.bytes - offset).min(PAYLOAD_BYTES.into()) as u32;
        Some(EqdsOutgoing { psn, payload_bytes, repeats })
    }

    fn fresh(&mut self) -> Option<u32> {
        let psn = self.fresh_psn;
        (psn < self.packets()).then(|| self.fresh_psn += 1)?;
        Some(psn)
    }

    /// The receiver has spoken: the first window is over. True if the receiver has to be asked for the rest, since no
    /// packet will.
    pub(super) fn stop_speculating(&mut self) -> bool {
        self.speculate_no_more();
        let told = self.target;
        self.unsent() > 0 && self.credit == 0 && told <= self.pulled && self.ask() > told
    }

    /// The first window is over.
    pub(super) fn speculate_no_more(&mut self) {
        self.speculative = 0;
    }

    /// The receiver has given so many pulls in all; true if that is news.
    pub(super) fn pulled(&mut self, pulls: u32) -> bool {
        let more = pulls.saturating_sub(self.pulled);
        self.credit += more;
        self.pulled += more;
        more > 0
    }

    /// A packet has arrived; true if that is news.
    pub(super) fn arrived(&mut self, psn: u32) -> bool {
        let Some(state) = self.states.get_mut(psn as usize) else { return false };
        match *state {
            State::Unsent | State::Arrived => return false,
            State::Sent => self.outstanding -= 1,
            // It was not lost after all.
            State::Lost => self.lost.retain(|lost| lost.0 != psn),
        }
        *state = State::Arrived;
        self.open -= 1;
        true
    }

    /// All packets before one have arrived; true if that is news.
    pub(super) fn arrived_before(&mut self, psn: u32) -> bool {
        let (known, psn) = (self.known_psn, psn.min(self.packets()));
        self.known_psn = known.max(psn);
        (known..psn).fold(false, |is_news, psn| is_news | self.arrived(psn))
    }

    /// The payload of a packet was cut off.
    pub(super) fn trimmed(&mut self, psn: u32) {
        if self.states.get(psn as usize) == Some(&State::Sent) {
            self.lose(psn, EqdsRepeat::Trim);
        }
    }

    fn lose(&mut self, psn: u32, cause: EqdsRepeat) {
        self.states[psn as usize] = State::Lost;
        self.outstanding -= 1;
        self.lost.push_back((psn, cause));
    }

    /// No progress: everything that is under way counts as lost.
    pub(super) fn time_out(&mut self) {
        for psn in 0..self.fresh_psn {
            if self.states[psn as usize] == State::Sent {
                self.lose(psn, EqdsRepeat::Timeout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::SeedableRng;

    fn sender(packets: u64, window: u32) -> EqdsSender {
        let paths = Paths::new(4, &mut Pcg32::seed_from_u64(1));
        EqdsSender::new((HostId(1), TaskId(0), 5), packets * 4096, window, paths)
    }

    fn drain(sender: &mut EqdsSender) -> Vec<u32> {
        std::iter::from_fn(|| sender.next()).map(|out| out.psn).collect()
    }

    #[test]
    fn the_first_window_needs_no_credit_and_the_rest_does() {
        let mut sender = sender(10, 4);
        assert_eq!(sender.ask(), 4, "the receiver is asked for a window");
        assert_eq!(drain(&mut sender), [0, 1, 2, 3]);
        assert!(!sender.has_more());
        sender.pulled(2);
        assert_eq!((drain(&mut sender), sender.ask()), (vec![4, 5], 6));
        sender.pulled(1);
        assert!(!sender.has_more(), "an older pull tells nothing");
    }

    #[test]
    fn trimmed_packets_go_first_and_on_credit_alone() {
        let mut sender = sender(10, 4);
        sender.next();
        sender.next();
        sender.trimmed(1);
        sender.speculate_no_more();
        assert!(!sender.has_more(), "the first window is over");
        sender.pulled(2);
        let repeat = EqdsOutgoing { psn: 1, payload_bytes: 4096, repeats: Some(EqdsRepeat::Trim) };
        assert_eq!(sender.next(), Some(repeat));
        assert_eq!(drain(&mut sender), [2]);
    }

    #[test]
    fn what_arrives_late_is_not_sent_again() {
        let mut sender = sender(3, 3);
        drain(&mut sender);
        sender.time_out();
        assert_eq!(sender.ask_with_repeats(), 3);
        assert!(sender.arrived(1) && !sender.arrived(1));
        sender.pulled(3);
        assert_eq!(drain(&mut sender), [0, 2]);
        assert!(sender.arrived_before(3) && sender.is_done());
    }

    #[test]
    fn what_is_not_given_is_asked_for_again() {
        let mut sender = sender(3, 3);
        drain(&mut sender);
        let asks = |sender: &mut EqdsSender| {
            sender.time_out();
            sender.ask_with_repeats()
        };
        assert_eq!([asks(&mut sender), asks(&mut sender)], [3, 3]);
        sender.pulled(1);
        assert_eq!(drain(&mut sender), [0]);
        assert_eq!([asks(&mut sender), asks(&mut sender)], [4, 4], "one came, three are lost");
    }

    /// A window that ends early leaves packets that no other packet asks for.
    #[test]
    fn a_short_first_window_makes_it_ask() {
        let mut sender = sender(4, 4);
        sender.ask();
        sender.next();
        assert!(sender.stop_speculating());
        assert_eq!(sender.ask(), 3);
    }
}
