//! The endpoint's side of a shared receive context ([`crate::shared_receive`]).
//!
//! A message is first kept as unexpected, since its sender's name, by which a context matches, is
//! the engine's to tell; what has arrived is offered to the context when the engine's call is over.

use super::driver::Driver;
use super::host::EpHost;
use super::limits::UNREAD_MAX;
use super::operations::{RecvOp, Unexpected};
use super::ops::Handle;
use super::receives::many::{Ended, Part};
use super::request::RecvRequest;
use super::{Endpoint, State};
use crate::cause::Cause;
use crate::error::Error;
use crate::peer_index::PeerIndex;
use crate::polled::Polled;
use crate::run::{Driven, Outside};
use crate::shared_receive::{Posted, SharedMember};
use erd_rd::PeerId;
use erd_rd::matching::{Key, Pattern, TagMask};
use erd_sys::clock::monotonic_ns;
use std::collections::HashMap;
use std::ffi::c_void;
use std::net::SocketAddr;

/// Messages of one peer and tag.
fn exactly(peer: PeerId, tag: Option<u64>) -> Pattern<PeerId> {
    Pattern { source: Some(peer), tag: tag.map(|tag| TagMask { tag, ignore: 0 }) }
}

impl EpHost {
    /// One more message can be received, and its completion kept.
    fn has_room(&self) -> bool {
        !self.recvs.is_full() && self.rx.unread() < UNREAD_MAX
    }

    /// Messages without a receive are gone.
    pub(super) fn withdraw(&self, gone: &[Unexpected]) {
        if let Some(shared) = &self.shared {
            let mut counts = HashMap::new();
            for message in gone {
                *counts.entry((message.msg.peer, message.tag)).or_insert(0) += 1;
            }
            shared.srx.withdraw(&shared.endpoint, counts);
        }
    }
}

impl<O: Outside> Driver<O> {
    /// Offers what has arrived, as far as there is room for receives.
    pub(super) fn offer(&mut self) {
        while self.host.has_room()
            && let Some(shared) = &mut self.host.shared
            && let Some((peer, tag)) =
                shared.refused.pop_front().or_else(|| shared.fresh.pop_front())
        {
            let found = self.host.matcher.find_unexpected(&exactly(peer, tag));
            let (Some(key), Some(name)) = (found, self.engine.peer_name(peer)) else { continue };
            let len_bytes = self.host.matcher.unexpected_mut(key).len_bytes;
            let taken = shared.srx.take(name, (tag, len_bytes), (&shared.endpoint, peer));
            if let Some(given) = taken {
                self.meet_shared(given, key);
            }
        }
    }

    /// Brings what is posted at the context to the first message of `peer` with `tag`. False if that has
    /// gone, or there is no room now.
    fn take_shared(&mut self, posted: &Posted, peer: PeerId, tag: Option<u64>) -> bool {
        let Some(key) = self.host.matcher.find_unexpected(&exactly(peer, tag)) else {
            return false;
        };
        if !self.host.has_room() {
            if let Some(shared) = &mut self.host.shared {
                shared.refused.push_back((peer, tag));
            }
            return false;
        }
        let len_bytes = self.host.matcher.unexpected_mut(key).len_bytes;
        self.meet_shared(posted.give(len_bytes), key);
        true
    }

    /// The application was told of the parts: what is told of their buffers comes after that, whichever
    /// endpoints the others were at.
    pub(super) fn end_parts(&mut self) {
        let mut parts = std::mem::take(&mut self.host.parts);
        for ended in parts.drain(..).filter_map(Part::end) {
            self.host.report_ended(&ended);
        }
        self.host.parts = parts;
    }

    /// Brings a receive of the context to its message, for which there is room.
    fn meet_shared(&mut self, (request, part): (RecvRequest, Part), key: Key) {
        let made = self.recv_op(&request);
        let Some((recv, op)) = self.host.recvs.take() else {
            debug_assert!(false, "there was room");
            let cause = Some(Cause::Canceled);
            return self.host.report_ended(&Ended { request, cause });
        };
        *op = RecvOp { shared: part, ..made };
        let message = self.host.matcher.remove_unexpected(key);
        if !self.start(recv, &message) {
            self.end_void(recv);
        }
    }

    fn end_void(&mut self, recv: Handle) {
        self.host.recv_ended(recv, Err(Cause::PeerClosed));
    }
}

impl SharedMember for Endpoint {
    fn progress(&self) {
        Polled::progress(self);
    }

    fn receive_shared(&self, posted: &Posted, peer: PeerId, tag: Option<u64>) -> bool {
        let mut met = false;
        // A closed endpoint has nothing to tell, and a failed one says so elsewhere.
        let _ = self.post(|driver| {
            met = driver.take_shared(posted, peer, tag);
            let now = monotonic_ns();
            driver.settle();
            driver.transmit(now, true);
            driver.publish();
            Ok(())
        });
        self.work();
        met
    }

    fn receiving(&self) -> usize {
        match &*self.lock() {
            State::Enabled(driver) => driver.host.recvs.live() + driver.host.rx.unread(),
            State::Setup(_) | State::Closed => 0,
        }
    }

    fn claims(&self, context: *mut c_void) -> bool {
        match &*self.lock() {
            State::Enabled(driver) => {
                driver.host.claimed.iter().any(|claimed| claimed.context == context)
            }
            State::Setup(_) | State::Closed => false,
        }
    }

    fn search_shared(
        &self,
        request: &RecvRequest,
        first: Option<(PeerId, Option<u64>)>,
    ) -> Result<bool, Error> {
        let mut met = true;
        let answer = self.post(|driver| {
            let Some((peer, tag)) = first else { return driver.search(request, None) };
            let at = exactly(peer, tag);
            met = driver.host.matcher.find_unexpected(&at).is_some();
            if met { driver.search(request, Some(&at)) } else { Ok(()) }
        });
        answer.map(|()| met)
    }

    fn report_ended(&self, ended: &Ended) {
        let _ = self.post(|driver| {
            driver.host.report_ended(ended);
            driver.publish();
            Ok(())
        });
    }

    fn name_at(&self, index: PeerIndex) -> Option<SocketAddr> {
        match &*self.lock() {
            State::Setup(setup) => setup.bindings.av.as_ref()?.0.addr(index),
            State::Enabled(driver) => driver.av.addr(index),
            State::Closed => None,
        }
    }
}
