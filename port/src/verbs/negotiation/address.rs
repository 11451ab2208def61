//! "Port datagrams": peers exchange them over UDP, then over verbs, before they use verbs (`docs/protocol.md`, section
//! 10). The engine never sees them.

use crate::names::{put_name, read_name};
use crate::verbs::QPS_MAX;
use crate::verbs::gid::Gid;
use std::net::SocketAddr;

/// Bytes of a port datagram without a key.
pub const DATAGRAM_BYTES: usize = 104;
/// Bytes of a key's id.
pub const KEY_ID_BYTES: usize = 8;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 16;
/// Bytes of a port datagram that a key proves.
pub const PROVEN_BYTES: usize = DATAGRAM_BYTES + KEY_ID_BYTES + PROOF_BYTES;
/// First byte of a port datagram without a key: the protocol's version, and a kind that the engine does not have.
pub const MARK: u8 = 0x2f;
/// The same with a key. No packet of the engine begins so, and none without a key: a proof of one is none of the other.
pub const PROVEN_MARK: u8 = 0x3f;
/// Offsets of the cookie, the name and the checksum.
const COOKIE_AT: usize = 72;
const NAME_AT: usize = 76;
const CRC_AT: usize = 100;

/// The verbs address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The port's GID.
    pub gid: Gid,
    /// Its local identifier on InfiniBand, else 0.
    pub lid: u16,
    /// The queue pair that receives.
    pub qpn: u32,
    /// Its key.
    pub qkey: u32,
    /// The endpoint's id within its domain: the immediate data of each datagram.
    pub tag: u32,
    /// Largest datagram that it takes, in bytes.
    pub mtu_bytes: u16,
    /// Queue pairs that send; 0 after the last.
    pub senders: [u32; QPS_MAX - 1],
}

impl Address {
    /// Address of an endpoint without verbs.
    pub const NONE: Address = Address {
        gid: Gid([0; 16]),
        lid: 0,
        qpn: 0,
        qkey: 0,
        tag: 0,
        mtu_bytes: 0,
        senders: [0; QPS_MAX - 1],
    };

    /// True if the peer has verbs.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.qpn != 0
    }

    /// True if an endpoint of this name can have the address, on the network of `own`: on InfiniBand it has a LID. On
    /// Ethernet it has none, and its GID is the name's IP address.
    #[must_use]
    pub fn fits(&self, name: SocketAddr, own: &Address) -> bool {
        match (own.lid, self.lid) {
            (0, 0) => self.gid.ip() == name.ip().to_canonical(),
            (own, theirs) => own != 0 && theirs != 0,
        }
    }
}

/// Purpose of a port datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Over UDP: what is your address? Here is mine.
    Ask = 1,
    /// Over UDP, to the name in the question.
    Answer = 2,
    /// Over verbs: do you hear me?
    Check = 3,
    /// Over verbs: I do.
    Confirm = 4,
}

/// A port datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortDatagram {
    /// Its purpose.
    pub kind: Kind,
    /// Random number of a question or check, repeated in its answer.
    pub nonce: u64,
    /// The writer's address.
    pub address: Address,
    /// Comes with an answer and returns in a check, which proves that its writer receives at its name; else 0.
    pub cookie: u32,
    /// The writer's name.
    pub name: SocketAddr,
}

/// A port datagram with a key, before its proof is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed<'a> {
    /// What it says.
    pub datagram: PortDatagram,
    /// The bytes that the proof covers.
    pub covered: &'a [u8],
    /// The id of the key that it names.
    pub key_id: [u8; KEY_ID_BYTES],
    /// The proof.
    pub proof: &'a [u8],
}

impl PortDatagram {
    /// Its bytes without a key.
    #[must_use]
    pub fn encode(&self) -> [u8; DATAGRAM_BYTES] {
        self.encode_as(MARK)
    }

    /// Its bytes with a key of this id. `prove` makes the proof of what comes before the id.
    #[must_use]
    pub fn encode_proven(
        &self,
        key_id: [u8; KEY_ID_BYTES],
        prove: impl FnOnce(&[u8]) -> [u8; PROOF_BYTES],
    ) -> [u8; PROVEN_BYTES] {
        let covered = self.encode_as(PROVEN_MARK);
        let mut out = [0; PROVEN_BYTES];
        out[..DATAGRAM_BYTES].copy_from_slice(&covered);
        let (id, proof) = out[DATAGRAM_BYTES..].split_at_mut(KEY_ID_BYTES);
        id.copy_from_slice(&key_id);
        proof.copy_from_slice(&prove(&covered));
        out
    }

    fn encode_as(&self, mark: u8) -> [u8; DATAGRAM_BYTES] {
        let mut out = [0; DATAGRAM_BYTES];
        let address = &self.address;
        (out[0], out[1]) = (mark, self.kind as u8);
        out[4..6].copy_from_slice(&address.mtu_bytes.to_be_bytes());
        out[6..8].copy_from_slice(&address.lid.to_be_bytes());
        out[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        out[16..32].copy_from_slice(&address.gid.0);
        out[32..36].copy_from_slice(&address.tag.to_be_bytes());
        out[36..40].copy_from_slice(&address.qkey.to_be_bytes());
        out[40..44].copy_from_slice(&address.qpn.to_be_bytes());
        for (to, qpn) in out[44..72].chunks_exact_mut(4).zip(address.senders) {
            to.copy_from_slice(&qpn.to_be_bytes());
        }
        out[COOKIE_AT..NAME_AT].copy_from_slice(&self.cookie.to_be_bytes());
        put_name(&mut out[NAME_AT..CRC_AT], self.name);
        let sum = crc32c::crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// Whether `bytes` are meant as a port datagram: anything else is the engine's.
    #[must_use]
    pub fn claims(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&MARK | &PROVEN_MARK))
    }

    /// Reads one without a key; `None` if it is malformed or damaged, or has a key.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<PortDatagram> {
        PortDatagram::decode_as(MARK, bytes)
    }

    /// Reads one with a key, whose proof is the caller's to check; `None` if it is malformed or damaged, or has no key.
    #[must_use]
    pub fn decode_proven(bytes: &[u8]) -> Option<Claimed<'_>> {
        let (covered, trailer) = bytes.split_at_checked(DATAGRAM_BYTES)?;
        let (key_id, proof) = trailer.split_first_chunk()?;
        if proof.len() != PROOF_BYTES {
            return None;
        }
        let datagram = PortDatagram::decode_as(PROVEN_MARK, covered)?;
        Some(Claimed { datagram, covered, key_id: *key_id, proof })
    }

    fn decode_as(mark: u8, bytes: &[u8]) -> Option<PortDatagram> {
        let bytes: &[u8; DATAGRAM_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[0] != mark || word(CRC_AT) != crc32c::crc32c(&bytes[..CRC_AT]) {
            return None;
        }
        let kind = match bytes[1] {
            1 => Kind::Ask,
            2 => Kind::Answer,
            3 => Kind::Check,
            4 => Kind::Confirm,
            _ => return None,
        };
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..32]);
        let address = Address {
            gid: Gid(gid),
            lid: u16::from_be_bytes([bytes[6], bytes[7]]),
            qpn: word(40),
            qkey: word(36),
            tag: word(32),
            mtu_bytes: u16::from_be_bytes([bytes[4], bytes[5]]),
            senders: std::array::from_fn(|at| word(44 + 4 * at)),
        };
        let nonce = u64::from(word(8)) << 32 | u64::from(word(12));
        let (cookie, name) = (word(COOKIE_AT), read_name(&bytes[NAME_AT..CRC_AT])?);
        Some(PortDatagram { kind, nonce, address, cookie, name })
    }
}

/// Family, 0, port, scope, address, as in the protocol's greetings.
#[cfg(test)]
mod tests {
    use super::*;

    fn example(name: &str) -> PortDatagram {
        PortDatagram {
            kind: Kind::Check,
            nonce: 0x0102_0304_0506_0708,
            address: Address {
                gid: Gid([7; 16]),
                lid: 3,
                qpn: 17,
                qkey: 0x8000_0001,
                tag: 9,
                mtu_bytes: 4096,
                senders: [18, 19, 0, 0, 0, 0, 0],
            },
            cookie: 0x0a0b_0c0d,
            name: name.parse().expect("name"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for name in ["192.0.2.1:7471", "[2001:db8::1%3]:7471"] {
            let datagram = example(name);
            let bytes = datagram.encode();
            assert!(PortDatagram::claims(&bytes));
            assert_eq!(PortDatagram::decode(&bytes), Some(datagram));
        }
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = example("192.0.2.1:1").encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert_eq!(PortDatagram::decode(&damaged), None, "byte {at}");
        }
        assert_eq!(PortDatagram::decode(&bytes[..DATAGRAM_BYTES - 1]), None);
        assert_eq!(PortDatagram::decode(&[]), None);
    }

    /// No proof, but every bit counts.
    fn toy_proof(bytes: &[u8]) -> [u8; PROOF_BYTES] {
        let sum = crc32c::crc32c(bytes).to_be_bytes();
        std::array::from_fn(|at| sum[at % 4])
    }

    #[test]
    fn what_a_key_proves_is_read_with_its_id_and_proof_and_is_no_datagram_without_a_key() {
        for name in ["192.0.2.1:7471", "[2001:db8::1%3]:7471"] {
            let datagram = example(name);
            let bytes = datagram.encode_proven([9; KEY_ID_BYTES], toy_proof);
            assert!(PortDatagram::claims(&bytes));
            let claimed = PortDatagram::decode_proven(&bytes).expect("a datagram with a key");
            assert_eq!((claimed.datagram, claimed.key_id), (datagram, [9; KEY_ID_BYTES]));
            assert_eq!(claimed.covered, &bytes[..DATAGRAM_BYTES]);
            assert_eq!(claimed.proof, toy_proof(claimed.covered));
            assert_eq!(PortDatagram::decode(&bytes), None);
            assert_eq!(PortDatagram::decode(&bytes[..DATAGRAM_BYTES]), None, "its version differs");
            let plain = datagram.encode();
            assert_eq!(PortDatagram::decode_proven(&plain), None);
            let spliced = [&plain[..], &bytes[DATAGRAM_BYTES..]].concat();
            assert_eq!(PortDatagram::decode_proven(&spliced), None);
        }
    }

    #[test]
    fn with_a_key_every_other_length_is_malformed_and_damage_is_noticed() {
        let bytes = example("192.0.2.1:1").encode_proven([9; KEY_ID_BYTES], toy_proof);
        for len in 0..bytes.len() {
            assert_eq!(PortDatagram::decode_proven(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(PortDatagram::decode_proven(&[&bytes[..], &[0]].concat()), None);
        for at in 0..DATAGRAM_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert_eq!(PortDatagram::decode_proven(&damaged), None, "byte {at}");
        }
    }
}
