//! Posting sends (`fi_msg(3)`, `fi_tagged(3)`).

use super::call::{Call, check_buffers};
use super::driver::Driver;
use super::ops::Buffers;
use erd_ffi::clock::monotonic_ns;
use erd_ffi::fi::{
    FI_DELIVERY_COMPLETE, FI_FENCE, FI_INJECT, FI_INJECT_COMPLETE, FI_MATCH_COMPLETE, FI_MSG,
    FI_SEND, FI_TAGGED,
};
use erd_rd::{SendToken, WorkRequest};
use std::ffi::c_int;

/// A send as the application posts it.
#[derive(Clone, Copy)]
pub(crate) struct SendRequest {
    pub buffers: Buffers,
    /// `None` for `fi_send` and its like.
    pub tag: Option<u64>,
    pub call: Call,
}

impl Driver {
    /// Posts a send.
    ///
    /// # Errors
    /// A positive error number; nothing was posted then.
    pub(super) fn post_send(&mut self, request: &SendRequest) -> Result<(), c_int> {
        let SendRequest { buffers, tag, call } = request;
        check_buffers(&[buffers])?;
        let len_bytes = buffers.len_bytes();
        let flags = call.flags;
        let (injected, copied) = self.copies(request);
        let (peer, handle, op) = self.admit(call, *buffers, len_bytes)?;
        op.flags = FI_SEND | if tag.is_some() { FI_TAGGED } else { FI_MSG };
        (op.bounced, op.promised) = (injected || copied, injected || copied);
        if op.bounced {
            // Both fit `inject_size`.
            op.bounce.resize(len_bytes as usize, 0);
            buffers.read(0, &mut op.bounce);
        }
        let work = WorkRequest {
            peer,
            token: SendToken(handle.token()),
            len_bytes,
            tag: *tag,
            data: call.data,
            match_complete: flags & FI_MATCH_COMPLETE != 0,
            fence: flags & FI_FENCE != 0,
        };
        let now = monotonic_ns();
        let taken = self.engine.send(now, work);
        self.posted(now, taken, handle, call, copied)
    }

    /// Whether the payload is copied at once: because the application injects it, or because it
    /// asks only for its buffer back, and the message is short.
    fn copies(&self, request: &SendRequest) -> (bool, bool) {
        let flags = request.call.flags;
        let levels = FI_INJECT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
        let early = flags & levels == FI_INJECT_COMPLETE;
        let short = request.buffers.len_bytes() <= self.config.inject_bytes;
        (flags & FI_INJECT != 0, early && short)
    }
}
