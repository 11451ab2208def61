//! An endpoint's own receives, and their matching.

use super::queue::{Posted, Queue, Unexpected};
use super::under_way::UnderWay;
use crate::cause::Cause;
use crate::endpoint::limits::UNREAD_MAX;
use crate::endpoint::ops::Handle;
use crate::flags::Flags;
use erd_rd::PeerId;
use erd_rd::matching::{Key, Pattern, Senders};
use std::ffi::c_void;

/// See the module's text.
pub struct Own {
    pub queue: Queue,
    /// Unexpected messages wait for room, not for a receive, and must be matched before others.
    pub starved: bool,
}

impl Own {
    /// A queue with room for `size` receives.
    pub fn new(size: u32) -> Own {
        Own { queue: Queue::new(size), starved: false }
    }

    /// The receive that takes a message now, if there is one. This removes it from the matcher, unless it takes more
    /// messages.
    pub fn match_posted(&mut self, message: &Unexpected, ops: &mut UnderWay) -> Option<Handle> {
        let key = self.queue.matcher.find_posted(message.msg.peer, message.tag)?;
        let (recv, used_up) = match *self.queue.matcher.posted_mut(key).1 {
            Posted::One(recv) => (recv, true),
            Posted::Many(multi) => {
                let recv = self.part_of(multi, message.len_bytes, ops)?;
                (recv, ops.is_over(multi))
            }
        };
        if used_up {
            self.take_out(key, ops);
        }
        Some(recv)
    }

    /// Takes a receive out of the matcher, and stops watching its peer if it is directed.
    pub fn take_out(&mut self, key: Key, ops: &mut UnderWay) -> Posted {
        let (pattern, posted) = self.queue.matcher.remove_posted(key);
        if let Senders::One(peer) = pattern.from {
            ops.watches.push((peer, -1));
        }
        posted
    }

    /// A part of a buffer of many messages, for one of `len_bytes`. `None` if the application must read
    /// completions first.
    fn part_of(&mut self, multi: Handle, len_bytes: u64, ops: &mut UnderWay) -> Option<Handle> {
        let buffer = ops.multis.get_mut(multi)?;
        let has_room = !self.starved && ops.rx.unread() < UNREAD_MAX;
        let taken = if has_room { ops.recvs.take() } else { None };
        self.starved = taken.is_none();
        let (recv, op) = taken?;
        let request = buffer.part(len_bytes);
        let completion = request.flags.intersects(Flags::COMPLETION);
        op.begin(&request, completion);
        op.parent = Some(multi);
        Some(recv)
    }

    /// The next waiting message for a buffer that takes more, and the part for it.
    pub fn next_part(
        &mut self,
        multi: Handle,
        at: &Pattern<PeerId>,
        ops: &mut UnderWay,
    ) -> Option<(Handle, Unexpected)> {
        if ops.is_over(multi) {
            return None;
        }
        let key = self.queue.find(at)?;
        let len_bytes = self.queue.matcher.unexpected_mut(key).len_bytes;
        let recv = self.part_of(multi, len_bytes, ops)?;
        Some((recv, self.queue.matcher.remove_unexpected(key)))
    }

    /// Buffers that had to wait and may take more, if enough completions were read.
    pub fn fed(&mut self, ops: &UnderWay) -> Vec<Handle> {
        if !self.starved || ops.rx.unread() >= UNREAD_MAX / 2 {
            return Vec::new();
        }
        self.starved = false;
        ops.multis.handles().collect()
    }

    /// The key and pattern of a posted buffer.
    pub fn place_of(&mut self, multi: Handle) -> Option<(Key, Pattern<PeerId>)> {
        let key = self.queue.matcher.search_posted(|posted| *posted == Posted::Many(multi))?;
        Some((key, *self.queue.matcher.posted_mut(key).0))
    }

    /// `fi_cancel`: true if a posted receive had this context.
    pub fn cancel(&mut self, context: *mut c_void, ops: &mut UnderWay) -> bool {
        let found = self.queue.matcher.search_posted(|posted| match *posted {
            Posted::One(recv) => ops.recvs.get(recv).is_some_and(|op| op.context.0 == context),
            Posted::Many(multi) => ops.multis.get(multi).is_some_and(|op| op.context() == context),
        });
        let Some(key) = found else { return false };
        let posted = self.take_out(key, ops);
        ops.end_posted(posted, Cause::Canceled, None);
        true
    }
}
