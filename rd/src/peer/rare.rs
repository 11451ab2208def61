//! State that most peers lack most of the time: it has memory of its own, only while there is any. A quiet peer then takes little, as
//! an endpoint may have tens of thousands of them.

use super::rx::tables;
use crate::host::Host;
use crate::stats::DropReason;
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::{Deref, DerefMut};
use hashbrown::HashMap;

/// A time that may be missing, in 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment(Nanos);

impl Moment {
    pub const NONE: Moment = Moment(Nanos::MAX);

    pub fn at(at: Nanos) -> Moment {
        Moment(at)
    }

    pub fn get(self) -> Option<Nanos> {
        (self != Moment::NONE).then_some(self.0)
    }

    pub fn is_set(self) -> bool {
        self != Moment::NONE
    }

    pub fn is_past(self, now: Nanos) -> bool {
        self.is_set() && self.0 <= now
    }

    /// `at`, if `is_set`.
    pub fn when(is_set: bool, at: Nanos) -> Moment {
        if is_set { Moment(at) } else { Moment::NONE }
    }

    pub fn get_or_set(&mut self, at: Nanos) -> Nanos {
        if !self.is_set() {
            *self = Moment(at);
        }
        self.0
    }

    /// The same with another time, if it is set.
    pub fn map(self, f: impl FnOnce(Nanos) -> Nanos) -> Moment {
        self.get().map_or(Moment::NONE, |at| Moment(f(at)))
    }

    /// The earlier one; a missing one is later than any.
    pub fn earlier(self, at: Nanos) -> Moment {
        Moment(self.0.min(at))
    }
}

impl Default for Moment {
    fn default() -> Moment {
        Moment::NONE
    }
}

/// A value that stands for no state.
pub(super) trait Empty: Default + 'static {
    const EMPTY: &'static Self;
}

impl<T: 'static> Empty for VecDeque<T> {
    const EMPTY: &'static VecDeque<T> = &VecDeque::new();
}

/// Reads as [`Empty::EMPTY`] until it is first written.
#[derive(Debug)]
pub(super) struct Rare<T>(Option<Box<T>>);

impl<T> Default for Rare<T> {
    fn default() -> Rare<T> {
        Rare(None)
    }
}

impl<T> Rare<T> {
    /// Frees the memory, and what is there.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// What is there, without making any.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Empty> Deref for Rare<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::EMPTY)
    }
}

impl<T: Empty> DerefMut for Rare<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

/// A queue in 8 bytes. What takes something out makes no memory.
pub(super) type Queue<T> = Rare<VecDeque<T>>;

impl<T> Queue<T> {
    pub fn pop_front(&mut self) -> Option<T> {
        self.get_mut()?.pop_front()
    }
}

/// A map in 8 bytes, from send orders.
#[derive(Debug)]
pub(super) struct Table<V>(Option<Box<HashMap<u32, V>>>);

impl<V> Default for Table<V> {
    fn default() -> Table<V> {
        Table(None)
    }
}

impl<V> Table<V> {
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |map| map.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains_key(&self, order: u32) -> bool {
        self.get(order).is_some()
    }

    pub fn get(&self, order: u32) -> Option<&V> {
        self.0.as_ref()?.get(&order)
    }

    pub fn get_mut(&mut self, order: u32) -> Option<&mut V> {
        self.0.as_mut()?.get_mut(&order)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().flat_map(|map| map.values())
    }

    /// Makes room for one more.
    ///
    /// # Errors
    /// [`DropReason::NoBuffer`] if the process has no memory for it.
    pub fn reserve<H: Host>(&mut self, host: &mut H) -> Result<(), DropReason> {
        tables::in_map(host, self.0.get_or_insert_default())
    }

    pub fn insert(&mut self, order: u32, value: V) {
        self.0.get_or_insert_default().insert(order, value);
    }

    pub fn remove(&mut self, order: u32) -> Option<V> {
        self.0.as_mut()?.remove(&order)
    }

    /// Frees the memory of a map that is empty.
    pub fn reclaim(&mut self) {
        if self.is_empty() {
            self.0 = None;
        }
    }
}
