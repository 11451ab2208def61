//! Operations that wait for a counter (`fi_trigger(3)`).
//!
//! What waits is kept by its counter, ordered by threshold. When the counter gets there, usually
//! under an endpoint's lock, it goes to the domain's queue of [`Work`], and whoever next has let
//! an endpoint of the domain progress does it, without any lock: in order, one thread at a time.
//!
//! Lock order: a counter's list, then the domain's queue; both come after an endpoint's lock.

use crate::error::Error;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Operations of a domain that may wait; more are refused with [`Error::Again`].
pub const WAITING_MAX: usize = 1 << 16;

/// An operation that an endpoint posts once a counter is there.
pub trait Deferred: Send + Sync {
    /// A number of the endpoint, of no other as long as this is there.
    fn endpoint(&self) -> usize;

    /// Posts the operation. One that cannot be posted ends by an error.
    ///
    /// # Errors
    /// [`Error::Again`] if it is to be tried again.
    fn post(&mut self) -> Result<(), Error>;
}

/// A counter, as what waits for it and changes it sees it.
pub trait Trigger: Send + Sync {
    /// What is done when the counter gets further.
    fn waiting(&self) -> &Waiting;

    /// Makes due what waits for the counter to get where it is.
    fn fire(&self);

    /// Sets the value.
    fn set(&self, value: u64);

    /// Increases the value.
    fn add(&self, by: u64);
}

/// What happens when a counter reaches a threshold.
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
    /// What is to be done.
    pub action: Action,
    /// See [`Item`].
    pub id: usize,
    /// What it waited for ([`Waiting::number`]).
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

/// Which of the items that wait are meant.
#[derive(Clone, Copy)]
pub enum Which {
    /// All.
    All,
    /// What was queued with this address.
    Work(usize),
    /// What waits for the counter of this number.
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

/// What waits for one counter.
pub struct Waiting {
    /// Of the counter, never given again.
    number: u64,
    /// Some threshold is there.
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
    /// True if anything waits. A change of the counter that is made before this is asked is seen
    /// by who has just begun to wait, or the other way round.
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

    /// The counter's, by which its items are known when they are due.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Drops the items that are meant. True if there was any.
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

/// What a domain has to do now, in order, and the counters that others wait for.
#[derive(Default)]
pub struct Work {
    due: AtomicBool,
    ready: Mutex<VecDeque<Item>>,
    /// What is due at endpoints that had no room, by endpoint, each in order: its first is tried
    /// again at each step. Who is `busy` has them.
    blocked: Mutex<HashMap<usize, VecDeque<Item>>>,
    /// Held by the one thread that does it.
    busy: Mutex<()>,
    counters: Mutex<Vec<Weak<dyn Trigger>>>,
    waiting: Arc<AtomicUsize>,
}

impl Work {
    /// True if something is to be done.
    #[must_use]
    pub(crate) fn is_due(&self) -> bool {
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

    /// Lets `action` wait until the values of `cntr`, a counter of this domain, together are
    /// `threshold`, and does it at once if they are.
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

    /// Drops the items that are meant, those too that are due and wait for room.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one is meant and none is there.
    pub fn cancel(&self, which: Which) -> Result<(), Error> {
        let counters = self.counters.lock().clone();
        let canceled = counters.iter().filter_map(Weak::upgrade);
        let some = canceled.fold(false, |some, cntr| cntr.waiting().cancel(which) | some);
        let some = self.cancel_due(which) | some;
        if some || !matches!(which, Which::Work(_)) { Ok(()) } else { Err(Error::Invalid) }
    }

    /// The same of what is due, and waits for room at its endpoint. True if there was any.
    pub fn cancel_due(&self, which: Which) -> bool {
        // Whoever is at it has items in hand.
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
