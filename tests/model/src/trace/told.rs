//! Packets that a process tells.

use super::wire::{self, Body as Read, Header, read};
use super::{Judged, Node, Validator};
use crate::packet::{Address, Body, Name, Packet, Proof};
use crate::peer::Phase;
use crate::rules::Rule;
use erd_rd::Nanos;
use erd_world::record;

impl Validator {
    /// Judges a packet that left the process.
    pub(super) fn judge_told(
        &mut self,
        node: &mut Node,
        at: Nanos,
        packet: &record::Packet,
    ) -> Judged {
        let told = read(packet).map_err(|error| format!("{error:?}: {packet:?}"))?;
        if told.surplus_bytes > 0 {
            return Err(format!(
                "{} bytes behind the fields of {:?}",
                told.surplus_bytes, told.body
            ));
        }
        if !told.header.checksum_ok {
            return Err("a packet with a wrong checksum".into());
        }
        let to = self.names.name(packet.to);
        let h = &told.header;
        let (rule, proof) = match &told.body {
            Read::Hello(g) => {
                node.begin(at, to);
                self.judge_hello(node, to, g)?
            }
            Read::Welcome(g) => self.judge_welcome(node, to, h, g)?,
            Read::Challenge { cookie, epoch } => {
                self.judge_challenge(node, to, h, (*cookie, *epoch))?
            }
            Read::Reset { id } => {
                let body = Body::Reset(self.names.id(*id));
                self.take_owed(node, to, h, &told.body, |answer| answer.body == body)?
            }
            Read::GoodbyeAck { id } => {
                let body = Body::Confirmation(self.names.id(*id));
                self.take_owed(node, to, h, &told.body, |answer| answer.body == body)?
            }
            Read::Version { .. } => {
                let is_answer = |answer: &Packet| matches!(answer.body, Body::OtherVersion);
                let owed = self.take_owed(node, to, h, &told.body, is_answer);
                let is_foreign = owed.is_err() && node.foreign_hellos > 0;
                node.foreign_hellos -= u64::from(is_foreign);
                if is_foreign { (Rule::HelloOtherKey, Proof::None) } else { owed? }
            }
            Read::Port => return Err("an engine tells a datagram between ports".into()),
            _ => self.judge_of_session(node, to, &told)?,
        };
        if packet.info_path && !matches!(told.body, Read::Ack(_)) {
            return Err("the information path carries acknowledgements only".into());
        }
        let is_proven = match (told.proof, &told.body) {
            (wire::Proof::Key(key), _) => Some(key) == node.key,
            (wire::Proof::None, body) => node.key.is_none() || matches!(body, Read::Version { .. }),
            (wire::Proof::Counter(_), _) => true,
        };
        if !is_proven {
            return Err(format!("{:?} proves nothing", told.proof));
        }
        self.names.tell_proof(&packet.bytes, proof);
        self.count(rule);
        Ok(())
    }

    fn judge_greeting(&mut self, node: &mut Node, to: Name, g: &wire::Greeting) -> Judged {
        let process = &mut node.process;
        let epoch = process.epoch;
        let peer = process.peer(to);
        if !self.names.tell_id(g.session, peer.ours) {
            return Err(format!("the session {:#x} is not the one at hand", g.session));
        }
        if !self.names.tell_asker(g.asker, peer.ours) {
            return Err("two asker ids for one session".into());
        }
        let gave_up = if g.given_up == 0 { 0 } else { self.names.id(g.given_up) };
        if (g.epoch, gave_up) != (epoch, peer.gave_up) {
            return Err(format!("{g:?} tells another epoch or given-up id than {peer:?}"));
        }
        peer.number = g.incarnation;
        let ours = peer.ours;
        let before = node.numbers.insert(to, (g.incarnation, ours));
        let grows = |(number, id)| number < g.incarnation || (number, id) == (g.incarnation, ours);
        if !before.is_none_or(grows) {
            return Err(format!("incarnation {} after {before:?}", g.incarnation));
        }
        node.flow(to).greet(g)
    }

    fn judge_hello(
        &mut self,
        node: &mut Node,
        to: Name,
        g: &wire::Greeting,
    ) -> Result<(Rule, Proof), String> {
        let peer = node.process.peer(to);
        if peer.phase != Phase::Opening {
            return Err(format!("a hello in {:?}", peer.phase));
        }
        let cookie = peer.cookie;
        if (g.cookie != 0).then(|| self.names.cookie(g.cookie)) != cookie.map(Some) {
            return Err(format!("a hello with a cookie that is not {cookie:?}"));
        }
        self.judge_greeting(node, to, g)?;
        node.flow(to).asks += 1;
        let greeting = node.process.greeting(&node.process.peers[&to]);
        let packet = node.process.loose(to, Address::Nobody, Body::Hello(greeting), None);
        Ok((Rule::HelloSaid, packet.proof))
    }

    fn judge_welcome(
        &mut self,
        node: &mut Node,
        to: Name,
        h: &Header,
        g: &wire::Greeting,
    ) -> Result<(Rule, Proof), String> {
        let peer = node.process.peer(to);
        let theirs = peer.theirs.id;
        if peer.phase != Phase::Open || theirs != self.names.id(h.session) {
            return Err(format!("a welcome in {:?} to {:#x}", peer.phase, h.session));
        }
        let is_welcome = |answer: &Packet| {
            matches!(answer.body, Body::Welcome(_)) && answer.address == Address::Session(theirs)
        };
        let place =
            node.owed.iter().position(is_welcome).ok_or("a welcome that nobody asked for")?;
        node.owed.remove(place);
        self.judge_greeting(node, to, g)?;
        Ok((Rule::WelcomeSaid, node.process.welcome(to).proof))
    }

    fn judge_challenge(
        &mut self,
        node: &mut Node,
        to: Name,
        h: &Header,
        (cookie, epoch): (u64, u64),
    ) -> Result<(Rule, Proof), String> {
        let session = self.names.id(h.session);
        let place = node.owed.iter().position(|answer| {
            answer.to == to
                && answer.address == Address::Session(session)
                && matches!(answer.body, Body::Challenge { .. })
        });
        let answer = node.owed.remove(place.ok_or("a challenge that nobody asked for")?);
        let Body::Challenge { cookie: made, epoch: own, .. } = answer.body else {
            return Err("it was a challenge".into());
        };
        if own != epoch || !self.names.tell_cookie(cookie, made) {
            return Err(format!("the challenge {cookie:#x} of epoch {epoch} is not {made:?}"));
        }
        Ok((Rule::HelloChallenged, answer.proof))
    }

    /// The answer must be one that is owed.
    fn take_owed(
        &mut self,
        node: &mut Node,
        to: Name,
        h: &Header,
        told: &Read,
        is_answer: impl Fn(&Packet) -> bool,
    ) -> Result<(Rule, Proof), String> {
        let address = self.names.address(h.session, told);
        let fits =
            |answer: &Packet| (answer.to, answer.address) == (to, address) && is_answer(answer);
        let place = node.owed.iter().position(fits);
        let place = place.ok_or_else(|| format!("nobody asked for {told:?}"))?;
        let answer = node.owed.remove(place);
        let rule = match answer.body {
            Body::Reset(_) => Rule::ProbeUnknown,
            Body::Confirmation(_) => Rule::GoodbyeUnknown,
            _ => Rule::HelloOtherKey,
        };
        Ok((rule, answer.proof))
    }

    fn judge_of_session(
        &mut self,
        node: &mut Node,
        to: Name,
        told: &wire::PacketRead,
    ) -> Result<(Rule, Proof), String> {
        let (h, process) = (&told.header, &mut node.process);
        let flow = node.flows.entry(to).or_default();
        let peer = process.peer(to);
        if peer.theirs.id != self.names.id(h.session) || h.session == 0 {
            return Err(format!("a packet of the session {:#x}, which is not at hand", h.session));
        }
        let is_goodbye = matches!(told.body, Read::Goodbye { .. });
        let phase = if is_goodbye { Phase::Leaving } else { Phase::Open };
        if peer.phase != phase {
            return Err(format!("{:?} in {:?}", told.body, peer.phase));
        }
        let rule = match &told.body {
            Read::Data(data) => {
                flow.judge_acks(peer, data)?;
                match flow.tell(peer, h, data)? {
                    true => Rule::DataSent,
                    false => Rule::DataRepeated,
                }
            }
            Read::Ack(ack) => {
                flow.judge_state(peer, &ack.state, Some(ack))?;
                Rule::AckSaid
            }
            Read::Probe { asker, .. } | Read::Goodbye { asker, .. } => {
                if self.names.asker(*asker) != peer.ours {
                    return Err("an asker id of another session".into());
                }
                if let Read::Goodbye { ack, .. } = &told.body {
                    flow.judge_state(peer, ack, None)?;
                }
                flow.asks += 1;
                flow.unanswered += 1;
                if is_goodbye { Rule::GoodbyeSaid } else { Rule::ProbeSent }
            }
            _ => Rule::SizeTried,
        };
        let proof = match (peer.secret, told.proof) {
            (Some(secret), wire::Proof::Counter(counter)) => {
                // A datagram that this host's kernel refused took one, too.
                if counter < node.counters.get(&peer.ours).copied().unwrap_or(0) {
                    return Err(format!("counter {counter} is used twice"));
                }
                node.counters.insert(peer.ours, counter + 1);
                Proof::Session { secret, writer: peer.ours, counter: counter as u32 }
            }
            (None, wire::Proof::None) => Proof::None,
            _ => return Err("a packet without its proof".into()),
        };
        Ok((rule, proof))
    }
}
