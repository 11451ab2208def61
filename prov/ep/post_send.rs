//! Posting sends (`fi_msg(3)`, `fi_tagged(3)`).

use super::call::{Call, Payload, check_buffers};
use super::driver::Driver;
use super::ops::Buffers;
use erd_ffi::fi::{FI_FENCE, FI_MATCH_COMPLETE, FI_MSG, FI_SEND, FI_TAGGED};
use erd_rd::{SendToken, WorkRequest};
use erd_sys::clock::monotonic_ns;
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
        let (peer, handle, op) = self.admit(call, *buffers, len_bytes, Payload::Sent)?;
        let awaited = !op.early && !call.silent;
        op.flags = FI_SEND | if tag.is_some() { FI_TAGGED } else { FI_MSG };
        let work = WorkRequest {
            peer,
            token: SendToken(handle.token()),
            len_bytes,
            tag: *tag,
            data: call.data,
            match_complete: flags & FI_MATCH_COMPLETE != 0,
            awaited,
            fence: flags & FI_FENCE != 0,
        };
        let now = monotonic_ns();
        let taken = self.engine.send(now, work);
        self.posted(now, taken, handle, call)
    }
}
