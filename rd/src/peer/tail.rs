//! The early question after the last packets sent (protocol.md §7.2): nothing that is sent later tells that one of them was
//! lost, and the probe timeout is made for hosts that are busy.
//!
//! This part knows no packets and no round trips; `Peer` reports what is sent, acknowledged and answered. Each further question
//! waits twice as long as the one before, until something new is acknowledged or answered: a peer that is busy is asked a few
//! times, and a question or an answer that is lost costs little.

use super::rare::Moment;
use crate::units::Nanos;

/// Most questions without an answer. After them the probe timeout counts alone.
const QUESTIONS_MAX: u8 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    /// Time of the next look whether the question is due. It stays while packets go, so that none of them moves a timer.
    at: Moment,
    /// Time of the question, unless more is sent.
    due_at: Nanos,
    /// It is to be sent now.
    is_due: bool,
    /// How many went out since something came that answers them.
    asked: u8,
}

impl Tail {
    /// Notes a packet that the peer must acknowledge: the question is due after `silence_ns`, if there is to be one.
    pub fn sent(&mut self, now: Nanos, silence_ns: Option<Nanos>) {
        if self.asked > 0 {
            return;
        }
        self.due_at = now.saturating_add(silence_ns.unwrap_or(0));
        self.at = match silence_ns {
            Some(_) => self.at.earlier(self.due_at),
            None => Moment::NONE,
        };
    }

    /// Notes that the peer has acknowledged something new, while more `waits` for that or not.
    pub fn progressed(&mut self, now: Nanos, waits: bool, silence_ns: Option<Nanos>) {
        (self.is_due, self.asked) = (false, 0);
        self.sent(now, silence_ns.filter(|_| waits));
    }

    /// Notes an answer (protocol.md §7.2) that acknowledges nothing new: what is sent from now on may be asked for again.
    pub fn answered(&mut self) {
        self.asked = 0;
    }

    /// Time at which [`Tail::timer`] is to be called.
    pub fn at(&self) -> Option<Nanos> {
        self.at.get()
    }

    /// Makes the question due, if its time has come.
    pub fn timer(&mut self, now: Nanos) {
        if self.at.is_past(now) {
            self.is_due = self.due_at <= now;
            self.at = if self.is_due { Moment::NONE } else { Moment::at(self.due_at) };
        }
    }

    /// True if the question is to be sent now.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Notes a question. The next one is due after `silence_ns`, doubled for each so far, if there is to be one.
    pub fn asked(&mut self, now: Nanos, silence_ns: Option<Nanos>) {
        self.asked = self.asked.saturating_add(1);
        let next_ns = silence_ns.filter(|_| self.asked < QUESTIONS_MAX).map(|ns| ns << self.asked);
        self.due_at = now.saturating_add(next_ns.unwrap_or(0));
        self.at = next_ns.map_or(Moment::NONE, |_| Moment::at(self.due_at));
        self.is_due = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Time of the question if nothing else happens.
    fn due_at(mut tail: Tail) -> Option<Nanos> {
        while let Some(at) = tail.at() {
            tail.timer(at);
            if tail.is_due() {
                return Some(at);
            }
        }
        None
    }

    #[test]
    fn questions_are_further_and_further_apart_until_one_is_answered() {
        let mut tail = Tail::default();
        tail.sent(0, Some(10));
        tail.sent(5, Some(10));
        assert_eq!(due_at(tail), Some(15), "it is about the last packet");
        tail.timer(14);
        assert!(!tail.is_due());
        tail.timer(15);
        assert!(tail.is_due());
        let mut gaps = Vec::new();
        let mut now = 15;
        loop {
            tail.asked(now, Some(10));
            tail.sent(now + 1, Some(10));
            assert!(!tail.is_due());
            let Some(next) = due_at(tail) else { break };
            tail.timer(next);
            gaps.push(next - now);
            now = next;
        }
        assert_eq!(gaps, [20, 40, 80]);
        tail.answered();
        tail.asked(20, None);
        assert_eq!(due_at(tail), None, "a probe has its own timeout");
        tail.answered();
        tail.sent(30, Some(10));
        assert_eq!(due_at(tail), Some(40));
        tail.timer(40);
        tail.progressed(41, true, Some(10));
        assert_eq!((due_at(tail), tail.is_due()), (Some(51), false));
        tail.progressed(42, false, Some(10));
        assert_eq!(due_at(tail), None);
        tail.sent(50, None);
        assert_eq!(due_at(tail), None);
    }

    #[test]
    fn packets_move_no_timer_unless_it_would_be_late() {
        let mut tail = Tail::default();
        for now in 0..10 {
            tail.sent(now, Some(10));
            assert_eq!(tail.at(), Some(10));
        }
        tail.sent(10, Some(3));
        assert_eq!((tail.at(), due_at(tail)), (Some(10), Some(13)));
        tail.progressed(10, true, Some(30));
        tail.timer(10);
        assert_eq!((tail.at(), tail.is_due()), (Some(40), false));
        tail.sent(20, Some(5));
        assert_eq!(tail.at(), Some(25), "the round trip is shorter now");
    }
}
