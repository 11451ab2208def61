//! The timers of a peer: the next one due, and what each does when it expires (protocol.md §7).

use super::session::Due;
use super::{Core, Peer, Phase};
use crate::cc::Timeout;
use crate::host::{EndReason, Host, OpError};
use crate::units::Nanos;
use core::num::NonZeroU64;

impl Peer {
    /// Silence (ns) after which to probe. A busy peer answers late, and another probe makes it busier.
    pub(super) fn probe_timeout_ns(&self, core: &Core) -> Nanos {
        self.tx.steering.probe_timeout_ns(&core.cfg)
    }

    /// Time of this peer's next wake-up; `Nanos::MAX` for never.
    pub(crate) fn next_wake(&self, core: &Core) -> Nanos {
        let mut at = self.session.next_at().unwrap_or(Nanos::MAX);
        match self.session.phase() {
            Phase::Idle | Phase::Leaving => return at,
            Phase::Opening => return at.min(self.live.deadline(&core.cfg)),
            Phase::Open => {}
        }
        let or_never = |timer: Option<Nanos>| timer.unwrap_or(Nanos::MAX);
        at = at
            .min(or_never(self.live.probe_at()))
            .min(or_never(self.reclaim_at.map(NonZeroU64::get)));
        at = at.min(or_never(self.tail.at()));
        at = at.min(or_never(self.size.next_at())).min(or_never(self.tells_at()));
        at = at.min(self.acks.wake_at()).min(self.responder.wake_at());
        at = at.min(self.lane.wake_at());
        let wants = self.tx.wants() || self.responder.has_done();
        if wants && !self.has_lane() {
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

    /// Runs the timers that are due at `now`.
    pub(crate) fn on_timer<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        match self.session.phase() {
            Phase::Idle => {}
            Phase::Opening => {
                // A hello that cannot be sent stays due: excuse it only once.
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
                self.tail.timer(now);
                if self.reclaim_at.is_some_and(|at| at.get() <= now) {
                    self.reclaim(now);
                }
                self.run_keys(core, host, now);
                self.check_renewal(core, now);
                // The last probe has had its time when the next one is due.
                let probe_at = self.live.probe_at();
                if probe_at.is_none_or(|at| at <= now) {
                    self.live.excuse(&core.cfg, probe_at, now);
                    self.check_deadline(core, host, now);
                }
                if self.session.is_open() {
                    self.check_probe(core, host, now);
                    self.check_size(core, host, now);
                }
            }
        }
    }

    fn check_probe<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        let due = match self.live.probe_at() {
            Some(at) => at <= now,
            None => self.needs_keepalive() && self.keepalive_at(core) <= now,
        };
        if !due {
            return;
        }
        let has_read = self.tx.flight.packets() == 0 && !self.has_unread(host);
        if has_read && !self.needs_keepalive() {
            self.live.rest();
            return;
        }
        let idle_timeout_ns = self.tx.steering.idle_timeout_ns(&core.cfg);
        let timeouts = (self.probe_timeout_ns(core), idle_timeout_ns);
        // Answers on other paths would say that the peer is there, and data on the flow's own would wait for ever.
        let paths = if self.tx.steering.only_path(now).is_some() { 1 } else { self.paths };
        let in_a_row = self.live.probe(&core.cfg, now, paths, timeouts);
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
        if self.live.is_overdue(&core.cfg, now) && host.is_paused() {
            self.live.pause(&core.cfg, now);
            return;
        }
        if let Some(error) = self.live.death(&core.cfg, now, self.session.is_open()) {
            let error = self.session.explained(error);
            self.end(core, host, EndReason::Failed(error));
        }
    }
}
