//! Filling bundles: the choice of control records, messages, requests and answers (protocol.md §5.2, §9).

use super::outbox::queued_cost;
use super::record::TxRecord;
use super::remote::Filled;
use super::{Core, Peer, Role};
use crate::host::Host;
use crate::wire::record::RECORD_MAX_BYTES;
use crate::wire::remote::Answer;

/// Longest control record of a bundle: no message, and without payload.
const CONTROL_BYTES: usize = 32;

impl Peer {
    /// Moves control records and queued messages into the record cache, as many as one datagram holds. A multi-packet
    /// eager message becomes a transfer, one at a time. Later messages wait until its first segment is sent, since PSNs
    /// follow the send orders (protocol.md §5.1).
    pub(super) fn fill_bundle<H: Host>(&mut self, core: &mut Core, host: &mut H) -> u16 {
        let (mut used, mut count) = self.fill_control(core);
        while let Some(index) = self.tx.out.next_posted() {
            let begins = self.tx.out.eager_done_bytes() == Some(0);
            if !self.tx.out.has_order_credit() || count == u16::MAX || begins {
                break;
            }
            let op = &core.ops[index as usize];
            if op.fence && self.tx.out.has_older() {
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
            self.tx.out.unqueue(cost);
            core.queued -= 1;
        }
        count
    }

    /// Moves control records into the record cache; returns the number of bytes and of records.
    fn fill_control(&mut self, core: &mut Core) -> (usize, u16) {
        let (mut used, mut count) = (0, 0);
        if let Some(done) = self.responder.take_done() {
            self.tx.out.push(done);
        }
        while let Some(record) = self.tx.out.next_record() {
            let bytes = match record {
                TxRecord::Answer(op) => {
                    Answer::HEADER_BYTES + core.ops[*op as usize].len_bytes as usize
                }
                _ => CONTROL_BYTES,
            };
            // The path may carry less now than when the answer was sized.
            if count > 0 && bytes.max(RECORD_MAX_BYTES) > self.bundle_room(used) {
                break;
            }
            let Some(record) = self.tx.out.take_record() else { break };
            if let TxRecord::Answer(op) = record {
                let op = &mut core.ops[op as usize];
                (op.announced, op.unacked, op.sent_bytes) = (true, 1, op.len_bytes);
            }
            if record.answers_message() {
                self.consume(core, 1, 0);
            }
            used += bytes;
            self.tx.flight.push_record(record);
            count += 1;
        }
        (used, count)
    }

    /// Puts the message at the front of the queue into a bundle that has `used` bytes; returns its bytes there: 0 if it
    /// goes in segments. `None` if it has to wait.
    fn fill_message(&mut self, core: &mut Core, index: u32, used: usize) -> Option<usize> {
        let op = &mut core.ops[index as usize];
        let len_bytes = op.len_bytes;
        let eager =
            len_bytes <= u64::from(core.cfg.eager_bytes) && self.tx.out.eager_fits(len_bytes);
        let len = len_bytes as usize;
        let fits = len + RECORD_MAX_BYTES <= self.bundle_room(0).min(usize::from(u16::MAX));
        // On a lane its receiver reads it from here, or asks for it.
        let eager = eager && (fits || !self.has_lane());
        if eager && !fits {
            if self.tx.out.eager_done_bytes().is_some() {
                return None;
            }
            self.tx.out.begin_eager(index, op);
            return Some(0);
        }
        let cost = RECORD_MAX_BYTES + if eager { len } else { 0 };
        if cost > self.bundle_room(used) {
            return None;
        }
        let record = self.tx.out.announce(index, op, eager);
        self.tx.flight.push_record(record);
        Some(cost)
    }
}
