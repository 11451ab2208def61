//! Operations under way: sends and requests, receives, and payloads that came before their receives.

use super::ops::{Buffers, Context, Handle};
use super::receives::many::Part;
use super::receives::queue::Unexpected;
use super::request::RecvRequest;
use crate::counter::Counter;
use crate::flags::Flags;
use crate::trigger::Trigger;
use erd_port::PinId;
use erd_rd::match_order::Place;
use erd_rd::{MsgRef, PeerId};
use std::sync::Arc;

/// Counter of deferred work, which counts it in place of its endpoint's counters (`fi_trigger(3)`).
pub(super) struct Owed {
    /// The counter that the work names. Closing it does not wait for the work.
    pub cntr: Option<Arc<Counter>>,
}

impl Owed {
    pub(super) fn completed(&self) {
        // Adds 1, even to a counter of bytes.
        self.cntr.iter().for_each(|cntr| cntr.add(1));
    }
}

/// A send, or a request to a peer's memory, under way.
#[derive(Default)]
pub(super) struct SendOp {
    /// The payload, or the memory for the result of a request.
    pub buffers: Buffers,
    /// A copy of the payload, or the operands of an atomic request.
    pub bounce: Vec<u8>,
    /// The payload is in `bounce`.
    pub bounced: bool,
    /// The application lends the payload until its call returns: it must be copied by then.
    pub lent: bool,
    pub context: Context,
    /// Flags of its completion.
    pub flags: Flags,
    /// A success is reported in the CQ.
    pub completion: bool,
    /// The application has its buffer back: closing waits for it.
    pub promised: bool,
    /// It completes once the engine has taken it: nobody learns of its delivery.
    pub early: bool,
    pub peer: Option<PeerId>,
    pub len_bytes: u64,
    /// It is deferred work.
    pub owed: Option<Box<Owed>>,
    /// The transmit context of a scalable endpoint.
    pub ctx: u8,
}

impl SendOp {
    /// Becomes an operation of these buffers. Nothing of what it was before stays, except for the memory of its copy.
    pub(super) fn begin(&mut self, lent_buffers: &Buffers) {
        // By fields: see [`RecvOp::begin`].
        let SendOp {
            buffers,
            bounce: _,
            bounced,
            lent,
            context,
            flags,
            completion,
            promised,
            early,
            peer,
            len_bytes,
            owed,
            ctx,
        } = self;
        buffers.set(lent_buffers);
        (*bounced, *lent, *completion, *promised, *early) = (false, false, false, false, false);
        (*context, *flags, *peer) = (Context::default(), Flags::empty(), None);
        (*len_bytes, *owed, *ctx) = (0, None, 0);
    }

    pub(super) fn read(&self, offset_bytes: u64, out: &mut [u8]) {
        if self.bounced {
            let at = offset_bytes as usize;
            out.copy_from_slice(&self.bounce[at..at + out.len()]);
        } else {
            self.buffers.read(offset_bytes, out);
        }
    }

    /// Adds a copy of a part to `out`.
    pub(super) fn append(&self, offset_bytes: u64, len_bytes: u32, out: &mut Vec<u8>) {
        if self.bounced {
            out.extend_from_slice(&self.bounce[offset_bytes as usize..][..len_bytes as usize]);
        } else {
            self.buffers.append_part(offset_bytes, len_bytes.into(), out);
        }
    }

    /// Registered memory to send it from without a copy, if it has `least_bytes` or more.
    pub(super) fn memory(&self, least_bytes: u64) -> Option<PinId> {
        let worth_it = !self.bounced && !self.lent && self.len_bytes >= least_bytes;
        self.buffers.memory().filter(|_| worth_it)
    }

    /// Hands a part of the payload to `f`, piece by piece.
    pub(super) fn pieces(&self, offset_bytes: u64, len_bytes: u64, mut f: impl FnMut(libc::iovec)) {
        if !self.bounced {
            return self.buffers.pieces(offset_bytes, len_bytes, f);
        }
        let at = offset_bytes as usize;
        let part = &self.bounce[at..at + len_bytes as usize];
        f(libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    }
}

/// A posted receive, or one message's part of a buffer of many.
#[derive(Default)]
pub(super) struct RecvOp {
    pub buffers: Buffers,
    pub context: Context,
    /// Flags of its completion.
    pub flags: Flags,
    /// A success is reported in the CQ.
    pub completion: bool,
    /// Buffer that contains this part.
    pub parent: Option<Handle>,
    /// Its part of a buffer of the shared context.
    pub shared: Part,
    /// It is deferred work.
    pub owed: Option<Box<Owed>>,
    /// Place of its completion among those of its peer's messages.
    pub place: Option<Place>,
    // The message's fields, once it is matched:
    pub peer: Option<PeerId>,
    pub tag: u64,
    pub data: Option<u64>,
    pub len_bytes: u64,
}

impl RecvOp {
    /// Becomes a receive as requested, and nothing of what it was before.
    pub(super) fn begin(&mut self, request: &RecvRequest, completion: bool) {
        // By fields: a whole one is long, and what is copied has just been written.
        let RecvOp {
            buffers,
            context,
            flags,
            completion: reports,
            parent,
            shared,
            owed,
            place,
            peer,
            tag,
            data,
            len_bytes,
        } = self;
        buffers.set(&request.buffers);
        (*context, *flags) = (Context(request.context), request.completion_flags());
        (*reports, *parent, *shared) = (completion, None, Part::default());
        (*owed, *place, *peer) = (None, None, None);
        (*tag, *data, *len_bytes) = (0, None, 0);
    }

    pub(super) fn meets(&mut self, message: &Unexpected) {
        self.peer = Some(message.msg.peer);
        self.tag = message.tag.unwrap_or(0);
        self.data = message.data;
        self.len_bytes = message.len_bytes;
    }
}

/// A payload that came before its receive.
#[derive(Default)]
pub(super) struct Held {
    pub bytes: Vec<u8>,
    pub len_bytes: usize,
    /// All of it is there.
    pub whole: bool,
    /// Its message, once known.
    pub msg: Option<MsgRef>,
    pub to: Option<Handle>,
    /// The application has discarded it.
    pub discarded: bool,
}

impl Held {
    pub(super) fn write(&mut self, offset_bytes: u64, bytes: &[u8]) {
        let Ok(at) = usize::try_from(offset_bytes) else { return };
        if let Some(room) = self.bytes[..self.len_bytes].get_mut(at..) {
            let fits = bytes.len().min(room.len());
            room[..fits].copy_from_slice(&bytes[..fits]);
        }
    }
}
