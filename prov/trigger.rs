//! Operations that wait for a counter (`fi_trigger(3)`).
//!
//! What waits is kept by its counter, ordered by threshold. When the counter gets there, usually
//! under an endpoint's lock, it goes to the domain's queue of [`Work`], and whoever next has let
//! an endpoint of the domain progress does it, without any lock: in order, one thread at a time.
//!
//! Lock order: a counter's list, then the domain's queue; both come after an endpoint's lock.

use crate::cntr::CntrInner;
use crate::domain::DomainInner;
use crate::ep::Later;
use erd_ffi::fi::{FI_EAGAIN, FI_EINVAL};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Operations of a domain that may wait; more are refused with `FI_EAGAIN`.
pub const WAITING_MAX: usize = 1 << 16;

/// What happens when a counter reaches a threshold.
pub enum Action {
    /// An operation is posted.
    Post(Box<Later>),
    /// A counter is set.
    Set(Arc<CntrInner>, u64),
    /// A counter is increased.
    Add(Arc<CntrInner>, u64),
}

/// An action, and the address of the `fi_deferred_work` that it was queued with, by which it can
/// be canceled; 0 for others.
pub struct Item {
    /// What is to be done.
    pub action: Action,
    /// See [`Item`].
    pub id: usize,
    _counted: Counted,
}

/// A place among [`WAITING_MAX`].
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What waits for one counter.
#[derive(Default)]
pub struct Waiting {
    /// Some threshold is there.
    any: AtomicBool,
    list: Mutex<BTreeMap<(u64, u64), Item>>,
    /// Numbers the items of one threshold.
    next: AtomicU64,
}

impl Waiting {
    /// True if anything waits. A change of the counter that is made before this is asked is seen
    /// by who has just begun to wait, or the other way round.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Moves everything up to threshold `reached` to the domain's queue.
    #[cold]
    pub fn fire(&self, reached: u64, work: &Work) {
        let mut list = self.list.lock();
        let after = list.split_off(&(reached.saturating_add(1), 0));
        let due = std::mem::replace(&mut *list, after);
        self.any.store(!list.is_empty(), Ordering::SeqCst);
        if !due.is_empty() {
            work.ready.lock().extend(due.into_values());
            work.due.store(true, Ordering::Release);
        }
    }

    fn add(&self, threshold: u64, item: Item) {
        let mut list = self.list.lock();
        let nth = self.next.fetch_add(1, Ordering::Relaxed);
        list.insert((threshold, nth), item);
        self.any.store(true, Ordering::SeqCst);
    }

    /// Drops what was queued with `id`, or everything without one. True if there was any.
    fn cancel(&self, id: Option<usize>) -> bool {
        let mut list = self.list.lock();
        let before = list.len();
        list.retain(|_, item| id.is_some_and(|id| item.id != id));
        self.any.store(!list.is_empty(), Ordering::SeqCst);
        list.len() < before
    }

    /// The counter closes.
    pub fn clear(&self) {
        self.cancel(None);
    }
}

/// What a domain has to do now, in order, and the counters that others wait for.
#[derive(Default)]
pub struct Work {
    due: AtomicBool,
    ready: Mutex<VecDeque<Item>>,
    /// Held by the one thread that does it.
    busy: Mutex<()>,
    counters: Mutex<Vec<Weak<CntrInner>>>,
    waiting: Arc<AtomicUsize>,
}

impl Work {
    /// True if something is to be done.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.due.load(Ordering::Acquire)
    }

    /// Does what is due, unless another thread is at it. The caller holds no endpoint's lock.
    #[cold]
    pub fn run(&self) {
        while self.is_due() {
            let Some(busy) = self.busy.try_lock() else { return };
            self.due.store(false, Ordering::Release);
            let blocked = self.drain();
            drop(busy);
            if blocked {
                // The next step of an endpoint makes room.
                self.due.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// True if an endpoint has no room for its operation, and so neither for those after it.
    fn drain(&self) -> bool {
        let mut kept = VecDeque::new();
        loop {
            let next = self.ready.lock().pop_front();
            let Some(mut item) = next else { break };
            let waits_for = |other: &Item| match (&other.action, &item.action) {
                (Action::Post(other), Action::Post(own)) => other.is_for_same(own),
                _ => false,
            };
            if kept.iter().any(waits_for) || act(&mut item.action) == Err(FI_EAGAIN) {
                kept.push_back(item);
            }
        }
        let blocked = !kept.is_empty();
        let mut ready = self.ready.lock();
        kept.into_iter().rev().for_each(|item| ready.push_front(item));
        blocked
    }

    /// Lets `action` wait until the values of `cntr` together are `threshold`, and does it at
    /// once if they are.
    ///
    /// # Errors
    /// `FI_EINVAL` if the counter is another domain's, `FI_EAGAIN` if [`WAITING_MAX`] wait already.
    pub fn queue(
        &self,
        domain: &DomainInner,
        (cntr, threshold): (&Arc<CntrInner>, u64),
        action: Action,
        id: usize,
    ) -> Result<(), c_int> {
        if !cntr.belongs_to(self) {
            // Whoever lets that domain progress knows nothing of this one's endpoints.
            tracing::info!("the triggering counter must be of the endpoint's domain");
            return Err(FI_EINVAL);
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(FI_EAGAIN);
        }
        let item = Item { action, id, _counted: Counted(Arc::clone(&self.waiting)) };
        let mut counters = self.counters.lock();
        counters.retain(|known| known.strong_count() > 0);
        if !counters.iter().any(|known| std::ptr::eq(known.as_ptr(), &raw const **cntr)) {
            counters.push(Arc::downgrade(cntr));
        }
        drop(counters);
        // Who waits for the counter lets progress whatever brings it there.
        domain.watch_region(cntr);
        cntr.waiting.add(threshold, item);
        cntr.fire();
        self.run();
        Ok(())
    }

    /// Drops what was queued with `id`, or everything without one.
    ///
    /// # Errors
    /// `FI_EINVAL` if nothing that waits has this `id`.
    pub fn cancel(&self, id: Option<usize>) -> Result<(), c_int> {
        let counters = self.counters.lock().clone();
        let canceled = counters.iter().filter_map(Weak::upgrade);
        let some = canceled.fold(false, |some, cntr| cntr.waiting.cancel(id) | some);
        let some = self.cancel_blocked(id) | some;
        if some || id.is_none() { Ok(()) } else { Err(FI_EINVAL) }
    }

    /// The same of what is due, and waits for room at its endpoint.
    fn cancel_blocked(&self, id: Option<usize>) -> bool {
        // Whoever is at it has what is blocked in hand.
        let busy = self.busy.lock();
        let mut ready = self.ready.lock();
        let before = ready.len();
        let canceled = |item: &Item| id.is_none_or(|id| item.id == id);
        let (gone, kept): (VecDeque<Item>, VecDeque<Item>) = ready.drain(..).partition(canceled);
        *ready = kept;
        let some = ready.len() < before;
        drop((ready, busy));
        // Dropped without locks.
        drop(gone);
        self.run();
        some
    }
}

fn act(action: &mut Action) -> Result<(), c_int> {
    match action {
        Action::Post(later) => return later.post(),
        Action::Set(cntr, value) => cntr.set(*value),
        Action::Add(cntr, value) => cntr.add(*value),
    }
    Ok(())
}
