//! A key without secrets, so that a liar of the same job can seal whatever it likes (protocol.md §11). The world's fuzz
//! targets use it too.

use erd_rd::keys::{Cipher, KEY_ID_BYTES, KeyId, Keys, Loose, PROOF_BYTES, Secret, TRAILER_BYTES};
use erd_rd::wire::header::{HEADER_BYTES, PacketKind, seal};
use erd_rd::wire::{NAME_BYTES, Reader};
use std::net::SocketAddr;

/// See the module. Its proofs are checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Toy {
    /// Each byte of its id.
    pub id: u8,
    /// Whether it hides payload.
    pub hides: bool,
}

impl Toy {
    /// The id of the key.
    pub fn id(self) -> KeyId {
        [self.id; KEY_ID_BYTES]
    }
}

fn proof(of: &[&[u8]]) -> [u8; PROOF_BYTES] {
    let sum = of.iter().fold(0, |sum, part| {
        crc32c::crc32c_append(crc32c::crc32c_append(sum, &part.len().to_be_bytes()), part)
    });
    std::array::from_fn(|at| sum.to_be_bytes()[at % 4])
}

impl Keys for Toy {
    fn id(&self) -> KeyId {
        Toy::id(*self)
    }
    fn hides(&self) -> bool {
        self.hides
    }
    fn prove(&self, loose: &Loose<'_>) -> [u8; PROOF_BYTES] {
        proof(&[&[self.id], loose.packet, &loose.context()])
    }
    fn verify(&self, loose: &Loose<'_>, proof: &[u8]) -> bool {
        Keys::prove(self, loose) == proof
    }
    fn session(&self, _: &[u8], _: &[u8]) -> (Secret, Secret) {
        (Secret([self.id; 32]), Secret([self.id; 32]))
    }
    fn next(&self, secret: &Secret) -> Secret {
        secret.clone()
    }
    fn cipher(&self, _: &Secret) -> Box<dyn Cipher> {
        Box::new(*self)
    }
    fn renewed(&self, secret: &Secret) -> Secret {
        secret.clone()
    }
}

impl Cipher for Toy {
    fn prove(&self, counter: u64, head: &[u8], rest: &[u8]) -> [u8; PROOF_BYTES] {
        proof(&[&[self.id], &counter.to_be_bytes(), head, rest])
    }
    fn verify(&self, counter: u64, head: &[u8], rest: &[u8], proof: &[u8]) -> bool {
        Cipher::prove(self, counter, head, rest) == proof
    }
    fn hide(&self, counter: u64, head: &[u8], rest: &mut [u8]) -> [u8; PROOF_BYTES] {
        let proof = Cipher::prove(self, counter, head, rest);
        rest.iter_mut().for_each(|byte| *byte ^= 0xa5);
        proof
    }
    fn open(&self, counter: u64, head: &[u8], hidden: &[u8], proof: &[u8], out: &mut [u8]) -> bool {
        out.iter_mut().zip(hidden).for_each(|(byte, hidden)| *byte = hidden ^ 0xa5);
        Cipher::verify(self, counter, head, out, proof)
    }
}

/// Of a packet outside a session, what is not in it.
pub struct Said<'a> {
    /// Who wrote it; a hello names its writer itself.
    pub writer: SocketAddr,
    /// Who reads it.
    pub reader: SocketAddr,
    /// The random bytes of the greeting that it answers; empty for a question.
    pub question: &'a [u8],
}

/// Whether a packet's first byte names one of these kinds.
pub fn is_kind(bytes: &[u8], kinds: &[PacketKind]) -> bool {
    kinds.iter().any(|kind| bytes.first().is_some_and(|first| first & 15 == *kind as u8))
}

/// Kinds of packets outside a session.
const LOOSE: [PacketKind; 5] = [
    PacketKind::Hello,
    PacketKind::Challenge,
    PacketKind::Welcome,
    PacketKind::Reset,
    PacketKind::GoodbyeAck,
];

/// Puts the right checksum into a packet for a reader with a key, which asks for one in few packets of a session.
pub fn set_checksum(bytes: &mut [u8]) {
    const WITHOUT: [PacketKind; 4] =
        [PacketKind::Data, PacketKind::Ack, PacketKind::SizeProbe, PacketKind::SizeAnswer];
    if is_kind(bytes, &WITHOUT) {
        bytes[HEADER_BYTES - 4..HEADER_BYTES].fill(0);
    } else if bytes.len() >= HEADER_BYTES {
        seal(bytes, 0, crc32c::crc32c_append);
    }
}

impl Toy {
    /// The packet with its proof, and with a checksum that covers both where its kind has none else.
    pub fn sealed(self, counter: u64, plain: &[u8], said: &Said<'_>) -> Vec<u8> {
        let mut bytes = plain.to_vec();
        if bytes.len() < HEADER_BYTES || is_kind(plain, &[PacketKind::Version]) {
            return bytes;
        }
        if is_kind(plain, &LOOSE) {
            self.prove_loose(&mut bytes, said);
            return bytes;
        }
        let is_hidden = self.may_hide(plain);
        let (head, rest) = bytes.split_at_mut(HEADER_BYTES);
        let proof = match is_hidden {
            true => self.hide(counter, head, rest),
            false => Cipher::prove(&self, counter, head, rest),
        };
        bytes.extend(counter.to_be_bytes().into_iter().chain(proof));
        bytes
    }

    fn may_hide(self, packet: &[u8]) -> bool {
        self.hides && !is_kind(packet, &[PacketKind::Probe, PacketKind::Goodbye])
    }

    /// The packet of a proven one, to be changed and sealed again, and its counter if it is one of a session.
    pub fn unsealed(self, bytes: &[u8]) -> Option<(Vec<u8>, u64)> {
        let end = bytes.len().checked_sub(TRAILER_BYTES).filter(|end| *end >= HEADER_BYTES)?;
        if is_kind(bytes, &LOOSE) {
            let is_hello = is_kind(bytes, &[PacketKind::Hello]);
            let at = if is_hello { end.checked_sub(NAME_BYTES)? } else { end };
            let mut plain = bytes.to_vec();
            plain.drain(at..at + TRAILER_BYTES);
            let told = u16::from_be_bytes([plain[4], plain[5]]).wrapping_sub(TRAILER_BYTES as u16);
            plain[4..6].copy_from_slice(&told.to_be_bytes());
            return Some((plain, 0));
        }
        let mut plain = bytes[..end].to_vec();
        if self.may_hide(bytes) {
            plain[HEADER_BYTES..].iter_mut().for_each(|byte| *byte ^= 0xa5);
        }
        let counter = bytes[end..].first_chunk().map(|counter| u64::from_be_bytes(*counter))?;
        Some((plain, counter))
    }

    fn prove_loose(self, bytes: &mut Vec<u8>, said: &Said<'_>) {
        bytes[HEADER_BYTES - 4..HEADER_BYTES].fill(0);
        let mut at = bytes.len();
        let mut writer = said.writer;
        if is_kind(bytes, &[PacketKind::Hello]) && at >= HEADER_BYTES + NAME_BYTES {
            at -= NAME_BYTES;
            // Who says hello proves its own name, whatever that is.
            writer = Reader::new(&bytes[at..]).name().unwrap_or(writer);
        }
        let (reader, question) = (said.reader, said.question);
        let proof = Keys::prove(&self, &Loose { packet: bytes, writer, reader, question });
        bytes.splice(at..at, Toy::id(self).into_iter().chain(proof));
        let told = u16::from_be_bytes([bytes[4], bytes[5]]).wrapping_add(TRAILER_BYTES as u16);
        bytes[4..6].copy_from_slice(&told.to_be_bytes());
        seal(bytes, 0, crc32c::crc32c_append);
    }
}
