//! What happens when time passes (protocol.md §7).

use super::{Core, Peer, Phase};
use crate::cc::Timeout;
use crate::host::{EndReason, Host, OpError};
use crate::planted::planted;
use crate::transmit::TxBurst;
use crate::units::{MILLISECOND, Nanos};

/// Quiet time after which a flow's memory is given back.
const RECLAIM_NS: Nanos = 500 * MILLISECOND;
/// Unanswered probes (or hellos) without which no peer is declared dead.
const PROBES_BEFORE_DEATH: u32 = 3;

impl Peer {
    /// The peer's liveness matters though it owes no acknowledgement: a match, data or a
    /// directed receive is awaited.
    pub(super) fn needs_watch(&self) -> bool {
        self.phase == Phase::Open
            && (self.watched > 0 || (self.tx.awaits_match() && !planted(15)) || self.rx.expects_data())
    }

    /// Makes sure that a probe follows if no answer comes.
    pub(super) fn arm_probe(&mut self, rto_min_ns: Nanos, now: Nanos) {
        if self.live.probe_at.is_none() || self.live.probes == 0 {
            let at = now + self.rtt.probe_timeout_ns(rto_min_ns);
            self.live.probe_at = Some(self.live.probe_at.map_or(at, |before| before.min(at)));
        }
    }

    /// When this peer wants to be woken; `Nanos::MAX` for never.
    pub(crate) fn next_wake(&self, core: &Core) -> Nanos {
        let mut at = self.setup.next_at.unwrap_or(Nanos::MAX);
        if self.phase == Phase::Idle {
            return at;
        }
        let timers = [self.rx.ack_at, self.rx.scan_at, self.live.probe_at];
        at = timers.into_iter().flatten().fold(at, Nanos::min);
        if let Some(since) = self.live.owed_since
            && self.live.probes >= PROBES_BEFORE_DEATH
        {
            at = at.min(since + core.cfg.peer_timeout_ns);
        }
        if self.tx.wants() && self.tx.pace_at > 0 {
            at = at.min(self.tx.pace_at);
        }
        if self.phase == Phase::Open && self.live.probe_at.is_none() && self.needs_keepalive() {
            at = at.min(self.live.last_heard + core.cfg.peer_timeout_ns / 4);
        }
        if !self.reclaimed {
            at = at.min(self.active_at + RECLAIM_NS);
        }
        at
    }

    fn needs_keepalive(&self) -> bool {
        self.needs_watch() || self.tx.starved()
    }

    /// Timers that are due at `now`.
    pub(crate) fn on_timer<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        match self.phase {
            Phase::Idle => {}
            Phase::Opening => self.check_deadline(core, host, now),
            Phase::Leaving => {
                let due = self.setup.next_at.is_some_and(|at| at <= now);
                if due && self.goodbye_spacing_ns(core).is_none() {
                    self.end(core, host, EndReason::Failed(OpError::Canceled));
                }
            }
            Phase::Open => {
                if self.rx.scan_at.is_some_and(|at| at <= now) {
                    self.scan(core, now);
                }
                if self.tx.pace_at <= now {
                    self.tx.pace_at = 0;
                }
                self.check_probe(core, now);
                self.check_deadline(core, host, now);
            }
        }
        if !self.reclaimed && self.active_at + RECLAIM_NS <= now {
            self.reclaim(core);
        }
    }

    fn check_probe(&mut self, core: &mut Core, now: Nanos) {
        if self.live.probe_at.is_none() && self.needs_keepalive() {
            let starved = self.tx.starved();
            let wait = if starved { core.cfg.rto_min_ns } else { core.cfg.peer_timeout_ns / 4 };
            if self.live.last_heard + wait <= now {
                self.live.probe_at = Some(now);
            }
        }
        if self.live.probe_at.is_none_or(|at| at > now) {
            return;
        }
        if self.tx.in_flight_packets == 0 && !self.needs_keepalive() {
            self.live.probe_at = None;
            return;
        }
        self.live.probe_due = true;
        self.live.probes += 1;
        let first = self.rtt.probe_timeout_ns(core.cfg.rto_min_ns);
        let doublings = if self.live.refused > 0 { 0 } else { self.live.probes.min(16) };
        let spacing = (first << doublings).min(core.cfg.peer_timeout_ns / 5);
        self.live.probe_at = (!planted(19)).then_some(now + spacing);
        let (in_flight_bytes, in_a_row) = (self.tx.in_flight_bytes, self.live.probes);
        if in_flight_bytes > 0
            && let Some(cc) = &mut self.cc
        {
            cc.on_timeout(&Timeout { now, in_flight_bytes, in_a_row });
        }
    }

    fn check_deadline<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        if self.live.probes < PROBES_BEFORE_DEATH {
            return;
        }
        if self.phase == Phase::Open && self.live.refused >= PROBES_BEFORE_DEATH {
            self.end(core, host, EndReason::Failed(OpError::PeerUnreachable));
            return;
        }
        let late = |since: Nanos| now >= since + core.cfg.peer_timeout_ns;
        if self.live.owed_since.is_some_and(late) {
            let refused = self.live.refused > 0;
            let error = if refused { OpError::PeerUnreachable } else { OpError::PeerTimeout };
            self.end(core, host, EndReason::Failed(error));
        }
    }

    fn reclaim(&mut self, core: &mut Core) {
        self.reclaimed = true;
        self.tx.reclaim();
        self.rx.reclaim();
        if !self.rx.expects_data() && self.rx.set_inactive() {
            core.active_senders -= 1;
        }
    }

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
            if self.tx.queue.is_empty() {
                return false;
            }
            self.begin(core, now);
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
        if self.live.probe_due {
            self.emit_probe(core, now, burst);
            return true;
        }
        if self.rx.probe_answer || self.rx.nack_below.is_some() {
            self.emit_ack(core, now, burst);
            return true;
        }
        if self.transmit_retry(core, host, now, burst) {
            return true;
        }
        if self.bundle_due(flush) && self.transmit_bundle(core, host, now, burst) {
            return true;
        }
        if self.rx.ack_at.is_some_and(|at| at <= now) {
            self.emit_ack(core, now, burst);
            return true;
        }
        self.transmit_segments(core, host, now, burst)
    }

    /// Something may be sent at a later flush without a further event.
    pub(crate) fn has_queued(&self) -> bool {
        self.phase == Phase::Open && !self.tx.queue.is_empty()
    }
}
