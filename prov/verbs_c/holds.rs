//! Holds on slots of the handle tables, so that no object is destroyed under a call.
//!
//! Each thread has a record of the slots that its calls are in (hazard pointers: M. M. Michael, "Hazard Pointers", IEEE
//! TPDS 15(6), 2004). A holder stores the slot's address there, then checks that the object still exists. A destroyer
//! marks the object as gone, then waits until no record has the slot. [`barrier::light`] orders the holder's store and
//! check, so a call that posts or polls takes no lock and makes no atomic change.

use erd_sys::barrier;
use erd_sys::process::Process;
use parking_lot::Mutex;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Most slots that one call holds at once: a queue pair and an address.
const DEPTH: usize = 2;
/// Looks of a thread that waits for others, before it sleeps between them.
const LOOKS_AWAKE: u32 = 64;
/// Its sleep between looks.
const NAP: Duration = Duration::from_micros(50);

/// The slots that one thread holds.
#[repr(align(64))]
struct Record {
    /// Addresses of slots, 0 where there is none.
    held: [AtomicUsize; DEPTH],
    /// [`Process::number`] of the thread's. A child has the records of its parent's threads, and
    /// not the threads.
    process: AtomicU32,
}

/// Records of all threads, and the spare ones. Records are reused and never freed: there are as many as threads were
/// calling at once.
static RECORDS: Mutex<Records> = Mutex::new(Records { all: Vec::new(), spare: Vec::new() });

struct Records {
    all: Vec<&'static Record>,
    spare: Vec<&'static Record>,
}

thread_local! {
    static MINE: Cell<Option<&'static Record>> = const { Cell::new(None) };
    static AT_EXIT: AtExit = const { AtExit };
}

/// Gives the thread's record back when the thread ends.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Some(record) = MINE.take() {
            give_back(record);
        }
    }
}

fn give_back(record: &'static Record) {
    RECORDS.lock().spare.push(record);
}

#[cold]
fn first_hold() -> &'static Record {
    barrier::prepare();
    let mut records = RECORDS.lock();
    let record = records.spare.pop().unwrap_or_else(|| {
        let record =
            Box::leak(Box::new(Record { held: Default::default(), process: AtomicU32::new(0) }));
        records.all.push(record);
        record
    });
    drop(records);
    // A thread that is ending has no hook any more; each of its calls takes a record for itself.
    if AT_EXIT.try_with(|_| ()).is_ok() {
        MINE.set(Some(record));
    }
    record
}

/// A hold of a slot, until the thread that made it drops it.
pub(super) struct Hold {
    record: &'static Record,
    index: usize,
    only_here: PhantomData<*const ()>,
}

impl Hold {
    /// Holds `slot`. The caller then checks whether it still has an object.
    ///
    /// # Panics
    /// If the thread holds as many slots as any call of ours.
    #[inline]
    pub(super) fn new(slot: usize, process: Process) -> Hold {
        let record = MINE.get().unwrap_or_else(first_hold);
        let vacant = |held: &AtomicUsize| held.load(Ordering::Relaxed) == 0;
        let index = record.held.iter().position(vacant).expect("a call is in two slots at most");
        record.process.store(process.number(), Ordering::Relaxed);
        record.held[index].store(slot, Ordering::Relaxed);
        barrier::light();
        Hold { record, index, only_here: PhantomData }
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        self.record.held[self.index].store(0, Ordering::Release);
        if MINE.get().is_none() {
            give_back(self.record);
        }
    }
}

/// Waits until no call holds `slot`, whose object was marked as gone before.
pub(super) fn wait(slot: usize) {
    barrier::prepare();
    barrier::heavy();
    let process = Process::current().number();
    let mut looks = 0_u32;
    let records = RECORDS.lock().all.clone();
    for record in records {
        while record.process.load(Ordering::Relaxed) == process
            && record.held.iter().any(|held| held.load(Ordering::Acquire) == slot)
        {
            looks = looks.saturating_add(1);
            if looks < LOOKS_AWAKE {
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
        }
    }
}
