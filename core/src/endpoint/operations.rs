//! Operations under way: sends and requests, receives, messages without one.

use super::ops::{Buffers, Handle};
use super::receives::many::Part;
use super::request::RecvRequest;
use crate::cause::Cause;
use crate::counter::Counter;
use crate::flags::Flags;
use crate::trigger::Trigger;
use erd_port::PinId;
use erd_rd::match_order::Place;
use erd_rd::{Arrived, MsgRef, PeerId};
use std::ffi::c_void;
use std::sync::Arc;

/// Deferred work counts here when it is done, and not at its endpoint (`fi_trigger(3)`).
pub(super) struct Owed {
    /// The counter that the work names. Closing it does not wait for the work.
    pub cntr: Option<Arc<Counter>>,
}

impl Owed {
    pub(super) fn completed(&self) {
        // One whatever the counter counts.
        self.cntr.iter().for_each(|cntr| cntr.add(1));
    }

    pub(super) fn failed(&self) {
        self.cntr.iter().for_each(|cntr| cntr.failed());
    }
}

/// A send, or a request to a peer's memory, under way.
pub(super) struct SendOp {
    /// The payload, or where the result of a request goes.
    pub buffers: Buffers,
    /// A copy of the payload, or the operands of an atomic request.
    pub bounce: Vec<u8>,
    /// The payload is in `bounce`.
    pub bounced: bool,
    /// The application lends the payload until its call returns: it is to be copied by then.
    pub lent: bool,
    pub context: *mut c_void,
    /// Flags of its completion.
    pub flags: Flags,
    /// A success is reported in the CQ.
    pub completion: bool,
    /// The application has its buffer back: closing waits for it.
    pub promised: bool,
    /// It is complete once the engine has taken it: nobody is told of its delivery.
    pub early: bool,
    pub peer: Option<PeerId>,
    pub len_bytes: u64,
    /// It is deferred work.
    pub owed: Option<Box<Owed>>,
    /// The transmit context of a scalable endpoint.
    pub ctx: u8,
}

// SAFETY: the context is the application's, never looked at.
unsafe impl Send for SendOp {}

impl Default for SendOp {
    fn default() -> Self {
        SendOp {
            buffers: Buffers::default(),
            bounce: Vec::new(),
            bounced: false,
            lent: false,
            context: std::ptr::null_mut(),
            flags: Flags::empty(),
            completion: false,
            promised: false,
            early: false,
            peer: None,
            len_bytes: 0,
            owed: None,
            ctx: 0,
        }
    }
}

impl SendOp {
    pub(super) fn read(&self, offset_bytes: u64, out: &mut [u8]) {
        if self.bounced {
            let at = offset_bytes as usize;
            out.copy_from_slice(&self.bounce[at..at + out.len()]);
        } else {
            self.buffers.read(offset_bytes, out);
        }
    }

    /// Registered memory that it is sent from without a copy, if it is as long as that asks for.
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
pub(super) struct RecvOp {
    pub buffers: Buffers,
    pub context: *mut c_void,
    /// Flags of its completion.
    pub flags: Flags,
    /// A success is reported in the CQ.
    pub completion: bool,
    /// The buffer that this is a part of.
    pub parent: Option<Handle>,
    /// Its part of a buffer of the shared context.
    pub shared: Part,
    /// It is deferred work.
    pub owed: Option<Box<Owed>>,
    /// Where its completion stands among those of its peer's messages.
    pub place: Option<Place>,
    // What the message says, once it is matched:
    pub peer: Option<PeerId>,
    pub tag: u64,
    pub data: Option<u64>,
    pub len_bytes: u64,
}

// SAFETY: the context is the application's, never looked at.
unsafe impl Send for RecvOp {}

impl Default for RecvOp {
    fn default() -> Self {
        RecvOp {
            buffers: Buffers::default(),
            context: std::ptr::null_mut(),
            flags: Flags::empty(),
            completion: false,
            parent: None,
            shared: Part::default(),
            owed: None,
            place: None,
            peer: None,
            tag: 0,
            data: None,
            len_bytes: 0,
        }
    }
}

impl RecvOp {
    /// A receive as it was asked for.
    pub(super) fn new(request: &RecvRequest, completion: bool) -> RecvOp {
        let (buffers, context) = (request.buffers, request.context);
        let flags = request.completion_flags();
        RecvOp { buffers, context, flags, completion, ..RecvOp::default() }
    }

    pub(super) fn meets(&mut self, message: &Unexpected) {
        self.peer = Some(message.msg.peer);
        self.tag = message.tag.unwrap_or(0);
        self.data = message.data;
        self.len_bytes = message.len_bytes;
    }
}

/// What the matcher keeps of a posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    One(Handle),
    Many(Handle),
}

/// A message without a receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unexpected {
    pub msg: MsgRef,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub len_bytes: u64,
    /// Where its payload is or will be; `None` if it waits at the sender.
    pub held: Option<Handle>,
}

impl Unexpected {
    pub(super) fn new(arrived: &Arrived) -> Unexpected {
        Unexpected {
            msg: arrived.msg,
            tag: arrived.tag,
            data: arrived.data,
            len_bytes: arrived.len_bytes,
            held: arrived.held.map(|token| Handle::from_token(token.0).0),
        }
    }
}

/// A message that a peek with [`Flags::CLAIM`] took aside.
pub(super) struct Claimed {
    /// Identifies it: the context of the peek.
    pub context: *mut c_void,
    pub message: Unexpected,
    /// Its session ended before the payload came.
    pub void: Option<Cause>,
}

// SAFETY: the context is the application's, never looked at.
unsafe impl Send for Claimed {}

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
    /// Nobody wants it any more.
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
