//! Calls between a shared receive context and an endpoint that is bound to it, in both directions.

use super::Receives;
use super::many::{Ended, Part};
use crate::cause::Cause;
use crate::endpoint::driver::Driver;
use crate::endpoint::request::RecvRequest;
use crate::endpoint::{Endpoint, State};
use crate::error::Error;
use crate::peer_index::PeerIndex;
use crate::polled::Polled;
use crate::run::{Driven, Outside};
use crate::shared_receive::{Posted, Sender, SharedMember};
use erd_rd::PeerId;
use erd_rd::keys::Keys;
use erd_rd::matching::{Key, Pattern, Senders, TagMask};
use std::ffi::c_void;

/// Messages of one peer and tag.
fn exactly(peer: PeerId, tag: Option<u64>) -> Pattern<PeerId> {
    Pattern { from: Senders::One(peer), tag: tag.map(|tag| TagMask { tag, ignore: 0 }) }
}

impl<O: Outside> Driver<O> {
    /// Offers arrived messages to a shared context, as far as there is room for receives.
    pub(in crate::endpoint) fn offer(&mut self) {
        while let Receives::Shared(shared) = &mut self.host.receives
            && self.host.under_way.has_room()
            && let Some((peer, tag)) = shared.next()
        {
            let found = shared.queue.find(&exactly(peer, tag));
            let (Some(at), Some(name)) = (found, self.engine.peer_name(peer)) else { continue };
            let key = self.host.keys.get(peer.key).filter(|_| self.av.takes_keys()).map(Keys::id);
            let from = Sender { name, key };
            let len_bytes = shared.queue.matcher.unexpected_mut(at).len_bytes;
            let taken = shared.srx.take(from, (tag, len_bytes), (&shared.endpoint, peer));
            if let Some(given) = taken {
                self.meet_shared(given, at);
            }
        }
    }

    /// Joins `posted` with the first message of `peer` with `tag`. False if that has gone, or there is no room now.
    fn take_shared(&mut self, posted: &Posted, peer: PeerId, tag: Option<u64>) -> bool {
        let Receives::Shared(shared) = &mut self.host.receives else { return false };
        let Some(key) = shared.queue.find(&exactly(peer, tag)) else { return false };
        if !self.host.under_way.has_room() {
            shared.refused.push_back((peer, tag));
            return false;
        }
        let len_bytes = shared.queue.matcher.unexpected_mut(key).len_bytes;
        self.meet_shared(posted.give(len_bytes), key);
        true
    }

    /// Joins a receive of the context with its message; the caller has checked for room.
    fn meet_shared(&mut self, (request, part): (RecvRequest, Part), key: Key) {
        let Ok(recv) = self.take_recv(&request, part) else {
            debug_assert!(false, "there was room");
            let cause = Some(Cause::Canceled);
            return self.host.under_way.report_ended(&Ended { request, cause });
        };
        if let Some(queue) = self.host.receives.queue() {
            let message = queue.matcher.remove_unexpected(key);
            self.bring(recv, &message, None);
        }
    }

    /// Ends parts whose completions are in the queue. Reports on their buffers come after that, whichever endpoints had
    /// the other parts.
    pub(in crate::endpoint) fn end_parts(&mut self) {
        let mut parts = std::mem::take(&mut self.host.under_way.parts);
        for ended in parts.drain(..).filter_map(Part::end) {
            self.host.under_way.report_ended(&ended);
        }
        self.host.under_way.parts = parts;
    }
}

impl SharedMember for Endpoint {
    fn receive_shared(&self, posted: &Posted, peer: PeerId, tag: Option<u64>) -> bool {
        let mut met = false;
        // A closed endpoint has nothing to report, and a failed one reports that elsewhere.
        let _ = self.post(|driver| {
            met = driver.take_shared(posted, peer, tag);
            driver.after_meeting(true);
            Ok(())
        });
        self.work();
        met
    }

    fn receiving(&self) -> usize {
        self.if_enabled(|driver| driver.host.under_way.load()).unwrap_or(0)
    }

    fn claims(&self, context: *mut c_void) -> bool {
        self.if_enabled(|driver| driver.host.receives.claims(context)).unwrap_or(false)
    }

    fn search_shared(
        &self,
        request: &RecvRequest,
        first: Option<(PeerId, Option<u64>)>,
    ) -> Result<bool, Error> {
        let mut met = true;
        let answer = self.post(|driver| {
            let at = first.map(|(peer, tag)| exactly(peer, tag));
            let queue = driver.host.receives.queue();
            met = at.is_none_or(|at| queue.is_some_and(|queue| queue.find(&at).is_some()));
            if met { driver.search(request, at.as_ref()) } else { Ok(()) }
        });
        answer.map(|()| met)
    }

    fn report_ended(&self, ended: &Ended) {
        let _ = self.post(|driver| {
            driver.host.under_way.report_ended(ended);
            driver.publish();
            Ok(())
        });
    }

    fn sender_at(&self, name: PeerIndex, is_key: bool) -> Option<Senders<Sender>> {
        let state = self.lock();
        let av = match &*state {
            State::Setup(setup) => &setup.bindings.av.as_ref()?.0,
            State::Enabled(driver) => &driver.av,
            State::Closed => return None,
        };
        match is_key {
            true => av.key_id(name).map(|id| Senders::Key(Some(id))),
            false => av.one(name).map(|(name, key)| Senders::One(Sender { name, key })),
        }
    }
}
