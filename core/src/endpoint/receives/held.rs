//! Held buffers: payloads that came before their receives. The endpoint copies one when its message is whole and its
//! receive is there.

use super::queue::Unexpected;
use super::under_way::UnderWay;
use crate::cause::Cause;
use crate::endpoint::ops::Handle;
use erd_rd::{MsgRef, OpError, RecvToken};
use erd_types::mutants::{Mutant, mutant};

/// Largest memory that a free held buffer keeps, in bytes.
const KEPT_BYTES: usize = 16 << 10;
/// Held buffers in use above which a freed one gives its memory back.
const KEPT_BUFFERS: usize = 1 << 10;

impl UnderWay {
    /// A buffer for a payload without a receive, if there is memory.
    pub fn new_held(&mut self, len_bytes: u64) -> Option<Handle> {
        let len_bytes = usize::try_from(len_bytes).ok()?;
        let (handle, held) = self.helds.take()?;
        let more = len_bytes.saturating_sub(held.bytes.len());
        // Memory that a buffer already has needs no check.
        let grows = len_bytes > held.bytes.capacity();
        if grows && (!self.room.has(more) || held.bytes.try_reserve_exact(more).is_err()) {
            self.helds.give_back(handle);
            return None;
        }
        // The engine reports a message whole once each of its bytes was written. So nobody reads old contents, and only
        // growth costs.
        if held.bytes.len() < len_bytes {
            held.bytes.resize(len_bytes, 0);
        }
        held.len_bytes = len_bytes;
        (held.whole, held.msg, held.to, held.discarded) = (false, None, None, false);
        Some(handle)
    }

    /// Takes the bytes that came with a request before its turn.
    pub fn take_kept(&mut self, token: RecvToken) -> Vec<u8> {
        let (handle, _) = Handle::from_token(token.0);
        let mut bytes = Vec::new();
        if let Some(held) = self.helds.get_mut(handle) {
            bytes = std::mem::take(&mut held.bytes);
            bytes.truncate(held.len_bytes);
        }
        self.free_held(handle);
        bytes
    }

    fn free_held(&mut self, handle: Handle) {
        let many = self.helds.live() > KEPT_BUFFERS;
        if let Some(held) = self.helds.get_mut(handle)
            && (many || held.bytes.len() > KEPT_BYTES)
        {
            held.bytes = Vec::new();
        }
        self.helds.give_back(handle);
    }

    /// Joins a held payload with its receive.
    pub fn join(&mut self, handle: Handle, recv: Handle, msg: MsgRef) {
        let Some(held) = self.helds.get_mut(handle) else { return };
        held.msg = Some(msg);
        held.to = Some(recv);
        if held.whole || mutant(Mutant::DeliversAHalfHeldPayload) {
            self.deliver_held(handle);
        }
    }

    /// Copies a whole held payload to its receive.
    fn deliver_held(&mut self, handle: Handle) {
        let Some(held) = self.helds.get(handle) else { return };
        let (Some(recv), Some(msg)) = (held.to, held.msg) else { return };
        if let Some(op) = self.recvs.get(recv) {
            op.buffers.write(0, &held.bytes[..held.len_bytes]);
        }
        let len_bytes = held.len_bytes as u64;
        self.releases.push(msg);
        self.free_held(handle);
        self.recv_ended(recv, Ok(len_bytes));
    }

    /// Ends a held payload: it is whole, or never will be. Returns why its message is void, if no receive has met it.
    pub fn held_ended(&mut self, handle: Handle, error: Option<OpError>) -> Option<Cause> {
        let held = self.helds.get_mut(handle)?;
        let Some(error) = error else {
            held.whole = true;
            if held.to.is_some() {
                self.deliver_held(handle);
            } else if held.discarded {
                self.releases.extend(held.msg);
                self.free_held(handle);
            }
            return None;
        };
        let (to, cause) = (held.to, Cause::from(error));
        self.free_held(handle);
        let Some(recv) = to else { return Some(cause) };
        self.recv_ended(recv, Err(cause));
        None
    }

    /// Drops a message that the application does not want.
    pub fn discard(&mut self, message: &Unexpected) {
        let Some(handle) = message.held else {
            self.releases.push(message.msg);
            return;
        };
        let Some(held) = self.helds.get_mut(handle) else { return };
        if held.whole {
            self.releases.push(message.msg);
            self.free_held(handle);
        } else {
            held.discarded = true;
        }
    }
}
