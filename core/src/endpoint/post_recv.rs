//! Posting receives, peeking and claiming (`fi_msg(3)`, `fi_tagged(3)`).

use super::call::check_buffers;
use super::complete::Report;
use super::driver::Driver;
use super::operations::{Claimed, Posted, RecvOp, Unexpected};
use super::ops::Handle;
use super::receives::many::MultiRecv;
use super::request::RecvRequest;
use crate::cause::Cause;
use crate::error::Error;
use crate::flags::Flags;
use crate::peer_index::ANYONE;
use crate::run::{Driven, Outside};
use erd_rd::matching::Pattern;
use erd_rd::{PeerId, RecvToken};

/// Why not.
type Refused = Error;

impl<O: Outside> Driver<O> {
    /// Posts a receive.
    ///
    /// # Errors
    /// Why nothing was posted.
    pub fn post_recv(&mut self, request: &RecvRequest) -> Result<(), Refused> {
        if !self.host.rx.is_bound() && self.owed.is_none() {
            return Err(Error::NoQueue);
        }
        if self.host.shared.is_some() || self.host.peer.is_some() {
            tracing::info!("receives of this endpoint are posted to its shared context");
            return Err(Error::Unsupported);
        }
        let source = match request.source {
            fi_addr if self.config.directed && fi_addr != ANYONE => Some(self.peer_at(fi_addr)?),
            _ => None,
        };
        let pattern = Pattern { source, tag: request.tag };
        let load = self.host.recvs.live() + self.host.multis.live() + self.host.rx.unread();
        if load >= self.config.rx_size {
            self.progress();
            return Err(Error::Again);
        }
        if request.flags.intersects(Flags::PEEK | Flags::CLAIM | Flags::DISCARD) {
            return self.search(request, Some(&pattern));
        }
        check_buffers(&[&request.buffers])?;
        let started = if request.flags.intersects(Flags::MULTI_RECV) {
            self.post_many(request, pattern)?
        } else {
            self.post_one(request, pattern)?
        };
        if started {
            let now = self.now_ns();
            self.settle();
            if !request.flags.intersects(Flags::MORE) {
                self.transmit(now, true);
            }
            self.publish();
        }
        Ok(())
    }

    pub(super) fn recv_op(&mut self, request: &RecvRequest) -> RecvOp {
        let completion = self.completes(request);
        RecvOp { owed: self.owed.take(), ..RecvOp::new(request, completion) }
    }

    fn completes(&self, request: &RecvRequest) -> bool {
        request.flags.intersects(Flags::COMPLETION)
            || (self.owed.is_none() && self.host.rx.always_completes())
    }

    /// Posts a receive of one message. True if it met one that was there already.
    fn post_one(&mut self, request: &RecvRequest, at: Pattern<PeerId>) -> Result<bool, Refused> {
        let made = self.recv_op(request);
        let Some((recv, op)) = self.host.recvs.take() else { return Err(Error::Again) };
        *op = made;
        while let Some(key) = self.host.matcher.find_unexpected(&at) {
            let message = self.host.matcher.remove_unexpected(key);
            if self.start(recv, &message) {
                return Ok(true);
            }
        }
        self.queue(at, Posted::One(recv));
        Ok(false)
    }

    /// Posts a buffer of many messages. True if it met some that were there already.
    fn post_many(&mut self, request: &RecvRequest, at: Pattern<PeerId>) -> Result<bool, Refused> {
        // Every part of it completes so, however the endpoint is bound later.
        let mut asked = *request;
        if self.completes(request) {
            asked.flags |= Flags::COMPLETION;
        }
        let made = MultiRecv::new(asked, self.config.min_multi_recv_bytes)?;
        let Some((multi, buffer)) = self.host.multis.take() else { return Err(Error::Again) };
        *buffer = made;
        let started = self.fill(multi, &at);
        if !self.host.is_over(multi) {
            self.queue(at, Posted::Many(multi));
        }
        Ok(started)
    }

    /// Puts messages that are there already into a buffer, as many as it takes.
    fn fill(&mut self, multi: Handle, at: &Pattern<PeerId>) -> bool {
        let mut started = false;
        while !self.host.is_over(multi) {
            let Some(key) = self.host.matcher.find_unexpected(at) else { break };
            let len_bytes = self.host.matcher.unexpected_mut(key).len_bytes;
            let Some(recv) = self.host.part_of(multi, len_bytes) else { break };
            let message = self.host.matcher.remove_unexpected(key);
            if !self.start(recv, &message) {
                self.host.recv_ended(recv, Err(Cause::PeerClosed));
            }
            started = true;
        }
        started
    }

    /// Gives messages that had to wait for room to the buffers that they belong to.
    pub(super) fn fill_many(&mut self) {
        if !self.host.may_feed() {
            return;
        }
        self.host.starved = false;
        let multis: Vec<Handle> = self.host.multis.handles().collect();
        for multi in multis {
            let posted = Posted::Many(multi);
            let Some(key) = self.host.matcher.search_posted(|entry| *entry == posted) else {
                continue;
            };
            let pattern = *self.host.matcher.posted_mut(key).0;
            self.fill(multi, &pattern);
            if self.host.is_over(multi) {
                self.host.take_out(key);
            }
        }
    }

    /// Brings a receive and its message together. False if the message is void.
    pub(super) fn start(&mut self, recv: Handle, message: &Unexpected) -> bool {
        let capacity_bytes = self.host.meet(recv, message);
        match message.held {
            Some(held) => {
                self.host.take_place(recv, message.msg.peer);
                self.host.join(held, recv, message.msg);
                true
            }
            None => {
                let to = RecvToken(recv.token());
                self.engine.accept(message.msg, to, capacity_bytes, &mut self.host)
            }
        }
    }

    /// A receive waits for its messages.
    fn queue(&mut self, at: Pattern<PeerId>, posted: Posted) {
        let posted = self.host.matcher.post(at, posted);
        debug_assert!(posted.is_ok(), "the matcher holds as many as may be outstanding");
        at.source.into_iter().for_each(|peer| self.engine.watch(peer, 1));
    }

    /// [`Flags::PEEK`], [`Flags::CLAIM`] and [`Flags::DISCARD`]; without a pattern nothing is found.
    pub(super) fn search(
        &mut self,
        request: &RecvRequest,
        at: Option<&Pattern<PeerId>>,
    ) -> Result<(), Refused> {
        let Some(mask) = request.tag else { return Err(Error::Invalid) };
        if !request.flags.intersects(Flags::PEEK) {
            return self.take_claimed(request);
        }
        // Looks at what is there, without progress: reading the queue for the answer makes it.
        let Some(key) = at.and_then(|at| self.host.matcher.find_unexpected(at)) else {
            let report = Report::new(request.context, request.completion_flags());
            let cause = Some(Cause::NoMessage);
            self.host.rx.push(Report { tag: mask.tag, cause, ..report }, None);
            self.publish();
            return Ok(());
        };
        let message = *self.host.matcher.unexpected_mut(key);
        self.report_message(request, &message);
        let context = request.context;
        if request.flags.intersects(Flags::DISCARD) {
            self.host.matcher.remove_unexpected(key);
            self.host.discard(&message);
        } else if request.flags.intersects(Flags::CLAIM) {
            self.host.matcher.remove_unexpected(key);
            self.host.claimed.push(Claimed { context, message, void: None });
        }
        self.settle();
        self.publish();
        Ok(())
    }

    fn report_message(&mut self, request: &RecvRequest, message: &Unexpected) {
        let report = Report {
            len_bytes: message.len_bytes as usize,
            data: message.data,
            tag: message.tag.unwrap_or(0),
            ..Report::new(request.context, request.completion_flags())
        };
        self.host.rx.push(report, Some(message.msg.peer));
    }

    /// [`Flags::CLAIM`] without [`Flags::PEEK`]: receives or discards what an earlier peek claimed.
    fn take_claimed(&mut self, request: &RecvRequest) -> Result<(), Refused> {
        let context = request.context;
        let found = self.host.claimed.iter().position(|claimed| claimed.context == context);
        let (Some(index), true) = (found, request.flags.intersects(Flags::CLAIM)) else {
            tracing::info!("FI_CLAIM: no message was claimed with this context");
            return Err(Error::Invalid);
        };
        if request.flags.intersects(Flags::DISCARD) {
            let claimed = self.host.claimed.swap_remove(index);
            self.report_message(request, &claimed.message);
            if claimed.void.is_none() {
                self.host.discard(&claimed.message);
            }
        } else {
            let made = self.recv_op(request);
            let Some((recv, op)) = self.host.recvs.take() else { return Err(Error::Again) };
            *op = made;
            let claimed = self.host.claimed.swap_remove(index);
            if let Some(cause) = claimed.void {
                self.host.meet(recv, &claimed.message);
                self.host.recv_ended(recv, Err(cause));
            } else if !self.start(recv, &claimed.message) {
                self.host.recv_ended(recv, Err(Cause::PeerClosed));
            }
        }
        let now = self.now_ns();
        self.settle();
        self.transmit(now, true);
        self.publish();
        Ok(())
    }
}
