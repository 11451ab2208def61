//! The sending end of a queue pair: parts of messages as packets in order, sent again from where the receiver lost one.

use super::dcqcn::Dcqcn;
use super::settings::RoceSettings;
use crate::header::{RoceHeader, RoceKind};
use crate::ids::HostId;
use crate::time::Picos;
use crate::wire::PAYLOAD_BYTES;
use std::collections::VecDeque;

/// A part of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The message, by its place among those under way.
    pub(super) message: u32,
    pub(super) flow: u32,
    pub(super) parts: u16,
    /// Number of its first packet.
    first_psn: u32,
    pub(super) bytes: u64,
}

impl Part {
    pub(super) fn new(message: u32, flow: u32, parts: u16, bytes: u64) -> Part {
        Part { message, flow, parts, first_psn: 0, bytes }
    }

    /// An empty message takes a packet, too.
    fn packets(&self) -> u32 {
        self.bytes.div_ceil(PAYLOAD_BYTES.into()).max(1) as u32
    }

    fn end_psn(&self) -> u32 {
        self.first_psn + self.packets()
    }
}

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoceOutgoing {
    pub(super) header: RoceHeader,
    pub(super) payload_bytes: u32,
    /// Why it is sent again, if it was sent before.
    pub(super) repeats: Option<RoceRepeat>,
}

/// Why packets are sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoceRepeat {
    /// The receiver misses one.
    Nak,
    /// No progress.
    Timeout,
}

/// See the module.
#[derive(Debug)]
pub(super) struct QpSender {
    pub(super) to: HostId,
    pub(super) qp: u16,
    /// What switches choose its path by.
    pub(super) path: u16,
    pub(super) dcqcn: Dcqcn,
    /// Parts of messages that are not acknowledged, in order; at most one for each message of the host's tasks.
    parts: VecDeque<Part>,
    /// The part of the next packet.
    cursor: usize,
    /// The first packet that is not acknowledged, the next one to be sent, and the first one that was never sent.
    acked_psn: u32,
    next_psn: u32,
    fresh_psn: u32,
    /// Why it went back the last time.
    cause: RoceRepeat,
    /// The rate lets it send the next packet then.
    pub(super) free_at: Picos,
    /// It waits for its turn or for its rate.
    pub(super) is_scheduled: bool,
    /// Without progress until then, everything is sent again.
    pub(super) rto_at: Picos,
    /// An event for that was entered.
    pub(super) is_timed: bool,
}

impl QpSender {
    pub(super) fn new(to: HostId, qp: u16, path: u16) -> QpSender {
        QpSender {
            to,
            qp,
            path,
            dcqcn: Dcqcn::new(),
            parts: VecDeque::new(),
            cursor: 0,
            acked_psn: 0,
            next_psn: 0,
            fresh_psn: 0,
            cause: RoceRepeat::Nak,
            free_at: 0,
            is_scheduled: false,
            rto_at: 0,
            is_timed: false,
        }
    }

    pub(super) fn post(&mut self, part: Part) {
        let first_psn = self.parts.back().map_or(self.acked_psn, Part::end_psn);
        self.parts.push_back(Part { first_psn, ..part });
    }

    /// A packet could be sent.
    pub(super) fn has_more(&self) -> bool {
        self.cursor < self.parts.len()
    }

    /// Something is not acknowledged.
    pub(super) fn is_waiting(&self) -> bool {
        self.next_psn > self.acked_psn
    }

    /// The next packet.
    pub(super) fn next(&mut self) -> Option<RoceOutgoing> {
        let part = *self.parts.get(self.cursor)?;
        let psn = self.next_psn;
        let (offset, last) = (psn - part.first_psn, psn + 1 == part.end_psn());
        let sent = u64::from(offset) * u64::from(PAYLOAD_BYTES);
        let payload_bytes = (part.bytes - sent).min(PAYLOAD_BYTES.into()) as u32;
        let repeats = (psn < self.fresh_psn).then_some(self.cause);
        self.next_psn = psn + 1;
        self.fresh_psn = self.fresh_psn.max(self.next_psn);
        self.cursor += usize::from(last);
        let kind = RoceKind::Data { flow: part.flow, parts: part.parts, last };
        let header = RoceHeader { qp: self.qp, psn, kind };
        Some(RoceOutgoing { header, payload_bytes, repeats })
    }

    /// All packets before one have arrived; true if that is news. Each part that has arrived whole goes to `ended`.
    pub(super) fn acked(&mut self, psn: u32, mut ended: impl FnMut(Part)) -> bool {
        // The receiver cannot have got what was never sent.
        if psn <= self.acked_psn || psn > self.fresh_psn {
            return false;
        }
        self.acked_psn = psn;
        while let Some(part) = self.parts.front().filter(|part| part.end_psn() <= psn) {
            ended(*part);
            self.parts.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.next_psn < psn {
            self.restart();
        }
        true
    }

    /// Everything that is not acknowledged is sent again.
    pub(super) fn go_back(&mut self, cause: RoceRepeat) {
        self.cause = cause;
        self.restart();
    }

    fn restart(&mut self) {
        (self.next_psn, self.cursor) = (self.acked_psn, 0);
    }

    /// Time that has to pass after a packet of so many bytes, at its rate; none at the link's own rate.
    pub(super) fn pace(
        &mut self,
        now: Picos,
        bytes: u32,
        sending_ps: Picos,
        settings: &RoceSettings,
    ) {
        self.dcqcn.sent(now, bytes, settings);
        let rate = self.dcqcn.rate(now, settings);
        if rate < 1.0 {
            self.free_at = self.free_at.max(now) + (sending_ps as f64 / rate) as Picos;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(bytes: u64) -> QpSender {
        let mut sender = QpSender::new(HostId(1), 0, 7);
        sender.post(Part::new(0, 5, 1, bytes));
        sender
    }

    fn drain(sender: &mut QpSender) -> Vec<(u32, u32, bool)> {
        let next = |sender: &mut QpSender| sender.next();
        std::iter::from_fn(|| next(sender))
            .map(|out| (out.header.psn, out.payload_bytes, out.repeats.is_some()))
            .collect()
    }

    #[test]
    fn a_part_is_sent_in_order_and_again_from_where_one_is_missing() {
        let mut sender = sender(10_000);
        let all = [(0, 4096, false), (1, 4096, false), (2, 1808, false)];
        assert_eq!(drain(&mut sender), all);
        assert!(sender.acked(1, |_| unreachable!("more is missing")));
        sender.go_back(RoceRepeat::Nak);
        assert_eq!(drain(&mut sender), [(1, 4096, true), (2, 1808, true)]);
        let mut ended = Vec::new();
        assert!(sender.acked(3, |part| ended.push(part.flow)));
        assert_eq!((ended, sender.is_waiting(), sender.has_more()), (vec![5], false, false));
    }

    #[test]
    fn parts_follow_each_other_on_one_queue_pair() {
        let mut sender = sender(0);
        sender.post(Part::new(1, 6, 1, 5000));
        assert_eq!(drain(&mut sender), [(0, 0, false), (1, 4096, false), (2, 904, false)]);
        let mut ended = Vec::new();
        sender.acked(1, |part| ended.push(part.flow));
        assert_eq!(ended, [5]);
        sender.go_back(RoceRepeat::Nak);
        assert_eq!(drain(&mut sender), [(1, 4096, true), (2, 904, true)]);
    }

    #[test]
    fn nobody_acknowledges_what_was_not_sent() {
        let mut sender = sender(100_000);
        sender.next();
        assert!(!sender.acked(2, |_| unreachable!("it was not sent")));
        assert!(sender.acked(1, |_| unreachable!("more is to come")));
    }
}
