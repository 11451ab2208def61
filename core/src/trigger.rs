//! Operations that wait for a counter (`fi_trigger(3)`).
//!
//! A counter keeps its waiting operations, ordered by threshold. When it reaches the threshold, usually under an
//! endpoint's lock, it moves them to the domain's queue of [`Work`]. The next thread that has let an endpoint of the
//! domain progress does them without any lock: in order, one thread at a time.
//!
//! Lock order: a counter's list, then the domain's queue; both come after an endpoint's lock.

use crate::error::Error;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Operations of a domain that may wait; more are refused with [`Error::Again`].
pub const WAITING_MAX: usize = 1 << 16;

/// An operation that an endpoint posts once a counter reaches a threshold.
pub trait Deferred: Send + Sync {
    /// A number of the endpoint, unique as long as this exists.
    fn endpoint(&self) -> usize;

    /// Posts the operation. One that cannot be posted ends by an error.
    ///
    /// # Errors
    /// [`Error::Again`] if the caller must try again.
    fn post(&mut self) -> Result<(), Error>;
}

/// A counter, as waiting operations and triggered actions use it.
pub trait Trigger: Send + Sync {
    /// Actions that wait for the counter.
    fn waiting(&self) -> &Waiting;

    /// Makes due the actions whose threshold the counter has reached.
    fn fire(&self);

    /// Sets the value.
    fn set(&self, value: u64);

    /// Increases the value.
    fn add(&self, by: u64);
}

/// An action at a counter's threshold.
pub enum Action {
    /// An operation is posted.
    Post(Box<dyn Deferred>),
    /// A counter is set.
    Set(Arc<dyn Trigger>, u64),
    /// A counter is increased.
    Add(Arc<dyn Trigger>, u64),
}

/// An action, and the address of the `fi_deferred_work` that it was queued with, by which it can
/// be canceled; 0 for others.
pub struct Item {
    /// The action.
    pub action: Action,
    /// See [`Item`].
    pub id: usize,
    /// Counter that it waited for ([`Waiting::number`]).
    cntr: u64,
    _counted: Counted,
}

impl Item {
    /// The endpoint that it is posted to, as [`Deferred::endpoint`] numbers it.
    fn endpoint(&self) -> Option<usize> {
        match &self.action {
            Action::Post(later) => Some(later.endpoint()),
            Action::Set(..) | Action::Add(..) => None,
        }
    }
}

/// A selection of the waiting items.
#[derive(Clone, Copy)]
pub enum Which {
    /// All.
    All,
    /// The item queued with this address.
    Work(usize),
    /// The items that wait for the counter of this number.
    Counter(u64),
}

impl Which {
    fn means(self, item: &Item) -> bool {
        match self {
            Which::All => true,
            Which::Work(id) => item.id == id,
            Which::Counter(number) => item.cntr == number,
        }
    }
}

/// A place among [`WAITING_MAX`].
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The items that wait for one counter.
pub struct Waiting {
    /// The counter's number, never used again.
    number: u64,
    /// True if any item waits.
    any: AtomicBool,
    list: Mutex<BTreeMap<(u64, u64), Item>>,
    /// Numbers the items of one threshold.
    next: AtomicU64,
}

impl Default for Waiting {
    fn default() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let (any, list, next) = Default::default();
        Waiting { number, any, list, next }
    }
}

impl Waiting {
    /// True if anything waits. The caller changes the counter first: then either this sees an item that has just begun
    /// to wait, or that item sees the change.
    #[must_use]
    pub(crate) fn is_needed(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Moves everything up to threshold `reached` to the domain's queue.
    #[cold]
    pub(crate) fn fire(&self, reached: u64, work: &Work) {
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

    /// The counter's number, which identifies its items when they are due.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Drops the selected items. True if there was any.
    fn cancel(&self, which: Which) -> bool {
        let mut list = self.list.lock();
        let before = list.len();
        list.retain(|_, item| !which.means(item));
        self.any.store(!list.is_empty(), Ordering::SeqCst);
        list.len() < before
    }

    /// The counter closes.
    pub fn clear(&self) {
        self.cancel(Which::All);
    }
}

/// A domain's due work, in order, and the count of waiting items.
#[derive(Default)]
pub struct Work {
    due: AtomicBool,
    ready: Mutex<VecDeque<Item>>,
    /// Due items of endpoints that had no room, by endpoint, each in order: each step tries the first again. The holder
    /// of `busy` owns them.
    blocked: Mutex<HashMap<usize, VecDeque<Item>>>,
    /// Held by the one thread that does it.
    busy: Mutex<()>,
    counters: Mutex<Vec<Weak<dyn Trigger>>>,
    waiting: Arc<AtomicUsize>,
}

impl Work {
    /// True if work is due.
    #[must_use]
    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Ordering::Acquire)
    }

    /// Does the due work, unless another thread does it now. The caller holds no endpoint's lock.
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
        let mut blocked = std::mem::take(&mut *self.blocked.lock());
        blocked.retain(|_, items| {
            while let Some(first) = items.front_mut()
                && act(&mut first.action) != Err(Error::Again)
            {
                items.pop_front();
            }
            !items.is_empty()
        });
        loop {
            let next = self.ready.lock().pop_front();
            let Some(mut item) = next else { break };
            let endpoint = item.endpoint();
            if let Some(items) = endpoint.and_then(|endpoint| blocked.get_mut(&endpoint)) {
                items.push_back(item);
            } else if act(&mut item.action) == Err(Error::Again)
                && let Some(endpoint) = endpoint
            {
                blocked.insert(endpoint, VecDeque::from([item]));
            }
        }
        let some = !blocked.is_empty();
        *self.blocked.lock() = blocked;
        some
    }

    /// Lets `action` wait until the sum of the values of `cntr`, a counter of this domain, reaches `threshold`, and
    /// does it at once if it has.
    ///
    /// # Errors
    /// [`Error::Again`] if [`WAITING_MAX`] wait already.
    pub fn queue(
        &self,
        cntr: &Arc<dyn Trigger>,
        threshold: u64,
        action: Action,
        id: usize,
    ) -> Result<(), Error> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Again);
        }
        let cntr_number = cntr.waiting().number();
        let counted = Counted(Arc::clone(&self.waiting));
        let item = Item { action, id, cntr: cntr_number, _counted: counted };
        let mut counters = self.counters.lock();
        counters.retain(|known| known.strong_count() > 0);
        let is_it =
            |known: &Weak<dyn Trigger>| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(cntr));
        if !counters.iter().any(is_it) {
            counters.push(Arc::downgrade(cntr));
        }
        drop(counters);
        cntr.waiting().add(threshold, item);
        cntr.fire();
        self.run();
        Ok(())
    }

    /// Drops the selected items, also those that are due and wait for room.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one is selected and does not exist.
    pub fn cancel(&self, which: Which) -> Result<(), Error> {
        let counters = self.counters.lock().clone();
        let canceled = counters.iter().filter_map(Weak::upgrade);
        let some = canceled.fold(false, |some, cntr| cntr.waiting().cancel(which) | some);
        let some = self.cancel_due(which) | some;
        if some || !matches!(which, Which::Work(_)) { Ok(()) } else { Err(Error::Invalid) }
    }

    /// The same for items that are due and wait for room at their endpoint. True if there was any.
    pub fn cancel_due(&self, which: Which) -> bool {
        // The thread that does the work may have items in hand.
        let busy = self.busy.lock();
        let mut gone = VecDeque::new();
        let mut sift = |items: &mut VecDeque<Item>| {
            let (out, kept): (VecDeque<Item>, _) =
                items.drain(..).partition(|item| which.means(item));
            *items = kept;
            gone.extend(out);
        };
        let mut blocked = self.blocked.lock();
        blocked.retain(|_, items| {
            sift(items);
            !items.is_empty()
        });
        sift(&mut self.ready.lock());
        drop((blocked, busy));
        // Dropped without locks.
        let some = !gone.is_empty();
        drop(gone);
        self.run();
        some
    }
}

fn act(action: &mut Action) -> Result<(), Error> {
    match action {
        Action::Post(later) => return later.post(),
        Action::Set(cntr, value) => cntr.set(*value),
        Action::Add(cntr, value) => cntr.add(*value),
    }
    Ok(())
}
