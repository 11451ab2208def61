//! The endpoint's side of another library's receive context: bringing its receives to their messages.

use super::complete::Direction;
use super::driver::Driver;
use super::host::EpHost;
use super::operations::{RecvOp, Unexpected};
use super::peer_rx::{Key, Queued};
use super::{Endpoint, State};
use crate::cause::Cause;
use crate::completion::CompletionQueue;
use crate::error::Error;
use crate::flags::Flags;
use crate::foreign::{Answer, LentReceive, Offer, ReceiveOwner, Slip};
use crate::peer_index::PeerIndex;
use crate::polled::Polled;
use crate::run::{Driven, Outside};
use erd_sys::clock::monotonic_ns;
use std::sync::Arc;

impl EpHost {
    /// The owner has back what was lent for a receive that ends without a word.
    pub(super) fn return_lent(&self, op: &RecvOp) {
        if let (true, Some(peer)) = (op.flags.intersects(Flags::PEER), &self.peer) {
            peer.owner.give_back(op.context);
        }
    }
}

impl EpHost {
    /// Where sends and receives complete.
    pub(super) fn queues(&self) -> [Option<Arc<CompletionQueue>>; 2] {
        [&self.tx, &self.rx].map(|part| part.cq.as_ref().map(|bound| Arc::clone(&bound.cq)))
    }
}

impl Direction {
    /// Whether completions go to another provider's queue.
    pub(super) fn has_owner(&self) -> bool {
        self.cq.as_ref().is_some_and(|bound| bound.cq.has_owner())
    }
}

impl<O: Outside> Driver<O> {
    /// The next message to ask the owner about.
    fn next_offer(&mut self) -> Option<Offer> {
        loop {
            let peer = self.host.peer.as_mut()?;
            let number = peer.fresh.pop_front()?;
            let Some(kept) = peer.messages.get_mut(&number) else { continue };
            kept.offered = true;
            let message = kept.message;
            let source = self.source_of(message.msg.peer);
            let Unexpected { tag, data, len_bytes, .. } = message;
            return Some(Offer { number, source, tag, data, len_bytes });
        }
    }

    /// The owner did not answer, and is asked again later.
    fn take_back(&mut self, number: u32) -> Option<()> {
        let peer = self.host.peer.as_mut()?;
        let kept = peer.messages.get_mut(&number)?;
        kept.offered = false;
        if kept.void.is_none() {
            peer.fresh.push_front(number);
        } else {
            peer.messages.remove(&number);
        }
        Some(())
    }

    /// Brings the owner's receive to its message.
    ///
    /// # Errors
    /// [`Error::Invalid`]: there is no such message.
    fn begin(&mut self, number: u32, slip: Slip) -> Result<(), Error> {
        let always = self.host.rx.always_completes();
        let Some(peer) = &mut self.host.peer else { return Err(Error::Invalid) };
        let Some(kept) = peer.messages.remove(&number) else { return Err(Error::Invalid) };
        let Some((recv, op)) = self.host.recvs.take() else { return Err(Error::Failed) };
        let LentReceive { buffers, flags, context } = peer.owner.lend(slip);
        let kind = if kept.message.tag.is_some() { Flags::TAGGED } else { Flags::MSG };
        let wanted = if always { Flags::COMPLETION } else { flags & Flags::COMPLETION };
        let made = RecvOp {
            buffers: buffers.unwrap_or_default(),
            context,
            flags: Flags::RECV | Flags::PEER | kind | wanted | flags & Flags::MULTI_RECV,
            completion: true,
            ..RecvOp::default()
        };
        *op = made;
        self.host.meet(recv, &kept.message);
        if let Some(cause) = kept.void {
            self.host.recv_ended(recv, Err(cause));
        } else if buffers.is_none_or(|buffers| !buffers.are_somewhere()) {
            tracing::info!("a receive of another provider's has no list of buffers that is valid");
            self.host.discard(&kept.message);
            self.host.recv_ended(recv, Err(Cause::BadBuffer));
        } else if !self.start(recv, &kept.message) {
            self.host.recv_ended(recv, Err(Cause::PeerClosed));
        }
        Ok(())
    }

    /// Says what has come of receives that begin.
    fn after_begin(&mut self) -> Option<()> {
        let now = monotonic_ns();
        self.settle();
        self.transmit(now, true);
        self.publish();
        Some(())
    }
}

impl Endpoint {
    /// Asks the owner, which calls, for the receives of messages that have come.
    pub(super) fn ask_owner(&self) {
        let Some(owner) = self.srx_owner.get() else { return };
        let Some(_serving) = self.serving.try_lock() else { return };
        let mut begun = false;
        while let Some(offer) = self.look_in(Driver::next_offer) {
            let back = match owner.get(&offer) {
                Answer::Receive(slip) => {
                    begun = true;
                    let started = self.look_in(|driver| driver.begin(offer.number, slip).ok());
                    if started.is_none() {
                        owner.free(slip);
                    }
                    false
                }
                Answer::NoReceive(slip) => !self.queue_with(&**owner, &offer, slip),
                Answer::Refused(errno) => {
                    tracing::info!(errno, "the owner of receives gives none and no entry");
                    true
                }
            };
            if back {
                self.look_in(|driver| driver.take_back(offer.number));
                break;
            }
        }
        if begun {
            self.look_in(Driver::after_begin);
            self.work();
        }
    }

    /// Queues a message with the owner. False if that fails.
    fn queue_with(&self, owner: &dyn ReceiveOwner, offer: &Offer, slip: Slip) -> bool {
        let number = self.look_in(|driver| driver.host.peer.as_ref().map(|peer| peer.number));
        let Some(endpoint) = number else {
            owner.free(slip);
            return false;
        };
        owner.queue(slip, Key { endpoint, message: offer.number }.bits(), offer)
    }

    /// Calls `f` if the endpoint is enabled and sound.
    fn look_in<R>(&self, f: impl FnOnce(&mut Driver) -> Option<R>) -> Option<R> {
        if !self.is_usable() {
            return None;
        }
        match &mut *self.lock() {
            State::Enabled(driver) => f(driver),
            State::Setup(_) | State::Closed => None,
        }
    }

    /// Addresses were inserted: the owner may want those of what it has queued.
    pub(super) fn tell_owner_of_names(&self) {
        if let Some(owner) = self.srx_owner.get() {
            owner.addresses_changed();
        }
    }

    /// Gives owners what has completed. One of them calls.
    fn hand_over(&self) {
        let queues = self.look_in(|driver| Some(driver.host.queues()));
        queues.iter().flatten().flatten().for_each(|cq| cq.hand_over());
    }
}

impl Queued for Endpoint {
    fn start(&self, message: u32, slip: Slip) -> Result<(), Error> {
        self.touch();
        let begun = self.look_in(|driver| {
            let begun = driver.begin(message, slip);
            driver.after_begin();
            Some(begun)
        });
        self.work();
        self.hand_over();
        if let Some(Err(_)) = begun {
            tracing::info!("start_msg, start_tag: the entry was not queued, or started before");
        }
        begun.unwrap_or(Err(Error::Failed))
    }

    fn discard(&self, message: u32) {
        self.look_in(|driver| {
            let kept = driver.host.peer.as_mut()?.messages.remove(&message)?;
            if kept.void.is_none() {
                driver.host.discard(&kept.message);
            }
            driver.after_begin()
        });
    }

    fn source(&self, message: u32) -> Option<PeerIndex> {
        self.look_in(|driver| {
            let peer = driver.host.peer.as_ref()?.peer_of(message)?;
            Some(driver.source_of(peer))
        })
    }
}
