//! Receives under way: from their post, or from their message, until the endpoint reports them.
//!
//! They complete in the order in which they met their messages. The payloads that came before their receives are here,
//! too; `held` handles these.

use super::many::{Ended, MultiRecv, Part};
use super::queue::{Posted, Unexpected};
use crate::cause::Cause;
use crate::endpoint::complete::{Direction, Report};
use crate::endpoint::limits::UNREAD_MAX;
use crate::endpoint::operations::{Held, RecvOp};
use crate::endpoint::ops::{Handle, Kind, Pool};
use crate::endpoint::request::RecvRequest;
use crate::endpoint::room::Room;
use crate::flags::Flags;
use erd_rd::match_order::MatchOrder;
use erd_rd::{Arrived, MESSAGE_COST_BYTES, MsgRef, PeerId, RecvToken, Verdict};
use erd_types::mutants::{Mutant, mutant};

/// See the module's text.
pub struct UnderWay {
    /// The queue and counters of receives.
    pub rx: Direction,
    /// Bounded by the receive queue's size and [`crate::endpoint::host::PARTS_MAX`].
    pub recvs: Pool<RecvOp>,
    /// Buffers of the endpoint's own. Bounded by the receive queue's size.
    pub multis: Pool<MultiRecv>,
    /// Bounded by the eager credit that the engine gives to peers.
    pub helds: Pool<Held>,
    /// Receives that have met eager messages and are not reported. Each is one of `recvs`.
    pub match_order: MatchOrder<Handle>,
    /// Parts of buffers of a shared context whose messages are among the completions of this call.
    pub parts: Vec<Part>,
    /// Memory for messages of peers.
    pub room: Room,
    /// Consumed messages, for the engine.
    pub releases: Vec<MsgRef>,
    /// Changes in the number of directed receives, for the engine.
    pub watches: Vec<(PeerId, i32)>,
}

impl UnderWay {
    pub fn new(rx: Direction, recvs_max: u32, multis_max: u32) -> UnderWay {
        UnderWay {
            rx,
            recvs: Pool::new(recvs_max),
            multis: Pool::new(multis_max),
            helds: Pool::new(u32::MAX),
            match_order: MatchOrder::default(),
            parts: Vec::new(),
            room: Room::default(),
            releases: Vec::new(),
            watches: Vec::new(),
        }
    }

    /// Number of receives that are posted, under way, or with unread completions.
    pub fn load(&self) -> usize {
        self.recvs.live() + self.multis.live() + self.rx.unread()
    }

    /// True if there is room for one more message and its completion.
    pub fn has_room(&self) -> bool {
        !self.recvs.is_full() && self.rx.unread() < UNREAD_MAX
    }

    /// Joins an arriving message with its receive.
    pub fn matched(&mut self, recv: Handle, arrived: &Arrived, message: &Unexpected) -> Verdict {
        let (peer, capacity_bytes) = (message.msg.peer, self.meet(recv, message));
        // A message that is whole now, and waits for no other, needs no place in the order.
        let at_once = arrived.whole && self.match_order.is_clear(peer.index);
        if !arrived.rendezvous && !at_once {
            self.take_place(recv, peer);
        }
        if let Some(held) = message.held {
            self.join(held, recv, message.msg);
        }
        Verdict::Matched(RecvToken(recv.token()), capacity_bytes)
    }

    /// Finds memory for a message without a receive. The list of such messages grows by `grown_bytes`.
    pub fn hold(
        &mut self,
        message: &mut Unexpected,
        rendezvous: bool,
        grown_bytes: usize,
    ) -> Verdict {
        if !self.room.has(MESSAGE_COST_BYTES as usize + grown_bytes) {
            return Verdict::NoBuffer;
        }
        let mut verdict = Verdict::Wait;
        if message.held.is_none() && !rendezvous {
            let Some(handle) = self.new_held(message.len_bytes) else { return Verdict::NoBuffer };
            message.held = Some(handle);
            verdict = Verdict::Held(RecvToken(handle.token_of(Kind::Held)));
        }
        if let Some(held) = message.held.and_then(|handle| self.helds.get_mut(handle)) {
            held.msg = Some(message.msg);
        }
        verdict
    }

    /// Prepares a receive for the message that it meets. Returns its length.
    pub fn meet(&mut self, recv: Handle, message: &Unexpected) -> u64 {
        let Some(op) = self.recvs.get_mut(recv) else { return 0 };
        op.meets(message);
        op.buffers.len_bytes()
    }

    /// Gives a receive that has met an eager message its place: it completes after those that met theirs before.
    pub fn take_place(&mut self, recv: Handle, peer: PeerId) {
        if let Some(op) = self.recvs.get_mut(recv) {
            op.place = Some(self.match_order.matched(peer.index, recv));
        }
    }

    /// Ends a receive whose message is placed, or lost with its session. The endpoint reports a placed message once all
    /// eager messages of its peer that were matched before are reported. It reports those before a lost one.
    pub fn recv_ended(&mut self, handle: Handle, outcome: Result<u64, Cause>) {
        let Some(op) = self.recvs.get(handle) else { return };
        match (op.place, op.peer, outcome) {
            (Some(place), Some(peer), Ok(_)) => {
                self.match_order.ended(place);
                while let Some(next) = self.match_order.next(peer.index) {
                    self.report(next, Ok(()));
                }
            }
            (place, Some(peer), Err(cause)) => {
                while let Some(whole) = self.match_order.whole(peer.index) {
                    self.report(whole, Ok(()));
                }
                if let Some(place) = place {
                    self.match_order.failed(place);
                }
                self.report(handle, Err(cause));
            }
            (.., outcome) => self.report(handle, outcome.map(drop)),
        }
    }

    fn report(&mut self, handle: Handle, outcome: Result<(), Cause>) {
        let Some(op) = self.recvs.get_mut(handle) else { return };
        let (parent, fits) = (op.parent, op.len_bytes <= op.buffers.len_bytes());
        let fits = fits || mutant(Mutant::CompletesATruncatedReceive);
        let shared = std::mem::take(&mut op.shared);
        if !shared.is_none() {
            self.parts.push(shared);
        }
        let last = parent.and_then(|multi| self.multis.get_mut(multi)?.part_ended());
        let is_full = last.as_ref().is_some_and(|ended| ended.cause.is_none());
        let more_flags = if is_full { Flags::MULTI_RECV } else { Flags::empty() };
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

    /// Returns a buffer of many messages to the application. If it is not simply full, which its last message reports,
    /// it gets an entry of its own with the reason.
    fn release(&mut self, multi: Handle, ended: &Ended) {
        if ended.cause.is_some() {
            self.report_ended(ended);
        }
        self.multis.give_back(multi);
    }

    /// Reports a receive that ends without a message.
    pub fn report_ended(&mut self, ended: &Ended) {
        let request = &ended.request;
        let flags = match ended.cause {
            None => Flags::MULTI_RECV,
            Some(_) => request.completion_flags() | request.flags & Flags::MULTI_RECV,
        };
        let report = Report::new(request.context, flags);
        self.rx.push(Report { cause: ended.cause, ..report }, None);
    }

    /// Ends a receive taken out of the matcher: it was canceled, or its peer failed.
    pub fn end_posted(&mut self, posted: Posted, cause: Cause, peer: Option<PeerId>) {
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

    /// True if a buffer of many messages takes no more.
    pub fn is_over(&self, multi: Handle) -> bool {
        self.multis.get(multi).is_none_or(MultiRecv::is_over)
    }

    /// Reports a message that a peek has found, or a claimed message that is discarded.
    pub fn report_found(&mut self, request: &RecvRequest, message: &Unexpected) {
        let report = Report {
            len_bytes: message.len_bytes as usize,
            data: message.data,
            tag: message.tag.unwrap_or(0),
            ..Report::new(request.context, request.completion_flags())
        };
        self.rx.push(report, Some(message.msg.peer));
    }
}
