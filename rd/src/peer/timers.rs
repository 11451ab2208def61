//! What happens when time passes (protocol.md §7).

use super::rtt::longest_spacing_ns;
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
/// Most paths that one round of probes goes out on.
const PROBE_PATHS_MAX: u16 = 8;
/// Probes are spaced by the silence so far, divided by this: that is how late a healed path is
/// found.
const SILENCE_PARTS: Nanos = 8;
/// Unanswered probes (or hellos) without which no peer is declared dead.
const PROBES_BEFORE_DEATH: u32 = 3;

impl Peer {
    /// The peer owes us data: something is missing, or half received.
    fn expects_data(&self) -> bool {
        self.acks.received().has_holes() || self.rx.is_amid()
    }

    /// The peer's liveness matters though it owes no acknowledgement: a match, data or a
    /// directed receive is awaited.
    pub(super) fn needs_watch(&self) -> bool {
        self.phase == Phase::Open
            && (self.watched > 0
                || (self.tx.out.ops() > 0 && !mutant(Mutant::LeavesTheRendezvousUnwatched))
                || self.expects_data()
                || self.rx.awaits_application())
    }

    /// All that keeps the session is what the peer began here and nobody may ever end: messages that the
    /// application does not match, or parts that do not get whole.
    pub(crate) fn hoards(&self, core: &Core, now: Nanos) -> bool {
        let patience_ns = if self.expects_data() { core.cfg.peer_timeout_ns } else { RECLAIM_NS };
        self.phase == Phase::Open
            && (self.rx.awaits_application() || self.expects_data())
            && now >= self.active_at + patience_ns
            && self.watched == 0
            && self.tx.out.ops() == 0
            && !self.tx.outstanding()
            && !self.rx.has_done()
    }

    /// The session is open, but nothing is under way, has been for a while, or waits for the
    /// application.
    pub(crate) fn is_quiet(&self) -> bool {
        self.phase == Phase::Open
            && self.reclaim_at.is_none()
            && !self.needs_watch()
            && !self.tx.outstanding()
            && self.tx.out.ops() == 0
            && !self.rx.has_done()
    }

    /// Time after which silence is worth a probe. A busy peer answers late: to ask it again makes it busier.
    pub(super) fn probe_timeout_ns(&self, core: &Core) -> Nanos {
        self.tx.steering.probe_timeout_ns(&core.cfg)
    }

    /// Makes sure that a probe follows if no answer comes.
    pub(super) fn arm_probe(&mut self, core: &Core, now: Nanos) {
        if self.live.probe_at.is_none() || self.live.probes == 0 {
            let at = now + self.probe_timeout_ns(core);
            self.live.probe_at = Some(self.live.probe_at.map_or(at, |before| before.min(at)));
        }
    }

    /// When this peer wants to be woken; `Nanos::MAX` for never.
    pub(crate) fn next_wake(&self, core: &Core) -> Nanos {
        let mut at = self.setup.next_at.unwrap_or(Nanos::MAX);
        match self.phase {
            Phase::Idle | Phase::Leaving => return at,
            Phase::Opening => {
                if let Some(since) = self.live.owed_since
                    && self.live.probes >= PROBES_BEFORE_DEATH
                {
                    at = at.min(since + core.cfg.peer_timeout_ns);
                }
                return at;
            }
            Phase::Open => {}
        }
        let timers = [self.live.probe_at, self.reclaim_at];
        let timers = timers.into_iter().chain([self.size.next_at()]).flatten();
        at = timers
            .fold(at, Nanos::min)
            .min(self.acks.wake_at())
            .min(self.rx.keys.as_ref().map_or(Nanos::MAX, |keys| keys.wake_at()));
        let wants = self.tx.wants() || self.rx.has_done();
        if wants {
            at = at.min(self.tx.steering.opens_at());
        }
        if self.live.probe_at.is_none() && self.needs_keepalive() {
            at = at.min(self.keepalive_at(core));
        }
        at
    }

    fn needs_keepalive(&self) -> bool {
        self.needs_watch() || self.tx.starved()
    }

    /// When a probe asks whether the peer still lives though nothing is in flight. A lost grant of
    /// credit is asked for sooner, then less and less often.
    fn keepalive_at(&self, core: &Core) -> Nanos {
        let longest = core.cfg.peer_timeout_ns / 4;
        let wait = if self.tx.starved() {
            let quiet = self.live.last_heard.saturating_sub(self.active_at);
            quiet.clamp(core.cfg.rto_min_ns.min(longest), longest)
        } else {
            longest
        };
        self.live.last_heard + wait
    }

    /// Timers that are due at `now`.
    pub(crate) fn on_timer<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        match self.phase {
            Phase::Idle => {}
            Phase::Opening => {
                // A hello that cannot be sent stays due, and is excused once.
                if self.excuse(core, self.setup.next_at, now) {
                    self.setup.next_at = Some(now);
                }
                self.check_deadline(core, host, now);
            }
            Phase::Leaving => {
                let due = self.setup.next_at.is_some_and(|at| at <= now);
                if due && self.goodbye_spacing_ns(core).is_none() {
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
                if self.live.probe_at.is_none_or(|at| at <= now) {
                    self.excuse(core, self.live.probe_at, now);
                    self.check_deadline(core, host, now);
                }
                if self.phase == Phase::Open {
                    self.check_probe(core, now);
                    self.check_size(core, host, now);
                }
            }
        }
    }

    fn check_probe(&mut self, core: &mut Core, now: Nanos) {
        if self.live.probe_at.is_none() && self.needs_keepalive() && self.keepalive_at(core) <= now
        {
            self.live.probe_at = Some(now);
        }
        if self.live.probe_at.is_none_or(|at| at > now) {
            return;
        }
        if self.tx.flight.packets() == 0 && !self.needs_keepalive() {
            // Nobody waits any more, so nothing is owed.
            (self.live.probe_at, self.live.owed_since) = (None, None);
            (self.live.probes_due, self.live.probes) = (0, 0);
            return;
        }
        let owed_since = *self.live.owed_since.get_or_insert(now);
        let in_a_row = self.live.probes + 1;
        // One path may be dead, so the next rounds ask on more of them.
        let paths = 1u16 << self.live.probes.min(PROBE_PATHS_MAX.ilog2());
        self.live.probes_due = paths.min(self.paths);
        // Who waits in vain asks again after a part of the time that it has waited so far. Where nobody listens,
        // nobody is busy.
        let (first, silence) = match self.live.refused {
            0 => (self.probe_timeout_ns(core), now - owed_since),
            _ => (self.tx.steering.idle_timeout_ns(&core.cfg), 0),
        };
        let longest = longest_spacing_ns(&core.cfg);
        // The last one is due at the deadline.
        let left = (owed_since + core.cfg.peer_timeout_ns).saturating_sub(now);
        let spacing =
            first.max(silence / SILENCE_PARTS).min(longest).min(left).max(first.min(longest));
        self.live.probe_at = Some(now + spacing);
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

    /// A timer that comes late by more than the longest spacing of probes says that this side stood still: a
    /// suspended machine, a stopped job. The peer may have done so too, so the rest of that time is not held
    /// against it. Each round counts, so that the deadline comes even where every timer is late. True if so.
    fn excuse(&mut self, core: &Core, due: Option<Nanos>, now: Nanos) -> bool {
        let late = now.saturating_sub(due.unwrap_or(now));
        let beyond = late.saturating_sub(longest_spacing_ns(&core.cfg));
        self.live.owed_since = self.live.owed_since.map(|since| (since + beyond).min(now));
        beyond > 0
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

    /// Gives back what is not in use. Where the peer owes something, that comes without a further
    /// touch, so it is looked at again.
    fn reclaim(&mut self, core: &mut Core, now: Nanos) {
        self.tx.reclaim();
        self.acks.reclaim();
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
        let again = expects_data || self.tx.outstanding() || self.rx.has_done();
        self.reclaim_at = again.then_some(now + RECLAIM_NS);
    }

    /// The peer waits for an answer of ours, or for word of a match, that it has not got yet.
    pub(crate) fn owes_answers(&self) -> bool {
        self.phase == Phase::Open && (self.rx.has_done() || self.tx.owes_answers())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::fixed::ERD;
    use crate::config::Config;
    use crate::peer::PathSize;
    use crate::units::PeerId;
    use alloc::boxed::Box;

    fn core() -> Core {
        let name = "10.0.0.1:1".parse().expect("an address");
        Core::new(Config::new(name, 1, |seed, _| seed), Box::new(ERD.scheme()), 1)
    }

    #[test]
    fn a_quiet_flow_gives_its_memory_back_long_before_it_counts_as_unused() {
        let (mut core, id) = (core(), PeerId { index: 0, generation: 1 });
        let mut peer = Peer::new(id, core.cfg.name, PathSize::new(1472));
        peer.phase = Phase::Open;
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
        let mut peer = Peer::new(id, core.cfg.name, PathSize::new(1472));
        peer.phase = Phase::Open;
        peer.touch(0);
        peer.tx.out.post(0, 8, 0);
        peer.reclaim(&mut core, GIVE_BACK_NS);
        peer.reclaim(&mut core, RECLAIM_NS);
        assert!(peer.tx.out.queued() > 0 && !peer.is_quiet());
        assert_eq!(peer.reclaim_at, Some(2 * RECLAIM_NS));
    }
}
