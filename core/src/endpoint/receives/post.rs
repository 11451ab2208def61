//! Posting receives (`fi_msg(3)`, `fi_tagged(3)`), and joining them with their messages.

use super::Receives;
use super::many::{MultiRecv, Part};
use super::queue::{Posted, Unexpected};
use crate::cause::Cause;
use crate::endpoint::call::check_buffers;
use crate::endpoint::driver::Driver;
use crate::endpoint::ops::Handle;
use crate::endpoint::request::RecvRequest;
use crate::error::Error;
use crate::flags::Flags;
use crate::peer_index::ANYONE;
use crate::run::{Driven, Outside};
use erd_rd::matching::{Key, Pattern, Senders};
use erd_rd::{PeerId, RecvToken};
use erd_types::mutants::{Mutant, mutant};
use std::ffi::c_void;

impl<O: Outside> Driver<O> {
    /// Posts a receive.
    ///
    /// # Errors
    /// Reason why nothing was posted.
    pub fn post_recv(&mut self, request: &RecvRequest) -> Result<(), Error> {
        if !self.host.under_way.rx.is_bound() && self.owed.is_none() {
            return Err(Error::NoQueue);
        }
        let Receives::Own(_) = self.host.receives else {
            tracing::info!("receives of this endpoint are posted to its shared context");
            return Err(Error::Unsupported);
        };
        let is_key = request.flags.intersects(Flags::AUTH_KEY);
        if is_key && !(self.config.directed && self.av.takes_keys()) {
            tracing::info!("a receive by key needs FI_DIRECTED_RECV, and keys of address vectors");
            return Err(Error::Invalid);
        }
        let from = match request.source {
            ANYONE => Senders::Any,
            _ if !self.config.directed => Senders::Any,
            name if is_key => Senders::Key(self.av.key_place(name).ok_or(Error::Invalid)?),
            fi_addr => Senders::One(self.peer_at(fi_addr)?),
        };
        let pattern = Pattern { from, tag: request.tag };
        if self.host.under_way.load() >= self.config.rx_size {
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
            self.after_meeting(!request.flags.intersects(Flags::MORE));
        }
        Ok(())
    }

    /// After receives have met waiting messages: tells the engine, and the peers if `transmit`, and reports
    /// completions.
    pub(super) fn after_meeting(&mut self, transmit: bool) {
        let now = self.now_ns();
        self.settle();
        if transmit {
            self.parts().transmit(now, true);
        }
        self.publish();
    }

    /// Takes a place for a receive, which may be a part of a buffer of a shared context.
    ///
    /// # Errors
    /// [`Error::Again`].
    pub(super) fn take_recv(&mut self, request: &RecvRequest, part: Part) -> Result<Handle, Error> {
        let completion = self.completes(request);
        let owed = self.owed.take();
        let (recv, op) = self.host.under_way.recvs.take().ok_or(Error::Again)?;
        op.begin(request, completion);
        (op.owed, op.shared) = (owed, part);
        Ok(recv)
    }

    fn completes(&self, request: &RecvRequest) -> bool {
        request.flags.intersects(Flags::COMPLETION)
            || (self.owed.is_none() && self.host.under_way.rx.always_completes())
    }

    /// Posts a receive of one message. True if it met a waiting message.
    fn post_one(&mut self, request: &RecvRequest, at: Pattern<PeerId>) -> Result<bool, Error> {
        let recv = self.take_recv(request, Part::default())?;
        while let Receives::Own(own) = &mut self.host.receives
            && let Some(key) = own.queue.find(&at)
            && !mutant(Mutant::PostsWithoutLooking)
        {
            let message = own.queue.matcher.remove_unexpected(key);
            if self.start(recv, &message) {
                return Ok(true);
            }
        }
        self.wait(at, Posted::One(recv));
        Ok(false)
    }

    /// Posts a buffer of many messages. True if it met waiting messages.
    fn post_many(&mut self, request: &RecvRequest, at: Pattern<PeerId>) -> Result<bool, Error> {
        // Fixed for every part, however the endpoint is bound later.
        let mut asked = *request;
        if self.completes(request) {
            asked.flags |= Flags::COMPLETION;
        }
        let made = MultiRecv::new(asked, self.config.min_multi_recv_bytes)?;
        let (multi, buffer) = self.host.under_way.multis.take().ok_or(Error::Again)?;
        *buffer = made;
        Ok(self.fill(multi, at, None))
    }

    /// Puts waiting messages into a buffer, as many as it takes, and posts a buffer that takes more; `posted` is its
    /// earlier key.
    fn fill(&mut self, multi: Handle, at: Pattern<PeerId>, posted: Option<Key>) -> bool {
        let mut started = false;
        while let Receives::Own(own) = &mut self.host.receives
            && let Some((recv, message)) = own.next_part(multi, &at, &mut self.host.under_way)
        {
            self.bring(recv, &message, None);
            started = true;
        }
        match (posted, &mut self.host.receives) {
            (None, _) if !self.host.under_way.is_over(multi) => self.wait(at, Posted::Many(multi)),
            (Some(key), Receives::Own(own)) if self.host.under_way.is_over(multi) => {
                own.take_out(key, &mut self.host.under_way);
            }
            _ => {}
        }
        started
    }

    /// Gives messages that had to wait for room to their buffers.
    pub(in crate::endpoint) fn fill_many(&mut self) {
        let Receives::Own(own) = &mut self.host.receives else { return };
        for multi in own.fed(&self.host.under_way) {
            let Receives::Own(own) = &mut self.host.receives else { return };
            if let Some((key, at)) = own.place_of(multi) {
                self.fill(multi, at, Some(key));
            }
        }
    }

    /// Cancels the receive posted with this context.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none, [`Error::Unimplemented`] if another provider has the receives.
    pub fn cancel(&mut self, context: *mut c_void) -> Result<(), Error> {
        let host = &mut self.host;
        let found = host.receives.cancel(context, &mut host.under_way)?;
        self.settle();
        self.publish();
        if found { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Lets a receive wait for its messages.
    fn wait(&mut self, at: Pattern<PeerId>, posted: Posted) {
        let Receives::Own(own) = &mut self.host.receives else { return };
        let posted = own.queue.matcher.post(at, posted);
        debug_assert!(posted.is_ok(), "the matcher holds as many as may be outstanding");
        if let Senders::One(peer) = at.from {
            self.engine.watch(peer, 1);
        }
    }

    /// Joins a receive with its message. False if the message is void.
    fn start(&mut self, recv: Handle, message: &Unexpected) -> bool {
        let capacity_bytes = self.host.under_way.meet(recv, message);
        match message.held {
            Some(held) => {
                self.host.under_way.take_place(recv, message.msg.peer);
                self.host.under_way.join(held, recv, message.msg);
                true
            }
            None => {
                let to = RecvToken(recv.token());
                self.engine.accept(message.msg, to, capacity_bytes, &mut self.host)
            }
        }
    }

    /// The same for a receive of this message alone: it fails if the message is void, with `cause` if known.
    pub(super) fn bring(&mut self, recv: Handle, message: &Unexpected, cause: Option<Cause>) {
        if cause.is_some() || !self.start(recv, message) {
            self.host.under_way.meet(recv, message);
            self.host.under_way.recv_ended(recv, Err(cause.unwrap_or(Cause::PeerClosed)));
        }
    }
}
