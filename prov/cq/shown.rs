//! The texts of error entries, where C may still read them.
//!
//! A caller that uses one entry again hands the place of the last text back as a buffer of its own, perhaps to another
//! queue, or after the queue has gone. So places last as long as the process, serve one queue after another, and are known.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ffi::c_void;

/// Longest text. An address of any kind is shorter, as text and as bytes.
pub const SHOWN_BYTES_MAX: usize = 128;

type Place = Mutex<[u8; SHOWN_BYTES_MAX]>;

/// All places, of which there are as many as there were queues at once, and those that no queue has.
struct Places {
    addresses: BTreeSet<usize>,
    free: Vec<&'static Place>,
}

static PLACES: Mutex<Places> = Mutex::new(Places { addresses: BTreeSet::new(), free: Vec::new() });

/// A queue's place.
pub struct Shown(&'static Place);

impl Shown {
    /// A place that no other queue has.
    #[must_use]
    pub fn new() -> Shown {
        let mut places = PLACES.lock();
        if let Some(place) = places.free.pop() {
            return Shown(place);
        }
        let place: &'static Place = Box::leak(Box::new(Mutex::new([0; SHOWN_BYTES_MAX])));
        places.addresses.insert(place.data_ptr().addr());
        Shown(place)
    }

    /// The place itself.
    pub fn lock(&self) -> MutexGuard<'_, [u8; SHOWN_BYTES_MAX]> {
        self.0.lock()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        PLACES.lock().free.push(self.0);
    }
}

/// Whether a pointer is the place of some queue's text.
#[must_use]
pub fn is_place(pointer: *const c_void) -> bool {
    PLACES.lock().addresses.contains(&pointer.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_known_when_their_queue_has_gone() {
        let [one, other] = [Shown::new(), Shown::new()];
        let at = |shown: &Shown| shown.lock().as_ptr().cast::<c_void>();
        let (first, second) = (at(&one), at(&other));
        assert_ne!(first, second);
        drop(one);
        assert!(is_place(first) && is_place(second));
        assert!(!is_place(std::ptr::null()) && !is_place([0_u8; 4].as_ptr().cast()));
    }
}
