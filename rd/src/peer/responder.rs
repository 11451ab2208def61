//! Requests of a peer to memory of this host: which wait for their turn or for their key, which were done without the
//! peer's having been told, and how many answers are on their way (protocol.md §9).
//!
//! `Peer` meets the requests and sends what they come to. What must stay true is in [`Responder::check`].

use super::op::{Op, Role};
use super::record::TxRecord;
use super::rx::tables;
use super::wrong_keys::Keys;
use crate::host::{Host, RecvToken};
use crate::stats::DropReason;
use crate::units::Nanos;
use crate::wire::remote::{Action, Answer, Form, RemoteRequest, Targets};
use alloc::boxed::Box;
use hashbrown::HashMap;
use slab::Slab;

/// Answers to one peer that may be unacknowledged; further requests that want one wait.
const ANSWERS_MAX: u32 = 1024;

/// A request that came before its turn, or before there was room for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyRequest {
    pub request: RemoteRequest,
    /// Where what came with it is.
    pub kept: Option<RecvToken>,
}

/// See the module. Empty but for numbers while nothing is outstanding.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// By send order. Bounded by the order window, their operands by the eager credit.
    early: HashMap<u32, EarlyRequest>,
    kept_bytes: u64,
    /// What keys the peer has used, from its first request on.
    keys: Option<Box<Keys>>,
    /// First and last order of writes and updates that were done and not told.
    done: Option<(u32, u32)>,
    /// Answers to the peer that have not ended; at most [`ANSWERS_MAX`].
    answers: u32,
}

impl Responder {
    /// Requests wait.
    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// One of this order does.
    pub fn is_early(&self, order: u32) -> bool {
        self.early.contains_key(&order)
    }

    /// The one that waits with this order.
    pub fn early(&self, order: u32) -> Option<EarlyRequest> {
        self.early.get(&order).copied()
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// There is no memory.
    pub fn make_room<H: Host>(&mut self, host: &mut H) -> Result<(), DropReason> {
        tables::in_map(host, &mut self.early)
    }

    /// So many bytes may be kept beside others, of which `most_bytes` may be there.
    pub fn may_keep(&self, len_bytes: u64, most_bytes: u64) -> bool {
        self.kept_bytes + len_bytes <= most_bytes
    }

    /// A request waits from now on.
    pub fn keep(&mut self, request: RemoteRequest, kept: Option<RecvToken>) {
        let early = EarlyRequest { request, kept };
        self.kept_bytes += early.kept_bytes();
        self.early.insert(request.order, early);
    }

    /// The turn of the one with this order has come. Says how many bytes are not kept any more.
    pub fn take_early(&mut self, order: u32) -> u64 {
        let bytes = self.early.remove(&order).map_or(0, |early| early.kept_bytes());
        self.kept_bytes -= bytes;
        bytes
    }

    /// Bytes that came with the requests that wait.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Where they are.
    pub fn kept(&self) -> impl Iterator<Item = RecvToken> {
        self.early.values().filter_map(|early| early.kept)
    }

    /// Whether too many answers are on their way for one more, or too many keys were wrong: then others than those that
    /// were right may be tried when that `opens_at`.
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

    /// A request with these keys was met.
    pub fn prove(&mut self, targets: &Targets) {
        self.known_keys().prove(targets);
    }

    /// The refusal of a wrong key goes out at `due_at`.
    pub fn delay(&mut self, due_at: Nanos, answer: Answer) {
        self.known_keys().delay(due_at, answer);
    }

    /// Refusals wait for their time.
    pub fn has_refusals(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.has_refusals())
    }

    /// A refusal whose time has come.
    pub fn take_refusal(&mut self, now: Nanos) -> Option<Answer> {
        self.keys.as_mut()?.take_refusal(now)
    }

    /// The time of a request that waited for its key has come.
    pub fn opens(&mut self, now: Nanos) -> bool {
        self.keys.as_mut().is_some_and(|keys| keys.opens(now))
    }

    /// When one of the two is due; [`Nanos::MAX`] for never.
    pub fn wake_at(&self) -> Nanos {
        self.keys.as_ref().map_or(Nanos::MAX, |keys| keys.wake_at())
    }

    /// A write or an update of this order was done.
    pub fn note_done(&mut self, order: u32) {
        let first = self.done.map_or(order, |(first, _)| first);
        self.done = Some((first, order));
    }

    /// Writes or updates were done of which the peer has not been told.
    pub fn has_done(&self) -> bool {
        self.done.is_some()
    }

    /// The record that tells of them.
    pub fn take_done(&mut self) -> Option<TxRecord> {
        self.done.take().map(|(first, last)| TxRecord::Done { first, last })
    }

    /// An answer begins.
    pub fn answer(&mut self) {
        self.answers += 1;
    }

    /// One has ended.
    pub fn answered(&mut self) {
        self.answers -= 1;
    }

    /// All have. True if there were any.
    pub fn end_answers(&mut self) -> bool {
        core::mem::take(&mut self.answers) > 0
    }

    /// The peer waits for word, or for an answer that has begun.
    pub fn owes_answers(&self) -> bool {
        self.has_done() || self.answers > 0
    }

    /// Gives heap memory back when no request waits.
    pub fn reclaim(&mut self) {
        if self.early.is_empty() {
            self.early = HashMap::new();
        }
    }

    /// What must stay true between two calls of the endpoint, of which `ops` are the operations, with the peer of
    /// this index.
    ///
    /// # Panics
    /// If it does not.
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
        let role = Role::Answer { op: 1, msg_id: 0, bundled: true, withdrawn: false };
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
