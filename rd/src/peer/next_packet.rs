//! The choice of a session's next packet, in this order: set-up or end of the session, probes, answers, repetitions,
//! small messages, acknowledgements that are due, new data (protocol.md §3, §6, §7).

use super::session::Due;
use super::tail::Tail;
use super::{Core, Peer, Phase};
use crate::host::{Host, Reach};
use crate::transmit::TxBurst;
use crate::units::Nanos;

impl Peer {
    /// Writes the next burst of this peer, if something is due.
    pub(crate) fn transmit<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        flush: bool,
        burst: &mut TxBurst,
    ) -> bool {
        if self.session.phase() == Phase::Idle {
            if self.queued() == 0 {
                return false;
            }
            match host.reach(now, self.name) {
                // Whether it can is known soon.
                Reach::Asked => return false,
                reach => self.begin_by(core, host, now, reach),
            }
        }
        match self.session.due(now) {
            Some(Due::Hello) => {
                self.look_for_lane(core, host, now);
                self.emit_hello(core, now, burst);
            }
            // A goodbye overtakes what the peer has yet to read.
            Some(Due::Goodbye) if self.lingers(core, host, now) => return false,
            Some(Due::Goodbye) => self.emit_goodbye(core, now, burst),
            Some(Due::End) => return false,
            None if self.session.is_open() => {
                let sent = self.transmit_open(core, host, now, flush, burst);
                self.stays_awake(now);
                return sent;
            }
            None => return false,
        }
        true
    }

    fn transmit_open<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        flush: bool,
        burst: &mut TxBurst,
    ) -> bool {
        if let Some(answered) = self.session.take_welcome() {
            self.emit_welcome(core, now, burst, answered);
            return true;
        }
        if self.live.asks() {
            self.emit_probe(core, now, burst);
            return true;
        }
        if self.tail.is_due() {
            if self.tx.flight.packets() > 0 && !self.tx.flight.has_retries() {
                self.emit_question(core, now, burst);
                return true;
            }
            // A repetition asks for an acknowledgement, too, and is a last packet itself.
            self.tail = Tail::default();
        }
        if self.acks.is_urgent() {
            self.emit_ack(core, now, burst);
            return true;
        }
        if self.has_lane() {
            self.transmit_lane(core, host, now);
            return false;
        }
        if self.transmit_size(core, now, burst) || self.transmit_retry(core, host, now, burst) {
            return true;
        }
        if self.bundle_due(core, flush) && self.transmit_bundle(core, host, now, burst) {
            return true;
        }
        if let Some(lone) = self.acks.take_due(now) {
            // Send the reply to a lone message before its standalone acknowledgement: one burst.
            if !(lone && self.transmit_segments(core, host, now, burst)) {
                self.emit_ack(core, now, burst);
            }
            return true;
        }
        self.transmit_segments(core, host, now, burst)
    }

    /// Whether another burst may be due at `now`, after one that [`Peer::transmit`] has written. False saves a call in
    /// vain, most often after a small message.
    pub(crate) fn may_have_more(&self, now: Nanos) -> bool {
        !self.session.is_open()
            || self.tx.wants()
            || self.has_lane_work()
            || self.responder.has_done()
            || self.acks.is_urgent()
            || self.acks.is_due(now)
            || self.size.is_due()
            || self.live.asks()
            || self.tail.is_due()
            || self.session.owes_welcome()
    }

    /// True if a later flush may send something without a further event.
    pub(crate) fn has_queued(&self) -> bool {
        self.session.is_open() && self.queued() > 0
    }
}
