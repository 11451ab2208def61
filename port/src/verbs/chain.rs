//! Chains of send requests: the device takes a chain with one doorbell.

use erd_ffi::ibv::*;

/// See the module's text.
#[derive(Default)]
pub(super) struct Chain {
    pub(super) requests: Vec<ibv_send_wr>,
    /// The two pieces of each request: the copy in its slot, and the part in the application's memory.
    pub(super) pieces: Vec<[ibv_sge; 2]>,
}

// SAFETY: it has one owner at a time. Its pointers lead into its two lists, whose buffers stay in place when it moves,
// and to memory that its owner keeps until the requests have completed.
unsafe impl Send for Chain {}

impl Chain {
    /// Empties it, keeping its memory.
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.pieces.clear();
    }

    /// Number of its datagrams.
    pub(super) fn len(&self) -> u32 {
        self.requests.len() as u32
    }

    /// Bytes of its first datagrams that lie in the application's memory.
    pub(super) fn uncopied_bytes(&self, datagrams: u32) -> u64 {
        self.pieces[..datagrams as usize].iter().map(|[_, tail]| u64::from(tail.length)).sum()
    }

    /// Points each request to its pieces and to the next one.
    pub(super) fn link(&mut self) {
        assert_eq!(self.requests.len(), self.pieces.len(), "each request has its pieces");
        let count = self.requests.len();
        let (requests, pieces) = (self.requests.as_mut_ptr(), self.pieces.as_mut_ptr());
        for nth in 0..count {
            // SAFETY: both lists have `count` entries, and do not grow any more.
            unsafe {
                (*requests.add(nth)).sg_list = pieces.add(nth).cast();
                if nth + 1 < count {
                    (*requests.add(nth)).next = requests.add(nth + 1);
                }
            }
        }
    }

    /// Posts it; returns how many of its requests, from the first, were taken.
    ///
    /// # Safety
    /// It is linked and not empty. Its slots, its address handles and the memory of its pieces stay until the requests
    /// have completed.
    pub(super) unsafe fn post(&mut self, qp: &super::objects::Qp) -> u32 {
        let first = self.requests.as_mut_ptr();
        // SAFETY: the caller's promise.
        let bad = unsafe { qp.post_send(first) };
        if bad.is_null() {
            return self.len();
        }
        // SAFETY: the library returns a request of the chain.
        unsafe { bad.offset_from(first) as u32 }
    }
}
