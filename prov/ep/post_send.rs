//! Posting sends (`fi_msg(3)`, `fi_tagged(3)`).

use super::driver::{Driver, refusal_errno};
use super::host::SendOp;
use super::ops::Buffers;
use erd_ffi::clock::monotonic_ns;
use erd_ffi::fi::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_EMSGSIZE, FI_ENOCQ, FI_EOPNOTSUPP, FI_FENCE,
    FI_INJECT, FI_INJECT_COMPLETE, FI_MATCH_COMPLETE, FI_MORE, FI_MSG, FI_SEND, FI_TAGGED,
    FI_TRIGGER, fi_addr_t,
};
use erd_rd::{SendToken, WorkRequest};
use std::ffi::{c_int, c_void};

/// A send as the application posts it.
#[derive(Clone, Copy)]
pub(super) struct SendRequest {
    pub buffers: Buffers,
    pub context: *mut c_void,
    pub dest: fi_addr_t,
    /// `None` for `fi_send` and its like.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    pub flags: u64,
    /// A success is not reported, whatever the flags (`fi_inject`).
    pub silent: bool,
}

impl SendRequest {
    /// An untagged send without data; the buffers are to be filled in.
    pub(super) fn new(dest: fi_addr_t, context: *mut c_void, flags: u64) -> SendRequest {
        let buffers = Buffers::default();
        SendRequest { buffers, context, dest, tag: None, data: None, flags, silent: false }
    }

    /// The same, without a completion.
    pub(super) fn silent(dest: fi_addr_t, flags: u64) -> SendRequest {
        SendRequest { silent: true, ..SendRequest::new(dest, std::ptr::null_mut(), flags) }
    }
}

impl Driver {
    /// Posts a send.
    ///
    /// # Errors
    /// A positive error number; nothing was posted then.
    pub(super) fn post_send(&mut self, request: &SendRequest) -> Result<(), c_int> {
        self.check_send(request)?;
        let peer = self.peer_at(request.dest)?;
        let len_bytes = request.buffers.len_bytes();
        let flags = request.flags;
        let (injected, copied) = self.copies(request);
        let completion =
            !request.silent && (flags & FI_COMPLETION != 0 || self.host.tx.always_completes());
        let room = self.host.sends.live() + self.host.tx.unread() < self.config.tx_size;
        let place = if room { self.host.sends.take() } else { None };
        let Some((handle, op)) = place else {
            self.progress();
            return Err(FI_EAGAIN);
        };
        *op = SendOp {
            buffers: request.buffers,
            bounce: std::mem::take(&mut op.bounce),
            bounced: injected || copied,
            context: request.context,
            flags: FI_SEND | if request.tag.is_some() { FI_TAGGED } else { FI_MSG },
            completion: completion && !copied,
            promised: injected || copied,
            peer: Some(peer),
            len_bytes,
        };
        if op.bounced {
            // Both fit `inject_size`.
            op.bounce.resize(len_bytes as usize, 0);
            request.buffers.read(0, &mut op.bounce);
        }
        let now = monotonic_ns();
        let work = WorkRequest {
            peer,
            token: SendToken(handle.token()),
            len_bytes,
            tag: request.tag,
            data: request.data,
            match_complete: flags & FI_MATCH_COMPLETE != 0,
            fence: flags & FI_FENCE != 0,
        };
        if let Err(refused) = self.engine.send(now, work) {
            self.host.sends.give_back(handle);
            return Err(refusal_errno(refused));
        }
        self.host.promised += usize::from(injected || copied);
        if copied && completion {
            self.host.report_send(handle);
        }
        if flags & FI_MORE == 0 {
            self.transmit(now, false);
        }
        self.publish();
        Ok(())
    }

    fn check_send(&self, request: &SendRequest) -> Result<(), c_int> {
        let len_bytes = request.buffers.len_bytes();
        if !self.host.tx.is_bound() {
            return Err(FI_ENOCQ);
        }
        if request.flags & FI_TRIGGER != 0 {
            return Err(FI_EOPNOTSUPP);
        }
        let limit_bytes = match request.flags & FI_INJECT {
            0 => self.config.max_msg_bytes,
            _ => self.config.inject_bytes,
        };
        if len_bytes > limit_bytes {
            tracing::info!(len_bytes, limit_bytes, "a message is too long");
            return Err(FI_EMSGSIZE);
        }
        Ok(())
    }

    /// Whether the payload is copied at once: because the application injects it, or because it
    /// asks only for its buffer back, and the message is short.
    fn copies(&self, request: &SendRequest) -> (bool, bool) {
        let flags = request.flags;
        let levels = FI_INJECT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
        let early = flags & levels == FI_INJECT_COMPLETE;
        let short = request.buffers.len_bytes() <= self.config.inject_bytes;
        (flags & FI_INJECT != 0, early && short)
    }
}
