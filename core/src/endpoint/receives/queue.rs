//! Queues of unexpected messages, and of an endpoint's own receives.

use crate::cause::Cause;
use crate::endpoint::ops::{Context, Handle};
use crate::endpoint::room::Room;
use crate::random;
use erd_rd::matching::{Key, Matcher, Pattern};
use erd_rd::{Arrived, MsgRef, PeerId};
use std::ffi::c_void;

/// A posted receive of the endpoint's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    One(Handle),
    Many(Handle),
}

/// A message without a receive.
#[derive(Clone, Copy, Debug)]
pub struct Unexpected {
    pub msg: MsgRef,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub len_bytes: u64,
    /// Buffer of its payload; `None` if that waits at the sender.
    pub held: Option<Handle>,
}

impl Unexpected {
    pub fn new(arrived: &Arrived) -> Unexpected {
        Unexpected {
            msg: arrived.msg,
            tag: arrived.tag,
            data: arrived.data,
            len_bytes: arrived.len_bytes,
            held: arrived.held.map(|token| Handle::from_token(token.0).0),
        }
    }
}

/// A message claimed by a peek with [`crate::flags::Flags::CLAIM`].
pub struct Claimed {
    /// Identifies it: the context of the peek.
    pub context: Context,
    pub message: Unexpected,
    /// Its session ended before the payload came.
    pub void: Option<Cause>,
}

/// Queues of an endpoint with its own receives, or of one with a shared context, which keeps the receives itself.
pub struct Queue {
    pub matcher: Matcher<PeerId, Posted, Unexpected>,
    pub claimed: Vec<Claimed>,
    /// For what searches remember.
    room: Room,
}

impl Queue {
    /// A queue for `posted_max` receives. The engine's credits bound the unexpected messages.
    pub fn new(posted_max: u32) -> Queue {
        let matcher = Matcher::new(posted_max, u32::MAX, random::u64());
        Queue { matcher, claimed: Vec::new(), room: Room::default() }
    }

    /// The first message that a receive with this pattern takes.
    pub fn find(&mut self, at: &Pattern<PeerId>) -> Option<Key> {
        self.matcher.find_unexpected(at, |bytes| self.room.has(bytes))
    }

    /// Keeps a message that has come.
    pub fn keep(&mut self, message: Unexpected) {
        let kept = self.matcher.push_unexpected(message.msg.peer, message.tag, message);
        if kept.is_err() {
            tracing::error!("more unexpected messages than the engine admits");
        }
    }

    /// The payload of messages for which `is_gone` holds will never come. Returns those that end without a report.
    pub fn void(&mut self, cause: Cause, is_gone: impl Fn(&Unexpected) -> bool) -> Vec<Unexpected> {
        let claimed = self.claimed.iter_mut().filter(|claimed| is_gone(&claimed.message));
        claimed.for_each(|claimed| claimed.void = Some(cause));
        self.matcher.take_unexpected(|_, message| is_gone(message))
    }

    /// True if a message was claimed with this context.
    pub fn claims(&self, context: *mut c_void) -> bool {
        self.claimed.iter().any(|claimed| claimed.context.0 == context)
    }

    /// Takes the message claimed with this context.
    pub fn take_claimed(&mut self, context: *mut c_void) -> Option<Claimed> {
        let index = self.claimed.iter().position(|claimed| claimed.context.0 == context)?;
        Some(self.claimed.swap_remove(index))
    }
}
