//! The endpoint's side of a shared receive context ([`crate::shared`]).
//!
//! A message is first kept as unexpected, since its sender's name, by which a context matches, is
//! the engine's to tell; what has arrived is offered to the context when the engine's call is over.

use super::complete::Report;
use super::driver::Driver;
use super::host::EpHost;
use super::ops::Handle;
use super::post_recv::RecvRequest;
use super::recv::Unexpected;
use super::{EpInner, State};
use crate::cq::strerror::Cause;
use crate::object::Use;
use crate::shared::SrxInner;
use erd_ffi::clock::monotonic_ns;
use erd_rd::PeerId;
use erd_rd::matching::{Pattern, TagMask};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// The context that an endpoint is bound to.
pub(super) struct SharedRx {
    pub srx: Arc<SrxInner>,
    pub endpoint: Weak<EpInner>,
    /// Messages that were not offered yet, oldest first.
    pub fresh: VecDeque<(PeerId, Option<u64>)>,
    pub _use: Use,
}

impl SharedRx {
    pub(super) fn new(srx: &Arc<SrxInner>, endpoint: &Arc<EpInner>) -> SharedRx {
        let (endpoint, fresh) = (Arc::downgrade(endpoint), VecDeque::new());
        SharedRx { srx: Arc::clone(srx), endpoint, fresh, _use: srx.hold() }
    }
}

impl Drop for SharedRx {
    fn drop(&mut self) {
        self.srx.leave(&self.endpoint);
    }
}

/// Messages of one peer and tag.
fn exactly(peer: PeerId, tag: Option<u64>) -> Pattern<PeerId> {
    Pattern { source: Some(peer), tag: tag.map(|tag| TagMask { tag, ignore: 0 }) }
}

impl EpHost {
    /// Messages without a receive are gone.
    pub(super) fn withdraw(&self, gone: &[Unexpected]) {
        if let Some(shared) = &self.shared {
            gone.iter().for_each(|message| {
                shared.srx.withdraw(&shared.endpoint, message.msg.peer, message.tag);
            });
        }
    }
}

impl Driver {
    /// Offers what has arrived.
    pub(super) fn offer(&mut self) {
        while let Some(shared) = &mut self.host.shared
            && let Some((peer, tag)) = shared.fresh.pop_front()
        {
            let found = self.host.matcher.find_unexpected(&exactly(peer, tag));
            let (Some(_), Some(name)) = (found, self.engine.peer_name(peer)) else { continue };
            let taken = shared.srx.take(name, tag, (&shared.endpoint, peer));
            if let Some(request) = taken {
                self.meet_shared(&request, peer, tag);
            }
        }
    }

    /// Brings a receive of the context to its message. False if that has gone.
    fn meet_shared(&mut self, request: &RecvRequest, peer: PeerId, tag: Option<u64>) -> bool {
        let Some(key) = self.host.matcher.find_unexpected(&exactly(peer, tag)) else {
            return false;
        };
        let made = self.recv_op(request);
        let Some((recv, op)) = self.host.recvs.take() else {
            // As many as the endpoint may have are coming in.
            self.cancel_shared(request);
            return true;
        };
        *op = made;
        let message = self.host.matcher.remove_unexpected(key);
        if !self.start(recv, &message) {
            self.end_void(recv);
        }
        true
    }

    fn end_void(&mut self, recv: Handle) {
        self.host.recv_ended(recv, Err(Cause::PeerClosed));
    }

    fn cancel_shared(&mut self, request: &RecvRequest) {
        let report = Report::new(request.context, request.completion_flags());
        self.host.rx.push(Report { cause: Some(Cause::Canceled), ..report }, None);
    }
}

impl EpInner {
    /// A receive of the shared context is for the first message of `peer` with `tag`. False if
    /// there is none any more.
    pub(crate) fn receive_shared(
        &self,
        request: &RecvRequest,
        peer: PeerId,
        tag: Option<u64>,
    ) -> bool {
        let mut met = false;
        self.post(|driver| {
            met = driver.meet_shared(request, peer, tag);
            let now = monotonic_ns();
            driver.settle(now);
            driver.transmit(now, true);
            driver.publish();
            Ok(())
        });
        self.work();
        met
    }

    /// A receive of the shared context was canceled.
    pub(crate) fn report_canceled(&self, request: &RecvRequest) {
        self.post(|driver| {
            driver.cancel_shared(request);
            driver.publish();
            Ok(())
        });
    }

    /// The name at `fi_addr` in the endpoint's AV.
    pub(crate) fn name_at(&self, fi_addr: u64) -> Option<SocketAddr> {
        match &*self.lock() {
            State::Setup(setup) => setup.bindings.av.as_ref()?.0.addr(fi_addr),
            State::Enabled(driver) => driver.av.addr(fi_addr),
            State::Closed => None,
        }
    }
}
