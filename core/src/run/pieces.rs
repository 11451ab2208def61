//! The memory of bursts to send, piece by piece.

use crate::region::Pass;
use erd_port::PinId;
use libc::iovec;

/// Pieces above which a burst is copied together first: the kernel takes 1024.
const PIECES_MAX: usize = 512;
/// Pieces of one datagram above which its burst is copied: the port takes 128.
const PIECES_PER_DATAGRAM_MAX: usize = 64;

/// The pointers of the call under way, and the accesses that keep registered memory open behind them. Empty between
/// calls.
#[derive(Default)]
pub struct Pieces {
    /// The pieces, in order.
    pub list: Vec<iovec>,
    /// The accesses that keep registered memory open.
    pub passes: Vec<Pass>,
    /// Registered memory that pieces of the burst at hand lie in.
    pub memory: Option<PinId>,
    /// The copies that some pieces point to.
    copies: Vec<Vec<u8>>,
}

impl Pieces {
    /// Lets go of the memory.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.passes.clear();
        self.copies.clear();
        self.memory = None;
    }

    /// Registered memory that pieces of the burst at hand lie in; none if some are our own, which may lie
    /// there too and do not stay.
    pub(super) fn memory_of_others(&self) -> Option<PinId> {
        self.memory.filter(|_| self.copies.is_empty())
    }

    /// A piece that stays until the call ends.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let iov_base = bytes.as_ptr().cast_mut().cast();
        self.list.push(iovec { iov_base, iov_len: bytes.len() });
    }

    /// Copies the pieces from number `start` on together into `whole`, which is one piece then.
    ///
    /// # Safety
    /// Each piece is readable.
    #[cold]
    pub(super) unsafe fn join_from(&mut self, start: usize, whole: &mut Vec<u8>) {
        whole.clear();
        for piece in self.list.drain(start..) {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) };
            whole.extend_from_slice(bytes);
        }
        self.push_bytes(whole);
        self.memory = None;
    }

    /// A piece of its own.
    pub fn push_copy(&mut self, copy: Vec<u8>) {
        self.push_bytes(&copy);
        self.copies.push(copy);
    }
}

// SAFETY: the list is empty whenever no call is under way, so no pointer changes threads.
unsafe impl Send for Pieces {}

/// True if the port would not take the pieces: all, or those of one datagram, which counts when
/// a burst has to go out datagram by datagram.
pub(super) fn too_many(pieces: &[iovec], segment_bytes: usize) -> bool {
    if pieces.len() <= PIECES_PER_DATAGRAM_MAX || pieces.len() > PIECES_MAX {
        return pieces.len() > PIECES_MAX;
    }
    let (mut here, mut room_bytes) = (0, segment_bytes);
    for piece in pieces {
        let mut left_bytes = piece.iov_len;
        while left_bytes > 0 {
            if room_bytes == 0 {
                (here, room_bytes) = (0, segment_bytes);
            }
            let taken_bytes = left_bytes.min(room_bytes);
            (left_bytes, room_bytes, here) =
                (left_bytes - taken_bytes, room_bytes - taken_bytes, here + 1);
            if here > PIECES_PER_DATAGRAM_MAX {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(sizes: impl Iterator<Item = usize>) -> Vec<iovec> {
        sizes.map(|iov_len| iovec { iov_base: std::ptr::null_mut(), iov_len }).collect()
    }

    #[test]
    fn a_burst_is_copied_for_its_densest_datagram() {
        let segment_bytes = 1000;
        let few = || std::iter::repeat_n(500, 80);
        assert!(!too_many(&pieces(few()), segment_bytes), "two pieces in each of 40 datagrams");
        let dense = std::iter::repeat_n(10, 100);
        assert!(too_many(&pieces(few().chain(dense)), segment_bytes), "100 in the last");
        assert!(too_many(&pieces(std::iter::repeat_n(500, PIECES_MAX + 1)), segment_bytes));
        assert!(!too_many(&pieces(std::iter::once(1 << 16)), segment_bytes));
    }
}
