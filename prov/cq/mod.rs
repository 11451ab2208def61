//! `fid_cq`: completion queues (`fi_cq(3)`).

mod calls;
pub(crate) mod format;
mod peer;
mod shown;

pub use calls::{open, trywait};

use crate::object::Class;
use erd_core::completion::CompletionQueue;
use erd_core::completion::queue::Entry;
use erd_core::uses::Users;
use erd_ffi::fi::{FI_CLASS_CQ, fi_addr_t, fid_cq};
use format::Format;
use shown::Shown;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::Arc;

/// A completion queue, with its format for libfabric.
pub struct CqFid {
    /// The queue.
    pub cq: Arc<CompletionQueue>,
    format: Format,
    api_version: u32,
    /// Reads wait for the number of entries in `cond`.
    threshold: bool,
    /// Text of the error entry read last, which C may still read.
    shown: Shown,
}

impl Deref for CqFid {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.cq
    }
}

// SAFETY: `fid_cq` begins with its `fid`, and no other state has this class.
unsafe impl Class for CqFid {
    type Abi = fid_cq;
    const FCLASS: usize = FI_CLASS_CQ;

    fn users(&self) -> &Users {
        self.cq.users()
    }
}

/// The application's buffers for completions.
#[derive(Clone, Copy)]
struct Target {
    format: Format,
    buf: *mut c_void,
    sources: *mut fi_addr_t,
}

impl Target {
    /// Writes an entry to its place.
    ///
    /// # Safety
    /// `buf` has room for more structures of the format than `place`, and so have `sources`, unless NULL.
    unsafe fn write(&self, place: usize, entry: &Entry) {
        // SAFETY: the caller's promise.
        unsafe {
            let to = self.buf.cast::<u8>().add(place * self.format.stride_bytes());
            self.format.write(to, entry);
            if !self.sources.is_null() {
                self.sources.add(place).write(entry.source);
            }
        }
    }
}
