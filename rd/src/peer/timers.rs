//! What happens when time passes (protocol.md §7).

use super::session::Due;
use super::{Core, Peer, Phase};
use crate::cc::Timeout;
use crate::host::{EndReason, Host, OpError};
use crate::mutants::{Mutant, mutant};
use crate::units::{MILLISECOND, Nanos};

/// Quiet time after which a flow's memory is given back: so long that a peer that is talked to all the time
/// keeps it, so short that who talks to many peers in turn does not hold it for all of them.
pub(super) const GIVE_BACK_NS: Nanos = 50 * MILLISECOND;
/// Quiet time after which a flow no longer counts as in use, and what is known of its paths is forgotten.
const RECLAIM_NS: Nanos = 500 * MILLISECOND;
const _: () = assert!(GIVE_BACK_NS < RECLAIM_NS);

impl Peer {
    /// The peer owes us data: something is missing, or half received.
    fn expects_data(&self) -> bool {
        self.acks.received().has_holes() || self.rx.is_amid() || self.target.has_early()
    }

    /// The peer's liveness matters though it owes no acknowledgement: a match, data or a
    /// directed receive is awaited.
    pub(super) fn needs_watch(&self) -> bool {
        self.session.is_open()
            && (self.watched > 0
                || (self.tx.out.ops() > 0 && !mutant(Mutant::LeavesTheRendezvousUnwatched))
                || self.expects_data()
                || self.rx.awaits_application())
    }

    /// All that keeps the session is what the peer began here and nobody may ever end: messages that the
    /// application does not match, or parts that do not get whole.
    pub(crate) fn hoards(&self, core: &Core, now: Nanos) -> bool {
        let patience_ns = if self.expects_data() { core.cfg.peer_timeout_ns } else { RECLAIM_NS };
        self.session.is_open()
            && (self.rx.awaits_application() || self.expects_data())
            && now >= self.active_at + patience_ns
            && self.watched == 0
            && self.tx.out.ops() == 0
            && !self.tx.outstanding()
            && !self.target.has_done()
    }

    /// The session is open, but nothing is under way, has been for a while, or waits for the
    /// application.
    pub(crate) fn is_quiet(&self) -> bool {
        self.session.is_open()
            && self.reclaim_at.is_none()
            && !self.needs_watch()
            && !self.tx.outstanding()
            && self.tx.out.ops() == 0
            && !self.target.has_done()
    }

    /// Time after which silence is worth a probe. A busy peer answers late: to ask it again makes it busier.
    pub(super) fn probe_timeout_ns(&self, core: &Core) -> Nanos {
        self.tx.steering.probe_timeout_ns(&core.cfg)
    }

    /// When this peer wants to be woken; `Nanos::MAX` for never.
    pub(crate) fn next_wake(&self, core: &Core) -> Nanos {
        let mut at = self.session.next_at().unwrap_or(Nanos::MAX);
        match self.session.phase() {
            Phase::Idle | Phase::Leaving => return at,
            Phase::Opening => return at.min(self.live.deadline(&core.cfg)),
            Phase::Open => {}
        }
        let timers = [self.live.probe_at(), self.reclaim_at];
        let timers = timers.into_iter().chain([self.size.next_at()]).flatten();
        at = timers.fold(at, Nanos::min).min(self.acks.wake_at()).min(self.target.wake_at());
        let wants = self.tx.wants() || self.target.has_done();
        if wants {
            at = at.min(self.tx.steering.opens_at());
        }
        if self.live.probe_at().is_none() && self.needs_keepalive() {
            at = at.min(self.keepalive_at(core));
        }
        at
    }

    fn needs_keepalive(&self) -> bool {
        self.needs_watch() || self.tx.starved()
    }

    fn keepalive_at(&self, core: &Core) -> Nanos {
        self.live.keepalive_at(&core.cfg, self.tx.starved().then_some(self.active_at))
    }

    /// Timers that are due at `now`.
    pub(crate) fn on_timer<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        match self.session.phase() {
            Phase::Idle => {}
            Phase::Opening => {
                // A hello that cannot be sent stays due, and is excused once.
                if self.live.excuse(&core.cfg, self.session.next_at(), now) {
                    self.session.put_off(now);
                }
                self.check_deadline(core, host, now);
            }
            Phase::Leaving => {
                if self.session.due(now) == Some(Due::End) {
                    self.end(core, host, EndReason::Failed(OpError::Canceled));
                }
            }
            Phase::Open => {
                self.acks.scan(now, self.pace(core));
                self.tx.steering.timer(now);
                if self.reclaim_at.is_some_and(|at| at <= now) {
                    self.reclaim(core, now);
                }
                self.run_keys(core, host, now);
                // The last probe has had its time when the next one is due.
                let probe_at = self.live.probe_at();
                if probe_at.is_none_or(|at| at <= now) {
                    self.live.excuse(&core.cfg, probe_at, now);
                    self.check_deadline(core, host, now);
                }
                if self.session.is_open() {
                    self.check_probe(core, now);
                    self.check_size(core, host, now);
                }
            }
        }
    }

    fn check_probe(&mut self, core: &mut Core, now: Nanos) {
        let due = match self.live.probe_at() {
            Some(at) => at <= now,
            None => self.needs_keepalive() && self.keepalive_at(core) <= now,
        };
        if !due {
            return;
        }
        if self.tx.flight.packets() == 0 && !self.needs_keepalive() {
            self.live.rest();
            return;
        }
        let idle_timeout_ns = self.tx.steering.idle_timeout_ns(&core.cfg);
        let timeouts = (self.probe_timeout_ns(core), idle_timeout_ns);
        let in_a_row = self.live.probe(&core.cfg, now, self.paths, timeouts);
        if in_a_row > 1 {
            self.tx.steering.forgive();
        }
        let in_flight_bytes = self.tx.flight.bytes();
        // The controller's timeouts are spaced exponentially.
        if in_flight_bytes > 0 && in_a_row.is_power_of_two() {
            let in_a_row = in_a_row.ilog2() + 1;
            self.tx.steering.timed_out(&Timeout { now, in_flight_bytes, in_a_row });
        }
    }

    fn check_deadline<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        if let Some(error) = self.live.death(&core.cfg, now, self.session.is_open()) {
            self.end(core, host, EndReason::Failed(error));
        }
    }

    /// Gives back what is not in use. Where the peer owes something, that comes without a further
    /// touch, so it is looked at again.
    fn reclaim(&mut self, core: &mut Core, now: Nanos) {
        self.tx.reclaim();
        self.acks.reclaim();
        self.initiator.reclaim();
        self.target.reclaim();
        self.rx.reclaim();
        let unused_at = self.active_at + RECLAIM_NS;
        if now < unused_at {
            self.reclaim_at = Some(unused_at);
            return;
        }
        if !self.tx.outstanding() {
            self.tx.steering.reclaim();
        }
        let expects_data = self.expects_data();
        if !expects_data && core::mem::take(&mut self.active) {
            core.active_senders -= 1;
        }
        let again = expects_data || self.tx.outstanding() || self.target.has_done();
        self.reclaim_at = again.then_some(now + RECLAIM_NS);
    }

    /// The peer waits for an answer of ours, or for word of a match, that it has not got yet.
    pub(crate) fn owes_answers(&self) -> bool {
        self.session.is_open() && (self.target.owes_answers() || self.tx.has_endings())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::fixed::ERD;
    use crate::config::Config;
    use crate::peer::PathSize;
    use crate::peer::session::tests::open;
    use crate::units::PeerId;
    use alloc::boxed::Box;

    fn core() -> Core {
        let name = "10.0.0.1:1".parse().expect("an address");
        Core::new(Config::new(name, 1, |seed, _| seed), Box::new(ERD.scheme()), 1)
    }

    #[test]
    fn a_quiet_flow_gives_its_memory_back_long_before_it_counts_as_unused() {
        let (mut core, id) = (core(), PeerId { index: 0, generation: 1 });
        let mut peer = Peer::new(id, core.cfg.name, PathSize::new(1472), 0);
        peer.session = open(1, 1);
        peer.touch(7);
        peer.tx.flight.reserve(32);
        assert_eq!(peer.next_wake(&core), 7 + GIVE_BACK_NS);
        peer.reclaim(&mut core, 7 + GIVE_BACK_NS);
        assert_eq!(peer.tx.flight.reserved(), (0, 0));
        assert!(!peer.is_quiet(), "what is known of its paths is kept");
        assert_eq!(peer.next_wake(&core), 7 + RECLAIM_NS);
        peer.reclaim(&mut core, 7 + RECLAIM_NS);
        assert!(peer.is_quiet());
        assert_eq!(peer.next_wake(&core), Nanos::MAX);
    }

    #[test]
    fn a_flow_in_use_keeps_its_memory() {
        let (mut core, id) = (core(), PeerId { index: 0, generation: 1 });
        let mut peer = Peer::new(id, core.cfg.name, PathSize::new(1472), 0);
        peer.session = open(1, 1);
        peer.touch(0);
        peer.tx.out.post(0, 8, 0);
        peer.reclaim(&mut core, GIVE_BACK_NS);
        peer.reclaim(&mut core, RECLAIM_NS);
        assert!(peer.tx.out.queued() > 0 && !peer.is_quiet());
        assert_eq!(peer.reclaim_at, Some(2 * RECLAIM_NS));
    }
}
