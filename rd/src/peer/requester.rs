//! Our requests to a peer's memory under way: those that wait for bytes, those that wait for confirmation, and the
//! effect of answers on them (protocol.md §9).
//!
//! `Peer` writes the requests, hands in the answers, and ends the operations. These are in the endpoint's table, where
//! this part updates those that it is given. Its invariants are in [`Requester::check`].

use super::op::{Asked, Op, Role, Task};
use crate::host::RecvToken;
use crate::stats::DropReason;
use crate::units::Order;
use crate::wire::remote::{Answer, Refusal};
use alloc::collections::VecDeque;
use slab::Slab;

/// Most requests of one endpoint to a peer that wait for bytes in answer; others wait behind them.
const REQUESTS_MAX: u32 = 256;

/// Meaning of an answer to a write or an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Word {
    /// The answer came before.
    Repeated,
    /// The request is over.
    Ended,
    /// The same; its result goes to this buffer.
    Result(RecvToken),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// True if the peer takes requests to its memory.
    is_served: bool,
    /// Requests that wait for bytes in answer, at most [`REQUESTS_MAX`].
    fetching: u32,
    /// Writes and updates that wait for confirmation, by send order.
    awaiting: VecDeque<(u32, u32)>,
}

impl Requester {
    /// State of a session with a peer that takes requests, or does not.
    pub fn new(is_served: bool) -> Requester {
        Requester { is_served, ..Requester::default() }
    }

    /// True if the peer takes requests to its memory.
    pub fn is_served(&self) -> bool {
        self.is_served
    }

    /// True if one more request of this kind may go out.
    pub fn has_room(&self, task: Task) -> bool {
        !task.has_result() || self.fetching < REQUESTS_MAX
    }

    /// Notes a sent write or atomic: operation `index`, with this send order.
    pub fn sent(&mut self, index: u32, op: &mut Op, order: u32, asked: &Asked) {
        (op.order, op.announced, op.unacked) = (order, true, op.unacked + 1);
        if matches!(asked.task, Task::Write { later: true }) {
            return;
        }
        (op.wanted_bytes, op.granted_bytes) = (Some(asked.operand_bytes), op.len_bytes);
        op.sent_bytes = asked.operand_bytes;
        match asked.task.has_result() {
            true => self.fetching += 1,
            false => self.awaiting.push_back((order, index)),
        }
    }

    /// Notes a sent part of a read, with this send order. True if it is the last.
    pub fn sent_part(&mut self, op: &mut Op, order: u32, asked: &mut Asked, bytes: u64) -> bool {
        (op.order, op.announced, op.unacked) = (order, true, op.unacked + 1);
        (op.wanted_bytes, op.granted_bytes) = (Some(0), 0);
        asked.asked_bytes += bytes;
        self.fetching += 1;
        asked.asked_bytes == op.len_bytes
    }

    /// Takes the answer to a write or an atomic, with so many bytes. Over a lane the target may have `pulled` those of a
    /// write.
    ///
    /// # Errors
    /// The drop reason if it does not fit the request; then nothing changes.
    pub fn answered(
        &mut self,
        op: &mut Op,
        asked: &mut Asked,
        answer: &Answer,
        (bytes, pulled): (usize, bool),
    ) -> Result<Word, DropReason> {
        if !op.announced || op.order != answer.order || asked.outcome.is_some() {
            return Ok(Word::Repeated);
        }
        let word = match (answer.refusal, asked.task) {
            (Some(_), Task::Write { later: true }) => {
                // The granted bytes still go out, so that their links end; there will be no more grants.
                op.wanted_bytes = Some(op.granted_bytes);
                Word::Ended
            }
            // The target has read the bytes where they are.
            (None, Task::Write { later: true }) if pulled && op.wanted_bytes.is_none() => {
                op.wanted_bytes = Some(op.sent_bytes);
                Word::Ended
            }
            (None, Task::Write { later: true }) if op.wanted_bytes != Some(op.len_bytes) => {
                return Err(DropReason::Message);
            }
            (None, Task::Atomic(_, to)) if asked.task.has_result() => {
                if bytes as u64 != op.len_bytes {
                    return Err(DropReason::Message);
                }
                Word::Result(to)
            }
            _ => Word::Ended,
        };
        asked.outcome = Some(answer.refusal.map_or(Ok(()), Err));
        self.fetching -= u32::from(asked.task.has_result());
        let place = self.awaiting.binary_search_by_key(&0, |w| Order(w.0).since(Order(op.order)));
        if let Ok(place) = place {
            self.awaiting.remove(place);
        }
        Ok(word)
    }

    /// Takes the first request of these orders that waits for confirmation: it was done.
    pub fn take_done(&mut self, first: u32, last: u32) -> Option<u32> {
        let before = |waiting: &(u32, u32)| Order(waiting.0).since(Order(first)) < 0;
        let from = self.awaiting.partition_point(before);
        let &(order, op) = self.awaiting.get(from)?;
        if Order(order).since(Order(last)) > 0 {
            return None;
        }
        self.awaiting.remove(from);
        Some(op)
    }

    /// Ends a part of a read: it is there, or will not come; with `last` no other is under way. Returns the read's
    /// result if it has ended.
    pub fn part_ended(
        &mut self,
        op: &Op,
        asked: &mut Asked,
        last: bool,
    ) -> Option<Result<(), Refusal>> {
        self.fetching -= 1;
        if !last || asked.asked_bytes < op.len_bytes {
            return None;
        }
        asked.incoming = None;
        Some(*asked.outcome.get_or_insert(Ok(())))
    }

    /// Frees heap memory.
    pub fn reclaim(&mut self) {
        self.awaiting.shrink_to_fit();
    }

    /// Checks the invariants between two calls of the endpoint with the operations `ops` and `asked`, while this many
    /// `parts` of reads are under way from `peer`.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, peer: u32, ops: &Slab<Op>, asked: &Slab<Asked>, parts: usize) {
        let orders = self.awaiting.iter().zip(self.awaiting.iter().skip(1));
        let mut steps = orders.map(|(one, next)| Order(next.0).since(Order(one.0)));
        assert!(steps.all(|step| step > 0), "in send order");
        let waits = |op: &Op| match op.role {
            Role::Request(at) if op.peer == peer && op.announced => {
                Some(&asked[at as usize]).filter(|asked| asked.outcome.is_none())
            }
            _ => None,
        };
        let is_waiting = |&(order, op): &(u32, u32)| {
            let op = ops.get(op as usize).filter(|op| op.order == order);
            op.and_then(waits).is_some_and(|asked| !asked.task.has_result())
        };
        assert!(self.awaiting.iter().all(is_waiting), "who waits for word has not heard any");
        let atomics = ops.iter().filter_map(|(_, op)| waits(op));
        let atomics = atomics.filter(|a| a.task.has_result() && !matches!(a.task, Task::Read(_)));
        assert_eq!(self.fetching as usize, parts + atomics.count(), "bytes are awaited once");
        assert!(self.fetching <= REQUESTS_MAX, "no more wait for bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SendToken;
    use crate::wire::remote::{Atomic, Form, Target, Targets};

    const LATER: Task = Task::Write { later: true };
    const FETCH: Task = atomic(Form::Fetch);
    const PEER: u32 = 3;

    const fn atomic(form: Form) -> Task {
        Task::Atomic(Atomic { op: 0, datatype: 0, form }, RecvToken(9))
    }

    /// The endpoint's tables, and one peer's part.
    #[derive(Default)]
    struct World {
        ops: Slab<Op>,
        asked: Slab<Asked>,
        requester: Requester,
    }

    impl World {
        /// Sends a request for 8 bytes; returns its operation.
        fn send(&mut self, task: Task, order: u32) -> u32 {
            let targets = Targets::new(&[Target { addr: 0, len_bytes: 8, key: 1 }]);
            let asked = Asked::new(task, targets.expect("targets"), 8);
            let role = Role::Request(self.asked.insert(asked) as u32);
            let index = self.ops.insert(Op::new(SendToken(7), PEER, 8, role));
            let op = &mut self.ops[index];
            self.requester.sent(index as u32, op, order, &asked);
            self.check(0);
            index as u32
        }

        fn answer(
            &mut self,
            op: u32,
            refusal: Option<Refusal>,
            bytes: usize,
        ) -> Result<Word, DropReason> {
            let entry = &mut self.ops[op as usize];
            let Role::Request(at) = entry.role else { panic!("a request") };
            let order = entry.order;
            let answer = Answer { order, op, msg_id: 0, refusal, len_bytes: 0, sent_bytes: 0 };
            let asked = &mut self.asked[at as usize];
            let word = self.requester.answered(entry, asked, &answer, (bytes, false));
            self.check(0);
            word
        }

        fn check(&self, parts: usize) {
            self.requester.check(PEER, &self.ops, &self.asked, parts);
        }
    }

    #[test]
    fn word_of_a_range_ends_the_requests_in_it() {
        let mut world = World::default();
        let write = Task::Write { later: false };
        let ops = [u32::MAX, 0, 2].map(|order| world.send(write, order));
        for order in [0, 1, 1] {
            let done = world.requester.take_done(order, 1);
            assert_eq!(done, Some(ops[1]).filter(|_| order == 0));
        }
        assert_eq!(world.answer(ops[0], Some(Refusal::Key), 0), Ok(Word::Ended));
        assert_eq!(world.requester.take_done(u32::MAX, 2), Some(ops[2]), "one was refused");
        assert_eq!(world.requester.take_done(u32::MAX, 2), None);
    }

    #[test]
    fn a_result_has_the_length_that_was_asked_for_and_comes_once() {
        let mut world = World::default();
        let op = world.send(FETCH, 5);
        assert_eq!(world.answer(op, None, 7), Err(DropReason::Message));
        assert_eq!(world.answer(op, None, 8), Ok(Word::Result(RecvToken(9))));
        assert_eq!(world.answer(op, None, 8), Ok(Word::Repeated));
        let refused = world.send(FETCH, 6);
        assert_eq!(world.answer(refused, Some(Refusal::Rights), 0), Ok(Word::Ended));
        let update = world.send(atomic(Form::Update), 7);
        assert_eq!(world.answer(update, None, 0), Ok(Word::Ended));
        assert_eq!(world.requester.fetching, 0);
    }

    #[test]
    fn a_granted_write_ends_when_all_is_granted_or_it_is_refused() {
        let mut world = World::default();
        let op = world.send(LATER, 5);
        assert_eq!(world.answer(op, None, 0), Err(DropReason::Message), "nothing was granted");
        let entry = &mut world.ops[op as usize];
        (entry.wanted_bytes, entry.granted_bytes) = (Some(8), 8);
        assert_eq!(world.answer(op, None, 0), Ok(Word::Ended));
        let op = world.send(LATER, 6);
        world.ops[op as usize].granted_bytes = 3;
        assert_eq!(world.answer(op, Some(Refusal::Key), 0), Ok(Word::Ended));
        assert_eq!(world.ops[op as usize].wanted_bytes, Some(3), "no more will be granted");
    }

    #[test]
    fn a_read_ends_with_the_last_of_its_parts() {
        let mut world = World::default();
        let targets = Targets::new(&[Target { addr: 0, len_bytes: 8, key: 1 }]).expect("targets");
        let mut asked = Asked::new(Task::Read(RecvToken(9)), targets, 0);
        let mut op = Op::new(SendToken(7), PEER, 8, Role::Message);
        let requester = &mut world.requester;
        assert!(!requester.sent_part(&mut op, 1, &mut asked, 5));
        assert_eq!(requester.part_ended(&op, &mut asked, true), None, "more is to be asked for");
        assert!(requester.sent_part(&mut op, 2, &mut asked, 3));
        assert_eq!((op.order, op.unacked, op.wanted_bytes), (2, 2, Some(0)));
        world.check(1);
        asked.outcome = Some(Err(Refusal::Bounds));
        let ended = world.requester.part_ended(&op, &mut asked, true);
        assert_eq!(ended, Some(Err(Refusal::Bounds)));
        world.check(0);
    }

    #[test]
    fn requests_that_wait_for_bytes_are_bounded() {
        let mut requester = Requester::new(true);
        let mut world = World::default();
        assert!(requester.is_served() && requester.has_room(FETCH));
        for order in 0..REQUESTS_MAX {
            world.send(FETCH, order);
        }
        requester = world.requester;
        assert!(!requester.has_room(FETCH) && requester.has_room(LATER));
    }
}
