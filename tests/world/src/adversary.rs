//! An adversary on the wire, without the job's key: it sees every datagram, and adds its own (protocol.md §8, §11).

use super::net::{Datagram, header};
use super::rng::Rng;
use erd_rd::Nanos;
use erd_rd::keys::{PHASE_BITS, PROOF_BYTES, TRAILER_BYTES};
use erd_rd::wire::NAME_BYTES;
use erd_rd::wire::header::{HEADER_BYTES, Header, KEYED_VERSION, PacketKind, VERSION, seal};
use erd_rd::wire::setup::VersionNotice;

/// Most datagrams that it remembers of a kind.
const SEEN_MAX: usize = 32;
/// Kinds of packets.
pub const KINDS: usize = 12;
/// Counters for which a reader's window is exact.
const WINDOW: u64 = 32_768;

/// A field of a packet (protocol.md §2.1, §11.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Field {
    /// Type, version and kind.
    First,
    /// Flags.
    Flags,
    /// Msg_ID.
    MsgId,
    /// S_Len.
    Length,
    /// Path.
    Path,
    /// Attempt.
    Attempt,
    /// S_Offset.
    Offset,
    /// PSN.
    Psn,
    /// Session id.
    Session,
    /// Send time.
    Sent,
    /// Header checksum.
    Checksum,
    /// A byte after the header.
    Body,
    /// The counter, or the key's id.
    Counter,
    /// The proof.
    Proof,
}

impl Field {
    const ALL: [Field; 14] = [
        Field::First,
        Field::Flags,
        Field::MsgId,
        Field::Length,
        Field::Path,
        Field::Attempt,
        Field::Offset,
        Field::Psn,
        Field::Session,
        Field::Sent,
        Field::Checksum,
        Field::Body,
        Field::Counter,
        Field::Proof,
    ];

    /// Where the field begins in a packet with a key, and its length.
    fn place(self, bytes: &[u8], rng: &mut Rng) -> Option<(usize, usize)> {
        let trailer = trailer_at(bytes)?;
        Some(match self {
            Field::First => (0, 1),
            Field::Flags => (1, 1),
            Field::MsgId => (2, 2),
            Field::Length => (4, 2),
            Field::Path => (6, 1),
            Field::Attempt => (7, 1),
            Field::Offset => (8, 4),
            Field::Psn => (12, 4),
            Field::Session => (16, 8),
            Field::Sent => (24, 4),
            Field::Checksum => (28, 4),
            Field::Body if trailer == HEADER_BYTES => return None,
            Field::Body => (rng.range(HEADER_BYTES as u64, trailer as u64 - 1) as usize, 1),
            Field::Counter => (trailer, 8),
            Field::Proof => (trailer + 8, PROOF_BYTES),
        })
    }
}

/// A counter beside those that the reader has taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Older than all that the window knows.
    Behind,
    /// In the window, perhaps one that was lost.
    Within,
    /// Beyond the greatest.
    Ahead,
    /// At the begin of the next phase.
    NextPhase,
    /// Further ahead than any that the window admits.
    Beyond,
}

/// What the adversary does with a datagram that it has seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Trick {
    /// It comes again as it was.
    Replay,
    /// Some bits differ.
    Bits,
    /// A field differs, and nothing else.
    Field(Field),
    /// Its end is missing.
    Shorter,
    /// It has more bytes.
    Longer,
    /// It goes to another process of the job.
    Redirect,
    /// It goes back to its sender.
    Reflect,
    /// It has the header of another.
    Splice,
    /// It has another counter.
    Counter(Place),
    /// It names another session, and goes to that one's reader.
    Session,
    /// It is of a session that has ended; perhaps it names one that stands.
    Old,
    /// It is of another kind.
    Kind,
    /// It names another key.
    OtherKey,
    /// All of it is right and new, except the proof.
    Proof,
    /// A notice that its reader has another version or key.
    Lie,
    /// The same packet of the version without keys.
    Downgrade,
    /// Nothing after the header has a meaning.
    Noise,
}

impl Trick {
    /// All of them.
    pub fn all() -> Vec<Trick> {
        let places = [Place::Behind, Place::Within, Place::Ahead, Place::NextPhase, Place::Beyond];
        let mut all = vec![
            Trick::Replay,
            Trick::Bits,
            Trick::Shorter,
            Trick::Longer,
            Trick::Redirect,
            Trick::Reflect,
            Trick::Splice,
            Trick::Session,
            Trick::Old,
            Trick::Kind,
            Trick::OtherKey,
            Trick::Proof,
            Trick::Lie,
            Trick::Downgrade,
            Trick::Noise,
        ];
        all.extend(Field::ALL.map(Trick::Field));
        all.extend(places.map(Trick::Counter));
        all
    }
}

/// See the module.
#[derive(Debug)]
pub struct Adversary {
    rng: Rng,
    nodes: u64,
    tricks: Vec<Trick>,
    /// Any of all that it has seen of each kind, late ones more likely.
    seen: [Vec<Datagram>; KINDS],
    /// The same, of sessions that have ended.
    old: [Vec<Datagram>; KINDS],
}

impl Adversary {
    /// One in a network of `nodes` nodes.
    pub fn new(nodes: usize, rng: Rng) -> Adversary {
        let (seen, old) = Default::default();
        Adversary { rng, nodes: nodes as u64, tricks: Trick::all(), seen, old }
    }

    /// Takes a look at a datagram.
    pub fn see(&mut self, datagram: &Datagram) {
        let Some(h) = header(&datagram.bytes) else { return };
        let list = &mut self.seen[h.kind as usize];
        let seen = Datagram { info_path: false, ..datagram.clone() };
        if list.len() < SEEN_MAX {
            list.push(seen);
        } else {
            let at = self.rng.below(SEEN_MAX as u64) as usize;
            list[at] = seen;
        }
    }

    /// The sessions of all that it has seen have ended.
    pub fn sessions_ended(&mut self) {
        self.old = std::mem::take(&mut self.seen);
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
    fn forge(&mut self, blind: bool) -> Option<Datagram> {
        if blind {
            let mut forged = self.any()?;
            self.guess(&mut forged.bytes);
            return Some(forged);
        }
        let trick = self.trick();
        self.play(trick)
    }

    /// Any of its tricks.
    pub fn trick(&mut self) -> Trick {
        let at = self.rng.below(self.tricks.len() as u64) as usize;
        self.tricks[at]
    }

    /// Plays this trick on a datagram that it has seen; `None` before it has seen any. Where the format has a checksum,
    /// most forgeries have the right one.
    pub fn play(&mut self, trick: Trick) -> Option<Datagram> {
        let mut forged = self.any()?;
        let other = self.any()?;
        let mut seals = self.rng.chance(0.75);
        match trick {
            Trick::Replay => return Some(forged),
            Trick::Bits => self.flip(&mut forged.bytes),
            Trick::Field(field) => {
                self.change(&mut forged.bytes, field);
                seals &= field != Field::Checksum;
            }
            Trick::Shorter | Trick::Longer => self.resize(&mut forged.bytes, trick),
            Trick::Redirect => {
                forged.to =
                    (forged.to + self.rng.range(1, self.nodes - 1) as usize) % self.nodes as usize;
                return Some(forged);
            }
            Trick::Reflect => {
                (forged.from, forged.to) = (forged.to, forged.from);
                return Some(forged);
            }
            Trick::Splice => splice(&mut forged.bytes, &other.bytes),
            Trick::Counter(place) => self.count(&mut forged.bytes, place),
            Trick::Session => {
                copy(&mut forged.bytes, &other.bytes, 16..24);
                forged.to = other.to;
            }
            Trick::Old => return Some(self.revive(forged)),
            Trick::Kind => self.rename(&mut forged.bytes),
            Trick::OtherKey => self.change(&mut forged.bytes, Field::Counter),
            Trick::Proof => {
                self.count(&mut forged.bytes, Place::Ahead);
                self.change(&mut forged.bytes, Field::Proof);
            }
            Trick::Lie => self.lie(&mut forged),
            Trick::Downgrade => downgrade(&mut forged.bytes),
            Trick::Noise => self.garble(&mut forged.bytes),
        }
        if seals {
            reseal(&mut forged.bytes);
        }
        Some(forged)
    }

    /// Any that it has seen, each kind as likely as the others. Of a kind that no present session has shown it takes an
    /// old one, in the name of a present session.
    fn any(&mut self) -> Option<Datagram> {
        let kinds =
            (0..KINDS).filter(|kind| !self.seen[*kind].is_empty() || !self.old[*kind].is_empty());
        let nth = self.rng.below(kinds.clone().count() as u64) as usize;
        let kind = kinds.clone().nth(nth)?;
        let is_old = self.seen[kind].is_empty();
        let list = if is_old { &self.old[kind] } else { &self.seen[kind] };
        let mut any = list[self.rng.below(list.len() as u64) as usize].clone();
        let present = &self.seen[PacketKind::Data as usize];
        if is_old && !present.is_empty() {
            let present = &present[self.rng.below(present.len() as u64) as usize];
            copy(&mut any.bytes, &present.bytes, 16..24);
            (any.from, any.to) = (present.from, present.to);
            reseal(&mut any.bytes);
        }
        Some(any)
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

    /// Adds anything but zero to a field.
    fn change(&mut self, bytes: &mut [u8], field: Field) {
        let Some((at, len)) = field.place(bytes, &mut self.rng) else { return };
        let (first, most) = (at + len - len.min(8), u64::MAX >> (64 - 8 * len.min(8)));
        let mut wide = [0; 8];
        let value = &mut bytes[first..at + len];
        wide[8 - value.len()..].copy_from_slice(value);
        let changed = u64::from_be_bytes(wide).wrapping_add(self.rng.log_range(1, most));
        value.copy_from_slice(&changed.to_be_bytes()[8 - value.len()..]);
    }

    /// Another length; half of the time S_Len agrees with it.
    fn resize(&mut self, bytes: &mut Vec<u8>, trick: Trick) {
        let len = bytes.len() as u64;
        let new = match trick {
            Trick::Longer => len + self.rng.log_range(1, 2000),
            _ if self.rng.chance(0.5) => len - self.rng.range(1, 64.min(len)),
            _ => self.rng.below(len),
        };
        bytes.resize(new as usize, 0);
        if bytes.len() >= HEADER_BYTES && self.rng.chance(0.5) {
            let s_len = u16::from_be_bytes([bytes[4], bytes[5]]);
            let s_len = s_len.wrapping_add(new as u16).wrapping_sub(len as u16);
            bytes[4..6].copy_from_slice(&s_len.to_be_bytes());
        }
    }

    /// Another counter; in a packet outside a session, another key id.
    fn count(&mut self, bytes: &mut [u8], place: Place) {
        let Some(at) = trailer_at(bytes) else { return };
        let Some((counter, _)) = bytes[at..].split_first_chunk_mut::<8>() else { return };
        let (seen, rng) = (u64::from_be_bytes(*counter), &mut self.rng);
        let phase = 1 << PHASE_BITS;
        let new = match place {
            Place::Behind => seen.wrapping_sub(WINDOW + rng.log_range(1, 1 << 40)),
            Place::Within => seen.saturating_sub(rng.log_range(1, WINDOW)),
            Place::Ahead => seen.wrapping_add(rng.log_range(1, phase - 1)),
            Place::NextPhase => (seen / phase).wrapping_add(1).wrapping_mul(phase),
            Place::Beyond => seen.wrapping_add(rng.log_range(phase, u64::MAX)),
        };
        *counter = new.to_be_bytes();
    }

    /// One of a session that has ended.
    fn revive(&mut self, present: Datagram) -> Datagram {
        let list = &self.old[self.rng.below(KINDS as u64) as usize];
        let at = self.rng.below(list.len() as u64) as usize;
        let Some(mut old) = list.get(at).cloned() else { return present };
        if self.rng.chance(0.5) {
            copy(&mut old.bytes, &present.bytes, 16..24);
            old.to = present.to;
            reseal(&mut old.bytes);
        }
        old
    }

    /// Another kind, in either version.
    fn rename(&mut self, bytes: &mut [u8]) {
        if let Some(first) = bytes.first_mut() {
            let version = self.rng.pick(&[VERSION, KEYED_VERSION, KEYED_VERSION]);
            *first = *first & 0x80 | version << 4 | self.rng.below(KINDS as u64) as u8;
        }
    }

    /// Anything after the header, under a counter that is new.
    fn garble(&mut self, bytes: &mut [u8]) {
        let before = trailer_at(bytes).map(|at| bytes[at..at + 8].to_vec());
        if let Some(rest) = bytes.get_mut(HEADER_BYTES..) {
            for chunk in rest.chunks_mut(8) {
                chunk.copy_from_slice(&self.rng.bits().to_be_bytes()[..chunk.len()]);
            }
        }
        if let (Some(at), Some(before)) = (trailer_at(bytes), before) {
            bytes[at..at + 8].copy_from_slice(&before);
            self.count(bytes, Place::Ahead);
        }
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

/// Where the 24 bytes that a key adds to a packet begin.
fn trailer_at(bytes: &[u8]) -> Option<usize> {
    let after = match bytes.first()? & 0xf {
        kind if kind == PacketKind::Hello as u8 => NAME_BYTES,
        _ => 0,
    };
    bytes.len().checked_sub(TRAILER_BYTES + after).filter(|at| *at >= HEADER_BYTES)
}

/// Writes the checksum of a packet that has one.
fn reseal(bytes: &mut Vec<u8>) {
    const PROBE: u8 = PacketKind::Probe as u8;
    const GOODBYE: u8 = PacketKind::Goodbye as u8;
    const LOOSE: [PacketKind; 6] = [
        PacketKind::Hello,
        PacketKind::Challenge,
        PacketKind::Welcome,
        PacketKind::Reset,
        PacketKind::GoodbyeAck,
        PacketKind::Version,
    ];
    let Some(first) = bytes.first().copied() else { return };
    let covered = match first & 0xf {
        PROBE | GOODBYE if first >> 4 & 7 == KEYED_VERSION => {
            bytes.len().saturating_sub(TRAILER_BYTES)
        }
        kind if LOOSE.iter().any(|loose| *loose as u8 == kind) => bytes.len(),
        _ if first >> 4 & 7 == VERSION => bytes.len(),
        _ => return,
    };
    if covered >= HEADER_BYTES {
        let rest = bytes.split_off(covered);
        seal(bytes, 0, crc32c::crc32c_append);
        bytes.extend_from_slice(&rest);
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
