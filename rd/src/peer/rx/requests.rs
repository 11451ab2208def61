//! Meeting a peer's requests to memory of this host (protocol.md §9).

use super::links::{Incoming, Links, Purpose};
use super::{EarlyRequest, Rx, tables};
use crate::host::{Host, Operand, RecvToken, Remote, SendToken};
use crate::peer::outbox::Transfer;
use crate::peer::record::TxRecord;
use crate::peer::{Core, Op, Peer, Role};
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::remote::{Action, Answer, Form, Refusal, Request, Targets};

/// What a request came to.
enum Met {
    Done,
    /// Bytes are to be placed there.
    Later(RecvToken),
    /// Bytes are to be sent from there.
    Answer(SendToken),
}

impl Rx {
    /// Writes or updates were done of which the peer has not been told.
    pub(in crate::peer) fn has_done(&self) -> bool {
        self.done.is_some()
    }

    /// The record that tells of them.
    pub(in crate::peer) fn take_done(&mut self) -> Option<TxRecord> {
        self.done.take().map(|(first, last)| TxRecord::Done { first, last })
    }

    /// A write or an update of this order was done.
    fn note_done(&mut self, order: u32) {
        let first = self.done.map_or(order, |(first, _)| first);
        self.done = Some((first, order));
    }
}

impl Peer {
    /// A request in a bundle, with what came with it.
    pub(super) fn on_request<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        request: &Request,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let in_turn = match self.turn(request.order) {
            Ok(in_turn) => in_turn,
            Err(None) => return Ok(()),
            Err(Some(reason)) => return Err(reason),
        };
        if in_turn && !self.must_wait(core, request) {
            self.rx.links.has_room(host)?;
            tables::in_slab(host, &core.ops)?;
            self.rx.next_order = request.order.wrapping_add(1);
            self.meet(core, host, request, Operand::Here(payload));
            self.deliver_early(core, host);
            return Ok(());
        }
        tables::in_map(host, &mut self.rx.early_requests)?;
        let kept = match payload.is_empty() {
            true => None,
            false => Some(self.keep(core, host, payload)?),
        };
        self.rx.early_requests.insert(request.order, EarlyRequest { request: *request, kept });
        Ok(())
    }

    /// Keeps what came with a request before its turn.
    fn keep<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        payload: &[u8],
    ) -> Result<RecvToken, DropReason> {
        let len_bytes = payload.len() as u64;
        let total_bytes = self.rx.kept_bytes + len_bytes;
        if total_bytes > u64::from(core.cfg.eager_credit_bytes).max(u64::from(u16::MAX))
            || !core.budget.take(len_bytes)
        {
            return Err(DropReason::NoBuffer);
        }
        let Some(to) = host.keep(self.id, len_bytes) else {
            core.budget.give_back(len_bytes);
            return Err(DropReason::NoBuffer);
        };
        self.rx.kept_bytes = total_bytes;
        host.place(to, 0, payload);
        Ok(to)
    }

    /// Whether too many answers are on their way for one more, or too many keys were wrong.
    fn must_wait(&mut self, core: &Core, request: &Request) -> bool {
        let answered = match request.action {
            Action::Write | Action::WriteLater => false,
            Action::Read(_) => true,
            Action::Atomic(atomic) => atomic.form != Form::Update,
        };
        (answered && self.tx.out.is_full_of_answers())
            || self.keys_must_wait(core, &request.targets)
    }

    /// Whether a request must wait because its address has tried too many keys.
    fn keys_must_wait(&mut self, core: &Core, targets: &Targets) -> bool {
        let opens_at = core.wrong_keys.opens_at(self.name.ip(), core.now);
        opens_at.is_some_and(|at| !self.rx.keys.get_or_insert_default().are_proven(targets, at))
    }

    /// Sends the refusals that are due, and goes on where a request waited.
    pub(in crate::peer) fn run_keys<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        let Some(keys) = &mut self.rx.keys else { return };
        while let Some(answer) = keys.take_refusal(now) {
            self.tx.out.push(TxRecord::Refused { answer, is_first: true });
        }
        if keys.opens(now) {
            self.deliver_early(core, host);
        }
    }

    /// Meets the early request whose turn it is. False if there is none, or it must wait.
    pub(super) fn meet_early<H: Host>(&mut self, core: &mut Core, host: &mut H) -> bool {
        let order = self.rx.next_order;
        let Some(early) = self.rx.early_requests.get(&order).copied() else { return false };
        if self.must_wait(core, &early.request)
            || self.rx.links.has_room_to_wait(host).is_err()
            || tables::in_slab(host, &core.ops).is_err()
        {
            return false;
        }
        self.rx.early_requests.remove(&order);
        self.rx.next_order = order.wrapping_add(1);
        let operand = match early.kept {
            None => Operand::Here(&[]),
            Some(kept) => {
                let len_bytes = u64::from(early.request.operand_bytes);
                self.rx.kept_bytes -= len_bytes;
                core.budget.give_back(len_bytes);
                Operand::Kept(kept)
            }
        };
        self.meet(core, host, &early.request, operand);
        true
    }

    /// A request's turn has come.
    fn meet<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        request: &Request,
        operand: Operand<'_>,
    ) {
        let (targets, data) = (request.targets, request.data);
        let remote = Remote { peer: self.id, name: self.name, targets, data };
        let met = match request.action {
            Action::Write => host.remote_write(&remote, operand).map(|()| Met::Done),
            Action::WriteLater => host.remote_write_later(&remote).map(Met::Later),
            Action::Read(_) => host.remote_read(&remote).map(Met::Answer),
            Action::Atomic(atomic) if atomic.form == Form::Update => {
                host.remote_update(&remote, atomic, operand).map(|()| Met::Done)
            }
            Action::Atomic(atomic) => host.remote_fetch(&remote, atomic, operand).map(Met::Answer),
        };
        if met.is_ok() {
            self.rx.keys.get_or_insert_default().prove(&targets);
        }
        match met {
            Ok(Met::Done) => {
                core.stats.requests_served += 1;
                core.stats.rx_payload_bytes += u64::from(request.operand_bytes);
                self.rx.note_done(request.order);
                self.consume(core, 1, 0);
            }
            Ok(Met::Later(to)) => self.admit(request, to),
            Ok(Met::Answer(token)) => {
                self.consume(core, 1, 0);
                self.answer(core, request, token);
            }
            Err(refusal) => {
                let wrong_key = refusal == Refusal::Key && !host.key_stood(&remote);
                self.refuse_request(core, request, refusal, wrong_key);
            }
        }
    }

    /// Refuses a request in its turn; with `wrong_key` nobody hears of it before its time.
    fn refuse_request(
        &mut self,
        core: &mut Core,
        request: &Request,
        refusal: Refusal,
        wrong_key: bool,
    ) {
        let (order, op) = (request.order, request.op);
        if !wrong_key {
            return self.refuse(core, order, op, msg_id(request), refusal, true);
        }
        let (msg_id, refusal) = (msg_id(request), Some(refusal));
        let answer = Answer { order, op, msg_id, refusal, len_bytes: 0, sent_bytes: 0 };
        self.end_done(core, &answer);
        let due_at = core.wrong_keys.note(self.name.ip(), core.now);
        match due_at <= core.now {
            true => self.tx.out.push(TxRecord::Refused { answer, is_first: true }),
            false => self.rx.keys.get_or_insert_default().delay(due_at, answer),
        }
    }

    /// Admits a write whose bytes wait for permission.
    fn admit(&mut self, request: &Request, to: RecvToken) {
        let len_bytes = request.targets.len_bytes();
        let name = (request.order, request.op);
        self.rx.links.begin(Incoming::new(Purpose::Write, to, name, len_bytes, len_bytes));
        self.grant();
    }

    /// Sends an answer, in a bundle if it fits there.
    fn answer(&mut self, core: &mut Core, request: &Request, token: SendToken) {
        let len_bytes = request.targets.len_bytes();
        let msg_id = msg_id(request);
        let whole = Answer::HEADER_BYTES as u64 + len_bytes;
        let bundled = whole <= self.bundle_room(0).min(usize::from(u16::MAX)) as u64;
        let role = Role::Answer { op: request.op, msg_id, bundled, withdrawn: false };
        let op = core.ops.insert(Op {
            order: request.order,
            wanted_bytes: Some(len_bytes),
            granted_bytes: len_bytes,
            announced: !bundled,
            ..Op::new(token, self.id.index, len_bytes, role)
        }) as u32;
        core.silent += 1;
        core.stats.requests_served += 1;
        let (base_bytes, done_bytes) = (0, 0);
        let transfer = Transfer { op, msg_id, base_bytes, len_bytes, done_bytes, eager: false };
        self.tx.out.answer(op, Some(transfer).filter(|_| !bundled));
    }

    /// Tells that a request was refused. The range of those that were done ends before it: its
    /// record may be overtaken.
    fn refuse(
        &mut self,
        core: &mut Core,
        order: u32,
        op: u32,
        msg_id: u16,
        refusal: Refusal,
        is_first: bool,
    ) {
        let refusal = Some(refusal);
        let answer = Answer { order, op, msg_id, refusal, len_bytes: 0, sent_bytes: 0 };
        self.push_refusal(core, answer, is_first);
    }

    fn push_refusal(&mut self, core: &mut Core, answer: Answer, is_first: bool) {
        self.end_done(core, &answer);
        self.tx.out.push(TxRecord::Refused { answer, is_first });
    }

    /// Counts a refusal, and tells of all that was done before it.
    fn end_done(&mut self, core: &mut Core, answer: &Answer) {
        answer.refusal.into_iter().for_each(|refusal| core.stats.refuse(refusal));
        if let Some(done) = self.rx.take_done() {
            self.tx.out.push(done);
        }
    }

    /// All bytes of a write that had permission were placed.
    pub(super) fn end_write<H: Host>(&mut self, core: &mut Core, host: &mut H, write: &Incoming) {
        let (order, op) = (write.order, write.op);
        match host.remote_written(write.to) {
            Ok(()) => {
                core.stats.requests_served += 1;
                let answer =
                    Answer { order, op, msg_id: 0, refusal: None, len_bytes: 0, sent_bytes: 0 };
                self.tx.out.push(TxRecord::Refused { answer, is_first: false });
            }
            Err(refusal) => self.refuse(core, order, op, 0, refusal, false),
        }
    }

    /// The answer to a read: its bytes, or why there are none.
    pub(in crate::peer) fn on_read_answer<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        now: Nanos,
        answer: &Answer,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let slot = Links::slot_of_read(answer.msg_id);
        let Some((link, incoming)) = self.rx.links.get(slot) else { return Ok(()) };
        let of_it = incoming.op == answer.op
            && link.order == answer.order
            && incoming.purpose == Purpose::Read;
        if !of_it {
            return Ok(());
        }
        if let Some(refusal) = answer.refusal {
            core.refuse_read(answer.op, refusal);
            link.len_bytes = link.len_bytes.min(answer.sent_bytes).max(link.coverage.got_bytes);
        } else {
            let started = link.coverage.got_bytes > 0;
            if started || payload.len() as u64 != u64::from(link.len_bytes) {
                return Err(DropReason::Message);
            }
            link.coverage.got_bytes = link.len_bytes;
            if !payload.is_empty() {
                host.place(incoming.to, link.base_bytes, payload);
            }
            core.stats.rx_payload_bytes += payload.len() as u64;
        }
        if link.coverage.got_bytes == link.len_bytes {
            self.close_link(core, host, now, slot);
        }
        Ok(())
    }
}

fn msg_id(request: &Request) -> u16 {
    match request.action {
        Action::Read(msg_id) => msg_id,
        _ => 0,
    }
}
