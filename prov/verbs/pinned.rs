//! An index of registered memory from which an RDMA device sends without a copy.

use erd_port::PinId;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Regions searched that begin before an address: more than overlap in any program.
const OVERLAPS: usize = 8;

/// The registered memory of a protection domain, by address.
#[derive(Default)]
pub(super) struct Pinned {
    /// One past the last byte, by the first and the number.
    ends: Mutex<BTreeMap<(usize, u64), (usize, PinId)>>,
}

impl Pinned {
    pub(super) fn add(&self, start: usize, len_bytes: usize, id: PinId) {
        self.ends.lock().insert((start, id.number()), (start + len_bytes, id));
    }

    pub(super) fn remove(&self, start: usize, id: PinId) {
        self.ends.lock().remove(&(start, id.number()));
    }

    /// Registration that contains all these bytes.
    pub(super) fn find(&self, start: usize, len_bytes: usize) -> Option<PinId> {
        let end = start.checked_add(len_bytes)?;
        let ends = self.ends.lock();
        let before = ends.range(..=(start, u64::MAX)).rev().take(OVERLAPS);
        before.map(|(_, region)| region).find(|(past, _)| end <= *past).map(|(_, id)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_by_any_of_its_bytes() {
        let id = |number| PinId::from_number(number).expect("not 0");
        let pinned = Pinned::default();
        pinned.add(1000, 500, id(1));
        pinned.add(1000, 100, id(2));
        pinned.add(2000, 10, id(3));
        assert_eq!(pinned.find(1000, 500), Some(id(1)));
        assert_eq!(pinned.find(1099, 1), Some(id(2)), "the one that was registered last");
        assert_eq!(pinned.find(1100, 400), Some(id(1)));
        for (start, len_bytes) in [(999, 1), (1100, 401), (1500, 1), (2005, 6), (usize::MAX, 2)] {
            assert_eq!(pinned.find(start, len_bytes), None, "{start} {len_bytes}");
        }
        pinned.remove(1000, id(1));
        assert_eq!(pinned.find(1100, 1), None);
    }
}
