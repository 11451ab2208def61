//! Answers to reads over a lane: the initiator reads the bytes where they lie in the target's memory, and asks the target
//! whether they were there all the time (protocol.md §12.6).

use super::links::{Incoming, Links, Purpose};
use crate::host::{Host, Lane, Payload, Sources};
use crate::mutants::{Mutant, mutant};
use crate::peer::lane_side::{Place, Pulling, Taken};
use crate::peer::record::TxRecord;
use crate::peer::transfers::Transfer;
use crate::peer::{Core, Peer, Role};
use crate::stats::DropReason;
use crate::wire::entry::{LENT, TAKEN, emit_lent, emit_taken};
use crate::wire::remote::{Answer, Refusal};

impl Peer {
    /// Tells of answers that the peer may read where they are, and of those that this side has read. False if there is no
    /// room.
    pub(in crate::peer) fn put_lent<H: Host>(
        &mut self,
        core: &Core,
        host: &mut H,
        lane: Lane,
    ) -> bool {
        while let Some((index, order)) = self.lane.lends.front().copied() {
            // It may have been withdrawn.
            let op = core.ops.get(index as usize).filter(|op| op.peer == self.id.index);
            let op = op.filter(|op| op.order == order);
            if let Some((op, msg_id)) = op.and_then(|op| match op.role {
                Role::Answer { msg_id, lent: true, .. } => Some((op, msg_id)),
                _ => None,
            }) {
                self.begin_entry();
                emit_lent(&mut self.lane.head, msg_id, index);
                if !self.put(host, lane, LENT, Some(Payload::Sources(op.token))) {
                    return false;
                }
            }
            self.lane.lends.pop_front();
        }
        while let Some(Taken { answer, order, sends }) = self.lane.taken.front().copied() {
            self.begin_entry();
            emit_taken(&mut self.lane.head, answer, order, sends);
            if !self.put(host, lane, TAKEN, None) {
                return false;
            }
            self.lane.taken.pop_front();
        }
        true
    }

    /// Takes word of the place of a read's bytes.
    ///
    /// # Errors
    /// There is no such read, or its bytes have begun to come.
    pub(in crate::peer) fn on_lent<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        (msg_id, answer): (u16, u32),
        sources: Sources,
    ) -> Result<(), DropReason> {
        let slot = Links::slot(msg_id).ok_or(DropReason::Message)?;
        let (link, incoming) = self.rx.links.get(slot).ok_or(DropReason::Message)?;
        let fresh = !link.lent && link.coverage.got_bytes == 0;
        if incoming.purpose != Purpose::Read || !fresh {
            return Err(DropReason::Message);
        }
        link.lent = true;
        let (order, len_bytes) = (link.order, u64::from(link.len_bytes));
        // The second and later parts of a read of a GiB or more come through the ring.
        if sources.len_bytes() < len_bytes || link.base_bytes > 0 {
            self.lane.taken.push_back(Taken { answer, order, sends: true });
            return Ok(());
        }
        let name = (order, incoming.op);
        let part = Incoming::new(Purpose::Read, incoming.to, name, len_bytes, len_bytes);
        let place = Place { slot: slot as u16, order, answer };
        self.pull(core, host, Pulling { place: Some(place), ..Pulling::new(part, sources) });
        Ok(())
    }

    /// The bytes of a read have been read where they are, or cannot be.
    pub(in crate::peer) fn place_read(&mut self, place: Place, done: bool) {
        let Place { slot, order, answer } = place;
        if let Some((link, _)) = self.rx.links.get(usize::from(slot)) {
            link.pulled = done;
        }
        self.lane.taken.push_back(Taken { answer, order, sends: !done });
    }

    /// Takes word of what became of an answer that was lent.
    ///
    /// # Errors
    /// It was not.
    pub(in crate::peer) fn on_taken<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        Taken { answer: index, order, sends }: Taken,
    ) -> Result<(), DropReason> {
        let mine = self.id.index;
        // One that was withdrawn has ended. Its place may be another operation's, of which the order may be the same: the
        // peer numbers its requests, and this side its own.
        let op = core.ops.get_mut(index as usize).filter(|op| op.peer == mine && op.order == order);
        let Some(op) = op else { return Ok(()) };
        let Role::Answer { op: theirs, msg_id, lent, .. } = &mut op.role else { return Ok(()) };
        if !core::mem::take(lent) {
            return Err(DropReason::Message);
        }
        let (theirs, msg_id, len_bytes) = (*theirs, *msg_id, op.len_bytes);
        if sends {
            let (op, base_bytes, done_bytes) = (index, 0, 0);
            let transfer = Transfer { op, msg_id, base_bytes, len_bytes, done_bytes, eager: false };
            self.tx.out.answer(index, Some(transfer));
            return Ok(());
        }
        let is_there = host.is_there(op.token) || mutant(Mutant::LendsClosedMemory);
        let refusal = (!is_there).then_some(Refusal::Key);
        op.sent_bytes = len_bytes;
        match refusal {
            Some(refusal) => core.stats.refuse(refusal),
            None => core.stats.tx_payload_bytes += len_bytes,
        }
        let answer = Answer { order, op: theirs, msg_id, refusal, len_bytes: 0, sent_bytes: 0 };
        self.tx.out.push(TxRecord::Refused { answer, is_first: false });
        self.finish(core, host, index);
        Ok(())
    }
}
