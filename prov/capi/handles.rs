//! The objects that C knows by handles.
//!
//! A handle is 64 bits: the kind of object (8), the generation of its slot (32) and the slot's
//! index (24). It looks like a pointer to C, and is never followed. One that is NULL, of another
//! kind, made up or left from an object that is gone finds nothing; a slot has to be used 2^32
//! times before an old handle finds a new object.
//!
//! Looking an object up takes its own slot's lock for reading and allocates nothing. Calls that post
//! or poll hold the lock to their end ([`Table::with`]), so destroying the object waits for them;
//! others take a share of the object ([`Table::get`]).
//!
//! A forked child is told that an object is its parent's before any lock is looked at: a thread that
//! the child does not have may hold it.

use crate::object::Process;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Slots that are allocated together.
const CHUNK: usize = 1024;
/// Chunks of a table.
const CHUNKS: usize = 1024;
/// Objects of one kind that can be there at once: 2^20, as many as an AV has addresses.
pub(crate) const OBJECTS_MAX: usize = CHUNK * CHUNKS;
const INDEX_BITS: u32 = 24;
const KIND_SHIFT: u32 = 56;

/// All objects of one kind.
pub(crate) struct Table<T> {
    kind: u8,
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    vacant: Mutex<Vacant>,
}

struct Slot<T> {
    /// [`Process::number`] of who made the object.
    owner: AtomicU32,
    place: RwLock<Place<T>>,
}

/// Why a handle finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// It names no object of its kind.
    Unknown,
    /// The object is that of the process which forked this one.
    Forked,
}

struct Place<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

struct Vacant {
    /// Slots that were used and are free.
    freed: Vec<u32>,
    /// Slots from this on were never used.
    fresh: u32,
}

impl<T> Table<T> {
    /// An empty table; `kind` is not 0, and no other table's.
    pub(crate) const fn new(kind: u8) -> Table<T> {
        let vacant = Vacant { freed: Vec::new(), fresh: 0 };
        Table { kind, chunks: [const { OnceLock::new() }; CHUNKS], vacant: Mutex::new(vacant) }
    }

    /// Puts an object in; `None` if [`OBJECTS_MAX`] are there.
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
                place: RwLock::new(Place { generation: 0, object: None }),
            };
            (0..CHUNK).map(|_| empty()).collect()
        });
        let slot = &chunk[index as usize % CHUNK];
        slot.owner.store(Process::current().number(), Ordering::Relaxed);
        let mut place = slot.place.write();
        place.generation = place.generation.wrapping_add(1);
        place.object = Some(object);
        let generation = u64::from(place.generation);
        Some(u64::from(self.kind) << KIND_SHIFT | generation << INDEX_BITS | u64::from(index))
    }

    /// The object that a handle names.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Missing> {
        let (slot, generation) = self.slot(handle)?;
        let place = slot.place.read();
        let object = place.object.as_ref().filter(|_| place.generation == generation);
        object.cloned().ok_or(Missing::Unknown)
    }

    /// Calls `f` with the object that a handle names. The object stays in its place meanwhile.
    pub(crate) fn with<R>(&self, handle: u64, f: impl FnOnce(&T) -> R) -> Result<R, Missing> {
        let (slot, generation) = self.slot(handle)?;
        let place = slot.place.read();
        let object = place.object.as_deref().filter(|_| place.generation == generation);
        object.map(f).ok_or(Missing::Unknown)
    }

    /// Takes an object out; its handle finds nothing from now on.
    pub(crate) fn take(&self, handle: u64) -> Result<Arc<T>, Missing> {
        let (slot, generation) = self.slot(handle)?;
        let mut place = slot.place.write();
        let object = if place.generation == generation { place.object.take() } else { None };
        drop(place);
        if object.is_some() {
            let index = handle as u32 & ((1 << INDEX_BITS) - 1);
            self.vacant.lock().freed.push(index);
        }
        object.ok_or(Missing::Unknown)
    }

    fn slot(&self, handle: u64) -> Result<(&Slot<T>, u32), Missing> {
        let index = handle as usize & ((1 << INDEX_BITS) - 1);
        let generation = (handle >> INDEX_BITS) as u32;
        let kind = handle >> KIND_SHIFT == u64::from(self.kind);
        let chunk = self.chunks.get(index / CHUNK).filter(|_| kind).and_then(OnceLock::get);
        let slot = chunk.and_then(|chunk| chunk.get(index % CHUNK)).ok_or(Missing::Unknown)?;
        if !Process::numbered(slot.owner.load(Ordering::Relaxed)).is_current() {
            return Err(Missing::Forked);
        }
        Ok((slot, generation))
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
}
