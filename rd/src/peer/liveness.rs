//! Liveness of a peer: since when it owes an answer, and when the next probe is due (protocol.md §7.2, §7.3).
//!
//! `Peer` reports what it hears and sends, whether something is in flight, and the silence after which a probe is due:
//! this part knows no packets and no round trips. Its invariants are in [`Liveness::check`].

use super::answers::Round;
use super::rare::Moment;
use super::rtt::longest_spacing_ns;
use crate::config::Config;
use crate::host::OpError;
use crate::mutants::{Mutant, mutant};
use crate::units::Nanos;

/// Most paths that one round of probes goes out on.
const PROBE_PATHS_MAX: u16 = 8;
/// The spacing of probes is the silence so far, divided by this: the longest delay until a healed path is found.
const SILENCE_PARTS: Nanos = 8;
/// Least unanswered probes (or hellos) before a peer counts as dead.
const PROBES_BEFORE_DEATH: u32 = 3;
/// ICMP reports end a session after a silence of one part in so many of the deadline: whoever forges them must also keep
/// the peer from answering for that long.
const REFUSALS_PART: Nanos = 10;
/// While deadlines are paused, a silence counts as no more than one part in so many of the deadline. So the peer has the
/// rest of it when the pause ends, and probes do not come thick and fast.
const PAUSED_PART: Nanos = 2;
/// Probes that fit into the deadline while nothing is in flight.
const KEEPALIVES_PER_DEADLINE: Nanos = 4;
/// Deadlines within which a peer that is heard must answer: it may have been silent for nearly one of them.
const ANSWER_DEADLINES: Nanos = 2;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Liveness {
    heard_at: Nanos,
    /// Time since which the peer owes an answer.
    owed_since: Moment,
    /// Probes (or hellos) in a row since the peer was last heard.
    probes: u32,
    /// Time since which an answer is due, while something waits for it. Nothing else that the peer sends moves it.
    unanswered_since: Moment,
    /// Rounds of probes since the last answer.
    unanswered: u32,
    /// Number of the next round of probes in this session.
    round: u16,
    /// Single probes that went out while the peer owed nothing, and wait for an answer. They count for no deadline.
    asked: u32,
    /// Time at which the next probe is due.
    probe_at: Moment,
    /// Probes to send now, each on another path.
    probes_due: u16,
    /// ICMP reports that nobody listens, since the peer was last heard.
    refused: u32,
}

impl Liveness {
    /// State of a peer that was heard at `now`, and owes nothing.
    pub(super) fn new(now: Nanos) -> Liveness {
        Liveness { heard_at: now, ..Liveness::default() }
    }

    /// State of a peer that owes an answer to the set-up from `now` on.
    pub(super) fn owing(now: Nanos) -> Liveness {
        Liveness { owed_since: Moment::at(now), ..Liveness::new(now) }
    }

    /// Time at which the peer was last heard.
    pub(super) fn heard_at(&self) -> Nanos {
        self.heard_at
    }

    /// True if no probe waits for an answer.
    pub(crate) fn is_answering(&self) -> bool {
        self.probes == 0 && self.asked == 0
    }

    /// True if several rounds of probes in a row brought no answer.
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered > 1
    }

    /// What the probes that are due say of their round. A probe that went out while the peer owed nothing is one, too.
    pub(super) fn round(&self) -> Round {
        let unanswered = self.unanswered.saturating_add(self.asked);
        let unanswered = u8::try_from(unanswered).unwrap_or(u8::MAX);
        Round { number: self.round, unanswered }
    }

    /// Notes an ICMP report that nobody listens.
    pub(crate) fn refuse(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// Notes a sign of life: the peer's debt counts from now, if something `waits` for its acknowledgement. Hearing
    /// from it after a silence ends a back-off: the network may have healed. Only progress postpones the probe: a peer that
    /// talks but does not acknowledge has lost something.
    pub(super) fn heard(&mut self, now: Nanos, waits: bool, timeout_ns: Nanos) {
        let silence = now.saturating_sub(self.heard_at);
        (self.heard_at, self.refused, self.probes, self.asked) = (now, 0, 0, 0);
        let unanswered = self.unanswered_since.get().map_or(0, |since| now.saturating_sub(since));
        self.owe(now, waits);
        if mutant(Mutant::LetsAnyPacketPay) {
            self.answered(now, waits);
        }
        if !waits {
            (self.unanswered_since, self.probe_at) = (Moment::NONE, Moment::NONE);
        }
        let rounds_grow = self.unanswered <= PROBE_PATHS_MAX.ilog2();
        if rounds_grow || silence >= unanswered / SILENCE_PARTS {
            self.probe_at = self.probe_at.map(|at| at.min(now + timeout_ns));
        }
    }

    /// Notes an acknowledgement that is an answer (protocol.md §7.2). The next one is due from now on, if something `waits` for it.
    pub(super) fn answered(&mut self, now: Nanos, waits: bool) {
        (self.unanswered_since, self.unanswered) = (Moment::when(waits, now), 0);
    }

    /// Notes that the peer has acknowledged something new, or that nothing `waits` for that any more.
    pub(super) fn progressed(&mut self, now: Nanos, waits: bool, timeout_ns: Nanos) {
        self.owe(now, waits);
        self.answered(now, waits);
        self.probe_at = Moment::when(waits, now + timeout_ns);
    }

    fn owe(&mut self, now: Nanos, waits: bool) {
        if !mutant(Mutant::KeepsTheDeadlineRunning) {
            self.owed_since = Moment::when(waits, now);
        }
    }

    /// Notes a packet that the peer must acknowledge: a probe follows if no answer comes.
    pub(super) fn sent(&mut self, now: Nanos, timeout_ns: Nanos) {
        self.owed_since.get_or_set(now);
        self.unanswered_since.get_or_set(now);
        if !self.probe_at.is_set() || self.probes == 0 {
            self.probe_at = self.probe_at.earlier(now + timeout_ns);
        }
    }

    /// Notes a sent hello.
    pub(super) fn sent_hello(&mut self, now: Nanos) {
        self.owed_since.get_or_set(now);
        self.probes += 1;
    }

    /// Asks for one probe now, on one path.
    pub(super) fn ask(&mut self) {
        self.probes_due = 1;
    }

    /// True if probes must be sent now.
    pub(super) fn asks(&self) -> bool {
        self.probes_due > 0
    }

    /// Notes a sent probe. The probes of a round count as one.
    pub(super) fn sent_probe(&mut self) {
        self.probes_due -= 1;
        let is_last = u32::from(self.probes_due == 0);
        self.round = self.round.wrapping_add(is_last as u16);
        match self.owed_since.is_set() {
            true => {
                (self.probes, self.unanswered) = (self.probes + is_last, self.unanswered + is_last);
            }
            false => self.asked = self.asked.saturating_add(1),
        }
    }

    /// Time of the next round of probes, if any.
    pub(super) fn probe_at(&self) -> Option<Nanos> {
        self.probe_at.get()
    }

    /// Time of the next probe of an idle peer, with nothing in flight. Probes for a lost grant of credit, for which
    /// messages wait since `starved_since`, come sooner, then less and less often.
    pub(super) fn keepalive_at(&self, cfg: &Config, starved_since: Option<Nanos>) -> Nanos {
        let longest = cfg.peer_timeout_ns / KEEPALIVES_PER_DEADLINE;
        let wait = starved_since.map_or(longest, |since| {
            self.heard_at.saturating_sub(since).clamp(cfg.rto_min_ns.min(longest), longest)
        });
        self.heard_at + wait
    }

    /// Clears the debt, since nobody waits any more.
    pub(super) fn rest(&mut self) {
        let Liveness { heard_at, refused, round, .. } = *self;
        *self = Liveness { heard_at, refused, round, ..Liveness::default() };
    }

    /// Begins a round of probes on some of the `paths`, and plans the next. Returns the number of rounds in a row without an
    /// answer.
    /// Silence is worth a probe after the first timeout, or after the second if the peer is known not to be busy.
    pub(super) fn probe(
        &mut self,
        cfg: &Config,
        now: Nanos,
        paths: u16,
        (timeout_ns, idle_timeout_ns): (Nanos, Nanos),
    ) -> u32 {
        let owed_since = self.owed_since.get_or_set(now);
        let unanswered_since = self.unanswered_since.get_or_set(now);
        // One path may be dead, so the next rounds use more of them.
        self.probes_due = (1u16 << self.unanswered.min(PROBE_PATHS_MAX.ilog2())).min(paths);
        // The next probe comes after a part of the time without an answer. Where nobody listens, no peer is busy.
        let (first, silence) = match self.refused {
            0 => (timeout_ns, now - unanswered_since.min(owed_since)),
            _ => (idle_timeout_ns, 0),
        };
        let longest = longest_spacing_ns(cfg);
        // The last one is due at the deadline.
        let left = (owed_since + cfg.peer_timeout_ns).saturating_sub(now);
        let spacing =
            first.max(silence / SILENCE_PARTS).min(longest).min(left).max(first.min(longest));
        self.probe_at = Moment::at(now + spacing);
        self.unanswered + 1
    }

    /// A timer later than the longest spacing of probes means that this side stood still: a suspended machine, a
    /// stopped job. So may the peer, so the rest of that time does not count against it. Each round counts, so that the
    /// deadline comes even where every timer is late. True if it was so late.
    pub(super) fn excuse(&mut self, cfg: &Config, due: Option<Nanos>, now: Nanos) -> bool {
        let late = now.saturating_sub(due.unwrap_or(now));
        let beyond = late.saturating_sub(longest_spacing_ns(cfg));
        for since in [&mut self.owed_since, &mut self.unanswered_since] {
            *since = since.map(|since| (since + beyond).min(now));
        }
        beyond > 0
    }

    /// True if [`Liveness::death`] may come.
    pub(super) fn is_overdue(&self, cfg: &Config, now: Nanos) -> bool {
        self.is_long_silent(cfg, now) || self.is_long_unanswered(cfg, now)
    }

    fn is_long_silent(&self, cfg: &Config, now: Nanos) -> bool {
        now >= self.silent_since() + cfg.peer_timeout_ns / REFUSALS_PART
    }

    /// True if the peer was heard, but has not answered for so long that it never will.
    fn is_long_unanswered(&self, cfg: &Config, now: Nanos) -> bool {
        let since = self.unanswered_since.get().filter(|_| self.unanswered >= PROBES_BEFORE_DEATH);
        since.is_some_and(|since| now >= since + ANSWER_DEADLINES * cfg.peer_timeout_ns)
    }

    /// The peer is to be waited for, however long that takes: counts the silence as a part of the deadline at most, and
    /// what ICMP says of its port not at all. A process that is moved has none for a while.
    pub(super) fn pause(&mut self, cfg: &Config, now: Nanos) {
        self.refused = 0;
        let least = now.saturating_sub(cfg.peer_timeout_ns / PAUSED_PART);
        for since in [&mut self.owed_since, &mut self.unanswered_since] {
            *since = since.map(|since| since.max(least));
        }
    }

    fn silent_since(&self) -> Nanos {
        self.owed_since.get().unwrap_or(self.heard_at)
    }

    /// Time at which the peer counts as dead unless it answers; [`Nanos::MAX`] before enough probes.
    pub(super) fn deadline(&self, cfg: &Config) -> Nanos {
        let since = self.owed_since.get().filter(|_| self.probes >= PROBES_BEFORE_DEATH);
        since.map_or(Nanos::MAX, |since| since + cfg.peer_timeout_ns)
    }

    /// Reason why the peer counts as dead, if it does. Once its session `is_open`, repeated ICMP reports and a tenth of the
    /// deadline suffice.
    pub(super) fn death(&self, cfg: &Config, now: Nanos, is_open: bool) -> Option<OpError> {
        let often = |count: u32| count >= PROBES_BEFORE_DEATH;
        let asked = self.probes.saturating_add(self.asked);
        let is_long = self.is_long_silent(cfg, now);
        let is_gone = is_open && often(asked) && often(self.refused) && is_long;
        let is_late = now >= self.deadline(cfg) || self.is_long_unanswered(cfg, now);
        match self.refused {
            0 if is_late => Some(OpError::PeerTimeout),
            1.. if is_gone || is_late => Some(OpError::PeerUnreachable),
            _ => None,
        }
    }

    /// Checks the invariants between two calls of the endpoint, where something `waits` for an acknowledgement or not.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self, waits: bool) {
        assert!(!waits || self.probe_at.is_set(), "what is in flight is asked after");
        assert!(!self.probe_at.is_set() || self.owed_since.is_set(), "who is asked owes");
        assert!(
            !waits || self.unanswered_since.is_set(),
            "what is in flight is to be acknowledged"
        );
        assert!(self.probes_due <= PROBE_PATHS_MAX, "a round has no more probes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{MILLISECOND, SECOND};

    const TIMEOUT: (Nanos, Nanos) = (10 * MILLISECOND, 4 * MILLISECOND);

    fn cfg() -> Config {
        let cfg = Config::new("10.0.0.1:1".parse().expect("an address"), 1, |seed, _| seed);
        Config { peer_timeout_ns: 10 * SECOND, rto_min_ns: MILLISECOND, ..cfg }
    }

    /// Sends one round of probes; returns their number.
    fn round(live: &mut Liveness, now: Nanos, paths: u16) -> u16 {
        live.probe(&cfg(), now, paths, TIMEOUT);
        let mut sent = 0;
        while live.asks() {
            live.sent_probe();
            sent += 1;
        }
        live.check(true);
        sent
    }

    #[test]
    fn only_progress_postpones_a_probe() {
        let mut live = Liveness::new(0);
        live.sent(5, 100);
        live.sent(50, 100);
        assert_eq!(live.probe_at(), Some(105), "later packets do not put it off");
        live.heard(20, true, 100);
        assert_eq!((live.probe_at(), live.heard_at()), (Some(105), 20));
        live.heard(21, true, 10);
        assert_eq!(live.probe_at(), Some(31));
        live.progressed(30, true, 100);
        assert_eq!((live.probe_at(), live.owed_since.get()), (Some(130), Some(30)));
        live.check(true);
        live.heard(40, false, 100);
        assert_eq!((live.probe_at(), live.owed_since.get()), (None, None));
        live.check(false);
    }

    #[test]
    fn rounds_of_probes_take_more_paths_and_more_time_until_the_deadline() {
        let mut live = Liveness::new(0);
        live.sent(0, 10);
        let (mut sent, mut times) = (alloc::vec::Vec::new(), alloc::vec::Vec::new());
        while live.death(&cfg(), live.probe_at().unwrap_or(0), true).is_none() {
            let now = live.probe_at().expect("a round follows");
            sent.push(round(&mut live, now, 6));
            times.push(now);
        }
        assert_eq!(sent[..5], [1, 2, 4, 6, 6]);
        let spacing: alloc::vec::Vec<Nanos> = times.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(spacing[..spacing.len() - 1].is_sorted() && spacing[0] == TIMEOUT.0);
        assert!(spacing.iter().all(|spacing| *spacing <= SECOND));
        assert_eq!(live.probe_at(), Some(10 * SECOND), "the last one is due at the deadline");
        assert!(live.is_unanswered() && !live.is_answering());
        live.heard(10 * SECOND, true, 10);
        assert!(live.is_answering() && live.death(&cfg(), 11 * SECOND, true).is_none());
    }

    #[test]
    fn where_nobody_listens_three_probes_are_enough_after_a_tenth_of_the_deadline() {
        let mut live = Liveness::new(0);
        live.sent(0, 10);
        for at in 1..=3 {
            live.refuse();
            assert_eq!(live.death(&cfg(), at, true), None);
            round(&mut live, at, 1);
            assert_eq!(live.probe_at(), Some(at + TIMEOUT.1), "nobody is busy there");
        }
        assert_eq!(live.death(&cfg(), SECOND - 1, true), None, "it may be busy, and ICMP forged");
        assert_eq!(live.death(&cfg(), SECOND, false), None);
        assert_eq!(live.death(&cfg(), SECOND, true), Some(OpError::PeerUnreachable));
        assert_eq!(live.death(&cfg(), 10 * SECOND, false), Some(OpError::PeerUnreachable));
    }

    #[test]
    fn a_peer_that_is_heard_all_the_time_is_asked_less_and_less_often() {
        let mut live = Liveness::new(0);
        live.sent(0, 10 * MILLISECOND);
        let (mut rounds, mut now) = (0, 0);
        while now < 10 * SECOND {
            now += MILLISECOND;
            live.heard(now, true, 10 * MILLISECOND);
            if live.probe_at().is_some_and(|at| at <= now) {
                round(&mut live, now, 6);
                rounds += 1;
            }
        }
        assert!((20..60).contains(&rounds), "{rounds}");
        let silent_until = now + 5 * SECOND;
        live.heard(silent_until, true, 10 * MILLISECOND);
        let soon = silent_until + 10 * MILLISECOND;
        assert!(live.probe_at().is_some_and(|at| at <= soon), "a silence has ended");
    }

    #[test]
    fn a_peer_that_is_heard_has_two_deadlines_to_answer() {
        let mut live = Liveness::new(0);
        live.sent(0, 10);
        let (mut sent, mut now) = (alloc::vec::Vec::new(), 0);
        while live.death(&cfg(), now, true).is_none() {
            now = live.probe_at().expect("a round follows");
            sent.push(round(&mut live, now, 6));
            live.heard(now + 1, true, 10 * MILLISECOND);
            live.check(true);
        }
        assert_eq!(sent[..5], [1, 2, 4, 6, 6], "what it says elsewhere is no answer");
        assert!((20 * SECOND..21 * SECOND).contains(&now), "{now}");
        assert_eq!(live.death(&cfg(), now, true), Some(OpError::PeerTimeout));
        let mut paused = live;
        paused.pause(&cfg(), now);
        assert_eq!(paused.death(&cfg(), now + 14 * SECOND, true), None);
        live.answered(now, true);
        let is_dead = live.death(&cfg(), now + 9 * SECOND, true);
        assert_eq!((live.round().unanswered, is_dead), (0, None));
    }

    #[test]
    fn a_hello_is_owed_an_answer_and_time_in_which_this_side_slept_does_not_count() {
        let mut live = Liveness::owing(7);
        for _ in 0..3 {
            assert_eq!(live.deadline(&cfg()), Nanos::MAX);
            live.sent_hello(9);
        }
        assert_eq!(live.deadline(&cfg()), 7 + 10 * SECOND);
        assert!(!live.excuse(&cfg(), Some(8), 8 + SECOND), "so late a timer may be");
        assert!(live.excuse(&cfg(), Some(8), 8 + 3 * SECOND));
        assert_eq!(live.deadline(&cfg()), 7 + 12 * SECOND);
        assert_eq!(live.death(&cfg(), 7 + 12 * SECOND, false), Some(OpError::PeerTimeout));
        live.check(false);
    }

    #[test]
    fn a_peer_that_is_waited_for_has_half_the_deadline_when_the_pause_ends() {
        let mut live = Liveness::new(0);
        live.sent(0, 10);
        let (mut rounds, mut now) = (0, 0);
        while now < 100 * SECOND {
            now = live.probe_at().expect("a round follows");
            if live.is_long_silent(&cfg(), now) {
                live.pause(&cfg(), now);
                assert_eq!(live.death(&cfg(), now, true), None);
            }
            round(&mut live, now, 6);
            rounds += 1;
        }
        assert!(rounds < 250, "{rounds} rounds of probes");
        let end = live.deadline(&cfg());
        assert!((4 * SECOND..=5 * SECOND).contains(&(end - now)), "{}", end - now);
        assert_eq!(live.death(&cfg(), end, true), Some(OpError::PeerTimeout));
    }

    #[test]
    fn a_peer_whose_port_is_closed_is_waited_for_just_as_long() {
        let mut live = Liveness::new(0);
        live.sent(0, 10);
        let (mut rounds, mut now) = (0, 0);
        while now < 100 * SECOND {
            now = live.probe_at().expect("a round follows");
            if live.is_long_silent(&cfg(), now) {
                live.pause(&cfg(), now);
                assert_eq!(live.death(&cfg(), now, true), None);
            }
            round(&mut live, now, 6);
            rounds += 1;
            (0..3).for_each(|_| live.refuse());
        }
        assert!(rounds < 500, "{rounds} rounds of probes");
        live.pause(&cfg(), now);
        assert_eq!(live.death(&cfg(), now + SECOND, true), None, "nothing was said since");
    }

    #[test]
    fn an_idle_peer_is_asked_rarely_and_a_lost_grant_is_asked_for_soon() {
        let (live, cfg) = (Liveness::new(SECOND), cfg());
        assert_eq!(live.keepalive_at(&cfg, None), SECOND + 2500 * MILLISECOND);
        assert_eq!(live.keepalive_at(&cfg, Some(SECOND)), SECOND + MILLISECOND);
        let since = SECOND - 30 * MILLISECOND;
        assert_eq!(live.keepalive_at(&cfg, Some(since)), SECOND + 30 * MILLISECOND);
    }

    #[test]
    fn nothing_is_owed_once_nobody_waits() {
        let mut live = Liveness::new(0);
        live.sent(0, 10);
        round(&mut live, 10, 1);
        live.probe(&cfg(), 20, 1, TIMEOUT);
        live.rest();
        assert!(live.is_answering() && !live.asks() && live.probe_at().is_none());
        live.check(false);
        live.ask();
        live.sent_probe();
        assert!(!live.is_answering(), "a single probe waits for its answer, too");
    }

    #[test]
    fn probes_that_nothing_is_owed_for_are_no_rounds_of_a_silence() {
        let mut live = Liveness::new(0);
        for _ in 0..12 {
            live.ask();
            live.sent_probe();
        }
        assert!(!live.is_answering() && live.death(&cfg(), SECOND, true).is_none());
        let mut refused = live;
        (0..3).for_each(|_| refused.refuse());
        let death = refused.death(&cfg(), SECOND, true);
        assert_eq!(death, Some(OpError::PeerUnreachable), "nobody listens");
        live.sent(SECOND, 10);
        assert_eq!(live.probe(&cfg(), SECOND + 10, 8, TIMEOUT), 1, "the first round");
        live.heard(2 * SECOND, false, 10);
        assert!(live.is_answering());
    }
}
