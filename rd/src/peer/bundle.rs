//! What goes into a bundle: control records, messages, requests and answers (protocol.md §5.2, §9).

use super::remote::{self, Filled};
use super::tx::{Transfer, TxRecord, queued_cost};
use super::{Core, Op, Peer, Role};
use crate::host::Host;
use crate::mutants::{Mutant, mutant};
use crate::wire::record::{MsgHeader, RECORD_MAX_BYTES, Record};
use crate::wire::remote::{Answer, Refusal};

/// Longest record of a bundle that is neither a message nor comes with bytes.
const CONTROL_BYTES: usize = 32;

impl Peer {
    /// Moves control records and queued messages into the record cache, as many as one datagram
    /// holds. A multi-packet eager message becomes a transfer on the way, one at a time; what follows it
    /// waits until its first segment is sent, since PSNs keep to the send orders (protocol.md §5.1).
    pub(super) fn fill_bundle<H: Host>(&mut self, core: &mut Core, host: &mut H) -> u16 {
        let (mut used, mut count) = self.fill_control(core);
        while let Some(&index) = self.tx.queue.front() {
            let begins = self.tx.eager_done_bytes() == Some(0);
            if self.tx.order_credit() <= 0 || count == u16::MAX || begins {
                break;
            }
            let op = &mut core.ops[index as usize];
            if op.fence && self.tx.ops as usize > self.tx.queue.len() {
                break;
            }
            let cost = queued_cost(op.len_bytes, core.cfg.eager_bytes);
            if let Role::Request(at) = op.role {
                match self.fill_request(core, host, index, at, used) {
                    Filled::Full => break,
                    Filled::Ended => {}
                    Filled::Took { bytes, whole } => {
                        used += bytes;
                        count += 1;
                        if !whole {
                            continue;
                        }
                    }
                }
            } else {
                match self.fill_message(core, index, used) {
                    None => break,
                    Some(0) => {}
                    Some(bytes) => {
                        used += bytes;
                        count += 1;
                    }
                }
            }
            self.tx.queue.pop_front();
            core.queued -= 1;
            self.tx.queued_bytes -= cost;
        }
        count
    }

    /// Moves control records into the record cache; says how many bytes and records.
    fn fill_control(&mut self, core: &mut Core) -> (usize, u16) {
        let (mut used, mut count) = (0, 0);
        if let Some(done) = self.rx.take_done() {
            self.tx.control.push_back(done);
        }
        while let Some(record) = self.tx.control.front() {
            let bytes = match record {
                TxRecord::Answer(op) => {
                    Answer::HEADER_BYTES + core.ops[*op as usize].len_bytes as usize
                }
                _ => CONTROL_BYTES,
            };
            // The path may carry less now than when an answer was to fit.
            if count > 0 && bytes.max(RECORD_MAX_BYTES) > self.bundle_room(used) {
                break;
            }
            let Some(record) = self.tx.control.pop_front() else { break };
            if let TxRecord::Answer(op) = record {
                let op = &mut core.ops[op as usize];
                (op.announced, op.unacked, op.sent_bytes) = (true, 1, op.len_bytes);
            }
            if record.answers_message() {
                self.consume(core, 1, 0);
            }
            used += bytes;
            self.tx.records.push_back(record);
            count += 1;
        }
        (used, count)
    }

    /// Puts the message at the front of the queue into a bundle that has `used` bytes; says how
    /// many it takes: none if it goes in segments. `None` if it has to wait.
    fn fill_message(&mut self, core: &mut Core, index: u32, used: usize) -> Option<usize> {
        let op = &mut core.ops[index as usize];
        let eager =
            op.len_bytes <= u64::from(core.cfg.eager_bytes) && self.tx.eager_fits(op.len_bytes);
        let len = op.len_bytes as usize;
        if eager && len + RECORD_MAX_BYTES > self.bundle_room(0).min(usize::from(u16::MAX)) {
            if self.tx.eager_done_bytes().is_some() {
                return None;
            }
            self.start_eager_transfer(index, op);
            return Some(0);
        }
        let cost = RECORD_MAX_BYTES + if eager { len } else { 0 };
        if cost > self.bundle_room(used) {
            return None;
        }
        self.push_message_record(index, op, eager);
        Some(cost)
    }

    fn push_message_record(&mut self, index: u32, op: &mut Op, eager: bool) {
        op.order = self.tx.take_order();
        op.announced = true;
        op.unacked += 1;
        if eager {
            (op.wanted_bytes, op.granted_bytes) = (Some(op.len_bytes), op.len_bytes);
            op.sent_bytes = op.len_bytes;
            self.tx.eager_sent_bytes = self.tx.eager_sent_bytes.wrapping_add(op.len_bytes as u32);
            self.tx.records.push_back(TxRecord::Eager(index));
        } else {
            // The match is what a rendezvous waits for anyway.
            op.match_notice = false;
            self.tx.records.push_back(TxRecord::Rts(index));
        }
    }

    /// It goes before links, as messages in bundles do: what follows it waits for it.
    fn start_eager_transfer(&mut self, index: u32, op: &mut Op) {
        op.order = self.tx.take_order();
        op.announced = true;
        (op.wanted_bytes, op.granted_bytes) = (Some(op.len_bytes), op.len_bytes);
        self.tx.eager_sent_bytes = self.tx.eager_sent_bytes.wrapping_add(op.len_bytes as u32);
        let msg_id = self.tx.next_msg_id & 0x7fff;
        self.tx.next_msg_id = self.tx.next_msg_id.wrapping_add(1);
        self.tx.transfers.push_front(Transfer {
            op: index,
            msg_id,
            base_bytes: 0,
            len_bytes: op.len_bytes,
            done_bytes: 0,
            eager: true,
        });
    }
}

pub(super) fn msg_header(index: u32, op: &Op) -> MsgHeader {
    MsgHeader {
        order: op.order,
        op: index,
        tag: op.tag,
        data: op.data,
        match_notice: op.match_notice,
        len_bytes: op.len_bytes,
    }
}

/// The operation whose payload goes with a record, and how much that is.
pub(super) fn bundled(core: &Core, record: &TxRecord) -> Option<(Op, u32)> {
    let op = |index: u32| core.ops[index as usize];
    match *record {
        TxRecord::Eager(index) => Some((op(index), op(index).len_bytes as u32)),
        TxRecord::Request(index) => {
            Some((op(index), remote::request(core, index).operand_bytes.into()))
        }
        TxRecord::Answer(index) => match op(index).role {
            Role::Answer { withdrawn: false, .. } => Some((op(index), op(index).len_bytes as u32)),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn wire_record(record: &TxRecord, core: &Core, attempt: u8) -> Record {
    match *record {
        TxRecord::Cts(_) if mutant(Mutant::OmitsTheCtsFromRetransmissions) && attempt > 0 => {
            Record::Matched { op: u32::MAX, order: 0 }
        }
        TxRecord::Eager(index) => Record::Eager(msg_header(index, &core.ops[index as usize])),
        TxRecord::Rts(index) => Record::Rts(msg_header(index, &core.ops[index as usize])),
        TxRecord::Cts(cts) => Record::Cts(cts),
        TxRecord::Matched { op, order } => Record::Matched { op, order },
        TxRecord::Request(index) => Record::Request(remote::request(core, index)),
        TxRecord::Read(part) => Record::Request(remote::read_request(core, &part)),
        TxRecord::Answer(index) => Record::Answer(answer(&core.ops[index as usize])),
        TxRecord::Refused { answer, .. } => Record::Answer(answer),
        TxRecord::Done { first, last } => Record::Done { first, last },
    }
}

fn answer(op: &Op) -> Answer {
    let Role::Answer { op: theirs, msg_id, withdrawn, .. } = op.role else {
        unreachable!("a record names its own kind of operation")
    };
    Answer {
        order: op.order,
        op: theirs,
        msg_id,
        refusal: withdrawn.then_some(Refusal::Key),
        len_bytes: if withdrawn { 0 } else { op.len_bytes as u16 },
        sent_bytes: 0,
    }
}
