//! Meetings with other processes, from the connection to the link or its refusal (`docs/protocol.md` §12.2).

use super::{LocalPort, Options, Place};
use crate::local::bell::{BELL_BYTES, Bell};
use crate::local::claim::Claim;
use crate::local::courier::{Connection, FDS_MAX, Received, Said};
use crate::local::lanes::Event;
use crate::local::link::{End, FIRST_BYTES, LINK_BYTES, Link, RING_BYTES, TheirBell, Way};
use crate::local::meeting::{MEETINGS_MAX, Meeting, Ours, PATIENCE_NS};
use crate::local::offer::{Answer, MESSAGE_BYTES, Offer, Verdict, stands};
use crate::local::process::{Neighbour, Side, is_closed};
use crate::local::segment::{self, Segment};
use crate::local::waker::Waker;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Connections accepted in one look.
const ACCEPTS: usize = 64;

/// The bell and the waker in a message, for which this side may take one of `most` descriptors.
fn their_bell(bell: &OwnedFd, waker: OwnedFd, most: usize) -> io::Result<TheirBell> {
    let (claim, waker) = (Claim::take(1, most)?, Waker::new(waker.as_fd())?);
    Ok(TheirBell { bell: Bell::new(Segment::open(bell, BELL_BYTES)?), waker, claim })
}

impl LocalPort {
    /// True if an endpoint of this name has been asked for a link, or is about to offer one.
    pub(super) fn is_asked(&self, name: SocketAddr) -> bool {
        self.meetings.iter().any(|meeting| meeting.is_with(name))
    }

    /// Asks the endpoint of this name for a link. False if there is none to be asked.
    pub(super) fn ask(&mut self, name: SocketAddr, now: u64) -> bool {
        let most = self.options.descriptors;
        let met = Connection::open(name, self.options.dir.as_deref(), most);
        let (connection, claim) = match met.and_then(|met| Ok((met, Claim::take(FDS_MAX, most)?))) {
            Ok((Some(connection), claim)) => (connection, claim),
            Ok((None, _)) => return false,
            Err(error) => {
                tracing::debug!(%name, %error, "cannot meet a local peer");
                return false;
            }
        };
        let index = self.places.insert(None);
        match self.offer(&connection, name, index) {
            Ok(segment) => {
                let ours = Some(Ours { to: name, index, segment });
                self.hold(Meeting {
                    connection: Some(connection),
                    claim: Some(claim),
                    ends_at_ns: now + PATIENCE_NS,
                    ours,
                    theirs: None,
                });
                true
            }
            Err(error) => {
                self.places.remove(index);
                tracing::debug!(%name, %error, "cannot offer a link to a local peer");
                false
            }
        }
    }

    fn offer(&self, connection: &Connection, to: SocketAddr, index: usize) -> io::Result<Segment> {
        let (segment, file) = Segment::create(LINK_BYTES)?;
        let first_bytes = if segment::grows() { FIRST_BYTES } else { RING_BYTES };
        for at in [0, RING_BYTES] {
            Segment::back(&file, at, first_bytes)?;
        }
        let offer = Offer {
            process: self.options.process,
            place: index as u16,
            from: self.options.name,
            to,
            ring_bytes: RING_BYTES as u32,
        };
        let fds = [file.as_fd(), self.bell_file.as_fd(), self.sleep.for_peers()];
        connection.send(&offer.encode(), &fds)?;
        Ok(segment)
    }

    /// Keeps a meeting, whose connection wakes sleepers from now on.
    fn hold(&mut self, meeting: Meeting) {
        if let Some(connection) = &meeting.connection
            && let Err(error) = self.set.add(connection.fd())
        {
            tracing::debug!(%error, "what a meeting says wakes nobody");
        }
        self.meetings.push(meeting);
    }

    /// Lets go of a meeting, and of its place.
    fn let_go(&mut self, at: usize) -> Meeting {
        let meeting = self.meetings.swap_remove(at);
        if let Some(connection) = &meeting.connection
            && let Err(error) = self.set.remove(connection.fd())
        {
            tracing::trace!(%error, "a meeting was not waited for");
        }
        meeting
    }

    /// Receives those who want to meet, and goes on with the meetings under way.
    pub(super) fn meet(&mut self, now: u64, f: &mut dyn FnMut(Event)) {
        self.accept(now);
        for at in (0..self.meetings.len()).rev() {
            // A meeting may have ended others.
            let Some(meeting) = self.meetings.get_mut(at) else { continue };
            if let Some((offer, fds)) = meeting.theirs.take_if(|_| now < meeting.ends_at_ns) {
                self.offered(at, &offer, fds, f);
                continue;
            }
            let mut bytes = [0; MESSAGE_BYTES];
            let said = meeting.connection.as_ref().map_or(Said::Nothing, |c| c.receive(&mut bytes));
            match said {
                Said::Nothing if now < meeting.ends_at_ns => {}
                Said::Message(received) => {
                    self.heard(at, &bytes[..received.bytes], received, now, f)
                }
                Said::Nothing | Said::Gone => self.give_up(at, now, f),
            }
        }
    }

    fn accept(&mut self, now: u64) {
        let most = self.options.descriptors;
        for _ in 0..ACCEPTS {
            let Some(listener) = &self.listener else { return };
            if self.full_until_ns.is_some() {
                return;
            }
            if self.meetings.len() >= MEETINGS_MAX {
                return self.pause(now);
            }
            match listener.accept(most) {
                Ok(Some(connection)) => {
                    // Whoever finds no room learns so at once.
                    let Ok(claim) = Claim::take(FDS_MAX, most) else { continue };
                    let (ends_at_ns, connection) = (now + PATIENCE_NS, Some(connection));
                    let claim = Some(claim);
                    self.hold(Meeting { connection, claim, ends_at_ns, ours: None, theirs: None });
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "cannot receive a local peer");
                    return self.pause(now);
                }
            }
        }
    }

    /// The peer says no, or nothing.
    fn give_up(&mut self, at: usize, now: u64, f: &mut dyn FnMut(Event)) {
        if let Some(ours) = self.let_go(at).ours {
            self.places.remove(ours.index);
            if self.refused.len() == MEETINGS_MAX {
                self.refused.pop_front();
            }
            self.refused.push_back((ours.to, now + PATIENCE_NS));
            f(Event::Refused(ours.to));
        }
    }

    fn heard(
        &mut self,
        at: usize,
        bytes: &[u8],
        received: Received,
        now: u64,
        f: &mut dyn FnMut(Event),
    ) {
        let has_offered = self.meetings[at].ours.is_some();
        match (has_offered, Answer::decode(bytes), Offer::decode(bytes)) {
            (true, Some(answer), _) => self.answered(at, &answer, received.fds, now, f),
            (false, _, Some(offer)) => self.offered(at, &offer, received.fds, f),
            _ => self.give_up(at, now, f),
        }
    }

    /// Takes the answer to an offer of this side.
    fn answered(
        &mut self,
        at: usize,
        answer: &Answer,
        fds: Vec<OwnedFd>,
        now: u64,
        f: &mut dyn FnMut(Event),
    ) {
        if answer.verdict == Verdict::Crossing {
            // The peer's own offer is on its way.
            let meeting = &mut self.meetings[at];
            if let Some(connection) = meeting.connection.take() {
                let _ = self.set.remove(connection.fd());
            }
            return;
        }
        let Ok([bell, wake]) = <[OwnedFd; 2]>::try_from(fds) else {
            return self.give_up(at, now, f);
        };
        // What came is here, and what of it stays has a claim of its own.
        self.meetings[at].claim = None;
        let theirs = match their_bell(&bell, wake, self.options.descriptors) {
            Ok(theirs) if answer.verdict == Verdict::Taken => theirs,
            _ => return self.give_up(at, now, f),
        };
        let Meeting { connection: Some(connection), ours: Some(ours), .. } = self.let_go(at) else {
            return;
        };
        let (process, seen_by) =
            Neighbour::meet(self.options.process, answer.process, connection, Side::Initiator);
        let theirs = (theirs, usize::from(answer.place));
        let link = Link::new(ours.to, process, (ours.segment, Way::First), theirs);
        self.join(ours.index, link, seen_by, f);
    }

    /// Takes an offer of the peer's, or refuses it.
    fn offered(&mut self, at: usize, offer: &Offer, fds: Vec<OwnedFd>, f: &mut dyn FnMut(Event)) {
        if self.has_unread(offer.from) {
            // What the process before it has written counts.
            self.meetings[at].theirs = Some((*offer, fds));
            return;
        }
        let Meeting { connection: Some(connection), claim, .. } = self.let_go(at) else { return };
        let verdict = match self.is_from(offer.from, &connection) {
            true => self.judge(offer),
            false => Verdict::Refused,
        };
        let process = self.options.process;
        let answer =
            |place: usize, verdict| Answer { process, place: place as u16, verdict }.encode();
        // What comes with an offer is here, and what of it stays has claims of its own.
        drop(claim);
        let parts = (verdict == Verdict::Taken).then(|| self.parts(fds)).flatten();
        let Some((segment, theirs)) = parts.filter(|_| !is_closed(&connection)) else {
            if verdict != Verdict::Taken {
                // Whoever does not hear of it sees the connection close.
                let _ = connection.send(&answer(0, verdict), &[]);
            }
            return self.end_crossed(offer.from, f);
        };
        // Before the peer has its answer: it could take what this side has offered after that.
        let was_asked = self.withdraw(offer.from);
        let index = self.places.insert(None);
        let ours = [self.bell_file.as_fd(), self.sleep.for_peers()];
        if connection.send(&answer(index, Verdict::Taken), &ours).is_err() {
            // The peer has gone, or has taken an offer of this side meanwhile: then there is a link already.
            self.places.remove(index);
            if was_asked {
                f(Event::Refused(offer.from));
            }
            return;
        }
        if let Some(index) = self.by_name.get(&offer.from) {
            self.leave(*index as usize, End::Closed, f);
        }
        let (process, seen_by) =
            Neighbour::meet(process, offer.process, connection, Side::Acceptor);
        let theirs = (theirs, usize::from(offer.place));
        let link = Link::new(offer.from, process, (segment, Way::Second), theirs);
        self.join(index, link, seen_by, f);
    }

    /// The memory and the bell that came with an offer, if they are what they should be.
    fn parts(&self, fds: Vec<OwnedFd>) -> Option<(Segment, TheirBell)> {
        let [file, bell, wake] = <[OwnedFd; 3]>::try_from(fds).ok()?;
        let theirs = their_bell(&bell, wake, self.options.descriptors).ok()?;
        Some((Segment::open(&file, LINK_BYTES).ok()?, theirs))
    }

    /// The peer's offer came to nothing. If it was to stand in place of one of this side's, there is none.
    fn end_crossed(&mut self, name: SocketAddr, f: &mut dyn FnMut(Event)) {
        let is_void = |meeting: &Meeting| meeting.is_with(name) && meeting.connection.is_none();
        if self.meetings.iter().any(is_void) && self.withdraw(name) {
            f(Event::Refused(name));
        }
    }

    /// True if there is a link with the endpoint of this name, and something to be read of it. It is looked at then.
    fn has_unread(&mut self, name: SocketAddr) -> bool {
        let Some(index) = self.by_name.get(&name).copied() else { return false };
        let has_news = self.has_news(index);
        if has_news {
            self.list(index);
        }
        has_news
    }

    fn judge(&self, offer: &Offer) -> Verdict {
        let is_fit = offer.to == self.options.name && offer.ring_bytes == RING_BYTES as u32;
        let is_under_way = self
            .meetings
            .iter()
            .any(|meeting| meeting.is_with(offer.from) && meeting.connection.is_some());
        match is_under_way && !stands(offer.from, self.options.name) {
            _ if !is_fit => Verdict::Refused,
            true => Verdict::Crossing,
            false if !self.has_room() => Verdict::Full,
            false => Verdict::Taken,
        }
    }

    /// Whether the process at the other end has the endpoint of this name: others may say so, too, and take its place. The
    /// one that has it listens there.
    fn is_from(&self, name: SocketAddr, connection: &Connection) -> bool {
        let Options { dir, descriptors, .. } = &self.options;
        let proof = Connection::open(name, dir.as_deref(), *descriptors);
        let is_so = proof.as_ref().is_ok_and(|proof| {
            proof.as_ref().is_some_and(|proof| proof.who().pid == connection.who().pid)
        });
        if !is_so {
            tracing::info!(%name, ?proof, "a local process offers a link in another's name");
        }
        is_so
    }

    /// Takes back what this side has offered the endpoint of this name. True if it had.
    fn withdraw(&mut self, name: SocketAddr) -> bool {
        let mut was_asked = false;
        while let Some(at) = self.meetings.iter().position(|meeting| meeting.is_with(name)) {
            if let Some(ours) = self.let_go(at).ours {
                self.places.remove(ours.index);
                was_asked = true;
            }
        }
        was_asked
    }

    /// Enters a link in its place.
    fn join(
        &mut self,
        index: usize,
        link: Link,
        seen_by: Arc<Connection>,
        f: &mut dyn FnMut(Event),
    ) {
        let name = link.name;
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        self.places[index] = Some(Place {
            link,
            generation,
            seen_by: Arc::clone(&seen_by),
            listed: false,
            sees: false,
            kept: false,
            empty_ns: 0,
            read_ns: 0,
            alive_ns: 0,
            lost_at_ns: None,
        });
        self.by_name.insert(name, index as u32);
        self.see_one(index as u32, &seen_by);
        // The peer may have written before this side listened to its bell.
        self.list(index as u32);
        f(Event::Up(name, self.id(index)));
    }
}
