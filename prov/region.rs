//! Memory that peers may reach: bounds, rights, and its end.
//!
//! A region is the application's memory until it is closed; closing waits for accesses that are
//! under way, and none begins afterwards ([`Region::enter`]).

use crate::cntr::CntrInner;
use crate::object::Use;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One piece of registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Address of its first byte.
    pub start: usize,
    /// Its length.
    pub len_bytes: usize,
}

/// Bit of [`Region::users`] that says that the region is closed.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Memory that peers may reach.
pub struct Region {
    pieces: Vec<Piece>,
    /// `FI_REMOTE_READ` and `FI_REMOTE_WRITE` as registered.
    access: u64,
    /// What peers call its first byte.
    base: u64,
    /// Accesses under way, and [`CLOSED`].
    users: AtomicUsize,
    /// Counters of accesses to this region alone, with the kinds that each counts.
    counters: Mutex<Vec<(u64, Arc<CntrInner>, Use)>>,
}

impl Region {
    /// A region of these pieces, which count as one run of bytes. Peers count from 0 or, with
    /// `by_address`, from the first piece's address.
    #[must_use]
    pub fn new(pieces: Vec<Piece>, access: u64, by_address: bool) -> Region {
        let base =
            if by_address { pieces.first().map_or(0, |piece| piece.start as u64) } else { 0 };
        let users = AtomicUsize::new(0);
        Region { pieces, access, base, users, counters: Mutex::default() }
    }

    /// `FI_REMOTE_READ` and `FI_REMOTE_WRITE` as registered.
    #[must_use]
    pub fn access(&self) -> u64 {
        self.access
    }

    /// What peers call its first byte.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// From now on `cntr` counts accesses of these kinds, `FI_REMOTE_READ` and `FI_REMOTE_WRITE`.
    pub fn count_in(&self, cntr: &Arc<CntrInner>, kinds: u64) {
        self.counters.lock().push((kinds, Arc::clone(cntr), cntr.hold()));
    }

    /// An access of this kind is done.
    pub fn accessed(&self, kind: u64, len_bytes: u64) {
        for (kinds, cntr, _) in &*self.counters.lock() {
            if kinds & kind != 0 {
                cntr.completed(len_bytes);
            }
        }
    }

    /// Where `len_bytes` from what peers call `addr` lie, as an offset; `None` if not within.
    #[must_use]
    pub fn offset_of(&self, addr: u64, len_bytes: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.base)?;
        let end = offset.checked_add(len_bytes)?;
        let sum = |sum: u64, piece: &Piece| sum.saturating_add(piece.len_bytes as u64);
        (end <= self.pieces.iter().fold(0, sum)).then_some(offset)
    }

    /// Begins an access; `None` if the region is closed.
    #[must_use]
    pub fn enter(self: &Arc<Region>) -> Option<Pass> {
        if self.users.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
            self.users.fetch_sub(1, Ordering::Release);
            return None;
        }
        Some(Pass(Arc::clone(self)))
    }

    /// Lets no access begin any more, and waits for those under way: each is a copy, or one system
    /// call that does not block.
    pub fn close(&self) {
        self.users.fetch_or(CLOSED, Ordering::AcqRel);
        while self.users.load(Ordering::Acquire) != CLOSED {
            std::thread::yield_now();
        }
    }

    /// Hands the parts of `len_bytes` from `offset_bytes` to `f`, in order. What lies beyond the
    /// end is left out.
    pub fn each_part(&self, offset_bytes: u64, len_bytes: u64, mut f: impl FnMut(*mut u8, usize)) {
        let (mut skip, mut left) = (offset_bytes, len_bytes);
        for piece in &self.pieces {
            let piece_bytes = piece.len_bytes as u64;
            if skip >= piece_bytes {
                skip -= piece_bytes;
                continue;
            }
            let take = (piece_bytes - skip).min(left);
            if take == 0 {
                return;
            }
            let start = piece.start.wrapping_add(skip as usize);
            f(std::ptr::with_exposed_provenance_mut(start), take as usize);
            left -= take;
            skip = 0;
        }
    }
}

/// An access to a region; the memory stays the region's until it is dropped.
pub struct Pass(Arc<Region>);

impl Deref for Pass {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(by_address: bool) -> Region {
        let pieces = vec![
            Piece { start: 4096, len_bytes: 10 },
            Piece { start: 8192, len_bytes: 0 },
            Piece { start: 8192, len_bytes: 5 },
        ];
        Region::new(pieces, 0, by_address)
    }

    #[test]
    fn bounds_are_those_of_all_pieces() {
        assert_eq!(region(false).offset_of(0, 15), Some(0));
        assert_eq!(region(false).offset_of(15, 0), Some(15));
        assert_eq!(region(false).offset_of(10, 6), None);
        assert_eq!(region(false).offset_of(u64::MAX, 2), None);
        assert_eq!(region(true).offset_of(4100, 3), Some(4));
        assert_eq!(region(true).offset_of(4095, 1), None);
    }

    #[test]
    fn the_whole_address_space_is_a_region() {
        let all = Region::new(vec![Piece { start: 0, len_bytes: usize::MAX }], 0, true);
        assert_eq!(all.offset_of(0x7fff_1234_5678, 8), Some(0x7fff_1234_5678));
        let mut parts = Vec::new();
        all.each_part(0x7fff_1234_5678, 8, |at, len| parts.push((at as usize, len)));
        assert_eq!(parts, [(0x7fff_1234_5678, 8)]);
    }

    #[test]
    fn parts_follow_the_pieces() {
        let mut parts = Vec::new();
        region(false).each_part(8, 4, |at, len| parts.push((at as usize, len)));
        assert_eq!(parts, [(4104, 2), (8192, 2)]);
    }

    #[test]
    fn a_closed_region_lets_nobody_in() {
        let region = Arc::new(region(false));
        let pass = region.enter().expect("open");
        let closing = Arc::clone(&region);
        let closer = std::thread::spawn(move || closing.close());
        while region.enter().is_some() {
            std::thread::yield_now();
        }
        assert!(!closer.is_finished(), "an access is under way");
        drop(pass);
        closer.join().expect("the region closes");
        assert!(region.enter().is_none());
    }
}
