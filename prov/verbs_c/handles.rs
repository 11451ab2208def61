//! The objects that C knows by handles.
//!
//! A handle is 64 bits: the kind of object (8), the generation of its slot (32) and the slot's index (24). It looks
//! like a pointer to C, and nothing dereferences it. A handle that is NULL, of another kind, made up or stale finds
//! nothing. A slot must be used 2^32 times before an old handle finds a new object.
//!
//! A look-up takes no lock and allocates nothing. Calls that post or poll hold the object's slot to their end
//! ([`Table::with`]), so destroying the object waits for them; `holds` has the method. Others take a share of the
//! object ([`Table::get`]).
//!
//! In a forked child a look-up reports that an object is its parent's before it reads the object.

use super::holds::{self, Hold};
use erd_sys::process::Process;
use parking_lot::Mutex;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Slots that are allocated together.
const CHUNK: usize = 1024;
/// Chunks of a table.
const CHUNKS: usize = 1024;
/// Most objects of one kind at once: 2^20, as many as an AV has addresses.
pub(crate) const OBJECTS_MAX: usize = CHUNK * CHUNKS;
const INDEX_BITS: u32 = 24;
const KIND_SHIFT: u32 = 56;
/// Set in [`Slot::there`] while there is an object.
const THERE: u64 = 1 << 32;

/// All objects of one kind.
pub(crate) struct Table<T> {
    kind: u8,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

struct Slot<T> {
    /// [`Process::number`] of the object's maker.
    owner: AtomicU32,
    /// Times that the slot was used. Only the caller that took its index out of [`Vacant`] changes it.
    generation: AtomicU32,
    /// The generation with [`THERE`], or 0.
    there: AtomicU64,
    /// The slot's share of the object; [`Table::take`] takes it out.
    object: AtomicPtr<T>,
}

/// Reason why a handle finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// It names no object of its kind.
    Unknown,
    /// The object is that of the process which forked this one.
    Forked,
}

struct Vacant {
    /// Slots that were used and are free.
    freed: Vec<u32>,
    /// Slots from this on were never used.
    fresh: u32,
}

impl<T> Table<T> {
    /// An empty table; `kind` is not 0, and differs from other tables'.
    pub(crate) const fn new(kind: u8) -> Table<T> {
        let vacant = Vacant { freed: Vec::new(), fresh: 0 };
        Table { kind, chunks: [const { OnceLock::new() }; CHUNKS], vacant: Mutex::new(vacant) }
    }

    /// Puts an object in and returns its handle; `None` if [`OBJECTS_MAX`] are there.
    pub(crate) fn insert(&self, object: Arc<T>) -> Option<u64> {
        let index = {
            let mut vacant = self.vacant.lock();
            let freed = vacant.freed.pop();
            let index = freed.unwrap_or(vacant.fresh);
            if index as usize >= OBJECTS_MAX {
                return None;
            }
            vacant.fresh += u32::from(freed.is_none());
            index
        };
        let chunk = self.chunks[index as usize / CHUNK].get_or_init(|| {
            let empty = || Slot {
                owner: AtomicU32::default(),
                generation: AtomicU32::default(),
                there: AtomicU64::default(),
                object: AtomicPtr::new(null_mut()),
            };
            (0..CHUNK).map(|_| empty()).collect()
        });
        let slot = &chunk[index as usize % CHUNK];
        slot.owner.store(Process::current().number(), Ordering::Relaxed);
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        slot.generation.store(generation, Ordering::Relaxed);
        slot.object.store(Arc::into_raw(object).cast_mut(), Ordering::Relaxed);
        let generation = u64::from(generation);
        slot.there.store(generation | THERE, Ordering::Release);
        Some(u64::from(self.kind) << KIND_SHIFT | generation << INDEX_BITS | u64::from(index))
    }

    /// The object that a handle names.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Missing> {
        let (slot, there) = self.slot(handle)?;
        let held = slot.hold(there)?;
        let object = slot.object.load(Ordering::Relaxed);
        // SAFETY: the pointer came from `Arc::into_raw`, and the slot's share is not dropped while
        // the slot is held.
        let shared = unsafe {
            Arc::increment_strong_count(object);
            Arc::from_raw(object)
        };
        drop(held);
        Ok(shared)
    }

    /// Calls `f` with the object that a handle names. The object stays in its place meanwhile.
    #[inline]
    pub(crate) fn with<R>(&self, handle: u64, f: impl FnOnce(&T) -> R) -> Result<R, Missing> {
        let (slot, there) = self.slot(handle)?;
        let _held = slot.hold(there)?;
        // SAFETY: as in `get`; the slot is held until `f` is through.
        Ok(f(unsafe { &*slot.object.load(Ordering::Relaxed) }))
    }

    /// Takes an object out, once no call holds it; its handle finds nothing from now on.
    pub(crate) fn take(&self, handle: u64) -> Result<Arc<T>, Missing> {
        let (slot, there) = self.slot(handle)?;
        let ours = slot.there.compare_exchange(there, 0, Ordering::AcqRel, Ordering::Relaxed);
        ours.map_err(|_| Missing::Unknown)?;
        holds::wait(slot.address());
        let object = slot.object.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: the pointer came from `Arc::into_raw`. This call alone took it out, and no other is
        // in the slot.
        let object = unsafe { Arc::from_raw(object) };
        let index = handle as u32 & ((1 << INDEX_BITS) - 1);
        self.vacant.lock().freed.push(index);
        Ok(object)
    }

    /// The slot of a handle, and the value of [`Slot::there`] while its object exists.
    #[inline]
    fn slot(&self, handle: u64) -> Result<(&Slot<T>, u64), Missing> {
        let index = handle as usize & ((1 << INDEX_BITS) - 1);
        let generation = (handle >> INDEX_BITS) as u32;
        let kind = handle >> KIND_SHIFT == u64::from(self.kind);
        let chunk = self.chunks.get(index / CHUNK).filter(|_| kind).and_then(OnceLock::get);
        let slot = chunk.and_then(|chunk| chunk.get(index % CHUNK)).ok_or(Missing::Unknown)?;
        if !slot.owner().is_current() {
            return Err(Missing::Forked);
        }
        Ok((slot, u64::from(generation) | THERE))
    }
}

impl<T> Slot<T> {
    fn owner(&self) -> Process {
        Process::numbered(self.owner.load(Ordering::Relaxed))
    }

    /// Address by which a hold names the slot.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Holds the slot while the object of a handle is in it.
    #[inline]
    fn hold(&self, there: u64) -> Result<Hold, Missing> {
        let hold = Hold::new(self.address(), self.owner());
        if self.there.load(Ordering::Acquire) == there { Ok(hold) } else { Err(Missing::Unknown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Option<Missing> = Some(Missing::Unknown);

    #[test]
    fn a_handle_finds_its_object_until_it_is_taken() {
        static TABLE: Table<u32> = Table::new(1);
        let first = TABLE.insert(Arc::new(7)).unwrap();
        let second = TABLE.insert(Arc::new(8)).unwrap();
        assert_eq!((TABLE.get(first).as_deref(), TABLE.get(second).as_deref()), (Ok(&7), Ok(&8)));
        assert_eq!(TABLE.with(first, |number| number + 1), Ok(8));
        assert_eq!(TABLE.take(first).as_deref(), Ok(&7));
        assert_eq!(TABLE.with(first, |number| number + 1), Err(Missing::Unknown));
        assert_eq!((TABLE.get(first).err(), TABLE.take(first).err()), (GONE, GONE));
        let third = TABLE.insert(Arc::new(9)).unwrap();
        assert_eq!(third as u32 & 0xff_ffff, first as u32 & 0xff_ffff, "the slot is used again");
        assert_eq!((TABLE.get(first).err(), TABLE.get(third).as_deref()), (GONE, Ok(&9)));
    }

    #[test]
    fn what_was_never_a_handle_finds_nothing() {
        static TABLE: Table<u32> = Table::new(2);
        static OTHER: Table<u32> = Table::new(3);
        let handle = TABLE.insert(Arc::new(7)).unwrap();
        assert_eq!(OTHER.get(handle).err(), GONE, "of another kind");
        for bits in 0..64 {
            assert_eq!(TABLE.get(handle ^ 1 << bits).err(), GONE, "bit {bits}");
        }
        let found = [TABLE.get(0), TABLE.get(u64::MAX), TABLE.take(0)].map(Result::err);
        assert_eq!(found, [GONE; 3]);
    }

    #[test]
    fn many_threads_make_and_break_objects() {
        static TABLE: Table<u64> = Table::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0..3000 {
                        let value = thread << 32 | round;
                        let handle = TABLE.insert(Arc::new(value)).unwrap();
                        assert_eq!(TABLE.get(handle).as_deref(), Ok(&value));
                        assert_eq!(TABLE.take(handle).as_deref(), Ok(&value));
                        assert_eq!(TABLE.get(handle).err(), GONE);
                    }
                });
            }
        });
    }

    #[test]
    fn taking_waits_for_the_calls_that_are_in_the_object() {
        static TABLE: Table<AtomicU32> = Table::new(5);
        static OTHER: Table<u32> = Table::new(6);
        let other = OTHER.insert(Arc::new(0)).unwrap();
        let (mut seen, mut made) = (0, 0);
        while seen < 200 && made < 200_000 {
            made += 1;
            let handle = TABLE.insert(Arc::new(AtomicU32::new(0))).unwrap();
            let inside = std::thread::scope(|scope| {
                let caller = scope.spawn(move || {
                    let call = |object: &AtomicU32| {
                        object.store(1, Ordering::Relaxed);
                        OTHER.with(other, |_| std::thread::yield_now()).unwrap();
                        object.store(2, Ordering::Relaxed);
                    };
                    TABLE.with(handle, call).is_ok()
                });
                let object = TABLE.get(handle).unwrap();
                while made % 2 == 0 && object.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                drop(object);
                let object = TABLE.take(handle).unwrap();
                let state = object.load(Ordering::Relaxed);
                assert_ne!(state, 1, "a call is in the object");
                assert_eq!(Arc::strong_count(&object), 1);
                let called = caller.join().unwrap();
                assert_eq!((called, state == 2), (called, called), "in it before, or not at all");
                called
            });
            seen += u32::from(inside);
        }
        assert_eq!(seen, 200, "calls were met in the object, of {made}");
    }

    #[test]
    fn a_panic_lets_go_of_the_object() {
        static TABLE: Table<u32> = Table::new(7);
        let handle = TABLE.insert(Arc::new(7)).unwrap();
        let bug = || TABLE.with(handle, |_| -> u32 { panic!("a bug") });
        assert!(std::panic::catch_unwind(bug).is_err());
        assert_eq!(TABLE.take(handle).as_deref(), Ok(&7));
    }
}
