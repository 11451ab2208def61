//! A buffer of a shared receive context that takes messages until too little of it is left
//! ([`Flags::MULTI_RECV`]). Its parts may go to messages of different endpoints.

use crate::cause::Cause;
use crate::endpoint::ops::Buffers;
use crate::endpoint::request::RecvRequest;
use crate::error::Error;
use crate::flags::Flags;
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;

/// Why a buffer takes no more messages: `None` if it is full.
type Reason = Option<Cause>;

/// What is told of a receive that ends without a message: a buffer of many, or one that was canceled.
pub struct Ended {
    /// The receive.
    pub request: RecvRequest,
    /// Why it ended.
    pub cause: Reason,
}

// SAFETY: nothing is read or written through the request, and its context is never looked at.
unsafe impl Send for Ended {}

/// Buffers whose last part ended with its endpoint, for another endpoint to tell of.
pub(super) type Orphans = Arc<Mutex<Vec<Ended>>>;

pub struct Buffer {
    request: RecvRequest,
    /// Less free space than this ends it; at least 1.
    min_free_bytes: u64,
    state: Mutex<State>,
    orphans: Orphans,
}

// SAFETY: the memory is lent by the application until the buffer is released; nobody reads or
// writes it through this. The context is never looked at.
unsafe impl Send for Buffer {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Buffer {}

#[derive(Default)]
struct State {
    used_bytes: u64,
    /// Messages that have a part and of which the application was not told.
    parts: u32,
    over: Option<Reason>,
}

impl Buffer {
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn new(
        request: &RecvRequest,
        min_free_bytes: u64,
        orphans: &Orphans,
    ) -> Result<Arc<Buffer>, Error> {
        let (len_bytes, min_free_bytes) = (request.buffers.len_bytes(), min_free_bytes.max(1));
        if !request.buffers.is_contiguous() || len_bytes < min_free_bytes {
            tracing::info!(len_bytes, min_free_bytes, "FI_MULTI_RECV: one piece, not too short");
            return Err(Error::Invalid);
        }
        let (request, orphans) = (*request, Arc::clone(orphans));
        Ok(Arc::new(Buffer { request, min_free_bytes, state: Mutex::default(), orphans }))
    }

    pub(super) fn context(&self) -> *mut c_void {
        self.request.context
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// The receive of a message of `len_bytes`, which is the longest that fits if that is more. Only
    /// a buffer that is not over has one.
    pub fn part(self: &Arc<Buffer>, len_bytes: u64) -> (RecvRequest, Part) {
        let mut state = self.state.lock();
        let take_bytes = len_bytes.min(self.request.buffers.len_bytes() - state.used_bytes);
        let base = self.request.buffers.base().cast::<u8>().wrapping_add(state.used_bytes as usize);
        state.used_bytes += take_bytes;
        state.parts += 1;
        if self.request.buffers.len_bytes() - state.used_bytes < self.min_free_bytes {
            state.over = Some(None);
        }
        // SAFETY: base and length lie within the buffer, which the application lends until it is
        // released; that comes after the completion of this part.
        let buffers = unsafe { Buffers::one(base.cast(), take_bytes as usize) };
        let flags = self.request.flags.difference(Flags::MULTI_RECV);
        (RecvRequest { buffers, flags, ..self.request }, Part(Some(Arc::clone(self))))
    }

    /// It was canceled and takes no more. What to tell, unless messages are under way to it: that follows
    /// the last of them.
    pub(super) fn cancel(&self) -> Option<Ended> {
        let mut state = self.state.lock();
        state.over = Some(Some(Cause::Canceled));
        let cause = Some(Cause::Canceled);
        (state.parts == 0).then_some(Ended { request: self.request, cause })
    }

    /// One part less. What to tell, if that was the last.
    fn part_ended(&self) -> Option<Ended> {
        let mut state = self.state.lock();
        state.parts -= 1;
        let cause = state.over.filter(|_| state.parts == 0)?;
        Some(Ended { request: self.request, cause })
    }
}

/// One message's part of a buffer, until the application is told of it, or its endpoint closes.
#[derive(Default)]
pub struct Part(Option<Arc<Buffer>>);

impl Part {
    /// It belongs to no buffer.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The application was told of the message. What to tell of the buffer, if this was its last.
    pub fn end(mut self) -> Option<Ended> {
        self.0.take()?.part_ended()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(buffer) = self.0.take() {
            buffer.orphans.lock().extend(buffer.part_ended());
        }
    }
}
