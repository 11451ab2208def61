//! A peer's requests to memory of this host: those that wait for their turn or their key, those done but not yet
//! confirmed, and the number of answers under way (protocol.md §9).
//!
//! `Peer` meets the requests and sends the answers. Its invariants are in [`Responder::check`].

use super::op::{Op, Role};
use super::rare::Table;
use super::record::TxRecord;
use super::wrong_keys::Keys;
use crate::host::{Host, RecvToken};
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::remote::{Action, Answer, Form, RemoteRequest, Targets};
use alloc::boxed::Box;
use slab::Slab;

/// Most unacknowledged answers to one peer; further requests for answers wait.
const ANSWERS_MAX: u32 = 1024;

/// A request that came before its turn, or before there was room for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyRequest {
    pub request: RemoteRequest,
    /// Buffer with the bytes that came with it.
    pub kept: Option<RecvToken>,
}

/// See the module. Holds only numbers while nothing is outstanding.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// By send order. Bounded by the order window, their operands by the eager credit.
    early: Table<EarlyRequest>,
    kept_bytes: u64,
    /// Keys that the peer has used, from its first request on.
    keys: Option<Box<Keys>>,
    /// First and last order of writes and updates that were done and not confirmed.
    done: Option<(u32, u32)>,
    /// Number of live answers to the peer; at most [`ANSWERS_MAX`].
    answers: u32,
}

impl Responder {
    /// True if requests wait.
    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// True if one of this order waits.
    pub fn is_early(&self, order: u32) -> bool {
        self.early.contains_key(order)
    }

    /// The waiting request of this order.
    pub fn early(&self, order: u32) -> Option<EarlyRequest> {
        self.early.get(order).copied()
    }

    /// Makes room for one more waiting request.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn make_room<H: Host>(&mut self, host: &mut H) -> Result<(), DropReason> {
        self.early.reserve(host)
    }

    /// True if `len_bytes` fit beside those kept, within `most_bytes`.
    pub fn may_keep(&self, len_bytes: u64, most_bytes: u64) -> bool {
        self.kept_bytes + len_bytes <= most_bytes
    }

    /// Keeps a request that must wait.
    pub fn keep(&mut self, request: RemoteRequest, kept: Option<RecvToken>) {
        let early = EarlyRequest { request, kept };
        self.kept_bytes += early.kept_bytes();
        self.early.insert(request.order, early);
    }

    /// Takes out the request of this order, whose turn has come. Returns the bytes that it kept.
    pub fn take_early(&mut self, order: u32) -> u64 {
        let bytes = self.early.remove(order).map_or(0, |early| early.kept_bytes());
        self.kept_bytes -= bytes;
        bytes
    }

    /// Bytes that came with the requests that wait.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Buffers of those bytes.
    pub fn kept(&self) -> impl Iterator<Item = RecvToken> {
        self.early.values().filter_map(|early| early.kept)
    }

    /// Whether too many answers are under way for one more, or too many keys were wrong: then only proven keys may be
    /// tried before `opens_at`.
    pub fn must_wait(&mut self, request: &RemoteRequest, opens_at: Option<Nanos>) -> bool {
        let answered = match request.action {
            Action::Write | Action::WriteLater => false,
            Action::Read(_) => true,
            Action::Atomic(atomic) => atomic.form != Form::Update,
        };
        (answered && self.answers >= ANSWERS_MAX)
            || opens_at.is_some_and(|at| !self.known_keys().are_proven(&request.targets, at))
    }

    fn known_keys(&mut self) -> &mut Keys {
        self.keys.get_or_insert_default()
    }

    /// Notes a met request with these keys.
    pub fn prove(&mut self, targets: &Targets) {
        self.known_keys().prove(targets);
    }

    /// Queues the refusal of a wrong key for `due_at`.
    pub fn delay(&mut self, due_at: Nanos, answer: Answer) {
        self.known_keys().delay(due_at, answer);
    }

    /// True if refusals wait for their time.
    pub fn has_refusals(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.has_refusals())
    }

    /// Takes a refusal that is due.
    pub fn take_refusal(&mut self, now: Nanos) -> Option<Answer> {
        self.keys.as_mut()?.take_refusal(now)
    }

    /// True, once, when the request that waited for its key may go on.
    pub fn opens(&mut self, now: Nanos) -> bool {
        self.keys.as_mut().is_some_and(|keys| keys.opens(now))
    }

    /// Time at which one of the two is due; [`Nanos::MAX`] for never.
    pub fn wake_at(&self) -> Nanos {
        self.keys.as_ref().map_or(Nanos::MAX, |keys| keys.wake_at())
    }

    /// Notes that a write or an update of this order was done.
    pub fn note_done(&mut self, order: u32) {
        let first = self.done.map_or(order, |(first, _)| first);
        self.done = Some((first, order));
    }

    /// True if writes or updates were done and not confirmed to the peer.
    pub fn has_done(&self) -> bool {
        self.done.is_some()
    }

    /// Takes the record that confirms them.
    pub fn take_done(&mut self) -> Option<TxRecord> {
        self.done.take().map(|(first, last)| TxRecord::Done { first, last })
    }

    /// Counts a new answer.
    pub fn answer(&mut self) {
        self.answers += 1;
    }

    /// Counts an ended answer.
    pub fn answered(&mut self) {
        self.answers -= 1;
    }

    /// Ends all answers. True if there were any.
    pub fn end_answers(&mut self) -> bool {
        core::mem::take(&mut self.answers) > 0
    }

    /// True if the peer waits for a confirmation, or for an answer that has begun.
    pub fn owes_answers(&self) -> bool {
        self.has_done() || self.answers > 0
    }

    /// Frees heap memory when no request waits.
    pub fn reclaim(&mut self) {
        self.early.reclaim();
    }

    /// Checks the invariants between two calls of the endpoint with the operations `ops`, for the peer of this index.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, peer: u32, ops: &Slab<Op>) {
        let bytes: u64 = self.early.values().map(EarlyRequest::kept_bytes).sum();
        assert_eq!(self.kept_bytes, bytes, "bytes kept are those of early requests");
        let is_answer = |op: &Op| op.peer == peer && matches!(op.role, Role::Answer { .. });
        let answers = ops.iter().filter(|(_, op)| is_answer(op)).count();
        assert_eq!(self.answers as usize, answers, "answers are operations");
        assert!(self.answers <= ANSWERS_MAX, "further requests wait");
    }
}

impl EarlyRequest {
    fn kept_bytes(&self) -> u64 {
        self.kept.map_or(0, |_| self.request.operand_bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SendToken;
    use crate::wire::remote::Target;

    fn request(order: u32, action: Action, key: u64) -> RemoteRequest {
        let memory = Target { addr: 0, len_bytes: 8, key };
        let targets = Targets::new(&[memory]).expect("targets");
        RemoteRequest { order, op: 1, action, operand_bytes: 8, data: None, targets }
    }

    #[test]
    fn what_waits_is_kept_until_its_turn() {
        let (mut responder, ops) = (Responder::default(), Slab::new());
        assert!(responder.may_keep(8, 8));
        responder.keep(request(5, Action::Write, 1), Some(RecvToken(4)));
        responder.keep(request(6, Action::Read(1), 1), None);
        responder.check(0, &ops);
        assert!(!responder.may_keep(1, 8) && responder.kept().eq([RecvToken(4)]));
        assert!(
            responder.is_early(5) && responder.early(6).is_some_and(|early| early.kept.is_none())
        );
        assert_eq!(
            (responder.take_early(6), responder.take_early(5), responder.kept_bytes()),
            (0, 8, 0)
        );
        assert!(!responder.has_early());
        responder.check(0, &ops);
    }

    #[test]
    fn those_that_were_done_are_told_of_as_a_range() {
        let mut responder = Responder::default();
        for order in [7, 8, 12] {
            responder.note_done(order);
        }
        assert!(responder.has_done() && responder.owes_answers());
        assert!(matches!(responder.take_done(), Some(TxRecord::Done { first: 7, last: 12 })));
        assert!(responder.take_done().is_none() && !responder.owes_answers());
    }

    #[test]
    fn answers_are_bounded_and_end_with_the_session() {
        let (mut responder, mut ops) = (Responder::default(), Slab::new());
        let role = Role::Answer { op: 1, msg_id: 0, bundled: true, withdrawn: false, lent: false };
        for _ in 0..ANSWERS_MAX {
            assert!(!responder.must_wait(&request(1, Action::Read(1), 1), None));
            responder.answer();
            ops.insert(Op::new(SendToken(1), 3, 8, role));
        }
        responder.check(3, &ops);
        assert!(responder.must_wait(&request(1, Action::Read(1), 1), None));
        assert!(!responder.must_wait(&request(1, Action::WriteLater, 1), None));
        responder.answered();
        assert!(!responder.must_wait(&request(1, Action::Read(1), 1), None));
        assert!(responder.owes_answers() && responder.end_answers() && !responder.end_answers());
    }

    #[test]
    fn an_address_that_guesses_waits_with_keys_that_were_not_right() {
        let mut responder = Responder::default();
        let (known, new) = (request(1, Action::Write, 1), request(2, Action::Write, 2));
        responder.prove(&known.targets);
        assert!(!responder.must_wait(&known, Some(50)) && responder.wake_at() == Nanos::MAX);
        assert!(responder.must_wait(&new, Some(50)) && responder.wake_at() == 50);
        assert!(!responder.opens(49) && responder.opens(50) && !responder.opens(51));
        let answer =
            Answer { order: 2, op: 1, msg_id: 0, refusal: None, len_bytes: 0, sent_bytes: 0 };
        responder.delay(70, answer);
        assert_eq!((responder.wake_at(), responder.take_refusal(69)), (70, None));
        assert_eq!(responder.take_refusal(70), Some(answer));
    }
}
