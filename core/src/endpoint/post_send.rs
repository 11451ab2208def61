//! Posting sends (`fi_msg(3)`, `fi_tagged(3)`).

use super::call::{Call, Payload, check_buffers};
use super::driver::Driver;
use super::ops::Buffers;
use crate::error::Error;
use crate::flags::Flags;
use crate::run::Outside;
use erd_rd::{AtOnce, SendToken, WorkRequest};

/// A send as the application posts it.
#[derive(Clone, Copy)]
pub struct SendRequest {
    /// The payload.
    pub buffers: Buffers,
    /// `None` for `fi_send` and its like.
    pub tag: Option<u64>,
    /// The call.
    pub call: Call,
}

impl<O: Outside> Driver<O> {
    /// Posts a send; `tag` is as in [`SendRequest`].
    ///
    /// # Errors
    /// Reason why nothing was posted.
    pub fn post_send(
        &mut self,
        buffers: &Buffers,
        tag: Option<u64>,
        call: &Call,
    ) -> Result<(), Error> {
        check_buffers(&[buffers])?;
        let len_bytes = buffers.len_bytes();
        let flags = call.flags;
        let (peer, handle, op) = self.admit(call, buffers, len_bytes, Payload::Sent)?;
        let awaited = !op.early && !call.silent;
        op.flags = Flags::SEND | if tag.is_some() { Flags::TAGGED } else { Flags::MSG };
        let work = WorkRequest {
            peer,
            token: SendToken(handle.token()),
            len_bytes,
            tag,
            data: call.data,
            match_complete: flags.intersects(Flags::MATCH_COMPLETE),
            awaited,
            delivery: flags.intersects(Flags::DELIVERY_COMPLETE | Flags::MATCH_COMPLETE),
            fence: flags.intersects(Flags::FENCE),
        };
        let now = self.now_ns();
        let taken = match self.engine.write_now(now, &work, &mut self.host) {
            Some(AtOnce::Over) => {
                self.written(handle, call);
                return Ok(());
            }
            Some(AtOnce::Unread) => {
                // The bytes have left their place.
                self.host.sends.get_mut(handle).iter_mut().for_each(|op| op.lent = false);
                Ok(())
            }
            None => self.engine.send(now, work),
        };
        self.posted(now, taken, handle, call)
    }
}
