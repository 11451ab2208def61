//! Packets of an endpoint with a key (protocol.md §11): nothing of them counts before their proof is right.

use super::Endpoint;
use super::replies::Reply;
use crate::arrival::{Datagram, Packet, RxMeta};
use crate::host::{Host, KeyMismatch};
use crate::keys::{KeyRef, Loose, TRAILER_BYTES};
use crate::mutants::{Mutant, mutant};
use crate::peer::unprove;
use crate::stats::DropReason;
use crate::units::{KeyIndex, Nanos, PeerAddress};
use crate::wire::header::{
    HEADER_BYTES, Header, KEYED_VERSION, PacketKind, VERSION, checksum_ok, clear_checksum,
};
use crate::wire::setup::ForeignHello;
use crate::wire::{NAME_BYTES, Reader};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Longest packet outside a session: a greeting with its proof has less.
const LOOSE_BYTES_MAX: usize = 256;

/// A packet without its proof.
type Opened<'a> = Result<Packet<'a>, DropReason>;

/// The process that must have written a packet outside a session.
struct Writer {
    name: SocketAddr,
    /// The key that it must have used; `None` for a hello, which may be of any key.
    key: Option<KeyIndex>,
    /// The packet answers a greeting of ours.
    answers: bool,
}

/// A copy of the packet with a zero checksum.
fn without_checksum<'a>(packet: &[u8], out: &'a mut Vec<u8>) -> &'a [u8] {
    out.clear();
    out.extend_from_slice(packet);
    if out.len() >= HEADER_BYTES {
        clear_checksum(out);
    }
    out
}

impl Endpoint {
    /// Takes a packet once its proof is right.
    pub(super) fn take_proven<H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        bytes: &[u8],
        host: &mut H,
    ) -> Result<(), DropReason> {
        let mut out = core::mem::take(&mut self.core.opened);
        let opened = match h.kind {
            PacketKind::Version => self.open_notice(h, bytes, &mut out),
            PacketKind::Hello
            | PacketKind::Challenge
            | PacketKind::Welcome
            | PacketKind::Reset
            | PacketKind::GoodbyeAck => self.open_loose(now, meta, h, bytes, &mut out, host),
            PacketKind::Data
            | PacketKind::Ack
            | PacketKind::Probe
            | PacketKind::Goodbye
            | PacketKind::SizeProbe
            | PacketKind::SizeAnswer => self.open_of_session(now, h, bytes, &mut out),
        };
        let taken = opened.and_then(|packet| self.take_packet(now, meta, &packet, host));
        self.core.opened = out;
        taken
    }

    /// A notice of whoever has no key, or another: it is no more than a hint.
    fn open_notice<'a>(&self, h: &Header, bytes: &[u8], out: &'a mut Vec<u8>) -> Opened<'a> {
        if !checksum_ok(bytes, self.core.cfg.crc32c) {
            return Err(DropReason::HeaderChecksum);
        }
        Ok(Packet::whole(h, without_checksum(bytes, out)))
    }

    fn open_loose<'a, H: Host>(
        &mut self,
        now: Nanos,
        meta: &RxMeta,
        h: &Header,
        bytes: &[u8],
        out: &'a mut Vec<u8>,
        host: &mut H,
    ) -> Opened<'a> {
        if bytes.len() > LOOSE_BYTES_MAX || bytes.len() != HEADER_BYTES + usize::from(h.s_len) {
            return Err(DropReason::Malformed);
        }
        if !checksum_ok(bytes, self.core.cfg.crc32c) {
            return Err(DropReason::HeaderChecksum);
        }
        let (id, proof) = unprove(h, bytes, out).ok_or(DropReason::Malformed)?;
        let known = id.try_into().ok().and_then(|id| self.core.cfg.keys.find_ref(id));
        let Some(used) = known else {
            self.refuse_hello(now, meta.from, bytes, host);
            return Err(DropReason::OtherKey);
        };
        let writer = self.writer(h, out)?;
        let is_its = writer.key.is_none_or(|key| key == used.at) || mutant(Mutant::MixesUpItsKeys);
        let key = self.core.cfg.keys.of(used).filter(|_| is_its);
        let key = key.ok_or(DropReason::OtherKey)?;
        let random = self.core.greeting_random(h.session);
        let question = if writer.answers { &random[..] } else { &[] };
        let reader = self.core.cfg.name;
        let loose = Loose { packet: out, writer: writer.name, reader, question };
        if !key.verify(&loose, proof) {
            return Err(DropReason::Forged);
        }
        let header = Header { s_len: h.s_len - TRAILER_BYTES as u16, ..*h };
        Ok(Packet { header, key: used, datagram: Datagram::Whole(out) })
    }

    /// The process that must have written a packet outside a session.
    fn writer(&self, h: &Header, packet: &[u8]) -> Result<Writer, DropReason> {
        if h.kind == PacketKind::Hello {
            let at = packet.len().checked_sub(NAME_BYTES).ok_or(DropReason::Malformed)?;
            let name = Reader::new(&packet[at..]).name().map_err(|_| DropReason::Malformed)?;
            return Ok(Writer { name, key: None, answers: false });
        }
        let by_session = self.session_peer(h.session);
        let index = by_session.or_else(|_| self.asker_peer(h.session))?;
        let peer = &self.peers[index as usize];
        Ok(Writer { name: peer.name, key: Some(peer.id.key), answers: by_session.is_ok() })
    }

    fn open_of_session<'a>(
        &mut self,
        now: Nanos,
        h: &Header,
        bytes: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> Opened<'a> {
        let index = self.session_peer(h.session);
        if let Ok(index) = index {
            let peer = &mut self.peers[index as usize];
            if let Some(proofs) = &mut peer.proofs {
                if !h.kind.is_answered_unproven() {
                    let packet = proofs.open(&self.core.cfg.keys, bytes, out)?;
                    peer.stays_awake(now);
                    return Ok(Packet::whole(h, packet));
                }
                let packet = proofs.open(&self.core.cfg.keys, bytes, &mut Vec::new())?.len();
                peer.stays_awake(now);
                return Ok(Packet::whole(h, without_checksum(&bytes[..packet], out)));
            }
        }
        // Of a session that is not known, or not open: at most an answer or a hello follows from it.
        match (index, h.kind) {
            // A confirmation of a session to come would be a proof of what has not happened.
            (Ok(_), PacketKind::Goodbye) => Err(DropReason::WrongState),
            (Ok(_), _) | (Err(_), PacketKind::Probe | PacketKind::Goodbye) => {
                let end = bytes.len().checked_sub(TRAILER_BYTES).ok_or(DropReason::Malformed)?;
                let packet = &bytes[..end];
                if h.kind.is_answered_unproven() && !checksum_ok(packet, self.core.cfg.crc32c) {
                    return Err(DropReason::HeaderChecksum);
                }
                Ok(Packet::whole(h, without_checksum(packet, out)))
            }
            (Err(reason), _) => Err(reason),
        }
    }

    /// An address of this name that the host admits.
    fn admitted<H: Host>(&self, name: SocketAddr, host: &mut H) -> Option<PeerAddress> {
        let mut all = self.core.cfg.keys.places().map(|key| PeerAddress { name, key });
        all.find(|address| host.admits(*address))
    }

    /// What a hello of this version that was not understood says of its writer's key. `None` if keys are not the reason.
    fn mismatch(&self, version: u8) -> Option<KeyMismatch> {
        match (self.core.is_keyed(), version) {
            (true, VERSION) => Some(KeyMismatch::PeerHasNone),
            (true, KEYED_VERSION) => Some(KeyMismatch::PeerHasAnother),
            (false, KEYED_VERSION) => Some(KeyMismatch::PeerHasOne),
            _ => None,
        }
    }

    /// Answers a hello that cannot be understood here with our version (protocol.md §3.4), and tells the host if that is
    /// because of a key.
    pub(super) fn refuse_hello<H: Host>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        bytes: &[u8],
        host: &mut H,
    ) {
        if !self.closed
            && let Some(ForeignHello { name, session, version }) =
                ForeignHello::parse(bytes, self.core.cfg.crc32c)
            && let Some(to) = self.admitted(name, host)
        {
            if let Some(why) = self.mismatch(version) {
                host.refused(now, name, from, why);
            }
            let kind = PacketKind::Version;
            // Nothing proves it.
            let (to, key) = (to.name, KeyRef { at: to.key, ..KeyRef::default() });
            let reply = Reply { to, key, kind, session, word: version.into(), question: None };
            self.replies.push(&mut self.core, now, from, reply);
        }
    }
}
