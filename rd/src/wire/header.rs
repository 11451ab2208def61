//! The common header: EETH's four fields first, then fields that UD hides (protocol.md §2.1).

use super::{Malformed, Reader};
use alloc::vec::Vec;

/// Bytes of the common header.
pub const HEADER_BYTES: usize = 32;
/// Offset of the header checksum.
const CRC_AT: usize = 28;
/// Protocol version in the header, at most [`VERSION_MAX`].
pub const VERSION: u8 = 2;
/// Protocol version of packets that a job's key proves (protocol.md §11).
pub const KEYED_VERSION: u8 = 3;
/// Largest version: the field has 3 bits.
pub const VERSION_MAX: u8 = 7;
/// Largest number of a kind: the field has 4 bits.
const KIND_BITS: u8 = 15;

/// Purpose of a packet (protocol.md §2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PacketKind {
    /// Payload or a bundle of records; has a PSN and is repaired when lost.
    Data = 0,
    /// Acknowledgement state, with SACK, NACK and per-packet sections.
    Ack = 1,
    /// Asks for an acknowledgement.
    Probe = 2,
    /// Opens a session.
    Hello = 3,
    /// Gives the cookie that a hello must carry.
    Challenge = 4,
    /// Accepts a session.
    Welcome = 5,
    /// Tells a prober that its session is unknown.
    Reset = 6,
    /// Ends a session in order.
    Goodbye = 7,
    /// Confirms a goodbye.
    GoodbyeAck = 8,
    /// Refuses a hello of another protocol version. The same in all versions from 2 on.
    Version = 9,
    /// Asks whether a datagram of its size arrives.
    SizeProbe = 10,
    /// Tells which size arrived.
    SizeAnswer = 11,
}

impl PacketKind {
    /// The kind that a datagram's first byte names.
    pub(crate) fn of(first: u8) -> Option<PacketKind> {
        PacketKind::from_bits(first & KIND_BITS)
    }

    /// Whether a reader that does not know the packet's session answers it. So it has a checksum, with a key too, and is
    /// never hidden.
    pub(crate) fn is_answered_unproven(self) -> bool {
        matches!(self, PacketKind::Probe | PacketKind::Goodbye)
    }

    fn from_bits(bits: u8) -> Option<PacketKind> {
        Some(match bits {
            0 => PacketKind::Data,
            1 => PacketKind::Ack,
            2 => PacketKind::Probe,
            3 => PacketKind::Hello,
            4 => PacketKind::Challenge,
            5 => PacketKind::Welcome,
            6 => PacketKind::Reset,
            7 => PacketKind::Goodbye,
            8 => PacketKind::GoodbyeAck,
            9 => PacketKind::Version,
            10 => PacketKind::SizeProbe,
            11 => PacketKind::SizeAnswer,
            _ => return None,
        })
    }
}

/// The sender asks for an acknowledgement soon.
pub const FLAG_ACK_REQUEST: u8 = 0x01;
/// Four bytes of payload checksum end the datagram.
pub const FLAG_PAYLOAD_CRC: u8 = 0x02;
/// A segment of an eager message: a message header follows the common header.
pub const FLAG_EAGER: u8 = 0x04;
/// A segment of a read with invalid bytes: the memory is gone.
pub const FLAG_VOID: u8 = 0x08;
/// An acknowledgement state follows the message header of an eager segment.
pub const FLAG_ACK: u8 = 0x10;
/// The receiver's window holds the sender back (protocol.md §4.4).
pub const FLAG_HELD: u8 = 0x20;
/// The sender has nothing more for this receiver (protocol.md §4.4).
pub const FLAG_LAST: u8 = 0x80;
/// The sender's application waits for the acknowledgement of a lone message (protocol.md §6.1).
pub const FLAG_AWAITED: u8 = 0x40;

/// The common header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// EETH Type: the packet belongs to a long message.
    pub long: bool,
    /// The packet's kind.
    pub kind: PacketKind,
    /// `FLAG_*`.
    pub flags: u8,
    /// EETH Msg_ID.
    pub msg_id: u16,
    /// EETH S_Len: valid payload bytes after the common header (and message header).
    pub s_len: u16,
    /// Path the packet was sent on.
    pub path: u8,
    /// How often this PSN had been sent before, saturating.
    pub attempt: u8,
    /// EETH S_Offset: place of the payload in its message, in bytes.
    pub s_offset: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// The receiver's session id; 0 in a hello.
    pub session: u64,
    /// Send time, low 32 bits of the sender's nanosecond clock.
    pub sent_at_ns: u32,
}

impl Header {
    /// A header with everything but `kind` and `session` zero.
    #[must_use]
    pub fn new(kind: PacketKind, session: u64) -> Header {
        Header {
            long: false,
            kind,
            flags: 0,
            msg_id: 0,
            s_len: 0,
            path: 0,
            attempt: 0,
            s_offset: 0,
            psn: 0,
            session,
            sent_at_ns: 0,
        }
    }

    /// Reads a header of [`VERSION`]; the checksum is checked by [`checksum_ok`].
    ///
    /// # Errors
    /// `Err(None)` for another version, `Err(Some(Malformed))` when short or of unknown kind.
    pub fn parse(bytes: &[u8]) -> Result<Header, Option<Malformed>> {
        Header::parse_of(VERSION, bytes)
    }

    /// The same, of this version.
    ///
    /// # Errors
    /// As [`Header::parse`].
    pub fn parse_of(spoken: u8, bytes: &[u8]) -> Result<Header, Option<Malformed>> {
        let r = &mut Reader::new(bytes);
        let first = r.u8().map_err(Some)?;
        let kind = PacketKind::from_bits(first & KIND_BITS);
        if version(first) != spoken && kind != Some(PacketKind::Version) {
            return Err(None);
        }
        let kind = kind.ok_or(Some(Malformed))?;
        let mut fields = || -> Result<Header, Malformed> {
            let header = Header {
                long: first & 0x80 != 0,
                kind,
                flags: r.u8()?,
                msg_id: r.u16()?,
                s_len: r.u16()?,
                path: r.u8()?,
                attempt: r.u8()?,
                s_offset: r.u32()?,
                psn: r.u32()?,
                session: r.u64()?,
                sent_at_ns: r.u32()?,
            };
            r.u32()?;
            Ok(header)
        };
        fields().map_err(Some)
    }

    /// Appends the header with a zero checksum.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut b = [0u8; HEADER_BYTES];
        b[0] = (u8::from(self.long) << 7) | (VERSION << 4) | self.kind as u8;
        b[1] = self.flags;
        b[2..4].copy_from_slice(&self.msg_id.to_be_bytes());
        b[4..6].copy_from_slice(&self.s_len.to_be_bytes());
        b[6] = self.path;
        b[7] = self.attempt;
        b[8..12].copy_from_slice(&self.s_offset.to_be_bytes());
        b[12..16].copy_from_slice(&self.psn.to_be_bytes());
        b[16..24].copy_from_slice(&self.session.to_be_bytes());
        b[24..28].copy_from_slice(&self.sent_at_ns.to_be_bytes());
        out.extend_from_slice(&b);
    }
}

/// The protocol version that a datagram's first byte names.
#[must_use]
pub(crate) fn version(first: u8) -> u8 {
    (first >> 4) & VERSION_MAX
}

/// Changes the version in a datagram's first byte.
pub(crate) fn set_version(first: &mut u8, version: u8) {
    *first = *first & !(VERSION_MAX << 4) | version << 4;
}

/// Whether a datagram's first byte names this kind, in whatever version.
pub(crate) fn names_kind(first: u8, kind: PacketKind) -> bool {
    first & KIND_BITS == kind as u8
}

/// The header checksum of a header region: the common header with a zero checksum field and
/// whatever headers follow it.
fn checksum(region: &[u8], crc: fn(u32, &[u8]) -> u32) -> u32 {
    let mut head = [0; HEADER_BYTES];
    head[..CRC_AT].copy_from_slice(&region[..CRC_AT]);
    let sum = crc(0, &head);
    if region.len() == HEADER_BYTES { sum } else { crc(sum, &region[HEADER_BYTES..]) }
}

/// Sets the checksum of the header region that starts `bytes` to zero.
pub(crate) fn clear_checksum(bytes: &mut [u8]) {
    bytes[CRC_AT..HEADER_BYTES].fill(0);
}

/// Writes the checksum of the header region that starts at `start` and ends with `out`.
pub fn seal(out: &mut [u8], start: usize, crc: fn(u32, &[u8]) -> u32) {
    let region = &mut out[start..];
    region[CRC_AT..HEADER_BYTES].fill(0);
    let sum = crc(0, region);
    region[CRC_AT..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
}

/// Whether a header region's checksum is right. `region` has at least [`HEADER_BYTES`].
#[must_use]
pub fn checksum_ok(region: &[u8], crc: fn(u32, &[u8]) -> u32) -> bool {
    region.len() >= HEADER_BYTES
        && region[CRC_AT..HEADER_BYTES] == checksum(region, crc).to_be_bytes()
}
