//! The largest datagram that a path carries in one piece, and how the engine finds it
//! (protocol.md §4.6).
//!
//! [`PathSize`] is the state machine, without packets: `Peer` reports acknowledgements, losses and ICMP messages, and
//! sends the size probes that it asks for. Only the fate of a datagram of a size makes it drop or adopt that size, so a
//! forged ICMP message changes nothing.

use super::rtt::PROBES_PER_DEADLINE;
use crate::config::DATAGRAM_MIN_BYTES;
use crate::units::{MILLISECOND, Nanos};
use alloc::boxed::Box;

/// Datagrams up to this size pass every path: each IPv4 host takes packets of 576 bytes, and each
/// IPv6 link carries 1280.
pub(super) const ALWAYS_PASSES_BYTES: u32 = 512;
/// Packets at most this much smaller than a size prove it too.
const NEAR_BYTES: u32 = 64;
/// Datagram that Ethernet carries below an IPv6 header: a search tries it early.
const ETHERNET_BYTES: u16 = 1452;
/// A search ends when the largest size that passes and the smallest that does not are this close.
const STEP_BYTES: u16 = 16;
/// Unanswered size probes in a row before the size in use is given up.
const TRIES: u8 = 3;
/// The same for a larger size.
const SEARCH_TRIES: u8 = 2;
/// Size probes in a row after which a trial ends without a verdict: the peer is silent.
const TRIES_MAX: u8 = 12;
/// Unanswered size probes in a row, which the network may fragment, before the session fails although the peer answers
/// other packets. On a path that loses a quarter of all packets, chance may well lose twelve.
const BLOCKED_TRIES: u8 = 32;
/// Longest time for one size probe, so that a verdict takes less than a second.
const WAIT_MAX_NS: Nanos = 200 * MILLISECOND;
/// No doubt about a size with so recent an acknowledgement: repeated losses by congestion start no trial.
const QUIET_NS: Nanos = 50 * MILLISECOND;
/// Rest between two doubts about the same size: limits the cost of random losses.
const REST_NS: Nanos = 100 * MILLISECOND;
/// Answers to the last so many trials count.
const MEMORY: u16 = 8;
/// Bit of a trial's number: its datagrams may be fragmented.
const MAY_FRAGMENT: u16 = 0x8000;

/// Purpose of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// Datagrams of the size in use seem to vanish.
    Doubt,
    /// A larger one may pass.
    Search,
}

/// A size on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    purpose: Purpose,
    bytes: u16,
    number: u16,
    since: Nanos,
    tries: u8,
    /// Time of the next step; `None` while a size probe waits to be sent.
    next_at: Option<Nanos>,
}

impl Trial {
    fn may_fragment(&self) -> bool {
        self.number & MAY_FRAGMENT != 0
    }
}

/// A size probe to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SizeProbe {
    pub bytes: u16,
    pub number: u16,
    pub may_fragment: bool,
}

/// A received size probe to answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeQuestion {
    pub number: u16,
    pub bytes: u16,
    pub path: u8,
}

/// Outcome of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Nothing,
    /// The size in use has changed.
    Changed,
    /// Not even fragments get through.
    Blocked,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PathSize {
    /// Datagrams up to this size go out whole.
    limit_bytes: u16,
    /// The session's largest datagram.
    ceiling_bytes: u16,
    /// True if not even [`DATAGRAM_MIN_BYTES`] are known to pass whole: routers may fragment everything.
    fragments: bool,
    /// During a search: the least size that does not pass.
    fails_bytes: Option<u16>,
    /// Size from ICMP or the kernel, to try first; 0 for none.
    hint_bytes: u16,
    trial: Option<Box<Trial>>,
    /// Number of trials.
    trials: u16,
    /// No doubt begins before this time.
    rests_until: Nanos,
    /// Time to try larger sizes again; [`Nanos::MAX`] for never.
    grow_at: Nanos,
    /// Time from a search to the next.
    grow_ns: Nanos,
    /// The peer's latest size probe, if unanswered.
    question: Option<SizeQuestion>,
}

impl PathSize {
    fn trial(&self) -> Option<Trial> {
        self.trial.as_deref().copied()
    }

    /// State of a path that carries `told_bytes` by the kernel's word.
    pub(crate) fn new(told_bytes: u16) -> PathSize {
        PathSize {
            limit_bytes: told_bytes.max(DATAGRAM_MIN_BYTES),
            ceiling_bytes: u16::MAX,
            fragments: told_bytes < DATAGRAM_MIN_BYTES,
            fails_bytes: None,
            hint_bytes: 0,
            trial: None,
            trials: 0,
            rests_until: 0,
            grow_at: Nanos::MAX,
            grow_ns: Nanos::MAX,
            question: None,
        }
    }

    /// Begins a session with datagrams of at most `ceiling_bytes`. It starts from the size of the kernel or of an
    /// earlier session.
    pub(super) fn open(&mut self, now: Nanos, ceiling_bytes: u16, grow_ns: Nanos) {
        (self.ceiling_bytes, self.grow_ns) = (ceiling_bytes, grow_ns);
        (self.trial, self.fails_bytes, self.hint_bytes) = (None, None, 0);
        self.question = None;
        self.rests_until = now + QUIET_NS;
        self.grow_at = if self.may_grow() { now } else { Nanos::MAX };
    }

    /// Ends the session.
    pub(super) fn close(&mut self) {
        (self.trial, self.fails_bytes, self.grow_at) = (None, None, Nanos::MAX);
        self.question = None;
    }

    /// The largest datagram to send, in bytes.
    pub(super) fn usable_bytes(&self) -> u16 {
        self.limit_bytes.min(self.ceiling_bytes)
    }

    /// The size known to pass whole, whatever the session allows.
    pub(super) fn limit_bytes(&self) -> u16 {
        self.limit_bytes
    }

    /// Whether routers may fragment a datagram of this size.
    pub(super) fn may_fragment(&self, bytes: u32) -> bool {
        self.fragments || bytes > u32::from(self.limit_bytes)
    }

    fn may_grow(&self) -> bool {
        self.fragments || self.limit_bytes < self.ceiling_bytes
    }

    /// Notes an acknowledged packet.
    pub(super) fn acked(&mut self, now: Nanos, bytes: u32, sent_at: Nanos) {
        if bytes + NEAR_BYTES >= u32::from(self.usable_bytes()) {
            self.rests_until = self.rests_until.max(now + QUIET_NS);
        }
        let ends = |trial: Trial| {
            trial.purpose == Purpose::Doubt
                && sent_at >= trial.since
                && bytes + NEAR_BYTES >= u32::from(trial.bytes)
        };
        if self.trial().is_some_and(ends) {
            self.dispelled(now);
        }
    }

    /// Notes a lost packet, the `attempt`th repetition of it.
    pub(super) fn lost(&mut self, now: Nanos, bytes: u32, attempt: u8) {
        if attempt > 0 && bytes > ALWAYS_PASSES_BYTES {
            self.doubt(now, bytes.try_into().unwrap_or(u16::MAX));
        }
    }

    /// Notes an ICMP report that the path carries at most `bytes`. Anybody can forge it.
    pub(super) fn told(&mut self, now: Nanos, bytes: u16) {
        if bytes < self.usable_bytes() && !(self.fragments && bytes < DATAGRAM_MIN_BYTES) {
            self.hint_bytes = bytes;
            self.doubt(now, 0);
        } else if self.is_searching_above(bytes) {
            self.hint_bytes = bytes;
        }
    }

    /// Notes that this host's own kernel refused a datagram, and reports that the path carries at most `bytes`. The
    /// refusal is certain; the number may come from ICMP. True if that changes the size in use.
    pub(super) fn refused(&mut self, now: Nanos, bytes: u16) -> bool {
        let fails_bytes = match self.trial() {
            Some(trial) if self.is_searching_above(bytes) => trial.bytes,
            _ if bytes < self.usable_bytes() && !(self.fragments && bytes < DATAGRAM_MIN_BYTES) => {
                self.usable_bytes()
            }
            _ => return false,
        };
        self.hint_bytes = bytes;
        self.gives_up(now, fails_bytes)
    }

    fn is_searching_above(&self, bytes: u16) -> bool {
        let above = |trial: Trial| trial.purpose == Purpose::Search && trial.bytes > bytes;
        self.trial().is_some_and(above)
    }

    /// Notes that datagrams of `bytes` do not pass; true if that changes the size in use.
    fn gives_up(&mut self, now: Nanos, bytes: u16) -> bool {
        let in_use = bytes <= self.usable_bytes();
        if in_use {
            (self.limit_bytes, self.fragments) = (DATAGRAM_MIN_BYTES, true);
        }
        self.trial = None;
        self.fails_bytes = Some(bytes);
        self.next_size(now);
        in_use
    }

    fn doubt(&mut self, now: Nanos, lost_bytes: u16) {
        let doubted = self.trial().is_some_and(|trial| trial.purpose == Purpose::Doubt);
        if doubted || now < self.rests_until {
            return;
        }
        let usable_bytes = self.usable_bytes();
        let bytes = usable_bytes.max(lost_bytes);
        let may_fragment = self.fragments || bytes > usable_bytes;
        self.begin(now, Purpose::Doubt, bytes, may_fragment);
    }

    fn begin(&mut self, now: Nanos, purpose: Purpose, bytes: u16, may_fragment: bool) {
        self.trials = (self.trials + 1) % MAY_FRAGMENT;
        let number = self.trials | if may_fragment { MAY_FRAGMENT } else { 0 };
        self.trial =
            Some(Box::new(Trial { purpose, bytes, number, since: now, tries: 0, next_at: None }));
    }

    /// Ends a doubt: the size passes. An interrupted search goes on.
    fn dispelled(&mut self, now: Nanos) {
        (self.trial, self.hint_bytes) = (None, 0);
        self.rests_until = now + REST_NS;
        self.next_size(now);
    }

    /// Notes that data goes out: time to test whether the path carries more.
    pub(super) fn sending(&mut self, now: Nanos) {
        if now >= self.grow_at && self.trial.is_none() {
            self.fails_bytes = Some(self.ceiling_bytes.saturating_add(1));
            self.next_size(now);
        }
    }

    /// Continues a search, or ends it.
    fn next_size(&mut self, now: Nanos) {
        let Some(fails_bytes) = self.fails_bytes else { return };
        let passes_bytes = if self.fragments { DATAGRAM_MIN_BYTES - 1 } else { self.limit_bytes };
        let hint_bytes = core::mem::take(&mut self.hint_bytes);
        let next = if hint_bytes > passes_bytes && hint_bytes < fails_bytes {
            // An honest router's number ends the search.
            self.fails_bytes = Some(hint_bytes + 1);
            Some(hint_bytes)
        } else if self.fragments {
            Some(DATAGRAM_MIN_BYTES).filter(|bytes| *bytes < fails_bytes)
        } else if fails_bytes > self.ceiling_bytes {
            Some(self.ceiling_bytes).filter(|bytes| *bytes > passes_bytes)
        } else if passes_bytes < ETHERNET_BYTES && fails_bytes > ETHERNET_BYTES {
            Some(ETHERNET_BYTES)
        } else {
            let middle = passes_bytes.midpoint(fails_bytes);
            Some(middle).filter(|middle| *middle > passes_bytes + STEP_BYTES / 2)
        };
        match next {
            Some(bytes) => self.begin(now, Purpose::Search, bytes, false),
            None => {
                self.fails_bytes = None;
                self.grow_at =
                    if self.may_grow() { now.saturating_add(self.grow_ns) } else { Nanos::MAX };
            }
        }
    }

    /// Notes a size probe of the peer.
    pub(super) fn asked(&mut self, question: SizeQuestion) {
        self.question = Some(question);
    }

    /// The size probe to answer now.
    pub(super) fn take_question(&mut self) -> Option<SizeQuestion> {
        self.question.take()
    }

    /// True if a size probe must be sent or answered now.
    pub(super) fn is_due(&self) -> bool {
        self.question.is_some() || self.due().is_some()
    }

    /// The size probe to send now.
    pub(super) fn due(&self) -> Option<SizeProbe> {
        let trial = self.trial().filter(|trial| trial.next_at.is_none())?;
        let (bytes, number) = (trial.bytes, trial.number);
        Some(SizeProbe { bytes, number, may_fragment: trial.may_fragment() })
    }

    /// Notes that the due probe was sent; an answer should come within `wait_ns`.
    pub(super) fn sent(&mut self, now: Nanos, wait_ns: Nanos) {
        if let Some(trial) = &mut self.trial {
            trial.tries = trial.tries.saturating_add(1);
            trial.next_at = Some(now + wait_ns.min(WAIT_MAX_NS));
        }
    }

    /// Time at which [`PathSize::timer`] is due.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.trial().and_then(|trial| trial.next_at)
    }

    /// Runs the timer. The peer was last heard at `heard_at`. If it answers, but gets nothing of a size for
    /// `deadline_ns`, the path is blocked.
    pub(super) fn timer(&mut self, now: Nanos, heard_at: Nanos, deadline_ns: Nanos) -> Outcome {
        let Some(trial) = &mut self.trial else { return Outcome::Nothing };
        let Some(due) = trial.next_at.filter(|at| *at <= now) else { return Outcome::Nothing };
        // As for the deadline: time in which this side stood still does not count.
        let stood_ns = (now - due).saturating_sub(deadline_ns / PROBES_PER_DEADLINE);
        trial.since = trial.since.saturating_add(stood_ns).min(now);
        let late = now >= trial.since + deadline_ns;
        let answers = heard_at > trial.since;
        let tries = if trial.purpose == Purpose::Doubt { TRIES } else { SEARCH_TRIES };
        // A peer that has fallen silent meanwhile is dead or cut off: the deadline decides that.
        let lately = heard_at + deadline_ns / 2 > now;
        let blocked = late && lately && trial.tries >= BLOCKED_TRIES;
        let patient = trial.may_fragment() && answers && !blocked;
        if trial.tries < tries || patient {
            trial.next_at = None;
            return Outcome::Nothing;
        }
        if !answers {
            // The whole path is broken, which tells nothing about sizes.
            trial.next_at = None;
            if trial.tries >= TRIES_MAX {
                (self.trial, self.fails_bytes) = (None, None);
                self.grow_at =
                    if self.may_grow() { now.saturating_add(self.grow_ns) } else { Nanos::MAX };
            }
            return Outcome::Nothing;
        }
        let trial = **trial;
        self.trial = None;
        if trial.may_fragment() {
            return Outcome::Blocked;
        }
        match self.gives_up(now, trial.bytes) {
            true => Outcome::Changed,
            false => Outcome::Nothing,
        }
    }

    /// Notes that the peer has received a size probe of `bytes`; true if that changes the size in use.
    pub(super) fn answered(&mut self, now: Nanos, number: u16, bytes: u16) -> bool {
        let age = self.trials.wrapping_sub(number) % MAY_FRAGMENT;
        if age >= MEMORY || bytes > self.ceiling_bytes.max(DATAGRAM_MIN_BYTES) {
            return false;
        }
        let whole = number & MAY_FRAGMENT == 0 && bytes >= DATAGRAM_MIN_BYTES;
        let changed = whole && (bytes > self.limit_bytes || self.fragments);
        if whole {
            self.fragments = false;
            self.limit_bytes = self.limit_bytes.max(bytes);
        }
        let Some(trial) = self.trial().filter(|trial| trial.number == number) else {
            return changed;
        };
        match trial.purpose {
            Purpose::Doubt => self.dispelled(now),
            Purpose::Search => {
                self.trial = None;
                self.next_size(now);
            }
        }
        changed
    }
}
