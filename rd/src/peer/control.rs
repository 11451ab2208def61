//! Writing of control packets.

use super::proofs::Proofs;
use super::shared::Core;
use crate::keys::{KEY_ID_BYTES, KeyRef, Keys, Loose, TRAILER_BYTES};
use crate::transmit::TxBurst;
use crate::wire::NAME_BYTES;
use crate::wire::header::{
    HEADER_BYTES, Header, KEYED_VERSION, PacketKind, clear_checksum, seal, set_version,
};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// How a packet is proven, if the endpoint has a key (protocol.md §11).
pub(crate) enum Proof<'a> {
    /// By the session that it belongs to.
    Session(Option<&'a mut Proofs>),
    /// By a key of a job.
    Loose {
        /// The key.
        key: KeyRef,
        /// The name of the process that it is for.
        reader: SocketAddr,
        /// The random bytes of the greeting that it answers; empty for a question.
        question: &'a [u8],
    },
    /// Not at all: whoever reads it has no key, or another one.
    None,
}

/// Writes one control datagram: header, body, checksum over both, or a proof.
pub(crate) fn emit_control(
    core: &mut Core,
    burst: &mut TxBurst,
    mut header: Header,
    proof: Proof<'_>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    burst.kind = header.kind;
    let start = burst.bytes.len();
    header.emit(&mut burst.bytes);
    body(&mut burst.bytes);
    header.s_len = (burst.bytes.len() - start - HEADER_BYTES) as u16;
    set_length(&mut burst.bytes[start..], header.s_len);
    match proof {
        Proof::Session(Some(proofs)) => {
            if header.kind.is_answered_unproven() {
                set_version(&mut burst.bytes[start], KEYED_VERSION);
                seal(&mut burst.bytes, start, core.cfg.crc32c);
            }
            proofs.seal(&core.cfg.keys, &mut burst.bytes, start);
        }
        Proof::Loose { key, reader, question } if core.is_keyed() => {
            // A key that has gone meanwhile proves nothing; its reader will not understand, and ask again.
            let keys = &core.cfg.keys;
            let key = keys.of(key).or_else(|| keys.get(key.at));
            let key = key.expect("a peer's key is one of the endpoint's");
            let (kind, bytes) = (burst.kind, &mut burst.bytes);
            let loose = Unproven { kind, start, writer: core.cfg.name, reader, question };
            loose.prove(key, bytes);
            seal(bytes, start, core.cfg.crc32c);
        }
        Proof::Session(None) if core.is_keyed() => {
            unreachable!("a session has keys while it may be used")
        }
        Proof::Session(None) | Proof::Loose { .. } | Proof::None => {
            seal(&mut burst.bytes, start, core.cfg.crc32c)
        }
    }
    let len = burst.bytes.len() - start;
    burst.push_inline(start);
    burst.end_datagram(len as u32);
    core.stats.tx_control += 1;
}

fn set_length(packet: &mut [u8], s_len: u16) {
    packet[4..6].copy_from_slice(&s_len.to_be_bytes());
}

/// Place of the proof in a packet outside a session: at its end, but before the name that ends a hello, where all
/// versions look for it.
pub(crate) fn proof_at(kind: PacketKind, unproven_bytes: usize) -> Option<usize> {
    match kind {
        PacketKind::Hello => unproven_bytes.checked_sub(NAME_BYTES),
        _ => Some(unproven_bytes),
    }
}

/// A packet outside a session, still without its proof.
struct Unproven<'a> {
    kind: PacketKind,
    start: usize,
    writer: SocketAddr,
    reader: SocketAddr,
    question: &'a [u8],
}

impl Unproven<'_> {
    /// Puts the key's id and a proof into the packet. Its checksum will cover them, for readers without a key.
    fn prove(&self, key: &dyn Keys, bytes: &mut Vec<u8>) {
        let packet = &mut bytes[self.start..];
        set_version(&mut packet[0], KEYED_VERSION);
        let (writer, reader, question) = (self.writer, self.reader, self.question);
        let proof = key.prove(&Loose { packet, writer, reader, question });
        let at = proof_at(self.kind, packet.len()).expect("a hello ends with a name");
        let whole = (packet.len() - HEADER_BYTES + TRAILER_BYTES) as u16;
        let at = self.start + at;
        bytes.splice(at..at, key.id().into_iter().chain(proof));
        set_length(&mut bytes[self.start..], whole);
    }
}

/// Takes the key's id and the proof out of a packet outside a session, and leaves it in `out` as it was proven. `None`
/// if it has no room for them.
pub(crate) fn unprove<'a>(
    h: &Header,
    bytes: &'a [u8],
    out: &mut Vec<u8>,
) -> Option<(&'a [u8], &'a [u8])> {
    let unproven_bytes = bytes.len().checked_sub(TRAILER_BYTES)?;
    let s_len = h.s_len.checked_sub(TRAILER_BYTES as u16)?;
    let at = proof_at(h.kind, unproven_bytes).filter(|at| *at >= HEADER_BYTES)?;
    let (trailer, end) = bytes[at..].split_at(TRAILER_BYTES);
    out.clear();
    out.extend_from_slice(&bytes[..at]);
    out.extend_from_slice(end);
    clear_checksum(out);
    set_length(out, s_len);
    Some(trailer.split_at(KEY_ID_BYTES))
}
