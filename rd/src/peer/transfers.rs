//! Payload that may flow to a peer, and which of it goes next (protocol.md §5.7).
//!
//! A message of many megabytes keeps nobody waiting: short ones overtake it, and long ones take turns.

use alloc::collections::VecDeque;

/// Messages, writes and answers of at most so many bytes overtake longer ones.
const SHORT_BYTES: u64 = 1 << 20;
/// Bytes that a long one sends until the next long one's turn comes. Longer turns are fewer changes of the place into
/// which the peer receives.
const TURN_BYTES: u64 = 1 << 20;
/// Long ones that take turns. If all did, none would end before all are nearly done.
const TURNS: usize = 4;
/// Long ones get one byte for so many that overtake them.
const OVERTAKING_SHARE: u64 = 8;
/// Bytes that long ones are owed when they go first: a burst's, so that they go in whole bursts.
const OWED_BYTES: u64 = 64 << 10;

/// Payload that may flow now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub op: u32,
    pub msg_id: u16,
    pub base_bytes: u64,
    pub len_bytes: u64,
    pub done_bytes: u64,
    pub eager: bool,
}

fn replace_front(
    queue: &mut VecDeque<Transfer>,
    transfer: Transfer,
    is_whole: bool,
) -> Option<Transfer> {
    let before = queue.pop_front();
    if !is_whole {
        queue.push_front(transfer);
    }
    before
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Eager,
    Short,
    Long,
}

/// See the module. The grants of the peer bound the numbers of all queues.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// The eager message that goes in segments.
    eager: Option<Transfer>,
    short: VecDeque<Transfer>,
    /// At most one link of each operation. The first has the turn.
    long: VecDeque<Transfer>,
    /// Further links of operations that have one in `long`, in the order of their grants.
    later: VecDeque<Transfer>,
    /// Bytes that the first of `long` has sent in its turn.
    turn_bytes: u64,
    /// Bytes that long ones may send before anything overtakes them again.
    owed_bytes: u64,
    /// The next short one goes before the eager message: one eager message went since the last.
    is_short_next: bool,
}

impl Transfers {
    /// True if no payload may flow.
    pub fn is_empty(&self) -> bool {
        // `later` is empty while `long` is.
        self.eager.is_none() && self.short.is_empty() && self.long.is_empty()
    }

    /// True if nothing follows the payload that goes next.
    pub fn is_last(&self) -> bool {
        let links = self.short.len() + self.long.len() + self.later.len();
        links + usize::from(self.eager.is_some()) == 1
    }

    /// Begins an eager message, while no other one is under way.
    pub fn begin_eager(&mut self, transfer: Transfer) {
        debug_assert!(self.eager.is_none(), "eager messages go one after the other");
        self.eager = Some(transfer);
    }

    /// Adds a link, or an answer, of an operation that has `whole_bytes` in all.
    pub fn push(&mut self, transfer: Transfer, whole_bytes: u64) {
        if whole_bytes <= SHORT_BYTES {
            self.short.push_back(transfer);
        } else if transfer.base_bytes > 0 && self.long.iter().any(|t| t.op == transfer.op) {
            self.later.push_back(transfer);
        } else {
            self.long.push_back(transfer);
        }
    }

    /// Bytes sent of the eager message that goes in segments, if one is under way.
    pub fn eager_done_bytes(&self) -> Option<u64> {
        self.eager.map(|t| t.done_bytes)
    }

    fn turn(&self) -> Option<Turn> {
        let has_short = !self.short.is_empty();
        let overtaken = self.eager.is_some() || has_short;
        if !self.long.is_empty() && (!overtaken || self.owed_bytes >= OWED_BYTES) {
            return Some(Turn::Long);
        }
        if has_short && (self.eager.is_none() || self.is_short_next) {
            return Some(Turn::Short);
        }
        self.eager.map(|_| Turn::Eager)
    }

    /// The payload that goes next.
    pub fn next(&self) -> Option<Transfer> {
        match self.turn()? {
            Turn::Eager => self.eager,
            Turn::Short => self.short.front().copied(),
            Turn::Long => self.long.front().copied(),
        }
    }

    /// Updates the progress of the payload that [`Transfers::next`] told.
    pub fn advance(&mut self, transfer: Transfer) {
        let Some(turn) = self.turn() else { return };
        let is_whole = transfer.done_bytes == transfer.len_bytes;
        let before = match turn {
            Turn::Eager => {
                let rest = if is_whole { None } else { Some(transfer) };
                self.is_short_next |= is_whole;
                core::mem::replace(&mut self.eager, rest)
            }
            Turn::Short => {
                self.is_short_next = false;
                replace_front(&mut self.short, transfer, is_whole)
            }
            Turn::Long => replace_front(&mut self.long, transfer, is_whole),
        };
        let sent_bytes = transfer.done_bytes - before.map_or(0, |t| t.done_bytes);
        if turn == Turn::Long {
            self.long_sent(transfer.op, sent_bytes, is_whole);
        } else if !self.long.is_empty() {
            self.owed_bytes += sent_bytes / OVERTAKING_SHARE;
        }
    }

    /// Notes what the first of the long ones sent, and passes the turn on.
    fn long_sent(&mut self, op: u32, sent_bytes: u64, is_whole: bool) {
        self.owed_bytes = self.owed_bytes.saturating_sub(sent_bytes);
        self.turn_bytes += sent_bytes;
        if is_whole {
            let next_link = self.later.iter().position(|t| t.op == op);
            let Some(link) = next_link.and_then(|at| self.later.remove(at)) else {
                self.turn_bytes = 0;
                return;
            };
            self.long.push_front(link);
        }
        if self.turn_bytes >= TURN_BYTES
            && let Some(first) = self.long.pop_front()
        {
            self.turn_bytes = 0;
            self.long.insert(self.long.len().min(TURNS - 1), first);
        }
    }

    /// Drops what has not gone of an operation.
    pub fn withdraw(&mut self, op: u32) {
        if self.long.front().is_some_and(|t| t.op == op) {
            self.turn_bytes = 0;
        }
        self.eager = self.eager.filter(|t| t.op != op);
        for queue in [&mut self.short, &mut self.long, &mut self.later] {
            queue.retain(|t| t.op != op);
        }
    }

    /// Checks the invariants between two calls of the endpoint.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check(&self, is_live: impl Fn(u32) -> bool) {
        let all = || self.eager.iter().chain(&self.short).chain(&self.long).chain(&self.later);
        let is_open = |t: &Transfer| t.done_bytes < t.len_bytes && is_live(t.op);
        assert!(all().all(is_open), "what is sent whole is no transfer");
        for (at, one) in self.long.iter().enumerate() {
            let same = self.long.iter().skip(at + 1).any(|t| t.op == one.op);
            assert!(!same, "links of an operation go one after the other");
        }
        let follows = |link: &Transfer| self.long.iter().any(|t| t.op == link.op);
        assert!(self.later.iter().all(follows), "a later link has one that goes before it");
        assert!(self.turn_bytes < TURN_BYTES, "a turn ends");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Bytes of a burst.
    const BURST_BYTES: u64 = 50_000;

    fn transfer(op: u32, len_bytes: u64, eager: bool) -> Transfer {
        Transfer { op, msg_id: op as u16, base_bytes: 0, len_bytes, done_bytes: 0, eager }
    }

    /// Sends bursts until `bytes` are sent or all is; returns what each of the operations 0 to 9 sent.
    fn send(transfers: &mut Transfers, bytes: u64) -> [u64; 10] {
        let mut sent = [0; 10];
        while let Some(mut t) = transfers.next()
            && sent.iter().sum::<u64>() < bytes
        {
            let burst = BURST_BYTES.min(t.len_bytes - t.done_bytes);
            t.done_bytes += burst;
            sent[t.op as usize] += burst;
            transfers.advance(t);
            transfers.check(|_| true);
        }
        sent
    }

    fn with_long(ops: core::ops::Range<u32>) -> Transfers {
        let mut transfers = Transfers::default();
        for op in ops {
            transfers.push(transfer(op, 100 * TURN_BYTES, false), 100 * TURN_BYTES);
        }
        transfers
    }

    #[test]
    fn four_long_ones_take_turns_and_a_fifth_waits_for_an_end() {
        let mut transfers = with_long(0..5);
        let sent = send(&mut transfers, 40 * TURN_BYTES);
        assert!(
            sent[..4].iter().all(|sent| sent.abs_diff(10 * TURN_BYTES) <= TURN_BYTES),
            "{sent:?}"
        );
        assert_eq!(sent[4], 0);
        transfers.withdraw(2);
        assert!(send(&mut transfers, 8 * TURN_BYTES)[4] > 0);
    }

    #[test]
    fn short_ones_leave_a_ninth_to_the_long_ones() {
        let mut transfers = with_long(0..1);
        for _ in 0..18 {
            transfers.push(transfer(1, SHORT_BYTES, false), SHORT_BYTES);
        }
        let sent = send(&mut transfers, 9 * SHORT_BYTES);
        assert!(sent[0].abs_diff(SHORT_BYTES) <= OWED_BYTES, "{sent:?}");
    }

    #[test]
    fn short_ones_and_eager_messages_take_turns() {
        let (mut transfers, mut eager) = (Transfers::default(), 0);
        for _ in 0..4 {
            transfers.push(transfer(1, SHORT_BYTES, false), SHORT_BYTES);
        }
        for _ in 0..20 {
            transfers.begin_eager(transfer(0, 60_000, true));
            while transfers.eager_done_bytes().is_some() {
                eager += send(&mut transfers, 1)[0];
            }
        }
        assert_eq!(eager, 20 * 60_000);
        let left: u64 = transfers.short.iter().map(|t| t.len_bytes - t.done_bytes).sum();
        let sent = 4 * SHORT_BYTES - left;
        assert!(sent.abs_diff(19 * BURST_BYTES) <= BURST_BYTES, "{sent}");
    }

    #[test]
    fn links_of_a_message_go_one_after_the_other() {
        let mut transfers = with_long(0..2);
        let base_bytes = 100 * TURN_BYTES;
        let link = Transfer { base_bytes, ..transfer(0, TURN_BYTES, false) };
        transfers.push(link, 2 * base_bytes);
        let mut order = Vec::new();
        while let Some(mut t) = transfers.next() {
            t.done_bytes = t.len_bytes.min(t.done_bytes + TURN_BYTES);
            transfers.advance(t);
            transfers.check(|_| true);
            order.push((t.op, t.base_bytes));
        }
        assert_eq!(order.len(), 201);
        let of_first: Vec<u64> =
            order.iter().filter(|(op, _)| *op == 0).map(|(_, at)| *at).collect();
        assert!(of_first.is_sorted() && order.iter().take(10).any(|(op, _)| *op == 1));
    }
}
