//! The target's side of a peer's requests to memory of this host (protocol.md §9).

use super::links::{Incoming, Purpose};
use super::tables;
use crate::host::{Host, Operand, RecvToken, Remote, SendToken, Sources};
use crate::peer::record::TxRecord;
use crate::peer::transfers::Transfer;
use crate::peer::{Core, Op, Peer, Role};
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::remote::{Action, Answer, Form, Refusal, RemoteRequest};

/// Result of a request.
enum Met {
    Done,
    /// Bytes will be placed there.
    Later(RecvToken),
    /// Bytes will be sent from there.
    Answer(SendToken),
}

impl Peer {
    /// Takes a request in a bundle, with its bytes.
    pub(super) fn on_request<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        request: &RemoteRequest,
        payload: &[u8],
    ) -> Result<(), DropReason> {
        let Some(in_turn) = self.turn(request.order)? else { return Ok(()) };
        let sources = self.lane.take_sources();
        if in_turn && !self.must_wait(core, request) {
            self.rx.links.has_room(host)?;
            tables::in_slab(host, &core.ops)?;
            self.rx.next_order = request.order.wrapping_add(1);
            self.meet(core, host, request, (Operand::Here(payload), sources));
            self.deliver_early(core, host);
            return Ok(());
        }
        self.responder.make_room(host)?;
        let kept = match payload.is_empty() {
            true => None,
            false => Some(self.keep(core, host, payload)?),
        };
        self.responder.keep(*request, kept);
        Ok(())
    }

    /// Keeps a request before its turn, with its bytes.
    fn keep<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        payload: &[u8],
    ) -> Result<RecvToken, DropReason> {
        let len_bytes = payload.len() as u64;
        let most_bytes = u64::from(core.cfg.eager_credit_bytes).max(u64::from(u16::MAX));
        if !self.responder.may_keep(len_bytes, most_bytes) || !core.budget.take(len_bytes) {
            return Err(DropReason::NoBuffer);
        }
        let Some(to) = host.keep(self.id, len_bytes) else {
            core.budget.give_back(len_bytes);
            return Err(DropReason::NoBuffer);
        };
        host.place(to, 0, payload);
        Ok(to)
    }

    /// Whether too many answers are under way for one more, or too many keys were wrong.
    fn must_wait(&mut self, core: &Core, request: &RemoteRequest) -> bool {
        self.responder.must_wait(request, core.wrong_keys.opens_at(self.name.ip(), core.now))
    }

    /// Sends the refusals that are due, and continues with a request that waited.
    pub(in crate::peer) fn run_keys<H: Host>(&mut self, core: &mut Core, host: &mut H, now: Nanos) {
        while let Some(answer) = self.responder.take_refusal(now) {
            self.tx.out.push(TxRecord::Refused { answer, is_first: true });
        }
        if self.responder.opens(now) {
            self.deliver_early(core, host);
        }
    }

    /// Meets the early request whose turn it is. False if there is none, or it must wait.
    pub(super) fn meet_early<H: Host>(&mut self, core: &mut Core, host: &mut H) -> bool {
        let order = self.rx.next_order;
        let Some(early) = self.responder.early(order) else { return false };
        if self.must_wait(core, &early.request)
            || self.rx.links.has_room_to_wait(host).is_err()
            || tables::in_slab(host, &core.ops).is_err()
        {
            return false;
        }
        core.budget.give_back(self.responder.take_early(order));
        self.rx.next_order = order.wrapping_add(1);
        let operand = early.kept.map_or(Operand::Here(&[]), Operand::Kept);
        self.meet(core, host, &early.request, (operand, Sources::default()));
        true
    }

    /// Meets a request whose turn has come.
    fn meet<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        request: &RemoteRequest,
        (operand, sources): (Operand<'_>, Sources),
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
            self.responder.prove(&targets);
        }
        match met {
            Ok(Met::Done) => {
                core.stats.requests_served += 1;
                core.stats.rx_payload_bytes += u64::from(request.operand_bytes);
                self.responder.note_done(request.order);
                self.consume(core, 1, 0);
            }
            Ok(Met::Later(to)) => self.admit(core, host, request, (to, sources)),
            Ok(Met::Answer(token)) => {
                self.consume(core, 1, 0);
                self.answer(core, request, token);
            }
            Err(refusal) => {
                let is_wrong = refusal == Refusal::Key && !host.key_stood(&remote);
                let due_at = is_wrong.then(|| core.wrong_keys.note(self.name.ip(), core.now));
                self.count_refusal(core, refusal);
                let answer = end_of(request.order, request.op, msg_id(request), Some(refusal));
                match due_at.filter(|at| *at > core.now) {
                    None => self.tx.out.push(TxRecord::Refused { answer, is_first: true }),
                    Some(due_at) => self.responder.delay(due_at, answer),
                }
            }
        }
    }

    /// Admits a write whose bytes wait for permission.
    fn admit<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        request: &RemoteRequest,
        (to, sources): (RecvToken, Sources),
    ) {
        let len_bytes = request.targets.len_bytes();
        let name = (request.order, request.op);
        let incoming = Incoming::new(Purpose::Write, to, name, len_bytes, len_bytes);
        self.bring(core, host, incoming, sources);
    }

    /// Sends an answer, in a bundle if it fits there.
    fn answer(&mut self, core: &mut Core, request: &RemoteRequest, token: SendToken) {
        let len_bytes = request.targets.len_bytes();
        let msg_id = msg_id(request);
        let whole = Answer::HEADER_BYTES as u64 + len_bytes;
        let bundled = whole <= self.bundle_room(0).min(usize::from(u16::MAX)) as u64;
        let lent = !bundled && self.has_lane();
        let role = Role::Answer { op: request.op, msg_id, bundled, withdrawn: false, lent };
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
        self.responder.answer();
        match lent {
            true => self.lane.lend(op, request.order),
            false => self.tx.out.answer(op, Some(transfer).filter(|_| !bundled)),
        }
    }

    /// Counts a refusal. Its record may be overtaken, so the range of confirmed requests ends before it.
    fn count_refusal(&mut self, core: &mut Core, refusal: Refusal) {
        core.stats.refuse(refusal);
        if let Some(done) = self.responder.take_done() {
            self.tx.out.push(done);
        }
    }

    /// Ends an announced write, after all its bytes were placed. It `is_first` of what the peer hears of it if no permission
    /// was given before.
    pub(super) fn end_write<H: Host>(
        &mut self,
        core: &mut Core,
        host: &mut H,
        write: &Incoming,
        is_first: bool,
    ) {
        let refusal = host.remote_written(write.to).err();
        match refusal {
            None => core.stats.requests_served += 1,
            Some(refusal) => self.count_refusal(core, refusal),
        }
        let answer = end_of(write.order, write.op, 0, refusal);
        self.tx.out.push(TxRecord::Refused { answer, is_first });
    }

    /// Withdraws an answer whose memory is gone: the unsent rest stays unsent.
    pub(crate) fn withdraw<H: Host>(&mut self, core: &mut Core, host: &mut H, index: u32) {
        let op = &mut core.ops[index as usize];
        let Role::Answer { bundled, withdrawn, .. } = &mut op.role else { return };
        if core::mem::replace(withdrawn, true) {
            return;
        }
        core.stats.refuse(Refusal::Key);
        // An unacknowledged answer in a bundle becomes a refusal when it is repeated.
        if !*bundled {
            self.tx.out.withdraw(index, op);
            self.finish(core, host, index);
        }
    }
}

/// The answer that a request is over, without bytes.
fn end_of(order: u32, op: u32, msg_id: u16, refusal: Option<Refusal>) -> Answer {
    Answer { order, op, msg_id, refusal, len_bytes: 0, sent_bytes: 0 }
}

fn msg_id(request: &RemoteRequest) -> u16 {
    match request.action {
        Action::Read(msg_id) => msg_id,
        _ => 0,
    }
}
