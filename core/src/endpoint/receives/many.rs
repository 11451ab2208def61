//! Multi-receive buffers, which take messages until too little of them is left ([`Flags::MULTI_RECV`]), of endpoints
//! and of shared receive contexts.

use crate::cause::Cause;
use crate::endpoint::ops::Buffers;
use crate::endpoint::request::RecvRequest;
use crate::error::Error;
use crate::flags::Flags;
use crate::peer_index::ANYONE;
use erd_types::mutants::{Mutant, mutant};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;

/// What is told of a receive that ends without a message: a buffer of many, or one that was canceled.
pub(crate) struct Ended {
    /// The receive.
    pub request: RecvRequest,
    /// Why it ended: `None` if it is a buffer that is full.
    pub cause: Option<Cause>,
}

// SAFETY: nothing is read or written through the request, and its context is never looked at.
unsafe impl Send for Ended {}

/// A buffer. Its owner lets one thread at a time give parts of it away.
pub(crate) struct MultiRecv {
    request: RecvRequest,
    /// Less free space than this ends it; at least 1.
    min_free_bytes: u64,
    used_bytes: u64,
    /// Messages that have a part and of which the application was not told.
    parts: u32,
    /// Takes no more messages; why, if not because it is full.
    over: Option<Option<Cause>>,
}

// SAFETY: the memory is lent by the application until the buffer is released; nobody reads or
// writes it through this. The context is never looked at.
unsafe impl Send for MultiRecv {}

impl Default for MultiRecv {
    fn default() -> Self {
        let request = RecvRequest::new(ANYONE, std::ptr::null_mut(), Flags::empty());
        MultiRecv { request, min_free_bytes: 1, used_bytes: 0, parts: 0, over: None }
    }
}

impl MultiRecv {
    /// # Errors
    /// [`Error::Invalid`].
    pub fn new(request: RecvRequest, min_free_bytes: usize) -> Result<MultiRecv, Error> {
        let len_bytes = request.buffers.len_bytes();
        let min_free_bytes = min_free_bytes.max(1) as u64;
        if !request.buffers.is_contiguous() || len_bytes < min_free_bytes {
            tracing::info!(len_bytes, min_free_bytes, "FI_MULTI_RECV: one piece, not too short");
            return Err(Error::Invalid);
        }
        Ok(MultiRecv { request, min_free_bytes, ..MultiRecv::default() })
    }

    pub fn context(&self) -> *mut c_void {
        self.request.context
    }

    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// The receive of a message of `len_bytes`, which is the longest that fits if that is more. Only
    /// a buffer that is not over has one.
    pub fn part(&mut self, len_bytes: u64) -> RecvRequest {
        let free_bytes = self.request.buffers.len_bytes() - self.used_bytes;
        let take_bytes = len_bytes.min(free_bytes);
        let base = self.request.buffers.base().cast::<u8>().wrapping_add(self.used_bytes as usize);
        self.used_bytes += if mutant(Mutant::OverlapsParts) { take_bytes / 2 } else { take_bytes };
        self.parts += 1;
        if free_bytes - take_bytes < self.min_free_bytes {
            self.over = Some(None);
        }
        // SAFETY: base and length lie within the buffer, which the application lends until it is
        // released; that comes after the completion of this part.
        let buffers = unsafe { Buffers::one(base.cast(), take_bytes as usize) };
        let flags = self.request.flags.difference(Flags::MULTI_RECV);
        RecvRequest { buffers, flags, ..self.request }
    }

    /// The buffer takes no more. What to tell, unless messages are under way to it: that follows the last of
    /// them.
    pub fn end(&mut self, cause: Cause) -> Option<Ended> {
        self.over = Some(Some(cause));
        self.told()
    }

    /// The application was told of one message. What to tell of the buffer, if this was its last.
    pub fn part_ended(&mut self) -> Option<Ended> {
        self.parts -= 1;
        self.told()
    }

    fn told(&self) -> Option<Ended> {
        let is_early = mutant(Mutant::ReleasesBeforeTheLastPart);
        let cause = self.over.filter(|_| self.parts == 0 || is_early)?;
        Some(Ended { request: self.request, cause })
    }
}

/// Buffers whose last part ended with its endpoint, for another endpoint to tell of.
pub(crate) type Orphans = Arc<Mutex<Vec<Ended>>>;

/// A buffer of a shared receive context. Its parts may go to messages of different endpoints.
pub(crate) struct SharedBuffer {
    pub buffer: Mutex<MultiRecv>,
    pub orphans: Orphans,
}

impl SharedBuffer {
    /// See [`MultiRecv::part`].
    pub fn part(self: &Arc<SharedBuffer>, len_bytes: u64) -> (RecvRequest, Part) {
        (self.buffer.lock().part(len_bytes), Part(Some(Arc::clone(self))))
    }
}

/// One message's part of a shared buffer, until the application is told of it, or its endpoint closes.
#[derive(Default)]
pub(crate) struct Part(Option<Arc<SharedBuffer>>);

impl Part {
    /// It belongs to no buffer.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// See [`MultiRecv::part_ended`].
    pub fn end(mut self) -> Option<Ended> {
        self.0.take()?.buffer.lock().part_ended()
    }
}

impl Drop for Part {
    // Most messages have no part, and each drops several of these.
    #[inline]
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            abandon(&shared);
        }
    }
}

/// Ends a part that its endpoint leaves untold.
#[cold]
fn abandon(shared: &SharedBuffer) {
    shared.orphans.lock().extend(shared.buffer.lock().part_ended());
}
