//! Which packet of a session leaves next: what opens or ends the session, then probes, answers, repetitions, small
//! messages, acknowledgements that are due, and new data (protocol.md §3, §6, §7).

use super::{Core, Peer, Phase};
use crate::host::Host;
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
        if self.phase == Phase::Idle {
            if self.queued() == 0 {
                return false;
            }
            self.begin(core, host, now);
        }
        let due = self.setup.next_at.is_some_and(|at| at <= now);
        match self.phase {
            Phase::Idle => false,
            Phase::Opening => due.then(|| self.emit_hello(core, now, burst)).is_some(),
            Phase::Leaving => {
                let due = due && self.goodbye_spacing_ns(core).is_some();
                due.then(|| self.emit_goodbye(core, now, burst)).is_some()
            }
            Phase::Open => self.transmit_open(core, host, now, flush, burst),
        }
    }

    fn transmit_open<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        flush: bool,
        burst: &mut TxBurst,
    ) -> bool {
        if self.setup.welcome.is_some() {
            self.emit_welcome(core, now, burst);
            return true;
        }
        if self.live.asks() {
            self.emit_probe(core, now, burst);
            return true;
        }
        if self.acks.is_urgent() {
            self.emit_ack(core, now, burst);
            return true;
        }
        if self.transmit_size(core, now, burst) || self.transmit_retry(core, host, now, burst) {
            return true;
        }
        if self.bundle_due(core, flush) && self.transmit_bundle(core, host, now, burst) {
            return true;
        }
        if let Some(lone) = self.acks.take_due(now) {
            // What is said to a lone message goes before the word that it is there: one burst of it.
            if !(lone && self.transmit_segments(core, host, now, burst)) {
                self.emit_ack(core, now, burst);
            }
            return true;
        }
        self.transmit_segments(core, host, now, burst)
    }

    /// Whether another burst may be due at `now`, after one that [`Peer::transmit`] has written. If not, to ask would
    /// be in vain: most often so after a small message.
    pub(crate) fn may_have_more(&self, now: Nanos) -> bool {
        self.phase != Phase::Open
            || self.tx.wants()
            || self.rx.has_done()
            || self.acks.is_urgent()
            || self.acks.is_due(now)
            || self.size.is_due()
            || self.live.asks()
            || self.setup.welcome.is_some()
    }

    /// Something may be sent at a later flush without a further event.
    pub(crate) fn has_queued(&self) -> bool {
        self.phase == Phase::Open && self.queued() > 0
    }
}
