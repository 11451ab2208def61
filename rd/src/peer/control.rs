//! Writing of control packets.

use super::proofs::Proofs;
use super::shared::Core;
use crate::keys::{Loose, TRAILER_BYTES};
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
    /// By the key of the job.
    Loose {
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
    match (proof, core.keys()) {
        (Proof::Session(Some(proofs)), Some(key)) => {
            if header.kind.is_answered_unproven() {
                set_version(&mut burst.bytes[start], KEYED_VERSION);
                seal(&mut burst.bytes, start, core.cfg.crc32c);
            }
            proofs.seal(key, &mut burst.bytes, start);
        }
        (Proof::Loose { reader, question }, Some(_)) => {
            prove(core, burst, start, reader, question);
        }
        (Proof::Session(None), Some(_)) => unreachable!("a session has keys while it may be used"),
        _ => seal(&mut burst.bytes, start, core.cfg.crc32c),
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

/// Puts the key's id and a proof into a packet outside a session. Its checksum covers them, for readers without a key.
fn prove(core: &Core, burst: &mut TxBurst, start: usize, reader: SocketAddr, question: &[u8]) {
    let Some(key) = core.keys() else { return };
    let (kind, bytes) = (burst.kind, &mut burst.bytes);
    let packet = &mut bytes[start..];
    set_version(&mut packet[0], KEYED_VERSION);
    let loose = Loose { packet, writer: core.cfg.name, reader, question };
    let proof = key.prove(&loose);
    let at = start + proof_at(kind, packet.len()).expect("a hello ends with a name");
    let whole = (bytes.len() - start - HEADER_BYTES + TRAILER_BYTES) as u16;
    bytes.splice(at..at, key.id().into_iter().chain(proof));
    set_length(&mut bytes[start..], whole);
    seal(bytes, start, core.cfg.crc32c);
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
    Some(trailer.split_at(8))
}
