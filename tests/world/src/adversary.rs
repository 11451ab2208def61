//! An adversary on the wire, without the job's key: it sees every datagram, and adds its own (protocol.md §8, §11).

use super::net::{Datagram, header};
use super::rng::Rng;
use erd_rd::Nanos;
use erd_rd::keys::TRAILER_BYTES;
use erd_rd::wire::header::{HEADER_BYTES, Header, KEYED_VERSION, PacketKind, VERSION, seal};
use erd_rd::wire::setup::VersionNotice;

/// Most datagrams of sessions that it remembers, and most of set-ups.
const SEEN_MAX: usize = 128;
/// Kinds of packets.
const KINDS: u64 = 12;

/// See the module.
#[derive(Debug)]
pub struct Adversary {
    rng: Rng,
    nodes: u64,
    /// Any of all that it has seen, late ones more likely.
    seen: Vec<Datagram>,
    /// The same, outside sessions.
    loose: Vec<Datagram>,
}

impl Adversary {
    /// One in a network of `nodes` nodes.
    pub fn new(nodes: usize, rng: Rng) -> Adversary {
        Adversary { rng, nodes: nodes as u64, seen: Vec::new(), loose: Vec::new() }
    }

    /// Takes a look at a datagram.
    pub fn see(&mut self, datagram: &Datagram) {
        let seen = Datagram { info_path: false, ..datagram.clone() };
        let is_loose = header(&seen.bytes).is_some_and(|h| {
            matches!(
                h.kind,
                PacketKind::Hello
                    | PacketKind::Challenge
                    | PacketKind::Welcome
                    | PacketKind::Reset
                    | PacketKind::GoodbyeAck
            )
        });
        let list = if is_loose { &mut self.loose } else { &mut self.seen };
        if list.len() < SEEN_MAX {
            list.push(seen);
        } else {
            let at = self.rng.below(SEEN_MAX as u64) as usize;
            list[at] = seen;
        }
    }

    /// With probability `hostile`, a datagram that it adds, and how much later, at most `late_ns`. Its draws are its own,
    /// so that the rest of a run is the same with and without it.
    pub fn strike(
        &mut self,
        hostile: f64,
        blind: bool,
        late_ns: Nanos,
    ) -> Option<(Datagram, Nanos)> {
        if !self.rng.chance(hostile) {
            return None;
        }
        let forged = self.forge(blind)?;
        Some((forged, self.rng.log_range(1, late_ns.max(2))))
    }

    /// Makes a datagram of what it has seen; `None` before it has seen any. With `blind` it knows nothing that is drawn
    /// at random, and no clock.
    pub fn forge(&mut self, blind: bool) -> Option<Datagram> {
        let mut forged = self.any()?;
        if blind {
            self.guess(&mut forged.bytes);
            return Some(forged);
        }
        let other = self.any()?;
        match self.rng.below(11) {
            // As it was.
            0 => {}
            1 => self.flip(&mut forged.bytes),
            2 => self.resize(&mut forged.bytes),
            3 => forged.to = self.rng.below(self.nodes) as usize,
            4 => (forged.from, forged.to) = (forged.to, forged.from),
            5 => splice(&mut forged.bytes, &other.bytes),
            6 => self.count_on(&mut forged.bytes),
            7 => copy(&mut forged.bytes, &other.bytes, 16..24),
            8 => self.rename(&mut forged.bytes),
            9 => self.lie(&mut forged),
            _ => downgrade(&mut forged.bytes),
        }
        Some(forged)
    }

    fn any(&mut self) -> Option<Datagram> {
        let loose = self.seen.is_empty() || self.rng.chance(0.3) && !self.loose.is_empty();
        let list = if loose { &self.loose } else { &self.seen };
        let at = self.rng.below(list.len() as u64) as usize;
        list.get(at).cloned()
    }

    /// Guesses what is secret: session ids beside the place in a table, asker ids, cookies.
    fn guess(&mut self, bytes: &mut [u8]) {
        let Some(h) = header(bytes) else { return };
        // The first five bytes of each id are random, and eight of a cookie.
        let secrets: &[(usize, usize)] = match h.kind {
            PacketKind::Hello | PacketKind::Welcome => &[(16, 5), (36, 5), (44, 5), (98, 8)],
            PacketKind::Probe | PacketKind::Goodbye => &[(16, 5), (32, 5)],
            PacketKind::Reset | PacketKind::GoodbyeAck | PacketKind::Challenge => {
                &[(16, 5), (32, 8)]
            }
            _ => &[(16, 5)],
        };
        for (at, len) in secrets {
            if let Some(secret) = bytes.get_mut(*at..at + len) {
                secret.fill_with(|| self.rng.bits() as u8);
            }
        }
        seal(bytes, 0, crc32c::crc32c_append);
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        for _ in 0..self.rng.range(1, 8) {
            let bit = self.rng.below(bytes.len() as u64 * 8);
            if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    fn resize(&mut self, bytes: &mut Vec<u8>) {
        let len = bytes.len() as u64;
        let new =
            if self.rng.chance(0.5) { self.rng.below(len) } else { len + self.rng.range(1, 64) };
        bytes.resize(new as usize, 0);
    }

    /// Another counter, near the one seen or anywhere.
    fn count_on(&mut self, bytes: &mut [u8]) {
        let Some(at) = bytes.len().checked_sub(TRAILER_BYTES) else { return };
        let Some((counter, _)) = bytes[at..].split_first_chunk_mut::<8>() else { return };
        let most = u64::MAX >> self.rng.below(60);
        let more = self.rng.log_range(1, most);
        *counter = u64::from_be_bytes(*counter).wrapping_add(more).to_be_bytes();
    }

    /// Another kind, with a right checksum, in either version.
    fn rename(&mut self, bytes: &mut [u8]) {
        if bytes.len() < HEADER_BYTES {
            return;
        }
        let version = self.rng.pick(&[VERSION, KEYED_VERSION]);
        bytes[0] = (version << 4) | self.rng.below(KINDS) as u8;
        seal(bytes, 0, crc32c::crc32c_append);
    }

    /// A notice that the packet's reader speaks another version, or has another key, or none.
    fn lie(&mut self, forged: &mut Datagram) {
        let bytes = &mut forged.bytes;
        let Ok(h) = Header::parse_of(KEYED_VERSION, bytes) else { return };
        if h.session == 0 {
            // An answer to a hello.
            (forged.from, forged.to) = (forged.to, forged.from);
        }
        // A greeting names its writer's session after its features.
        let told = bytes.get(HEADER_BYTES + 4..HEADER_BYTES + 12);
        let told = told.and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
        let session = if h.session == 0 { told.unwrap_or(0) } else { h.session };
        let notice = VersionNotice {
            spoken: self.rng.below(8) as u8,
            refused: self.rng.pick(&[VERSION, KEYED_VERSION]),
        };
        bytes.clear();
        Header { s_len: 8, ..Header::new(PacketKind::Version, session) }.emit(bytes);
        notice.emit(bytes);
        seal(bytes, 0, crc32c::crc32c_append);
    }
}

/// The header of one packet, and the rest of another.
fn splice(bytes: &mut Vec<u8>, other: &[u8]) {
    let Some(rest) = other.get(HEADER_BYTES..) else { return };
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(rest);
}

fn copy(bytes: &mut [u8], other: &[u8], range: std::ops::Range<usize>) {
    if let (Some(to), Some(from)) = (bytes.get_mut(range.clone()), other.get(range)) {
        to.copy_from_slice(from);
    }
}

/// The same packet of the version without keys.
fn downgrade(bytes: &mut Vec<u8>) {
    if bytes.len() < HEADER_BYTES + TRAILER_BYTES {
        return;
    }
    bytes.truncate(bytes.len() - TRAILER_BYTES);
    bytes[0] = (bytes[0] & 0x8f) | (VERSION << 4);
    seal(bytes, 0, crc32c::crc32c_append);
}
