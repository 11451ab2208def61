//! Entries of the local lane: a session's records and segments between endpoints of one host (protocol.md §12.5).
//!
//! Each begins with the session's ids, the reader's and the writer's. A record and its payload, or a segment's head and
//! its payload, follow.

use super::record::Record;
use super::{Malformed, Reader};
use crate::host::Sources;
use alloc::vec::Vec;

/// Kind of an entry with a record.
pub const RECORD: u8 = 1;
/// Kind of an entry with a segment of a link.
pub const SEGMENT: u8 = 2;
/// Kind of an entry with the writer's limits.
pub const LIMITS: u8 = 3;

/// Kind of an entry that tells where the bytes of an answer are.
pub const LENT: u8 = 4;
/// Kind of an entry that tells what became of them.
pub const TAKEN: u8 = 5;

/// Longest entry, in bytes.
pub const ENTRY_MAX_BYTES: usize = 16 << 10;
/// Bytes of the session's ids, with which an entry begins.
pub const IDS_BYTES: usize = 16;
/// Bytes before a segment's payload, with the ids.
pub const SEGMENT_HEAD_BYTES: usize = IDS_BYTES + 8;
/// Longest payload of a segment, in bytes.
pub const SEGMENT_MAX_BYTES: usize = ENTRY_MAX_BYTES - SEGMENT_HEAD_BYTES;

/// Head of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHead {
    /// The link.
    pub msg_id: u16,
    /// Offset of its bytes in the link.
    pub offset_bytes: u32,
}

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A record with its payload.
    Record(Record, &'a [u8]),
    /// A segment with its payload.
    Segment(SegmentHead, &'a [u8]),
    /// The bytes of this link lie there, as the answer of this number.
    Lent {
        /// The link.
        msg_id: u16,
        /// The writer's number for its answer.
        answer: u32,
        /// Where they are; nowhere if they cannot be read there.
        sources: Sources,
    },
    /// What the writer has done with an answer that was lent.
    Taken {
        /// The reader's number for it.
        answer: u32,
        /// Send order of its request.
        order: u32,
        /// It has not read the bytes: the reader must send them.
        sends: bool,
    },
    /// Eager bytes and send orders up to which the writer takes messages.
    Limits {
        /// See [`super::ack::AckState::eager_limit_bytes`].
        eager_bytes: u32,
        /// See [`super::ack::AckState::order_limit`].
        order: u32,
    },
}

impl SegmentHead {
    /// Appends the head.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.msg_id.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.offset_bytes.to_be_bytes());
    }
}

/// Appends limits.
pub fn emit_limits(out: &mut Vec<u8>, eager_bytes: u32, order: u32) {
    out.extend_from_slice(&eager_bytes.to_be_bytes());
    out.extend_from_slice(&order.to_be_bytes());
}

/// Appends the head of a lent answer.
pub fn emit_lent(out: &mut Vec<u8>, msg_id: u16, answer: u32) {
    out.extend_from_slice(&msg_id.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&answer.to_be_bytes());
}

/// Appends word of a lent answer.
pub fn emit_taken(out: &mut Vec<u8>, answer: u32, order: u32, sends: bool) {
    out.extend_from_slice(&answer.to_be_bytes());
    out.extend_from_slice(&order.to_be_bytes());
    out.extend_from_slice(&[u8::from(sends), 0, 0, 0]);
}

/// The session that an entry belongs to, by its ids on both sides. One side may have begun again since the other took its
/// greeting, so the reader's id alone does not tell two sessions apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ids {
    /// The reader's.
    pub reader: u64,
    /// The writer's.
    pub writer: u64,
}

impl Ids {
    /// Appends the ids.
    pub fn emit(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.reader.to_be_bytes());
        out.extend_from_slice(&self.writer.to_be_bytes());
    }

    /// Reads the ids of an entry; also returns the rest of it.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<(Ids, &[u8])> {
        let (reader, rest) = bytes.split_first_chunk()?;
        let (writer, rest) = rest.split_first_chunk()?;
        let ids = Ids { reader: u64::from_be_bytes(*reader), writer: u64::from_be_bytes(*writer) };
        Some((ids, rest))
    }
}

impl<'a> Entry<'a> {
    /// Reads an entry of this kind, behind its ids.
    ///
    /// # Errors
    /// [`Malformed`] if it is too short or too long, or of no known kind.
    pub fn parse(kind: u8, bytes: &'a [u8]) -> Result<Entry<'a>, Malformed> {
        let mut r = Reader::new(bytes);
        match kind {
            RECORD => {
                let record = Record::parse(&mut r)?;
                if matches!(record, Record::Ack(_)) {
                    return Err(Malformed);
                }
                let payload = r.rest();
                let is_whole = match record.has_sources() {
                    true => Sources::read(payload).is_some(),
                    false => payload.len() == record.payload_bytes(),
                };
                is_whole.then_some(Entry::Record(record, payload)).ok_or(Malformed)
            }
            SEGMENT => {
                let msg_id = r.u16()?;
                r.u16()?;
                let offset_bytes = r.u32()?;
                Ok(Entry::Segment(SegmentHead { msg_id, offset_bytes }, r.rest()))
            }
            LENT => {
                let msg_id = r.u16()?;
                r.u16()?;
                let answer = r.u32()?;
                let sources = Sources::read(r.rest()).ok_or(Malformed)?;
                Ok(Entry::Lent { msg_id, answer, sources })
            }
            TAKEN => {
                let (answer, order, sends) = (r.u32()?, r.u32()?, r.u8()? != 0);
                r.u8()?;
                r.u16()?;
                let is_whole = r.rest().is_empty();
                is_whole.then_some(Entry::Taken { answer, order, sends }).ok_or(Malformed)
            }
            LIMITS => {
                let (eager_bytes, order) = (r.u32()?, r.u32()?);
                let is_whole = r.rest().is_empty();
                is_whole.then_some(Entry::Limits { eager_bytes, order }).ok_or(Malformed)
            }
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let record = Record::Matched { op: 7, order: 9 };
        let ids = Ids { reader: 5, writer: 1 << 40 };
        let mut bytes = Vec::new();
        ids.emit(&mut bytes);
        record.emit(&mut bytes);
        let (read, rest) = Ids::read(&bytes).expect("they are there");
        assert_eq!(read, ids);
        assert_eq!(Entry::parse(RECORD, rest), Ok(Entry::Record(record, &[])));
        assert_eq!(Entry::parse(RECORD, &rest[..rest.len() - 1]), Err(Malformed));
        assert_eq!(Entry::parse(9, rest), Err(Malformed));
        let head = SegmentHead { msg_id: 0x8001, offset_bytes: 70_000 };
        let mut bytes = Vec::new();
        head.emit(&mut bytes);
        assert_eq!(IDS_BYTES + bytes.len(), SEGMENT_HEAD_BYTES);
        bytes.extend_from_slice(b"abc");
        assert_eq!(Entry::parse(SEGMENT, &bytes), Ok(Entry::Segment(head, b"abc")));
        assert_eq!(Entry::parse(SEGMENT, &bytes[..7]), Err(Malformed));
        bytes.clear();
        emit_limits(&mut bytes, 5, 6);
        let limits = Entry::Limits { eager_bytes: 5, order: 6 };
        assert_eq!(Entry::parse(LIMITS, &bytes), Ok(limits));
        bytes.push(0);
        assert_eq!(Entry::parse(LIMITS, &bytes), Err(Malformed));
        bytes.clear();
        emit_taken(&mut bytes, 8, 9, true);
        let taken = Entry::Taken { answer: 8, order: 9, sends: true };
        assert_eq!(Entry::parse(TAKEN, &bytes), Ok(taken));
        assert_eq!(Entry::parse(TAKEN, &bytes[..11]), Err(Malformed));
        bytes.clear();
        emit_lent(&mut bytes, 0x8002, 7);
        bytes.extend_from_slice(&5_u64.to_be_bytes());
        bytes.extend_from_slice(&6_u64.to_be_bytes());
        let sources = Sources { pieces: [(5, 6), (0, 0)] };
        let lent = Entry::Lent { msg_id: 0x8002, answer: 7, sources };
        assert_eq!(Entry::parse(LENT, &bytes), Ok(lent));
        assert_eq!(Entry::parse(LENT, &bytes[..23]), Err(Malformed));
        assert_eq!(Ids::read(&[0; IDS_BYTES - 1]), None);
    }
}
