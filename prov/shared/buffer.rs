//! A buffer of a shared receive context that takes messages until too little of it is left
//! (`FI_MULTI_RECV`). Its parts may go to messages of different endpoints.

use crate::cq::strerror::Cause;
use crate::ep::{Buffers, RecvRequest};
use erd_ffi::fi::{FI_EINVAL, FI_MULTI_RECV};
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Why a buffer takes no more messages: `None` if it is full.
pub(crate) type Reason = Option<Cause>;

pub(crate) struct Buffer {
    request: RecvRequest,
    /// Less free space than this ends it; at least 1.
    min_free_bytes: u64,
    state: Mutex<State>,
}

// SAFETY: the memory is lent by the application until the buffer is released; nobody reads or
// writes it through this. The context is never looked at.
unsafe impl Send for Buffer {}
// SAFETY: as above; what changes is behind a lock.
unsafe impl Sync for Buffer {}

#[derive(Default)]
struct State {
    used_bytes: u64,
    /// Messages that have a part and are not complete.
    parts: u32,
    over: Option<Reason>,
}

impl State {
    /// One part less. Says why the buffer is over, if that was its last.
    fn part_ended(&mut self) -> Option<Reason> {
        self.parts -= 1;
        if self.parts == 0 { self.over } else { None }
    }
}

impl Buffer {
    /// # Errors
    /// `FI_EINVAL`.
    pub(super) fn new(request: &RecvRequest, min_free_bytes: u64) -> Result<Arc<Buffer>, c_int> {
        let (len_bytes, min_free_bytes) = (request.buffers.len_bytes(), min_free_bytes.max(1));
        if !request.buffers.is_contiguous() || len_bytes < min_free_bytes {
            tracing::info!(len_bytes, min_free_bytes, "FI_MULTI_RECV: one piece, not too short");
            return Err(FI_EINVAL);
        }
        let request = RecvRequest { flags: request.flags & !FI_MULTI_RECV, ..*request };
        Ok(Arc::new(Buffer { request, min_free_bytes, state: Mutex::default() }))
    }

    pub(super) fn context(&self) -> *mut c_void {
        self.request.context
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// The receive of a message of `len_bytes`, which is the longest that fits if that is more. Only
    /// a buffer that is not over has one.
    pub(crate) fn part(self: &Arc<Buffer>, len_bytes: u64) -> (RecvRequest, Part) {
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
        (RecvRequest { buffers, ..self.request }, Part(Some(Arc::clone(self))))
    }

    /// It was canceled and takes no more. The request to report as such, unless messages are under
    /// way to it: the last of them is followed by the report.
    pub(super) fn cancel(&self) -> Option<RecvRequest> {
        let mut state = self.state.lock();
        state.over = Some(Some(Cause::Canceled));
        (state.parts == 0).then_some(self.released())
    }

    /// What is told of it when it was not simply full.
    fn released(&self) -> RecvRequest {
        RecvRequest { flags: self.request.flags | FI_MULTI_RECV, ..self.request }
    }
}

/// One message's part of a buffer. Its end, or that of its endpoint, counts for the buffer's.
#[derive(Default)]
pub(crate) struct Part(Option<Arc<Buffer>>);

impl Part {
    /// The part's message is complete. If it was the buffer's last: whether that was full, or else
    /// why it is over, with the request to report.
    pub(crate) fn end(mut self) -> Option<Option<(RecvRequest, Cause)>> {
        let buffer = self.0.take()?;
        let reason = buffer.state.lock().part_ended()?;
        Some(reason.map(|cause| (buffer.released(), cause)))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(buffer) = &self.0 {
            buffer.state.lock().part_ended();
        }
    }
}
