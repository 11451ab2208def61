//! "Port datagrams": peers exchange them over UDP, then over verbs, before they use verbs (`docs/protocol.md`, section
//! 10). The engine never sees them.

use crate::verbs::QPS_MAX;
use crate::verbs::gid::Gid;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of a port datagram.
pub const DATAGRAM_BYTES: usize = 104;
/// First byte of a port datagram: the protocol's version, and a kind that the engine does not have.
pub const MARK: u8 = 0x2f;
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

impl PortDatagram {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; DATAGRAM_BYTES] {
        let mut out = [0; DATAGRAM_BYTES];
        let address = &self.address;
        (out[0], out[1]) = (MARK, self.kind as u8);
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
        bytes.first() == Some(&MARK)
    }

    /// Reads one; `None` if it is malformed or damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<PortDatagram> {
        let bytes: &[u8; DATAGRAM_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[0] != MARK || word(CRC_AT) != crc32c::crc32c(&bytes[..CRC_AT]) {
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
fn put_name(out: &mut [u8], name: SocketAddr) {
    out[2..4].copy_from_slice(&name.port().to_be_bytes());
    match name {
        SocketAddr::V4(v4) => {
            out[0] = 4;
            out[8..12].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            out[0] = 6;
            out[4..8].copy_from_slice(&v6.scope_id().to_be_bytes());
            out[8..24].copy_from_slice(&v6.ip().octets());
        }
    }
}

fn read_name(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match bytes[0] {
        4 => {
            let ip: [u8; 4] = bytes[8..12].try_into().ok()?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port))
        }
        6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().ok()?;
            let scope = u32::from_be_bytes(bytes[4..8].try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

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
}
