//! Records of a bundle and the message header of eager segments (protocol.md §5).
//!
//! A bundle is a data packet of EETH Type 0: `count (2)`, all record headers, then the payloads
//! of its eager records in the same order. So the header checksum covers one contiguous region.

use super::ack::{ACK_BYTES, AckState};
use super::remote::{self, Answer, RemoteRequest};
use super::{Malformed, Reader};
use alloc::vec::Vec;

/// The message has a tag.
pub const MSG_TAGGED: u8 = 0x01;
/// The message carries remote completion data.
pub const MSG_DATA: u8 = 0x02;
/// The sender wants to know when the message was matched.
pub const MSG_MATCH_NOTICE: u8 = 0x04;

const EAGER: u8 = 1;
const RTS: u8 = 2;
const CTS: u8 = 3;
const MATCHED: u8 = 4;
const ACK: u8 = 5;

/// Fields of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsgHeader {
    /// Send order.
    pub order: u32,
    /// The sender's number for the operation, echoed in CTS and match notices.
    pub op: u32,
    /// Tag of a tagged message.
    pub tag: Option<u64>,
    /// Remote completion data.
    pub data: Option<u64>,
    /// A match notice is wanted.
    pub match_notice: bool,
    /// Whole length in bytes.
    pub len_bytes: u64,
}

/// Permission to send one link of a rendezvous message (protocol.md §5.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cts {
    /// Send order of the message.
    pub order: u32,
    /// The sender's operation number.
    pub op: u32,
    /// Msg_ID to put into the data packets.
    pub msg_id: u16,
    /// Offset of the link in the message, in bytes.
    pub base_bytes: u64,
    /// Length of the link, at most 1 GiB.
    pub len_bytes: u32,
    /// Bytes wanted over all links: less than the message when the buffer is smaller.
    pub total_bytes: u64,
}

/// One record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A whole small message; its payload lies in the bundle.
    Eager(MsgHeader),
    /// A message whose payload waits for its match.
    Rts(MsgHeader),
    /// Permission to send.
    Cts(Cts),
    /// An eager message was matched.
    Matched {
        /// The sender's operation number.
        op: u32,
        /// Send order of the message.
        order: u32,
    },
    /// Piggybacked acknowledgement state.
    Ack(AckState),
    /// A request to the reader's memory.
    Request(RemoteRequest),
    /// An answer to one of the reader's requests.
    Answer(Answer),
    /// The reader's writes and updates with send orders in this range were done.
    Done {
        /// The first of them.
        first: u32,
        /// The last of them.
        last: u32,
    },
}

/// Largest record header, in bytes.
pub const RECORD_MAX_BYTES: usize = 36;
/// Bytes of an acknowledgement record.
pub const ACK_RECORD_BYTES: usize = 4 + ACK_BYTES;
/// Bytes of the message header in an eager segment.
pub const EAGER_HEADER_BYTES: usize = 32;

fn msg_flags(m: &MsgHeader) -> u8 {
    (if m.tag.is_some() { MSG_TAGGED } else { 0 })
        | (if m.data.is_some() { MSG_DATA } else { 0 })
        | (if m.match_notice { MSG_MATCH_NOTICE } else { 0 })
}

fn put_tail(out: &mut Vec<u8>, m: &MsgHeader) {
    if let Some(tag) = m.tag {
        out.extend_from_slice(&tag.to_be_bytes());
    }
    if let Some(data) = m.data {
        out.extend_from_slice(&data.to_be_bytes());
    }
}

impl Record {
    /// Bytes of the record's header.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        let tail = |m: &MsgHeader| 8 * (m.tag.is_some() as usize + m.data.is_some() as usize);
        match self {
            Record::Eager(m) => 8 + 4 * m.match_notice as usize + tail(m),
            Record::Rts(m) => 20 + tail(m),
            Record::Cts(_) => 32,
            Record::Matched { .. } => 12,
            Record::Ack(_) => ACK_RECORD_BYTES,
            Record::Request(request) => request.header_bytes(),
            Record::Answer(_) => Answer::HEADER_BYTES,
            Record::Done { .. } => 12,
        }
    }

    /// Payload bytes that belong to the record.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        match self {
            Record::Eager(m) => m.len_bytes as usize,
            Record::Request(request) => request.operand_bytes.into(),
            Record::Answer(answer) => answer.len_bytes.into(),
            _ => 0,
        }
    }

    /// True if, on a lane, its writer may tell where its bytes are.
    #[must_use]
    pub fn has_sources(&self) -> bool {
        match self {
            Record::Rts(_) => true,
            Record::Request(request) => matches!(request.action, remote::Action::WriteLater),
            _ => false,
        }
    }

    /// Appends the record's header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Record::Eager(m) => {
                out.extend_from_slice(&[EAGER, msg_flags(m)]);
                out.extend_from_slice(&(m.len_bytes as u16).to_be_bytes());
                out.extend_from_slice(&m.order.to_be_bytes());
                if m.match_notice {
                    out.extend_from_slice(&m.op.to_be_bytes());
                }
                put_tail(out, m);
            }
            Record::Rts(m) => {
                out.extend_from_slice(&[RTS, msg_flags(m), 0, 0]);
                out.extend_from_slice(&m.order.to_be_bytes());
                out.extend_from_slice(&m.op.to_be_bytes());
                out.extend_from_slice(&m.len_bytes.to_be_bytes());
                put_tail(out, m);
            }
            Record::Cts(c) => {
                out.extend_from_slice(&[CTS, 0]);
                out.extend_from_slice(&c.msg_id.to_be_bytes());
                out.extend_from_slice(&c.order.to_be_bytes());
                out.extend_from_slice(&c.op.to_be_bytes());
                out.extend_from_slice(&c.len_bytes.to_be_bytes());
                out.extend_from_slice(&c.base_bytes.to_be_bytes());
                out.extend_from_slice(&c.total_bytes.to_be_bytes());
            }
            Record::Matched { op, order } => {
                out.extend_from_slice(&[MATCHED, 0, 0, 0]);
                out.extend_from_slice(&order.to_be_bytes());
                out.extend_from_slice(&op.to_be_bytes());
            }
            Record::Ack(a) => {
                out.extend_from_slice(&[ACK, 0, 0, 0]);
                a.emit(out);
            }
            Record::Request(request) => request.emit(out),
            Record::Answer(answer) => answer.emit(out),
            Record::Done { first, last } => {
                out.extend_from_slice(&[remote::DONE, 0, 0, 0]);
                out.extend_from_slice(&first.to_be_bytes());
                out.extend_from_slice(&last.to_be_bytes());
            }
        }
    }

    /// Reads one record header.
    ///
    /// # Errors
    /// [`Malformed`] when short or of unknown kind.
    pub fn parse(r: &mut Reader<'_>) -> Result<Record, Malformed> {
        let kind = r.u8()?;
        let flags = r.u8()?;
        let half = r.u16()?;
        match kind {
            EAGER => {
                let order = r.u32()?;
                let notice = flags & MSG_MATCH_NOTICE != 0;
                let op = if notice { r.u32()? } else { 0 };
                Ok(Record::Eager(msg_tail(r, flags, order, op, u64::from(half))?))
            }
            RTS => {
                let (order, op, len) = (r.u32()?, r.u32()?, r.u64()?);
                Ok(Record::Rts(msg_tail(r, flags, order, op, len)?))
            }
            CTS => Ok(Record::Cts(Cts {
                msg_id: half,
                order: r.u32()?,
                op: r.u32()?,
                len_bytes: r.u32()?,
                base_bytes: r.u64()?,
                total_bytes: r.u64()?,
            })),
            MATCHED => {
                let order = r.u32()?;
                Ok(Record::Matched { op: r.u32()?, order })
            }
            ACK => Ok(Record::Ack(AckState::parse(r)?)),
            remote::WRITE..=remote::ATOMIC => {
                Ok(Record::Request(RemoteRequest::parse(kind, flags, half, r)?))
            }
            remote::ANSWER => Ok(Record::Answer(Answer::parse(flags, half, r)?)),
            remote::DONE => {
                let first = r.u32()?;
                Ok(Record::Done { first, last: r.u32()? })
            }
            _ => Err(Malformed),
        }
    }
}

fn msg_tail(
    r: &mut Reader<'_>,
    flags: u8,
    order: u32,
    op: u32,
    len_bytes: u64,
) -> Result<MsgHeader, Malformed> {
    let tag = if flags & MSG_TAGGED != 0 { Some(r.u64()?) } else { None };
    let data = if flags & MSG_DATA != 0 { Some(r.u64()?) } else { None };
    let match_notice = flags & MSG_MATCH_NOTICE != 0;
    Ok(MsgHeader { order, op, tag, data, match_notice, len_bytes })
}

/// Appends the fixed message header of an eager segment.
pub fn emit_eager_header(out: &mut Vec<u8>, m: &MsgHeader) {
    out.extend_from_slice(&[msg_flags(m), 0, 0, 0]);
    out.extend_from_slice(&m.order.to_be_bytes());
    out.extend_from_slice(&(m.len_bytes as u32).to_be_bytes());
    out.extend_from_slice(&m.op.to_be_bytes());
    out.extend_from_slice(&m.tag.unwrap_or(0).to_be_bytes());
    out.extend_from_slice(&m.data.unwrap_or(0).to_be_bytes());
}

/// Reads the fixed message header of an eager segment.
///
/// # Errors
/// [`Malformed`] when short.
pub fn parse_eager_header(r: &mut Reader<'_>) -> Result<MsgHeader, Malformed> {
    let flags = r.u8()?;
    r.take(3)?;
    let (order, len, op, tag, data) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?, r.u64()?);
    Ok(MsgHeader {
        order,
        op,
        tag: (flags & MSG_TAGGED != 0).then_some(tag),
        data: (flags & MSG_DATA != 0).then_some(data),
        match_notice: flags & MSG_MATCH_NOTICE != 0,
        len_bytes: u64::from(len),
    })
}
