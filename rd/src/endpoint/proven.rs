//! Packets of an endpoint with a key (protocol.md §11): nothing of them counts before their proof is right.

use super::Endpoint;
use super::replies::Reply;
use crate::arrival::{Datagram, RxMeta};
use crate::host::Host;
use crate::keys::{Loose, TRAILER_BYTES};
use crate::peer::unprove;
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::header::{HEADER_BYTES, Header, PacketKind, checksum_ok, clear_checksum};
use crate::wire::setup::ForeignHello;
use crate::wire::{NAME_BYTES, Reader};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Longest packet outside a session: a greeting with its proof has less.
const LOOSE_BYTES_MAX: usize = 256;

/// A packet without its proof, and its header.
type Opened<'a> = Result<(Header, &'a [u8]), DropReason>;

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
        let taken = opened
            .and_then(|(h, packet)| self.take_packet(now, meta, &h, Datagram::Whole(packet), host));
        self.core.opened = out;
        taken
    }

    /// A notice of whoever has no key, or another: it is no more than a hint.
    fn open_notice<'a>(&self, h: &Header, bytes: &[u8], out: &'a mut Vec<u8>) -> Opened<'a> {
        if !checksum_ok(bytes, self.core.cfg.crc32c) {
            return Err(DropReason::HeaderChecksum);
        }
        Ok((*h, without_checksum(bytes, out)))
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
        let key = self.core.keys().ok_or(DropReason::WrongState)?;
        if id != key.id() {
            self.refuse_hello(now, meta.from, bytes, host);
            return Err(DropReason::OtherKey);
        }
        let (writer, answers) = self.writer(h, out)?;
        let random = self.core.greeting_random(h.session);
        let question = if answers { &random[..] } else { &[] };
        let loose = Loose { packet: out, writer, reader: self.core.cfg.name, question };
        if !key.verify(&loose, proof) {
            return Err(DropReason::Forged);
        }
        Ok((Header { s_len: h.s_len - TRAILER_BYTES as u16, ..*h }, &out[..]))
    }

    /// The name of the process that must have written a packet outside a session, and whether it answers a greeting of
    /// ours.
    fn writer(&self, h: &Header, packet: &[u8]) -> Result<(SocketAddr, bool), DropReason> {
        if h.kind == PacketKind::Hello {
            let at = packet.len().checked_sub(NAME_BYTES).ok_or(DropReason::Malformed)?;
            let name = Reader::new(&packet[at..]).name().map_err(|_| DropReason::Malformed)?;
            return Ok((name, false));
        }
        let by_session = self.session_peer(h.session);
        let index = by_session.or_else(|_| self.asker_peer(h.session))?;
        Ok((self.peers[index as usize].name, by_session.is_ok()))
    }

    fn open_of_session<'a>(
        &mut self,
        now: Nanos,
        h: &Header,
        bytes: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> Opened<'a> {
        let index = self.session_peer(h.session);
        if let (Ok(index), Some(key)) = (index, self.core.cfg.keys.as_deref()) {
            let peer = &mut self.peers[index as usize];
            if let Some(proofs) = &mut peer.proofs {
                if !h.kind.is_answered_unproven() {
                    let packet = proofs.open(key, bytes, out)?;
                    peer.stays_awake(now);
                    return Ok((*h, packet));
                }
                let packet = proofs.open(key, bytes, &mut Vec::new())?.len();
                peer.stays_awake(now);
                return Ok((*h, without_checksum(&bytes[..packet], out)));
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
                Ok((*h, without_checksum(packet, out)))
            }
            (Err(reason), _) => Err(reason),
        }
    }

    /// Answers a hello that cannot be understood here with our version (protocol.md §3.4).
    pub(super) fn refuse_hello<H: Host>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        bytes: &[u8],
        host: &mut H,
    ) {
        if !self.closed
            && let Some(hello) = ForeignHello::parse(bytes, self.core.cfg.crc32c)
            && host.admits(hello.name)
        {
            let ForeignHello { name: to, session, version } = hello;
            let kind = PacketKind::Version;
            let reply = Reply { to, kind, session, word: version.into(), question: None };
            self.replies.push(&mut self.core, now, from, reply);
        }
    }
}
