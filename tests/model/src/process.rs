//! A process: the endpoint's answers to whatever arrives (protocol.md §3, §8, §11.2).

use crate::bugs::Bug;
use crate::flow::AckState;
use crate::packet::{
    Address, Asker, Body, Cookie, Greeting, Id, Key, Name, Packet, Part, Proof, Token,
};
use crate::peer::{Effect, Peer, Phase, Reason};
use crate::rules::Rule;
use std::collections::BTreeMap;

/// A cookie is valid in this period and the next (§3.1).
const COOKIE_PERIOD_NS: u64 = 8_000_000_000;

/// Session ids of one process: they follow each other from its first one.
pub const IDS_PER_PROCESS: u32 = 1 << 12;

/// See the module.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    /// Its name.
    pub name: Name,
    /// Its epoch.
    pub epoch: u64,
    /// The job's key, if it has one.
    pub key: Option<Key>,
    /// How far beyond those taken a counter may lie (§11.4).
    pub counters_ahead: u32,
    /// It takes no more posts and hellos.
    pub closed: bool,
    /// What it knows of others.
    pub peers: BTreeMap<Name, Peer>,
    /// Ids that forgotten peers used last (§3.2, "Given-up id").
    pub last: BTreeMap<Name, Id>,
    /// Sessions begun so far.
    pub sessions: u32,
    /// Session ids chosen so far.
    pub ids: u32,
    /// The first of its session ids.
    pub first_id: Id,
    /// Messages posted so far.
    pub posts: u32,
    /// The time in nanoseconds; 0 where time plays no part.
    pub now: u64,
    /// The bug of this run.
    pub bug: Option<Bug>,
}

/// What came of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The rule that judged it.
    pub rule: Rule,
    /// The answers that it asks for. Each may be left out: the asker asks again.
    pub answers: Vec<Packet>,
    /// See [`Effect`].
    pub effects: Vec<Effect>,
}

impl Process {
    /// A process without peers. Its session ids begin with `first_id`, which is not 0.
    #[must_use]
    pub fn new(name: Name, epoch: u64, key: Option<Key>, first_id: Id) -> Process {
        Process {
            name,
            epoch,
            key,
            counters_ahead: 1 << 22,
            closed: false,
            peers: BTreeMap::new(),
            last: BTreeMap::new(),
            sessions: 0,
            ids: 0,
            first_id,
            posts: 0,
            now: 0,
            bug: None,
        }
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// A fresh id with its incarnation.
    fn fresh(&mut self) -> (Id, u32) {
        assert!(self.ids < IDS_PER_PROCESS, "ids of a process are bounded");
        (self.ids, self.sessions) = (self.ids + 1, self.sessions + 1);
        (self.first_id + self.ids - 1, self.sessions)
    }

    /// The entry of a peer.
    pub fn peer(&mut self, name: Name) -> &mut Peer {
        let last = &mut self.last;
        let entry = self.peers.entry(name);
        entry
            .or_insert_with(|| Peer { gave_up: last.remove(&name).unwrap_or(0), ..Peer::default() })
    }

    /// Posts a message; the first one begins a session.
    pub fn post(&mut self, to: Name) -> Token {
        let token = Token { name: self.name, epoch: self.epoch, number: self.posts };
        self.posts += 1;
        self.want(to);
        self.peer(to).post(token);
        token
    }

    /// Begins a session if none stands.
    pub fn want(&mut self, to: Name) {
        if self.peer(to).phase == Phase::Idle {
            let (id, number) = self.fresh();
            self.peer(to).begin(id, number);
        }
    }

    fn renew(&mut self, name: Name) {
        let (id, number) = self.fresh();
        self.peer(name).renew(id, number);
    }

    /// The greeting for a peer.
    #[must_use]
    pub fn greeting(&self, to: &Peer) -> Greeting {
        Greeting {
            session: to.ours,
            epoch: self.epoch,
            incarnation: to.number,
            gave_up: to.gave_up,
            cookie: to.cookie,
            name: self.name,
        }
    }

    fn part(&self, of: &Peer) -> Part {
        (of.ours, self.epoch, self.name)
    }

    /// A packet outside a session.
    #[must_use]
    pub fn loose(&self, to: Name, address: Address, body: Body, question: Option<Id>) -> Packet {
        let proof = match self.key {
            None => Proof::None,
            Some(key) => Proof::Loose { key, writer: self.name, reader: to, question },
        };
        Packet { to, address, body, proof }
    }

    /// A packet of the session with a peer; it takes the next counter.
    pub fn of_session(&mut self, to: Name, body: Body) -> Packet {
        let (name, bug) = (self.name, self.bug);
        let peer = self.peers.get_mut(&to).expect("there is a session");
        let proof = match peer.secret {
            None => Proof::None,
            Some(secret) => {
                let writer =
                    if bug == Some(Bug::SecretWithoutIds) { name.into() } else { peer.ours };
                Proof::Session { secret, writer, counter: peer.counter }
            }
        };
        peer.counter += u32::from(peer.secret.is_some());
        Packet { to, address: Address::Session(peer.theirs.id), body, proof }
    }

    /// Who asks, in a probe or goodbye to this peer.
    #[must_use]
    pub fn asker(&self, peer: &Peer) -> Asker {
        Asker { of: peer.ours, name: self.name, key: self.key }
    }

    fn cookie(&self, g: &Greeting, period: u64) -> Cookie {
        let last = match self.peers.get(&g.name) {
            Some(peer) => peer.gave_up,
            None => self.last.get(&g.name).copied().unwrap_or(0),
        };
        Cookie {
            by: (self.name, self.epoch),
            name: g.name,
            session: g.session,
            epoch: g.epoch,
            last,
            period,
        }
    }

    /// True if a hello's cookie is the `expected` one, or of the period before.
    fn is_right(&self, cookie: Option<Cookie>, expected: Cookie) -> bool {
        let Some(cookie) = cookie else { return self.is(Bug::TakesHellosUnasked) };
        let covered = |made: Cookie| Cookie {
            last: if self.is(Bug::CookieOutlivesSession) { 0 } else { made.last },
            period: expected.period,
            ..made
        };
        let is_new = cookie.period == expected.period || cookie.period + 1 == expected.period;
        is_new && covered(cookie) == covered(expected)
    }

    /// The peer whose session has this id of ours.
    #[must_use]
    pub fn by_session(&self, id: Id) -> Option<Name> {
        self.peers.iter().find(|(_, peer)| peer.ours == id && id != 0).map(|(name, _)| *name)
    }

    /// The peer to which an address of ours belongs.
    fn by_address(&self, address: Address) -> Option<Name> {
        match address {
            Address::Nobody => None,
            Address::Session(id) | Address::Asker(id) => self.by_session(id),
        }
    }

    fn by_header(&self, packet: &Packet) -> Option<Name> {
        let Address::Session(id) = packet.address else { return None };
        let any = || self.peers.iter().find(|(_, peer)| peer.phase == Phase::Open);
        match self.by_session(id) {
            None if self.is(Bug::AnySession) => any().map(|(name, _)| *name),
            found => found,
        }
    }

    /// The peer whose session a packet names, or the one that a hello tells.
    #[must_use]
    pub fn writer(&self, packet: &Packet) -> Option<Name> {
        match &packet.body {
            Body::Hello(g) => Some(g.name),
            _ => self.by_address(packet.address),
        }
    }

    /// Takes a packet.
    pub fn hear(&mut self, packet: &Packet) -> Heard {
        let mut heard = Heard { rule: Rule::Forged, answers: Vec::new(), effects: Vec::new() };
        heard.rule = match self.check_proof(packet) {
            Ok(()) => self.act(packet, &mut heard),
            Err(Rule::HelloOtherKey) => {
                if let Body::Hello(g) = &packet.body {
                    let body = Body::OtherVersion;
                    let mut answer = self.loose(g.name, Address::Session(g.session), body, None);
                    answer.proof = Proof::None;
                    heard.answers.push(answer);
                }
                Rule::HelloOtherKey
            }
            Err(rule) => rule,
        };
        heard
    }

    /// Checks the proof of a packet, before anything else counts (§11.2, §11.4).
    fn check_proof(&mut self, packet: &Packet) -> Result<(), Rule> {
        let of_session = match packet.body {
            Body::Data { .. } | Body::Ack(_) | Body::Probe(_) | Body::Goodbye(..) => true,
            Body::OtherVersion => return Ok(()),
            _ => false,
        };
        let stranger = match (&packet.body, self.closed) {
            (Body::Hello(_), false) => Rule::HelloOtherKey,
            _ => Rule::OtherKey,
        };
        let has_proof = packet.proof != Proof::None;
        let Some(key) = self.key else {
            return if has_proof { Err(stranger) } else { Ok(()) };
        };
        if !has_proof {
            return Err(stranger);
        }
        match of_session {
            true => self.check_of_session(packet),
            false => self.check_loose(packet, key, stranger),
        }
    }

    fn check_loose(&self, packet: &Packet, ours: Key, stranger: Rule) -> Result<(), Rule> {
        if matches!(packet.proof, Proof::Loose { key, .. } if key != ours) {
            return Err(stranger);
        }
        let (name, question) = match (&packet.body, packet.address) {
            (Body::Hello(g), _) => (g.name, None),
            (_, Address::Session(id)) => {
                (self.by_address(packet.address).ok_or(Rule::UnknownSession)?, Some(id))
            }
            _ => (self.by_address(packet.address).ok_or(Rule::UnknownSession)?, None),
        };
        let right = Proof::Loose { key: ours, writer: name, reader: self.name, question };
        let covers_little =
            self.is(Bug::AnswersProveNothing) && matches!(packet.proof, Proof::Loose { .. });
        match packet.proof == right || covers_little || self.is(Bug::TrustsProofs) {
            true => Ok(()),
            false => Err(Rule::Forged),
        }
    }

    fn check_of_session(&mut self, packet: &Packet) -> Result<(), Rule> {
        let (trusts, ahead) = (self.is(Bug::TrustsProofs), self.counters_ahead);
        let anonymous = self.is(Bug::SecretWithoutIds);
        let found = self.by_header(packet);
        let peer = found.map(|name| self.peers.get_mut(&name).expect("it was found"));
        match peer {
            Some(peer) if peer.secret.is_some() => match packet.proof {
                Proof::Session { secret, writer, counter } => {
                    if Some(secret) != peer.secret || (writer != peer.theirs.id && !anonymous) {
                        return if trusts { Ok(()) } else { Err(Rule::Forged) };
                    }
                    if !peer.take_counter(counter, ahead) {
                        return Err(Rule::Replayed);
                    }
                    Ok(())
                }
                _ if trusts => Ok(()),
                _ => Err(Rule::Forged),
            },
            // Of a session that is not open: at most the next hello follows, or an answer to who asks.
            Some(_) if matches!(packet.body, Body::Goodbye(..)) => Err(Rule::GoodbyeOfAnother),
            Some(_) => Ok(()),
            None if matches!(packet.body, Body::Probe(_) | Body::Goodbye(..)) => Ok(()),
            None => Err(Rule::UnknownSession),
        }
    }

    fn act(&mut self, packet: &Packet, heard: &mut Heard) -> Rule {
        match &packet.body {
            Body::Hello(g) => self.on_hello(g, heard),
            Body::Probe(asker) => self.on_probe(packet, asker, heard),
            Body::Goodbye(asker, state) => self.on_goodbye(packet, asker, state, heard),
            Body::Reset(id) => self.on_reset(packet.address, *id, heard),
            Body::Confirmation(id) => self.on_confirmation(packet.address, *id, heard),
            Body::Challenge { cookie, epoch, at } => match self.by_header(packet) {
                Some(name) => self.on_challenge(name, *cookie, *epoch, *at),
                None => Rule::UnknownSession,
            },
            Body::Welcome(g) => match self.by_header(packet) {
                Some(name) => self.on_welcome(name, g),
                None => Rule::UnknownSession,
            },
            Body::OtherVersion => match self.by_header(packet) {
                Some(name) => self.on_other_version(name, heard),
                None => Rule::UnknownSession,
            },
            Body::Data { flow, psn, token } => match self.by_header(packet) {
                Some(name) => self.on_data(name, *flow, (*psn, *token), heard),
                None => Rule::UnknownSession,
            },
            Body::Ack(state) => match self.by_header(packet) {
                Some(name) => self.on_ack(name, state, heard),
                None => Rule::UnknownSession,
            },
        }
    }

    fn on_hello(&mut self, g: &Greeting, heard: &mut Heard) -> Rule {
        if self.closed {
            return Rule::HelloClosed;
        }
        let expected = self.cookie(g, self.now / COOKIE_PERIOD_NS);
        if !self.is_right(g.cookie, expected) {
            let body = Body::Challenge { cookie: expected, epoch: self.epoch, at: 0 };
            let address = Address::Session(g.session);
            heard.answers.push(self.loose(g.name, address, body, Some(g.session)));
            return Rule::HelloChallenged;
        }
        let bug = self.bug;
        let peer = self.peer(g.name);
        if g.session == peer.gave_up && bug != Some(Bug::TakesUsedIds) {
            let address = Address::Session(g.session);
            let answer = self.loose(g.name, address, Body::Reset(g.session), Some(g.session));
            heard.answers.push(answer);
            return Rule::HelloUsedId;
        }
        let (last, rule) = (peer.gave_up, peer.judge_hello(g, bug));
        match rule {
            Rule::HelloFirst => self.want(g.name),
            Rule::HelloOfAnother | Rule::HelloGaveUp => self.renew(g.name),
            Rule::HelloRestarted => {
                self.end(g.name, Reason::Restarted, &mut heard.effects);
                self.want(g.name);
            }
            Rule::HelloCrossing | Rule::HelloRepeated => {}
            _ => return rule,
        }
        if rule != Rule::HelloRepeated {
            heard.effects.push(Effect::Opened(g.cookie, g.epoch, last));
        }
        self.open(g);
        heard.answers.push(self.welcome(g.name));
        rule
    }

    /// The welcome for a peer whose hello was taken.
    #[must_use]
    pub fn welcome(&self, to: Name) -> Packet {
        let peer = &self.peers[&to];
        let (theirs, body) = (peer.theirs.id, Body::Welcome(self.greeting(peer)));
        self.loose(to, Address::Session(theirs), body, Some(theirs))
    }

    fn open(&mut self, g: &Greeting) {
        let ours = self.part(&self.peers[&g.name]);
        let (key, bug) = (self.key, self.bug);
        let peer = self.peer(g.name);
        if peer.phase != Phase::Open {
            peer.open(g, ours, key, bug);
        }
    }

    fn on_challenge(&mut self, name: Name, cookie: Cookie, epoch: u64, at: u32) -> Rule {
        let (now, bug) = (self.now, self.bug);
        let rule = self.peer(name).challenge(cookie, epoch, (at, now), bug);
        if rule == Rule::ChallengeOfAnother {
            self.renew(name);
        }
        rule
    }

    fn on_welcome(&mut self, name: Name, g: &Greeting) -> Rule {
        let bug = self.bug;
        let rule = self.peer(name).judge_welcome(g);
        match rule {
            Rule::WelcomeTaken => {
                // A peer is called by the name that we know.
                self.open(&Greeting { name, ..*g });
            }
            Rule::WelcomeAgain if bug == Some(Bug::CountersStartAgain) => {
                self.peer(name).counter = 0
            }
            _ => {}
        }
        rule
    }

    fn on_other_version(&mut self, name: Name, heard: &mut Heard) -> Rule {
        let (key, bug) = (self.key, self.bug);
        match (self.peer(name).phase, key) {
            (Phase::Opening, key) if key.is_none() || bug == Some(Bug::BelievesNotices) => {
                self.end(name, Reason::OtherVersion, &mut heard.effects);
                Rule::VersionEnds
            }
            (Phase::Opening, _) => Rule::VersionHint,
            _ => Rule::VersionStale,
        }
    }

    fn has_key(&self, asker: &Asker) -> bool {
        asker.key == self.key
    }

    fn on_probe(&mut self, packet: &Packet, asker: &Asker, heard: &mut Heard) -> Rule {
        let found = self.by_header(packet).filter(|name| {
            let peer = &self.peers[name];
            match peer.phase {
                Phase::Open | Phase::Leaving => peer.theirs.id == asker.of,
                Phase::Idle | Phase::Opening => true,
            }
        });
        let Some(name) = found else {
            if let Address::Session(id) = packet.address
                && self.has_key(asker)
                && !self.is(Bug::NoReset)
            {
                let address = Address::Asker(asker.of);
                heard.answers.push(self.loose(asker.name, address, Body::Reset(id), None));
            }
            return Rule::ProbeUnknown;
        };
        let peer = self.peer(name);
        if peer.phase != Phase::Open {
            return Rule::ProbeEarly;
        }
        peer.met = true;
        heard.answers.push(self.acknowledgement(name));
        Rule::ProbeAnswered
    }

    /// What has arrived from a peer.
    #[must_use]
    pub fn ack_state(&self, peer: &Peer) -> AckState {
        let mut state = peer.receiver.got.clone();
        if self.is(Bug::AcksAhead) {
            state.add_below(state.end());
        }
        state
    }

    fn acknowledgement(&mut self, to: Name) -> Packet {
        let state = self.ack_state(&self.peers[&to]);
        self.of_session(to, Body::Ack(state))
    }

    fn on_goodbye(
        &mut self,
        packet: &Packet,
        asker: &Asker,
        state: &AckState,
        heard: &mut Heard,
    ) -> Rule {
        if let Address::Session(id) = packet.address
            && self.has_key(asker)
        {
            let address = Address::Asker(asker.of);
            heard.answers.push(self.loose(asker.name, address, Body::Confirmation(id), None));
        }
        let Some(name) = self.by_header(packet) else { return Rule::GoodbyeUnknown };
        let bug = self.bug;
        let peer = self.peer(name);
        let is_of_session = matches!(peer.phase, Phase::Open | Phase::Leaving);
        let asks = peer.theirs.id == asker.of;
        if !is_of_session || !asks {
            return Rule::GoodbyeOfAnother;
        }
        let takes = peer.phase == Phase::Open && bug != Some(Bug::GoodbyeWithoutState);
        if takes && !peer.acknowledge(state, &mut heard.effects) {
            return Rule::AckImpossible;
        }
        peer.retire();
        self.end(name, Reason::Goodbye, &mut heard.effects);
        Rule::GoodbyeTaken
    }

    fn on_reset(&mut self, address: Address, id: Id, heard: &mut Heard) -> Rule {
        let Some(name) = self.by_address(address) else { return Rule::UnknownSession };
        let peer = self.peer(name);
        match (peer.phase, address) {
            (Phase::Opening, Address::Session(ours)) if ours == id => {
                self.renew(name);
                Rule::ResetUsedId
            }
            (Phase::Open, Address::Asker(_)) if peer.theirs.id == id => {
                self.end(name, Reason::Restarted, &mut heard.effects);
                Rule::ResetRestarted
            }
            _ => Rule::ResetStale,
        }
    }

    fn on_confirmation(&mut self, address: Address, id: Id, heard: &mut Heard) -> Rule {
        let Some(name) = self.by_address(address) else { return Rule::UnknownSession };
        let peer = self.peer(name);
        match (peer.phase, address) {
            (Phase::Leaving, Address::Asker(_)) if peer.theirs.id == id => {
                self.end(name, Reason::Canceled, &mut heard.effects);
                Rule::ConfirmationTaken
            }
            _ => Rule::ConfirmationStale,
        }
    }

    fn on_data(&mut self, name: Name, flow: Id, data: (u32, Token), heard: &mut Heard) -> Rule {
        let bug = self.bug;
        let peer = self.peer(name);
        let early = bug == Some(Bug::TakesDataEarly) && peer.phase == Phase::Opening;
        if peer.phase != Phase::Open && !early {
            return Rule::DataEarly;
        }
        if flow != 0 && flow != peer.theirs.id {
            return Rule::DataOutside;
        }
        let rule = peer.take(name, data, bug, &mut heard.effects);
        if !early {
            let answer = self.acknowledgement(name);
            heard.answers.push(answer);
        }
        rule
    }

    fn on_ack(&mut self, name: Name, state: &AckState, heard: &mut Heard) -> Rule {
        let peer = self.peer(name);
        if peer.phase != Phase::Open {
            return Rule::AckEarly;
        }
        match peer.acknowledge(state, &mut heard.effects) {
            true => {
                peer.met = true;
                Rule::AckTaken
            }
            false => Rule::AckImpossible,
        }
    }

    /// Ends the session or the set-up with a peer.
    pub fn end(&mut self, name: Name, reason: Reason, effects: &mut Vec<Effect>) {
        let bug = self.bug;
        self.peer(name).end(name, reason, bug, effects);
    }

    /// Leaves all sessions (§3.3).
    pub fn close(&mut self) -> Vec<Effect> {
        let (bug, mut effects) = (self.bug, Vec::new());
        self.closed = true;
        for (name, peer) in &mut self.peers {
            peer.leave(*name, bug, &mut effects);
        }
        effects
    }

    /// Forgets a peer, but not the id that it used last (§3.2).
    pub fn forget(&mut self, name: Name) -> Vec<Effect> {
        let (bug, mut effects) = (self.bug, Vec::new());
        if self.peers.contains_key(&name) {
            self.end(name, Reason::Canceled, &mut effects);
        }
        if let Some(peer) = self.peers.remove(&name)
            && peer.gave_up != 0
            && bug != Some(Bug::ForgetsGivenUpIds)
        {
            self.last.insert(name, peer.gave_up);
        }
        effects
    }
}
