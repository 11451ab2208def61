//! Records of a bundle (§5.2, §9), the message header of eager segments (§5.3), and the acknowledgement state (§6.2).

use super::Error;
use super::bytes::Bytes;

/// Bytes of the message header of an eager segment.
pub(super) const MESSAGE_BYTES: usize = 32;
/// Bytes of an acknowledgement state.
pub(super) const STATE_BYTES: usize = 44;

/// Flags of a message.
const TAGGED: u8 = 1;
const WITH_DATA: u8 = 2;
const NOTICE: u8 = 4;
/// The place of the number of targets, less one, in the flags of a request.
const TARGETS_AT: u8 = 4;
/// Most bytes of the targets of an atomic request.
const ATOMIC_MAX_BYTES: u64 = 512;
/// Most bytes of the targets of a read.
const READ_MAX_BYTES: u64 = 1 << 30;
/// The greatest status of an answer (§9.6).
const STATUS_MAX: u8 = 6;

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordRead {
    /// 1: a whole message, with its payload. It has an op number if it wants a match notice.
    Eager(Message),
    /// 2: a message that waits for its match.
    Announcement(Message),
    /// 3: permission to send a link.
    Permission {
        /// The link's Msg_ID.
        msg_id: u16,
        /// The message's or request's send order.
        order: u32,
        /// Its op number.
        op: u32,
        /// The link's length.
        link_len: u32,
        /// Where the link begins in the message.
        link_base: u64,
        /// Bytes wanted of all links.
        wanted: u64,
    },
    /// 4: a message was matched.
    Matched {
        /// Its send order.
        order: u32,
        /// Its op number.
        op: u32,
    },
    /// 5: an acknowledgement.
    Ack(State),
    /// 6 to 9: a request to memory.
    Request(Request),
    /// 10: an answer.
    Answer(Answer),
    /// 11: requests in a range of send orders were done.
    Done {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
    },
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Its send order.
    pub order: u32,
    /// Its whole length.
    pub len: u64,
    /// Its op number, where the format has one.
    pub op: Option<u32>,
    /// Its tag, if it has one.
    pub tag: Option<u64>,
    /// Completion data.
    pub data: Option<u64>,
    /// It wants a match notice.
    pub match_notice: bool,
}

/// A request to memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What it does.
    pub access: Access,
    /// Its send order.
    pub order: u32,
    /// Its op number.
    pub op: u32,
    /// Bytes that come with it.
    pub half: u16,
    /// Completion data.
    pub data: Option<u64>,
    /// The memory.
    pub targets: Vec<Target>,
}

impl Request {
    /// Bytes of the memory.
    pub fn len(&self) -> u64 {
        self.targets.iter().map(|target| target.len).sum()
    }

    /// True if it names no byte of memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// See [`Request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// 6: a write, with its bytes.
    Write,
    /// 7: a write that waits for permission.
    WriteAnnounced,
    /// 8: a read.
    Read {
        /// The Msg_ID of the link for its bytes.
        msg_id: u16,
    },
    /// 9: an atomic.
    Atomic {
        /// Operation.
        operation: u8,
        /// Datatype.
        datatype: u8,
        /// 0 update, 1 fetch, 2 compare.
        form: u8,
    },
}

/// A stretch of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Address.
    pub address: u64,
    /// Length.
    pub len: u64,
    /// Key.
    pub key: u64,
}

/// An answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// 0, or why it is refused (§9.6).
    pub status: u8,
    /// Bytes that come with it.
    pub half: u16,
    /// The request's send order.
    pub order: u32,
    /// The request's op number.
    pub op: u32,
    /// The Msg_ID of a read.
    pub msg_id: u16,
    /// Bytes sent under it.
    pub sent: u32,
}

/// The acknowledgement state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// The lowest missing PSN.
    pub missing: u32,
    /// One past the highest PSN that came or that a probe named.
    pub end: u32,
    /// The latest send time seen.
    pub latest_sent: u32,
    /// Echoed send time.
    pub echoed: u32,
    /// Hold time.
    pub hold_ns: u32,
    /// Echoed path.
    pub path: u8,
    /// The echo is valid.
    pub echo_valid: bool,
    /// It answers a probe.
    pub answers_probe: bool,
    /// Needless repetitions counted.
    pub needless: u16,
    /// Marked bytes.
    pub marked: u32,
    /// Received bytes.
    pub received: u32,
    /// Eager limit.
    pub eager_limit: u32,
    /// Order limit.
    pub order_limit: u32,
    /// Window.
    pub window: u32,
}

/// The records of a bundle, and the bytes of their headers (with the count) and of their payloads.
pub(super) struct Bundle {
    pub(super) records: Vec<RecordRead>,
    pub(super) head: usize,
    pub(super) payload: usize,
}

impl Bundle {
    /// Reads a bundle without its payload checksum.
    pub(super) fn read(bytes: &[u8]) -> Result<Bundle, Error> {
        let b = &mut Bytes(bytes);
        let count = b.u16()?;
        let records = (0..count).map(|_| record(b)).collect::<Result<Vec<_>, _>>()?;
        let payload = records.iter().map(RecordRead::payload).sum();
        let head = bytes.len() - b.0.len();
        if b.0.len() == payload {
            Ok(Bundle { records, head, payload })
        } else {
            Err(Error::Length)
        }
    }
}

impl RecordRead {
    /// Bytes that come with it, behind the headers of all records.
    pub fn payload(&self) -> usize {
        match self {
            // The length of an eager record has 16 bits.
            RecordRead::Eager(message) => message.len as usize,
            RecordRead::Request(request) => request.half.into(),
            RecordRead::Answer(answer) => answer.half.into(),
            _ => 0,
        }
    }
}

fn record(b: &mut Bytes<'_>) -> Result<RecordRead, Error> {
    let (kind, flags, half) = (b.u8()?, b.u8()?, b.u16()?);
    Ok(match kind {
        1 => {
            let order = b.u32()?;
            let op = (flags & NOTICE != 0).then(|| b.u32()).transpose()?;
            RecordRead::Eager(tail(b, flags, order, op, half.into())?)
        }
        2 => {
            let (order, op, len) = (b.u32()?, b.u32()?, b.u64()?);
            RecordRead::Announcement(tail(b, flags, order, Some(op), len)?)
        }
        3 => RecordRead::Permission {
            msg_id: half,
            order: b.u32()?,
            op: b.u32()?,
            link_len: b.u32()?,
            link_base: b.u64()?,
            wanted: b.u64()?,
        },
        4 => RecordRead::Matched { order: b.u32()?, op: b.u32()? },
        5 => RecordRead::Ack(state(b)?),
        6..=9 => RecordRead::Request(request(b, kind, flags, half)?),
        10 => RecordRead::Answer(answer(b, flags, half)?),
        11 => RecordRead::Done { first: b.u32()?, last: b.u32()? },
        _ => return Err(Error::Record(kind)),
    })
}

/// The end of a message's record: tag and data.
fn tail(
    b: &mut Bytes<'_>,
    flags: u8,
    order: u32,
    op: Option<u32>,
    len: u64,
) -> Result<Message, Error> {
    let tag = (flags & TAGGED != 0).then(|| b.u64()).transpose()?;
    let data = (flags & WITH_DATA != 0).then(|| b.u64()).transpose()?;
    Ok(Message { order, len, op, tag, data, match_notice: flags & NOTICE != 0 })
}

/// The message header of an eager segment: flags (1), 0 (3), order, length, op (4 each), tag, data (8 each).
pub(super) fn message(b: &mut Bytes<'_>) -> Result<Message, Error> {
    let flags = b.u8()?;
    b.take(3)?;
    let (order, len, op, tag, data) = (b.u32()?, b.u32()?, b.u32()?, b.u64()?, b.u64()?);
    Ok(Message {
        order,
        len: len.into(),
        op: Some(op),
        tag: (flags & TAGGED != 0).then_some(tag),
        data: (flags & WITH_DATA != 0).then_some(data),
        match_notice: flags & NOTICE != 0,
    })
}

pub(super) fn state(b: &mut Bytes<'_>) -> Result<State, Error> {
    let (missing, end, latest_sent) = (b.u32()?, b.u32()?, b.u32()?);
    let (echoed, hold_ns, path, flags) = (b.u32()?, b.u32()?, b.u8()?, b.u8()?);
    Ok(State {
        missing,
        end,
        latest_sent,
        echoed,
        hold_ns,
        path,
        echo_valid: flags & 1 != 0,
        answers_probe: flags & 2 != 0,
        needless: b.u16()?,
        marked: b.u32()?,
        received: b.u32()?,
        eager_limit: b.u32()?,
        order_limit: b.u32()?,
        window: b.u32()?,
    })
}

fn request(b: &mut Bytes<'_>, kind: u8, flags: u8, half: u16) -> Result<Request, Error> {
    let (order, op) = (b.u32()?, b.u32()?);
    let access = match kind {
        6 => Access::Write,
        7 => Access::WriteAnnounced,
        8 => {
            let msg_id = b.u16()?;
            b.u16()?;
            Access::Read { msg_id }
        }
        _ => {
            let [operation, datatype, form, _] = b.array()?;
            Access::Atomic { operation, datatype, form }
        }
    };
    let data = (flags & WITH_DATA != 0).then(|| b.u64()).transpose()?;
    let count = (flags >> TARGETS_AT & 3) + 1;
    let targets = (0..count).map(|_| target(b)).collect::<Result<Vec<_>, _>>()?;
    let lengths = || targets.iter().map(|target| target.len);
    let len = lengths().try_fold(0_u64, u64::checked_add).ok_or(Error::Request)?;
    if !agrees(access, half.into(), len) {
        return Err(Error::Request);
    }
    Ok(Request { access, order, op, half, data, targets })
}

/// Whether the bytes that come with a request are right for its memory (§9.1).
fn agrees(access: Access, half: u64, len: u64) -> bool {
    match access {
        Access::Write => half == len,
        Access::WriteAnnounced => half == 0 && len > 0,
        Access::Read { .. } => half == 0 && len <= READ_MAX_BYTES,
        Access::Atomic { form, .. } => {
            let operand = if form == 2 { 2 * u128::from(len) } else { len.into() };
            form <= 2 && len <= ATOMIC_MAX_BYTES && (half == 0 || u128::from(half) == operand)
        }
    }
}

fn target(b: &mut Bytes<'_>) -> Result<Target, Error> {
    Ok(Target { address: b.u64()?, len: b.u64()?, key: b.u64()? })
}

fn answer(b: &mut Bytes<'_>, status: u8, half: u16) -> Result<Answer, Error> {
    let (order, op, msg_id) = (b.u32()?, b.u32()?, b.u16()?);
    b.u16()?;
    if status > STATUS_MAX {
        return Err(Error::Value);
    }
    Ok(Answer { status, half, order, op, msg_id, sent: b.u32()? })
}
