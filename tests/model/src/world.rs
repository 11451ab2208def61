//! The model that is searched: processes, and a network that has every packet for ever. So it loses (a packet that is never
//! delivered), repeats, reorders and delays as it likes.

use crate::bugs::Bug;
use crate::flow::PsnSet;
use crate::packet::{Address, Asker, Body, Cookie, Greeting, Id, Key, Name, Packet, Proof, Token};
use crate::peer::{Effect, Phase, Reason};
use crate::process::{IDS_PER_PROCESS, Process};
use crate::properties::Property;
use crate::rules::Rule;
use std::collections::{BTreeMap, BTreeSet};

/// The bounds of a search.
#[derive(Clone, Debug, Default)]
pub struct Scene {
    /// What it is about.
    pub title: &'static str,
    /// The job key of each endpoint, if it has one.
    pub keys: Vec<Option<Key>>,
    /// Messages that may be posted: from, to, how many.
    pub posts: Vec<(Name, Name, u8)>,
    /// How often each endpoint's process may be replaced.
    pub restarts: Vec<(Name, u8)>,
    /// Sessions that deadlines may end.
    pub silences: u8,
    /// Endpoints that may close.
    pub closes: Vec<Name>,
    /// Peers that may be forgotten: by whom, and who.
    pub forgets: Vec<(Name, Name)>,
    /// Repetitions of packets with a key. Without one, the network repeats.
    pub repeats: u8,
    /// First PSNs are random: data of another session lies outside the window. Without, nothing may rely on that.
    pub random_psns: bool,
    /// An adversary forges packets, and carries any packet to any endpoint.
    pub hostile: bool,
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// An application posts a message: the index in [`Scene::posts`].
    Post(usize),
    /// A hello goes out.
    Hello(Name, Name),
    /// The next message goes out.
    Send(Name, Name),
    /// A message goes out again.
    Repeat(Name, Name, u32),
    /// A probe goes out.
    Probe(Name, Name),
    /// A goodbye goes out.
    Goodbye(Name, Name),
    /// A packet of the network arrives: its index, and where.
    Hear(usize, Name),
    /// A forged packet arrives: its index among those that the adversary can make.
    Forged(usize),
    /// The deadline passes.
    Silence(Name, Name),
    /// A process gives its goodbyes up.
    GiveUp(Name, Name),
    /// Another process takes the name.
    Restart(Name),
    /// An endpoint closes.
    Close(Name),
    /// An endpoint forgets a peer: the index in [`Scene::forgets`].
    Forget(usize),
}

/// What became of a send.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Send {
    /// To whom.
    pub to: Name,
    /// The writer's session id when it was sent; 0 before.
    pub sent_as: Id,
    /// It took effect.
    pub taken: bool,
    /// The application got it.
    pub delivered: bool,
    /// How it ended.
    pub end: Option<Result<(), Reason>>,
}

/// A state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    /// The living processes, by name.
    pub processes: Vec<Process>,
    /// Every packet that was ever sent.
    pub net: BTreeSet<Packet>,
    /// What is left of the bounds.
    posts: Vec<u8>,
    restarts: Vec<u8>,
    silences: u8,
    forgets: u32,
    repeats: u8,
    /// Facts about sends, which no process sees.
    pub sends: BTreeMap<Token, Send>,
    /// The last message that a process got from another one: by reader, writer and its epoch.
    last: BTreeMap<(Name, Name, u64), u32>,
    /// Properties that the last step broke.
    pub broken: BTreeSet<Property>,
}

/// Session ids of one process in a search.
const IDS: u32 = IDS_PER_PROCESS;
/// Processes of one name in a search.
const LIVES: u32 = 4;

impl Scene {
    fn process(&self, name: Name, epoch: u64, bug: Option<Bug>) -> Process {
        assert!(epoch < u64::from(LIVES), "processes of a name are bounded");
        let first_id = 1 + (u32::from(name) * LIVES + epoch as u32) * IDS;
        Process { bug, ..Process::new(name, epoch, self.keys[usize::from(name)], first_id) }
    }

    /// What stands for the first PSN of the session with this id.
    fn flow(&self, session: Id, bug: Option<Bug>) -> Id {
        if self.random_psns && bug != Some(Bug::SamePsns) { session } else { 0 }
    }

    /// The first state.
    #[must_use]
    pub fn begin(&self, bug: Option<Bug>) -> World {
        let names = 0..self.keys.len() as Name;
        World {
            processes: names.map(|name| self.process(name, 0, bug)).collect(),
            net: BTreeSet::new(),
            posts: self.posts.iter().map(|(_, _, count)| *count).collect(),
            restarts: self.restarts.iter().map(|(_, count)| *count).collect(),
            silences: self.silences,
            forgets: (1 << self.forgets.len()) - 1,
            repeats: self.repeats,
            sends: BTreeMap::new(),
            last: BTreeMap::new(),
            broken: BTreeSet::new(),
        }
    }
}

impl World {
    fn process(&mut self, name: Name) -> &mut Process {
        &mut self.processes[usize::from(name)]
    }

    /// All pairs of an endpoint and a peer that it knows.
    fn pairs(&self) -> impl Iterator<Item = (&Process, Name, &crate::peer::Peer)> {
        self.processes.iter().flat_map(|process| {
            process.peers.iter().map(move |(name, peer)| (process, *name, peer))
        })
    }

    /// What processes and network may do next.
    pub fn protocol_actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        for (process, to, peer) in self.pairs() {
            let from = process.name;
            match peer.phase {
                Phase::Opening => actions.push(Action::Hello(from, to)),
                Phase::Leaving if !peer.asked => actions.push(Action::Goodbye(from, to)),
                Phase::Open => {
                    if peer.sender.sent < peer.posted {
                        actions.push(Action::Send(from, to));
                    }
                    if peer.sender.waits() && !peer.asked {
                        actions.push(Action::Probe(from, to));
                    }
                }
                Phase::Leaving | Phase::Idle => {}
            }
        }
        for (index, packet) in self.net.iter().enumerate() {
            let names = 0..self.processes.len() as Name;
            let reaches = |name: &Name| scene.hostile || *name == packet.to;
            actions.extend(names.filter(reaches).map(|name| Action::Hear(index, name)));
        }
    }

    /// What the world around may do next.
    pub fn other_actions(&self, scene: &Scene, actions: &mut Vec<Action>) {
        let posts = self.posts.iter().enumerate().filter(|(_, left)| **left > 0);
        let may_post = |index: &usize| !self.processes[usize::from(scene.posts[*index].0)].closed;
        actions.extend(posts.map(|(index, _)| index).filter(may_post).map(Action::Post));
        for (process, to, peer) in self.pairs() {
            if self.silences > 0 && peer.is_owed() {
                actions.push(Action::Silence(process.name, to));
            }
            if peer.phase == Phase::Leaving && self.silences > 0 {
                actions.push(Action::GiveUp(process.name, to));
            }
            if self.repeats > 0 && peer.secret.is_some() && peer.phase == Phase::Open {
                let unacked = (0..peer.sender.sent).filter(|psn| !peer.sender.acked.has(*psn));
                actions.extend(unacked.map(|psn| Action::Repeat(process.name, to, psn)));
            }
        }
        let restarts = scene.restarts.iter().zip(&self.restarts).filter(|(_, left)| **left > 0);
        actions.extend(restarts.map(|((name, _), _)| Action::Restart(*name)));
        let open = |name: &&Name| !self.processes[usize::from(**name)].closed;
        actions.extend(scene.closes.iter().filter(open).map(|name| Action::Close(*name)));
        let forgets = 0..scene.forgets.len();
        actions.extend(forgets.filter(|i| self.forgets >> i & 1 != 0).map(Action::Forget));
        if scene.hostile {
            actions.extend((0..self.forgeries().len()).map(Action::Forged));
        }
    }

    /// Does an action: the rules that it used, and the next state if it is another one.
    #[must_use]
    pub fn step(&self, scene: &Scene, action: &Action) -> (Vec<Rule>, Option<World>) {
        let mut next = World { broken: BTreeSet::new(), ..self.clone() };
        let rules = next.act(scene, action);
        let changed = next != *self;
        (rules, changed.then_some(next))
    }

    fn act(&mut self, scene: &Scene, action: &Action) -> Vec<Rule> {
        match *action {
            Action::Hear(index, at) => {
                let packet = self.net.iter().nth(index).expect("it was sent").clone();
                self.hear(&packet, at)
            }
            Action::Forged(index) => {
                let packet = self.forgeries().swap_remove(index);
                self.hear(&packet, packet.to)
            }
            Action::Hello(from, to) => vec![self.say_hello(from, to)],
            Action::Send(from, to) => vec![self.send(scene, from, to)],
            Action::Repeat(from, to, psn) => vec![self.repeat(scene, from, to, psn)],
            Action::Probe(from, to) => vec![self.probe(from, to)],
            Action::Goodbye(from, to) => vec![self.say_goodbye(from, to)],
            _ => vec![self.interrupt(scene, action)],
        }
    }

    /// Events that no packet brings.
    fn interrupt(&mut self, scene: &Scene, action: &Action) -> Rule {
        let mut effects = Vec::new();
        let (at, rule) = match *action {
            Action::Post(index) => {
                let (from, to, _) = scene.posts[index];
                self.posts[index] -= 1;
                let token = self.process(from).post(to);
                self.sends.insert(
                    token,
                    Send { to, sent_as: 0, taken: false, delivered: false, end: None },
                );
                (from, Rule::Posted)
            }
            Action::Silence(name, peer) | Action::GiveUp(name, peer) => {
                self.silences -= 1;
                let gives_up = matches!(action, Action::GiveUp(..));
                let (reason, rule) = match gives_up {
                    true => (Reason::Canceled, Rule::Left),
                    false => (Reason::Silence, Rule::Silence),
                };
                self.process(name).end(peer, reason, &mut effects);
                (name, rule)
            }
            Action::Restart(name) => {
                let index = scene.restarts.iter().position(|(other, _)| *other == name);
                self.restarts[index.expect("it may restart")] -= 1;
                self.replace(scene, name);
                (name, Rule::Restarted)
            }
            Action::Close(name) => {
                effects = self.process(name).close();
                (name, Rule::Closed)
            }
            Action::Forget(index) => {
                self.forgets &= !(1 << index);
                let (name, peer) = scene.forgets[index];
                effects = self.process(name).forget(peer);
                (name, Rule::Forgot)
            }
            _ => unreachable!("packets are elsewhere"),
        };
        effects.into_iter().for_each(|effect| self.note(at, effect));
        rule
    }

    /// Another process takes the name. The sends of the one before end with it.
    fn replace(&mut self, scene: &Scene, name: Name) {
        let Process { epoch, bug, .. } = *self.process(name);
        *self.process(name) = scene.process(name, epoch + 1, bug);
        let mine = self.sends.iter_mut().filter(|(token, _)| token.name == name);
        for (_, send) in mine.filter(|(_, send)| send.end.is_none()) {
            send.end = Some(Err(Reason::Canceled));
        }
    }

    fn say(&mut self, packet: Packet) {
        if let Proof::Session { secret, writer, counter } = packet.proof {
            let is_same = |other: &&Packet| match other.proof {
                Proof::Session { secret: s, writer: w, counter: c } => {
                    (s, w, c) == (secret, writer, counter)
                }
                _ => false,
            };
            if self.net.iter().any(|other| is_same(&other) && *other != packet) {
                self.broken.insert(Property::CountersAreUsedOnce);
            }
        }
        self.net.insert(packet);
    }

    fn say_hello(&mut self, from: Name, to: Name) -> Rule {
        let process = self.process(from);
        let greeting = process.greeting(&process.peers[&to]);
        let packet = process.loose(to, Address::Nobody, Body::Hello(greeting), None);
        self.say(packet);
        Rule::HelloSaid
    }

    fn send(&mut self, scene: &Scene, from: Name, to: Name) -> Rule {
        let process = self.process(from);
        let bug = process.bug;
        let peer = process.peer(to);
        let (psn, ours) = (peer.sender.sent, peer.ours);
        let token = peer.outstanding[&psn];
        peer.sender.send(psn);
        let completes = bug == Some(Bug::EndsEarly);
        if completes {
            peer.outstanding.remove(&psn);
        }
        let flow = scene.flow(ours, bug);
        let packet = process.of_session(to, Body::Data { flow, psn, token });
        self.sends.entry(token).and_modify(|send| send.sent_as = ours);
        self.say(packet);
        if completes {
            self.note(from, Effect::Completed(token));
        }
        Rule::DataSent
    }

    fn repeat(&mut self, scene: &Scene, from: Name, to: Name, psn: u32) -> Rule {
        self.repeats -= 1;
        let process = self.process(from);
        let token = process.peers[&to].outstanding[&psn];
        if process.bug == Some(Bug::RepeatsUnderTheSameCounter) {
            process.peer(to).counter = psn;
        }
        let flow = scene.flow(process.peers[&to].ours, process.bug);
        let packet = process.of_session(to, Body::Data { flow, psn, token });
        self.say(packet);
        Rule::DataRepeated
    }

    fn probe(&mut self, from: Name, to: Name) -> Rule {
        let process = self.process(from);
        let asker = process.asker(&process.peers[&to]);
        process.peer(to).asked = true;
        let packet = process.of_session(to, Body::Probe(asker));
        self.say(packet);
        Rule::ProbeSent
    }

    fn say_goodbye(&mut self, from: Name, to: Name) -> Rule {
        let process = self.process(from);
        let peer = &process.peers[&to];
        // It has room for the lowest missing PSN only (§3.3).
        let all = process.ack_state(peer);
        let state = PsnSet { above: BTreeSet::new(), ..all };
        let asker = process.asker(peer);
        process.peer(to).asked = true;
        let packet = process.of_session(to, Body::Goodbye(asker, state));
        self.say(packet);
        Rule::GoodbyeSaid
    }

    fn hear(&mut self, packet: &Packet, at: Name) -> Vec<Rule> {
        let sessions = |process: &Process| -> BTreeMap<Name, (Id, Id)> {
            process.peers.iter().map(|(name, peer)| (*name, (peer.ours, peer.theirs.id))).collect()
        };
        let before = sessions(self.process(at));
        let heard = self.process(at).hear(packet);
        let mut rules = vec![heard.rule];
        for answer in heard.answers {
            rules.extend(match answer.body {
                Body::Welcome(_) => Some(Rule::WelcomeSaid),
                Body::Ack(_) => Some(Rule::AckSaid),
                _ => None,
            });
            self.say(answer);
        }
        for effect in heard.effects {
            if let Effect::Taken(from, token) = effect {
                self.note_taken(at, from, token);
            }
            if let Effect::Ended(peer, Reason::OtherVersion) = effect
                && self.processes[usize::from(peer)].key == self.processes[usize::from(at)].key
            {
                self.broken.insert(Property::EndsHaveAReason);
            }
            if let Effect::Ended(peer, Reason::Restarted | Reason::Goodbye) = effect {
                self.note_told_end(at, peer, before[&peer]);
            }
            self.note(at, effect);
        }
        rules
    }

    fn note_taken(&mut self, at: Name, from: Name, token: Token) {
        let Some(send) = self.sends.get(&token).copied() else {
            self.broken.insert(Property::TakenFromItsWriter);
            return;
        };
        let theirs = self.process(at).peer(from).theirs;
        let mut breaks = |broken: bool, property| {
            if broken {
                self.broken.insert(property);
            }
        };
        breaks(send.taken, Property::TakenOnce);
        breaks(send.to != at, Property::TakenAtItsTarget);
        breaks((token.name, token.epoch) != (from, theirs.epoch), Property::TakenFromItsWriter);
        breaks(send.sent_as != theirs.id, Property::BothMeanOneSession);
        self.sends.insert(token, Send { taken: true, ..send });
    }

    fn note(&mut self, at: Name, effect: Effect) {
        match effect {
            Effect::Taken(..) | Effect::Ended(..) => {}
            Effect::Opened(cookie, epoch, last) => {
                if cookie.is_none_or(|cookie| (cookie.epoch, cookie.last) != (epoch, last)) {
                    self.broken.insert(Property::HellosAreFresh);
                }
            }
            Effect::Delivered(token) => {
                let last = self.last.insert((at, token.name, token.epoch), token.number);
                if last.is_some_and(|last| last >= token.number) {
                    self.broken.insert(Property::InOrder);
                }
                self.note_delivered(token);
            }
            Effect::Completed(token) => self.note_end(token, Ok(())),
            Effect::Failed(token, reason) => self.note_end(token, Err(reason)),
        }
    }

    fn note_delivered(&mut self, token: Token) {
        let Some(send) = self.sends.get_mut(&token) else { return };
        send.delivered = true;
        if send.end == Some(Err(Reason::Goodbye)) {
            self.broken.insert(Property::GoodbyeTellsTheTruth);
        }
    }

    fn note_end(&mut self, token: Token, end: Result<(), Reason>) {
        let Some(send) = self.sends.get_mut(&token) else { return };
        if send.end.is_some() {
            self.broken.insert(Property::EndsOnce);
        }
        send.end = Some(end);
        if end.is_ok() && !send.taken {
            self.broken.insert(Property::CompletedIsTaken);
        }
        if end == Err(Reason::Goodbye) && send.delivered {
            self.broken.insert(Property::GoodbyeTellsTheTruth);
        }
    }

    /// Somebody told that the session of these ids ended: the peer must have left it.
    fn note_told_end(&mut self, at: Name, peer: Name, (ours, theirs): (Id, Id)) {
        let other = self.processes[usize::from(peer)].peers.get(&at);
        let stands = other.is_some_and(|other| match other.phase {
            Phase::Opening => other.ours == theirs,
            Phase::Open => other.ours == theirs && other.theirs.id == ours,
            Phase::Idle | Phase::Leaving => false,
        });
        if stands {
            self.broken.insert(Property::EndsHaveAReason);
        }
    }

    /// True if a send waits for a peer that has not closed and has the same key, and processes and network can change nothing.
    #[must_use]
    pub fn hangs(&self, scene: &Scene) -> bool {
        let waits = |(token, send): (&Token, &Send)| {
            let [from, to] = [token.name, send.to].map(|name| &self.processes[usize::from(name)]);
            send.end.is_none() && !to.closed && from.key == to.key
        };
        if !self.sends.iter().any(waits) {
            return false;
        }
        let mut actions = Vec::new();
        self.protocol_actions(scene, &mut actions);
        !actions.iter().any(|action| self.step(scene, action).1.is_some())
    }

    /// True if each send that has not ended is among what its writer still knows.
    #[must_use]
    pub fn knows_its_sends(&self) -> bool {
        let known = |token: &Token| {
            let process = &self.processes[usize::from(token.name)];
            process.peers.values().any(|peer| peer.outstanding.values().any(|t| t == token))
        };
        self.sends.iter().all(|(token, send)| send.end.is_some() || known(token))
    }

    /// What an adversary can make who knows everything but the key.
    #[must_use]
    pub fn forgeries(&self) -> Vec<Packet> {
        let mut all = Vec::new();
        for (process, name, peer) in self.pairs() {
            if peer.ours == 0 {
                continue;
            }
            let asker = Asker { of: peer.theirs.id, name, key: process.key };
            let token = Token { name, epoch: 99, number: 0 };
            let everything = PsnSet { lowest_missing: peer.sender.sent, ..PsnSet::default() };
            let greeting = Greeting {
                session: u32::MAX,
                epoch: 99,
                incarnation: 1,
                gave_up: 0,
                cookie: None,
                name,
            };
            let psn = peer.receiver.got.lowest_missing;
            let (session, by) = (Address::Session(peer.ours), (name, process.epoch));
            let epoch = process.epoch;
            let cookie =
                Cookie { by, name: process.name, session: peer.ours, epoch, last: 0, period: 0 };
            let bodies = [
                (session, Body::Data { flow: peer.theirs.id, psn, token }),
                (session, Body::Ack(everything.clone())),
                (session, Body::Probe(asker)),
                (session, Body::Goodbye(asker, everything)),
                (session, Body::Reset(peer.ours)),
                (Address::Asker(peer.ours), Body::Reset(peer.theirs.id)),
                (Address::Asker(peer.ours), Body::Confirmation(peer.theirs.id)),
                (session, Body::Challenge { cookie, epoch: 99, at: 0 }),
                (session, Body::Welcome(greeting)),
                (Address::Nobody, Body::Hello(greeting)),
                (session, Body::OtherVersion),
            ];
            let packet = |(address, body)| {
                // Nobody proves such a notice.
                let proof = if body == Body::OtherVersion { Proof::None } else { Proof::Wrong };
                Packet { to: process.name, address, body, proof }
            };
            all.extend(bodies.into_iter().map(packet));
        }
        all
    }
}
