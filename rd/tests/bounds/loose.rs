//! Loose packets: those outside a session, of a job with a key (protocol.md §11.2). What an endpoint writes is proven by
//! the text there. Every length and every change is dropped for the reason that the text says.

use super::hostile::Void;
use super::is_large;
use super::keyed::{Said, Toy};
use erd_rd::cc::fixed::ERD;
use erd_rd::keys::{KEY_ID_BYTES, KeySet, Keys, Loose, TRAILER_BYTES};
use erd_rd::units::MILLISECOND;
use erd_rd::wire::header::{HEADER_BYTES, Header, KEYED_VERSION, PacketKind, seal};
use erd_rd::wire::setup::Greeting;
use erd_rd::wire::{NAME_BYTES, Reader};
use erd_rd::{
    Config, DropReason, Ecn, Endpoint, KeyIndex, PeerAddress, RxMeta, SendToken, TxBurst,
    WorkRequest,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// The key of both ends, and another that both have.
const OWN: Toy = Toy { id: 1, hides: true };
const OTHER: Toy = Toy { id: 2, hides: true };
/// Longest loose packet that is read.
const BYTES_MAX: usize = 256;

/// Names of the ends; the first one begins.
fn names() -> [SocketAddr; 2] {
    ["10.0.0.2:1", "10.0.0.1:7"].map(|name| name.parse().expect("a name"))
}

fn endpoint(end: usize, epoch: u64) -> Endpoint {
    let mut config = Config::new(names()[end], epoch, crc32c::crc32c_append);
    let keys = [OTHER, OWN].map(|key| Some(Arc::new(key) as Arc<dyn Keys>));
    config.keys = KeySet::new([None].into_iter().chain(keys));
    Endpoint::new(config, Box::new(ERD.scheme()), epoch).expect("a configuration")
}

/// Two ends.
struct Ends {
    ends: [Endpoint; 2],
    now: u64,
    /// The random bytes of the greeting that an end sent last.
    random: [Option<[u8; 16]>; 2],
}

/// A packet on its way to an end.
type Sent = (usize, Vec<u8>);

impl Ends {
    fn new() -> Ends {
        let ends = [endpoint(0, 1), endpoint(1, 2)];
        let mut all = Ends { ends, now: MILLISECOND, random: [None; 2] };
        all.posts();
        all
    }

    /// The first end sends a message.
    fn posts(&mut self) {
        let address = PeerAddress { name: names()[1], key: KeyIndex(2) };
        let peer = self.ends[0].peer(self.now, address, &mut Void).expect("a place");
        let wr = WorkRequest {
            peer,
            token: SendToken(1),
            len_bytes: 10,
            tag: None,
            data: None,
            match_complete: false,
            awaited: false,
            delivery: false,
            fence: false,
        };
        self.ends[0].send(self.now, wr).expect("room");
    }

    /// Hands a packet over. The reason for dropping it, if it was dropped.
    fn takes(&mut self, end: usize, bytes: &[u8]) -> Option<usize> {
        let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from: names()[1 - end] };
        let before = self.ends[end].stats().drops;
        self.ends[end].handle_packet(self.now, &meta, bytes, &mut Void);
        self.ends[end].check();
        let after = self.ends[end].stats().drops;
        let dropped: u64 = after.iter().sum::<u64>() - before.iter().sum::<u64>();
        assert!(dropped <= 1, "one packet");
        before.iter().zip(&after).position(|(before, after)| before < after)
    }

    /// The next packet that an end sends.
    fn sends(&mut self, end: usize) -> Option<Sent> {
        let mut burst = TxBurst::new();
        if !self.ends[end].poll_transmit(self.now, true, &mut Void, &mut burst) {
            return None;
        }
        let h = Header::parse_of(KEYED_VERSION, &burst.bytes).expect("its version");
        if h.kind == PacketKind::Hello {
            let mut plain = burst.bytes[HEADER_BYTES..].to_vec();
            let at = plain.len() - NAME_BYTES - TRAILER_BYTES;
            plain.drain(at..at + TRAILER_BYTES);
            let greeting = Greeting::parse(&mut Reader::new(&plain), true).expect("a greeting");
            self.random[end] = greeting.random;
        }
        Some((1 - end, burst.bytes))
    }

    /// Hands on all packets up to the first one that `which` picks, which it returns.
    fn until(&mut self, mut which: impl FnMut(PacketKind) -> bool) -> Sent {
        for _ in 0..10_000 {
            for end in 0..2 {
                while let Some((to, bytes)) = self.sends(end) {
                    let h = Header::parse_of(KEYED_VERSION, &bytes).expect("its version");
                    if which(h.kind) {
                        return (to, bytes);
                    }
                    self.takes(to, &bytes);
                }
            }
            self.now += MILLISECOND;
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now, &mut Void));
        }
        panic!("no such packet");
    }

    /// What waits to be sent is lost.
    fn drain(&mut self, end: usize) {
        while self.sends(end).is_some() {}
    }
}

/// A loose packet that its reader has not got yet.
struct Case {
    ends: Ends,
    to: usize,
    bytes: Vec<u8>,
    /// The random bytes that it answers; empty for a question.
    question: Vec<u8>,
}

const CASES: [&str; 7] = [
    "hello",
    "challenge",
    "hello with a cookie",
    "welcome",
    "reset of a hello",
    "reset of a probe",
    "goodbye confirmation",
];

fn case(name: &str) -> Case {
    let mut ends = Ends::new();
    let nth = |ends: &mut Ends, wanted: PacketKind, mut skip: u32| {
        ends.until(|kind| {
            let is_it = kind == wanted && skip == 0;
            skip -= u32::from(kind == wanted && skip > 0);
            is_it
        })
    };
    let (to, bytes) = match name {
        "hello" => nth(&mut ends, PacketKind::Hello, 0),
        "hello with a cookie" => nth(&mut ends, PacketKind::Hello, 1),
        "welcome" => nth(&mut ends, PacketKind::Welcome, 0),
        "challenge" | "reset of a hello" => nth(&mut ends, PacketKind::Challenge, 0),
        "reset of a probe" => {
            nth(&mut ends, PacketKind::Ack, 0);
            // Another process has the name.
            ends.ends[1] = endpoint(1, 3);
            ends.posts();
            nth(&mut ends, PacketKind::Reset, 0)
        }
        _ => {
            nth(&mut ends, PacketKind::Ack, 0);
            ends.ends[0].close(ends.now, &mut Void);
            nth(&mut ends, PacketKind::GoodbyeAck, 0)
        }
    };
    let answers = !name.starts_with("hello") && !["reset of a probe", CASES[6]].contains(&name);
    let question = ends.random[to].filter(|_| answers).map_or(Vec::new(), |bytes| bytes.to_vec());
    let mut case = Case { ends, to, bytes, question };
    if name == "reset of a hello" {
        let session = u64::from_be_bytes(case.bytes[16..24].try_into().expect("8 bytes"));
        let mut plain = Vec::new();
        Header { s_len: 8, ..Header::new(PacketKind::Reset, session) }.emit(&mut plain);
        plain[0] = plain[0] & 0x8f | 3 << 4;
        plain.extend(session.to_be_bytes());
        case.bytes = OWN.sealed(0, &plain, &case.said());
    }
    case
}

impl Case {
    fn said(&self) -> Said<'_> {
        let (writer, reader) = (names()[1 - self.to], names()[self.to]);
        Said { writer, reader, question: &self.question }
    }

    /// The packet without its proof.
    fn plain(&self) -> Vec<u8> {
        OWN.unsealed(&self.bytes).expect("it is proven").0
    }

    fn takes(&mut self, bytes: &[u8]) -> Option<usize> {
        let reason = self.ends.takes(self.to, bytes);
        if reason.is_some() {
            // Answers to those who have another key, or speak another version.
            self.ends.drain(self.to);
        }
        reason
    }
}

/// The bytes with a right checksum over all of them.
fn summed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= HEADER_BYTES {
        seal(&mut bytes, 0, crc32c::crc32c_append);
    }
    bytes
}

/// What must become of a packet that is not the proven one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Dropped(DropReason),
    /// It looks like a packet of a session, which another proof counts for.
    Somehow,
    /// It looks like a notice of another version, which nothing proves.
    Unproven,
}

/// The fate by the text: in the order in which it names the reasons.
fn fate(whole: &[u8], bytes: &[u8]) -> Fate {
    use DropReason::{Forged, HeaderChecksum, Malformed, OtherKey, UnknownSession, Version};
    let Some(first) = bytes.first() else { return Fate::Dropped(Malformed) };
    let kind = first & 15;
    if first >> 4 & 7 != 3 && kind != 9 {
        return Fate::Dropped(Version);
    }
    if bytes.len() < 32 || kind > 11 {
        return Fate::Dropped(Malformed);
    }
    match kind {
        9 => return Fate::Unproven,
        0..=2 | 7 | 10 | 11 => return Fate::Somehow,
        _ => {}
    }
    let s_len = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
    if bytes.len() > BYTES_MAX || bytes.len() != 32 + s_len {
        return Fate::Dropped(Malformed);
    }
    if bytes != summed(bytes) {
        return Fate::Dropped(HeaderChecksum);
    }
    // The name of a hello comes last.
    let behind = if kind == 3 { 24 } else { 0 };
    if bytes.len() < 32 + 24 + behind {
        return Fate::Dropped(Malformed);
    }
    let at = bytes.len() - behind - 24;
    let id = &bytes[at..at + 8];
    if id != [1; 8] && id != [2; 8] {
        return Fate::Dropped(OtherKey);
    }
    match kind {
        3 if ![4, 6].contains(&bytes[at + 24]) => Fate::Dropped(Malformed),
        3 => Fate::Dropped(Forged),
        _ if bytes[16..24] != whole[16..24] => Fate::Dropped(UnknownSession),
        _ if id != [1; 8] => Fate::Dropped(OtherKey),
        _ => Fate::Dropped(Forged),
    }
}

fn judge(case: &mut Case, name: &str, bytes: &[u8]) {
    let reason = case.takes(bytes);
    match fate(&case.bytes, bytes) {
        Fate::Dropped(expected) => {
            assert_eq!(reason, Some(expected as usize), "{expected:?} {name} {bytes:x?}");
        }
        Fate::Somehow => assert!(reason.is_some(), "{name} {bytes:x?}"),
        Fate::Unproven => {}
    }
}

#[test]
fn what_an_endpoint_writes_is_proven_by_the_text() {
    for name in CASES {
        let mut case = case(name);
        let whole = case.bytes.clone();
        let told = usize::from(u16::from_be_bytes([whole[4], whole[5]]));
        assert_eq!(told, whole.len() - HEADER_BYTES, "{name}: the length counts the proof");
        let behind = if name.starts_with("hello") { NAME_BYTES } else { 0 };
        let at = whole.len() - behind - TRAILER_BYTES;
        assert_eq!(whole[at..at + KEY_ID_BYTES], OWN.id(), "{name}");
        // The first string: no checksum, and a length without the proof.
        let mut covered = [&whole[..at], &whole[at + TRAILER_BYTES..]].concat();
        covered[4..6].copy_from_slice(&((told - TRAILER_BYTES) as u16).to_be_bytes());
        covered[28..32].fill(0);
        let Said { writer, reader, question } = case.said();
        let proof = Keys::prove(&OWN, &Loose { packet: &covered, writer, reader, question });
        assert_eq!(whole[at + KEY_ID_BYTES..at + TRAILER_BYTES], proof, "{name}");
        assert_eq!(whole, summed(&whole), "{name}");
        assert_eq!(OWN.sealed(0, &case.plain(), &case.said()), whole, "{name}");
        assert!(whole.len() <= BYTES_MAX);
        assert_eq!(case.takes(&whole), None, "{name}");
    }
}

/// Parts of a packet, and longer ones, with or without the length and the checksum that fit. Then the packet itself.
#[test]
fn every_length_but_its_own_is_dropped() {
    for name in CASES {
        let mut case = case(name);
        let whole = case.bytes.clone();
        for len in 0..=BYTES_MAX + 40 {
            let mut bytes = whole.clone();
            bytes.resize(len, 0x5a);
            if bytes == whole {
                continue;
            }
            judge(&mut case, name, &bytes);
            judge(&mut case, name, &summed(&bytes));
            if len >= HEADER_BYTES {
                bytes[4..6].copy_from_slice(&((len - HEADER_BYTES) as u16).to_be_bytes());
                judge(&mut case, name, &bytes);
                judge(&mut case, name, &summed(&bytes));
            }
        }
        assert_eq!(case.takes(&whole), None, "nothing of that changed anything: {name}");
    }
}

/// A packet that the owner of the key has made longer: read to the limit, and no further. All kinds but a hello tolerate
/// bytes behind their own.
#[test]
fn nothing_beyond_the_longest_is_read() {
    for name in CASES {
        let is_hello = name.starts_with("hello");
        for len in 0..=BYTES_MAX + 20 {
            let mut case = case(name);
            let mut plain = case.plain();
            let Some(more) = len.checked_sub(case.bytes.len()) else { continue };
            // The name of a hello comes last.
            let at = plain.len() - if is_hello { NAME_BYTES } else { 0 };
            plain.splice(at..at, vec![0; more]);
            let s_len = (plain.len() - HEADER_BYTES) as u16;
            plain[4..6].copy_from_slice(&s_len.to_be_bytes());
            let bytes = OWN.sealed(0, &plain, &case.said());
            assert_eq!(bytes.len(), len);
            let is_dropped = len > BYTES_MAX || is_hello && more > 0;
            let expected = is_dropped.then_some(DropReason::Malformed as usize);
            assert_eq!(case.takes(&bytes), expected, "{name} of {len} bytes");
        }
    }
}

/// All bytes are proven, except that a checksum is right or not.
#[test]
fn every_change_of_a_byte_is_dropped_for_its_reason() {
    let values: Vec<u8> =
        if is_large() { (1..=255).collect() } else { [1, 2, 3, 0x10, 0x80, 0xff].to_vec() };
    for name in CASES {
        let mut case = case(name);
        let whole = case.bytes.clone();
        for (at, bits) in (0..whole.len()).flat_map(|at| values.iter().map(move |bits| (at, *bits)))
        {
            let mut bytes = whole.clone();
            bytes[at] ^= bits;
            judge(&mut case, name, &bytes);
            let bytes = summed(&bytes);
            if bytes != whole {
                judge(&mut case, name, &bytes);
            }
        }
        assert_eq!(case.takes(&whole), None, "nothing of that changed anything: {name}");
    }
}

/// Names that differ from this one in a bit of the address or the port.
fn other_names(name: SocketAddr) -> Vec<SocketAddr> {
    let SocketAddr::V4(name) = name else { unreachable!("the names here are of IPv4") };
    let ips = (0..32).map(|bit| (name.ip().to_bits() ^ 1 << bit, name.port()));
    let ports = (0..16).map(|bit| (name.ip().to_bits(), name.port() ^ 1 << bit));
    ips.chain(ports).map(|(ip, port)| (std::net::Ipv4Addr::from(ip), port).into()).collect()
}

/// A proof counts for one writer, one reader and one question, and under one key.
#[test]
fn what_is_not_in_the_packet_is_proven_too() {
    for name in CASES {
        let mut case = case(name);
        let (plain, whole) = (case.plain(), case.bytes.clone());
        let (question, is_hello) = (case.question.clone(), name.starts_with("hello"));
        let Said { writer, reader, .. } = case.said();
        let mut forged: Vec<Vec<u8>> = Vec::new();
        let mut with = |writer, reader, question: &[u8]| {
            forged.push(OWN.sealed(0, &plain, &Said { writer, reader, question }));
        };
        other_names(reader).into_iter().for_each(|reader| with(writer, reader, &question));
        // A hello tells who wrote it.
        let writers = other_names(writer).into_iter().filter(|_| !is_hello);
        writers.for_each(|writer| with(writer, reader, &question));
        for bit in 0..8 * question.len() {
            let mut other = question.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            with(writer, reader, &other);
        }
        for len in (0..=17).filter(|len| *len != question.len()) {
            with(writer, reader, &[&question[..], &[0; 17]].concat()[..len]);
        }
        for bytes in &forged {
            assert_eq!(case.takes(bytes), Some(DropReason::Forged as usize), "{name}");
        }
        // The proof of one key under the id of another.
        let mut others = OTHER.sealed(0, &plain, &case.said());
        let at = whole.len() - TRAILER_BYTES - if is_hello { NAME_BYTES } else { 0 };
        if !is_hello {
            // To a hello any key of its reader's is right.
            assert_eq!(case.takes(&others), Some(DropReason::OtherKey as usize), "{name}");
        }
        others[at..at + KEY_ID_BYTES].copy_from_slice(&OWN.id());
        assert_eq!(case.takes(&summed(&others)), Some(DropReason::Forged as usize), "{name}");
        assert_eq!(case.takes(&whole), None, "nothing of that changed anything: {name}");
    }
}

/// What else somebody could take for the covered bytes: with the length of the whole, with the checksum, with the key id.
#[test]
fn a_proof_of_other_bytes_than_those_is_none() {
    for name in CASES {
        let mut case = case(name);
        let whole = case.bytes.clone();
        let at =
            whole.len() - TRAILER_BYTES - if name.starts_with("hello") { NAME_BYTES } else { 0 };
        let zero = |mut bytes: Vec<u8>| {
            bytes[28..32].fill(0);
            bytes
        };
        let plain = zero(case.plain());
        let mut counted = plain.clone();
        counted[4..6].copy_from_slice(&whole[4..6]);
        let with_id = [&plain[..at], &whole[at..at + KEY_ID_BYTES], &plain[at..]].concat();
        let without_name = plain[..plain.len().min(at)].to_vec();
        let mut all = vec![counted, summed(&plain), with_id];
        all.extend(Some(without_name).filter(|bytes| *bytes != plain));
        for covered in all {
            let Said { writer, reader, question } = case.said();
            let proof = Keys::prove(&OWN, &Loose { packet: &covered, writer, reader, question });
            let mut bytes = whole.clone();
            bytes[at + KEY_ID_BYTES..at + TRAILER_BYTES].copy_from_slice(&proof);
            let reason = case.takes(&summed(&bytes));
            assert_eq!(reason, Some(DropReason::Forged as usize), "{name}");
        }
        assert_eq!(case.takes(&whole), None, "nothing of that changed anything: {name}");
    }
}
