//! The session state machine: the ids on both sides, the phase, and the effect of each message of set-up and end
//! (protocol.md §3).
//!
//! `Peer` hands it the messages, acts on the results, and writes the packets that are due. This part knows no flows and
//! no packets. Its invariants are in [`Session::check`].

use super::rare::{Empty, Rare};
use crate::host::OpError;
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::{MILLISECOND, Nanos};
use crate::wire::setup::{Greeting, Question};

/// First spacing of hellos and goodbyes; doubles with each.
const HELLO_FIRST_NS: Nanos = 5 * MILLISECOND;
/// Widest spacing of hellos.
const HELLO_MAX_NS: Nanos = 250 * MILLISECOND;
/// Time after a challenge in which an older one does not count.
const CHALLENGE_ORDER_NS: Nanos = 1000 * MILLISECOND;
/// Goodbyes sent before the peer is left alone.
const GOODBYES_MAX: u32 = 3;

/// The phase of a peer's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    /// No session.
    #[default]
    Idle,
    /// Hellos go out.
    Opening,
    /// Both sides know each other.
    Open,
    /// Goodbyes go out.
    Leaving,
}

/// The names of a session on this side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SessionNames {
    /// The count of the endpoint's sessions: this one's incarnation, and its name in [`crate::MsgRef`].
    pub number: u32,
    /// Id by which the peer addresses it.
    pub id: u64,
}

/// The names of a session on the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct TheirNames {
    id: u64,
    /// Its id in its probes and goodbyes.
    asker: u64,
    epoch: u64,
    incarnation: u32,
}

/// Deadlines from the first hello on in which an answer starts the set-up's deadline again. An honest peer may restart
/// meanwhile, or its welcome may be lost, but not time after time.
const SETUP_DEADLINES: Nanos = 4;

/// Set-up and end, while they last.
#[derive(Debug)]
struct Setup {
    cookie: u64,
    /// Epoch of the only process that may know our session id: the one that gave the cookie.
    proven_to: Option<u64>,
    /// Send time of the challenge that the next hello answers; 0 for none.
    echo: u32,
    /// Send time of the challenge that gave the cookie, on the writer's clock, and its arrival on ours.
    challenged_at_ns: u32,
    challenge_came_at: Nanos,
    tries: u32,
    /// Time of the next hello or goodbye.
    next_at: Option<Nanos>,
    /// A welcome is due, echoing this send time and answering these random bytes.
    welcome: Option<(u32, Option<Question>)>,
    /// The next hello is proven by the key before the newest.
    older: bool,
    /// Hellos take turns between the two keys, since somebody said that a process has not got ours.
    alternates: bool,
    /// What a process without our key said of why it does not answer: nobody can prove that.
    hint: Option<OpError>,
}

const NO_SETUP: Setup = Setup {
    cookie: 0,
    proven_to: None,
    echo: 0,
    challenged_at_ns: 0,
    challenge_came_at: 0,
    tries: 0,
    next_at: None,
    welcome: None,
    older: false,
    alternates: false,
    hint: None,
};

impl Default for Setup {
    fn default() -> Setup {
        NO_SETUP
    }
}

impl Empty for Setup {
    const EMPTY: &'static Setup = &NO_SETUP;
}

/// The packet that is due in a session that is not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Hello,
    Goodbye,
    /// Enough goodbyes went unanswered.
    End,
}

/// Meaning of a challenge to a hello of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Challenge {
    /// The next hello carries its cookie.
    New,
    /// It is repeated, or late.
    Known,
    /// It is of another process than the one before: our session id must be renewed.
    OfAnother,
}

/// Meaning of a hello with a right cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hello {
    /// The first one: a session begins.
    First,
    /// It meets a hello of ours.
    Crossing,
    /// The same, but packets of another process, or of an earlier session, may be under way with our session id.
    Stranger,
    /// The welcome did not arrive; it is due again.
    Repeated,
    /// The peer has given up the present session.
    Restarted,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Session {
    phase: Phase,
    ours: SessionNames,
    theirs: TheirNames,
    /// Epoch and incarnation of the peer's last session: within that epoch, a hello of an earlier one is stale even
    /// without a session.
    oldest: (u64, u32),
    /// The peer's id in the last session that ended: packets of ours may still be on their way to
    /// it, so no other session uses it.
    gave_up: u64,
    /// True once the peer has used our session id, so it has our greeting.
    met: bool,
    setup: Rare<Setup>,
    /// Time of the first hello of this set-up.
    begun_at: Nanos,
}

impl Session {
    /// No session, with a peer whose id was `gave_up` in an earlier one; 0 for none.
    pub(super) fn new(gave_up: u64) -> Session {
        Session { gave_up, ..Session::default() }
    }

    /// The phase.
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// True if both sides know each other.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// See [`SessionNames::number`]. It outlives the session.
    pub(crate) fn number(&self) -> u32 {
        self.ours.number
    }

    /// Id by which the peer addresses this session; 0 for none.
    pub(crate) fn our_id(&self) -> u64 {
        self.ours.id
    }

    /// Id by which we address the peer's side; 0 until the session is open.
    pub(crate) fn their_id(&self) -> u64 {
        self.theirs.id
    }

    /// True if this is the peer's id in its probes and goodbyes. The peer has none before the session is open.
    pub(crate) fn is_asked_by(&self, asker: u64) -> bool {
        matches!(self.phase, Phase::Open | Phase::Leaving) && self.theirs.asker == asker
    }

    /// The peer's id in the last session that ended; 0 for none.
    pub(crate) fn gave_up(&self) -> u64 {
        self.gave_up
    }

    /// The cookie for the next hello, from the peer's challenge.
    pub(super) fn cookie(&self) -> u64 {
        self.setup.cookie
    }

    /// Begins a session: hellos go out from now on.
    pub(super) fn begin(&mut self, now: Nanos, ours: SessionNames) {
        debug_assert_eq!(self.phase, Phase::Idle, "one session at a time");
        (self.phase, self.begun_at) = (Phase::Opening, now);
        self.renew(now, ours);
    }

    /// Changes our session id. The process that answers is not the one that may know the old id, whose packets may
    /// still be under way.
    pub(super) fn renew(&mut self, now: Nanos, ours: SessionNames) {
        self.ours = ours;
        *self.setup = Setup { next_at: Some(now), ..Setup::default() };
    }

    /// True if an answer at `now` may start the deadline of this set-up again.
    pub(super) fn may_restart_deadline(&self, now: Nanos, deadline_ns: Nanos) -> bool {
        now < self.begun_at + SETUP_DEADLINES * deadline_ns
    }

    /// Judges a hello whose cookie is right.
    ///
    /// # Errors
    /// The drop reason if it is stale or does not fit the phase; then nothing changes.
    pub(super) fn hello(&self, g: &Greeting) -> Result<Hello, DropReason> {
        let said = (g.epoch, g.incarnation);
        if matches!(self.phase, Phase::Open | Phase::Leaving) {
            let known = (self.theirs.epoch, self.theirs.incarnation);
            if said == known && !mutant(Mutant::RestartsOnARepeatedHello) {
                // A peer that has our greeting sends no more hellos: this one is late, or from a stranger that has the
                // peer's port by now and must not learn our session id.
                let is_lost = self.is_open() && g.session == self.theirs.id && !self.met;
                return if is_lost { Ok(Hello::Repeated) } else { Err(DropReason::WrongState) };
            }
            return if said < known { Err(DropReason::Cookie) } else { Ok(Hello::Restarted) };
        }
        if g.epoch == self.oldest.0 && g.incarnation < self.oldest.1 {
            return Err(DropReason::Cookie);
        }
        match (self.phase, self.setup.proven_to) {
            (Phase::Idle, _) => Ok(Hello::First),
            (_, Some(epoch)) if epoch > g.epoch => Err(DropReason::Cookie),
            (_, Some(epoch)) if epoch < g.epoch => Ok(Hello::Stranger),
            _ if g.gave_up == self.ours.id => Ok(Hello::Stranger),
            _ => Ok(Hello::Crossing),
        }
    }

    /// Takes a challenge to our hello.
    ///
    /// # Errors
    /// As for [`Session::hello`].
    pub(super) fn challenge(
        &mut self,
        now: Nanos,
        cookie: u64,
        epoch: u64,
        sent_at_ns: u32,
    ) -> Result<Challenge, DropReason> {
        if self.phase != Phase::Opening {
            return Err(DropReason::WrongState);
        }
        let is_first = self.setup.proven_to.is_none();
        let known = *self.setup.proven_to.get_or_insert(epoch);
        if known > epoch {
            return Err(DropReason::Cookie);
        }
        if known < epoch {
            return Ok(Challenge::OfAnother);
        }
        // The low 32 bits of the writer's clock tell the order of what came within a short time.
        // Cookies that were there before do not count as known: if an older challenge comes last, the one that it hides
        // must count when it comes again.
        let is_soon = now.saturating_sub(self.setup.challenge_came_at) < CHALLENGE_ORDER_NS;
        let is_older = (sent_at_ns.wrapping_sub(self.setup.challenged_at_ns) as i32) < 0;
        if cookie == self.setup.cookie || (!is_first && is_soon && is_older) {
            return Ok(Challenge::Known);
        }
        *self.setup = Setup {
            cookie,
            proven_to: self.setup.proven_to,
            echo: sent_at_ns,
            challenged_at_ns: sent_at_ns,
            challenge_came_at: now,
            next_at: Some(now),
            ..Setup::default()
        };
        Ok(Challenge::New)
    }

    /// Judges a welcome to our hello. True if it is the first one, which opens the session.
    ///
    /// # Errors
    /// As for [`Session::hello`].
    pub(super) fn welcome(&self, g: &Greeting) -> Result<bool, DropReason> {
        match self.phase {
            Phase::Opening if self.setup.proven_to != Some(g.epoch) => Err(DropReason::Cookie),
            Phase::Opening if g.session == self.gave_up => Err(DropReason::Cookie),
            Phase::Opening => Ok(true),
            Phase::Open if g.session == self.theirs.id => Ok(false),
            _ => Err(DropReason::WrongState),
        }
    }

    /// Opens the session with an accepted greeting.
    pub(super) fn open(&mut self, g: &Greeting) {
        let Greeting { session: id, asker, epoch, incarnation, .. } = *g;
        self.theirs = TheirNames { id, asker, epoch, incarnation };
        self.oldest = (epoch, incarnation);
        (self.phase, self.met) = (Phase::Open, false);
        (self.setup.next_at, self.setup.hint) = (None, None);
    }

    /// Notes a packet of the session that came before its welcome: the next hello brings that again. False if no
    /// welcome is awaited.
    pub(super) fn miss_welcome(&mut self, now: Nanos) -> bool {
        let soon = now + HELLO_FIRST_NS;
        if self.phase == Phase::Opening {
            self.setup.next_at = self.setup.next_at.map(|at| at.min(soon));
        }
        self.phase == Phase::Opening
    }

    /// Notes that the peer has used our session id.
    pub(super) fn meet(&mut self) {
        self.met = true;
    }

    /// Takes the peer's goodbye: no hello of the ended session, or of an earlier one, may begin another.
    pub(super) fn retire(&mut self) {
        self.oldest.1 = self.oldest.1.saturating_add(1);
    }

    /// Starts to leave: goodbyes go out from now on.
    pub(super) fn leave(&mut self, now: Nanos) {
        self.phase = Phase::Leaving;
        *self.setup = Setup { next_at: Some(now), ..Setup::default() };
    }

    /// Frees the memory of the set-up, once it is over.
    pub(super) fn reclaim(&mut self) {
        if self.is_open() && self.setup.welcome.is_none() {
            self.setup.forget();
        }
    }

    /// Ends the session. False if there was none.
    pub(super) fn end(&mut self) -> bool {
        let Session { phase, ours, theirs, oldest, gave_up, .. } = *self;
        let gave_up = if theirs.id == 0 { gave_up } else { theirs.id };
        let ours = SessionNames { id: 0, ..ours };
        *self = Session { ours, oldest, ..Session::new(gave_up) };
        phase != Phase::Idle
    }

    /// Time of the next hello or goodbye, if any.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.setup.next_at
    }

    /// The packet that is due.
    pub(super) fn due(&self, now: Nanos) -> Option<Due> {
        self.setup.next_at.filter(|at| *at <= now)?;
        match self.phase {
            Phase::Opening => Some(Due::Hello),
            Phase::Leaving if self.setup.tries < GOODBYES_MAX => Some(Due::Goodbye),
            Phase::Leaving => Some(Due::End),
            Phase::Idle | Phase::Open => None,
        }
    }

    /// True if a hello has gone out under this id, and nobody has answered it: the peer has no session with it.
    pub(super) fn is_unheard(&self) -> bool {
        self.setup.tries > 0 && self.setup.cookie == 0
    }

    /// Puts off a due hello that could not be sent.
    pub(super) fn put_off(&mut self, now: Nanos) {
        self.setup.next_at = Some(now);
    }

    /// Notes a sent hello; the next follows after at most `longest_ns`. Returns the send time that it echoes; a
    /// repetition is too late to measure a round trip.
    pub(super) fn sent_hello(&mut self, now: Nanos, longest_ns: Nanos) -> u32 {
        self.setup.older ^= self.setup.alternates;
        let longest_ns = longest_ns.min(HELLO_MAX_NS);
        let spacing = (HELLO_FIRST_NS << self.setup.tries.min(8)).min(longest_ns);
        self.sent_goodbye(now + spacing);
        core::mem::take(&mut self.setup.echo)
    }

    /// Notes a sent goodbye, and the time of the next.
    pub(super) fn sent_goodbye(&mut self, next_at: Nanos) {
        self.setup.next_at = Some(next_at);
        self.setup.tries += 1;
    }

    /// Makes a welcome due, which echoes this send time, and answers these random bytes.
    pub(super) fn owe_welcome(&mut self, sent_at_ns: u32, random: Option<Question>) {
        self.setup.welcome = Some((sent_at_ns, random));
    }

    /// Notes what a process without our key said while hellos go out, unless one with our key has answered.
    pub(crate) fn heard_hint(&mut self, hint: OpError) {
        if self.phase == Phase::Opening && self.setup.proven_to.is_none() {
            self.setup.hint = Some(hint);
        }
    }

    /// Tries the key before the newest, at once and from now on in turns with that. Nobody can prove that it is asked for,
    /// so this happens once in a set-up.
    pub(super) fn try_older(&mut self, now: Nanos) {
        let is_new = !self.setup.alternates && self.setup.proven_to.is_none();
        if self.phase == Phase::Opening && is_new {
            (self.setup.older, self.setup.alternates) = (true, true);
            self.setup.next_at = Some(now);
        }
    }

    /// Another key is the newest from now on. Hellos that were answered stay with the one that the peer has.
    pub(super) fn keep_key(&mut self) {
        if let Some(setup) = self.setup.get_mut() {
            setup.older = setup.proven_to.is_some();
        }
    }

    /// The peer has answered under a key: hellos stay with that, the one before the newest or not.
    pub(super) fn say_hello_with(&mut self, older: bool) {
        (self.setup.older, self.setup.alternates) = (older, false);
    }

    /// True if the next hello is proven by the key before the newest.
    pub(super) fn says_hello_with_older(&self) -> bool {
        self.setup.older
    }

    /// The error of a set-up that nobody answered: what `error` means, if somebody told.
    pub(super) fn explained(&self, error: OpError) -> OpError {
        self.setup.hint.unwrap_or(error)
    }

    /// True if a welcome is due.
    pub(super) fn owes_welcome(&self) -> bool {
        self.setup.welcome.is_some()
    }

    /// Takes what the due welcome echoes and answers.
    pub(super) fn take_welcome(&mut self) -> Option<(u32, Option<Question>)> {
        self.setup.get_mut()?.welcome.take()
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self) {
        let Session { phase, ours, theirs, oldest, .. } = *self;
        let setup = &self.setup;
        let knows = matches!(phase, Phase::Open | Phase::Leaving);
        assert_eq!(ours.id != 0, phase != Phase::Idle, "a session has an id");
        assert_eq!(theirs.id != 0, knows, "the peer's is known while it may be used");
        let is_oldest = oldest == (theirs.epoch, theirs.incarnation);
        assert!(!knows || is_oldest, "hellos of earlier sessions are stale");
        let waits = matches!(phase, Phase::Opening | Phase::Leaving);
        assert_eq!(setup.next_at.is_some(), waits, "who waits for an answer asks again");
        assert!(setup.welcome.is_none() || self.is_open(), "a welcome is for an open session");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::AckPolicy;
    use crate::units::SECOND;
    use crate::wire::window::Window;

    const OURS: SessionNames = SessionNames { number: 3, id: 30 };

    /// A greeting of the peer's process of this epoch, for the session of this incarnation.
    fn greeting(epoch: u64, incarnation: u32) -> Greeting {
        Greeting {
            features: 0,
            session: epoch * 100 + u64::from(incarnation),
            asker: 7,
            epoch,
            incarnation,
            first_psn: 0,
            first_order: 0,
            datagram_bytes: 1472,
            paths: 1,
            ack_policy: AckPolicy::from_wire([0, 1]).expect("a policy"),
            window: Window::default(),
            eager_credit_bytes: 0,
            order_window: 0,
            psn_window: 0,
            cookie: 1,
            gave_up: 0,
            echo_sent_at_ns: 0,
            random: None,
            name: "10.0.0.1:1".parse().expect("an address"),
        }
    }

    fn opening() -> Session {
        let mut session = Session::new(0);
        session.check();
        session.begin(0, OURS);
        session.check();
        session
    }

    fn open(epoch: u64, incarnation: u32) -> Session {
        let mut session = opening();
        session.open(&greeting(epoch, incarnation));
        session.check();
        session
    }

    #[test]
    fn hellos_are_repeated_ever_more_rarely_and_again_at_once_with_a_new_cookie() {
        let mut session = opening();
        let mut spacings = [0; 7];
        let mut now = 0;
        for spacing in &mut spacings {
            assert_eq!(session.due(now), Some(Due::Hello));
            assert_eq!(session.sent_hello(now, SECOND), 0);
            *spacing = (session.next_at().expect("another") - now) / MILLISECOND;
            now += *spacing * MILLISECOND;
        }
        assert_eq!(spacings, [5, 10, 20, 40, 80, 160, 250]);
        assert_eq!(session.challenge(now - 9, 55, 4, 1234), Ok(Challenge::New));
        assert_eq!((session.cookie(), session.due(now - 9)), (55, Some(Due::Hello)));
        assert_eq!(session.sent_hello(now, SECOND), 1234, "the first answer tells a round trip");
        assert_eq!(session.sent_hello(now, SECOND), 0);
        assert_eq!(session.due(now), None);
        assert_eq!(session.challenge(now, 55, 4, 1300), Ok(Challenge::Known));
        assert_eq!(session.challenge(now, 54, 4, 1200), Ok(Challenge::Known), "an older one");
        let later = now + 3 * SECOND;
        let sent_at_ns = 1300 + 3_000_000_000;
        assert_eq!(session.challenge(later, 56, 4, sent_at_ns), Ok(Challenge::New), "much later");
        assert_eq!(session.due(now), None, "a repeated challenge changes nothing");
        session.check();
    }

    #[test]
    fn only_the_process_that_gave_the_cookie_may_open_the_session() {
        let mut session = opening();
        assert_eq!(session.welcome(&greeting(4, 1)), Err(DropReason::Cookie), "nobody gave one");
        assert_eq!(session.challenge(0, 55, 4, 1), Ok(Challenge::New));
        assert_eq!(session.challenge(0, 66, 3, 1), Err(DropReason::Cookie), "an earlier process");
        assert_eq!(session.hello(&greeting(3, 9)), Err(DropReason::Cookie));
        assert_eq!(session.hello(&greeting(4, 9)), Ok(Hello::Crossing));
        let known = Greeting { gave_up: OURS.id, ..greeting(4, 9) };
        assert_eq!(session.hello(&known), Ok(Hello::Stranger), "it used our id before");
        assert_eq!(session.hello(&greeting(5, 1)), Ok(Hello::Stranger));
        assert_eq!(session.challenge(0, 77, 5, 1), Ok(Challenge::OfAnother), "a later process");
        session.renew(8, SessionNames { number: 4, id: 40 });
        assert_eq!((session.our_id(), session.cookie(), session.next_at()), (40, 0, Some(8)));
        assert_eq!(session.challenge(0, 77, 5, 1), Ok(Challenge::New));
        assert_eq!(session.welcome(&greeting(4, 1)), Err(DropReason::Cookie));
        assert_eq!(session.welcome(&greeting(5, 1)), Ok(true));
        session.open(&greeting(5, 1));
        assert_eq!(session.welcome(&greeting(5, 1)), Ok(false), "a repetition");
        assert_eq!(session.welcome(&greeting(5, 2)), Err(DropReason::WrongState));
        assert_eq!(session.their_id(), 501);
        assert!(session.is_asked_by(7) && !session.is_asked_by(0));
        session.check();
    }

    #[test]
    fn a_repeated_hello_brings_the_welcome_again_until_the_peer_has_it() {
        let mut session = open(4, 2);
        assert_eq!(session.hello(&greeting(4, 2)), Ok(Hello::Repeated));
        session.owe_welcome(9, None);
        session.check();
        assert!(session.owes_welcome() && session.take_welcome() == Some((9, None)));
        let other = Greeting { session: 1, ..greeting(4, 2) };
        assert_eq!(session.hello(&other), Err(DropReason::WrongState));
        session.meet();
        assert_eq!(session.hello(&greeting(4, 2)), Err(DropReason::WrongState), "it has it");
        assert_eq!(session.hello(&greeting(4, 1)), Err(DropReason::Cookie));
        assert_eq!(session.hello(&greeting(4, 3)), Ok(Hello::Restarted));
        assert_eq!(session.hello(&greeting(5, 1)), Ok(Hello::Restarted));
        assert!(!session.miss_welcome(0), "it is open");
    }

    #[test]
    fn what_ended_is_remembered_and_its_hellos_are_stale() {
        let mut session = open(4, 2);
        session.retire();
        assert!(session.end() && !session.end());
        session.check();
        assert_eq!((session.number(), session.our_id(), session.gave_up()), (3, 0, 402));
        assert_eq!(session.hello(&greeting(4, 2)), Err(DropReason::Cookie), "it said goodbye");
        assert_eq!(session.hello(&greeting(4, 3)), Ok(Hello::First));
        session.begin(0, OURS);
        assert_eq!(session.challenge(0, 55, 4, 1), Ok(Challenge::New));
        assert_eq!(session.welcome(&greeting(4, 2)), Err(DropReason::Cookie), "the id is used up");
        assert!(session.end());
        assert_eq!(session.gave_up(), 402, "a session that never opened has no id");
    }

    #[test]
    fn who_has_the_key_needs_no_hint() {
        let mut session = opening();
        session.heard_hint(OpError::KeysDiffer);
        assert_eq!(session.explained(OpError::PeerTimeout), OpError::KeysDiffer);
        assert_eq!(session.challenge(0, 55, 4, 1), Ok(Challenge::New));
        assert_eq!(session.explained(OpError::PeerTimeout), OpError::PeerTimeout);
        session.heard_hint(OpError::KeysDiffer);
        assert_eq!(session.explained(OpError::PeerTimeout), OpError::PeerTimeout);
    }

    #[test]
    fn goodbyes_are_bounded() {
        let mut session = open(4, 2);
        session.leave(5);
        session.check();
        assert_eq!(session.hello(&greeting(4, 2)), Err(DropReason::WrongState));
        for at in 5..8 {
            assert_eq!((session.due(at - 1), session.due(at)), (None, Some(Due::Goodbye)));
            session.sent_goodbye(at + 1);
        }
        assert_eq!(session.due(8), Some(Due::End));
    }

    #[test]
    fn a_lost_welcome_is_asked_for_soon() {
        let mut session = opening();
        for _ in 0..8 {
            session.sent_hello(0, SECOND);
        }
        assert!(session.miss_welcome(7));
        assert_eq!(session.next_at(), Some(7 + HELLO_FIRST_NS));
        assert!(session.miss_welcome(9));
        assert_eq!(session.next_at(), Some(7 + HELLO_FIRST_NS));
        session.put_off(99);
        assert_eq!(session.due(99), Some(Due::Hello));
    }
}
