//! Receives: posted, matched, unexpected, and buffers that take many messages.
//!
//! A message meets its receive when it arrives or when the receive is posted, whichever is later.
//! Its payload is placed straight into the application's memory, unless it came before that: then
//! it is in a held buffer, and copied when both the message is whole and its receive is there.

use super::complete::Report;
use super::host::EpHost;
use super::limits::UNREAD_MAX;
use super::operations::{Posted, RecvOp, Unexpected};
use super::ops::{Handle, Kind};
use super::receives::many::{Ended, MultiRecv};
use crate::cause::Cause;
use crate::flags::Flags;
use erd_rd::matching::Key;
use erd_rd::{Arrived, MESSAGE_COST_BYTES, MsgRef, OpError, PeerId, RecvToken, Verdict};
use std::ffi::c_void;

/// Largest memory that a free held buffer keeps, in bytes.
const KEPT_BYTES: usize = 16 << 10;
/// Held buffers in use above which a freed one gives its memory back.
const KEPT_BUFFERS: usize = 1 << 10;

impl EpHost {
    /// A message's turn has come: see [`erd_rd::Host::arrived`].
    pub(super) fn message_arrived(&mut self, arrived: &Arrived) -> Verdict {
        let message = Unexpected::new(arrived);
        if self.shared.is_some() {
            let (peer, tag) = (message.msg.peer, message.tag);
            let verdict = self.keep(message, arrived.rendezvous);
            if let (Some(shared), true) = (&mut self.shared, verdict != Verdict::NoBuffer) {
                shared.fresh.push_back((peer, tag));
            }
            return verdict;
        }
        if self.peer.is_some() {
            return self.keep(message, arrived.rendezvous);
        }
        if let Some(recv) = self.match_posted(&message) {
            let peer = message.msg.peer;
            // What is there at once, and waits for no other, needs no place among those that wait.
            let at_once = arrived.whole && self.match_order.is_clear(peer.index);
            if !arrived.rendezvous && !at_once {
                self.take_place(recv, peer);
            }
            let capacity_bytes = self.recvs.get(recv).map_or(0, |op| op.buffers.len_bytes());
            if let Some(held) = message.held {
                self.join(held, recv, message.msg);
            }
            return Verdict::Matched(RecvToken(recv.token()), capacity_bytes);
        }
        self.keep(message, arrived.rendezvous)
    }

    /// The receive that takes a message now, if there is one. It is out of the matcher then,
    /// unless it takes more messages.
    fn match_posted(&mut self, message: &Unexpected) -> Option<Handle> {
        let peer = message.msg.peer;
        let key = self.matcher.find_posted(peer, message.tag)?;
        let recv = match *self.matcher.posted_mut(key).1 {
            Posted::One(recv) => {
                self.take_out(key);
                recv
            }
            Posted::Many(multi) => {
                let recv = self.part_of(multi, message.len_bytes)?;
                if self.is_over(multi) {
                    self.take_out(key);
                }
                recv
            }
        };
        self.recvs.get_mut(recv)?.meets(message);
        Some(recv)
    }

    /// Takes a receive out of the matcher, and stops watching over its peer if it is directed.
    pub(super) fn take_out(&mut self, key: Key) -> Posted {
        let (pattern, posted) = self.matcher.remove_posted(key);
        self.out.watches.extend(pattern.source.map(|peer| (peer, -1)));
        posted
    }

    /// A buffer of many messages takes no more.
    pub(super) fn is_over(&self, multi: Handle) -> bool {
        self.multis.get(multi).is_none_or(MultiRecv::is_over)
    }

    /// A part of a buffer of many messages, for one of `len_bytes`. `None` if the application must read
    /// completions first.
    pub(super) fn part_of(&mut self, multi: Handle, len_bytes: u64) -> Option<Handle> {
        let buffer = self.multis.get_mut(multi)?;
        let has_room = !self.starved && self.rx.unread() < UNREAD_MAX;
        let taken = if has_room { self.recvs.take() } else { None };
        self.starved = taken.is_none();
        let (recv, op) = taken?;
        let request = buffer.part(len_bytes);
        let completion = request.flags.intersects(Flags::COMPLETION);
        *op = RecvOp { parent: Some(multi), ..RecvOp::new(&request, completion) };
        Some(recv)
    }

    /// Keeps a message that nobody waits for, if there is memory.
    fn keep(&mut self, mut message: Unexpected, rendezvous: bool) -> Verdict {
        let grown_bytes = self.matcher.growth_bytes(message.tag.is_some());
        if !self.room.has(MESSAGE_COST_BYTES as usize + grown_bytes) {
            return Verdict::NoBuffer;
        }
        let verdict = match message.held {
            Some(handle) => {
                if let Some(held) = self.helds.get_mut(handle) {
                    held.msg = Some(message.msg);
                }
                Verdict::Wait
            }
            None if rendezvous => Verdict::Wait,
            None => {
                let Some(handle) = self.new_held(message.len_bytes) else {
                    return Verdict::NoBuffer;
                };
                if let Some(held) = self.helds.get_mut(handle) {
                    held.msg = Some(message.msg);
                }
                message.held = Some(handle);
                Verdict::Held(RecvToken(handle.token_of(Kind::Held)))
            }
        };
        if let Some(peer) = &mut self.peer {
            peer.keep(message);
            return verdict;
        }
        let kept = self.matcher.push_unexpected(message.msg.peer, message.tag, message);
        if kept.is_err() {
            tracing::error!("more unexpected messages than the engine admits");
        }
        verdict
    }

    /// A buffer for a payload without a receive, if there is memory.
    pub(super) fn new_held(&mut self, len_bytes: u64) -> Option<Handle> {
        let len_bytes = usize::try_from(len_bytes).ok()?;
        let (handle, held) = self.helds.take()?;
        let more = len_bytes.saturating_sub(held.bytes.len());
        // A buffer that is there already is not asked for.
        let grows = len_bytes > held.bytes.capacity();
        if grows && (!self.room.has(more) || held.bytes.try_reserve_exact(more).is_err()) {
            self.helds.give_back(handle);
            return None;
        }
        // The engine reports a message whole when each of its bytes was written, so nobody reads
        // old contents, and only growth costs.
        if held.bytes.len() < len_bytes {
            held.bytes.resize(len_bytes, 0);
        }
        held.len_bytes = len_bytes;
        (held.whole, held.msg, held.to, held.discarded) = (false, None, None, false);
        Some(handle)
    }

    /// What came with a request before its turn.
    pub(super) fn take_kept(&mut self, token: RecvToken) -> Vec<u8> {
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

    /// A held payload has met its receive.
    pub(super) fn join(&mut self, handle: Handle, recv: Handle, msg: MsgRef) {
        let Some(held) = self.helds.get_mut(handle) else { return };
        held.msg = Some(msg);
        held.to = Some(recv);
        if held.whole {
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
        self.out.releases.push(msg);
        self.free_held(handle);
        self.recv_ended(recv, Ok(len_bytes));
    }

    /// A held payload is whole, or will not be.
    pub(super) fn held_ended(&mut self, handle: Handle, error: Option<OpError>) {
        let Some(held) = self.helds.get_mut(handle) else { return };
        let Some(error) = error else {
            held.whole = true;
            if held.to.is_some() {
                self.deliver_held(handle);
            } else if held.discarded {
                self.out.releases.extend(held.msg);
                self.free_held(handle);
            }
            return;
        };
        let to = held.to;
        self.free_held(handle);
        match to {
            Some(recv) => self.recv_ended(recv, Err(error.into())),
            None => {
                let is_gone = |message: &Unexpected| message.held == Some(handle);
                let gone = self.matcher.take_unexpected(|_, message| is_gone(message));
                self.withdraw(&gone);
                if let Some(peer) = &mut self.peer {
                    peer.void(error.into(), is_gone);
                }
                for claimed in &mut self.claimed {
                    if claimed.message.held == Some(handle) {
                        claimed.void = Some(error.into());
                    }
                }
            }
        }
    }

    /// Drops a message that the application does not want.
    pub(super) fn discard(&mut self, message: &Unexpected) {
        let Some(handle) = message.held else {
            self.out.releases.push(message.msg);
            return;
        };
        let Some(held) = self.helds.get_mut(handle) else { return };
        if held.whole {
            self.out.releases.push(message.msg);
            self.free_held(handle);
        } else {
            held.discarded = true;
        }
    }

    /// A receive has met an eager message: it completes after those that met theirs before.
    pub(super) fn take_place(&mut self, recv: Handle, peer: PeerId) {
        if let Some(op) = self.recvs.get_mut(recv) {
            op.place = Some(self.match_order.matched(peer.index, recv));
        }
    }

    /// A receive's message is placed, or lost with its session. The endpoint reports a placed message once all
    /// eager messages of its peer that were matched before are reported. It reports those before a lost one.
    pub(super) fn recv_ended(&mut self, handle: Handle, outcome: Result<u64, Cause>) {
        let Some(op) = self.recvs.get(handle) else { return };
        match (op.place, op.peer, outcome) {
            (Some(place), Some(peer), Ok(_)) => {
                self.match_order.ended(place);
                while let Some(next) = self.match_order.next(peer.index) {
                    self.report_recv(next, Ok(()));
                }
            }
            (place, Some(peer), Err(cause)) => {
                while let Some(whole) = self.match_order.whole(peer.index) {
                    self.report_recv(whole, Ok(()));
                }
                if let Some(place) = place {
                    self.match_order.failed(place);
                }
                self.report_recv(handle, Err(cause));
            }
            (.., outcome) => self.report_recv(handle, outcome.map(drop)),
        }
    }

    fn report_recv(&mut self, handle: Handle, outcome: Result<(), Cause>) {
        let Some(op) = self.recvs.get_mut(handle) else { return };
        let (parent, fits) = (op.parent, op.len_bytes <= op.buffers.len_bytes());
        let shared = std::mem::take(&mut op.shared);
        if !shared.is_none() {
            self.parts.push(shared);
        }
        let last = parent.and_then(|multi| self.multis.get_mut(multi)?.part_ended());
        let is_full = last.as_ref().is_some_and(|ended| ended.cause.is_none());
        let more_flags = if is_full { Flags::MULTI_RECV } else { Flags::empty() };
        let Some(op) = self.recvs.get(handle) else { return };
        match outcome {
            Ok(()) if fits => self.rx.recv_done(op, more_flags),
            Ok(()) => self.rx.recv_failed(op, Cause::Truncated, more_flags),
            Err(cause) => self.rx.recv_failed(op, cause, more_flags),
        }
        self.recvs.give_back(handle);
        if let (Some(multi), Some(ended)) = (parent, last) {
            self.release(multi, &ended);
        }
    }

    /// The application gets a buffer of many messages back. If it is not simply full, and so
    /// released with its last message, an entry of its own says why.
    fn release(&mut self, multi: Handle, ended: &Ended) {
        if ended.cause.is_some() {
            self.report_ended(ended);
        }
        self.multis.give_back(multi);
    }

    /// A receive ends without a message.
    pub(super) fn report_ended(&mut self, ended: &Ended) {
        let request = &ended.request;
        let flags = match ended.cause {
            None => Flags::MULTI_RECV,
            Some(_) => request.completion_flags() | request.flags & Flags::MULTI_RECV,
        };
        let report = Report::new(request.context, flags);
        self.rx.push(Report { cause: ended.cause, ..report }, None);
    }

    /// Ends a receive that is out of the matcher: it was canceled, or its peer failed.
    fn end_posted(&mut self, posted: Posted, cause: Cause, peer: Option<PeerId>) {
        match posted {
            Posted::One(recv) => {
                if let Some(op) = self.recvs.get_mut(recv) {
                    op.peer = peer;
                }
                self.recv_ended(recv, Err(cause));
            }
            Posted::Many(multi) => {
                let ended = self.multis.get_mut(multi).and_then(|buffer| buffer.end(cause));
                ended.iter().for_each(|ended| self.release(multi, ended));
            }
        }
    }

    /// `fi_cancel`: true if a posted receive had this context.
    pub(super) fn cancel(&mut self, context: *mut c_void) -> bool {
        let found = self.matcher.search_posted(|posted| match *posted {
            Posted::One(recv) => self.recvs.get(recv).is_some_and(|op| op.context == context),
            Posted::Many(multi) => self.multis.get(multi).is_some_and(|op| op.context() == context),
        });
        let Some(key) = found else { return false };
        let posted = self.take_out(key);
        self.end_posted(posted, Cause::Canceled, None);
        true
    }

    /// A session failed: receives that wait for that peer only would wait forever.
    pub(super) fn fail_directed(&mut self, peer: PeerId, cause: Cause) {
        for posted in self.matcher.take_posted(peer) {
            self.out.watches.push((peer, -1));
            self.end_posted(posted, cause, Some(peer));
        }
    }

    /// A session ended: what still waits at its sender will never come.
    pub(super) fn void_messages(&mut self, peer: PeerId, session: u32, error: OpError) {
        let lost = |message: &Unexpected| {
            message.held.is_none() && message.msg.peer == peer && message.msg.session == session
        };
        let gone = self.matcher.take_unexpected(|source, message| source == peer && lost(message));
        self.withdraw(&gone);
        if let Some(peer) = &mut self.peer {
            peer.void(error.into(), lost);
        }
        for claimed in &mut self.claimed {
            if lost(&claimed.message) {
                claimed.void = Some(error.into());
            }
        }
    }

    /// Prepares a receive taken out of the pool for the message that it meets.
    pub(super) fn meet(&mut self, recv: Handle, message: &Unexpected) -> u64 {
        let Some(op) = self.recvs.get_mut(recv) else { return 0 };
        op.meets(message);
        op.buffers.len_bytes()
    }

    /// Messages wait until the application has read completions.
    pub(super) fn waits_for_room(&self) -> bool {
        self.starved || self.shared.as_ref().is_some_and(|shared| shared.waits())
    }

    /// Enough completions were read for buffers of many messages to take more.
    pub(super) fn may_feed(&self) -> bool {
        self.starved && self.rx.unread() < UNREAD_MAX / 2
    }
}
