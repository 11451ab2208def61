//! Recorded runs of the fault world, held against the model's rules.
//!
//! Each process of a run gets a process of the model ([`crate::process::Process`]), which hears what the recorded one
//! hears. Whatever the recorded one then tells, completes, reports or ends must be what a rule allows. Where the
//! document leaves a choice (an answer may be left out, a packet may be dropped for want of room), the model allows each.
//! [`wire`] reads packets, `names` gives numbers to what the run calls by random values, `told` judges packets that
//! leave, and `flow` judges data, acknowledgements and operations.

mod flow;
mod names;
mod told;
pub mod wire;

use crate::packet::{Asker, Body, Id, Name, Packet, Token};
use crate::peer::{Effect, Peer, Phase, Reason};
use crate::process::Process;
use crate::rules::Rule;
use erd_rd::{EndReason, Nanos, OpError, SendToken};
use erd_world::ledger::Life;
use erd_world::record::{self, Born, Entry, What};
use flow::Flow;
use names::Names;
use std::collections::{BTreeMap, BTreeSet};
use wire::{PacketRead, read, read_bytes};

/// Hellos or probes that must be unanswered before a deadline ends a session (§7.3).
const ASKS_MIN: u32 = 3;
/// Kinds of packets that any version reads (§3.4).
const HELLO_KIND: u8 = 3;
const VERSION_KIND: u8 = 9;
/// Answers that wait to be told, at most: later ones take the places of the earliest.
const OWED_MAX: usize = 4096;

/// An entry that no rule allows.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// Its place in the record.
    pub at: usize,
    /// What is wrong with it.
    pub why: String,
}

/// What judging an entry comes to.
type Judged = Result<(), String>;

/// How often each rule was used.
pub type Coverage = BTreeMap<Rule, u64>;

/// A recorded process, with its process of the model.
struct Node {
    process: Process,
    flows: BTreeMap<Name, Flow>,
    /// Answers that it may tell.
    owed: Vec<Packet>,
    /// Hellos of another version, which it may refuse.
    foreign_hellos: u64,
    /// Ends of sessions that a rule calls for, until the record has them.
    due_ends: Vec<(Name, Reason)>,
    /// The id of its key.
    key: Option<[u8; 8]>,
    /// The incarnation told last to each peer, with the session id.
    numbers: BTreeMap<Name, (u32, Id)>,
    /// The next counter of each session of ours.
    counters: BTreeMap<Id, u64>,
    /// Its deadline.
    timeout_ns: Nanos,
    /// Operations that were posted.
    posted: BTreeSet<SendToken>,
    /// Operations failed, until the record has the end of their session.
    failed: Vec<Name>,
}

/// See the module.
#[derive(Default)]
pub struct Validator {
    names: Names,
    nodes: BTreeMap<Life, Node>,
    lives: Vec<Life>,
    coverage: Coverage,
}

/// Judges a whole record.
///
/// # Errors
/// The first entry that no rule allows.
pub fn validate(entries: &[Entry]) -> Result<Coverage, Mismatch> {
    let mut validator = Validator::default();
    for (at, entry) in entries.iter().enumerate() {
        let next = entries.get(at + 1).filter(|next| next.life == entry.life);
        let is_refused = match next.map(|next| &next.what) {
            // A hello that finds no room leaves nothing behind, and comes again.
            Some(What::NoRoom) => is_hello(&entry.what),
            Some(What::Unposted(_)) => matches!(entry.what, What::Posted(_)),
            _ => false,
        };
        if is_refused {
            continue;
        }
        validator.judge(entry).map_err(|why| Mismatch { at, why })?;
    }
    Ok(validator.coverage)
}

impl Validator {
    fn judge(&mut self, entry: &Entry) -> Judged {
        let Entry { at, life, what } = entry;
        match what {
            What::Born(born) => {
                self.bear(*life, born);
                return Ok(());
            }
            What::Died => {
                let node = self.nodes.remove(life);
                return node.map_or(Ok(()), |mut node| node.check_ends());
            }
            _ => {}
        }
        let mut node = self.nodes.remove(life).ok_or("nobody was born")?;
        let judged = self.judge_of(&mut node, *at, what);
        self.nodes.insert(*life, node);
        judged
    }

    fn bear(&mut self, life: Life, born: &Born) {
        let lived =
            |other: &Life| (other.node, other.incarnation + 1) == (life.node, life.incarnation);
        if self.lives.iter().any(lived) {
            self.count(Rule::Restarted);
        }
        self.lives.push(life);
        let name = self.names.name(born.name);
        let key = (!born.keys.is_empty()).then_some(1);
        let process = Process {
            counters_ahead: born.counters_ahead,
            ..Process::new(name, born.epoch, key, self.names.first_id())
        };
        let node = Node {
            process,
            flows: BTreeMap::new(),
            owed: Vec::new(),
            foreign_hellos: 0,
            due_ends: Vec::new(),
            key: born.keys.first().map(|(_, key)| *key),
            numbers: BTreeMap::new(),
            counters: BTreeMap::new(),
            timeout_ns: born.peer_timeout_ns,
            posted: BTreeSet::new(),
            failed: Vec::new(),
        };
        self.nodes.insert(life, node);
    }

    fn judge_of(&mut self, node: &mut Node, at: Nanos, what: &What) -> Judged {
        match what {
            What::Heard(_) | What::Told(_) | What::Posted(_) => node.check_ends()?,
            _ => {}
        }
        match what {
            What::Heard(packet) => self.hear(node, at, packet),
            What::Told(packet) => self.judge_told(node, at, packet),
            What::Posted(posted) => {
                let Some(name) = self.peer_of(&posted.peer) else { return Ok(()) };
                if node.process.peer(name).phase == Phase::Leaving {
                    return Err("a post to a peer that is being left".into());
                }
                self.count(Rule::Posted);
                node.posted.insert(posted.token);
                node.flow(name).post(posted);
                Ok(())
            }
            What::Sent { token, outcome } => node.judge_end_of(*token, *outcome),
            What::Arrived(arrival) => {
                let Some(name) = self.peer_of(&arrival.msg.peer) else { return Ok(()) };
                node.flow(name).judge_arrival(arrival)
            }
            What::Accepted { msg, .. } | What::Released(msg) => {
                let Some(name) = self.peer_of(&msg.peer) else { return Ok(()) };
                node.flow(name).consume(msg.order.0);
                Ok(())
            }
            What::Met(met) => {
                let Some(name) = self.peer_of(&met.peer) else { return Ok(()) };
                node.flow(name).judge_met()
            }
            What::Ended { peer, reason, .. } => {
                let Some(name) = self.peer_of(peer) else { return Ok(()) };
                let rule = node.judge_session_end(at, name, *reason)?;
                rule.into_iter().for_each(|rule| self.count(rule));
                Ok(())
            }
            What::Forgot(peer) => {
                let Some(name) = self.peer_of(peer) else { return Ok(()) };
                self.count(Rule::Forgot);
                let effects = node.process.forget(name);
                // What was posted may have begun no session yet.
                node.flow(name).end();
                node.note(&effects);
                Ok(())
            }
            What::Closed => {
                self.count(Rule::Closed);
                let effects = node.process.close();
                node.note(&effects);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, rule: Rule) {
        *self.coverage.entry(rule).or_default() += 1;
    }

    /// The name of a peer. An entry has none where the engine removed the peer in the call that first told of it, or where
    /// the run was cut off.
    fn peer_of(&mut self, peer: &record::Peer) -> Option<Name> {
        peer.address.map(|address| self.names.name(address.name))
    }

    /// The process hears a packet: so does the model's, if the bytes are worth it.
    fn hear(&mut self, node: &mut Node, at: Nanos, packet: &record::Packet) -> Judged {
        let keyed = node.process.key.is_some();
        let Some(read) = read_heard(packet, keyed) else { return Ok(()) };
        let own = if keyed { wire::KEYED_VERSION } else { wire::VERSION };
        let [version, kind] =
            packet.bytes.first().map_or([0; 2], |first| [first >> 4 & 7, first & 15]);
        if version != own && kind != VERSION_KIND {
            node.foreign_hellos += u64::from(kind == HELLO_KIND);
            return Ok(());
        }
        let Ok(read) = read else {
            // A hello of another key is answered before its greeting is read (§11.2).
            node.foreign_hellos += u64::from(keyed && kind == HELLO_KIND);
            return Ok(());
        };
        if let wire::Proof::Key(key) = read.proof
            && Some(key) != node.key
        {
            node.foreign_hellos += u64::from(matches!(read.body, wire::Body::Hello(_)));
            return Ok(());
        }
        let Some(heard) = self.translate(node, packet, &read) else { return Ok(()) };
        node.process.now = at;
        let from = node.process.writer(&heard);
        let result = node.process.hear(&heard);
        self.count(result.rule);
        if let Some(name) = from {
            node.hear_flow(at, name, &read, result.rule);
        }
        node.owe(result.answers);
        node.note(&result.effects);
        if let wire::Body::Hello(g) | wire::Body::Welcome(g) = &read.body {
            let name = self.names.name(g.name);
            let session = self.names.id(g.session);
            let open = |peer: &&Peer| peer.phase == Phase::Open && peer.theirs.id == session;
            if let Some(peer) = node.process.peers.get(&name).filter(open) {
                let ours = peer.ours;
                node.flow(name).meet(ours, g);
            }
        }
        Ok(())
    }

    /// The packet as the model has it. `None` for what the model does not have, and for what no reader takes.
    fn translate(
        &mut self,
        node: &Node,
        packet: &record::Packet,
        read: &PacketRead,
    ) -> Option<Packet> {
        let names = &mut self.names;
        let h = &read.header;
        let body = match &read.body {
            wire::Body::Hello(g) => Body::Hello(names.greeting(g)?),
            wire::Body::Welcome(g) => Body::Welcome(names.greeting(g)?),
            wire::Body::Challenge { cookie, epoch } => {
                let (cookie, epoch) = (names.cookie_of_challenge(*cookie), *epoch);
                Body::Challenge { cookie, epoch, at: h.sent }
            }
            wire::Body::Reset { id } => Body::Reset(names.id(*id)),
            wire::Body::GoodbyeAck { id } => Body::Confirmation(names.id(*id)),
            wire::Body::Version { spoken, refused } => {
                let own =
                    if node.process.key.is_some() { wire::KEYED_VERSION } else { wire::VERSION };
                let is_known = *refused == own && (node.process.key.is_some() || *spoken != own);
                is_known.then_some(Body::OtherVersion)?
            }
            wire::Body::Probe { asker, name, .. } => Body::Probe(Asker {
                of: names.asker(*asker),
                name: names.name(*name),
                key: node.process.key,
            }),
            wire::Body::Goodbye { asker, name, ack, .. } => {
                let (of, name) = (names.asker(*asker), names.name(*name));
                let state = self.state_heard(node, h.session, ack)?;
                Body::Goodbye(Asker { of, name, key: node.process.key }, state)
            }
            wire::Body::Ack(ack) => Body::Ack(self.ack_heard(node, h.session, ack)?),
            wire::Body::Data(data) => {
                if data.payload_ok == Some(false) {
                    return None;
                }
                if matches!(data.carries, wire::Carried::Trimmed) {
                    return None;
                }
                let psn = self.psn_heard(node, h.session, h.psn)?;
                let token = Token { name: 0, epoch: 0, number: psn };
                Body::Data { flow: 0, psn, token }
            }
            _ => return None,
        };
        let address = self.names.address(h.session, &read.body);
        let proof = self.names.proof(node.process.key, packet);
        Some(Packet { to: node.process.name, address, body, proof })
    }
}

fn is_hello(what: &What) -> bool {
    let What::Heard(packet) = what else { return false };
    matches!(read(packet), Ok(PacketRead { body: wire::Body::Hello(_), .. }))
}

/// Reads a packet as whoever hears it does; `None` if its checksum is wrong.
fn read_heard(packet: &record::Packet, keyed: bool) -> Option<Result<PacketRead, wire::Error>> {
    let mut result = read(packet);
    if keyed && result == Err(wire::Error::Unproven) {
        // Of a session that is not known, probes and goodbyes are answered unproven (§11.2).
        let end = packet.bytes.len().checked_sub(24)?;
        result = read_bytes(&packet.bytes, Some(&packet.bytes[..end]), packet.trimmed);
    }
    match &result {
        Ok(read) if !read.header.checksum_ok => None,
        _ => Some(result),
    }
}

impl Node {
    fn flow(&mut self, name: Name) -> &mut Flow {
        self.flows.entry(name).or_default()
    }

    /// The first hello begins a session, if something waits for one (§3.1).
    fn begin(&mut self, at: Nanos, name: Name) {
        let flow = self.flows.entry(name).or_default();
        if self.process.peer(name).phase == Phase::Idle && flow.wants_session() {
            (flow.heard_at, flow.answered_at) = (at, at);
            self.process.want(name);
        }
    }

    fn owe(&mut self, answers: Vec<Packet>) {
        self.owed.extend(answers.into_iter().filter(|a| !matches!(a.body, Body::Ack(_))));
        let over = self.owed.len().saturating_sub(OWED_MAX);
        self.owed.drain(..over);
    }

    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Ended(name, reason) = effect {
                self.due_ends.push((*name, *reason));
                self.flow(*name).end();
            }
        }
    }

    /// What a packet that was taken shows.
    fn hear_flow(&mut self, at: Nanos, name: Name, read: &PacketRead, rule: Rule) {
        let flow = self.flows.entry(name).or_default();
        flow.hear(at, read, rule);
        let taken = matches!(rule, Rule::DataTaken | Rule::DataDuplicate | Rule::AckTaken);
        if taken && let Some(peer) = self.process.peers.get_mut(&name) {
            flow.take_acks(peer, &read.body, rule);
        }
    }

    /// What a rule ended has ended before anything else happens, and operations fail only with their session.
    fn check_ends(&mut self) -> Judged {
        if let Some((name, reason)) = self.due_ends.first() {
            return Err(format!(
                "the session with {name} ends ({reason:?}), and the engine keeps it"
            ));
        }
        match self.failed.pop() {
            Some(name) => Err(format!("an operation with {name} failed, and its session goes on")),
            None => Ok(()),
        }
    }

    fn judge_session_end(
        &mut self,
        at: Nanos,
        name: Name,
        reason: EndReason,
    ) -> Result<Option<Rule>, String> {
        self.failed.retain(|failed| *failed != name);
        let told = match reason {
            EndReason::Goodbye => Some(Reason::Goodbye),
            EndReason::Failed(OpError::PeerRestarted) => Some(Reason::Restarted),
            EndReason::Failed(OpError::PeerVersion(_)) => Some(Reason::OtherVersion),
            EndReason::Failed(OpError::Canceled) => Some(Reason::Canceled),
            EndReason::Failed(_) => None,
        };
        let due = self.due_ends.iter().position(|(due, why)| *due == name && told == Some(*why));
        if let Some(due) = due {
            self.due_ends.remove(due);
            return self.judge_outcomes(name).map(|()| None);
        }
        let Flow { asks, heard_at, unanswered, answered_at, .. } = *self.flow(name);
        let silence_ns = at - heard_at;
        // A peer that is heard must also answer (§7.3).
        let is_unanswered = unanswered >= ASKS_MIN && at - answered_at >= 2 * self.timeout_ns;
        let phase = self.process.peer(name).phase;
        let (why, rule) = match (reason, phase) {
            (EndReason::Failed(OpError::Canceled), Phase::Leaving) => {
                (Reason::Canceled, Rule::Left)
            }
            (EndReason::Failed(OpError::PathBlocked | OpError::BadBuffer), Phase::Open) => {
                (Reason::Canceled, Rule::Left)
            }
            (EndReason::Failed(error), Phase::Opening | Phase::Open) if is_silence(error) => {
                let is_told = error == OpError::PeerUnreachable && phase == Phase::Open;
                let least_ns = if is_told { self.timeout_ns / 10 } else { self.timeout_ns };
                if (asks < ASKS_MIN || silence_ns < least_ns) && !is_unanswered {
                    let after = format!("{asks} questions and {silence_ns} ns");
                    return Err(format!("{error:?} of {name} after {after}"));
                }
                (Reason::Silence, Rule::Silence)
            }
            _ => return Err(format!("{reason:?} ends the session with {name} in {phase:?}")),
        };
        self.process.end(name, why, &mut Vec::new());
        self.flow(name).end();
        self.judge_outcomes(name).map(|()| Some(rule))
    }

    /// Every operation of an ended session has failed.
    fn judge_outcomes(&mut self, name: Name) -> Judged {
        match self.flow(name).left_over() {
            0 => Ok(()),
            left => Err(format!("{left} operations with {name} have no outcome")),
        }
    }
}

fn is_silence(error: OpError) -> bool {
    use OpError::{KeysDiffer, PeerHasNoKey, PeerTimeout, PeerUnreachable, PeerVersion};
    // With a key, what a notice said is the hint of a deadline (§11.1).
    matches!(error, PeerTimeout | PeerUnreachable | PeerHasNoKey | KeysDiffer | PeerVersion(_))
}
