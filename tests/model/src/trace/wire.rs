//! Packets as protocol.md describes them, read out of a recorded run. Written from that document alone: nothing of the
//! engine's own reading is used, so that an error of either side shows.
//!
//! Reading is total. Any bytes give a packet or an [`Error`]. A packet whose checksum is wrong is read all the same, and
//! says so.

mod bundle;
mod bytes;
mod setup;

pub use bundle::{Access, Answer, Message, RecordRead, Request, State, Target};
pub use setup::Greeting;

use bundle::{Bundle, state};
use bytes::Bytes;
use erd_world::record::Packet;
use std::net::SocketAddr;

/// Bytes of the common header (§2.1).
pub const HEADER_BYTES: usize = 32;
/// The place of its checksum.
const CHECKSUM_AT: usize = 28;
/// Bytes of a payload checksum.
const PAYLOAD_CHECKSUM_BYTES: usize = 4;
/// Bytes of a counter or a key's id, and of a proof (§11.1).
const TRAILER_BYTES: usize = 8 + PROOF_BYTES;
const PROOF_BYTES: usize = 16;
/// Bytes of a name (§3.2).
const NAME_BYTES: usize = 24;
/// Bytes of a port datagram without a key, and with one (§10).
const PORT_BYTES: [usize; 2] = [104, 128];

/// The version without a key (§2.1).
pub const VERSION: u8 = 2;
/// The version with a key (§11.1).
pub const KEYED_VERSION: u8 = 3;

/// The flags of §2.1.
pub mod flags {
    /// An acknowledgement is wanted.
    pub const WANTED: u8 = 0x01;
    /// A payload checksum follows.
    pub const PAYLOAD_CHECKSUM: u8 = 0x02;
    /// An eager segment.
    pub const EAGER: u8 = 0x04;
    /// A void segment.
    pub const VOID: u8 = 0x08;
    /// An acknowledgement rides on an eager segment.
    pub const RIDES: u8 = 0x10;
    /// The receiver's window holds the sender back.
    pub const HELD: u8 = 0x20;
    /// The sender's application waits.
    pub const AWAITED: u8 = 0x40;
    /// The sender has nothing more for the receiver.
    pub const LAST: u8 = 0x80;
}

/// Kinds of packets by their number (§2.2).
mod kinds {
    pub(super) const DATA: u8 = 0;
    pub(super) const ACK: u8 = 1;
    pub(super) const PROBE: u8 = 2;
    pub(super) const HELLO: u8 = 3;
    pub(super) const CHALLENGE: u8 = 4;
    pub(super) const WELCOME: u8 = 5;
    pub(super) const RESET: u8 = 6;
    pub(super) const GOODBYE: u8 = 7;
    pub(super) const GOODBYE_ACK: u8 = 8;
    pub(super) const VERSION: u8 = 9;
    pub(super) const SIZE_PROBE: u8 = 10;
    pub(super) const SIZE_ANSWER: u8 = 11;
    pub(super) const PORT: u8 = 15;
}

/// Why bytes are no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// They end too early.
    Short,
    /// S_Len, or a length within, is not that of the bytes.
    Length,
    /// This version has no such packet.
    Version(u8),
    /// There is no such kind.
    Kind(u8),
    /// There is no such kind of record.
    Record(u8),
    /// A request whose lengths do not agree (§9.1).
    Request,
    /// A field has a value that the document does not give.
    Value,
    /// No owner of a key wrote this packet of a session, or nobody knows what it was before the key changed it.
    Unproven,
}

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketRead {
    /// The common header.
    pub header: Header,
    /// What follows.
    pub body: Body,
    /// What proves it.
    pub proof: Proof,
    /// Bytes of a control packet behind its fields. Nobody writes any, and a reader ignores them (§2.2).
    pub surplus_bytes: usize,
}

/// The common header (§2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Type: part of a long message.
    pub long: bool,
    /// Version.
    pub version: u8,
    /// Kind, by its number.
    pub kind: u8,
    /// See [`flags`].
    pub flags: u8,
    /// Msg_ID.
    pub msg_id: u16,
    /// S_Len.
    pub s_len: u16,
    /// Path.
    pub path: u8,
    /// How often this PSN had been sent before.
    pub attempt: u8,
    /// S_Offset.
    pub s_offset: u32,
    /// PSN.
    pub psn: u32,
    /// Session id that the receiver chose.
    pub session: u64,
    /// Low 32 bits of the sender's clock.
    pub sent: u32,
    /// The checksum of the header region is right; where a key says that there is none, it is 0.
    pub checksum_ok: bool,
}

impl Header {
    /// Whether all of these [`flags`] are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// What a key adds to a packet (§11.1). Whether the proof is right is not judged here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Nothing.
    None,
    /// A packet of a session, with its counter.
    Counter(u64),
    /// Any other packet, with the id of its key.
    Key([u8; 8]),
}

/// What follows the header, by kind (§2.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Opens a session.
    Hello(Greeting),
    /// Gives the cookie.
    Challenge {
        /// The cookie.
        cookie: u64,
        /// The responder's epoch.
        epoch: u64,
    },
    /// Accepts a session.
    Welcome(Greeting),
    /// The session is unknown.
    Reset {
        /// The unknown session id.
        id: u64,
    },
    /// A goodbye was taken.
    GoodbyeAck {
        /// The session id of the goodbye.
        id: u64,
    },
    /// Refuses a hello.
    Version {
        /// The version of the writer.
        spoken: u8,
        /// The version of the hello.
        refused: u8,
    },
    /// Asks for an acknowledgement.
    Probe {
        /// The writer's asker id.
        asker: u64,
        /// The writer's name.
        name: SocketAddr,
        /// With a key: the id of the one that the probe tells.
        key: Option<[u8; 8]>,
    },
    /// Ends a session.
    Goodbye {
        /// The writer's asker id.
        asker: u64,
        /// The writer's name.
        name: SocketAddr,
        /// With a key: its id.
        key: Option<[u8; 8]>,
        /// The final acknowledgement state.
        ack: State,
    },
    /// Payload, or a bundle.
    Data(Data),
    /// Acknowledges.
    Ack(Ack),
    /// Asks whether a datagram of its size arrives.
    SizeProbe {
        /// The number of the trial.
        number: u16,
    },
    /// Tells which size arrived.
    SizeAnswer {
        /// The number of the trial.
        number: u16,
        /// Bytes that arrived.
        bytes: u16,
    },
    /// A datagram between ports (§10). Of its header only version and kind count.
    Port,
}

/// A data packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    /// What it carries.
    pub carries: Carried,
    /// The payload checksum is right; `None` without one.
    pub payload_ok: Option<bool>,
}

/// See [`Data::carries`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Carried {
    /// Records (§5.2).
    Bundle(Vec<RecordRead>),
    /// A part of an eager message (§5.3).
    EagerSegment {
        /// The sender's Msg_ID.
        msg_id: u16,
        /// The message. It has an op number in each segment.
        message: Message,
        /// The part's place in it.
        offset: u32,
        /// The part's length.
        len: u16,
        /// The acknowledgement that rides along.
        ack: Option<State>,
    },
    /// A part of a link (§5.4).
    Segment {
        /// The receiver's Msg_ID.
        msg_id: u16,
        /// The part's place in the link.
        offset: u32,
        /// The part's length.
        len: u16,
        /// Its bytes are not to be placed (§9.6).
        void: bool,
    },
    /// The payload was cut off on the way, so only the header counts.
    Trimmed,
}

/// An acknowledgement packet (§6.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The state.
    pub state: State,
    /// The PSN of the bitmap's first bit.
    pub base: u32,
    /// The bitmap: bit `i` of word `w` is PSN base + 64 w + i.
    pub words: Vec<u64>,
    /// Missing packets.
    pub ranges: Vec<Range>,
    /// Packets that came.
    pub records: Vec<Run>,
}

/// A run of missing packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first PSN.
    pub first: u32,
    /// How many.
    pub count: u16,
    /// Their payload was cut off.
    pub cut_off: bool,
    /// The attempt of that transmission.
    pub attempt: u8,
}

/// A run of packets that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first PSN.
    pub first: u32,
    /// Its send time.
    pub sent: u32,
    /// Its hold time.
    pub hold_ns: u32,
    /// Their path.
    pub path: u8,
    /// How many.
    pub packets: u8,
    /// How many of them were marked.
    pub marked: u8,
}

/// Most words, ranges and records of an acknowledgement packet.
const WORDS_MAX: usize = 64;
const RANGES_MAX: usize = 64;
const RECORDS_MAX: usize = 48;

/// Reads a recorded packet.
///
/// # Errors
/// Says what is wrong with its bytes.
pub fn read(packet: &Packet) -> Result<PacketRead, Error> {
    read_bytes(&packet.bytes, packet.plain.as_deref(), packet.trimmed)
}

/// Reads these bytes. `plain` is what a packet of a session was before its key changed it
/// ([`erd_world::record::Packet::plain`]); it does not count for others. The payload of a `trimmed` one was cut off.
///
/// # Errors
/// See [`read`].
pub fn read_bytes(bytes: &[u8], plain: Option<&[u8]>, trimmed: bool) -> Result<PacketRead, Error> {
    let first = *bytes.first().ok_or(Error::Short)?;
    let (version, kind) = (first >> 4 & 7, first & 0xf);
    if kind > kinds::SIZE_ANSWER && kind != kinds::PORT {
        return Err(Error::Kind(kind));
    }
    match (version, kind) {
        (VERSION, kinds::PORT) => port(bytes, version),
        (KEYED_VERSION, kinds::PORT) => port(bytes, version),
        // The same in all versions (§3.4).
        (_, kinds::VERSION) => read_as(bytes, Proof::None, false),
        (VERSION, _) => read_as(bytes, Proof::None, trimmed),
        (KEYED_VERSION, _) if is_of_session(kind) => {
            of_session(bytes, plain.ok_or(Error::Unproven)?)
        }
        (KEYED_VERSION, _) => loose(bytes),
        _ => Err(Error::Version(version)),
    }
}

/// Whether a packet of this kind is one of a session (§11.1).
fn is_of_session(kind: u8) -> bool {
    use kinds::{ACK, DATA, GOODBYE, PROBE, SIZE_ANSWER, SIZE_PROBE};
    [DATA, ACK, PROBE, GOODBYE, SIZE_PROBE, SIZE_ANSWER].contains(&kind)
}

fn port(bytes: &[u8], version: u8) -> Result<PacketRead, Error> {
    if bytes.len() != PORT_BYTES[usize::from(version == KEYED_VERSION)] {
        return Err(Error::Length);
    }
    let mut sum = Bytes(&bytes[PORT_BYTES[0] - 4..]);
    let checksum_ok = sum.u32()? == crc32c::crc32c(&bytes[..PORT_BYTES[0] - 4]);
    let header = Header { version, kind: kinds::PORT, checksum_ok, ..Header::default() };
    let key = bytes.get(PORT_BYTES[0]..).map(Bytes).and_then(|mut end| end.array().ok());
    let proof = key.map_or(Proof::None, Proof::Key);
    Ok(PacketRead { header, body: Body::Port, proof, surplus_bytes: 0 })
}

/// A packet of a session with a key: its counter is behind everything else, and not counted.
fn of_session(bytes: &[u8], plain: &[u8]) -> Result<PacketRead, Error> {
    let at = bytes.len().checked_sub(TRAILER_BYTES).ok_or(Error::Short)?;
    if at != plain.len() {
        return Err(Error::Length);
    }
    let counter = Bytes(&bytes[at..]).u64()?;
    read_as(plain, Proof::Counter(counter), false)
}

/// A packet with a key outside a session: the key's id and the proof are at the end, in a hello before the name. They are
/// counted, and summed up with the rest.
fn loose(bytes: &[u8]) -> Result<PacketRead, Error> {
    let header = header(bytes)?;
    let behind = if header.kind == kinds::HELLO { NAME_BYTES } else { 0 };
    let at = bytes.len().checked_sub(behind + TRAILER_BYTES).ok_or(Error::Short)?;
    if at < HEADER_BYTES {
        return Err(Error::Short);
    }
    if bytes.len() - HEADER_BYTES != usize::from(header.s_len) {
        return Err(Error::Length);
    }
    let key = Bytes(&bytes[at..]).array()?;
    let body = [&bytes[HEADER_BYTES..at], &bytes[at + TRAILER_BYTES..]].concat();
    let (body, surplus_bytes) = control(header.kind, &body, true)?;
    if header.kind == kinds::HELLO && surplus_bytes > 0 {
        // The name that its key proves is at the end.
        return Err(Error::Length);
    }
    let header = Header { checksum_ok: sum_is_right(bytes), ..header };
    Ok(PacketRead { header, body, proof: Proof::Key(key), surplus_bytes })
}

/// A packet without what a key adds.
fn read_as(bytes: &[u8], proof: Proof, trimmed: bool) -> Result<PacketRead, Error> {
    let header = header(bytes)?;
    let keyed = proof != Proof::None;
    let mut surplus_bytes = 0;
    let (body, region) = match header.kind {
        kinds::DATA if trimmed => {
            let carries = Carried::Trimmed;
            let region = region_of(&header).unwrap_or(usize::MAX);
            (Body::Data(Data { carries, payload_ok: None }), region)
        }
        kinds::DATA => data(&header, bytes).map(|(data, region)| (Body::Data(data), region))?,
        _ if bytes.len() - HEADER_BYTES != usize::from(header.s_len) => return Err(Error::Length),
        kind => {
            let (body, surplus) = control(kind, &bytes[HEADER_BYTES..], keyed)?;
            surplus_bytes = surplus;
            (body, bytes.len())
        }
    };
    let summed = !keyed || matches!(header.kind, kinds::PROBE | kinds::GOODBYE);
    let checksum_ok = match bytes.get(..region) {
        Some(region) if summed => sum_is_right(region),
        Some(region) => region[CHECKSUM_AT..HEADER_BYTES] == [0; 4],
        None => false,
    };
    Ok(PacketRead { header: Header { checksum_ok, ..header }, body, proof, surplus_bytes })
}

/// The header, of which the checksum is not looked at.
fn header(bytes: &[u8]) -> Result<Header, Error> {
    let b = &mut Bytes(bytes);
    let first = b.u8()?;
    let header = Header {
        long: first & 0x80 != 0,
        version: first >> 4 & 7,
        kind: first & 0xf,
        flags: b.u8()?,
        msg_id: b.u16()?,
        s_len: b.u16()?,
        path: b.u8()?,
        attempt: b.u8()?,
        s_offset: b.u32()?,
        psn: b.u32()?,
        session: b.u64()?,
        sent: b.u32()?,
        checksum_ok: false,
    };
    b.u32()?;
    Ok(header)
}

/// Whether the checksum of a header region is right. It has a whole header.
fn sum_is_right(region: &[u8]) -> bool {
    let sum = crc32c::crc32c(&region[..CHECKSUM_AT]);
    let sum = crc32c::crc32c_append(sum, &[0; HEADER_BYTES - CHECKSUM_AT]);
    let sum = crc32c::crc32c_append(sum, &region[HEADER_BYTES..]);
    region[CHECKSUM_AT..HEADER_BYTES] == sum.to_be_bytes()
}

/// Bytes of the header region of a long message's packet; `None` for a bundle, where the records tell.
fn region_of(header: &Header) -> Option<usize> {
    let eager = if header.has(flags::EAGER) { bundle::MESSAGE_BYTES } else { 0 };
    let rides = header.has(flags::EAGER | flags::RIDES);
    let ack = if rides { bundle::STATE_BYTES } else { 0 };
    header.long.then_some(HEADER_BYTES + eager + ack)
}

/// A data packet, and the length of its header region.
fn data(header: &Header, bytes: &[u8]) -> Result<(Data, usize), Error> {
    let (carries, region, payload) = match region_of(header) {
        Some(region) => (segment(header, bytes)?, region, usize::from(header.s_len)),
        None => {
            let whole = bytes.get(HEADER_BYTES..HEADER_BYTES + usize::from(header.s_len));
            let Bundle { records, head, payload } = Bundle::read(whole.ok_or(Error::Length)?)?;
            (Carried::Bundle(records), HEADER_BYTES + head, payload)
        }
    };
    let b = &mut Bytes(bytes.get(region..).ok_or(Error::Short)?);
    let payload = b.take(payload).map_err(|_| Error::Length)?;
    let sum = header.has(flags::PAYLOAD_CHECKSUM).then(|| b.take(PAYLOAD_CHECKSUM_BYTES));
    let sum = sum.transpose()?;
    if !b.0.is_empty() {
        return Err(Error::Length);
    }
    let payload_ok = sum.map(|sum| sum == crc32c::crc32c(payload).to_be_bytes());
    Ok((Data { carries, payload_ok }, region))
}

/// What a packet of a long message carries.
fn segment(header: &Header, bytes: &[u8]) -> Result<Carried, Error> {
    let Header { msg_id, s_offset: offset, s_len: len, .. } = *header;
    if !header.has(flags::EAGER) {
        return Ok(Carried::Segment { msg_id, offset, len, void: header.has(flags::VOID) });
    }
    let b = &mut Bytes(&bytes[HEADER_BYTES..]);
    let message = bundle::message(b)?;
    let ack = header.has(flags::RIDES).then(|| state(b)).transpose()?;
    Ok(Carried::EagerSegment { msg_id, message, offset, len, ack })
}

/// The body of any packet but data.
/// The body of a control packet, and how many bytes it leaves over.
fn control(kind: u8, body: &[u8], keyed: bool) -> Result<(Body, usize), Error> {
    let b = &mut Bytes(body);
    let body = match kind {
        kinds::ACK => Body::Ack(ack(b)?),
        kinds::PROBE | kinds::GOODBYE => {
            let (asker, name) = (b.u64()?, b.name()?);
            let key = keyed.then(|| b.array()).transpose()?;
            match kind {
                kinds::PROBE => Body::Probe { asker, name, key },
                _ => Body::Goodbye { asker, name, key, ack: state(b)? },
            }
        }
        kinds::HELLO => Body::Hello(Greeting::read(b, keyed)?),
        kinds::WELCOME => Body::Welcome(Greeting::read(b, keyed)?),
        kinds::CHALLENGE => Body::Challenge { cookie: b.u64()?, epoch: b.u64()? },
        kinds::RESET => Body::Reset { id: b.u64()? },
        kinds::GOODBYE_ACK => Body::GoodbyeAck { id: b.u64()? },
        kinds::VERSION => {
            let (spoken, refused) = (b.u8()?, b.u8()?);
            b.take(6)?;
            Body::Version { spoken, refused }
        }
        kinds::SIZE_PROBE => {
            let number = b.u16()?;
            b.0 = &[];
            Body::SizeProbe { number }
        }
        kinds::SIZE_ANSWER => Body::SizeAnswer { number: b.u16()?, bytes: b.u16()? },
        kind => return Err(Error::Kind(kind)),
    };
    Ok((body, b.0.len()))
}

fn ack(b: &mut Bytes<'_>) -> Result<Ack, Error> {
    let (state, base) = (state(b)?, b.u32()?);
    let [words, ranges, records] = [b.u16()?, b.u16()?, b.u16()?].map(usize::from);
    b.u16()?;
    if words > WORDS_MAX || ranges > RANGES_MAX || records > RECORDS_MAX {
        return Err(Error::Value);
    }
    let words = (0..words).map(|_| b.u64()).collect::<Result<_, _>>()?;
    let ranges = (0..ranges).map(|_| range(b)).collect::<Result<_, _>>()?;
    let records = (0..records).map(|_| run(b)).collect::<Result<_, _>>()?;
    Ok(Ack { state, base, words, ranges, records })
}

fn range(b: &mut Bytes<'_>) -> Result<Range, Error> {
    let (first, count) = (b.u32()?, b.u16()?);
    let cut_off = match b.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Error::Value),
    };
    Ok(Range { first, count, cut_off, attempt: b.u8()? })
}

fn run(b: &mut Bytes<'_>) -> Result<Run, Error> {
    let (first, sent, hold_ns) = (b.u32()?, b.u32()?, b.u32()?);
    let (path, packets, marked) = (b.u8()?, b.u8()?, b.u8()?);
    b.u8()?;
    Ok(Run { first, sent, hold_ns, path, packets, marked })
}
