//! What an endpoint knows of a peer, and the rules of their session (protocol.md §3).

use crate::bugs::Bug;
use crate::flow::{AckState, Receiver, Sender};
use crate::packet::{Cookie, Greeting, Id, Key, Name, Part, Secret, Token};
use crate::rules::Rule;
use std::collections::BTreeMap;

/// Time after a challenge in which an older one does not count.
const CHALLENGE_ORDER_NS: u64 = 1_000_000_000;

/// The phase of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Phase {
    /// There is none.
    #[default]
    Idle,
    /// Hellos go out.
    Opening,
    /// Both sides know each other.
    Open,
    /// Goodbyes go out.
    Leaving,
}

/// The peer's side of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Theirs {
    /// Its session id; 0 for none.
    pub id: Id,
    /// Its epoch.
    pub epoch: u64,
    /// Its incarnation.
    pub incarnation: u32,
}

/// Reason why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reason {
    /// Another session of the peer took its place, or the peer does not know it.
    Restarted,
    /// The peer said goodbye.
    Goodbye,
    /// The deadline passed.
    Silence,
    /// This side left.
    Canceled,
    /// The peer speaks another version.
    OtherVersion,
}

/// What a rule does besides changing the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// A session opened by a hello with this cookie, after this peer's id of the last one.
    Opened(Option<Cookie>, u64, Id),
    /// The session ended.
    Ended(Name, Reason),
    /// A message's packet took effect.
    Taken(Name, Token),
    /// The application gets a message.
    Delivered(Token),
    /// A send completed.
    Completed(Token),
    /// A send failed.
    Failed(Token, Reason),
}

/// See the module.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Peer {
    /// See [`Phase`].
    pub phase: Phase,
    /// Our session id; 0 for none.
    pub ours: Id,
    /// Our incarnation: the endpoint's count of sessions.
    pub number: u32,
    /// See [`Theirs`].
    pub theirs: Theirs,
    /// Epoch and incarnation below which a hello is stale though no session stands.
    pub oldest: (u64, u32),
    /// The peer's id in the session before.
    pub gave_up: Id,
    /// The peer has used our id, so it has our greeting.
    pub met: bool,
    /// The cookie for the next hello.
    pub cookie: Option<Cookie>,
    /// Send time of the challenge that gave it on its writer's clock, and its arrival on ours; 0 where time plays no part.
    pub challenged_at: (u32, u64),
    /// Epoch of the process that may know our id, since it gave a cookie for it.
    pub proven_to: Option<u64>,
    /// Messages posted in this session so far.
    pub posted: u32,
    /// Those that have not ended. Message and packet have the same number.
    pub outstanding: BTreeMap<u32, Token>,
    /// See [`Sender`].
    pub sender: Sender,
    /// See [`Receiver`].
    pub receiver: Receiver,
    /// Messages that came before their turn.
    pub early: BTreeMap<u32, Token>,
    /// The message whose turn is next.
    pub turn: u32,
    /// The secret of the session.
    pub secret: Option<Secret>,
    /// The counter of the next packet.
    pub counter: u32,
    /// Counters taken.
    pub taken: crate::flow::PsnSet,
    /// A probe went out while the session is open, or a goodbye while it is being left.
    pub asked: bool,
}

impl Peer {
    /// Begins a session (§3.1).
    pub fn begin(&mut self, id: Id, number: u32) {
        self.phase = Phase::Opening;
        self.renew(id, number);
    }

    /// Takes another id ("New ids" of §3.1).
    pub fn renew(&mut self, id: Id, number: u32) {
        (self.ours, self.number) = (id, number);
        (self.cookie, self.proven_to, self.challenged_at) = (None, None, (0, 0));
    }

    /// Judges a hello whose cookie is right ("Comparison" and "New ids" of §3.1).
    #[must_use]
    pub fn judge_hello(&self, g: &Greeting, bug: Option<Bug>) -> Rule {
        let said = (g.epoch, g.incarnation);
        if matches!(self.phase, Phase::Open | Phase::Leaving) {
            let known = (self.theirs.epoch, self.theirs.incarnation);
            let is_lost = self.phase == Phase::Open && g.session == self.theirs.id && !self.met;
            return match said.cmp(&known) {
                std::cmp::Ordering::Equal if bug == Some(Bug::RestartsOnARepeatedHello) => {
                    Rule::HelloRestarted
                }
                std::cmp::Ordering::Equal if is_lost => Rule::HelloRepeated,
                std::cmp::Ordering::Equal => Rule::HelloLate,
                std::cmp::Ordering::Less if bug == Some(Bug::TakesStaleHellos) => {
                    Rule::HelloRestarted
                }
                std::cmp::Ordering::Less => Rule::HelloStale,
                std::cmp::Ordering::Greater => Rule::HelloRestarted,
            };
        }
        let takes_stale = bug == Some(Bug::TakesStaleHellos);
        if g.epoch == self.oldest.0 && g.incarnation < self.oldest.1 && !takes_stale {
            return Rule::HelloStale;
        }
        match (self.phase, self.proven_to) {
            (Phase::Idle, _) => Rule::HelloFirst,
            _ if bug == Some(Bug::KeepsItsIdForAnother) => Rule::HelloCrossing,
            (_, Some(epoch)) if epoch > g.epoch => Rule::HelloStale,
            (_, Some(epoch)) if epoch < g.epoch => Rule::HelloOfAnother,
            _ if g.gave_up == self.ours && bug != Some(Bug::KeepsGivenUpIds) => Rule::HelloGaveUp,
            _ => Rule::HelloCrossing,
        }
    }

    /// Takes a challenge (§3.1, step 3). The caller renews the id if another process gave it.
    pub fn challenge(
        &mut self,
        cookie: Cookie,
        epoch: u64,
        (at, now): (u32, u64),
        bug: Option<Bug>,
    ) -> Rule {
        if self.phase != Phase::Opening {
            return Rule::ChallengeStale;
        }
        let is_first = self.proven_to.is_none();
        let known = *self.proven_to.get_or_insert(epoch);
        if known > epoch {
            return Rule::ChallengeStale;
        }
        if known < epoch && bug != Some(Bug::KeepsItsIdForAnother) {
            return Rule::ChallengeOfAnother;
        }
        // The low bits of the writer's clock tell the order of what comes within a short time.
        let is_soon = now - self.challenged_at.1 < CHALLENGE_ORDER_NS;
        let is_old = is_soon && (at.wrapping_sub(self.challenged_at.0) as i32) < 0;
        if self.cookie == Some(cookie) || (!is_first && is_old) {
            return Rule::ChallengeKnown;
        }
        (self.cookie, self.challenged_at, self.proven_to) = (Some(cookie), (at, now), Some(epoch));
        Rule::ChallengeTaken
    }

    /// Judges a welcome (§3.1, step 4).
    #[must_use]
    pub fn judge_welcome(&self, g: &Greeting) -> Rule {
        match self.phase {
            Phase::Opening if self.proven_to != Some(g.epoch) => Rule::WelcomeStale,
            Phase::Opening if g.session == self.gave_up => Rule::WelcomeStale,
            Phase::Opening => Rule::WelcomeTaken,
            Phase::Open if g.session == self.theirs.id => Rule::WelcomeAgain,
            _ => Rule::WelcomeStale,
        }
    }

    /// Opens the session with the peer's greeting.
    pub fn open(&mut self, g: &Greeting, ours: Part, key: Option<Key>, bug: Option<Bug>) {
        self.theirs = Theirs { id: g.session, epoch: g.epoch, incarnation: g.incarnation };
        self.oldest = (g.epoch, g.incarnation);
        (self.phase, self.met) = (Phase::Open, false);
        self.secret = key.map(|key| {
            let mut parts = [ours, (g.session, g.epoch, g.name)];
            if bug == Some(Bug::SecretWithoutIds) {
                parts = parts.map(|(_, epoch, name)| (0, epoch, name));
            }
            parts.sort_unstable();
            Secret { key, parts }
        });
    }

    /// Posts a message in this session.
    pub fn post(&mut self, token: Token) {
        self.outstanding.insert(self.posted, token);
        self.posted += 1;
    }

    /// Takes an acknowledgement, and completes what it covers (§5.5). False if it is impossible.
    pub fn acknowledge(&mut self, state: &AckState, effects: &mut Vec<Effect>) -> bool {
        let possible = self.sender.acknowledge(state);
        let acked = &self.sender.acked;
        self.outstanding.retain(|psn, token| {
            let ends = acked.has(*psn);
            if ends {
                effects.push(Effect::Completed(*token));
            }
            !ends
        });
        possible
    }

    /// Takes a packet with a message (§4.2, §5.1).
    pub fn take(
        &mut self,
        from: Name,
        (psn, token): (u32, Token),
        bug: Option<Bug>,
        effects: &mut Vec<Effect>,
    ) -> Rule {
        self.met = true;
        if !self.receiver.take(psn) && bug != Some(Bug::TakesDuplicates) {
            return Rule::DataDuplicate;
        }
        effects.push(Effect::Taken(from, token));
        if bug == Some(Bug::NoOrder) {
            effects.push(Effect::Delivered(token));
            return Rule::DataTaken;
        }
        self.early.insert(psn, token);
        while let Some(token) = self.early.remove(&self.turn) {
            effects.push(Effect::Delivered(token));
            self.turn += 1;
        }
        Rule::DataTaken
    }

    /// Takes a counter (§11.4). False if it was taken, or lies `ahead` or more beyond those that were.
    pub fn take_counter(&mut self, counter: u32, ahead: u32) -> bool {
        counter < self.taken.end().saturating_add(ahead) && self.taken.add(counter)
    }

    /// The goodbye of the peer: no hello of the ended session opens another (§3.1).
    pub fn retire(&mut self) {
        self.oldest.1 = self.oldest.1.saturating_add(1);
    }

    /// Ends the session (§3.3).
    pub fn end(&mut self, name: Name, reason: Reason, bug: Option<Bug>, effects: &mut Vec<Effect>) {
        self.fail_all(reason, bug, effects);
        if self.phase != Phase::Idle {
            effects.push(Effect::Ended(name, reason));
        }
        let gave_up = if self.theirs.id == 0 { self.gave_up } else { self.theirs.id };
        *self = Peer { number: self.number, oldest: self.oldest, gave_up, ..Peer::default() };
    }

    /// Starts to leave an open session; anything else ends.
    pub fn leave(&mut self, name: Name, bug: Option<Bug>, effects: &mut Vec<Effect>) {
        if self.phase == Phase::Open {
            self.fail_all(Reason::Canceled, bug, effects);
            (self.phase, self.asked) = (Phase::Leaving, false);
        } else {
            self.end(name, Reason::Canceled, bug, effects);
        }
    }

    fn fail_all(&mut self, reason: Reason, bug: Option<Bug>, effects: &mut Vec<Effect>) {
        let all = std::mem::take(&mut self.outstanding);
        if bug != Some(Bug::LosesOperations) {
            effects.extend(all.into_values().map(|token| Effect::Failed(token, reason)));
        }
    }

    /// True if the peer owes an answer: then a deadline runs (§7.3).
    #[must_use]
    pub fn is_owed(&self) -> bool {
        self.phase == Phase::Opening || (self.phase == Phase::Open && self.sender.waits())
    }
}
