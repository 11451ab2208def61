//! Requests to a peer's memory and their answers (protocol.md §9): the records of RMA and atomics.

use super::{Malformed, Reader};
use alloc::vec::Vec;

/// Most stretches of memory that one request names.
pub const TARGETS_MAX: usize = 4;
/// Most bytes of a peer's memory that one atomic request changes: with operand, comparand and the
/// longest header it fits into the smallest datagram.
pub const ATOMIC_MAX_BYTES: u64 = 512;
/// Most bytes of one read request: those of a link.
pub const READ_MAX_BYTES: u64 = 1 << 30;

/// The request carries remote completion data.
const FLAG_DATA: u8 = 0x02;
/// Lowest bit of the number of targets, less one, in the flags.
const COUNT_SHIFT: u8 = 4;

/// Record kinds.
pub(super) const WRITE: u8 = 6;
pub(super) const WRITE_LATER: u8 = 7;
pub(super) const READ: u8 = 8;
pub(super) const ATOMIC: u8 = 9;
pub(super) const ANSWER: u8 = 10;
pub(super) const DONE: u8 = 11;

/// One stretch of a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// Its start: a virtual address, or an offset into the region, as the peer's region defines.
    pub addr: u64,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Key of the region that it lies in.
    pub key: u64,
}

/// Stretches of a peer's memory that count as one run of bytes, 1 to [`TARGETS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Targets {
    list: [Target; TARGETS_MAX],
    count: u8,
    len_bytes: u64,
}

impl Targets {
    /// `None` if there are none or too many, or the sum of their lengths overflows.
    #[must_use]
    pub fn new(targets: &[Target]) -> Option<Targets> {
        if targets.is_empty() || targets.len() > TARGETS_MAX {
            return None;
        }
        let mut list = [Target::default(); TARGETS_MAX];
        list[..targets.len()].copy_from_slice(targets);
        let len_bytes = targets.iter().try_fold(0u64, |sum, t| sum.checked_add(t.len_bytes))?;
        Some(Targets { list, count: targets.len() as u8, len_bytes })
    }

    /// The stretches in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Target] {
        &self.list[..usize::from(self.count)]
    }

    /// Bytes of all of them together.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The `len_bytes` from `offset_bytes` on, which lie within.
    #[must_use]
    pub fn part(&self, offset_bytes: u64, len_bytes: u64) -> Targets {
        let (mut skip, mut left) = (offset_bytes, len_bytes);
        let mut part = Targets { list: [Target::default(); TARGETS_MAX], count: 0, len_bytes };
        for target in self.as_slice() {
            let take = target.len_bytes.saturating_sub(skip).min(left);
            if take > 0 || part.count == 0 && left == 0 {
                let addr = target.addr.wrapping_add(skip.min(target.len_bytes));
                let at = usize::from(part.count);
                part.list[at] = Target { addr, len_bytes: take, key: target.key };
                part.count += 1;
            }
            skip = skip.saturating_sub(target.len_bytes);
            left -= take;
        }
        part
    }
}

/// The effect of an atomic request on the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// It is changed.
    Update,
    /// It is changed, and its earlier contents are the answer.
    Fetch,
    /// The same, where a comparand allows it.
    Compare,
}

/// An atomic operation. The engine only passes the numbers on; the drivers interpret them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atomic {
    /// Operation, numbered as in `fi_atomic(3)`.
    pub op: u8,
    /// Type of each element, numbered likewise.
    pub datatype: u8,
    /// See [`Form`].
    pub form: Form,
}

impl Atomic {
    fn to_wire(self) -> [u8; 4] {
        [self.op, self.datatype, self.form as u8, 0]
    }

    fn from_wire(bytes: [u8; 4]) -> Result<Atomic, Malformed> {
        let [op, datatype, form, _] = bytes;
        let form = match form {
            0 => Form::Update,
            1 => Form::Fetch,
            2 => Form::Compare,
            _ => return Err(Malformed),
        };
        Ok(Atomic { op, datatype, form })
    }
}

/// The action of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Writes the bytes that come with it.
    Write,
    /// The same, with bytes that wait for permission.
    WriteLater,
    /// Reads the memory; bytes that do not fit into an answer come under this Msg_ID.
    Read(u16),
    /// See [`Atomic`].
    Atomic(Atomic),
}

/// A request to a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRequest {
    /// Send order.
    pub order: u32,
    /// The initiator's number for the operation, echoed in the answer.
    pub op: u32,
    /// The action.
    pub action: Action,
    /// Bytes that come with it in the bundle.
    pub operand_bytes: u16,
    /// Remote completion data.
    pub data: Option<u64>,
    /// The memory.
    pub targets: Targets,
}

impl RemoteRequest {
    /// Bytes of the record's header.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        let extra = matches!(self.action, Action::Read(_) | Action::Atomic(_));
        12 + 4 * extra as usize
            + 8 * self.data.is_some() as usize
            + 24 * self.targets.as_slice().len()
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let (kind, extra) = match self.action {
            Action::Write => (WRITE, None),
            Action::WriteLater => (WRITE_LATER, None),
            Action::Read(msg_id) => {
                let [high, low] = msg_id.to_be_bytes();
                (READ, Some([high, low, 0, 0]))
            }
            Action::Atomic(atomic) => (ATOMIC, Some(atomic.to_wire())),
        };
        let data = if self.data.is_some() { FLAG_DATA } else { 0 };
        out.extend_from_slice(&[kind, data | (self.targets.count - 1) << COUNT_SHIFT]);
        out.extend_from_slice(&self.operand_bytes.to_be_bytes());
        out.extend_from_slice(&self.order.to_be_bytes());
        out.extend_from_slice(&self.op.to_be_bytes());
        out.extend(extra.into_iter().flatten());
        out.extend(self.data.into_iter().flat_map(u64::to_be_bytes));
        for target in self.targets.as_slice() {
            for word in [target.addr, target.len_bytes, target.key] {
                out.extend_from_slice(&word.to_be_bytes());
            }
        }
    }

    pub(super) fn parse(
        kind: u8,
        flags: u8,
        operand_bytes: u16,
        r: &mut Reader<'_>,
    ) -> Result<RemoteRequest, Malformed> {
        let (order, op) = (r.u32()?, r.u32()?);
        let action = match kind {
            WRITE => Action::Write,
            WRITE_LATER => Action::WriteLater,
            READ => {
                let msg_id = r.u16()?;
                r.u16()?;
                Action::Read(msg_id)
            }
            _ => Action::Atomic(Atomic::from_wire([r.u8()?, r.u8()?, r.u8()?, r.u8()?])?),
        };
        let data = if flags & FLAG_DATA != 0 { Some(r.u64()?) } else { None };
        let mut list = [Target::default(); TARGETS_MAX];
        let count = usize::from(flags >> COUNT_SHIFT & 3) + 1;
        for target in &mut list[..count] {
            *target = Target { addr: r.u64()?, len_bytes: r.u64()?, key: r.u64()? };
        }
        let targets = Targets::new(&list[..count]).ok_or(Malformed)?;
        let request = RemoteRequest { order, op, action, operand_bytes, data, targets };
        if request.is_consistent() { Ok(request) } else { Err(Malformed) }
    }

    /// True if the operand has the length that the targets ask for.
    fn is_consistent(&self) -> bool {
        let (targets, operand) = (self.targets.len_bytes(), u64::from(self.operand_bytes));
        match self.action {
            Action::Write => operand == targets,
            Action::WriteLater => operand == 0 && targets > 0,
            Action::Read(_) => operand == 0 && targets <= READ_MAX_BYTES,
            Action::Atomic(_) if targets > ATOMIC_MAX_BYTES => false,
            Action::Atomic(Atomic { form, .. }) => {
                let whole = if form == Form::Compare { 2 * targets } else { targets };
                operand == whole || operand == 0
            }
        }
    }
}

/// Reason for refusing a request (protocol.md §9.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// No region has this key, or not any more.
    Key = 1,
    /// The memory asked for is not all in the region.
    Bounds = 2,
    /// The region does not allow this access.
    Rights = 3,
    /// The peer knows no such operation on this type, or the memory does not hold whole elements.
    Operation = 4,
    /// The peer takes no requests to its memory.
    Unsupported = 5,
    /// The peer's application has not read as many completions as its queue holds.
    Room = 6,
}

/// Number of [`Refusal`]s.
pub const REFUSALS: usize = 6;

/// Names of the refusals, in order.
pub const REFUSAL_NAMES: [&str; REFUSALS] =
    ["key", "bounds", "rights", "operation", "unsupported", "room"];

impl Refusal {
    fn from_wire(status: u8) -> Result<Option<Refusal>, Malformed> {
        Ok(Some(match status {
            0 => return Ok(None),
            1 => Refusal::Key,
            2 => Refusal::Bounds,
            3 => Refusal::Rights,
            4 => Refusal::Operation,
            5 => Refusal::Unsupported,
            6 => Refusal::Room,
            _ => return Err(Malformed),
        }))
    }
}

/// The answer to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Send order of the request.
    pub order: u32,
    /// The initiator's operation number.
    pub op: u32,
    /// Msg_ID that a read named; 0 for others.
    pub msg_id: u16,
    /// The refusal, if it was refused.
    pub refusal: Option<Refusal>,
    /// Bytes that come with it in the bundle.
    pub len_bytes: u16,
    /// For a refused read: bytes sent under its Msg_ID.
    pub sent_bytes: u32,
}

impl Answer {
    /// Bytes of the record's header.
    pub const HEADER_BYTES: usize = 20;

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[ANSWER, self.refusal.map_or(0, |refusal| refusal as u8)]);
        out.extend_from_slice(&self.len_bytes.to_be_bytes());
        out.extend_from_slice(&self.order.to_be_bytes());
        out.extend_from_slice(&self.op.to_be_bytes());
        out.extend_from_slice(&self.msg_id.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&self.sent_bytes.to_be_bytes());
    }

    pub(super) fn parse(
        status: u8,
        len_bytes: u16,
        r: &mut Reader<'_>,
    ) -> Result<Answer, Malformed> {
        let refusal = Refusal::from_wire(status)?;
        let (order, op, msg_id) = (r.u32()?, r.u32()?, r.u16()?);
        r.u16()?;
        Ok(Answer { order, op, msg_id, refusal, len_bytes, sent_bytes: r.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Targets {
        let target = |addr, len_bytes| Target { addr, len_bytes, key: addr };
        Targets::new(&[target(100, 10), target(500, 0), target(900, 5)]).unwrap()
    }

    #[test]
    fn a_part_keeps_keys_and_counts_as_one_run() {
        let part = targets().part(8, 4);
        let expected = [
            Target { addr: 108, len_bytes: 2, key: 100 },
            Target { addr: 900, len_bytes: 2, key: 900 },
        ];
        assert_eq!(part.as_slice(), expected);
        assert_eq!(part.len_bytes(), 4);
        assert_eq!(targets().part(0, 0).as_slice().len(), 1, "a request names some memory");
    }

    #[test]
    fn lengths_that_no_asker_sends_are_malformed() {
        let parses = |action: Action, len_bytes: u64| {
            let targets = Targets::new(&[Target { addr: 0, len_bytes, key: 1 }]).unwrap();
            let (order, op, operand_bytes, data) = (1, 2, 0, None);
            let request = RemoteRequest { order, op, action, operand_bytes, data, targets };
            let mut out = Vec::new();
            request.emit(&mut out);
            let parsed = RemoteRequest::parse(out[0], out[1], 0, &mut Reader::new(&out[4..]));
            assert!(parsed.as_ref().is_ok_and(|p| *p == request) || parsed == Err(Malformed));
            parsed.is_ok()
        };
        assert!(parses(Action::Read(7), 0) && parses(Action::Read(7), READ_MAX_BYTES));
        assert!(!parses(Action::Read(7), READ_MAX_BYTES + 1) && !parses(Action::Read(7), u64::MAX));
        assert!(parses(Action::WriteLater, 1) && parses(Action::WriteLater, u64::MAX));
        assert!(!parses(Action::WriteLater, 0), "it would wait for permission to send nothing");
    }

    #[test]
    fn the_longest_atomic_fits_the_smallest_datagram() {
        let atomic = Atomic { op: 12, datatype: 7, form: Form::Compare };
        let list = [Target { len_bytes: ATOMIC_MAX_BYTES / 4, ..Target::default() }; TARGETS_MAX];
        let request = RemoteRequest {
            order: 0,
            op: 0,
            action: Action::Atomic(atomic),
            operand_bytes: 2 * ATOMIC_MAX_BYTES as u16,
            data: Some(0),
            targets: Targets::new(&list).unwrap(),
        };
        let mut out = Vec::new();
        request.emit(&mut out);
        assert_eq!(out.len(), request.header_bytes());
        let fixed =
            super::super::header::HEADER_BYTES + 2 + super::super::record::ACK_RECORD_BYTES + 4;
        let whole = fixed + out.len() + usize::from(request.operand_bytes);
        assert!(whole <= usize::from(crate::config::DATAGRAM_MIN_BYTES), "{whole}");
        // With a key it goes without an acknowledgement.
        let keyed = whole - super::super::record::ACK_RECORD_BYTES + crate::keys::TRAILER_BYTES;
        assert!(keyed <= usize::from(crate::config::DATAGRAM_MIN_BYTES), "{keyed}");
    }
}
