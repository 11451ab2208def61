//! Credit: how much a peer may send before it is matched, and the budget that pays for it (protocol.md §5.3).
//!
//! Limits are absolute numbers that only grow, so a grant is a loan: it comes back when the peer has used it and its
//! messages were consumed. All loans together are never more than the budget.

use crate::config::Config;
use crate::mutants::{Mutant, mutant};
use hashbrown::HashMap;

/// Bytes charged for a message without a receive, beside its payload: more than engine and driver need.
pub const MESSAGE_COST_BYTES: u32 = 256;
/// Send orders of each peer whatever the budget says: a peer that cannot even announce a message could never learn that
/// there is room. They are part of the cost of a peer's entry.
pub const ORDERS_LEAST: u32 = 16;
/// Send orders of a newcomer while most of the budget is free.
const ORDERS_ROOMY: u32 = 1 << 10;
/// Eager bytes of a newcomer otherwise, beside [`ORDERS_LEAST`]. A peer that uses them gets more.
const BYTES_FIRST: u32 = 16 << 10;
/// Eager bytes that stay with a peer however scarce memory is, if it had as many. Short messages then need no announcement.
const BYTES_LEAST: u32 = 2 << 10;
/// With less than this part (1/n) of the budget lent, newcomers get all that one peer may have.
const ROOMY_PART: u64 = 4;
/// Such a newcomer gets at most this part (1/n) of the free budget.
const NEWCOMER_PART: u64 = 32;
/// Another one gets at most this part (1/n) of what is free, times the free part of the budget: the smaller the more peers there are, so
/// that the last of tens of thousands still gets some.
const LATECOMER_PART: u64 = 1 << 10;
/// Consumed credit is settled only once it is this part (1/n) of a window: settling each message took a tenth of its
/// cost in the engine.
const SETTLED_PART: u32 = 8;
/// This part (1/n) of the budget is reserved for newcomers and early requests; with as little beyond that, memory is
/// scarce.
const KEPT_PART: u64 = 8;

/// Eager messages that the driver keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    pub messages: u32,
    bytes: u32,
}

impl Kept {
    pub fn add(&mut self, bytes: u32) {
        self.messages += 1;
        self.bytes += bytes;
    }

    pub fn remove(&mut self, bytes: u32) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn cost_bytes(self) -> u64 {
        u64::from(self.bytes) + u64::from(self.messages) * u64::from(MESSAGE_COST_BYTES)
    }
}

/// Memory of one endpoint for unexpected messages of its peers.
#[derive(Debug)]
pub(crate) struct Budget {
    total_bytes: u64,
    taken_bytes: u64,
    /// Messages of ended sessions that the driver keeps, by session. Each is charged, so the budget
    /// bounds them.
    orphans: HashMap<u32, Kept>,
}

impl Budget {
    pub fn new(total_bytes: u64) -> Budget {
        Budget { total_bytes, taken_bytes: 0, orphans: HashMap::new() }
    }

    /// Bytes lent to peers, or in use.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    fn free_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.taken_bytes)
    }

    /// Bytes that may be lent beyond the first grants.
    fn spare_bytes(&self) -> u64 {
        self.free_bytes().saturating_sub(self.total_bytes / KEPT_PART)
    }

    /// See [`LATECOMER_PART`].
    fn latecomer_bytes(&self) -> u64 {
        let free_bytes = u128::from(self.free_bytes());
        (free_bytes * free_bytes / u128::from(self.total_bytes.max(1))) as u64 / LATECOMER_PART
    }

    fn is_scarce(&self) -> bool {
        self.spare_bytes() < self.total_bytes / KEPT_PART
    }

    /// Takes `bytes`; false if they are not there.
    pub fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.free_bytes();
        if fits && !mutant(Mutant::LendsOutsideTheBudget) {
            self.taken_bytes += bytes;
        }
        fits
    }

    pub fn give_back(&mut self, bytes: u64) {
        debug_assert!(
            bytes <= self.taken_bytes || mutant(Mutant::LendsOutsideTheBudget),
            "it was taken before"
        );
        self.taken_bytes = self.taken_bytes.saturating_sub(bytes);
    }
}

impl Budget {
    /// Takes over an ended session's whole messages, which are still there.
    pub fn orphan(&mut self, session: u32, kept: Kept) {
        if kept.messages > 0 {
            // The budget had lent their cost, except for the send orders that cost nothing.
            self.taken_bytes += kept.cost_bytes();
            self.orphans.insert(session, kept);
        }
    }

    /// Notes that a message of an ended session was consumed.
    pub fn release(&mut self, session: u32, bytes: u32) {
        let Some(kept) = self.orphans.get_mut(&session) else { return };
        let before = kept.cost_bytes();
        kept.remove(bytes);
        let mut freed = before - kept.cost_bytes();
        if kept.messages == 0 {
            freed = before;
            self.orphans.remove(&session);
        }
        self.give_back(freed);
    }
}

/// The terms of one kind of credit.
struct Terms {
    /// Bytes of the budget for each unit.
    unit_bytes: u64,
    /// Units that cost nothing.
    free: u32,
    /// The first window, when memory is plenty and when it is not.
    roomy: u32,
    first: u32,
    /// Narrowest window.
    least: u32,
    /// The widest window.
    most: u32,
}

impl Terms {
    fn of_bytes(cfg: &Config) -> Terms {
        let most = cfg.eager_credit_bytes;
        Terms {
            unit_bytes: 1,
            free: 0,
            roomy: most,
            first: BYTES_FIRST.min(most),
            least: BYTES_LEAST.min(most),
            most,
        }
    }

    fn of_orders(cfg: &Config) -> Terms {
        let most = cfg.unexpected_messages;
        let free = ORDERS_LEAST.min(most);
        Terms {
            unit_bytes: MESSAGE_COST_BYTES.into(),
            free,
            roomy: ORDERS_ROOMY.min(most),
            first: free,
            least: free,
            most,
        }
    }
}

/// One kind of credit of one peer. All numbers but the window count from the session's beginning,
/// and wrap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grant {
    /// The peer's limit.
    pub limit: u32,
    /// Units used and consumed.
    used: u32,
    /// Units of these that the budget has back.
    settled: u32,
    /// The limit last sent to the peer.
    told: u32,
    /// Distance of the limit ahead of the consumed units.
    window: u32,
}

impl Grant {
    fn open(terms: &Terms, budget: &mut Budget) -> Grant {
        let (window, part_bytes) = match budget.taken_bytes < budget.total_bytes / ROOMY_PART {
            true => (terms.roomy, budget.free_bytes() / NEWCOMER_PART),
            false => (terms.first, budget.latecomer_bytes()),
        };
        let part = (part_bytes / terms.unit_bytes).min(terms.most.into());
        let limit = window.min(part as u32).max(terms.free);
        let grant = Grant { limit, told: limit, window, ..Grant::default() };
        let taken = budget.take(grant.cost_bytes(terms));
        debug_assert!(taken, "a part of what is free is there");
        grant
    }

    /// The loan in bytes: what the peer may send, and has sent without its being consumed.
    fn cost_bytes(&self, terms: &Terms) -> u64 {
        let lent = self.limit.wrapping_sub(self.settled);
        u64::from(lent.saturating_sub(terms.free)) * terms.unit_bytes
    }

    /// True if the peer has used most of it.
    fn is_low(&self, sent: u32) -> bool {
        self.limit.wrapping_sub(sent) < self.window.div_ceil(2)
    }

    /// Counts consumed units. Where memory is plenty, they come back in parts of the window. True if the limit may have
    /// moved.
    fn consume(&mut self, terms: &Terms, budget: &mut Budget, count: u32) -> bool {
        self.used = self.used.wrapping_add(count);
        let lent = self.limit.wrapping_sub(self.settled).min(self.window);
        let due = self.used.wrapping_sub(self.settled) >= lent / SETTLED_PART;
        if due || budget.is_scarce() {
            self.settle(terms, budget);
            return true;
        }
        false
    }

    /// Returns consumed units to the budget, and lends them again at once while memory is plenty.
    fn settle(&mut self, terms: &Terms, budget: &mut Budget) {
        let is_full = self.limit.wrapping_sub(self.settled) == self.window;
        if is_full && !budget.is_scarce() {
            self.settled = self.used;
            self.limit = self.used.wrapping_add(self.window);
        } else {
            self.raise(terms, budget, false);
        }
    }

    /// Returns consumed units, and moves the limit ahead of them as far as window and budget allow. With `wanted`, the
    /// peer could use a wider window.
    fn raise(&mut self, terms: &Terms, budget: &mut Budget, wanted: bool) {
        let before = self.cost_bytes(terms);
        self.settled = self.used;
        let freed_bytes = before - self.cost_bytes(terms);
        budget.give_back(freed_bytes);
        if budget.is_scarce() {
            self.window = (self.window / 2).max(terms.least);
        } else if wanted {
            self.window = self.window.saturating_mul(2).min(terms.most);
        }
        let lent = self.limit.wrapping_sub(self.used);
        // Of what it gives back, a narrow window's worth is its own, even if newcomers got the rest. Messages of ended sessions may
        // have taken that already.
        let least_bytes = u64::from(terms.least) * terms.unit_bytes;
        let own_bytes = freed_bytes.min(least_bytes).min(budget.free_bytes());
        let affordable = budget.spare_bytes().max(own_bytes) / terms.unit_bytes;
        let free = terms.free.saturating_sub(lent);
        let most = affordable.saturating_add(free.into()).min(u32::MAX.into()) as u32;
        let more = self.window.saturating_sub(lent).min(most);
        let before = self.cost_bytes(terms);
        self.limit = self.limit.wrapping_add(more);
        let taken = budget.take(self.cost_bytes(terms) - before);
        debug_assert!(taken, "what can be afforded is there");
    }

    /// Whether the peer should be told of the limit now.
    fn is_worth_telling(&self) -> bool {
        let more = self.limit.wrapping_sub(self.told);
        let ahead = self.limit.wrapping_sub(self.used).min(self.window);
        more > 0 && more >= ahead / 2
    }

    /// The limit, which the caller sends to the peer.
    fn tell(&mut self, terms: &Terms, budget: &mut Budget) -> u32 {
        if self.used != self.settled {
            self.settle(terms, budget);
        }
        self.told = self.limit;
        self.limit
    }
}

/// The credit of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credit {
    pub bytes: Grant,
    /// Send orders, counted from the peer's first.
    pub orders: Grant,
}

impl Credit {
    /// The first grants of a session.
    pub fn open(cfg: &Config, budget: &mut Budget) -> Credit {
        let bytes = Grant::open(&Terms::of_bytes(cfg), budget);
        Credit { bytes, orders: Grant::open(&Terms::of_orders(cfg), budget) }
    }

    /// Ends the session's credit.
    pub fn close(&mut self, cfg: &Config, budget: &mut Budget) {
        budget.give_back(self.bytes.cost_bytes(&Terms::of_bytes(cfg)));
        budget.give_back(self.orders.cost_bytes(&Terms::of_orders(cfg)));
        *self = Credit::default();
    }

    /// Counts consumed messages. True if the peer should learn its new limits.
    pub fn consume(
        &mut self,
        cfg: &Config,
        budget: &mut Budget,
        messages: u32,
        bytes: u32,
    ) -> bool {
        let (of_bytes, of_orders) = (Terms::of_bytes(cfg), Terms::of_orders(cfg));
        let more_bytes = self.bytes.consume(&of_bytes, budget, bytes);
        let more_orders = self.orders.consume(&of_orders, budget, messages);
        (more_bytes || more_orders)
            && (self.bytes.is_worth_telling() || self.orders.is_worth_telling())
    }

    /// The limits for bytes and for send orders, which the caller sends to the peer.
    pub fn tell(&mut self, cfg: &Config, budget: &mut Budget) -> (u32, u32) {
        let bytes = self.bytes.tell(&Terms::of_bytes(cfg), budget);
        (bytes, self.orders.tell(&Terms::of_orders(cfg), budget))
    }

    /// Widens the credit, given what the peer has sent since the session began. With `short`, it lacked the credit to
    /// send a message eager. True if it should learn that it has more now.
    pub fn widen(
        &mut self,
        cfg: &Config,
        budget: &mut Budget,
        sent: (u32, u32),
        short: bool,
    ) -> bool {
        let (bytes, orders) = sent;
        if short || self.bytes.is_low(bytes) {
            self.bytes.raise(&Terms::of_bytes(cfg), budget, true);
        }
        if self.orders.is_low(orders) {
            self.orders.raise(&Terms::of_orders(cfg), budget, true);
        }
        self.bytes.is_worth_telling() || self.orders.is_worth_telling()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const TOTAL_BYTES: u64 = 64 << 20;

    fn config() -> Config {
        let name = "10.0.0.1:1".parse().unwrap();
        Config::new(name, 1, |_, _| 0)
    }

    fn cost(credit: &Credit, cfg: &Config) -> u64 {
        credit.bytes.cost_bytes(&Terms::of_bytes(cfg))
            + credit.orders.cost_bytes(&Terms::of_orders(cfg))
    }

    #[test]
    fn few_peers_have_whole_windows_and_all_together_the_budget() {
        let (cfg, mut budget) = (config(), Budget::new(TOTAL_BYTES));
        let mut credits = Vec::new();
        for n in 0..10_000 {
            let credit = Credit::open(&cfg, &mut budget);
            assert!(n >= 8 || credit.bytes.limit == cfg.eager_credit_bytes);
            assert!(n >= 1000 || credit.bytes.limit >= BYTES_FIRST, "peer {n}");
            assert!(credit.orders.limit >= ORDERS_LEAST);
            credits.push(credit);
        }
        let sum: u64 = credits.iter().map(|credit| cost(credit, &cfg)).sum();
        assert!(sum == budget.taken_bytes() && sum <= TOTAL_BYTES);
        for credit in &mut credits {
            credit.close(&cfg, &mut budget);
        }
        assert_eq!(budget.taken_bytes(), 0);
    }

    #[test]
    fn without_a_budget_each_peer_hears_of_the_orders_that_cost_nothing() {
        let (cfg, mut budget) = (config(), Budget::new(0));
        let mut credit = Credit::open(&cfg, &mut budget);
        assert_eq!(credit.tell(&cfg, &mut budget), (0, ORDERS_LEAST));
        let mut told = 0;
        for consumed in 1..=10 * ORDERS_LEAST {
            if credit.consume(&cfg, &mut budget, 1, 0) {
                told += 1;
                assert_eq!(credit.tell(&cfg, &mut budget), (0, consumed + ORDERS_LEAST));
            }
        }
        assert_eq!((told, credit.orders.limit), (20, 11 * ORDERS_LEAST));
        assert_eq!(budget.taken_bytes(), 0);
    }

    #[test]
    fn each_of_many_peers_can_go_on_with_short_messages() {
        let (cfg, mut budget) = (config(), Budget::new(TOTAL_BYTES));
        let mut many: Vec<_> = (0..16_384).map(|_| Credit::open(&cfg, &mut budget)).collect();
        for turn in 0..100 {
            for (nth, credit) in many.iter_mut().enumerate() {
                let left = credit.bytes.told - credit.bytes.used;
                assert!(left >= 64, "peer {nth} has {left} bytes in turn {turn}");
                credit.consume(&cfg, &mut budget, 1, 64);
                credit.tell(&cfg, &mut budget);
            }
        }
        let sum: u64 = many.iter().map(|credit| cost(credit, &cfg)).sum();
        assert!(sum == budget.taken_bytes() && sum <= TOTAL_BYTES);
    }

    #[test]
    fn what_ended_sessions_left_is_not_lent_again() {
        let (cfg, mut budget) = (config(), Budget::new(32 << 10));
        let mut credit = Credit::open(&cfg, &mut budget);
        let lent = credit.bytes.limit;
        assert!(lent > 0);
        let free_bytes = budget.free_bytes();
        assert!(budget.take(free_bytes), "others have the rest");
        let mut kept = Kept::default();
        (0..=ORDERS_LEAST).for_each(|_| kept.add(1000));
        budget.orphan(7, kept);
        credit.consume(&cfg, &mut budget, 1, lent);
        credit.tell(&cfg, &mut budget);
        assert_eq!(credit.bytes.limit, lent, "nothing is free");
    }

    #[test]
    fn windows_that_are_used_grow_to_the_whole_and_shrink_when_memory_is_scarce() {
        let (cfg, mut budget) = (config(), Budget::new(TOTAL_BYTES));
        let mut many: Vec<_> = (0..200).map(|_| Credit::open(&cfg, &mut budget)).collect();
        let busy = &mut many[150];
        assert_eq!(busy.bytes.limit, BYTES_FIRST);
        let mut sent = (0, 0);
        for _ in 0..10_000 {
            sent = (sent.0 + 1000, sent.1 + 1);
            assert!(sent.0 <= busy.bytes.limit, "it never runs dry");
            busy.widen(&cfg, &mut budget, sent, false);
            busy.consume(&cfg, &mut budget, 1, 1000);
        }
        let lent = busy.bytes.limit - sent.0;
        assert!(lent > BYTES_FIRST / 2, "{lent} bytes of credit after 10 MB");
        // Nothing is consumed: the window doubles.
        for _ in 0..1000 {
            if sent.0 + 1000 <= busy.bytes.limit {
                sent.0 += 1000;
            }
            busy.widen(&cfg, &mut budget, sent, false);
        }
        assert_eq!(busy.bytes.window, cfg.eager_credit_bytes);
        let spare_bytes = budget.spare_bytes();
        assert!(budget.take(spare_bytes));
        while busy.bytes.used < sent.0 {
            let bytes = (sent.0 - busy.bytes.used).min(10_000);
            busy.consume(&cfg, &mut budget, 0, bytes);
        }
        assert!(busy.bytes.window < cfg.eager_credit_bytes / 2, "others need it");
        assert!(budget.taken_bytes() <= TOTAL_BYTES);
    }
}
