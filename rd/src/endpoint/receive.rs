//! Received datagrams: demultiplexing, and the replies that need no state (protocol.md §3, §8).

use super::Endpoint;
use super::replies::Reply;
use crate::arrival::{Datagram, Packet, RxMeta};
use crate::host::{EndReason, Host, OpError};
use crate::keys::KeyRef;
use crate::mutants::{Mutant, mutant};
use crate::peer::{Challenged, Core, Peer, Phase};
use crate::stats::DropReason;
use crate::units::{KeyIndex, Nanos, PeerAddress, SECOND};
use crate::wire::ack::{ACK_PROBE_ANSWER, AckState, Sections};
use crate::wire::header::{HEADER_BYTES, Header, PacketKind, VERSION, VERSION_MAX, checksum_ok};
use crate::wire::setup::{Asker, Goodbye, Greeting, VersionNotice};
use crate::wire::{Malformed, Reader};
use core::hash::Hasher;
use core::net::SocketAddr;
use siphasher::sip::SipHasher24;

/// A cookie is valid in this period and the next.
const COOKIE_PERIOD_NS: Nanos = 8 * SECOND;

fn malformed(_: Malformed) -> DropReason {
    DropReason::Malformed
}

/// What a notice says of why a hello of ours is not understood.
fn explain(core: &Core, notice: VersionNotice) -> Result<OpError, DropReason> {
    let spoken = notice.spoken & VERSION_MAX;
    match (core.is_keyed(), spoken == core.version()) {
        _ if notice.refused != core.version() => Err(DropReason::Malformed),
        (false, true) => Err(DropReason::Malformed),
        (true, true) => Ok(OpError::KeysDiffer),
        (true, false) if spoken == VERSION => Ok(OpError::PeerHasNoKey),
        (_, false) => Ok(OpError::PeerVersion(spoken)),
    }
}

impl Endpoint {
    /// Takes a datagram. It counts whatever is wrong with it, and returns whether anything came of it.
    pub fn handle_packet<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        bytes: &[u8],
        host: &mut H,
    ) -> bool {
        let h = self.parse_header(now, meta, bytes, host);
        let taken = h.and_then(|h| self.take_whole(now, meta, &h, bytes, host));
        self.count_drop(taken)
    }

    /// The peer that wrote a datagram which was taken just now. `None` for packets that belong to no session: those can be
    /// sent on by anybody at any time.
    #[must_use]
    pub fn writer_of(&self, bytes: &[u8]) -> Option<PeerAddress> {
        let h = Header::parse_of(self.core.version(), bytes).ok()?;
        let of_a_session = match h.kind {
            PacketKind::Data
            | PacketKind::Ack
            | PacketKind::Probe
            | PacketKind::Goodbye
            | PacketKind::SizeProbe
            | PacketKind::SizeAnswer => true,
            PacketKind::Hello
            | PacketKind::Challenge
            | PacketKind::Welcome
            | PacketKind::Reset
            | PacketKind::GoodbyeAck
            | PacketKind::Version => false,
        };
        let index = self.session_peer(h.session).ok().filter(|_| of_a_session)?;
        Some(self.peers[index as usize].address())
    }

    /// As [`Endpoint::handle_packet`], for a datagram that [`super::Expected::is`] found to be the expected one: `head`
    /// is its common header, `payload` the bytes after it, which may already be in place. The engine calls
    /// [`Host::place`] with exactly these bytes, or not at all.
    pub fn handle_expected<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        head: &[u8],
        payload: &[u8],
        host: &mut H,
    ) {
        let h = self.parse_header(now, meta, head, host);
        let taken = h.and_then(|header| match self.core.is_keyed() {
            // Nothing was expected, and nothing of this is proven.
            true => Err(DropReason::WrongState),
            false => {
                let datagram = Datagram::Apart(head, payload);
                let packet = Packet { header, key: KeyRef::default(), datagram };
                self.take_packet(now, meta, &packet, host)
            }
        });
        self.count_drop(taken);
    }

    /// As [`Endpoint::handle_packet`], for frames of the information path (protocol.md §6.3). True if a session took
    /// it, so that its writer is a peer.
    pub fn handle_frame<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        bytes: &[u8],
        host: &mut H,
    ) -> bool {
        let h = self.parse_header(now, meta, bytes, host);
        let taken = h.and_then(|h| match h.kind {
            PacketKind::Ack => self.take_whole(now, meta, &h, bytes, host),
            _ => Err(DropReason::WrongState),
        });
        self.count_drop(taken)
    }

    /// Whether a packet was taken; counts the reason if not.
    fn count_drop(&mut self, taken: Result<(), DropReason>) -> bool {
        taken.inspect_err(|reason| self.core.stats.drop_packet(*reason)).is_ok()
    }

    fn parse_header<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        bytes: &[u8],
        host: &mut H,
    ) -> Result<Header, DropReason> {
        Header::parse_of(self.core.version(), bytes).map_err(|error| match error {
            None => {
                self.refuse_hello(now, meta.from, bytes, host);
                DropReason::Version
            }
            Some(Malformed) => DropReason::Malformed,
        })
    }

    /// Takes a packet, once its proof is right if the endpoint has a key.
    fn take_whole<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        bytes: &[u8],
        host: &mut H,
    ) -> Result<(), DropReason> {
        match self.core.is_keyed() {
            true => self.take_proven(now, meta, h, bytes, host),
            false => self.take_packet(now, meta, &Packet::whole(h, bytes), host),
        }
    }

    pub(super) fn take_packet<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), DropReason> {
        let Packet { header: ref h, key, datagram } = *packet;
        self.core.now = now;
        if h.kind == PacketKind::Data {
            let peer = self.session_peer(h.session)?;
            let peer = &mut self.peers[peer as usize];
            let result = match peer.session.phase() {
                Phase::Open if meta.trimmed => {
                    peer.on_trimmed(&self.core, now, h, datagram.start())
                }
                Phase::Open => peer.on_data(&mut self.core, host, now, meta, h, datagram),
                _ => {
                    peer.miss_welcome(&self.core, now);
                    Err(DropReason::WrongState)
                }
            };
            self.schedule.ready(peer);
            self.schedule.reschedule(&self.core, peer);
            return result;
        }
        let Datagram::Whole(bytes) = datagram else { return Err(DropReason::Malformed) };
        let whole = bytes.len() == HEADER_BYTES + usize::from(h.s_len);
        if !whole {
            return Err(DropReason::Malformed);
        }
        if !checksum_ok(bytes, self.core.checksum()) {
            return Err(DropReason::HeaderChecksum);
        }
        let r = Reader::new(&bytes[HEADER_BYTES..]);
        let arrived = now.saturating_sub(meta.hold_ns);
        let result = match h.kind {
            PacketKind::Hello => self.on_hello(now, meta, (h, key), r, host),
            PacketKind::Probe => self.on_probe(now, meta.from, h, r, host),
            PacketKind::Goodbye => self.on_goodbye(now, meta, h, r, host),
            PacketKind::Reset | PacketKind::GoodbyeAck | PacketKind::Version => {
                self.on_refusal(now, h, r, host)
            }
            PacketKind::SizeProbe | PacketKind::SizeAnswer => {
                self.on_size(now, h, r, (bytes.len() + self.core.trailer_bytes()) as u16)
            }
            _ => self.on_answer(now, arrived, (h, key), r, host),
        };
        if result.is_ok() {
            self.core.stats.rx_control += 1;
        }
        result
    }

    /// Index of the peer that a session id of ours belongs to.
    pub(super) fn session_peer(&self, session: u64) -> Result<u32, DropReason> {
        let index = (session & 0xff_ffff) as u32;
        match self.peers.get(index as usize) {
            Some(peer) if session != 0 && peer.session.our_id() == session => Ok(index),
            Some(_) if mutant(Mutant::IgnoresTheSessionId) => Ok(index),
            _ => Err(DropReason::UnknownSession),
        }
    }

    /// Index of the peer to which an asker id of ours belongs.
    pub(super) fn asker_peer(&self, id: u64) -> Result<u32, DropReason> {
        let index = (id & 0xff_ffff) as u32;
        let ours = self.peers.get(index as usize).map_or(0, |peer| peer.session.our_id());
        match ours != 0 && self.core.asker_id(ours) == id {
            true => Ok(index),
            false => Err(DropReason::UnknownSession),
        }
    }

    fn cookie(&self, g: &Greeting, key: KeyIndex, period: u64) -> u64 {
        let mut hash = SipHasher24::new_with_keys(self.core.secret[0], self.core.secret[1]);
        match g.name {
            SocketAddr::V4(v4) => hash.write(&v4.ip().octets()),
            SocketAddr::V6(v6) => hash.write(&v6.ip().octets()),
        }
        hash.write_u16(g.name.port());
        hash.write_u64(g.session);
        hash.write_u64(g.epoch);
        hash.write_u64(period);
        hash.write_u8(key.0);
        hash.write_u64(self.last_of(PeerAddress { name: g.name, key }));
        hash.finish().max(1)
    }

    /// The session id that this peer used in the last session that ended; 0 for none.
    fn last_of(&self, address: PeerAddress) -> u64 {
        match self.names.get(&address) {
            Some(index) => self.peers[*index as usize].session.gave_up(),
            None => self.room.last_of(address),
        }
    }

    fn on_hello<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        (h, key): (&Header, KeyRef),
        mut r: Reader<'_>,
        host: &mut H,
    ) -> Result<(), DropReason> {
        let g = Greeting::parse(&mut r, self.core.is_keyed()).map_err(malformed)?;
        let to = PeerAddress { name: g.name, key: key.at };
        if g.session == 0 || g.datagram_bytes < crate::config::DATAGRAM_MIN_BYTES {
            return Err(DropReason::Malformed);
        }
        // The name that a key proves stands at the end.
        if g.random.is_some() && !r.rest().is_empty() {
            return Err(DropReason::Malformed);
        }
        if self.closed {
            return Err(DropReason::WrongState);
        }
        if !host.admits(to) && !mutant(Mutant::AdmitsStrangers) {
            return Err(DropReason::Stranger);
        }
        let period = now / COOKIE_PERIOD_NS;
        let expected = self.cookie(&g, key.at, period);
        let before = self.cookie(&g, key.at, period.wrapping_sub(1));
        if g.cookie != expected && g.cookie != before {
            let (kind, session) = (PacketKind::Challenge, g.session);
            let (to, word) = (g.name, expected);
            let reply = Reply { to, key, kind, session, word, question: g.random };
            self.replies.push(&mut self.core, now, meta.from, reply);
            return if g.cookie == 0 { Ok(()) } else { Err(DropReason::Cookie) };
        }
        if !self.has_room_for(to, host) {
            return Err(DropReason::NoBuffer);
        }
        let index = self.newcomer_index(now, to, host)?;
        let peer = &mut self.peers[index as usize];
        if g.session == peer.session.gave_up() {
            let (kind, session) = (PacketKind::Reset, g.session);
            let (to, word) = (g.name, session);
            let reply = Reply { to, key, kind, session, word, question: g.random };
            self.replies.push(&mut self.core, now, meta.from, reply);
            return Err(DropReason::Cookie);
        }
        let arrived = now.saturating_sub(meta.hold_ns);
        let said = (&g, h.sent_at_ns, key);
        let result = peer.on_hello(&mut self.core, host, now, arrived, said);
        self.schedule.ready(peer);
        self.schedule.reschedule(&self.core, peer);
        result
    }

    fn on_probe<H: Host>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        h: &Header,
        mut r: Reader<'_>,
        host: &mut H,
    ) -> Result<(), DropReason> {
        let asker = Asker::parse(&mut r, self.core.is_keyed()).map_err(malformed)?;
        // A sender with a wrong asker id has guessed the session id: it must not learn that the guess was right.
        let may_be_of = |peer: &Peer| match peer.session.phase() {
            Phase::Open | Phase::Leaving => peer.session.is_asked_by(asker.id),
            Phase::Opening | Phase::Idle => true,
        };
        let found = self.session_peer(h.session);
        let Some(index) = found.ok().filter(|i| may_be_of(&self.peers[*i as usize])) else {
            self.answer_asker(now, from, (&asker, h), PacketKind::Reset, host);
            return Err(DropReason::UnknownSession);
        };
        let peer = &mut self.peers[index as usize];
        let result = match peer.session.phase() {
            Phase::Open => {
                peer.has_key(&self.core, asker.key);
                peer.on_probe(&self.core, now, h)
            }
            _ => {
                peer.miss_welcome(&self.core, now);
                Err(DropReason::WrongState)
            }
        };
        self.schedule.ready(peer);
        self.schedule.reschedule(&self.core, peer);
        result
    }

    fn on_goodbye<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        mut r: Reader<'_>,
        host: &mut H,
    ) -> Result<(), DropReason> {
        let goodbye = Goodbye::parse(&mut r, self.core.is_keyed()).map_err(malformed)?;
        let asker = goodbye.asker;
        self.answer_asker(now, meta.from, (&asker, h), PacketKind::GoodbyeAck, host);
        let index = self.session_peer(h.session)?;
        let peer = &mut self.peers[index as usize];
        if !peer.session.is_asked_by(asker.id) {
            return Err(DropReason::WrongState);
        }
        if peer.session.is_open() {
            let arrived = now.saturating_sub(meta.hold_ns);
            peer.on_ack(&mut self.core, host, now, arrived, &goodbye.ack, None)?;
        }
        // What was written before it counts. The end of the lane then ends the session.
        if !peer.has_entries(host) {
            peer.on_goodbye(&mut self.core, host);
        }
        self.schedule.reschedule(&self.core, peer);
        Ok(())
    }

    /// Answers a probe or a goodbye, which may be of no session here.
    fn answer_asker<H: Host>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        (asker, h): (&Asker, &Header),
        kind: PacketKind,
        host: &mut H,
    ) {
        // The asker can take an answer of its own key only.
        let keys = &self.core.cfg.keys;
        let key = asker.key.map_or(Some(KeyRef::default()), |id| keys.find_ref(id));
        let Some(key) = key else { return };
        let (to, session, word) = (asker.name, asker.id, h.session);
        let reply = Reply { to, key, kind, session, word, question: None };
        if host.admits(PeerAddress { name: to, key: key.at }) {
            self.replies.push(&mut self.core, now, from, reply);
        }
    }

    /// Takes answers to packets that may have reached a stranger: a probe, a goodbye, or a hello.
    fn on_refusal<H: Host>(
        &mut self,
        now: Nanos,
        h: &Header,
        mut r: Reader<'_>,
        host: &mut H,
    ) -> Result<(), DropReason> {
        let by_session = self.session_peer(h.session);
        let index = by_session.or_else(|_| self.asker_peer(h.session))?;
        let peer = &mut self.peers[index as usize];
        let core = &mut self.core;
        let result = match (h.kind, peer.session.phase(), by_session) {
            (PacketKind::Version, Phase::Opening, Ok(_)) => {
                let notice = VersionNotice::parse(&mut r).map_err(malformed)?;
                match explain(core, notice)? {
                    // Nobody can prove such a notice: it ends nothing where proofs are asked for.
                    error if core.is_keyed() => peer.heard_hint(core, now, error),
                    error => peer.end(core, host, EndReason::Failed(error)),
                }
                Ok(())
            }
            (PacketKind::Reset, Phase::Opening, Ok(_)) if r.u64() == Ok(h.session) => {
                peer.on_used_id(core, now);
                Ok(())
            }
            (PacketKind::Reset, Phase::Open, Err(_)) if peer.has_entries(host) => {
                Err(DropReason::WrongState)
            }
            (PacketKind::Reset, Phase::Open, Err(_)) if r.u64() == Ok(peer.session.their_id()) => {
                peer.end(core, host, EndReason::Failed(OpError::PeerRestarted));
                Ok(())
            }
            (PacketKind::GoodbyeAck, Phase::Leaving, Err(_))
                if r.u64() == Ok(peer.session.their_id()) =>
            {
                peer.end(core, host, EndReason::Failed(OpError::Canceled));
                Ok(())
            }
            _ => Err(DropReason::WrongState),
        };
        self.schedule.ready(peer);
        self.schedule.reschedule(&self.core, peer);
        result
    }

    /// Takes a size probe of `bytes`, or the answer to one (protocol.md §4.6).
    fn on_size(
        &mut self,
        now: Nanos,
        h: &Header,
        mut r: Reader<'_>,
        bytes: u16,
    ) -> Result<(), DropReason> {
        let number = r.u16().map_err(malformed)?;
        let index = self.session_peer(h.session)?;
        let peer = &mut self.peers[index as usize];
        if !peer.session.is_open() {
            return Err(DropReason::WrongState);
        }
        if h.kind == PacketKind::SizeProbe {
            peer.on_size_probe(&self.core, now, h, number, bytes);
        } else {
            peer.on_size_answer(&self.core, now, number, r.u16().map_err(malformed)?);
        }
        self.schedule.ready(peer);
        self.schedule.reschedule(&self.core, peer);
        Ok(())
    }

    /// Takes packets that answer something of ours and name our session.
    fn on_answer<H: Host>(
        &mut self,
        now: Nanos,
        arrived: Nanos,
        (h, key): (&Header, KeyRef),
        mut r: Reader<'_>,
        host: &mut H,
    ) -> Result<(), DropReason> {
        let index = self.session_peer(h.session)?;
        let peer = &mut self.peers[index as usize];
        let core = &mut self.core;
        let open = peer.session.is_open();
        let result = match h.kind {
            PacketKind::Ack if open => {
                let state = AckState::parse(&mut r).map_err(malformed)?;
                let sections = Sections::parse(&mut r).map_err(malformed)?;
                if state.flags & ACK_PROBE_ANSWER != 0 {
                    peer.note_answer(h.path, &state, &sections);
                }
                peer.on_ack(core, host, now, arrived, &state, Some(&sections))
            }
            PacketKind::Challenge => {
                let cookie = r.u64().map_err(malformed)?;
                let epoch = r.u64().map_err(malformed)?;
                let challenge = Challenged { cookie, epoch, sent_at_ns: h.sent_at_ns, key };
                peer.on_challenge(core, now, &challenge)
            }
            PacketKind::Welcome => {
                let g = Greeting::parse(&mut r, core.is_keyed()).map_err(malformed)?;
                if g.session == 0 || g.datagram_bytes < crate::config::DATAGRAM_MIN_BYTES {
                    return Err(DropReason::Malformed);
                }
                peer.on_welcome(core, now, arrived, (&g, key))
            }
            _ => Err(DropReason::WrongState),
        };
        self.schedule.ready(peer);
        self.schedule.reschedule(&self.core, peer);
        result
    }
}
